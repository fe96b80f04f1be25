//! Dead letters: messages that a retry policy has taken out of their queue, and their way back.

use crate::rig::{Pair, Rig, Row, Session, Text, code};
use crate::servers::Store;
use dialoq::define::Level;
use dialoq::protocol::{Verb, system};
use dialoq::{Act, Broker, DeadLetterId, OpenOptions, Result};
use std::task::{Context, Waker};

async fn policy(t: &Rig, attempts: u8) -> Result<()> {
    let text = format!("ALTER QUEUE [QT] WITH RETRY (MAX_ATTEMPTS = {attempts}, DELAY_MS = 0, THEN = DEAD_LETTER)");
    t.define(&text).await.map(drop)
}

/// Receives the first message of the target's queue and rolls back; gives its text.
async fn fail(t: &Rig) -> Result<Vec<String>> {
    let tx = t.begin().await?;
    let received = tx.receive_top("QT", 1).await?;
    tx.rollback().await?;
    Ok(received.texts())
}

/// The view of all dead letters, in the order of their arrival as messages.
async fn letters(t: &Rig) -> Result<Vec<Row>> {
    let view = if t.store().is_server() { "dialoq.dead_letters" } else { "dead_letters" };
    t.query(&format!("SELECT * FROM {view} ORDER BY dead_letter_id")).await
}

fn id(row: &Row) -> DeadLetterId {
    DeadLetterId(row.int("dead_letter_id").unsigned_abs())
}

/// The one dead letter.
async fn letter(t: &Rig) -> Result<DeadLetterId> {
    let letters = letters(t).await?;
    assert_eq!(letters.len(), 1, "one dead letter");
    Ok(id(&letters[0]))
}

async fn bodies(t: &Rig) -> Result<Vec<String>> {
    Ok(t.bodies(&letters(t).await?))
}

async fn redrive(t: &Rig, letter: DeadLetterId) -> Result<()> {
    t.broker.redrive_dead_letter(letter).await
}

async fn redrive_in(tx: &Session, letter: DeadLetterId) -> Result<()> {
    tx.perform(Verb::RedriveDeadLetter { letter }).await.map(drop)
}

async fn purge_in(tx: &Session, letter: DeadLetterId) -> Result<()> {
    tx.perform(Verb::PurgeDeadLetter { letter }).await.map(drop)
}

/// A pair whose target's first messages are dead, each after one attempt, and whose others wait.
async fn dead(t: &Rig, dead: &[&str], waiting: &[&str]) -> Result<Pair> {
    policy(t, 1).await?;
    let pair = t.pair().await?;
    for text in dead.iter().chain(waiting) {
        t.send(pair.initiator, "Text", text).await?;
    }
    for text in dead {
        assert_eq!(fail(t).await?, [*text]);
    }
    Ok(pair)
}

case!(after_the_last_attempt_the_message_is_a_dead_letter_and_its_conversation_goes_on, [291], async |t| {
    // DIFFERENCE(dead-letters): ours; the message leaves its queue with the count of its last rollback.
    policy(&t, 3).await?;
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "poison").await?;
    t.send(pair.initiator, "Text", "behind").await?;
    for _ in 0..2 {
        assert_eq!(fail(&t).await?, ["poison"]);
        assert!(letters(&t).await?.is_empty());
    }
    t.advance(5).await?;
    assert_eq!(fail(&t).await?, ["poison"]);
    let letters = letters(&t).await?;
    assert_eq!(letters.len(), 1);
    let row = &letters[0];
    let texts = ["queue_name", "service_name", "far_service_name", "service_contract_name", "message_type_name"];
    assert_eq!(texts.map(|name| row.text(name)), ["QT", "T", "I", "C", "Text"]);
    assert_eq!(row.uuid("conversation_handle"), pair.target.0);
    let endpoint = t.endpoint(pair.target).await?.expect("the target is there");
    assert_eq!(row.uuid("conversation_group_id"), endpoint.group.0);
    let numbers = ["message_sequence_number", "priority", "attempts", "is_conversation_open"];
    assert_eq!(numbers.map(|name| row.int(name)), [1, 5, 3, 1]);
    assert_eq!((row.text("validation"), row.bytes("message_body")), ("N".into(), Some(b"poison".to_vec())));
    assert_ne!(row.text("died_at"), row.text("message_enqueue_time"));
    assert!(row.is_null("reason") && t.is_on("QT").await?);
    assert_eq!(t.state(pair.target).await?, "CO");
    // The next message has all its attempts.
    for _ in 0..2 {
        assert_eq!(fail(&t).await?, ["behind"]);
    }
    assert_eq!(t.receive("QT").await?.texts(), ["behind"]);
    t.send(pair.target, "Text", "reply").await?;
    assert_eq!(t.receive("QI").await?.texts(), ["reply"]);
});

case!(a_redriven_letter_has_all_its_attempts, [291], async |t| {
    policy(&t, 2).await?;
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "a").await?;
    t.send(pair.initiator, "Text", "b").await?;
    for text in ["a", "a", "b"] {
        assert_eq!(fail(&t).await?, [text]);
    }
    redrive(&t, letter(&t).await?).await?;
    assert_eq!(fail(&t).await?, ["a"]);
    assert!(letters(&t).await?.is_empty(), "the attempt at the message behind it does not count for it");
    assert_eq!(t.receive("QT").await?.texts(), ["a", "b"]);
});

case!(a_conversation_that_joins_a_pausing_group_dies_for_itself, [291], async |t| {
    let text = "MAX_ATTEMPTS = 3, DELAY_MS = 60000, MAX_DELAY_MS = 60000, JITTER_PERCENT = 0, THEN = DEAD_LETTER";
    t.define(&format!("ALTER QUEUE [QT] WITH RETRY ({text})")).await?;
    let mut group = None;
    for text in ["a", "b", "c"] {
        let pair = t.pair().await?;
        match group {
            None => group = t.endpoint(pair.target).await?.map(|target| target.group),
            Some(group) => t.move_conversation(pair.target, group).await?,
        }
        t.send(pair.initiator, "Text", text).await?;
        assert_eq!(fail(&t).await?, [text], "the others of its group pause");
    }
    assert_eq!(bodies(&t).await?, ["c"]);
    assert!(t.receive("QT").await?.is_empty());
    t.advance(60).await?;
    let mut left = [t.receive("QT").await?.texts(), t.receive("QT").await?.texts()].concat();
    left.sort();
    assert_eq!(left, ["a", "b"]);
});

case!(a_message_that_no_reader_has_seen_is_not_accused, [291], async |t| {
    policy(&t, 1).await?;
    let low = t.pair().await?;
    let group = t.endpoint(low.target).await?.expect("the target is there").group;
    t.define("CREATE BROKER PRIORITY [p] FOR CONVERSATION SET (LOCAL_SERVICE_NAME = [T], PRIORITY_LEVEL = 9)").await?;
    let high = t.pair().await?;
    t.move_conversation(high.target, group).await?;
    t.send(low.initiator, "Text", "poison").await?;
    let tx = t.begin().await?;
    assert_eq!(tx.receive_top("QT", 1).await?.texts(), ["poison"]);
    t.send(high.initiator, "Text", "unseen").await?;
    tx.rollback().await?;
    assert_eq!(bodies(&t).await?, ["poison"]);
    assert_eq!(t.receive("QT").await?.texts(), ["unseen"]);
});

case!(what_comes_to_its_conversation_during_the_last_attempt_is_not_accused, [291], async |t| {
    policy(&t, 1).await?;
    for what in [system::DIALOG_TIMER, system::ERROR] {
        let pair = t.pair().await?;
        t.send(pair.initiator, "Text", what).await?;
        t.send(pair.initiator, "Text", "behind").await?;
        if what == system::DIALOG_TIMER {
            t.timer(pair.target, 5).await?;
        }
        let tx = t.begin().await?;
        assert_eq!(tx.receive_top("QT", 1).await?.texts(), [what]);
        if what == system::ERROR {
            t.end_with_error(pair.initiator, 7, "gave up").await?;
        }
        t.advance(6).await?;
        tx.rollback().await?;
        assert_eq!(bodies(&t).await?.last().map(String::as_str), Some(what));
        assert_eq!(t.receive_top("QT", 1).await?.types(), [what]);
        assert_eq!(t.receive("QT").await?.texts(), ["behind"]);
    }
});

case!(a_batch_that_begins_with_a_timer_loses_the_timer_only, [291], async |t| {
    policy(&t, 1).await?;
    let pair = t.pair().await?;
    t.timer(pair.target, 5).await?;
    t.advance(6).await?;
    for text in ["a", "b"] {
        t.send(pair.initiator, "Text", text).await?;
    }
    let tx = t.begin().await?;
    assert_eq!(tx.receive("QT").await?.types(), [system::DIALOG_TIMER, "Text", "Text"]);
    tx.rollback().await?;
    assert_eq!(
        letters(&t).await?.iter().map(|row| row.text("message_type_name")).collect::<Vec<_>>(),
        [system::DIALOG_TIMER]
    );
    assert_eq!(t.receive("QT").await?.texts(), ["a", "b"]);
});

case!(what_is_received_before_and_after_a_move_is_one_attempt, [291], async |t| {
    policy(&t, 2).await?;
    let (pair, other) = (t.pair().await?, t.pair().await?);
    let group = t.endpoint(other.target).await?.expect("the target is there").group;
    for text in ["a", "b"] {
        t.send(pair.initiator, "Text", text).await?;
    }
    let tx = t.begin().await?;
    assert_eq!(tx.receive_top("QT", 1).await?.texts(), ["a"]);
    tx.move_conversation(pair.target, group).await?;
    assert_eq!(tx.receive_top("QT", 1).await?.texts(), ["b"]);
    tx.rollback().await?;
    assert!(letters(&t).await?.is_empty());
    assert_eq!(fail(&t).await?, ["a"]);
    assert_eq!(bodies(&t).await?, ["a"]);
});

case!(a_batch_of_two_conversations_loses_its_first_message_only, [291], async |t| {
    policy(&t, 1).await?;
    let (native, moved) = (t.pair().await?, t.pair().await?);
    let group = t.endpoint(native.target).await?.expect("the target is there").group;
    t.send(native.initiator, "Text", "native").await?;
    t.send(moved.initiator, "Text", "moved").await?;
    let tx = t.begin().await?;
    tx.move_conversation(moved.target, group).await?;
    let received = tx.receive_group("QT", group).await?.texts();
    assert_eq!(received.len(), 2, "{received:?}");
    tx.rollback().await?;
    assert_eq!(bodies(&t).await?, [received[0].clone()]);
});

case!(a_message_that_was_moved_and_received_fails_in_its_own_group, [291], async |t| {
    // DIFFERENCE(moved-attempts): ours.
    policy(&t, 1).await?;
    let (guilty, innocent) = (t.pair().await?, t.pair().await?);
    let group = t.endpoint(innocent.target).await?.expect("the target is there").group;
    t.send(guilty.initiator, "Text", "poison").await?;
    t.send(innocent.initiator, "Text", "fine").await?;
    let tx = t.begin().await?;
    tx.move_conversation(guilty.target, group).await?;
    assert_eq!(tx.receive_from("QT", guilty.target).await?.texts(), ["poison"]);
    tx.rollback().await?;
    assert_eq!(bodies(&t).await?, ["poison"]);
    assert_eq!(t.receive("QT").await?.texts(), ["fine"]);
});

case!(a_dead_letter_says_why_if_the_rollback_did, [291], async |t| {
    policy(&t, 2).await?;
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "a").await?;
    t.send(pair.initiator, "Text", "b").await?;
    let long = "é".repeat(2_000);
    for reason in ["the first attempt", "no stock: 'A-1' \u{1F4E6}", "a third", &long] {
        let tx = t.begin().await?;
        assert_eq!(tx.receive_top("QT", 1).await?.len(), 1);
        tx.0.rollback_because(reason).await?;
    }
    let reasons: Vec<_> = letters(&t).await?.iter().map(|row| row.text("reason")).collect();
    assert_eq!(
        reasons,
        ["no stock: 'A-1' \u{1F4E6}", &long[..2_000]],
        "that of the last attempt, up to 1000 characters"
    );
});

case!(a_dead_letter_says_why_although_a_verb_was_under_way, [291], async |t| {
    policy(&t, 1).await?;
    let (pair, held) = (t.pair().await?, t.pair().await?);
    t.send(pair.initiator, "Text", "a").await?;
    let holder = t.begin().await?;
    holder.send(held.initiator, "Text", "holds the group").await?;
    let tx = t.begin().await?;
    assert_eq!(tx.receive_top("QT", 1).await?.texts(), ["a"]);
    let mut waits = Box::pin(tx.send(held.initiator, "Text", "waits"));
    assert!(waits.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(waits);
    tx.0.rollback_because("it took too long").await?;
    holder.rollback().await?;
    let mut found = letters(&t).await?;
    while found.is_empty() {
        tokio::task::yield_now().await;
        found = letters(&t).await?;
    }
    assert_eq!(found[0].text("reason"), "it took too long");
});

case!(a_reason_that_no_store_can_keep_as_it_is_counts_too, [291], async |t| {
    policy(&t, 1).await?;
    let pair = t.pair().await?;
    let long = "r".repeat(70 << 20);
    for reason in ["not a number: '1\0'", &long] {
        t.send(pair.initiator, "Text", "x").await?;
        let tx = t.begin().await?;
        assert_eq!(tx.receive("QT").await?.texts(), ["x"]);
        tx.0.rollback_because(reason).await?;
        assert!(t.receive("QT").await?.is_empty(), "the rollback counts at once");
    }
    let reasons: Vec<_> = letters(&t).await?.iter().map(|row| row.text("reason")).collect();
    assert_eq!(reasons, ["not a number: '1\u{FFFD}'", &long[..1000]]);
});

case!(a_redriven_message_comes_before_those_that_came_after_it, [292], async |t| {
    let pair = dead(&t, &["first"], &["second", "third"]).await?;
    redrive(&t, letter(&t).await?).await?;
    assert!(letters(&t).await?.is_empty());
    let t = t.restart().await?;
    t.send(pair.initiator, "Text", "fourth").await?;
    let received = t.receive("QT").await?;
    assert_eq!(received.texts(), ["first", "second", "third", "fourth"]);
    let numbers: Vec<u64> = received.iter().map(|message| message.message_sequence_number).collect();
    assert_eq!(numbers, [1, 2, 3, 4]);
    assert!(t.receive("QT").await?.is_empty());
});

case!(dead_letters_redriven_in_any_order_are_received_in_their_own, [292], async |t| {
    let pair = dead(&t, &["a", "b", "c"], &["d"]).await?;
    let ids: Vec<_> = letters(&t).await?.iter().map(id).collect();
    redrive(&t, ids[2]).await?;
    let t = t.restart().await?;
    redrive(&t, ids[0]).await?;
    let t = t.restart().await?;
    assert_eq!(bodies(&t).await?, ["b"]);
    t.send(pair.initiator, "Text", "e").await?;
    let received = t.receive_top("QT", 3).await?;
    let numbers: Vec<u64> = received.iter().map(|message| message.message_sequence_number).collect();
    assert_eq!((received.texts(), numbers), (["a", "c", "d"].map(String::from).to_vec(), vec![1, 3, 4]));
    redrive(&t, ids[1]).await?;
    let received = t.receive("QT").await?;
    let numbers: Vec<u64> = received.iter().map(|message| message.message_sequence_number).collect();
    assert_eq!(
        (received.texts(), numbers),
        (["b", "e"].map(String::from).to_vec(), vec![2, 5]),
        "late, but before what waits"
    );
    let t = t.restart().await?;
    t.send(pair.initiator, "Text", "f").await?;
    let received = t.receive("QT").await?;
    assert_eq!((received.texts(), received[0].message_sequence_number), (vec!["f".to_owned()], 6));
});

case!(a_redriven_message_is_the_only_one_and_survives_a_restart, [292, 293], async |t| {
    let pair = dead(&t, &["a", "b"], &[]).await?;
    let t = t.restart().await?;
    assert_eq!(bodies(&t).await?, ["a", "b"]);
    let ids: Vec<_> = letters(&t).await?.iter().map(id).collect();
    redrive(&t, ids[0]).await?;
    let t = t.restart().await?;
    assert_eq!((bodies(&t).await?, t.rows_of("QT").await?.len()), (vec!["b".to_owned()], 1));
    let received = t.receive("QT").await?;
    assert_eq!((received.texts(), received[0].message_sequence_number), (vec!["a".to_owned()], 1));
    let t = t.restart().await?;
    t.send(pair.initiator, "Text", "c").await?;
    assert_eq!(t.receive("QT").await?[0].message_sequence_number, 3, "the numbers go on");
});

case!(a_redrive_wakes_a_receiver, [292], async |t| {
    dead(&t, &["again"], &[]).await?;
    let mut receiver = Box::pin(t.wait_receive("QT", Some(3600)));
    t.still_waits(&mut receiver).await;
    redrive(&t, letter(&t).await?).await?;
    assert_eq!(receiver.await?.texts(), ["again"]);
});

case!(a_redriven_message_dies_again, [291, 292], async |t| {
    dead(&t, &["x"], &["y"]).await?;
    let first = letter(&t).await?;
    redrive(&t, first).await?;
    assert_eq!(fail(&t).await?, ["x"]);
    assert_eq!(letter(&t).await?, first, "the same message has the same number");
    assert_eq!(t.receive("QT").await?.texts(), ["y"]);
});

case!(a_dead_letter_outlives_its_conversation_and_cannot_go_back, [294], async |t| {
    let erased = dead(&t, &["erased"], &[]).await?;
    let ended = dead(&t, &["ended"], &["dropped"]).await?;
    t.end(ended.target).await?;
    t.cleanup(erased.target).await?;
    t.advance(5).await?;
    let ids: Vec<_> = letters(&t).await?.iter().map(id).collect();
    assert_eq!(bodies(&t).await?, ["erased", "ended"]);
    for id in &ids {
        assert_eq!(code(redrive(&t, *id).await), 60050);
    }
    let t = t.restart().await?;
    for row in letters(&t).await? {
        assert_eq!(row.int("is_conversation_open"), 0);
        assert_eq!(code(redrive(&t, id(&row)).await), 60050);
    }
    t.broker.purge_dead_letter(ids[0]).await?;
    assert_eq!(bodies(&t).await?, ["ended"]);
    assert_eq!(code(t.broker.purge_dead_letter(ids[0]).await), 60048);
    assert_eq!(code(redrive(&t, ids[0]).await), 60048);
});

case!(dead_letters_outlive_their_service_and_queue, [294], async |t| {
    t.define("CREATE QUEUE q2; CREATE SERVICE s2 ON QUEUE q2 ([C]); ALTER QUEUE q2 WITH RETRY (MAX_ATTEMPTS = 1, THEN = DEAD_LETTER)")
        .await?;
    let dialog = t.begin_dialog(t.to("s2").on("C")).await?;
    t.send(dialog.handle, "Text", "orphan").await?;
    let tx = t.begin().await?;
    assert_eq!(tx.receive("q2").await?.texts(), ["orphan"]);
    tx.rollback().await?;
    t.define("DROP SERVICE s2; DROP QUEUE q2").await?;
    let t = t.restart().await?;
    let id = letter(&t).await?;
    assert_eq!(letters(&t).await?[0].text("queue_name"), "q2");
    assert_eq!(code(redrive(&t, id).await), 60050);
    t.broker.purge_dead_letter(id).await?;
    assert!(letters(&t).await?.is_empty());
});

case!(a_redrive_is_part_of_its_transaction, [295], async |t| {
    dead(&t, &["a", "b"], &["c"]).await?;
    let ids: Vec<_> = letters(&t).await?.iter().map(id).collect();
    let tx = t.begin().await?;
    redrive_in(&tx, ids[0]).await?;
    assert_eq!(code(redrive_in(&tx, ids[0]).await), 60048, "this transaction has redriven it");
    tx.savepoint("s").await?;
    purge_in(&tx, ids[1]).await?;
    assert_eq!(code(redrive_in(&tx, ids[1]).await), 60048, "this transaction has purged it");
    tx.rollback_to("s").await?;
    tx.rollback().await?;
    assert_eq!(bodies(&t).await?, ["a", "b"]);
    assert_eq!(t.rows_of("QT").await?.len(), 1);
    let tx = t.begin().await?;
    redrive_in(&tx, ids[1]).await?;
    tx.savepoint("s").await?;
    redrive_in(&tx, ids[0]).await?;
    tx.rollback_to("s").await?;
    tx.commit().await?;
    assert_eq!(bodies(&t).await?, ["a"]);
    assert_eq!(t.receive("QT").await?.texts(), ["b", "c"]);
});

case!(a_dead_letter_goes_back_once, [295], async |t| {
    dead(&t, &["a", "b"], &[]).await?;
    let ids: Vec<_> = letters(&t).await?.iter().map(id).collect();
    let tx = t.begin().await?;
    purge_in(&tx, ids[0]).await?;
    assert_eq!(code(redrive(&t, ids[0]).await), 60049, "another transaction purges it");
    assert_eq!(code(t.broker.purge_dead_letter(ids[0]).await), 60049);
    tx.rollback().await?;
    let other = Broker::open_with(t.database.url(), OpenOptions::default().clock(t.clock.clone())).await?;
    let (one, two) = tokio::join!(redrive(&t, ids[1]), other.redrive_dead_letter(ids[1]));
    assert!(one.is_ok() != two.is_ok(), "{one:?} {two:?}");
    let refused = code(one.and(two));
    assert!([60048, 60049].contains(&refused), "{refused}");
    assert_eq!(t.receive("QT").await?.texts(), ["b"]);
    other.close().await?;
});

case!(a_redrive_waits_for_the_holder_of_the_group, [295], async |t| {
    dead(&t, &["a"], &["b"]).await?;
    let id = letter(&t).await?;
    let tx = t.begin().await?;
    assert_eq!(tx.receive("QT").await?.texts(), ["b"]);
    let mut waits = Box::pin(redrive(&t, id));
    t.still_waits(&mut waits).await;
    tx.commit().await?;
    waits.await?;
    assert_eq!(t.receive("QT").await?.texts(), ["a"]);
});

case!(ends_errors_and_timers_die_and_come_back, [296], async |t| {
    policy(&t, 1).await?;
    let ends = t.pair().await?;
    t.end(ends.initiator).await?;
    fail(&t).await?;
    assert_eq!(t.state(ends.target).await?, "DI");
    let errs = t.pair().await?;
    t.end_with_error(errs.initiator, 7, "seven").await?;
    fail(&t).await?;
    assert_eq!(t.state(errs.target).await?, "ER");
    let timed = t.pair().await?;
    t.timer(timed.target, 1).await?;
    t.advance(1).await?;
    fail(&t).await?;
    let types: Vec<_> = letters(&t).await?.iter().map(|row| row.text("message_type_name")).collect();
    assert_eq!(types, [system::END_DIALOG, system::ERROR, system::DIALOG_TIMER]);
    assert!(t.receive("QT").await?.is_empty());
    let t = t.restart().await?;
    t.send(timed.initiator, "Text", "x").await?;
    for row in letters(&t).await? {
        redrive(&t, id(&row)).await?;
    }
    let t = t.restart().await?;
    assert_eq!((t.state(ends.target).await?, t.state(errs.target).await?), ("DI".into(), "ER".into()));
    assert_eq!(t.receive_from("QT", ends.target).await?.types(), [system::END_DIALOG]);
    assert_eq!(t.receive_from("QT", errs.target).await?.error_codes(), [7]);
    assert_eq!(t.receive_from("QT", timed.target).await?.types(), [system::DIALOG_TIMER, "Text"]);
    t.end(ends.target).await?;
    t.end(errs.target).await?;
});

case!(a_message_is_redriven_to_the_group_level_and_queue_of_its_conversation, [297], async |t| {
    let pair = dead(&t, &["a"], &[]).await?;
    let other = t.pair().await?;
    let group = t.endpoint(other.target).await?.expect("it is there").group;
    t.move_conversation(pair.target, group).await?;
    t.broker.reprioritise(pair.target, Level::new(9)).await?;
    t.define("CREATE QUEUE q2; ALTER SERVICE [T] ON QUEUE q2").await?;
    redrive(&t, letter(&t).await?).await?;
    let received = t.receive("q2").await?;
    assert_eq!((received.texts(), received[0].conversation_group_id), (vec!["a".to_owned()], group));
    assert_eq!(received[0].priority, 9);
});

case!(a_message_redriven_to_a_queue_that_is_off_or_a_group_set_aside_waits, [297], async |t| {
    let pair = dead(&t, &["a"], &[]).await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    redrive(&t, letter(&t).await?).await?;
    assert_eq!(code(t.receive("QT").await), 9617);
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    assert_eq!(fail(&t).await?, ["a"]);
    t.define("ALTER QUEUE [QT] WITH RETRY (MAX_ATTEMPTS = 1, THEN = QUARANTINE)").await?;
    t.send(pair.initiator, "Text", "b").await?;
    assert_eq!(fail(&t).await?, ["b"]);
    redrive(&t, letter(&t).await?).await?;
    assert!(t.receive("QT").await?.is_empty(), "the group is quarantined");
    let group = t.endpoint(pair.target).await?.expect("it is there").group;
    t.release_quarantine(group).await?;
    assert_eq!(t.receive("QT").await?.texts(), ["a", "b"]);
});

case!(a_message_redriven_to_a_broken_conversation_comes_after_its_error, [297], async |t| {
    policy(&t, 1).await?;
    let pair = t.pair_with_lifetime(2).await?;
    t.send(pair.initiator, "Text", "a").await?;
    assert_eq!(fail(&t).await?, ["a"]);
    t.advance(2).await?;
    assert_eq!(t.state(pair.target).await?, "ER");
    redrive(&t, letter(&t).await?).await?;
    assert_eq!(t.receive("QT").await?.types(), [system::ERROR, "Text"]);
});

case!(retention_keeps_a_redriven_message_once_it_is_received, [297], async |t| {
    t.define("ALTER QUEUE [QT] WITH RETENTION = ON").await?;
    dead(&t, &["a"], &[]).await?;
    let kept = async |t: &Rig| {
        let rows = t.rows_of("QT").await?;
        Ok::<_, dialoq::Error>(rows.iter().filter(|row| row.bytes("message_body") == Some(b"a".to_vec())).count())
    };
    assert_eq!(kept(&t).await?, 0, "it was not received");
    redrive(&t, letter(&t).await?).await?;
    assert_eq!(t.receive("QT").await?.texts(), ["a"]);
    assert_eq!(kept(&t).await?, 1);
});

case!(only_the_first_message_of_a_batch_dies, [291], async |t| {
    policy(&t, 2).await?;
    let one = t.pair().await?;
    t.send(one.initiator, "Text", "a").await?;
    t.send(one.initiator, "Text", "b").await?;
    for _ in 0..2 {
        let tx = t.begin().await?;
        assert_eq!(tx.receive("QT").await?.texts(), ["a", "b"]);
        tx.rollback().await?;
    }
    assert_eq!(bodies(&t).await?, ["a"]);
    assert_eq!(t.receive("QT").await?.texts(), ["b"]);
});

case!(a_new_broker_keeps_dead_letters, [294], async |t| {
    dead(&t, &["a"], &[]).await?;
    t.define("ALTER DATABASE CURRENT SET NEW_BROKER").await?;
    t.settle().await;
    assert_eq!(bodies(&t).await?, ["a"]);
    assert_eq!(code(redrive(&t, letter(&t).await?).await), 60050);
});

case!(dead_letters_are_redriven_and_purged_by_sql, [293], async |t| {
    dead(&t, &["a", "b"], &[]).await?;
    let ids: Vec<_> = letters(&t).await?.iter().map(id).collect();
    let call = |verb: &str, id: DeadLetterId| match t.store() {
        Store::Mssql => format!("EXEC dialoq.{verb} {id}"),
        _ => format!("SELECT * FROM dialoq.{verb}({id})"),
    };
    if t.store().is_server() {
        t.sql(&call("redrive_dead_letter", ids[0])).await?;
        t.sql(&call("purge_dead_letter", ids[1])).await?;
        assert_eq!(t.receive("QT").await?.texts(), ["a"]);
        assert!(letters(&t).await?.is_empty());
    } else {
        let refused = t.sql("DELETE FROM dead_letters").await;
        assert!(refused.is_err(), "a view of the embedded store is read only");
        assert_eq!(bodies(&t).await?, ["a", "b"]);
    }
});
