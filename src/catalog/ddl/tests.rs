use super::*;
use crate::catalog::Catalog;
use crate::catalog::apply::apply;
use crate::error::Code;
use crate::id::IdSource;
use crate::protocol::definition::*;
use proptest::prelude::*;
use uuid::Uuid;

fn definitions_of(script: &str) -> Vec<Definition> {
    parse(script).unwrap().into_iter().map(|statement| statement.definition).collect()
}

fn one(script: &str) -> Definition {
    let mut definitions = definitions_of(script);
    assert_eq!(definitions.len(), 1, "{script}");
    definitions.remove(0)
}

/// Number, line, column and text of the refusal.
fn refused(script: &str) -> (Code, u32, u32, String) {
    let error = parse(script).unwrap_err();
    let position = error.position().expect("every refusal has a position");
    (error.code(), position.line, position.column, error.message().to_owned())
}

fn queue_options(script: &str) -> QueueOptions {
    match one(script) {
        Definition::CreateQueue { options, .. } | Definition::AlterQueue { options, .. } => options,
        other => panic!("{other:?}"),
    }
}

#[test]
fn message_types_with_every_validation() {
    for (text, validation) in [
        ("", Validation::None),
        ("VALIDATION = NONE", Validation::None),
        ("validation=empty", Validation::Empty),
        ("VALIDATION = WELL_FORMED_XML", Validation::WellFormedXml),
        (
            "VALIDATION = VALID_XML WITH SCHEMA COLLECTION dbo.[c c]",
            Validation::ValidXml { schema_collection: "c c".into() },
        ),
        ("VALIDATION = JSON", Validation::Json),
        (
            "VALIDATION = JSON SCHEMA N'{\"a\": \"it''s\"}'",
            Validation::JsonSchema { schema: "{\"a\": \"it's\"}".into() },
        ),
    ] {
        let created = Definition::CreateMessageType { name: "//x".into(), owner: None, validation: validation.clone() };
        assert_eq!(one(&format!("CREATE MESSAGE TYPE [//x] {text}")), created);
        if !text.is_empty() {
            let altered = Definition::AlterMessageType { name: "t".into(), validation };
            assert_eq!(one(&format!("alter message type t {text};")), altered);
        }
    }
    let owned =
        Definition::CreateMessageType { name: "t".into(), owner: Some("me".into()), validation: Validation::Empty };
    assert_eq!(one("CREATE MESSAGE TYPE t AUTHORIZATION me VALIDATION = EMPTY"), owned);
    assert_eq!(one("CREATE MESSAGE TYPE t VALIDATION = EMPTY AUTHORIZATION [me]"), owned);
    assert_eq!(one("DROP MESSAGE TYPE \"a \"\"b\"\"\""), Definition::DropMessageType { name: "a \"b\"".into() });
}

#[test]
fn contracts_and_their_directions() {
    let entry = |message_type: &str, sent_by| ContractEntry { message_type: message_type.into(), sent_by };
    let script =
        "CREATE CONTRACT [//c] AUTHORIZATION dbo ([DEFAULT] SENT BY ANY, a SENT BY INITIATOR, b sent by target)";
    let entries = vec![entry("DEFAULT", SentBy::Any), entry("a", SentBy::Initiator), entry("b", SentBy::Target)];
    let expected = Definition::CreateContract { name: "//c".into(), owner: Some("dbo".into()), entries };
    assert_eq!(one(script), expected);
    assert_eq!(one("DROP CONTRACT c"), Definition::DropContract { name: "c".into() });
}

#[test]
fn queue_options_in_any_order() {
    let expected = QueueOptions {
        status: Some(false),
        retention: Some(true),
        poison_message_handling: Some(true),
        poison_quarantine: Some(true),
        retry: Some(RetryChange::Set(RetryOptions {
            max_attempts: Some(8),
            delay_ms: Some(500),
            factor_percent: Some(300),
            max_delay_ms: Some(60_000),
            jitter_percent: Some(0),
            then: Some(AfterRetries::QueueOff),
        })),
        activation: Some(ActivationChange::Set(ActivationOptions {
            status: Some(true),
            procedure_name: Some("work".into()),
            max_queue_readers: Some(5),
            execute_as: Some(ExecuteAs::SelfUser),
        })),
        reason: Some("a deploy".into()),
    };
    for with in [
        "STATUS = OFF, REASON = 'a deploy', RETENTION = ON, ACTIVATION (STATUS = ON, PROCEDURE_NAME = dbo.work, MAX_QUEUE_READERS = 5, \
         EXECUTE AS SELF), POISON_MESSAGE_HANDLING (STATUS = ON, QUARANTINE = ON), RETRY (MAX_ATTEMPTS = 8, DELAY_MS = 500, \
         FACTOR_PERCENT = 300, MAX_DELAY_MS = 60000, JITTER_PERCENT = 0, THEN = QUEUE_OFF)",
        "RETRY (THEN = QUEUE_OFF, JITTER_PERCENT = 0, MAX_DELAY_MS = 60000, FACTOR_PERCENT = 300, DELAY_MS = 500, \
         MAX_ATTEMPTS = 8), POISON_MESSAGE_HANDLING (QUARANTINE = ON, STATUS = ON), ACTIVATION (EXECUTE AS SELF, MAX_QUEUE_READERS = 5, \
         PROCEDURE_NAME = db.dbo.[work], STATUS = ON), RETENTION = ON, REASON = 'a deploy', STATUS = OFF",
    ] {
        assert_eq!(queue_options(&format!("CREATE QUEUE q WITH {with} ON [DEFAULT];")), expected);
        assert_eq!(queue_options(&format!("ALTER QUEUE q WITH {with}")), expected);
    }
}

#[test]
fn activation_clauses() {
    let set = |script: &str| match queue_options(&format!("ALTER QUEUE q WITH ACTIVATION ({script})")).activation {
        Some(ActivationChange::Set(set)) => set,
        other => panic!("{other:?}"),
    };
    assert_eq!(set("EXECUTE AS OWNER").execute_as, Some(ExecuteAs::Owner));
    assert_eq!(set("EXECUTE AS N'it''s'").execute_as, Some(ExecuteAs::User("it's".into())));
    assert_eq!(set("MAX_QUEUE_READERS = -1").max_queue_readers, Some(-1), "the range is for whom applies it to tell");
    assert_eq!(set("PROCEDURE_NAME = app.work").procedure_name.as_deref(), Some("app.work"));
    assert_eq!(set("PROCEDURE_NAME = db..work").procedure_name.as_deref(), Some("work"));
    assert_eq!(set("PROCEDURE_NAME = #t").procedure_name.as_deref(), Some("#t"));
    let dropped = queue_options("ALTER QUEUE q WITH ACTIVATION (DROP)").activation;
    assert_eq!(dropped, Some(ActivationChange::Drop));
    assert_eq!(refused("ALTER QUEUE q WITH ACTIVATION (DROP, STATUS = ON)").0, Code::SYNTAX);
    assert_eq!(refused("ALTER QUEUE q WITH ACTIVATION (STATUS = ON, DROP)").0, Code::SYNTAX);
}

#[test]
fn queue_names_may_be_qualified_by_the_only_schema() {
    for name in ["q", "dbo.q", "[dbo].[q]", "DBO.q", "db.dbo.q", "db..q", "[my db].[dbo].q"] {
        assert_eq!(one(&format!("DROP QUEUE {name}")), Definition::DropQueue { name: "q".into() }, "{name}");
    }
    let (code, line, column, text) = refused("DROP QUEUE\n  app.q");
    assert_eq!((code, line, column), (Code::UNSUPPORTED, 2, 3));
    assert!(text.contains("'app'"), "{text}");
    assert_eq!(refused("DROP QUEUE a.b.c.d").0, Code::UNSUPPORTED);
    assert_eq!(refused("DROP QUEUE a.dbo.c.d").0, Code::SYNTAX);
    assert_eq!(refused("DROP SERVICE dbo.s").0, Code::SYNTAX, "no schema owns a service");
}

#[test]
fn maintenance_of_queues_finds_the_queue_and_does_nothing() {
    let nothing = Definition::AlterQueue { name: "q".into(), options: QueueOptions::default() };
    for rest in ["REBUILD", "REBUILD WITH (MAXDOP = 2)", "REORGANIZE", "REORGANIZE WITH (LOB_COMPACTION = ON)"] {
        assert_eq!(one(&format!("ALTER QUEUE q {rest}")), nothing);
    }
    assert_eq!(refused("ALTER QUEUE q MOVE TO fg").0, Code::UNSUPPORTED);
}

#[test]
fn services() {
    let created = Definition::CreateService {
        name: "//s".into(),
        owner: Some("me".into()),
        queue: "q".into(),
        contracts: vec!["c".into(), "DEFAULT".into()],
    };
    assert_eq!(one("CREATE SERVICE [//s] AUTHORIZATION me ON QUEUE dbo.q (c, [DEFAULT])"), created);
    let altered = Definition::AlterService {
        name: "s".into(),
        queue: Some("q2".into()),
        add_contracts: vec!["a".into(), "b".into()],
        drop_contracts: vec!["c".into()],
    };
    assert_eq!(one("ALTER SERVICE s ON QUEUE q2 (ADD CONTRACT a, DROP CONTRACT c, ADD CONTRACT [b])"), altered);
    let nothing = Definition::AlterService {
        name: "s".into(),
        queue: None,
        add_contracts: Vec::new(),
        drop_contracts: Vec::new(),
    };
    assert_eq!(one("ALTER SERVICE s"), nothing, "8493 is for whom applies it to tell");
    assert_eq!(one("DROP SERVICE s"), Definition::DropService { name: "s".into() });
}

#[test]
fn broker_priorities() {
    let plain = Definition::CreateBrokerPriority { name: "p".into(), set: PriorityOptions::default() };
    assert_eq!(one("CREATE BROKER PRIORITY p FOR CONVERSATION"), plain);
    let set = PriorityOptions {
        contract: Some(AnyOr::Name("c".into())),
        local_service: Some(AnyOr::Any),
        remote_service: Some(AnyOr::Name("r".into())),
        level: Some(5),
    };
    for script in [
        "SET (CONTRACT_NAME = c, LOCAL_SERVICE_NAME = ANY, REMOTE_SERVICE_NAME = 'r', PRIORITY_LEVEL = DEFAULT)",
        "SET (PRIORITY_LEVEL = 5 REMOTE_SERVICE_NAME = N'r' LOCAL_SERVICE_NAME = any CONTRACT_NAME = [c])",
    ] {
        let created = Definition::CreateBrokerPriority { name: "p".into(), set: set.clone() };
        assert_eq!(one(&format!("CREATE BROKER PRIORITY p FOR CONVERSATION {script}")), created);
    }
    let any = PriorityOptions { remote_service: Some(AnyOr::Any), ..PriorityOptions::default() };
    let altered = Definition::AlterBrokerPriority { name: "p".into(), set: any };
    assert_eq!(one("ALTER BROKER PRIORITY p FOR CONVERSATION SET (REMOTE_SERVICE_NAME = ANY)"), altered);
    assert_eq!(one("DROP BROKER PRIORITY p"), Definition::DropBrokerPriority { name: "p".into() });
    assert_eq!(refused("CREATE BROKER PRIORITY p FOR CONVERSATION SET (PRIORITY_LEVEL = 5,)").0, Code::SYNTAX);
}

#[test]
fn notifications_and_schema_collections() {
    let created = Definition::CreateEventNotification {
        name: "n".into(),
        queue: "q".into(),
        event: QueueEvent::QueueActivation,
        service: "s".into(),
    };
    let script = "CREATE EVENT NOTIFICATION n ON QUEUE dbo.q FOR QUEUE_ACTIVATION TO SERVICE 's', 'Current Database'";
    assert_eq!(one(script), created);
    let drop = |name: &str| Definition::DropEventNotification { name: name.into(), queue: "q".into() };
    assert_eq!(definitions_of("DROP EVENT NOTIFICATION a, b ON QUEUE q"), [drop("a"), drop("b")]);
    let collection = Definition::CreateXmlSchemaCollection { name: "x".into(), schemas: "<é/>".into() };
    assert_eq!(one("CREATE XML SCHEMA COLLECTION dbo.x AS N'<é/>'"), collection);
    assert_eq!(one("DROP XML SCHEMA COLLECTION x"), Definition::DropXmlSchemaCollection { name: "x".into() });
}

#[test]
fn options_of_the_broker() {
    let set = |option| Definition::AlterDatabase { option };
    let script = "ALTER DATABASE CURRENT SET ENABLE_BROKER WITH ROLLBACK IMMEDIATE;
                  ALTER DATABASE [my db] SET DISABLE_BROKER WITH ROLLBACK AFTER 5 SECONDS
                  ALTER DATABASE x SET NEW_BROKER, ERROR_BROKER_CONVERSATIONS WITH NO_WAIT
                  ALTER DATABASE x SET HONOR_BROKER_PRIORITY OFF";
    let expected = [
        BrokerOption::EnableBroker,
        BrokerOption::DisableBroker,
        BrokerOption::NewBroker,
        BrokerOption::ErrorBrokerConversations,
        BrokerOption::HonorBrokerPriority(false),
    ];
    assert_eq!(definitions_of(script), expected.map(set));
    assert_eq!(one("ALTER DATABASE x SET HONOR_BROKER_PRIORITY ON"), set(BrokerOption::HonorBrokerPriority(true)));
}

#[test]
fn a_whole_script_with_comments_go_and_missing_semicolons() {
    let script = "\u{feff}-- the shop\r\nCREATE MESSAGE TYPE a\r\nCREATE MESSAGE TYPE b;;\r\nGO\r\n/* a /* nested */ one */\r\n  \
                  CREATE QUEUE q ON [PRIMARY] DROP QUEUE q\r\ngo 1\r\n";
    let statements = parse(script).unwrap();
    let positions: Vec<_> = statements.iter().map(|s| (s.position.line, s.position.column)).collect();
    assert_eq!(positions, [(2, 1), (3, 1), (6, 3), (6, 31)]);
    assert_eq!(parse("").unwrap(), []);
    assert_eq!(parse(" ; GO\n;").unwrap_err().code(), Code::SYNTAX, "GO stands on a line of its own");
}

#[test]
fn syntax_errors_name_expectation_finding_and_place() {
    for (script, line, column, expected, found) in [
        ("CREATE TABLE t", 1, 8, "QUEUE", "TABLE"),
        ("SELECT 1", 1, 1, "CREATE, ALTER or DROP", "SELECT"),
        ("CREATE MESSAGE TYPE t VALIDATION = XML", 1, 36, "WELL_FORMED_XML", "XML"),
        ("CREATE MESSAGE TYPE t\n  VALIDATIN = NONE", 2, 3, "AUTHORIZATION, VALIDATION or ';'", "VALIDATIN"),
        ("CREATE QUEUE WITH STATUS = ON", 1, 14, "the name of a queue", "WITH"),
        ("CREATE QUEUE q WITH STATUS = MAYBE", 1, 30, "ON or OFF", "MAYBE"),
        ("CREATE QUEUE q WITH STATUS ON", 1, 28, "'='", "ON"),
        ("CREATE QUEUE q WITH", 1, 20, "RETENTION", "the end of the script"),
        ("CREATE QUEUE q WITH\nGO", 2, 1, "RETENTION", "GO"),
        ("CREATE QUEUE é; CREATE QUEUE 'x'", 1, 30, "the name of a queue", "'x'"),
        ("CREATE CONTRACT c (t SENT ANY)", 1, 27, "BY", "ANY"),
        ("CREATE CONTRACT c (t SENT BY ANY", 1, 33, "',' or ')'", "the end"),
        ("CREATE CONTRACT c (t SENT BY ANY,)", 1, 34, "the name of a message type", "')'"),
        ("CREATE SERVICE s ON QUEUE q [c]", 1, 29, "in parentheses", "[c]"),
        ("DROP QUEUE q garbage", 1, 14, "';'", "garbage"),
        ("CREATE QUEUE 5", 1, 14, "the name", "5"),
        ("ALTER CONTRACT c", 1, 16, "", "a contract cannot be altered"),
        ("ALTER EVENT NOTIFICATION n", 1, 26, "", "an event notification cannot be altered"),
        ("CREATE QUEUE q WITH STATUS = ON, STATUS = OFF", 1, 34, "STATUS", "twice"),
        (
            "CREATE QUEUE q WITH POISON_MESSAGE_HANDLING (STATUS = ON), POISON_MESSAGE_HANDLING (STATUS = ON)",
            1,
            60,
            "POISON_MESSAGE_HANDLING",
            "twice",
        ),
        ("CREATE QUEUE q WITH POISON_MESSAGE_HANDLING (LIMIT = 5)", 1, 46, "STATUS or QUARANTINE", "LIMIT"),
        ("ALTER QUEUE q WITH ACTIVATION (USER = x)", 1, 32, "EXECUTE AS or DROP", "USER"),
        ("ALTER QUEUE q WITH ACTIVATION (EXECUTE AS x)", 1, 43, "SELF, OWNER or a user", "x"),
        ("CREATE QUEUE q SET STATUS = ON", 1, 16, "WITH, ON or ';'", "SET"),
        ("CREATE SERVICE s ON QUEUE q; ALTER SERVICE s FOR c", 1, 46, "ON QUEUE", "FOR"),
        ("CREATE WORK QUEUE w SET PAUSED = ON", 1, 21, "WITH or ';'", "SET"),
        ("CREATE WORK QUEUE w WITH ORDER = LIFO, ORDER = LIFO", 1, 40, "ORDER", "twice"),
        ("CREATE QUEUE q%", 1, 15, "", "'%'"),
        ("CREATE QUEUE 🚚", 1, 14, "", "[brackets]"),
        ("CREATE QUEUE q; DROP QUEUE [q", 1, 28, "", "not closed"),
        ("CREATE QUEUE q /* x", 1, 16, "", "not closed"),
    ] {
        let (code, at_line, at_column, text) = refused(script);
        assert_eq!(code, Code::SYNTAX, "{script}: {text}");
        assert_eq!((at_line, at_column), (line, column), "{script}: {text}");
        assert!(text.contains(expected) && text.contains(found), "{script}: {text}");
    }
}

#[test]
fn the_first_mistake_is_reported() {
    let (_, line, _, text) = refused("CREATE QUEUE q STATUS\n'not closed");
    assert_eq!(line, 1, "{text}");
}

#[test]
fn ddl_of_networks_or_principals_is_refused_with_the_reason() {
    for script in [
        "CREATE ROUTE r WITH ADDRESS = 'LOCAL'",
        "ALTER ROUTE r WITH ADDRESS = 'LOCAL'",
        "DROP ROUTE r",
        "CREATE REMOTE SERVICE BINDING b TO SERVICE 's' WITH USER = u",
        "CREATE ENDPOINT e",
        "ALTER AUTHORIZATION ON SERVICE::s TO u",
        "GRANT SEND ON SERVICE::s TO public",
        "USE db",
        "BEGIN DIALOG @h FROM SERVICE s TO SERVICE 't'",
        "CREATE DATABASE d",
        "CREATE EVENT NOTIFICATION n ON SERVER FOR QUEUE_ACTIVATION TO SERVICE 's', 'current database'",
        "CREATE EVENT NOTIFICATION n ON QUEUE q FOR QUEUE_ACTIVATION, BROKER_QUEUE_DISABLED TO SERVICE 's', 'x'",
        "CREATE EVENT NOTIFICATION n ON QUEUE q FOR QUEUE_ACTIVATION TO SERVICE 's', 'a-guid'",
        "CREATE XML SCHEMA COLLECTION x AS @x",
        "ALTER XML SCHEMA COLLECTION x ADD 'y'",
        "CREATE QUEUE q\nGO 5",
    ] {
        let (code, .., text) = refused(script);
        assert_eq!(code, Code::UNSUPPORTED, "{script}: {text}");
    }
    let (.., text) = refused("GRANT SEND ON SERVICE::s TO public");
    assert!(text.contains("dialoq_user or dialoq_admin"), "{text}");
}

#[test]
fn numbers_that_nothing_could_hold_are_out_of_range() {
    let script = "ALTER BROKER PRIORITY p FOR CONVERSATION SET (PRIORITY_LEVEL = 99999999999999999999)";
    assert_eq!(refused(script).0, Code::OUT_OF_RANGE);
    let script = script.replace("9999999999999999999", "").replace("= ", "= -");
    let set = PriorityOptions { level: Some(-9), ..PriorityOptions::default() };
    assert_eq!(one(&script), Definition::AlterBrokerPriority { name: "p".into(), set });
}

#[test]
fn a_script_is_tried_whole_and_the_refused_statement_pointed_at() {
    let catalog = Catalog::with_builtins(Uuid::nil());
    let script = "CREATE QUEUE q;\nCREATE SERVICE s ON QUEUE q;\n  DROP QUEUE q;";
    let error = check(&catalog, &parse(script).unwrap()).unwrap_err();
    assert_eq!(error.code(), Code::OBJECT_IN_USE);
    assert_eq!(error.position().map(|at| (at.line, at.column)), Some((3, 3)));
    assert!(catalog.queues.is_empty(), "the catalog itself stays as it was");
    assert!(check(&catalog, &parse("CREATE QUEUE q; DROP QUEUE q").unwrap()).is_ok());
}

#[test]
fn a_definition_without_options_is_rendered_as_a_statement_without_them() {
    let queue = |options| Definition::AlterQueue { name: "q".into(), options };
    let priority = |set| Definition::CreateBrokerPriority { name: "p".into(), set };
    let off = QueueOptions { status: Some(false), ..QueueOptions::default() };
    let level = PriorityOptions { level: Some(7), ..PriorityOptions::default() };
    for (definition, text) in [
        (queue(QueueOptions::default()), "ALTER QUEUE [q] REORGANIZE;"),
        (queue(off), "ALTER QUEUE [q] WITH STATUS = OFF;"),
        (priority(PriorityOptions::default()), "CREATE BROKER PRIORITY [p] FOR CONVERSATION;"),
        (priority(level), "CREATE BROKER PRIORITY [p] FOR CONVERSATION SET (PRIORITY_LEVEL = 7);"),
    ] {
        assert_eq!(render_definition(&definition), text);
        assert_eq!(one(text), definition);
    }
}

#[test]
fn a_rendered_catalog_reads_well() {
    let script = "CREATE MESSAGE TYPE [//a]; CREATE CONTRACT [//c] ([//a] SENT BY ANY); CREATE QUEUE q; \
                  CREATE QUEUE w WITH STATUS = OFF, ACTIVATION (PROCEDURE_NAME = p, MAX_QUEUE_READERS = 2, EXECUTE AS OWNER); \
                  CREATE SERVICE s ON QUEUE q ([//c], [DEFAULT]); \
                  CREATE BROKER PRIORITY high FOR CONVERSATION SET (CONTRACT_NAME = [//c], PRIORITY_LEVEL = 9); \
                  CREATE EVENT NOTIFICATION n ON QUEUE q FOR QUEUE_ACTIVATION TO SERVICE 's', 'current database'; \
                  ALTER DATABASE CURRENT SET HONOR_BROKER_PRIORITY ON, DISABLE_BROKER";
    let expected = "CREATE MESSAGE TYPE [//a] VALIDATION = NONE;
CREATE CONTRACT [//c] ([//a] SENT BY ANY);
CREATE QUEUE [q];
CREATE QUEUE [w] WITH STATUS = OFF, ACTIVATION (STATUS = ON, PROCEDURE_NAME = [p], MAX_QUEUE_READERS = 2, EXECUTE AS OWNER);
CREATE SERVICE [s] ON QUEUE [q] ([//c], [DEFAULT]);
CREATE BROKER PRIORITY [high] FOR CONVERSATION SET (CONTRACT_NAME = [//c], LOCAL_SERVICE_NAME = ANY, REMOTE_SERVICE_NAME = ANY, PRIORITY_LEVEL = 9);
CREATE EVENT NOTIFICATION [n] ON QUEUE [q] FOR QUEUE_ACTIVATION TO SERVICE 's', 'current database';
ALTER DATABASE CURRENT SET DISABLE_BROKER;
ALTER DATABASE CURRENT SET HONOR_BROKER_PRIORITY ON;
";
    assert_eq!(render(&applied(&definitions_of(script)).0), expected);
    assert_eq!(render(&Catalog::with_builtins(Uuid::nil())), "", "the system's objects are not the user's");
}

/// A new broker after those definitions, and how many of them it took.
fn applied(definitions: &[Definition]) -> (Catalog, usize) {
    let mut catalog = Catalog::with_builtins(Uuid::from_u128(1));
    let mut ids = IdSource::Counted(100);
    let taken = definitions.iter().filter(|definition| apply(&mut catalog, definition, &mut ids).is_ok()).count();
    (catalog, taken)
}

/// Names with every character that could break out of their brackets or quotes.
fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("ANY".to_owned()),
        Just("DEFAULT".to_owned()),
        Just("]; DROP QUEUE [q".to_owned()),
        Just("it's \"x\" -- /* \r\nGO\r\n".to_owned()),
        "[a-z]{0,3}",
        any::<String>(),
    ]
}

fn any_validation() -> impl Strategy<Value = Validation> {
    prop_oneof![
        Just(Validation::None),
        Just(Validation::Empty),
        Just(Validation::WellFormedXml),
        any_name().prop_map(|schema_collection| Validation::ValidXml { schema_collection }),
        Just(Validation::Json),
        any_name().prop_map(|schema| Validation::JsonSchema { schema }),
    ]
}

fn any_activation() -> impl Strategy<Value = ActivationChange> {
    let user = prop_oneof![Just(ExecuteAs::SelfUser), Just(ExecuteAs::Owner), any_name().prop_map(ExecuteAs::User)];
    let set = (any::<Option<bool>>(), prop::option::of(any_name()), any::<Option<i64>>(), prop::option::of(user));
    let set = set.prop_map(|(status, procedure_name, max_queue_readers, execute_as)| {
        ActivationChange::Set(ActivationOptions { status, procedure_name, max_queue_readers, execute_as })
    });
    prop_oneof![Just(ActivationChange::Drop), set]
}

fn any_queue_options() -> impl Strategy<Value = QueueOptions> {
    let reason = prop::option::of(any_name());
    let options =
        (any::<[Option<bool>; 4]>(), prop::option::of(any_retry()), prop::option::of(any_activation()), reason);
    options.prop_map(|(switches, retry, activation, reason)| {
        let [status, retention, poison_message_handling, poison_quarantine] = switches;
        QueueOptions { status, retention, poison_message_handling, poison_quarantine, retry, activation, reason }
    })
}

fn any_retry() -> impl Strategy<Value = RetryChange> {
    let then = prop::sample::select(AfterRetries::ALL.map(|(_, then)| then).to_vec());
    // A clause names one setting at least.
    let set =
        (any::<i64>(), any::<[Option<i64>; 4]>(), prop::option::of(then)).prop_map(|(attempts, numbers, then)| {
            let [delay_ms, factor_percent, max_delay_ms, jitter_percent] = numbers;
            let max_attempts = Some(attempts);
            RetryChange::Set(RetryOptions {
                max_attempts,
                delay_ms,
                factor_percent,
                max_delay_ms,
                jitter_percent,
                then,
            })
        });
    prop_oneof![Just(RetryChange::Drop), set]
}

fn any_priority_options() -> impl Strategy<Value = PriorityOptions> {
    let any_or = || prop::option::of(prop_oneof![Just(AnyOr::Any), any_name().prop_map(AnyOr::Name)]);
    (any_or(), any_or(), any_or(), any::<Option<i64>>()).prop_map(|(contract, local_service, remote_service, level)| {
        PriorityOptions { contract, local_service, remote_service, level }
    })
}

fn any_definition() -> impl Strategy<Value = Definition> {
    use Definition as D;
    let names = || prop::collection::vec(any_name(), 0..4);
    let sent_by = prop_oneof![Just(SentBy::Initiator), Just(SentBy::Target), Just(SentBy::Any)];
    let entry = (any_name(), sent_by).prop_map(|(message_type, sent_by)| ContractEntry { message_type, sent_by });
    let event = prop_oneof![Just(QueueEvent::QueueActivation), Just(QueueEvent::BrokerQueueDisabled)];
    let option = prop_oneof![
        Just(BrokerOption::EnableBroker),
        Just(BrokerOption::DisableBroker),
        Just(BrokerOption::NewBroker),
        Just(BrokerOption::ErrorBrokerConversations),
        any::<bool>().prop_map(BrokerOption::HonorBrokerPriority),
    ];
    let owner = || prop::option::of(any_name());
    prop_oneof![
        (any_name(), owner(), any_validation()).prop_map(|(name, owner, validation)| D::CreateMessageType {
            name,
            owner,
            validation
        }),
        (any_name(), any_validation()).prop_map(|(name, validation)| D::AlterMessageType { name, validation }),
        any_name().prop_map(|name| D::DropMessageType { name }),
        (any_name(), owner(), prop::collection::vec(entry, 0..4))
            .prop_map(|(name, owner, entries)| D::CreateContract { name, owner, entries }),
        any_name().prop_map(|name| D::DropContract { name }),
        (any_name(), any_queue_options()).prop_map(|(name, options)| D::CreateQueue { name, options }),
        (any_name(), any_queue_options()).prop_map(|(name, options)| D::AlterQueue { name, options }),
        any_name().prop_map(|name| D::DropQueue { name }),
        (any_name(), owner(), any_name(), names()).prop_map(|(name, owner, queue, contracts)| D::CreateService {
            name,
            owner,
            queue,
            contracts
        }),
        (any_name(), owner(), names(), names()).prop_map(|(name, queue, add_contracts, drop_contracts)| {
            D::AlterService { name, queue, add_contracts, drop_contracts }
        }),
        any_name().prop_map(|name| D::DropService { name }),
        (any_name(), any_priority_options()).prop_map(|(name, set)| D::CreateBrokerPriority { name, set }),
        (any_name(), any_priority_options()).prop_map(|(name, set)| D::AlterBrokerPriority { name, set }),
        any_name().prop_map(|name| D::DropBrokerPriority { name }),
        (any_name(), any_name()).prop_map(|(name, schemas)| D::CreateXmlSchemaCollection { name, schemas }),
        any_name().prop_map(|name| D::DropXmlSchemaCollection { name }),
        (any_name(), any_name(), event, any_name())
            .prop_map(|(name, queue, event, service)| D::CreateEventNotification { name, queue, event, service }),
        (any_name(), any_name()).prop_map(|(name, queue)| D::DropEventNotification { name, queue }),
        option.prop_map(|option| D::AlterDatabase { option }),
    ]
}

/// Definitions over few names, so that many of them apply.
fn likely_script() -> impl Strategy<Value = Vec<Definition>> {
    let name = || prop_oneof![Just("a"), Just("b"), Just("A]"), Just("é'")].prop_map(str::to_owned);
    let names = move || prop::collection::vec(name(), 0..3);
    let sent_by = || prop_oneof![Just(SentBy::Initiator), Just(SentBy::Any)];
    let entry = move || (name(), sent_by()).prop_map(|(message_type, sent_by)| ContractEntry { message_type, sent_by });
    let likely = prop_oneof![
        name().prop_map(|name| Definition::CreateMessageType { name, owner: None, validation: Validation::Json }),
        name().prop_map(|name| Definition::CreateQueue { name, options: QueueOptions::default() }),
        (name(), prop::collection::vec(entry(), 1..3)).prop_map(|(name, entries)| Definition::CreateContract {
            name,
            owner: Some("o".into()),
            entries
        }),
        (name(), name(), names()).prop_map(|(name, queue, contracts)| Definition::CreateService {
            name,
            owner: None,
            queue,
            contracts
        }),
        (name(), name(), name(), 0..12_i64).prop_map(|(name, contract, remote, level)| {
            let set = PriorityOptions {
                contract: Some(AnyOr::Name(contract)),
                local_service: None,
                remote_service: Some(AnyOr::Name(remote)),
                level: Some(level),
            };
            Definition::CreateBrokerPriority { name, set }
        }),
        (name(), name()).prop_map(|(name, queue)| Definition::CreateEventNotification {
            name,
            queue,
            event: QueueEvent::QueueActivation,
            service: "far".into()
        }),
        (name(), name()).prop_map(|(name, procedure)| {
            let activation = ActivationOptions {
                status: None,
                procedure_name: Some(procedure),
                max_queue_readers: Some(3),
                execute_as: Some(ExecuteAs::Owner),
            };
            let activation = Some(ActivationChange::Set(activation));
            Definition::AlterQueue { name, options: QueueOptions { activation, ..QueueOptions::default() } }
        }),
        any_definition(),
    ];
    prop::collection::vec(likely, 0..60)
}

/// Pieces of statements in any order.
fn token_soup() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "CREATE",
        "ALTER",
        "DROP",
        "MESSAGE TYPE",
        "CONTRACT",
        "QUEUE",
        "SERVICE",
        "BROKER PRIORITY",
        "FOR CONVERSATION",
        "EVENT NOTIFICATION",
        "XML SCHEMA COLLECTION",
        "DATABASE",
        "CURRENT",
        "SET",
        "WITH",
        "ON",
        "OFF",
        "STATUS",
        "=",
        "(",
        ")",
        ",",
        ";",
        ".",
        "-",
        "'",
        "\"",
        "[",
        "]",
        "[x]",
        "'x'",
        "N'x'",
        "q",
        "5",
        "99999999999999999999",
        "\nGO\n",
        "\nGO 7\n",
        "/*",
        "*/",
        "--",
        "\n",
        "ACTIVATION",
        "PROCEDURE_NAME",
        "MAX_QUEUE_READERS",
        "EXECUTE AS",
        "SELF",
        "SENT BY",
        "ANY",
        "VALIDATION",
        "VALID_XML",
        "JSON",
        "PRIORITY_LEVEL",
        "CONTRACT_NAME",
        "AUTHORIZATION",
        "AS",
        "é",
        "🚚",
    ]);
    prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.join(" "))
}

/// Parsing ends, and a refusal points into the script.
fn parses_or_points(script: &str) -> Result<(), TestCaseError> {
    if let Err(error) = parse(script) {
        let position = error.position().expect("every refusal has a position");
        let line = script.split('\n').nth(position.line as usize - 1);
        let line = line.ok_or_else(|| TestCaseError::fail(format!("{error}: no such line")))?;
        prop_assert!(position.column as usize <= line.chars().count() + 1, "{error}: beyond the line");
    }
    Ok(())
}

proptest! {
    #![proptest_config(dialoq_test_support::seeds::config(256))]

    #[test]
    fn any_text_parses_or_is_refused_with_a_position(script in any::<String>()) {
        parses_or_points(&script)?;
    }

    #[test]
    fn any_soup_of_tokens_parses_or_is_refused_with_a_position(script in token_soup()) {
        parses_or_points(&script)?;
    }

    #[test]
    fn any_cut_of_a_statement_parses_or_is_refused_with_a_position(definition in any_definition(), at in any::<prop::sample::Index>()) {
        let script: Vec<char> = render_definition(&definition).chars().collect();
        parses_or_points(&script[..at.index(script.len())].iter().collect::<String>())?;
    }

    #[test]
    fn rendered_definitions_parse_to_the_same(definitions in prop::collection::vec(any_definition(), 0..4)) {
        let script: Vec<_> = definitions.iter().map(render_definition).collect();
        for glue in ["\n", " ", "\r\nGO\r\n"] {
            prop_assert_eq!(definitions_of(&script.join(glue)), definitions.clone());
        }
    }

    #[test]
    fn a_rendered_catalog_gives_the_same_catalog(script in likely_script()) {
        let rendered = render(&applied(&script).0);
        let again = definitions_of(&rendered);
        let (catalog, taken) = applied(&again);
        prop_assert_eq!(taken, again.len(), "every statement of a rendered catalog applies:\n{}", rendered);
        prop_assert_eq!(render(&catalog), rendered);
    }
}

#[test]
fn a_clause_that_a_notification_or_a_priority_does_not_have_is_refused_where_it_stands() {
    for (script, clause, code, says) in [
        (
            "CREATE EVENT NOTIFICATION n ON QUEUE q WITH FAN_IN FOR QUEUE_ACTIVATION TO SERVICE 's', 'x'",
            "WITH",
            Code::UNSUPPORTED,
            "FAN_IN",
        ),
        ("CREATE BROKER PRIORITY p FOR CONVERSATION SET (LEVEL = 5)", "LEVEL", Code::SYNTAX, "PRIORITY_LEVEL or ')'"),
    ] {
        let column = script.find(clause).unwrap() + 1;
        let (found, line, at, text) = refused(script);
        assert_eq!((found, line, at as usize), (code, 1, column), "{text}");
        assert!(text.contains(says), "{text}");
    }
}

#[test]
fn an_empty_list_is_not_rendered_and_a_text_has_an_n_only_if_it_needs_one() {
    let collection =
        |schemas: &str| Definition::CreateXmlSchemaCollection { name: "x".into(), schemas: schemas.into() };
    let created = Definition::CreateService { name: "s".into(), owner: None, queue: "q".into(), contracts: Vec::new() };
    let altered = Definition::AlterService {
        name: "s".into(),
        queue: None,
        add_contracts: Vec::new(),
        drop_contracts: Vec::new(),
    };
    let work_queue = Definition::CreateWorkQueue { name: "w".into(), options: Vec::new() };
    for (definition, text) in [
        (created, "CREATE SERVICE [s] ON QUEUE [q];"),
        (altered, "ALTER SERVICE [s];"),
        (work_queue, "CREATE WORK QUEUE [w];"),
        (collection("<a/>"), "CREATE XML SCHEMA COLLECTION [x] AS '<a/>';"),
        (collection("<é/>"), "CREATE XML SCHEMA COLLECTION [x] AS N'<é/>';"),
    ] {
        assert_eq!(render_definition(&definition), text);
        assert_eq!(one(text), definition);
    }
}
