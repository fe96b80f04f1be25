//! SEND.

use crate::rig::{Text, code};
use dialoq::ConversationHandle;
use dialoq::protocol::Verb;
use std::sync::Arc;
use uuid::Uuid;

case!(first_message_opens_both_sides, [78], async |t| {
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "hello").await?;
    let endpoints = t.endpoints().await?;
    assert_eq!(endpoints.len(), 2);
    assert!(endpoints.iter().all(|endpoint| endpoint.state == "CO"));
    let rows = t.rows_of("QT").await?;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].int("status"), rows[0].int("message_sequence_number")), (1, 0));
    let received = t.receive("QT").await?;
    assert_eq!((received[0].message_sequence_number, received[0].status), (0, 1));
    let target = endpoints.iter().find(|endpoint| !endpoint.is_initiator).expect("the target");
    assert_eq!(received[0].conversation_handle, target.handle);
    assert_eq!(received[0].conversation_group_id, target.group);
});

case!(default_type, [79, 80], async |t| {
    let dialog = t.dialog().await?;
    assert_eq!(code(t.send_default(dialog, "x").await), 8431);
    let pair = t.pair_over_default().await?;
    t.send_default(pair.initiator, "x").await?;
    let received = t.receive("QPlain").await?;
    assert_eq!((received.texts(), &*received[0].message_type_name), (vec!["x".to_owned()], "DEFAULT"));
});

case!(each_side_sends_its_message_types, [81, 82], async |t| {
    let pair = t.pair().await?;
    assert_eq!(code(t.send(pair.initiator, "Nowhere", "x").await), 8428);
    assert_eq!(code(t.send(pair.initiator, "Unlisted", "x").await), 8431);
    assert_eq!(code(t.send(pair.initiator, "Answer", "x").await), 8432);
    assert_eq!(code(t.send(pair.target, "Ask", "x").await), 8434);
    t.send(pair.initiator, "Ask", "question").await?;
    t.send(pair.target, "Answer", "answer").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["question"]);
    assert_eq!(t.receive("QI").await?.texts(), ["answer"]);
});

case!(empty_bodies_are_no_bodies, [84, 85], async |t| {
    let dialog = t.dialog().await?;
    for message_type in ["Text", "Xml", "Nothing"] {
        t.send_bytes(dialog, message_type, None).await?;
        t.send_bytes(dialog, message_type, Some(Vec::new())).await?;
        t.send(dialog, message_type, "").await?;
    }
    let received = t.receive("QT").await?;
    assert_eq!(received.len(), 9);
    assert!(received.iter().all(|message| message.message_body.is_none()));
    assert!(t.receive("QI").await?.is_empty(), "none of them was refused");
});

case!(bodies_arrive_as_they_were_sent, [86], async |t| {
    let dialog = t.dialog().await?;
    let utf16: Vec<u8> = "grüße 🚚".encode_utf16().flat_map(u16::to_le_bytes).collect();
    let every_byte: Vec<u8> = (0..=255).collect();
    t.send_bytes(dialog, "Text", Some(utf16.clone())).await?;
    t.send_bytes(dialog, "Text", Some(every_byte.clone())).await?;
    t.send_bytes(dialog, "Text", Some(vec![0])).await?;
    let bodies: Vec<_> = t.receive("QT").await?.into_iter().map(|message| message.message_body).collect();
    assert_eq!(bodies, [Some(utf16), Some(every_byte), Some(vec![0])]);
});

case!(malformed_xml_errors_both_sides, [87, 88], async |t| {
    let dialog = t.dialog().await?;
    t.send(dialog, "Xml", "<open>").await?;
    assert_eq!(t.receive("QI").await?.error_codes(), [-9615]);
    assert_eq!(t.state(dialog).await?, "ER");
    let at_target = t.receive("QT").await?;
    assert_eq!(at_target.error_codes(), [-9616], "the message itself is not delivered");
    assert_eq!(t.state(at_target.first_handle()).await?, "ER");
});

case!(empty_types_refuse_bodies, [89], async |t| {
    let dialog = t.dialog().await?;
    t.send(dialog, "Nothing", "something").await?;
    assert_eq!(t.receive("QI").await?.error_codes(), [-8430]);
    assert!(!t.receive("QT").await?.texts().contains(&"something".to_owned()));
});

case!(ended_conversations_send_nothing, [90, 91], async |t| {
    let pair = t.pair().await?;
    t.end(pair.target).await?;
    assert!([8426, 8429].contains(&code(t.send(pair.target, "Text", "x").await)));
    assert_eq!(t.state(pair.initiator).await?, "DI");
    assert_eq!(code(t.send(pair.initiator, "Text", "x").await), 8429);
});

case!(errored_conversations_send_nothing, [92, 93], async |t| {
    let healthy = t.pair().await?;
    let errored = t.pair().await?;
    t.end_with_error(errored.target, 1, "broken").await?;
    assert_eq!(t.state(errored.initiator).await?, "ER");
    assert_eq!(code(t.send(errored.initiator, "Text", "x").await), 8429);
    for list in [[healthy.initiator, errored.initiator], [errored.initiator, healthy.initiator]] {
        assert_eq!(code(t.send_many(&list, "Text", "x").await), 8429);
    }
    assert!(t.receive("QT").await?.is_empty(), "the healthy one sent nothing");
    t.send(healthy.initiator, "Text", "next").await?;
    assert_eq!(t.receive("QT").await?[0].message_sequence_number, 1);
});

case!(lists_of_conversations, [94, 95], async |t| {
    let dialogs = [t.dialog().await?, t.dialog().await?, t.dialog().await?];
    let unknown = ConversationHandle(Uuid::from_u128(5));
    assert_eq!(code(t.send_many(&[dialogs[0], dialogs[0]], "Text", "x").await), 8451);
    assert_eq!(code(t.send_many(&[dialogs[0], unknown], "Text", "x").await), 8435);
    assert!(t.receive("QT").await?.is_empty());

    t.send(dialogs[1], "Text", "before").await?;
    t.send_many(&dialogs, "Text", "all").await?;
    let mut numbers = Vec::new();
    for _ in 0..3 {
        let received = t.receive("QT").await?;
        numbers.push((received.texts(), received.iter().map(|m| m.message_sequence_number).collect::<Vec<_>>()));
    }
    let all = || "all".to_owned();
    assert_eq!(numbers.iter().filter(|found| **found == (vec![all()], vec![0])).count(), 2);
    assert_eq!(numbers.iter().filter(|found| **found == (vec!["before".into(), all()], vec![0, 1])).count(), 1);
});

case!(null_bodies, [83], async |t| {
    // DIFFERENCE(typed-nulls): the API distinguishes "no body" (None) from bytes and has no NULL expression to refuse with 8433.
    let dialog = t.dialog().await?;
    let verb = |body| Verb::Send { handles: vec![dialog], message_type: Some("Text".into()), body, trace: None };
    t.perform(verb(None)).await?;
    t.perform(verb(Some(Arc::new(b"x".to_vec())))).await?;
    let received = t.receive("QT").await?;
    assert_eq!(received.iter().map(|m| m.message_body.as_deref()).collect::<Vec<_>>(), [None, Some(&b"x"[..])]);
});

case!(uncommitted_messages_are_invisible, [96, 97], async |t| {
    let pair = t.pair().await?;
    let tx = t.begin().await?;
    tx.send(pair.initiator, "Text", "rolled back").await?;
    assert!(t.receive("QT").await?.is_empty());
    tx.rollback().await?;
    assert!(t.receive("QT").await?.is_empty());

    let tx = t.begin().await?;
    tx.send(pair.initiator, "Text", "committed").await?;
    assert!(t.receive("QT").await?.is_empty());
    tx.commit().await?;
    let received = t.receive("QT").await?;
    assert_eq!(received.texts(), ["committed"]);
    assert_eq!(received[0].message_sequence_number, 1, "the rolled-back message left no gap");
});

case!(senders_on_one_dialog_take_turns, [98], async |t| {
    let pair = t.pair().await?;
    let first = t.begin().await?;
    first.send(pair.initiator, "Text", "first").await?;
    let second = t.begin().await?;
    {
        let mut waiting = Box::pin(second.send(pair.initiator, "Text", "second"));
        t.still_waits(&mut waiting).await;
        first.send(pair.initiator, "Text", "first again").await?;
        t.still_waits(&mut waiting).await;
        first.commit().await?;
        waiting.await?;
    }
    second.commit().await?;
    assert_eq!(t.receive("QT").await?.texts(), ["first", "first again", "second"]);
});

case!(senders_on_one_dialog_take_turns_at_once, [98], async |t| {
    let pair = t.pair().await?;
    let holder = t.begin().await?;
    holder.send(pair.initiator, "Text", "never").await?;
    let other = t.clone();
    let mut waiting = Box::pin(async move { other.send(pair.initiator, "Text", "after the rollback").await });
    t.still_waits(&mut waiting).await;
    holder.rollback().await?;
    waiting.await?;
    let received = t.receive("QT").await?;
    assert_eq!((received.texts(), received[0].message_sequence_number), (vec!["after the rollback".to_owned()], 1));
});

case!(queues_that_are_off_do_not_stop_senders, [99], async |t| {
    let pair = t.pair().await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    t.send(pair.initiator, "Text", "waits").await?;
    assert!(t.rows_of("QT").await?.is_empty());
    let waiting = t.transmission().await?;
    assert_eq!(waiting.len(), 1);
    assert_ne!(waiting[0].text("transmission_status"), "");
    assert_eq!(waiting[0].text("transmission_status"), t.transmission_status(pair.initiator).await?);
});

case!(own_queue_off, [100], async |t| {
    let pair = t.pair().await?;
    t.define("ALTER QUEUE [QI] WITH STATUS = OFF").await?;
    t.send(pair.initiator, "Text", "sent").await?;
    t.define("ALTER QUEUE [QI] WITH RETENTION = ON").await?;
    assert_eq!(code(t.send(pair.initiator, "Text", "refused").await), 9618);
    assert_eq!(t.receive("QT").await?.texts(), ["sent"]);
});

case!(sequence_numbers, [101], async |t| {
    let dialog = t.dialog().await?;
    for number in 0..10 {
        t.send(dialog, "Text", &number.to_string()).await?;
    }
    let received = t.receive("QT").await?;
    let numbers: Vec<u64> = received.iter().map(|message| message.message_sequence_number).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<_>>());
    assert_eq!(received.texts(), (0..10).map(|number: u32| number.to_string()).collect::<Vec<_>>());
});
