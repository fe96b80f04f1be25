//! The network is cut between a request and its answer.

use crate::proxy::Network;
use crate::servers::Store;
use crate::{Database, TEXT, broker, dialog, drain, on, things};
use dialoq::protocol::Verb;
use dialoq::{Act, Broker, Code, Result};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// A broker over a network, and one over a direct connection.
async fn stage(database: &Database) -> Result<(Network, Broker, Broker)> {
    let direct = broker(database.url()).await?;
    let network = Network::before(database.store(), database.url()).await;
    let broker = Broker::open(network.url()).await?;
    Ok((network, broker, direct))
}

/// Sends and writes a row in one transaction under an id, and cuts its COMMIT.
async fn cut_commit(store: Store, is_delivered: bool) -> Result<()> {
    let database = Database::fresh(store);
    let (network, broker, direct) = stage(&database).await?;
    let unit = Uuid::new_v4();
    let tx = broker.begin().await?;
    assert!(tx.claim(unit).await?);
    let handle = dialog(&tx).await?;
    tx.send(handle, TEXT, "once").await?;
    tx.sql("insert into thing values (1)", ()).await?;
    network.cut_at("COMMIT", is_delivered);
    let error = tx.commit().await.unwrap_err();
    assert!(network.was_cut());
    assert_eq!(error.code(), Code::COMMIT_UNKNOWN, "{error:?}");
    assert!(!error.is_retryable(), "a blind repetition may do it twice");
    // The id shows it; a transaction that is not there any more is over before it does.
    assert_eq!(broker.unit_happened(unit).await?, is_delivered);
    let again = broker.begin().await?;
    if again.claim(unit).await? {
        let handle = dialog(&again).await?;
        again.send(handle, TEXT, "once").await?;
        again.sql("insert into thing values (1)", ()).await?;
    }
    again.commit().await?;
    assert_eq!(drain(&direct).await?, ["once"]);
    assert_eq!(things(&direct).await?, 1);
    Ok(())
}

pub(crate) fn a_commit_whose_answer_is_lost_is_unknown(store: Store) {
    on(cut_commit(store, true));
}

pub(crate) fn a_commit_that_never_arrived_is_unknown_too(store: Store) {
    on(cut_commit(store, false));
}

pub(crate) fn a_unit_with_an_id_happens_once_whatever_is_lost(store: Store) {
    on(async move {
        let database = Database::fresh(store);
        let (network, broker, direct) = stage(&database).await?;
        let handle = dialog(&broker).await?;
        for (number, (word, is_delivered)) in
            [("COMMIT", true), ("COMMIT", false), ("word-2", true), ("word-3", false)].into_iter().enumerate()
        {
            let text = format!("word-{number}");
            let verb = Verb::Send {
                handles: vec![handle],
                message_type: Some("Text".into()),
                body: Some(Arc::new(text.clone().into_bytes())),
                trace: None,
            };
            network.cut_at(word, is_delivered);
            broker.submit_once(Uuid::new_v4(), vec![verb]).await?;
            assert!(network.was_cut(), "{text}");
            assert_eq!(drain(&direct).await?, [text]);
        }
        Ok(())
    });
}

pub(crate) fn a_send_whose_answer_is_lost_is_unknown(store: Store) {
    on(async move {
        let database = Database::fresh(store);
        let (network, broker, direct) = stage(&database).await?;
        let handle = dialog(&broker).await?;
        network.cut_at("the word", true);
        let error = broker.send(handle, TEXT, "the word").await.unwrap_err();
        assert_eq!(error.code(), Code::COMMIT_UNKNOWN, "{error:?}");
        // The next finds another connection.
        broker.send(handle, TEXT, "the next").await?;
        assert_eq!(drain(&direct).await?, ["the next", "the word"]);
        Ok(())
    });
}

pub(crate) fn a_request_that_never_left_a_transaction_undoes_it(store: Store) {
    on(async move {
        let database = Database::fresh(store);
        let (network, broker, direct) = stage(&database).await?;
        let tx = broker.begin().await?;
        tx.sql("insert into thing values (1)", ()).await?;
        network.cut_at("thing values (2)", true);
        let error = tx.sql("insert into thing values (2)", ()).await.unwrap_err();
        assert_eq!(error.code(), Code::SERVER_UNREACHABLE, "{error:?}");
        assert_eq!(tx.sql("insert into thing values (3)", ()).await.unwrap_err().code(), Code::TRANSACTION_ENDED);
        assert_eq!(things(&direct).await?, 0);
        assert_eq!(things(&broker).await?, 0);
        Ok(())
    });
}

pub(crate) fn a_receive_cut_off_in_a_transaction_gives_its_messages_back(store: Store) {
    on(async move {
        let database = Database::fresh(store);
        let (network, broker, direct) = stage(&database).await?;
        let handle = dialog(&broker).await?;
        broker.send(handle, TEXT, "kept").await?;
        let tx = broker.begin().await?;
        assert_eq!(tx.receive("server").await?.expect("it is there").len(), 1);
        network.cut_at("thing values (1)", true);
        tx.sql("insert into thing values (1)", ()).await.unwrap_err();
        drop(tx);
        // A waiting receiver is notified as soon as the server has noticed.
        let batch = direct.receive("server").wait(crate::SOON).await?.expect("it came back");
        assert_eq!(batch.first().decode(TEXT)?, "kept");
        assert_eq!(drain(&direct).await?, [""; 0]);
        Ok(())
    });
}

/// A quiet process polls once a minute.
const BEFORE_A_POLL: Duration = Duration::from_secs(20);

/// Notices travel in answers, so a lost one announces no message.
pub(crate) fn a_message_whose_send_lost_its_answer_is_received_at_once(store: Store) {
    on(async move {
        let database = Database::fresh(store);
        let (network, broker, direct) = stage(&database).await?;
        let handle = dialog(&broker).await?;
        for (word, receiver) in [("the first", &broker), ("the second", &direct)] {
            let waits = receiver.receive("server").wait(BEFORE_A_POLL).into_future();
            let sends = async {
                while receiver.sessions_waiting("server") == 0 {
                    tokio::task::yield_now().await;
                }
                network.cut_at(word, true);
                broker.send(handle, TEXT, word).await.unwrap_err()
            };
            let (batch, error) = tokio::join!(waits, sends);
            assert_eq!(error.code(), Code::COMMIT_UNKNOWN, "{error:?}");
            assert_eq!(batch?.expect("it was sent").first().decode(TEXT)?, word);
        }
        Ok(())
    });
}

pub(crate) fn a_schedule_that_lost_an_answer_goes_on(store: Store) {
    on(async move {
        let database = Database::fresh(store);
        let network = Network::before(database.store(), database.url()).await;
        let broker = Broker::open(network.url()).await?;
        let schedule = "CREATE WORK QUEUE jobs;
            CREATE WORK SCHEDULE ticks ON WORK QUEUE jobs WITH CRON = '* * * * * *', BODY = 'the job of {time}'";
        broker.execute(schedule).await?;
        assert_eq!(broker.take_jobs("jobs").pop().wait(BEFORE_A_POLL).await?.len(), 1);
        // Only a firing writes the time into the body.
        network.cut_at("the job of 2", true);
        while !network.was_cut() {
            assert_eq!(broker.take_jobs("jobs").pop().wait(BEFORE_A_POLL).await?.len(), 1);
        }
        assert_eq!(broker.take_jobs("jobs").pop().wait(BEFORE_A_POLL).await?.len(), 1);
        Ok(())
    });
}
