//! Jobs and transactions: what a commit, a rollback and a savepoint mean for them.

use super::*;
use crate::core::Effects;

#[test]
fn a_commit_completes_what_its_transaction_took_and_a_rollback_is_a_failed_attempt() {
    let mut memory = broker(&[]);
    push(&mut memory, job_of("a"));
    for (attempt, is_commit) in [(1, false), (2, true)] {
        let now = after_ms(5000 * (attempt - 1));
        memory.tick(now);
        let mut session = begin(&mut memory);
        let taken = jobs(execute(&mut memory, &mut session, take_verb(1, Hold::Transaction)).unwrap());
        assert_eq!((i64::from(taken[0].attempt), taken[0].lease_until), (attempt, None));
        assert_eq!(memory.jobs().jobs[&1].0.attempts, taken[0].attempt, "the attempt is in the row at once");
        assert!(take(&mut memory, 1, now).is_empty());
        assert_eq!(refusal(submit(&mut memory, complete(taken[0].taken), now)), Code::JOB_LOCKED);
        assert_eq!(
            refusal(submit(&mut memory, WorkVerb::Cancel { job: taken[0].taken.job, seen: None }, now)),
            Code::JOB_LOCKED
        );
        if is_commit {
            memory.commit(session, now);
        } else {
            memory.rollback(session, now);
            assert_eq!(memory.jobs().jobs[&1].1.as_deref(), Some("its transaction was rolled back"));
        }
    }
    assert_eq!((memory.jobs().jobs.len(), memory.jobs().history.len()), (0, 1));
}

#[test]
fn a_take_outside_a_transaction_without_a_lease_completes_the_job() {
    let mut memory = broker(&[]);
    push(&mut memory, job_of("a"));
    assert_eq!(bodies(&jobs(submit(&mut memory, take_verb(1, Hold::Transaction), NOW).unwrap())), ["a"]);
    assert!(memory.jobs().jobs.is_empty());
}

#[test]
fn a_push_joins_its_transaction() {
    let mut memory = broker(&[]);
    let mut session = begin(&mut memory);
    execute(&mut memory, &mut session, WorkVerb::Push(Box::new(job_of("a")))).unwrap();
    assert!(jobs(execute(&mut memory, &mut session, take_verb(1, LEASE)).unwrap()).is_empty());
    memory.rollback(session, NOW);
    assert!(memory.jobs().jobs.is_empty());
    let mut session = begin(&mut memory);
    execute(&mut memory, &mut session, WorkVerb::Push(Box::new(job_of("b")))).unwrap();
    memory.commit(session, NOW);
    assert_eq!(bodies(&take(&mut memory, 9, NOW)), ["b"]);
}

#[test]
fn two_transactions_do_not_push_one_unique_key() {
    let mut memory = broker(&[]);
    let unique = || {
        let unique = Some(Unique { key: "u".into(), window_ms: None });
        WorkVerb::Push(Box::new(Push { unique, ..job_of("a") }))
    };
    let mut session = begin(&mut memory);
    execute(&mut memory, &mut session, unique()).unwrap();
    let own = execute(&mut memory, &mut session, unique()).unwrap();
    assert_eq!(own, Outcome::Pushed { job: Some(JobId(1)), is_new: false });
    assert_eq!(refusal(submit(&mut memory, unique(), NOW)), Code::JOB_LOCKED);
    memory.rollback(session, NOW);
    assert!(matches!(submit(&mut memory, unique(), NOW).unwrap(), Outcome::Pushed { is_new: true, .. }));
}

#[test]
fn a_report_in_a_transaction_comes_with_its_commit() {
    for is_commit in [true, false] {
        let mut memory = broker(&[]);
        push(&mut memory, job_of("a"));
        let taken = take(&mut memory, 1, NOW).remove(0).taken;
        let mut session = begin(&mut memory);
        execute(&mut memory, &mut session, complete(taken)).unwrap();
        assert_eq!(refusal(execute(&mut memory, &mut session, complete(taken))), Code::JOB_NOT_FOUND);
        memory.tick(after_ms(70_000));
        assert_eq!(memory.jobs().jobs.len(), 1, "no lease ends under a transaction that reports on it");
        if is_commit {
            memory.commit(session, after_ms(70_000));
            assert_eq!(memory.jobs().history.len(), 1);
        } else {
            memory.rollback(session, after_ms(70_000));
            memory.tick(after_ms(70_000));
            assert_eq!(memory.jobs().jobs[&1].0.state, JobState::Scheduled, "its lease is over now");
        }
    }
}

#[test]
fn a_savepoint_undoes_reports_and_gives_taken_jobs_back() {
    let mut memory = broker(&[number(WorkNumber::RetryDelayMs, 0)]);
    push(&mut memory, job_of("a"));
    let mut session = begin(&mut memory);
    let before = memory.core.savepoint(&session);
    execute(&mut memory, &mut session, take_verb(1, Hold::Transaction)).unwrap();
    memory.rollback_to(&mut session, before, NOW);
    let again = jobs(execute(&mut memory, &mut session, take_verb(1, Hold::Transaction)).unwrap());
    assert_eq!(again[0].attempt, 1, "what a savepoint undoes is no attempt");
    let taken = memory.core.savepoint(&session);
    execute(&mut memory, &mut session, fail(again[0].taken, AfterFailure::Dead)).unwrap();
    memory.rollback_to(&mut session, taken, NOW);
    memory.commit(session, NOW);
    assert_eq!(memory.jobs().history.len(), 1, "the failure was undone, so the commit completed it");
}

#[test]
fn a_transaction_may_fail_one_of_its_jobs_and_complete_the_others() {
    let mut memory = broker(&[]);
    push(&mut memory, job_of("a"));
    push(&mut memory, job_of("b"));
    let mut session = begin(&mut memory);
    let taken = jobs(execute(&mut memory, &mut session, take_verb(2, Hold::Transaction)).unwrap());
    execute(&mut memory, &mut session, fail(taken[0].taken, AfterFailure::Policy)).unwrap();
    memory.commit(session, NOW);
    let left: Vec<_> = memory.jobs().jobs.values().map(|(row, _)| (row.job_id, row.state)).collect();
    assert_eq!(left, [(taken[0].taken.job.0, JobState::Scheduled)]);
    assert_eq!(memory.jobs().history.len(), 1);
}

#[test]
fn a_queue_is_not_dropped_under_a_transaction_that_holds_its_job() {
    let mut memory = broker(&[]);
    push(&mut memory, job_of("a"));
    let mut session = begin(&mut memory);
    execute(&mut memory, &mut session, take_verb(1, Hold::Transaction)).unwrap();
    let drop = || vec![Verb::Define(vec![Definition::DropWorkQueue { name: "w".into() }])];
    assert_eq!(memory.submit(drop(), NOW).unwrap_err().code(), Code::OBJECT_IN_USE);
    memory.rollback(session, NOW);
    memory.submit(drop(), NOW).unwrap();
    assert!(memory.jobs().jobs.is_empty());
    assert_eq!(refusal(submit(&mut memory, take_verb(1, LEASE), NOW)), Code::OBJECT_NOT_FOUND);
}

/// Each push after the first takes the name from a job that the transaction has finished.
#[test]
fn a_name_that_jobs_of_one_transaction_have_one_after_the_other_is_free_after_the_last() {
    let unique = || {
        let unique = Some(Unique { key: "u".into(), window_ms: None });
        WorkVerb::Push(Box::new(Push { unique, ..job_of("a") }))
    };
    let is_new = |outcome: Outcome| match outcome {
        Outcome::Pushed { job: Some(job), is_new } => is_new.then_some(job),
        other => panic!("{other:?}"),
    };
    for is_commit in [true, false] {
        let mut memory = broker(&[]);
        let first = is_new(submit(&mut memory, unique(), NOW).unwrap()).unwrap();
        let mut session = begin(&mut memory);
        let mut last = first;
        for _ in 0..3 {
            execute(&mut memory, &mut session, WorkVerb::Cancel { job: last, seen: None }).unwrap();
            last = is_new(execute(&mut memory, &mut session, unique()).unwrap()).expect("the name is free");
        }
        if is_commit {
            memory.commit(session, NOW);
        } else {
            memory.rollback(session, NOW);
            last = first;
        }
        assert_eq!(is_new(submit(&mut memory, unique(), NOW).unwrap()), None, "job {last} has the name");
        submit(&mut memory, WorkVerb::Cancel { job: last, seen: None }, NOW).unwrap();
        assert!(is_new(submit(&mut memory, unique(), NOW).unwrap()).is_some());
        assert_eq!(memory.core.work.unique.names.iter().count(), 1);
    }
}

#[test]
fn a_transaction_holds_its_jobs_until_its_commit_is_written() {
    let mut memory = broker(&[number(WorkNumber::RetryDelayMs, 0)]);
    let held = |memory: &mut Memory, hold| {
        push(memory, job_of("a"));
        let mut session = begin(memory);
        let taken = jobs(execute(memory, &mut session, take_verb(1, hold)).unwrap()).remove(0).taken;
        (session, taken)
    };
    let (_open, of_open) = held(&mut memory, Hold::Transaction);
    let (_leased, _) = held(&mut memory, LEASE);
    let (rolled_back, _) = held(&mut memory, Hold::Transaction);
    let (committed, of_committed) = held(&mut memory, Hold::Transaction);
    let (gives_way, of_the_one_that_gives_way) = held(&mut memory, Hold::Transaction);
    let (guilty, _) = held(&mut memory, Hold::Transaction);
    memory.rollback(rolled_back, NOW);
    let mut unwritten = Effects::default();
    memory.core.commit(committed, NOW, &mut unwritten);
    memory.core.give_way(gives_way, &mut unwritten);
    let but_of_guilty = Some(guilty.id());
    let held_now = memory.core.held_jobs(&unwritten.changes, but_of_guilty);
    assert_eq!(held_now, [of_open, of_committed, of_the_one_that_gives_way]);
    assert_eq!(memory.core.held_jobs(&[], but_of_guilty), [of_open], "of one that is written nothing is held");
    assert_eq!(memory.core.held_jobs(&[], None).len(), 2, "the statements of none of them met the disk");
}
