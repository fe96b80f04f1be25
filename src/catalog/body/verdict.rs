//! Verdicts on bodies, reached before a message is sent and used when it arrives.

use super::{BodyChecks, Rejection};
use crate::catalog::{Catalog, MessageType, same_name};
use crate::protocol::definition::Validation;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The result of checking a body under one definition of its type.
#[derive(Debug)]
pub struct Verdict {
    message_type: Arc<MessageType>,
    /// The schemas of the collection that the type names.
    schemas: Option<Arc<str>>,
    result: Result<(), Rejection>,
}

impl Verdict {
    /// Checks a body in full.
    pub fn check(checks: &BodyChecks, catalog: &Catalog, message_type: &Arc<MessageType>, body: &[u8]) -> Self {
        let result = checks.check(catalog, message_type, Some(body));
        Self { message_type: message_type.clone(), schemas: schemas(catalog, message_type), result }
    }

    /// The same if it can be done within milliseconds.
    pub fn check_quickly(
        checks: &BodyChecks,
        catalog: &Catalog,
        message_type: &Arc<MessageType>,
        body: &[u8],
    ) -> Option<Self> {
        let result = checks.quick_check(catalog, message_type, Some(body))?;
        Some(Self { message_type: message_type.clone(), schemas: schemas(catalog, message_type), result })
    }

    /// The result under the definition it was reached with.
    pub fn result(&self) -> &Result<(), Rejection> {
        &self.result
    }

    /// The result, as long as the definition of the type is unchanged.
    pub fn under(&self, catalog: &Catalog, message_type: &Arc<MessageType>) -> Option<&Result<(), Rejection>> {
        let is_same = Arc::ptr_eq(&self.message_type, message_type)
            || (self.message_type.id == message_type.id && self.message_type.validation == message_type.validation);
        (is_same && self.schemas == schemas(catalog, message_type)).then_some(&self.result)
    }
}

fn schemas(catalog: &Catalog, message_type: &MessageType) -> Option<Arc<str>> {
    match &message_type.validation {
        Validation::ValidXml { schema_collection } => {
            let found = catalog.xml_schema_collections.values().find(|one| same_name(&one.name, schema_collection))?;
            Some(found.schemas.clone())
        }
        _ => None,
    }
}

/// By the address of the body and the id of the type, with the number of judgements held.
pub(super) type Verdicts = Mutex<HashMap<(usize, i32), (usize, Arc<Verdict>)>>;

fn key(message_type_id: i32, body: &Arc<Vec<u8>>) -> (usize, i32) {
    (Arc::as_ptr(body).addr(), message_type_id)
}

impl BodyChecks {
    /// Checks a body in full; the verdict is [found](BodyChecks::verdict) as long as the judgement is kept.
    pub fn pass_judgement(
        self: &Arc<Self>,
        catalog: &Catalog,
        message_type: &Arc<MessageType>,
        body: &Arc<Vec<u8>>,
    ) -> Judgement {
        let verdict = Arc::new(Verdict::check(self, catalog, message_type, body));
        self.keep(verdict, body)
    }

    /// The same if it can be done within milliseconds.
    pub fn pass_quick_judgement(
        self: &Arc<Self>,
        catalog: &Catalog,
        message_type: &Arc<MessageType>,
        body: &Arc<Vec<u8>>,
    ) -> Option<Judgement> {
        let verdict = Verdict::check_quickly(self, catalog, message_type, body)?;
        Some(self.keep(Arc::new(verdict), body))
    }

    fn keep(self: &Arc<Self>, verdict: Arc<Verdict>, body: &Arc<Vec<u8>>) -> Judgement {
        let judgement =
            Judgement { checks: self.clone(), body: body.clone(), message_type_id: verdict.message_type.id };
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        let place = verdicts.entry(key(judgement.message_type_id, body)).or_insert_with(|| (0, verdict.clone()));
        *place = (place.0 + 1, verdict);
        judgement
    }

    /// The verdict on a body while a judgement of it is held.
    pub fn verdict(&self, message_type_id: i32, body: &Arc<Vec<u8>>) -> Option<Arc<Verdict>> {
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        verdicts.get(&key(message_type_id, body)).map(|(_, verdict)| verdict.clone())
    }
}

/// Keeps the verdict on a body while its message is being sent.
#[derive(Debug)]
pub struct Judgement {
    checks: Arc<BodyChecks>,
    body: Arc<Vec<u8>>,
    message_type_id: i32,
}

impl Drop for Judgement {
    fn drop(&mut self) {
        let key = key(self.message_type_id, &self.body);
        let mut verdicts = self.checks.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((holders, _)) = verdicts.get_mut(&key) {
            *holders -= 1;
            if *holders == 0 {
                verdicts.remove(&key);
            }
        }
    }
}

/// The message types of a catalog whose bodies are checked, by name.
#[derive(Debug, Default)]
pub struct CheckedTypes {
    by_name: HashMap<Arc<str>, Arc<MessageType>>,
}

impl CheckedTypes {
    /// The checked types of that catalog.
    pub fn of(catalog: &Catalog) -> Self {
        let checked = catalog
            .message_types
            .values()
            .filter(|found| !found.is_dropped && !matches!(found.validation, Validation::None | Validation::Empty));
        Self { by_name: checked.map(|found| (found.name.clone(), found.clone())).collect() }
    }

    /// The type of that name, if its bodies are checked.
    pub fn get(&self, name: &str) -> Option<&Arc<MessageType>> {
        if self.by_name.is_empty() { None } else { self.by_name.get(name) }
    }
}
