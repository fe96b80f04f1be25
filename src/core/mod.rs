//! The broker as a pure state machine: verbs in, outcomes and row changes out.
//!
//! No I/O, no clock of its own, no threads. A store feeds it verbs with the time, writes the [`Change`]s it answers,
//! and reads the bodies of the messages it names. It runs the embedded store, and it is the model other stores are
//! compared with.

mod begin;
mod change;
mod define;
mod delivery;
mod due;
mod effects;
mod end;
mod endpoint;
mod execute;
mod group;
mod lookup;
mod memory;
mod notify;
mod orders;
mod poison;
mod receive;
mod repair;
mod restore;
mod send;
mod session;
mod slab;
mod state;
mod status;
#[cfg(test)]
mod tests;
mod upkeep;
mod waits;

pub use change::{Change, EndpointRow, MessageRow, Stored, TransmissionRow};
pub use effects::{Arrival, Depth, Effects, ReadRow, Redelivery, Reply, Step, Taken};
pub use group::GroupKey;
pub use memory::Memory;
pub use poison::POISON_ROLLBACKS;
pub use repair::{Repair, Repairs};
pub use restore::{Restore, Restored};
pub use session::{Savepoint, Session};
pub use state::{Core, Limits};
