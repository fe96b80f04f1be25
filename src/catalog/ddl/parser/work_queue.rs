//! Work queues.

use super::{Action, Definitions};
use crate::catalog::ddl::cursor::{Cursor, either};
use crate::error::Result;
use crate::protocol::definition::{Definition, TakingTechnique, WorkNumber, WorkOption, WorkOrder};

pub(super) fn work_queue(cursor: &mut Cursor, action: Action) -> Definitions {
    let name = cursor.name_in_schema("a work queue")?;
    let definition = match action {
        Action::Drop => Definition::DropWorkQueue { name },
        Action::Create => {
            let options = if cursor.eat_word("WITH") { options(cursor)? } else { Vec::new() };
            cursor.end_of_statement("WITH or ';'")?;
            Definition::CreateWorkQueue { name, options }
        }
        Action::Alter => {
            cursor.words("WITH")?;
            Definition::AlterWorkQueue { name, options: options(cursor)? }
        }
    };
    Ok(vec![definition])
}

/// Reads the value of an option after its word.
type Value = fn(&mut Cursor) -> Result<WorkOption>;

/// The options that are no numbers.
const WORDS: [(&str, Value); 4] = [
    ("STATUS", |cursor| cursor.equals_on_off().map(WorkOption::Status)),
    ("ORDER", |cursor| {
        cursor.symbol('=')?;
        cursor.one_of(&WorkOrder::ALL).map(WorkOption::Order)
    }),
    ("HISTORY", |cursor| cursor.equals_on_off().map(WorkOption::History)),
    ("TAKE_BY", |cursor| {
        cursor.symbol('=')?;
        cursor.one_of(&TakingTechnique::ALL).map(WorkOption::TakeBy)
    }),
];

fn options(cursor: &mut Cursor) -> Result<Vec<WorkOption>> {
    let mut given: Vec<&str> = Vec::new();
    let mut options = Vec::new();
    loop {
        let numbers = WorkNumber::ALL.iter().map(|number| number.word());
        let all: Vec<&str> = WORDS.iter().map(|(word, _)| *word).chain(numbers).collect();
        let Some(word) = all.iter().copied().find(|word| cursor.is_word(word)) else {
            return Err(cursor.unexpected(&either(&all)));
        };
        if given.contains(&word) {
            return Err(cursor.given_twice(word));
        }
        given.push(word);
        cursor.advance();
        if let Some((_, value)) = WORDS.iter().find(|(known, _)| *known == word) {
            options.push(value(cursor)?);
        }
        if let Some(number) = WorkNumber::ALL.iter().find(|number| number.word() == word) {
            cursor.symbol('=')?;
            options.push(WorkOption::Number(*number, cursor.integer(word)?));
        }
        if !cursor.eat_symbol(',') {
            return Ok(options);
        }
    }
}
