//! When readers are launched (5.2, 5.3).

use crate::stage::{FIVE_SECONDS, Stage, Theatre, comes_to, ended, row, soon, state, until};
use dialoq::Act;
use dialoq::internals::activity;
use std::time::Duration;

// assertions: 186
staged!(the_first_message_starts_one_reader, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(10).start();
    assert_eq!(state(&readers).await, ("INACTIVE", 0));
    stage.arrive(1).await;
    let _reader = theatre.next().await;
    assert_eq!(state(&readers).await, ("NOTIFIED", 1));
    let tasks = stage.activated_tasks();
    assert_eq!((tasks.len(), &*tasks[0].queue_name, &*tasks[0].procedure_name), (1, "work", "puppet"));
});

// assertions: 187, 188
staged!(no_second_reader_starts_before_the_first_receive, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(10).start();
    stage.arrive(1).await;
    let _reader = theatre.next().await;
    for _ in 0..3 {
        stage.arrive(2).await;
        stage.advance(FIVE_SECONDS);
        assert_eq!(state(&readers).await, ("NOTIFIED", 1));
    }
    // Not the reader receives, but any session.
    assert!(stage.receive("work").await.unwrap().is_some());
    assert_eq!(state(&readers).await, ("RECEIVES_OCCURRING", 1));
    assert!(theatre.is_empty());
});

// assertions: 189, 198
staged!(constant_work_adds_a_reader_each_five_seconds_up_to_the_limit, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(3).start();
    stage.arrive(20).await;
    let first = theatre.next().await;
    assert_eq!(first.receives().await, 1);
    assert_eq!(state(&readers).await, ("RECEIVES_OCCURRING", 1));
    stage.advance(Duration::from_millis(4_999));
    assert_eq!(state(&readers).await, ("RECEIVES_OCCURRING", 1));
    stage.advance(Duration::from_millis(1));
    let second = theatre.next().await;
    assert_eq!(second.receives().await, 1);
    assert_eq!(state(&readers).await, ("RECEIVES_OCCURRING", 2));
    stage.advance(FIVE_SECONDS);
    let third = theatre.next().await;
    assert_eq!(third.receives().await, 1);
    assert_eq!(row(&readers).await.task_limit_reached_total, 0);
    for reached in 1..=3 {
        stage.advance(FIVE_SECONDS);
        let row = row(&readers).await;
        assert_eq!((row.tasks_running, row.tasks_started_total, row.task_limit_reached_total), (3, 3, reached));
    }
});

// assertions: 190 on sqlite, postgres
staged!(not_mssql, an_empty_result_restarts_the_five_seconds, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(10).start();
    let dialog = stage.arrive(1).await[0];
    stage.send_on(dialog).await;
    let reader = theatre.next().await;
    // It holds the only group, and a message of it waits.
    assert_eq!(reader.receives_top(1).await, 1);
    for _ in 0..4 {
        stage.advance(Duration::from_secs(4));
        assert!(stage.receive("work").await.unwrap().is_none());
        assert_eq!(state(&readers).await, ("RECEIVES_OCCURRING", 1));
    }
    stage.advance(Duration::from_secs(4));
    assert_eq!(state(&readers).await, ("RECEIVES_OCCURRING", 1));
    stage.advance(Duration::from_secs(1));
    let _second = theatre.next().await;
});

// assertions: 191
staged!(waiting_sessions_keep_readers_from_starting, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(10).start();
    let broker = (*stage).clone();
    let waiting = tokio::spawn(async move { broker.receive("work").wait_forever().await });
    let queue = activity(&stage).queue("work");
    until("a session waiting", || queue.facts().waiting == 1).await;
    assert_eq!(row(&readers).await.tasks_waiting, 1);
    stage.arrive(1).await;
    let batch = soon("the waiting session's message", waiting).await.unwrap().unwrap();
    assert_eq!(batch.map(|batch| batch.len()), Some(1));
    stage.left(0).await;
    stage.advance(FIVE_SECONDS);
    assert_eq!(state(&readers).await, ("INACTIVE", 0));
    stage.arrive(1).await;
    let _reader = theatre.next().await;
});

// assertions: 192 on sqlite, postgres
staged!(not_mssql, one_busy_group_starts_one_more_reader_at_most, async |store| {
    // DIFFERENCE(waiting-is-empty)
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(10).start();
    let dialog = stage.arrive(1).await[0];
    for _ in 0..9 {
        stage.send_on(dialog).await;
    }
    let busy = theatre.next().await;
    assert_eq!(busy.receives_top(1).await, 1);
    row(&readers).await;
    stage.advance(FIVE_SECONDS);
    let second = theatre.next().await;
    let waiting = second.waits(Duration::from_secs(3600));
    let queue = activity(&stage).queue("work");
    until("the second reader waiting", || queue.facts().waiting == 1).await;
    for _ in 0..3 {
        stage.advance(FIVE_SECONDS);
        assert_eq!(row(&readers).await.tasks_running, 2);
    }
    busy.commits().await;
    assert_eq!(soon("the group coming free", waiting).await, Ok(9));
});

// assertions: 193
staged!(a_reader_that_never_received_is_not_replaced, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(10).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    theatre.next().await.leaves().await;
    assert_eq!(ended(&mut events).await, 28087);
    for _ in 0..3 {
        stage.arrive(1).await;
        stage.advance(FIVE_SECONDS);
        assert_eq!(state(&readers).await, ("NOTIFIED", 1));
    }
    assert_eq!(row(&readers).await.tasks_aborted_total, 1);
    assert!(stage.receive("work").await.unwrap().is_some());
    let _cured = theatre.next().await;
});

// assertions: 195
staged!(rows_left_by_a_reader_start_another, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(10).start();
    let mut events = readers.events();
    stage.arrive(3).await;
    for left in [2, 1, 0] {
        let reader = theatre.next().await;
        assert_eq!(reader.receives_top(1).await, 1);
        reader.commits().await;
        stage.left(left).await;
        reader.leaves().await;
        assert_eq!(ended(&mut events).await, 0);
    }
    comes_to(&readers, ("INACTIVE", 3)).await;
});

// assertions: 201
staged!(rows_waiting_at_the_start_activate, async |store| {
    let stage = Stage::new(store).await;
    stage.arrive(1).await;
    let (mut theatre, procedure) = Theatre::new();
    let _readers = stage.activate("work", procedure).start();
    let reader = theatre.next().await;
    assert_eq!(reader.receives().await, 1);
});

// assertions: 201
staged!(rows_waiting_in_a_file_activate_when_it_is_opened_again, async |store| {
    let mut broker = Stage::bare(store).await;
    broker.execute("CREATE QUEUE work; CREATE SERVICE worker ON QUEUE work ([DEFAULT])").await.unwrap();
    let dialog = broker.begin_dialog("worker", "worker").await.unwrap();
    broker.send(dialog, "DEFAULT", "work").await.unwrap();
    broker.reopen().await;
    let (mut theatre, procedure) = Theatre::new();
    let _readers = broker.activate("work", procedure).start();
    assert_eq!(theatre.next().await.receives().await, 1);
});

// assertions: 204, 140
staged!(system_messages_activate_like_any_other, async |store| {
    let stage = Stage::new(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(10).start();
    let mut events = readers.events();
    let dialogs = stage.arrive(3).await;
    // Three groups, so that each conversation can end by itself.
    for left in [2, 1, 0] {
        let reader = theatre.next().await;
        reader.receives().await;
        reader.commits().await;
        stage.left(left).await;
        reader.leaves().await;
        ended(&mut events).await;
    }
    comes_to(&readers, ("INACTIVE", 3)).await;
    assert_eq!(row(&readers).await.tasks_running, 0);
    stage.end(dialogs[0]).await.unwrap();
    let reader = theatre.next().await;
    assert_eq!(reader.receives().await, 1, "an EndDialog");
    reader.commits().await;
    stage.left(0).await;
    reader.leaves().await;
    ended(&mut events).await;
    stage.end_with_error(dialogs[1], 1, "broken").await.unwrap();
    let reader = theatre.next().await;
    assert_eq!(reader.receives().await, 1, "an Error");
    reader.commits().await;
    stage.left(0).await;
    reader.leaves().await;
    ended(&mut events).await;
    let worker = stage.begin_dialog("worker", "worker").await.unwrap();
    stage.timer(worker, Duration::from_secs(60)).await.unwrap();
    stage.left(0).await;
    comes_to(&readers, ("INACTIVE", 5)).await;
    stage.advance(Duration::from_secs(60));
    let reader = theatre.next().await;
    assert_eq!(reader.receives().await, 1, "a DialogTimer");
    reader.commits().await;
});
