//! Messages seen without receiving them.

use super::QueueOff;
use super::names::NameKind;
use crate::broker::Broker;
use crate::error::{Error, Result};
use crate::id::{ConversationHandle, GroupId, MessageId};
use crate::jsonl::{BodyText, to_base64};
use crate::protocol::system;
use crate::store::{SqlRow, SqlValue};
use crate::time::Timestamp;
use serde::Serialize;
use serde::ser::{SerializeStruct, Serializer};

/// The most messages of one answer.
pub const MOST_MESSAGES: u32 = 10_000;
/// The most bytes of the body of a message in an answer, if nothing else is asked for.
pub const SHOWN_BODY_BYTES: u32 = 16 << 10;

/// Which messages of a queue are meant; the default is all that wait.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MessageFilter {
    /// Of this conversation.
    pub conversation: Option<ConversationHandle>,
    /// Of this message type.
    pub message_type: Option<String>,
    /// Of this service.
    pub service: Option<String>,
    /// Arrived before this moment.
    pub before: Option<Timestamp>,
    /// Also those that RETENTION keeps: received ones, and copies of those sent.
    pub with_kept: bool,
}

/// The state of a message in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MessageState {
    /// It waits for a RECEIVE.
    Waiting,
    /// Its conversation group is quarantined.
    Quarantined,
    /// Its conversation group pauses after a rollback, as the RETRY of the queue says.
    Pausing,
    /// It was received, and RETENTION keeps it.
    Received,
    /// A copy of a message that was sent, which RETENTION keeps.
    Sent,
}

/// The body of a message as far as it was read. Serializes as `body` (text, or null for none) or `body_base64`, with
/// `body_bytes`, its whole length, and `is_body_cut`. Where the text was in UTF-16, `body_encoding` says in which form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeekedBody {
    /// Its first bytes; empty if there is no body.
    pub bytes: Vec<u8>,
    /// Its whole length.
    pub length: u64,
}

impl PeekedBody {
    /// Whether there are more bytes than were read.
    pub fn is_cut(&self) -> bool {
        self.length > self.bytes.len() as u64
    }

    /// The first bytes without the last character of a text that was cut in its middle.
    fn whole_characters(&self) -> &[u8] {
        match std::str::from_utf8(&self.bytes) {
            Err(error) if self.is_cut() && error.error_len().is_none() => &self.bytes[..error.valid_up_to()],
            _ => &self.bytes,
        }
    }

    /// What the bytes are: text, or something else.
    pub fn text(&self) -> BodyText<'_> {
        BodyText::of(Some(self.whole_characters()))
    }

    pub(super) fn read(row: &SqlRow) -> Result<Self> {
        let bytes = row.own::<Option<Vec<u8>>>("body")?.unwrap_or_default();
        Ok(Self { bytes, length: row.count("body_bytes")? })
    }
}

impl Serialize for PeekedBody {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_struct("PeekedBody", 4)?;
        match self.text() {
            BodyText::Absent => map.serialize_field("body", &())?,
            BodyText::Text(text) => map.serialize_field("body", text)?,
            BodyText::Utf16(text, form) => {
                map.serialize_field("body", &text)?;
                map.serialize_field("body_encoding", &form)?;
            }
            BodyText::Binary(bytes) => map.serialize_field("body_base64", &to_base64(bytes))?,
        }
        map.serialize_field("body_bytes", &self.length)?;
        map.serialize_field("is_body_cut", &self.is_cut())?;
        map.end()
    }
}

/// A message in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PeekedMessage {
    /// Its queue.
    pub queue: String,
    /// Its state.
    pub state: MessageState,
    /// Its level, 1 to 10.
    pub priority: u64,
    /// Its place in the order of arrival.
    pub queuing_order: i64,
    /// Its conversation group.
    pub conversation_group_id: GroupId,
    /// The side that receives it.
    pub conversation_handle: ConversationHandle,
    /// Its place in the conversation.
    pub message_sequence_number: i64,
    /// The service it is for.
    pub service_name: String,
    /// The contract of its conversation.
    pub service_contract_name: Option<String>,
    /// Its type.
    pub message_type_name: String,
    /// Its id.
    pub message_id: MessageId,
    /// When it arrived. Serializes as UTC text with milliseconds.
    pub message_enqueue_time: Timestamp,
    /// Its body, as far as it was read.
    #[serde(flatten)]
    pub body: PeekedBody,
    /// Code and text of an Error message.
    pub error: Option<PeekedError>,
}

/// The content of an Error message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PeekedError {
    /// Below zero if the broker made it.
    pub code: i32,
    /// What went wrong.
    pub description: String,
}

/// A message that waits to be delivered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WaitingMessage {
    /// The side that sent it.
    pub conversation_handle: ConversationHandle,
    /// The service of that side.
    pub from_service_name: Option<String>,
    /// The service it is for.
    pub to_service_name: String,
    /// Its level, 1 to 10.
    pub priority: u64,
    /// Its place in the conversation.
    pub message_sequence_number: i64,
    /// Its type.
    pub message_type_name: Option<String>,
    /// Its id.
    pub message_id: MessageId,
    /// Whether it is the end of the conversation.
    pub is_end_of_dialog: bool,
    /// Whether it is an Error.
    pub is_conversation_error: bool,
    /// Since when it waits. Serializes as UTC text with milliseconds.
    pub since: Timestamp,
    /// Why; empty behind an earlier message of its conversation.
    pub transmission_status: String,
    /// Its body, as far as it was read.
    #[serde(flatten)]
    pub body: PeekedBody,
}

/// What the head of a queue looks like.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Peek {
    /// The queue, as declared.
    pub queue: String,
    /// Whether RECEIVE is allowed.
    pub is_receive_enabled: bool,
    /// Why the queue is off, and since when; `None` while it is on, and if an earlier version of Dialoq turned it off.
    pub off: Option<QueueOff>,
    /// The messages, those that RECEIVE gives first at the top. Groups that other sessions hold are passed over by RECEIVE,
    /// but not here.
    pub messages: Vec<PeekedMessage>,
    /// Whether there are more than were asked for.
    pub has_more: bool,
}

impl Broker {
    /// The messages of a queue, without receiving them: also of a queue that is off, and of groups that a session holds.
    /// At most `top`, with at most `body_bytes` of each body. No lock is taken.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> dialoq::Result<()> {
    /// # use dialoq::{Act, status::MessageFilter};
    /// # let broker = dialoq::testing::TestBroker::in_memory().await?;
    /// broker.execute("CREATE QUEUE q; CREATE SERVICE s ON QUEUE q ([DEFAULT])").await?;
    /// let dialog = broker.begin_dialog("s", "s").await?;
    /// broker.send(dialog, "DEFAULT", "x").await?;
    /// let peek = broker.peek("q", &MessageFilter::default(), 10, 1024).await?;
    /// assert_eq!(peek.messages[0].body.bytes, b"x");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// 60002 no such queue; else those of [`Broker::query`].
    pub async fn peek(&self, queue: &str, filter: &MessageFilter, top: u32, body_bytes: u32) -> Result<Peek> {
        let catalog = self.catalog();
        let found = catalog.queue(queue).ok_or_else(|| self.unknown(NameKind::Queue, queue))?;
        let top = top.clamp(1, MOST_MESSAGES);
        let mut messages = self.messages(Some(&found.name), filter, None, top + 1, body_bytes).await?;
        let has_more = messages.len() > top as usize;
        messages.truncate(top as usize);
        Ok(Peek {
            queue: found.name.to_string(),
            is_receive_enabled: found.is_receive_enabled,
            off: found.off.as_ref().and_then(|off| {
                Some(QueueOff { since: off.since?, by: off.by, reason: off.reason.as_deref().map(str::to_owned) })
            }),
            messages,
            has_more,
        })
    }

    /// 60002
    pub(super) fn unknown(&self, kind: NameKind, name: &str) -> Error {
        Error::object_not_found(kind.words(), name)
    }

    pub(super) async fn messages(
        &self,
        queue: Option<&str>,
        filter: &MessageFilter,
        message: Option<MessageId>,
        top: u32,
        body_bytes: u32,
    ) -> Result<Vec<PeekedMessage>> {
        let conversations = filter.conversation.map(|handle| handle.to_string());
        self.messages_of(conversations, queue, filter, message, top, body_bytes).await
    }

    /// The same of the conversations in a list of handles, which stand for that of the filter.
    pub(super) async fn messages_of(
        &self,
        conversations: Option<String>,
        queue: Option<&str>,
        filter: &MessageFilter,
        message: Option<MessageId>,
        top: u32,
        body_bytes: u32,
    ) -> Result<Vec<PeekedMessage>> {
        let text = |text: Option<String>| text.map_or(SqlValue::Null, SqlValue::Text);
        let params = vec![
            text(queue.map(str::to_owned)),
            text(conversations),
            text(filter.message_type.clone()),
            text(message.map(|id| id.0.to_string())),
            SqlValue::Integer(i64::from(filter.with_kept)),
            SqlValue::Integer(i64::from(body_bytes.min(i32::MAX as u32))),
            SqlValue::Integer(i64::from(top)),
            filter.before.map_or(SqlValue::Null, |before| SqlValue::Integer(before.0)),
            text(filter.service.clone()),
        ];
        let query = self.shared_store().texts().inspect.messages;
        self.query_own(query, params).await?.rows.iter().map(peeked).collect()
    }

    pub(super) async fn undelivered(
        &self,
        conversation: Option<ConversationHandle>,
        message: Option<MessageId>,
        top: u32,
        body_bytes: u32,
    ) -> Result<Vec<WaitingMessage>> {
        let text = |text: Option<String>| text.map_or(SqlValue::Null, SqlValue::Text);
        let params = vec![
            text(conversation.map(|handle| handle.to_string())),
            text(message.map(|id| id.0.to_string())),
            SqlValue::Integer(i64::from(body_bytes.min(i32::MAX as u32))),
            SqlValue::Integer(i64::from(top)),
        ];
        let query = self.shared_store().texts().inspect.undelivered;
        self.query_own(query, params).await?.rows.iter().map(waiting).collect()
    }
}

fn peeked(row: &SqlRow) -> Result<PeekedMessage> {
    let message_type_name = row.own::<Option<String>>("message_type_name")?.unwrap_or_default();
    let body = PeekedBody::read(row)?;
    let error = (message_type_name == system::ERROR).then(|| system::parse_error_body(&body.bytes)).flatten();
    Ok(PeekedMessage {
        queue: row.own("queue_name")?,
        state: match row.own::<i64>("status")? {
            0 => MessageState::Received,
            3 => MessageState::Sent,
            _ if row.own::<bool>("is_quarantined")? => match row.own::<Option<Timestamp>>("retry_at")? {
                Some(_) => MessageState::Pausing,
                None => MessageState::Quarantined,
            },
            _ => MessageState::Waiting,
        },
        priority: row.count("priority")?,
        queuing_order: row.own("queuing_order")?,
        conversation_group_id: row.own("conversation_group_id")?,
        conversation_handle: row.own("conversation_handle")?,
        message_sequence_number: row.own("sequence")?,
        service_name: row.own("service_name")?,
        service_contract_name: row.own("service_contract_name")?,
        message_type_name,
        message_id: row.own("message_id")?,
        message_enqueue_time: row.own("enqueued_at")?,
        error: error.map(|(code, description)| PeekedError { code, description }),
        body,
    })
}

fn waiting(row: &SqlRow) -> Result<WaitingMessage> {
    Ok(WaitingMessage {
        conversation_handle: row.own("conversation_handle")?,
        from_service_name: row.own("from_service")?,
        to_service_name: row.own("to_service")?,
        priority: row.count("priority")?,
        message_sequence_number: row.own("sequence")?,
        message_type_name: row.own("message_type_name")?,
        message_id: row.own("message_id")?,
        is_end_of_dialog: row.own("is_end_of_dialog")?,
        is_conversation_error: row.own("is_conversation_error")?,
        since: row.own("enqueued_at")?,
        transmission_status: row.own::<Option<String>>("transmission_status")?.unwrap_or_default(),
        body: PeekedBody::read(row)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sent on, such a body had half its bytes.
    #[test]
    fn the_encoding_of_a_body_is_serialized_with_its_text() {
        let json = |bytes: &[u8]| {
            let body = PeekedBody { bytes: bytes.to_vec(), length: bytes.len() as u64 };
            serde_json::to_value(body).unwrap()
        };
        let utf16 = json(b"h\0i\0");
        assert_eq!((&utf16["body"], &utf16["body_encoding"]), (&"hi".into(), &"utf-16le".into()), "{utf16}");
        let utf8 = json(b"hi");
        assert!(utf8["body"] == "hi" && utf8.get("body_encoding").is_none(), "{utf8}");
        let line = serde_json::json!({ "body": utf16["body"], "body_encoding": utf16["body_encoding"] });
        let line = crate::jsonl::SendLine::parse(&line.to_string()).unwrap();
        assert_eq!(line.body.as_deref(), Some(&b"h\0i\0"[..]));
    }
}
