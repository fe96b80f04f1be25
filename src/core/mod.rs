//! The broker as a pure state machine: verbs in, outcomes and row changes out.
//!
//! No I/O, no clock of its own, no threads. A store feeds it verbs with the time, writes the [`Change`]s it answers, and
//! reads the bodies of the messages it names. It runs the embedded store, and it is the model other stores are compared with.

mod change;

pub use change::{Change, EndpointRow, MessageRow, Stored, TransmissionRow};
