//! Rare paths: waiting messages, late refusals, a transaction's view of its own moves.

use super::*;
use crate::protocol::definition::{AnyOr, BrokerOption, PriorityOptions, QueueEvent};

pub(super) fn define(memory: &mut Memory, definition: Definition) -> Option<Vec<Outcome>> {
    memory.submit(vec![Verb::Define(vec![definition])], NOW).unwrap()
}

pub(super) fn set(memory: &mut Memory, option: BrokerOption) {
    define(memory, Definition::AlterDatabase { option }).unwrap();
}

pub(super) fn create_service(memory: &mut Memory, name: &str, queue: &str, contracts: &[&str]) {
    let contracts = contracts.iter().map(ToString::to_string).collect();
    define(memory, Definition::CreateService { name: name.into(), owner: None, queue: queue.into(), contracts })
        .unwrap();
}

pub(super) fn create_contract(memory: &mut Memory, name: &str) {
    let entries = vec![ContractEntry { message_type: "m".into(), sent_by: SentBy::Any }];
    define(memory, Definition::CreateContract { name: name.into(), owner: None, entries }).unwrap();
}

pub(super) fn begin_over(memory: &mut Memory, to: &str, contract: &str, addressee: Addressee) -> ConversationHandle {
    let dialog = BeginDialog {
        from_service: "i".into(),
        to_service: to.into(),
        addressee,
        contract: Some(contract.into()),
        related: Relation::None,
        lifetime_seconds: None,
        encryption: false,
    };
    match &memory.submit(vec![Verb::BeginDialog(dialog)], NOW).unwrap().unwrap()[..] {
        [Outcome::Began { handle, .. }] => *handle,
        other => panic!("{other:?}"),
    }
}

/// The code and the description of the only message of a queue, which is an Error.
pub(super) fn error_in(memory: &mut Memory, queue: &str) -> (i32, String) {
    let messages = receive(memory, queue);
    assert_eq!(messages.len(), 1, "{messages:?}");
    system::parse_error_body(messages[0].message_body.as_deref().unwrap()).expect("an Error")
}

fn statuses(memory: &Memory) -> Vec<String> {
    memory.transmissions().map(|row| row.status.to_string()).collect()
}

#[test]
fn a_contract_is_dropped_once_no_session_holds_a_conversation_over_it() {
    let mut memory = broker();
    create_contract(&mut memory, "c2");
    let other = begin(&mut memory, "nowhere", None);
    let over_it = begin_over(&mut memory, "nowhere", "c2", Addressee::Anywhere);
    let drop = || Definition::DropContract { name: "c2".into() };
    let mut session = memory.core.begin_transaction();
    memory.execute(&mut session, send_verb(over_it, "m", "x"), NOW).unwrap().unwrap();
    assert!(define(&mut memory, drop()).is_none(), "the group of a conversation over it is locked");
    memory.rollback(session, NOW);
    let mut session = memory.core.begin_transaction();
    memory.execute(&mut session, send_verb(other, "m", "x"), NOW).unwrap().unwrap();
    assert!(define(&mut memory, drop()).is_some(), "a conversation over another contract holds nothing up");
    memory.commit(session, NOW);
    assert_eq!(error_in(&mut memory, "qi").0, -8487);
    assert_recovers(&memory);
}

#[test]
fn a_refusal_that_comes_late_breaks_the_sender_or_removes_one_that_has_ended() {
    let mut memory = broker();
    let waiting = begin(&mut memory, "later", None);
    send(&mut memory, waiting, "a");
    let ended = begin(&mut memory, "later", None);
    send(&mut memory, ended, "b");
    end(&mut memory, ended, EndForm::Plain);
    assert_eq!(states(&memory), ["CO", "DO"]);
    create_service(&mut memory, "later", "qt", &[]);
    assert_eq!(states(&memory), ["ER"], "a sender that has ended gets no Error");
    assert_eq!(memory.transmissions().count(), 1);
    let (code, description) = error_in(&mut memory, "qi");
    assert_eq!(code, -8408);
    assert_eq!(description, "the target service 'later' does not support contract 'c'");
    assert_recovers(&memory);
}

#[test]
fn a_target_that_names_this_broker_and_does_not_exist_is_refused_by_its_name() {
    let mut memory = broker();
    let handle = begin_over(&mut memory, "nowhere", "c", Addressee::CurrentDatabase);
    send(&mut memory, handle, "x");
    let (code, description) = error_in(&mut memory, "qi");
    assert_eq!((code, description.as_str()), (-8490, "the broker named in BEGIN DIALOG has no service 'nowhere'"));
}

#[test]
fn a_message_that_waited_for_a_peer_that_is_gone_breaks_its_sender() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "one");
    let target = receive(&mut memory, "qt")[0].conversation_handle;
    alter(&mut memory, "qt", false);
    send(&mut memory, initiator, "two");
    end(&mut memory, target, EndForm::Cleanup);
    alter(&mut memory, "qt", true);
    assert_eq!(memory.transmissions().count(), 0);
    assert_eq!(error_in(&mut memory, "qi").0, -8462);
    assert_recovers(&memory);
}

#[test]
fn the_transmission_status_follows_its_reason() {
    let mut memory = broker();
    let nowhere = begin(&mut memory, "nowhere", None);
    send(&mut memory, nowhere, "x");
    let no_service = statuses(&memory);
    assert!(no_service[0].starts_with("9793"), "{no_service:?}");
    set(&mut memory, BrokerOption::DisableBroker);
    assert_ne!(statuses(&memory), no_service);
    assert_eq!(memory.core.transmission_status(nowhere), statuses(&memory)[0]);
    set(&mut memory, BrokerOption::EnableBroker);
    assert_eq!(statuses(&memory), no_service);
    assert_eq!(memory.core.transmission_status(nowhere), no_service[0]);
}

#[test]
fn a_message_that_waits_again_has_the_new_reason() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    alter(&mut memory, "qt", false);
    send(&mut memory, initiator, "1");
    let disabled_queue = memory.core.transmission_status(initiator);
    alter(&mut memory, "qt", true);
    assert_eq!(memory.core.transmission_status(initiator), "");
    set(&mut memory, BrokerOption::DisableBroker);
    send(&mut memory, initiator, "2");
    let disabled_broker = memory.core.transmission_status(initiator);
    assert!(!disabled_broker.is_empty() && disabled_broker != disabled_queue, "{disabled_broker}");
}

#[test]
fn bodies_behind_one_that_is_being_checked_are_checked_meanwhile() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    let large = format!("<a>{}</a>", " ".repeat(10_000));
    let mut unit: Vec<_> = (0..70).map(|_| send_verb(initiator, "x", &large)).collect();
    let first = unit.remove(0);
    unit.push(Verb::EndConversation { handle: initiator, form: EndForm::Plain });
    let mut effects = effects_of(&mut memory, first);
    let reason = memory.core.transmission_status(initiator);
    for verb in unit {
        let later = effects_of(&mut memory, verb);
        assert!(later.redeliver.is_empty(), "the check of the first body names it");
        effects.changes.extend(later.changes);
        assert_eq!(memory.core.transmission_status(initiator), reason, "the reason is that of the first row");
    }
    let inserted = effects.changes.iter().filter_map(|change| match change {
        Change::InsertTransmission(row) => Some((row.transmission_id, row.endpoint_id)),
        _ => None,
    });
    let rows: Vec<_> = inserted.collect();
    assert_eq!(rows.len(), 71);
    let catalog = memory.core.catalog().clone();
    let message_type = catalog.message_types.values().find(|candidate| &*candidate.name == "x").unwrap();
    let reach =
        || crate::catalog::body::Verdict::check(memory.core.body_checks(), &catalog, message_type, large.as_bytes());
    let verdict = Arc::new(reach());
    let mut after = |place: usize| {
        let (transmission_id, endpoint_id) = rows[place];
        let mut effects = Effects::default();
        let next = memory.core.checked(transmission_id, endpoint_id, verdict.clone(), &mut effects);
        (next.map(|next| next - rows[0].0), effects.redeliver.len())
    };
    assert_eq!(after(2), (Some(3), 0));
    assert_eq!(after(1), (None, 0), "the next body is checked already");
    assert_eq!(after(0), (None, 1), "the first row is tried again");
    assert_eq!((after(63), after(64)), ((Some(64), 0), (None, 0)), "not too far ahead");
    assert_eq!(after(69), (None, 0), "an end has no body");
}

#[test]
fn waiting_messages_leave_by_level_if_the_broker_honours_it() {
    for (honours, order) in [(true, ["high", "low"]), (false, ["low", "high"])] {
        let mut memory = broker();
        set(&mut memory, BrokerOption::HonorBrokerPriority(honours));
        for (contract, level) in [("low", 6), ("high", 9)] {
            create_contract(&mut memory, contract);
            let set = PriorityOptions {
                contract: Some(AnyOr::Name(contract.into())),
                local_service: None,
                remote_service: None,
                level: Some(level),
            };
            define(&mut memory, Definition::CreateBrokerPriority { name: contract.into(), set }).unwrap();
        }
        for contract in ["low", "high"] {
            let handle = begin_over(&mut memory, "later", contract, Addressee::Anywhere);
            send(&mut memory, handle, contract);
        }
        create_service(&mut memory, "later", "qt", &["low", "high"]);
        let arrived: Vec<String> = memory
            .messages()
            .map(|row| String::from_utf8_lossy(row.body.as_deref().map_or(&b""[..], Vec::as_slice)).into_owned())
            .collect();
        assert_eq!(arrived, order, "HONOR_BROKER_PRIORITY is {honours}");
    }
}

#[test]
fn a_message_follows_earlier_ones_in_the_transmission_queue() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    alter(&mut memory, "qt", false);
    send(&mut memory, initiator, "one");
    // The queue is on again, and the waiting message has not been delivered yet.
    let options = QueueOptions { status: Some(true), ..QueueOptions::default() };
    let mut session = memory.core.begin();
    let on = Verb::Define(vec![Definition::AlterQueue { name: "qt".into(), options }]);
    memory.execute(&mut session, on, NOW).unwrap().unwrap();
    let mut effects = Effects::default();
    memory.core.commit(session, NOW, &mut effects);
    let mut session = memory.core.begin();
    memory.execute(&mut session, send_verb(initiator, "m", "two"), NOW).unwrap().unwrap();
    memory.core.commit(session, NOW, &mut effects);
    memory.write(effects, NOW);
    assert_eq!(bodies(&receive(&mut memory, "qt")), ["one", "two"]);
    assert_recovers(&memory);
}

#[test]
fn a_notification_and_its_conversation_end_together() {
    let mut memory = broker();
    let contract = "http://schemas.microsoft.com/SQL/Notifications/PostEventNotification";
    create_service(&mut memory, "watcher", "qi", &[contract]);
    let notification = |name: &str| Definition::CreateEventNotification {
        name: name.into(),
        queue: "qt".into(),
        event: QueueEvent::QueueActivation,
        service: "watcher".into(),
    };
    define(&mut memory, notification("dropped")).unwrap();
    memory.submit(vec![Verb::PostQueueActivation { queue: "qt".into() }], NOW).unwrap();
    let posted = receive(&mut memory, "qi");
    assert_eq!(posted[0].message_type_id, system::EVENT_NOTIFICATION_ID);
    define(&mut memory, Definition::DropEventNotification { name: "dropped".into(), queue: "qt".into() }).unwrap();
    assert_eq!(receive(&mut memory, "qi")[0].message_type_id, system::END_DIALOG_ID);
    let watched = memory.endpoints().filter(|row| row.is_system).count();
    assert_eq!(watched, 0, "the notification's own end goes with it");
    // The watcher is broken alone, and its END drops the notification.
    define(&mut memory, notification("broken")).unwrap();
    memory.submit(vec![Verb::PostQueueActivation { queue: "qt".into() }], NOW).unwrap();
    let watcher = receive(&mut memory, "qi")[0].conversation_handle;
    set(&mut memory, BrokerOption::ErrorBrokerConversations);
    assert_eq!(error_in(&mut memory, "qi").0, -9719);
    assert_eq!(memory.core.catalog().event_notifications.len(), 1);
    end(&mut memory, watcher, EndForm::Plain);
    assert_eq!(memory.core.catalog().event_notifications.len(), 0);
}

#[test]
fn a_transaction_receives_from_the_group_it_has_moved_a_conversation_to() {
    let mut memory = broker();
    for body in ["1", "2", "3"] {
        let handle = begin(&mut memory, "t", None);
        send(&mut memory, handle, body);
    }
    let targets: Vec<_> = memory.messages().map(|row| row.endpoint_id).collect();
    let row = |endpoint_id: u64| memory.endpoints().find(|row| row.endpoint_id == endpoint_id).unwrap().clone();
    let (moved, stays, alone) = (row(targets[0]), row(targets[1]), row(targets[2]));
    let mut session = memory.core.begin_transaction();
    let verb = Verb::MoveConversation { handle: moved.handle, group: stays.group };
    memory.execute(&mut session, verb, NOW).unwrap().unwrap();
    let from = |group: GroupId| Verb::Receive { queue: "qt".into(), top: None, from: ReceiveFrom::Group(group) };
    let together = received(memory.execute(&mut session, from(stays.group), NOW).unwrap().unwrap());
    let mut together = bodies(&together);
    together.sort();
    assert_eq!(together, ["1", "2"]);
    let other = received(memory.execute(&mut session, from(alone.group), NOW).unwrap().unwrap());
    assert_eq!(bodies(&other), ["3"]);
    memory.commit(session, NOW);
    assert_recovers(&memory);
}

#[test]
fn an_end_that_had_to_wait_ends_the_sender_once_it_has_left() {
    let with_error = EndForm::WithError { code: 7, description: "x".into() };
    for (form, waiting, arrived) in [(EndForm::Plain, ["DO", "CO"], "DI"), (with_error, ["DO", "CO"], "ER")] {
        let mut memory = broker();
        let initiator = begin(&mut memory, "t", None);
        send(&mut memory, initiator, "one");
        alter(&mut memory, "qt", false);
        end(&mut memory, initiator, form);
        assert_eq!(states(&memory), waiting);
        alter(&mut memory, "qt", true);
        assert_eq!(states(&memory), [arrived], "the initiator goes when its END has arrived");
        assert_eq!(receive(&mut memory, "qt").len(), 2);
        assert_recovers(&memory);
    }
}

#[test]
fn messages_behind_a_refused_body_are_held_until_end() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    alter(&mut memory, "qt", false);
    memory.submit(vec![send_verb(initiator, "x", "<open>")], NOW).unwrap();
    send(&mut memory, initiator, "behind");
    alter(&mut memory, "qt", true);
    assert_eq!(states(&memory), ["ER", "ER"]);
    assert_eq!(memory.transmissions().count(), 1);
    assert_recovers(&memory);
    end(&mut memory, initiator, EndForm::Plain);
    assert_eq!(memory.transmissions().count(), 0);
}

/// Conversations to `t` with a message each, their targets at those levels; returns the targets' handles.
pub(super) fn targets_at(memory: &mut Memory, levels: &[u8]) -> Vec<ConversationHandle> {
    for level in levels {
        let handle = begin(memory, "t", None);
        send(memory, handle, &format!("level {level}"));
    }
    let targets: Vec<_> = memory.endpoints().filter(|row| !row.is_initiator).map(|row| row.handle).collect();
    for (handle, level) in targets.iter().zip(levels) {
        memory.submit(vec![Verb::Reprioritise { handle: *handle, level: *level }], NOW).unwrap();
    }
    targets
}

pub(super) fn receive_in(
    memory: &mut Memory,
    session: &mut Session,
    top: Option<u64>,
    from: ReceiveFrom,
) -> Vec<String> {
    let verb = Verb::Receive { queue: "qt".into(), top, from };
    bodies(&received(memory.execute(session, verb, NOW).unwrap().unwrap()))
}

#[test]
fn a_transaction_goes_on_with_its_own_group_where_that_comes_first() {
    let mut memory = broker();
    let one = begin(&mut memory, "t", None);
    send(&mut memory, one, "1");
    let two = begin(&mut memory, "t", None);
    send(&mut memory, two, "2");
    send(&mut memory, one, "3");
    let mut session = memory.core.begin_transaction();
    let mut next = |memory: &mut Memory| receive_in(memory, &mut session, Some(1), ReceiveFrom::Any);
    assert_eq!(next(&mut memory), ["1"]);
    assert_eq!(next(&mut memory), ["2"], "what is left of its own group is younger");
    assert_eq!(next(&mut memory), ["3"]);
    memory.commit(session, NOW);
    // Its own group has the same age as none, and goes first where it is older.
    send(&mut memory, one, "4");
    send(&mut memory, one, "5");
    send(&mut memory, two, "6");
    let mut session = memory.core.begin_transaction();
    assert_eq!(receive_in(&mut memory, &mut session, Some(1), ReceiveFrom::Any), ["4"]);
    assert_eq!(receive_in(&mut memory, &mut session, Some(1), ReceiveFrom::Any), ["5"]);
    assert_eq!(receive_in(&mut memory, &mut session, Some(1), ReceiveFrom::Any), ["6"]);
    memory.commit(session, NOW);
}

#[test]
fn levels_bound_the_groups_of_the_transaction_itself() {
    for level in [3, 4] {
        let mut memory = broker();
        let target = targets_at(&mut memory, &[level])[0];
        let mut session = memory.core.begin_transaction();
        let own = Verb::Reprioritise { handle: target, level };
        memory.execute(&mut session, own, NOW).unwrap().unwrap();
        let mut at = |lowest, highest| {
            let savepoint = memory.core.savepoint(&session);
            let found = receive_in(&mut memory, &mut session, None, ReceiveFrom::Levels { lowest, highest });
            memory.rollback_to(&mut session, savepoint, NOW);
            found.len()
        };
        for lowest in 1..=10 {
            for highest in lowest..=10 {
                let expected = usize::from((lowest..=highest).contains(&level));
                assert_eq!(at(lowest, highest), expected, "level {level}, from {lowest} to {highest}");
            }
        }
        memory.commit(session, NOW);
    }
}

#[test]
fn conversations_of_a_group_are_received_by_level() {
    for levels in [[6, 9], [9, 6], [4, 7]] {
        let mut memory = broker();
        let targets = targets_at(&mut memory, &levels);
        let group = memory.endpoints().find(|row| row.handle == targets[1]).unwrap().group;
        memory.submit(vec![Verb::MoveConversation { handle: targets[0], group }], NOW).unwrap();
        let mut expected = levels.map(|level| format!("level {level}"));
        if levels[0] < levels[1] {
            expected.reverse();
        }
        assert_eq!(bodies(&receive(&mut memory, "qt")), expected);
    }
}

#[test]
fn a_transaction_takes_each_system_message_once() {
    let mut memory = broker();
    let one = begin(&mut memory, "t", None);
    send(&mut memory, one, "1");
    let target = receive(&mut memory, "qt")[0].conversation_handle;
    memory.submit(vec![Verb::BeginConversationTimer { handle: target, timeout_seconds: 1 }], NOW).unwrap();
    memory.tick(NOW.after_seconds(2));
    let two = begin(&mut memory, "t", None);
    send(&mut memory, two, "2");
    send(&mut memory, one, "3");
    let mut session = memory.core.begin_transaction();
    let mut next = |memory: &mut Memory, top| {
        let verb = Verb::Receive { queue: "qt".into(), top, from: ReceiveFrom::Any };
        let messages = received(memory.execute(&mut session, verb, NOW).unwrap().unwrap());
        let types = messages.iter().map(|message| message.message_type_id);
        types.zip(bodies(&messages)).collect::<Vec<_>>()
    };
    let timer = next(&mut memory, Some(1));
    assert_eq!(timer, [(system::DIALOG_TIMER_ID, String::new())]);
    let bodies = |found: Vec<(i32, String)>| found.into_iter().map(|(_, body)| body).collect::<Vec<_>>();
    assert_eq!(bodies(next(&mut memory, None)), ["2"], "the other group is older than what is left of this one");
    assert_eq!(bodies(next(&mut memory, None)), ["3"], "the timer is not taken again");
    assert_eq!(next(&mut memory, None), []);
    memory.commit(session, NOW);
    assert_eq!(memory.messages().count(), 0);
    assert_recovers(&memory);
}

#[test]
fn the_rest_of_a_conversation_counts_its_system_messages_once() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "0");
    let target = receive(&mut memory, "qt")[0].conversation_handle;
    for round in [2, 4] {
        let timer = Verb::BeginConversationTimer { handle: target, timeout_seconds: 1 };
        memory.submit(vec![timer], NOW.after_seconds(round - 1)).unwrap();
        memory.tick(NOW.after_seconds(round));
    }
    for body in ["1", "2", "3", "4"] {
        send(&mut memory, initiator, body);
    }
    let mut session = memory.core.begin_transaction();
    let mut take = |memory: &mut Memory| receive_in(memory, &mut session, Some(5), ReceiveFrom::Conversation(target));
    assert_eq!(take(&mut memory), ["", "", "1", "2", "3"]);
    assert_eq!(take(&mut memory), ["4"]);
    assert!(take(&mut memory).is_empty());
    memory.commit(session, NOW);
    assert_recovers(&memory);
}

#[test]
fn nothing_is_received_on_a_conversation_that_the_transaction_has_ended() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "1");
    let target = memory.endpoints().find(|row| !row.is_initiator).unwrap().handle;
    let receive = || Verb::Receive { queue: "qt".into(), top: None, from: ReceiveFrom::Conversation(target) };
    let mut session = memory.core.begin_transaction();
    memory.execute(&mut session, Verb::EndConversation { handle: target, form: EndForm::Plain }, NOW).unwrap().unwrap();
    let refused = memory.execute(&mut session, receive(), NOW).unwrap_err();
    assert_eq!(refused.code(), crate::Code::CONVERSATION_NOT_FOUND);
    memory.commit(session, NOW);
    assert_eq!(memory.submit(vec![receive()], NOW).unwrap_err().code(), crate::Code::CONVERSATION_NOT_FOUND);
}

#[test]
fn a_body_of_exactly_the_limit_is_taken() {
    let mut memory = broker_with(Limits { max_body_bytes: 9, ..Limits::default() });
    let initiator = begin(&mut memory, "t", None);
    let longest = "x".repeat(9);
    send(&mut memory, initiator, &longest);
    let refused = memory.submit(vec![send_verb(initiator, "m", &(longest + "x"))], NOW).unwrap_err();
    assert_eq!(refused.code(), crate::Code::MESSAGE_TOO_LARGE);
}

#[test]
fn of_each_conversation_only_the_first_message_is_tried_again() {
    let mut memory = broker();
    let (one, two) = (begin(&mut memory, "t", None), begin(&mut memory, "t", None));
    alter(&mut memory, "qt", false);
    for number in 0..20 {
        send(&mut memory, one, &number.to_string());
        send(&mut memory, two, &number.to_string());
    }
    let mut effects = Effects::default();
    let options = QueueOptions { status: Some(true), ..QueueOptions::default() };
    let mut session = memory.core.begin();
    let define = Verb::Define(vec![Definition::AlterQueue { name: "qt".into(), options }]);
    memory.core.execute(&mut session, define, NOW).unwrap();
    memory.core.commit(session, NOW, &mut effects);
    assert_eq!(effects.redeliver.len(), 2, "{:?}", effects.redeliver);
    let first = *effects.redeliver.first().unwrap();
    assert!(memory.core.is_first_to_send(first));
    let second = Redelivery { transmission_id: first.transmission_id + 2, ..first };
    assert!(!memory.core.is_first_to_send(second), "its body need not be read");
    let row = memory.transmissions().find(|row| row.transmission_id == first.transmission_id).unwrap().clone();
    effects.redeliver.clear();
    memory.core.deliver(row, NOW, &mut effects);
    assert_eq!(effects.redeliver.iter().copied().collect::<Vec<_>>(), [second], "a delivery names the next");
}

#[test]
fn a_gap_quarantines_a_group_in_use_when_its_transaction_ends() {
    for is_committed in [true, false] {
        let mut memory = broker();
        let initiator = begin(&mut memory, "t", None);
        send(&mut memory, initiator, "zero");
        send(&mut memory, initiator, "one");
        let mut session = memory.core.begin_transaction();
        assert_eq!(receive_in(&mut memory, &mut session, Some(1), ReceiveFrom::Any), ["zero"]);
        // As if the row of a waiting message were gone.
        let place = memory.core.find(initiator.0).unwrap();
        memory.core.endpoints[place].send_sequence += 1;
        send(&mut memory, initiator, "three");
        if is_committed {
            memory.commit(session, NOW);
        } else {
            memory.rollback(session, NOW);
        }
        let queue_id = memory.core.catalog().queue("qt").unwrap().id;
        assert_eq!(memory.core.depth(queue_id), Depth::default());
        assert!(receive(&mut memory, "qt").is_empty());
        let row = memory.endpoints().find(|row| !row.is_initiator).unwrap();
        assert!(row.is_quarantined);
        let group = row.group;
        memory.submit(vec![Verb::ReleaseQuarantine { group }], NOW).unwrap();
        let left = if is_committed { &["one", "three"][..] } else { &["zero", "one", "three"] };
        assert_eq!(memory.core.depth(queue_id).unread, left.len() as u64);
        assert_eq!(bodies(&receive(&mut memory, "qt")), left);
        assert_eq!(memory.core.depth(queue_id), Depth::default());
    }
}

#[test]
fn a_queue_with_retention_keeps_sent_and_received_messages_until_its_side_ends() {
    let mut memory = broker();
    for queue in ["qi", "qt"] {
        let options = QueueOptions { retention: Some(true), ..QueueOptions::default() };
        define(&mut memory, Definition::AlterQueue { name: queue.into(), options }).unwrap();
    }
    let (one, two) = (begin(&mut memory, "t", None), begin(&mut memory, "t", None));
    send(&mut memory, one, "1");
    send(&mut memory, two, "2");
    assert_eq!((memory.messages().count(), memory.retained().count()), (2, 2), "copies of what was sent");
    let first = receive(&mut memory, "qt");
    assert_eq!(bodies(&first), ["1"]);
    assert_eq!((memory.messages().count(), memory.retained().count()), (1, 3), "and what was received");
    end(&mut memory, first[0].conversation_handle, EndForm::Plain);
    let kept = |memory: &Memory, handle: ConversationHandle| {
        let side = memory.endpoints().find(|row| row.handle == handle).map(|row| row.endpoint_id);
        memory.retained().filter(|(_, row)| Some(row.endpoint_id) == side).count()
    };
    assert_eq!((memory.retained().count(), kept(&memory, one), kept(&memory, two)), (2, 1, 1));
    end(&mut memory, one, EndForm::Plain);
    assert_eq!((memory.retained().count(), kept(&memory, two)), (1, 1));
    assert_recovers(&memory);
}

#[test]
fn a_timer_fires_and_a_lifetime_ends_although_the_clock_stood_in_1970_when_the_database_was_opened() {
    let mut memory = broker();
    let with_timer = begin(&mut memory, "t", None);
    let timer = Verb::BeginConversationTimer { handle: with_timer, timeout_seconds: 60 };
    memory.submit(vec![timer], NOW).unwrap();
    begin(&mut memory, "t", Some(120));
    memory.core = memory.restored(Timestamp(0)).unwrap();
    memory.tick(NOW.after_seconds(120));
    let messages = [receive(&mut memory, "qi"), receive(&mut memory, "qi")].concat();
    let types: Vec<_> = messages.iter().map(|message| message.message_type_id).collect();
    assert_eq!(types, [system::DIALOG_TIMER_ID, system::ERROR_ID]);
}

#[test]
fn a_conversation_of_the_default_lifetime_is_not_registered_until_its_end_is_near() {
    let mut memory = broker();
    let handle = begin(&mut memory, "t", None);
    assert_eq!(memory.core.next_due(), None);
    let lifetime = memory.endpoints().find(|row| row.handle == handle).unwrap().lifetime;
    let years_before = Timestamp(lifetime.0 - 10 * 365 * 86_400 * 1_000_000);
    assert_eq!(memory.restored(Timestamp(0)).unwrap().next_due(), None);
    assert_eq!(memory.restored(years_before).unwrap().next_due(), Some(lifetime));
}

#[test]
fn a_held_group_is_compared_with_free_ones_by_the_level_or_the_age_of_its_best_conversation() {
    // The levels from the oldest message to the youngest, the one whose conversation joins the group of the first, and the ones held.
    type Row = (&'static [u8], Option<usize>, &'static [usize], ReceiveFrom, &'static str);
    let rows: [Row; 5] = [
        (&[2, 9], None, &[1], ReceiveFrom::Oldest, "level 2"),
        (&[2, 9], None, &[0], ReceiveFrom::Any, "level 9"),
        (&[2, 9], None, &[0, 1], ReceiveFrom::Oldest, "level 2"),
        (&[2, 9, 5], Some(1), &[0], ReceiveFrom::Any, "level 9"),
        (&[3, 5, 4], Some(2), &[0], ReceiveFrom::Oldest, "level 4"),
    ];
    for (levels, joins, held, from, expected) in rows {
        let mut memory = broker();
        let targets = targets_at(&mut memory, levels);
        if let Some(joins) = joins {
            let group = memory.endpoints().find(|row| row.handle == targets[0]).unwrap().group;
            let verb = Verb::MoveConversation { handle: targets[joins], group };
            memory.submit(vec![verb], NOW).unwrap().unwrap();
        }
        let mut session = memory.core.begin_transaction();
        for place in held {
            let reply = send_verb(targets[*place], "m", "reply");
            memory.execute(&mut session, reply, NOW).unwrap().unwrap();
        }
        let received = receive_in(&mut memory, &mut session, Some(1), from);
        assert_eq!(received, [expected], "{levels:?}, {joins:?} joined, {held:?} held");
        memory.commit(session, NOW);
    }
}

#[test]
fn a_timer_makes_a_group_with_an_older_message_no_younger() {
    for is_held in [true, false] {
        let mut memory = broker();
        let targets = targets_at(&mut memory, &[5, 5]);
        let timer = Verb::BeginConversationTimer { handle: targets[0], timeout_seconds: 1 };
        memory.submit(vec![timer], NOW).unwrap().unwrap();
        memory.tick(NOW.after_seconds(1));
        let mut session = memory.core.begin_transaction();
        let reply = send_verb(targets[0], "m", "reply");
        if is_held {
            memory.execute(&mut session, reply, NOW).unwrap().unwrap();
        } else {
            // Its lock and unlock rank the group again.
            memory.submit(vec![reply], NOW).unwrap().unwrap();
        }
        let found = memory.execute(&mut session, receive_verb("qt", Some(1)), NOW).unwrap().unwrap();
        let found = received(found);
        let found: Vec<_> = found.iter().map(|one| (one.message_type_id, one.conversation_handle)).collect();
        assert_eq!(found, [(system::DIALOG_TIMER_ID, targets[0])], "held: {is_held}");
        memory.commit(session, NOW);
        assert_recovers(&memory);
    }
}

#[test]
fn a_timer_raises_its_group_to_no_higher_level() {
    let mut memory = broker();
    let targets = targets_at(&mut memory, &[3, 5]);
    let timer = Verb::BeginConversationTimer { handle: targets[0], timeout_seconds: 1 };
    memory.submit(vec![timer], NOW).unwrap().unwrap();
    memory.tick(NOW.after_seconds(1));
    assert_eq!(bodies(&receive(&mut memory, "qt")), ["level 5"]);
}

#[test]
fn an_end_after_the_other_side_is_gone_waits_for_nothing() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "one");
    send(&mut memory, initiator, "two");
    let target = receive(&mut memory, "qt")[0].conversation_handle;
    end(&mut memory, target, EndForm::Cleanup);
    // No other row has the number of the next message now.
    assert_recovers(&memory);
    set(&mut memory, BrokerOption::DisableBroker);
    end(&mut memory, initiator, EndForm::Plain);
    assert_eq!((states(&memory).len(), memory.transmissions().count()), (0, 0));
}

#[test]
fn an_error_whose_text_is_damaged_arrives_all_the_same() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "one");
    alter(&mut memory, "qt", false);
    end(&mut memory, initiator, EndForm::WithError { code: 7, description: "x".into() });
    let mut row = memory.transmissions().next().unwrap().clone();
    row.body = Some(Arc::new(b"damaged".to_vec()));
    let options = QueueOptions { status: Some(true), ..QueueOptions::default() };
    let on = Verb::Define(vec![Definition::AlterQueue { name: "qt".into(), options }]);
    let mut effects = effects_of(&mut memory, on);
    effects.redeliver.clear();
    memory.core.deliver(row, NOW, &mut effects);
    memory.write(effects, NOW);
    let error = receive(&mut memory, "qt").remove(0);
    let (code, _) = system::parse_error_body(error.message_body.as_deref().unwrap()).unwrap();
    assert_eq!(code, -8462);
}

#[test]
fn a_release_leaves_the_numbers_of_a_broken_conversation() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "one");
    memory.submit(vec![send_verb(initiator, "x", "<open>")], NOW).unwrap();
    assert_eq!(states(&memory), ["ER", "ER"]);
    let group = memory.endpoints().find(|row| !row.is_initiator).unwrap().group;
    memory.submit(vec![Verb::ReleaseQuarantine { group }], NOW).unwrap().unwrap();
    assert_recovers(&memory);
    let messages = receive(&mut memory, "qt");
    let types: Vec<_> = messages.iter().map(|message| message.message_type_id).collect();
    assert_eq!((types.len(), types[0]), (2, system::ERROR_ID));
    assert_eq!(messages[1].message_body.as_deref(), Some(&b"one"[..]));
    assert_eq!(messages[1].message_sequence_number, 0);
}
