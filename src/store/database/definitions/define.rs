//! Definitions: the change is computed here, against one version of the definitions, and written if that version is
//! still current.

use crate::catalog::apply::{self, Applied};
use crate::catalog::body::BodyChecks;
use crate::core::DefinitionWait;
use crate::error::{Code, Error, Result};
use crate::protocol::Outcome;
use crate::protocol::definition::Definition;
use crate::store::database::Database;
use crate::store::database::calls::caller::{self, Caller};
use crate::store::database::calls::rows::{notices_in, only};
use crate::store::database::definitions::catalog::Known;
use crate::store::database::definitions::definition_effects::{folded_name, follow, gathered, hold, row};
use crate::store::database::link::{Arg, Call, Failure, Link, Linked};
use crate::store::database::notifications::notice::Notices;
use crate::store::database::retry::{LOCKED_DEFINITION, Repeat, Retry};
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// The result of a write.
enum Written {
    /// Another process has changed definitions since they were read.
    Stale,
    /// The unit's id was claimed before.
    HappenedBefore,
    /// The new version, and the notices to publish.
    Done(i64, Notices),
}

impl Database {
    /// Applies definitions, all or none; `None` if a unit of that id has done so before. While they wait for a lock they are given up with
    /// their caller.
    pub(in crate::store::database) async fn define(
        self: &Arc<Self>,
        definitions: &[Definition],
        unit_id: Option<Uuid>,
        caller: &Caller,
    ) -> Result<Option<Outcome>> {
        // Before the lock of the ids, which every SEND needs, and on a thread that may take seconds.
        let _schemas = match BodyChecks::have_schemas(definitions) {
            true => {
                let bytes = BodyChecks::schema_bytes(definitions);
                let (checks, definitions) = (self.checks.clone(), definitions.to_vec());
                self.check_room.run(bytes, move || checks.compile_schemas(&definitions)).await.ok()
            }
            false => None,
        };
        let mut unanswered = None;
        match self.try_define(definitions, unit_id, caller, &mut unanswered).await {
            // No later attempt has found out whether the one happened whose COMMIT had no answer.
            Err(later) => Err(unanswered.unwrap_or(later)),
            done => done,
        }
    }

    async fn try_define(
        self: &Arc<Self>,
        definitions: &[Definition],
        unit_id: Option<Uuid>,
        caller: &Caller,
        unanswered: &mut Option<Error>,
    ) -> Result<Option<Outcome>> {
        let repeat = if unit_id.is_some() { Repeat::Always } else { Repeat::IfUndone };
        let mut tries = Retry::default();
        let mut wait = None;
        loop {
            if caller.has_left() {
                return Err(caller::left());
            }
            let known = self.definitions.known();
            let (catalog, applied) = match self.apply(&known, definitions) {
                Ok(applied) => applied,
                // The known definitions may be old: the current ones may allow the change.
                Err(refusal) => {
                    self.reload().await?;
                    if self.definitions.known().version == known.version {
                        // What the same unit has made before refuses it now.
                        if let Some(unit_id) = unit_id
                            && self.unit_happened(unit_id).await?
                        {
                            return Ok(None);
                        }
                        *unanswered = None;
                        return Err(refusal);
                    }
                    continue;
                }
            };
            let attempt = async {
                let mut link = self.take().await?;
                let written = self.write(&mut *link, &known, &catalog, &applied, unit_id, unanswered).await;
                if written.as_ref().is_err_and(|failure| failure.is_link_usable) {
                    // If that fails too, the link is closed.
                    let _ = link.rollback().await;
                }
                written
            };
            let Some(written) = caller.unless_left(attempt).await else { return Err(caller::left()) };
            let failure = match written {
                Ok(Written::Done(version, notices)) => {
                    self.definitions.learn(Known { catalog: Arc::new(catalog), version });
                    self.board.wake_all();
                    self.publish_local(&notices, 1).await;
                    let warnings = applied.into_iter().flat_map(|applied| applied.warnings).collect();
                    return Ok(Some(Outcome::Warnings(warnings)));
                }
                Ok(Written::HappenedBefore) => return Ok(None),
                Ok(Written::Stale) => {
                    self.reload().await?;
                    continue;
                }
                Err(failure) => failure,
            };
            if failure.fate.may_have_happened() {
                *unanswered = Some(failure.caller_error());
            }
            match failure.error.code() {
                Code::CATALOG_STALE => self.reload().await?,
                Code::DEADLOCK | Code::LOCK_TIMEOUT if !failure.fate.may_have_happened() => {
                    let now = self.clock.now();
                    let wait = wait.get_or_insert_with(|| DefinitionWait::begin(now));
                    if let Some(hold_for) = wait.hold(now) {
                        self.hold_receives(&applied, hold_for).await;
                    }
                    tokio::time::sleep(LOCKED_DEFINITION).await
                }
                _ => drop(tries.after(failure, repeat).await?),
            }
        }
    }

    fn apply(&self, known: &Known, definitions: &[Definition]) -> Result<(crate::catalog::Catalog, Vec<Applied>)> {
        let mut catalog = (*known.catalog).clone();
        let mut ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
        let applied: Result<_> = definitions
            .iter()
            .enumerate()
            .map(|(index, definition)| {
                apply::apply_with(&mut catalog, definition, &mut ids, &self.checks)
                    .map_err(|error| error.in_statement(index))
            })
            .collect();
        let applied = applied?;
        catalog.date_queues(self.clock.now());
        Ok((catalog, applied))
    }

    /// Holds receives back from the queues of the conversations that the definitions need. If it fails, the definitions wait as before.
    async fn hold_receives(self: &Arc<Self>, applied: &[Applied], hold_for: Duration) {
        let hold_ms = i32::try_from(hold_for.as_millis()).unwrap_or(i32::MAX);
        let calls = applied.iter().flat_map(|applied| &applied.consequences).filter_map(|it| hold(it, hold_ms));
        let calls: Vec<_> = calls.collect();
        if calls.is_empty() {
            return;
        }
        let held: Linked<Notices> = async {
            let mut link = self.take().await?;
            let held = async {
                link.begin().await?;
                let mut notices = Notices::default();
                for call in calls {
                    notices.extend(notices_in(&link.call(call).await?));
                }
                link.commit().await?;
                Ok(notices)
            }
            .await;
            if held.as_ref().is_err_and(|failure: &Failure| failure.is_link_usable) {
                let _ = link.rollback().await;
            }
            held
        }
        .await;
        match held {
            Ok(notices) => {
                tracing::warn!(hold_ms, "a definition waits for conversations that are busy, and holds receives back");
                self.publish_local(&notices, 0).await;
            }
            Err(failure) => tracing::warn!(error = %failure.error, "a definition could not hold receives back"),
        }
    }

    async fn write(
        &self,
        link: &mut dyn Link,
        known: &Known,
        catalog: &crate::catalog::Catalog,
        applied: &[Applied],
        unit_id: Option<Uuid>,
        unanswered: &mut Option<Error>,
    ) -> Linked<Written> {
        link.begin().await?;
        if let Some(unit_id) = unit_id {
            if !claim(link, unit_id).await?.is_new {
                link.rollback().await?;
                return Ok(Written::HappenedBefore);
            }
            // So an earlier attempt has not happened.
            *unanswered = None;
        }
        let began = link.call(Call { name: "define_begin", args: vec![Arg::BigInt(known.version)] }).await?;
        let began = only(&began)?;
        // The times of schedules count from it, and the server's clock may have been set since this process asked.
        self.maintenance.learn_time(began)?;
        if !began.flag("is_current")? {
            link.rollback().await?;
            return Ok(Written::Stale);
        }
        let mut notices = Notices::default();
        let mut last = None;
        for &touched in applied.iter().flat_map(|applied| &applied.touched) {
            let folded_name = folded_name(catalog, touched);
            // Every creation writes the settings.
            if last.replace(touched) != Some(touched)
                && let Some(call) = row(catalog, touched, &folded_name, self.clock.now())
            {
                notices.extend(notices_in(&link.call(call).await?));
            }
        }
        for call in gathered(applied).iter().filter_map(follow) {
            notices.extend(notices_in(&link.call(call).await?));
        }
        let ended = link.call(Call { name: "define_end", args: Vec::new() }).await?;
        notices.extend(notices_in(&ended));
        let version = only(&ended)?.int("catalog_version")?;
        link.commit().await?;
        Ok(Written::Done(version, notices))
    }
}

/// The claim of a unit's id.
pub(in crate::store::database) struct UnitClaim {
    pub(in crate::store::database) is_new: bool,
    /// When the id was claimed, by the server's clock in microseconds: another attempt at the unit has another time.
    pub(in crate::store::database) done_at: Option<i64>,
}

/// Claims an id for the transaction of a link.
pub(in crate::store::database) async fn claim(link: &mut dyn Link, unit_id: Uuid) -> Linked<UnitClaim> {
    let rows = link.call(Call { name: "claim_unit", args: vec![Arg::Uuid(unit_id)] }).await?;
    let claimed = only(&rows)?;
    Ok(UnitClaim { is_new: claimed.flag("is_new")?, done_at: claimed.maybe_int("done_at")? })
}
