//! The table of verbs: what callers, SQL, traces and documentation have in common, once for each verb.
//!
//! From a row follow the call of its routine on a database and the reading of the result, its span and its name in
//! counters, and its section in `docs/verbs.md`. Who may call a routine stands in the routine's own SQL file.

pub use super::outcome::ResultForm;
use super::verb::{Body, Verb};
use crate::id::ConversationHandle;
use tracing::{Span, debug_span};
use uuid::Uuid;

/// One row of the table: a routine of schema `dialoq`, which does one verb.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// The routine's name, which is also the verb's in spans and counters.
    pub name: &'static str,
    /// Service Broker's statement, or what a statement of ours does.
    pub statement: &'static str,
    /// The arguments in the routine's order, with their types.
    pub arguments: &'static [(&'static str, &'static str)],
    /// What it gives.
    pub gives: ResultForm,
    /// The numbers of the refusals it may give, ascending; failures of a store are not listed.
    pub errors: &'static [u16],
    /// Whether it changes and locks nothing, so that it may be repeated after a lost answer.
    pub reads_only: bool,
    /// The routine that does many calls of different callers at once, if there is one.
    pub batch: Option<&'static str>,
}

/// The value of an argument; `None` is NULL.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// A handle, group or other id.
    Uuid(Option<Uuid>),
    /// An id that the caller makes for what the verb makes: the place in its list of new ids.
    NewId(usize),
    /// A truth value.
    Bool(bool),
    /// A number of 32 bits.
    Int(Option<i32>),
    /// A number of 64 bits.
    BigInt(Option<i64>),
    /// A text.
    Text(Option<&'a str>),
    /// The name of a queue, which is compared without regard to case.
    Queue(&'a str),
    /// A message body.
    Bytes(&'a Body),
    /// Many conversations.
    Handles(&'a [ConversationHandle]),
    /// What is wrong with the body, found by the caller's check of it: empty for nothing.
    BodyFault,
    /// The version of the definitions that the check went by.
    CatalogVersion,
}

impl Value<'_> {
    /// As a span shows it; `None` for what spans leave out.
    fn shown(&self) -> Option<String> {
        match self {
            Self::Uuid(id) => id.map(|id| id.to_string()),
            Self::Bool(value) => Some(value.to_string()),
            Self::Int(value) => value.map(|value| value.to_string()),
            Self::BigInt(value) => value.map(|value| value.to_string()),
            Self::Text(text) => text.map(str::to_owned),
            Self::Queue(name) => Some((*name).to_owned()),
            Self::Bytes(body) => body.as_ref().map(|body| format!("{} bytes", body.len())),
            Self::Handles(handles) => Some(format!("{} conversations", handles.len())),
            Self::NewId(_) | Self::BodyFault | Self::CatalogVersion => None,
        }
    }
}

/// SQL's name for the type of a kind of value, as PostgreSQL spells it.
macro_rules! sql_type {
    (Uuid) => {
        "uuid"
    };
    (NewId) => {
        "uuid"
    };
    (Bool) => {
        "boolean"
    };
    (Int) => {
        "integer"
    };
    (BigInt) => {
        "bigint"
    };
    (Text) => {
        "text"
    };
    (Queue) => {
        "text"
    };
    (Bytes) => {
        "bytea"
    };
    (Handles) => {
        "uuid[]"
    };
    (BodyFault) => {
        "text"
    };
    (CatalogVersion) => {
        "bigint"
    };
}

macro_rules! verbs {
    ($(
        $constant:ident = $name:literal, $statement:literal:
        $pattern:pat $(if $guard:expr)?
            => ($($argument:ident $kind:ident $(($value:expr))?),*)
        -> $gives:expr, [$($error:literal),*], $flag:ident $(($batch:literal))?;
    )*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $statement)]
            pub const $constant: Declaration = Declaration {
                name: $name,
                statement: $statement,
                arguments: &[$((stringify!($argument), sql_type!($kind))),*],
                gives: $gives,
                errors: &[$($error),*],
                reads_only: verbs!(@reads $flag),
                batch: verbs!(@batch $flag $($batch)?),
            };
        )*

        /// All of them.
        pub const VERBS: &[Declaration] = &[$($constant),*];

        impl Verb {
            /// The verb's row in the table.
            #[doc(hidden)]
            pub fn declaration(&self) -> &'static Declaration {
                #[allow(unused_variables, reason = "a row names what its arguments need")]
                match self {
                    $($pattern $(if $guard)? => &$constant,)*
                }
            }

            /// The values of its arguments, in the order of the declaration.
            #[doc(hidden)]
            pub fn arguments(&self) -> Vec<Value<'_>> {
                match self {
                    $($pattern $(if $guard)? => vec![$(Value::$kind $(($value.into()))?),*],)*
                }
            }

            /// The span of the verb, at level debug, with its arguments as fields.
            pub(crate) fn span(&self) -> Span {
                match self {
                    $($pattern $(if $guard)? => debug_span!(
                        $name $(, $argument = crate::protocol::declared::Value::$kind $(($value.into()))?.shown())*
                    ),)*
                }
            }
        }
    };
    (@reads reads_only) => { true };
    (@reads $other:ident) => { false };
    (@batch batched $name:literal) => { Some($name) };
    (@batch $other:ident) => { None };
}

verbs! {
    BEGIN_DIALOG_CONVERSATION = "begin_dialog_conversation", "BEGIN DIALOG CONVERSATION":
    Verb::BeginDialog(dialog) => (
        from_service Text(&*dialog.from_service), to_service Text(&*dialog.to_service),
        broker_instance Text(dialog.addressee.instance()), contract Text(dialog.contract()),
        related_conversation Uuid(dialog.related.conversation()), related_group Uuid(dialog.related.group()),
        lifetime_seconds BigInt(dialog.lifetime_seconds), encryption Bool(dialog.encryption),
        conversation_handle NewId(1usize), conversation_id NewId(2usize), conversation_group_id NewId(0usize)
    ) -> ResultForm::Began, [8411, 8412, 8413, 8414, 8423, 8425, 8426, 9601, 9610, 60005], alone;

    SEND = "send", "SEND ON CONVERSATION, one conversation":
    Verb::Send { handles, message_type, body, trace } if handles.len() == 1 => (
        conversation_handle Uuid(handles[0].0), message_type_name Text(type_name(message_type)),
        message_body Bytes(body), trace Text(trace.as_deref()), body_fault BodyFault, catalog_version CatalogVersion,
        message_id NewId(0usize)
    ) -> ResultForm::Nothing, [8426, 8428, 8429, 8431, 8432, 8434, 8459, 9618, 60005, 60026, 60033], batched("send_batch");

    SEND_MANY = "send_many", "SEND ON CONVERSATION, one message on many conversations: on all of them or on none":
    Verb::Send { handles, message_type, body, trace } => (
        conversation_handles Handles(&handles[..]), message_type_name Text(type_name(message_type)),
        message_body Bytes(body), trace Text(trace.as_deref()), body_fault BodyFault, catalog_version CatalogVersion
    ) -> ResultForm::Nothing,
        [8418, 8426, 8428, 8429, 8431, 8432, 8434, 8435, 8451, 8459, 9618, 60005, 60026, 60033], alone;

    RECEIVE = "receive", "RECEIVE":
    Verb::Receive { queue, top, from } => (
        queue Queue(&**queue), top BigInt(top.map(most)), conversation_handle Uuid(from.conversation()),
        conversation_group_id Uuid(from.group()), lowest Int(from.levels().map(|levels| levels.0)),
        highest Int(from.levels().map(|levels| levels.1)),
        oldest Bool(*from == super::ReceiveFrom::Oldest)
    ) -> ResultForm::Messages, [8426, 8436, 9617, 60002, 60005], batched("receive_batch");

    GET_CONVERSATION_GROUP = "get_conversation_group", "GET CONVERSATION GROUP":
    Verb::GetConversationGroup { queue } => (queue Queue(&**queue))
        -> ResultForm::Group, [9617, 60002], alone;

    MOVE_CONVERSATION = "move_conversation", "MOVE CONVERSATION":
    Verb::MoveConversation { handle, group } => (conversation_handle Uuid(handle.0), conversation_group_id Uuid(group.0))
        -> ResultForm::Nothing, [8426, 8436, 8438, 8439], alone;

    END_CONVERSATION = "end_conversation", "END CONVERSATION, plain, WITH ERROR or WITH CLEANUP":
    Verb::EndConversation { handle, form } => (
        conversation_handle Uuid(handle.0), error_code Int(form.error_code()), description Text(form.description()),
        cleanup Bool(matches!(form, super::EndForm::Cleanup))
    ) -> ResultForm::StateBefore, [8424, 8426, 8427, 60005], alone;

    BEGIN_CONVERSATION_TIMER = "begin_conversation_timer", "BEGIN CONVERSATION TIMER":
    Verb::BeginConversationTimer { handle, timeout_seconds } => (
        conversation_handle Uuid(handle.0), timeout_seconds BigInt(*timeout_seconds)
    ) -> ResultForm::Nothing, [8410, 8411, 8426, 8458], alone;

    CANCEL_CONVERSATION_TIMER = "cancel_conversation_timer", "takes back a conversation's timer (ours)":
    Verb::CancelConversationTimer { handle } => (conversation_handle Uuid(handle.0)) -> ResultForm::Nothing, [8426, 8458], alone;

    GET_TRANSMISSION_STATUS = "get_transmission_status", "GET_TRANSMISSION_STATUS":
    Verb::GetTransmissionStatus { handle } => (conversation_handle Uuid(handle.0))
        -> ResultForm::Text("transmission_status"), [], reads_only;

    DEFINE = "define", "CREATE, ALTER and DROP; no routine, a client writes the rows":
    Verb::Define(_) => () -> ResultForm::Warnings, [], alone;

    REPRIORITISE = "reprioritise", "changes the level of one endpoint (ours)":
    Verb::Reprioritise { handle, level } => (conversation_handle Uuid(handle.0), level Int(i32::from(*level)))
        -> ResultForm::Nothing, [8426, 8438, 60005], alone;

    POST_QUEUE_ACTIVATION = "post_queue_activation",
        "posts an event to the QUEUE_ACTIVATION notifications of a queue (ours, for queue monitors)":
    Verb::PostQueueActivation { queue } => (queue Queue(&**queue)) -> ResultForm::Nothing, [60002], alone;

    RELEASE_QUARANTINE = "release_quarantine", "puts a quarantined conversation group back into its queue (ours)":
    Verb::ReleaseQuarantine { group } => (conversation_group_id Uuid(group.0)) -> ResultForm::Nothing, [8436], alone;
}

/// The name that a SEND means.
fn type_name(message_type: &Option<std::sync::Arc<str>>) -> &str {
    message_type.as_deref().unwrap_or(super::system::DEFAULT)
}

/// TOP as databases count.
pub(crate) fn most(top: u64) -> i64 {
    i64::try_from(top).unwrap_or(i64::MAX)
}
