//! Queues and the event notifications on them.

use super::{Action, Definitions, list, no_alter};
use crate::catalog::ddl::cursor::{Cursor, unsupported};
use crate::catalog::ddl::lexer::Token;
use crate::error::Result;
use crate::protocol::definition::{
    ActivationChange, ActivationOptions, AfterRetries, Definition, ExecuteAs, QueueEvent, QueueOptions, RetryChange,
    RetryOptions,
};

pub(super) fn queue(cursor: &mut Cursor, action: Action) -> Definitions {
    let name = cursor.name_in_schema("a queue")?;
    let definition = match action {
        Action::Drop => Definition::DropQueue { name },
        Action::Create => {
            let options = if cursor.eat_word("WITH") { options(cursor)? } else { QueueOptions::default() };
            // The store decides where rows lie on disk.
            if cursor.eat_word("ON") {
                cursor.name("a filegroup")?;
            }
            cursor.end_of_statement("WITH, ON or ';'")?;
            Definition::CreateQueue { name, options }
        }
        Action::Alter => Definition::AlterQueue { name, options: altered(cursor)? },
    };
    Ok(vec![definition])
}

/// The part after the name in ALTER QUEUE.
fn altered(cursor: &mut Cursor) -> Result<QueueOptions> {
    if cursor.eat_word("WITH") {
        return options(cursor);
    }
    if cursor.is_word("MOVE") {
        let why = "ALTER QUEUE ... MOVE TO: there are no filegroups; leave the statement out";
        return Err(unsupported(why).at(cursor.position()));
    }
    // The store has no index per queue that could be rebuilt: only the queue must exist.
    if cursor.eat_word("REBUILD") {
        if cursor.eat_word("WITH") {
            cursor.symbol('(')?;
            cursor.words("MAXDOP")?;
            cursor.symbol('=')?;
            cursor.integer("MAXDOP")?;
            cursor.symbol(')')?;
        }
    } else if cursor.eat_word("REORGANIZE") {
        if cursor.eat_word("WITH") {
            cursor.symbol('(')?;
            cursor.words("LOB_COMPACTION")?;
            cursor.equals_on_off()?;
            cursor.symbol(')')?;
        }
    } else {
        return Err(cursor.unexpected("WITH, REBUILD or REORGANIZE"));
    }
    Ok(QueueOptions::default())
}

fn options(cursor: &mut Cursor) -> Result<QueueOptions> {
    let mut options = QueueOptions::default();
    let mut is_poison_given = false;
    loop {
        if cursor.is_word("STATUS") {
            cursor.once(&mut options.status, "STATUS", Cursor::equals_on_off)?;
        } else if cursor.is_word("RETENTION") {
            cursor.once(&mut options.retention, "RETENTION", Cursor::equals_on_off)?;
        } else if cursor.is_word("ACTIVATION") {
            cursor.once(&mut options.activation, "ACTIVATION", activation)?;
        } else if cursor.is_word("POISON_MESSAGE_HANDLING") {
            if is_poison_given {
                return Err(cursor.given_twice("POISON_MESSAGE_HANDLING"));
            }
            is_poison_given = true;
            cursor.advance();
            poison(cursor, &mut options)?;
        } else if cursor.is_word("RETRY") {
            cursor.once(&mut options.retry, "RETRY", retry)?;
        } else if cursor.is_word("REASON") {
            cursor.once(&mut options.reason, "REASON", |cursor| {
                cursor.symbol('=')?;
                cursor.text("a reason")
            })?;
        } else {
            return Err(cursor.unexpected("STATUS, RETENTION, ACTIVATION, POISON_MESSAGE_HANDLING, RETRY or REASON"));
        }
        if !cursor.eat_symbol(',') {
            return Ok(options);
        }
    }
}

fn poison(cursor: &mut Cursor, options: &mut QueueOptions) -> Result<()> {
    cursor.symbol('(')?;
    loop {
        if cursor.is_word("STATUS") {
            cursor.once(&mut options.poison_message_handling, "STATUS", Cursor::equals_on_off)?;
        } else if cursor.is_word("QUARANTINE") {
            cursor.once(&mut options.poison_quarantine, "QUARANTINE", Cursor::equals_on_off)?;
        } else {
            return Err(cursor.unexpected("STATUS or QUARANTINE"));
        }
        if !cursor.eat_symbol(',') {
            return close(cursor);
        }
    }
}

fn retry(cursor: &mut Cursor) -> Result<RetryChange> {
    let mut set = RetryOptions::default();
    let mut is_dropped = None;
    list(cursor, |cursor| {
        if is_dropped.is_some() {
            return Err(cursor.unexpected("')' after DROP"));
        }
        if cursor.is_word("DROP") && set == RetryOptions::default() {
            return cursor.once(&mut is_dropped, "DROP", |_| Ok(()));
        }
        if cursor.is_word("THEN") {
            return cursor.once(&mut set.then, "THEN", |cursor| {
                cursor.symbol('=')?;
                cursor.one_of(&AfterRetries::ALL)
            });
        }
        let numbers = [
            ("MAX_ATTEMPTS", &mut set.max_attempts),
            ("DELAY_MS", &mut set.delay_ms),
            ("FACTOR_PERCENT", &mut set.factor_percent),
            ("MAX_DELAY_MS", &mut set.max_delay_ms),
            ("JITTER_PERCENT", &mut set.jitter_percent),
        ];
        for (word, slot) in numbers {
            if cursor.is_word(word) {
                return cursor.once(slot, word, |cursor| {
                    cursor.symbol('=')?;
                    cursor.integer(word)
                });
            }
        }
        let words = "MAX_ATTEMPTS, DELAY_MS, FACTOR_PERCENT, MAX_DELAY_MS, JITTER_PERCENT, THEN or DROP";
        Err(cursor.unexpected(words))
    })?;
    Ok(if is_dropped.is_some() { RetryChange::Drop } else { RetryChange::Set(set) })
}

fn activation(cursor: &mut Cursor) -> Result<ActivationChange> {
    let mut set = ActivationOptions::default();
    let mut is_dropped = None;
    list(cursor, |cursor| {
        if is_dropped.is_some() {
            return Err(cursor.unexpected("')' after DROP"));
        }
        if cursor.is_word("DROP") && set == ActivationOptions::default() {
            cursor.once(&mut is_dropped, "DROP", |_| Ok(()))
        } else if cursor.is_word("STATUS") {
            cursor.once(&mut set.status, "STATUS", Cursor::equals_on_off)
        } else if cursor.is_word("PROCEDURE_NAME") {
            cursor.once(&mut set.procedure_name, "PROCEDURE_NAME", |cursor| {
                cursor.symbol('=')?;
                let (schema, name) = cursor.qualified("a procedure")?;
                Ok(schema.map_or(name.clone(), |schema| format!("{schema}.{name}")))
            })
        } else if cursor.is_word("MAX_QUEUE_READERS") {
            cursor.once(&mut set.max_queue_readers, "MAX_QUEUE_READERS", |cursor| {
                cursor.symbol('=')?;
                cursor.integer("MAX_QUEUE_READERS")
            })
        } else if cursor.is_word("EXECUTE") {
            cursor.once(&mut set.execute_as, "EXECUTE AS", |cursor| {
                cursor.words("AS")?;
                if matches!(cursor.token(), Token::Text(_)) {
                    return cursor.text("a user").map(ExecuteAs::User);
                }
                let named = [("SELF", ExecuteAs::SelfUser), ("OWNER", ExecuteAs::Owner)];
                if named.iter().any(|(word, _)| cursor.is_word(word)) {
                    return cursor.one_of(&named);
                }
                Err(cursor.unexpected("SELF, OWNER or a user as a string in single quotes"))
            })
        } else {
            Err(cursor.unexpected("STATUS, PROCEDURE_NAME, MAX_QUEUE_READERS, EXECUTE AS or DROP"))
        }
    })?;
    Ok(if is_dropped.is_some() { ActivationChange::Drop } else { ActivationChange::Set(set) })
}

fn close(cursor: &mut Cursor) -> Result<()> {
    if cursor.eat_symbol(')') { Ok(()) } else { Err(cursor.unexpected("',' or ')'")) }
}

pub(super) fn event_notification(cursor: &mut Cursor, action: Action) -> Definitions {
    if action == Action::Alter {
        return no_alter(cursor, "an event notification", "drop it and create another");
    }
    let mut names = vec![cursor.name("an event notification")?];
    while action == Action::Drop && cursor.eat_symbol(',') {
        names.push(cursor.name("an event notification")?);
    }
    cursor.words("ON")?;
    if ["SERVER", "DATABASE"].iter().any(|scope| cursor.is_word(scope)) {
        let why = "event notifications on the server or the database: only queues have events; say ON QUEUE";
        return Err(unsupported(why).at(cursor.position()));
    }
    cursor.words("QUEUE")?;
    let queue = cursor.name_in_schema("a queue")?;
    if action == Action::Drop {
        let drop = |name| Definition::DropEventNotification { name, queue: queue.clone() };
        return Ok(names.into_iter().map(drop).collect());
    }
    if cursor.is_word("WITH") {
        let why = "WITH FAN_IN: every notification gets each event; leave it out";
        return Err(unsupported(why).at(cursor.position()));
    }
    cursor.words("FOR")?;
    let event = cursor.one_of(&QueueEvent::ALL)?;
    if *cursor.token() == Token::Symbol(',') {
        let why = "two events in one notification; create a second notification for the other";
        return Err(unsupported(why).at(cursor.position()));
    }
    cursor.words("TO SERVICE")?;
    let service = cursor.text("a service")?;
    cursor.symbol(',')?;
    let position = cursor.position();
    let broker = cursor.text("'current database'")?;
    if !broker.eq_ignore_ascii_case("current database") {
        let why = format!("an event notification to broker instance '{broker}'; say 'current database'");
        return Err(unsupported(why).at(position));
    }
    let create = |name| Definition::CreateEventNotification { name, queue, event, service };
    Ok(names.pop().map(create).into_iter().collect())
}
