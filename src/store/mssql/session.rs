//! One connection's state, and what is asked of it; the same for connections of ours and of the user's.

use super::args::{Request, RowsForm};
use super::failure::{self, Text};
use super::texts;
use super::values::{self, Form};
use crate::error::Code;
use crate::sql::mssql::client;
use crate::store::SqlRows;
use crate::store::database::link::{Failure, Fate, Linked};
use std::fmt::Write;
use std::future::Future;
use std::time::Duration;
use tiberius::error::Error;
use tiberius::{Column, Row};
use tokio::net::TcpStream;
use tokio_stream::StreamExt;
use tokio_util::compat::Compat;

/// A connection as the driver has it.
pub(super) type Client = tiberius::Client<Compat<TcpStream>>;

/// What is known of a connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// An answer was not read to its end, or the connection is lost: nothing more can be asked.
    pub(super) is_broken: bool,
    /// A transaction of ours is open.
    pub(super) is_in_transaction: bool,
    /// Locks of the session may be held, which outlive a transaction.
    pub(super) holds_locks: bool,
    /// How rows are handed over.
    pub(super) rows_form: RowsForm,
    /// How long a statement of the user's may run.
    sql_timeout: Option<Duration>,
    /// The mark around a verb, which goes along with what is asked next.
    is_mark_due: bool,
}

/// What a lost answer may have been that of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// Something that changes nothing by itself.
    Read,
    /// Something that is committed by itself outside a transaction.
    Write,
    /// COMMIT.
    Commit,
}

/// How long the server may take to stop a statement, before its connection is closed instead.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Errors of this class and above end the connection.
const FATAL_CLASS: u8 = 20;

impl Session {
    /// Of a new connection, with a limit for the user's statements.
    pub(super) fn with_limit(sql_timeout: Option<Duration>) -> Self {
        Self { sql_timeout, ..Self::default() }
    }

    /// Whether nothing of what was done is left in it, so that somebody else may have it.
    pub(super) fn is_clean(&self) -> bool {
        !(self.is_broken || self.is_in_transaction || self.holds_locks)
    }

    /// Asks for the rows of one of our procedures.
    pub(super) async fn call(&mut self, client: &mut Client, mut request: Request<'_>) -> Linked<SqlRows> {
        self.add_mark(&mut request.text);
        let rows = self.rows(client, &request, Form::Raw).await;
        self.settle(client, rows, Asked::Write, Text::Ours).await
    }

    /// Asks for the rows of a text of ours.
    pub(super) async fn read(&mut self, client: &mut Client, text: &str) -> Linked<SqlRows> {
        let rows = self.batch(client, text).await.map(|mut results| {
            let rows = results.pop().unwrap_or_default();
            let columns: Vec<Column> = rows.first().map_or_else(Vec::new, |row| row.columns().to_vec());
            values::rows(&columns, rows, Form::Raw)
        });
        self.settle(client, rows, Asked::Read, Text::Ours).await
    }

    /// Asks for the rows of the user's query; outside a transaction it changes nothing.
    pub(super) async fn query(&mut self, client: &mut Client, mut request: Request<'_>) -> Linked<SqlRows> {
        if self.is_in_transaction {
            self.set_mark(client).await?;
        } else {
            request.text = texts::query(&request.text);
        }
        let limit = self.sql_timeout;
        match in_time(limit, self.rows(client, &request, Form::Text)).await {
            Some(rows) => self.settle(client, rows, Asked::Read, Text::Users).await,
            None => Err(self.stop(client, Asked::Read).await),
        }
    }

    /// Runs the user's statement; gives the rows changed by the last statement in it, for triggers are counted before.
    pub(super) async fn execute(&mut self, client: &mut Client, request: Request<'_>) -> Linked<u64> {
        self.set_mark(client).await?;
        self.is_broken = true;
        let answer = async { request.command().exec(client).await?.into_command_result().await };
        let Some(answer) = in_time(self.sql_timeout, answer).await else {
            return Err(self.stop(client, Asked::Write).await);
        };
        let answer = answer.map(|result| result.rows_affected().last().copied().unwrap_or(0));
        self.settle(client, answer, Asked::Write, Text::Users).await
    }

    /// Stops a statement of the user's that took too long. One that is not stopped soon loses its connection, whose driver
    /// closes it, and with it the transaction.
    async fn stop(&mut self, client: &mut Client, asked: Asked) -> Failure {
        let limit = self.sql_timeout.unwrap_or_default().as_millis();
        let message = format!(
            "the statement was stopped after {limit} ms; shorten it, or raise sql_timeout_ms in the URL or \
             OpenOptions::sql_timeout"
        );
        let error = crate::error::Error::new(Code::SQL_TIMEOUT, message);
        let is_stopped = matches!(tokio::time::timeout(STOP_WITHIN, client.cancel_query()).await, Ok(Ok(())));
        self.is_broken = !is_stopped;
        if is_stopped {
            let was_in_transaction = self.is_in_transaction;
            let fate = self.fate(client, asked).await;
            // It may have been through when the server was told to stop.
            let is_unknown = asked == Asked::Write && !was_in_transaction;
            let fate = if is_unknown { Fate::Unknown } else { fate };
            return Failure { error, fate, is_link_usable: !self.is_broken };
        }
        let fate = match asked {
            _ if self.is_in_transaction => Fate::TransactionUndone,
            Asked::Read => Fate::Undone,
            Asked::Write | Asked::Commit => Fate::Unknown,
        };
        self.is_in_transaction = false;
        Failure { error, fate, is_link_usable: false }
    }

    /// Runs a batch of ours that gives nothing.
    pub(super) async fn script(&mut self, client: &mut Client, text: &str) -> Linked<()> {
        let answer = self.batch(client, text).await.map(drop);
        self.settle(client, answer, Asked::Write, Text::Ours).await
    }

    /// Opens a transaction.
    pub(super) async fn begin(&mut self, client: &mut Client) -> Linked<()> {
        let answer = self.batch(client, client::BEGIN).await.map(drop);
        self.settle(client, answer, Asked::Read, Text::Ours).await?;
        self.is_in_transaction = true;
        self.is_mark_due = false;
        Ok(())
    }

    /// Commits it.
    pub(super) async fn commit(&mut self, client: &mut Client) -> Linked<()> {
        let answer = self.batch(client, client::COMMIT).await.map(drop);
        self.settle(client, answer, Asked::Commit, Text::Ours).await?;
        self.is_in_transaction = false;
        Ok(())
    }

    /// Rolls it back, if it is still there.
    pub(super) async fn rollback(&mut self, client: &mut Client) -> Linked<()> {
        let answer = self.batch(client, client::ROLLBACK).await.map(drop);
        self.settle(client, answer, Asked::Read, Text::Ours).await?;
        self.is_in_transaction = false;
        self.is_mark_due = false;
        Ok(())
    }

    /// Marks a place. Mark 0, which is set around every verb, waits for what is asked next.
    pub(super) async fn save(&mut self, client: &mut Client, number: u32) -> Linked<()> {
        if number == 0 {
            self.is_mark_due = true;
            return Ok(());
        }
        self.script(client, &texts::save(number)).await
    }

    /// Forgets a mark: the server lets the latest of a name count, so nothing is to do.
    pub(super) fn release(&mut self, number: u32) {
        if number == 0 {
            self.is_mark_due = false;
        }
    }

    /// Goes back to a mark.
    pub(super) async fn rollback_to(&mut self, client: &mut Client, number: u32) -> Linked<()> {
        // Nothing was asked since.
        if number == 0 && self.is_mark_due {
            return Ok(());
        }
        self.script(client, &texts::rollback_to(number)).await
    }

    /// From now on locks of groups are the session's.
    pub(super) async fn hold_locks(&mut self, client: &mut Client) -> Linked<()> {
        self.holds_locks = true;
        self.script(client, client::HOLD_LOCKS).await
    }

    /// Sets the mark that is due before a statement of the user's, in a batch of its own: the server runs nothing of a batch
    /// that it cannot compile, and going back would then undo everything since the mark before.
    async fn set_mark(&mut self, client: &mut Client) -> Linked<()> {
        if self.is_mark_due && self.is_in_transaction {
            self.script(client, &texts::save(0)).await?;
        }
        self.is_mark_due = false;
        Ok(())
    }

    /// Sets the mark that is due before a call of ours, which always compiles, in the same batch.
    fn add_mark(&mut self, text: &mut String) {
        if std::mem::take(&mut self.is_mark_due) && self.is_in_transaction {
            // On one line, so that the server's line numbers stay the text's.
            let marked = texts::save(0);
            text.insert_str(0, &(marked + " "));
        }
    }

    /// Asks, and reads the answer to its end; whoever is dropped before that leaves a connection that is broken.
    async fn rows(&mut self, client: &mut Client, request: &Request<'_>, form: Form) -> Result<SqlRows, Error> {
        self.is_broken = true;
        let mut stream = request.command().exec(client).await?;
        let (mut columns, mut rows): (Vec<Column>, Vec<Row>) = (Vec::new(), Vec::new());
        let mut results = 0;
        while let Some(item) = stream.try_next().await? {
            if let Some(metadata) = item.as_metadata() {
                results += 1;
                if results == 1 {
                    columns = metadata.columns().to_vec();
                }
            } else if results == 1
                && let Some(row) = item.into_row()
            {
                rows.push(row);
            }
        }
        Ok(values::rows(&columns, rows, form))
    }

    async fn batch(&mut self, client: &mut Client, text: &str) -> Result<Vec<Vec<Row>>, Error> {
        self.is_broken = true;
        client.simple_query(text).await?.into_results().await
    }

    /// Learns from an answer what has become of the connection and the transaction.
    async fn settle<T>(
        &mut self,
        client: &mut Client,
        answer: Result<T, Error>,
        asked: Asked,
        text: Text,
    ) -> Linked<T> {
        let error = match answer {
            Ok(answer) => {
                self.is_broken = false;
                return Ok(answer);
            }
            Err(Error::Server(error)) if error.class() < FATAL_CLASS => error,
            Err(error) => return Err(self.lost(&error, asked)),
        };
        self.is_broken = false;
        let told = failure::refused(&error, text);
        // SQL Server leaves a transaction open whose wait for an application lock it ended, and the other transaction waits
        // until this one is rolled back.
        let fate = match told.code() {
            Code::DEADLOCK => self.end_transaction(client).await,
            _ => self.fate(client, asked).await,
        };
        Err(Failure { error: told, fate, is_link_usable: !self.is_broken })
    }

    /// After an error of the server: whether the transaction can go on; if not, it is ended.
    async fn fate(&mut self, client: &mut Client, asked: Asked) -> Fate {
        if self.is_in_transaction && asked != Asked::Commit {
            let state = self.batch(client, client::TRANSACTION_STATE).await;
            let state = state.map(|results| results.first().and_then(|rows| rows.first()?.get::<i32, _>(0)));
            if let Ok(Some(1)) = state {
                self.is_broken = false;
                return Fate::Undone;
            }
        }
        self.end_transaction(client).await
    }

    /// Rolls back what is open, if anything is.
    async fn end_transaction(&mut self, client: &mut Client) -> Fate {
        let was_in_transaction = self.is_in_transaction;
        // A procedure that failed outside a transaction of ours may have left its own open.
        self.is_broken = self.batch(client, client::ROLLBACK).await.is_err();
        self.is_in_transaction = false;
        self.is_mark_due = false;
        if was_in_transaction { Fate::TransactionUndone } else { Fate::Undone }
    }

    fn lost(&mut self, error: &Error, asked: Asked) -> Failure {
        self.is_broken = true;
        let fate = match asked {
            Asked::Commit => Fate::Unknown,
            _ if self.is_in_transaction => Fate::TransactionUndone,
            Asked::Write => Fate::Unknown,
            Asked::Read => Fate::Undone,
        };
        // A server that says why it ends the session has rolled back what was open. Outside a transaction a verb commits by
        // itself and then gives its rows: KILL lets the commit end, so the verb may have happened.
        let error = match error {
            Error::Server(said) if fate != Fate::Unknown => failure::closed(said),
            error => failure::lost(error, fate == Fate::Unknown),
        };
        self.is_in_transaction = false;
        Failure { error, fate, is_link_usable: false }
    }
}

/// What a future gives, unless the limit passes before.
async fn in_time<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

/// Adds what a batch of an installation begins with to its error, for a script has many.
pub(super) fn in_batch(mut failure: Failure, text: &str) -> Failure {
    let mut begins = String::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with("--") && !line.trim().is_empty()).take(2) {
        let _ = write!(begins, " {}", line.trim());
    }
    let error = &failure.error;
    let message = format!("{} (in the batch that begins with:{begins})", error.message());
    failure.error = crate::error::Error::new(error.code(), message);
    failure
}
