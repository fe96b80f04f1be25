//! The waits of every open embedded store of this process, as text: for a test that does not end.

use super::engine::Engine;
use super::parked::Waiter;
use super::state::State;
use std::sync::{Arc, Mutex, PoisonError, TryLockError, Weak};
use std::time::Duration;

static ENGINES: Mutex<Vec<Weak<Engine>>> = Mutex::new(Vec::new());

/// Registers an engine while it lives.
pub(super) fn register(engine: &Arc<Engine>) {
    let mut engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner);
    engines.retain(|engine| engine.strong_count() > 0);
    engines.push(Arc::downgrade(engine));
}

/// One text for each open store.
pub(crate) fn describe() -> Vec<String> {
    let engines = ENGINES.lock().unwrap_or_else(PoisonError::into_inner).clone();
    engines.iter().filter_map(Weak::upgrade).map(|engine| describe_engine(&engine)).collect()
}

fn describe_engine(engine: &Engine) -> String {
    let place = engine.readers.as_ref().map_or("in memory".to_owned(), |readers| readers.path().display().to_string());
    let writing = if matches!(engine.write.try_lock(), Err(TryLockError::WouldBlock)) {
        "a batch is being written"
    } else {
        "no batch is being written"
    };
    // A thread that never releases the state is what this report should reveal, so this waits only briefly for it.
    for _ in 0..100 {
        match engine.state.try_lock() {
            Ok(state) => return format!("store {place}: {writing}\n{}", describe_state(&state)),
            Err(TryLockError::Poisoned(_)) => {
                return format!("store {place}: {writing}; a thread panicked with the state");
            }
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
    format!("store {place}: {writing}; a thread has held the state for over a second")
}

fn describe_state(state: &State) -> String {
    let mut lines = vec![format!(
        "  {}; closed: {}; failed: {:?}; the writer sleeps: {}",
        state.describe_orders(),
        state.is_closed,
        state.failed,
        state.is_asleep
    )];
    lines.extend(state.core.describe_waits());
    for (group, waiter) in state.parked.iter() {
        let group = state.core.describe_group(group);
        lines.push(match waiter {
            Waiter::Unit { unit, .. } => format!("parked for {group}: a unit of {unit:?}"),
            Waiter::Caller { .. } => format!("parked for {group}: a caller that keeps its unit"),
            Waiter::Tx { session, verb, .. } => format!("parked for {group}: {}, to do {verb:?}", session.describe()),
        });
    }
    lines.join("\n  ")
}
