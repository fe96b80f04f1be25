//! One connection at work.

mod requests;

use super::args::arguments;
use super::connect::{Connector, Pooling, RunningStatement, Session};
use super::failure::{Asked, Loss, Stake, failure, lost, only_reads};
use super::guard::guard;
use super::texts;
use super::values::{Eyes, Prepared};
use crate::error::{Code, Error};
use crate::sql::postgres::transaction;
use crate::store::database::link::{Call, Failure, Fate, Link, Linked};
use crate::store::statement::commits_by_itself;
use crate::store::{BoxFuture, SqlRow, SqlRows, SqlStatement};
use deadpool::managed::Object;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Row};

/// How many texts of the user's a connection keeps prepared.
const KEPT_TEXTS: usize = 64;

/// A connection of the pool, or one of its own.
pub(super) struct PgLink {
    connector: Arc<Connector>,
    /// `None` only once it is dropped.
    held: Option<Held>,
    transaction: Transaction,
    /// What was asked for and will be sent along with what comes next.
    put_off: Vec<Control>,
    /// A request is under way; it stays true if its caller went away.
    is_busy: bool,
    is_lost: bool,
    /// Locks of the session may be held.
    holds_locks: bool,
    /// The user's own SQL has run, which may have changed anything of the session.
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
    /// BEGIN was asked for but not sent.
    PutOff,
    Open,
    /// The server takes nothing but a rollback, to a savepoint or of it all.
    Failed,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    Begin,
    Savepoint(u32),
    Release(u32),
    /// Ends the limit of the user's own SQL.
    NoLimit(Duration),
    /// Limits it.
    Limit(Duration),
}

/// In which transaction a read runs if none is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Around {
    /// None: what runs commits by itself.
    Nothing,
    /// One that only reads, with names of ours only.
    OurRead,
    /// One that only reads.
    UsersQuery,
}

/// Where a link was before a request, so that the request alone can be undone and sent again.
struct Retreat {
    to: RetreatTo,
    /// What was put off and is sent with the request.
    put_off: Vec<Control>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RetreatTo {
    /// Outside of a transaction a failed request has undone itself.
    Nothing,
    /// The transaction begins with the request.
    Begin,
    /// A savepoint goes out with the request.
    Savepoint(u32),
}

/// What became of a request that was sent together with what was put off.
enum Trouble {
    Server(tokio_postgres::Error),
    /// BEGIN failed and the request was done all the same, without a transaction.
    Loose(tokio_postgres::Error),
    /// BEGIN failed because the server is a standby, which takes no transaction that may write.
    Standby(tokio_postgres::Error),
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
            put_off: Vec::new(),
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

    /// What would be lost with the connection by something that commits by itself outside of a transaction.
    fn stake(&self) -> Stake {
        if self.is_in_transaction() { Stake::Transaction } else { Stake::Commit }
    }

    /// Fails early if the connection is already closed.
    fn ready(&self, stake: Stake) -> Linked<()> {
        if !self.is_lost && !self.client().is_closed() {
            return Ok(());
        }
        let why = self.why_lost().unwrap_or_else(|| "the server closed it".to_owned());
        // Nothing was sent, so that nothing can have been committed.
        let stake = if self.is_in_transaction() {
            Stake::Transaction
        } else if stake == Stake::Commit {
            Stake::Nothing
        } else {
            stake
        };
        Err(lost(why, stake, self.connector.place()))
    }

    fn why_lost(&self) -> Option<String> {
        self.held.as_deref().and_then(|session| session.lost.get().cloned())
    }

    /// The failure, with what it means for this link.
    fn failed(&mut self, error: tokio_postgres::Error, asked: Asked<'_>, stake: Stake) -> Failure {
        let is_servers = error.as_db_error().is_some();
        let loss = Loss { is_closed: self.client().is_closed(), why: self.why_lost() };
        let is_stopped = error.code() == Some(&SqlState::QUERY_CANCELED);
        let only_reads = error.code() == Some(&SqlState::READ_ONLY_SQL_TRANSACTION) && !asked.is_users();
        let mut failure = failure(error, asked, stake, loss, self.connector.place());
        if is_stopped
            && let Some((began, limit)) = self.limited
            && began.elapsed() >= limit
        {
            failure.error = asked.overran(limit).caused_by(failure.error);
        }
        // In a transaction the user may have asked for that, by SET TRANSACTION READ ONLY.
        if only_reads && !self.is_in_transaction() {
            self.connector.note_read_only();
            failure.is_link_usable = false;
        }
        if !failure.is_link_usable {
            self.is_lost = true;
        }
        if is_servers && self.transaction == Transaction::Open {
            self.transaction = Transaction::Failed;
        }
        failure
    }

    fn troubled(&mut self, trouble: Trouble, asked: Asked<'_>, stake: Stake) -> Failure {
        match trouble {
            Trouble::Server(error) => self.failed(error, asked, stake),
            Trouble::Standby(error) => {
                self.is_lost = true;
                self.connector.note_read_only();
                only_reads(error, asked, self.connector.place())
            }
            Trouble::Loose(error) => {
                self.is_lost = true;
                let why = format!("the server refused to begin a transaction: {error}");
                lost(why, Stake::Commit, self.connector.place())
            }
        }
    }

    /// The texts that were put off, which will be sent now.
    fn take_put_off(&mut self) -> Option<(String, bool)> {
        if self.put_off.is_empty() {
            return None;
        }
        let mut text = String::new();
        let mut begins = false;
        for control in self.put_off.drain(..) {
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
                Control::Limit(limit) => text.push_str(&texts::limit(limit, true)),
            }
        }
        if begins {
            self.transaction = Transaction::Open;
        }
        Some((text, begins))
    }

    /// Where to go back to if the next request fails because its prepared form is out of date. `None` if earlier work of the
    /// transaction would be undone too.
    fn retreat(&self) -> Option<Retreat> {
        let (to, put_off) = match self.transaction {
            Transaction::None => (RetreatTo::Nothing, Vec::new()),
            Transaction::PutOff => (RetreatTo::Begin, self.put_off.clone()),
            Transaction::Open | Transaction::Failed => {
                let marks = self.put_off.iter().enumerate().rev();
                let (place, number) = marks.into_iter().find_map(|(place, control)| match control {
                    Control::Savepoint(number) => Some((place, *number)),
                    _ => None,
                })?;
                (RetreatTo::Savepoint(number), self.put_off[place + 1..].to_vec())
            }
        };
        Some(Retreat { to, put_off })
    }

    /// Undoes a failed request; false if that is not possible.
    async fn go_back(&mut self, retreat: Option<Retreat>) -> bool {
        let Some(Retreat { to, put_off }) = retreat else { return false };
        let (text, transaction) = match to {
            RetreatTo::Nothing => return true,
            RetreatTo::Begin => (transaction::ROLLBACK.to_owned(), Transaction::PutOff),
            RetreatTo::Savepoint(number) => (texts::rollback_to(number), Transaction::Open),
        };
        let is_undone = self.client().batch_execute(&text).await.is_ok();
        if is_undone {
            (self.transaction, self.put_off) = (transaction, put_off);
        }
        is_undone
    }

    /// Sends marks that were put off before something that may fail and is not sent with them.
    async fn settle_marks(&mut self) -> Result<(), tokio_postgres::Error> {
        if self.transaction == Transaction::Open
            && let Some((text, _)) = self.take_put_off()
        {
            self.client().batch_execute(&text).await?;
        }
        Ok(())
    }

    async fn prepare_call(
        &mut self,
        name: &'static str,
        arguments: usize,
    ) -> Result<Arc<Prepared>, tokio_postgres::Error> {
        if let Some(prepared) = self.session().calls.get(name) {
            return Ok(prepared.clone());
        }
        self.settle_marks().await?;
        let statement = self.client().prepare(&texts::call(name, arguments)).await?;
        let prepared = Arc::new(Prepared::new(statement));
        self.session().calls.insert(name, prepared.clone());
        Ok(prepared)
    }

    async fn prepare_text(&mut self, text: &str) -> Result<Arc<Prepared>, tokio_postgres::Error> {
        if let Some(prepared) = self.session().texts.get(text) {
            return Ok(prepared.clone());
        }
        self.settle_marks().await?;
        let statement = self.client().prepare(text).await?;
        let prepared = Arc::new(Prepared::new(statement));
        let texts = &mut self.session().texts;
        if texts.len() >= KEPT_TEXTS {
            texts.clear();
        }
        texts.insert(text.to_owned(), prepared.clone());
        Ok(prepared)
    }

    /// Sends what was put off and the request in one flight.
    async fn fly<T>(
        client: &Client,
        put_off: Option<(String, bool)>,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Trouble> {
        let Some((text, begins)) = put_off else { return request.await.map_err(Trouble::Server) };
        match tokio::join!(biased; client.batch_execute(&text), request) {
            (Ok(()), done) => done.map_err(Trouble::Server),
            (Err(error), _) if begins && error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED) => {
                Err(Trouble::Standby(error))
            }
            (Err(error), Ok(_)) if begins => Err(Trouble::Loose(error)),
            (Err(error), _) => Err(Trouble::Server(error)),
        }
    }

    /// Sends a statement's limit and the statement, which commits by itself, in one flight. The statement runs although its
    /// limit is refused, so only its own answer says what became of it. The session is reset when it goes back.
    async fn fly_limited<T>(
        client: &Client,
        limit: Duration,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
    ) -> Result<T, Trouble> {
        let text = texts::limit(limit, false);
        let (limited, done) = tokio::join!(biased; client.batch_execute(&text), request);
        if let Err(error) = limited {
            tracing::warn!(%error, "a statement of the user's ran without the limit of sql_timeout_ms");
        }
        done.map_err(Trouble::Server)
    }

    async fn rows(
        &mut self,
        prepared: &Prepared,
        params: &[&(dyn ToSql + Sync)],
        around: Around,
    ) -> Result<Vec<Row>, Trouble> {
        if around != Around::Nothing && !self.is_in_transaction() {
            let begin = match around {
                Around::OurRead => format!("{};{}", transaction::BEGIN_READ_ONLY, transaction::OWN_NAMES),
                _ => match self.connector.sql_timeout {
                    Some(limit) => format!("{};{}", transaction::BEGIN_READ_ONLY, texts::limit(limit, true)),
                    None => transaction::BEGIN_READ_ONLY.to_owned(),
                },
            };
            let client = self.client();
            let (begun, rows, ended) = tokio::join!(
                biased;
                client.batch_execute(&begin),
                client.query(&prepared.statement, params),
                client.batch_execute(transaction::COMMIT),
            );
            return begun.and(rows).and_then(|rows| ended.map(|()| rows)).map_err(Trouble::Server);
        }
        let put_off = self.take_put_off();
        let client = self.client();
        Self::fly(client, put_off, client.query(&prepared.statement, params)).await
    }

    /// Whether the statement has to be prepared again: something it stands on was replaced.
    fn is_stale(trouble: &Trouble) -> bool {
        let Trouble::Server(error) = trouble else { return false };
        let stale =
            [&SqlState::FEATURE_NOT_SUPPORTED, &SqlState::INVALID_SQL_STATEMENT_NAME, &SqlState::UNDEFINED_FUNCTION];
        error.code().is_some_and(|code| stale.contains(&code))
    }

    async fn call_now(&mut self, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        let (asked, stake) = (Asked::Call(call.name), self.stake());
        self.ready(stake)?;
        let flat = arguments(&call.args);
        let params: Vec<&(dyn ToSql + Sync)> = flat.iter().map(|argument| argument as &(dyn ToSql + Sync)).collect();
        let mut may_retry = true;
        loop {
            let prepared = match self.prepare_call(call.name, flat.len()).await {
                Ok(prepared) => prepared,
                Err(error) => return Err(self.failed(error, asked, not_sent(stake))),
            };
            let retreat = self.retreat();
            let answer = self.rows(&prepared, &params, Around::Nothing).await;
            match answer {
                Ok(rows) => {
                    if call.name == "unlock_session" {
                        self.holds_locks = false;
                    }
                    return prepared.rows(&rows, Eyes::Ours).map_err(|why| unread(asked, &why));
                }
                Err(trouble) => {
                    let is_stale = Self::is_stale(&trouble);
                    if is_stale {
                        self.session().calls.remove(call.name);
                    }
                    if !(is_stale && may_retry && self.go_back(retreat).await) {
                        return Err(self.troubled(trouble, asked, stake));
                    }
                    may_retry = false;
                }
            }
        }
    }

    async fn read_now(&mut self, text: &'static str) -> Linked<Vec<SqlRow>> {
        let asked = Asked::Ours("a read of the broker's tables");
        let stake = if self.is_in_transaction() { Stake::Transaction } else { Stake::Nothing };
        self.ready(stake)?;
        let (prepared, rows) = self.text_rows(text, &[], Around::OurRead, asked, stake).await?;
        prepared.rows(&rows, Eyes::Ours).map_err(|why| unread(asked, &why))
    }

    async fn query_now(&mut self, sql: &SqlStatement) -> Linked<SqlRows> {
        let asked = Asked::Users(&sql.text);
        let stake = if self.is_in_transaction() { Stake::Transaction } else { Stake::Nothing };
        self.ready(stake)?;
        guard(&sql.text)?;
        let params: Vec<&(dyn ToSql + Sync)> = sql.params.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        let running = self.begin_users_statement();
        let answer = self.text_rows(&sql.text, &params, Around::UsersQuery, asked, stake).await;
        let (prepared, rows) = self.end_users_statement(running, answer)?;
        if prepared.columns().is_empty() {
            return Err(refuse(asked, "it is not a query: it gives no columns"));
        }
        let rows = prepared.rows(&rows, Eyes::Users).map_err(|why| refuse(asked, &why))?;
        Ok(SqlRows { columns: prepared.columns().clone(), rows })
    }

    async fn text_rows(
        &mut self,
        text: &str,
        params: &[&(dyn ToSql + Sync)],
        around: Around,
        asked: Asked<'_>,
        stake: Stake,
    ) -> Linked<(Arc<Prepared>, Vec<Row>)> {
        let mut may_retry = true;
        loop {
            let prepared = match self.prepare_text(text).await {
                Ok(prepared) => prepared,
                Err(error) => return Err(self.failed(error, asked, stake)),
            };
            let retreat = self.retreat();
            match self.rows(&prepared, params, around).await {
                Ok(rows) => return Ok((prepared, rows)),
                Err(trouble) => {
                    let is_stale = Self::is_stale(&trouble);
                    if is_stale {
                        self.session().texts.remove(text);
                    }
                    if !(is_stale && may_retry && self.go_back(retreat).await) {
                        return Err(self.troubled(trouble, asked, stake));
                    }
                    may_retry = false;
                }
            }
        }
    }

    async fn execute_now(&mut self, sql: &SqlStatement) -> Linked<u64> {
        let (asked, stake) = (Asked::Users(&sql.text), self.stake());
        self.ready(stake)?;
        guard(&sql.text)?;
        let running = self.begin_users_statement();
        let answer = self.execute_limited(sql, asked, stake).await;
        self.end_users_statement(running, answer)
    }

    async fn execute_limited(&mut self, sql: &SqlStatement, asked: Asked<'_>, stake: Stake) -> Linked<u64> {
        let params: Vec<&(dyn ToSql + Sync)> = sql.params.iter().map(|value| value as &(dyn ToSql + Sync)).collect();
        let may_commit = commits_by_itself(&sql.text);
        if may_commit {
            // A statement that may commit by itself is never retried. So it must not fail because its prepared form is out
            // of date: prepare it for this call.
            self.session().texts.remove(&sql.text);
        }
        let mut may_retry = !may_commit;
        loop {
            let prepared = match self.prepare_text(&sql.text).await {
                Ok(prepared) => prepared,
                Err(error) => return Err(self.failed(error, asked, not_sent(stake))),
            };
            let retreat = self.retreat();
            let put_off = self.take_put_off();
            let client = self.client();
            let request = client.execute(&prepared.statement, &params);
            let answer = match self.connector.sql_timeout {
                Some(limit) if !self.is_in_transaction() => Self::fly_limited(client, limit, request).await,
                _ => Self::fly(client, put_off, request).await,
            };
            match answer {
                Ok(changed) => return Ok(changed),
                Err(trouble) => {
                    let is_stale = Self::is_stale(&trouble);
                    if is_stale {
                        self.session().texts.remove(&sql.text);
                    }
                    if !(is_stale && may_retry && self.go_back(retreat).await) {
                        return Err(self.troubled(trouble, asked, stake));
                    }
                    may_retry = false;
                }
            }
        }
    }

    /// Notes that the user's own SQL runs, and limits its time.
    fn begin_users_statement(&mut self) -> RunningStatement {
        self.ran_users_sql = true;
        if let Some(limit) = self.connector.sql_timeout {
            self.limited = Some((Instant::now(), limit));
            if self.is_in_transaction() {
                self.put_off.push(Control::Limit(limit));
            }
        }
        RunningStatement::begin(&self.connector, self.client())
    }

    /// Notes that it is over, and ends its limit.
    fn end_users_statement<T>(&mut self, running: RunningStatement, answer: Linked<T>) -> Linked<T> {
        self.limited = None;
        if let Some(limit) = self.connector.sql_timeout
            && self.is_in_transaction()
        {
            // After a failure the limit goes with the rollback of the savepoint before it, or of all.
            self.put_off.retain(|control| !matches!(control, Control::Limit(_)));
            if answer.is_ok() {
                self.put_off.push(Control::NoLimit(limit));
            }
        }
        if !running.end() {
            return answer;
        }
        self.is_lost = true;
        answer.map_err(|failure| Failure {
            error: Error::closed().caused_by(failure.error),
            is_link_usable: false,
            ..failure
        })
    }

    /// Runs a text without parameters, after what was put off.
    async fn batch_now(&mut self, text: &str, asked: Asked<'_>, stake: Stake) -> Linked<()> {
        self.ready(stake)?;
        let put_off = self.take_put_off();
        let client = self.client();
        match Self::fly(client, put_off, client.batch_execute(text)).await {
            Ok(()) => Ok(()),
            Err(trouble) => Err(self.troubled(trouble, asked, stake)),
        }
    }

    async fn commit_now(&mut self) -> Linked<()> {
        match self.transaction {
            Transaction::None | Transaction::PutOff => {
                self.put_off.clear();
                self.transaction = Transaction::None;
                return Ok(());
            }
            // The server would answer COMMIT as if it were well, and roll back.
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
        // Marks end with it.
        self.put_off.clear();
        self.ready(Stake::Commit)?;
        let done = self.client().batch_execute(transaction::COMMIT).await;
        if let Err(error) = done {
            let is_servers = error.as_db_error().is_some();
            let mut failure = self.failed(error, Asked::Ours("COMMIT"), Stake::Commit);
            self.transaction = Transaction::None;
            if is_servers && failure.fate == Fate::Undone {
                // A constraint put off to the commit: the server has rolled back.
                failure.fate = Fate::TransactionUndone;
                if failure.error.code() == Code::STORE_IO {
                    let why = failure.error.message().to_owned();
                    failure.error = Error::new(Code::USER_SQL_FAILED, why).caused_by(failure.error);
                }
            }
            return Err(failure);
        }
        self.transaction = Transaction::None;
        Ok(())
    }

    async fn rollback_now(&mut self) -> Linked<()> {
        self.put_off.clear();
        let was = std::mem::replace(&mut self.transaction, Transaction::None);
        if matches!(was, Transaction::None | Transaction::PutOff) || self.is_lost || self.client().is_closed() {
            return Ok(());
        }
        match self.client().batch_execute(transaction::ROLLBACK).await {
            Ok(()) => Ok(()),
            Err(error) => {
                let failure = self.failed(error, Asked::Ours("ROLLBACK"), Stake::Nothing);
                self.is_lost = true;
                // A transaction ends with its connection.
                if failure.is_link_usable { Err(failure) } else { Ok(()) }
            }
        }
    }

    async fn rollback_to_now(&mut self, number: u32) -> Linked<()> {
        // A mark that was never sent has nothing to undo.
        if let Some(place) = self.put_off.iter().rposition(|control| *control == Control::Savepoint(number)) {
            self.put_off.truncate(place + 1);
            return Ok(());
        }
        let was = self.transaction;
        // What was released or marked since goes with what was done since.
        self.put_off.clear();
        self.batch_now(&texts::rollback_to(number), Asked::Ours("ROLLBACK TO SAVEPOINT"), Stake::Transaction).await?;
        if was == Transaction::Failed {
            self.transaction = Transaction::Open;
        }
        Ok(())
    }
}

/// What is at stake while a statement is only prepared.
fn not_sent(stake: Stake) -> Stake {
    if stake == Stake::Commit { Stake::Nothing } else { stake }
}

pub(super) fn refuse(asked: Asked<'_>, why: &str) -> Failure {
    Failure { error: asked.refused(why), fate: Fate::Undone, is_link_usable: true }
}

/// A function of ours answered what is not understood.
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
        // A request goes out with the first poll. The pool looks at the answer before it gives the session to the next user.
        let mut renewal = self.connector.renewal(held.client.clone(), is_dirty, self.ran_users_sql);
        if renewal.as_mut().poll(&mut Context::from_waker(Waker::noop())) != Poll::Ready(true) {
            held.renewal = Some(renewal);
        }
    }
}

/// Ends what the server still does for a caller who went away, so that its locks are free, then closes the connection.
fn cancel(connector: &Connector, session: Session) {
    let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
    let (token, tls) = (session.client.cancel_token(), connector.tls().clone());
    runtime.spawn(async move {
        // The connection is closed in any case, and the server notices that too, only later.
        let _ = token.cancel_query(tls).await;
        drop(session);
    });
}
