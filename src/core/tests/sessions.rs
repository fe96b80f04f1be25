//! A session's view, its locks and its leftovers.

use super::edges::{receive_in, targets_at};
use super::*;
use crate::Code;

fn dialog() -> Verb {
    Verb::BeginDialog(BeginDialog {
        from_service: "i".into(),
        to_service: "t".into(),
        addressee: Addressee::Anywhere,
        contract: Some("c".into()),
        related: Relation::None,
        lifetime_seconds: None,
        encryption: false,
    })
}

fn group_of(memory: &Memory, handle: ConversationHandle) -> GroupId {
    memory.endpoints().find(|row| row.handle == handle).unwrap().group
}

#[test]
fn a_conversation_is_not_there_for_others_until_its_begin_commits() {
    let mut memory = broker();
    let known = begin(&mut memory, "t", None);
    let mut session = memory.core.begin_transaction();
    let Some(Outcome::Began { handle, group, .. }) = memory.execute(&mut session, dialog(), NOW).unwrap() else {
        panic!("BEGIN DIALOG gives the handle and the group")
    };
    let from = |from| Verb::Receive { queue: "qi".into(), top: None, from };
    let by_handle = || [send_verb(handle, "m", "x"), from(ReceiveFrom::Conversation(handle))];
    let by_group = || {
        [
            from(ReceiveFrom::Group(group)),
            Verb::MoveConversation { handle: known, group },
            Verb::ReleaseQuarantine { group },
        ]
    };
    for verb in by_handle() {
        assert_eq!(
            memory.submit(vec![verb.clone()], NOW).unwrap_err().code(),
            Code::CONVERSATION_NOT_FOUND,
            "{verb:?}"
        );
    }
    for verb in by_group() {
        let refused = memory.submit(vec![verb.clone()], NOW).unwrap_err();
        assert_eq!(refused.code(), Code::GROUP_NOT_FOUND, "{verb:?}");
    }
    memory.commit(session, NOW);
    for verb in by_handle().into_iter().chain(by_group()) {
        assert!(memory.submit(vec![verb.clone()], NOW).unwrap().is_some(), "{verb:?}");
    }
    assert_recovers(&memory);
}

#[test]
fn a_group_whose_conversations_a_transaction_moved_away_is_gone_for_it() {
    let mut memory = broker();
    let targets = targets_at(&mut memory, &[5, 5, 5]);
    let groups: Vec<_> = targets.iter().map(|target| group_of(&memory, *target)).collect();
    let mut session = memory.core.begin_transaction();
    let moves = |place: usize, to: usize| Verb::MoveConversation { handle: targets[place], group: groups[to] };
    memory.execute(&mut session, moves(0, 1), NOW).unwrap().unwrap();
    let from = Verb::Receive { queue: "qt".into(), top: None, from: ReceiveFrom::Group(groups[0]) };
    for verb in [from, moves(2, 0), moves(0, 0)] {
        let refused = memory.execute(&mut session, verb.clone(), NOW).unwrap_err();
        assert_eq!(refused.code(), Code::GROUP_NOT_FOUND, "{verb:?}");
    }
    // The remaining conversation leaves, so that only the moved one is in the group.
    memory.execute(&mut session, moves(1, 2), NOW).unwrap().unwrap();
    assert_eq!(receive_in(&mut memory, &mut session, None, ReceiveFrom::Group(groups[1])).len(), 1);
    memory.rollback(session, NOW);
    assert!(memory.submit(vec![moves(2, 0)], NOW).unwrap().is_some());
    assert_recovers(&memory);
}

#[test]
fn a_receive_by_handle_takes_no_message_that_was_moved_into_the_group() {
    let mut memory = broker();
    let targets = targets_at(&mut memory, &[3, 8]);
    let group = group_of(&memory, targets[0]);
    let mut session = memory.core.begin_transaction();
    memory.execute(&mut session, Verb::MoveConversation { handle: targets[1], group }, NOW).unwrap().unwrap();
    let by_handle = ReceiveFrom::Conversation(targets[0]);
    assert_eq!(receive_in(&mut memory, &mut session, None, by_handle), ["level 3"]);
    assert_eq!(receive_in(&mut memory, &mut session, None, ReceiveFrom::Any), ["level 8"]);
    memory.commit(session, NOW);
}

#[test]
fn a_receive_that_finds_nothing_holds_nothing() {
    let mut memory = broker();
    let target = targets_at(&mut memory, &[5])[0];
    let mut session = memory.core.begin_transaction();
    assert!(receive_in(&mut memory, &mut session, Some(0), ReceiveFrom::Any).is_empty());
    assert_eq!(receive(&mut memory, "qt").len(), 1);
    for from in [ReceiveFrom::Conversation(target), ReceiveFrom::Group(group_of(&memory, target)), ReceiveFrom::Any] {
        assert!(receive_in(&mut memory, &mut session, None, from).is_empty());
    }
    assert!(memory.submit(vec![send_verb(target, "m", "reply")], NOW).unwrap().is_some());
    assert_eq!(session.group_count(), 0);
    memory.rollback(session, NOW);
}

#[test]
fn a_limit_counts_system_messages() {
    let mut memory = broker();
    let target = targets_at(&mut memory, &[5])[0];
    for round in [2, 4] {
        let timer = Verb::BeginConversationTimer { handle: target, timeout_seconds: 1 };
        memory.submit(vec![timer], NOW.after_seconds(round - 1)).unwrap();
        memory.tick(NOW.after_seconds(round));
    }
    for left in [2, 1, 0] {
        let taken = received(memory.submit(vec![receive_verb("qt", Some(1))], NOW).unwrap().unwrap().remove(0));
        assert_eq!((taken.len(), memory.messages().count()), (1, left));
    }
}

#[test]
fn a_timer_that_a_transaction_changed_in_vain_fires_after_its_end() {
    for seconds in [10, 11] {
        let mut memory = broker();
        let handle = begin(&mut memory, "t", Some(60));
        let timer = |timeout_seconds| Verb::BeginConversationTimer { handle, timeout_seconds };
        memory.submit(vec![timer(10)], NOW).unwrap().unwrap();
        let mut session = memory.core.begin_transaction();
        memory.execute(&mut session, timer(30), NOW).unwrap().unwrap();
        let now = NOW.after_seconds(seconds);
        memory.core.tick(now, &mut Effects::default());
        assert_eq!(memory.core.next_due(), Some(NOW.after_seconds(60)), "the transaction holds the timer");
        memory.rollback(session, now);
        assert_eq!(memory.core.next_due(), Some(NOW.after_seconds(10)));
        memory.tick(now);
        assert_eq!(receive(&mut memory, "qi").len(), 1);
    }
}

#[test]
fn a_session_that_stopped_waiting_is_part_of_no_deadlock() {
    let mut memory = broker();
    let (one, two) = (begin(&mut memory, "t", None), begin(&mut memory, "t", None));
    let (mut a, mut b) = (memory.core.begin_transaction(), memory.core.begin_transaction());
    memory.execute(&mut a, send_verb(one, "m", "a"), NOW).unwrap().unwrap();
    memory.execute(&mut b, send_verb(two, "m", "b"), NOW).unwrap().unwrap();
    let waits = |memory: &mut Memory, session: &mut Session, handle| {
        let Step::Blocked(group) = memory.core.execute(session, send_verb(handle, "m", "x"), NOW).unwrap() else {
            panic!("another session holds the group")
        };
        memory.core.wait(session, group)
    };
    waits(&mut memory, &mut a, two).unwrap();
    assert_eq!(waits(&mut memory, &mut b, one).unwrap_err().code(), Code::DEADLOCK);
    memory.core.stop_waiting(&a);
    waits(&mut memory, &mut b, one).unwrap();
    memory.rollback(a, NOW);
    memory.rollback(b, NOW);
}

#[test]
fn a_unit_that_meets_a_lock_leaves_nothing_behind() {
    let mut memory = broker();
    let (free, held) = (begin(&mut memory, "t", None), begin(&mut memory, "t", None));
    let mut session = memory.core.begin_transaction();
    memory.execute(&mut session, send_verb(held, "m", "held"), NOW).unwrap().unwrap();
    send(&mut memory, free, "0");
    let count = |memory: &Memory| (memory.core.endpoints.iter().count(), memory.core.sessions.iter().count());
    let before = count(&memory);
    for round in 1..4 {
        let unit = vec![dialog(), send_verb(free, "m", "never"), send_verb(held, "m", "never")];
        assert!(memory.submit(unit, NOW).unwrap().is_none(), "another session holds the last group");
        let unknown = ConversationHandle(uuid::Uuid::nil());
        let unit = vec![dialog(), send_verb(free, "m", "never"), send_verb(unknown, "m", "never")];
        assert!(memory.submit(unit, NOW).is_err());
        assert_eq!(count(&memory), before, "no conversation, and the numbers of sessions are used again");
        send(&mut memory, free, "x");
        assert_eq!(depth(&memory, "qt").1, round + 1, "its group is free again");
    }
    memory.rollback(session, NOW);
    assert_recovers(&memory);
}

#[test]
fn a_commit_wakes_receivers_of_messages_in_the_groups_it_unlocks() {
    let mut memory = broker();
    let target = targets_at(&mut memory, &[5])[0];
    let queue_id = memory.core.catalog().queue("qt").unwrap().id;
    let wakes = |effects: &Effects| -> Vec<usize> {
        let of_queue = effects.arrivals.iter().filter(|arrival| arrival.queue_id == queue_id);
        of_queue.map(|arrival| arrival.newly_ready).collect()
    };
    // It only sent, so the rows waiting in the group are ready again.
    let mut session = memory.core.begin_transaction();
    memory.execute(&mut session, send_verb(target, "m", "reply"), NOW).unwrap().unwrap();
    assert_eq!(depth(&memory, "qt"), (0, 1));
    let mut effects = Effects::default();
    memory.core.commit(session, NOW, &mut effects);
    assert_eq!((wakes(&effects), depth(&memory, "qt")), (vec![1], (1, 1)));
    memory.write(effects, NOW);
    // It received all rows, so no group is ready, but the queue is less deep.
    let mut session = memory.core.begin_transaction();
    assert_eq!(receive_in(&mut memory, &mut session, None, ReceiveFrom::Any), ["level 5"]);
    let mut effects = Effects::default();
    memory.core.commit(session, NOW, &mut effects);
    assert_eq!((wakes(&effects), depth(&memory, "qt")), (vec![0], (0, 0)));
    memory.write(effects, NOW);
}

#[test]
fn a_group_whose_begin_was_rolled_back_takes_a_conversation_of_another_service() {
    let mut memory = broker();
    let group = GroupId(uuid::Uuid::from_u128(77));
    let begin_from = |service: &str| {
        let Verb::BeginDialog(dialog) = dialog() else { unreachable!("it is BEGIN DIALOG") };
        Verb::BeginDialog(BeginDialog { from_service: service.into(), related: Relation::Group(group), ..dialog })
    };
    let mut session = memory.core.begin_transaction();
    let savepoint = memory.core.savepoint(&session);
    memory.execute(&mut session, begin_from("i"), NOW).unwrap().unwrap();
    memory.rollback_to(&mut session, savepoint, NOW);
    memory.execute(&mut session, begin_from("t"), NOW).unwrap().unwrap();
    let refused = memory.execute(&mut session, begin_from("i"), NOW).unwrap_err();
    assert_eq!(refused.code(), Code::GROUP_OF_OTHER_SERVICE);
    memory.commit(session, NOW);
    let timer = |handle| Verb::BeginConversationTimer { handle, timeout_seconds: 1 };
    let handle = memory.endpoints().find(|row| row.group == group).unwrap().handle;
    memory.submit(vec![timer(handle)], NOW).unwrap();
    memory.tick(NOW.after_seconds(1));
    assert_eq!(receive(&mut memory, "qt").len(), 1, "its messages wait in the queue of its service");
    assert_recovers(&memory);
}

#[test]
fn a_large_transaction_leaves_nothing_that_slows_later_ones() {
    let mut memory = broker();
    let handles: Vec<_> = (0..2_000).map(|_| begin(&mut memory, "nowhere", None)).collect();
    let group = group_of(&memory, handles[0]);
    let mut verbs: Vec<_> = handles.iter().map(|handle| send_verb(*handle, "m", "x")).collect();
    verbs.push(Verb::MoveConversation { handle: handles[1], group });
    memory.submit(verbs, NOW).unwrap().unwrap();
    let spare = memory.core.begin();
    assert!(spare.overlays.capacity() < 1_000 && spare.log.capacity() < 1_000 && spare.moved.is_empty());
}

#[test]
fn a_conversation_in_the_place_of_an_ended_one_that_the_session_cleans_up_has_not_ended() {
    let mut memory = broker();
    let old = begin(&mut memory, "t", None);
    send(&mut memory, old, "old");
    let target = receive(&mut memory, "qt")[0].conversation_handle;
    end(&mut memory, target, EndForm::Plain);
    end(&mut memory, old, EndForm::Plain);
    assert_eq!(states(&memory), ["CD"]);
    let mut session = memory.core.begin_transaction();
    let cleanup = Verb::EndConversation { handle: target, form: EndForm::Cleanup };
    memory.execute(&mut session, cleanup, NOW).unwrap().unwrap();
    // The closed endpoint is removed by itself, and the next endpoint takes its place.
    memory.tick(NOW.after(Limits::default().closed_retention));
    assert!(states(&memory).is_empty());
    let new = begin(&mut memory, "t", None);
    memory.execute(&mut session, send_verb(new, "m", "new"), NOW).unwrap().unwrap();
    memory.commit(session, NOW);
    assert_eq!(bodies(&receive(&mut memory, "qt")), ["new"]);
    assert_recovers(&memory);
}

/// Sessions that hold one message of `qt` each.
fn five_receivers(memory: &mut Memory) -> Vec<Session> {
    let receivers = (0..5).map(|_| {
        let mut session = memory.core.begin_transaction();
        assert_eq!(receive_in(memory, &mut session, None, ReceiveFrom::Any).len(), 1);
        session
    });
    receivers.collect()
}

fn is_on(memory: &Memory) -> bool {
    memory.core.catalog.queue("qt").unwrap().is_receive_enabled
}

#[test]
fn of_sessions_that_are_lost_together_a_queue_counts_one() {
    let mut memory = broker();
    targets_at(&mut memory, &[5; 5]);
    for round in 1..=5 {
        for session in five_receivers(&mut memory) {
            memory.lose(session, NOW);
        }
        assert_eq!(is_on(&memory), round < 5, "after loss {round}");
    }
    alter(&mut memory, "qt", true);
    for (rolled_back, session) in (1..).zip(five_receivers(&mut memory)) {
        memory.rollback(session, NOW);
        assert_eq!(is_on(&memory), rolled_back < 5, "each counts that is rolled back");
    }
}

#[test]
fn a_loss_counts_beside_rollbacks_and_a_commit_ends_their_row() {
    let mut memory = broker();
    targets_at(&mut memory, &[5; 5]);
    let [one, two, three, four, five]: [Session; 5] = five_receivers(&mut memory).try_into().unwrap();
    memory.rollback(one, NOW);
    memory.rollback(two, NOW);
    memory.lose(three, NOW);
    assert_eq!(memory.core.queues.values().map(|queue| queue.rollbacks).max(), Some(3));
    memory.commit(four, NOW);
    memory.lose(five, NOW);
    assert_eq!(memory.core.queues.values().map(|queue| queue.rollbacks).max(), Some(1), "the one before is forgotten");
}

#[test]
fn a_loss_that_does_not_count_hides_no_later_one() {
    let mut memory = broker();
    targets_at(&mut memory, &[5; 2]);
    let receiver = |memory: &mut Memory| {
        let mut session = memory.core.begin_transaction();
        assert_eq!(receive_in(memory, &mut session, None, ReceiveFrom::Any).len(), 1);
        session
    };
    let (first, second) = (receiver(&mut memory), receiver(&mut memory));
    let rollbacks = |memory: &Memory| memory.core.queues.values().map(|queue| queue.rollbacks).max();
    memory.lose(first, NOW);
    let third = receiver(&mut memory);
    memory.lose(second, NOW);
    assert_eq!(rollbacks(&memory), Some(1), "it was open when the first one was lost");
    memory.lose(third, NOW);
    assert_eq!(rollbacks(&memory), Some(2), "it received after the first loss");
}

#[test]
fn a_limit_counts_the_messages_of_the_conversations_before() {
    let mut memory = broker();
    let targets = targets_at(&mut memory, &[9, 5]);
    let group = group_of(&memory, targets[0]);
    memory.submit(vec![Verb::MoveConversation { handle: targets[1], group }], NOW).unwrap().unwrap();
    for round in [2, 4] {
        let timer = Verb::BeginConversationTimer { handle: targets[1], timeout_seconds: 1 };
        memory.submit(vec![timer], NOW.after_seconds(round - 1)).unwrap();
        memory.tick(NOW.after_seconds(round));
    }
    let taken = received(memory.submit(vec![receive_verb("qt", Some(2))], NOW).unwrap().unwrap().remove(0));
    assert_eq!(bodies(&taken), ["level 9", ""], "one of the two timers");
    assert_eq!(memory.messages().count(), 2);
}
