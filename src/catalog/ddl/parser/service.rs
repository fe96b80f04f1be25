//! Services and broker priorities.

use super::vocabulary::owner;
use super::{Action, Definitions, list};
use crate::catalog::ddl::cursor::Cursor;
use crate::catalog::ddl::lexer::Token;
use crate::catalog::priority::DEFAULT_LEVEL;
use crate::error::Result;
use crate::protocol::definition::{AnyOr, Definition, PriorityOptions};

pub(super) fn service(cursor: &mut Cursor, action: Action) -> Definitions {
    let name = cursor.name("a service")?;
    let definition = match action {
        Action::Drop => Definition::DropService { name },
        Action::Create => {
            let owner = owner(cursor)?;
            cursor.words("ON QUEUE")?;
            let queue = cursor.name_in_schema("a queue")?;
            let has_contracts = *cursor.token() == Token::Symbol('(');
            let contracts = if has_contracts { list(cursor, |cursor| cursor.name("a contract"))? } else { Vec::new() };
            cursor.end_of_statement("a list of contracts in parentheses or ';'")?;
            Definition::CreateService { name, owner, queue, contracts }
        }
        Action::Alter => {
            let queue = if cursor.eat_word("ON") {
                cursor.words("QUEUE")?;
                Some(cursor.name_in_schema("a queue")?)
            } else {
                None
            };
            let (mut add_contracts, mut drop_contracts) = (Vec::new(), Vec::new());
            if *cursor.token() == Token::Symbol('(') {
                list(cursor, |cursor| {
                    let is_added = cursor.one_of(&[("ADD", true), ("DROP", false)])?;
                    cursor.words("CONTRACT")?;
                    let contract = cursor.name("a contract")?;
                    if is_added {
                        add_contracts.push(contract)
                    } else {
                        drop_contracts.push(contract)
                    }
                    Ok(())
                })?;
            }
            cursor.end_of_statement("ON QUEUE, (ADD CONTRACT ..., DROP CONTRACT ...) or ';'")?;
            Definition::AlterService { name, queue, add_contracts, drop_contracts }
        }
    };
    Ok(vec![definition])
}

pub(super) fn broker_priority(cursor: &mut Cursor, action: Action) -> Definitions {
    let name = cursor.name("a broker priority")?;
    if action == Action::Drop {
        return Ok(vec![Definition::DropBrokerPriority { name }]);
    }
    cursor.words("FOR CONVERSATION")?;
    let set = if action == Action::Alter || cursor.is_word("SET") { set(cursor)? } else { PriorityOptions::default() };
    Ok(vec![match action {
        Action::Alter => Definition::AlterBrokerPriority { name, set },
        _ => Definition::CreateBrokerPriority { name, set },
    }])
}

/// `SET ( ... )`; the commas between are optional, as Service Broker has them.
fn set(cursor: &mut Cursor) -> Result<PriorityOptions> {
    cursor.words("SET")?;
    cursor.symbol('(')?;
    let mut set = PriorityOptions::default();
    while !cursor.eat_symbol(')') {
        if cursor.is_word("CONTRACT_NAME") {
            cursor.once(&mut set.contract, "CONTRACT_NAME", |cursor| any_or_name(cursor, "a contract"))?;
        } else if cursor.is_word("LOCAL_SERVICE_NAME") {
            cursor.once(&mut set.local_service, "LOCAL_SERVICE_NAME", |cursor| any_or_name(cursor, "a service"))?;
        } else if cursor.is_word("REMOTE_SERVICE_NAME") {
            cursor.once(&mut set.remote_service, "REMOTE_SERVICE_NAME", |cursor| {
                cursor.symbol('=')?;
                if cursor.eat_word("ANY") {
                    return Ok(AnyOr::Any);
                }
                cursor.text("ANY or a service").map(AnyOr::Name)
            })?;
        } else if cursor.is_word("PRIORITY_LEVEL") {
            cursor.once(&mut set.level, "PRIORITY_LEVEL", |cursor| {
                cursor.symbol('=')?;
                if cursor.eat_word("DEFAULT") {
                    return Ok(i64::from(DEFAULT_LEVEL));
                }
                cursor.integer("PRIORITY_LEVEL")
            })?;
        } else {
            return Err(
                cursor.unexpected("CONTRACT_NAME, LOCAL_SERVICE_NAME, REMOTE_SERVICE_NAME, PRIORITY_LEVEL or ')'")
            );
        }
        if cursor.eat_symbol(',') && *cursor.token() == Token::Symbol(')') {
            return Err(cursor.unexpected("another setting after ','"));
        }
    }
    Ok(set)
}

fn any_or_name(cursor: &mut Cursor, what: &str) -> Result<AnyOr> {
    cursor.symbol('=')?;
    if cursor.eat_word("ANY") {
        return Ok(AnyOr::Any);
    }
    cursor.name(what).map(AnyOr::Name)
}
