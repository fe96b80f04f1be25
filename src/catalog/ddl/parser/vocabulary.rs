//! Message types, contracts and XML schema collections.

use super::{Action, Definitions, list, no_alter};
use crate::catalog::ddl::cursor::{Cursor, unsupported};
use crate::catalog::ddl::lexer::Token;
use crate::error::Result;
use crate::protocol::definition::{ContractEntry, Definition, SentBy, Validation};

pub(super) fn message_type(cursor: &mut Cursor, action: Action) -> Definitions {
    let name = cursor.name("a message type")?;
    let definition = match action {
        Action::Drop => Definition::DropMessageType { name },
        Action::Alter => {
            cursor.words("VALIDATION")?;
            Definition::AlterMessageType { name, validation: equals_validation(cursor)? }
        }
        Action::Create => {
            let mut owner = None;
            let mut validation = None;
            loop {
                if cursor.is_word("AUTHORIZATION") {
                    cursor.once(&mut owner, "AUTHORIZATION", |cursor| cursor.name("an owner"))?;
                } else if cursor.is_word("VALIDATION") {
                    cursor.once(&mut validation, "VALIDATION", equals_validation)?;
                } else {
                    break;
                }
            }
            cursor.end_of_statement("AUTHORIZATION, VALIDATION or ';'")?;
            Definition::CreateMessageType { name, owner, validation: validation.unwrap_or_default() }
        }
    };
    Ok(vec![definition])
}

fn equals_validation(cursor: &mut Cursor) -> Result<Validation> {
    cursor.symbol('=')?;
    let validation = cursor.one_of(&[
        ("NONE", Validation::None),
        ("EMPTY", Validation::Empty),
        ("WELL_FORMED_XML", Validation::WellFormedXml),
        ("VALID_XML", Validation::ValidXml { schema_collection: String::new() }),
        ("JSON", Validation::Json),
    ])?;
    Ok(match validation {
        Validation::ValidXml { .. } => {
            cursor.words("WITH SCHEMA COLLECTION")?;
            Validation::ValidXml { schema_collection: cursor.name_in_schema("an XML schema collection")? }
        }
        Validation::Json if cursor.eat_word("SCHEMA") => {
            Validation::JsonSchema { schema: cursor.text("a JSON Schema")? }
        }
        other => other,
    })
}

pub(super) fn contract(cursor: &mut Cursor, action: Action) -> Definitions {
    if action == Action::Alter {
        return no_alter(cursor, "a contract", "create another, and let the services change over to it");
    }
    let name = cursor.name("a contract")?;
    if action == Action::Drop {
        return Ok(vec![Definition::DropContract { name }]);
    }
    let owner = owner(cursor)?;
    let entries = list(cursor, |cursor| {
        let message_type = cursor.name("a message type")?;
        cursor.words("SENT BY")?;
        let sent_by = cursor.one_of(&SentBy::ALL)?;
        Ok(ContractEntry { message_type, sent_by })
    })?;
    Ok(vec![Definition::CreateContract { name, owner, entries }])
}

pub(super) fn xml_schema_collection(cursor: &mut Cursor, action: Action) -> Definitions {
    if action == Action::Alter {
        let why = "ALTER XML SCHEMA COLLECTION: create another collection, and ALTER the message types to it";
        return Err(unsupported(why).at(cursor.position()));
    }
    let name = cursor.name_in_schema("an XML schema collection")?;
    if action == Action::Drop {
        return Ok(vec![Definition::DropXmlSchemaCollection { name }]);
    }
    cursor.words("AS")?;
    if matches!(cursor.token(), Token::Word(word) if word.starts_with('@')) {
        let why = "variables: scripts only define; give the schemas as a string";
        return Err(unsupported(why).at(cursor.position()));
    }
    Ok(vec![Definition::CreateXmlSchemaCollection { name, schemas: cursor.text("the schemas")? }])
}

/// `[AUTHORIZATION owner]`
pub(super) fn owner(cursor: &mut Cursor) -> Result<Option<String>> {
    if cursor.eat_word("AUTHORIZATION") { cursor.name("an owner").map(Some) } else { Ok(None) }
}
