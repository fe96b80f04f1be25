//! LIFETIME and conversation timers.

use crate::rig::{Text, code};
use dialoq::protocol::system;
use dialoq::{Act, Level};

case!(lifetimes_run_out_on_both_sides, [126, 127, 128], async |t| {
    let pair = t.pair_with_lifetime(2).await?;
    t.send(pair.initiator, "Text", "unread").await?;
    t.advance(1).await?;
    assert_eq!((t.state(pair.initiator).await?, t.state(pair.target).await?), ("CO".into(), "CO".into()));
    t.advance(1).await?;
    assert_eq!((t.state(pair.initiator).await?, t.state(pair.target).await?), ("ER".into(), "ER".into()));
    let at_target = t.receive("QT").await?;
    assert_eq!(at_target.types(), [system::ERROR, "Text"]);
    assert_eq!(at_target.error_codes(), [-8489]);
    assert_eq!(t.receive("QI").await?.error_codes(), [-8489]);
    for handle in [pair.initiator, pair.target] {
        assert_eq!(code(t.send(handle, "Text", "late").await), 8429);
    }
    t.advance(86400).await?;
    assert_eq!(t.endpoints().await?.len(), 2, "END is still needed");
    t.end(pair.initiator).await?;
    assert!(t.endpoint(pair.initiator).await?.is_none());
});

case!(ended_in_time, [129], async |t| {
    let pair = t.pair_with_lifetime(5).await?;
    t.end(pair.target).await?;
    assert_eq!(t.receive("QI").await?.types(), [system::END_DIALOG]);
    t.end(pair.initiator).await?;
    t.advance(10).await?;
    assert!(t.receive("QI").await?.is_empty() && t.receive("QT").await?.is_empty());
});

case!(unreachable_targets_run_out, [130], async |t| {
    let dialog = t.begin_dialog(t.to("Missing").lifetime(60)).await?.handle;
    t.send(dialog, "Text", "lost").await?;
    t.advance(59).await?;
    assert!(t.receive("QI").await?.is_empty());
    t.advance(1).await?;
    assert_eq!(t.receive("QI").await?.error_codes(), [-8489]);
    assert_eq!(t.transmission().await?.len(), 1);
    t.end(dialog).await?;
    assert!(t.transmission().await?.is_empty());
});

case!(peers_end_does_not_stop_the_lifetime, [126], async |t| {
    let pair = t.pair_with_lifetime(5).await?;
    t.end(pair.target).await?;
    t.advance(5).await?;
    assert_eq!(t.state(pair.initiator).await?, "ER");
    assert_eq!(t.receive("QI").await?.error_codes(), [-8489]);
    assert!(t.receive("QT").await?.is_empty(), "an endpoint that has ended gets no Error");
});

case!(timers_fire_once_here, [131, 134], async |t| {
    let pair = t.pair().await?;
    t.timer(pair.initiator, 1).await?;
    assert!(t.receive("QI").await?.is_empty());
    t.advance(1).await?;
    let received = t.receive("QI").await?;
    assert_eq!(received.types(), [system::DIALOG_TIMER]);
    assert_eq!((received[0].conversation_handle, &received[0].message_body), (pair.initiator, &None));
    assert!(t.receive("QT").await?.is_empty());
    t.advance(60).await?;
    assert!(t.receive("QI").await?.is_empty());
    t.timer(pair.initiator, 1).await?;
    t.advance(1).await?;
    assert_eq!(t.receive("QI").await?.len(), 1);
    assert_eq!(t.state(pair.initiator).await?, "CO");
});

case!(timers_replace_each_other, [132], async |t| {
    let pair = t.pair().await?;
    t.timer(pair.initiator, 1).await?;
    t.timer(pair.initiator, 5).await?;
    t.advance(4).await?;
    assert!(t.receive("QI").await?.is_empty());
    t.advance(1).await?;
    assert_eq!(t.receive("QI").await?.types(), [system::DIALOG_TIMER]);
});

case!(a_timer_fires_after_the_transaction_that_set_it, [132], async |t| {
    // DIFFERENCE(timers-in-transactions): on a server it fires at the transaction's next verb on the conversation.
    let is_late = !t.store().is_server();
    for (step, fires) in [("replaced", false), ("cancelled", false), ("kept", true)] {
        let pair = t.pair().await?;
        let tx = t.begin().await?;
        tx.timer(pair.initiator, 1).await?;
        tx.savepoint("s").await?;
        t.advance(2).await?;
        match step {
            "replaced" => tx.timer(pair.initiator, 60).await?,
            "cancelled" => tx.0.cancel_timer(pair.initiator).await?,
            _ => tx.send(pair.initiator, "Text", "other work").await?,
        }
        tx.commit().await?;
        t.advance(0).await?;
        assert_eq!(!t.receive("QI").await?.is_empty(), fires || !is_late, "{step}");
        t.advance(60).await?;
        assert_eq!(t.receive("QI").await?.len(), usize::from(step == "replaced"), "{step}");
    }
});

case!(a_dialog_ends_after_the_transaction_that_began_it, [126], async |t| {
    let tx = t.begin().await?;
    let dialog = tx.begin_dialog(t.to_target().lifetime(60)).await?.handle;
    t.advance(61).await?;
    let sent = tx.send(dialog, "Text", "late").await;
    // DIFFERENCE(timers-in-transactions): on a server its lifetime is over for the transaction's next verb on it.
    match t.store().is_server() {
        true => assert_eq!(code(sent), 8429),
        false => sent?,
    }
    tx.commit().await?;
    t.advance(1).await?;
    assert_eq!(t.state(dialog).await?, "ER");
    assert_eq!(t.receive("QI").await?.error_codes(), [-8489]);
});

case!(a_side_whose_group_is_held_gets_its_timer_and_its_end, [126, 131], async |t| {
    // DIFFERENCE(events-after-holders): on a server after the end of the transaction.
    let is_late = t.store().is_server();
    let pair = t.pair_with_lifetime(60).await?;
    t.timer(pair.initiator, 1).await?;
    let holder = t.begin().await?;
    holder.0.reprioritise(pair.initiator, Level::new(9)).await?;
    t.advance(2).await?;
    assert_eq!(t.rows_of("QI").await?.len(), usize::from(!is_late));
    // Its holder gets it with a RECEIVE; on a server only after another verb on the conversation.
    if is_late {
        assert!(holder.receive("QI").await?.is_empty());
        holder.send(pair.initiator, "Text", "goes on").await?;
    }
    assert_eq!(holder.receive("QI").await?.types(), [system::DIALOG_TIMER]);
    holder.rollback().await?;
    t.advance(1).await?;
    assert_eq!(t.receive("QI").await?.types(), [system::DIALOG_TIMER]);

    let holder = t.begin().await?;
    holder.0.reprioritise(pair.initiator, Level::new(9)).await?;
    t.advance(60).await?;
    assert_eq!((t.state(pair.initiator).await? == "CO", t.state(pair.target).await?), (is_late, "ER".to_owned()));
    holder.rollback().await?;
    t.advance(1).await?;
    assert_eq!(
        (t.receive("QI").await?.error_codes(), t.receive("QT").await?.error_codes()),
        (vec![-8489], vec![-8489])
    );
});

case!(a_timer_that_a_transaction_changes_waits_for_its_end, [132], async |t| {
    for (step, fires_then, fires_later) in
        [("cancel", 0, 0), ("set anew", 0, 1), ("roll back", 1, 0), ("roll back to", 1, 0)]
    {
        let pair = t.pair().await?;
        t.timer(pair.initiator, 5).await?;
        let tx = t.begin().await?;
        tx.savepoint("s").await?;
        match step {
            "set anew" => tx.timer(pair.initiator, 60).await?,
            _ => tx.0.cancel_timer(pair.initiator).await?,
        }
        t.advance(10).await?;
        assert!(t.rows_of("QI").await?.is_empty(), "{step}: it is due, and the transaction is open");
        match step {
            "roll back" => tx.rollback().await?,
            "roll back to" => {
                tx.rollback_to("s").await?;
                tx.commit().await?;
            }
            _ => tx.commit().await?,
        }
        t.advance(1).await?;
        assert_eq!(t.receive("QI").await?.len(), fires_then, "{step}");
        t.advance(60).await?;
        assert_eq!(t.receive("QI").await?.len(), fires_later, "{step}");
        t.end(pair.initiator).await?;
    }
});

case!(each_side_has_its_timer, [133], async |t| {
    let pair = t.pair().await?;
    t.timer(pair.initiator, 1).await?;
    t.timer(pair.target, 2).await?;
    t.advance(1).await?;
    assert_eq!((t.receive("QI").await?.len(), t.receive("QT").await?.len()), (1, 0));
    t.advance(1).await?;
    assert_eq!(
        (t.receive("QI").await?.len(), t.receive("QT").await?.types()),
        (0, vec![system::DIALOG_TIMER.to_owned()])
    );
});

case!(timer_then_error_then_messages, [135], async |t| {
    let pair = t.pair().await?;
    t.send(pair.target, "Text", "1").await?;
    t.send(pair.target, "Text", "2").await?;
    t.end_with_error(pair.target, 8, "broken").await?;
    t.timer(pair.initiator, 1).await?;
    t.advance(1).await?;
    assert_eq!(t.receive("QI").await?.types(), [system::DIALOG_TIMER, system::ERROR, "Text", "Text"]);
});

case!(timers_stay_inside_the_lifetime, [136], async |t| {
    let pair = t.pair_with_lifetime(60).await?;
    assert_eq!(code(t.timer(pair.initiator, 61).await), 8410);
    t.timer(pair.initiator, 30).await?;
    for bad in [0, -1] {
        assert!(t.timer(pair.initiator, bad).await.is_err(), "{bad}");
    }
});

case!(timers_by_state, [137], async |t| {
    let silent = t.dialog().await?;
    t.timer(silent, 1).await?;
    t.advance(1).await?;
    assert_eq!(t.receive("QI").await?.types(), [system::DIALOG_TIMER]);
    assert_eq!(t.state(silent).await?, "SO");

    let pair = t.pair().await?;
    t.end(pair.target).await?;
    assert!([8426, 8458].contains(&code(t.timer(pair.target, 1).await)));
    t.timer(pair.initiator, 5).await?;
    t.end(pair.initiator).await?;
    assert_eq!(code(t.timer(pair.initiator, 1).await), 8426);
    t.advance(10).await?;
    assert!(t.receive("QI").await?.is_empty(), "ending cancels the timer");
});

case!(timers_survive_a_restart, [138], async |t| {
    let pair = t.pair().await?;
    t.timer(pair.initiator, 60).await?;
    let t = t.restart().await?;
    t.advance(59).await?;
    assert!(t.receive("QI").await?.is_empty());
    t.advance(1).await?;
    assert_eq!(t.receive("QI").await?.types(), [system::DIALOG_TIMER]);
    // A timer that became due while no process ran fires at the start.
    t.timer(pair.initiator, 60).await?;
    let t = t.restart_after(120).await?;
    assert_eq!(t.receive("QI").await?.types(), [system::DIALOG_TIMER]);
});

case!(rolled_back_timers, [139], async |t| {
    let pair = t.pair().await?;
    t.timer(pair.initiator, 10).await?;
    let tx = t.begin().await?;
    tx.timer(pair.initiator, 2).await?;
    tx.rollback().await?;
    t.advance(5).await?;
    assert!(t.receive("QI").await?.is_empty());
    t.advance(5).await?;
    assert_eq!(t.receive("QI").await?.types(), [system::DIALOG_TIMER]);
});

case!(unread_timers_add_up, [134], async |t| {
    let pair = t.pair().await?;
    for _ in 0..2 {
        t.timer(pair.initiator, 1).await?;
        t.advance(1).await?;
    }
    assert_eq!(t.receive("QI").await?.types(), [system::DIALOG_TIMER, system::DIALOG_TIMER]);
});

case!(the_longest_durations_are_refused_alike, [35], async |t| {
    let pair = t.pair().await?;
    let longest = std::time::Duration::MAX;
    assert_eq!(code(t.broker.begin_dialog("I", "T").contract("C").lifetime(longest).await), 8411);
    assert_eq!(code(t.broker.timer(pair.initiator, longest).await), 8411);
});
