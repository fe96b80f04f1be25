//! Retry policies: pauses of a group, their end, and dead letters.

use super::edges::{receive_in, targets_at};
use super::*;
use crate::id::DeadLetterId;

fn policy(memory: &mut Memory, retry: &str) {
    let script = format!("ALTER QUEUE qt WITH RETRY ({retry})");
    let parsed = crate::catalog::ddl::parse(&script).unwrap();
    let definitions = parsed.into_iter().map(|parsed| parsed.definition).collect();
    memory.submit(vec![Verb::Define(definitions)], NOW).unwrap().unwrap();
}

/// Receives and rolls back; gives what was received.
fn fail(memory: &mut Memory, from: ReceiveFrom) -> Vec<String> {
    let mut session = memory.core.begin_transaction();
    let received = receive_in(memory, &mut session, None, from);
    memory.rollback(session, NOW);
    received
}

fn row_of_handle(memory: &Memory, handle: ConversationHandle) -> &EndpointRow {
    memory.endpoints().find(|row| row.handle == handle).unwrap()
}

#[test]
fn a_group_pauses_by_the_id_of_its_oldest_conversation_and_without_a_delay_not_at_all() {
    let mut memory = broker();
    policy(&mut memory, "DELAY_MS = 0");
    let targets = targets_at(&mut memory, &[5, 5]);
    let group = row_of_handle(&memory, targets[0]).group;
    memory.submit(vec![Verb::MoveConversation { handle: targets[1], group }], NOW).unwrap().unwrap();
    for _ in 0..2 {
        assert_eq!(fail(&mut memory, ReceiveFrom::Any).len(), 2, "at once, without a tick");
    }
    policy(&mut memory, "DELAY_MS = 1000, JITTER_PERCENT = 20");
    assert_eq!(fail(&mut memory, ReceiveFrom::Any).len(), 2);
    let pauses = memory.core.catalog().queue("qt").unwrap().retry.unwrap().pauses;
    let [older, younger] =
        [targets[0], targets[1]].map(|target| pauses.after_us(row_of_handle(&memory, target).endpoint_id, 3));
    assert_ne!(older, younger);
    for target in targets {
        assert_eq!(row_of_handle(&memory, target).retry_at, Some(Timestamp(NOW.0 + older)));
    }
    assert!(receive(&mut memory, "qt").is_empty());
}

#[test]
fn a_quarantine_takes_the_place_of_a_pause() {
    let mut memory = broker();
    policy(&mut memory, "MAX_ATTEMPTS = 2, DELAY_MS = 60000, JITTER_PERCENT = 0, THEN = QUARANTINE");
    let targets = targets_at(&mut memory, &[3, 4]);
    assert_eq!(fail(&mut memory, ReceiveFrom::Conversation(targets[0])), ["level 3"]);
    let paused = row_of_handle(&memory, targets[0]);
    assert_eq!(paused.retry_at, Some(NOW.after_seconds(60)));
    let group = paused.group;
    memory.submit(vec![Verb::MoveConversation { handle: targets[1], group }], NOW).unwrap().unwrap();
    assert_eq!(fail(&mut memory, ReceiveFrom::Any), ["level 4"], "the second attempt at the group");
    memory.tick(NOW.after_seconds(61));
    for target in targets {
        let row = row_of_handle(&memory, target);
        assert_eq!((row.is_quarantined, row.retry_at), (true, None));
    }
    assert_eq!(depth(&memory, "qt"), (0, 0));
    assert!(receive(&mut memory, "qt").is_empty());
    assert_recovers(&memory);
}

#[test]
fn a_pause_that_ends_while_a_session_holds_the_group_makes_it_ready_for_that_session_only() {
    let mut memory = broker();
    policy(&mut memory, "DELAY_MS = 60000, JITTER_PERCENT = 0");
    let target = targets_at(&mut memory, &[5])[0];
    fail(&mut memory, ReceiveFrom::Any);
    let mut session = memory.core.begin_transaction();
    memory.execute(&mut session, send_verb(target, "m", "reply"), NOW).unwrap().unwrap();
    memory.tick(NOW.after_seconds(60));
    assert_eq!(depth(&memory, "qt"), (0, 1));
    assert!(receive(&mut memory, "qt").is_empty(), "the group is locked");
    assert_eq!(receive_in(&mut memory, &mut session, None, ReceiveFrom::Any), ["level 5"]);
    memory.commit(session, NOW);
    assert_eq!(depth(&memory, "qt"), (0, 0));
    assert_recovers(&memory);
}

#[test]
fn a_receive_that_finds_nothing_in_a_group_leaves_its_attempts() {
    let mut memory = broker();
    policy(&mut memory, "MAX_ATTEMPTS = 3, DELAY_MS = 60000");
    let targets = targets_at(&mut memory, &[3, 4]);
    assert_eq!(fail(&mut memory, ReceiveFrom::Conversation(targets[1])), ["level 4"]);
    let group = row_of_handle(&memory, targets[1]).group;
    let mut session = memory.core.begin_transaction();
    assert_eq!(receive_in(&mut memory, &mut session, None, ReceiveFrom::Any), ["level 3"]);
    // The conversation whose only message was received joins the group that pauses.
    let verb = Verb::MoveConversation { handle: targets[0], group };
    memory.execute(&mut session, verb, NOW).unwrap().unwrap();
    assert!(receive_in(&mut memory, &mut session, None, ReceiveFrom::Group(group)).is_empty());
    memory.commit(session, NOW);
    assert_eq!(row_of_handle(&memory, targets[1]).rollbacks, 1);
}

#[test]
fn a_purged_dead_letter_has_no_row() {
    let mut memory = broker();
    policy(&mut memory, "MAX_ATTEMPTS = 1, THEN = DEAD_LETTER");
    targets_at(&mut memory, &[5]);
    fail(&mut memory, ReceiveFrom::Any);
    let letters: Vec<u64> = memory.dead_letters().map(|(row, _)| row.queuing_order).collect();
    assert_eq!((letters.len(), memory.messages().count()), (1, 0));
    memory.submit(vec![Verb::PurgeDeadLetter { letter: DeadLetterId(letters[0]) }], NOW).unwrap().unwrap();
    assert_eq!((memory.dead_letters().count(), memory.messages().count()), (0, 0));
    assert!(memory.restored(NOW).unwrap().dead_letters.is_empty());
}
