//! The retry policy of a queue: pauses between the attempts at a conversation group, and what follows the last.

use crate::rig::{Pair, Rig, Text, code};
use crate::servers::Store;
use dialoq::protocol::{Message, system};
use dialoq::{Act, Broker, ConversationHandle, GroupId, OpenOptions, Result};
use std::cell::Cell;

/// A policy without jitter: pauses of 1, 2, 3 and 3 seconds.
const POLICY: &str = "MAX_ATTEMPTS = 5, DELAY_MS = 1000, FACTOR_PERCENT = 200, MAX_DELAY_MS = 3000, JITTER_PERCENT = 0";

async fn policy(t: &Rig, more: &str) -> Result<()> {
    t.define(&format!("ALTER QUEUE [QT] WITH RETRY ({POLICY}{more})")).await.map(drop)
}

/// Receives from the target's queue and rolls back; gives what was received.
async fn fail(t: &Rig) -> Result<Vec<Message>> {
    let tx = t.begin().await?;
    let received = tx.receive("QT").await?;
    tx.rollback().await?;
    Ok(received)
}

async fn group_of(t: &Rig, handle: ConversationHandle) -> Result<GroupId> {
    Ok(t.endpoint(handle).await?.expect("the endpoint exists").group)
}

/// A pair whose target has a message that waits.
async fn waiting(t: &Rig, text: &str) -> Result<Pair> {
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", text).await?;
    Ok(pair)
}

case!(a_group_pauses_longer_after_each_rollback_and_others_go_on, [270], async |t| {
    // DIFFERENCE(retry): ours and off by default; only the guilty group waits, and its last attempt is followed by THEN.
    policy(&t, "").await?;
    let innocent = t.pair().await?;
    let guilty = waiting(&t, "poison").await?;
    for pause_ms in [1000, 2000, 3000, 3000] {
        assert_eq!(fail(&t).await?.texts(), ["poison"]);
        t.advance_ms(pause_ms - 1).await?;
        assert!(t.receive("QT").await?.is_empty(), "{pause_ms}");
        t.send(innocent.initiator, "Text", "fine").await?;
        assert_eq!(t.receive("QT").await?.texts(), ["fine"], "another group goes on");
        t.advance_ms(1).await?;
    }
    assert_eq!(fail(&t).await?.texts(), ["poison"]);
    t.advance(100_000).await?;
    assert!(t.receive("QT").await?.is_empty(), "the fifth rollback quarantines the group");
    assert!(t.is_on("QT").await?);
    t.release_quarantine(group_of(&t, guilty.target).await?).await?;
    assert_eq!(fail(&t).await?.texts(), ["poison"]);
    t.advance(1).await?;
    assert_eq!(t.receive("QT").await?.texts(), ["poison"], "the count began again with the release");
});

case!(a_pause_leaves_a_quarantine_without_an_end, [270], async |t| {
    policy(&t, "").await?;
    let (guilty, joining) = (waiting(&t, "poison").await?, t.pair().await?);
    let group = group_of(&t, guilty.target).await?;
    t.define("ALTER QUEUE [QT] WITH RETRY (MAX_ATTEMPTS = 1)").await?;
    fail(&t).await?;
    policy(&t, "").await?;
    t.move_conversation(joining.target, group).await?;
    t.send(joining.initiator, "Text", "joined").await?;
    assert_eq!(fail(&t).await?.texts(), ["joined"], "the other one is in quarantine");
    t.advance_ms(999).await?;
    assert!(t.receive("QT").await?.is_empty());
    t.advance_ms(1).await?;
    assert_eq!(t.receive("QT").await?.texts(), ["joined"]);
    assert!(t.receive("QT").await?.is_empty(), "the end of a pause is not that of the quarantine");
    t.release_quarantine(group).await?;
    assert_eq!(t.receive("QT").await?.texts(), ["poison"]);
});

case!(a_waiting_receiver_gets_the_message_when_its_pause_is_over, [270], async |t| {
    policy(&t, "").await?;
    waiting(&t, "again").await?;
    fail(&t).await?;
    let mut receiver = Box::pin(t.wait_receive("QT", Some(3600)));
    t.still_waits(&mut receiver).await;
    t.advance_ms(999).await?;
    t.still_waits(&mut receiver).await;
    t.advance_ms(1).await?;
    assert_eq!(receiver.await?.texts(), ["again"]);
});

case!(a_pause_begins_before_another_receiver_gets_the_group, [270], async |t| {
    if t.store() == Store::Mssql {
        // Its locks go with the transaction, and its rollback is counted after that.
        return Ok(());
    }
    t.define(
        "ALTER QUEUE [QT] WITH RETRY (MAX_ATTEMPTS = 100, DELAY_MS = 1000, FACTOR_PERCENT = 100, JITTER_PERCENT = 0)",
    )
    .await?;
    waiting(&t, "poison").await?;
    let other = Broker::open_with(t.database.url(), OpenOptions::default().clock(t.clock.clone())).await?;
    let attempts = Cell::new(0);
    let receiver = async |broker: &Broker| {
        for _ in 0..6 {
            let tx = broker.begin().await?;
            let received = tx.receive("QT").await?.is_some();
            attempts.set(attempts.get() + usize::from(received));
            tx.rollback().await?;
        }
        Ok::<_, dialoq::Error>(())
    };
    for round in 1..=20 {
        let [one, two] = [&t.broker, &other];
        let done =
            tokio::join!(receiver(one), receiver(two), receiver(one), receiver(two), receiver(one), receiver(two));
        done.0.and(done.1).and(done.2).and(done.3).and(done.4).and(done.5)?;
        assert_eq!(attempts.get(), round, "the clock stands still, so the pause goes on");
        t.advance(1).await?;
    }
    other.close().await?;
});

case!(a_commit_between_begins_the_pauses_anew, [270], async |t| {
    policy(&t, "").await?;
    let pair = waiting(&t, "first").await?;
    for _ in 0..3 {
        for pause in [1, 2, 3] {
            assert_eq!(fail(&t).await?.len(), 1);
            t.advance(pause).await?;
        }
        assert_eq!(t.receive("QT").await?.len(), 1);
        t.send(pair.initiator, "Text", "next").await?;
    }
    assert!(t.is_on("QT").await?);
});

case!(a_restart_keeps_the_attempts_and_the_pause, [271], async |t| {
    policy(&t, ", THEN = QUARANTINE").await?;
    waiting(&t, "poison").await?;
    fail(&t).await?;
    let t = t.restart().await?;
    assert!(t.receive("QT").await?.is_empty(), "the pause goes on");
    t.advance(1).await?;
    fail(&t).await?;
    // The pause ends while no process runs the broker.
    let t = t.restart_after(2).await?;
    t.settle().await;
    assert_eq!(fail(&t).await?.texts(), ["poison"], "the third attempt");
    let t = t.restart_after(3).await?;
    t.settle().await;
    fail(&t).await?;
    t.advance(3).await?;
    assert_eq!(fail(&t).await?.texts(), ["poison"], "the fifth attempt");
    t.advance(100_000).await?;
    assert!(t.receive("QT").await?.is_empty());
});

case!(the_attempts_of_two_processes_count_together, [271], async |t| {
    policy(&t, "").await?;
    waiting(&t, "poison").await?;
    let other = Broker::open_with(t.database.url(), OpenOptions::default().clock(t.clock.clone())).await?;
    for (by_other, pause) in [(false, 1), (true, 2), (false, 3), (true, 3)] {
        let tx = if by_other { other.begin().await? } else { t.broker.begin().await? };
        assert!(tx.receive("QT").await?.is_some(), "{pause}");
        tx.rollback().await?;
        assert!(t.receive("QT").await?.is_empty());
        assert!(other.receive("QT").await?.is_none());
        t.advance(pause).await?;
    }
    assert_eq!(fail(&t).await?.texts(), ["poison"]);
    t.advance(100_000).await?;
    assert!(other.receive("QT").await?.is_none());
    other.close().await?;
});

case!(of_a_group_the_conversation_that_comes_first_is_ended, [272], async |t| {
    for (level, text) in [(3, "low"), (8, "high"), (10, "nothing waits")] {
        t.send_at_level(level, text).await?;
    }
    let first = t.receive_top("QT", 1).await?;
    assert_eq!(first.texts(), ["nothing waits"]);
    let group = first[0].conversation_group_id;
    for endpoint in t.endpoints().await? {
        if !endpoint.is_initiator && endpoint.group != group {
            t.move_conversation(endpoint.handle, group).await?;
        }
    }
    t.define("ALTER QUEUE [QT] WITH RETRY (MAX_ATTEMPTS = 1, THEN = END_WITH_ERROR)").await?;
    let tx = t.begin().await?;
    assert_eq!(tx.receive_top("QT", 1).await?.texts(), ["high"]);
    tx.rollback().await?;
    assert_eq!(t.receive("QT").await?.texts(), ["low"]);
    assert_eq!(t.receive("QI").await?.error_codes(), [60047]);
    assert!(t.receive("QI").await?.is_empty());
});

case!(end_with_error_tells_the_peer, [272], async |t| {
    t.define("ALTER QUEUE [QT] WITH RETRY (MAX_ATTEMPTS = 2, DELAY_MS = 0, THEN = END_WITH_ERROR)").await?;
    let guilty = waiting(&t, "poison").await?;
    t.send(guilty.initiator, "Text", "behind it").await?;
    assert_eq!(fail(&t).await?.texts(), ["poison", "behind it"]);
    assert_eq!(fail(&t).await?.texts(), ["poison", "behind it"], "DELAY_MS = 0 is no pause");
    let error = t.receive("QI").await?;
    assert_eq!((error.types(), error.error_codes()), (vec![system::ERROR.to_owned()], vec![60047]));
    let description = error[0].error().expect("an Error").description;
    let right = "the message was received 2 times from queue 'QT', and each time its transaction rolled back";
    assert_eq!(description, right);
    assert!(t.receive("QT").await?.is_empty() && t.is_on("QT").await?);
    t.end(guilty.initiator).await?;
    // A side whose peer has ended just ends.
    let ended = waiting(&t, "late").await?;
    t.end(ended.initiator).await?;
    fail(&t).await?;
    fail(&t).await?;
    assert!(t.receive("QT").await?.is_empty());
    assert!([8426, 8427].contains(&code(t.end(ended.target).await)), "this side has ended");
});

case!(queue_off_counts_by_group, [272], async |t| {
    t.define("ALTER QUEUE [QT] WITH RETRY (MAX_ATTEMPTS = 2, DELAY_MS = 0, THEN = QUEUE_OFF)").await?;
    for text in ["a", "b", "c"] {
        waiting(&t, text).await?;
    }
    for _ in 0..3 {
        let tx = t.begin().await?;
        tx.receive("QT").await?;
        // The next group.
        let other = t.begin().await?;
        other.receive("QT").await?;
        tx.commit().await?;
        other.rollback().await?;
        if t.rows_of("QT").await?.len() == 1 {
            break;
        }
    }
    assert!(t.is_on("QT").await?);
    fail(&t).await?;
    assert!(!t.is_on("QT").await?, "the second rollback of one group");
});

case!(a_savepoint_is_no_attempt, [270], async |t| {
    policy(&t, "").await?;
    waiting(&t, "x").await?;
    let tx = t.begin().await?;
    tx.savepoint("before").await?;
    for _ in 0..7 {
        assert_eq!(tx.receive("QT").await?.texts(), ["x"]);
        tx.rollback_to("before").await?;
    }
    tx.rollback().await?;
    t.advance(1).await?;
    assert_eq!(fail(&t).await?.texts(), ["x"], "one attempt, whose pause is over");
    t.advance_ms(1999).await?;
    assert!(t.receive("QT").await?.is_empty());
});

case!(what_a_savepoint_gave_back_is_attempted_if_its_transaction_rolls_back, [270], async |t| {
    policy(&t, "").await?;
    let (first, second) = (waiting(&t, "first").await?, waiting(&t, "second").await?);
    let tx = t.begin().await?;
    tx.savepoint("before").await?;
    assert_eq!(tx.receive_from("QT", first.target).await?.texts(), ["first"]);
    tx.rollback_to("before").await?;
    assert_eq!(tx.receive_from("QT", second.target).await?.texts(), ["second"]);
    tx.rollback().await?;
    assert!(t.receive("QT").await?.is_empty(), "both groups pause");
    t.advance(1).await?;
    // A commit forgets it.
    let tx = t.begin().await?;
    tx.savepoint("before").await?;
    assert_eq!(tx.receive_from("QT", first.target).await?.texts(), ["first"]);
    tx.rollback_to("before").await?;
    assert_eq!(tx.receive_from("QT", second.target).await?.texts(), ["second"]);
    tx.commit().await?;
    assert_eq!(fail(&t).await?.texts(), ["first"], "nothing pauses");
    t.advance(1).await?;
    assert_eq!(t.receive("QT").await?.texts(), ["first"], "that was the first attempt");
});

case!(a_batch_of_several_conversations_pauses_together, [270, 272], async |t| {
    policy(&t, ", THEN = END_WITH_ERROR").await?;
    let (one, two) = (waiting(&t, "one").await?, waiting(&t, "two").await?);
    let group = group_of(&t, one.target).await?;
    t.move_conversation(two.target, group).await?;
    for pause in [1, 2, 3, 3] {
        assert_eq!(fail(&t).await?.len(), 2);
        assert!(t.receive("QT").await?.is_empty());
        t.advance(pause).await?;
    }
    let first = fail(&t).await?[0].conversation_handle;
    let rest = t.receive("QT").await?;
    assert_eq!(rest.len(), 1, "the conversation of the first message ends, the other goes on");
    assert_ne!(rest[0].conversation_handle, first);
});

case!(a_transaction_over_two_queues_counts_by_the_policy_of_each, [270], async |t| {
    policy(&t, "").await?;
    let pair = waiting(&t, "to target").await?;
    t.send(pair.target, "Text", "to initiator").await?;
    let both = async || {
        let tx = t.begin().await?;
        let received = (tx.receive("QT").await?.len(), tx.receive("QI").await?.len());
        tx.rollback().await?;
        Ok::<_, dialoq::Error>(received)
    };
    assert_eq!(both().await?, (1, 1));
    for _ in 0..3 {
        assert_eq!(both().await?, (0, 1), "the target pauses, the initiator has no policy");
    }
    t.advance(1).await?;
    assert_eq!(both().await?, (1, 1));
    assert!(!t.is_on("QI").await?, "the fifth rollback");
    assert!(t.is_on("QT").await?);
});

case!(a_group_that_pauses_when_its_policy_is_dropped_comes_back_in_time, [273], async |t| {
    policy(&t, "").await?;
    waiting(&t, "x").await?;
    fail(&t).await?;
    t.define("ALTER QUEUE [QT] WITH RETRY (DROP)").await?;
    assert!(t.receive("QT").await?.is_empty());
    t.advance(1).await?;
    for _ in 0..4 {
        assert_eq!(fail(&t).await?.texts(), ["x"]);
    }
    assert!(t.is_on("QT").await?);
    fail(&t).await?;
    assert!(!t.is_on("QT").await?, "five rollbacks of the queue");
});

case!(an_altered_policy_holds_from_the_next_rollback_on, [273], async |t| {
    policy(&t, "").await?;
    waiting(&t, "x").await?;
    fail(&t).await?;
    t.define("ALTER QUEUE [QT] WITH RETRY (MAX_ATTEMPTS = 2, DELAY_MS = 60000, MAX_DELAY_MS = 60000)").await?;
    t.advance(1).await?;
    assert_eq!(fail(&t).await?.texts(), ["x"]);
    t.advance(100_000).await?;
    assert!(t.receive("QT").await?.is_empty(), "the second was the last");
});

case!(a_timer_waits_for_the_end_of_the_pause, [274], async |t| {
    t.define("ALTER QUEUE [QT] WITH RETRY (DELAY_MS = 5000, JITTER_PERCENT = 0)").await?;
    let pair = waiting(&t, "x").await?;
    t.timer(pair.target, 2).await?;
    fail(&t).await?;
    t.advance(2).await?;
    assert!(t.receive("QT").await?.is_empty());
    t.advance(3).await?;
    assert_eq!(t.receive("QT").await?.types(), [system::DIALOG_TIMER, "Text"]);
});

case!(a_lifetime_ends_in_a_pause, [274], async |t| {
    t.define("ALTER QUEUE [QT] WITH RETRY (DELAY_MS = 5000, JITTER_PERCENT = 0)").await?;
    let pair = t.pair_with_lifetime(2).await?;
    t.send(pair.initiator, "Text", "x").await?;
    fail(&t).await?;
    t.advance(2).await?;
    assert_eq!(t.state(pair.target).await?, "ER");
    assert!(t.receive("QT").await?.is_empty());
    t.advance(3).await?;
    assert_eq!(t.receive("QT").await?.types(), [system::ERROR, "Text"]);
});

case!(a_message_and_an_end_that_arrive_in_a_pause_wait, [274], async |t| {
    policy(&t, "").await?;
    let pair = waiting(&t, "x").await?;
    fail(&t).await?;
    t.send(pair.initiator, "Text", "y").await?;
    t.end(pair.initiator).await?;
    assert_eq!(t.state(pair.target).await?, "DI");
    assert!(t.receive("QT").await?.is_empty());
    t.advance(1).await?;
    assert_eq!(t.receive("QT").await?.types(), ["Text", "Text", system::END_DIALOG]);
});

case!(conversations_end_and_move_in_a_pause, [274], async |t| {
    policy(&t, "").await?;
    let (ends, moves) = (waiting(&t, "ends").await?, waiting(&t, "moves").await?);
    let other = t.pair().await?;
    let group = group_of(&t, ends.target).await?;
    t.move_conversation(moves.target, group).await?;
    assert_eq!(fail(&t).await?.len(), 2);
    t.end(ends.target).await?;
    assert_eq!(t.receive("QI").await?.types(), [system::END_DIALOG]);
    t.move_conversation(moves.target, group_of(&t, other.target).await?).await?;
    t.send(other.initiator, "Text", "goes on").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["goes on"], "the conversation that was moved takes its pause along");
    t.advance(1).await?;
    assert_eq!(t.receive("QT").await?.texts(), ["moves"]);
});

case!(a_conversation_that_is_moved_brings_no_attempts_to_its_group, [274], async |t| {
    t.define("ALTER QUEUE [QT] WITH RETRY (MAX_ATTEMPTS = 3, DELAY_MS = 0, THEN = QUARANTINE)").await?;
    let guilty = waiting(&t, "guilty").await?;
    for _ in 0..2 {
        assert_eq!(fail(&t).await?.texts(), ["guilty"]);
    }
    let other = t.pair().await?;
    t.move_conversation(guilty.target, group_of(&t, other.target).await?).await?;
    t.end(guilty.target).await?;
    t.send(other.initiator, "Text", "innocent").await?;
    for _ in 0..2 {
        assert_eq!(fail(&t).await?.texts(), ["innocent"], "all attempts");
    }
    assert_eq!(fail(&t).await?.texts(), ["innocent"]);
    assert!(t.receive("QT").await?.is_empty(), "the third was the last");
});

case!(a_group_keeps_its_attempts_when_a_conversation_is_moved_into_it, [274], async |t| {
    t.define("ALTER QUEUE [QT] WITH RETRY (MAX_ATTEMPTS = 3, DELAY_MS = 0, THEN = QUARANTINE)").await?;
    let (first, other) = (waiting(&t, "first").await?, t.pair().await?);
    for _ in 0..2 {
        assert_eq!(fail(&t).await?.texts(), ["first"]);
    }
    t.move_conversation(other.target, group_of(&t, first.target).await?).await?;
    t.end(first.target).await?;
    t.send(other.initiator, "Text", "second").await?;
    assert_eq!(fail(&t).await?.texts(), ["second"]);
    assert!(t.receive("QT").await?.is_empty(), "the third attempt at the group");
});

case!(a_release_ends_a_pause, [271], async |t| {
    policy(&t, "").await?;
    let pair = waiting(&t, "x").await?;
    fail(&t).await?;
    t.advance(1).await?;
    fail(&t).await?;
    t.release_quarantine(group_of(&t, pair.target).await?).await?;
    assert_eq!(fail(&t).await?.texts(), ["x"]);
    t.advance_ms(999).await?;
    assert!(t.receive("QT").await?.is_empty());
    t.advance_ms(1).await?;
    assert_eq!(t.receive("QT").await?.texts(), ["x"], "the pauses began again");
});

case!(without_poison_handling_there_is_no_pause, [270], async |t| {
    t.define(&format!("ALTER QUEUE [QT] WITH POISON_MESSAGE_HANDLING (STATUS = OFF), RETRY ({POLICY})")).await?;
    waiting(&t, "x").await?;
    for _ in 0..7 {
        assert_eq!(fail(&t).await?.texts(), ["x"]);
    }
});

case!(a_policy_is_part_of_the_definition, [273], async |t| {
    policy(&t, "").await?;
    t.define("ALTER QUEUE [QT] WITH RETRY (THEN = END_WITH_ERROR, MAX_ATTEMPTS = 8)").await?;
    let t = t.restart().await?;
    let row = t.queue("QT").await?;
    let numbers = ["max_attempts", "delay_ms", "factor_percent", "max_delay_ms", "jitter_percent"];
    assert_eq!(numbers.map(|name| row.int(&format!("retry_{name}"))), [8, 1000, 200, 3000, 0]);
    assert_eq!(row.text("retry_then"), "END_WITH_ERROR");
    let ddl = t.broker.dump();
    assert!(ddl.contains("RETRY (MAX_ATTEMPTS = 8, DELAY_MS = 1000, "), "{ddl}");
    for (clause, number) in [
        ("MAX_ATTEMPTS = 0", 60005),
        ("DELAY_MS = -1", 60005),
        ("FACTOR_PERCENT = 99", 60005),
        ("JITTER_PERCENT = 101", 60005),
        ("THEN = PRAY", 60004),
        ("MAX_ATTEMPTS = 1, MAX_ATTEMPTS = 2", 60004),
        ("DROP, THEN = QUARANTINE", 60004),
    ] {
        assert_eq!(code(t.define(&format!("ALTER QUEUE [QT] WITH RETRY ({clause})")).await), number, "{clause}");
    }
    assert_eq!(code(t.define("CREATE QUEUE q WITH RETRY (DROP)").await), 60004);
    assert_eq!(t.queue("QT").await?.int("retry_max_attempts"), 8);
    t.define("CREATE QUEUE plain WITH RETRY ()").await?;
    let row = t.queue("plain").await?;
    assert_eq!(numbers.map(|name| row.int(&format!("retry_{name}"))), [5, 1000, 200, 3_600_000, 20], "the defaults");
    assert_eq!(row.text("retry_then"), "QUARANTINE");
});

case!(the_attempts_at_a_group_outlive_the_conversation_that_failed, [271], async |t| {
    t.define("ALTER QUEUE [QI] WITH RETRY (MAX_ATTEMPTS = 3, DELAY_MS = 0, THEN = QUARANTINE)").await?;
    let fail = async || {
        let tx = t.begin().await?;
        let received = tx.receive("QI").await?;
        tx.rollback().await?;
        Ok::<_, dialoq::Error>(received.texts())
    };
    for is_committed in [false, true] {
        let first = t.pair().await?;
        t.send(first.target, "Text", "first").await?;
        for _ in 0..2 {
            assert_eq!(fail().await?, ["first"]);
        }
        let joined = t.begin_dialog(t.to_target().related_to(first.initiator)).await?.handle;
        let group = group_of(&t, joined).await?;
        t.end(first.initiator).await?;
        t.answer(joined, "joined").await?;
        if is_committed {
            assert_eq!(t.receive("QI").await?.texts(), ["joined"], "the group begins anew");
            t.answer(joined, "again").await?;
        }
        assert_eq!(fail().await?, [if is_committed { "again" } else { "joined" }]);
        let left = t.receive("QI").await?;
        assert_eq!(left.is_empty(), !is_committed, "the third rollback of the group quarantines it");
        if !is_committed {
            t.release_quarantine(group).await?;
            assert_eq!(t.receive("QI").await?.texts(), ["joined"]);
        }
    }
});
