mod work;

use super::*;
use crate::MessageType;
use crate::catalog::{Catalog, apply, ddl};
use crate::error::Code;
use crate::id::IdSource;

const ADD: MessageType<u32> = MessageType::json("//shop/Add");
const ADDED: MessageType<()> = MessageType::empty("//shop/Added");

fn shop(d: &mut Definitions) {
    d.message_type(ADD).message_type(ADDED).message_type("//shop/Note");
    d.contract("//shop/Stock").sent_by_initiator(ADD).sent_by_target(ADDED).sent_by_any("//shop/Note");
    d.queue("stock").retention(true).activation("add_items", 4).queue("desk").status(false);
    d.service("//shop/Stock", "stock", ["//shop/Stock"]).service("//shop/Desk", "desk", []);
    d.broker_priority("urgent").contract("//shop/Stock").local_service("//shop/Desk").level(Level::new(9));
    d.event_notification("off", "stock", QueueEvent::BrokerQueueDisabled, "//shop/Desk");
}

fn list(build: impl Fn(&mut Definitions)) -> Vec<Definition> {
    let mut definitions = Definitions::default();
    build(&mut definitions);
    definitions.into_list()
}

fn script(text: &str) -> Vec<Definition> {
    ddl::parse(text).unwrap().into_iter().map(|read| read.definition).collect()
}

fn made(definitions: &[Definition]) -> Catalog {
    let mut catalog = Catalog::default();
    for definition in definitions {
        apply::apply(&mut catalog, definition, &mut IdSource::Counted(0)).unwrap();
    }
    catalog
}

/// The builder and the text give the same definitions.
#[test]
fn the_builder_makes_the_definitions_of_the_text() {
    let script = "
        CREATE MESSAGE TYPE [//shop/Add] VALIDATION = JSON;
        CREATE MESSAGE TYPE [//shop/Added] VALIDATION = EMPTY;
        CREATE MESSAGE TYPE [//shop/Note] VALIDATION = NONE;
        CREATE CONTRACT [//shop/Stock] (
            [//shop/Add] SENT BY INITIATOR, [//shop/Added] SENT BY TARGET, [//shop/Note] SENT BY ANY);
        CREATE QUEUE stock WITH RETENTION = ON,
            ACTIVATION (PROCEDURE_NAME = add_items, MAX_QUEUE_READERS = 4, EXECUTE AS OWNER);
        CREATE QUEUE desk WITH STATUS = OFF;
        CREATE SERVICE [//shop/Stock] ON QUEUE stock ([//shop/Stock]);
        CREATE SERVICE [//shop/Desk] ON QUEUE desk;
        CREATE BROKER PRIORITY urgent FOR CONVERSATION SET (
            CONTRACT_NAME = [//shop/Stock], LOCAL_SERVICE_NAME = [//shop/Desk], PRIORITY_LEVEL = 9);
        CREATE EVENT NOTIFICATION off ON QUEUE stock FOR BROKER_QUEUE_DISABLED
            TO SERVICE '//shop/Desk', 'current database';";
    let read: Vec<Definition> = ddl::parse(script).unwrap().into_iter().map(|read| read.definition).collect();
    assert_eq!(list(shop), read);
}

#[test]
fn changes_and_drops_make_the_definitions_of_the_text() {
    let built = list(|d| {
        d.alter_queue("stock").max_queue_readers(8).activation_status(false).poison_message_handling(false);
        d.alter_queue("desk").drop_activation();
        d.alter_service("//shop/Stock").on_queue("desk").add_contract("a").remove_contract("b");
        d.alter_broker_priority("urgent").any_contract().level(Level::HIGHEST);
        d.alter_message_type(ADD).drop_message_type(ADDED).drop_contract("c").drop_queue("q").drop_service("s");
        d.drop_broker_priority("urgent").drop_event_notification("off", "stock");
        d.alter_database(BrokerOption::HonorBrokerPriority(true));
    });
    let script = "
        ALTER QUEUE stock WITH ACTIVATION (MAX_QUEUE_READERS = 8, STATUS = OFF),
            POISON_MESSAGE_HANDLING (STATUS = OFF);
        ALTER QUEUE desk WITH ACTIVATION (DROP);
        ALTER SERVICE [//shop/Stock] ON QUEUE desk (ADD CONTRACT a, DROP CONTRACT b);
        ALTER BROKER PRIORITY urgent FOR CONVERSATION SET (CONTRACT_NAME = ANY, PRIORITY_LEVEL = 10);
        ALTER MESSAGE TYPE [//shop/Add] VALIDATION = JSON;
        DROP MESSAGE TYPE [//shop/Added];
        DROP CONTRACT c; DROP QUEUE q; DROP SERVICE s; DROP BROKER PRIORITY urgent;
        DROP EVENT NOTIFICATION off ON QUEUE stock;
        ALTER DATABASE CURRENT SET HONOR_BROKER_PRIORITY ON;";
    let read: Vec<Definition> = ddl::parse(script).unwrap().into_iter().map(|read| read.definition).collect();
    assert_eq!(built, read);
}

#[test]
fn existing_definitions_are_not_missing_and_all_others_are() {
    let wanted = list(shop);
    assert_eq!(missing(&Catalog::default(), &wanted).unwrap(), wanted);
    let catalog = made(&wanted);
    assert_eq!(missing(&catalog, &wanted).unwrap(), []);
    let more = list(|d| {
        shop(d);
        d.queue("new");
    });
    assert_eq!(
        missing(&catalog, &more).unwrap(),
        list(|d| {
            d.queue("new");
        })
    );
}

#[test]
fn only_the_named_options_of_a_queue_and_a_priority_are_compared() {
    let catalog = made(&list(shop));
    let loose = list(|d| {
        d.queue("STOCK").queue("desk");
        d.broker_priority("urgent").level(Level::new(9));
    });
    assert_eq!(missing(&catalog, &loose).unwrap(), []);
}

#[test]
fn what_was_turned_on_or_off_since_is_no_difference() {
    let text = |status: &str| {
        format!(
            "CREATE QUEUE q WITH STATUS = {status}, ACTIVATION (STATUS = {status}, PROCEDURE_NAME = x, MAX_QUEUE_READERS = 1, EXECUTE AS SELF);
             CREATE WORK QUEUE w WITH STATUS = {status};
             CREATE WORK SCHEDULE d ON WORK QUEUE w WITH CRON = '@daily', STATUS = {status}"
        )
    };
    let (on, off) = (script(&text("ON")), script(&text("OFF")));
    for (made_as, wanted, found) in [(&on, &off, "STATUS = ON, not OFF"), (&off, &on, "STATUS = OFF, not ON")] {
        let catalog = made(made_as);
        assert_eq!(missing(&catalog, wanted).unwrap(), []);
        let warnings = turned(&catalog, wanted);
        let objects =
            ["queue 'q' has", "the ACTIVATION of queue 'q' has", "work queue 'w' has", "work schedule 'd' has"];
        for (warning, object) in warnings.iter().zip(objects) {
            assert!(warning.starts_with(object) && warning.contains(found), "{warning}");
        }
        assert_eq!((warnings.len(), turned(&catalog, made_as)), (4, Vec::new()));
    }
}

/// The script of a start said nothing of a queue that was off, if it had no STATUS.
#[test]
fn a_creation_without_a_status_asks_for_on() {
    let text = |status: &str| {
        format!(
            "CREATE QUEUE q WITH {status} ACTIVATION ({status} PROCEDURE_NAME = x, MAX_QUEUE_READERS = 1, EXECUTE AS SELF);
             CREATE WORK QUEUE w WITH {status} ORDER = FIFO;
             CREATE WORK SCHEDULE d ON WORK QUEUE w WITH {status} CRON = '@daily'"
        )
    };
    let (off, without) = (script(&text("STATUS = OFF,")), script(&text("")));
    let warnings = turned(&made(&off), &without);
    let objects = ["queue 'q' has", "the ACTIVATION of queue 'q' has", "work queue 'w' has", "work schedule 'd' has"];
    for (warning, object) in warnings.iter().zip(objects) {
        assert!(warning.starts_with(object) && warning.contains("STATUS = OFF, not ON"), "{warning}");
    }
    assert_eq!((warnings.len(), turned(&made(&without), &without)), (4, Vec::new()));
    let (names, more) = (script("CREATE QUEUE q"), script("CREATE QUEUE more"));
    assert_eq!(turned(&made(&off), &names).len(), 1, "a clause that is not asked for is not compared");
    assert_eq!(turned(&made(&off), &more), Vec::<String>::new(), "what is missing is made");
}

#[test]
fn a_setting_of_the_broker_is_ensured_where_it_stands_so() {
    let dump = "ALTER DATABASE CURRENT SET HONOR_BROKER_PRIORITY ON; ALTER DATABASE CURRENT SET DISABLE_BROKER";
    let catalog = made(&script(dump));
    assert_eq!(missing(&catalog, &script(dump)).unwrap(), []);
    for other in ["HONOR_BROKER_PRIORITY OFF", "ENABLE_BROKER", "NEW_BROKER", "ERROR_BROKER_CONVERSATIONS"] {
        let other = script(&format!("ALTER DATABASE CURRENT SET {other}"));
        assert_eq!(missing(&catalog, &other).unwrap_err().code(), Code::UNSUPPORTED, "{other:?}");
    }
}

#[test]
fn a_differing_object_is_refused_by_name() {
    let catalog = made(&list(shop));
    type Build = fn(&mut Definitions);
    let cases: [(&str, Build); 7] = [
        ("//shop/Add", |d| {
            d.message_type("//shop/Add");
        }),
        ("//shop/Stock", |d| {
            d.contract("//shop/Stock").sent_by_any(ADD);
        }),
        ("MAX_QUEUE_READERS", |d| {
            d.queue("stock").max_queue_readers(5);
        }),
        ("ACTIVATION", |d| {
            d.queue("stock").drop_activation();
        }),
        ("its queue", |d| {
            d.service("//shop/Desk", "stock", []);
        }),
        ("its contracts", |d| {
            d.service("//shop/Stock", "stock", []);
        }),
        ("PRIORITY_LEVEL", |d| {
            d.broker_priority("urgent").level(Level::LOWEST);
        }),
    ];
    for (named, build) in cases {
        let error = missing(&catalog, &list(build)).unwrap_err();
        assert_eq!(error.code(), Code::DUPLICATE_NAME, "{error}");
        assert!(error.message().contains(named), "{error}");
    }
    let error = missing(
        &catalog,
        &list(|d| {
            d.drop_queue("desk");
        }),
    )
    .unwrap_err();
    assert_eq!(error.code(), Code::UNSUPPORTED);
}

#[test]
fn what_differs_is_shown_as_statements_write_it() {
    let titled = |name: &str, title: &str| {
        format!("CREATE MESSAGE TYPE {name} VALIDATION = JSON SCHEMA '{{\"title\": \"{}{title}\"}}'", "x".repeat(300))
    };
    let made_long = titled("long", " 1");
    let catalog = made(&script(&format!(
        "{made_long}; CREATE MESSAGE TYPE a VALIDATION = JSON; CREATE MESSAGE TYPE b; CREATE CONTRACT c (a SENT BY INITIATOR);
        CREATE QUEUE q WITH RETENTION = ON, RETRY (MAX_ATTEMPTS = 3); CREATE QUEUE r; CREATE SERVICE s ON QUEUE q (c);
        CREATE BROKER PRIORITY p FOR CONVERSATION SET (CONTRACT_NAME = c, PRIORITY_LEVEL = 7);
        CREATE EVENT NOTIFICATION n ON QUEUE q FOR QUEUE_ACTIVATION TO SERVICE 's', 'current database';
        CREATE WORK QUEUE w WITH ORDER = LIFO; CREATE WORK SCHEDULE d ON WORK QUEUE w WITH CRON = '@daily', BODY = 'it''s'"
    )));
    let (long, other) = (titled("a", ""), titled("long", " 2"));
    for (wanted, text) in [
        (
            "CREATE MESSAGE TYPE a",
            "message type 'a' exists already but differs: its validation: JSON; asked for: NONE; ALTER it, or ask for the same",
        ),
        (&long, "asked for: JSON SCHEMA '{\"title\": \"xxxx"),
        (&long, "xxxx ... (327 characters); ALTER it"),
        (&other, "differs: its validation: ... xxxx"),
        (&other, "xxxx 1\"}' (329 characters); asked for: ... xxxx"),
        (&other, "xxxx 2\"}' (329 characters); ALTER it"),
        (
            "CREATE CONTRACT c (b SENT BY ANY)",
            "its message types: ([a] SENT BY INITIATOR); asked for: ([b] SENT BY ANY); drop it and make it again,",
        ),
        ("CREATE QUEUE q WITH RETENTION = OFF", "RETENTION: ON; asked for: OFF"),
        ("CREATE QUEUE q WITH RETRY (MAX_ATTEMPTS = 4)", "RETRY MAX_ATTEMPTS: 3; asked for: 4"),
        ("CREATE QUEUE q WITH RETRY (THEN = QUEUE_OFF)", "RETRY THEN: QUARANTINE; asked for: QUEUE_OFF"),
        ("CREATE QUEUE q WITH RETRY (DROP)", "RETRY: set; asked for: none"),
        (
            "CREATE QUEUE q WITH ACTIVATION (PROCEDURE_NAME = x, MAX_QUEUE_READERS = 1)",
            "ACTIVATION: none; asked for: set",
        ),
        ("CREATE SERVICE s ON QUEUE r (c)", "its queue: q; asked for: r"),
        ("CREATE SERVICE s ON QUEUE q", "its contracts: c; asked for: none"),
        ("CREATE BROKER PRIORITY p FOR CONVERSATION SET (CONTRACT_NAME = ANY)", "CONTRACT_NAME: 'c'; asked for: ANY"),
        (
            "CREATE EVENT NOTIFICATION n ON QUEUE q FOR BROKER_QUEUE_DISABLED TO SERVICE 's', 'current database'",
            "QUEUE_ACTIVATION TO SERVICE 's'; asked for: BROKER_QUEUE_DISABLED TO SERVICE 's'; drop it",
        ),
        ("CREATE WORK QUEUE w WITH ORDER = FIFO", "ORDER: LIFO; asked for: FIFO"),
        ("CREATE WORK SCHEDULE d ON WORK QUEUE w WITH CRON = '@daily', BODY = 'x'", "BODY: 'it''s'; asked for: 'x'"),
    ] {
        let error = missing(&catalog, &script(wanted)).expect_err(wanted);
        assert!(error.message().contains(text), "{wanted}: {error}");
    }
}

#[test]
fn levels_are_1_to_10() {
    assert_eq!(Level::try_from(10).unwrap(), Level::HIGHEST);
    for level in [0, 11, 255] {
        assert_eq!(Level::try_from(level).unwrap_err().code(), Code::OUT_OF_RANGE);
    }
}
