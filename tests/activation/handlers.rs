//! Readers with handlers by message type.

use crate::servers::Store;
use crate::stage::{Stage, ended, failed, row, soon, until};
use dialoq::activation::{Context, HandlerError, HandlerResult, Handlers, Ramp, Readers};
use dialoq::internals::activity;
use dialoq::protocol::ReceiveFrom;
use dialoq::status::DeadLetterFilter;
use dialoq::testing::TestBroker;
use dialoq::work::WorkQueue;
use dialoq::{Act, Broker, ConversationHandle, Message, MessageType};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::{Notify, mpsc};

#[derive(Debug, Serialize, Deserialize)]
struct Order {
    sku: String,
    pieces: u32,
}

const ORDER: MessageType<Order> = MessageType::json("order");
const PLACED: MessageType<u32> = MessageType::json("placed");
const NOTE: MessageType<String> = MessageType::text("note");

/// A stage with typed messages between `client` and `worker`.
async fn stage(store: Store) -> Stage {
    let stage = Stage::new(store).await;
    stage
        .define(|d| {
            // The queue of a type without validation takes what the handler cannot decode.
            d.message_type("order").message_type(PLACED).message_type(NOTE);
            d.contract("orders").sent_by_initiator("order").sent_by_target(PLACED).sent_by_any(NOTE);
            d.alter_service("worker").add_contract("orders");
        })
        .await
        .unwrap();
    stage
}

async fn begin(stage: &Stage) -> ConversationHandle {
    stage.begin_dialog("client", "worker").contract("orders").await.unwrap()
}

async fn order(stage: &Stage, pieces: u32) -> ConversationHandle {
    let dialog = begin(stage).await;
    stage.send(dialog, ORDER, &Order { sku: "A-1".into(), pieces }).await.unwrap();
    dialog
}

/// Waits until a reader has found nothing and waits.
async fn until_waiting(readers: &Readers) {
    let checking = async {
        while row(readers).await.tasks_waiting == 0 {
            tokio::task::yield_now().await;
        }
    };
    soon("the reader waiting", checking).await;
}

/// The next message at home.
async fn answer(stage: &Stage) -> Message {
    let home = stage.receive("home").top(1).wait_forever();
    soon("an answer", home.into_future()).await.unwrap().unwrap().first().clone()
}

staged!(a_message_is_decoded_answered_and_its_conversation_ended, async |store| {
    let stage = stage(store).await;
    let handlers = Handlers::new().on(ORDER, async |context, order| {
        assert_eq!(order.sku, "A-1");
        context.reply(PLACED, &(order.pieces * 2)).await?;
        context.end_conversation().await?;
        Ok(())
    });
    let readers = stage.activate("work", handlers).start();
    let dialog = order(&stage, 21).await;
    let placed = answer(&stage).await;
    assert_eq!((placed.handle(), placed.decode(PLACED).unwrap()), (dialog, 42));
    assert!(answer(&stage).await.is_end_dialog());
    stage.end(dialog).await.unwrap();
    soon("the stop", readers.stop()).await;
});

staged!(a_batch_commits_with_the_users_own_sql, async |store| {
    let stage = stage(store).await;
    stage.sql("create table sold(sku varchar(20), pieces integer)", ()).await.unwrap();
    let insert = store.sql("insert into sold values (?1, ?2)");
    let handlers = Handlers::new().on(ORDER, async move |context, order| {
        context.sql(insert.clone(), (order.sku, order.pieces)).await?;
        if order.pieces == 13 {
            return Err("no luck".into());
        }
        context.end_conversation().await?;
        Ok(())
    });
    let readers = stage.activate("work", handlers).start();
    let mut events = readers.events();
    order(&stage, 5).await;
    assert!(answer(&stage).await.is_end_dialog());
    stage.ddl("ALTER QUEUE work WITH POISON_MESSAGE_HANDLING (STATUS = OFF)").await;
    order(&stage, 13).await;
    let (code, why) = failed(&mut events).await;
    assert_eq!(code, 60024);
    assert!(why.contains("no luck") && why.contains("'order'"), "{why}");
    let rows = stage.query("select sum(pieces) as sum from sold", ()).await.unwrap();
    assert_eq!(rows.rows[0].get::<i64>("sum").unwrap(), 5);
    readers.abort().await;
});

staged!(a_handler_ends_a_conversation_with_an_error_because_of_a_duplicate_key, async |store| {
    let stage = stage(store).await;
    stage.sql("create table sold(sku varchar(20) primary key, pieces integer)", ()).await.unwrap();
    let insert = store.sql("insert into sold values (?1, ?2)");
    let handlers = Handlers::new().on(ORDER, async move |context, order| {
        match context.sql(insert.clone(), (order.sku, order.pieces)).await {
            Ok(rows) => {
                assert_eq!(rows, 1);
                context.end_conversation().await?;
            }
            Err(error) if error.code() == dialoq::Code::USER_SQL_FAILED => {
                context.fail_conversation(17, "sold already").await?;
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    });
    let readers = stage.activate("work", handlers).start();
    order(&stage, 5).await;
    assert!(answer(&stage).await.is_end_dialog());
    order(&stage, 6).await;
    assert_eq!(answer(&stage).await.error().map(|error| error.code), Some(17));
    let rows = stage.query("select sum(pieces) as sum from sold", ()).await.unwrap();
    assert_eq!(rows.rows[0].get::<i64>("sum").unwrap(), 5);
    soon("the stop", readers.stop()).await;
});

staged!(end_dialog_and_error_end_the_conversation_unless_handled, async |store| {
    let stage = stage(store).await;
    let handlers = Handlers::new().on(NOTE, async |_, _| Ok(()));
    let readers = stage.activate("work", handlers).start();
    for ends_well in [true, false] {
        let dialog = begin(&stage).await;
        stage.send(dialog, NOTE, "hello").await.unwrap();
        match ends_well {
            true => stage.end(dialog).await.map(drop).unwrap(),
            false => stage.end_with_error(dialog, 7, "broken").await.map(drop).unwrap(),
        }
    }
    let queue = activity(&stage).queue("work");
    let endpoints = stage.view("conversation_endpoints");
    let open = format!("select count(*) as still_open from {endpoints} where state not in ('CD')");
    let checking = async {
        while queue.facts().unread > 0
            || stage.query(&*open, ()).await.unwrap().rows[0].get::<i64>("still_open").unwrap() > 0
        {
            tokio::task::yield_now().await;
        }
    };
    soon("the end of both", checking).await;
    soon("the stop", readers.stop()).await;
});

staged!(handlers_for_end_dialog_error_and_timer_are_asked, async |store| {
    let stage = stage(store).await;
    let (sender, mut handled) = mpsc::unbounded_channel::<String>();
    let handlers = {
        let (end, error, timer) = (sender.clone(), sender.clone(), sender);
        Handlers::new()
            .on(NOTE, async |context, _| Ok(context.timer(context.handle(), Duration::from_secs(9)).await?))
            .on_dialog_timer(async move |_, _| Ok(timer.send("timer".into())?))
            .on_end_dialog(async move |context, _| {
                context.end_conversation().await?;
                Ok(end.send("end".into())?)
            })
            .on_error(async move |context, broken| {
                context.end_conversation().await?;
                Ok(error.send(format!("{} {}", broken.code, broken.description))?)
            })
    };
    let readers = stage.activate("work", handlers).start();
    let dialog = begin(&stage).await;
    stage.send(dialog, NOTE, "hello").await.unwrap();
    let queue = activity(&stage).queue("work");
    until("the note handled", || queue.facts().unread == 0).await;
    soon("the reader waiting", async {
        while row(&readers).await.tasks_waiting == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    stage.advance(Duration::from_secs(9));
    assert_eq!(soon("the timer", handled.recv()).await.as_deref(), Some("timer"));
    stage.end(dialog).await.unwrap();
    assert_eq!(soon("the end", handled.recv()).await.as_deref(), Some("end"));
    let dialog = begin(&stage).await;
    stage.send(dialog, NOTE, "hello").await.unwrap();
    stage.end_with_error(dialog, 7, "broken <here>").await.unwrap();
    assert_eq!(soon("the error", handled.recv()).await.as_deref(), Some("7 broken <here>"));
    soon("the stop", readers.stop()).await;
});

staged!(a_message_without_a_handler_or_that_cannot_be_decoded_ends_with_an_error, async |store| {
    let stage = stage(store).await;
    let handlers = Handlers::new().on(ORDER, async |_, _| Ok(()));
    let readers = stage.activate("work", handlers).start();
    let dialog = begin(&stage).await;
    stage.send(dialog, NOTE, "who takes this?").await.unwrap();
    let error = answer(&stage).await.error().unwrap();
    assert_eq!(error.code, 60029);
    assert!(error.description.contains("'note'") && error.description.contains("'worker'"), "{error}");
    let dialog = begin(&stage).await;
    stage.send(dialog, "order", b"{\"sku\": 5}").await.unwrap();
    let error = answer(&stage).await.error().unwrap();
    assert_eq!(error.code, 60021);
    assert_eq!(row(&readers).await.activation_errors_total, 0);
    soon("the stop", readers.stop()).await;
});

#[derive(Debug, Serialize, Deserialize)]
enum Colour {
    Red,
}

staged!(a_body_whose_fault_repeats_a_nul_is_refused_and_the_queue_stays_on, async |store| {
    let stage = stage(store).await;
    let handlers = Handlers::new().on(MessageType::<Colour>::json("order"), async |_, _| Ok(()));
    let readers = stage.activate("work", handlers).start();
    let mut events = readers.events();
    let dialog = begin(&stage).await;
    stage.send(dialog, "order", br#""\u0000""#).await.unwrap();
    let error = tokio::select! {
        message = answer(&stage) => message.error().unwrap(),
        (code, why) = failed(&mut events) => panic!("the handler failed with {code}: {why}"),
    };
    assert_eq!(error.code, 60021);
    assert!(error.description.contains("unknown variant `\u{fffd}`"), "{error}");
    soon("the stop", readers.stop()).await;
});

staged!(otherwise_takes_the_rest, async |store| {
    let stage = stage(store).await;
    let handlers = Handlers::new().on(ORDER, async |_, _| Ok(())).otherwise(async |context, message| {
        context.fail_conversation(99, message.message_type_name.to_string()).await?;
        Ok(())
    });
    let _readers = stage.activate("work", handlers).start();
    let dialog = begin(&stage).await;
    stage.send(dialog, NOTE, "x").await.unwrap();
    let error = answer(&stage).await.error().unwrap();
    assert_eq!((error.code, &*error.description), (99, "note"));
});

staged!(messages_of_an_ended_conversation_are_passed_over, async |store| {
    let stage = stage(store).await;
    let handled = Arc::new(AtomicUsize::new(0));
    let counted = handled.clone();
    let handlers = Handlers::new().on(NOTE, async move |context, _| {
        counted.fetch_add(1, SeqCst);
        context.end_conversation().await?;
        Ok(())
    });
    let dialog = begin(&stage).await;
    for _ in 0..5 {
        stage.send(dialog, NOTE, "x").await.unwrap();
    }
    let readers = stage.activate("work", handlers).start();
    assert!(answer(&stage).await.is_end_dialog());
    soon("the stop", readers.stop()).await;
    assert_eq!(handled.load(SeqCst), 1);
});

// assertions: 176
staged!(five_failures_in_a_row_disable_the_queue_and_end_the_reader, async |store| {
    let stage = stage(store).await;
    let handlers = Handlers::new().on(ORDER, async |_, _| Err(HandlerError::new("always")));
    let readers = stage.activate("work", handlers).start();
    let mut events = readers.events();
    order(&stage, 1).await;
    for _ in 0..5 {
        assert_eq!(failed(&mut events).await.0, 60024);
    }
    assert_eq!(ended(&mut events).await, 28086);
    assert!(!stage.catalog().queue("work").unwrap().is_receive_enabled);
    assert_eq!(soon("the check", readers.monitor()).await, None);
});

// It ended the reader, and so the next one, which met the same group first. No other group was served.
staged!(an_error_of_another_broker_ends_no_reader, async |store| {
    let stage = stage(store).await;
    stage.ddl("ALTER QUEUE work WITH RETRY (MAX_ATTEMPTS = 9, DELAY_MS = 3600000)").await;
    let elsewhere = TestBroker::in_memory().await.unwrap();
    let closed = Broker::clone(&elsewhere);
    closed.close().await.unwrap();
    let handlers = Handlers::new().on(ORDER, async move |context, order| {
        if order.pieces == 1 {
            closed.query("select 1", ()).await?;
        }
        context.end_conversation().await?;
        Ok(())
    });
    for pieces in [1, 2] {
        order(&stage, pieces).await;
    }
    let readers = stage.activate("work", handlers).start();
    let mut events = readers.events();
    assert_eq!(failed(&mut events).await.0, 60016);
    assert!(answer(&stage).await.is_end_dialog(), "the other group is served");
    let row = row(&readers).await;
    assert_eq!((row.tasks_started_total, row.activation_errors_total), (1, 1));
});

// After five such failures in a row the reader paused for a second, and with it all groups, although those that had failed pause by
// themselves.
staged!(a_conflict_of_another_broker_pauses_no_reader, async |store| {
    let stage = stage(store).await;
    stage.ddl("ALTER QUEUE work WITH RETRY (MAX_ATTEMPTS = 9, DELAY_MS = 3600000)").await;
    let elsewhere = Arc::new(TestBroker::in_memory().await.unwrap());
    elsewhere.execute("CREATE WORK QUEUE w").await.unwrap();
    let job = elsewhere.push_job("w", "a").await.unwrap().job.unwrap();
    let holder = elsewhere.begin().await.unwrap();
    assert_eq!(holder.take_jobs(WorkQueue::<String>::text("w")).pop().await.unwrap().len(), 1);
    let other = elsewhere.clone();
    let handlers = Handlers::new().on(ORDER, async move |context, order| {
        if order.pieces == 1 {
            other.cancel_job(job).await?;
        }
        context.end_conversation().await?;
        Ok(())
    });
    for pieces in [1, 1, 1, 1, 1, 1, 1, 2] {
        order(&stage, pieces).await;
    }
    let readers = stage.activate("work", handlers).max_queue_readers(1).start();
    let mut events = readers.events();
    for _ in 0..7 {
        assert_eq!(failed(&mut events).await.0, 60043);
    }
    assert!(answer(&stage).await.is_end_dialog(), "the other group is served");
});

staged!(a_panic_rolls_back_and_the_reader_lives_on, async |store| {
    // DIFFERENCE(handlers-live-on)
    let stage = stage(store).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let handlers = Handlers::new().on(ORDER, async move |context, order| {
        if counted.fetch_add(1, SeqCst) < 2 {
            panic!("{} pieces are too many", order.pieces);
        }
        context.end_conversation().await?;
        Ok(())
    });
    let readers = stage.activate("work", handlers).start();
    let mut events = readers.events();
    order(&stage, 3).await;
    for _ in 0..2 {
        let (code, why) = failed(&mut events).await;
        assert_eq!(code, 60024);
        assert!(why.contains("panicked: 3 pieces are too many"), "{why}");
    }
    assert!(answer(&stage).await.is_end_dialog());
    let row = row(&readers).await;
    assert_eq!((row.tasks_started_total, row.tasks_running, row.activation_errors_total), (1, 1, 2));
});

staged!(a_handler_that_hangs_is_cut_off_and_rolled_back, async |store| {
    let stage = stage(store).await;
    let (hangs, calls) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (begun, counted) = (hangs.clone(), calls.clone());
    let handlers = Handlers::new()
        .on(ORDER, async move |context, _| {
            if counted.fetch_add(1, SeqCst) == 0 {
                begun.notify_one();
                std::future::pending::<()>().await;
            }
            context.end_conversation().await?;
            Ok(())
        })
        .timeout(Duration::from_secs(30));
    let readers = stage.activate("work", handlers).start();
    let mut events = readers.events();
    order(&stage, 1).await;
    soon("the handler hanging", hangs.notified()).await;
    stage.advance(Duration::from_secs(30));
    let (code, why) = failed(&mut events).await;
    assert_eq!(code, 60024);
    assert!(why.contains("did not finish within 30s"), "{why}");
    assert!(answer(&stage).await.is_end_dialog());
});

staged!(a_handler_that_is_given_up_while_a_verb_waits_leaves_no_transaction_open, async |store| {
    let stage = stage(store).await;
    let (held, holder) = (begin(&stage).await, stage.begin().await.unwrap());
    let waits = Arc::new(Notify::new());
    let waits_now = waits.clone();
    holder.send(held, ORDER, &Order { sku: "A-1".into(), pieces: 1 }).await.unwrap();
    let attempts = Arc::new(AtomicUsize::new(0));
    let count = attempts.clone();
    let handlers = Handlers::new()
        .on(ORDER, async move |context, _| {
            if count.fetch_add(1, SeqCst) == 0 {
                waits_now.notify_one();
                // The other transaction holds its group.
                context.timer(held, Duration::from_secs(60)).await?;
            }
            context.end_conversation().await?;
            Ok(())
        })
        .timeout(Duration::from_secs(30));
    let readers = stage.activate("work", handlers).start();
    let mut events = readers.events();
    order(&stage, 1).await;
    soon("the verb waiting", waits.notified()).await;
    stage.advance(Duration::from_secs(30));
    assert_eq!(failed(&mut events).await.0, 60024);
    assert!(answer(&stage).await.is_end_dialog());
    until_waiting(&readers).await;
    stage.advance(Duration::from_millis(500));
    assert_eq!(ended(&mut events).await, 0, "it has ended each of its transactions");
    assert_eq!(row(&readers).await.tasks_aborted_total, 0);
});

staged!(an_idle_reader_leaves_after_its_wait_and_comes_back_with_work, async |store| {
    let stage = stage(store).await;
    let handlers = Handlers::new().on(ORDER, async |context, _| {
        context.end_conversation().await?;
        Ok(())
    });
    let readers = stage.activate("work", handlers).start();
    let mut events = readers.events();
    for started in 1..=2 {
        order(&stage, 1).await;
        assert!(answer(&stage).await.is_end_dialog());
        until_waiting(&readers).await;
        stage.advance(Duration::from_millis(500));
        assert_eq!(ended(&mut events).await, 0);
        let row = row(&readers).await;
        assert_eq!((row.tasks_started_total, row.tasks_running, row.tasks_aborted_total), (started, 0, 0));
    }
});

staged!(stop_lets_a_waiting_reader_go_at_once_and_a_busy_one_finish, async |store| {
    let stage = stage(store).await;
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (sender, wait) = (begun.clone(), go_on.clone());
    let handlers = Handlers::new().on(ORDER, async move |context, _| {
        sender.notify_one();
        wait.notified().await;
        context.end_conversation().await?;
        Ok(())
    });
    let readers = stage.activate("work", handlers).max_queue_readers(2).ramp(Ramp::Fast).start();
    order(&stage, 1).await;
    soon("the first at work", begun.notified()).await;
    order(&stage, 2).await;
    soon("the second at work", begun.notified()).await;
    go_on.notify_one();
    assert!(answer(&stage).await.is_end_dialog());
    let stopping = tokio::spawn(readers.stop());
    until("the monitor gone", || stage.queue_monitors().is_empty()).await;
    until("the waiting reader gone", || stage.activated_tasks().len() == 1).await;
    order(&stage, 3).await;
    go_on.notify_one();
    soon("the stop", stopping).await.unwrap();
    assert!(answer(&stage).await.is_end_dialog(), "what was in hand was finished");
    assert_eq!(stage.receive("work").await.unwrap().map(|batch| batch.len()), Some(1), "and nothing more was begun");
});

staged!(readers_receive_from_their_part_of_the_queue, async |store| {
    let stage = stage(store).await;
    stage
        .define(|d| {
            d.broker_priority("high").contract("orders").level(dialoq::Level::new(9));
        })
        .await
        .unwrap();
    let (sender, mut handled) = mpsc::unbounded_channel::<u8>();
    let handlers = Handlers::new()
        .otherwise(async move |context, message| {
            sender.send(message.priority)?;
            context.end_conversation().await?;
            Ok(())
        })
        .only(ReceiveFrom::Levels { lowest: 8, highest: 10 });
    stage.arrive(1).await;
    order(&stage, 1).await;
    let readers = stage.activate("work", handlers).start();
    assert_eq!(soon("a message", handled.recv()).await, Some(9));
    soon("the stop", readers.stop()).await;
    assert!(handled.try_recv().is_err());
    assert_eq!(stage.receive("work").await.unwrap().map(|batch| batch.first().priority), Some(5));
});

// The clock moves in steps of the readers' idle wait and never as far as the next check of the monitor, so a launch that
// is missed is missed for good.
staged!(threads, every_message_is_handled_although_readers_come_and_go, async |store| {
    for ramp in [Ramp::ServiceBroker, Ramp::Fast] {
        let stage = stage(store).await;
        let (sender, mut handled) = mpsc::unbounded_channel::<u32>();
        let handlers = Handlers::new()
            .on(ORDER, async move |_, order| Ok(sender.send(order.pieces)?))
            .idle_wait(Duration::from_millis(1));
        let readers = stage.activate("work", handlers).max_queue_readers(3).ramp(ramp).start();
        let dialog = begin(&stage).await;
        let queue = activity(&stage).queue("work");
        for pieces in 0..600 {
            if pieces % 3 == 0 {
                until("a reader at rest", || queue.facts().waiting > 0 || stage.activated_tasks().is_empty()).await;
                stage.advance(Duration::from_millis(1));
            }
            stage.send(dialog, ORDER, &Order { sku: "A-1".into(), pieces }).await.unwrap();
            assert_eq!(soon("a message", handled.recv()).await, Some(pieces));
        }
        let row = row(&readers).await;
        assert!(row.tasks_started_total > 1, "none came back: {row:?}");
        assert_eq!((row.tasks_aborted_total, row.activation_errors_total), (0, 0));
        soon("the stop", readers.stop()).await;
    }
});

/// A conversation whose order waits in the queue, and whose other side has ended.
async fn order_and_end(stage: &Stage, pieces: u32) -> ConversationHandle {
    let dialog = order(stage, pieces).await;
    stage.end(dialog).await.unwrap();
    dialog
}

/// Replies where the other side has ended, also in a list with a side that has not, and then where this side has ended.
async fn reply_late(
    context: &Context,
    pieces: u32,
    open: ConversationHandle,
    refused: &mpsc::UnboundedSender<u16>,
) -> HandlerResult {
    context.reply(PLACED, &pieces).await?;
    context.send_many(&[context.handle(), open], PLACED, &(pieces * 10)).await?;
    let strict = context.tx().send(context.handle(), PLACED, &pieces).await;
    refused.send(strict.unwrap_err().code().0)?;
    context.end_conversation().await?;
    let late = context.reply(PLACED, &pieces).await;
    refused.send(late.unwrap_err().code().0)?;
    Ok(())
}

staged!(a_reply_to_a_side_that_has_ended_is_dropped_and_the_rest_commits, async |store| {
    // DIFFERENCE(ended-peers)
    let stage = stage(store).await;
    let open = begin(&stage).await;
    stage.send(open, NOTE, "first").await.unwrap();
    let side = stage.receive("work").await.unwrap().unwrap().first().handle();
    order_and_end(&stage, 1).await;
    let broken = order(&stage, 2).await;
    stage.end_with_error(broken, 7, "never mind").await.unwrap();
    let (asked, mut asks) = mpsc::unbounded_channel();
    let asked_too = asked.clone();
    let handlers = Handlers::new()
        .on(ORDER, async move |context, order| reply_late(context, order.pieces, side, &asked).await)
        .on_error(async move |context, _| reply_late(context, 2, side, &asked_too).await);
    let readers = stage.activate("work", handlers).start();
    let mut got = Vec::new();
    for _ in 0..2 {
        let placed = answer(&stage).await;
        assert_eq!(placed.handle(), open);
        got.push(placed.decode(PLACED).unwrap());
        assert_eq!(asks.recv().await, Some(8429));
        // The conversation has gone or is closed.
        assert!([Some(8426), Some(8429)].contains(&asks.recv().await));
    }
    got.sort_unstable();
    assert_eq!(got, [10, 20]);
    soon("the stop", readers.stop()).await;
    assert!(stage.catalog().queue("work").unwrap().is_receive_enabled);
    assert!(stage.receive("work").await.unwrap().is_none(), "everything was received and committed");
});

staged!(a_reply_to_a_side_that_has_ended_is_an_error_if_asked, async |store| {
    let stage = stage(store).await;
    order_and_end(&stage, 1).await;
    let handlers = Handlers::new().fail_on_ended_peer().on(ORDER, async |context, order| {
        context.reply(PLACED, &order.pieces).await?;
        Ok(())
    });
    let readers = stage.activate("work", handlers).start();
    let mut events = readers.events();
    assert_eq!(failed(&mut events).await.0, 8429);
    assert_eq!(ended(&mut events).await, 28086);
    soon("the stop", readers.stop()).await;
});

staged!(a_message_whose_handler_failed_comes_again_after_the_pause_of_its_queue, async |store| {
    let stage = stage(store).await;
    stage.ddl("ALTER QUEUE work WITH RETRY (DELAY_MS = 5000, JITTER_PERCENT = 0)").await;
    let tries = Arc::new(AtomicUsize::new(0));
    let tried = tries.clone();
    let handlers = Handlers::new().on(ORDER, async move |context, order| {
        if tried.fetch_add(1, SeqCst) == 0 {
            return Err(HandlerError::new("the partner is down"));
        }
        context.reply(PLACED, &order.pieces).await?;
        Ok(())
    });
    let readers = stage.activate("work", handlers).start();
    let mut events = readers.events();
    order(&stage, 7).await;
    assert_eq!(failed(&mut events).await.0, 60024);
    row(&readers).await;
    stage.advance(Duration::from_millis(4900));
    row(&readers).await;
    assert_eq!(tries.load(SeqCst), 1, "no reader gets it before the pause is over");
    stage.advance(Duration::from_millis(100));
    assert_eq!(answer(&stage).await.decode(PLACED).unwrap(), 7);
    assert_eq!(tries.load(SeqCst), 2);
    soon("the stop", readers.stop()).await;
});

// A reader that met one failing group after the other paused a second before each, also for the groups that it could serve.
staged!(groups_that_pause_do_not_make_a_reader_pause, async |store| {
    for policy in ["RETRY (DELAY_MS = 600000)", "RETRY (MAX_ATTEMPTS = 1, THEN = DEAD_LETTER)"] {
        let stage = stage(store).await;
        stage.ddl(&format!("ALTER QUEUE work WITH {policy}")).await;
        for pieces in [0, 0, 0, 0, 0, 0, 0, 8] {
            order(&stage, pieces).await;
        }
        let handlers = Handlers::new().top(1).on(ORDER, async |context, order| {
            if order.pieces == 0 {
                return Err(HandlerError::new("the partner is down"));
            }
            context.reply(PLACED, &order.pieces).await?;
            Ok(())
        });
        let readers = stage.activate("work", handlers).max_queue_readers(1).start();
        // The clock stands still.
        let served = async { while answer(&stage).await.decode(PLACED).ok() != Some(8) {} };
        soon(policy, served).await;
        soon("the stop", readers.stop()).await;
    }
});

// The handler itself gave no error.
staged!(a_dead_letter_says_why_the_commit_of_its_handler_was_refused, async |store| {
    let stage = stage(store).await;
    stage.ddl("ALTER QUEUE work WITH RETRY (MAX_ATTEMPTS = 1, THEN = DEAD_LETTER)").await;
    for table in ["parent (id int PRIMARY KEY)", "child (p int REFERENCES parent (id) DEFERRABLE INITIALLY DEFERRED)"] {
        stage.sql(&format!("CREATE TABLE {table}"), ()).await.unwrap();
    }
    let handlers = Handlers::new().on(ORDER, async |context, _| {
        context.sql("INSERT INTO child VALUES (7)", ()).await?;
        Ok(())
    });
    let readers = stage.activate("work", handlers).start();
    let mut events = readers.events();
    order(&stage, 1).await;
    assert_eq!(failed(&mut events).await.0, 60022);
    let dead = stage.dead_letters(&DeadLetterFilter::default(), 9, 0).await.unwrap();
    let reason = dead[0].reason.as_deref().unwrap_or_default().to_lowercase();
    assert!(reason.contains("foreign key"), "{reason}");
    soon("the stop", readers.stop()).await;
});

// The policy picks out the first message of the group, so readers take one at a time.
staged!(a_policy_that_picks_out_one_message_picks_out_the_one_that_failed, async |store| {
    for then in ["DEAD_LETTER", "END_WITH_ERROR"] {
        let stage = stage(store).await;
        stage.ddl(&format!("ALTER QUEUE work WITH RETRY (MAX_ATTEMPTS = 2, DELAY_MS = 0, THEN = {then})")).await;
        let dialog = begin(&stage).await;
        for pieces in [1, 2, 0, 3] {
            stage.send(dialog, ORDER, &Order { sku: "A-1".into(), pieces }).await.unwrap();
        }
        let handlers = Handlers::new().on(ORDER, async |context, order| {
            if order.pieces == 0 {
                return Err(HandlerError::new("nothing to send"));
            }
            context.reply(PLACED, &order.pieces).await?;
            Ok(())
        });
        let readers = stage.activate("work", handlers).max_queue_readers(1).start();
        let mut answers = Vec::new();
        for _ in 0..3 {
            answers.push(answer(&stage).await.decode(PLACED).ok());
        }
        let dead = stage.dead_letters(&DeadLetterFilter::default(), 9, 0).await.unwrap();
        let dead: Vec<_> = dead.iter().map(|letter| letter.message_sequence_number).collect();
        if then == "DEAD_LETTER" {
            assert_eq!((answers, dead), (vec![Some(1), Some(2), Some(3)], vec![2]));
        } else {
            // The Error may come before the answers.
            answers.sort_unstable();
            assert_eq!((answers, dead), (vec![None, Some(1), Some(2)], Vec::new()));
        }
        soon("the stop", readers.stop()).await;
    }
});
