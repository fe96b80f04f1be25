//! Definitions: reading the catalog, writing what changed, and applying its effects on conversations.

pub(in crate::store::database) mod catalog;
pub(in crate::store::database) mod define;
pub(in crate::store::database) mod definition_effects;
