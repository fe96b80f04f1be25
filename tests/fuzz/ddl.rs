//! Scripts of definitions.

use crate::harness::text;
use dialoq::catalog::Catalog;
use dialoq::catalog::ddl::{parse, render, render_definition};
use dialoq::internals::apply::apply;
use dialoq::protocol::definition::Definition;
use dialoq::{Code, IdSource};

pub(crate) const WORDS: &[&str] = &[
    "CREATE ",
    "ALTER ",
    "DROP ",
    "MESSAGE TYPE ",
    "CONTRACT ",
    "QUEUE ",
    "SERVICE ",
    "BROKER PRIORITY ",
    "FOR CONVERSATION ",
    "EVENT NOTIFICATION ",
    "XML SCHEMA COLLECTION ",
    "DATABASE CURRENT ",
    "SET ",
    "WITH ",
    "ON ",
    "OFF ",
    "STATUS = ",
    "RETENTION = ",
    "ACTIVATION (",
    "PROCEDURE_NAME = ",
    "MAX_QUEUE_READERS = ",
    "EXECUTE AS ",
    "SELF",
    "OWNER",
    "SENT BY ",
    "ANY",
    "INITIATOR",
    "TARGET",
    "VALIDATION = ",
    "VALID_XML ",
    "WELL_FORMED_XML",
    "JSON SCHEMA '",
    "EMPTY",
    "NONE",
    "PRIORITY_LEVEL = ",
    "CONTRACT_NAME = ",
    "LOCAL_SERVICE_NAME = ",
    "REMOTE_SERVICE_NAME = ",
    "AUTHORIZATION ",
    "POISON_MESSAGE_HANDLING (",
    "QUARANTINE = ",
    "RETRY (",
    "MAX_ATTEMPTS = ",
    "THEN = ",
    "ENABLE_BROKER",
    "NEW_BROKER",
    "HONOR_BROKER_PRIORITY ",
    "ADD CONTRACT ",
    "TO SERVICE ",
    "dbo.",
    "(",
    ")",
    "[",
    "]",
    "]]",
    "'",
    "''",
    "\"",
    "N'",
    ",",
    ";",
    ".",
    "=",
    "\nGO\n",
    "\nGO 7\n",
    "/*",
    "*/",
    "--",
    "[DEFAULT]",
    "32767",
    "99999999999999999999",
];

/// What is parsed, rendered and parsed again is the same; a refusal points into the script.
pub(crate) fn check(input: &[u8]) {
    let script = text(input);
    let statements = match parse(&script) {
        Ok(statements) => statements,
        Err(error) => {
            let position = error.position().expect("every refusal has a position");
            assert!(position.line as usize <= script.split('\n').count(), "{error}: there is no such line");
            assert!([Code::SYNTAX, Code::OUT_OF_RANGE, Code::UNSUPPORTED].contains(&error.code()), "{error}");
            return;
        }
    };
    let definitions: Vec<Definition> = statements.into_iter().map(|statement| statement.definition).collect();
    let rendered: Vec<String> = definitions.iter().map(render_definition).collect();
    assert_eq!(parsed(&rendered.join("\n")), definitions, "what was rendered is something else");
    // A large script repeats itself, and looking names up is linear for each.
    if definitions.len() < 200 {
        let whole = render(&applied(&definitions));
        assert_eq!(render(&applied(&parsed(&whole))), whole, "a rendered catalog is something else");
    }
}

fn parsed(script: &str) -> Vec<Definition> {
    let statements = parse(script).expect("what is rendered is understood");
    statements.into_iter().map(|statement| statement.definition).collect()
}

fn applied(definitions: &[Definition]) -> Catalog {
    let (mut catalog, mut ids) = (Catalog::with_builtins(uuid::Uuid::from_u128(1)), IdSource::Counted(100));
    for definition in definitions {
        // A refusal leaves the catalog as it was.
        let _ = apply(&mut catalog, definition, &mut ids);
    }
    catalog
}
