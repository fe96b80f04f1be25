//! Transactions: what happens together, and what does not happen at all.

use super::*;
use dialoq::act::within_trace;
use dialoq::protocol::Verb;
use dialoq::{Code, Tx};

/// A transaction lives as long as its holder: across calls, tasks and threads.
struct Session {
    tx: Option<Tx>,
}

impl Session {
    async fn receive(&mut self) -> Option<u64> {
        let tx = self.tx.as_ref().expect("begun");
        tx.receive("server").top(1).await.unwrap().map(|batch| batch.first().decode(NUMBER).unwrap())
    }

    async fn commit(&mut self) {
        self.tx.take().expect("begun").commit().await.unwrap();
    }
}

#[tokio::test]
async fn a_transaction_may_be_kept_across_calls() {
    let _limit = crate::limit();
    let broker = rig().await;
    send(&*broker, 1).await;
    send(&*broker, 2).await;
    let mut session = Session { tx: Some(broker.begin().await.unwrap()) };
    assert_eq!(session.receive().await, Some(1));
    let mut session = tokio::spawn(async move {
        assert_eq!(session.receive().await, Some(2));
        session
    })
    .await
    .unwrap();
    session.commit().await;
    assert_eq!(broker.receive("server").await.unwrap(), None);
}

#[tokio::test]
async fn dropping_it_undoes_messages_and_sql_alike() {
    let _limit = crate::limit();
    let broker = rig().await;
    broker.sql("create table note (number integer)", ()).await.unwrap();
    let first = send(&*broker, 1).await;
    broker.send(first, NUMBER, &2).await.unwrap();

    let tx = broker.begin().await.unwrap();
    let batch = tx.receive("server").await.unwrap().unwrap();
    let numbers =
        |batch: &dialoq::Batch| batch.iter().map(|message| message.decode(NUMBER).unwrap()).collect::<Vec<_>>();
    assert_eq!(numbers(&batch), [1, 2]);
    tx.send(batch.first().handle(), NUMBER, &3).await.unwrap();
    tx.sql("insert into note values (?1)", (1,)).await.unwrap();
    drop(tx);

    assert_eq!(broker.receive("asker").await.unwrap(), None, "the answer was never sent");
    assert_eq!(broker.query("select * from note", ()).await.unwrap().rows.len(), 0);
    let again = broker.receive("server").await.unwrap().unwrap();
    assert_eq!(numbers(&again), [1, 2], "given back in their order");
}

#[tokio::test]
async fn a_statement_that_is_dropped_before_it_fails_takes_the_messages_with_it() {
    let _limit = crate::limit();
    for _ in 0..1000 {
        let broker = rig().await;
        broker.sql("create table note (number integer primary key)", ()).await.unwrap();
        send(&*broker, 1).await;
        let tx = broker.begin().await.unwrap();
        tx.receive("server").await.unwrap().unwrap();
        let failing = async { tx.sql("update note set number = 2 where number = 1", ()).expect_rows(1).await };
        tokio::select! {
            biased;
            // The writer was quicker than one poll, on another processor: nothing was dropped.
            _ = failing => continue,
            () = std::future::ready(()) => {}
        }
        let error = tx.commit().await.unwrap_err();
        assert_eq!(error.code(), Code::USER_SQL_FAILED, "{error}");
        assert!(broker.receive("server").await.unwrap().is_some(), "the message is back");
        return;
    }
    panic!("every statement was answered within one poll");
}

#[tokio::test]
async fn rollback_to_a_savepoint_keeps_earlier_work() {
    let _limit = crate::limit();
    let broker = rig().await;
    broker.sql("create table note (number integer)", ()).await.unwrap();
    let tx = broker.begin().await.unwrap();
    tx.sql("insert into note values (1)", ()).await.unwrap();
    let handle = send(&tx, 1).await;
    tx.savepoint("s").await.unwrap();
    tx.sql("insert into note values (2)", ()).await.unwrap();
    tx.send(handle, NUMBER, &2).await.unwrap();
    tx.rollback_to("s").await.unwrap();
    tx.send(handle, NUMBER, &3).await.unwrap();
    assert_eq!(tx.rollback_to("never made").await.unwrap_err().code(), Code::SAVEPOINT_NOT_FOUND);
    tx.commit().await.unwrap();
    let batch = broker.receive("server").await.unwrap().unwrap();
    assert_eq!(batch.iter().map(|message| message.decode(NUMBER).unwrap()).collect::<Vec<_>>(), [1, 3]);
    let notes = broker.query("select number from note", ()).await.unwrap();
    assert_eq!(notes.rows.iter().map(|row| row.get::<i64>("number").unwrap()).collect::<Vec<_>>(), [1]);
}

#[tokio::test]
async fn of_two_that_wait_for_each_other_one_is_refused_and_has_ended() {
    let _limit = crate::limit();
    let broker = rig().await;
    let (one, other) = (dialog(&*broker).await, dialog(&*broker).await);
    let (first, second) = (broker.begin().await.unwrap(), broker.begin().await.unwrap());
    first.send(one, NUMBER, &1).await.unwrap();
    second.send(other, NUMBER, &2).await.unwrap();
    let crossed = async { tokio::join!(first.send(other, NUMBER, &3), second.send(one, NUMBER, &4)) };
    // The winner goes on once the loser has ended, so both answer.
    let (a, b) = tokio::time::timeout(SOON, crossed).await.expect("a deadlock is found, not timed out");
    let (winner, loser, error) = match (a, b) {
        (Ok(()), Err(error)) => (first, second, error),
        (Err(error), Ok(())) => (second, first, error),
        both => panic!("one of them wins: {both:?}"),
    };
    assert_eq!((error.code(), error.is_retryable()), (Code::DEADLOCK, true));
    assert_eq!(loser.send(one, NUMBER, &5).await.unwrap_err().code(), Code::TRANSACTION_ENDED);
    assert_eq!(loser.commit().await.unwrap_err().code(), Code::TRANSACTION_ENDED);
    winner.commit().await.unwrap();
}

#[tokio::test]
async fn a_unit_happens_wholly_or_not_at_all() {
    let _limit = crate::limit();
    let broker = rig().await;
    let handle = dialog(&*broker).await;
    let send = |message_type: &str| Verb::Send {
        handles: vec![handle],
        message_type: Some(message_type.into()),
        body: NUMBER.encode(&1).unwrap(),
        trace: None,
    };
    let error = broker.submit(vec![send("//test/Number"), send("//test/Unknown")]).await.unwrap_err();
    assert_eq!(error.code(), Code::MESSAGE_TYPE_NOT_FOUND);
    assert_eq!(broker.receive("server").await.unwrap(), None);
    assert_eq!(broker.submit(vec![send("//test/Number"), send("//test/Number")]).await.unwrap().len(), 2);
    assert_eq!(broker.receive("server").await.unwrap().unwrap().len(), 2);
}

#[tokio::test]
async fn trace_context_travels_with_a_message_and_with_no_other() {
    let _limit = crate::limit();
    let broker = rig().await;
    let context = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let handle = dialog(&*broker).await;
    within_trace(context, async { broker.send(handle, NUMBER, &1).await.unwrap() }).await;
    broker.send(handle, NUMBER, &2).await.unwrap();
    let batch = broker.receive("server").await.unwrap().unwrap();
    assert_eq!(batch.messages()[0].trace.as_deref(), Some(context));
    assert_eq!(batch.messages()[1].trace, None);
}

#[tokio::test]
async fn acknowledged_work_is_there_after_a_reopen() {
    let _limit = crate::limit();
    let mut broker = TestBroker::in_file().await.unwrap();
    broker.execute("CREATE QUEUE q; CREATE SERVICE s ON QUEUE q ([DEFAULT]);").await.unwrap();
    let handle = broker.begin_dialog("s", "s").await.unwrap();
    broker.send(handle, "DEFAULT", "hello").await.unwrap();
    let open = broker.begin().await.unwrap();
    open.send(handle, "DEFAULT", "never committed").await.unwrap();
    drop(open);
    broker.reopen().await.unwrap();
    let batch = broker.receive("q").await.unwrap().unwrap();
    assert_eq!(batch.iter().map(|message| message.text().unwrap().into_owned()).collect::<Vec<_>>(), ["hello"]);
    let file = broker.file().unwrap();
    assert!(file.exists());
    broker.close().await.unwrap();
    drop(broker);
    assert!(!file.exists(), "a test leaves nothing behind");
}
