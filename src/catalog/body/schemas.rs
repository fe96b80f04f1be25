//! Compiled schemas, kept by their texts.
//!
//! A JSON Schema of 1.6 MB takes 4 s to compile in a debug build, so nothing is compiled under a lock: a store compiles the
//! schemas of definitions before it takes its lock, and a quick check uses only schemas that are compiled already.

use super::{BodyChecks, json, xsd};
use crate::protocol::definition::{Definition, Validation};
use std::collections::HashMap;
use std::panic::catch_unwind;
use std::sync::{Arc, MutexGuard, PoisonError};

/// Compiled schemas kept at most, and bytes of their texts; beyond either they are compiled again.
const MOST_COMPILED: usize = 1024;
const MOST_TEXT: usize = 64 << 20;

/// The language of a schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Xsd,
    Json,
}

/// A schema that can check bodies.
pub(super) enum Schema {
    Xsd(xsd::Collection),
    Json(json::JsonSchema),
}

/// A schema with its text, or its fault.
pub(super) struct Compiled {
    kind: Kind,
    text: Arc<str>,
    pub(super) schema: Result<Schema, String>,
}

/// The compiled schemas. The schema of a type is found by the type's id, so that no check hashes its text.
#[derive(Default)]
pub(super) struct Schemas {
    by_type: HashMap<i32, Arc<Compiled>>,
    xsd: HashMap<Arc<str>, Arc<Compiled>>,
    json: HashMap<Arc<str>, Arc<Compiled>>,
    text_bytes: usize,
    /// The threads that compiled, in order.
    #[cfg(test)]
    compiled_on: Vec<tests::Thread>,
}

impl Schemas {
    fn by_text(&mut self, kind: Kind) -> &mut HashMap<Arc<str>, Arc<Compiled>> {
        match kind {
            Kind::Xsd => &mut self.xsd,
            Kind::Json => &mut self.json,
        }
    }

    /// The schema of a type, if its present text is compiled.
    pub(super) fn of_type(&mut self, kind: Kind, type_id: i32, text: &str) -> Option<Arc<Compiled>> {
        if let Some(known) = self.by_type.get(&type_id).filter(|known| known.kind == kind && *known.text == *text) {
            return Some(known.clone());
        }
        let known = self.by_text(kind).get(text)?.clone();
        self.by_type.insert(type_id, known.clone());
        Some(known)
    }

    /// Keeps a schema, unless another thread has compiled the same text meanwhile; returns the one that is kept.
    pub(super) fn keep(&mut self, compiled: Compiled, type_id: Option<i32>) -> Arc<Compiled> {
        let (kind, text) = (compiled.kind, compiled.text.clone());
        let known = self.by_text(kind).get(&text).cloned();
        let kept = known.unwrap_or_else(|| {
            let is_full = self.xsd.len() + self.json.len() >= MOST_COMPILED;
            if is_full || self.text_bytes + text.len() > MOST_TEXT {
                self.clear();
            }
            self.text_bytes += text.len();
            let compiled = Arc::new(compiled);
            self.by_text(kind).insert(text, compiled.clone());
            compiled
        });
        if let Some(type_id) = type_id {
            self.by_type.insert(type_id, kept.clone());
        }
        kept
    }

    /// Removes all schemas but those of definitions under way.
    fn clear(&mut self) {
        self.by_type.clear();
        for by_text in [&mut self.xsd, &mut self.json] {
            by_text.retain(|_, compiled| Arc::strong_count(compiled) > 1);
        }
        self.text_bytes = self.xsd.keys().chain(self.json.keys()).map(|text| text.len()).sum();
    }

    fn remove(&mut self, compiled: &Compiled) {
        if self.by_text(compiled.kind).remove(&compiled.text).is_some() {
            self.text_bytes -= compiled.text.len();
        }
    }
}

/// The compiled schemas of definitions: [`BodyChecks`] finds each of them by its text as long as this is kept.
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "not public, and too much to print")]
pub struct CompiledSchemas {
    checks: Arc<BodyChecks>,
    schemas: Vec<Arc<Compiled>>,
}

impl Drop for CompiledSchemas {
    fn drop(&mut self) {
        let mut kept = self.checks.schemas();
        for compiled in self.schemas.drain(..) {
            // No type has this schema, because a definition with it was refused. One count is in the list by text.
            if compiled.schema.is_err() && Arc::strong_count(&compiled) == 2 {
                kept.remove(&compiled);
            }
        }
    }
}

impl BodyChecks {
    pub(super) fn schemas(&self) -> MutexGuard<'_, Schemas> {
        self.schemas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compiles a schema, without a lock: two callers may compile the same text at the same time.
    pub(super) fn compile(&self, kind: Kind, text: &str) -> Compiled {
        #[cfg(test)]
        self.schemas().compiled_on.push(tests::this_thread());
        let schema = catch_unwind(|| match kind {
            Kind::Xsd => xsd::Collection::compile(text).map(Schema::Xsd),
            Kind::Json => json::JsonSchema::compile(text).map(Schema::Json),
        });
        let schema = schema.unwrap_or_else(|_| Err("the validator failed on it".to_owned()));
        Compiled { kind, text: text.into(), schema }
    }

    /// Whether any of these definitions has a schema.
    pub fn have_schemas(definitions: &[Definition]) -> bool {
        definitions.iter().any(|definition| schema_of(definition).is_some())
    }

    /// The bytes of their schemas.
    pub fn schema_bytes(definitions: &[Definition]) -> usize {
        definitions.iter().filter_map(schema_of).map(|(_, text)| text.len()).sum()
    }

    /// Compiles the schemas of definitions. Takes seconds for megabytes: never call it under a lock.
    pub fn compile_schemas(self: &Arc<Self>, definitions: &[Definition]) -> CompiledSchemas {
        let compiled = definitions.iter().filter_map(schema_of).map(|(kind, text)| {
            let known = self.schemas().by_text(kind).get(text).cloned();
            known.unwrap_or_else(|| {
                let compiled = self.compile(kind, text);
                self.schemas().keep(compiled, None)
            })
        });
        CompiledSchemas { schemas: compiled.collect(), checks: self.clone() }
    }

    /// Whether that text is a usable JSON Schema. Compiles it unless [`BodyChecks::compile_schemas`] did.
    ///
    /// # Errors
    /// The fault of the schema, and its place.
    pub fn check_json_schema(&self, text: &str) -> Result<(), String> {
        self.check_schema(Kind::Json, text)
    }

    /// Whether that text is a usable collection of XML schemas. Compiles it unless [`BodyChecks::compile_schemas`] did.
    ///
    /// # Errors
    /// The wrong schema of the text, and its fault.
    pub fn check_xml_schemas(&self, text: &str) -> Result<(), String> {
        self.check_schema(Kind::Xsd, text)
    }

    fn check_schema(&self, kind: Kind, text: &str) -> Result<(), String> {
        let known = self.schemas().by_text(kind).get(text).cloned();
        match known {
            Some(known) => known.schema.as_ref().map(drop).map_err(Clone::clone),
            None => {
                let compiled = self.compile(kind, text);
                let fault = compiled.schema.as_ref().err().cloned();
                if fault.is_none() {
                    self.schemas().keep(compiled, None);
                }
                fault.map_or(Ok(()), Err)
            }
        }
    }

    /// The threads that compiled schemas, in order.
    #[cfg(test)]
    pub(crate) fn compiled_on(&self) -> Vec<tests::Thread> {
        self.schemas().compiled_on.clone()
    }
}

/// The schema that a definition brings.
fn schema_of(definition: &Definition) -> Option<(Kind, &str)> {
    match definition {
        Definition::CreateXmlSchemaCollection { schemas, .. } => Some((Kind::Xsd, schemas)),
        Definition::CreateMessageType { validation: Validation::JsonSchema { schema }, .. }
        | Definition::AlterMessageType { validation: Validation::JsonSchema { schema }, .. } => {
            Some((Kind::Json, schema))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{Catalog, MessageType};

    pub(super) type Thread = std::thread::ThreadId;

    pub(super) fn this_thread() -> Thread {
        std::thread::current().id()
    }

    fn json(schema: &str) -> Validation {
        Validation::JsonSchema { schema: schema.into() }
    }

    fn altering(schema: &str) -> Definition {
        Definition::AlterMessageType { name: "t".into(), validation: json(schema) }
    }

    fn message_type(id: i32, schema: &str) -> MessageType {
        MessageType { id, name: "t".into(), owner: None, validation: json(schema), is_dropped: false }
    }

    fn kept(checks: &BodyChecks) -> usize {
        let kept = checks.schemas();
        let bytes: usize = kept.xsd.keys().chain(kept.json.keys()).map(|text| text.len()).sum();
        assert_eq!(bytes, kept.text_bytes);
        kept.xsd.len() + kept.json.len()
    }

    #[test]
    fn a_quick_check_compiles_nothing() {
        let (checks, catalog) = (Arc::new(BodyChecks::new()), Catalog::default());
        let number = message_type(1, r#"{"type":"number"}"#);
        assert_eq!(checks.quick_check(&catalog, &number, Some(b"1")), None);
        assert_eq!(checks.compiled_on(), []);
        drop(checks.compile_schemas(&[altering(r#"{"type":"number"}"#)]));
        assert_eq!(checks.quick_check(&catalog, &number, Some(b"1")), Some(Ok(())));
        assert_eq!(checks.check(&catalog, &number, Some(b"1")), Ok(()));
        assert_eq!(checks.compiled_on().len(), 1);
    }

    #[test]
    fn definitions_find_their_schemas_compiled() {
        let checks = Arc::new(BodyChecks::new());
        let compiled = checks.compile_schemas(&[altering("true"), altering("{"), altering("true")]);
        let collection = Definition::CreateXmlSchemaCollection { name: "c".into(), schemas: "<a/>".into() };
        let compiled_too = checks.compile_schemas(&[altering("{"), collection]);
        let compiles = checks.compiled_on().len();
        assert_eq!(compiles, 3);
        assert_eq!(checks.check_json_schema("true"), Ok(()));
        assert!(checks.check_json_schema("{").is_err());
        assert!(checks.check_xml_schemas("<a/>").is_err());
        assert_eq!((checks.compiled_on().len(), kept(&checks)), (compiles, 3));
        drop(compiled);
        assert_eq!(kept(&checks), 3);
        drop(compiled_too);
        assert_eq!(kept(&checks), 1, "the refused ones are not kept");
    }

    #[test]
    fn schemas_stay_compiled_up_to_a_number_and_a_size() {
        let checks = Arc::new(BodyChecks::new());
        let catalog = Catalog::default();
        let check = |id: i32, schema: &str| {
            checks.check(&catalog, &message_type(id, schema), Some(b"1")).unwrap();
            kept(&checks)
        };
        assert_eq!((check(1, "true"), check(2, "true"), check(2, "true")), (1, 1, 1), "types share a schema");
        let under_way = checks.compile_schemas(&[altering("{\"type\":\"string\"}")]);
        let most = i32::try_from(MOST_COMPILED).unwrap();
        for id in 3..=most {
            check(id, &format!("{{\"maximum\":{id}}}"));
        }
        assert_eq!(kept(&checks), MOST_COMPILED);
        assert_eq!(check(0, "{}"), 2, "that of the definition under way, and the new one");
        drop(under_way);
        let long = |id: i32| format!("{{\"maximum\":{id}}}{}", " ".repeat(MOST_TEXT / 2));
        assert_eq!((check(1, &long(1)), check(2, &long(2))), (3, 1));
    }

    #[test]
    fn a_usable_schema_is_kept_and_the_bytes_of_all_are_counted() {
        let checks = Arc::new(BodyChecks::new());
        assert!(checks.check_json_schema("{").is_err());
        assert_eq!(kept(&checks), 0, "nothing is checked by it");
        assert_eq!((checks.check_json_schema("true"), checks.check_json_schema("true")), (Ok(()), Ok(())));
        assert_eq!((kept(&checks), checks.compiled_on().len()), (1, 2));
        let collection = Definition::CreateXmlSchemaCollection { name: "c".into(), schemas: "<a/>".into() };
        assert_eq!(BodyChecks::schema_bytes(&[altering("true"), collection, altering("{}")]), 4 + 4 + 2);
    }
}
