//! Readers that the queues' own ACTIVATION clauses launch.

use crate::stage::{FIVE_SECONDS, Stage, Theatre, soon, until};
use dialoq::Act;

const ACTIVATE: &str = "ALTER QUEUE work WITH ACTIVATION (STATUS = ON, PROCEDURE_NAME = dbo.Take, MAX_QUEUE_READERS = 2, EXECUTE AS OWNER)";

// assertions: 196
staged!(turning_activation_on_serves_waiting_rows_at_once, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let procedures = stage.procedures().register("take", procedure).start();
    stage.ddl(ACTIVATE).await;
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (STATUS = OFF)").await;
    stage.arrive(2).await;
    until("the monitor gone", || stage.queue_monitors().is_empty()).await;
    assert!(theatre.is_empty());
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (STATUS = ON)").await;
    let reader = theatre.next().await;
    assert_eq!(reader.receives().await, 1);
    reader.commits().await;
    reader.leaves().await;
    let next = theatre.next().await;
    next.leaves().await;
    procedures.stop().await;
});

// assertions: 194
staged!(off_and_on_cures_a_reader_that_never_received, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    stage.ddl(ACTIVATE).await;
    let _procedures = stage.procedures().register("Take", procedure).start();
    stage.arrive(1).await;
    theatre.next().await.leaves().await;
    until("the reader aborted", || stage.queue_monitors().iter().any(|row| row.tasks_aborted_total == 1)).await;
    assert_eq!(stage.queue_monitors()[0].state, "NOTIFIED");
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (STATUS = OFF)").await;
    until("the monitor gone", || stage.queue_monitors().is_empty()).await;
    assert!(theatre.is_empty());
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (STATUS = ON)").await;
    assert_eq!(theatre.next().await.receives().await, 1);
});

// assertions: 43
staged!(a_missing_procedure_is_tried_each_five_seconds, async |store| {
    let stage = Stage::new(store).await;
    stage.ddl(ACTIVATE).await;
    let procedures = stage.procedures().start();
    stage.arrive(1).await;
    let errors = || stage.queue_monitors().first().map_or(0, |row| row.activation_errors_total);
    until("the first attempt", || errors() == 1).await;
    for attempt in 2..=4 {
        stage.advance(FIVE_SECONDS);
        until("another attempt", || errors() == attempt).await;
    }
    assert!(stage.activated_tasks().is_empty());
    let (mut theatre, procedure) = Theatre::new();
    procedures.register("DBO.TAKE", procedure);
    assert_eq!(theatre.next().await.receives().await, 1);
});

staged!(a_replaced_procedure_is_used_by_the_next_launch, async |store| {
    let stage = Stage::new(store).await;
    let (mut old, procedure) = Theatre::new();
    stage.ddl(ACTIVATE).await;
    let procedures = stage.procedures().register("take", procedure).start();
    stage.arrive(2).await;
    let reader = old.next().await;
    let (mut new, procedure) = Theatre::new();
    procedures.register("take", procedure);
    assert_eq!(reader.receives().await, 1, "the running reader stays");
    reader.commits().await;
    reader.leaves().await;
    assert_eq!(new.next().await.receives().await, 1);
    assert!(old.is_empty());
});

staged!(a_dropped_activation_or_queue_ends_its_monitor, async |store| {
    let stage = Stage::new(store).await;
    let (_theatre, procedure) = Theatre::new();
    stage.ddl(ACTIVATE).await;
    let _procedures = stage.procedures().register("take", procedure).start();
    until("the monitor", || stage.queue_monitors().len() == 1).await;
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (DROP)").await;
    until("the monitor gone", || stage.queue_monitors().is_empty()).await;
    stage
        .ddl("CREATE QUEUE other WITH ACTIVATION (PROCEDURE_NAME = take, MAX_QUEUE_READERS = 1, EXECUTE AS OWNER)")
        .await;
    until("the monitor of a new queue", || stage.queue_monitors().len() == 1).await;
    stage.ddl("DROP QUEUE other").await;
    until("the monitor gone", || stage.queue_monitors().is_empty()).await;
});

staged!(a_stop_waits_for_readers_whose_activation_was_dropped, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    stage.ddl(ACTIVATE).await;
    let procedures = stage.procedures().register("take", procedure).start();
    stage.arrive(1).await;
    let reader = theatre.next().await;
    assert_eq!(reader.receives().await, 1);
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (DROP)").await;
    until("the monitor gone", || stage.queue_monitors().is_empty()).await;
    let stopping = async {
        soon("the stop", procedures.stop()).await;
        assert!(stage.activated_tasks().is_empty(), "the reader is still at work");
    };
    let leaving = async {
        reader.is_stopped().await;
        reader.commits().await;
        reader.leaves().await;
    };
    tokio::join!(stopping, leaving);
    assert!(stage.receive("work").await.unwrap().is_none(), "its message was committed");
});

staged!(an_abort_ends_readers_whose_activation_was_dropped, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    stage.ddl(ACTIVATE).await;
    let procedures = stage.procedures().register("take", procedure).start();
    stage.arrive(1).await;
    let reader = theatre.next().await;
    assert_eq!(reader.receives().await, 1);
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (DROP)").await;
    until("the monitor gone", || stage.queue_monitors().is_empty()).await;
    soon("the abort", procedures.abort()).await;
    assert!(stage.activated_tasks().is_empty(), "the reader is still at work");
    let again = soon("the message again", stage.receive("work").wait_forever().into_future()).await;
    assert_eq!(again.unwrap().unwrap().len(), 1);
});
