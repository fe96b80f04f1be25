//! SENDs of concurrent callers, batched.

use crate::error::{Error, Result};
use crate::id::ConversationHandle;
use crate::protocol::{Body, Outcome, Verb, system};
use crate::store::SqlRow;
use crate::store::database::Database;
use crate::store::database::batching::batcher::Item;
use crate::store::database::calls::caller;
use crate::store::database::calls::rows::{Row, notices_in};
use crate::store::database::calls::verbs::{self, CallContext};
use crate::store::database::closing::Work;
use crate::store::database::link::{Arg, Call, Column, Failure, HANGING};
use crate::store::database::refusal;
use crate::store::database::retry::{Again, Repeat, Retry};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// The number of an item whose group is locked.
const IS_LOCKED: i64 = -1;

/// One SEND on one conversation and its caller.
pub(in crate::store::database) struct Sending {
    handle: ConversationHandle,
    message_type: Option<Arc<str>>,
    body: Body,
    trace: Option<Arc<str>>,
    context: CallContext,
    answer: oneshot::Sender<Result<Outcome>>,
    _work: Work,
}

impl Item for Sending {
    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn bytes(&self) -> usize {
        self.body.as_ref().map_or(0, |body| body.len())
    }

    fn key(&self) -> Option<Uuid> {
        Some(self.handle.0)
    }

    fn kind(&self) -> usize {
        0
    }
}

impl Sending {
    fn answer(self, result: Result<Outcome>) {
        // The caller may have left; the message is sent all the same, unless it waited for a lock.
        let _ = self.answer.send(result);
    }

    fn call(&self) -> Call<'_> {
        verbs::send(self.handle, self.message_type.as_deref(), &self.body, self.trace.as_deref(), &self.context)
    }
}

impl Database {
    /// Sends, in a batch with other callers.
    pub(in crate::store::database) async fn send_in_batch(self: Arc<Self>, verb: Verb, work: Work) -> Result<Outcome> {
        let context = self.call_context(&verb).await?;
        let Verb::Send { handles, message_type, body, trace } = verb else {
            unreachable!("only a SEND comes here");
        };
        let (answer, answered) = oneshot::channel();
        let sending = Sending { handle: handles[0], message_type, body, trace, context, answer, _work: work };
        self.spawn_sends(self.sends.add(sending));
        self.await_answer(answered).await
    }

    fn spawn_sends(self: &Arc<Self>, batch: Vec<Sending>) {
        if !batch.is_empty() {
            self.runtime.spawn(self.clone().run_sends(batch));
        }
    }

    /// Sends batch after batch, as long as items have gathered meanwhile.
    async fn run_sends(self: Arc<Self>, mut batch: Vec<Sending>) {
        while !batch.is_empty() {
            let sent = batch.len();
            let sends = async {
                if sent == 1 {
                    let mut alone = self.spawn_alone(batch);
                    let _ = tokio::time::timeout(self.patience, &mut alone).await;
                } else {
                    self.send_batch(batch).await;
                }
            };
            if !self.sends.await_batch(sent, sends, HANGING, |late| self.spawn_sends(late)).await {
                return;
            }
            batch = self.sends.next_batch(sent).await;
        }
    }

    /// Sends the messages of one conversation one by one, waiting if its group is locked.
    fn spawn_alone(self: &Arc<Self>, sendings: Vec<Sending>) -> JoinHandle<()> {
        let database = self.clone();
        self.runtime.spawn(async move {
            let keys: Vec<Uuid> = sendings.iter().filter_map(Item::key).collect();
            let last = sendings.len() - 1;
            for (place, sending) in sendings.into_iter().enumerate() {
                let (sending, result) = database.send_alone(sending).await;
                if place == last {
                    database.released(keys.iter().copied());
                }
                sending.answer(result);
            }
        })
    }

    /// These conversations have no message out any more; messages that waited for that may go.
    fn released(self: &Arc<Self>, keys: impl IntoIterator<Item = Uuid>) {
        self.spawn_sends(self.sends.release(keys));
    }

    async fn send_alone(self: &Arc<Self>, mut sending: Sending) -> (Sending, Result<Outcome>) {
        let mut tries = Retry::default();
        let (mut answer, _) = oneshot::channel();
        std::mem::swap(&mut answer, &mut sending.answer);
        let result = loop {
            let called = caller::unless_closed(&mut answer, self.call_on_a_link(sending.call())).await;
            let failure = match called.unwrap_or_else(|| Err(caller::left().into())) {
                Ok(rows) => {
                    self.publish_local(&notices_in(&rows), 1).await;
                    break Ok(Outcome::Done);
                }
                Err(failure) => failure,
            };
            match tries.after(failure, Repeat::IfUndone).await {
                Ok(Again::WithNewIds) => {}
                Ok(Again::WithNewDefinitions) => {
                    if let Err(error) = self.reload().await {
                        break Err(error);
                    }
                    let Sending { context, message_type, body, .. } = &mut sending;
                    self.check_body(context, message_type.as_deref(), body).await;
                }
                Err(failure) => break Err(failure.into()),
            }
        };
        sending.answer = answer;
        (sending, result)
    }

    /// Checks a batch against the new definitions. A conversation whose check takes longer goes on by itself, so the
    /// others do not wait for it.
    fn check_batch_again(self: &Arc<Self>, batch: Vec<Sending>) -> Vec<Sending> {
        let known = self.definitions.known();
        let mut late: BTreeMap<Uuid, Vec<Sending>> = BTreeMap::new();
        let mut checked = Vec::with_capacity(batch.len());
        for mut sending in batch {
            let key = sending.handle.0;
            let Sending { context, message_type, body, .. } = &mut sending;
            if !late.contains_key(&key) && self.check_quickly(&known, context, message_type.as_deref(), body) {
                checked.push(sending);
            } else {
                late.entry(key).or_default().push(sending);
            }
        }
        for sendings in late.into_values() {
            self.spawn_alone(sendings);
        }
        checked
    }

    async fn send_batch(self: &Arc<Self>, mut batch: Vec<Sending>) {
        let mut tries = Retry::default();
        let rows = loop {
            let version = batch.iter().map(|sending| sending.context.catalog_version).min().unwrap_or_default();
            let failure = match self.call_on_a_link(batch_call(&batch, version)).await {
                Ok(rows) => break rows,
                Err(failure) => failure,
            };
            match tries.after(failure, Repeat::IfUndone).await {
                Ok(Again::WithNewIds) => {}
                Ok(Again::WithNewDefinitions) => {
                    if let Err(error) = self.reload().await {
                        return self.batch_failed(batch, error.into());
                    }
                    batch = self.check_batch_again(batch);
                    if batch.is_empty() {
                        return;
                    }
                }
                Err(failure) => return self.batch_failed(batch, failure),
            }
        };
        self.publish_local(&notices_in(&rows), batch.len()).await;
        let mut verdicts: Vec<Option<(i64, String)>> = vec![None; batch.len()];
        if let Err(error) = rows.iter().try_for_each(|row| note(&mut verdicts, row)) {
            return self.answer_all(batch, &error);
        }
        let mut locked: BTreeMap<Uuid, Vec<Sending>> = BTreeMap::new();
        let mut answers = Vec::with_capacity(batch.len());
        for (sending, verdict) in batch.into_iter().zip(verdicts) {
            match verdict {
                None => answers.push((sending, Ok(Outcome::Done))),
                Some((IS_LOCKED, _)) => locked.entry(sending.handle.0).or_default().push(sending),
                Some((number, message)) => answers.push((sending, Err(refusal(number, message)))),
            }
        }
        let keys: Vec<Uuid> = answers.iter().filter_map(|(sending, _)| sending.key()).collect();
        self.released(keys.into_iter().filter(|key| !locked.contains_key(key)));
        for (sending, result) in answers {
            sending.answer(result);
        }
        for sendings in locked.into_values() {
            self.spawn_alone(sendings);
        }
    }

    /// If the outcome of the batch is unknown, every caller gets the error. If the batch certainly failed, its items
    /// are retried one by one, so only the bad one fails.
    fn batch_failed(self: &Arc<Self>, batch: Vec<Sending>, failure: Failure) {
        if !failure.may_be_of_one_item() {
            return self.answer_all(batch, &failure.into());
        }
        let mut alone: BTreeMap<Uuid, Vec<Sending>> = BTreeMap::new();
        for sending in batch {
            alone.entry(sending.handle.0).or_default().push(sending);
        }
        for sendings in alone.into_values() {
            self.spawn_alone(sendings);
        }
    }

    fn answer_all(self: &Arc<Self>, batch: Vec<Sending>, error: &Error) {
        self.released(batch.iter().filter_map(Item::key));
        batch.into_iter().for_each(|sending| sending.answer(Err(error.duplicate())));
    }
}

fn note(verdicts: &mut [Option<(i64, String)>], row: &SqlRow) -> Result<()> {
    let row = Row(row);
    if let Some(number) = row.maybe_int("error_number")?
        && let Some(place) = usize::try_from(row.int("item")?).ok().and_then(|item| verdicts.get_mut(item))
    {
        *place = Some((number, row.maybe_text("error_message")?.unwrap_or_default().to_owned()));
    }
    Ok(())
}

fn batch_call(batch: &[Sending], version: i64) -> Call<'_> {
    let columns = vec![
        Column::Uuid(batch.iter().map(|sending| Some(sending.handle.0)).collect()),
        Column::Text(
            batch.iter().map(|sending| Some(sending.message_type.as_deref().unwrap_or(system::DEFAULT))).collect(),
        ),
        Column::Bytes(batch.iter().map(|sending| sending.body.clone()).collect()),
        Column::Text(batch.iter().map(|sending| sending.trace.as_deref()).collect()),
        Column::Text(batch.iter().map(|sending| Some(&*sending.context.body_fault)).collect()),
        Column::Uuid(batch.iter().map(|sending| Some(sending.context.ids[0])).collect()),
    ];
    let args = vec![Arg::Rows { type_name: "send_batch_rows", columns }, Arg::BigInt(version)];
    Call { name: "send_batch", args }
}
