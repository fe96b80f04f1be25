//! Checks of message bodies and of schemas, outside every lock.
//!
//! The bodies of a unit are checked before it is ordered: on the caller's own thread if that takes milliseconds, else
//! on a thread for blocking work. The schemas of definitions are compiled on such a thread before the definitions are
//! ordered. If the type was altered between the check and the arrival, or the broker was opened
//! again, the message waits in the transmission queue while a thread of the store's own checks it.

use super::engine::Engine;
use super::state::State;
use crate::catalog::Catalog;
use crate::catalog::body::{BodyChecks, CheckedTypes, CompiledSchemas, Judgement, Verdict};
use crate::protocol::definition::Definition;
use crate::protocol::{Verb, system};
use crate::store::check_room::CheckRoom;
use smallvec::SmallVec;
use std::collections::{HashMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};

/// Verdicts on the bodies of a unit, and its compiled schemas.
#[derive(Default)]
pub(super) struct Judgements {
    bodies: SmallVec<[Judgement; 1]>,
    schemas: SmallVec<[CompiledSchemas; 1]>,
}

/// The data needed to check bodies without the state.
pub(super) struct Checking {
    checks: Arc<BodyChecks>,
    room: CheckRoom,
    max_body_bytes: usize,
    types: RwLock<Arc<Types>>,
    late: Mutex<LateChecks>,
    engine: OnceLock<Weak<Engine>>,
}

/// The committed definitions.
struct Types {
    catalog: Arc<Catalog>,
    checked: CheckedTypes,
}

/// Rows of the transmission queue to be checked.
#[derive(Default)]
struct LateChecks {
    waiting: VecDeque<u64>,
    /// Waiting rows, and the row being checked; true if it was requested again meanwhile.
    known: HashMap<u64, bool>,
    is_running: bool,
}

impl LateChecks {
    fn add(&mut self, row: u64) {
        match self.known.get_mut(&row) {
            Some(is_asked_again) => *is_asked_again = true,
            None => {
                self.known.insert(row, false);
                self.waiting.push_back(row);
            }
        }
    }
}

impl Types {
    fn of(catalog: &Arc<Catalog>) -> Arc<Self> {
        Arc::new(Self { catalog: catalog.clone(), checked: CheckedTypes::of(catalog) })
    }
}

impl Checking {
    pub(super) fn new(checks: Arc<BodyChecks>, max_body_bytes: usize, catalog: &Arc<Catalog>) -> Self {
        let types = RwLock::new(Types::of(catalog));
        Self {
            checks,
            room: CheckRoom::default(),
            max_body_bytes,
            types,
            late: Mutex::default(),
            engine: OnceLock::new(),
        }
    }

    /// Sets the engine whose messages are checked late.
    pub(super) fn serve(&self, engine: &Arc<Engine>) {
        let _ = self.engine.set(Arc::downgrade(engine));
    }

    /// Definitions have been committed.
    pub(super) fn publish(&self, catalog: &Arc<Catalog>) {
        *self.types.write().unwrap_or_else(PoisonError::into_inner) = Types::of(catalog);
    }

    /// Checks the bodies of SENDs, and compiles the schemas of definitions. The verdicts count as long as the returned
    /// value is kept.
    pub(super) async fn judge(&self, verbs: &[Verb]) -> Judgements {
        let mut judgements = Judgements::default();
        for verb in verbs {
            if let Verb::Define(definitions) = verb
                && BodyChecks::have_schemas(definitions)
            {
                judgements.schemas.extend(self.compile(definitions).await);
            }
        }
        if !verbs.iter().any(|verb| matches!(verb, Verb::Send { body: Some(_), .. } | Verb::SendEach(_))) {
            return judgements;
        }
        let types = self.types.read().unwrap_or_else(PoisonError::into_inner).clone();
        for (message_type, body) in verbs.iter().flat_map(bodies) {
            let Some(message_type) = types.checked.get(message_type.as_deref().unwrap_or(system::DEFAULT)) else {
                continue;
            };
            // A body that is too large is refused, and needs no verdict.
            if body.is_empty() || body.len() > self.max_body_bytes {
                continue;
            }
            if let Some(judgement) = self.checks.pass_quick_judgement(&types.catalog, message_type, body) {
                judgements.bodies.push(judgement);
                continue;
            }
            let (checks, types) = (self.checks.clone(), types.clone());
            let (message_type, body, bytes) = (message_type.clone(), body.clone(), body.len());
            let check = move || checks.pass_judgement(&types.catalog, &message_type, &body);
            match tokio::runtime::Handle::try_current() {
                // If the runtime is shutting down, the message is checked when it arrives.
                Ok(_) => judgements.bodies.extend(self.room.run(bytes, check).await.ok()),
                Err(_) => judgements.bodies.push(check()),
            }
        }
        judgements
    }

    async fn compile(&self, definitions: &[Definition]) -> Option<CompiledSchemas> {
        let bytes = BodyChecks::schema_bytes(definitions);
        let (checks, definitions) = (self.checks.clone(), definitions.to_vec());
        let compile = move || checks.compile_schemas(&definitions);
        match tokio::runtime::Handle::try_current() {
            // If the runtime is shutting down, no caller waits for the definitions.
            Ok(_) => self.room.run(bytes, compile).await.ok(),
            Err(_) => Some(compile()),
        }
    }

    /// Checks rows of the transmission queue that are committed, on a thread that ends when none is left.
    pub(super) fn check_later(self: &Arc<Self>, rows: Vec<u64>) {
        let mut late = self.late();
        for row in rows {
            late.add(row);
        }
        if late.is_running || late.waiting.is_empty() {
            return;
        }
        let this = self.clone();
        let thread = std::thread::Builder::new().name("dialoq-checks".into());
        match thread.spawn(move || this.check_all(|row| this.check_row(row))) {
            Ok(_) => late.is_running = true,
            Err(error) => {
                // The next message to be checked starts a thread again, for all of them.
                tracing::warn!(%error, "no thread for the check of bodies; their messages wait in the transmission queue");
            }
        }
    }

    fn late(&self) -> MutexGuard<'_, LateChecks> {
        self.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check_all(&self, check: impl Fn(u64) -> Option<u64>) {
        loop {
            let row = {
                let mut late = self.late();
                let Some(row) = late.waiting.pop_front() else {
                    late.is_running = false;
                    return;
                };
                row
            };
            // `None`: the message or the store is gone, or the next row needs no check ahead of its delivery.
            let next = catch_unwind(AssertUnwindSafe(|| check(row))).unwrap_or_else(|_| {
                tracing::warn!(row, "a check of a body panicked; its message waits in the transmission queue");
                None
            });
            let mut late = self.late();
            // A row that is checked ahead may be committed only after this thread has searched for it.
            if late.known.remove(&row) == Some(true) && next.is_none() {
                late.add(row);
            }
            if let Some(next) = next.filter(|next| !late.known.contains_key(next)) {
                late.add(next);
            }
        }
    }

    /// Checks the body of one row, and returns the next row of its conversation: that one is checked while the writer
    /// delivers the first. Holds the store only to read the row and to store the verdict, so that a long check does not
    /// delay a close.
    fn check_row(&self, transmission_id: u64) -> Option<u64> {
        let engine = || self.engine.get().and_then(Weak::upgrade);
        let row = engine()?.read_transmission(transmission_id)?;
        let catalog = engine()?.lock().ok()?.core.catalog().clone();
        let message_type = catalog.message_types.get(&row.message_type_id).filter(|found| found.is_checked())?;
        let verdict = Verdict::check(&self.checks, &catalog, message_type, row.body.as_ref()?);
        let engine = engine()?;
        let mut state = engine.lock().ok()?;
        self.late().known.remove(&transmission_id);
        let State { core, effects, .. } = &mut *state;
        let next = core.checked(transmission_id, row.endpoint_id, Arc::new(verdict), effects);
        // Never on this thread: the next body is to be checked while the writer syncs.
        engine.leave_to_writer(state);
        next
    }
}

/// A body that is sent, with the name of its type if the verb gives one.
type Sent<'a> = (&'a Option<Arc<str>>, &'a Arc<Vec<u8>>);

fn bodies(verb: &Verb) -> Vec<Sent<'_>> {
    match verb {
        Verb::Send { message_type, body: Some(body), .. } => vec![(message_type, body)],
        Verb::SendEach(messages) => messages
            .iter()
            .filter_map(|message| message.body.as_ref().map(|body| (&message.message_type, body)))
            .collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests;
