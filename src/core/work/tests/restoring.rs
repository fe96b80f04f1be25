//! Numbers, and jobs and unique keys that come back from their rows.

use super::*;
use crate::catalog::Catalog;
use crate::core::work::{JobRow, Work};
use crate::core::{Change, Core, Effects, Restore, WorkChange};
use crate::id::IdSource;

fn finish(memory: &mut Memory, queue: &str) {
    let verb = |verb: WorkVerb| vec![Verb::Work(verb)];
    let WorkVerb::Take(mut take) = take_verb(1, LEASE) else { unreachable!("it is a take") };
    take.queue = queue.into();
    let taken = jobs(memory.submit(verb(WorkVerb::Take(take)), NOW).unwrap().unwrap().remove(0));
    memory.submit(verb(complete(taken[0].taken)), NOW).unwrap();
}

fn is_new(memory: &mut Memory, queue: &str, window_ms: Option<i64>) -> bool {
    let unique = Some(Unique { key: "u".into(), window_ms });
    match submit(memory, WorkVerb::Push(Box::new(Push { queue: queue.into(), unique, ..job_of("a") })), NOW).unwrap() {
        Outcome::Pushed { is_new, .. } => is_new,
        other => panic!("{other:?}"),
    }
}

fn row(queue_id: i32, job_id: u64) -> JobRow {
    JobRow {
        job_id,
        queue_id,
        job_type: "t".into(),
        key: None,
        level: 5,
        state: JobState::Ready,
        attempts: 1,
        token: 5,
        at: None,
        pushed_at: NOW,
        pushed_by: "writer".into(),
        unique_key: None,
        unique_until: None,
        body: None,
    }
}

/// Opens a broker with the definitions of another one; gives the changes that the opening writes.
fn opened(memory: &Memory, fill: impl FnOnce(&mut Restore)) -> (Core, Vec<Change>) {
    let catalog: Catalog = (**memory.core.catalog()).clone();
    let mut restore = Restore::new(catalog, IdSource::Counted(1 << 60), Limits::default());
    let (orders, endpoints, transmissions) = memory.core.counters();
    restore.counters(orders, endpoints, transmissions);
    fill(&mut restore);
    let restored = restore.finish(NOW).unwrap();
    (restored.core, restored.changes)
}

#[test]
fn the_marks_are_written_again_when_half_a_block_is_used() {
    const BLOCK: u64 = 1_048_576;
    let take: [fn(&mut Work) -> u64; 2] = [Work::take_job_id, Work::take_token];
    for (which, take) in take.into_iter().enumerate() {
        let mut work = Work::new(memory_without_queues().core.catalog());
        let mut written = Vec::new();
        for _ in 0..BLOCK / 2 + 10 {
            let number = take(&mut work);
            written.extend(work.effects.changes.drain(..).map(|change| (number, change)));
        }
        let marks = |number: u64| {
            let (used, unused) = (number + 1 + BLOCK, 1 + BLOCK);
            let (next_job_id, next_token) = if which == 0 { (used, unused) } else { (unused, used) };
            (number, Change::Work(WorkChange::SetWorkMarks { next_job_id, next_token }))
        };
        assert_eq!(written, [marks(1), marks(BLOCK / 2 + 2)]);
    }
}

fn memory_without_queues() -> Memory {
    Memory::new(Limits::default())
}

#[test]
fn a_closed_broker_goes_on_without_a_gap_of_numbers() {
    let mut memory = broker(&[]);
    let (first, _) = (push(&mut memory, job_of("a")), push(&mut memory, job_of("b")));
    let token = take(&mut memory, 1, NOW)[0].taken.token;
    memory.reopen(NOW).unwrap();
    assert_eq!(push(&mut memory, job_of("c")).0, first.0 + 2);
    assert_eq!(take(&mut memory, 1, NOW)[0].taken.token, token + 1);
}

/// A push in a transaction is answered before anything is written.
#[test]
fn the_marks_of_numbers_are_written_with_the_first_work_queue() {
    let mut memory = memory_without_queues();
    let mut marks_of = |definition: Definition| {
        let (mut session, mut effects) = (memory.core.begin(), Effects::default());
        memory.core.execute(&mut session, Verb::Define(vec![definition]), NOW).unwrap();
        memory.core.commit(session, NOW, &mut effects);
        let is_mark = |change: &&Change| matches!(change, Change::Work(WorkChange::SetWorkMarks { .. }));
        effects.changes.iter().filter(is_mark).count()
    };
    assert_eq!(marks_of(Definition::CreateQueue { name: "q".into(), options: Default::default() }), 0);
    assert_eq!(marks_of(Definition::CreateWorkQueue { name: "w".into(), options: Vec::new() }), 1);
}

#[test]
fn numbers_go_on_above_those_of_jobs_although_the_marks_are_lost() {
    let memory = broker(&[]);
    let queue_id = memory.core.catalog().work_queue("w").unwrap().id;
    let (mut core, _) = opened(&memory, |restore| {
        restore.job(row(queue_id, 7), NOW);
        restore.job(row(queue_id, 7), NOW);
        restore.job(row(queue_id + 1, 6), NOW);
    });
    assert_eq!(core.work.jobs.iter().count(), 1, "a row twice, and one of a queue that does not exist");
    let mut effects = Effects::default();
    core.tick(NOW, &mut effects);
    assert_eq!(effects.changes, [], "an opening has nothing to say of a ready job");
    assert_eq!((core.work.take_job_id(), core.work.take_token()), (8, 6));
}

#[test]
fn a_job_that_became_ready_before_an_opening_stays_so_if_the_clock_is_set_back() {
    for has_later in [false, true] {
        let mut memory = broker(&[]);
        let job = push(&mut memory, Push { due: Due::InMs(100), ..job_of("a") });
        if has_later {
            push(&mut memory, Push { due: Due::InMs(3_600_000), ..job_of("later") });
        }
        let mut core = memory.restored(after_ms(200)).unwrap();
        let mut effects = Effects::default();
        core.tick(after_ms(-5000), &mut effects);
        assert_eq!(effects.changes, [Change::Work(WorkChange::ReadyJob { job_id: job.0 })]);
    }
}

#[test]
fn a_unique_key_without_a_job_and_without_a_window_is_freed_at_an_opening() {
    let memory = broker(&[]);
    let queue_id = memory.core.catalog().work_queue("w").unwrap().id;
    for (of_queue, until, is_kept) in
        [(queue_id, None, false), (queue_id + 1, Some(after_ms(100)), false), (queue_id, Some(after_ms(100)), true)]
    {
        let (core, changes) = opened(&memory, |restore| restore.unique_job(of_queue, "u".into(), 99, until));
        let freed = Change::Work(WorkChange::DeleteUniqueJob { queue_id: of_queue, key: "u".into() });
        assert_eq!(changes.contains(&freed), !is_kept, "{changes:?}");
        assert_eq!(core.work.unique.names.iter().count(), usize::from(is_kept));
    }
}

#[test]
fn the_unique_keys_and_the_history_of_a_queue_go_with_it_and_no_others() {
    let mut memory = broker(&[]);
    let create = Definition::CreateWorkQueue { name: "v".into(), options: Vec::new() };
    memory.submit(vec![Verb::Define(vec![create])], NOW).unwrap();
    for queue in ["w", "v"] {
        assert!(is_new(&mut memory, queue, Some(60_000)));
        finish(&mut memory, queue);
    }
    let drop = Definition::DropWorkQueue { name: "w".into() };
    memory.submit(vec![Verb::Define(vec![drop])], NOW).unwrap();
    let left = memory.core.catalog().work_queue("v").unwrap().id;
    let of_names: Vec<i32> = memory.core.work.unique.names.iter().map(|(_, name)| name.queue_id).collect();
    let of_history: Vec<i32> = memory.jobs().history.keys().map(|(queue_id, _)| *queue_id).collect();
    assert_eq!((of_names, of_history), (vec![left], vec![left]));
    assert!(!is_new(&mut memory, "v", None));
}

#[test]
fn each_queue_wakes_as_many_readers_as_jobs_have_come() {
    let mut memory = broker(&[]);
    let create = Definition::CreateWorkQueue { name: "v".into(), options: Vec::new() };
    memory.submit(vec![Verb::Define(vec![create])], NOW).unwrap();
    let (mut session, mut effects) = (memory.core.begin(), Effects::default());
    for queue in ["w", "w", "v"] {
        let push = WorkVerb::Push(Box::new(Push { queue: queue.into(), ..job_of("a") }));
        memory.core.execute(&mut session, Verb::Work(push), NOW).unwrap();
    }
    memory.core.commit(session, NOW, &mut effects);
    let id = |name: &str| memory.core.catalog().work_queue(name).unwrap().id;
    let woken: Vec<_> = effects.arrivals.iter().map(|arrival| (arrival.queue_id, arrival.newly_ready)).collect();
    assert_eq!(woken, [(id("w"), 2), (id("v"), 1)]);
}

#[test]
fn a_held_job_whose_store_met_a_full_disk_through_another_commit_goes_back_without_a_failed_attempt() {
    let memory = broker(&[]);
    let queue_id = memory.core.catalog().work_queue("w").unwrap().id;
    let taken = |job_id, token, at| JobRow { state: JobState::Taken, token, at, ..row(queue_id, job_id) };
    let held = |job, token| TakenJob { job: JobId(job), token };
    let (core, changes) = opened(&memory, |restore| {
        restore.held_jobs(&[held(1, 5), held(2, 5), held(4, 5), held(9, 9)]);
        restore.job(taken(1, 5, None), NOW);
        // Taken once more since.
        restore.job(taken(2, 6, None), NOW);
        // Its own commit was in the batch that failed.
        restore.job(taken(3, 7, None), NOW);
        // It has a lease.
        restore.job(taken(4, 5, Some(after_ms(1000))), NOW);
        // A damaged row.
        restore.job(JobRow { attempts: 0, ..taken(9, 9, None) }, NOW);
    });
    let mut found: Vec<_> = core.work.jobs.iter().map(|(_, job)| (job.id, job.state, job.attempts)).collect();
    found.sort_unstable_by_key(|(id, ..)| *id);
    let after = [
        (1, JobState::Ready, 0),
        (2, JobState::Scheduled, 1),
        (3, JobState::Scheduled, 1),
        (4, JobState::Taken, 1),
        (9, JobState::Scheduled, 0),
    ];
    assert_eq!(found, after);
    assert!(changes.contains(&Change::Work(WorkChange::ReturnJob { job_id: 1, attempts: 0, token: 5 })), "{changes:?}");
}
