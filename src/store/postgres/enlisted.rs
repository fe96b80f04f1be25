//! A connection of the user's own, on which the broker executes verbs.

use super::DIALECT;
use super::args::arguments;
use super::connect::DatabaseLabel;
use super::failure::{Asked, AtRisk, ConnectionState, failure};
use super::link::{PgLink, unread};
use super::texts;
use super::values::{Prepared, RowReader, RowsFor};
use crate::store::database::link::{Call, EnlistedConnection, Failure, Fate, Linked};
use crate::store::{BoxFuture, SqlRow};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient};

/// The states with which the server ends a session itself: the classes of an operator's doing and of its own limits on idle sessions.
fn ends_a_session(state: &SqlState) -> bool {
    state.code().starts_with("57P") || *state == SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT
}

/// The savepoint around a verb.
const BEFORE_THE_VERB: u32 = 0;

/// The calls that were prepared on one connection of the user's, by the name of their function.
#[derive(Debug, Default)]
pub(crate) struct EnlistedStatements(Mutex<HashMap<&'static str, Arc<Prepared>>>);

impl EnlistedStatements {
    fn calls(&self) -> MutexGuard<'_, HashMap<&'static str, Arc<Prepared>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a statement, unless another one has taken its place.
    fn forget(&self, name: &'static str, prepared: &Arc<Prepared>) {
        let mut calls = self.calls();
        if calls.get(name).is_some_and(|kept| Arc::ptr_eq(kept, prepared)) {
            calls.remove(name);
        }
    }
}

/// A connection that the user has opened, and whose transaction the user ends.
pub(crate) struct PgEnlisted<'c> {
    client: &'c Client,
    /// Without it every call is planned.
    statements: Option<&'c EnlistedStatements>,
    /// Whether the user gave a transaction. A connection may be in one or in none.
    is_transaction: bool,
    label: DatabaseLabel,
}

/// A request that failed. The transaction is as it was before.
struct Refused {
    failure: Failure,
    /// The connection has no such statement, or one of a function that was replaced. The server has done nothing.
    is_stale: bool,
}

impl From<Failure> for Refused {
    fn from(failure: Failure) -> Self {
        Self { failure, is_stale: false }
    }
}

impl<'c> PgEnlisted<'c> {
    pub(crate) fn new<C: GenericClient>(given: &'c C, statements: Option<&'c EnlistedStatements>) -> Self {
        let client = given.client();
        // The driver has no third kind: a transaction holds its connection by reference.
        let is_transaction = !std::ptr::addr_eq(given, client);
        Self { client, statements, is_transaction, label: DatabaseLabel::enlisted() }
    }

    fn failed(&self, error: tokio_postgres::Error, asked: Asked<'_>, at_risk: AtRisk) -> Failure {
        let loss = ConnectionState { is_closed: self.client.is_closed(), why: None };
        failure(error, asked, at_risk, loss, &self.label)
    }

    async fn call_now(&self, call: Call<'_>) -> Linked<Vec<SqlRow>> {
        let asked = Asked::Call(call.name);
        let flat = arguments(&call.args);
        let text = texts::call(call.name, flat.len());
        let Some(statements) = self.statements else {
            let params: Vec<(&(dyn ToSql + Sync), Type)> =
                flat.iter().map(|argument| (argument as &(dyn ToSql + Sync), argument.declared())).collect();
            let request = self.client.query_typed(&text, &params);
            let rows = self.request(call.name, request, AtRisk::Commit).await.map_err(|refused| refused.failure)?;
            let Some(first) = rows.first() else { return Ok(Vec::new()) };
            return RowReader::of(first.columns()).rows(&rows, RowsFor::Ours).map_err(|why| unread(asked, &why));
        };
        let params: Vec<&(dyn ToSql + Sync)> = flat.iter().map(|argument| argument as &(dyn ToSql + Sync)).collect();
        let mut may_retry = true;
        loop {
            // A connection in another thread may have put a statement of its own there meanwhile, so the second attempt does not ask.
            let kept = if may_retry { statements.calls().get(call.name).cloned() } else { None };
            let prepared = match kept {
                Some(prepared) => prepared,
                None => {
                    let prepared = self.request(call.name, self.client.prepare(&text), AtRisk::Nothing).await;
                    let prepared = Arc::new(Prepared::new(prepared.map_err(|refused| refused.failure)?));
                    statements.calls().insert(call.name, prepared.clone());
                    prepared
                }
            };
            match self.request(call.name, self.client.query(&prepared.statement, &params), AtRisk::Commit).await {
                Ok(rows) => return prepared.rows(&rows, RowsFor::Ours).map_err(|why| unread(asked, &why)),
                Err(refused) => {
                    if refused.is_stale {
                        statements.forget(call.name, &prepared);
                    }
                    if !refused.is_stale || !may_retry {
                        return Err(refused.failure);
                    }
                    may_retry = false;
                }
            }
        }
    }

    /// A request under a savepoint. Outside of a transaction a lost connection costs what `alone` says.
    async fn request<T>(
        &self,
        name: &'static str,
        request: impl Future<Output = Result<T, tokio_postgres::Error>>,
        alone: AtRisk,
    ) -> Result<T, Refused> {
        let asked = Asked::Call(name);
        // On a connection that has ended before, nothing is sent.
        let alone = if self.client.is_closed() { AtRisk::Nothing } else { alone };
        let (mark, release) = (texts::savepoint(BEFORE_THE_VERB), texts::release(BEFORE_THE_VERB));
        // All three in one flight. Outside of a transaction the server refuses the savepoint and the release, and the call
        // commits by itself. After a refusal of the call the release is refused as well.
        let (marked, answer, released) = tokio::join!(
            biased;
            self.client.batch_execute(&mark),
            request,
            self.client.batch_execute(&release),
        );
        let is_in_transaction = match marked {
            Ok(()) => true,
            Err(error) => match error.code() {
                Some(code) if *code == SqlState::NO_ACTIVE_SQL_TRANSACTION => false,
                Some(code) if *code == SqlState::IN_FAILED_SQL_TRANSACTION => {
                    return Err(Failure::of_a_failed_enlisted_transaction(name).into());
                }
                _ => {
                    // A cancel that came late met the savepoint. In a transaction the request would have failed with it.
                    if let Ok(answer) = answer {
                        return Ok(answer);
                    }
                    let at_risk = match self.is_transaction {
                        true => AtRisk::Transaction,
                        // The server says why it ends the session before it reads the request. A pooler says so after it has passed it on.
                        false if error.code().is_some_and(ends_a_session) => AtRisk::Nothing,
                        // The answer to the savepoint may be lost with that to the request, which has committed by itself.
                        false => alone,
                    };
                    return Err(self.failed(error, asked, at_risk).into());
                }
            },
        };
        let at_risk = if is_in_transaction { AtRisk::Transaction } else { alone };
        match answer {
            Ok(answer) => {
                if is_in_transaction && let Err(error) = released {
                    return Err(self.failed(error, asked, at_risk).into());
                }
                Ok(answer)
            }
            Err(error) => {
                let is_stale = PgLink::is_stale(error.code());
                let failure = self.failed(error, asked, at_risk);
                if is_in_transaction && failure.fate == Fate::Undone {
                    let back = format!("{};{release}", texts::rollback_to(BEFORE_THE_VERB));
                    if let Err(error) = self.client.batch_execute(&back).await {
                        return Err(self.failed(error, asked, at_risk).into());
                    }
                }
                let is_stale = is_stale && failure.fate == Fate::Undone;
                Err(Refused { failure, is_stale })
            }
        }
    }
}

impl EnlistedConnection for PgEnlisted<'_> {
    fn dialect(&self) -> &'static str {
        DIALECT.name
    }

    fn call<'a>(&'a mut self, call: Call<'a>) -> BoxFuture<'a, Linked<Vec<SqlRow>>> {
        Box::pin(self.call_now(call))
    }
}
