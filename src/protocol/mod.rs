//! The language between callers and stores: verbs, outcomes, definitions, states and system messages.

mod body_bytes;
#[doc(hidden)]
pub mod declared;
pub mod definition;
mod outcome;
mod retry;
mod state;
pub mod system;
mod texts;
#[doc(hidden)]
pub mod verb;
pub mod work;
mod work_queue;
mod work_schedule;

pub use outcome::{Message, MessageValidation, Outcome};
pub use state::ConversationState;
pub(crate) use texts::text as check_nul;
pub(crate) use verb::check_body_size;
pub use verb::{Addressee, BeginDialog, Body, EndForm, OutgoingMessage, ReceiveFrom, Relation, Unit, Verb};
