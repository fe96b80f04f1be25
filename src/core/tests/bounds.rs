//! Counts and bounds: bodies that one commit checks, messages that wait, moments in the far future.

use super::edges::{define, error_in, receive_in, targets_at};
use super::*;
use crate::Code;
use crate::id::DeadLetterId;
use crate::protocol::definition::{AfterRetries, RetryChange, RetryOptions};

/// Sends one body on each of so many conversations in one commit; gives how many bodies were left to the store to
/// check.
fn left_to_check(message_type: &str, body: &str, conversations: usize) -> usize {
    let mut memory = broker();
    let empty = Definition::CreateMessageType { name: "e".into(), owner: None, validation: Validation::Empty };
    let entries = vec![ContractEntry { message_type: "e".into(), sent_by: SentBy::Any }];
    let contract = Definition::CreateContract { name: "of e".into(), owner: None, entries };
    let (queue, drop_contracts) = Default::default();
    let add_contracts = vec!["of e".into()];
    let service = Definition::AlterService { name: "t".into(), queue, add_contracts, drop_contracts };
    memory.submit(vec![Verb::Define(vec![empty, contract, service])], NOW).unwrap();
    let contract = if message_type == "e" { "of e" } else { "c" };
    let over = |memory: &mut Memory| super::edges::begin_over(memory, "t", contract, Addressee::Anywhere);
    let handles: Vec<_> = (0..conversations).map(|_| over(&mut memory)).collect();
    let (mut session, mut effects) = (memory.core.begin(), Effects::default());
    for handle in handles {
        memory.core.execute(&mut session, send_verb(handle, message_type, body), NOW).unwrap();
    }
    memory.core.commit(session, NOW, &mut effects);
    let left = effects.redeliver.len();
    memory.write(effects, NOW);
    assert_eq!(memory.transmissions().count(), 0, "a body that was left is checked and delivered later");
    left
}

#[test]
fn a_commit_checks_64_bodies_and_leaves_the_others_to_its_store() {
    for (conversations, left) in [(64, 0), (65, 1), (67, 3)] {
        assert_eq!(left_to_check("x", "<a/>", conversations), left, "{conversations} bodies of XML");
    }
    assert_eq!(left_to_check("m", "any", 67), 0, "a type without validation");
    assert_eq!(left_to_check("e", "", 67), 0, "a type of empty bodies");
    assert_eq!(left_to_check("e", "not empty", 67), 0, "a type of empty bodies, refused");
}

#[test]
fn messages_that_are_dropped_or_set_aside_do_not_count_as_unread() {
    let mut memory = broker();
    let options = QueueOptions { poison_quarantine: Some(true), ..QueueOptions::default() };
    define(&mut memory, Definition::AlterQueue { name: "qt".into(), options }).unwrap();
    let targets = targets_at(&mut memory, &[9, 5, 5]);
    let timer = Verb::BeginConversationTimer { handle: targets[0], timeout_seconds: 1 };
    memory.submit(vec![timer], NOW).unwrap();
    memory.tick(NOW.after_seconds(1));
    assert_eq!(depth(&memory, "qt"), (3, 4));
    for _ in 0..POISON_ROLLBACKS {
        let mut session = memory.core.begin_transaction();
        memory.execute(&mut session, receive_verb("qt", None), NOW).unwrap().unwrap();
        memory.rollback(session, NOW);
    }
    let aside: Vec<_> = memory.endpoints().filter(|row| row.is_quarantined).collect();
    assert_eq!(aside.iter().map(|row| row.handle).collect::<Vec<_>>(), [targets[0]]);
    let group = aside[0].group;
    assert_eq!(depth(&memory, "qt"), (2, 2));
    assert_recovers(&memory);
    memory.submit(vec![Verb::ReleaseQuarantine { group }], NOW).unwrap();
    assert_eq!(depth(&memory, "qt"), (3, 4));
    assert_recovers(&memory);
    end(&mut memory, targets[0], EndForm::Plain);
    assert_eq!(depth(&memory, "qt"), (2, 2), "the message and the timer are dropped");
    // One that is set aside is not counted, so that its end takes nothing off the count.
    let place = memory.core.find(targets[1].0).unwrap();
    let group = memory.core.endpoints[place].group;
    memory.core.set_quarantined(group, true);
    assert_eq!(depth(&memory, "qt").1, 1);
    end(&mut memory, targets[1], EndForm::Plain);
    assert_eq!(depth(&memory, "qt").1, 1);
}

#[test]
fn a_timer_may_fire_at_the_very_end_of_the_lifetime() {
    let mut memory = broker();
    let handle = begin(&mut memory, "t", Some(60));
    let timer = |timeout_seconds| vec![Verb::BeginConversationTimer { handle, timeout_seconds }];
    assert_eq!(memory.submit(timer(61), NOW).unwrap_err().code(), Code::TIMER_BEYOND_LIFETIME);
    assert!(memory.submit(timer(60), NOW).unwrap().is_some());
}

#[test]
fn a_lifetime_of_many_years_ends() {
    const YEAR: i64 = 365 * 86_400;
    for years in [1, 2, 19] {
        let mut memory = broker();
        begin(&mut memory, "t", Some(years * YEAR));
        let end = NOW.after_seconds(years * YEAR);
        assert_eq!(memory.core.next_due(), Some(end), "{years} years");
        memory.tick(end);
        assert_eq!(error_in(&mut memory, "qi").0, -8489);
    }
    let mut memory = broker();
    begin(&mut memory, "t", None);
    assert_eq!(memory.core.next_due(), None, "the default of 68 years needs no entry for each conversation");
}

#[test]
fn an_end_that_waits_is_done_with_once_the_other_side_has_ended_too() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "one");
    let target = receive(&mut memory, "qt")[0].conversation_handle;
    alter(&mut memory, "qt", false);
    send(&mut memory, initiator, "waits");
    end(&mut memory, initiator, EndForm::Plain);
    assert_eq!((states(&memory), memory.transmissions().count()), (vec!["DO", "CO"], 2));
    end(&mut memory, target, EndForm::Plain);
    assert_eq!((states(&memory), memory.transmissions().count()), (vec!["CD"], 0));
    assert_recovers(&memory);
}

#[test]
fn an_error_arrives_unchecked_however_long_its_description_is() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "one");
    let form = EndForm::WithError { code: 7, description: "é".repeat(3000) };
    let effects = effects_of(&mut memory, Verb::EndConversation { handle: initiator, form });
    assert_eq!((effects.redeliver.len(), effects.unchecked.len(), effects.quick_checks), (0, 0, 0));
    memory.write(effects, NOW);
    assert_eq!(states(&memory), ["ER"]);
    assert_recovers(&memory);
}

/// It took time in proportion to the square of the number of groups: 8 s for 4,000.
#[test]
fn a_transaction_ranks_each_of_its_groups_a_few_times() {
    const GROUPS: u64 = 300;
    let mut memory = broker();
    for _ in 0..GROUPS {
        let handle = begin(&mut memory, "t", None);
        memory.submit(vec![send_verb(handle, "m", "one"), send_verb(handle, "m", "two")], NOW).unwrap();
    }
    let mut session = memory.core.begin_transaction();
    let groups: Vec<_> = memory.endpoints().filter(|row| !row.is_initiator).map(|row| row.group).collect();
    for group in groups {
        assert_eq!(receive_in(&mut memory, &mut session, Some(1), ReceiveFrom::Group(group)), ["one"]);
    }
    for from in [ReceiveFrom::Any, ReceiveFrom::Oldest].into_iter().cycle().take(GROUPS as usize) {
        assert_eq!(receive_in(&mut memory, &mut session, None, from), ["two"]);
    }
    assert!(receive_in(&mut memory, &mut session, None, ReceiveFrom::Any).is_empty());
    let ranked = memory.core.sessions[session.id].own.ranked;
    assert!((GROUPS..=2 * GROUPS + 2).contains(&ranked), "{ranked} times for {GROUPS} groups");
    assert_eq!(session.group_count() as u64, GROUPS);
    memory.rollback(session, NOW);
    assert_recovers(&memory);
}

/// It took time in proportion to the square of the number of messages.
#[test]
fn a_transaction_reads_each_message_of_a_conversation_a_few_times() {
    const MESSAGES: u64 = 1_000;
    let mut memory = broker();
    let handle = begin(&mut memory, "t", None);
    memory.submit((0..MESSAGES).map(|_| send_verb(handle, "m", "x")).collect(), NOW).unwrap();
    let mut session = memory.core.begin_transaction();
    let read = || super::super::queuing_orders::read();
    let before = read();
    for number in 0..MESSAGES {
        let found = memory.execute(&mut session, receive_verb("qt", Some(1)), NOW).unwrap().unwrap();
        assert_eq!(received(found)[0].message_sequence_number, number);
    }
    let read = read() - before;
    assert!((MESSAGES..=4 * MESSAGES).contains(&read), "{read} reads for {MESSAGES} messages");
    memory.rollback(session, NOW);
    assert_recovers(&memory);
}

/// It took time in proportion to the third power of their number: 7 s for 3,000, under the lock of the store.
#[test]
fn a_transaction_looks_at_each_redriven_message_of_a_conversation_a_few_times() {
    const MESSAGES: u64 = 300;
    let mut memory = broker();
    let policy =
        RetryOptions { max_attempts: Some(1), then: Some(AfterRetries::DeadLetter), ..RetryOptions::default() };
    let options = QueueOptions { retry: Some(RetryChange::Set(policy)), ..QueueOptions::default() };
    define(&mut memory, Definition::AlterQueue { name: "qt".into(), options }).unwrap();
    let handle = begin(&mut memory, "t", None);
    memory.submit((0..MESSAGES).map(|_| send_verb(handle, "m", "x")).collect(), NOW).unwrap();
    for _ in 0..MESSAGES {
        let mut session = memory.core.begin_transaction();
        memory.execute(&mut session, receive_verb("qt", Some(1)), NOW).unwrap().unwrap();
        memory.rollback(session, NOW);
    }
    let letters: Vec<u64> = memory.core.dead_letters.keys().copied().collect();
    assert_eq!(letters.len() as u64, MESSAGES);
    for letter in letters {
        memory.submit(vec![Verb::RedriveDeadLetter { letter: DeadLetterId(letter) }], NOW).unwrap();
    }
    let target = memory.endpoints().find(|row| !row.is_initiator).unwrap().handle;
    memory.submit(vec![Verb::BeginConversationTimer { handle: target, timeout_seconds: 1 }], NOW).unwrap();
    memory.tick(NOW.after_seconds(1));
    memory.submit(vec![send_verb(handle, "m", "new")], NOW).unwrap();
    let looks = || super::super::endpoint::LOOKS.get();
    let before = looks();
    let mut session = memory.core.begin_transaction();
    let timer = received(memory.execute(&mut session, receive_verb("qt", Some(1)), NOW).unwrap().unwrap());
    assert_eq!(timer[0].message_type_id, system::DIALOG_TIMER_ID);
    let half = memory.core.savepoint(&session);
    for undone in [true, false] {
        for number in 0..=MESSAGES {
            let found = memory.execute(&mut session, receive_verb("qt", Some(1)), NOW).unwrap().unwrap();
            assert_eq!(received(found)[0].message_sequence_number, number);
        }
        if undone {
            let mut effects = Effects::default();
            memory.core.rollback_to(&mut session, half, &mut effects);
        }
    }
    let looks = looks() - before;
    assert!((2 * MESSAGES..=10 * MESSAGES).contains(&looks), "{looks} looks at {MESSAGES} messages");
    memory.commit(session, NOW);
    assert_eq!(memory.messages().count(), 0);
    assert_recovers(&memory);
}
