//! The broker as a pure state machine: verbs in, outcomes and row changes out.
//!
//! No I/O, no clock of its own, no threads. A store feeds it verbs with the time, writes the [`Change`]s it answers,
//! and reads the bodies of the messages it names. It runs the embedded store, and it is the model other stores are
//! compared with.

mod begin_dialog_conversation;
mod change;
mod check;
mod claim_unit;
mod dead_letter;
mod define;
mod definition_effects;
mod definition_wait;
mod delivery;
mod effects;
mod end_conversation;
mod endpoint;
mod event_notification;
mod execute;
mod get_transmission_status;
mod group_lock;
mod lifetime;
mod lookup;
mod memory;
mod move_conversation;
mod own_groups;
mod poison;
mod quarantine;
mod queuing_orders;
mod receive;
mod receive_order;
mod repair;
mod reprioritise;
mod restore;
mod send;
mod session;
mod slab;
mod state;
#[cfg(test)]
mod tests;
mod tick;
mod timer;
mod work;

pub use change::{Change, DeadLetterRow, DeliveryClass, EndpointRow, MessageRow, TransmissionRow};
pub use definition_wait::DefinitionWait;
pub use effects::{Arrival, Depth, Effects, ReadRow, Redelivery, Reply, Step, Taken};
pub use group_lock::GroupKey;
pub use memory::Memory;
pub use own_groups::Opener;
pub use poison::POISON_ROLLBACKS;
pub use repair::{Repair, Repairs};
pub use restore::{Restore, Restored};
pub use session::{Savepoint, Session, SessionId};
pub use state::{Core, Limits};
pub(crate) use tick::CLOCK_SET_BACK_US;
#[cfg(feature = "cli")]
pub(crate) use work::check_reader;
pub use work::{Finished, FinishedAs, JobRead, JobRow, JobRows, TakenRow, WorkChange};
