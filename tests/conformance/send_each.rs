//! Many messages in one call.

use crate::rig::{Text, code};
use dialoq::act::{Answer, Outgoing};
use dialoq::protocol::{Outcome, OutgoingMessage, Verb};
use dialoq::{Act, ConversationHandle, Error, Result};
use std::sync::Arc;
use uuid::Uuid;

fn send_each<'a>(act: &'a impl Act, messages: &[(ConversationHandle, &str, &str)]) -> Answer<'a, ()> {
    act.send_each(messages.iter().map(|(handle, message_type, text)| Outgoing::new(*handle, *message_type, *text)))
}

/// The number of a refusal, and the place of the message that was refused.
fn refused(result: Result<()>) -> (u16, Option<usize>) {
    let error: Error = result.expect_err("it is refused");
    let place = error.statement();
    if let Some(place) = place {
        assert!(error.message().starts_with(&format!("message {} of ", place + 1)), "{error}");
    }
    (error.code().0, place)
}

case!(many_messages_of_many_conversations, [281], async |t| {
    let (one, two) = (t.dialog().await?, t.pair().await?);
    let list = [
        (one, "Text", "a"),
        (two.initiator, "Ask", "b"),
        (one, "Xml", "<c/>"),
        (two.target, "Answer", "to the initiator"),
        (one, "Text", ""),
        (two.initiator, "Text", "d"),
    ];
    send_each(&t.broker, &list).await?;
    let mut found = [t.receive("QT").await?, t.receive("QT").await?];
    found.sort_by_key(|received| received.texts());
    assert_eq!(found[0].types(), ["Text", "Xml", "Text"]);
    assert_eq!(
        found[0].iter().map(|m| m.message_body.as_deref()).collect::<Vec<_>>(),
        [Some(&b"a"[..]), Some(&b"<c/>"[..]), None]
    );
    assert_eq!(found[0].iter().map(|m| m.message_sequence_number).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(found[1].texts(), ["b", "d"]);
    assert_eq!(found[1].types(), ["Ask", "Text"]);
    assert_eq!(t.receive("QI").await?.texts(), ["to the initiator"]);
    assert!(t.receive("QT").await?.is_empty());
    // The next SEND goes on counting.
    t.send(one, "Text", "e").await?;
    assert_eq!(t.receive("QT").await?[0].message_sequence_number, 3);
});

case!(a_list_arrives_in_its_order, [281], async |t| {
    // Conversations that have spoken, new ones, and one with two messages.
    let (new, spoken, twice, last) = (t.dialog().await?, t.pair().await?, t.dialog().await?, t.dialog().await?);
    for list in [
        vec![(new, "Text", "a"), (spoken.initiator, "Text", "b"), (last, "Text", "c")],
        vec![
            (twice, "Text", "d"),
            (new, "Text", "e"),
            (twice, "Text", "f"),
            (last, "Text", "g"),
            (spoken.initiator, "Text", "h"),
        ],
    ] {
        send_each(&t.broker, &list).await?;
        let mut found = Vec::new();
        loop {
            let batch = t.receive("QT").await?;
            if batch.is_empty() {
                break;
            }
            found.extend(batch.texts());
        }
        // A RECEIVE takes all of a conversation, the one with the oldest message first.
        let first = |handle| list.iter().position(|(other, ..)| *other == handle);
        let mut wanted = list.clone();
        wanted.sort_by_key(|(handle, ..)| first(*handle));
        assert_eq!(found, wanted.iter().map(|(_, _, text)| *text).collect::<Vec<_>>());
    }
    let (one, two) = (t.dialog().await?, t.dialog().await?);
    send_each(&t.broker, &[(two, "Text", "i"), (one, "Text", "j")]).await?;
    assert_eq!([t.receive("QT").await?.texts(), t.receive("QT").await?.texts()], [["i"], ["j"]]);
});

case!(a_list_of_none_and_of_one, [281], async |t| {
    send_each(&t.broker, &[]).await?;
    let tx = t.begin().await?;
    send_each(&tx.0, &[]).await?;
    tx.commit().await?;
    assert!(t.receive("QT").await?.is_empty());
    let dialog = t.dialog().await?;
    send_each(&t.broker, &[(dialog, "Text", "one")]).await?;
    assert_eq!(t.receive("QT").await?.texts(), ["one"]);
});

case!(a_refused_message_refuses_the_list, [282], async |t| {
    let (open, ended, errored) = (t.pair().await?, t.pair().await?, t.pair().await?);
    t.end(ended.target).await?;
    t.end_with_error(errored.target, 1, "broken").await?;
    let unknown = ConversationHandle(Uuid::from_u128(5));
    let (good, body) = ((open.initiator, "Text", "good"), "x");
    let lists = [
        ((ended.initiator, "Text", body), 8429),
        ((errored.initiator, "Text", body), 8429),
        ((unknown, "Text", body), 8426),
        ((open.initiator, "Nowhere", body), 8428),
        ((open.initiator, "Unlisted", body), 8431),
        ((open.initiator, "Answer", body), 8432),
        ((open.target, "Ask", body), 8434),
        ((open.initiator, "a\0b", body), 60003),
    ];
    for (bad, number) in lists {
        for place in [0, 1, 2] {
            let mut list = vec![good, good];
            list.insert(place, bad);
            assert_eq!(refused(send_each(&t.broker, &list).await), (number, Some(place)), "{bad:?}");
            let tx = t.begin().await?;
            assert_eq!(refused(send_each(&tx.0, &list).await), (number, Some(place)), "{bad:?} in a transaction");
            tx.commit().await?;
        }
        assert_eq!(refused(send_each(&t.broker, &[good, bad, bad]).await), (number, Some(1)), "the first of two");
    }
    assert!(t.receive("QT").await?.is_empty(), "nothing was sent");
    send_each(&t.broker, &[good]).await?;
    assert_eq!(t.receive("QT").await?[0].message_sequence_number, 1, "and nothing was counted");
});

case!(a_message_that_breaks_its_conversation_drops_the_later_ones_of_the_list, [281], async |t| {
    // The target service does not support the contract, so no message can be delivered.
    t.define("CREATE SERVICE [Bare] ON QUEUE [QT]").await?;
    let new = t.begin_dialog(t.to("Bare").on("C")).await?.handle;
    let (spoken, plain) = (t.pair().await?, t.pair().await?);
    for (wrong, number) in [("Nowhere", 8428), ("Unlisted", 8431), ("Answer", 8432)] {
        let list = [(new, "Text", "a"), (new, wrong, "b")];
        assert_eq!(refused(send_each(&t.broker, &list).await), (number, Some(1)), "{wrong} would be dropped");
    }
    assert_eq!(t.state(new).await?, "SO", "nothing was sent");
    let list = [
        (plain.initiator, "Text", "a"),
        (new, "Text", "b"),
        (new, "Text", "c"),
        (plain.initiator, "Text", "d"),
        (new, "Text", "e"),
        (spoken.target, "Text", "f"),
    ];
    send_each(&t.broker, &list).await?;
    assert_eq!(t.receive("QT").await?.texts(), ["a", "d"]);
    let mut answers = [t.receive("QI").await?, t.receive("QI").await?];
    answers.sort_by_key(|received| received[0].conversation_handle != new);
    assert_eq!(answers[0].error_codes(), [-8408]);
    assert_eq!(answers[1].texts(), ["f"]);
    assert_eq!(
        refused(send_each(&t.broker, &[(plain.initiator, "Text", "g"), (new, "Text", "h")]).await),
        (8429, Some(1))
    );
    assert!(t.receive("QT").await?.is_empty(), "nothing was sent");
});

case!(a_refused_list_leaves_its_transaction, [282], async |t| {
    let (open, ended) = (t.pair().await?, t.pair().await?);
    t.end(ended.target).await?;
    let tx = t.begin().await?;
    tx.send(open.initiator, "Text", "before").await?;
    assert_eq!(
        refused(send_each(&tx.0, &[(open.initiator, "Text", "no"), (ended.initiator, "Text", "no")]).await).0,
        8429
    );
    send_each(&tx.0, &[(open.initiator, "Text", "1"), (open.initiator, "Text", "2")]).await?;
    tx.savepoint("here").await?;
    send_each(&tx.0, &[(open.initiator, "Text", "undone"), (open.initiator, "Text", "undone too")]).await?;
    tx.rollback_to("here").await?;
    send_each(&tx.0, &[(open.initiator, "Text", "3")]).await?;
    assert!(t.receive("QT").await?.is_empty(), "before the commit");
    tx.commit().await?;
    let received = t.receive("QT").await?;
    assert_eq!(received.texts(), ["before", "1", "2", "3"]);
    assert_eq!(received.iter().map(|m| m.message_sequence_number).collect::<Vec<_>>(), [1, 2, 3, 4]);
    let tx = t.begin().await?;
    send_each(&tx.0, &[(open.initiator, "Text", "rolled back")]).await?;
    tx.rollback().await?;
    assert!(t.receive("QT").await?.is_empty());
});

case!(bad_bodies_break_their_conversations_only, [281], async |t| {
    let (one, two) = (t.dialog().await?, t.dialog().await?);
    send_each(&t.broker, &[(one, "Xml", "<open>"), (two, "Text", "good"), (one, "Nothing", "x")]).await?;
    assert_eq!(t.receive("QI").await?.error_codes(), [-9615]);
    assert_eq!((t.state(one).await?, t.state(two).await?), ("ER".to_owned(), "CO".to_owned()));
    let received = [t.receive("QT").await?, t.receive("QT").await?];
    assert!(received.iter().any(|received| received.texts() == ["good"]), "{received:?}");
});

case!(a_list_waits_for_a_held_group, [281], async |t| {
    let (held, free) = (t.pair().await?, t.pair().await?);
    let tx = t.begin().await?;
    tx.send(held.initiator, "Text", "first").await?;
    // What no holder can make valid is refused at once.
    let bad = [(held.initiator, "Text", "x"), (free.initiator, "Answer", "x")];
    assert_eq!(refused(send_each(&t.broker, &bad).await), (8432, Some(1)));
    let list = [(free.initiator, "Text", "a"), (held.initiator, "Text", "second")];
    let waiting = send_each(&t.broker, &list);
    let (sent, committed) = tokio::join!(waiting, async {
        assert!(t.receive("QT").await?.is_empty(), "it waits, and has sent nothing");
        tx.commit().await
    });
    sent?;
    committed?;
    let mut found = [t.receive("QT").await?.texts(), t.receive("QT").await?.texts()];
    found.sort();
    assert_eq!(found, [vec!["a".to_owned()], vec!["first".to_owned(), "second".to_owned()]]);
});

case!(a_list_that_waits_for_a_group_holds_the_group_that_its_conversation_was_moved_to, [281], async |t| {
    let (moved, other) = (t.pair().await?.initiator, t.pair().await?.initiator);
    let group = t.endpoint(other).await?.expect("it is there").group;
    let holder = t.begin().await?;
    holder.send(moved, "Text", "a").await?;
    let tx = t.begin().await?;
    let list = [(moved, "Text", "b"), (moved, "Text", "c")];
    let mut sent = Box::pin(async { send_each(&tx.0, &list).await });
    t.still_waits(&mut sent).await;
    holder.move_conversation(moved, group).await?;
    holder.commit().await?;
    sent.await?;
    // The list holds the new group until its transaction ends.
    let mut waits = Box::pin(t.send(moved, "Text", "d"));
    t.still_waits(&mut waits).await;
    tx.commit().await?;
    waits.await?;
    let received = t.receive("QT").await?;
    assert_eq!(received.texts(), ["a", "b", "c", "d"]);
    assert_eq!(received.iter().map(|m| m.message_sequence_number).collect::<Vec<_>>(), [1, 2, 3, 4]);
});

case!(lists_of_many_callers_at_once, [281, 282], async |t| {
    let (pairs, bad) = ([t.pair().await?, t.pair().await?], t.pair().await?);
    t.end(bad.target).await?;
    // Both orders, so that lists wait for each other, with SENDs and refused lists between.
    let [one, two] = [pairs[0].initiator, pairs[1].initiator];
    let list =
        |name: &'static str, first, second| vec![(first, "Text", name), (second, "Text", name), (first, "Text", name)];
    let (a, b, c) = (list("a", one, two), list("b", two, one), list("c", one, bad.initiator));
    let (a, b, c, d) = tokio::join!(
        send_each(&t.broker, &a),
        send_each(&t.broker, &b),
        send_each(&t.broker, &c),
        t.send(one, "Text", "d")
    );
    a?;
    b?;
    d?;
    assert_eq!(refused(c), (8429, Some(1)));
    let mut found = [t.receive("QT").await?.texts(), t.receive("QT").await?.texts()];
    found.iter_mut().for_each(|texts| texts.sort());
    found.sort_by_key(Vec::len);
    assert_eq!(found, [vec!["a", "b", "b"], vec!["a", "a", "b", "d"]]);
});

case!(ten_thousand_messages_and_no_more, [283], async |t| {
    let dialog = t.pair().await?.initiator;
    let texts: Vec<String> = (0..10_001).map(|number: i32| number.to_string()).collect();
    let list: Vec<_> = texts.iter().map(|text| (dialog, "Text", text.as_str())).collect();
    let error = send_each(&t.broker, &list).await.expect_err("too many");
    assert!(error.message().contains("10001 messages") && error.message().contains("at most 10000"), "{error}");
    assert_eq!((error.code().0, error.statement()), (60005, None));
    send_each(&t.broker, &list[..10_000]).await?;
    assert_eq!(t.receive("QT").await?.texts(), texts[..10_000]);
});

case!(a_body_over_the_limit_refuses_the_list, [283], async |t| {
    let dialog = t.pair().await?.initiator;
    let too_large = "x".repeat((64 << 20) + 1);
    let list = [(dialog, "Text", "a"), (dialog, "Text", too_large.as_str()), (dialog, "Text", "b")];
    assert_eq!(refused(send_each(&t.broker, &list).await), (8459, Some(1)));
    assert!(t.receive("QT").await?.is_empty());
    send_each(&t.broker, &[(dialog, "Text", "a"), (dialog, "Text", "b")]).await?;
    assert_eq!(t.receive("QT").await?.texts(), ["a", "b"]);
});

case!(a_list_with_an_id_happens_once, [267, 281], async |t| {
    let (open, ended) = (t.pair().await?, t.pair().await?);
    t.end(ended.target).await?;
    let unit = |handles: &[ConversationHandle]| {
        let message = |handle: &ConversationHandle| OutgoingMessage {
            handle: *handle,
            message_type: Some("Text".into()),
            body: Some(Arc::new(b"once".to_vec())),
            trace: None,
        };
        vec![Verb::SendEach(handles.iter().map(message).collect())]
    };
    let id = Uuid::from_u128(9);
    let refusal = t.broker.submit_once(id, unit(&[open.initiator, ended.initiator])).await;
    assert_eq!(code(refusal), 8429);
    assert!(!t.broker.unit_happened(id).await?);
    assert_eq!(t.broker.submit_once(id, unit(&[open.initiator, open.initiator])).await?, Some(vec![Outcome::Done]));
    assert_eq!(t.broker.submit_once(id, unit(&[open.initiator])).await?, None);
    assert_eq!(t.receive("QT").await?.texts(), ["once", "once"]);
});
