//! Which message bodies pass at their destination.
//!
//! A body is looked at when its message enters the target's queue, never at SEND, and the receiver's own definition of
//! the message type decides. Bodies come from strangers: every check is bounded in depth, follows no reference to a
//! file or a network, and expands no entity.

mod json;
mod xml;
mod xsd;

use super::{Catalog, MessageType};
use crate::protocol::definition::Validation;
use std::collections::HashMap;
use std::sync::Arc;

pub use json::check_json_schema;
pub use xsd::check_xml_schemas;

/// The code of the Error a sender gets for XML that does not pass.
const XML_REJECTED: i32 = -9615;
/// The code of the Error a sender gets for a body that conflicts with the type in any other way.
const KIND_REJECTED: i32 = -8430;

/// Why a body did not pass: what the Error message to the sender will say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// -9615 for XML (the receiver's own Error says -9616), -8430 for anything else.
    pub code: i32,
    /// Names the message type, what was found and what would be right.
    pub description: String,
}

/// The checks of all message types, each schema compiled once.
#[derive(Default)]
pub struct BodyChecks {
    compiled: HashMap<i32, Compiled>,
}

/// A compiled schema, with what it was compiled from: an altered type or a new collection is compiled anew.
struct Compiled {
    source: Source,
    schema: Result<Schema, String>,
}

#[derive(PartialEq)]
enum Source {
    Collection { id: i32, schemas: Arc<str> },
    JsonSchema(String),
}

enum Schema {
    Xsd(xsd::Collection),
    Json(json::JsonSchema),
}

impl std::fmt::Debug for BodyChecks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BodyChecks").field("compiled", &self.compiled.len()).finish()
    }
}

impl BodyChecks {
    /// Nothing compiled yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether that body passes as a message of that type; a body of no bytes is no body.
    ///
    /// # Errors
    /// The [`Rejection`] that the sender is told.
    pub fn check(
        &mut self,
        catalog: &Catalog,
        message_type: &MessageType,
        body: Option<&[u8]>,
    ) -> Result<(), Rejection> {
        if message_type.validation == Validation::None {
            return Ok(());
        }
        let Some(body) = body.filter(|body| !body.is_empty()) else {
            return Ok(());
        };
        let (code, kind, result) = match &message_type.validation {
            Validation::None => return Ok(()),
            Validation::Empty => {
                let found = format!("{} bytes were found; the type allows no body", body.len());
                (KIND_REJECTED, "must be empty", Err(found))
            }
            Validation::WellFormedXml => (XML_REJECTED, "is not well-formed XML", xml::well_formed(body)),
            Validation::ValidXml { schema_collection } => {
                let result = self.check_collection(catalog, message_type, schema_collection, body);
                (XML_REJECTED, "is not valid XML", result)
            }
            Validation::Json => (KIND_REJECTED, "is not JSON", json::well_formed(body)),
            Validation::JsonSchema { schema } => {
                (KIND_REJECTED, "does not match its JSON Schema", self.check_json(message_type, schema, body))
            }
        };
        result.map_err(|why| Rejection {
            code,
            description: format!("the body of a message of type '{}' {kind}: {why}", message_type.name),
        })
    }

    fn check_collection(
        &mut self,
        catalog: &Catalog,
        message_type: &MessageType,
        name: &str,
        body: &[u8],
    ) -> Result<(), String> {
        let cached = self.compiled.get(&message_type.id).is_some_and(|compiled| match &compiled.source {
            Source::Collection { id, schemas } => catalog
                .xml_schema_collections
                .get(id)
                .is_some_and(|found| Arc::ptr_eq(&found.schemas, schemas) && super::same_name(&found.name, name)),
            Source::JsonSchema(_) => false,
        });
        if !cached {
            let collection = catalog
                .xml_schema_collection(name)
                .ok_or_else(|| format!("the XML schema collection '{name}' of the type was not found"))?;
            let source = Source::Collection { id: collection.id, schemas: collection.schemas.clone() };
            let schema = xsd::Collection::compile(&collection.schemas).map(Schema::Xsd);
            self.compiled.insert(message_type.id, Compiled { source, schema });
        }
        match &self.compiled[&message_type.id].schema {
            Ok(Schema::Xsd(collection)) => collection.check(body),
            Ok(Schema::Json(_)) => unreachable!("the source says which schema was compiled"),
            Err(why) => Err(format!("the XML schema collection '{name}' of the type is not usable: {why}")),
        }
    }

    fn check_json(&mut self, message_type: &MessageType, text: &str, body: &[u8]) -> Result<(), String> {
        let cached = self
            .compiled
            .get(&message_type.id)
            .is_some_and(|compiled| matches!(&compiled.source, Source::JsonSchema(source) if source == text));
        if !cached {
            let schema = json::JsonSchema::compile(text).map(Schema::Json);
            self.compiled.insert(message_type.id, Compiled { source: Source::JsonSchema(text.to_owned()), schema });
        }
        match &self.compiled[&message_type.id].schema {
            Ok(Schema::Json(schema)) => schema.check(body),
            Ok(Schema::Xsd(_)) => unreachable!("the source says which schema was compiled"),
            Err(why) => Err(format!("the JSON Schema of the type is not usable: {why}")),
        }
    }
}

#[cfg(test)]
mod tests;
