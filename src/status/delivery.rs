//! What became of messages that were sent: delivered, waiting and why, or refused and why.

use super::names::NameKind;
use super::read;
use crate::act::Dialog;
use crate::broker::Broker;
use crate::catalog::OffBy;
use crate::error::Result;
use crate::id::{ConversationHandle, ConversationId};
use crate::protocol::{ConversationState, system};
use crate::store::SqlRow;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt;
use uuid::Uuid;

/// The most conversations of one query.
const AT_ONCE: usize = 1_000;

/// A conversation that was sent on: a handle, or a [`Dialog`] begun. Only the latter is found again after it was ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SentOn {
    /// The sender's side.
    pub handle: ConversationHandle,
    /// What both sides share, if it is known.
    pub conversation_id: Option<ConversationId>,
}

impl From<ConversationHandle> for SentOn {
    fn from(handle: ConversationHandle) -> Self {
        Self { handle, conversation_id: None }
    }
}

impl From<Dialog> for SentOn {
    fn from(dialog: Dialog) -> Self {
        Self { handle: dialog.handle, conversation_id: Some(dialog.conversation_id) }
    }
}

/// What became of the messages of one conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Delivery {
    /// The sender's side.
    pub conversation_handle: ConversationHandle,
    /// What became of them.
    #[serde(flatten)]
    pub outcome: DeliveryOutcome,
}

/// What became of messages that were sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[non_exhaustive]
pub enum DeliveryOutcome {
    /// All of them have left for the target's queue.
    Delivered,
    /// Some wait in the transmission queue.
    Waits {
        /// The number of the reason, such as 9793; `None` while the reason is not known.
        code: Option<i32>,
        /// The reason, as [`transmission_status`](crate::Act::transmission_status) gives it.
        reason: String,
        /// What is probably meant, or what to do.
        hint: Option<String>,
        /// How many wait.
        messages: u64,
        /// Whether this looks like a mistake of the sender: nothing will move it unless a name or a definition changes.
        is_mistake: bool,
    },
    /// The broker refused them: this side has got an Error message, or has ended before it could.
    Refused {
        /// The code of the Error, such as -8408; `None` if its message is gone already.
        code: Option<i32>,
        /// What the Error says.
        text: String,
        /// What is probably meant, or what to do.
        hint: Option<String>,
    },
}

impl fmt::Display for DeliveryOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hint = match self {
            Self::Delivered => return f.write_str("delivered"),
            Self::Waits { reason, hint, .. } => {
                write!(f, "waits in the transmission queue: {reason}")?;
                hint
            }
            Self::Refused { code: Some(code), text, hint } => {
                write!(f, "refused with Error {code}: {text}")?;
                hint
            }
            Self::Refused { code: None, text, hint } => {
                write!(f, "refused: {text}")?;
                hint
            }
        };
        hint.as_ref().map_or(Ok(()), |hint| write!(f, "; {hint}"))
    }
}

/// One side as the query gives it.
struct Side {
    handle: Uuid,
    conversation_id: Uuid,
    state: ConversationState,
    service: String,
    far_service: String,
    contract: String,
    undelivered: u64,
    status: String,
}

impl Side {
    fn read(row: &SqlRow) -> Result<Self> {
        let text = |column| Ok::<_, crate::Error>(row.own::<Option<String>>(column)?.unwrap_or_default());
        Ok(Self {
            handle: row.own("conversation_handle")?,
            conversation_id: row.own("conversation_id")?,
            state: read::state(row)?,
            service: text("service_name")?,
            far_service: text("far_service")?,
            contract: text("service_contract_name")?,
            undelivered: row.count("undelivered")?,
            status: text("transmission_status")?,
        })
    }
}

/// The advice for a message whose reason is over, as the definitions are now.
const OVER: &str = "that is over: it is delivered by a process that has the broker open for changes";

impl Broker {
    /// What became of the messages sent on these conversations: for a look after the commit. One query answers for up to
    /// a thousand conversations; no lock is taken.
    ///
    /// A conversation that the application of the other side ended with an error of its own counts as delivered. So does
    /// one whose both sides are gone, if it was not begun here.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> dialoq::Result<()> {
    /// use dialoq::{Act, status::DeliveryOutcome};
    /// # let broker = dialoq::testing::TestBroker::in_memory().await?;
    /// broker.execute("CREATE QUEUE q; CREATE SERVICE Checkout ON QUEUE q; CREATE SERVICE Orders ON QUEUE q ([DEFAULT])").await?;
    /// let dialog = broker.begin_dialog("Checkout", "Ordrs").with_ids().await?;
    /// broker.send(dialog.handle, "DEFAULT", "an order").await?;
    /// let delivery = &broker.deliveries([dialog]).await?[0];
    /// assert!(matches!(delivery.outcome, DeliveryOutcome::Waits { code: Some(9793), is_mistake: true, .. }));
    /// assert!(delivery.outcome.to_string().contains("did you mean 'Orders'?"));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Broker::query`].
    pub async fn deliveries(
        &self,
        conversations: impl IntoIterator<Item = impl Into<SentOn>>,
    ) -> Result<Vec<Delivery>> {
        let conversations: Vec<SentOn> = conversations.into_iter().map(Into::into).collect();
        let mut deliveries = Vec::with_capacity(conversations.len());
        for some in conversations.chunks(AT_ONCE) {
            deliveries.extend(self.some_deliveries(some).await?);
        }
        Ok(deliveries)
    }

    async fn some_deliveries(&self, conversations: &[SentOn]) -> Result<Vec<Delivery>> {
        let texts = &self.shared_store().texts().inspect;
        let shared = conversations.iter().filter_map(|sent| sent.conversation_id.as_ref()).map(|id| &id.0);
        let ids = read::list(conversations.iter().map(|sent| &sent.handle.0).chain(shared));
        let rows = self.query_own(texts.deliveries, (ids,)).await?.rows;
        let sides: Vec<Side> = rows.iter().map(Side::read).collect::<Result<_>>()?;
        let own: HashMap<Uuid, &Side> = sides.iter().map(|side| (side.handle, side)).collect();
        let mut by_conversation: HashMap<Uuid, &Side> = HashMap::new();
        let handles: HashMap<Uuid, ()> = conversations.iter().map(|sent| (sent.handle.0, ())).collect();
        for side in sides.iter().filter(|side| !handles.contains_key(&side.handle)) {
            by_conversation.insert(side.conversation_id, side);
        }
        let broken = sides.iter().filter(|side| side.state == ConversationState::Error);
        let errors = self.error_texts(broken.map(|side| side.handle).collect()).await?;
        Ok(conversations
            .iter()
            .map(|sent| {
                let own = own.get(&sent.handle.0).copied();
                let peer = sent.conversation_id.and_then(|id| by_conversation.get(&id.0)).copied();
                let outcome = self.outcome(sent, own, peer, &errors);
                Delivery { conversation_handle: sent.handle, outcome }
            })
            .collect())
    }

    /// Code and text of the Error messages that these sides hold.
    pub(super) async fn error_texts(&self, sides: Vec<Uuid>) -> Result<HashMap<Uuid, (i32, String)>> {
        let mut errors = HashMap::new();
        if sides.is_empty() {
            return Ok(errors);
        }
        let text = self.shared_store().texts().inspect.errors;
        for row in self.query_own(text, (read::list(&sides),)).await?.rows {
            let body: Option<Vec<u8>> = row.own("body")?;
            if let Some(error) = body.and_then(|body| system::parse_error_body(&body)) {
                errors.insert(row.own("conversation_handle")?, error);
            }
        }
        Ok(errors)
    }

    fn outcome(
        &self,
        sent: &SentOn,
        own: Option<&Side>,
        peer: Option<&Side>,
        errors: &HashMap<Uuid, (i32, String)>,
    ) -> DeliveryOutcome {
        let Some(own) = own else {
            // This side has ended and is gone. If the broker refused the first message, the other side never was, or holds
            // the Error itself.
            return match peer.map(|peer| (peer, errors.get(&peer.handle))) {
                Some((peer, Some((code, text)))) if *code < 0 => DeliveryOutcome::Refused {
                    code: Some(*code),
                    text: text.clone(),
                    hint: self.refusal_hint(*code, &peer.service, &peer.contract),
                },
                None if sent.conversation_id.is_some() => DeliveryOutcome::Refused {
                    code: None,
                    text: "the conversation was ended here, and the other side does not exist".to_owned(),
                    hint: Some("send without ending to see the Error message".to_owned()),
                },
                _ => DeliveryOutcome::Delivered,
            };
        };
        if own.state == ConversationState::Error {
            return match errors.get(&own.handle) {
                Some((code, _)) if *code > 0 => DeliveryOutcome::Delivered,
                Some((code, text)) => DeliveryOutcome::Refused {
                    code: Some(*code),
                    text: text.clone(),
                    hint: self.refusal_hint(*code, &own.far_service, &own.contract),
                },
                None => DeliveryOutcome::Refused {
                    code: None,
                    text: "the conversation is in error, and its Error message was received already".to_owned(),
                    hint: None,
                },
            };
        }
        if own.undelivered == 0 {
            return DeliveryOutcome::Delivered;
        }
        let code = own.status.split(':').next().and_then(|code| code.trim().parse().ok());
        let reason =
            if own.status.is_empty() { "delivery has not been tried yet".to_owned() } else { own.status.clone() };
        let (hint, is_mistake) = self.waiting_hint(code, &own.far_service);
        DeliveryOutcome::Waits { code, reason, hint, messages: own.undelivered, is_mistake }
    }

    /// What is probably meant by a message that waits, and whether it looks like a mistake.
    pub(super) fn waiting_hint(&self, code: Option<i32>, to: &str) -> (Option<String>, bool) {
        match code {
            Some(9793) => {
                let hint = match self.did_you_mean(NameKind::Service, to) {
                    Some(name) => format!("no service '{to}'; did you mean '{name}'?"),
                    None => format!("no service '{to}'; create it, or name one that `dialoq dump` shows"),
                };
                (Some(hint), true)
            }
            Some(9750) => (Some("leave the broker instance out, or name this broker's own GUID".to_owned()), true),
            Some(9791) if self.catalog().settings.is_broker_enabled => (Some(OVER.to_owned()), false),
            Some(9791) => (Some("ALTER DATABASE CURRENT SET ENABLE_BROKER delivers it".to_owned()), false),
            Some(11219) => (self.off_hint(to), false),
            _ => (None, false),
        }
    }

    fn off_hint(&self, to: &str) -> Option<String> {
        let catalog = self.catalog();
        let service = catalog.service(to)?;
        let queue = catalog.queues.get(&service.queue_id)?;
        if queue.is_enqueue_enabled {
            return Some(OVER.to_owned());
        }
        let why = match &queue.off {
            None => String::new(),
            Some(off) => {
                let since = off.since.map_or_else(String::new, |since| format!(" since {since}"));
                match (off.by, &off.reason) {
                    (OffBy::Poison, _) => format!(", off{since} by poison handling,"),
                    (OffBy::Statement, Some(reason)) => format!(", off{since}: {reason},"),
                    (OffBy::Statement, None) => format!(", off{since} by a statement,"),
                }
            }
        };
        Some(format!("it is delivered when queue '{}'{why} is turned on", queue.name))
    }

    /// What is probably meant by a message that was refused.
    fn refusal_hint(&self, code: i32, to: &str, contract: &str) -> Option<String> {
        let catalog = self.catalog();
        match code {
            -8408 => {
                let service = catalog.service(to)?;
                let accepted = service.contract_ids.iter().filter_map(|id| catalog.contracts.get(id));
                let names: Vec<String> = accepted.map(|contract| format!("'{}'", contract.name)).collect();
                Some(match names.as_slice() {
                    [] => format!("service '{to}' accepts no contract: it can only begin conversations"),
                    names => format!(
                        "service '{to}' accepts {}: begin the conversation with {} (--contract), not with '{contract}'",
                        names.join(", "),
                        if names.len() == 1 { "that contract" } else { "one of those contracts" },
                    ),
                })
            }
            -8430 | -9615 => {
                Some("the body does not have the form that the VALIDATION of its message type asks for".to_owned())
            }
            -8490 => self
                .did_you_mean(NameKind::Service, to)
                .map(|name| format!("no service '{to}'; did you mean '{name}'?")),
            _ => None,
        }
    }
}
