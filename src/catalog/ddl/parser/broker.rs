//! `ALTER DATABASE`: the options of the broker.

use super::{Action, Definitions};
use crate::catalog::ddl::cursor::{Cursor, unsupported};
use crate::protocol::definition::{BrokerOption, Definition};

pub(super) fn database(cursor: &mut Cursor, action: Action) -> Definitions {
    if action != Action::Alter {
        let why = "CREATE and DROP DATABASE: a broker is one database; open it by its URL";
        return Err(unsupported(why).at(cursor.position()));
    }
    // One broker is one database, so any name means this one.
    cursor.name("the database, or CURRENT")?;
    cursor.words("SET")?;
    let mut definitions = Vec::new();
    loop {
        let option = cursor.one_of(&[
            ("ENABLE_BROKER", BrokerOption::EnableBroker),
            ("DISABLE_BROKER", BrokerOption::DisableBroker),
            ("NEW_BROKER", BrokerOption::NewBroker),
            ("ERROR_BROKER_CONVERSATIONS", BrokerOption::ErrorBrokerConversations),
            ("HONOR_BROKER_PRIORITY", BrokerOption::HonorBrokerPriority(true)),
        ])?;
        let option = match option {
            BrokerOption::HonorBrokerPriority(_) => BrokerOption::HonorBrokerPriority(cursor.on_off()?),
            other => other,
        };
        definitions.push(Definition::AlterDatabase { option });
        if !cursor.eat_symbol(',') {
            break;
        }
    }
    // The clause about other sessions: definitions here wait for none.
    if cursor.eat_word("WITH") {
        if cursor.eat_word("ROLLBACK") {
            if cursor.eat_word("AFTER") {
                cursor.integer("the seconds to wait")?;
                cursor.eat_word("SECONDS");
            } else if !cursor.eat_word("IMMEDIATE") {
                return Err(cursor.unexpected("IMMEDIATE or AFTER"));
            }
        } else if !cursor.eat_word("NO_WAIT") {
            return Err(cursor.unexpected("ROLLBACK or NO_WAIT"));
        }
    }
    Ok(definitions)
}
