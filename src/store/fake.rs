//! A store for the unit tests above the seam: queues of ready groups, without conversations or tables.

use super::{ActivityBoard, BoxFuture, ReaderSlot, Seen, SqlRows, SqlStatement, Store, StoreTexts, StoreTx};
use crate::catalog::Catalog;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, GroupId, MessageId};
use crate::protocol::work::TakenJob;
use crate::protocol::{Message, MessageValidation, Outcome, ReceiveFrom, Unit, Verb};
use crate::time::{Clock, Timestamp};
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use tokio::sync::Semaphore;
use uuid::Uuid;

/// The store of this module.
pub(crate) struct FakeStore {
    pub(crate) state: Mutex<FakeState>,
    activity: ActivityBoard,
    clock: Clock,
    /// A permit per verb that may be answered; a test that delays verbs removes the permits.
    pub(crate) gate: Semaphore,
}

#[derive(Default)]
pub(crate) struct FakeState {
    queues: HashMap<String, VecDeque<Vec<Message>>>,
    off: Vec<String>,
    /// Every verb that was done, in order.
    pub(crate) verbs: Vec<Verb>,
    next_id: u128,
    pub(crate) commits: usize,
    pub(crate) rollbacks: usize,
    /// The code that refuses the next verb or statement.
    refusal: Option<Code>,
}

impl FakeStore {
    pub(crate) fn new(queues: &[&str]) -> Arc<Self> {
        let mut state = FakeState::default();
        state.queues.extend(queues.iter().map(|queue| ((*queue).to_owned(), VecDeque::new())));
        Arc::new(Self {
            state: Mutex::new(state),
            activity: ActivityBoard::default(),
            clock: Clock::manual(Timestamp(1_000_000)),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
        })
    }

    /// A group of messages with these bodies becomes ready.
    pub(crate) fn arrive(&self, queue: &str, level: u8, bodies: &[&str]) {
        let mut state = self.state.lock().unwrap();
        state.next_id += 1;
        let group = GroupId(Uuid::from_u128(state.next_id));
        let messages = bodies.iter().map(|body| message(group, level, body)).collect();
        state.queues.get_mut(queue).unwrap().push_back(messages);
        self.publish(&state, queue, 1);
    }

    /// Refuses the next verb or statement.
    pub(crate) fn refuse_next(&self, code: Code) {
        self.state.lock().unwrap().refusal = Some(code);
    }

    pub(crate) fn turn_off(&self, queue: &str) {
        self.state.lock().unwrap().off.push(queue.to_owned());
        self.activity.queue(queue).wake_all();
    }

    pub(crate) fn drop_queue(&self, queue: &str) {
        self.state.lock().unwrap().queues.remove(queue);
        self.activity.wake_all();
    }

    fn publish(&self, state: &FakeState, queue: &str, newly_ready: usize) {
        let ready = &state.queues[queue];
        let unread = ready.iter().map(|group| group.len() as u64).sum();
        self.activity.queue(queue).arrived(newly_ready, ready.len(), unread);
    }

    /// Executes a verb; messages it receives are recorded in `taken`, so that they can be put back.
    async fn take(&self, verb: Verb, taken: &mut Vec<(String, Vec<Message>)>) -> Result<Outcome> {
        self.gate.acquire().await.unwrap().forget();
        let mut state = self.state.lock().unwrap();
        if let Some(code) = state.refusal.take() {
            return Err(Error::new(code, "refused by the test"));
        }
        state.verbs.push(verb.clone());
        let Verb::Receive { queue, top, from } = verb else { return Ok(Outcome::Done) };
        if state.off.iter().any(|off| **off == *queue) {
            return Err(Error::queue_disabled(&queue));
        }
        let ready = state.queues.get_mut(&*queue).ok_or_else(|| Error::object_not_found("queue", &queue))?;
        let fits = |group: &Vec<Message>| match from {
            ReceiveFrom::Levels { lowest, highest } => (lowest..=highest).contains(&group[0].priority),
            ReceiveFrom::Group(wanted) => group[0].conversation_group_id == wanted,
            _ => true,
        };
        let top = usize::try_from(top.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
        let Some(place) = ready.iter().position(fits).filter(|_| top > 0) else {
            return Ok(Outcome::Received(Vec::new()));
        };
        let mut group = ready.remove(place).unwrap();
        let rest = group.split_off(top.min(group.len()));
        if !rest.is_empty() {
            ready.insert(place, rest);
        }
        taken.push((queue.to_string(), group.clone()));
        self.publish(&state, &queue, 0);
        Ok(Outcome::Received(group))
    }

    fn put_back(&self, taken: &mut Vec<(String, Vec<Message>)>) {
        let mut state = self.state.lock().unwrap();
        while let Some((queue, group)) = taken.pop() {
            state.queues.get_mut(&queue).unwrap().push_front(group);
            self.publish(&state, &queue, 1);
        }
    }
}

/// A message of an application.
pub(crate) fn message(group: GroupId, level: u8, body: &str) -> Message {
    Message {
        status: 1,
        priority: level,
        queuing_order: 0,
        conversation_group_id: group,
        conversation_handle: ConversationHandle(group.0),
        message_sequence_number: 0,
        service_name: "service".into(),
        service_id: 1,
        service_contract_name: "contract".into(),
        service_contract_id: 1,
        message_type_name: "type".into(),
        message_type_id: 70_000,
        validation: MessageValidation::N,
        message_body: Some(body.as_bytes().to_vec()),
        message_id: MessageId(Uuid::nil()),
        message_enqueue_time: Timestamp(0),
        trace: None,
    }
}

/// A handle of the store that may outlive a borrow of it.
pub(crate) struct Shared(pub(crate) Arc<FakeStore>);

impl Store for Shared {
    crate::store::methods_of_an_embedded_store!();

    fn reader_slot(&self, _: i32, _: u16) -> BoxFuture<'_, Result<Option<ReaderSlot>>> {
        Box::pin(async { Ok(Some(ReaderSlot::granted())) })
    }

    fn submit_once(&self, _: uuid::Uuid, _: Unit) -> BoxFuture<'_, Result<Option<Vec<Outcome>>>> {
        Box::pin(async { Err(Error::new(Code::UNSUPPORTED, "the played store keeps no ids of units")) })
    }

    fn unit_happened(&self, _: uuid::Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async { Err(Error::new(Code::UNSUPPORTED, "the played store keeps no ids of units")) })
    }

    fn submit(&self, unit: Unit) -> BoxFuture<'_, Result<Vec<Outcome>>> {
        Box::pin(async move {
            let mut outcomes = Vec::new();
            for verb in unit {
                outcomes.push(self.0.take(verb, &mut Vec::new()).await?);
            }
            Ok(outcomes)
        })
    }

    fn give_back_jobs(&self, _: Vec<TakenJob>) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }

    fn begin(&self, _: Seen) -> BoxFuture<'_, Result<Box<dyn StoreTx>>> {
        let store = self.0.clone();
        Box::pin(async move {
            Ok(Box::new(FakeTx { store, taken: Vec::new(), savepoints: Vec::new() }) as Box<dyn StoreTx>)
        })
    }

    fn query(&self, _: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(async { Err(no_sql()) })
    }

    fn run_sql(&self, _: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async { Err(no_sql()) })
    }

    fn catalog(&self) -> Arc<Catalog> {
        Arc::default()
    }

    fn texts(&self) -> &'static StoreTexts {
        unreachable!("no test asks for the status of a fake")
    }

    fn activity(&self) -> &ActivityBoard {
        &self.0.activity
    }

    fn lock_holder(&self, _: uuid::Uuid) -> BoxFuture<'_, Result<Option<crate::store::LockHolder>>> {
        Box::pin(async { Ok(None) })
    }

    fn receive_holds(&self) -> BoxFuture<'_, Result<Vec<(i32, crate::time::Timestamp)>>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn clock(&self) -> &Clock {
        &self.0.clock
    }

    fn ended(&self) -> Option<Error> {
        None
    }

    fn close(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async { Ok(()) })
    }
}

fn no_sql() -> Error {
    Error::new(Code::USER_SQL_FAILED, "this store has no SQL")
}

struct FakeTx {
    store: Arc<FakeStore>,
    taken: Vec<(String, Vec<Message>)>,
    savepoints: Vec<(String, usize)>,
}

impl Drop for FakeTx {
    fn drop(&mut self) {
        self.store.put_back(&mut self.taken);
    }
}

impl StoreTx for FakeTx {
    fn execute(&mut self, verb: Verb) -> BoxFuture<'_, Result<Outcome>> {
        Box::pin(async move { self.store.take(verb, &mut self.taken).await })
    }

    fn sql(&mut self, _: SqlStatement) -> BoxFuture<'_, Result<u64>> {
        Box::pin(async {
            self.store.gate.acquire().await.unwrap().forget();
            Err(no_sql())
        })
    }

    fn query(&mut self, _: SqlStatement) -> BoxFuture<'_, Result<SqlRows>> {
        Box::pin(async { Err(no_sql()) })
    }

    fn claim(&mut self, _: uuid::Uuid) -> BoxFuture<'_, Result<bool>> {
        Box::pin(async {
            self.store.gate.acquire().await.unwrap().forget();
            Err(Error::new(Code::UNSUPPORTED, "the played store keeps no ids of units"))
        })
    }

    fn savepoint<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.store.gate.acquire().await.unwrap().forget();
            self.savepoints.push((name.to_owned(), self.taken.len()));
            Ok(())
        })
    }

    fn rollback_to<'a>(&'a mut self, name: &'a str) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            self.store.gate.acquire().await.unwrap().forget();
            let missing = || Error::new(Code::SAVEPOINT_NOT_FOUND, "no such savepoint");
            let place = self.savepoints.iter().rposition(|(known, _)| known == name).ok_or_else(missing)?;
            self.savepoints.truncate(place + 1);
            let mut undone = self.taken.split_off(self.savepoints[place].1);
            self.store.put_back(&mut undone);
            Ok(())
        })
    }

    fn commit(mut self: Box<Self>) -> BoxFuture<'static, Result<()>> {
        self.taken.clear();
        self.store.state.lock().unwrap().commits += 1;
        Box::pin(async { Ok(()) })
    }

    fn rollback(self: Box<Self>, _: Option<Arc<str>>) -> BoxFuture<'static, Result<()>> {
        self.store.state.lock().unwrap().rollbacks += 1;
        Box::pin(async { Ok(()) })
    }
}
