//! The core by itself: the paths that every other test relies on.

use super::*;
use crate::catalog::body::Verdict;
use crate::id::{ConversationHandle, GroupId};
use crate::protocol::definition::{ContractEntry, Definition, QueueOptions, SentBy, Validation};
use crate::protocol::*;
use crate::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;

mod bounds;
mod definition_waits;
mod definitions;
mod edges;
mod random;
mod refusals;
mod restoring;
mod retries;
mod sessions;

const NOW: Timestamp = Timestamp(1_800_000_000_000_000);

fn broker() -> Memory {
    broker_with(Limits::default())
}

fn broker_with(limits: Limits) -> Memory {
    let mut memory = Memory::new(limits);
    let queue = |name: &str| Definition::CreateQueue { name: name.into(), options: QueueOptions::default() };
    let service = |name: &str, queue: &str, contracts: &[&str]| Definition::CreateService {
        name: name.into(),
        owner: None,
        queue: queue.into(),
        contracts: contracts.iter().map(ToString::to_string).collect(),
    };
    let definitions = vec![
        Definition::CreateMessageType { name: "m".into(), owner: None, validation: Validation::None },
        Definition::CreateMessageType { name: "x".into(), owner: None, validation: Validation::WellFormedXml },
        Definition::CreateContract {
            name: "c".into(),
            owner: None,
            entries: ["m", "x"].map(|name| ContractEntry { message_type: name.into(), sent_by: SentBy::Any }).into(),
        },
        queue("qi"),
        queue("qt"),
        service("i", "qi", &[]),
        service("t", "qt", &["c"]),
    ];
    memory.submit(vec![Verb::Define(definitions)], NOW).unwrap();
    memory
}

fn alter(memory: &mut Memory, queue: &str, status: bool) {
    let options = QueueOptions { status: Some(status), ..QueueOptions::default() };
    memory.submit(vec![Verb::Define(vec![Definition::AlterQueue { name: queue.into(), options }])], NOW).unwrap();
}

fn begin(memory: &mut Memory, to: &str, lifetime_seconds: Option<i64>) -> ConversationHandle {
    let dialog = BeginDialog {
        from_service: "i".into(),
        to_service: to.into(),
        addressee: Addressee::Anywhere,
        contract: Some("c".into()),
        related: Relation::None,
        lifetime_seconds,
        encryption: false,
    };
    match &memory.submit(vec![Verb::BeginDialog(dialog)], NOW).unwrap().unwrap()[..] {
        [Outcome::Began { handle, .. }] => *handle,
        other => panic!("{other:?}"),
    }
}

fn send_verb(handle: ConversationHandle, message_type: &str, body: &str) -> Verb {
    let body = Some(Arc::new(body.as_bytes().to_vec()));
    Verb::Send { handles: vec![handle], message_type: Some(message_type.into()), body, trace: None }
}

fn send(memory: &mut Memory, handle: ConversationHandle, body: &str) {
    memory.submit(vec![send_verb(handle, "m", body)], NOW).unwrap();
}

fn receive_verb(queue: &str, top: Option<u64>) -> Verb {
    Verb::Receive { queue: queue.into(), top, from: ReceiveFrom::Any }
}

fn receive(memory: &mut Memory, queue: &str) -> Vec<Message> {
    received(memory.submit(vec![receive_verb(queue, None)], NOW).unwrap().unwrap().remove(0))
}

fn received(outcome: Outcome) -> Vec<Message> {
    match outcome {
        Outcome::Received(messages) => messages,
        other => panic!("{other:?}"),
    }
}

fn end(memory: &mut Memory, handle: ConversationHandle, form: EndForm) {
    memory.submit(vec![Verb::EndConversation { handle, form }], NOW).unwrap();
}

fn bodies(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|m| String::from_utf8_lossy(m.message_body.as_deref().unwrap_or_default()).into()).collect()
}

fn states(memory: &Memory) -> Vec<&'static str> {
    memory.endpoints().map(|row| row.state.code()).collect()
}

fn row_of(core: &Core, endpoint: &super::endpoint::Endpoint) -> EndpointRow {
    endpoint.to_row(
        core.groups[endpoint.group].id,
        core.groups[endpoint.group].rollbacks,
        core.names.name(endpoint.far_service).clone(),
    )
}

/// A commit of one verb, with its effects not yet written.
fn effects_of(memory: &mut Memory, verb: Verb) -> Effects {
    let (mut session, mut effects) = (memory.core.begin(), Effects::default());
    assert!(matches!(memory.core.execute(&mut session, verb, NOW), Ok(Step::Done(_))));
    memory.core.commit(session, NOW, &mut effects);
    effects
}

fn depth(memory: &Memory, queue: &str) -> (usize, u64) {
    let depth = memory.core.depth(memory.core.catalog().queue(queue).unwrap().id);
    (depth.ready_groups, depth.unread)
}

/// A broker restored from the rows must answer as the one that wrote them: compared by their next writes.
fn assert_recovers(memory: &Memory) {
    let core = memory.restored(NOW).unwrap();
    for queue in core.catalog().queues.keys() {
        assert_eq!(core.depth(*queue), memory.core.depth(*queue), "depth of queue {queue}");
    }
    assert_eq!(core.next_due().is_some(), memory.core.next_due().is_some() || core.is_restored);
    for (_, endpoint) in memory.core.endpoints.iter() {
        let place = core.find(endpoint.handle).expect("every endpoint is restored");
        let restored = &core.endpoints[place];
        assert_eq!(restored.send_sequence, endpoint.send_sequence, "send_sequence");
        assert_eq!(restored.receive_sequence, endpoint.receive_sequence, "receive_sequence");
        assert!(restored.rows.iter().eq(endpoint.rows.iter()), "rows");
        assert_eq!(restored.system_rows(), endpoint.system_rows());
        assert_eq!(restored.state, endpoint.state);
        assert_eq!(restored.is_peer_known, endpoint.is_peer_known, "{endpoint:?}");
        assert_eq!(row_of(&core, restored), row_of(&memory.core, endpoint));
    }
}

#[test]
fn a_conversation_runs_from_begin_to_both_ends() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    assert_eq!(states(&memory), ["SO"]);
    send(&mut memory, initiator, "one");
    send(&mut memory, initiator, "two");
    assert_eq!(states(&memory), ["CO", "CO"]);
    assert_recovers(&memory);
    let messages = receive(&mut memory, "qt");
    assert_eq!(bodies(&messages), ["one", "two"]);
    assert_eq!(messages[1].message_sequence_number, 1);
    assert_recovers(&memory);
    let target = messages[0].conversation_handle;
    send(&mut memory, target, "reply");
    end(&mut memory, target, EndForm::Plain);
    assert_eq!(states(&memory), ["DI", "CD"]);
    let messages = receive(&mut memory, "qi");
    assert_eq!(messages.len(), 2);
    assert_eq!(&*messages[1].message_type_name, system::END_DIALOG);
    assert_recovers(&memory);
    end(&mut memory, initiator, EndForm::Plain);
    assert_eq!(states(&memory), ["CD"]);
    assert_recovers(&memory);
    memory.tick(NOW.after(Duration::from_secs(29 * 60)));
    assert_eq!(states(&memory), ["CD"], "a closed target endpoint is kept for half an hour");
    memory.tick(NOW.after(Duration::from_secs(31 * 60)));
    assert_eq!(states(&memory).len(), 0, "a closed target endpoint goes after half an hour");
    assert_eq!(memory.core.groups.iter().count(), 0, "groups go with their last conversation");
}

#[test]
fn a_rollback_gives_everything_back_and_five_disable_the_queue() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "one");
    for _ in 0..5 {
        let mut session = memory.core.begin_transaction();
        let outcome = memory.execute(&mut session, receive_verb("qt", None), NOW).unwrap().unwrap();
        let messages = received(outcome);
        assert_eq!(bodies(&messages), ["one"]);
        let handle = messages[0].conversation_handle;
        memory.execute(&mut session, send_verb(handle, "m", "never"), NOW).unwrap().unwrap();
        let ended = Verb::EndConversation { handle, form: EndForm::Plain };
        memory.execute(&mut session, ended, NOW).unwrap().unwrap();
        memory.rollback(session, NOW);
        assert_recovers(&memory);
    }
    let refused = memory.submit(vec![receive_verb("qt", None)], NOW).unwrap_err();
    assert_eq!(refused.code(), crate::Code::QUEUE_DISABLED);
    assert_eq!(states(&memory), ["CO", "CO"]);
    send(&mut memory, initiator, "two");
    assert_eq!(memory.transmissions().count(), 1);
    assert_recovers(&memory);
    alter(&mut memory, "qt", true);
    assert_eq!(memory.transmissions().count(), 0);
    assert_eq!(bodies(&receive(&mut memory, "qt")), ["one", "two"]);
    assert_recovers(&memory);
}

#[test]
fn transactions_that_were_open_when_poison_turned_a_queue_off_do_not_turn_it_off_again() {
    let mut memory = broker();
    let mut open = Vec::new();
    for _ in 0..10 {
        let initiator = begin(&mut memory, "t", None);
        send(&mut memory, initiator, "one");
        let mut session = memory.core.begin_transaction();
        memory.execute(&mut session, receive_verb("qt", None), NOW).unwrap().unwrap();
        open.push(session);
    }
    let mut effects = Effects::default();
    for session in open {
        memory.core.rollback(session, NOW, &mut effects);
    }
    let turned_off = effects.changes.iter().filter(|change| matches!(change, Change::PutQueue(_))).count();
    assert_eq!(turned_off, 1, "nor is its event posted again");
}

#[test]
fn locks_block_sends_and_hide_groups_and_deadlocks_are_found() {
    let mut memory = broker();
    let (one, two) = (begin(&mut memory, "t", None), begin(&mut memory, "t", None));
    let (mut a, mut b) = (memory.core.begin_transaction(), memory.core.begin_transaction());
    memory.execute(&mut a, send_verb(one, "m", "a"), NOW).unwrap().unwrap();
    memory.execute(&mut b, send_verb(two, "m", "b"), NOW).unwrap().unwrap();
    assert!(memory.submit(vec![send_verb(one, "m", "c")], NOW).unwrap().is_none());
    let Step::Blocked(two_is_held) = memory.core.execute(&mut a, send_verb(two, "m", "a"), NOW).unwrap() else {
        panic!("the group is free")
    };
    memory.core.wait(&a, two_is_held).unwrap();
    let Step::Blocked(one_is_held) = memory.core.execute(&mut b, send_verb(one, "m", "b"), NOW).unwrap() else {
        panic!("the group is free")
    };
    assert_eq!(memory.core.wait(&b, one_is_held).unwrap_err().code(), crate::Code::DEADLOCK);
    memory.rollback(b, NOW);
    memory.core.stop_waiting(&a);
    memory.execute(&mut a, send_verb(two, "m", "a2"), NOW).unwrap().unwrap();
    memory.commit(a, NOW);
    assert_eq!(bodies(&receive(&mut memory, "qt")), ["a"]);
    assert_eq!(bodies(&receive(&mut memory, "qt")), ["a2"]);
    assert_recovers(&memory);
}

#[test]
fn a_savepoint_gives_the_message_back_but_keeps_the_lock() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "one");
    let mut session = memory.core.begin_transaction();
    let savepoint = memory.core.savepoint(&session);
    memory.execute(&mut session, receive_verb("qt", None), NOW).unwrap();
    memory.rollback_to(&mut session, savepoint, NOW);
    assert!(receive(&mut memory, "qt").is_empty(), "the group is still locked");
    let again = memory.execute(&mut session, receive_verb("qt", None), NOW).unwrap().unwrap();
    assert_eq!(bodies(&received(again)), ["one"]);
    memory.commit(session, NOW);
    assert!(receive(&mut memory, "qt").is_empty());
}

#[test]
fn an_undeliverable_message_waits_or_breaks_the_conversation() {
    let mut memory = broker();
    let nowhere = begin(&mut memory, "nowhere", Some(60));
    send(&mut memory, nowhere, "a");
    assert!(memory.transmissions().all(|row| row.status.starts_with("9793")));
    let wrong = begin(&mut memory, "i", None);
    send(&mut memory, wrong, "b");
    let messages = receive(&mut memory, "qi");
    let (code, _) = system::parse_error_body(messages[0].message_body.as_deref().unwrap()).unwrap();
    assert_eq!(code, -8408);
    assert_eq!(memory.transmissions().count(), 2);
    assert_recovers(&memory);
    end(&mut memory, wrong, EndForm::Plain);
    assert_eq!(memory.transmissions().count(), 1);
    memory.tick(NOW.after_seconds(61));
    assert_eq!(receive(&mut memory, "qi")[0].message_type_id, system::ERROR_ID);
    end(&mut memory, nowhere, EndForm::Plain);
    assert_eq!((memory.transmissions().count(), states(&memory).len()), (0, 0));
}

#[test]
fn a_bad_body_breaks_both_sides() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    memory.submit(vec![send_verb(initiator, "x", "<open>")], NOW).unwrap();
    assert_eq!(states(&memory), ["ER", "ER"]);
    let code =
        |messages: Vec<Message>| system::parse_error_body(messages[0].message_body.as_deref().unwrap()).unwrap().0;
    assert_eq!(code(receive(&mut memory, "qi")), -9615);
    assert_eq!(code(receive(&mut memory, "qt")), -9616);
    assert_recovers(&memory);
}

#[test]
fn a_group_joined_and_left_by_move() {
    let mut memory = broker();
    let (one, two) = (begin(&mut memory, "t", None), begin(&mut memory, "t", None));
    send(&mut memory, one, "1");
    send(&mut memory, two, "2");
    let first = received(memory.submit(vec![receive_verb("qt", Some(1))], NOW).unwrap().unwrap().remove(0));
    let group = first[0].conversation_group_id;
    let second: GroupId = memory
        .messages()
        .map(|row| row.endpoint_id)
        .next()
        .map_or(group, |endpoint_id| memory.endpoints().find(|row| row.endpoint_id == endpoint_id).unwrap().group);
    assert_ne!(group, second);
    let handle = first[0].conversation_handle;
    memory.submit(vec![Verb::MoveConversation { handle, group: second }], NOW).unwrap().unwrap();
    send(&mut memory, one, "3");
    let together = receive(&mut memory, "qt");
    assert_eq!(together.len(), 2, "one group, two conversations");
    assert_recovers(&memory);
}

#[test]
fn names_of_far_services_are_forgotten_with_their_last_conversation() {
    let mut memory = broker();
    let kept = [begin(&mut memory, "kept", None), begin(&mut memory, "kept", None)];
    let before = memory.core.names.counts();
    for number in 0..20_000 {
        let handle = begin(&mut memory, &format!("far {number}"), None);
        end(&mut memory, handle, EndForm::Cleanup);
    }
    // Also a dialog that was begun and rolled back.
    let mut session = memory.core.begin_transaction();
    let dialog = BeginDialog {
        from_service: "i".into(),
        to_service: "rolled back".into(),
        addressee: Addressee::Anywhere,
        contract: Some("c".into()),
        related: Relation::None,
        lifetime_seconds: None,
        encryption: false,
    };
    memory.execute(&mut session, Verb::BeginDialog(dialog), NOW).unwrap();
    memory.rollback(session, NOW);
    assert_eq!(memory.core.names.counts(), (before.0, before.1 + 1), "the place is used again");
    end(&mut memory, kept[0], EndForm::Cleanup);
    let endpoint = memory.endpoints().find(|row| row.handle == kept[1]).unwrap();
    assert_eq!(&*endpoint.far_service, "kept");
    assert_recovers(&memory);
}

#[test]
fn a_body_that_is_not_quickly_checked_waits_for_its_check() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    let large = |inside: &str| format!("<a>{inside}{}</a>", " ".repeat(10_000));
    memory.submit(vec![send_verb(initiator, "x", &large("<b/>")), send_verb(initiator, "m", "behind")], NOW).unwrap();
    assert_eq!(receive(&mut memory, "qt").len(), 2);
    assert_eq!(memory.transmissions().count(), 0);
    memory.submit(vec![send_verb(initiator, "x", &large("<b>"))], NOW).unwrap();
    assert_eq!(states(&memory), ["ER", "ER"]);
    assert_recovers(&memory);
}

#[test]
fn the_reason_why_a_message_waits_is_that_of_the_last_try() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "one");
    let mut effects = Effects::default();
    let mut session = memory.core.begin();
    let body = format!("<a>{}</a>", " ".repeat(10_000));
    memory.core.execute(&mut session, send_verb(initiator, "x", &body), NOW).unwrap();
    memory.core.commit(session, NOW, &mut effects);
    let row = effects.changes.iter().find_map(|change| match change {
        Change::InsertTransmission(row) => Some((**row).clone()),
        _ => None,
    });
    let row = row.expect("the large body is checked outside the core");
    assert!(memory.core.transmission_status(initiator).contains("being checked"));
    for _ in 0..5 {
        let mut session = memory.core.begin_transaction();
        memory.execute(&mut session, receive_verb("qt", None), NOW).unwrap().unwrap();
        memory.rollback(session, NOW);
    }
    let catalog = memory.core.catalog().clone();
    let message_type = &catalog.message_types[&row.message_type_id];
    let verdict = Verdict::check(memory.core.body_checks(), &catalog, message_type, row.body.as_ref().unwrap());
    memory.core.checked(row.transmission_id, row.endpoint_id, Arc::new(verdict), &mut effects);
    effects.changes.clear();
    memory.core.deliver(row, NOW, &mut effects);
    let reason = memory.core.transmission_status(initiator);
    assert!(reason.starts_with("11219"), "{reason}");
    let is_written =
        |change: &Change| matches!(change, Change::SetTransmissionStatus { status, .. } if **status == *reason);
    assert!(effects.changes.iter().any(is_written));
}

#[test]
fn a_send_that_waits_for_another_reason_gives_it_to_waiting_messages() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "one");
    let body = format!("<a>{}</a>", " ".repeat(10_000));
    let statuses = |memory: &mut Memory| {
        let mut effects = Effects::default();
        let mut session = memory.core.begin();
        memory.core.execute(&mut session, send_verb(initiator, "x", &body), NOW).unwrap();
        memory.core.commit(session, NOW, &mut effects);
        let status = |change: Change| match change {
            Change::InsertTransmission(row) => Some((row.transmission_id, row.status)),
            Change::SetTransmissionStatus { transmission_id, status } => Some((transmission_id, status)),
            _ => None,
        };
        effects.changes.into_iter().filter_map(status).collect::<Vec<_>>()
    };
    let first = statuses(&mut memory);
    assert!(matches!(&first[..], [(_, status)] if status.contains("being checked")), "{first:?}");
    for _ in 0..5 {
        let mut session = memory.core.begin_transaction();
        memory.execute(&mut session, receive_verb("qt", None), NOW).unwrap().unwrap();
        memory.rollback(session, NOW);
    }
    let both = statuses(&mut memory);
    assert_eq!(both.len(), 2, "{both:?}");
    assert!(both.iter().any(|(id, _)| *id == first[0].0), "{both:?}");
    assert!(both.iter().all(|(_, status)| status.starts_with("11219")), "{both:?}");
}
