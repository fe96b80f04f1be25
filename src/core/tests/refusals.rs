//! The refusals of each verb, at the edge of its valid arguments.

use super::*;
use crate::Code;

fn refused(memory: &mut Memory, verb: Verb) -> Code {
    memory.submit(vec![verb], NOW).unwrap_err().code()
}

fn dialog(to: &str, related: Relation) -> Verb {
    Verb::BeginDialog(BeginDialog {
        from_service: "i".into(),
        to_service: to.into(),
        addressee: Addressee::Anywhere,
        contract: Some("c".into()),
        related,
        lifetime_seconds: None,
        encryption: false,
    })
}

fn send_to(handles: &[ConversationHandle], message_type: &str) -> Verb {
    Verb::Send { handles: handles.to_vec(), message_type: Some(message_type.into()), body: None, trace: None }
}

#[test]
fn a_range_of_levels_lies_within_1_to_10() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "level 5");
    let levels = |lowest, highest| Verb::Receive {
        queue: "qt".into(),
        top: None,
        from: ReceiveFrom::Levels { lowest, highest },
    };
    for (lowest, highest) in [(0, 5), (1, 11), (5, 4), (11, 11), (0, 0)] {
        assert_eq!(refused(&mut memory, levels(lowest, highest)), Code::OUT_OF_RANGE, "{lowest} to {highest}");
    }
    for (lowest, highest, found) in [(6, 10, 0), (1, 4, 0), (10, 10, 0), (1, 1, 0), (5, 5, 1)] {
        let taken = received(memory.submit(vec![levels(lowest, highest)], NOW).unwrap().unwrap().remove(0));
        assert_eq!(taken.len(), found, "{lowest} to {highest}");
    }
}

#[test]
fn the_form_of_an_end() {
    let mut memory = broker();
    let end = |handle, code, length| Verb::EndConversation {
        handle,
        form: EndForm::WithError { code, description: "ü".repeat(length) },
    };
    let handle = begin(&mut memory, "t", None);
    for code in [0, -1, -8489] {
        assert_eq!(refused(&mut memory, end(handle, code, 1)), Code::END_ERROR_CODE_MISSING, "{code}");
    }
    assert_eq!(refused(&mut memory, end(handle, 1, 3001)), Code::OUT_OF_RANGE);
    memory.submit(vec![end(handle, 1, 3000)], NOW).unwrap().unwrap();
    assert_eq!(refused(&mut memory, end(handle, 1, 1)), Code::CONVERSATION_NOT_FOUND);
}

#[test]
fn an_end_is_refused_on_a_side_that_has_ended_unless_it_cleans_up() {
    let mut memory = broker();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "one");
    let end = |form| Verb::EndConversation { handle: initiator, form };
    memory.submit(vec![end(EndForm::Plain)], NOW).unwrap().unwrap();
    assert_eq!(states(&memory), ["DI"]);
    let waiting = begin(&mut memory, "t", None);
    send(&mut memory, waiting, "one");
    alter(&mut memory, "qt", false);
    let end = |form| Verb::EndConversation { handle: waiting, form };
    memory.submit(vec![end(EndForm::Plain)], NOW).unwrap().unwrap();
    assert_eq!(refused(&mut memory, end(EndForm::Plain)), Code::STATE_FORBIDS_END);
    memory.submit(vec![end(EndForm::Cleanup)], NOW).unwrap().unwrap();
    let mut session = memory.core.begin_transaction();
    let third = begin(&mut memory, "t", None);
    let end = |form| Verb::EndConversation { handle: third, form };
    memory.execute(&mut session, end(EndForm::Plain), NOW).unwrap().unwrap();
    let again = memory.execute(&mut session, end(EndForm::Cleanup), NOW).unwrap_err();
    assert_eq!(again.code(), Code::STATE_FORBIDS_END);
    memory.rollback(session, NOW);
}

#[test]
fn the_name_of_a_far_service_has_1_to_256_characters() {
    let mut memory = broker();
    assert_eq!(refused(&mut memory, dialog("", Relation::None)), Code::BAD_SERVICE_NAME);
    assert_eq!(refused(&mut memory, dialog(&"ü".repeat(257), Relation::None)), Code::BAD_SERVICE_NAME);
    memory.submit(vec![dialog(&"ü".repeat(256), Relation::None)], NOW).unwrap().unwrap();
}

#[test]
fn a_dialog_is_related_to_a_conversation_or_group() {
    let mut memory = broker();
    let nil = Relation::Group(GroupId(uuid::Uuid::nil()));
    assert_eq!(refused(&mut memory, dialog("t", nil)), Code::BAD_GROUP_ID);
    let own = Relation::Group(GroupId(uuid::Uuid::from_u128(7)));
    memory.submit(vec![dialog("t", own)], NOW).unwrap().unwrap();
    let initiator = begin(&mut memory, "t", None);
    send(&mut memory, initiator, "one");
    let target = receive(&mut memory, "qt")[0].conversation_handle;
    let of_other = Relation::Conversation(target);
    assert_eq!(refused(&mut memory, dialog("t", of_other)), Code::GROUP_OF_OTHER_SERVICE);
    memory.submit(vec![dialog("t", Relation::Conversation(initiator))], NOW).unwrap().unwrap();
    let mut session = memory.core.begin_transaction();
    memory
        .execute(&mut session, Verb::EndConversation { handle: initiator, form: EndForm::Plain }, NOW)
        .unwrap()
        .unwrap();
    let late = memory.execute(&mut session, dialog("t", Relation::Conversation(initiator)), NOW).unwrap_err();
    assert_eq!(late.code(), Code::RELATION_IMPOSSIBLE);
    memory.commit(session, NOW);
}

#[test]
fn a_list_names_each_conversation_once() {
    let mut memory = broker();
    let (one, two) = (begin(&mut memory, "t", None), begin(&mut memory, "t", None));
    let unknown = ConversationHandle(uuid::Uuid::from_u128(9));
    for (handles, code) in [
        (&[][..], Code::HANDLE_MISSING),
        (&[unknown], Code::CONVERSATION_NOT_FOUND),
        (&[one, unknown], Code::LISTED_CONVERSATION_NOT_FOUND),
        (&[one, one], Code::LISTED_HANDLE_TWICE),
        (&[one, two, one], Code::LISTED_HANDLE_TWICE),
    ] {
        assert_eq!(refused(&mut memory, send_to(handles, "m")), code, "{} handles", handles.len());
    }
    memory.submit(vec![send_to(&[one, two], "m")], NOW).unwrap().unwrap();
    assert_eq!(memory.messages().count(), 2);
}

#[test]
fn a_send_is_refused_by_contract_and_own_queue() {
    let mut memory = broker();
    let entry = |name: &str, sent_by| ContractEntry { message_type: name.into(), sent_by };
    let contract = Definition::CreateContract {
        name: "sides".into(),
        owner: None,
        entries: vec![entry("m", SentBy::Initiator), entry("x", SentBy::Target)],
    };
    let service = Definition::CreateService {
        name: "s".into(),
        owner: None,
        queue: "qt".into(),
        contracts: vec!["sides".into()],
    };
    memory.submit(vec![Verb::Define(vec![contract, service])], NOW).unwrap();
    let Verb::BeginDialog(mut over_sides) = dialog("s", Relation::None) else { unreachable!() };
    over_sides.contract = Some("sides".into());
    let initiator = match memory.submit(vec![Verb::BeginDialog(over_sides)], NOW).unwrap().unwrap().remove(0) {
        Outcome::Began { handle, .. } => handle,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(&mut memory, send_to(&[initiator], "DEFAULT")), Code::MESSAGE_TYPE_NOT_IN_CONTRACT);
    assert_eq!(refused(&mut memory, send_to(&[initiator], "x")), Code::SENT_BY_TARGET_ONLY);
    memory.submit(vec![send_to(&[initiator], "m")], NOW).unwrap().unwrap();
    let target = receive(&mut memory, "qt")[0].conversation_handle;
    assert_eq!(refused(&mut memory, send_to(&[target], "m")), Code::SENT_BY_INITIATOR_ONLY);
    // Its own queue matters only while it is off and keeps copies.
    for (status, retention, is_refused) in
        [(false, false, false), (true, true, false), (false, true, true), (true, false, false)]
    {
        let options = QueueOptions { status: Some(status), retention: Some(retention), ..QueueOptions::default() };
        memory.submit(vec![Verb::Define(vec![Definition::AlterQueue { name: "qi".into(), options }])], NOW).unwrap();
        let sent = memory.submit(vec![send_to(&[initiator], "m")], NOW);
        assert_eq!(sent.is_err(), is_refused, "status {status}, retention {retention}");
    }
}
