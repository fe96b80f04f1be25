//! Pushes, takes and completions of concurrent callers, and completions that take the next job, batched by work queue.
//!
//! A verb that may be refused for what its caller asked goes alone, so that a batch fails only for a reason that all its
//! callers share.

use crate::catalog::fold_name;
use crate::error::{Error, Result};
use crate::id::JobId;
use crate::protocol::definition::WorkOrder;
use crate::protocol::work::{Due, Hold, Job, Push, Take, TakeFrom, TakenJob, WorkVerb};
use crate::protocol::{Body, Outcome, Unit, Verb};
use crate::store::database::Database;
use crate::store::database::batching::batcher::{ActiveBatchers, Admission, Batcher, Item};
use crate::store::database::batching::search_start::SearchStart;
use crate::store::database::calls::caller::{self, Caller};
use crate::store::database::calls::rows::{Row, damaged, notices_in};
use crate::store::database::calls::{job, verbs};
use crate::store::database::closing::Work;
use crate::store::database::link::{Arg, Call, Column, Failure, HANGING, Linked};
use crate::store::database::retry::{Repeat, Retry};
use crate::store::database::transactions::held_jobs::{Release, signed};
use crate::store::database::transactions::unseen_jobs::UnseenJobs;
use crate::store::{Gathering, SqlRow};
use dashmap::DashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use uuid::Uuid;

/// The most characters of a text, jobs of a take and milliseconds that the server surely accepts.
const SURE_TEXT: usize = 128;
const SURE_COUNT: i64 = 10_000;
const SURE_MS: i64 = 315_360_000_000;

/// A take in line without an answer for so long may hang. Longer than of other requests: it may wait for the takes of other hosts.
const HANGING_IN_LINE: Duration = Duration::from_secs(5);

/// The number of batchers above which those not in use are removed.
const MOST_BATCHERS: usize = 1024;

/// What goes together: verbs of one kind, on one work queue, by its folded name.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum BatchKey {
    Push(String),
    /// And one type of jobs.
    Take(String, Option<Arc<str>>),
    /// The same of a queue whose takes come one after the other on the server: so those of this process have one place in the
    /// line, whatever their number.
    TakeInLine(String, Option<Arc<str>>),
    /// Takes of transactions, likewise.
    Claim(String, Option<Arc<str>>),
    /// Of all work queues.
    Complete,
    /// Completions, each with a take from this queue, of this type of jobs.
    CompleteAndTake(String, Option<Arc<str>>),
}

struct VerbBatcher {
    key: BatchKey,
    batcher: Batcher<Asked>,
    search: Mutex<SearchStart>,
}

impl VerbBatcher {
    /// What that batch goes as.
    fn key_of(&self, batch: &[Asked]) -> &BatchKey {
        if batch.iter().any(Asked::is_completion) { &BatchKey::Complete } else { &self.key }
    }

    /// Whether this goes as a batch also if it is alone.
    fn searches_long(&self, asked: &Asked) -> bool {
        !asked.is_completion() && self.search().is_long()
    }

    fn search(&self) -> MutexGuard<'_, SearchStart> {
        self.search.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transaction that takes jobs, and the last token that it has got.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::database) struct Claimant {
    pub(in crate::store::database) holder: Uuid,
    pub(in crate::store::database) last_token: i64,
}

/// What one caller asks for: a verb, or a completion with the take that follows it.
struct Asked {
    unit: Unit,
    claimant: Option<Claimant>,
    caller: Caller,
    answer: oneshot::Sender<Result<UnseenJobs<Vec<Outcome>>>>,
    _work: Option<Work>,
}

impl Item for Asked {
    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn bytes(&self) -> usize {
        let body = push(&self.unit).map(|push| &push.body).or_else(|| completion(&self.unit).map(|(_, result)| result));
        body.and_then(Option::as_ref).map_or(0, |body| body.len())
    }

    fn key(&self) -> Option<Uuid> {
        None
    }

    fn kind(&self) -> usize {
        usize::from(self.is_completion())
    }
}

impl Asked {
    fn is_completion(&self) -> bool {
        matches!(self.unit[..], [Verb::Work(WorkVerb::Complete { .. })])
    }
}

/// The batches of work queues.
pub(in crate::store::database) struct JobBatches {
    active: ActiveBatchers,
    gathering: Gathering,
    batchers: DashMap<BatchKey, Arc<VerbBatcher>>,
    takes: Mutex<LastTakes>,
}

/// The batcher of the last takes, and how many came to it one after the other.
#[derive(Default)]
struct LastTakes {
    batcher: Option<Arc<VerbBatcher>>,
    count: u32,
}

/// So many takes in a row go to one batcher before completions do too.
const TAKES_IN_A_ROW: u32 = 8;

impl JobBatches {
    /// All of them count in `active`.
    pub(in crate::store::database) fn new(active: ActiveBatchers, gathering: Gathering) -> Self {
        Self { active, gathering, batchers: DashMap::default(), takes: Mutex::default() }
    }

    /// The batcher of that key. Completions go with the takes of a process that takes in one way only: the two take turns, so callers that
    /// take and complete come to do so together. Side by side, 8 callers went in batches of four.
    fn batcher_for(&self, key: BatchKey) -> Arc<VerbBatcher> {
        if !matches!(key, BatchKey::Take(..) | BatchKey::Complete) {
            return self.verb_batcher(key);
        }
        let mut takes = self.takes.lock().unwrap_or_else(PoisonError::into_inner);
        if key == BatchKey::Complete {
            let only = takes.batcher.clone().filter(|_| takes.count >= TAKES_IN_A_ROW);
            return only.unwrap_or_else(|| self.verb_batcher(key));
        }
        if let Some(last) = takes.batcher.clone().filter(|last| last.key == key) {
            takes.count = takes.count.saturating_add(1);
            return last;
        }
        let batcher = self.verb_batcher(key);
        *takes = LastTakes { batcher: Some(batcher.clone()), count: 1 };
        batcher
    }

    /// Drops what waits in each batcher: no batch will take it.
    pub(in crate::store::database) fn drop_waiting(&self) {
        self.batchers.iter().for_each(|verb_batcher| verb_batcher.batcher.drop_waiting());
    }

    fn verb_batcher(&self, key: BatchKey) -> Arc<VerbBatcher> {
        if let Some(found) = self.batchers.get(&key) {
            return found.clone();
        }
        // Callers may name queues that do not exist: entries without users are removed.
        if self.batchers.len() >= MOST_BATCHERS {
            self.batchers.retain(|_, verb_batcher| Arc::strong_count(verb_batcher) > 1);
        }
        let made = || {
            let batcher = Batcher::new(self.active.clone()).gathering(self.gathering.clone());
            let batcher = match key {
                BatchKey::Claim(..) => batcher.beside_pool(),
                BatchKey::TakeInLine(..) => batcher.one_at_a_time(),
                _ => batcher.waiting_for_locks(),
            };
            Arc::new(VerbBatcher { key: key.clone(), batcher, search: Mutex::default() })
        };
        self.batchers.entry(key.clone()).or_insert_with(made).clone()
    }
}

/// With which others a unit goes; `None` if it goes alone.
fn lane_of(unit: &[Verb], is_claim: bool) -> Option<BatchKey> {
    let place = |take: &Take| (fold_name(&take.queue), take.job_type.clone());
    match unit {
        [Verb::Work(WorkVerb::Push(push))] if is_sure_push(push) => Some(BatchKey::Push(fold_name(&push.queue))),
        [Verb::Work(WorkVerb::Take(take))] if is_sure_take(take) => {
            let (queue, job_type) = place(take);
            match take.hold {
                Hold::Transaction if is_claim => Some(BatchKey::Claim(queue, job_type)),
                Hold::Lease(_) if !is_claim => Some(BatchKey::Take(queue, job_type)),
                _ => None,
            }
        }
        [Verb::Work(WorkVerb::Complete { .. })] => Some(BatchKey::Complete),
        [Verb::Work(WorkVerb::Complete { .. }), Verb::Work(WorkVerb::Take(take))]
            if is_sure_take(take) && matches!(take.hold, Hold::Lease(_)) =>
        {
            let (queue, job_type) = place(take);
            Some(BatchKey::CompleteAndTake(queue, job_type))
        }
        _ => None,
    }
}

fn is_sure_push(push: &Push) -> bool {
    let is_sure_due = !matches!(push.due, Due::InMs(ms) if !(0..=SURE_MS).contains(&ms));
    let texts = [Some(&push.job_type), push.key.as_ref(), Some(&push.pushed_by)];
    push.unique.is_none()
        && (1..=10).contains(&push.level)
        && is_sure_due
        && texts.into_iter().flatten().all(|text| text.len() <= SURE_TEXT)
}

fn is_sure_take(take: &Take) -> bool {
    let texts = [take.job_type.as_ref(), Some(&take.taken_by)];
    take.from == TakeFrom::Any
        && (1..=SURE_COUNT).contains(&take.count)
        && take.hold.lease_ms().is_none_or(|ms| (1..=SURE_MS).contains(&ms))
        && texts.into_iter().flatten().all(|text| text.len() <= SURE_TEXT)
}

impl Database {
    /// Whether a unit of verbs of work queues can go with those of other callers. The takes of a queue with limits come one after
    /// the other: a completion does not wait in that line.
    pub(in crate::store::database) fn goes_in_batch(&self, unit: &[Verb], is_claim: bool) -> bool {
        self.driver.dialect().has_job_batches
            && match lane_of(unit, is_claim) {
                Some(BatchKey::CompleteAndTake(queue, _)) => !self.is_limited(&queue),
                lane => lane.is_some(),
            }
    }

    /// Does a unit with those of other callers.
    pub(in crate::store::database) async fn ask_in_batch(
        self: &Arc<Self>,
        unit: Unit,
        claimant: Option<Claimant>,
        work: Option<Work>,
    ) -> Result<Vec<Outcome>> {
        for verb in &unit {
            // It checks the size of the body.
            self.call_context(verb).await?;
        }
        let key = lane_of(&unit, claimant.is_some()).ok_or_else(|| damaged("a verb that goes alone is in a batch"))?;
        let key = match key {
            BatchKey::Take(queue, job_type) if self.is_limited(&queue) => BatchKey::TakeInLine(queue, job_type),
            key => key,
        };
        let verb_batcher = self.jobs.batcher_for(key);
        let (_here, caller) = caller::present();
        let (answer, answered) = oneshot::channel();
        match verb_batcher.batcher.add_and_gather(Asked { unit, claimant, caller, answer, _work: work }) {
            Admission::Kept => {}
            Admission::Batch(batch) => self.spawn_asked(&verb_batcher, batch),
            Admission::Alone(asked) => _ = self.runtime.spawn(self.clone().run_alone(verb_batcher, asked)),
            Admission::Gather => {
                let database = self.clone();
                self.runtime.spawn(async move {
                    let batch = verb_batcher.batcher.gather().await;
                    database.run_asked(verb_batcher, batch).await;
                });
            }
        }
        Ok(self.await_answer(answered).await?.take())
    }

    /// Whether takes of this work queue come one after the other.
    pub(in crate::store::database) fn is_limited(&self, queue: &str) -> bool {
        let known = self.definitions.known();
        known.catalog.work_queue(queue).is_some_and(|queue| queue.settings.is_limited())
    }

    /// Whether batches of that key wait in the line of a work queue.
    fn is_in_line(&self, key: &BatchKey) -> bool {
        matches!(key, BatchKey::TakeInLine(queue, _) | BatchKey::Claim(queue, _) if self.is_limited(queue))
    }

    /// Whether a batch of takes in line asks for more jobs than one take may: other hosts wait for its commit.
    fn holds_the_line_for_long(&self, key: &BatchKey, batch: &[Asked]) -> bool {
        let count: i64 = batch.iter().filter_map(|asked| take(&asked.unit)).map(|take| take.count).sum();
        count > SURE_COUNT && self.is_in_line(key)
    }

    fn spawn_asked(self: &Arc<Self>, verb_batcher: &Arc<VerbBatcher>, batch: Vec<Asked>) {
        self.runtime.spawn(self.clone().run_asked(verb_batcher.clone(), batch));
    }

    /// Does batch after batch, as long as units have gathered meanwhile.
    async fn run_asked(self: Arc<Self>, verb_batcher: Arc<VerbBatcher>, mut batch: Vec<Asked>) {
        while !batch.is_empty() {
            let asked = batch.len();
            let hangs_after = if self.is_in_line(&verb_batcher.key) { HANGING_IN_LINE } else { HANGING };
            let asks = async {
                match asked {
                    1 if !verb_batcher.searches_long(&batch[0]) => self.ask_one_by_one(batch).await,
                    _ if self.holds_the_line_for_long(verb_batcher.key_of(&batch), &batch) => {
                        self.ask_one_by_one(batch).await
                    }
                    _ => self.ask_together(&verb_batcher, batch).await,
                }
            };
            let leave = |late| self.spawn_asked(&verb_batcher, late);
            if !verb_batcher.batcher.await_batch(asked, asks, hangs_after, leave).await {
                return;
            }
            batch = verb_batcher.batcher.next_batch(asked).await;
        }
    }

    /// Does the unit of a caller alone.
    async fn run_alone(self: Arc<Self>, verb_batcher: Arc<VerbBatcher>, asked: Asked) {
        if verb_batcher.searches_long(&asked) {
            self.ask_together(&verb_batcher, vec![asked]).await;
            return verb_batcher.batcher.lone_item_done();
        }
        let outcomes = self.ask_alone(&asked).await;
        verb_batcher.batcher.lone_item_done();
        self.answer(asked, outcomes);
    }

    async fn ask_together(self: &Arc<Self>, verb_batcher: &Arc<VerbBatcher>, batch: Vec<Asked>) {
        let left = self.ask_once_together(verb_batcher, batch).await;
        if !left.is_empty() {
            // Each may wait for the end of another session's take.
            let (database, verb_batcher) = (self.clone(), verb_batcher.clone());
            self.runtime.spawn(async move { database.ask_what_is_left(&verb_batcher, left).await });
        }
    }

    /// Does what a batch has left. As a rule a take of another batch, which is about to commit, has locked their rows in passing. When
    /// the first has waited for that, the others go together once more. One by one, 64 readers that take with their reports waited up
    /// to 50 ms for each other.
    async fn ask_what_is_left(self: &Arc<Self>, verb_batcher: &VerbBatcher, mut left: Vec<Asked>) {
        if left.len() > 2 {
            let others = left.split_off(1);
            self.ask_one_by_one(left).await;
            left = self.ask_once_together(verb_batcher, others).await;
        }
        self.ask_one_by_one(left).await;
    }

    /// Does a batch in one call; gives what the server has left for calls of their own.
    async fn ask_once_together(self: &Arc<Self>, verb_batcher: &VerbBatcher, mut batch: Vec<Asked>) -> Vec<Asked> {
        let (key, mut tries) = (verb_batcher.key_of(&batch), Retry::default());
        let began = Instant::now();
        let start = if *key == BatchKey::Complete { None } else { verb_batcher.search().next(began) };
        let rows = loop {
            let failure = match self.call_together(key, &mut batch, start).await {
                Ok(rows) => break rows,
                Err(failure) => failure,
            };
            if let Err(failure) = tries.after(failure, Repeat::IfUndone).await {
                self.asked_in_vain(batch, failure).await;
                return Vec::new();
            }
        };
        verb_batcher.batcher.batch_answered();
        self.publish_local(&notices_in(&rows), batch.len()).await;
        if !matches!(key, BatchKey::Push(_) | BatchKey::Complete) {
            self.jobs_were_asked_for();
        }
        let mut left = Vec::new();
        match outcomes(key, batch.len(), rows) {
            Ok(outcomes) => {
                if self.is_in_order_of_arrival(key) {
                    let first = first_job(&batch, &outcomes);
                    verb_batcher.search().found(first, start, began, Instant::now());
                }
                for (asked, outcomes) in batch.into_iter().zip(outcomes) {
                    match outcomes {
                        Some(outcomes) => self.answer(asked, Ok(outcomes)),
                        None => left.push(asked),
                    }
                }
            }
            Err(error) => batch.into_iter().for_each(|asked| self.answer(asked, Err(error.duplicate()))),
        }
        left
    }

    async fn call_together(
        self: &Arc<Self>,
        key: &BatchKey,
        batch: &mut Vec<Asked>,
        start: Option<i64>,
    ) -> Linked<Vec<SqlRow>> {
        if let BatchKey::Claim(queue, _) = key {
            return self.call_for_job_takes(queue, || call(key, batch, self.process, start)).await;
        }
        // The pool may be slow, and callers may leave meanwhile.
        let mut link = self.take().await?;
        batch.retain(|asked| !asked.is_abandoned());
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        link.call(call(key, batch, self.process, start)).await
    }

    /// Whether a batch takes the jobs of a queue in the order of their ids, and nothing limits that.
    fn is_in_order_of_arrival(&self, key: &BatchKey) -> bool {
        let (BatchKey::Take(queue, _) | BatchKey::Claim(queue, _) | BatchKey::CompleteAndTake(queue, _)) = key else {
            return false;
        };
        let known = self.definitions.known();
        known.catalog.work_queue(queue).is_some_and(|queue| {
            matches!(queue.settings.order, WorkOrder::Fifo | WorkOrder::Unordered) && !queue.settings.is_limited()
        })
    }

    /// If the outcome of a batch is unknown, every caller gets the error. If the batch certainly failed, its verbs are done
    /// one by one, so that each caller gets its own error.
    async fn asked_in_vain(self: &Arc<Self>, batch: Vec<Asked>, failure: Failure) {
        if failure.may_be_of_one_item() {
            return self.ask_one_by_one(batch).await;
        }
        let error = Error::from(failure);
        batch.into_iter().for_each(|asked| self.answer(asked, Err(error.duplicate())));
    }

    async fn ask_one_by_one(self: &Arc<Self>, batch: Vec<Asked>) {
        for asked in batch {
            let outcomes = self.ask_alone(&asked).await;
            self.answer(asked, outcomes);
        }
    }

    async fn ask_alone(self: &Arc<Self>, asked: &Asked) -> Result<Vec<Outcome>> {
        let outcome = match (&asked.unit[..], asked.claimant) {
            ([verb], Some(claimant)) => self.claim_now(claimant, verb).await?,
            ([verb], None) => self.clone().alone(verb.clone(), &asked.caller).await?,
            (unit, _) => return self.complete_and_take_alone(unit, &asked.caller).await,
        };
        Ok(vec![outcome])
    }

    /// A completion and the take that follows it, in one call.
    async fn complete_and_take_alone(self: &Arc<Self>, unit: &[Verb], caller: &Caller) -> Result<Vec<Outcome>> {
        let (Some((taken, result)), Some(take)) = (completion(unit), take(unit)) else {
            return Err(damaged("a unit that has no call of its own is in a batch"));
        };
        let call = || Call {
            name: "complete_and_take_job",
            args: vec![
                Arg::BigInt(signed(taken.job.0)),
                Arg::BigInt(signed(taken.token)),
                verbs::bytes(result),
                Arg::Text(&take.queue),
                Arg::BigInt(take.count),
                verbs::maybe(take.job_type.as_deref()),
                take.hold.lease_ms().map_or(Arg::Null, Arg::BigInt),
                Arg::Text(&take.taken_by),
            ],
        };
        let mut tries = Retry::default();
        loop {
            let answer = match self.take().await {
                // As a take alone.
                Ok(_) if caller.has_left() => return Err(caller::left()),
                Ok(mut link) => link.call(call()).await,
                Err(failure) => Err(failure),
            };
            match answer {
                Ok(rows) => {
                    self.publish_local(&notices_in(&rows), 1).await;
                    self.jobs_were_asked_for();
                    return Ok(vec![Outcome::Done, job::jobs(rows)?]);
                }
                Err(failure) => tries.after(failure, Repeat::IfUndone).await?,
            };
        }
    }

    /// If its caller has left, the jobs go back.
    fn answer(self: &Arc<Self>, asked: Asked, outcomes: Result<Vec<Outcome>>) {
        let outcomes = outcomes.map(|outcomes| UnseenJobs::new(self.clone(), outcomes));
        if let Err(outcomes) = asked.answer.send(outcomes)
            && let Some(Claimant { holder, last_token }) = asked.claimant
        {
            drop(outcomes);
            let (database, release) = (self.clone(), Release::unseen(holder, last_token));
            let work = self.open_work.begin();
            self.runtime.spawn(async move {
                database.give_back_jobs(release).await;
                drop(work);
            });
        }
    }
}

/// The call that does a batch.
fn call<'a>(key: &'a BatchKey, batch: &'a [Asked], process: Uuid, start: Option<i64>) -> Call<'a> {
    let units = || batch.iter().map(|asked| &asked.unit[..]);
    let takes: Vec<&Take> = units().filter_map(take).collect();
    let start = start.map_or(Arg::Null, Arg::BigInt);
    let counts = || Column::BigInt(takes.iter().map(|take| Some(take.count)).collect());
    let leases = || Column::BigInt(takes.iter().map(|take| take.hold.lease_ms()).collect());
    let readers = || Column::Text(takes.iter().map(|take| Some(&*take.taken_by)).collect());
    match key {
        BatchKey::Push(queue) => {
            let pushes: Vec<&Push> = units().filter_map(push).collect();
            let columns = vec![
                Column::Text(pushes.iter().map(|push| Some(&*push.job_type)).collect()),
                Column::Text(pushes.iter().map(|push| push.key.as_deref()).collect()),
                Column::Int(pushes.iter().map(|push| Some(push.level.into())).collect()),
                Column::BigInt(pushes.iter().map(|push| push.due.delay_ms()).collect()),
                Column::BigInt(pushes.iter().map(|push| push.due.at_us()).collect()),
                Column::Bytes(pushes.iter().map(|push| push.body.clone()).collect()),
                Column::Text(pushes.iter().map(|push| Some(&*push.pushed_by)).collect()),
            ];
            let rows = Arg::Rows { type_name: "push_job_batch_rows", columns };
            Call { name: "push_job_batch", args: vec![Arg::Text(queue), rows] }
        }
        BatchKey::Take(queue, job_type) | BatchKey::TakeInLine(queue, job_type) => {
            let rows = Arg::Rows { type_name: "take_job_batch_rows", columns: vec![counts(), leases(), readers()] };
            Call {
                name: "take_job_batch",
                args: vec![Arg::Text(queue), verbs::maybe(job_type.as_deref()), rows, start],
            }
        }
        BatchKey::Claim(queue, job_type) => {
            let claimants = || batch.iter().map(|asked| asked.claimant);
            let holders = Column::Uuid(claimants().map(|claimant| claimant.map(|one| one.holder)).collect());
            let tokens = Column::BigInt(claimants().map(|claimant| claimant.map(|one| one.last_token)).collect());
            let columns = vec![holders, tokens, counts(), readers()];
            let rows = Arg::Rows { type_name: "claim_job_batch_rows", columns };
            let args = vec![Arg::Uuid(process), Arg::Text(queue), verbs::maybe(job_type.as_deref()), rows, start];
            Call { name: "claim_job_batch", args }
        }
        BatchKey::Complete => Call { name: "complete_job_batch", args: vec![completed(batch)] },
        BatchKey::CompleteAndTake(queue, job_type) => {
            let columns = vec![counts(), leases(), readers()];
            let rows = Arg::Rows { type_name: "take_job_batch_rows", columns };
            let args = vec![completed(batch), Arg::Text(queue), verbs::maybe(job_type.as_deref()), rows, start];
            Call { name: "complete_and_take_job_batch", args }
        }
    }
}

/// The completions of a batch.
fn completed(batch: &[Asked]) -> Arg<'_> {
    let done: Vec<_> = batch.iter().filter_map(|asked| completion(&asked.unit)).collect();
    let columns = vec![
        Column::BigInt(done.iter().map(|(taken, _)| Some(signed(taken.job.0))).collect()),
        Column::BigInt(done.iter().map(|(taken, _)| Some(signed(taken.token))).collect()),
        Column::Bytes(done.iter().map(|(_, result)| (*result).clone()).collect()),
    ];
    Arg::Rows { type_name: "complete_job_batch_rows", columns }
}

fn push(unit: &[Verb]) -> Option<&Push> {
    if let [Verb::Work(WorkVerb::Push(push))] = unit { Some(push) } else { None }
}

fn take(unit: &[Verb]) -> Option<&Take> {
    if let [.., Verb::Work(WorkVerb::Take(take))] = unit { Some(take) } else { None }
}

fn completion(unit: &[Verb]) -> Option<(&TakenJob, &Body)> {
    if let [Verb::Work(WorkVerb::Complete { taken, result }), ..] = unit { Some((taken, result)) } else { None }
}

/// The outcomes of a batch of so many units; `None` for one that is to be done alone.
fn outcomes(key: &BatchKey, count: usize, rows: Vec<SqlRow>) -> Result<Vec<Option<Vec<Outcome>>>> {
    match key {
        BatchKey::Push(_) => {
            let mut outcomes: Vec<_> = std::iter::repeat_with(|| None).take(count).collect();
            for row in &rows {
                let job = u64::try_from(Row(row).int("job_id")?).map_err(|_| damaged("a job has a negative id"))?;
                outcomes[place(row, count)?] = Some(vec![Outcome::Pushed { job: Some(JobId(job)), is_new: true }]);
            }
            Ok(outcomes)
        }
        BatchKey::Take(..) | BatchKey::TakeInLine(..) | BatchKey::Claim(..) => {
            let shares = shares(count, rows)?;
            Ok(shares.into_iter().map(|jobs| Some(vec![Outcome::Jobs(jobs)])).collect())
        }
        BatchKey::Complete => {
            let mut outcomes: Vec<_> = std::iter::repeat_with(|| Some(vec![Outcome::Done])).take(count).collect();
            for row in rows.iter().filter(|row| Row(row).has("item")) {
                outcomes[place(row, count)?] = None;
            }
            Ok(outcomes)
        }
        BatchKey::CompleteAndTake(..) => {
            let mut is_refused = vec![false; count];
            for row in rows.iter().filter(|row| Row(row).has("item") && !Row(row).has("job_id")) {
                is_refused[place(row, count)?] = true;
            }
            let done = |jobs| vec![Outcome::Done, Outcome::Jobs(jobs)];
            let shares = shares(count, rows)?.into_iter().zip(is_refused);
            Ok(shares.map(|(jobs, is_refused)| (!is_refused).then(|| done(jobs))).collect())
        }
    }
}

/// The jobs of each caller of a batch.
fn shares(count: usize, rows: Vec<SqlRow>) -> Result<Vec<Vec<Job>>> {
    let mut shares: Vec<Vec<Job>> = std::iter::repeat_with(Vec::new).take(count).collect();
    for row in rows.into_iter().filter(|row| Row(row).has("job_id")) {
        let place = place(&row, count)?;
        shares[place].push(job::job(row)?);
    }
    Ok(shares)
}

/// The number of the first job of a batch of takes in which every caller got all that it asked for.
fn first_job(batch: &[Asked], outcomes: &[Option<Vec<Outcome>>]) -> Option<i64> {
    let mut first = None;
    for (asked, outcomes) in batch.iter().zip(outcomes) {
        let (Some(take), Some([.., Outcome::Jobs(jobs)])) = (take(&asked.unit), outcomes.as_deref()) else {
            return None;
        };
        if i64::try_from(jobs.len()).is_ok_and(|taken| taken < take.count) {
            return None;
        }
        let least = jobs.iter().map(|job| signed(job.taken.job.0)).min();
        first = first.into_iter().chain(least).min();
    }
    first
}

fn place(row: &SqlRow, count: usize) -> Result<usize> {
    let item = Row(row).int("item")?;
    let place = usize::try_from(item).ok().filter(|place| *place < count);
    place.ok_or_else(|| damaged(format!("a batch of {count} verbs gives an answer to item {item}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completions_go_with_the_takes_of_a_process_that_takes_in_one_way() {
        let jobs = JobBatches::new(ActiveBatchers::default(), Gathering::default());
        let take = |queue: &str| jobs.batcher_for(BatchKey::Take(queue.to_owned(), None));
        let completes_with = |batcher: &Arc<VerbBatcher>| Arc::ptr_eq(&jobs.batcher_for(BatchKey::Complete), batcher);
        let first = take("first");
        assert!(!completes_with(&first), "it may have taken from another one before");
        for _ in 1..TAKES_IN_A_ROW {
            assert!(Arc::ptr_eq(&take("first"), &first));
        }
        assert!(completes_with(&first));
        let second = take("second");
        assert!(!completes_with(&first) && !completes_with(&second), "it takes in two ways");
        assert_eq!(jobs.batcher_for(BatchKey::Complete).key, BatchKey::Complete);
    }
}
