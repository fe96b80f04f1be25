//! The current definitions: objects, sending rights, levels of conversations, checks of bodies.

pub(crate) mod apply;
pub(crate) mod body;
mod builtin;
pub mod ddl;
mod name;
mod name_index;
mod objects;
mod priority;
mod timetable;

pub use objects::{
    Activation, BrokerSettings, Catalog, Contract, EventNotification, MessageType, OffBy, Priority, Queue, QueueOff,
    Service, WorkQueue, WorkSchedule, XmlSchemaCollection,
};
pub(crate) use objects::{fold_name, same_name};
pub use timetable::{Firing, Timetable};
