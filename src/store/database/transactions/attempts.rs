//! Notes outside an open transaction that it has received, so that its rollback counts even if this process dies.
//!
//! A note is one call on another connection. The first receives of a process are noted before the application gets
//! their messages: a message that kills its process is received again after the start. Later a note leaves once its
//! transaction is 20 ms old (`OpenOptions::note_after`), or before its rollback. A transaction that commits earlier costs no note.

use crate::id::random_id;
use crate::store::database::Database;
use crate::store::database::link::{Arg, Call, Column};
use crate::time::is_before_1970;
use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, OnceCell};
use tokio::time::Instant;
use uuid::Uuid;

/// How long a count waits until the server has ended a statement that was given up. A cancel takes milliseconds, but PostgreSQL heeds none
/// in some steps; tick counts what takes longer. Chosen, not measured.
const LONGEST_END_MS: i32 = 5_000;

/// The same if another receiver may have the group first, which may keep it for long, while the count keeps a connection of the pool.
const LONGEST_TURN_MS: i32 = 1_000;

/// What happens to a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Waits,
    /// It was sent, or is being sent.
    Leaves,
    /// Its transaction ended first.
    Withdrawn,
}

/// A transaction has received from a group.
#[derive(Debug)]
struct Note {
    attempt: Uuid,
    queue: i32,
    group: Uuid,
    /// The conversation of the first message and its queuing order, if they are known. The transaction may have moved the conversation.
    first: Option<(Uuid, u64)>,
    state: Mutex<State>,
    sent: OnceCell<()>,
}

impl Note {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the caller is to send it.
    fn leaves(&self) -> bool {
        let mut state = self.state();
        let waits = *state == State::Waits;
        if waits {
            *state = State::Leaves;
        }
        waits
    }

    /// Whether the server has no note of it and gets none.
    fn withdraw(&self) -> bool {
        let mut state = self.state();
        if *state == State::Waits {
            *state = State::Withdrawn;
        }
        *state == State::Withdrawn
    }
}

/// The receives of one transaction.
#[derive(Debug, Clone)]
pub(in crate::store::database) struct Attempt {
    /// Identifies the transaction in the count of rollbacks.
    id: Uuid,
    /// When it first received.
    since: Instant,
    notes: Vec<Arc<Note>>,
    /// Queues, with the groups whose messages it took all.
    received: BTreeSet<(i32, Option<Uuid>)>,
}

impl Attempt {
    pub(in crate::store::database) fn since(since: Instant) -> Self {
        Self { id: random_id(is_before_1970()), since, notes: Vec::new(), received: BTreeSet::new() }
    }

    /// Withdraws the notes that have not left; gives the last calls before COMMIT.
    pub(in crate::store::database) fn end(&self, notes_later: bool) -> Vec<Call<'static>> {
        let withdrawn = self.notes.iter().filter(|note| note.withdraw()).count();
        let mut calls = Vec::new();
        if withdrawn < self.notes.len() {
            calls.push(Call { name: "commit_attempt", args: vec![Arg::Uuid(self.id)] });
        }
        if notes_later {
            let (queues, groups) = self.received.iter().map(|(queue, group)| (Some(*queue), *group)).unzip();
            let columns = vec![Column::Int(queues), Column::Uuid(groups)];
            calls.push(Call { name: "commit_receives", args: vec![Arg::Rows { type_name: "receive_rows", columns }] });
        }
        calls
    }

    /// The queues from which it has received.
    pub(in crate::store::database) fn queues(&self) -> impl Iterator<Item = i32> + '_ {
        self.received.iter().map(|(queue, _)| *queue)
    }

    /// Withdraws all notes; gives the call that takes back those that have left.
    pub(in crate::store::database) fn withdraw(&self) -> Option<Call<'static>> {
        let withdrawn = self.notes.iter().filter(|note| note.withdraw()).count();
        let call = Call { name: "withdraw_attempt", args: vec![Arg::Uuid(self.id)] };
        (withdrawn < self.notes.len()).then_some(call)
    }

    /// The call after a rollback, with its reason.
    pub(in crate::store::database) fn count<'a>(&self, reason: Option<&'a str>) -> Call<'a> {
        self.count_within(reason, 0)
    }

    /// The same, for a transaction that the server may still have to end; whether no other session can be before it in the line for its groups.
    pub(in crate::store::database) fn count_when_ended<'a>(&self, reason: Option<&'a str>, is_first: bool) -> Call<'a> {
        self.count_within(reason, if is_first { LONGEST_END_MS } else { LONGEST_TURN_MS })
    }

    fn count_within<'a>(&self, reason: Option<&'a str>, wait_ms: i32) -> Call<'a> {
        let args = vec![Arg::Uuid(self.id), reason.map_or(Arg::Null, Arg::Text), Arg::Int(wait_ms)];
        Call { name: "count_rollback", args }
    }

    /// The call after the loss of the transaction, with its age, because its note may be younger.
    pub(in crate::store::database) fn count_loss(&self) -> Call<'static> {
        let age_ms = self.since.elapsed().as_millis().try_into().unwrap_or(i32::MAX);
        Call { name: "count_loss", args: vec![Arg::Uuid(self.id), Arg::Int(age_ms)] }
    }
}

/// The notes of a process that have not left, oldest first.
#[derive(Debug)]
pub(in crate::store::database) struct Notes {
    waiting: Mutex<VecDeque<(Instant, Arc<Note>)>>,
    came: Notify,
    receives: AtomicUsize,
    /// The receives that are noted at once.
    careful: usize,
    /// The age at which an open transaction is noted. 20 ms was chosen, not measured: a short transaction ends before it, and
    /// a process that dies loses the count of no older one.
    age: Duration,
}

impl Notes {
    pub(in crate::store::database) fn new(careful: usize, age: Duration) -> Self {
        Self { waiting: Mutex::default(), came: Notify::new(), receives: AtomicUsize::new(0), careful, age }
    }

    /// Whether no receive is noted at once, as tests of claims have it; then every receive that may be a claim tries one.
    pub(in crate::store::database) fn claims_always(&self) -> bool {
        self.careful == 0
    }

    /// Whether a receive of this process need not be noted before its messages are seen.
    pub(in crate::store::database) fn may_be_late(&self) -> bool {
        self.receives.load(SeqCst) >= self.careful
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(Instant, Arc<Note>)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a receive of this process must be noted before its messages are seen.
    fn is_careful(&self) -> bool {
        self.receives.fetch_add(1, SeqCst) < self.careful
    }

    /// Ends the time in which receives are noted at once.
    #[cfg(test)]
    pub(in crate::store::database) fn trust(&self) {
        self.receives.store(self.careful, SeqCst);
    }

    fn put(&self, note: Arc<Note>) {
        let mut waiting = self.waiting();
        waiting.push_back((Instant::now() + self.age, note));
        if waiting.len() == 1 {
            self.came.notify_one();
        }
    }

    fn next_leaves_at(&self) -> Option<Instant> {
        self.waiting().front().map(|(at, _)| *at)
    }

    fn next_due(&self, now: Instant) -> Option<Arc<Note>> {
        let mut waiting = self.waiting();
        let is_due = waiting.front().is_some_and(|(at, _)| *at <= now);
        if is_due { waiting.pop_front().map(|(_, note)| note) } else { None }
    }
}

impl Database {
    /// Notes that a transaction has received from a group, all its messages or some: at once, or when it is some time open.
    pub(in crate::store::database) async fn note_receive(
        &self,
        attempt: &mut Attempt,
        (queue, group): (i32, Uuid),
        first: Option<(Uuid, u64)>,
        has_all: bool,
    ) {
        let (state, sent) = (Mutex::new(State::Waits), OnceCell::new());
        let note = Arc::new(Note { attempt: attempt.id, queue, group, first, state, sent });
        attempt.received.insert((queue, has_all.then_some(group)));
        attempt.notes.push(note.clone());
        if !self.driver.dialect().notes_later || self.notes.is_careful() {
            note.leaves();
            self.send_note(&note).await;
        } else {
            self.notes.put(note);
        }
    }

    /// Sends the notes of a transaction that is about to roll back: only the open transaction proves its receives.
    pub(in crate::store::database) async fn send_notes(&self, attempt: &Attempt) {
        for note in &attempt.notes {
            *note.state() = State::Leaves;
            self.send_note(note).await;
        }
    }

    /// Takes back the notes of a transaction that is about to roll back, and that no caller has seen.
    pub(in crate::store::database) async fn withdraw_notes(&self, attempt: &Attempt) {
        let Some(call) = attempt.withdraw() else { return };
        for note in &attempt.notes {
            // One that is being sent would come after this call.
            if *note.state() == State::Leaves {
                self.send_note(note).await;
            }
        }
        if let Err(failure) = self.control.quick_call(call).await {
            tracing::warn!(error = %failure.error, "a RECEIVE that no caller has seen could not be withdrawn; its rollback counts");
        }
    }

    /// Sends the notes of a transaction that goes on meanwhile.
    pub(in crate::store::database) async fn send_waiting_notes(&self, attempt: &Attempt) {
        for note in &attempt.notes {
            if note.leaves() {
                self.send_note(note).await;
            }
        }
    }

    async fn send_note(&self, note: &Note) {
        let send = async {
            let first =
                note.first.map(|(conversation, order)| (Arg::Uuid(conversation), Arg::BigInt(order.cast_signed())));
            let (conversation, order) = first.unwrap_or((Arg::Null, Arg::Null));
            let args = vec![Arg::Uuid(note.attempt), Arg::Int(note.queue), Arg::Uuid(note.group), conversation, order];
            match self.control.quick_call(Call { name: "begin_attempt", args }).await {
                Ok(_) => self.attempt_began(),
                Err(failure) => {
                    tracing::warn!(error = %failure.error, "a RECEIVE could not be noted; its rollback would not be counted");
                }
            }
        };
        note.sent.get_or_init(|| send).await;
    }

    /// Sends notes when they are due, until the store closes.
    pub(in crate::store::database) async fn run_notes(self: Arc<Self>) {
        loop {
            match self.notes.next_leaves_at() {
                Some(at) => tokio::time::sleep_until(at).await,
                None => self.notes.came.notified().await,
            }
            while let Some(note) = self.notes.next_due(Instant::now()) {
                if note.leaves() {
                    self.send_note(&note).await;
                }
            }
        }
    }
}
