//! Opening from rows: sound rows give the same broker, damaged rows a report.

use super::edges::{begin_over, define, set};
use super::*;
use crate::protocol::definition::{AnyOr, BrokerOption, PriorityOptions};

/// The rows of a broker, and its marks.
struct Rows {
    catalog: crate::catalog::Catalog,
    endpoints: Vec<EndpointRow>,
    messages: Vec<MessageRow>,
    transmissions: Vec<TransmissionRow>,
    /// By endpoint id, as far as it has received.
    received: Vec<(u64, u64)>,
    marks: (u64, u64, u64),
}

fn rows(memory: &Memory) -> Rows {
    Rows {
        catalog: (**memory.core.catalog()).clone(),
        endpoints: memory.endpoints().cloned().collect(),
        messages: memory.messages().cloned().collect(),
        transmissions: memory.transmissions().cloned().collect(),
        received: Vec::new(),
        marks: memory.core.counters(),
    }
}

impl Rows {
    fn restore(self) -> Restored {
        let mut restore = Restore::new(self.catalog, crate::id::IdSource::Counted(1 << 60), Limits::default());
        restore.counters(self.marks.0, self.marks.1, self.marks.2);
        for row in self.endpoints {
            restore.endpoint(row);
        }
        for (endpoint_id, receive_sequence) in self.received {
            restore.received_up_to(endpoint_id, receive_sequence);
        }
        for row in self.messages {
            restore.message(row.queuing_order, row.endpoint_id, row.delivery_class, row.sequence, row.message_type_id);
        }
        for row in self.transmissions {
            let (is_end, is_error) = (row.is_end_of_dialog, row.is_conversation_error);
            restore.transmission(row.transmission_id, row.endpoint_id, row.sequence, row.priority, is_end, is_error);
        }
        restore.finish(NOW).unwrap()
    }

    /// The tables that the repairs name.
    fn tables(self) -> Vec<&'static str> {
        self.restore().repairs.into_list().into_iter().map(|repair| repair.table).collect()
    }
}

#[test]
fn a_message_that_waits_for_an_erased_target_waits_after_a_restart_too() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "arrives");
    let target = memory.endpoints().find(|row| row.handle != initiator).unwrap().handle;
    alter(&mut memory, "qt", false);
    send(&mut memory, initiator, "waits");
    end(&mut memory, target, EndForm::Cleanup);
    memory.core = memory.restored(NOW).unwrap();
    memory.tick(NOW);
    assert_eq!((states(&memory), memory.transmissions().count()), (vec!["CO"], 1));
    alter(&mut memory, "qt", true);
    assert_eq!((states(&memory), memory.transmissions().count()), (vec!["ER"], 0));
}

#[test]
fn each_number_above_its_mark_is_reported_and_not_given_out_again() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "arrives");
    let waiting = begin(&mut memory, "nowhere", None);
    for body in ["waits", "too"] {
        send(&mut memory, waiting, body);
    }
    let highest = (
        memory.messages().map(|row| row.queuing_order).max().unwrap(),
        memory.endpoints().map(|row| row.endpoint_id).max().unwrap(),
        memory.transmissions().map(|row| row.transmission_id).max().unwrap(),
    );
    let next = (highest.0 + 1, highest.1 + 1, highest.2 + 1);
    assert_eq!(memory.core.counters(), next);
    assert!(rows(&memory).tables().is_empty());
    for marks in [(highest.0, next.1, next.2), (next.0, highest.1, next.2), (next.0, next.1, highest.2), (1, 1, 1)] {
        let low = || Rows { marks, ..rows(&memory) };
        assert_eq!(low().tables(), ["dialoq_broker"], "{marks:?}");
        assert_eq!(low().restore().core.counters(), next, "{marks:?}");
    }
    let marks = (100, 200, 300);
    let high = Rows { marks, ..rows(&memory) }.restore();
    assert_eq!((high.core.counters(), high.repairs.into_list()), (marks, Vec::new()));
}

#[test]
fn the_number_of_a_dead_letter_is_not_given_out_again() {
    let Rows { catalog, .. } = rows(&broker());
    let mut restore = Restore::new(catalog, crate::id::IdSource::Counted(1 << 60), Limits::default());
    restore.dead_letter(7, 1, ConversationHandle(uuid::Uuid::from_u128(1)), DeliveryClass::Sequenced, 0);
    assert_eq!(restore.finish(NOW).unwrap().core.counters().0, 8);
}

#[test]
fn messages_before_a_gap_that_was_accepted_keep_their_numbers() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    for body in ["0", "1", "2"] {
        send(&mut memory, initiator, body);
    }
    let mut rows = rows(&memory);
    rows.received = vec![(rows.messages[0].endpoint_id, 9)];
    let core = rows.restore().core;
    let (_, target) = core.endpoints.iter().find(|(_, endpoint)| !endpoint.is_initiator).unwrap();
    let numbers: Vec<_> = target.system_rows().iter().map(|row| row.sequence).collect();
    assert_eq!((numbers, target.receive_sequence), (vec![0, 1, 2], 9));
}

#[test]
fn a_gap_among_waiting_messages_sets_their_group_aside() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    for body in ["0", "1", "2"] {
        send(&mut memory, initiator, body);
    }
    let mut rows = rows(&memory);
    rows.messages.remove(1);
    let restored = rows.restore();
    let aside: Vec<_> = restored.core.endpoints.iter().map(|(_, endpoint)| endpoint.is_quarantined).collect();
    assert_eq!(aside, [false, true]);
    let repairs = restored.repairs.into_list();
    assert_eq!((repairs.len(), repairs[0].table), (1, "dialoq_queue_message"));
    assert!(repairs[0].example.contains("number 2 instead of 1"), "{}", repairs[0]);
}

#[test]
fn a_priority_without_its_contract_or_without_its_service_is_removed() {
    let mut memory = broker();
    let set = PriorityOptions {
        contract: Some(AnyOr::Name("c".into())),
        local_service: Some(AnyOr::Name("i".into())),
        remote_service: None,
        level: Some(9),
    };
    define(&mut memory, Definition::CreateBrokerPriority { name: "p".into(), set }).unwrap();
    let damaged = |change: fn(&mut crate::catalog::Priority)| {
        let mut rows = rows(&memory);
        rows.catalog.priorities.values_mut().for_each(|priority| change(Arc::make_mut(priority)));
        rows.tables()
    };
    assert!(damaged(|_| {}).is_empty());
    assert_eq!(damaged(|priority| priority.contract_id = Some(9999)), ["dialoq_conversation_priority"]);
    assert_eq!(damaged(|priority| priority.local_service_id = Some(9999)), ["dialoq_conversation_priority"]);
}

#[test]
fn a_next_object_id_that_is_in_use_is_raised_above_all() {
    let memory = broker();
    let next = memory.core.catalog().settings.next_object_id;
    for id in [1, next - 1, next, next + 1] {
        let mut rows = rows(&memory);
        rows.catalog.settings.next_object_id = id;
        let restored = rows.restore();
        assert_eq!(restored.core.catalog().settings.next_object_id, id.max(next));
        assert_eq!(restored.repairs.into_list().len(), usize::from(id < next), "{id} instead of {next}");
    }
}

#[test]
fn an_endpoint_is_restored_with_its_rare_fields() {
    let mut memory = broker();
    let far = Addressee::Instance(uuid::Uuid::from_u128(7).to_string().into());
    let elsewhere = begin_over(&mut memory, "t", "c", far);
    send(&mut memory, elsewhere, "another broker's");
    assert_recovers(&memory);
    end(&mut memory, elsewhere, EndForm::Plain);
    let row = memory.endpoints().next().unwrap();
    assert!(row.far_broker_instance.is_some() && row.end_dialog_sequence.is_some());
    assert_recovers(&memory);

    let without_target = begin(&mut memory, "nowhere", None);
    send(&mut memory, without_target, "waits");
    end(&mut memory, without_target, EndForm::Plain);
    let row = memory.endpoints().last().unwrap();
    assert!(row.far_broker_instance.is_none() && row.end_dialog_sequence.is_some());
    assert_recovers(&memory);

    let timed = begin(&mut memory, "t", None);
    memory.submit(vec![Verb::BeginConversationTimer { handle: timed, timeout_seconds: 9 }], NOW).unwrap();
    assert_recovers(&memory);
    send(&mut memory, timed, "one");
    let target = receive(&mut memory, "qt")[0].conversation_handle;
    send(&mut memory, target, "an answer");
    end(&mut memory, target, EndForm::Plain);
    end(&mut memory, timed, EndForm::Plain);
    assert!(memory.endpoints().last().unwrap().security_timestamp.is_some());
    assert_recovers(&memory);
}

#[test]
fn waiting_messages_are_tried_at_the_first_tick_after_an_opening() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    assert_eq!(rows(&memory).restore().core.next_due(), None, "nothing waits");
    set(&mut memory, BrokerOption::DisableBroker);
    send(&mut memory, initiator, "waits");
    let mut rows = rows(&memory);
    rows.catalog.settings.is_broker_enabled = true;
    let (mut core, mut effects) = (rows.restore().core, Effects::default());
    assert_eq!(core.next_due(), Some(Timestamp(0)));
    core.tick(NOW, &mut effects);
    assert_eq!((effects.redeliver.len(), core.next_due()), (1, None));
}

/// A conversation whose target has received one message, with two more in the transmission queue.
fn waiting() -> Memory {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "0");
    alter(&mut memory, "qt", false);
    send(&mut memory, initiator, "1");
    send(&mut memory, initiator, "2");
    memory
}

#[test]
fn a_gap_between_waiting_and_received_messages_quarantines_the_receivers_group() {
    assert!(rows(&waiting()).tables().is_empty());
    let damaged = |change: &dyn Fn(&mut Rows)| {
        let mut rows = rows(&waiting());
        rows.transmissions.remove(0);
        change(&mut rows);
        rows.restore()
    };
    let aside = |restored: &Restored| -> Vec<(bool, bool)> {
        let endpoints = restored.core.endpoints.iter().map(|(_, endpoint)| endpoint);
        endpoints.map(|endpoint| (endpoint.is_initiator, endpoint.is_quarantined)).collect()
    };
    let restored = damaged(&|_| {});
    assert_eq!(aside(&restored), [(true, false), (false, true)]);
    let changed: Vec<_> = restored.changes.iter().filter(|change| matches!(change, Change::PutEndpoint(_))).collect();
    assert_eq!(changed.len(), 1);
    let repairs = restored.repairs.into_list();
    assert_eq!((repairs.len(), repairs[0].table), (1, "dialoq_conversation_endpoint"));
    assert!(repairs[0].example.contains("received 1 messages; number 2 is next"), "{}", repairs[0]);
    // A receiver that takes nothing in, or whose group is set aside already, and a sender that holds its messages until
    // END.
    let states: [&dyn Fn(&mut Rows); 5] = [
        &|rows| rows.endpoints[1].state = ConversationState::DisconnectedInbound,
        &|rows| rows.endpoints[1].state = ConversationState::Error,
        &|rows| rows.endpoints[1].is_quarantined = true,
        &|rows| rows.endpoints[0].state = ConversationState::DisconnectedInbound,
        &|rows| rows.endpoints[0].state = ConversationState::Error,
    ];
    for (case, state) in states.into_iter().enumerate() {
        let restored = damaged(state);
        assert_eq!((restored.repairs.into_list(), restored.changes), (Vec::new(), Vec::new()), "case {case}");
    }
}

#[test]
fn a_release_accepts_missing_messages_before_waiting_ones() {
    let mut rows = rows(&waiting());
    rows.transmissions.remove(0);
    // As if the first message were received.
    rows.messages.clear();
    rows.endpoints[1].receive_sequence = 1;
    let mut core = rows.restore().core;
    let (place, group) =
        core.endpoints.iter().find(|(_, one)| !one.is_initiator).map(|(at, one)| (at, one.group)).unwrap();
    let group = GroupId(core.groups[group].id);
    for notes in [1, 0] {
        let (mut session, mut effects) = (core.begin(), Effects::default());
        core.execute(&mut session, Verb::ReleaseQuarantine { group }, NOW).unwrap();
        core.commit(session, NOW, &mut effects);
        assert_eq!((core.endpoints[place].receive_sequence, core.endpoints[place].is_quarantined), (2, false));
        let is_note = |change: &&Change| matches!(change, Change::NoteReceiveSequence { receive_sequence: 2, .. });
        assert_eq!(effects.changes.iter().filter(is_note).count(), notes, "a second release has nothing to accept");
    }
}

#[test]
fn an_error_that_waits_may_have_any_number() {
    for (is_conversation_error, repairs) in [(false, 1), (true, 0)] {
        let mut rows = rows(&waiting());
        rows.transmissions[1].sequence = 9;
        rows.transmissions[1].is_conversation_error = is_conversation_error;
        let tables = rows.tables();
        assert_eq!(tables.iter().filter(|table| **table == "dialoq_transmission").count(), repairs, "{tables:?}");
    }
}

#[test]
fn rows_of_an_earlier_conversation_are_kept_and_rows_of_none_are_removed() {
    let memory = waiting();
    let next = memory.core.counters().1;
    for (endpoint_id, is_removed) in [(next - 1, false), (next, true), (next + 1, true)] {
        let mut rows = rows(&memory);
        rows.endpoints.retain(|row| row.is_initiator);
        rows.messages[0].endpoint_id = endpoint_id;
        for row in &mut rows.transmissions {
            row.endpoint_id = endpoint_id;
        }
        let restored = rows.restore();
        assert_eq!(restored.changes.len(), if is_removed { 3 } else { 0 }, "{endpoint_id}: {:?}", restored.changes);
        assert_eq!(restored.repairs.into_list().len(), 3, "{endpoint_id}: each row is named");
    }
}

#[test]
fn a_broker_that_was_opened_again_has_no_open_transaction() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    let mut session = memory.core.begin_transaction();
    memory.execute(&mut session, send_verb(initiator, "m", "lost"), NOW).unwrap().unwrap();
    memory.reopen(NOW).unwrap();
    assert!(memory.submit(vec![send_verb(initiator, "m", "kept")], NOW).unwrap().is_some(), "the group is free");
    assert_eq!(bodies(&receive(&mut memory, "qt")), ["kept"]);
}
