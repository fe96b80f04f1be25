//! Dead letters: seen, redriven and purged, one by one or by a filter.

use super::held::HeldGroups;
use super::peek::PeekedBody;
use crate::act::{Act, Perform};
use crate::broker::Broker;
use crate::error::{Code, Result};
use crate::id::{ConversationHandle, ConversationId, DeadLetterId, GroupId, MessageId};
use crate::protocol::Verb;
use crate::store::{SqlRow, SqlValue};
use crate::time::Timestamp;
use serde::Serialize;

/// The most dead letters that one call redrives, purges or shows.
pub const MOST_DEAD_LETTERS: u32 = 100_000;

/// Which dead letters are meant; the default is all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// This one.
    pub letter: Option<DeadLetterId>,
    /// Of this queue, by its name at their death.
    pub queue: Option<String>,
    /// Of this service, by its name at their death.
    pub service: Option<String>,
    /// Of this message type.
    pub message_type: Option<String>,
    /// Of this conversation, by the handle of the side that received it.
    pub conversation: Option<ConversationHandle>,
    /// Died before this moment.
    pub before: Option<Timestamp>,
}

/// A message that a retry policy has taken out of its queue. Names and ids are those of the moment of its death.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DeadLetter {
    /// Names it.
    pub dead_letter_id: DeadLetterId,
    /// The queue it was in.
    pub queue: String,
    /// The service that received it.
    pub service_name: String,
    /// The service that sent it.
    pub far_service: String,
    /// The contract of its conversation.
    pub service_contract_name: String,
    /// The side that received it.
    pub conversation_handle: ConversationHandle,
    /// The conversation.
    pub conversation_id: ConversationId,
    /// The group of that side.
    pub conversation_group_id: GroupId,
    /// Whether it can be redriven: that side has not ended.
    pub is_conversation_open: bool,
    /// Its place in the conversation.
    pub message_sequence_number: i64,
    /// Its level, 1 to 10.
    pub priority: u64,
    /// Its type.
    pub message_type_name: String,
    /// Its id.
    pub message_id: MessageId,
    /// When it arrived. Serializes as UTC text with milliseconds.
    pub message_enqueue_time: Timestamp,
    /// When it died.
    pub died_at: Timestamp,
    /// How often it was received.
    pub attempts: u64,
    /// Why the last attempt failed, if its caller said so.
    pub reason: Option<String>,
    /// Its body, as far as it was read.
    #[serde(flatten)]
    pub body: PeekedBody,
}

/// What became of a redrive of many.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Redriven {
    /// How many went back to their queues.
    pub redriven: u64,
    /// How many stay, because their conversation has ended.
    pub ended: u64,
    /// How many were redriven or purged by others meanwhile.
    pub gone: u64,
    /// How many were left alone, because a session held them or their conversation group for too long.
    pub held: u64,
}

impl Broker {
    /// Dead letters in the order in which their messages arrived, at most `top`, with at most `body_bytes` of each body. No
    /// lock is taken.
    ///
    /// # Errors
    /// Those of [`Broker::query`].
    pub async fn dead_letters(&self, filter: &DeadLetterFilter, top: u32, body_bytes: u32) -> Result<Vec<DeadLetter>> {
        self.dead_letters_of(filter, None, top, body_bytes).await
    }

    /// The same, only that of one message if an id is given.
    pub(super) async fn dead_letters_of(
        &self,
        filter: &DeadLetterFilter,
        message: Option<MessageId>,
        top: u32,
        body_bytes: u32,
    ) -> Result<Vec<DeadLetter>> {
        let text = |text: Option<String>| text.map_or(SqlValue::Null, SqlValue::Text);
        let number = |number: Option<i64>| number.map_or(SqlValue::Null, SqlValue::Integer);
        let DeadLetterFilter { letter, queue, service, message_type, conversation, before } = filter;
        let params = vec![
            text(queue.clone()),
            text(service.clone()),
            text(message_type.clone()),
            text(conversation.map(|handle| handle.to_string())),
            number(letter.map(|letter| i64::try_from(letter.0).unwrap_or(i64::MAX))),
            number(before.map(|before| before.0)),
            SqlValue::Integer(i64::from(body_bytes.min(i32::MAX as u32))),
            SqlValue::Integer(i64::from(top.clamp(1, MOST_DEAD_LETTERS))),
            text(message.map(|id| id.0.to_string())),
        ];
        let query = self.shared_store().texts().inspect.dead_letters;
        self.query_own(query, params).await?.rows.iter().map(dead_letter).collect()
    }

    /// Redrives the dead letters of a filter, in the order in which they arrived, one commit each: see
    /// [`Act::redrive_dead_letter`]. Those whose conversation has ended stay. It waits at most five seconds for a
    /// conversation group that a session holds, and briefly for others once it has waited for half a minute. At most [`MOST_DEAD_LETTERS`] at a time.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> dialoq::Result<()> {
    /// # use dialoq::{Act, status::DeadLetterFilter};
    /// # let broker = dialoq::testing::TestBroker::in_memory().await?;
    /// broker.execute("CREATE QUEUE q WITH RETRY (MAX_ATTEMPTS = 1, THEN = DEAD_LETTER); CREATE SERVICE s ON QUEUE q ([DEFAULT])").await?;
    /// let dialog = broker.begin_dialog("s", "s").await?;
    /// broker.send(dialog, "DEFAULT", "x").await?;
    /// let tx = broker.begin().await?;
    /// tx.receive("q").await?;
    /// tx.rollback().await?;
    /// let filter = DeadLetterFilter { queue: Some("q".into()), ..DeadLetterFilter::default() };
    /// assert_eq!(broker.dead_letters(&filter, 10, 1024).await?[0].body.bytes, b"x");
    /// assert_eq!(broker.redrive_dead_letters(&filter).await?.redriven, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of the store; then letters before the failure are redriven.
    pub async fn redrive_dead_letters(&self, filter: &DeadLetterFilter) -> Result<Redriven> {
        let mut done = Redriven::default();
        self.redrive_letters(&self.dead_letters(filter, MOST_DEAD_LETTERS, 0).await?, &mut done).await?;
        Ok(done)
    }

    /// The same for the letters of a preview, as [`Broker::end_sides`].
    pub(crate) async fn redrive_letters(&self, letters: &[DeadLetter], done: &mut Redriven) -> Result<()> {
        let mut held = HeldGroups::default();
        for letter in letters {
            if !letter.is_conversation_open {
                done.ended += 1;
                continue;
            }
            let group = letter.conversation_group_id;
            let Some(wait) = held.wait_for(group) else {
                done.held += 1;
                continue;
            };
            let redrive = Verb::RedriveDeadLetter { letter: letter.dead_letter_id };
            // In a transaction: a call that is given up may still happen on a server, once the lock is free.
            let tx = self.begin().await?;
            let Ok(redriven) = tokio::time::timeout(wait, tx.perform(redrive)).await else {
                done.held += 1;
                held.note(group, wait);
                continue;
            };
            let redriven = match redriven {
                Ok(_) => tx.commit().await,
                Err(error) => Err(error),
            };
            match redriven {
                Ok(()) => done.redriven += 1,
                Err(error) if error.code() == Code::DEAD_LETTER_WITHOUT_CONVERSATION => done.ended += 1,
                Err(error) if error.code() == Code::DEAD_LETTER_NOT_FOUND => done.gone += 1,
                Err(error) if error.is_retryable() => done.held += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Removes the dead letters of a filter for good, one commit each. Returns how many; those that another transaction
    /// redrives or purges meanwhile are left out. At most [`MOST_DEAD_LETTERS`] at a time.
    ///
    /// # Errors
    /// Those of the store; then letters before the failure are purged.
    pub async fn purge_dead_letters(&self, filter: &DeadLetterFilter) -> Result<u64> {
        let mut purged = 0;
        self.purge_letters(&self.dead_letters(filter, MOST_DEAD_LETTERS, 0).await?, &mut purged).await?;
        Ok(purged)
    }

    /// The same for the letters of a preview, as [`Broker::end_sides`].
    pub(crate) async fn purge_letters(&self, letters: &[DeadLetter], purged: &mut u64) -> Result<()> {
        for letter in letters {
            match self.purge_dead_letter(letter.dead_letter_id).await {
                Ok(()) => *purged += 1,
                Err(error) if [Code::DEAD_LETTER_NOT_FOUND, Code::DEAD_LETTER_LOCKED].contains(&error.code()) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

fn dead_letter(row: &SqlRow) -> Result<DeadLetter> {
    Ok(DeadLetter {
        dead_letter_id: DeadLetterId(row.count("dead_letter_id")?),
        queue: row.own("queue_name")?,
        service_name: row.own("service_name")?,
        far_service: row.own("far_service_name")?,
        service_contract_name: row.own("service_contract_name")?,
        conversation_handle: row.own("conversation_handle")?,
        conversation_id: row.own("conversation_id")?,
        conversation_group_id: row.own("conversation_group_id")?,
        is_conversation_open: row.own("is_conversation_open")?,
        message_sequence_number: row.own("sequence")?,
        priority: row.count("priority")?,
        message_type_name: row.own::<Option<String>>("message_type_name")?.unwrap_or_default(),
        message_id: row.own("message_id")?,
        message_enqueue_time: row.own("enqueued_at")?,
        died_at: row.own("died_at")?,
        attempts: row.count("attempts")?,
        reason: row.own("reason")?,
        body: PeekedBody::read(row)?,
    })
}
