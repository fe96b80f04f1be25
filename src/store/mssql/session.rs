//! The state of one connection and its requests, for our connections and the user's.

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
use tiberius::error::{Error, TokenError};
use tiberius::{Column, Row};
use tokio::net::TcpStream;
use tokio_stream::StreamExt;
use tokio_util::compat::Compat;

/// The connection of the TDS driver.
pub(super) type Client = tiberius::Client<Compat<TcpStream>>;

/// The state of a connection.
#[derive(Debug, Default)]
pub(super) struct Session {
    /// An answer was not read to its end, or the connection is lost: it takes no more requests.
    pub(super) is_broken: bool,
    /// A transaction of ours is open.
    pub(super) is_in_transaction: bool,
    /// The session may hold locks of its own, which outlive a transaction.
    pub(super) holds_locks: bool,
    /// How rows are passed to a procedure.
    pub(super) rows_form: RowsForm,
    /// The longest run of a statement of the user's.
    sql_timeout: Option<Duration>,
    /// The savepoint around a verb, which is sent with the next request.
    is_mark_due: bool,
}

/// The kind of the request whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    /// A request that changes nothing by itself.
    Read,
    /// A request that commits by itself outside a transaction.
    Write,
    /// COMMIT.
    Commit,
}

/// The longest wait for the server to stop a statement; then its connection is closed.
const STOP_WITHIN: Duration = Duration::from_secs(5);

/// Errors of this class and above end the connection.
const FATAL_CLASS: u8 = 20;

impl Session {
    /// The state of a new connection, with a limit for the user's statements.
    pub(super) fn with_limit(sql_timeout: Option<Duration>) -> Self {
        Self { sql_timeout, ..Self::default() }
    }

    /// Whether no work is left in it, so that the pool may give it to another caller.
    pub(super) fn is_clean(&self) -> bool {
        !(self.is_broken || self.is_in_transaction || self.holds_locks)
    }

    /// Calls one of our procedures and returns its rows.
    pub(super) async fn call(&mut self, client: &mut Client, mut request: Request<'_>) -> Linked<SqlRows> {
        self.add_mark(&mut request.text);
        let rows = self.rows(client, &request, Form::Raw).await;
        self.settle(client, rows, Asked::Write, Text::Ours).await
    }

    /// Runs one of our texts and returns its rows.
    pub(super) async fn read(&mut self, client: &mut Client, text: &str) -> Linked<SqlRows> {
        let rows = self.batch(client, text).await.map(|mut results| {
            let rows = results.pop().unwrap_or_default();
            let columns: Vec<Column> = rows.first().map_or_else(Vec::new, |row| row.columns().to_vec());
            values::rows(&columns, rows, Form::Raw)
        });
        self.settle(client, rows, Asked::Read, Text::Ours).await
    }

    /// Runs the user's query and returns its rows; outside a transaction it changes nothing.
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

    /// Runs the user's statement and returns the number of rows changed by the last statement in it. The server counts the
    /// rows of triggers before that one.
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

    /// Stops a statement of the user's that took too long. If the server does not stop it soon, the driver closes the
    /// connection, which ends the transaction.
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
            let fate = self.fate(client, asked, Text::Users).await;
            // The statement may have ended before the request to stop it arrived.
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

    /// Runs one of our batches that returns no rows.
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

    /// Rolls it back, if it is still open.
    pub(super) async fn rollback(&mut self, client: &mut Client) -> Linked<()> {
        let answer = self.batch(client, client::ROLLBACK).await.map(drop);
        self.settle(client, answer, Asked::Read, Text::Ours).await?;
        self.is_in_transaction = false;
        self.is_mark_due = false;
        Ok(())
    }

    /// Sets a savepoint. Savepoint 0, which surrounds every verb, is sent with the next request.
    pub(super) async fn save(&mut self, client: &mut Client, number: u32) -> Linked<()> {
        if number == 0 {
            self.is_mark_due = true;
            return Ok(());
        }
        self.script(client, &texts::save(number)).await
    }

    /// Releases a savepoint. It sends nothing: of savepoints with one name the server uses the latest.
    pub(super) fn release(&mut self, number: u32) {
        if number == 0 {
            self.is_mark_due = false;
        }
    }

    /// Rolls back to a savepoint.
    pub(super) async fn rollback_to(&mut self, client: &mut Client, number: u32) -> Linked<()> {
        // No request was sent since.
        if number == 0 && self.is_mark_due {
            return Ok(());
        }
        self.script(client, &texts::rollback_to(number)).await
    }

    /// From now on the session holds the locks of groups.
    pub(super) async fn hold_locks(&mut self, client: &mut Client) -> Linked<()> {
        self.holds_locks = true;
        self.script(client, client::HOLD_LOCKS).await
    }

    /// Sets the savepoint that is due before a statement of the user's, in a batch of its own: the server runs nothing of a
    /// batch that it cannot compile, and a rollback would then undo all work since the savepoint before.
    async fn set_mark(&mut self, client: &mut Client) -> Linked<()> {
        if self.is_mark_due && self.is_in_transaction {
            self.script(client, &texts::save(0)).await?;
        }
        self.is_mark_due = false;
        Ok(())
    }

    /// Sets the savepoint that is due before one of our calls, in the same batch, because our calls always compile.
    fn add_mark(&mut self, text: &mut String) {
        if std::mem::take(&mut self.is_mark_due) && self.is_in_transaction {
            // On one line, so that the server's line numbers are those of the text.
            let marked = texts::save(0);
            text.insert_str(0, &(marked + " "));
        }
    }

    /// Sends a request and reads the answer to its end. If the caller drops the future before that, the connection is broken.
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

    /// Reads from an answer the state of the connection and the transaction.
    async fn settle<T>(
        &mut self,
        client: &mut Client,
        answer: Result<T, Error>,
        asked: Asked,
        text: Text,
    ) -> Linked<T> {
        let answered = match answer {
            Ok(answer) => {
                self.is_broken = false;
                return Ok(answer);
            }
            Err(Error::Server(error)) if error.class() < FATAL_CLASS && !self.is_unknown(&error, asked) => error,
            Err(error) => return Err(self.lost(&error, asked)),
        };
        self.is_broken = false;
        let error = failure::refused(&answered, text);
        // SQL Server leaves a transaction open whose wait for an application lock it ended, and the other transaction waits
        // until this one is rolled back.
        let fate = match error.code() {
            Code::DEADLOCK => self.end_transaction(client).await,
            _ => self.fate(client, asked, text).await,
        };
        Err(Failure { error, fate, is_link_usable: !self.is_broken })
    }

    /// Whether a commit may have happened although the server answers it with an error.
    fn is_unknown(&self, said: &TokenError, asked: Asked) -> bool {
        let commits = asked == Asked::Commit || asked == Asked::Write && !self.is_in_transaction;
        commits && failure::may_have_happened(said.code())
    }

    /// After an error of the server: rolls the transaction back if it cannot go on.
    async fn fate(&mut self, client: &mut Client, asked: Asked, text: Text) -> Fate {
        if self.is_in_transaction && asked != Asked::Commit {
            // A transaction of the user's that takes our calls may be nested: its levels are not ours to end.
            let asks = match text {
                Text::Users => client::USERS_TRANSACTION_STATE,
                Text::Ours => client::TRANSACTION_STATE,
            };
            let state = self.batch(client, asks).await;
            let state = state.map(|results| results.first().and_then(|rows| rows.first()?.get::<i32, _>(0)));
            if let Ok(Some(1)) = state {
                self.is_broken = false;
                return Fate::Undone;
            }
        }
        self.end_transaction(client).await
    }

    /// Rolls back the open transaction, if there is one.
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

/// The result of a future; an error if the limit passes before.
async fn in_time<T>(limit: Option<Duration>, work: impl Future<Output = T>) -> Option<T> {
    match limit {
        Some(limit) => tokio::time::timeout(limit, work).await.ok(),
        None => Some(work.await),
    }
}

/// Adds the first words of a failed batch to its error, because a script has many batches.
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
