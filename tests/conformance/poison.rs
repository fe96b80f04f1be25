//! What a rollback counts against: each way to undo a RECEIVE, with each kind of poison handling.

use crate::rig::{Pair, Rig, Session, Text, code};
use dialoq::{Act, Broker, Code, Level, OpenOptions, Result};
use std::time::Duration;

/// The kinds of poison handling, each in turn: five rollbacks turn the queue off, or set the guilty group aside.
const KINDS: [&str; 3] = [
    "STATUS = ON",
    "POISON_MESSAGE_HANDLING (QUARANTINE = ON)",
    "RETRY (MAX_ATTEMPTS = 5, DELAY_MS = 0, THEN = QUARANTINE)",
];

/// How a transaction that receives is undone.
const UNDOINGS: [&str; 6] =
    ["plainly", "after END", "after MOVE", "after a savepoint", "after another RECEIVE", "after SQL"];

/// A message that waits under the next kind of poison handling.
async fn waiting(t: &Rig, kind: &str) -> Result<Pair> {
    t.define(&format!("ALTER QUEUE [QT] WITH {kind}")).await?;
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "poison").await?;
    Ok(pair)
}

/// Whether poison handling has given up; then everything is as before the first attempt, without the message.
async fn is_over(t: &Rig, pair: Pair) -> Result<bool> {
    let is_over = !t.is_on("QT").await? || t.receive("QT").await?.is_empty();
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    t.cleanup(pair.target).await?;
    t.cleanup(pair.initiator).await?;
    Ok(is_over)
}

async fn fail(t: &Rig) -> Result<Vec<String>> {
    let tx = t.begin().await?;
    let taken = tx.receive("QT").await?;
    tx.rollback().await?;
    Ok(taken.texts())
}

case!(each_way_to_undo_a_receive_counts_for_each_kind_of_poison_handling, [176, 270], async |t| {
    t.sql("create table note (note varchar(20))").await?;
    let other = t.pair().await?;
    let group = t.endpoint(other.target).await?.expect("its target").group;
    for kind in KINDS {
        for undoing in UNDOINGS {
            let guilty = waiting(&t, kind).await?;
            for attempt in 1..=5 {
                let what = format!("{kind}, undone {undoing}, attempt {attempt}");
                let tx = t.begin().await?;
                if undoing == "after a savepoint" {
                    tx.savepoint("before").await?;
                }
                assert_eq!(tx.receive("QT").await?.texts(), ["poison"], "{what}");
                match undoing {
                    "after END" => tx.end(guilty.target).await?,
                    "after MOVE" => tx.move_conversation(guilty.target, group).await?,
                    "after a savepoint" => tx.rollback_to("before").await?,
                    "after another RECEIVE" => assert!(tx.receive("QI").await?.is_empty()),
                    "after SQL" => assert_eq!(tx.sql("insert into note (note) values ('x')").await?, 1),
                    _ => {}
                }
                tx.rollback().await?;
            }
            assert!(is_over(&t, guilty).await?, "{kind}, undone {undoing}: five attempts are enough");
        }
    }
});

case!(a_level_or_a_restart_between_two_attempts_begins_no_count_anew, [176, 271], async |t| {
    let mut t = t;
    for kind in &KINDS[1..] {
        let pair = waiting(&t, kind).await?;
        assert_eq!(fail(&t).await?, ["poison"], "{kind}");
        t.broker.reprioritise(pair.target, Level::new(9)).await?;
        assert_eq!(fail(&t).await?, ["poison"], "{kind}");
        t = t.restart().await?;
        t.settle().await;
        for _ in 0..3 {
            assert_eq!(fail(&t).await?, ["poison"], "{kind}");
        }
        assert!(t.is_on("QT").await? && is_over(&t, pair).await?, "{kind}");
    }
});

case!(the_rollbacks_of_two_processes_count_together, [176, 271], async |t| {
    let other = Broker::open_with(t.database.url(), OpenOptions::default().clock(t.clock.clone())).await?;
    for kind in KINDS {
        let pair = waiting(&t, kind).await?;
        for by_other in [false, true, true, false, true] {
            let tx = if by_other { other.begin().await? } else { t.broker.begin().await? };
            assert!(tx.receive("QT").await?.is_some(), "{kind}");
            tx.rollback().await?;
        }
        assert!(is_over(&t, pair).await?, "{kind}");
    }
    other.close().await?;
});

case!(a_commit_that_received_nothing_begins_no_count_anew, [177, 180], async |t| {
    for kind in KINDS {
        let pair = waiting(&t, kind).await?;
        for attempt in 1..=5 {
            // It holds the group, and receives from another queue.
            let tx = t.begin().await?;
            assert!(tx.receive("QI").await?.is_empty() && tx.get_group("QT").await?.is_some(), "{kind}, {attempt}");
            tx.commit().await?;
            assert_eq!(fail(&t).await?, ["poison"], "{kind}, attempt {attempt}");
        }
        assert!(is_over(&t, pair).await?, "{kind}");
    }
});

case!(a_commit_that_has_given_its_messages_back_begins_the_count_anew, [177, 181], async |t| {
    for kind in KINDS {
        let pair = waiting(&t, kind).await?;
        for _ in 0..2 {
            for _ in 0..4 {
                assert_eq!(fail(&t).await?, ["poison"], "{kind}");
            }
            let tx = t.begin().await?;
            tx.savepoint("before").await?;
            assert_eq!(tx.receive("QT").await?.texts(), ["poison"], "{kind}");
            tx.rollback_to("before").await?;
            tx.commit().await?;
        }
        assert_eq!(t.receive("QT").await?.texts(), ["poison"], "{kind}: no five attempts in a row failed");
        is_over(&t, pair).await?;
    }
});

/// Leaves what a RECEIVE or take has got for a caller that gave it up: in three ways once it is done, then in two while it may be
/// under way.
pub(crate) async fn leave_unseen(tx: Session, attempt: usize) -> Result<()> {
    let is_done = attempt < 6;
    if is_done {
        // It is answered after the RECEIVE.
        tx.savepoint("later").await?;
    }
    match attempt % 3 {
        0 => tx.rollback().await?,
        1 if is_done => assert_eq!(code(tx.commit().await), Code::RECEIVE_CANCELLED.0),
        _ => drop(tx),
    }
    Ok(())
}

// A timeout around a RECEIVE that is shorter than its answer takes.
case!(a_receive_that_no_caller_has_seen_does_not_count, [176, 270], async |t| {
    for kind in KINDS {
        let innocent = waiting(&t, kind).await?;
        for attempt in 0..12 {
            let tx = t.begin().await?;
            if tokio::time::timeout(Duration::ZERO, tx.0.receive("QT")).await.is_ok() {
                // An embedded store has answered at once.
                tx.rollback().await?;
                return Ok(());
            }
            leave_unseen(tx, attempt).await?;
        }
        // DIFFERENCE(unseen-receives): in Service Broker every rollback counts.
        assert!(t.is_on("QT").await?, "{kind}");
        assert_eq!(t.soon(|| t.receive("QT"), |taken| !taken.is_empty()).await?.texts(), ["poison"], "{kind}");
        t.cleanup(innocent.target).await?;
        t.cleanup(innocent.initiator).await?;
    }
});

// What a caller got before stays an attempt.
case!(a_receive_that_was_seen_counts_whatever_is_not_seen_after_it, [176], async |t| {
    let guilty = waiting(&t, "STATUS = ON").await?;
    t.answer(guilty.initiator, "answer").await?;
    for _ in 0..5 {
        let tx = t.begin().await?;
        assert_eq!(tx.receive("QT").await?.texts(), ["poison"]);
        tx.savepoint("seen").await?;
        let _ = tokio::time::timeout(Duration::ZERO, tx.0.receive("QI")).await;
        drop(tx);
        t.settle().await;
    }
    // A server counts it when it has noticed that the connection is gone.
    assert!(!t.soon(|| t.is_on("QT"), |is_on| !is_on).await?, "five attempts are enough");
});
