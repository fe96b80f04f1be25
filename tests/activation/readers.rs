//! How readers end (5.4), and how they are stopped.

use crate::stage::{FIVE_SECONDS, Stage, Theatre, ended, row, soon, until};
use dialoq::activation::Session;
use dialoq::testing::TestBroker;
use dialoq::{Act, Broker};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

// assertions: 199
staged!(a_transaction_left_open_is_rolled_back, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    let reader = theatre.next().await;
    assert_eq!(reader.receives().await, 1);
    reader.leaks_its_tx().await;
    reader.leaves().await;
    assert_eq!(ended(&mut events).await, 8415);
    let leaked = theatre.leaked.recv().await.unwrap();
    assert_eq!(leaked.commit().await.map_err(|error| error.code().0), Err(60020), "it was taken away");
    let next = theatre.next().await;
    assert_eq!(next.receives().await, 1, "the message is back");
    next.drops_its_tx().await;
    next.leaves().await;
    assert_eq!(ended(&mut events).await, 8415);
    assert_eq!(row(&readers).await.tasks_aborted_total, 2);
});

staged!(an_idle_reader_may_drop_a_transaction_without_work, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    let reader = theatre.next().await;
    assert!(stage.receive("work").await.unwrap().is_some());
    assert_eq!(reader.receives().await, 0);
    reader.drops_its_tx().await;
    reader.leaves().await;
    assert_eq!(ended(&mut events).await, 0);
});

staged!(failures_and_panics_abort_the_reader_and_roll_back, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    let first = theatre.next().await;
    assert_eq!(first.receives().await, 1);
    first.fails().await;
    assert_eq!(ended(&mut events).await, 28088);
    let second = theatre.next().await;
    assert_eq!(second.receives().await, 1, "the message is back");
    second.panics().await;
    assert_eq!(ended(&mut events).await, 28088);
    let third = theatre.next().await;
    assert_eq!(third.receives().await, 1);
    third.commits().await;
    let row = row(&readers).await;
    assert_eq!((row.activation_errors_total, row.tasks_aborted_total), (2, 2));
});

staged!(a_reader_that_only_rolls_back_is_replaced_until_the_queue_is_disabled, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    for rollback in 1..=5 {
        let reader = theatre.next().await;
        assert_eq!(reader.receives().await, 1);
        reader.rolls_back().await;
        reader.leaves().await;
        assert_eq!(ended(&mut events).await, if rollback < 5 { 0 } else { 28086 });
    }
    assert_eq!(soon("the check", readers.monitor()).await, None);
    assert!(theatre.is_empty());
});

staged!(readers_end_with_their_queue, async |store| {
    // DIFFERENCE(readers-finish)
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    let reader = theatre.next().await;
    let waiting = {
        assert_eq!(reader.receives().await, 1);
        reader.commits().await;
        reader.waits(std::time::Duration::from_secs(3600))
    };
    stage.ddl("ALTER QUEUE work WITH STATUS = OFF").await;
    assert_eq!(ended(&mut events).await, 28086);
    drop(waiting);
    stage.ddl("ALTER QUEUE work WITH STATUS = ON").await;
    stage.arrive(1).await;
    let reader = theatre.next().await;
    assert_eq!(reader.receives().await, 1);
    reader.commits().await;
    let _waiting = reader.waits(std::time::Duration::from_secs(3600));
    stage.ddl("DROP SERVICE worker; DROP QUEUE work").await;
    assert_eq!(ended(&mut events).await, 28085);
    assert_eq!(soon("the check", readers.monitor()).await, None);
});

// assertions: 200
staged!(a_queue_that_is_off_has_no_monitor, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    stage.arrive(1).await;
    stage.ddl("ALTER QUEUE work WITH STATUS = OFF").await;
    let readers = stage.activate("work", procedure).start();
    assert_eq!(soon("the check", readers.monitor()).await, None);
    assert!(stage.queue_monitors().is_empty());
    assert!(theatre.is_empty());
    stage.ddl("ALTER QUEUE work WITH STATUS = ON").await;
    assert_eq!(theatre.next().await.receives().await, 1);
    assert_eq!(stage.queue_monitors().len(), 1);
    stage.ddl("ALTER DATABASE CURRENT SET DISABLE_BROKER WITH ROLLBACK IMMEDIATE").await;
    assert_eq!(soon("the check", readers.monitor()).await, None);
});

staged!(stop_waits_for_messages_in_hand, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).start();
    stage.arrive(2).await;
    let reader = theatre.next().await;
    assert_eq!(reader.receives_top(1).await, 1);
    let stopping = tokio::spawn(readers.stop());
    reader.commits().await;
    assert!(!stopping.is_finished(), "the reader has not left");
    reader.leaves().await;
    soon("the stop", stopping).await.unwrap();
    assert!(stage.queue_monitors().is_empty() && stage.activated_tasks().is_empty());
    assert_eq!(stage.receive("work").await.unwrap().map(|batch| batch.len()), Some(1), "one was handled, one is left");
    assert!(theatre.is_empty());
});

staged!(abort_rolls_back_messages_in_hand, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).start();
    stage.arrive(1).await;
    let reader = theatre.next().await;
    assert_eq!(reader.receives().await, 1);
    soon("the abort", readers.abort()).await;
    let batch = soon("the rollback", stage.receive("work").wait_forever().into_future()).await.unwrap();
    assert_eq!(batch.map(|batch| batch.len()), Some(1));
    assert!(stage.queue_monitors().is_empty() && stage.activated_tasks().is_empty());
});

staged!(readers_leave_when_the_broker_closes, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    let reader = theatre.next().await;
    assert_eq!(reader.receives().await, 1);
    reader.commits().await;
    let _waiting = reader.waits(std::time::Duration::from_secs(3600));
    stage.close().await.unwrap();
    assert_eq!(ended(&mut events).await, 0);
    soon("the stop", readers.stop()).await;
});

staged!(a_reader_that_ends_because_another_broker_is_closed_stops_nothing, async |store| {
    let stage = Stage::new(store).await;
    let elsewhere = TestBroker::in_memory().await.unwrap();
    let other = Broker::clone(&elsewhere);
    other.close().await.unwrap();
    let (closed, forwarded) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicUsize::new(0)));
    let (is_closed, count) = (closed.clone(), forwarded.clone());
    let procedure = move |session: Session| {
        let (is_closed, count, other) = (is_closed.clone(), count.clone(), other.clone());
        async move {
            if is_closed.load(SeqCst) {
                other.query("select 1", ()).await?;
            }
            while session.receive("work").await?.is_some() {
                count.fetch_add(1, SeqCst);
            }
            Ok(())
        }
    };
    let readers = stage.activate_with("work", procedure).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    assert_eq!(ended(&mut events).await, 28088);
    // The pause begins with the monitor's check.
    row(&readers).await;
    closed.store(false, SeqCst);
    stage.advance(FIVE_SECONDS);
    until("the message to be received", || forwarded.load(SeqCst) == 1).await;
    soon("the stop", readers.stop()).await;
});

staged!(a_reader_that_ends_with_an_error_about_another_queue_has_failed, async |store| {
    let stage = Stage::new(store).await;
    stage.ddl("ALTER QUEUE home WITH STATUS = OFF").await;
    for (queue, code) in [("home", 9617), ("work2", 60002)] {
        let readers = stage.activate_with("work", async move |session: Session| {
            session.receive("work").await?;
            session.receive(queue).await?;
            Ok(())
        });
        let readers = readers.start();
        let mut events = readers.events();
        stage.arrive(1).await;
        assert_eq!(ended(&mut events).await, 28088, "{code} of queue {queue}");
        soon("the stop", readers.stop()).await;
    }
});

// Only the end of the reader shows that its queue was off. The monitor stayed NOTIFIED, and the messages waited.
staged!(a_queue_that_is_off_for_a_moment_while_its_reader_begins_is_served, async |store| {
    let stage = Stage::new(store).await;
    let served = Arc::new(AtomicUsize::new(0));
    for round in 1..=3 {
        let (begun, of_reader) = (Arc::new(AtomicUsize::new(0)), served.clone());
        let readers = stage.activate_with("work", async move |session: Session| {
            if begun.fetch_add(1, SeqCst) == 0 {
                session.execute("ALTER QUEUE work WITH STATUS = OFF").await?;
                let refused = session.receive("work").await;
                session.execute("ALTER QUEUE work WITH STATUS = ON").await?;
                refused?;
            }
            of_reader.fetch_add(session.receive("work").await?.map_or(0, |batch| batch.len()), SeqCst);
            Ok(())
        });
        let readers = readers.start();
        stage.arrive(1).await;
        let done = async {
            while served.load(SeqCst) < round {
                stage.advance(FIVE_SECONDS);
                tokio::task::yield_now().await;
            }
        };
        soon("the message is served", done).await;
        soon("the stop", readers.stop()).await;
    }
});

// Its monitor stayed NOTIFIED, and the messages waited.
staged!(a_reader_that_fails_before_it_receives_is_replaced, async |store| {
    let stage = Stage::new(store).await;
    let begun = Arc::new(AtomicUsize::new(0));
    let of_reader = begun.clone();
    let readers = stage.activate_with("work", async move |session: Session| {
        if of_reader.fetch_add(1, SeqCst) == 0 {
            return Err("its partner is down".into());
        }
        session.receive("work").await?;
        Ok(())
    });
    let readers = readers.start();
    let mut events = readers.events();
    stage.arrive(1).await;
    assert_eq!(ended(&mut events).await, 28088);
    let again = async {
        while begun.load(SeqCst) < 2 {
            stage.advance(FIVE_SECONDS);
            tokio::task::yield_now().await;
        }
    };
    soon("the next reader", again).await;
    soon("the stop", readers.stop()).await;
});

/// An error whose text cannot be had.
#[derive(Debug)]
struct Textless;

impl std::fmt::Display for Textless {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("it has no text")
    }
}

impl std::error::Error for Textless {}

// The panic ended the monitor, and no reader was launched any more.
staged!(an_error_whose_text_panics_is_a_panic_of_its_reader, async |store| {
    let stage = Stage::new(store).await;
    let begun = Arc::new(AtomicUsize::new(0));
    let of_reader = begun.clone();
    let readers = stage.activate_with("work", async move |session: Session| {
        if of_reader.fetch_add(1, SeqCst) == 0 {
            let tx = session.begin().await?;
            assert!(tx.receive("work").await?.is_some());
            tx.rollback().await?;
            return Err(Textless.into());
        }
        session.receive("work").await?;
        Ok(())
    });
    let readers = readers.start();
    let mut events = readers.events();
    stage.arrive(1).await;
    assert_eq!(ended(&mut events).await, 28088);
    assert_eq!(ended(&mut events).await, 0, "the next reader has received and left");
    soon("the stop", readers.stop()).await;
    assert!(stage.receive("work").await.unwrap().is_none());
});
