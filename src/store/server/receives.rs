//! RECEIVEs of concurrent callers that take whatever comes, folded into batches by queue.

use super::Server;
use super::fold::{Fold, Item, Kinds};
use super::life::Work;
use super::link::{Arg, Call, Column};
use super::message::messages;
use super::retry::{Tries, verdict};
use super::rows::said;
use super::verbs::most;
use crate::error::{Error, Result};
use crate::protocol::{Message, Outcome};
use crate::store::QueueActivity;
use dashmap::DashMap;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use tokio::sync::oneshot;
use uuid::Uuid;

/// One RECEIVE, and who waits for it.
pub(super) struct Receiving {
    top: Option<u64>,
    answer: oneshot::Sender<Result<Vec<Message>>>,
    _work: Work,
}

impl Item for Receiving {
    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn bytes(&self) -> usize {
        0
    }

    fn key(&self) -> Option<Uuid> {
        None
    }
}

/// What receivers of a queue have in common, by its folded name.
pub(super) struct Receives {
    kinds: Kinds,
    queues: DashMap<String, Arc<Queue>>,
    /// How many messages wait for somebody to take them over.
    orphans: AtomicUsize,
}

struct Queue {
    folded: String,
    fold: Fold<Receiving>,
    activity: Arc<QueueActivity>,
    /// What was received for callers that had gone away: it is gone from the queue, so the next receiver here gets it.
    orphans: std::sync::Mutex<VecDeque<Vec<Message>>>,
}

impl Receives {
    /// Each queue's is one of these kinds.
    pub(super) fn new(kinds: Kinds) -> Self {
        Self { kinds, queues: DashMap::default(), orphans: AtomicUsize::default() }
    }

    fn queue(&self, folded: &str, activity: impl FnOnce() -> Arc<QueueActivity>) -> Arc<Queue> {
        if let Some(found) = self.queues.get(folded) {
            return found.clone();
        }
        let made = || {
            Arc::new(Queue {
                folded: folded.to_owned(),
                fold: Fold::new(self.kinds.clone()),
                activity: activity(),
                orphans: std::sync::Mutex::default(),
            })
        };
        self.queues.entry(folded.to_owned()).or_insert_with(made).clone()
    }

    fn adopt(&self, queue: &Queue, top: Option<u64>) -> Option<Vec<Message>> {
        if self.orphans.load(SeqCst) == 0 || top == Some(0) {
            return None;
        }
        let mut orphans = queue.orphans.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut taken = orphans.pop_front()?;
        let most = top.map_or(usize::MAX, |top| usize::try_from(top).unwrap_or(usize::MAX));
        if taken.len() > most {
            orphans.push_front(taken.split_off(most));
        }
        self.orphans.fetch_sub(taken.len(), SeqCst);
        Some(taken)
    }

    fn orphan(&self, queue: &Queue, messages: Vec<Message>) {
        if messages.is_empty() {
            return;
        }
        self.orphans.fetch_add(messages.len(), SeqCst);
        queue.orphans.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push_back(messages);
        queue.activity.signal(1);
    }
}

impl Server {
    /// Receives whatever comes, with whoever else does.
    pub(super) async fn receive_folded(self: Arc<Self>, queue: &str, top: Option<u64>, work: Work) -> Result<Outcome> {
        let folded = queue.to_lowercase();
        let queue = self.receives.queue(&folded, || self.board.queue(&folded));
        if let Some(messages) = self.receives.adopt(&queue, top) {
            return Ok(Outcome::Received(messages));
        }
        let (answer, answered) = oneshot::channel();
        let receiving = Receiving { top, answer, _work: work };
        if let Some(first) = queue.fold.enter(receiving) {
            tokio::spawn(self.clone().run_receives(queue.clone(), first));
        }
        let handed = Handed { receives: &self.receives, queue: &queue, answered };
        handed.wait().await.map(Outcome::Received)
    }

    async fn run_receives(self: Arc<Self>, queue: Arc<Queue>, first: Receiving) {
        let mut batch = vec![first];
        while !batch.is_empty() {
            self.receive_batch(&queue, batch).await;
            queue.fold.gather().await;
            batch = queue.fold.next();
        }
    }

    async fn receive_batch(self: &Arc<Self>, queue: &Queue, batch: Vec<Receiving>) {
        let mut tries = Tries::default();
        let rows = loop {
            match self.call_on_a_link(call(&queue.folded, &batch)).await {
                Ok(rows) => break Ok(rows),
                Err(failure) if tries.again(&failure).await => {}
                Err(failure) => break Err(verdict(failure)),
            }
        };
        let received = match rows {
            Ok(rows) => {
                self.heard(&said(&rows), 0).await;
                messages(rows)
            }
            Err(error) => Err(error),
        };
        match received {
            Err(error) => {
                for receiving in batch {
                    let _ = receiving.answer.send(Err(error.duplicate()));
                }
            }
            Ok(received) => {
                let mut shares: Vec<Vec<Message>> = batch.iter().map(|_| Vec::new()).collect();
                for (item, message) in received {
                    let place = item.min(shares.len() - 1);
                    shares[place].push(message);
                }
                let is_empty = shares.iter().any(Vec::is_empty);
                let groups = shares.iter().filter(|share| !share.is_empty()).count();
                let messages = shares.iter().map(Vec::len).sum();
                self.queue_stands(&queue.activity, groups, messages, is_empty);
                for (receiving, share) in batch.into_iter().zip(shares) {
                    if let Err(Ok(share)) = receiving.answer.send(Ok(share)) {
                        self.receives.orphan(queue, share);
                    }
                }
            }
        }
    }

    /// What a RECEIVE shows of how its queue stands: what was taken from it, and whether nothing was left.
    pub(super) fn queue_stands(&self, activity: &QueueActivity, groups: usize, messages: usize, is_empty: bool) {
        let facts = activity.facts();
        activity.took(messages as u64);
        match is_empty {
            // What is in groups that somebody holds may be left.
            true => activity.stands(0, facts.unread.saturating_sub(facts.ready_groups as u64)),
            false => {
                activity.stands(facts.ready_groups.saturating_sub(groups), facts.unread.saturating_sub(messages as u64))
            }
        }
        if groups > 0 || facts.ready_groups > 0 {
            self.watch.heard();
        }
    }
}

fn call<'a>(queue: &'a str, batch: &[Receiving]) -> Call<'a> {
    if let [only] = batch {
        let top = only.top.map_or(Arg::Null, |top| Arg::BigInt(most(top)));
        let args = vec![Arg::Text(queue), top, Arg::Null, Arg::Null, Arg::Null, Arg::Null, Arg::Bool(false)];
        return Call { name: "receive", args };
    }
    let tops = batch.iter().map(|receiving| receiving.top.map(most)).collect();
    let rows = Arg::Rows { type_name: "receive_batch_rows", columns: vec![Column::BigInt(tops)] };
    Call { name: "receive_batch", args: vec![Arg::Text(queue), rows] }
}

/// The answer to a RECEIVE on its way. If whoever waits goes away between its coming and its being seen, it is orphaned.
struct Handed<'a> {
    receives: &'a Receives,
    queue: &'a Queue,
    answered: oneshot::Receiver<Result<Vec<Message>>>,
}

impl Handed<'_> {
    async fn wait(mut self) -> Result<Vec<Message>> {
        (&mut self.answered).await.unwrap_or_else(|_| Err(Error::closed()))
    }
}

impl Drop for Handed<'_> {
    fn drop(&mut self) {
        self.answered.close();
        if let Ok(Ok(messages)) = self.answered.try_recv() {
            self.receives.orphan(self.queue, messages);
        }
    }
}
