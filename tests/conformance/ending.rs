//! END CONVERSATION and the rows that it leaves.

use crate::rig::{Text, code};
use dialoq::protocol::system;

case!(the_peer_learns_of_an_end, [102, 103], async |t| {
    let pair = t.pair().await?;
    t.send(pair.target, "Text", "1").await?;
    t.send(pair.target, "Text", "2").await?;
    t.end(pair.target).await?;
    assert_eq!(t.state(pair.initiator).await?, "DI");
    let received = t.receive("QI").await?;
    assert_eq!(received.types(), ["Text", "Text", system::END_DIALOG]);
    assert_eq!(received.iter().map(|m| m.message_sequence_number).collect::<Vec<_>>(), [0, 1, 2]);
    t.end(pair.initiator).await?;
    assert!(t.endpoint(pair.initiator).await?.is_none());
    assert_eq!(t.state(pair.target).await?, "CD");
    assert!(t.receive("QI").await?.is_empty() && t.receive("QT").await?.is_empty());
});

case!(end_deletes_unread_messages, [104], async |t| {
    t.define("ALTER QUEUE [QT] WITH RETENTION = ON").await?;
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "unread").await?;
    t.send(pair.target, "Text", "kept copy").await?;
    assert!(!t.rows_of("QT").await?.is_empty());
    t.end(pair.target).await?;
    assert!(t.rows_of("QT").await?.is_empty());
    assert!(t.receive("QT").await?.is_empty());
});

case!(rolled_back_ends_never_were, [105], async |t| {
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "unread").await?;
    let tx = t.begin().await?;
    tx.end(pair.target).await?;
    tx.rollback().await?;
    assert_eq!((t.state(pair.target).await?, t.state(pair.initiator).await?), ("CO".into(), "CO".into()));
    assert!(t.receive("QI").await?.is_empty());
    assert_eq!(t.receive("QT").await?.texts(), ["unread"]);
    t.send(pair.target, "Text", "works").await?;
    assert_eq!(t.receive("QI").await?.texts(), ["works"]);
});

case!(plain_end_lets_waiting_messages_go_first, [106], async |t| {
    let pair = t.pair().await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    for text in ["1", "2", "3"] {
        t.send(pair.initiator, "Text", text).await?;
    }
    t.end(pair.initiator).await?;
    assert_eq!(t.state(pair.initiator).await?, "DO");
    assert_eq!(t.transmission().await?.len(), 4);
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    let received = t.receive("QT").await?;
    assert_eq!(received.types(), ["Text", "Text", "Text", system::END_DIALOG]);
    assert_eq!(received[..3].to_vec().texts(), ["1", "2", "3"]);
    assert!(t.transmission().await?.is_empty());
});

case!(end_with_error_drops_waiting_messages, [107], async |t| {
    let pair = t.pair().await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    for text in ["1", "2", "3"] {
        t.send(pair.initiator, "Text", text).await?;
    }
    t.end_with_error(pair.initiator, 9, "gave up").await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    assert_eq!(t.receive("QT").await?.error_codes(), [9]);
    assert!(t.receive("QT").await?.is_empty());
    assert!(t.transmission().await?.is_empty());
});

case!(error_bodies, [108, 111], async |t| {
    let pair = t.pair().await?;
    t.end_with_error(pair.target, 42, "x < y & z\r\n").await?;
    let received = t.receive("QI").await?;
    let body = received[0].message_body.as_deref().expect("an Error has a body");
    assert_eq!(system::parse_error_body(body), Some((42, "x < y & z\r\n".to_owned())));
    let text: String = char::decode_utf16(body.chunks(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])))
        .map(|c| c.expect("UTF-16LE"))
        .collect();
    assert!(text.starts_with('\u{feff}') && text.contains("http://schemas.microsoft.com/SQL/ServiceBroker/Error"));

    let pair = t.pair().await?;
    if t.end_with_error(pair.target, 1, &"é".repeat(3001)).await.is_err() {
        t.end_with_error(pair.target, 1, &"é".repeat(3000)).await?;
    }
    let received = t.receive_from("QI", pair.initiator).await?;
    let (_, description) =
        system::parse_error_body(received[0].message_body.as_deref().expect("a body")).expect("an Error");
    assert_eq!(description, "é".repeat(3000));
});

case!(error_codes_are_positive, [109, 110], async |t| {
    let pair = t.pair().await?;
    for bad in [0, -1, i32::MIN] {
        // DIFFERENCE(typed-nulls): code and description cannot be left out, so of the three numbers only 8424 is left.
        assert_eq!(code(t.end_with_error(pair.target, bad, "x").await), 8424, "{bad}");
    }
    assert_eq!(t.state(pair.target).await?, "CO");
    assert!(t.receive("QI").await?.is_empty());
});

case!(errors_after_the_peers_end_are_not_sent, [112], async |t| {
    let pair = t.pair().await?;
    t.end(pair.target).await?;
    t.end_with_error(pair.initiator, 5, "too late").await?;
    assert!(t.receive("QT").await?.is_empty());
    assert!(t.endpoint(pair.initiator).await?.is_none());
});

case!(unsent_messages_of_the_peer_vanish, [113], async |t| {
    let pair = t.pair().await?;
    t.define("ALTER QUEUE [QI] WITH STATUS = OFF; ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    t.send(pair.initiator, "Text", "to the target").await?;
    t.send(pair.target, "Text", "to the initiator").await?;
    t.end(pair.target).await?;
    t.define("ALTER QUEUE [QI] WITH STATUS = ON; ALTER QUEUE [QT] WITH STATUS = ON").await?;
    let received = t.receive("QI").await?;
    assert_eq!(received.types(), ["Text", system::END_DIALOG]);
    assert_eq!(received[0].text().expect("text"), "to the initiator");
    assert!(t.receive("QT").await?.is_empty(), "no message and no Error");
    t.end(pair.initiator).await?;
    assert!(t.transmission().await?.is_empty());
});

case!(cleanup_erases_one_side, [114, 115], async |t| {
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "unread").await?;
    t.define("ALTER QUEUE [QI] WITH STATUS = OFF").await?;
    t.send(pair.target, "Text", "waiting").await?;
    t.cleanup(pair.target).await?;
    assert!(t.endpoint(pair.target).await?.is_none());
    assert!(t.rows_of("QT").await?.is_empty());
    assert!(t.transmission().await?.is_empty());
    assert_eq!(t.state(pair.initiator).await?, "CO");
    t.define("ALTER QUEUE [QI] WITH STATUS = ON").await?;
    assert!(t.receive("QI").await?.is_empty());

    t.send(pair.initiator, "Text", "are you there?").await?;
    assert_eq!(t.receive("QI").await?.error_codes(), [-8462]);
    assert!(t.receive("QT").await?.is_empty());
});

case!(ending_twice, [116], async |t| {
    let pair = t.pair().await?;
    t.end(pair.target).await?;
    assert!([8426, 8427].contains(&code(t.end(pair.target).await)));
    assert!([8426, 8427].contains(&code(t.end_with_error(pair.target, 1, "x").await)));
    assert_eq!(t.receive("QI").await?.types(), [system::END_DIALOG]);
    t.end(pair.initiator).await?;
    assert_eq!(code(t.end(pair.initiator).await), 8426);
    assert_eq!(code(t.end(pair.target).await), 8427, "the closed row is still known");
});

case!(ending_before_the_first_message, [117], async |t| {
    let dialog = t.dialog().await?;
    t.end(dialog).await?;
    let errored = t.dialog().await?;
    t.end_with_error(errored, 1, "never mind").await?;
    assert!(t.endpoints().await?.is_empty());
    assert!(t.receive("QT").await?.is_empty());
    assert!(t.transmission().await?.is_empty());
});

case!(send_and_end_at_once, [118, 120], async |t| {
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "fire").await?;
    t.end(dialog).await?;
    let received = t.receive("QT").await?;
    assert_eq!(received.types(), ["Text", system::END_DIALOG]);
    let target = received.first_handle();
    t.end(target).await?;
    let closed = t.endpoint(target).await?.expect("it is kept against replay");
    assert_eq!((closed.state.as_str(), closed.security_timestamp), ("CD", None));
    t.advance(3600).await?;
    assert!(t.endpoint(target).await?.is_some(), "it outlives the half hour");
});

case!(errors_after_the_end_reach_no_endpoint, [119], async |t| {
    let dialog = t.dialog().await?;
    t.send(dialog, "Xml", "<broken").await?;
    assert_eq!(t.receive("QI").await?.error_codes(), [-9615], "a waiting receiver wakes");

    let tx = t.begin().await?;
    let dialog = tx.begin_dialog(t.to_target()).await?.handle;
    tx.send(dialog, "Xml", "<broken").await?;
    tx.end(dialog).await?;
    tx.commit().await?;
    assert!(t.receive("QI").await?.is_empty());
    assert!(t.endpoint(dialog).await?.is_none_or(|endpoint| endpoint.state != "ER"));
});

case!(closed_targets_are_reclaimed, [121], async |t| {
    let pair = t.pair().await?;
    t.end(pair.target).await?;
    t.end(pair.initiator).await?;
    let closed = t.endpoint(pair.target).await?.expect("it is kept against replay");
    let due = closed.security_timestamp.expect("the initiator confirmed");
    let minutes = due.since(t.now()).as_secs() / 60;
    assert!((25..=31).contains(&minutes), "{minutes} minutes");
    t.advance(20 * 60).await?;
    assert!(t.endpoint(pair.target).await?.is_some());
    t.advance(12 * 60).await?;
    assert!(t.endpoint(pair.target).await?.is_none());
});

case!(errors_wait_for_end, [122], async |t| {
    let pair = t.pair().await?;
    t.end_with_error(pair.target, 3, "broken").await?;
    assert_eq!(t.receive("QI").await?.error_codes(), [3]);
    t.advance(365 * 86400).await?;
    assert_eq!(t.state(pair.initiator).await?, "ER");
    t.end(pair.initiator).await?;
    assert!(t.endpoint(pair.initiator).await?.is_none());
});

case!(errors_come_first, [123], async |t| {
    let pair = t.pair().await?;
    t.send(pair.target, "Text", "earlier").await?;
    t.end_with_error(pair.target, 3, "broken").await?;
    let received = t.receive("QI").await?;
    assert_eq!(received.types(), [system::ERROR, "Text"]);
});

case!(messages_after_the_end_are_discarded, [124], async |t| {
    let pair = t.pair().await?;
    // Both queues are off, so that the end is not acknowledged while the target's message is on its way.
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF; ALTER QUEUE [QI] WITH STATUS = OFF").await?;
    t.end(pair.initiator).await?;
    assert_eq!(t.state(pair.initiator).await?, "DO");
    t.send(pair.target, "Text", "into the void").await?;
    t.define("ALTER QUEUE [QI] WITH STATUS = ON").await?;
    assert!(t.rows_of("QI").await?.is_empty());
    assert!(t.transmission().await?.iter().all(|row| row.text("conversation_handle") != pair.target.to_string()));
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    assert_eq!(t.receive("QT").await?.types(), [system::END_DIALOG]);
});

case!(both_sides_may_end_while_the_broker_is_disabled, [124], async |t| {
    for (first_is_target, waits, error) in
        [(true, true, false), (true, false, true), (false, true, true), (false, false, false)]
    {
        let pair = t.pair().await?;
        t.define("ALTER DATABASE CURRENT SET DISABLE_BROKER").await?;
        if waits {
            t.send(pair.initiator, "Text", "into the void").await?;
            t.send(pair.target, "Text", "into the void").await?;
        }
        let [first, second] = match first_is_target {
            true => [pair.target, pair.initiator],
            false => [pair.initiator, pair.target],
        };
        t.end(first).await?;
        assert_eq!(t.state(first).await?, "DO", "its end waits");
        if error {
            t.end_with_error(second, 1, "it reaches no one").await?;
        } else {
            t.end(second).await?;
        }
        let shown = format!("target first: {first_is_target}, messages: {waits}, error: {error}");
        assert!(t.transmission().await?.is_empty(), "{shown}");
        assert!(t.endpoint(pair.initiator).await?.is_none(), "{shown}");
        assert_eq!(t.state(pair.target).await?, "CD", "{shown}");
        t.define("ALTER DATABASE CURRENT SET ENABLE_BROKER").await?;
        assert!(t.receive("QI").await?.is_empty() && t.receive("QT").await?.is_empty(), "{shown}");
    }
});

case!(messages_of_broken_conversations_are_held, [125], async |t| {
    for error in [false, true] {
        let pair = t.pair().await?;
        t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
        t.send(pair.initiator, "Text", "held").await?;
        if error {
            t.end_with_error(pair.target, 1, "broken").await?;
        } else {
            t.end(pair.target).await?;
        }
        t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
        let held = t.transmission().await?;
        assert_eq!(held.len(), 1, "error: {error}");
        assert_ne!(held[0].text("transmission_status"), "");
        assert!(t.receive("QT").await?.is_empty());
        t.end(pair.initiator).await?;
        assert!(t.transmission().await?.is_empty());
    }
});

case!(a_reply_confirms_the_target, [121], async |t| {
    let pair = t.pair().await?;
    t.send(pair.target, "Text", "an answer").await?;
    t.end(pair.initiator).await?;
    t.end(pair.target).await?;
    let closed = t.endpoint(pair.target).await?.expect("it is kept against replay");
    assert_eq!((closed.state.as_str(), closed.security_timestamp.is_some()), ("CD", true));
    t.advance(32 * 60).await?;
    assert!(t.endpoint(pair.target).await?.is_none());
});

case!(unconfirmed_targets_outlive_their_lifetime, [120], async |t| {
    let dialog = t.begin_dialog(t.to_target().lifetime(86400)).await?.handle;
    t.send(dialog, "Text", "fire").await?;
    t.end(dialog).await?;
    let target = t.receive("QT").await?.first_handle();
    t.end(target).await?;
    t.advance(86400).await?;
    assert!(t.endpoint(target).await?.is_some(), "the lifetime has passed, the half hour has not");
    t.advance(31 * 60).await?;
    assert!(t.endpoint(target).await?.is_none());
    assert!(t.receive("QT").await?.is_empty(), "and no Error is sent");
});

case!(cleanup_of_an_end_that_arrives_meanwhile, [114, 116], async |t| {
    let pair = t.pair().await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    t.end(pair.initiator).await?;
    assert_eq!(t.state(pair.initiator).await?, "DO");
    let tx = t.begin().await?;
    tx.cleanup(pair.initiator).await?;
    // The end arrives, so the endpoint goes by itself, and another takes its place in memory.
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    let other = t.dialog().await?;
    let own = tx.begin_dialog(t.to_target()).await?.handle;
    tx.send(own, "Text", "works").await?;
    tx.commit().await?;
    assert_eq!(t.state(other).await?, "SO", "the other conversation is not touched");
    // The embedded store cleans up when the transaction commits. On a server the end was gone as soon as that was called,
    // and who turned the queue on passed over what the transaction held.
    let arrived: &[&str] = if t.store().is_server() { &[] } else { &[system::END_DIALOG] };
    assert_eq!(t.receive_from("QT", pair.target).await?.types(), arrived);
    assert_eq!(t.receive("QT").await?.texts(), ["works"]);
});
