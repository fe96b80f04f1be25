//! Receives and commits of transactions that do nothing but receive once, batched over all callers.
//!
//! A session of the server claims messages for all of them, and a second one if they are many. A claim shows messages and takes none: its session holds the
//! lock of their group, in shared mode. The commit takes the messages, in one transaction for all callers. A
//! transaction that does more takes its messages on a connection of its own first ([`Database::take_over`]).
//!
//! Claims and commits take turns, so that callers whose transactions are as short come to go together: a batch costs the server
//! as much as some fifteen of its messages. Eight callers that receive one and commit went in batches of 2 on two sessions, and do so in
//! batches of 8 now, twice as fast.

use crate::catalog::fold_name;
use crate::error::{Code, Error, Result};
use crate::protocol::Message;
use crate::protocol::verb::most;
use crate::store::SqlRow;
use crate::store::database::Database;
use crate::store::database::batching::batcher::{ActiveBatchers, Batcher, Item};
use crate::store::database::batching::receive_batches::{Alone, Queue, Start};
use crate::store::database::calls::message::messages;
use crate::store::database::calls::rows::{Row, notices_in};
use crate::store::database::link::{Arg, Call, Column, Failure, Fate, HANGING, Link, Linked};
use crate::store::database::notifications::notice::Notices;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;
use uuid::Uuid;

/// Messages that the claiming session holds for one transaction. Dropping it releases them.
pub(in crate::store::database) struct Claim {
    database: Arc<Database>,
    held: Held,
    shared: Arc<Queue>,
    /// It was committed or released.
    is_over: bool,
}

/// The messages of a claim.
#[derive(Debug, Clone, Copy)]
pub(in crate::store::database) struct Held {
    /// The place of the session that claimed it.
    place: usize,
    /// The number of the session that claimed them.
    session: u64,
    queue: i32,
    group: Uuid,
    endpoint: i64,
    first: i64,
    last: i64,
    count: i32,
}

/// The answer to a receive.
pub(in crate::store::database) enum Claimed {
    Given(Claim, Vec<Message>),
    /// No group of the queue is free.
    Nothing,
    /// RECEIVE must serve the caller, in its own transaction.
    General,
    /// The same, because no other transaction receives from the queue.
    Alone(Alone),
}

/// What a transaction asks of the claiming session.
pub(in crate::store::database) enum Request {
    Claim { folded_name: String, queue: i32, top: Option<u64>, answer: oneshot::Sender<Claimed> },
    Commit { held: Held, answer: oneshot::Sender<Result<()>> },
    Release { held: Held, answer: Option<oneshot::Sender<Result<()>>> },
}

impl Item for Request {
    fn is_abandoned(&self) -> bool {
        matches!(self, Self::Claim { answer, .. } if answer.is_closed())
    }

    fn bytes(&self) -> usize {
        0
    }

    fn key(&self) -> Option<Uuid> {
        None
    }

    fn kind(&self) -> usize {
        usize::from(matches!(self, Self::Claim { .. }))
    }
}

/// The sessions that claim.
///
/// A claim that hangs is given up, and one whose batch hangs gets no claims: its connection may have been cut in silence, which takes half
/// a minute to notice, or the server takes no new connection. RECEIVE serves the callers meanwhile. A transaction that does more waits no
/// longer for such a session either: transactions that waited kept every connection of the pool.
pub(in crate::store::database) struct ClaimSessions {
    all: [ClaimSession; 2],
}

/// The requests that a session has before claims go to the next one. On two processors 64 callers are a tenth slower with two sessions; where
/// the server has more, one session would be the bound of many callers.
const MANY_REQUESTS: usize = 128;

/// The pause between two looks whether the session hangs that is to release a claim.
const LOOKS: Duration = Duration::from_millis(100);

impl ClaimSessions {
    pub(in crate::store::database) fn new(active: &ActiveBatchers) -> Self {
        Self { all: std::array::from_fn(|_| ClaimSession::new(active.clone())) }
    }

    /// The place of the first session that has not many requests; otherwise of that which has the fewest. `None` if every session hangs.
    fn place(&self) -> Option<usize> {
        let requests = self.all.each_ref().map(|session| session.batcher.items());
        let standing = || (0..requests.len()).filter(|place| !self.hangs(*place));
        let free = standing().find(|place| requests[*place] < MANY_REQUESTS);
        free.or_else(|| standing().min_by_key(|place| requests[*place]))
    }

    /// Whether the session at that place hangs.
    fn hangs(&self, place: usize) -> bool {
        self.all[place].batcher.hangs(HANGING)
    }

    /// Drops the requests that wait: no batch will take them.
    pub(in crate::store::database) fn drop_waiting(&self) {
        self.all.iter().for_each(|session| session.batcher.drop_waiting());
    }

    fn are_idle(&self) -> bool {
        self.all.iter().all(|session| session.batcher.is_idle())
    }

    /// Claims nothing more, and closes the sessions.
    pub(in crate::store::database) async fn close(&self) {
        for session in &self.all {
            session.close().await;
        }
    }
}

/// The most groups that a session claims at once; RECEIVE serves more callers. Each takes two places in the server's table of locks,
/// which has some 7,000 by default, and a table that is full ends the session with all its claims.
const MOST_CLAIMS: usize = 1000;

/// A session that claims, and the requests to it.
struct ClaimSession {
    batcher: Batcher<Request>,
    /// Made for the first claim, and again when it was lost.
    link: tokio::sync::Mutex<Option<Box<dyn Link>>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The number of the session: claims of an earlier one are lost.
    session: u64,
    /// The groups that it has claimed.
    groups: HashSet<Uuid>,
    is_closed: bool,
}

impl ClaimSession {
    fn new(active: ActiveBatchers) -> Self {
        Self {
            batcher: Batcher::new(active).one_at_a_time(),
            link: tokio::sync::Mutex::default(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn close(&self) {
        self.state().is_closed = true;
        self.link.lock().await.take();
        self.lose_session();
    }

    /// The server has released the claims of the session with it.
    fn lose_session(&self) {
        let mut state = self.state();
        state.session += 1;
        state.groups.clear();
    }
}

impl Claim {
    pub(in crate::store::database) fn group(&self) -> Uuid {
        self.held.group
    }

    /// Whether the session that holds it hangs.
    pub(in crate::store::database) fn hangs(&self) -> bool {
        self.database.claim_sessions.hangs(self.held.place)
    }

    fn take_call(&self) -> Call<'static> {
        let Held { group, endpoint, first, last, count, .. } = self.held;
        let ids = [Arg::Uuid(group), Arg::BigInt(endpoint)];
        let range = [Arg::BigInt(first), Arg::BigInt(last), Arg::Int(count)];
        Call { name: "take_claim", args: ids.into_iter().chain(range).collect() }
    }

    /// The messages; the caller commits or releases them.
    fn end(mut self) -> Held {
        self.is_over = true;
        self.held
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.is_over {
            self.database.ask_session(self.held.place, Request::Release { held: self.held, answer: None });
        }
    }
}

impl Database {
    /// Claims messages of the best group of a queue for a transaction.
    pub(in crate::store::database) async fn claim_messages(
        self: &Arc<Self>,
        queue: &str,
        queue_id: i32,
        top: Option<u64>,
    ) -> Claimed {
        let folded_name = fold_name(queue);
        let shared = self.receives.queue(&folded_name, || self.board.queue(&folded_name));
        if !self.notes.claims_always() {
            // A batch of one costs the server a fifth more than RECEIVE in a transaction. It needs no connection of the pool.
            if self.uncommitted.of(queue_id) == 0
                && self.claim_sessions.are_idle()
                && self.driver.has_free()
                && let Some(alone) = Alone::begin(&shared)
            {
                return Claimed::Alone(alone);
            }
            if !shared.tries_claim() {
                return Claimed::General;
            }
        }
        let claimed = match self.claim_sessions.place() {
            Some(place) => {
                let (answer, answered) = oneshot::channel();
                self.ask_session(place, Request::Claim { folded_name, queue: queue_id, top, answer });
                let answered = timeout(HANGING, answered).await;
                answered.map_or(Claimed::General, |claimed| claimed.unwrap_or(Claimed::General))
            }
            None => Claimed::General,
        };
        if matches!(claimed, Claimed::General) {
            shared.note_claim(false);
        }
        claimed
    }

    /// Takes the messages of a claim out of their queue and commits that, with other transactions.
    pub(in crate::store::database) async fn commit_claim(self: &Arc<Self>, claim: Claim) -> Result<()> {
        let (answer, answered) = oneshot::channel();
        claim.shared.note_claim(true);
        let held = claim.end();
        self.ask_session(held.place, Request::Commit { held, answer });
        self.await_answer(answered).await
    }

    /// Releases a claim. It is released in any case, once its session goes on.
    ///
    /// # Errors
    /// 60030 the session that claimed it is lost, or hangs.
    pub(in crate::store::database) async fn release_claim(self: &Arc<Self>, claim: Claim) -> Result<()> {
        let (answer, mut answered) = oneshot::channel();
        let held = claim.end();
        self.ask_session(held.place, Request::Release { held, answer: Some(answer) });
        loop {
            match timeout(LOOKS, &mut answered).await {
                Ok(answered) => return answered.unwrap_or_else(|_| Err(self.open_work.lost_answer())),
                Err(_) if self.claim_sessions.hangs(held.place) => return Err(silent()),
                Err(_) => {}
            }
        }
    }

    /// Begins a transaction on that link and takes the messages of a claim in it. The lock of their group passes to the
    /// link without a gap.
    ///
    /// # Errors
    /// 60030 the session that claimed them is lost, or hangs.
    pub(in crate::store::database) async fn take_over(
        self: &Arc<Self>,
        link: &mut dyn Link,
        claim: Claim,
    ) -> Linked<Notices> {
        claim.shared.note_claim(false);
        link.begin().await?;
        let rows = link.call(claim.take_call()).await?;
        let group = claim.group();
        self.release_claim(claim).await?;
        link.hold_group(group).await?;
        Ok(notices_in(&rows))
    }

    fn ask_session(self: &Arc<Self>, place: usize, request: Request) {
        let batch = self.claim_sessions.all[place].batcher.add(request);
        if !batch.is_empty() {
            self.runtime.spawn(self.clone().run_session(place, batch));
        }
    }

    async fn run_session(self: Arc<Self>, place: usize, mut batch: Vec<Request>) {
        while !batch.is_empty() {
            let asked = batch.len();
            self.serve_session(place, batch).await;
            batch = self.claim_sessions.all[place].batcher.next_batch(asked).await;
        }
    }

    async fn serve_session(self: &Arc<Self>, place: usize, batch: Vec<Request>) {
        let claim_session = &self.claim_sessions.all[place];
        let mut kept = claim_session.link.lock().await;
        let mut work = Flight::of(batch);
        let is_closed = claim_session.state().is_closed;
        if kept.is_none() && !work.claims.is_empty() && !is_closed {
            match self.driver.dedicated().await {
                Ok(link) => {
                    claim_session.lose_session();
                    *kept = Some(link);
                }
                Err(error) => tracing::debug!(%error, "no session can be made that claims messages"),
            }
        }
        let session = claim_session.state().session;
        work.drop_lost(kept.is_some().then_some(session));
        let Some(link) = kept.as_mut().filter(|_| !work.is_empty()) else { return };
        let claimed: Vec<Uuid> = {
            let mut state = claim_session.state();
            work.ending().for_each(|held| {
                state.groups.remove(&held.group);
            });
            state.groups.iter().copied().collect()
        };
        work.keep_claims(MOST_CLAIMS.saturating_sub(claimed.len()));
        if work.is_empty() {
            return;
        }
        let answers = link.calls(work.calls(self, &claimed)).await;
        claim_session.batcher.batch_answered();
        let mut is_lost = match answers {
            Ok(answers) => self.deal_out(work, answers.into_iter(), (place, session)).await,
            Err(failure) => {
                work.fail(failure);
                true
            }
        };
        is_lost |= claim_session.state().is_closed;
        if is_lost {
            // The server releases its claims.
            *kept = None;
            claim_session.lose_session();
        }
    }

    /// Answers the callers; gives whether the session must not be used any more.
    async fn deal_out(
        self: &Arc<Self>,
        work: Flight,
        mut answers: impl Iterator<Item = Linked<Vec<SqlRow>>>,
        (place, session): (usize, u64),
    ) -> bool {
        let mut is_lost = false;
        if !work.commits.is_empty() {
            match answers.next().unwrap_or_else(|| Err(no_answer())) {
                Ok(rows) => {
                    let queues: BTreeSet<i32> = work.commits.iter().map(|(held, _)| held.queue).collect();
                    self.publish_local(&notices_in(&rows), work.commits.len()).await;
                    self.publish_left_messages(queues);
                    self.lock_released();
                    for (_, answer) in work.commits {
                        let _ = answer.send(Ok(()));
                    }
                }
                Err(failure) => {
                    is_lost = true;
                    let error = Error::from(failure);
                    for (_, answer) in work.commits {
                        let _ = answer.send(Err(error.duplicate()));
                    }
                }
            }
        }
        if !work.releases.is_empty() {
            let released = answers.next().unwrap_or_else(|| Err(no_answer()));
            is_lost |= released.is_err();
            self.lock_released();
            for (_, answer) in work.releases {
                if let Some(answer) = answer {
                    let _ = answer.send(if is_lost { Err(lost()) } else { Ok(()) });
                }
            }
        }
        let given: Vec<_> = work
            .claims
            .into_iter()
            .map(|(folded_name, asked)| {
                let rows = answers.next().unwrap_or_else(|| Err(no_answer()));
                let shares = rows.and_then(|rows| Share::all(asked.len(), rows).map_err(|_| no_answer()));
                is_lost |= matches!(&shares, Err(failure) if may_hold_groups(failure));
                (folded_name, asked, shares)
            })
            .collect();
        for (folded_name, asked, shares) in given {
            self.deal_out_claims(&folded_name, asked, shares, (!is_lost).then_some((place, session)));
        }
        is_lost
    }

    fn deal_out_claims(
        self: &Arc<Self>,
        folded_name: &str,
        asked: Vec<Asked>,
        shares: Linked<Vec<Share>>,
        session: Option<(usize, u64)>,
    ) {
        let queue = self.receives.queue(folded_name, || self.board.queue(folded_name));
        let is_batch = asked.len() > 1;
        let (Ok(shares), Some((place, session))) = (shares, session) else {
            queue.scan_start().reset();
            // RECEIVE gives the error.
            asked.into_iter().for_each(|asked| drop(asked.answer.send(Claimed::General)));
            return;
        };
        match is_batch && shares.iter().all(|share| !share.messages.is_empty()) {
            true => queue.scan_start().remember(shares.iter().flat_map(|share| &share.messages).map(Start::of)),
            false => queue.scan_start().reset(),
        }
        for (asked, share) in asked.into_iter().zip(shares) {
            let answer = match (share.endpoint, share.messages.first(), share.messages.last()) {
                (Some(endpoint), Some(first), Some(last)) => {
                    let held = Held {
                        place,
                        session,
                        queue: asked.queue,
                        group: first.conversation_group_id.0,
                        endpoint,
                        first: first.queuing_order.cast_signed(),
                        last: last.queuing_order.cast_signed(),
                        count: i32::try_from(share.messages.len()).unwrap_or(i32::MAX),
                    };
                    self.claim_sessions.all[place].state().groups.insert(held.group);
                    Claimed::Given(
                        Claim { database: self.clone(), held, shared: queue.clone(), is_over: false },
                        share.messages,
                    )
                }
                _ if share.is_general => Claimed::General,
                _ => Claimed::Nothing,
            };
            // If its caller has left, dropping the claim releases it.
            let _ = asked.answer.send(answer);
        }
    }
}

/// One receive of a flight.
struct Asked {
    queue: i32,
    top: Option<u64>,
    answer: oneshot::Sender<Claimed>,
}

/// The requests that travel together.
#[derive(Default)]
struct Flight {
    commits: Vec<(Held, oneshot::Sender<Result<()>>)>,
    releases: Vec<(Held, Option<oneshot::Sender<Result<()>>>)>,
    /// By the folded name of the queue.
    claims: BTreeMap<String, Vec<Asked>>,
}

impl Flight {
    fn of(batch: Vec<Request>) -> Self {
        let mut flight = Self::default();
        for request in batch {
            match request {
                Request::Commit { held, answer } => flight.commits.push((held, answer)),
                Request::Release { held, answer } => flight.releases.push((held, answer)),
                Request::Claim { folded_name, queue, top, answer } => {
                    if !answer.is_closed() {
                        flight.claims.entry(folded_name).or_default().push(Asked { queue, top, answer });
                    }
                }
            }
        }
        flight
    }

    fn is_empty(&self) -> bool {
        self.commits.is_empty() && self.releases.is_empty() && self.claims.is_empty()
    }

    /// Answers the requests that need another session than the one that there is.
    fn drop_lost(&mut self, session: Option<u64>) {
        for (_, answer) in self.commits.extract_if(.., |(held, _)| Some(held.session) != session) {
            let _ = answer.send(Err(lost()));
        }
        for (_, answer) in self.releases.extract_if(.., |(held, _)| Some(held.session) != session) {
            if let Some(answer) = answer {
                let _ = answer.send(Err(lost()));
            }
        }
        if session.is_none() {
            self.claims.clear();
        }
    }

    /// Leaves the receives above so many to RECEIVE.
    fn keep_claims(&mut self, most: usize) {
        let mut left = most;
        for asked in self.claims.values_mut() {
            for refused in asked.drain(left.min(asked.len())..) {
                let _ = refused.answer.send(Claimed::General);
            }
            left -= asked.len();
        }
        self.claims.retain(|_, asked| !asked.is_empty());
    }

    /// The claims that end with this flight.
    fn ending(&self) -> impl Iterator<Item = &Held> {
        self.commits.iter().map(|(held, _)| held).chain(self.releases.iter().map(|(held, _)| held))
    }

    fn calls<'f>(&'f self, database: &Database, claimed: &[Uuid]) -> Vec<Call<'f>> {
        let mut calls = Vec::with_capacity(2 + self.claims.len());
        if !self.commits.is_empty() {
            let held = || self.commits.iter().map(|(held, _)| held);
            let columns = vec![
                Column::Uuid(held().map(|held| Some(held.group)).collect()),
                Column::BigInt(held().map(|held| Some(held.endpoint)).collect()),
                Column::BigInt(held().map(|held| Some(held.first)).collect()),
                Column::BigInt(held().map(|held| Some(held.last)).collect()),
                Column::Int(held().map(|held| Some(held.count)).collect()),
            ];
            calls.push(Call { name: "commit_claims", args: vec![rows("claim_rows", columns)] });
        }
        if !self.releases.is_empty() {
            let groups = self.releases.iter().map(|(held, _)| Some(held.group)).collect();
            calls.push(Call {
                name: "release_claims",
                args: vec![rows("claim_group_rows", vec![Column::Uuid(groups)])],
            });
        }
        for (folded_name, asked) in &self.claims {
            let queue = database.receives.queue(folded_name, || database.board.queue(folded_name));
            let from = if asked.len() > 1 { queue.scan_start().next() } else { None };
            let tops = asked.iter().map(|asked| asked.top.map(most)).collect();
            let claimed = claimed.iter().copied().map(Some).collect();
            let (level, order) = Start::args(from);
            let args = vec![
                Arg::Text(folded_name),
                rows("receive_batch_rows", vec![Column::BigInt(tops)]),
                rows("claim_group_rows", vec![Column::Uuid(claimed)]),
                level,
                order,
            ];
            calls.push(Call { name: "claim_batch", args });
        }
        calls
    }

    /// No call was sent.
    fn fail(self, failure: Failure) {
        let error = Error::from(failure.before_commit());
        for (_, answer) in self.commits {
            let _ = answer.send(Err(error.duplicate()));
        }
        for answer in self.releases.into_iter().filter_map(|(_, answer)| answer) {
            let _ = answer.send(Err(error.duplicate()));
        }
        // Callers without an answer ask RECEIVE.
    }
}

fn rows(type_name: &'static str, columns: Vec<Column<'static>>) -> Arg<'static> {
    Arg::Rows { type_name, columns }
}

/// The part of one caller in the answer of `claim_batch`.
#[derive(Default)]
struct Share {
    messages: Vec<Message>,
    endpoint: Option<i64>,
    /// The best group that it may have must be served by RECEIVE.
    is_general: bool,
}

impl Share {
    fn all(callers: usize, rows: Vec<SqlRow>) -> Result<Vec<Self>> {
        let mut shares: Vec<Self> = (0..callers).map(|_| Self::default()).collect();
        for row in rows.iter().map(Row) {
            let place = usize::try_from(row.int("item")?).unwrap_or(0).min(callers - 1);
            shares[place].endpoint = row.maybe_int("endpoint_id")?;
            shares[place].is_general = shares[place].endpoint.is_none();
        }
        for (place, message) in messages(rows)? {
            shares[place.min(callers - 1)].messages.push(message);
        }
        Ok(shares)
    }
}

/// 60030: what a transaction has received is not held for it any more.
fn lost() -> Error {
    Error::new(
        Code::SERVER_UNREACHABLE,
        "the connection that held the messages of this transaction was lost; the transaction was rolled back, run it again",
    )
}

/// 60030: the session that holds what a transaction has received does not answer.
pub(in crate::store::database) fn silent() -> Error {
    Error::new(
        Code::SERVER_UNREACHABLE,
        "the connection that held the messages of this transaction does not answer; the transaction was rolled back, run it again",
    )
}

/// Whether a session may hold groups that no transaction of this process has claimed: their locks are the session's, so a
/// failure after the first of them frees none. The refusals of `claim_batch` come before.
fn may_hold_groups(failure: &Failure) -> bool {
    let is_refusal = matches!(failure.error.code(), Code::QUEUE_DISABLED | Code::OBJECT_NOT_FOUND);
    !(failure.is_link_usable && is_refusal)
}

/// The server gives one answer for each call.
fn no_answer() -> Failure {
    Failure { error: lost(), fate: Fate::Unknown, is_link_usable: false }
}
