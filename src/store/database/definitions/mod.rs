//! Definitions: reading the catalog, writing what changed, and what a change does to conversations.

pub(in crate::store::database) mod catalog;
pub(in crate::store::database) mod define;
pub(in crate::store::database) mod definition_effects;
