//! MAX_QUEUE_READERS, also while readers run (5.6).

use crate::stage::{FIVE_SECONDS, Stage, Theatre, ended, row, soon, until};
use dialoq::MessageType;
use dialoq::activation::{Handlers, Ramp};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::sync::Semaphore;

// assertions: 197
staged!(a_lowered_limit_stops_and_starts_no_reader, async |store| {
    // DIFFERENCE(fast-ramp)
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(3).ramp(Ramp::Fast).start();
    let mut events = readers.events();
    stage.arrive(20).await;
    let three = [theatre.next().await, theatre.next().await, theatre.next().await];
    for reader in &three {
        assert_eq!(reader.receives().await, 1);
        reader.commits().await;
    }
    readers.set_max_queue_readers(1);
    for reader in &three {
        assert_eq!(reader.receives().await, 1, "no reader was stopped");
        reader.commits().await;
    }
    stage.advance(FIVE_SECONDS);
    assert_eq!(row(&readers).await.tasks_running, 3);
    let [first, second, third] = three;
    for (left, reader) in [(2, first), (1, second)] {
        reader.leaves().await;
        ended(&mut events).await;
        stage.advance(FIVE_SECONDS);
        assert_eq!(row(&readers).await.tasks_running, left, "no other is started");
    }
    third.leaves().await;
    let _next = theatre.next().await;
    assert_eq!(row(&readers).await.tasks_running, 1);
});

// Readers went on with the new queue beside those that it had started: twice the maximum in two processes.
staged!(a_queue_that_is_made_again_has_readers_of_its_own, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).start();
    stage.arrive(1).await;
    let old = theatre.next().await;
    assert_eq!(old.receives().await, 1);
    old.commits().await;
    stage.ddl("DROP SERVICE [worker]; DROP QUEUE [work]; CREATE QUEUE [work]").await;
    stage.ddl("CREATE SERVICE [worker] ON QUEUE [work] ([DEFAULT])").await;
    let _ = readers.monitor().await;
    old.is_stopped().await;
    old.leaves().await;
    stage.arrive(1).await;
    let new = theatre.next().await;
    assert_eq!(new.receives().await, 1);
    new.commits().await;
    assert_eq!(row(&readers).await.tasks_running, 1);
});

// It was reported as one that ended without a RECEIVE, and the messages of the new queue waited for five seconds.
staged!(a_reader_that_a_new_queue_sends_away_before_it_received_has_not_failed, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    let old = theatre.next().await;
    stage.ddl("DROP SERVICE [worker]; DROP QUEUE [work]; CREATE QUEUE [work]").await;
    stage.ddl("CREATE SERVICE [worker] ON QUEUE [work] ([DEFAULT])").await;
    let _ = readers.monitor().await;
    old.is_stopped().await;
    stage.arrive(1).await;
    let _ = readers.monitor().await;
    old.leaves().await;
    assert_eq!(ended(&mut events).await, 0, "no code");
    let new = theatre.next().await;
    assert_eq!(new.receives().await, 1);
    new.commits().await;
});

staged!(the_readers_of_a_new_queue_stay_when_those_of_the_old_one_leave, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(3).ramp(Ramp::Fast).start();
    let mut events = readers.events();
    stage.arrive(20).await;
    let [first, second, third] = [theatre.next().await, theatre.next().await, theatre.next().await];
    for reader in [&first, &second, &third] {
        assert_eq!(reader.receives().await, 1);
        reader.commits().await;
    }
    stage.ddl("DROP SERVICE [worker]; DROP QUEUE [work]; CREATE QUEUE [work]").await;
    stage.ddl("CREATE SERVICE [worker] ON QUEUE [work] ([DEFAULT])").await;
    let _ = readers.monitor().await;
    first.is_stopped().await;
    first.leaves().await;
    ended(&mut events).await;
    stage.arrive(2).await;
    let new = theatre.next().await;
    second.leaves().await;
    ended(&mut events).await;
    let _ = readers.monitor().await;
    for _ in 0..2 {
        assert_eq!(new.receives().await, 1);
        new.commits().await;
    }
    assert!(!new.is_stopping().await);
    third.leaves().await;
});

staged!(a_clause_that_is_dropped_leaves_the_limit_of_the_program, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(2).ramp(Ramp::Fast).start();
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (STATUS = ON, PROCEDURE_NAME = p, MAX_QUEUE_READERS = 0, EXECUTE AS OWNER)").await;
    assert_eq!(row(&readers).await.max_queue_readers, 0);
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (DROP)").await;
    assert_eq!(row(&readers).await.max_queue_readers, 2);
    readers.set_max_queue_readers(1);
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (STATUS = ON, PROCEDURE_NAME = p, MAX_QUEUE_READERS = 5, EXECUTE AS OWNER)").await;
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (DROP)").await;
    assert_eq!(row(&readers).await.max_queue_readers, 1);
    assert!(theatre.is_empty());
});

// assertions: 197
staged!(activation_turned_off_stops_and_starts_no_reader, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (STATUS = ON, PROCEDURE_NAME = p, MAX_QUEUE_READERS = 3, EXECUTE AS OWNER)").await;
    let readers = stage.activate("work", procedure).ramp(Ramp::Fast).start();
    stage.arrive(20).await;
    let three = [theatre.next().await, theatre.next().await, theatre.next().await];
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (STATUS = OFF)").await;
    assert_eq!(soon("the check", readers.monitor()).await, None);
    for reader in &three {
        assert_eq!(reader.receives().await, 1);
        reader.commits().await;
    }
    assert_eq!(soon("the check", readers.monitor()).await, None);
    assert!(theatre.is_empty());
    assert_eq!(stage.activated_tasks().len(), 3);
});

staged!(the_limit_changes_while_running_by_handle_and_by_definition, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (STATUS = ON, PROCEDURE_NAME = p, MAX_QUEUE_READERS = 1, EXECUTE AS OWNER)").await;
    let readers = stage.activate("work", procedure).ramp(Ramp::Fast).start();
    stage.arrive(20).await;
    let _first = theatre.next().await;
    assert_eq!(row(&readers).await.max_queue_readers, 1);
    readers.set_max_queue_readers(2);
    let _second = theatre.next().await;
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (MAX_QUEUE_READERS = 4)").await;
    let _third = theatre.next().await;
    let _fourth = theatre.next().await;
    let row = row(&readers).await;
    assert_eq!((row.tasks_running, row.max_queue_readers), (4, 4));
    assert!(theatre.is_empty());
});

// assertions: 33
staged!(a_limit_of_zero_never_starts_anything, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(0).start();
    stage.arrive(1).await;
    for reached in 1..=3 {
        assert_eq!(row(&readers).await.task_limit_reached_total, reached);
        stage.advance(FIVE_SECONDS);
    }
    assert!(theatre.is_empty());
});

const WORK: MessageType<String> = MessageType::text("DEFAULT");

// However the limit moves, there are never more readers at work than it allowed at some moment since the last raise.
staged!(threads, never_more_readers_at_once_than_the_limit, async |store| {
    let stage = Stage::new(store).await;
    let (at_work, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let handled = Arc::new(AtomicUsize::new(0));
    let gate = Arc::new(Semaphore::new(0));
    let handlers = {
        let (at_work, most, handled, gate) = (at_work.clone(), most.clone(), handled.clone(), gate.clone());
        Handlers::new().on(WORK, async move |_context, _text| {
            let now = at_work.fetch_add(1, SeqCst) + 1;
            most.fetch_max(now, SeqCst);
            gate.acquire().await?.forget();
            at_work.fetch_sub(1, SeqCst);
            handled.fetch_add(1, SeqCst);
            Ok(())
        })
    };
    let readers = stage.activate("work", handlers).max_queue_readers(4).ramp(Ramp::Fast).start();
    stage.arrive(64).await;
    until("four at work", || at_work.load(SeqCst) == 4).await;
    assert_eq!(row(&readers).await.tasks_running, 4);
    gate.add_permits(10);
    until("ten handled", || handled.load(SeqCst) == 10).await;
    assert_eq!(most.load(SeqCst), 4);
    readers.set_max_queue_readers(7);
    until("seven at work", || at_work.load(SeqCst) == 7).await;
    assert_eq!(row(&readers).await.tasks_running, 7);
    gate.add_permits(54);
    until("all handled", || handled.load(SeqCst) == 64).await;
    assert_eq!(most.load(SeqCst), 7);
    soon("the stop", readers.stop()).await;
    assert!(stage.activated_tasks().is_empty());
});

staged!(other_processes_see_the_monitor_in_the_views, async |store| {
    let broker = Stage::bare(store).await;
    broker.execute("CREATE QUEUE work; CREATE SERVICE worker ON QUEUE work ([DEFAULT])").await.unwrap();
    let (mut theatre, procedure) = Theatre::new();
    let _readers = broker.activate("work", procedure).max_queue_readers(3).start();
    let dialog = dialoq::Act::begin_dialog(&*broker, "worker", "worker").await.unwrap();
    dialoq::Act::send(&*broker, dialog, "DEFAULT", "work").await.unwrap();
    let _reader = theatre.next().await;
    let monitors = broker.view("dm_broker_queue_monitors");
    let text = format!("select state, tasks_running, max_queue_readers from {monitors}");
    let handled = async {
        loop {
            let rows = broker.query(&*text, ()).await.unwrap().rows;
            if let Some(row) = rows.first()
                && row.get::<i64>("tasks_running").unwrap() == 1
            {
                return (row.get::<String>("state").unwrap(), row.get::<i64>("max_queue_readers").unwrap());
            }
            tokio::task::yield_now().await;
        }
    };
    assert_eq!(soon("the row in the view", handled).await, ("NOTIFIED".to_owned(), 3));
    let tasks = format!("select procedure_name from {}", broker.view("dm_broker_activated_tasks"));
    let tasks = broker.query(tasks, ()).await.unwrap();
    assert_eq!(tasks.rows[0].get::<String>("procedure_name").unwrap(), "puppet");
});
