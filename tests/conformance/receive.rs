//! RECEIVE.

use crate::rig::{Text, code};
use dialoq::protocol::{MessageValidation, system};
use dialoq::{ConversationHandle, GroupId};
use uuid::Uuid;

case!(one_group_at_a_time, [153, 154, 155], async |t| {
    let dialogs = [t.dialog().await?, t.dialog().await?];
    for number in 0..5 {
        for (place, dialog) in dialogs.iter().enumerate() {
            t.send(*dialog, "Text", &format!("{place}.{number}")).await?;
        }
    }
    assert!(t.receive_top("QT", 0).await?.is_empty());
    assert_eq!(t.receive_top("QT", 2).await?.texts(), ["0.0", "0.1"]);
    let rest = t.receive("QT").await?;
    assert!(rest.iter().all(|message| message.conversation_group_id == rest[0].conversation_group_id));
    let mut all = [rest.texts(), t.receive("QT").await?.texts()];
    all.sort();
    assert_eq!(all[0], ["0.2", "0.3", "0.4"]);
    assert_eq!(all[1], ["1.0", "1.1", "1.2", "1.3", "1.4"]);
    assert!(t.receive("QT").await?.is_empty());
});

case!(where_picks_a_conversation_or_a_group, [156], async |t| {
    let one = t.begin_dialog(t.to_target()).await?;
    let two = t.begin_dialog(t.to_target().in_group(one.group)).await?;
    let other = t.begin_dialog(t.to_target()).await?;
    for dialog in [other.handle, one.handle, two.handle] {
        t.answer(dialog, "first").await?;
        t.answer(dialog, "second").await?;
    }
    let by_handle = t.receive_from("QI", two.handle).await?;
    assert_eq!(by_handle.len(), 2);
    assert!(by_handle.iter().all(|message| message.conversation_handle == two.handle));
    t.answer(two.handle, "third").await?;
    let by_group = t.receive_group("QI", one.group).await?;
    assert_eq!(by_group.len(), 3);
    assert!(by_group.iter().all(|message| message.conversation_group_id == one.group));
    assert_eq!(t.receive("QI").await?.len(), 2);
});

case!(where_must_name_something_of_this_queue, [157], async |t| {
    let pair = t.pair().await?;
    let group = t.endpoint(pair.initiator).await?.expect("initiator").group;
    assert!(t.receive_from("QT", ConversationHandle(Uuid::from_u128(1))).await.is_err());
    assert!(t.receive_from("QT", pair.initiator).await.is_err());
    assert!(t.receive_group("QT", GroupId(Uuid::from_u128(1))).await.is_err());
    assert!(t.receive_group("QT", group).await.is_err());
    assert!(t.receive_from("QI", pair.initiator).await?.is_empty());
});

case!(empty_queues_answer_at_once, [159], async |t| {
    assert!(t.receive("QT").await?.is_empty());
    let tx = t.begin().await?;
    assert!(tx.receive("QT").await?.is_empty());
    tx.commit().await?;
});

case!(empty_receives_hold_nothing, [155, 159], async |t| {
    let pair = t.pair().await?;
    let group = t.endpoint(pair.target).await?.expect("target").group;
    t.send(pair.initiator, "Text", "waits").await?;
    let tx = t.begin().await?;
    assert!(tx.receive_top("QT", 0).await?.is_empty());
    assert_eq!(t.receive("QT").await?.texts(), ["waits"]);
    assert!(tx.receive_from("QT", pair.target).await?.is_empty());
    assert!(tx.receive_group("QT", group).await?.is_empty());
    assert!(tx.receive("QT").await?.is_empty());
    t.send(pair.target, "Text", "waits for no lock").await?;
    tx.rollback().await?;
    assert_eq!(t.receive("QI").await?.texts(), ["waits for no lock"]);
});

case!(waits_run_out, [160], async |t| {
    let other = t.clone();
    let mut waiting = Box::pin(async move { other.wait_receive("QT", Some(300)).await });
    t.still_waits(&mut waiting).await;
    t.advance(299).await?;
    t.still_waits(&mut waiting).await;
    t.advance(1).await?;
    assert!(waiting.await?.is_empty());
});

case!(waits_end_with_a_commit, [161], async |t| {
    let dialog = t.dialog().await?;
    let other = t.clone();
    let mut waiting = Box::pin(async move { other.wait_receive("QT", None).await });
    t.still_waits(&mut waiting).await;
    t.advance(1_000_000).await?;
    t.still_waits(&mut waiting).await;
    let tx = t.begin().await?;
    tx.send(dialog, "Text", "at last").await?;
    t.still_waits(&mut waiting).await;
    tx.commit().await?;
    assert_eq!(waiting.await?.texts(), ["at last"]);
});

case!(a_wait_that_its_caller_does_not_poll_keeps_no_message_from_another, [161], async |t| {
    let dialog = t.dialog().await?;
    let (first, second) = (t.clone(), t.clone());
    // It sleeps before the other, so that the signal goes to it.
    let mut unpolled = Box::pin(async move { first.wait_receive("QT", None).await });
    t.still_waits(&mut unpolled).await;
    let mut waiting = Box::pin(async move { second.wait_receive("QT", None).await });
    t.still_waits(&mut waiting).await;
    t.send(dialog, "Text", "one").await?;
    assert_eq!(waiting.await?.texts(), ["one"]);
    t.send(dialog, "Text", "two").await?;
    assert_eq!(unpolled.await?.texts(), ["two"]);
});

case!(waits_end_when_a_group_is_freed, [161], async |t| {
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "returned").await?;
    let holder = t.begin().await?;
    assert_eq!(holder.receive("QT").await?.len(), 1);
    let other = t.clone();
    let mut waiting = Box::pin(async move { other.wait_receive("QT", None).await });
    t.still_waits(&mut waiting).await;
    holder.rollback().await?;
    assert_eq!(waiting.await?.texts(), ["returned"]);
});

case!(waits_end_with_a_message_for_the_transactions_own_group, [153, 161], async |t| {
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "first").await?;
    let tx = t.begin().await?;
    assert_eq!(tx.receive("QT").await?.texts(), ["first"]);
    // It sleeps before the other, so that a signal for one session goes to it.
    let other = t.clone();
    let mut elsewhere = Box::pin(async move { other.wait_receive("QT", None).await });
    t.still_waits(&mut elsewhere).await;
    for text in ["second", "third"] {
        let mut waiting = Box::pin(tx.wait_receive("QT", None));
        t.still_waits(&mut waiting).await;
        t.send(dialog, "Text", text).await?;
        assert_eq!(waiting.await?.texts(), [text]);
    }
    tx.commit().await?;
    t.send(t.dialog().await?, "Text", "fourth").await?;
    assert_eq!(elsewhere.await?.texts(), ["fourth"]);
});

case!(waits_end_with_their_queue, [162], async |t| {
    t.define("CREATE QUEUE [Lone]").await?;
    for statement in ["ALTER QUEUE [Lone] WITH STATUS = OFF", "DROP QUEUE [Lone]"] {
        t.define("ALTER QUEUE [Lone] WITH STATUS = ON").await?;
        let (receiver, getter) = (t.clone(), t.clone());
        let mut receiving = Box::pin(async move { receiver.wait_receive("Lone", None).await });
        let mut getting = Box::pin(async move { getter.wait_for_group("Lone", 3600).await });
        t.still_waits(&mut receiving).await;
        t.still_waits(&mut getting).await;
        t.define(statement).await?;
        assert!(receiving.await.is_err(), "{statement}");
        assert!(getting.await.is_err(), "{statement}");
    }
});

case!(queues_that_are_off, [163], async |t| {
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "kept").await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    assert_eq!(code(t.receive("QT").await), 9617);
    assert_eq!(code(t.receive_top("QT", 0).await), 9617);
    assert_eq!(code(t.get_group("QT").await), 9617);
    assert_eq!(code(t.wait_receive("QT", Some(60)).await), 9617);
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["kept"]);
});

case!(oldest_group_first, [165], async |t| {
    let dialogs = [t.dialog().await?, t.dialog().await?, t.dialog().await?];
    for place in [2, 0, 1, 2] {
        t.send(dialogs[place], "Text", &place.to_string()).await?;
    }
    for right in [&["2", "2"][..], &["0"], &["1"]] {
        assert_eq!(t.receive("QT").await?.texts(), right);
    }
    // What is left of a group keeps its age.
    t.send(dialogs[0], "Text", "old 1").await?;
    t.send(dialogs[1], "Text", "middle").await?;
    t.send(dialogs[0], "Text", "young 2").await?;
    assert_eq!(t.receive_top("QT", 1).await?.texts(), ["old 1"]);
    assert_eq!(t.receive("QT").await?.texts(), ["middle"]);
    assert_eq!(t.receive("QT").await?.texts(), ["young 2"]);
});

case!(retention_keeps_received_messages, [167, 169], async |t| {
    t.define("ALTER QUEUE [QT] WITH RETENTION = ON").await?;
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "kept").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["kept"]);
    let kept: Vec<_> =
        t.rows_of("QT").await?.iter().map(|row| (row.int("status"), row.bytes("message_body"))).collect();
    assert!(kept.contains(&(0, Some(b"kept".to_vec()))), "{kept:?}");
    assert!(kept.iter().all(|(status, _)| *status == 0));
    assert!(t.receive("QT").await?.is_empty());
    let t = t.restart().await?;
    assert!(t.receive("QT").await?.is_empty());
    t.end(pair.target).await?;
    assert!(t.rows_of("QT").await?.is_empty());
});

case!(rolled_back_receives_keep_nothing_apart, [167, 173], async |t| {
    t.define("ALTER QUEUE [QT] WITH RETENTION = ON").await?;
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "again").await?;
    let tx = t.begin().await?;
    assert_eq!(tx.receive("QT").await?.len(), 1);
    tx.rollback().await?;
    assert_eq!(t.rows_of("QT").await?.iter().map(|row| row.int("status")).collect::<Vec<_>>(), [1]);
    assert_eq!(t.receive("QT").await?.texts(), ["again"]);
});

case!(retention_is_that_of_the_time_of_the_verb, [167, 168], async |t| {
    for (before, after) in [("OFF", "ON"), ("ON", "OFF")] {
        let retain = |setting: &str| {
            format!("ALTER QUEUE [QI] WITH RETENTION = {setting}; ALTER QUEUE [QT] WITH RETENTION = {setting}")
        };
        t.define(&retain(before)).await?;
        let dialog = t.dialog().await?;
        t.send(dialog, "Text", "received").await?;
        let kept = async || {
            let (copies, received) = (t.rows_of("QI").await?, t.rows_of("QT").await?);
            Ok::<_, dialoq::Error>((copies.len(), received.iter().filter(|row| row.int("status") == 0).count()))
        };
        let (copies, received) = kept().await?;
        let tx = t.begin().await?;
        assert_eq!(tx.receive("QT").await?.texts(), ["received"]);
        tx.send(dialog, "Text", "sent").await?;
        t.define(&retain(after)).await?;
        tx.commit().await?;
        let more = usize::from(before == "ON");
        assert_eq!(kept().await?, (copies + more, received + more), "{before} at the verbs");
        assert_eq!(t.receive("QT").await?.texts(), ["sent"]);
    }
});

case!(retention_keeps_sent_messages, [168, 169], async |t| {
    t.define("ALTER QUEUE [QI] WITH RETENTION = ON").await?;
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "copied").await?;
    let rows = t.rows_of("QI").await?;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].int("status"), rows[0].bytes("message_body")), (3, Some(b"copied".to_vec())));
    assert!(t.receive("QI").await?.is_empty());
    assert_eq!(t.receive("QT").await?.texts(), ["copied"]);
    t.end(dialog).await?;
    assert!(t.rows_of("QI").await?.is_empty());
});

case!(columns_of_a_message, [170], async |t| {
    let dialog = t.dialog().await?;
    t.send(dialog, "Xml", "<a/>").await?;
    t.end(dialog).await?;
    let received = t.receive("QT").await?;
    let (first, end) = (&received[0], &received[1]);
    assert_eq!((&*first.service_name, &*first.service_contract_name), ("T", "C"));
    assert_eq!((&*first.message_type_name, first.validation), ("Xml", MessageValidation::X));
    assert_eq!(first.message_enqueue_time, t.now());
    assert_ne!(first.message_id, end.message_id);
    assert!(first.queuing_order < end.queuing_order);
    assert_eq!((&*end.message_type_name, &end.message_body), (system::END_DIALOG, &None));
    assert_eq!(end.validation, MessageValidation::E);
});

case!(one_message_one_reader, [171], async |t| {
    let dialog = t.dialog().await?;
    let mut waiting: Vec<_> = (0..8)
        .map(|_| {
            let reader = t.clone();
            Box::pin(async move { reader.wait_receive("QT", Some(60)).await })
        })
        .collect();
    for reader in &mut waiting {
        t.still_waits(reader).await;
    }
    t.send(dialog, "Text", "for one").await?;
    let readers: Vec<_> = waiting.into_iter().map(tokio::spawn).collect();
    t.advance_after_settling(60).await?;
    let mut got = Vec::new();
    for reader in readers {
        got.extend(reader.await.expect("a reader panicked")?.texts());
    }
    assert_eq!(got, ["for one"]);
});

case!(selects_see_committed_rows, [172], async |t| {
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "being received").await?;
    let tx = t.begin().await?;
    assert_eq!(tx.receive("QT").await?.len(), 1);
    // DIFFERENCE(selects-never-block): a read beside an open RECEIVE neither blocks nor misses the row.
    assert_eq!(t.rows_of("QT").await?.len(), 1);
    tx.commit().await?;
    assert!(t.rows_of("QT").await?.is_empty());
});

case!(waits_for_one_conversation_end_when_it_is_freed, [156, 161], async |t| {
    let (wanted, other) = (t.pair().await?, t.pair().await?);
    t.send(wanted.initiator, "Text", "held").await?;
    let holder = t.begin().await?;
    assert_eq!(holder.receive("QT").await?.len(), 1);
    let reader = t.clone();
    let mut waiting = Box::pin(async move { reader.wait_for_conversation("QT", wanted.target, 3600).await });
    t.still_waits(&mut waiting).await;
    t.send(other.initiator, "Text", "not wanted").await?;
    t.still_waits(&mut waiting).await;
    holder.rollback().await?;
    assert_eq!(waiting.await?.texts(), ["held"]);
    assert_eq!(t.receive("QT").await?.texts(), ["not wanted"]);
});

case!(every_waiting_reader_gets_its_message, [161, 171], async |t| {
    let mut dialogs = Vec::new();
    let mut waiting = Vec::new();
    for _ in 0..8 {
        dialogs.push(t.dialog().await?);
        let reader = t.clone();
        let mut work = Box::pin(async move { reader.wait_receive("QT", Some(3600)).await });
        t.still_waits(&mut work).await;
        waiting.push(work);
    }
    // All arrive in one commit, so there is one signal for many.
    t.send_many(&dialogs, "Text", "one each").await?;
    let readers: Vec<_> = waiting.into_iter().map(tokio::spawn).collect();
    for reader in readers {
        assert_eq!(reader.await.expect("a reader panicked")?.texts(), ["one each"]);
    }
    assert!(t.receive("QT").await?.is_empty());
});

case!(given_up_waits_swallow_no_signal, [161, 171], async |t| {
    let dialogs = [t.dialog().await?, t.dialog().await?];
    let wait = || {
        let reader = t.clone();
        Box::pin(async move { reader.wait_receive("QT", Some(3600)).await })
    };
    let (mut given_up, mut patient) = (wait(), wait());
    t.still_waits(&mut given_up).await;
    t.still_waits(&mut patient).await;
    t.send(dialogs[0], "Text", "first").await?;
    drop(given_up);
    assert_eq!(patient.await?.texts(), ["first"]);
    t.send(dialogs[1], "Text", "second").await?;
    assert_eq!(wait().await?.texts(), ["second"]);
});
