//! What happens once although the owner changes: units with an id, timers, schedules, readers.

use crate::{Other, Place, received, run, send};
use dialoq::Act;
use dialoq::protocol::Verb;
use std::time::Duration;
use uuid::Uuid;

#[test]
fn a_unit_with_an_id_happens_once_over_a_take_over() {
    run(async || {
        let place = Place::new();
        place.defined().await.close().await.unwrap();
        let mut owner = Other::start(&place.path, "own");
        let guest = place.open().await;
        let dialog = guest.begin_dialog("sender", "receiver").contract("C").await.unwrap();
        let id = Uuid::new_v4();
        let unit = || {
            vec![Verb::Send {
                handles: vec![dialog],
                message_type: None,
                body: Some(std::sync::Arc::new(b"once".to_vec())),
                trace: None,
            }]
        };
        assert!(guest.submit_once(id, unit()).await.unwrap().is_some());
        owner.kill();
        let again = loop {
            match guest.submit_once(id, unit()).await {
                Ok(again) => break again,
                Err(error) => assert_eq!(error.code(), dialoq::Code::OWNER_GONE, "{error}"),
            }
        };
        assert!(again.is_none(), "it has happened");
        assert_eq!(received(&guest).await, ["once"]);
        assert!(guest.receive("to").await.unwrap().is_none());
    });
}

#[test]
fn a_timer_that_falls_due_while_no_process_owns_the_file_fires_once() {
    run(async || {
        let place = Place::new();
        place.defined().await.close().await.unwrap();
        let mut owner = Other::start(&place.path, "own");
        let guest = place.open().await;
        let dialog = guest.begin_dialog("sender", "receiver").contract("C").await.unwrap();
        guest.timer(dialog, Duration::from_secs(1)).await.unwrap();
        owner.signal("STOP");
        // The owner does nothing while the timer falls due.
        let error = dialoq::Broker::open(&place.url()).await.unwrap_err();
        assert_eq!(error.code(), dialoq::Code::STORE_OWNED);
        owner.kill();
        let batch = loop {
            match guest.receive("from").wait(crate::PATIENCE).await {
                Ok(batch) => break batch.expect("the timer fires"),
                Err(error) => assert_eq!(error.code(), dialoq::Code::OWNER_GONE, "{error}"),
            }
        };
        assert!(batch.messages()[0].is_dialog_timer());
        assert!(guest.receive("from").await.unwrap().is_none(), "it has fired once");
        send(&guest, "goes on").await.unwrap();
    });
}
