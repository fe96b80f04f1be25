//! From tokens to definitions.

mod broker;
mod queue;
mod service;
mod vocabulary;
mod work_queue;
mod work_schedule;

use super::Statement;
use super::cursor::{Cursor, either, unsupported};
use super::lexer::Token;
use crate::error::{Code, Error, Result};
use crate::protocol::definition::Definition;

/// The result of a statement: mostly one definition.
type Definitions = Result<Vec<Definition>>;

/// All statements of a script.
pub(super) fn script(mut cursor: Cursor) -> Result<Vec<Statement>> {
    let mut statements = Vec::new();
    loop {
        match cursor.token() {
            Token::End => return Ok(statements),
            Token::Symbol(';') => cursor.advance(),
            Token::Go(count) => {
                if count.as_deref().is_some_and(|count| count.trim_start_matches('0') != "1") {
                    return Err(unsupported("GO with a count: definitions are applied once; leave the count out")
                        .at(cursor.position()));
                }
                cursor.advance();
            }
            _ => {
                let position = cursor.position();
                let definitions = statement(&mut cursor)?;
                cursor.end_of_statement("';' or the next statement")?;
                statements.extend(definitions.into_iter().map(|definition| Statement { definition, position }));
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Create,
    Alter,
    Drop,
}

impl Action {
    const ALL: [(&'static str, Self); 3] = [("CREATE", Self::Create), ("ALTER", Self::Alter), ("DROP", Self::Drop)];
}

/// Passes the words of a kind of object from the second on, and reads the rest of the statement.
type Rest = fn(&mut Cursor, Action) -> Definitions;

/// The kinds of objects: first word, further words, and the function that reads on.
const KINDS: [(&str, &str, Rest); 10] = [
    ("MESSAGE", "TYPE", vocabulary::message_type),
    ("CONTRACT", "", vocabulary::contract),
    ("XML", "SCHEMA COLLECTION", vocabulary::xml_schema_collection),
    ("QUEUE", "", queue::queue),
    ("EVENT", "NOTIFICATION", queue::event_notification),
    ("SERVICE", "", service::service),
    ("BROKER", "PRIORITY", service::broker_priority),
    ("WORK", "QUEUE", work_queue::work_queue),
    ("WORK", "SCHEDULE", work_schedule::work_schedule),
    ("DATABASE", "", broker::database),
];

fn statement(cursor: &mut Cursor) -> Definitions {
    if let Some(refusal) = refused_statement(cursor) {
        return Err(refusal);
    }
    let action = cursor.one_of(&Action::ALL)?;
    if let Some(refusal) = refused_kind(cursor) {
        return Err(refusal);
    }
    let found: Vec<_> = KINDS.into_iter().filter(|(first, ..)| cursor.is_word(first)).collect();
    let Some(&(first, ..)) = found.first() else {
        let kinds = KINDS.map(|(first, further, _)| format!("{first} {further}").trim_end().to_owned());
        return Err(cursor.unexpected(&either(&kinds.each_ref().map(String::as_str))));
    };
    cursor.words(first)?;
    let follows = |further: &str| further.split(' ').next().is_some_and(|word| word.is_empty() || cursor.is_word(word));
    let Some(&(_, further, rest)) = found.iter().find(|(_, further, _)| follows(further)) else {
        let further: Vec<&str> = found.iter().filter_map(|(_, further, _)| further.split(' ').next()).collect();
        return Err(cursor.unexpected(&either(&further)));
    };
    if !further.is_empty() {
        cursor.words(further)?;
    }
    rest(cursor, action)
}

/// Statements of Service Broker scripts that are no definitions of ours.
fn refused_statement(cursor: &Cursor) -> Option<Error> {
    const CONVERSING: [&str; 7] = ["BEGIN", "SEND", "RECEIVE", "END", "GET", "MOVE", "WAITFOR"];
    let why = if cursor.is_word("USE") {
        "USE: a broker is one database; leave it out, and open the database that is meant"
    } else if ["GRANT", "DENY", "REVOKE"].iter().any(|word| cursor.is_word(word)) {
        "permissions: scripts define and do not grant; leave the statement out; on a server, give the user the role \
         dialoq_user or dialoq_admin"
    } else if CONVERSING.iter().any(|word| cursor.is_word(word)) {
        "statements of a conversation in a script: scripts define; converse through the broker's functions or its command"
    } else {
        return None;
    };
    Some(unsupported(why).at(cursor.position()))
}

/// Objects of Service Broker that need a network or principals.
fn refused_kind(cursor: &Cursor) -> Option<Error> {
    let why = if cursor.is_word("ROUTE") {
        "routes: all services are in one store, so that nothing is to be routed; leave the statement out"
    } else if cursor.is_word("REMOTE") {
        "remote service bindings: dialogs stay in one store and are never encrypted; leave the statement out"
    } else if cursor.is_word("ENDPOINT") {
        "endpoints: there is no network between services; leave the statement out"
    } else if cursor.is_word("AUTHORIZATION") {
        "ALTER AUTHORIZATION: the broker's objects have no owner of their own; leave the statement out"
    } else {
        return None;
    };
    Some(unsupported(why).at(cursor.position()))
}

/// A list in parentheses, perhaps empty.
fn list<T>(cursor: &mut Cursor, mut item: impl FnMut(&mut Cursor) -> Result<T>) -> Result<Vec<T>> {
    cursor.symbol('(')?;
    let mut items = Vec::new();
    if cursor.eat_symbol(')') {
        return Ok(items);
    }
    loop {
        items.push(item(cursor)?);
        if !cursor.eat_symbol(',') {
            break;
        }
    }
    if !cursor.eat_symbol(')') {
        return Err(cursor.unexpected("',' or ')'"));
    }
    Ok(items)
}

/// 60004: this kind of object has no such statement.
fn no_alter<T>(cursor: &Cursor, what: &str, instead: &str) -> Result<T> {
    let text = format!("{what} cannot be altered; {instead}");
    Err(Error::new(Code::SYNTAX, text).at(cursor.position()))
}
