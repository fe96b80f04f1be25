//! Beginnings and ends of conversations of concurrent callers, batched.
//!
//! The server does those of a batch that are plain, and leaves the others, such as one whose group is locked or one that is to be
//! refused. Each of these is done alone, so it may wait, and gets its own error.

use crate::error::{Error, Result};
use crate::id::{ConversationHandle, ConversationId, GroupId};
use crate::protocol::{BeginDialog, ConversationState, EndForm, Outcome, Relation, Verb};
use crate::store::SqlRow;
use crate::store::database::Database;
use crate::store::database::batching::batcher::{Admission, Batcher, Item};
use crate::store::database::calls::caller::{self, Caller};
use crate::store::database::calls::rows::{Row, damaged, notices_in};
use crate::store::database::calls::verbs::CallContext;
use crate::store::database::closing::Work;
use crate::store::database::link::{Arg, Call, Column, HANGING};
use crate::store::database::retry::{Repeat, Retry};
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// Which of the two a batch does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Begin,
    End,
}

/// One verb and its caller.
pub(in crate::store::database) struct Asked {
    verb: Verb,
    context: CallContext,
    caller: Caller,
    answer: oneshot::Sender<Result<Outcome>>,
    _work: Work,
}

impl Item for Asked {
    fn is_abandoned(&self) -> bool {
        self.caller.has_left()
    }

    /// Of its names: one that is far too long, and refused for that, holds up few others.
    fn bytes(&self) -> usize {
        self.dialog().map_or(0, |dialog| {
            let names = [
                Some(&*dialog.from_service),
                Some(&*dialog.to_service),
                dialog.contract.as_deref(),
                dialog.addressee.instance(),
            ];
            names.into_iter().flatten().map(str::len).sum()
        })
    }

    fn key(&self) -> Option<Uuid> {
        None
    }

    fn kind(&self) -> usize {
        0
    }
}

impl Asked {
    fn answer(self, result: Result<Outcome>) {
        // The caller may have left.
        let _ = self.answer.send(result);
    }

    fn dialog(&self) -> Option<&BeginDialog> {
        match &self.verb {
            Verb::BeginDialog(dialog) => Some(dialog),
            _ => None,
        }
    }

    fn handle(&self) -> Option<ConversationHandle> {
        match &self.verb {
            Verb::EndConversation { handle, .. } => Some(*handle),
            _ => None,
        }
    }

    /// What its caller gets if the batch has done it; `None` if it was left.
    fn done(&self, row: Row<'_>) -> Result<Option<Outcome>> {
        let [group, handle, conversation] = self.context.ids;
        if self.dialog().is_some() {
            let began = Outcome::Began {
                handle: ConversationHandle(handle),
                group: GroupId(group),
                conversation_id: ConversationId(conversation),
            };
            return Ok(row.flag("is_begun")?.then_some(began));
        }
        let Some(state) = row.maybe_text("state")? else { return Ok(None) };
        let known = ConversationState::from_code(state.trim_end());
        known.map(Outcome::Ended).map(Some).ok_or_else(|| damaged(format!("'{state}' is no state of a conversation")))
    }
}

fn kind_of(verb: &Verb) -> Option<Kind> {
    match verb {
        Verb::BeginDialog(dialog) if dialog.related == Relation::None => Some(Kind::Begin),
        Verb::EndConversation { form: EndForm::Plain, .. } => Some(Kind::End),
        _ => None,
    }
}

impl Database {
    /// Whether a verb begins or ends a conversation and can go with those of other callers.
    pub(in crate::store::database) fn goes_with_dialogs(&self, verb: &Verb) -> bool {
        self.driver.dialect().has_dialog_batches && kind_of(verb).is_some()
    }

    fn dialogs(&self, kind: Kind) -> &Batcher<Asked> {
        match kind {
            Kind::Begin => &self.begins,
            Kind::End => &self.ends,
        }
    }

    /// Begins or ends a conversation, in a batch with other callers.
    pub(in crate::store::database) async fn begin_or_end_in_batch(
        self: &Arc<Self>,
        verb: Verb,
        work: Work,
    ) -> Result<Outcome> {
        let context = self.call_context(&verb).await?;
        let kind = kind_of(&verb).ok_or_else(|| damaged("a verb that goes alone is in a batch"))?;
        let (_here, caller) = caller::present();
        let (answer, answered) = oneshot::channel();
        match self.dialogs(kind).add_and_gather(Asked { verb, context, caller, answer, _work: work }) {
            Admission::Kept => {}
            Admission::Batch(batch) => self.spawn_dialogs(kind, batch),
            Admission::Alone(asked) => {
                let database = self.clone();
                self.runtime.spawn(async move {
                    let mut alone = database.spawn_dialog_alone(asked);
                    let _ = tokio::time::timeout(database.patience, &mut alone).await;
                    database.dialogs(kind).lone_item_done();
                });
            }
            Admission::Gather => {
                let database = self.clone();
                self.runtime.spawn(async move {
                    let batch = database.dialogs(kind).gather().await;
                    database.run_dialogs(kind, batch).await;
                });
            }
        }
        self.await_answer(answered).await
    }

    fn spawn_dialogs(self: &Arc<Self>, kind: Kind, batch: Vec<Asked>) {
        self.runtime.spawn(self.clone().run_dialogs(kind, batch));
    }

    /// Does batch after batch, as long as verbs have gathered meanwhile.
    async fn run_dialogs(self: Arc<Self>, kind: Kind, mut batch: Vec<Asked>) {
        while let Some(first) = batch.pop() {
            let asked = batch.len() + 1;
            let dialogs = async {
                if batch.is_empty() {
                    let mut alone = self.spawn_dialog_alone(first);
                    let _ = tokio::time::timeout(self.patience, &mut alone).await;
                } else {
                    batch.push(first);
                    self.dialog_batch(kind, batch).await;
                }
            };
            let leave = |late| self.spawn_dialogs(kind, late);
            if !self.dialogs(kind).await_batch(asked, dialogs, HANGING, leave).await {
                return;
            }
            batch = self.dialogs(kind).next_batch(asked).await;
        }
    }

    /// It may wait for the lock of a group.
    fn spawn_dialog_alone(self: &Arc<Self>, asked: Asked) -> JoinHandle<()> {
        let database = self.clone();
        self.runtime.spawn(async move {
            let outcome = database.alone(asked.verb.clone(), &asked.caller).await;
            asked.answer(outcome);
        })
    }

    async fn dialog_batch(self: &Arc<Self>, kind: Kind, mut batch: Vec<Asked>) {
        let mut tries = Retry::default();
        let rows = loop {
            let failure = match self.call_on_a_link(batch_call(kind, &batch)).await {
                Ok(rows) => break rows,
                Err(failure) => failure,
            };
            let again = match tries.after(failure, Repeat::IfUndone).await {
                Ok(again) => again,
                Err(failure) => {
                    if failure.may_be_of_one_item() {
                        return batch.into_iter().for_each(|asked| drop(self.spawn_dialog_alone(asked)));
                    }
                    let error = Error::from(failure);
                    return batch.into_iter().for_each(|asked| asked.answer(Err(error.duplicate())));
                }
            };
            for asked in &mut batch {
                let Asked { verb, context, .. } = asked;
                if let Err(error) = self.renew(again, [(&*verb, context)]).await {
                    return batch.into_iter().for_each(|asked| asked.answer(Err(error.duplicate())));
                }
            }
        };
        self.publish_local(&notices_in(&rows), batch.len()).await;
        for (place, asked) in batch.into_iter().enumerate() {
            match row_of(&rows, place).and_then(|row| asked.done(row)) {
                Ok(Some(outcome)) => asked.answer(Ok(outcome)),
                Ok(None) => drop(self.spawn_dialog_alone(asked)),
                Err(error) => asked.answer(Err(error)),
            }
        }
    }
}

/// The row of an item: the only one if it is of all items.
fn row_of(rows: &[SqlRow], place: usize) -> Result<Row<'_>> {
    let row = match rows {
        [all] if !Row(all).has("item") => Some(all),
        rows => rows.get(place),
    };
    row.map(Row).ok_or_else(|| damaged(format!("it gives no row of item {place} of a batch")))
}

fn batch_call(kind: Kind, batch: &[Asked]) -> Call<'_> {
    if kind == Kind::End {
        let handles = batch.iter().map(|asked| asked.handle().map(|handle| handle.0)).collect();
        let args = vec![Arg::Rows { type_name: "end_batch_rows", columns: vec![Column::Uuid(handles)] }];
        return Call { name: "end_batch", args };
    }
    let dialogs = || batch.iter().filter_map(Asked::dialog);
    let ids = |place: usize| Column::Uuid(batch.iter().map(|asked| Some(asked.context.ids[place])).collect());
    let columns = vec![
        Column::Text(dialogs().map(|dialog| Some(&*dialog.from_service)).collect()),
        Column::Text(dialogs().map(|dialog| Some(&*dialog.to_service)).collect()),
        Column::Text(dialogs().map(|dialog| dialog.addressee.instance()).collect()),
        Column::Text(dialogs().map(|dialog| dialog.contract.as_deref()).collect()),
        Column::BigInt(dialogs().map(|dialog| dialog.lifetime_seconds).collect()),
        ids(1),
        ids(2),
        ids(0),
    ];
    Call { name: "begin_batch", args: vec![Arg::Rows { type_name: "begin_batch_rows", columns }] }
}
