//! A connection while a store uses it: its transaction, its prepared statements and its pending controls.

mod finish;
mod requests;

use super::args::{arguments, fits};
use super::connect::{Connector, Pooling, RunningStatement, Session};
use super::failure::{Asked, AtRisk, ConnectionState, INSTALLATION, Loss, failure, is_of_a_value, lost};
use super::guard::guard;
use super::texts;
use super::values::{Prepared, RowsFor};
use crate::error::{Code, Error};
use crate::sql::postgres::transaction;
use crate::store::database::link::{Call, Failure, Fate, Link, Linked};
use crate::store::statement::{commits_by_itself, has_plain_literals};
use crate::store::{BoxFuture, SqlRow, SqlRows, SqlStatement};
use deadpool::managed::Object;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};
use uuid::Uuid;

/// The most texts that a connection keeps prepared.
const KEPT_TEXTS: usize = 64;

/// A connection of the pool, or one of its own.
pub(super) struct PgLink {
    connector: Arc<Connector>,
    /// `None` only once it is dropped.
    held: Option<Held>,
    transaction: Transaction,
    /// Controls that are sent with the next request.
    pending: Vec<Control>,
    /// A request is under way; stays true if the caller dropped the request.
    is_busy: bool,
    is_lost: bool,
    /// The session may hold locks of its own.
    holds_locks: bool,
    /// The user's own SQL has run, which may have changed any setting of the session.
    ran_users_sql: bool,
    /// When the user's statement that is under way began, and its limit.
    limited: Option<(Instant, Duration)>,
}

enum Held {
    Pooled(Box<Object<Pooling>>),
    Own(Box<Session>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transaction {
    None,
    /// BEGIN is among the pending controls.
    Pending,
    Open,
    /// The server accepts only a rollback, to a savepoint or of the whole transaction.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    Begin,
    Savepoint(u32),
    Release(u32),
    /// Ends the limit of the user's own SQL.
    NoLimit(Duration),
    /// Limits the user's own SQL.
    Limit(Duration),
    /// Takes the lock of a group alone that the transaction shares with a claim.
    HoldGroup(Uuid),
}

/// A statement that the session keeps prepared.
#[derive(Debug, Clone, Copy)]
enum Kept<'a> {
    /// A function of ours, and the number of its arguments.
    Call(&'static str, usize),
    /// The same in one flight with BEGIN.
    CallAfterBegin(&'static str, usize),
    Text(&'a str),
}

/// The form of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestForm {
    /// A call of a function, which commits by itself outside a transaction.
    Call,
    /// A read in a transaction that only reads, where names without a schema are those of schema `dialoq`.
    OurRead,
    /// A query of the user's in a transaction that only reads.
    UsersQuery,
    /// A statement of the user's, which commits by itself outside a transaction.
    UsersStatement,
}

/// The rows of a query, or the number of rows that a statement changed.
type Answer = (Vec<Row>, u64);

/// The state of a link before a request, so that the request alone can be undone and sent again.
struct UndoPoint {
    to: UndoTo,
    /// The controls that are sent with the request.
    pending: Vec<Control>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum UndoTo {
    /// Outside of a transaction a failed request has undone itself.
    Nothing,
    /// The transaction begins with the request.
    Begin,
    /// A savepoint is sent with the request.
    Savepoint(u32),
}

/// The failure of a request that was sent together with pending controls.
enum SendError {
    Server(tokio_postgres::Error),
    /// BEGIN failed, and the server ran the request without a transaction.
    NoTransaction(tokio_postgres::Error),
    /// A control within the transaction failed, and with it the request. Going back to the savepoint of the request would undo what was
    /// done before: its name may still be that of the request before, whose release was refused.
    Controls(tokio_postgres::Error),
}

impl SendError {
    /// The server's code for the request.
    fn code(&self) -> Option<&SqlState> {
        match self {
            Self::Server(error) => error.code(),
            Self::NoTransaction(_) | Self::Controls(_) => None,
        }
    }
}

impl Deref for Held {
    type Target = Session;

    fn deref(&self) -> &Session {
        match self {
            Self::Pooled(session) => session,
            Self::Own(session) => session,
        }
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut Session {
        match self {
            Self::Pooled(session) => &mut *session,
            Self::Own(session) => session,
        }
    }
}

impl PgLink {
    pub(super) fn pooled(connector: Arc<Connector>, session: Object<Pooling>) -> Self {
        Self::new(connector, Held::Pooled(Box::new(session)))
    }

    pub(super) fn own(connector: Arc<Connector>, session: Session) -> Self {
        Self::new(connector, Held::Own(Box::new(session)))
    }

    fn new(connector: Arc<Connector>, held: Held) -> Self {
        Self {
            connector,
            held: Some(held),
            transaction: Transaction::None,
            pending: Vec::new(),
            is_busy: false,
            is_lost: false,
            holds_locks: false,
            ran_users_sql: false,
            limited: None,
        }
    }

    fn session(&mut self) -> &mut Session {
        self.held.as_deref_mut().expect("a link is held until it is dropped")
    }

    fn client(&self) -> &Client {
        &self.held.as_deref().expect("a link is held until it is dropped").client
    }

    fn is_in_transaction(&self) -> bool {
        self.transaction != Transaction::None
    }

    /// What a lost connection costs a request that commits by itself outside of a transaction.
    fn at_risk(&self) -> AtRisk {
        if self.is_in_transaction() { AtRisk::Transaction } else { AtRisk::Commit }
    }

    /// Fails early if the connection is already closed.
    fn ready(&self, at_risk: AtRisk) -> Linked<()> {
        if !self.is_lost && !self.client().is_closed() {
            return Ok(());
        }
        let why = self.loss().map_or_else(|| "the server closed it".to_owned(), |loss| loss.why);
        // No request was sent, so none can have been committed.
        let at_risk = if self.is_in_transaction() {
            AtRisk::Transaction
        } else if at_risk == AtRisk::Commit {
            AtRisk::Nothing
        } else {
            at_risk
        };
        Err(lost(why, at_risk, self.connector.label()))
    }

    fn loss(&self) -> Option<Loss> {
        self.held.as_deref().and_then(|session| session.lost.get().cloned())
    }

    /// The failure behind an error; updates the state of this link.
    fn failed(&mut self, error: tokio_postgres::Error, asked: Asked<'_>, at_risk: AtRisk) -> Failure {
        let is_servers = error.as_db_error().is_some();
        let loss = ConnectionState { is_closed: self.client().is_closed(), why: self.loss() };
        let is_stopped = error.code() == Some(&SqlState::QUERY_CANCELED);
        let only_reads = error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION);
        let mut failure = failure(error, asked, at_risk, loss, self.connector.label());
        if is_stopped
            && let Some((began, limit)) = self.limited
            && began.elapsed() >= limit
        {
            failure.error = asked.overran(limit).caused_by(failure.error);
        }
        if only_reads {
            self.note_read_only(asked, &mut failure);
        }
        if !failure.is_link_usable {
            self.is_lost = true;
        }
        if failure.fate == Fate::Unknown {
            self.connector.note_lost_answer();
        }
        if is_servers && self.transaction == Transaction::Open {
            self.transaction = Transaction::Failed;
        }
        failure
    }

    /// The server refused to write. The user's own SQL may have asked for that, by SET TRANSACTION READ ONLY; a query outside
    /// of a transaction does.
    fn note_read_only(&mut self, asked: Asked<'_>, failure: &mut Failure) {
        match (self.is_in_transaction(), asked.is_users()) {
            (true, _) if self.ran_users_sql => self.session().retire(),
            (true, _) => self.connector.note_read_only(),
            (false, true) => {}
            (false, false) => {
                self.connector.note_read_only();
                failure.is_link_usable = false;
            }
        }
    }

    fn send_failed(&mut self, error: SendError, asked: Asked<'_>, at_risk: AtRisk) -> Failure {
        match error {
            SendError::Server(error) => self.failed(error, asked, at_risk),
            SendError::NoTransaction(error) => {
                self.is_lost = true;
                self.connector.note_lost_answer();
                refused_begin(&error, asked)
            }
            SendError::Controls(error) => {
                let mut failure = self.failed(error, asked, at_risk);
                if failure.fate == Fate::Undone {
                    failure.fate = Fate::TransactionUndone;
                }
                failure
            }
        }
    }

    /// Takes the pending controls as one text, to be sent now; and whether BEGIN is among them.
    fn take_pending(&mut self) -> Option<(String, bool)> {
        if self.pending.is_empty() {
            return None;
        }
        let mut text = String::new();
        let mut begins = false;
        for control in self.pending.drain(..) {
            if !text.is_empty() {
                text.push(';');
            }
            match control {
                Control::Begin => {
                    begins = true;
                    text.push_str(transaction::BEGIN);
                }
                Control::Savepoint(number) => text.push_str(&texts::savepoint(number)),
                Control::Release(number) => text.push_str(&texts::release(number)),
                Control::NoLimit(limit) => text.push_str(&texts::no_limit(limit)),
                Control::HoldGroup(group) => text.push_str(&texts::hold_group(group)),
                Control::Limit(limit) => text.push_str(&texts::limit(limit, true)),
            }
        }
        if begins {
            self.transaction = Transaction::Open;
        }
        Some((text, begins))
    }

    /// The state to return to if the next request fails because its prepared form is out of date. `None` if that would undo
    /// earlier work of the transaction too.
    fn undo_point(&self) -> Option<UndoPoint> {
        let (to, pending) = match self.transaction {
            Transaction::None => (UndoTo::Nothing, Vec::new()),
            Transaction::Pending => (UndoTo::Begin, self.pending.clone()),
            Transaction::Open | Transaction::Failed => {
                let latest_first = self.pending.iter().enumerate().rev();
                let (place, number) = latest_first.into_iter().find_map(|(place, control)| match control {
                    Control::Savepoint(number) => Some((place, *number)),
                    _ => None,
                })?;
                (UndoTo::Savepoint(number), self.pending[place + 1..].to_vec())
            }
        };
        Some(UndoPoint { to, pending })
    }

    /// Undoes a failed request; false if that is not possible.
    async fn undo(&mut self, undo_point: Option<UndoPoint>) -> bool {
        let Some(UndoPoint { to, pending }) = undo_point else { return false };
        let (text, transaction) = match to {
            UndoTo::Nothing => return true,
            UndoTo::Begin => (transaction::ROLLBACK.to_owned(), Transaction::Pending),
            UndoTo::Savepoint(number) => (texts::rollback_to(number), Transaction::Open),
        };
        let is_undone = self.client().batch_execute(&text).await.is_ok();
        if is_undone {
            (self.transaction, self.pending) = (transaction, pending);
        }
        is_undone
    }

    /// Sends pending savepoints before a request that may fail and is not sent with them.
    async fn send_pending_savepoints(&mut self) -> Result<(), SendError> {
        if self.transaction == Transaction::Open
            && let Some((text, _)) = self.take_pending()
        {
            self.client().batch_execute(&text).await.map_err(SendError::Controls)?;
        }
        Ok(())
    }

    /// The form of a call: while a BEGIN is pending, it must not run without that.
    fn kept_call(&self, name: &'static str, arguments: usize) -> Kept<'static> {
        match self.transaction {
            Transaction::Pending => Kept::CallAfterBegin(name, arguments),
            _ => Kept::Call(name, arguments),
        }
    }

    async fn prepare(&mut self, kept: Kept<'_>) -> Result<Arc<Prepared>, SendError> {
        let session = self.session();
        let found = match kept {
            Kept::Call(name, arguments) => session.calls.get(&(name, arguments)),
            Kept::CallAfterBegin(name, arguments) => session.calls_after_begin.get(&(name, arguments)),
            Kept::Text(text) => session.texts.get(text),
        };
        if let Some(prepared) = found {
            return Ok(prepared.clone());
        }
        self.send_pending_savepoints().await?;
        let statement = match kept {
            Kept::Call(name, arguments) => self.client().prepare(&texts::call(name, arguments)).await,
            Kept::CallAfterBegin(name, arguments) => {
                self.client().prepare(&texts::call_after_begin(name, arguments)).await
            }
            Kept::Text(text) => self.client().prepare(text).await,
        };
        let prepared = Arc::new(Prepared::new(statement.map_err(SendError::Server)?));
        let Session { calls, calls_after_begin, texts, .. } = self.session();
        if texts.len() >= KEPT_TEXTS {
            texts.clear();
        }
        match kept {
            Kept::Call(name, arguments) => calls.insert((name, arguments), prepared.clone()),
            Kept::CallAfterBegin(name, arguments) => calls_after_begin.insert((name, arguments), prepared.clone()),
            Kept::Text(text) => texts.insert(text.to_owned(), prepared.clone()),
        };
        Ok(prepared)
    }

    fn forget(&mut self, kept: Kept<'_>) {
        match kept {
            Kept::Call(name, arguments) => self.session().calls.remove(&(name, arguments)),
            Kept::CallAfterBegin(name, arguments) => self.session().calls_after_begin.remove(&(name, arguments)),
            Kept::Text(text) => self.session().texts.remove(text),
        };
    }

    /// Whether a kept form of a user's statement does what the statement would do if it were prepared now. Another caller may have prepared
    /// it, under settings of its own, and long ago.
    fn is_reusable(&mut self, sql: &SqlStatement) -> bool {
        let Some(prepared) = self.session().texts.get(&*sql.text) else { return true };
        let types = prepared.statement.params();
        types.len() == sql.params.len()
            && types.iter().zip(&sql.params).all(|(ty, value)| fits(value, ty))
            && has_plain_literals(&sql.text)
    }

    /// Sends the pending controls and the request in one flight.
    async fn send_with<T>(
        client: &Client,
        pending: Option<(String, bool)>,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, SendError> {
        let Some((text, begins)) = pending else { return request.await.map_err(SendError::Server) };
        match tokio::join!(biased; client.batch_execute(&text), request) {
            (Ok(()), done) => done.map_err(SendError::Server),
            (Err(error), Ok(_)) if begins => Err(SendError::NoTransaction(error)),
            (Err(error), Err(_)) if begins => Err(SendError::Server(error)),
            (Err(error), _) => Err(SendError::Controls(error)),
        }
    }

    /// Sends a statement's limit and the statement, which commits by itself, in one flight. The statement runs even
    /// if the server refuses the limit, so only its own answer counts. The session is reset when it returns to the pool.
    async fn send_with_limit<T>(
        client: &Client,
        limit: Duration,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, SendError> {
        let text = texts::limit(limit, false);
        let (limited, done) = tokio::join!(biased; client.batch_execute(&text), request);
        if let Err(error) = limited {
            tracing::warn!(%error, "a statement of the user's ran without the limit of sql_timeout_ms");
        }
        done.map_err(SendError::Server)
    }

    async fn send(
        &mut self,
        prepared: &Prepared,
        params: &[&(dyn ToSql + Sync)],
        form: RequestForm,
    ) -> Result<Answer, SendError> {
        if matches!(form, RequestForm::OurRead | RequestForm::UsersQuery) && !self.is_in_transaction() {
            let begin = match (form, self.connector.sql_timeout) {
                (RequestForm::OurRead, _) => format!("{};{}", transaction::BEGIN_READ_ONLY, transaction::OWN_NAMES),
                (_, Some(limit)) => format!("{};{}", transaction::BEGIN_READ_ONLY, texts::limit(limit, true)),
                (_, None) => transaction::BEGIN_READ_ONLY.to_owned(),
            };
            let client = self.client();
            let (begun, rows, ended) = tokio::join!(
                biased;
                client.batch_execute(&begin),
                client.query(&prepared.statement, params),
                client.batch_execute(transaction::COMMIT),
            );
            // A COMMIT that was cancelled before it began leaves the transaction open. It has only read.
            if ended.as_ref().is_err_and(|error| error.as_db_error().is_some()) {
                self.is_lost |= client.batch_execute(transaction::ROLLBACK).await.is_err();
            }
            return match (begun, rows) {
                // It may be one that writes, such as INSERT .. RETURNING.
                (Err(error), Ok(_)) if form == RequestForm::UsersQuery => Err(SendError::NoTransaction(error)),
                (begun, rows) => {
                    let rows = begun.and(rows).and_then(|rows| ended.map(|()| rows));
                    rows.map(|rows| (rows, 0)).map_err(SendError::Server)
                }
            };
        }
        let pending = self.take_pending();
        let client = self.client();
        if form != RequestForm::UsersStatement {
            let rows = Self::send_with(client, pending, client.query(&prepared.statement, params)).await?;
            return Ok((rows, 0));
        }
        let request = client.execute(&prepared.statement, params);
        let changed = match self.connector.sql_timeout {
            Some(limit) if !self.is_in_transaction() => Self::send_with_limit(client, limit, request).await,
            _ => Self::send_with(client, pending, request).await,
        };
        changed.map(|changed| (Vec::new(), changed))
    }

    /// Prepares a statement and runs it. If its prepared form is out of date, the server has done nothing: this undoes the
    /// request alone and runs it once more, at once. `retry.rs` repeats whole transactions, after a pause.
    async fn run(
        &mut self,
        kept: Kept<'_>,
        params: &[&(dyn ToSql + Sync)],
        form: RequestForm,
        asked: Asked<'_>,
        at_risk: AtRisk,
        mut may_retry: bool,
    ) -> Linked<(Arc<Prepared>, Answer)> {
        loop {
            let was_kept = matches!(kept, Kept::Text(text) if self.session().texts.contains_key(text));
            let prepared = match self.prepare(kept).await {
                Ok(prepared) => prepared,
                Err(error) => return Err(self.send_failed(error, asked, not_sent(at_risk))),
            };
            let undo = self.undo_point();
            match self.send(&prepared, params, form).await {
                Ok(answer) => return Ok((prepared, answer)),
                Err(error) => {
                    let is_stale = Self::is_stale(error.code()) || was_kept && is_of_a_value(error.code());
                    if is_stale {
                        self.forget(kept);
                    }
                    if !(is_stale && may_retry && self.undo(undo).await) {
                        return Err(self.send_failed(error, asked, at_risk));
                    }
                    may_retry = false;
                }
            }
        }
    }

    /// Whether the statement must be prepared again: a table or function that it uses was replaced.
    pub(super) fn is_stale(code: Option<&SqlState>) -> bool {
        let stale =
            [&SqlState::FEATURE_NOT_SUPPORTED, &SqlState::INVALID_SQL_STATEMENT_NAME, &SqlState::UNDEFINED_FUNCTION];
        code.is_some_and(|code| stale.contains(&code))
    }

    async fn call_now(&mut self, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        let (asked, at_risk) = (Asked::Call(call.name), self.at_risk());
        self.ready(at_risk)?;
        let flat = arguments(&call.args);
        let params: Vec<&(dyn ToSql + Sync)> = flat.iter().map(|argument| argument as &(dyn ToSql + Sync)).collect();
        let kept = self.kept_call(call.name, flat.len());
        let (prepared, (rows, _)) = self.run(kept, &params, RequestForm::Call, asked, at_risk, true).await?;
        if call.name == "unlock_session" {
            self.holds_locks = false;
        }
        prepared.rows(&rows, RowsFor::Ours).map_err(|why| unread(asked, &why))
    }

    async fn read_now(&mut self, text: &'static str) -> Linked<Vec<SqlRow>> {
        let asked = Asked::Ours("a read of the broker's tables");
        let at_risk = if self.is_in_transaction() { AtRisk::Transaction } else { AtRisk::Nothing };
        self.ready(at_risk)?;
        let (prepared, (rows, _)) = self.run(Kept::Text(text), &[], RequestForm::OurRead, asked, at_risk, true).await?;
        prepared.rows(&rows, RowsFor::Ours).map_err(|why| unread(asked, &why))
    }

    async fn query_now(&mut self, sql: &SqlStatement) -> Linked<SqlRows> {
        let asked = Asked::Users(&sql.text);
        let at_risk = if self.is_in_transaction() { AtRisk::Transaction } else { AtRisk::Nothing };
        self.ready(at_risk)?;
        guard(&sql.text)?;
        let params: Vec<&(dyn ToSql + Sync)> = sql.params.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        let running = self.begin_users_statement();
        let form = if texts::is_ours(&sql.text) { RequestForm::OurRead } else { RequestForm::UsersQuery };
        if form == RequestForm::UsersQuery && !self.is_reusable(sql) {
            self.forget(Kept::Text(&sql.text));
        }
        let answer = self.run(Kept::Text(&sql.text), &params, form, asked, at_risk, true).await;
        let (prepared, (rows, _)) = self.end_users_statement(running, answer)?;
        if prepared.columns().is_empty() {
            return Err(refuse(asked, "it is not a query: it gives no columns"));
        }
        let rows = prepared.rows(&rows, RowsFor::Users).map_err(|why| refuse(asked, &why))?;
        Ok(SqlRows { columns: prepared.columns().clone(), rows })
    }

    async fn execute_now(&mut self, sql: &SqlStatement) -> Linked<u64> {
        let (asked, at_risk) = (Asked::Users(&sql.text), self.at_risk());
        self.ready(at_risk)?;
        guard(&sql.text)?;
        let params: Vec<&(dyn ToSql + Sync)> = sql.params.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        let kept = Kept::Text(&sql.text);
        let running = self.begin_users_statement();
        // A statement that may commit by itself is never retried. So it must not fail because its prepared form is out of
        // date: this prepares it for each run.
        let may_retry = !commits_by_itself(&sql.text);
        if !may_retry || !self.is_reusable(sql) {
            self.forget(kept);
        }
        let answer = self.run(kept, &params, RequestForm::UsersStatement, asked, at_risk, may_retry).await;
        self.end_users_statement(running, answer).map(|(_, (_, changed))| changed)
    }

    /// Notes that the user's own SQL runs, and limits its time.
    fn begin_users_statement(&mut self) -> RunningStatement {
        self.ran_users_sql = true;
        if let Some(limit) = self.connector.sql_timeout {
            self.limited = Some((Instant::now(), limit));
            if self.is_in_transaction() {
                self.pending.push(Control::Limit(limit));
            }
        }
        RunningStatement::begin(&self.connector, self.client())
    }

    /// Notes that the user's SQL is over, and ends its limit.
    fn end_users_statement<T>(&mut self, running: RunningStatement, answer: Linked<T>) -> Linked<T> {
        self.limited = None;
        if let Some(limit) = self.connector.sql_timeout
            && self.is_in_transaction()
        {
            // After a failure the rollback, of the savepoint before it or of the transaction, also undoes the limit.
            self.pending.retain(|control| !matches!(control, Control::Limit(_)));
            if answer.is_ok() {
                self.pending.push(Control::NoLimit(limit));
            }
        }
        if !running.end() {
            return answer;
        }
        self.is_lost = true;
        match answer {
            // The commit of one statement may wait for a standby. The server gives that wait up then, and answers as if it were over.
            Ok(_) if !self.is_in_transaction() => Err(Failure {
                error: Error::new(
                    Code::COMMIT_UNKNOWN,
                    "the statement was stopped by the close of the broker when it was done; a standby that commits wait for may not have it",
                ),
                fate: Fate::Unknown,
                is_link_usable: false,
            }),
            Ok(answer) => Ok(answer),
            Err(failure) => {
                Err(Failure { error: Error::closed().caused_by(failure.error), is_link_usable: false, ..failure })
            }
        }
    }

    /// Runs a text without parameters, after the pending controls.
    async fn batch_now(&mut self, text: &str, asked: Asked<'_>, at_risk: AtRisk) -> Linked<()> {
        self.ready(at_risk)?;
        let pending = self.take_pending();
        let client = self.client();
        match Self::send_with(client, pending, client.batch_execute(text)).await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.send_failed(error, asked, at_risk)),
        }
    }

    async fn commit_now(&mut self) -> Linked<()> {
        match self.transaction {
            Transaction::None | Transaction::Pending => {
                self.pending.clear();
                self.transaction = Transaction::None;
                return Ok(());
            }
            // To COMMIT the server would answer without an error, and roll back.
            Transaction::Failed => {
                self.rollback_now().await?;
                let error = Error::new(
                    Code::TRANSACTION_ENDED,
                    "the transaction cannot be committed: a statement of it failed, and it was rolled back",
                );
                return Err(Failure { error, fate: Fate::TransactionUndone, is_link_usable: true });
            }
            Transaction::Open => {}
        }
        // Savepoints end with the transaction.
        self.pending.clear();
        self.ready(AtRisk::Commit)?;
        match self.client().batch_execute(transaction::COMMIT).await {
            Ok(()) => {
                self.transaction = Transaction::None;
                Ok(())
            }
            Err(error) => Err(self.commit_failed(error)),
        }
    }

    /// The link counts as in a failed transaction then: a COMMIT that was cancelled before it began leaves it open, and a rollback that
    /// finds none is no error.
    fn commit_failed(&mut self, error: tokio_postgres::Error) -> Failure {
        let is_servers = error.as_db_error().is_some();
        let mut failure = self.failed(error, Asked::Ours("COMMIT"), AtRisk::Commit);
        if is_servers && failure.fate == Fate::Undone {
            // As after a deferred constraint.
            failure.fate = Fate::TransactionUndone;
            // Its own triggers may reach a limit each time.
            let is_users_limit = self.ran_users_sql && failure.error.code() == Code::LOCK_TIMEOUT;
            if is_users_limit || failure.error.code() == Code::STORE_IO {
                let why = failure.error.message().to_owned();
                failure.error = Error::new(Code::USER_SQL_FAILED, why).caused_by(failure.error);
            }
        }
        failure
    }

    async fn rollback_now(&mut self) -> Linked<()> {
        self.pending.clear();
        let was = std::mem::replace(&mut self.transaction, Transaction::None);
        if matches!(was, Transaction::None | Transaction::Pending) || self.is_lost || self.client().is_closed() {
            return Ok(());
        }
        match self.client().batch_execute(transaction::ROLLBACK).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let failure = self.failed(error, Asked::Ours("ROLLBACK"), AtRisk::Nothing);
                self.is_lost = true;
                // A transaction ends with its connection.
                if failure.is_link_usable { Err(failure) } else { Ok(()) }
            }
        }
    }

    async fn rollback_to_now(&mut self, number: u32) -> Linked<()> {
        // A savepoint that was never sent has nothing to undo.
        if let Some(place) = self.pending.iter().rposition(|control| *control == Control::Savepoint(number)) {
            self.pending.truncate(place + 1);
            return Ok(());
        }
        let was = self.transaction;
        // The rollback also undoes the savepoints and releases since then.
        self.pending.clear();
        self.batch_now(&texts::rollback_to(number), Asked::Ours("ROLLBACK TO SAVEPOINT"), AtRisk::Transaction).await?;
        if was == Transaction::Failed {
            self.transaction = Transaction::Open;
        }
        Ok(())
    }
}

/// What a lost connection costs while a statement is only prepared.
fn not_sent(at_risk: AtRisk) -> AtRisk {
    if at_risk == AtRisk::Commit { AtRisk::Nothing } else { at_risk }
}

/// The failure of a request that ran without its transaction, because the server refused to begin it.
fn refused_begin(error: &tokio_postgres::Error, asked: Asked<'_>) -> Failure {
    let refused = format!("the server refused to begin a transaction: {error}");
    let (code, fate, what) = match asked {
        // Our texts without a result change nothing but the session, which is closed.
        Asked::Ours(_) => (Code::SERVER_UNREACHABLE, Fate::Undone, "nothing was changed".to_owned()),
        _ => (Code::COMMIT_UNKNOWN, Fate::Alone, format!("{asked} ran without it, and has happened")),
    };
    Failure { error: Error::new(code, format!("{refused}; {what}")), fate, is_link_usable: false }
}

pub(super) fn refuse(asked: Asked<'_>, why: &str) -> Failure {
    Failure { error: asked.refused(why), fate: Fate::Undone, is_link_usable: true }
}

/// The failure of an answer that cannot be read.
pub(super) fn unread(asked: Asked<'_>, why: &str) -> Failure {
    let error = Error::new(Code::STORE_DAMAGED, format!("{asked} gave an answer whose {why}"));
    Failure { error, fate: Fate::Unknown, is_link_usable: false }
}

impl Drop for PgLink {
    fn drop(&mut self) {
        let Some(mut held) = self.held.take() else { return };
        if self.is_busy || self.is_lost || held.client.is_closed() {
            let session = match held {
                // The pool opens another in its place.
                Held::Pooled(session) => Object::take(*session),
                Held::Own(session) => *session,
            };
            if self.is_busy && !session.client.is_closed() {
                // It may have committed.
                self.connector.note_lost_answer();
                cancel(&self.connector, session);
            }
            return;
        }
        let is_dirty = matches!(self.transaction, Transaction::Open | Transaction::Failed) || self.holds_locks;
        if matches!(held, Held::Own(_)) {
            return;
        }
        if !is_dirty && !self.ran_users_sql {
            return;
        }
        // The first poll sends the request. The pool reads the answer before it gives the session to the next caller.
        let mut renewal = Connector::renewal(&held, is_dirty, self.ran_users_sql);
        if renewal.as_mut().poll(&mut Context::from_waker(Waker::noop())) != Poll::Ready(true) {
            held.renewal = Some(renewal);
        }
    }
}

/// Stops the request of a caller that has left, so that its locks are freed, then closes the connection.
fn cancel(connector: &Connector, session: Session) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let (token, tls) = (session.client.cancel_token(), connector.tls().clone());
    runtime.spawn(async move {
        // The connection is closed in any case; the server detects that too, but later.
        let _ = token.cancel_query(tls).await;
        drop(session);
    });
}
