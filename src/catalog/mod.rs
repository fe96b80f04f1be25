//! Definitions as they stand: what exists, who may send what, which level a conversation gets, which bodies pass.

mod objects;

pub use objects::{
    Activation, BrokerSettings, Catalog, Contract, EventNotification, MessageType, Priority, Queue, Service,
    XmlSchemaCollection,
};
