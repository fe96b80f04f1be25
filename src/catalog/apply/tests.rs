use super::*;
use crate::catalog::OffBy;
use crate::error::Code;
use crate::protocol::definition::*;

/// A broker and the definitions applied to it, as a script would.
struct Broker {
    catalog: Catalog,
    ids: IdSource,
}

impl Broker {
    /// Type `t`, contract `c` (t by any), queue `q`, service `s` on it accepting c.
    fn with_objects() -> Self {
        let mut broker = Self { catalog: Catalog::with_builtins(Uuid::from_u128(1)), ids: IdSource::Counted(100) };
        broker.ok(message_type("t", Validation::None));
        broker.ok(contract("c", &[("t", SentBy::Any)]));
        broker.ok(queue("q", QueueOptions::default()));
        broker.ok(service("s", "q", &["c"]));
        broker
    }

    fn ok(&mut self, definition: Definition) -> Applied {
        apply(&mut self.catalog, &definition, &mut self.ids).unwrap()
    }

    /// The number of the refusal, after checking that nothing changed.
    fn refused(&mut self, definition: Definition) -> Code {
        let before = format!("{:?}", self.catalog);
        let error = apply(&mut self.catalog, &definition, &mut self.ids).unwrap_err();
        assert_eq!(format!("{:?}", self.catalog), before, "a refusal changes nothing");
        error.code()
    }

    fn queue(&self, name: &str) -> &crate::catalog::Queue {
        self.catalog.queue(name).unwrap()
    }

    fn activation(&self, name: &str) -> &crate::catalog::Activation {
        self.queue(name).activation.as_ref().unwrap()
    }

    fn service(&self, name: &str) -> &crate::catalog::Service {
        self.catalog.service(name).unwrap()
    }
}

fn message_type(name: &str, validation: Validation) -> Definition {
    Definition::CreateMessageType { name: name.into(), owner: None, validation }
}

fn drop_message_type(name: &str) -> Definition {
    Definition::DropMessageType { name: name.into() }
}

fn contract(name: &str, entries: &[(&str, SentBy)]) -> Definition {
    let entry =
        |&(message_type, sent_by): &(&str, SentBy)| ContractEntry { message_type: message_type.into(), sent_by };
    Definition::CreateContract { name: name.into(), owner: None, entries: entries.iter().map(entry).collect() }
}

fn drop_contract(name: &str) -> Definition {
    Definition::DropContract { name: name.into() }
}

fn queue(name: &str, options: QueueOptions) -> Definition {
    Definition::CreateQueue { name: name.into(), options }
}

fn alter_queue(name: &str, options: QueueOptions) -> Definition {
    Definition::AlterQueue { name: name.into(), options }
}

fn drop_queue(name: &str) -> Definition {
    Definition::DropQueue { name: name.into() }
}

fn activate(activation: ActivationOptions) -> QueueOptions {
    QueueOptions { activation: Some(ActivationChange::Set(activation)), ..QueueOptions::default() }
}

fn whole_activation(max_queue_readers: i64) -> ActivationOptions {
    ActivationOptions {
        status: None,
        procedure_name: Some("p".into()),
        max_queue_readers: Some(max_queue_readers),
        execute_as: Some(ExecuteAs::Owner),
    }
}

fn service(name: &str, queue: &str, contracts: &[&str]) -> Definition {
    let contracts = contracts.iter().map(|&c| c.into()).collect();
    Definition::CreateService { name: name.into(), owner: None, queue: queue.into(), contracts }
}

fn alter_service(name: &str, queue: Option<&str>, add: &[&str], drop: &[&str]) -> Definition {
    Definition::AlterService {
        name: name.into(),
        queue: queue.map(Into::into),
        add_contracts: add.iter().map(|&c| c.into()).collect(),
        drop_contracts: drop.iter().map(|&c| c.into()).collect(),
    }
}

fn drop_service(name: &str) -> Definition {
    Definition::DropService { name: name.into() }
}

fn priority(name: &str, set: PriorityOptions) -> Definition {
    Definition::CreateBrokerPriority { name: name.into(), set }
}

fn alter_priority(name: &str, set: PriorityOptions) -> Definition {
    Definition::AlterBrokerPriority { name: name.into(), set }
}

fn level(level: i64) -> PriorityOptions {
    PriorityOptions { level: Some(level), ..PriorityOptions::default() }
}

fn named(name: &str) -> Option<AnyOr> {
    Some(AnyOr::Name(name.into()))
}

fn notification(name: &str, queue: &str, event: QueueEvent) -> Definition {
    Definition::CreateEventNotification { name: name.into(), queue: queue.into(), event, service: "far".into() }
}

#[test]
fn names_of_129_characters_are_refused_for_every_kind_and_128_accepted() {
    let mut broker = Broker::with_objects();
    let kinds: [fn(&str) -> Definition; 6] = [
        |name| message_type(name, Validation::None),
        |name| contract(name, &[("t", SentBy::Any)]),
        |name| queue(name, QueueOptions::default()),
        |name| service(name, "q", &[]),
        |name| priority(name, PriorityOptions::default()),
        |name| notification(name, "q", QueueEvent::BrokerQueueDisabled),
    ];
    for create in kinds {
        assert_eq!(broker.refused(create(&"é".repeat(129))), Code::BAD_NAME);
        assert_eq!(broker.refused(create("")), Code::BAD_NAME);
        broker.ok(create(&"é".repeat(128)));
        assert_eq!(broker.refused(create(&"é".repeat(128))), Code::DUPLICATE_NAME);
    }
    assert_eq!(broker.refused(queue("#q", QueueOptions::default())), Code::BAD_NAME);
    broker.ok(message_type("#t", Validation::None));
}

#[test]
fn queue_names_ignore_case_and_the_others_do_not() {
    let mut broker = Broker::with_objects();
    assert_eq!(broker.refused(queue("Q", QueueOptions::default())), Code::DUPLICATE_NAME);
    broker.ok(message_type("T", Validation::None));
    broker.ok(contract("C", &[("T", SentBy::Any)]));
    broker.ok(service("S", "Q", &["C"]));
    assert_eq!(broker.refused(contract("x", &[("tT", SentBy::Any)])), Code::OBJECT_NOT_FOUND);
}

#[test]
fn ids_ascend_from_65536_and_are_never_reused() {
    let mut broker = Broker::with_objects();
    assert_eq!(broker.catalog.message_type("t").unwrap().id, 65536);
    let first = broker.service("s").id;
    broker.ok(drop_service("s"));
    let applied = broker.ok(service("s", "q", &[]));
    let second = broker.service("s").id;
    assert!(second > first);
    assert_eq!(applied.touched, [Touched::Service(second), Touched::Settings], "the counter is stored");

    broker.catalog.settings.next_object_id = i32::MAX;
    assert_eq!(broker.refused(message_type("last", Validation::None)), Code::OUT_OF_RANGE);
}

#[test]
fn message_types_are_bound_by_live_contracts_only_and_stay_marked() {
    let mut broker = Broker::with_objects();
    let id = broker.catalog.message_type("t").unwrap().id;
    assert_eq!(broker.refused(drop_message_type("t")), Code::OBJECT_IN_USE);
    broker.ok(alter_service("s", None, &[], &["c"]));
    broker.ok(drop_contract("c"));
    assert_eq!(broker.ok(drop_message_type("t")).touched, [Touched::MessageType(id)]);
    assert!(broker.catalog.message_type("t").is_none());
    assert!(broker.catalog.message_types[&id].is_dropped);
    broker.ok(message_type("t", Validation::Empty));
    assert_ne!(broker.catalog.message_type("t").unwrap().id, id);
}

#[test]
fn system_objects_are_refused_with_9663() {
    let mut broker = Broker::with_objects();
    let types = broker.catalog.message_types.values().filter(|t| t.id < FIRST_USER_ID);
    let types: Vec<_> = types.map(|t| t.name.to_string()).collect();
    assert_eq!(types.len(), 5);
    for name in types {
        let alter = Definition::AlterMessageType { name: name.clone(), validation: Validation::Empty };
        assert_eq!(broker.refused(alter), Code::SYSTEM_OBJECT);
        assert_eq!(broker.refused(drop_message_type(&name)), Code::SYSTEM_OBJECT);
        assert_eq!(broker.refused(message_type(&name, Validation::None)), Code::DUPLICATE_NAME);
    }
    use crate::protocol::system;
    for name in [system::DEFAULT, system::POST_EVENT_NOTIFICATION] {
        assert_eq!(broker.refused(drop_contract(name)), Code::SYSTEM_OBJECT);
    }
    let name = system::EVENT_NOTIFICATION_SERVICE;
    assert_eq!(broker.refused(drop_service(name)), Code::SYSTEM_OBJECT);
    assert_eq!(broker.refused(alter_service(name, Some("q"), &[], &[])), Code::SYSTEM_OBJECT);
    for name in [system::ERROR, system::END_DIALOG, system::DIALOG_TIMER] {
        assert_eq!(broker.refused(contract("forged", &[(name, SentBy::Any)])), Code::SYSTEM_OBJECT);
    }
    broker.ok(service("listens", "q", &[system::POST_EVENT_NOTIFICATION, system::DEFAULT]));
}

#[test]
fn altering_a_message_type_keeps_its_id() {
    let mut broker = Broker::with_objects();
    let id = broker.catalog.message_type("t").unwrap().id;
    broker.ok(Definition::AlterMessageType { name: "t".into(), validation: Validation::WellFormedXml });
    let altered = broker.catalog.message_type("t").unwrap();
    assert_eq!((altered.id, altered.validation_letter().letter()), (id, "X"));
    let missing = Definition::AlterMessageType { name: "T".into(), validation: Validation::None };
    assert_eq!(broker.refused(missing), Code::OBJECT_NOT_FOUND);
    assert_eq!(broker.refused(drop_message_type("T")), Code::OBJECT_NOT_FOUND);
}

#[test]
fn schema_collections_exist_before_use_and_are_bound_by_it() {
    let mut broker = Broker::with_objects();
    let valid = |name: &str| Validation::ValidXml { schema_collection: name.into() };
    let schemas = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="a"/></xs:schema>"#;
    let create = |name: &str| Definition::CreateXmlSchemaCollection { name: name.into(), schemas: schemas.into() };
    let drop = |name: &str| Definition::DropXmlSchemaCollection { name: name.into() };
    assert_eq!(broker.refused(message_type("x", valid("Shapes"))), Code::OBJECT_NOT_FOUND);
    broker.ok(create("Shapes"));
    assert_eq!(broker.refused(create("SHAPES")), Code::DUPLICATE_NAME);
    assert_eq!(broker.refused(create("")), Code::BAD_NAME);
    assert_eq!(broker.refused(create(&"é".repeat(129))), Code::BAD_NAME);
    broker.ok(message_type("x", valid("shapes")));
    assert_eq!(broker.catalog.message_type("x").unwrap().validation, valid("Shapes"), "kept as it was declared");
    assert_eq!(broker.refused(drop("sHapes")), Code::OBJECT_IN_USE);
    broker.ok(drop_message_type("x"));
    let id = broker.catalog.xml_schema_collection("shapes").unwrap().id;
    assert_eq!(broker.ok(drop("shapes")).touched, [Touched::XmlSchemaCollectionDeleted(id)]);
    assert_eq!(broker.refused(drop("shapes")), Code::OBJECT_NOT_FOUND);
}

#[test]
fn schemas_that_are_not_usable_are_refused_when_they_are_defined() {
    let mut broker = Broker::with_objects();
    let collection =
        |schemas: &str| Definition::CreateXmlSchemaCollection { name: "x".into(), schemas: schemas.into() };
    for bad in ["", "not xml", "<a/>"] {
        assert_eq!(broker.refused(collection(bad)), Code::BAD_SCHEMA, "{bad:?}");
    }
    let json = |schema: &str| Validation::JsonSchema { schema: schema.into() };
    for bad in ["", "{", r#"{"type": 7}"#] {
        assert_eq!(broker.refused(message_type("x", json(bad))), Code::BAD_SCHEMA, "{bad:?}");
        let alter = Definition::AlterMessageType { name: "t".into(), validation: json(bad) };
        assert_eq!(broker.refused(alter), Code::BAD_SCHEMA, "{bad:?}");
    }
    broker.ok(message_type("x", json(r#"{"type": "object"}"#)));
    assert_eq!(broker.catalog.message_type("x").unwrap().validation_letter().letter(), "J");
}

#[test]
fn contracts_need_existing_types_listed_once_and_something_for_the_initiator() {
    let mut broker = Broker::with_objects();
    use SentBy::*;
    assert_eq!(broker.refused(contract("x", &[("t", Target)])), Code::CONTRACT_WITHOUT_INITIATOR);
    assert_eq!(broker.refused(contract("x", &[])), Code::CONTRACT_WITHOUT_INITIATOR);
    assert_eq!(broker.refused(contract("x", &[("t", Initiator), ("t", Target)])), Code::MESSAGE_TYPE_LISTED_TWICE);
    assert_eq!(broker.refused(contract("x", &[("t", Initiator), ("nope", Any)])), Code::OBJECT_NOT_FOUND);
    broker.ok(contract("x", &[("t", Target), ("DEFAULT", Initiator)]));
    assert_eq!(broker.catalog.contract("x").unwrap().sent_by("t"), Some(Target));
}

#[test]
fn contracts_are_bound_by_services_and_priorities() {
    let mut broker = Broker::with_objects();
    let id = broker.catalog.contract("c").unwrap().id;
    assert_eq!(broker.refused(drop_contract("c")), Code::OBJECT_IN_USE);
    broker.ok(drop_service("s"));
    broker.ok(priority("p", PriorityOptions { contract: named("c"), ..PriorityOptions::default() }));
    assert_eq!(broker.refused(drop_contract("c")), Code::OBJECT_IN_USE);
    broker.ok(Definition::DropBrokerPriority { name: "p".into() });
    let applied = broker.ok(drop_contract("c"));
    assert_eq!(applied.touched, [Touched::Contract(id)]);
    assert_eq!(applied.consequences, [Consequence::ContractDropped { contract_id: id }]);
    assert_eq!(broker.refused(drop_contract("c")), Code::OBJECT_NOT_FOUND);
}

#[test]
fn a_queue_without_options_has_the_documented_defaults() {
    let broker = Broker::with_objects();
    let queue = broker.queue("q");
    assert!(queue.is_receive_enabled && queue.is_enqueue_enabled && queue.is_poison_message_handling_enabled);
    assert!(!queue.is_retention_enabled && !queue.is_poison_quarantine_enabled);
    assert_eq!(queue.activation, None);
}

#[test]
fn reader_limits_reach_from_0_to_32767() {
    let mut broker = Broker::with_objects();
    for limit in [-1, 32768, i64::MAX, i64::MIN] {
        assert_eq!(broker.refused(queue("a", activate(whole_activation(limit)))), Code::OUT_OF_RANGE);
    }
    let applied = broker.ok(queue("a", activate(whole_activation(32767))));
    assert!(applied.warnings.is_empty());
    assert!(broker.activation("a").is_enabled, "on where the clause is present");
    let applied = broker.ok(queue("b", activate(whole_activation(0))));
    assert!(applied.warnings[0].starts_with("[9648]"), "{:?}", applied.warnings);
    let off = ActivationOptions { status: Some(false), ..whole_activation(0) };
    assert!(broker.ok(queue("d", activate(off))).warnings.is_empty());
    let altered = broker.ok(alter_queue("a", activate(whole_activation(0))));
    assert!(altered.warnings[0].starts_with("[9648]"), "{:?}", altered.warnings);
}

#[test]
fn a_new_activation_is_whole_and_its_procedure_permanent() {
    let mut broker = Broker::with_objects();
    let without = |change: fn(&mut ActivationOptions)| {
        let mut options = whole_activation(1);
        change(&mut options);
        queue("a", activate(options))
    };
    assert_eq!(broker.refused(without(|a| a.procedure_name = None)), Code::ACTIVATION_PROCEDURE_MISSING);
    assert_eq!(broker.refused(without(|a| a.procedure_name = Some("".into()))), Code::ACTIVATION_PROCEDURE_MISSING);
    let temporary = without(|a| a.procedure_name = Some("#p".into()));
    assert_eq!(broker.refused(temporary), Code::ACTIVATION_PROCEDURE_TEMPORARY);
    assert_eq!(broker.refused(without(|a| a.max_queue_readers = None)), Code::OUT_OF_RANGE);
    assert_eq!(broker.refused(without(|a| a.execute_as = None)), Code::ACTIVATION_USER_MISSING);
    let off = without(|a| (a.status, a.execute_as) = (Some(false), None));
    assert_eq!(broker.refused(off), Code::ACTIVATION_USER_MISSING, "CREATE names all of it");
    let on = ActivationOptions { status: Some(true), execute_as: None, ..whole_activation(1) };
    assert_eq!(broker.refused(alter_queue("q", activate(on))), Code::ACTIVATION_USER_MISSING, "and so does what is on");
    let drop = QueueOptions { activation: Some(ActivationChange::Drop), ..QueueOptions::default() };
    assert_eq!(broker.refused(queue("a", drop)), Code::SYNTAX);
}

#[test]
fn altering_a_queue_keeps_options_that_it_does_not_name() {
    let mut broker = Broker::with_objects();
    let options = QueueOptions {
        status: Some(false),
        poison_message_handling: Some(false),
        poison_quarantine: Some(true),
        ..activate(whole_activation(3))
    };
    broker.ok(queue("a", options));
    let before = broker.queue("a").clone();
    let applied = broker.ok(alter_queue("A", QueueOptions { retention: Some(true), ..QueueOptions::default() }));
    assert!(applied.consequences.is_empty());
    let after = broker.queue("a").clone();
    assert!(after.is_retention_enabled);
    assert_eq!(crate::catalog::Queue { is_retention_enabled: false, ..after }, before);

    let limit = ActivationOptions { max_queue_readers: Some(9), ..ActivationOptions::default() };
    broker.ok(alter_queue("a", activate(limit)));
    let expected = crate::catalog::Activation { max_queue_readers: 9, ..before.activation.unwrap() };
    assert_eq!(*broker.activation("a"), expected);
    assert_eq!(broker.refused(alter_queue("nope", QueueOptions::default())), Code::OBJECT_NOT_FOUND);
}

#[test]
fn adding_a_procedure_leaves_activation_off_and_drop_removes_all_of_it() {
    let mut broker = Broker::with_objects();
    let only_procedure = ActivationOptions { procedure_name: Some("p".into()), ..ActivationOptions::default() };
    broker.ok(alter_queue("q", activate(only_procedure.clone())));
    assert!(!broker.activation("q").is_enabled);
    let on = ActivationOptions { status: Some(true), max_queue_readers: Some(2), ..ActivationOptions::default() };
    broker.ok(alter_queue("q", activate(on.clone())));
    broker.ok(alter_queue("q", activate(ActivationOptions { procedure_name: Some("p2".into()), ..only_procedure })));
    let activation = broker.activation("q");
    assert!(activation.is_enabled);
    assert_eq!((&*activation.procedure_name, activation.max_queue_readers), ("p2", 2));
    let drop = QueueOptions { activation: Some(ActivationChange::Drop), ..QueueOptions::default() };
    broker.ok(alter_queue("q", drop));
    assert_eq!(broker.queue("q").activation, None);
    assert_eq!(broker.refused(alter_queue("q", activate(on))), Code::ACTIVATION_PROCEDURE_MISSING);
}

#[test]
fn status_sets_both_directions_and_reports_only_changes() {
    let mut broker = Broker::with_objects();
    let queue_id = broker.queue("q").id;
    let status = |on| alter_queue("q", QueueOptions { status: Some(on), ..QueueOptions::default() });
    let changed = |is_enabled| vec![Consequence::QueueStatusChanged { queue_id, is_enabled }];
    assert_eq!(broker.ok(status(false)).consequences, changed(false));
    assert!(!broker.queue("q").is_receive_enabled && !broker.queue("q").is_enqueue_enabled);
    assert!(broker.ok(status(false)).consequences.is_empty());
    assert_eq!(broker.ok(status(true)).consequences, changed(true));
    assert!(broker.queue("q").is_receive_enabled && broker.queue("q").is_enqueue_enabled);
}

#[test]
fn queues_are_bound_by_services_and_take_their_notifications_along() {
    let mut broker = Broker::with_objects();
    broker.ok(notification("n", "q", QueueEvent::BrokerQueueDisabled));
    let watch = broker.catalog.event_notifications.values().next().unwrap().clone();
    assert_eq!(broker.refused(drop_queue("q")), Code::OBJECT_IN_USE);
    broker.ok(drop_service("s"));
    let queue_id = broker.queue("q").id;
    let applied = broker.ok(drop_queue("Q"));
    assert_eq!(applied.touched, [Touched::EventNotificationDeleted(watch.id), Touched::QueueDeleted(queue_id)]);
    let ended =
        Consequence::NotificationDropped { notification_id: watch.id, conversation_handle: watch.conversation_handle };
    assert_eq!(applied.consequences, [ended, Consequence::QueueDropped { queue_id }]);
    assert_eq!(broker.refused(drop_queue("q")), Code::OBJECT_NOT_FOUND);
}

#[test]
fn activation_and_its_notification_exclude_each_other() {
    let mut broker = Broker::with_objects();
    let on = |status| activate(ActivationOptions { status: Some(status), ..whole_activation(1) });
    broker.ok(notification("n", "q", QueueEvent::QueueActivation));
    assert_eq!(broker.refused(alter_queue("q", on(true))), Code::NOTIFICATION_EXCLUDES_ACTIVATION);
    broker.ok(alter_queue("q", on(false)));

    broker.ok(queue("a", on(true)));
    let watch = notification("n", "a", QueueEvent::QueueActivation);
    assert_eq!(broker.refused(watch.clone()), Code::ACTIVATION_EXCLUDES_NOTIFICATION);
    broker.ok(notification("m", "a", QueueEvent::BrokerQueueDisabled));
    broker.ok(alter_queue("a", on(true)));
    broker.ok(alter_queue("a", on(false)));
    broker.ok(watch);
}

#[test]
fn notifications_have_a_conversation_and_a_name_per_queue() {
    let mut broker = Broker::with_objects();
    let applied = broker.ok(notification("n", "Q", QueueEvent::QueueActivation));
    let created = broker.catalog.event_notifications.values().next().unwrap().clone();
    assert!(!created.conversation_handle.is_nil());
    assert_eq!(created.queue_id, broker.queue("q").id);
    assert_eq!(applied.consequences, [Consequence::NotificationCreated { notification: created.clone() }]);
    assert_eq!(broker.refused(notification("n", "q", QueueEvent::BrokerQueueDisabled)), Code::DUPLICATE_NAME);
    assert_eq!(broker.refused(notification("n", "nope", QueueEvent::QueueActivation)), Code::OBJECT_NOT_FOUND);
    broker.ok(notification("second", "q", QueueEvent::QueueActivation));

    let drop = |name: &str| Definition::DropEventNotification { name: name.into(), queue: "q".into() };
    assert_eq!(broker.refused(drop("N")), Code::OBJECT_NOT_FOUND);
    assert_eq!(broker.ok(drop("n")).touched, [Touched::EventNotificationDeleted(created.id)]);
}

#[test]
fn services_need_an_existing_queue_and_contracts_listed_once() {
    let mut broker = Broker::with_objects();
    assert_eq!(broker.refused(service("x", "nope", &[])), Code::OBJECT_NOT_FOUND);
    assert_eq!(broker.refused(service("x", "q", &["nope"])), Code::OBJECT_NOT_FOUND);
    assert_eq!(broker.refused(service("x", "q", &["c", "c"])), Code::CONTRACT_LISTED_TWICE);
    assert_eq!(broker.refused(service("s", "q", &[])), Code::DUPLICATE_NAME);
}

#[test]
fn altering_a_service_changes_something_or_is_refused() {
    let mut broker = Broker::with_objects();
    broker.ok(queue("q2", QueueOptions::default()));
    broker.ok(contract("c2", &[("t", SentBy::Any)]));
    for nothing in [alter_service("s", None, &[], &[]), alter_service("s", Some("Q"), &[], &[])] {
        assert_eq!(broker.refused(nothing), Code::ALTER_SERVICE_EMPTY);
    }
    assert_eq!(broker.refused(alter_service("s", None, &["c"], &[])), Code::CONTRACT_LISTED_TWICE);
    assert_eq!(broker.refused(alter_service("s", None, &["c2", "c2"], &[])), Code::CONTRACT_LISTED_TWICE);
    assert_eq!(broker.refused(alter_service("s", None, &["c"], &["c"])), Code::CONTRACT_LISTED_TWICE);
    assert_eq!(broker.refused(alter_service("s", None, &[], &["c", "c"])), Code::CONTRACT_LISTED_TWICE);
    assert_eq!(broker.refused(alter_service("s", None, &[], &["c2"])), Code::OBJECT_NOT_FOUND);
    assert_eq!(broker.refused(alter_service("s", Some("nope"), &[], &[])), Code::OBJECT_NOT_FOUND);
    assert_eq!(broker.refused(alter_service("S", Some("q2"), &[], &[])), Code::OBJECT_NOT_FOUND);

    let (service_id, from_queue_id, to_queue_id) =
        (broker.service("s").id, broker.queue("q").id, broker.queue("q2").id);
    let (c, c2) = (broker.catalog.contract("c").unwrap().id, broker.catalog.contract("c2").unwrap().id);
    let applied = broker.ok(alter_service("s", Some("q2"), &["c2"], &["c"]));
    assert_eq!(
        applied.consequences,
        [
            Consequence::ServiceMoved { service_id, from_queue_id, to_queue_id },
            Consequence::ServiceContractsDropped { service_id, contract_ids: vec![c] },
        ]
    );
    assert_eq!(broker.service("s").contract_ids, [c2]);
    assert_eq!(broker.service("s").queue_id, to_queue_id);

    let added = broker.ok(alter_service("s", Some("Q2"), &["c"], &[])).consequences;
    assert!(added.is_empty(), "nothing moves with a contract that is added");
    assert_eq!(broker.service("s").contract_ids, [c2, c]);
    let dropped = broker.ok(alter_service("s", None, &[], &["c"])).consequences;
    assert_eq!(dropped, [Consequence::ServiceContractsDropped { service_id, contract_ids: vec![c] }]);
}

#[test]
fn services_are_bound_by_priorities() {
    let mut broker = Broker::with_objects();
    broker.ok(priority("p", PriorityOptions { local_service: named("s"), ..PriorityOptions::default() }));
    assert_eq!(broker.refused(drop_service("s")), Code::OBJECT_IN_USE);
    broker.ok(alter_priority("p", PriorityOptions { local_service: Some(AnyOr::Any), ..PriorityOptions::default() }));
    let (service_id, queue_id) = (broker.service("s").id, broker.queue("q").id);
    let applied = broker.ok(drop_service("s"));
    assert_eq!(applied.touched, [Touched::ServiceDeleted(service_id)]);
    assert_eq!(applied.consequences, [Consequence::ServiceDropped { service_id, queue_id }]);
}

#[test]
fn priorities_default_to_any_and_5_and_levels_reach_from_1_to_10() {
    let mut broker = Broker::with_objects();
    broker.ok(priority("p", PriorityOptions::default()));
    let row = broker.catalog.priority("p").unwrap().clone();
    assert_eq!((row.contract_id, row.local_service_id, row.level), (None, None, 5));
    assert_eq!(row.remote_service, AnyOr::Any);
    for bad in [0, 11, -1, 256, i64::MAX] {
        assert_eq!(broker.refused(alter_priority("p", level(bad))), Code::OUT_OF_RANGE);
    }
    for good in [1, 10] {
        broker.ok(alter_priority("p", level(good)));
        assert_eq!(i64::from(broker.catalog.priority("p").unwrap().level), good);
    }
    assert_eq!(broker.refused(alter_priority("p", PriorityOptions::default())), Code::SYNTAX);
    assert_eq!(broker.refused(alter_priority("P", level(1))), Code::OBJECT_NOT_FOUND);
}

#[test]
fn priorities_name_existing_objects_here_and_any_service_there() {
    let mut broker = Broker::with_objects();
    let set = |contract: &str, local: &str, remote: &str| PriorityOptions {
        contract: named(contract),
        local_service: named(local),
        remote_service: named(remote),
        level: None,
    };
    assert_eq!(broker.refused(priority("p", set("nope", "s", "r"))), Code::OBJECT_NOT_FOUND);
    assert_eq!(broker.refused(priority("p", set("c", "nope", "r"))), Code::OBJECT_NOT_FOUND);
    assert_eq!(broker.refused(priority("p", set("c", "s", ""))), Code::BAD_NAME);
    broker.ok(priority("p", set("c", "s", "never defined")));
    broker.ok(priority("any", set("ANY", "ANY", "ANY")));
    let row = broker.catalog.priority("any").unwrap();
    assert_eq!((row.contract_id, row.local_service_id), (None, None), "ANY is the wildcard for what is local");
    assert_eq!(row.remote_service, AnyOr::Name("ANY".into()));
}

#[test]
fn priorities_with_the_same_criteria_are_refused() {
    let mut broker = Broker::with_objects();
    let of = |remote: &str| PriorityOptions { remote_service: named(remote), ..PriorityOptions::default() };
    broker.ok(priority("p", of("r")));
    broker.ok(priority("other case", of("R")));
    assert_eq!(broker.refused(priority("p2", of("r"))), Code::DUPLICATE_PRIORITY_CRITERIA);
    broker.ok(priority("p2", of("r2")));
    assert_eq!(broker.refused(alter_priority("p2", of("r"))), Code::DUPLICATE_PRIORITY_CRITERIA);
    broker.ok(alter_priority("p", of("r")));
    let id = broker.catalog.priority("p").unwrap().id;
    let dropped = broker.ok(Definition::DropBrokerPriority { name: "p".into() });
    assert_eq!(dropped.touched, [Touched::PriorityDeleted(id)]);
    broker.ok(alter_priority("p2", of("r")));
    assert_eq!(broker.refused(Definition::DropBrokerPriority { name: "p".into() }), Code::OBJECT_NOT_FOUND);
}

#[test]
fn broker_options_change_the_settings_and_report_consequences() {
    let mut broker = Broker::with_objects();
    let set = |option| Definition::AlterDatabase { option };
    let enabled = |is_enabled| Consequence::BrokerEnabledChanged { is_enabled };
    assert!(broker.ok(set(BrokerOption::EnableBroker)).consequences.is_empty());
    assert_eq!(broker.ok(set(BrokerOption::DisableBroker)).consequences, [enabled(false)]);
    assert!(!broker.catalog.settings.is_broker_enabled);
    assert_eq!(
        broker.ok(set(BrokerOption::ErrorBrokerConversations)).consequences,
        [Consequence::ErrorBrokerConversations, enabled(true)]
    );
    assert!(broker.ok(set(BrokerOption::HonorBrokerPriority(true))).consequences.is_empty());
    assert!(broker.catalog.settings.is_honor_broker_priority_on);

    broker.ok(notification("n", "q", QueueEvent::QueueActivation));
    let before = broker.catalog.clone();
    let applied = broker.ok(set(BrokerOption::NewBroker));
    assert_ne!(broker.catalog.settings.broker_guid, before.settings.broker_guid);
    let old = before.event_notifications.values().next().unwrap();
    let notification = broker.catalog.event_notifications[&old.id].clone();
    assert_ne!(notification.conversation_handle, old.conversation_handle);
    assert_eq!(applied.touched, [Touched::Settings, Touched::EventNotification(old.id)]);
    assert_eq!(applied.consequences, [Consequence::NewBroker, Consequence::NotificationCreated { notification }]);

    broker.ok(set(BrokerOption::DisableBroker));
    let applied = broker.ok(set(BrokerOption::NewBroker)).consequences;
    assert_eq!(applied[..2], [Consequence::NewBroker, enabled(true)], "a new broker is enabled");
    assert!(broker.catalog.settings.is_broker_enabled);
}

fn off(reason: Option<&str>) -> QueueOptions {
    QueueOptions { status: Some(false), reason: reason.map(Into::into), ..QueueOptions::default() }
}

#[test]
fn a_reason_is_given_with_the_off_and_has_a_length() {
    let mut broker = Broker::with_objects();
    for status in [None, Some(true)] {
        let options = QueueOptions { status, ..off(Some("why")) };
        assert_eq!(broker.refused(alter_queue("q", options)), Code::SYNTAX);
    }
    let longest = "\u{e4}".repeat(1000);
    assert_eq!(broker.refused(alter_queue("q", off(Some(&format!("{longest}x"))))), Code::OUT_OF_RANGE);
    broker.ok(alter_queue("q", off(Some(&longest))));
    assert_eq!(broker.queue("q").off.as_ref().unwrap().reason.as_deref(), Some(&*longest));
}

#[test]
fn a_queue_that_is_off_keeps_its_reason_until_another_is_given() {
    let mut broker = Broker::with_objects();
    let reason = |broker: &Broker| broker.queue("q").off.as_ref().map(|off| off.reason.as_deref().map(str::to_owned));
    broker.ok(alter_queue("q", off(Some("first"))));
    broker.ok(alter_queue("q", off(None)));
    assert_eq!(reason(&broker), Some(Some("first".into())));
    broker.ok(alter_queue("q", QueueOptions { retention: Some(true), ..QueueOptions::default() }));
    assert_eq!(reason(&broker), Some(Some("first".into())));
    broker.ok(alter_queue("q", off(Some("second"))));
    assert_eq!(reason(&broker), Some(Some("second".into())));
    broker.ok(alter_queue("q", QueueOptions { status: Some(true), ..QueueOptions::default() }));
    assert_eq!(reason(&broker), None);
    broker.ok(alter_queue("q", off(None)));
    assert_eq!(reason(&broker), Some(None));
}

#[test]
fn a_service_of_a_notification_has_a_name_that_a_service_can_have() {
    let mut broker = Broker::with_objects();
    for service in [String::new(), "s".repeat(257)] {
        let bad = Definition::CreateEventNotification {
            name: "n".into(),
            queue: "q".into(),
            event: QueueEvent::BrokerQueueDisabled,
            service,
        };
        assert_eq!(broker.refused(bad), Code::BAD_NAME);
    }
}

#[test]
fn a_work_queue_has_a_name_of_its_own_and_keeps_its_order() {
    let mut broker = Broker::with_objects();
    let create = |name: &str, options| Definition::CreateWorkQueue { name: name.into(), options };
    let alter = |options| Definition::AlterWorkQueue { name: "w".into(), options };
    broker.ok(create("w", vec![WorkOption::Order(WorkOrder::Lifo)]));
    assert_eq!(broker.refused(create("#w", Vec::new())), Code::BAD_NAME);
    assert_eq!(broker.refused(create(&"é".repeat(129), Vec::new())), Code::BAD_NAME);
    assert_eq!(broker.refused(create("W", Vec::new())), Code::DUPLICATE_NAME);
    assert_eq!(broker.refused(create("", Vec::new())), Code::BAD_NAME);
    assert_eq!(broker.refused(alter(vec![WorkOption::Order(WorkOrder::Fifo)])), Code::SYNTAX);
    broker.ok(alter(vec![WorkOption::Order(WorkOrder::Lifo)]));
    for &number in WorkNumber::ALL {
        let (least, most) = number.range();
        for out in [least.checked_sub(1), most.checked_add(1)].into_iter().flatten() {
            assert_eq!(broker.refused(alter(vec![WorkOption::Number(number, out)])), Code::OUT_OF_RANGE, "{number:?}");
        }
        broker.ok(alter(vec![WorkOption::Number(number, least)]));
        broker.ok(alter(vec![WorkOption::Number(number, most)]));
    }
}

#[test]
fn a_work_schedule_takes_texts_of_just_the_greatest_length() {
    let mut broker = Broker::with_objects();
    broker.ok(Definition::CreateWorkQueue { name: "w".into(), options: Vec::new() });
    let named = WorkScheduleOptions::default;
    let options = WorkScheduleOptions { cron: Some("0 3 * * *".into()), ..named() };
    broker.ok(Definition::CreateWorkSchedule { name: "n".into(), queue: "w".into(), options });
    let alter = |options| Definition::AlterWorkSchedule { name: "n".into(), options };
    let job_type = |length| WorkScheduleOptions { job_type: Some("é".repeat(length)), ..named() };
    let job_key = |length| WorkScheduleOptions { job_key: Some("é".repeat(length)), ..named() };
    let body = |length| WorkScheduleOptions { body: Some("x".repeat(length)), ..named() };
    for (longest, too_long) in
        [(job_type(128), job_type(129)), (job_key(128), job_key(129)), (body(64 << 10), body((64 << 10) + 1))]
    {
        broker.ok(alter(longest));
        assert_eq!(broker.refused(alter(too_long)), Code::OUT_OF_RANGE);
    }
}

#[test]
fn what_turned_a_queue_off_is_read_back_from_its_word() {
    for (by, word) in [(OffBy::Statement, "statement"), (OffBy::Poison, "poison")] {
        assert_eq!((by.word(), OffBy::from_word(word)), (word, Some(by)));
    }
    assert_eq!(OffBy::from_word(""), None);
}
