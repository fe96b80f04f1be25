//! Random work: after every step the rows rebuild the broker that wrote them, and no job is lost or handed out twice.

use super::super::ready::most_of_key;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

#[derive(Debug, Clone)]
enum Step {
    Push { key: usize, level: u8, delay_ms: i64, unique: Option<usize> },
    Take { count: i64, is_lease: bool, of_type: Option<usize> },
    Complete { which: usize },
    Fail { which: usize, then: usize },
    Extend { which: usize },
    Cancel { job: u64 },
    Redrive { job: u64 },
    Open,
    Commit,
    Rollback,
    Savepoint,
    Pass { ms: i64 },
    Limit { which: usize, value: i64 },
    Status(bool),
}

fn step() -> impl Strategy<Value = (bool, Step)> {
    let step = prop_oneof![
        6 => (0usize..4, 1u8..=10, prop_oneof![3 => Just(0), 1 => 1i64..500], prop::option::weighted(0.2, 0usize..3))
            .prop_map(|(key, level, delay_ms, unique)| Step::Push { key, level, delay_ms, unique }),
        6 => (1i64..4, any::<bool>(), prop::option::weighted(0.2, 0usize..2))
            .prop_map(|(count, is_lease, of_type)| Step::Take { count, is_lease, of_type }),
        4 => (0usize..6).prop_map(|which| Step::Complete { which }),
        3 => (0usize..6, 0usize..3).prop_map(|(which, then)| Step::Fail { which, then }),
        1 => (0usize..6).prop_map(|which| Step::Extend { which }),
        2 => (1u64..20).prop_map(|job| Step::Cancel { job }),
        2 => (1u64..20).prop_map(|job| Step::Redrive { job }),
        2 => Just(Step::Open),
        2 => Just(Step::Commit),
        1 => Just(Step::Rollback),
        1 => Just(Step::Savepoint),
        3 => (1i64..400).prop_map(|ms| Step::Pass { ms }),
        1 => (0usize..4, 0i64..4).prop_map(|(which, value)| Step::Limit { which, value }),
        1 => any::<bool>().prop_map(Step::Status),
    ];
    (any::<bool>(), step)
}

fn verb(step: &Step, known: &[TakenJob]) -> Option<WorkVerb> {
    let taken = |which: usize| known.iter().rev().nth(which).copied();
    Some(match step {
        Step::Push { key, level, delay_ms, unique } => WorkVerb::Push(Box::new(Push {
            key: (*key > 0).then(|| format!("k{key}").into()),
            job_type: format!("t{}", key % 2).into(),
            level: *level,
            due: Due::InMs(*delay_ms),
            unique: unique.map(|name| Unique { key: format!("u{name}").into(), window_ms: (name > 0).then_some(100) }),
            ..job_of("x")
        })),
        Step::Take { count, is_lease, of_type } => {
            let hold = if *is_lease { Hold::Lease(Some(200)) } else { Hold::Transaction };
            let WorkVerb::Take(mut take) = take_verb(*count, hold) else { return None };
            take.job_type = of_type.map(|of_type| format!("t{of_type}").into());
            WorkVerb::Take(take)
        }
        Step::Complete { which } => complete(taken(*which)?),
        Step::Fail { which, then } => {
            let then = [AfterFailure::Policy, AfterFailure::RetryInMs(7), AfterFailure::Dead][*then];
            fail(taken(*which)?, then)
        }
        Step::Extend { which } => WorkVerb::Extend { taken: taken(*which)?, lease_ms: None },
        Step::Cancel { job } => WorkVerb::Cancel { job: JobId(*job), seen: None },
        Step::Redrive { job } => WorkVerb::Redrive { job: JobId(*job), seen: None },
        _ => return None,
    })
}

/// What a strict queue without a rate for keys offers, and what it should: of each key the first jobs, as many as may be held beside those
/// that are, but for those among them that an open transaction has cancelled.
fn offered_strictly(work: &super::super::Work) -> Option<(Vec<u64>, Vec<u64>)> {
    let (_, queue) = work.queues.iter().next()?;
    let settings = &queue.settings;
    if settings.order != WorkOrder::FifoStrict || settings.get(WorkNumber::KeyRateJobs) > 0 {
        return None;
    }
    let jobs = || work.jobs.iter().map(|(_, job)| job);
    let keys: BTreeSet<u32> = jobs().map(|job| job.key).collect();
    let mut expected = Vec::new();
    for key in keys {
        let of_key = || jobs().filter(|job| job.key == key);
        let is_held = |job: &&super::super::job::Job| {
            job.state == JobState::Taken || job.state == JobState::Scheduled && job.is_retry
        };
        let room = most_of_key(settings, key).unwrap().saturating_sub(of_key().filter(is_held).count());
        let mut line: Vec<_> = of_key().filter(|job| job.state == JobState::Ready && !job.is_uncommitted).collect();
        line.sort_unstable_by_key(|job| job.id);
        expected.extend(line.into_iter().take(room).filter(|job| job.is_free()).map(|job| job.id));
    }
    expected.sort_unstable();
    Some((queue.ready.all.iter().map(|place| work.jobs[place.job].id).collect(), expected))
}

proptest! {
    #![proptest_config(dialoq_test_support::seeds::config(400))]

    #[test]
    fn rows_rebuild_the_broker(
        order in 0usize..5,
        steps in prop::collection::vec(step(), 1..80),
    ) {
        let options = [WorkOption::Order(WorkOrder::ALL[order].1), number(WorkNumber::MaxAttempts, 3), number(WorkNumber::RetryDelayMs, 50)];
        let mut memory = broker(&options);
        let (mut ms, mut session, mut savepoint) = (0, None::<Session>, None);
        let (mut known, mut tokens) = (Vec::<TakenJob>::new(), BTreeSet::new());
        for (in_transaction, step) in steps {
            let now = after_ms(ms);
            match &step {
                Step::Open => {
                    session.get_or_insert_with(|| memory.core.begin_transaction());
                    savepoint = None;
                }
                Step::Commit => {
                    if let Some(session) = session.take() {
                        memory.commit(session, now);
                    }
                }
                Step::Rollback => {
                    if let Some(session) = session.take() {
                        memory.rollback(session, now);
                    }
                }
                Step::Savepoint => {
                    if let Some(session) = &mut session {
                        match savepoint.take() {
                            Some(earlier) => memory.rollback_to(session, earlier, now),
                            None => savepoint = Some(memory.core.savepoint(session)),
                        }
                    }
                }
                Step::Pass { ms: more } => ms += more,
                Step::Limit { which, value } => {
                    let which = [WorkNumber::MaxTaken, WorkNumber::MaxTakenPerKey, WorkNumber::RateJobs, WorkNumber::KeyRateJobs][*which];
                    let alter = Definition::AlterWorkQueue { name: "w".into(), options: vec![number(which, *value)] };
                    prop_assert!(memory.submit(vec![Verb::Define(vec![alter])], now).is_ok());
                }
                Step::Status(is_on) => {
                    let options = vec![WorkOption::Status(*is_on)];
                    let alter = Definition::AlterWorkQueue { name: "w".into(), options };
                    prop_assert!(memory.submit(vec![Verb::Define(vec![alter])], now).is_ok());
                }
                step => {
                    let Some(verb) = verb(step, &known) else { continue };
                    let outcome = match &mut session {
                        Some(session) if in_transaction => memory.execute(session, Verb::Work(verb), now).map(Option::unwrap),
                        _ => memory.submit(vec![Verb::Work(verb)], now).map(|outcomes| outcomes.unwrap().remove(0)),
                    };
                    if let Ok(Outcome::Jobs(jobs)) = outcome {
                        for job in jobs {
                            prop_assert!(tokens.insert(job.taken.token), "a token is given once");
                            known.push(job.taken);
                        }
                    }
                }
            }
            memory.tick(after_ms(ms));
            is_restored(&memory, after_ms(ms));
            if let Some((offered, expected)) = offered_strictly(&memory.core.work) {
                prop_assert_eq!(offered, expected);
            }
        }
        if let Some(session) = session.take() {
            memory.rollback(session, after_ms(ms));
        }
        // Without limits every job that is not finished can be taken in the end.
        let mut open: Vec<WorkOption> = [WorkNumber::MaxTaken, WorkNumber::MaxTakenPerKey, WorkNumber::RateJobs, WorkNumber::KeyRateJobs]
            .map(|limit| number(limit, 0)).into();
        open.push(WorkOption::Status(true));
        let alter = Definition::AlterWorkQueue { name: "w".into(), options: open };
        memory.submit(vec![Verb::Define(vec![alter])], after_ms(ms)).unwrap();
        for _ in 0..10_000 {
            ms += 1000;
            memory.tick(after_ms(ms));
            let taken = jobs(memory.submit(vec![Verb::Work(take_verb(100, LEASE))], after_ms(ms)).unwrap().unwrap().remove(0));
            for job in &taken {
                memory.submit(vec![Verb::Work(complete(job.taken))], after_ms(ms)).unwrap();
            }
            if memory.jobs().jobs.values().all(|(row, _)| row.state == JobState::Dead) {
                break;
            }
        }
        let left: Vec<_> = memory.jobs().jobs.values().filter(|(row, _)| row.state != JobState::Dead).collect();
        prop_assert!(left.is_empty(), "{left:?}");
        let work = &memory.core.work;
        prop_assert!(work.queues.values().all(|queue| queue.taken == 0 && queue.takeable == 0 && queue.ready.all.is_empty()));
        prop_assert!(work.queues.values().all(|queue| queue.keys.is_empty() && queue.ready.by_type.is_empty()), "{:?}", work.queues);
    }
}
