//! The user's own SQL of one transaction, and the result of each statement that its caller got.

use super::known_statement::KnownStatement;
use super::moment::Moment;
use crate::error::{Code, Error};
use crate::store::SqlRows;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The next number of a script of this process.
static NEXT_ID: AtomicU64 = AtomicU64::new(1);

/// The result that a caller wants of a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The number of rows that it changed.
    Count,
    /// The rows that it returns.
    Rows,
}

/// What a statement did.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// The number of rows that it changed.
    pub(super) changed: u64,
    /// The rows that it returned, if they are wanted.
    pub(super) rows: SqlRows,
    /// A hash of those rows, so that a script does not keep them.
    pub(super) digest: u64,
    /// Whether it may have changed anything.
    pub(super) has_written: bool,
}

/// The result that the caller of a statement got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reported {
    Done {
        changed: u64,
        digest: u64,
    },
    /// The statement failed with this message and left nothing.
    Refused(String),
}

/// One statement that has run once.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) statement: KnownStatement,
    pub(super) form: Form,
    /// What it saw of the time, and its random numbers.
    pub(super) moment: Moment,
    pub(super) reported: Reported,
    pub(super) has_written: bool,
}

/// The statements of a transaction, in order.
#[derive(Debug)]
pub(super) struct Script {
    id: u64,
    /// How often it was cut. A connection on which it was applied before has more than what is left.
    cuts: u64,
    /// Whether a statement may ask for the last row, so that each run begins without one.
    reads_last_row: bool,
    pub(super) steps: Vec<Step>,
}

/// Shared by a transaction and the writer.
pub(super) type SharedScript = Arc<Mutex<Script>>;

/// A script as far as it has been applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    id: u64,
    cuts: u64,
    steps: usize,
    reads_last_row: bool,
}

impl Script {
    pub(super) fn shared() -> SharedScript {
        Arc::new(Mutex::new(Self {
            id: NEXT_ID.fetch_add(1, Relaxed),
            cuts: 0,
            reads_last_row: false,
            steps: Vec::new(),
        }))
    }

    /// Its end.
    pub(super) fn position(&self) -> Position {
        let Self { id, cuts, reads_last_row, steps } = self;
        Position { id: *id, cuts: *cuts, steps: steps.len(), reads_last_row: *reads_last_row }
    }

    /// Notes the next statement before it runs. If it is the first one that may ask for the last row, the earlier ones are applied
    /// nowhere any more: they were run without a beginning that all their runs share.
    pub(super) fn note_next(&mut self, statement: &KnownStatement) {
        self.reads_last_row |= statement.may_read_last_row;
    }

    pub(super) fn reads_last_row(&self) -> bool {
        self.reads_last_row
    }

    /// Whether a statement has written, so that only the writer's connection can show what the transaction sees.
    pub(super) fn has_written(&self) -> bool {
        self.steps.iter().any(|step| step.has_written)
    }

    /// Keeps the first so many statements.
    pub(super) fn cut(&mut self, steps: usize) {
        if steps < self.steps.len() {
            self.steps.truncate(steps);
            self.cuts += 1;
        }
    }

    /// The text of the last statement, for errors of the whole transaction.
    pub(super) fn last_text(&self) -> &str {
        self.steps.last().map_or("", |step| &step.statement.text)
    }
}

pub(super) fn lock(script: &SharedScript) -> MutexGuard<'_, Script> {
    script.lock().unwrap_or_else(PoisonError::into_inner)
}

/// 1205: the statement would now give another result than its caller got.
pub(super) fn conflict(step: &Step, now: &Result<Done, Error>) -> Error {
    let shown: String = step.statement.text.trim().chars().take(80).collect();
    let change = match (&step.reported, now) {
        (Reported::Done { changed, .. }, Ok(done)) if *changed != done.changed => {
            format!("changed {changed} rows and would now change {}", done.changed)
        }
        (Reported::Done { .. }, Ok(_)) => "returned rows that would now be others".to_owned(),
        (Reported::Done { .. }, Err(error)) => format!("succeeded and would now fail ({})", error.message()),
        (Reported::Refused(_), Ok(_)) => "failed and would now succeed".to_owned(),
        (Reported::Refused(_), Err(error)) => format!("failed and would now fail in another way ({})", error.message()),
    };
    Error::new(
        Code::DEADLOCK,
        format!(
            "the statement '{shown}' {change}, because another transaction was committed meanwhile. The transaction was \
             rolled back: run it again"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::SqlStatement;

    fn step(has_written: bool) -> Step {
        Step {
            statement: SqlStatement { text: "x".to_owned(), params: Vec::new(), expected_rows: None }.into(),
            form: Form::Count,
            moment: Moment::now(),
            reported: Reported::Refused("why".to_owned()),
            has_written,
        }
    }

    #[test]
    fn a_script_that_was_cut_is_at_another_position_even_with_as_many_steps() {
        let script = Script::shared();
        let mut script = lock(&script);
        script.steps.extend([step(false), step(true)]);
        let before = script.position();
        script.cut(2);
        assert_eq!(script.position(), before, "nothing was cut");
        script.cut(1);
        assert!(!script.has_written());
        script.steps.push(step(true));
        assert!(script.has_written());
        assert_ne!(script.position(), before);
        assert_ne!(lock(&Script::shared()).position(), lock(&Script::shared()).position());
    }
}
