//! Effects of definitions on open sessions, on conversations and on event notifications.

use super::edges::{begin_over, create_contract, create_service, define, error_in, set};
use super::*;
use crate::Code;
use crate::protocol::definition::{BrokerOption, QueueEvent};

#[test]
fn definitions_and_other_verbs_do_not_mix_in_a_unit() {
    let mut memory = broker();
    let handle = begin(&mut memory, "t", None);
    send(&mut memory, handle, "waits");
    let definition = || {
        let name = "n".into();
        Verb::Define(vec![Definition::CreateMessageType { name, owner: None, validation: Validation::None }])
    };
    // The first only takes a lock, the second only does something, the third both.
    let others = [
        Verb::GetConversationGroup { queue: "qt".into() },
        Verb::PostQueueActivation { queue: "qt".into() },
        send_verb(handle, "m", "never"),
    ];
    for other in others {
        for unit in [vec![other.clone(), definition()], vec![definition(), other.clone()]] {
            let refused = memory.submit(unit, NOW).unwrap_err();
            assert_eq!(refused.code(), Code::DEFINITION_IN_TRANSACTION, "{other:?}");
        }
    }
    assert!(memory.submit(vec![definition()], NOW).unwrap().is_some());
    assert_eq!(bodies(&receive(&mut memory, "qt")), ["waits"]);
}

#[test]
fn a_new_broker_waits_for_each_session_that_holds_a_conversation() {
    let mut memory = broker();
    let handle = begin(&mut memory, "t", None);
    let mut session = memory.core.begin_transaction();
    memory.execute(&mut session, send_verb(handle, "m", "x"), NOW).unwrap().unwrap();
    let new_broker = || Definition::AlterDatabase { option: BrokerOption::NewBroker };
    assert!(define(&mut memory, new_broker()).is_none());
    memory.commit(session, NOW);
    assert_eq!(depth(&memory, "qt"), (1, 1));
    assert!(define(&mut memory, new_broker()).is_some());
    assert_eq!((states(&memory).len(), memory.messages().count(), depth(&memory, "qt")), (0, 0, (0, 0)));
}

/// The conversation that it waited for is gone by then.
#[test]
fn a_hold_ends_with_its_definition() {
    let mut memory = broker();
    create_service(&mut memory, "other", "qt", &["c"]);
    for (to, text) in [("t", "first"), ("other", "second")] {
        let handle = begin(&mut memory, to, None);
        send(&mut memory, handle, text);
    }
    let mut session = memory.core.begin_transaction();
    let verb = Verb::Receive { queue: "qt".into(), top: Some(1), from: ReceiveFrom::Any };
    let Ok(Some(Outcome::Received(received))) = memory.execute(&mut session, verb, NOW) else { panic!("it waits") };
    let drop_service = || Definition::DropService { name: "t".into() };
    for seconds in [0, 1] {
        assert!(define(&mut memory, drop_service()).is_none());
        memory.core.definition_waits(NOW.after_seconds(seconds), &mut Effects::default());
    }
    assert_eq!((depth(&memory, "qt"), receive(&mut memory, "qt")), ((0, 1), Vec::new()));
    let cleanup = Verb::EndConversation { handle: received[0].conversation_handle, form: EndForm::Cleanup };
    memory.execute(&mut session, cleanup, NOW).unwrap().unwrap();
    memory.commit(session, NOW);
    assert!(define(&mut memory, drop_service()).is_some());
    assert_eq!((depth(&memory, "qt"), memory.core.next_due()), ((1, 1), None));
    assert_eq!(bodies(&receive(&mut memory, "qt")), ["second"]);
}

#[test]
fn a_service_that_loses_a_contract_breaks_its_own_conversations_over_it() {
    let mut memory = broker();
    create_contract(&mut memory, "kept");
    let add = |service: &str, add: &[&str], drop: &[&str]| Definition::AlterService {
        name: service.into(),
        queue: None,
        add_contracts: add.iter().map(ToString::to_string).collect(),
        drop_contracts: drop.iter().map(ToString::to_string).collect(),
    };
    define(&mut memory, add("t", &["kept"], &[])).unwrap();
    create_service(&mut memory, "other", "qt", &["c"]);
    for (to, contract) in [("t", "c"), ("t", "kept"), ("other", "c")] {
        let handle = begin_over(&mut memory, to, contract, Addressee::Anywhere);
        send(&mut memory, handle, "x");
    }
    while !receive(&mut memory, "qt").is_empty() {}
    define(&mut memory, add("t", &[], &["c"])).unwrap();
    assert_eq!(states(&memory), ["ER", "ER", "CO", "CO", "CO", "CO"]);
    assert_eq!(error_in(&mut memory, "qt").0, -8468, "its own side");
    assert_eq!(error_in(&mut memory, "qi").0, -8469, "the remote side");
    assert_recovers(&memory);
}

#[test]
fn the_messages_of_a_service_move_to_its_new_queue() {
    let mut memory = broker();
    let queue = Definition::CreateQueue { name: "new".into(), options: QueueOptions::default() };
    define(&mut memory, queue).unwrap();
    create_service(&mut memory, "stays", "qt", &["c"]);
    for (to, messages) in [("t", 2), ("t", 1), ("stays", 1)] {
        let handle = begin(&mut memory, to, None);
        for _ in 0..messages {
            send(&mut memory, handle, "x");
        }
    }
    assert_eq!(depth(&memory, "qt"), (3, 4));
    let (add_contracts, drop_contracts) = Default::default();
    let service =
        Definition::AlterService { name: "t".into(), queue: Some("new".into()), add_contracts, drop_contracts };
    let effects = effects_of(&mut memory, Verb::Define(vec![service]));
    assert_eq!((depth(&memory, "qt"), depth(&memory, "new")), ((1, 1), (2, 3)));
    let new = memory.core.catalog().queue("new").unwrap().id;
    let wakes: usize = effects.arrivals.iter().filter(|one| one.queue_id == new).map(|one| one.newly_ready).sum();
    assert_eq!(wakes, 2, "a receiver for each group");
    memory.write(effects, NOW);
    assert_eq!(receive(&mut memory, "new").len(), 2);
    assert_recovers(&memory);
}

#[test]
fn a_notification_gets_only_its_event_and_queue_and_survives_a_new_broker() {
    let mut memory = broker();
    let contract = "http://schemas.microsoft.com/SQL/Notifications/PostEventNotification";
    create_service(&mut memory, "watcher", "qi", &[contract]);
    let (activation, disabled) = (QueueEvent::QueueActivation, QueueEvent::BrokerQueueDisabled);
    for (name, queue, event) in [("a", "qt", activation), ("b", "qt", disabled), ("c", "qi", activation)] {
        let (name, queue, service) = (name.into(), queue.into(), "watcher".into());
        define(&mut memory, Definition::CreateEventNotification { name, queue, event, service }).unwrap();
    }
    for _ in 0..2 {
        for round in ["first", "second"] {
            memory.submit(vec![Verb::PostQueueActivation { queue: "qt".into() }], NOW).unwrap();
            assert_recovers(&memory);
            let posted = receive(&mut memory, "qi");
            assert_eq!(posted.len(), 1, "{round}");
            assert_eq!(posted[0].message_type_id, system::EVENT_NOTIFICATION_ID, "{round}");
            assert!(receive(&mut memory, "qi").is_empty(), "{round}: one notification asked for this event");
        }
        set(&mut memory, BrokerOption::NewBroker);
        assert_eq!(states(&memory), ["SO", "SO", "SO"], "each notification begins again");
    }
}

#[test]
fn a_service_loses_a_contract_of_a_conversation_whose_initiator_is_gone() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "x");
    assert_eq!(bodies(&receive(&mut memory, "qt")), ["x"]);
    end(&mut memory, initiator, EndForm::Cleanup);
    assert_eq!(states(&memory), ["CO"], "the target alone");
    define(
        &mut memory,
        Definition::AlterService {
            name: "t".into(),
            queue: None,
            add_contracts: Vec::new(),
            drop_contracts: vec!["c".into()],
        },
    )
    .unwrap();
    assert_eq!(states(&memory), ["ER"]);
    assert_eq!(error_in(&mut memory, "qt").0, -8468);
    assert!(receive(&mut memory, "qi").is_empty());
}
