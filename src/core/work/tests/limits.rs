//! Limits: how many jobs are taken at a time, how fast, and the history.

use super::*;
use crate::core::work::limits::Rate;
use crate::protocol::definition::WorkSettings;

#[test]
fn max_taken_is_a_limit_of_the_queue() {
    let mut memory = broker(&[number(WorkNumber::MaxTaken, 2)]);
    for name in ["a", "b", "c"] {
        push(&mut memory, job_of(name));
    }
    let first = take(&mut memory, 9, NOW);
    assert_eq!(bodies(&first), ["a", "b"]);
    assert!(take(&mut memory, 9, NOW).is_empty());
    submit(&mut memory, complete(first[1].taken), NOW).unwrap();
    assert_eq!(bodies(&take(&mut memory, 9, NOW)), ["c"]);
}

#[test]
fn jobs_of_one_key_keep_their_order() {
    let mut memory = broker(&[number(WorkNumber::MaxTakenPerKey, 1)]);
    for (name, key) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("a3", "a"), ("b2", "b")] {
        push(&mut memory, Push { key: Some(key.into()), ..job_of(name) });
    }
    push(&mut memory, job_of("free"));
    let first = take(&mut memory, 9, NOW);
    assert_eq!(bodies(&first), ["a1", "b1", "free"], "one of each key, and any without");
    submit(&mut memory, complete(first[0].taken), NOW).unwrap();
    let second = take(&mut memory, 9, NOW);
    assert_eq!(bodies(&second), ["a2"]);
    submit(&mut memory, WorkVerb::Cancel { job: second[0].taken.job, seen: None }, NOW).unwrap();
    submit(&mut memory, complete(first[1].taken), NOW).unwrap();
    assert_eq!(bodies(&take(&mut memory, 9, NOW)), ["b2", "a3"].iter().rev().copied().collect::<Vec<_>>());
}

#[test]
fn a_strict_queue_with_keys_is_strict_in_each_key() {
    let mut memory = broker(&[WorkOption::Order(WorkOrder::FifoStrict)]);
    for (name, key) in [("a1", "a"), ("a2", "a"), ("b1", "b")] {
        push(&mut memory, Push { key: Some(key.into()), ..job_of(name) });
    }
    let first = take(&mut memory, 9, NOW);
    assert_eq!(bodies(&first), ["a1", "b1"]);
    submit(&mut memory, fail(first[0].taken, AfterFailure::Policy), NOW).unwrap();
    assert!(take(&mut memory, 9, NOW).is_empty(), "a2 waits for the next attempt of a1");
}

#[test]
fn a_rate_lets_a_burst_go_and_then_one_job_after_the_other() {
    for key in [None, Some("k")] {
        let limit = if key.is_some() { WorkNumber::KeyRateJobs } else { WorkNumber::RateJobs };
        let mut memory = broker(&[number(limit, 4), number(WorkNumber::RateMs, 1000)]);
        for _ in 0..20 {
            push(&mut memory, Push { key: key.map(Arc::from), ..job_of("a") });
        }
        let mut taken = Vec::new();
        for ms in 0..3000 {
            memory.tick(after_ms(ms));
            taken.extend(take(&mut memory, 9, after_ms(ms)).iter().map(|_| ms));
        }
        assert_eq!(taken[..4], [0, 0, 0, 0]);
        assert_eq!(taken[4..], [250, 500, 750, 1000, 1250, 1500, 1750, 2000, 2250, 2500, 2750], "{key:?}");
        // A key's state goes with its jobs.
        for job in memory.jobs().jobs.keys().copied().collect::<Vec<_>>() {
            submit(&mut memory, WorkVerb::Cancel { job: JobId(job), seen: None }, after_ms(3000)).unwrap();
        }
        memory.tick(after_ms(100_000));
        assert!(memory.core.work.queues.values().all(|queue| queue.keys.is_empty()));
    }
}

#[test]
fn a_rate_lets_as_many_jobs_go_at_once_as_it_says_and_no_time_has_more() {
    for (jobs, ms) in [
        (1, 1),
        (3, 1000),
        (60, 1),
        (700, 1000),
        (3000, 1000),
        (7000, 1000),
        (999, 1),
        (1000, 1),
        (2_000_000, 1000),
        (1_000_000_000, 1),
        (1_000_000_000, 86_400_000),
    ] {
        let mut settings = WorkSettings::default();
        [number(WorkNumber::RateJobs, jobs), number(WorkNumber::RateMs, ms)]
            .iter()
            .for_each(|option| settings.set(*option));
        let rate = Rate::new(&settings, WorkNumber::RateJobs).unwrap();
        assert_eq!(rate.room(0, NOW.0), usize::try_from(jobs).unwrap(), "{jobs} jobs in {ms} ms");
        let mut next = 0;
        for taken in 1..=jobs.min(100) {
            next = rate.after(next, NOW.0);
            assert_eq!(rate.room(next, NOW.0), usize::try_from(jobs - taken).unwrap(), "{jobs} jobs in {ms} ms");
        }
        if jobs <= 100 {
            let pause = rate.next_time(next, NOW.0) - NOW.0;
            assert!(pause * jobs >= ms * 1000 && (pause - 1) * jobs < ms * 1000, "{jobs} jobs in {ms} ms: {pause} us");
        }
    }
}

/// The depth is what launches activated readers: those of a queue that waited for its rate were launched again and again.
#[test]
fn a_queue_whose_rate_is_used_up_has_no_job_for_readers_until_it_lets_one_go() {
    let mut memory = broker(&[number(WorkNumber::RateJobs, 2), number(WorkNumber::RateMs, 1000)]);
    let queue_id = memory.core.catalog().work_queue("w").unwrap().id;
    let depth = |memory: &Memory| memory.core.depth(queue_id).ready_groups;
    for _ in 0..9 {
        push(&mut memory, job_of("a"));
    }
    assert_eq!(depth(&memory), 2);
    assert_eq!(take(&mut memory, 9, NOW).len(), 2);
    assert_eq!(depth(&memory), 0);
    memory.tick(after_ms(500));
    assert_eq!(depth(&memory), 1);
    // A caller that read the clock before.
    submit(&mut memory, WorkVerb::Push(Box::new(job_of("late"))), after_ms(499)).unwrap();
    assert_eq!(depth(&memory), 1, "it is due, and no event would say so again");
    assert_eq!(take(&mut memory, 9, after_ms(500)).len(), 1);
    for (rate_ms, due) in [(2000, 2000), (100_000, 50_000)] {
        let options = vec![number(WorkNumber::RateJobs, 1), number(WorkNumber::RateMs, rate_ms)];
        let alter = Definition::AlterWorkQueue { name: "w".into(), options };
        memory.submit(vec![Verb::Define(vec![alter])], after_ms(500)).unwrap();
        assert_eq!(depth(&memory), 0, "{rate_ms}");
        assert!(memory.core.next_due().is_some_and(|at| at <= after_ms(due)), "{rate_ms}");
    }
    memory.tick(after_ms(100_000));
    assert_eq!(depth(&memory), 1);
}

#[test]
fn a_key_over_its_rate_holds_no_other_up() {
    let mut memory = broker(&[number(WorkNumber::KeyRateJobs, 1), number(WorkNumber::RateMs, 1000)]);
    for (name, key) in [("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b")] {
        push(&mut memory, Push { key: Some(key.into()), ..job_of(name) });
    }
    assert_eq!(bodies(&take(&mut memory, 9, NOW)), ["a1", "b1"]);
    assert!(memory.core.next_due().is_some_and(|due| due <= after_ms(1000)), "readers are woken for the next");
}

/// The names of keys whose rate was used up stayed for ever.
#[test]
fn a_dropped_queue_leaves_no_names_of_keys() {
    let mut memory = broker(&[number(WorkNumber::KeyRateJobs, 1), number(WorkNumber::RateMs, 1000)]);
    push(&mut memory, Push { key: Some("a".into()), ..job_of("a1") });
    let taken = take(&mut memory, 1, NOW);
    submit(&mut memory, complete(taken[0].taken), NOW).unwrap();
    assert!(memory.core.work.keys.find("a").is_some(), "its rate is used up");
    let drop = Definition::DropWorkQueue { name: "w".into() };
    memory.submit(vec![Verb::Define(vec![drop])], NOW).unwrap();
    assert_eq!(memory.core.work.keys.find("a"), None);
}

#[test]
fn as_many_readers_are_woken_as_may_take() {
    let mut memory = broker(&[number(WorkNumber::RateJobs, 2), number(WorkNumber::RateMs, 1000)]);
    for _ in 0..9 {
        push(&mut memory, job_of("a"));
    }
    assert_eq!(take(&mut memory, 2, NOW).len(), 2);
    let mut effects = crate::core::Effects::default();
    assert_eq!(memory.core.next_due(), Some(after_ms(500)), "though no taking has failed");
    memory.core.tick(after_ms(1500), &mut effects);
    assert_eq!(effects.arrivals.iter().map(|arrival| arrival.newly_ready).sum::<usize>(), 2);
    let options = vec![number(WorkNumber::RateJobs, 0)];
    let mut session = memory.core.begin();
    let alter = Verb::Define(vec![Definition::AlterWorkQueue { name: "w".into(), options }]);
    memory.core.execute(&mut session, alter, after_ms(1500)).unwrap();
    let mut effects = crate::core::Effects::default();
    memory.core.commit(session, after_ms(1500), &mut effects);
    assert_eq!(effects.arrivals.iter().map(|arrival| arrival.newly_ready).sum::<usize>(), 7);
}

#[test]
fn a_clock_that_is_set_back_wakes_the_readers_that_wait_for_a_rate() {
    let limits = [WorkNumber::RateJobs, WorkNumber::KeyRateJobs];
    for (limit, now_ms) in limits.into_iter().flat_map(|limit| [(limit, -1000), (limit, -3_600_000)]) {
        let mut memory = broker(&[number(limit, 1), number(WorkNumber::RateMs, 1000)]);
        for _ in 0..9 {
            push(&mut memory, Push { key: Some("k".into()), ..job_of("a") });
        }
        assert_eq!(take(&mut memory, 9, NOW).len(), 1);
        assert!(take(&mut memory, 9, NOW).is_empty());
        let mut effects = crate::core::Effects::default();
        memory.core.tick(after_ms(now_ms), &mut effects);
        assert_eq!(effects.arrivals.iter().map(|arrival| arrival.newly_ready).sum::<usize>(), 1, "{limit:?}");
        for right in [1, 0] {
            assert_eq!(take(&mut memory, 9, after_ms(now_ms)).len(), right, "{limit:?}");
        }
        assert_eq!(memory.core.next_due(), Some(after_ms(now_ms + 1000)), "{limit:?}");
    }
}

#[test]
fn a_take_whose_unit_is_refused_does_not_count_against_a_rate() {
    for limit in [WorkNumber::RateJobs, WorkNumber::KeyRateJobs] {
        let mut memory = broker(&[number(limit, 2), number(WorkNumber::RateMs, 1000)]);
        for _ in 0..3 {
            push(&mut memory, Push { key: Some("k".into()), ..job_of("a") });
        }
        for _ in 0..2 {
            let stranger = TakenJob { job: JobId(7), token: 7 };
            let unit = vec![Verb::Work(take_verb(9, LEASE)), Verb::Work(complete(stranger))];
            assert_eq!(memory.submit(unit, NOW).unwrap_err().code(), Code::JOB_NOT_FOUND);
        }
        assert_eq!(take(&mut memory, 9, NOW).len(), 2, "{limit:?}");
        assert!(take(&mut memory, 9, NOW).is_empty(), "{limit:?}");
    }
}

/// Queue monitors start a reader for each job that it counts.
#[test]
fn the_depth_of_a_queue_is_what_readers_may_take() {
    let depth = |memory: &Memory| {
        let queue = memory.core.catalog().work_queue("w").unwrap().id;
        memory.core.depth(queue).ready_groups
    };
    let alter = |memory: &mut Memory, option| {
        let alter = Definition::AlterWorkQueue { name: "w".into(), options: vec![option] };
        memory.submit(vec![Verb::Define(vec![alter])], NOW).unwrap();
    };
    let mut memory = broker(&[]);
    for key in ["k", "k", "k", "l"] {
        push(&mut memory, Push { key: Some(key.into()), ..job_of("a") });
    }
    assert_eq!(depth(&memory), 4);
    alter(&mut memory, number(WorkNumber::MaxTaken, 2));
    assert_eq!(depth(&memory), 2);
    alter(&mut memory, number(WorkNumber::MaxTakenPerKey, 1));
    assert_eq!(take(&mut memory, 1, NOW).len(), 1);
    assert_eq!(depth(&memory), 1, "one of the two is taken");
    alter(&mut memory, number(WorkNumber::MaxTaken, 0));
    assert_eq!(depth(&memory), 1, "of the key that has no taken job");
    alter(&mut memory, number(WorkNumber::MaxTakenPerKey, 0));
    assert_eq!(depth(&memory), 3);
    alter(&mut memory, number(WorkNumber::MaxTaken, 1));
    assert_eq!(depth(&memory), 0);
    alter(&mut memory, number(WorkNumber::MaxTaken, 0));
    alter(&mut memory, WorkOption::Status(false));
    assert_eq!(depth(&memory), 0, "it is paused");
}

/// A rollback brings it back, so it keeps its place.
#[test]
fn a_job_that_a_transaction_has_cancelled_counts_against_the_limit_of_its_key() {
    let mut memory = broker(&[WorkOption::Order(WorkOrder::FifoStrict), number(WorkNumber::MaxTakenPerKey, 2)]);
    let queue = memory.core.catalog().work_queue("w").unwrap().id;
    for name in ["a1", "a2", "a3"] {
        push(&mut memory, Push { key: Some("a".into()), ..job_of(name) });
    }
    assert_eq!(memory.core.depth(queue).ready_groups, 2);
    let mut session = begin(&mut memory);
    execute(&mut memory, &mut session, WorkVerb::Cancel { job: JobId(1), seen: None }).unwrap();
    assert_eq!(memory.core.depth(queue).ready_groups, 1);
    assert_eq!(bodies(&take(&mut memory, 9, NOW)), ["a2"]);
    memory.rollback(session, NOW);
    assert_eq!(bodies(&take(&mut memory, 9, NOW)), ["a1"]);
}

/// A take wakes no reader, but the depth is published: a monitor that does not learn it starts readers for jobs that are gone.
#[test]
fn a_job_that_leaves_those_that_may_be_taken_tells_the_depth() {
    let published =
        |effects: &crate::core::Effects| effects.arrivals.iter().map(|arrival| arrival.newly_ready).collect::<Vec<_>>();
    for limit in [None, Some(number(WorkNumber::MaxTakenPerKey, 1))] {
        let mut memory = broker(limit.as_slice());
        for _ in 0..2 {
            push(&mut memory, Push { key: Some("k".into()), ..job_of("a") });
        }
        let mut session = memory.core.begin();
        memory.core.execute(&mut session, Verb::Work(take_verb(1, LEASE)), NOW).unwrap();
        let mut effects = crate::core::Effects::default();
        memory.core.commit(session, NOW, &mut effects);
        assert_eq!(published(&effects), [0], "{limit:?}");
        // One that stands behind another of its key was not among them.
        let mut session = memory.core.begin();
        let cancel = WorkVerb::Cancel { job: JobId(2), seen: None };
        memory.core.execute(&mut session, Verb::Work(cancel), NOW).unwrap();
        let mut effects = crate::core::Effects::default();
        memory.core.commit(session, NOW, &mut effects);
        let expected: &[usize] = if limit.is_some() { &[] } else { &[0] };
        assert_eq!(published(&effects), expected, "{limit:?}");
    }
}

#[test]
fn a_paused_queue_takes_jobs_and_gives_none() {
    let mut memory = broker(&[]);
    let alter = |memory: &mut Memory, is_on| {
        let options = vec![WorkOption::Status(is_on)];
        let alter = Definition::AlterWorkQueue { name: "W".into(), options };
        memory.submit(vec![Verb::Define(vec![alter])], NOW).unwrap();
    };
    alter(&mut memory, false);
    push(&mut memory, job_of("a"));
    assert!(take(&mut memory, 1, NOW).is_empty());
    alter(&mut memory, true);
    assert_eq!(bodies(&take(&mut memory, 1, NOW)), ["a"]);
}

#[test]
fn a_limit_that_is_altered_holds_for_jobs_that_wait() {
    let mut memory = broker(&[]);
    for name in ["a1", "a2", "a3"] {
        push(&mut memory, Push { key: Some("a".into()), ..job_of(name) });
    }
    let alter = |memory: &mut Memory, most| {
        let options = vec![number(WorkNumber::MaxTakenPerKey, most)];
        let alter = Definition::AlterWorkQueue { name: "w".into(), options };
        memory.submit(vec![Verb::Define(vec![alter])], NOW).unwrap();
    };
    alter(&mut memory, 1);
    assert_eq!(bodies(&take(&mut memory, 9, NOW)), ["a1"]);
    alter(&mut memory, 0);
    assert_eq!(bodies(&take(&mut memory, 9, NOW)), ["a2", "a3"]);
}

#[test]
fn a_history_is_cut_at_one_time_at_a_time() {
    let mut memory = broker(&[number(WorkNumber::HistorySeconds, 100)]);
    let mut now_ms = 0;
    for round in 0..50 {
        for _ in 0..70 {
            push(&mut memory, job_of("a"));
            let take = Take {
                queue: "w".into(),
                count: 1,
                job_type: None,
                from: TakeFrom::Any,
                hold: Hold::Transaction,
                taken_by: "reader".into(),
            };
            memory.submit(vec![Verb::Work(WorkVerb::Take(Box::new(take)))], after_ms(now_ms)).unwrap();
        }
        now_ms += 900;
        memory.tick(after_ms(now_ms));
        let due = memory
            .core
            .work
            .due
            .iter()
            .filter(|(_, due)| matches!(due, crate::core::work::state::Due::History { .. }))
            .count();
        assert!(due <= 1, "{due} cuts are due in round {round}");
    }
}

#[test]
fn the_history_keeps_to_its_bounds() {
    let mut memory = broker(&[number(WorkNumber::HistoryRows, 100), number(WorkNumber::HistorySeconds, 60)]);
    for _ in 0..1500 {
        push_and_complete(&mut memory, NOW);
    }
    assert_eq!(memory.jobs().history.len(), 600, "cut once, after a thousand");
    memory.tick(after_ms(10_000));
    assert_eq!(memory.jobs().history.len(), 100);
    push_and_complete(&mut memory, after_ms(59_000));
    memory.tick(after_ms(70_000));
    assert_eq!(memory.jobs().history.len(), 1, "the others are over a minute old");
    memory.tick(after_ms(140_000));
    assert!(memory.jobs().history.is_empty(), "also if no job finishes any more");
    assert_eq!(memory.core.next_due(), None, "a quiet queue costs nothing then");
    let mut memory = broker(&[WorkOption::History(false)]);
    push_and_complete(&mut memory, NOW);
    assert!(memory.jobs().history.is_empty() && memory.jobs().jobs.is_empty());
    assert_eq!(memory.core.next_due(), None, "there is nothing to cut");
}

#[test]
fn a_quiet_history_is_cut_each_tenth_of_its_time() {
    let times = |seconds| {
        let mut memory = broker(&[number(WorkNumber::HistorySeconds, seconds)]);
        push_and_complete(&mut memory, NOW);
        let mut times = Vec::new();
        while let Some(due) = memory.core.next_due() {
            times.push((due.0 - NOW.0) / 1_000_000);
            memory.tick(due);
        }
        assert!(memory.jobs().history.is_empty());
        times
    };
    assert_eq!(times(1000), [10, 110, 210, 310, 410, 510, 610, 710, 810, 910, 1010]);
    assert_eq!(times(20), [10, 20, 30], "ten seconds apart at least");
}

#[test]
fn a_cut_that_left_rows_is_made_again_at_once() {
    let mut memory = broker(&[]);
    push_and_complete(&mut memory, NOW);
    memory.tick(after_ms(10_000));
    assert!(memory.core.next_due() > Some(after_ms(11_000)));
    let queue = memory.core.catalog().work_queue("w").unwrap().id;
    memory.core.cut_history_again(queue, after_ms(11_000));
    assert_eq!(memory.core.next_due(), Some(after_ms(11_000)));
}

#[test]
fn a_cut_after_a_thousand_jobs_takes_the_place_of_the_next_one() {
    let mut memory = broker(&[number(WorkNumber::HistorySeconds, 1000)]);
    for ms in [0, 5000] {
        for _ in 0..500 {
            push_and_complete(&mut memory, after_ms(ms));
        }
    }
    assert_eq!(memory.core.next_due(), Some(after_ms(105_000)));
    push_and_complete(&mut memory, after_ms(6000));
    memory.tick(after_ms(16_000));
    assert_eq!(memory.core.next_due(), Some(after_ms(116_000)), "a sooner cut takes the place of a later one");
}

#[test]
fn a_history_is_cut_although_the_clock_was_ahead() {
    let mut memory = broker(&[number(WorkNumber::HistoryRows, 1)]);
    for _ in 0..3 {
        push_and_complete(&mut memory, after_ms(3_600_000));
    }
    push_and_complete(&mut memory, NOW);
    memory.tick(after_ms(10_000));
    assert_eq!(memory.jobs().history.len(), 1);
}

#[test]
fn a_rate_wakes_no_more_readers_than_there_are_jobs() {
    let mut memory = broker(&[number(WorkNumber::RateJobs, 2), number(WorkNumber::RateMs, 1000)]);
    for _ in 0..3 {
        push(&mut memory, job_of("a"));
    }
    assert_eq!(take(&mut memory, 2, NOW).len(), 2);
    let mut effects = crate::core::Effects::default();
    memory.core.tick(after_ms(1500), &mut effects);
    assert_eq!(effects.arrivals.iter().map(|arrival| arrival.newly_ready).sum::<usize>(), 1);
}

fn push_and_complete(memory: &mut Memory, now: Timestamp) {
    let verb = |verb: WorkVerb| vec![Verb::Work(verb)];
    memory.submit(verb(WorkVerb::Push(Box::new(job_of("a")))), now).unwrap();
    let taken = jobs(memory.submit(verb(take_verb(1, LEASE)), now).unwrap().unwrap().remove(0));
    memory.submit(verb(complete(taken[0].taken)), now).unwrap();
}
