//! Conversations as they stand: both sides, their messages, timers, and what is kept.

use super::dead_letters::{DeadLetter, DeadLetterFilter};
use super::peek::{MessageFilter, MessageState, PeekedMessage, WaitingMessage};
use super::read;
use crate::broker::Broker;
use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, ConversationId, GroupId};
use crate::protocol::ConversationState;
use crate::store::{LockHolder, SqlRow, SqlValue};
use crate::time::Timestamp;
use serde::Serialize;
use uuid::Uuid;

/// One side of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConversationSide {
    /// Its handle.
    pub conversation_handle: ConversationHandle,
    /// What both sides share.
    pub conversation_id: ConversationId,
    /// The group on this side.
    pub conversation_group_id: GroupId,
    /// Whether it began the conversation.
    pub is_initiator: bool,
    /// Its state. Serializes as the two letters of `sys.conversation_endpoints`.
    pub state: ConversationState,
    /// The state as a word.
    pub state_desc: &'static str,
    /// Its service.
    pub service_name: String,
    /// The queue of its service.
    pub queue: String,
    /// The service of the other side.
    pub far_service: String,
    /// The contract.
    pub service_contract_name: Option<String>,
    /// Its level, 1 to 10.
    pub priority: u64,
    /// When it began here. Serializes as UTC text with milliseconds, as the other times do.
    pub begun_at: Timestamp,
    /// When its LIFETIME ends; `None` without one.
    pub lifetime: Option<Timestamp>,
    /// When its timer fires.
    pub dialog_timer: Option<Timestamp>,
    /// Whether its group is quarantined, for good or for a pause.
    pub is_quarantined: bool,
    /// When the pause of its group ends, as the RETRY of the queue says.
    pub retry_at: Option<Timestamp>,
}

/// A side with its messages.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ConversationSideDetails {
    /// The side.
    #[serde(flatten)]
    pub side: ConversationSide,
    /// The session that holds the lock of its group; `None` if none does, or the store does not say it.
    pub held_by: Option<LockHolder>,
    /// Why it is not known which session holds the lock, as if the owner of a file does not answer.
    pub held_by_error: Option<String>,
    /// The other conversations of its group: their handles, at most a hundred.
    pub related: Vec<ConversationHandle>,
    /// Messages that wait for a RECEIVE on this side.
    pub messages: Vec<PeekedMessage>,
    /// Messages of this side that died after the last attempt of a retry policy.
    pub dead_letters: Vec<DeadLetter>,
    /// Messages that RETENTION keeps: received ones, and copies of those sent.
    pub kept: Vec<PeekedMessage>,
    /// Messages that this side has sent and that are not delivered yet.
    pub undelivered: Vec<WaitingMessage>,
    /// Whether a list holds fewer messages than there are.
    pub has_more: bool,
}

/// A conversation: both sides, as far as they exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Conversation {
    /// What both sides share.
    pub conversation_id: ConversationId,
    /// The initiator first. One, if the target has no side yet or a side has ended and is gone.
    pub sides: Vec<ConversationSideDetails>,
}

/// Which sides of conversations are meant; the default is all, without the broker's own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConversationFilter {
    /// A handle, a conversation id or a conversation group id.
    pub id: Option<Uuid>,
    /// Of the services of this queue.
    pub queue: Option<String>,
    /// Of this service.
    pub service: Option<String>,
    /// In this state.
    pub state: Option<ConversationState>,
    /// Begun before this moment.
    pub before: Option<Timestamp>,
    /// Over this contract.
    pub contract: Option<String>,
}

/// Without LIFETIME a conversation lives for 2147483647 seconds from BEGIN DIALOG. The target's side begins with the first
/// message that arrives, up to a year later for this purpose.
const FOR_EVER_US: i64 = (2_147_483_647 - 366 * 86_400) * 1_000_000;

impl Broker {
    /// Sides of conversations, the oldest first, at most `top`. No lock is taken.
    ///
    /// # Errors
    /// Those of [`Broker::query`].
    pub async fn conversations(&self, filter: &ConversationFilter, top: u32) -> Result<Vec<ConversationSide>> {
        self.sides(filter, true, top).await
    }

    /// As [`Broker::conversations`]; without `takes_ended`, sides that have ended are left out.
    pub(crate) async fn sides(
        &self,
        filter: &ConversationFilter,
        takes_ended: bool,
        top: u32,
    ) -> Result<Vec<ConversationSide>> {
        let text = |text: Option<String>| text.map_or(SqlValue::Null, SqlValue::Text);
        let params = vec![
            text(filter.id.map(|id| id.to_string())),
            text(filter.queue.clone()),
            text(filter.service.clone()),
            text(filter.state.map(|state| state.code().to_owned())),
            filter.before.map_or(SqlValue::Null, |before| SqlValue::Integer(before.0)),
            text(filter.contract.clone()),
            SqlValue::Integer(i64::from(top)),
            SqlValue::Integer(i64::from(!takes_ended)),
        ];
        let query = self.shared_store().texts().inspect.endpoints;
        self.query_own(query, params).await?.rows.iter().map(side).collect()
    }

    /// A conversation with both its sides, by the handle of either or by its id: states, groups, timers and messages, at
    /// most `top` in each list, with at most `body_bytes` of each body. Reads of a few moments make up the answer. No lock
    /// is taken.
    ///
    /// # Errors
    /// 8426 no such conversation; else those of [`Broker::query`].
    pub async fn conversation(&self, id: Uuid, top: u32, body_bytes: u32) -> Result<Conversation> {
        let by = |id| ConversationFilter { id: Some(id), ..ConversationFilter::default() };
        let found = self.conversations(&by(id), 1_000).await?;
        let is_it = |side: &&ConversationSide| side.conversation_handle.0 == id || side.conversation_id.0 == id;
        let conversation_id = found.iter().find(is_it).map(|side| side.conversation_id).ok_or_else(|| {
            Error::new(
                Code::CONVERSATION_NOT_FOUND,
                format!("no side of conversation {id} exists; it has ended or never was"),
            )
        })?;
        let mut sides = self.conversations(&by(conversation_id.0), 1_000).await?;
        sides.retain(|side| side.conversation_id == conversation_id);
        sides.sort_by_key(|side| !side.is_initiator);
        let mut detailed = Vec::with_capacity(sides.len());
        // An owner of a file that is stopped would be waited for again.
        let mut unknown = None;
        for side in sides {
            let mut details = self.with_messages(side, top, body_bytes).await?;
            if unknown.is_none() {
                match self.lock_holder(details.side.conversation_group_id).await {
                    Ok(holder) => details.held_by = holder,
                    Err(error) => {
                        tracing::warn!(%error, "which session holds a conversation group is not known");
                        unknown = Some(error.message().to_owned());
                    }
                }
            }
            details.held_by_error.clone_from(&unknown);
            detailed.push(details);
        }
        Ok(Conversation { conversation_id, sides: detailed })
    }

    /// The session that holds the lock of a conversation group now, as far as the store shows it: `None` if none does. A
    /// session holds the groups that it has received from or sent in until its transaction ends.
    ///
    /// # Errors
    /// Those of [`Broker::query`]; 60010 on [`Broker::open_read_only`], if the owner of the file cannot be asked.
    pub async fn lock_holder(&self, group: GroupId) -> Result<Option<LockHolder>> {
        self.shared_store().lock_holder(group.0).await
    }

    async fn with_messages(
        &self,
        side: ConversationSide,
        top: u32,
        body_bytes: u32,
    ) -> Result<ConversationSideDetails> {
        let handle = side.conversation_handle;
        let filter = MessageFilter { conversation: Some(handle), with_kept: true, ..MessageFilter::default() };
        let top = top.clamp(1, super::peek::MOST_MESSAGES);
        let mut found = self.messages(None, &filter, None, 2 * top + 1, body_bytes).await?;
        let mut undelivered = self.undelivered(Some(handle), None, top + 1, body_bytes).await?;
        let mut has_more = found.len() > 2 * top as usize || undelivered.len() > top as usize;
        undelivered.truncate(top as usize);
        let is_kept = |message: &PeekedMessage| matches!(message.state, MessageState::Received | MessageState::Sent);
        let mut kept: Vec<PeekedMessage> = found.extract_if(.., |message| is_kept(message)).collect();
        for list in [&mut found, &mut kept] {
            has_more |= list.len() > top as usize;
            list.truncate(top as usize);
        }
        let of_side = DeadLetterFilter { conversation: Some(handle), ..DeadLetterFilter::default() };
        let mut dead_letters = self.dead_letters(&of_side, top + 1, body_bytes).await?;
        has_more |= dead_letters.len() > top as usize;
        dead_letters.truncate(top as usize);
        let group = ConversationFilter { id: Some(side.conversation_group_id.0), ..ConversationFilter::default() };
        let related = self.conversations(&group, 101).await?;
        let related = related.into_iter().map(|other| other.conversation_handle).filter(|other| *other != handle);
        Ok(ConversationSideDetails {
            held_by: None,
            held_by_error: None,
            related: related.take(100).collect(),
            side,
            messages: found,
            dead_letters,
            kept,
            undelivered,
            has_more,
        })
    }
}

fn side(row: &SqlRow) -> Result<ConversationSide> {
    let state = read::state(row)?;
    let begun_at: Timestamp = row.own("begun_at")?;
    Ok(ConversationSide {
        conversation_handle: row.own("conversation_handle")?,
        conversation_id: row.own("conversation_id")?,
        conversation_group_id: row.own("conversation_group_id")?,
        is_initiator: row.own("is_initiator")?,
        state,
        state_desc: state.description(),
        service_name: row.own("service_name")?,
        queue: row.own("queue_name")?,
        far_service: row.own("far_service")?,
        service_contract_name: row.own("service_contract_name")?,
        priority: row.count("priority")?,
        begun_at,
        lifetime: row.own::<Option<Timestamp>>("lifetime")?.filter(|end| end.0 - begun_at.0 < FOR_EVER_US),
        dialog_timer: row.own("dialog_timer")?,
        is_quarantined: row.own("is_quarantined")?,
        retry_at: row.own("retry_at")?,
    })
}
