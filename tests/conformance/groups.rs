//! Conversation groups, MOVE, GET CONVERSATION GROUP.

use crate::rig::{Text, code, first_done};
use dialoq::protocol::ReceiveFrom;
use dialoq::{Act, GroupId};
use uuid::Uuid;

case!(grouping_is_local, [141], async |t| {
    let one = t.begin_dialog(t.to_target()).await?;
    let two = t.begin_dialog(t.to_target().in_group(one.group)).await?;
    t.send(one.handle, "Text", "1").await?;
    t.send(two.handle, "Text", "2").await?;
    let (first, second) = (t.receive("QT").await?, t.receive("QT").await?);
    assert_eq!((first.len(), second.len()), (1, 1));
    assert_ne!(first[0].conversation_group_id, second[0].conversation_group_id);
    assert!([first[0].conversation_group_id, second[0].conversation_group_id].iter().all(|group| *group != one.group));
});

case!(sides_do_not_block_each_other, [142, 143], async |t| {
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "held").await?;
    t.send(pair.target, "Text", "for the initiator").await?;
    let holder = t.begin().await?;
    assert_eq!(holder.receive("QT").await?.texts(), ["held"]);
    assert_eq!(t.receive("QI").await?.texts(), ["for the initiator"]);
    t.send(pair.initiator, "Text", "arrives in the held group").await?;
    t.end(pair.initiator).await?;
    assert_eq!(t.rows_of("QT").await?.len(), 3, "the held row, the new one and the EndDialog are there");
    holder.commit().await?;
    assert_eq!(t.receive("QT").await?.len(), 2);
});

case!(held_groups_are_passed_over, [143, 144], async |t| {
    let held = t.pair().await?;
    let free = t.pair().await?;
    t.send(held.initiator, "Text", "held").await?;
    let holder = t.begin().await?;
    assert_eq!(holder.receive("QT").await?.texts(), ["held"]);
    t.send(held.initiator, "Text", "later").await?;
    assert!(t.receive("QT").await?.is_empty(), "the only ready group is held");
    t.send(free.initiator, "Text", "free").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["free"]);
    assert_eq!(holder.receive("QT").await?.texts(), ["later"], "the holder gets what arrived meanwhile");
    holder.commit().await?;
});

case!(move_takes_the_rows_along, [145], async |t| {
    let one = t.pair().await?;
    let two = t.pair().await?;
    let destination = t.endpoint(one.target).await?.expect("target").group;
    let emptied = t.endpoint(two.target).await?.expect("target").group;
    t.send(one.initiator, "Text", "one").await?;
    t.send(two.initiator, "Text", "two, queued").await?;
    t.move_conversation(two.target, destination).await?;
    t.send(two.initiator, "Text", "two, later").await?;
    assert_eq!(t.endpoint(two.target).await?.expect("target").group, destination);
    let received = t.receive_group("QT", destination).await?;
    let mut texts = received.texts();
    texts.sort();
    assert_eq!(texts, ["one", "two, later", "two, queued"]);
    assert!(received.iter().all(|message| message.conversation_group_id == destination));
    assert!(!t.groups().await?.contains(&emptied), "an emptied group disappears");
});

case!(a_move_that_is_undone_is_undone_for_the_next_receive, [145, 175], async |t| {
    let one = t.pair().await?;
    let two = t.pair().await?;
    let destination = t.endpoint(two.target).await?.expect("target").group;
    t.send(one.initiator, "Text", "x").await?;
    let tx = t.begin().await?;
    tx.savepoint("before").await?;
    tx.move_conversation(one.target, destination).await?;
    // It ranks the groups it holds, and takes nothing.
    let others = ReceiveFrom::Levels { lowest: 9, highest: 10 };
    assert!(tx.receive_where("QT", others).await?.is_empty());
    tx.rollback_to("before").await?;
    let received = tx.receive("QT").await?;
    assert_eq!(received.texts(), ["x"]);
    assert_ne!(received[0].conversation_group_id, destination);
    tx.commit().await?;
});

case!(where_move_cannot_go, [146], async |t| {
    t.define("CREATE SERVICE [T2] ON QUEUE [QT] ([C])").await?;
    let pair = t.pair().await?;
    let other = t.begin_dialog(t.to("T2")).await?;
    t.send(other.handle, "Text", "x").await?;
    let other_service = t.receive("QT").await?[0].conversation_group_id;
    assert!(t.move_conversation(pair.target, other.group).await.is_err(), "a group of another queue");
    assert!(t.move_conversation(pair.target, other_service).await.is_err(), "a group of another service");
    let unknown = GroupId(Uuid::from_u128(6));
    assert_eq!(code(t.move_conversation(pair.target, unknown).await), 8436);
    let third = t.pair().await?;
    let group = t.endpoint(third.target).await?.expect("target").group;
    t.end(pair.target).await?;
    assert!([8426, 8438].contains(&code(t.move_conversation(pair.target, group).await)));
});

case!(move_holds_both_groups, [147], async |t| {
    let one = t.pair().await?;
    let two = t.pair().await?;
    let three = t.pair().await?;
    let destination = t.endpoint(one.target).await?.expect("target").group;
    t.send(one.initiator, "Text", "in the destination").await?;
    t.send(two.initiator, "Text", "in the source").await?;
    t.send(three.initiator, "Text", "elsewhere").await?;
    let mover = t.begin().await?;
    mover.move_conversation(two.target, destination).await?;
    assert_eq!(t.receive("QT").await?.texts(), ["elsewhere"]);
    assert!(t.receive("QT").await?.is_empty());
    let other = t.clone();
    let mut waiting = Box::pin(async move { other.send(one.target, "Text", "waits").await });
    t.still_waits(&mut waiting).await;
    mover.rollback().await?;
    waiting.await?;
    assert_eq!(t.receive("QT").await?.len(), 1);
    assert_eq!(t.receive("QT").await?.len(), 1, "rolled back: the groups are two again");
});

case!(groups_go_with_their_last_conversation, [148], async |t| {
    let one = t.begin_dialog(t.to_target()).await?;
    let two = t.begin_dialog(t.to_target().in_group(one.group)).await?;
    t.end(one.handle).await?;
    assert_eq!(t.groups().await?, [one.group]);
    t.end(two.handle).await?;
    assert!(t.groups().await?.is_empty());

    let pair = t.pair().await?;
    t.end(pair.target).await?;
    t.end(pair.initiator).await?;
    assert!(t.groups().await?.is_empty(), "a closed conversation is in no group");
});

case!(a_wait_for_a_group_ends_when_its_last_conversation_moves, [148], async |t| {
    let (moved, stays) = (t.pair().await?.target, t.pair().await?.target);
    let old = t.endpoint(moved).await?.expect("it is open").group;
    let new = t.endpoint(stays).await?.expect("it is open").group;
    let other = t.clone();
    let mut waiting = Box::pin(async move { other.broker.receive("QT").group(old).wait_forever().await });
    t.still_waits(&mut waiting).await;
    let tx = t.begin().await?;
    tx.move_conversation(moved, new).await?;
    t.still_waits(&mut waiting).await;
    tx.commit().await?;
    assert_eq!(code(waiting.await), 8436);
});

case!(get_locks_the_group_that_receive_would_take, [149, 152], async |t| {
    t.send_at_level(2, "low").await?;
    t.send_at_level(8, "high").await?;
    let tx = t.begin().await?;
    let group = tx.get_group("QT").await?.expect("a group is ready");
    assert_eq!(t.receive("QT").await?.texts(), ["low"], "the best group is locked");
    assert!(t.receive("QT").await?.is_empty());
    tx.commit().await?;
    let received = t.receive("QT").await?;
    assert_eq!((received.texts(), received[0].conversation_group_id), (vec!["high".to_owned()], group));
});

case!(get_on_an_empty_queue, [150], async |t| {
    assert_eq!(t.get_group("QT").await?, None);
    let other = t.clone();
    let mut waiting = Box::pin(async move { other.wait_for_group("QT", 10).await });
    t.still_waits(&mut waiting).await;
    t.advance(9).await?;
    t.still_waits(&mut waiting).await;
    t.advance(1).await?;
    assert_eq!(waiting.await?, None);

    let other = t.clone();
    let mut waiting = Box::pin(async move { other.wait_for_group("QT", 10).await });
    t.still_waits(&mut waiting).await;
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "x").await?;
    assert!(waiting.await?.is_some());
});

case!(get_again_gets_the_next, [151], async |t| {
    for text in ["1", "2"] {
        let dialog = t.dialog().await?;
        t.send(dialog, "Text", text).await?;
    }
    let tx = t.begin().await?;
    let first = tx.get_group("QT").await?.expect("two groups are ready");
    assert_eq!(tx.receive_group("QT", first).await?.texts(), ["1"]);
    let second = tx.get_group("QT").await?.expect("one group is ready");
    assert_ne!(first, second);
    for text in ["3", "4"] {
        let dialog = t.dialog().await?;
        t.send(dialog, "Text", text).await?;
    }
    assert_eq!(t.receive("QT").await?.texts(), ["3"], "both locked groups are passed over");
    assert!(t.receive_group("QT", first).await?.is_empty());
    assert!(t.receive_group("QT", second).await?.is_empty());
    assert_eq!(tx.receive_group("QT", second).await?.texts(), ["2"]);
    tx.commit().await?;
    assert_eq!(t.receive("QT").await?.texts(), ["4"]);
});

case!(an_empty_receive_holds_no_group, [150, 159], async |t| {
    let pair = t.pair().await?;
    t.send(pair.initiator, "Text", "1").await?;
    // On SQL Server the rollback leaves the group's row in the claim index, without a message.
    let sender = t.begin().await?;
    sender.send(pair.initiator, "Text", "undone").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["1"]);
    sender.rollback().await?;
    let tx = t.begin().await?;
    // SQL Server's relative frees a lock before the end of the transaction only after a savepoint.
    tx.savepoint("before").await?;
    assert!(tx.receive("QT").await?.is_empty());
    assert_eq!(tx.get_group("QT").await?, None);
    t.send(pair.initiator, "Text", "2").await?;
    assert_eq!(t.receive("QT").await?.texts(), ["2"], "another session receives from the group");
    t.send(pair.target, "Text", "answer").await?;
    tx.rollback_to("before").await?;
    t.send(pair.initiator, "Text", "3").await?;
    assert_eq!(tx.receive("QT").await?.texts(), ["3"]);
    t.send(pair.initiator, "Text", "4").await?;
    assert!(t.receive("QT").await?.is_empty(), "a group that gave a message is held");
    tx.commit().await?;
    assert_eq!(t.receive("QT").await?.texts(), ["4"]);
    assert_eq!(t.receive("QI").await?.texts(), ["answer"]);
});

case!(circles_of_waiting_are_found, [98, 147], async |t| {
    // DIFFERENCE(deadlock-at-once): a server searches for deadlocks when a session has waited a while, and any of them may be
    // its victim; the embedded store refuses the wait that would close the circle with 1205 at once. Either way the
    // victim's transaction is rolled back.
    let pairs = [t.pair().await?, t.pair().await?];
    let sessions = [t.begin().await?, t.begin().await?];
    for (session, pair) in sessions.iter().zip(&pairs) {
        session.send(pair.initiator, "Text", "own").await?;
    }
    let victim = {
        let waits = |place: usize| sessions[place].send(pairs[1 - place].initiator, "Text", "after the other");
        let mut works: Vec<_> = [0, 1].map(|place| Some(Box::pin(waits(place)))).into();
        // Once the victim is out the other goes on; both may be done by the first poll.
        let one = first_done(&mut works).await;
        let other = first_done(&mut works).await;
        let ((victim, refused), (_, done)) = if one.1.is_err() { (one, other) } else { (other, one) };
        assert!(refused.as_ref().is_err_and(|error| error.is_retryable()));
        assert_eq!(code(refused), 1205);
        done?;
        victim
    };
    assert!(t.store().is_server() || victim == 1, "it closed the circle");
    for (place, session) in sessions.into_iter().enumerate() {
        let ended = session.commit().await;
        assert_eq!(ended.is_err(), place == victim, "the victim is rolled back: {ended:?}");
    }
    assert_eq!(t.receive_from("QT", pairs[1 - victim].target).await?.texts(), ["own"]);
    assert_eq!(t.receive_from("QT", pairs[victim].target).await?.texts(), ["after the other"]);
});

case!(long_circles_are_found, [98, 147], async |t| {
    let pairs = [t.pair().await?, t.pair().await?, t.pair().await?];
    let sessions = [t.begin().await?, t.begin().await?, t.begin().await?];
    for (session, pair) in sessions.iter().zip(&pairs) {
        session.send(pair.initiator, "Text", "own").await?;
    }
    let (victim, freed) = {
        let waits = |place: usize| sessions[place].send(pairs[(place + 1) % 3].initiator, "Text", "after the next");
        let mut works: Vec<_> = [0, 1, 2].map(|place| Some(Box::pin(waits(place)))).into();
        // The victim is out, so the session that waited for it goes on; the third still waits for that one, and is dropped.
        // The first two may both be done by the first poll.
        let one = first_done(&mut works).await;
        let other = first_done(&mut works).await;
        let ((victim, refused), (freed, done)) = if one.1.is_err() { (one, other) } else { (other, one) };
        assert_eq!(code(refused), 1205);
        done?;
        let mut third = works.into_iter().flatten().next().expect("one is left");
        t.still_waits(&mut third).await;
        (victim, freed)
    };
    assert_eq!(freed, (victim + 2) % 3);
    assert!(t.store().is_server() || victim == 2, "it closed the circle");
    for (place, session) in sessions.into_iter().enumerate() {
        match place {
            _ if place == victim => assert!(session.commit().await.is_err()),
            _ if place == freed => session.commit().await?,
            _ => drop(session),
        }
    }
    let received = async |place: usize| t.receive_from("QT", pairs[place].target).await.map(|taken| taken.texts());
    assert_eq!(received(freed).await?, ["own"]);
    assert_eq!(received(victim).await?, ["after the next"]);
    t.settle().await;
    assert_eq!(received((victim + 1) % 3).await?, [""; 0], "who was dropped while it waited did nothing");
});

case!(savepoints_keep_waiting_callers_waiting, [98, 175], async |t| {
    let pair = t.pair().await?;
    let holder = t.begin().await?;
    holder.savepoint("before").await?;
    holder.send(pair.initiator, "Text", "undone").await?;
    let other = t.clone();
    let mut waiting = Box::pin(async move { other.send(pair.initiator, "Text", "waits").await });
    t.still_waits(&mut waiting).await;
    holder.rollback_to("before").await?;
    t.still_waits(&mut waiting).await;
    holder.commit().await?;
    waiting.await?;
    assert_eq!(t.receive("QT").await?.texts(), ["waits"]);
});

case!(the_first_waiter_goes_first, [98], async |t| {
    let pair = t.pair().await?;
    let holder = t.begin().await?;
    holder.send(pair.initiator, "Text", "holder").await?;
    let mut waiting = Vec::new();
    for name in ["1", "2", "3", "4"] {
        let other = t.clone();
        let mut work = Box::pin(async move { other.send(pair.initiator, "Text", name).await });
        t.still_waits(&mut work).await;
        waiting.push(work);
    }
    holder.commit().await?;
    for work in waiting {
        work.await?;
    }
    assert_eq!(t.receive("QT").await?.texts(), ["holder", "1", "2", "3", "4"]);
});
