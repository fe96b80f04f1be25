//! The state machine of jobs by itself.

mod limits;
mod random;
mod restoring;
mod schedules;
mod transactions;

use crate::core::{FinishedAs, Limits, Memory, Reply, Session, Step};
use crate::error::Code;
use crate::id::JobId;
use crate::protocol::definition::{Definition, WorkNumber, WorkOption, WorkOrder};
use crate::protocol::work::*;
use crate::protocol::{Outcome, Verb};
use crate::time::Timestamp;
use std::sync::Arc;

const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

fn after_ms(ms: i64) -> Timestamp {
    Timestamp(NOW.0 + ms * 1000)
}

fn number(number: WorkNumber, value: i64) -> WorkOption {
    WorkOption::Number(number, value)
}

/// A broker with a work queue `w`; pauses have no jitter unless the options say so.
fn broker(options: &[WorkOption]) -> Memory {
    let mut memory = Memory::new(Limits::default());
    let mut options = options.to_vec();
    options.push(number(WorkNumber::RetryJitterPercent, 0));
    let create = Definition::CreateWorkQueue { name: "w".into(), options };
    memory.submit(vec![Verb::Define(vec![create])], NOW).unwrap();
    memory
}

fn job_of(name: &str) -> Push {
    Push {
        queue: "w".into(),
        job_type: "t".into(),
        key: None,
        level: 5,
        due: Due::Now,
        unique: None,
        body: Some(Arc::new(name.as_bytes().to_vec())),
        pushed_by: "writer".into(),
    }
}

fn push(memory: &mut Memory, push: Push) -> JobId {
    match submit(memory, WorkVerb::Push(Box::new(push)), NOW) {
        Ok(Outcome::Pushed { job: Some(job), .. }) => job,
        other => panic!("{other:?}"),
    }
}

fn submit(memory: &mut Memory, verb: WorkVerb, now: Timestamp) -> crate::error::Result<Outcome> {
    let result = memory.submit(vec![Verb::Work(verb)], now).map(|outcomes| outcomes.unwrap().remove(0));
    is_restored(memory, now);
    result
}

/// Checks that the rows rebuild the broker, unless a transaction holds a job: after a crash that would be a failed
/// attempt.
fn is_restored(memory: &Memory, now: Timestamp) {
    let restored = memory.restored(now).unwrap();
    if memory.core.work.jobs.iter().all(|(_, job)| job.session == 0) {
        assert_eq!(shown(&restored.work), shown(&memory.core.work), "restored from its rows");
    }
}

/// The jobs of a broker as text, in the order of their ids; then those that may be taken, of queues without limits.
fn shown(work: &super::Work) -> Vec<String> {
    let mut jobs: Vec<_> = work.jobs.iter().map(|(_, job)| job).collect();
    jobs.sort_by_key(|job| job.id);
    let jobs = jobs.into_iter().map(|job| {
        let at = if matches!(job.state, JobState::Taken | JobState::Scheduled) { job.at } else { 0 };
        format!("{} {:?} {} {} {at} {}", job.id, job.state, job.attempts, job.token, work.types.name(job.job_type))
    });
    let limits = [WorkNumber::MaxTaken, WorkNumber::MaxTakenPerKey, WorkNumber::RateJobs, WorkNumber::KeyRateJobs];
    let is_limited = |queue: &super::state::WorkQueueState| limits.iter().any(|limit| queue.settings.get(*limit) > 0);
    let mut queues: Vec<_> = work.queues.iter().filter(|(_, queue)| !is_limited(queue)).collect();
    queues.sort_unstable_by_key(|(id, _)| **id);
    let ready = queues.into_iter().map(|(id, queue)| {
        let ready: Vec<u64> = queue.ready.all.iter().map(|place| work.jobs[place.job].id).collect();
        format!("{id}: {ready:?}")
    });
    let mut schedules: Vec<_> = work
        .schedules
        .iter()
        .map(|(id, schedule)| format!("{id}: {:?} {:?}", schedule.next_at, schedule.last_at))
        .collect();
    schedules.sort_unstable();
    jobs.chain(ready).chain(schedules).collect()
}

fn take_verb(count: i64, hold: Hold) -> WorkVerb {
    WorkVerb::Take(Box::new(Take {
        queue: "w".into(),
        count,
        job_type: None,
        from: TakeFrom::Any,
        hold,
        taken_by: "reader".into(),
    }))
}

fn jobs(outcome: Outcome) -> Vec<Job> {
    match outcome {
        Outcome::Jobs(jobs) => jobs,
        other => panic!("{other:?}"),
    }
}

const LEASE: Hold = Hold::Lease(None);

fn take(memory: &mut Memory, count: i64, now: Timestamp) -> Vec<Job> {
    jobs(submit(memory, take_verb(count, LEASE), now).unwrap())
}

fn bodies(jobs: &[Job]) -> Vec<&str> {
    jobs.iter().map(|job| std::str::from_utf8(job.body.as_deref().unwrap_or_default()).unwrap()).collect()
}

fn refusal(result: crate::error::Result<Outcome>) -> Code {
    result.unwrap_err().code()
}

fn complete(taken: TakenJob) -> WorkVerb {
    WorkVerb::Complete { taken, result: None }
}

fn fail(taken: TakenJob, then: AfterFailure) -> WorkVerb {
    WorkVerb::Fail { taken, reason: "broken".into(), then }
}

#[test]
fn a_job_is_pushed_taken_and_completed() {
    let mut memory = broker(&[]);
    let id = push(&mut memory, job_of("one"));
    let taken = take(&mut memory, 10, NOW);
    assert_eq!(bodies(&taken), ["one"]);
    let job = &taken[0];
    assert_eq!((job.taken.job, job.attempt, &*job.pushed_by, job.level), (id, 1, "writer", 5));
    assert_eq!(job.lease_until, Some(after_ms(60_000)));
    assert!(take(&mut memory, 10, NOW).is_empty(), "a job is handed to one reader");
    submit(&mut memory, complete(job.taken), after_ms(7)).unwrap();
    let history: Vec<_> = memory.jobs().history.values().collect();
    assert_eq!(history.len(), 1);
    assert_eq!(
        (history[0].job_id, history[0].finished_as, history[0].finished_at),
        (id.0, FinishedAs::Done, after_ms(7))
    );
    assert_eq!(refusal(submit(&mut memory, complete(job.taken), NOW)), Code::JOB_NOT_FOUND, "a double completion");
}

/// The marks in the rows are written once for many numbers; here as if so many had been used.
#[test]
fn numbers_of_jobs_and_takings_are_used_once_although_their_rows_are_gone() {
    let mut memory = broker(&[WorkOption::History(false)]);
    let cancel = |memory: &mut Memory, job| submit(memory, WorkVerb::Cancel { job, seen: None }, NOW).unwrap();
    let of_restored = |memory: &Memory| {
        let mut core = memory.restored(NOW).unwrap();
        let mut session = core.begin();
        let pushed = core.execute(&mut session, Verb::Work(WorkVerb::Push(Box::new(job_of("a")))), NOW).unwrap();
        let Step::Done(Reply::Outcome(Outcome::Pushed { job: Some(job), .. })) = pushed else { panic!("{pushed:?}") };
        core.commit(session, NOW, &mut crate::core::Effects::default());
        let mut session = core.begin();
        let taken = core.execute(&mut session, Verb::Work(take_verb(1, LEASE)), NOW).unwrap();
        let Step::Done(Reply::Jobs(jobs)) = taken else { panic!("{taken:?}") };
        (job, jobs[0].taken().token)
    };
    let job = push(&mut memory, job_of("a"));
    memory.core.work.continue_from(1_000_000, 1);
    let later = push(&mut memory, job_of("a"));
    assert_eq!(later.0, 1_000_000);
    cancel(&mut memory, later);
    assert!(of_restored(&memory).0 > later, "no job has had a number since");
    memory.core.work.continue_from(1, 1_000_000);
    let token = take(&mut memory, 1, NOW)[0].taken.token;
    assert_eq!(token, 1_000_000);
    cancel(&mut memory, job);
    assert!(of_restored(&memory).1 > token, "nor a taking");
}

#[test]
fn orders() {
    let pushed = |order: WorkOrder| {
        let mut memory = broker(&[WorkOption::Order(order)]);
        for (name, level) in [("a", 3), ("b", 9), ("c", 9), ("d", 1)] {
            push(&mut memory, Push { level, ..job_of(name) });
        }
        let taken = take(&mut memory, 10, NOW);
        bodies(&taken).concat()
    };
    assert_eq!(pushed(WorkOrder::Fifo), "abcd");
    assert_eq!(pushed(WorkOrder::Lifo), "dcba");
    assert_eq!(pushed(WorkOrder::Priority), "bcad");
    assert_eq!(pushed(WorkOrder::FifoStrict), "a", "the next comes when this one is finished");
    let mut any: Vec<char> = pushed(WorkOrder::Unordered).chars().collect();
    any.sort_unstable();
    assert_eq!(any, ['a', 'b', 'c', 'd']);
}

#[test]
fn a_strict_queue_waits_for_the_next_attempt_of_a_failed_job() {
    let mut memory = broker(&[WorkOption::Order(WorkOrder::FifoStrict)]);
    push(&mut memory, job_of("a"));
    push(&mut memory, job_of("b"));
    let first = take(&mut memory, 2, NOW);
    submit(&mut memory, fail(first[0].taken, AfterFailure::Policy), NOW).unwrap();
    assert!(take(&mut memory, 2, after_ms(500)).is_empty());
    memory.tick(after_ms(1000));
    let again = take(&mut memory, 2, after_ms(1000));
    assert_eq!((bodies(&again), again[0].attempt), (vec!["a"], 2));
    assert_eq!(again[0].last_error.as_deref(), Some("broken"));
    submit(&mut memory, fail(again[0].taken, AfterFailure::Dead), after_ms(1000)).unwrap();
    assert_eq!(bodies(&take(&mut memory, 2, after_ms(1000))), ["b"], "a dead job holds no other job up");
}

#[test]
fn levels_and_the_oldest_are_for_queues_with_priorities() {
    let mut memory = broker(&[WorkOption::Order(WorkOrder::Priority)]);
    for (name, level) in [("a", 2), ("b", 9), ("c", 5)] {
        push(&mut memory, Push { level, ..job_of(name) });
    }
    let from = |memory: &mut Memory, from: TakeFrom| {
        let WorkVerb::Take(mut take) = take_verb(1, LEASE) else { unreachable!() };
        take.from = from;
        submit(memory, WorkVerb::Take(take), NOW)
    };
    let one = |memory: &mut Memory, which: TakeFrom| bodies(&jobs(from(memory, which).unwrap())).concat();
    assert_eq!(one(&mut memory, TakeFrom::Levels { lowest: 3, highest: 8 }), "c");
    assert_eq!(one(&mut memory, TakeFrom::Levels { lowest: 3, highest: 8 }), "");
    assert_eq!(one(&mut memory, TakeFrom::Oldest), "a");
    assert_eq!(refusal(from(&mut memory, TakeFrom::Levels { lowest: 5, highest: 4 })), Code::OUT_OF_RANGE);
    assert_eq!(refusal(from(&mut broker(&[]), TakeFrom::Oldest)), Code::OUT_OF_RANGE);
}

#[test]
fn a_type_is_taken_without_the_others() {
    let mut memory = broker(&[]);
    for (name, job_type) in [("a", "mail"), ("b", "print"), ("c", "mail")] {
        push(&mut memory, Push { job_type: job_type.into(), ..job_of(name) });
    }
    let mut of_type = |job_type: &str| {
        let WorkVerb::Take(mut take) = take_verb(10, LEASE) else { unreachable!() };
        take.job_type = Some(job_type.into());
        bodies(&jobs(submit(&mut memory, WorkVerb::Take(take), NOW).unwrap())).concat()
    };
    assert_eq!(of_type("print"), "b");
    assert_eq!(of_type("unknown"), "");
    assert_eq!(of_type("mail"), "ac");
}

#[test]
fn attempts_end_in_the_dead_letter_and_begin_again_after_a_redrive() {
    let mut memory = broker(&[number(WorkNumber::MaxAttempts, 3)]);
    let id = push(&mut memory, job_of("a"));
    assert_eq!(refusal(submit(&mut memory, WorkVerb::Redrive { job: id, seen: None }, NOW)), Code::JOB_NOT_DEAD);
    let mut at = 0;
    for (attempt, pause) in [(1, 1000), (2, 2000), (3, 0)] {
        let taken = take(&mut memory, 1, after_ms(at)).remove(0);
        assert_eq!(taken.attempt, attempt);
        let state = submit(&mut memory, fail(taken.taken, AfterFailure::Policy), after_ms(at)).unwrap();
        let expected = if attempt < 3 { JobState::Scheduled } else { JobState::Dead };
        assert_eq!(state, Outcome::Failed(expected));
        memory.tick(after_ms(at + pause - 1));
        assert!(take(&mut memory, 1, after_ms(at + pause - 1)).is_empty());
        at += pause;
        memory.tick(after_ms(at));
    }
    assert!(take(&mut memory, 1, after_ms(9_999_999)).is_empty());
    submit(&mut memory, WorkVerb::Redrive { job: id, seen: None }, NOW).unwrap();
    assert_eq!(take(&mut memory, 1, NOW)[0].attempt, 1);
}

#[test]
fn a_lease_ends_by_itself_unless_it_is_extended() {
    let mut memory = broker(&[number(WorkNumber::LeaseMs, 100), number(WorkNumber::RetryDelayMs, 0)]);
    push(&mut memory, job_of("a"));
    let first = take(&mut memory, 1, NOW).remove(0).taken;
    submit(&mut memory, WorkVerb::Extend { taken: first, lease_ms: Some(300) }, after_ms(50)).unwrap();
    memory.tick(after_ms(349));
    submit(&mut memory, WorkVerb::Report { taken: first, progress: "half".into() }, after_ms(349)).unwrap();
    assert_eq!(refusal(submit(&mut memory, complete(first), after_ms(350))), Code::LEASE_LOST, "before any tick");
    memory.tick(after_ms(350));
    assert_eq!(refusal(submit(&mut memory, complete(first), after_ms(350))), Code::JOB_NOT_TAKEN);
    let second = take(&mut memory, 1, after_ms(350)).remove(0);
    assert_eq!((second.attempt, second.last_error.as_deref()), (2, Some("its lease was over")));
    assert!(second.taken.token > first.token, "the fencing token grows");
    assert_eq!(refusal(submit(&mut memory, complete(first), after_ms(351))), Code::LEASE_LOST, "a stale token");
    submit(&mut memory, complete(second.taken), after_ms(351)).unwrap();
}

#[test]
fn a_job_becomes_ready_at_its_time() {
    let mut memory = broker(&[]);
    push(&mut memory, Push { due: Due::InMs(100), ..job_of("later") });
    push(&mut memory, Push { due: Due::At(after_ms(50)), ..job_of("sooner") });
    push(&mut memory, Push { due: Due::At(after_ms(-50)), ..job_of("past") });
    push(&mut memory, Push { due: Due::At(NOW), ..job_of("now") });
    assert_eq!(bodies(&take(&mut memory, 9, NOW)), ["past", "now"]);
    assert_eq!(memory.core.next_due(), Some(after_ms(50)));
    memory.tick(after_ms(50));
    assert_eq!(bodies(&take(&mut memory, 9, after_ms(50))), ["sooner"]);
    memory.tick(after_ms(100));
    assert_eq!(bodies(&take(&mut memory, 9, after_ms(100))), ["later"]);
}

#[test]
fn a_clock_that_is_set_back_leaves_a_job_ready_in_its_row() {
    for (ms, state) in [(-899, JobState::Scheduled), (-900, JobState::Ready)] {
        let mut memory = broker(&[]);
        let job = push(&mut memory, Push { due: Due::InMs(100), ..job_of("a") });
        memory.tick(after_ms(100));
        memory.tick(after_ms(ms));
        assert_eq!(memory.jobs().jobs[&job.0].0.state, state, "{ms}");
    }
}

#[test]
fn a_unique_key_takes_one_job() {
    let mut memory = broker(&[]);
    let unique = |window_ms| Push { unique: Some(Unique { key: "u".into(), window_ms }), ..job_of("a") };
    let again =
        |memory: &mut Memory, window_ms, now| match submit(memory, WorkVerb::Push(Box::new(unique(window_ms))), now)
            .unwrap()
        {
            Outcome::Pushed { job, is_new } => (job, is_new),
            other => panic!("{other:?}"),
        };
    let first = push(&mut memory, unique(None));
    assert_eq!(again(&mut memory, None, NOW), (Some(first), false));
    let taken = take(&mut memory, 1, NOW).remove(0).taken;
    assert_eq!(again(&mut memory, None, NOW), (Some(first), false), "while a reader works on it");
    submit(&mut memory, complete(taken), NOW).unwrap();
    let (second, is_new) = again(&mut memory, Some(100), NOW);
    assert!(is_new && second != Some(first));
    let taken = take(&mut memory, 1, NOW).remove(0).taken;
    submit(&mut memory, complete(taken), NOW).unwrap();
    assert_eq!(again(&mut memory, None, after_ms(99)), (None, false), "the window outlasts the job");
    let (third, is_new) = again(&mut memory, None, after_ms(100));
    assert!(is_new && third.is_some());
    memory.tick(after_ms(100));
    assert_eq!(
        again(&mut memory, None, after_ms(100)),
        (third, false),
        "the end of a window frees no name of another job"
    );
    let taken = take(&mut memory, 1, after_ms(100)).remove(0).taken;
    submit(&mut memory, complete(taken), after_ms(100)).unwrap();
    again(&mut memory, Some(100), after_ms(100));
    memory.tick(after_ms(200));
    assert_eq!(memory.core.work.unique.names.iter().count(), 0, "no name is kept when its window is over");
}

#[test]
fn a_result_that_is_too_large_is_refused() {
    let limits = Limits { max_body_bytes: 3, ..Limits::default() };
    let mut memory = Memory::new(limits);
    let create = Definition::CreateWorkQueue { name: "w".into(), options: Vec::new() };
    memory.submit(vec![Verb::Define(vec![create])], NOW).unwrap();
    push(&mut memory, job_of("a"));
    let taken = take(&mut memory, 1, NOW).remove(0).taken;
    for (bytes, is_done) in [(4, false), (3, true)] {
        let done = submit(&mut memory, WorkVerb::Complete { taken, result: Some(Arc::new(vec![0; bytes])) }, NOW);
        assert_eq!(done.err().map(|error| error.code()), (!is_done).then_some(Code::MESSAGE_TOO_LARGE), "{bytes}");
    }
}

#[test]
fn a_take_whose_unit_is_refused_leaves_no_trace() {
    let mut memory = broker(&[]);
    push(&mut memory, job_of("a"));
    let before = memory.jobs().jobs.clone();
    let stranger = TakenJob { job: JobId(7), token: 7 };
    let unit = vec![Verb::Work(take_verb(1, LEASE)), Verb::Work(complete(stranger))];
    assert_eq!(memory.submit(unit, NOW).unwrap_err().code(), Code::JOB_NOT_FOUND);
    assert_eq!(memory.jobs().jobs, before);
    is_restored(&memory, NOW);
    assert_eq!(take(&mut memory, 1, NOW)[0].attempt, 1);
}

#[test]
fn only_the_taking_that_no_reader_has_seen_goes_back() {
    let mut memory = broker(&[]);
    push(&mut memory, job_of("a"));
    let taken = take(&mut memory, 1, NOW).remove(0).taken;
    let give_back = |memory: &mut Memory, taken| memory.core.give_back(taken, &mut crate::core::Effects::default());
    let state = |memory: &Memory| memory.core.work.jobs.iter().next().map(|(_, job)| (job.state, job.attempts));
    give_back(&mut memory, TakenJob { token: taken.token + 1, ..taken });
    assert_eq!(state(&memory), Some((JobState::Taken, 1)), "another taking");
    let mut session = begin(&mut memory);
    execute(&mut memory, &mut session, WorkVerb::Report { taken, progress: "half".into() }).unwrap();
    give_back(&mut memory, taken);
    assert_eq!(state(&memory), Some((JobState::Taken, 1)), "a transaction reports on it");
    memory.rollback(session, NOW);
    give_back(&mut memory, taken);
    give_back(&mut memory, taken);
    assert_eq!(state(&memory), Some((JobState::Ready, 0)), "once");
}

#[test]
fn a_cancelled_job_is_gone_for_its_reader_too() {
    let mut memory = broker(&[]);
    let (one, two) = (push(&mut memory, job_of("a")), push(&mut memory, Push { due: Due::InMs(9), ..job_of("b") }));
    let taken = take(&mut memory, 1, NOW).remove(0).taken;
    for job in [one, two] {
        submit(&mut memory, WorkVerb::Cancel { job, seen: None }, NOW).unwrap();
        assert_eq!(refusal(submit(&mut memory, WorkVerb::Cancel { job, seen: None }, NOW)), Code::JOB_NOT_FOUND);
    }
    assert_eq!(refusal(submit(&mut memory, complete(taken), NOW)), Code::JOB_NOT_FOUND);
    assert!(memory.jobs().history.values().all(|row| row.finished_as == FinishedAs::Cancelled));
}

#[test]
fn bad_input_changes_nothing() {
    const TEN_YEARS_MS: i64 = 315_360_000_000;
    let mut memory = broker(&[]);
    let long: Arc<str> = "x".repeat(129).into();
    let bad = [
        (Push { queue: "nowhere".into(), ..job_of("a") }, Code::OBJECT_NOT_FOUND),
        (Push { level: 0, ..job_of("a") }, Code::OUT_OF_RANGE),
        (Push { level: 11, ..job_of("a") }, Code::OUT_OF_RANGE),
        (Push { due: Due::InMs(-1), ..job_of("a") }, Code::OUT_OF_RANGE),
        (Push { due: Due::InMs(i64::MAX), ..job_of("a") }, Code::OUT_OF_RANGE),
        (Push { due: Due::InMs(TEN_YEARS_MS + 1), ..job_of("a") }, Code::OUT_OF_RANGE),
        (Push { key: Some(long.clone()), ..job_of("a") }, Code::OUT_OF_RANGE),
        (Push { job_type: long.clone(), ..job_of("a") }, Code::OUT_OF_RANGE),
        (Push { job_type: "a\0".into(), ..job_of("a") }, Code::OUT_OF_RANGE),
        (Push { unique: Some(Unique { key: long, window_ms: None }), ..job_of("a") }, Code::OUT_OF_RANGE),
        (Push { unique: Some(Unique { key: "u".into(), window_ms: Some(0) }), ..job_of("a") }, Code::OUT_OF_RANGE),
    ];
    for (push, code) in bad {
        let shown = format!("{push:?}");
        assert_eq!(refusal(submit(&mut memory, WorkVerb::Push(Box::new(push)), NOW)), code, "{shown}");
    }
    for count in [0, -1, 10_001] {
        assert_eq!(refusal(submit(&mut memory, take_verb(count, LEASE), NOW)), Code::OUT_OF_RANGE);
    }
    assert_eq!(refusal(submit(&mut memory, take_verb(1, Hold::Lease(Some(0))), NOW)), Code::OUT_OF_RANGE);
    let stranger = TakenJob { job: JobId(7), token: 7 };
    assert_eq!(refusal(submit(&mut memory, complete(stranger), NOW)), Code::JOB_NOT_FOUND);
    assert!(memory.jobs().jobs.is_empty());
    push(&mut memory, Push { due: Due::InMs(TEN_YEARS_MS), ..job_of("a") });
}

fn begin(memory: &mut Memory) -> Session {
    memory.core.begin_transaction()
}

fn execute(memory: &mut Memory, session: &mut Session, verb: WorkVerb) -> crate::error::Result<Outcome> {
    memory.execute(session, Verb::Work(verb), NOW).map(|outcome| outcome.expect("no verb of a work queue waits"))
}

#[test]
fn a_job_that_has_changed_since_it_was_seen_is_neither_cancelled_nor_redriven() {
    let mut memory = broker(&[number(WorkNumber::MaxAttempts, 1)]);
    let job = push(&mut memory, job_of("a"));
    let seen = |state: Option<&str>, token| Some(Seen { state: state.map(Arc::from), token });
    let cancel = |seen| WorkVerb::Cancel { job, seen };
    let taken = take(&mut memory, 1, NOW).remove(0).taken;
    for stale in [seen(Some("ready"), 0), seen(Some("ready"), taken.token), seen(None, 0)] {
        assert_eq!(refusal(submit(&mut memory, cancel(stale), NOW)), Code::LEASE_LOST);
    }
    let late = after_ms(60_000);
    assert_eq!(refusal(submit(&mut memory, cancel(seen(Some("taken"), taken.token)), late)), Code::LEASE_LOST);
    submit(&mut memory, fail(taken, AfterFailure::Dead), NOW).unwrap();
    assert_eq!(refusal(submit(&mut memory, WorkVerb::Redrive { job, seen: seen(None, 0) }, NOW)), Code::LEASE_LOST);
    submit(&mut memory, WorkVerb::Redrive { job, seen: seen(Some("dead"), taken.token) }, NOW).unwrap();
    assert_eq!(refusal(submit(&mut memory, cancel(seen(Some("dead"), taken.token)), NOW)), Code::LEASE_LOST);
    submit(&mut memory, cancel(seen(Some("ready"), taken.token)), NOW).unwrap();
    // Its time has come, and no tick since.
    let job = push(&mut memory, Push { due: Due::InMs(100), ..job_of("b") });
    let cancel = |state| WorkVerb::Cancel { job, seen: seen(Some(state), 0) };
    assert_eq!(refusal(submit(&mut memory, cancel("ready"), after_ms(99))), Code::LEASE_LOST);
    let refused = memory.submit(vec![Verb::Work(cancel("scheduled"))], after_ms(100));
    assert_eq!(refused.unwrap_err().code(), Code::LEASE_LOST);
    submit(&mut memory, cancel("ready"), after_ms(100)).unwrap();
}
