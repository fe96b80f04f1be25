//! `rollback_to` also undoes the records that a reader keeps of its transaction.

use crate::stage::{Stage, ended, soon};
use dialoq::activation::{HandlerResult, Handlers};
use dialoq::protocol::ConversationState;
use dialoq::{Act, Tx};
use std::future::IntoFuture;
use std::sync::{Arc, Mutex};

/// The steps of a handler for the first message of its batch.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// END of the message's conversation.
    End,
    /// The same, past the context.
    EndOnTx,
    /// END WITH ERROR.
    Fail,
    /// An END whose future is dropped after its first poll.
    EndGivenUp,
    Savepoint(&'static str),
    /// A savepoint whose future is dropped after its first poll.
    SavepointGivenUp(&'static str),
    RollbackTo(&'static str),
    RollbackToGivenUp(&'static str),
}

use Step::{End, EndGivenUp, EndOnTx, Fail, RollbackTo, RollbackToGivenUp, Savepoint, SavepointGivenUp};

/// What the handler does, and whether the conversation has ended then.
const PLAYS: &[(&[Step], bool)] = &[
    (&[Savepoint("a"), End, RollbackTo("a")], false),
    (&[Savepoint("a"), Fail, RollbackTo("a")], false),
    (&[Savepoint("a"), End, RollbackTo("a"), End], true),
    (&[Savepoint("a"), End, RollbackTo("a"), RollbackTo("a")], false),
    (&[Savepoint("a"), End, RollbackTo("a"), End, RollbackTo("a")], false),
    (&[EndOnTx], true),
    (&[Savepoint("a"), EndOnTx, RollbackTo("a")], false),
    (&[Savepoint("a"), Savepoint("b"), End, RollbackTo("b")], false),
    (&[Savepoint("a"), End, Savepoint("b"), RollbackTo("b")], true),
    (&[Savepoint("a"), End, Savepoint("b"), RollbackTo("a")], false),
    (&[Savepoint("a"), End, Savepoint("a"), RollbackTo("a")], true),
    (&[Savepoint("a"), Savepoint("a"), End, RollbackTo("a")], false),
    (&[EndGivenUp], true),
    (&[Savepoint("a"), EndGivenUp, RollbackTo("a")], false),
    (&[SavepointGivenUp("a"), End, RollbackTo("a")], false),
    (&[Savepoint("a"), End, RollbackToGivenUp("a")], false),
];

async fn give_up<F: IntoFuture>(asked: F) {
    let mut asked = std::pin::pin!(asked.into_future());
    std::future::poll_fn(|context| {
        let _ = asked.as_mut().poll(context);
        std::task::Poll::Ready(())
    })
    .await;
}

async fn act(tx: &Tx, context: &dialoq::activation::Context, steps: &[Step]) -> HandlerResult {
    for step in steps {
        match *step {
            End => drop(context.end_conversation().await?),
            EndOnTx => drop(tx.end(context.handle()).await?),
            Fail => drop(context.fail_conversation(7, "no").await?),
            EndGivenUp => give_up(context.end_conversation()).await,
            Savepoint(name) => context.savepoint(name).await?,
            SavepointGivenUp(name) => give_up(context.savepoint(name)).await,
            RollbackTo(name) => context.rollback_to(name).await?,
            RollbackToGivenUp(name) => give_up(context.rollback_to(name)).await,
        }
    }
    Ok(())
}

staged!(an_end_that_a_savepoint_undid_keeps_no_message_from_its_handler, async |store| {
    let stage = Stage::new(store).await;
    for (steps, has_ended) in PLAYS {
        let dialog = stage.begin_one().await;
        for number in 0..5 {
            stage.send(dialog, "DEFAULT", &format!("m{number}")).await.unwrap();
        }
        let handled: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = handled.clone();
        let handlers = Handlers::new().otherwise(async move |context, message| {
            let body = message.text()?.into_owned();
            noted.lock().unwrap().push(body.clone());
            if body == "m0" {
                act(context.tx(), context, steps).await?;
            }
            if body == "m4" {
                context.end_conversation().await?;
            }
            Ok(())
        });
        let readers = stage.activate("work", handlers).start();
        let ending = stage.receive("home").wait_forever().into_future();
        let ending = soon("the end of the conversation", ending).await.unwrap().unwrap();
        soon("the stop", readers.stop()).await;
        let expected = if *has_ended { 1 } else { 5 };
        assert_eq!(handled.lock().unwrap().len(), expected, "{steps:?} handled {handled:?}");
        assert_eq!(ending.len(), 1, "{steps:?}");
        assert!(stage.receive("work").await.unwrap().is_none(), "{steps:?} left something");
        assert_eq!(stage.end(dialog).await.unwrap(), ended_as(steps), "{steps:?}");
    }
});

/// The state of the initiator that has received the END of the play.
fn ended_as(steps: &[Step]) -> ConversationState {
    match steps.last() {
        Some(Fail) => ConversationState::Error,
        _ => ConversationState::DisconnectedInbound,
    }
}

staged!(a_reader_that_undid_its_work_leaves_no_open_transaction, async |store| {
    let stage = Stage::new(store).await;
    stage.ddl("ALTER QUEUE work WITH POISON_MESSAGE_HANDLING (STATUS = OFF)").await;
    stage.arrive(1).await;
    for (undoes, code) in [(true, 0), (false, 8415)] {
        let readers = stage
            .activate_with("work", async move |session| {
                let tx = session.begin().await?;
                tx.savepoint("before").await?;
                assert_eq!(tx.receive("work").await?.map_or(0, |batch| batch.len()), 1);
                if undoes {
                    tx.rollback_to("before").await?;
                }
                drop(tx);
                Ok(())
            })
            .start();
        let mut events = readers.events();
        assert_eq!(ended(&mut events).await, code, "undone: {undoes}");
        soon("the abort", readers.abort()).await;
    }
});

staged!(a_send_that_fails_after_its_caller_has_left_fails_the_commit, async |store| {
    let stage = Stage::new(store).await;
    let dialog = stage.begin_one().await;
    let other = stage.begin().await.unwrap();
    other.end(dialog).await.unwrap();
    let tx = stage.begin().await.unwrap();
    let kept = tx.begin_dialog("client", "worker").await.unwrap();
    tx.send(kept, "DEFAULT", "kept").await.unwrap();
    {
        // The other transaction holds the group, so this waits; its caller does not.
        let mut send = std::pin::pin!(tx.send(dialog, "DEFAULT", "lost").into_future());
        assert!(std::future::poll_fn(|task| std::task::Poll::Ready(send.as_mut().poll(task))).await.is_pending());
    }
    other.commit().await.unwrap();
    let error = soon("the commit", tx.commit()).await.expect_err("a part of it failed");
    assert!(error.message().contains("future had been dropped"), "{error}");
    assert_eq!(stage.receive("work").await.unwrap(), None, "nothing of it has happened");
});
