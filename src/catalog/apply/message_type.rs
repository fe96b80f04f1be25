//! Message types and the XML schema collections they name.

use super::{Applied, Touched, take_object_id};
use crate::catalog::body::BodyChecks;
use crate::catalog::builtin::is_system_id;
use crate::catalog::name::check_name;
use crate::catalog::objects::{Catalog, MessageType, XmlSchemaCollection, same_name};
use crate::error::{Code, Error, Result};
use crate::protocol::definition::{ContractEntry, Validation};
use std::sync::Arc;

const WHAT: &str = "message type";
const COLLECTION: &str = "XML schema collection";

pub(super) fn create(
    catalog: &mut Catalog,
    name: &str,
    owner: &Option<String>,
    validation: &Validation,
    checks: &BodyChecks,
) -> Result<Applied> {
    check_name(WHAT, name)?;
    if catalog.message_type(name).is_some() {
        return Err(Error::duplicate_name(WHAT, name));
    }
    let validation = checked(catalog, validation, checks)?;
    let id = take_object_id(catalog)?;
    let row = MessageType { id, name: name.into(), owner: owner.clone(), validation, is_dropped: false };
    catalog.message_types.insert(id, Arc::new(row));
    Ok(Applied::created(Touched::MessageType(id)))
}

pub(super) fn alter(
    catalog: &mut Catalog,
    name: &str,
    validation: &Validation,
    checks: &BodyChecks,
) -> Result<Applied> {
    let found = users(catalog, name)?;
    let validation = checked(catalog, validation, checks)?;
    let id = found.id;
    catalog.message_types.insert(id, Arc::new(MessageType { validation, ..(*found).clone() }));
    Ok(Applied::of(Touched::MessageType(id)))
}

pub(super) fn drop(catalog: &mut Catalog, name: &str) -> Result<Applied> {
    let found = users(catalog, name)?;
    let lists = |entries: &[ContractEntry]| entries.iter().any(|e| e.message_type == name);
    if let Some(contract) = catalog.contracts.values().find(|c| !c.is_dropped && lists(&c.entries)) {
        return Err(Error::in_use(WHAT, name, format_args!("contract '{}'", contract.name)));
    }
    let id = found.id;
    catalog.message_types.insert(id, Arc::new(MessageType { is_dropped: true, ..(*found).clone() }));
    Ok(Applied::of(Touched::MessageType(id)))
}

pub(super) fn create_collection(
    catalog: &mut Catalog,
    name: &str,
    schemas: &str,
    checks: &BodyChecks,
) -> Result<Applied> {
    check_name(COLLECTION, name)?;
    if catalog.xml_schema_collection(name).is_some() {
        return Err(Error::duplicate_name(COLLECTION, name));
    }
    checks.check_xml_schemas(schemas).map_err(|why| bad_schema(&format!("{COLLECTION} '{name}'"), why))?;
    let id = take_object_id(catalog)?;
    let row = XmlSchemaCollection { id, name: name.into(), schemas: schemas.into() };
    catalog.xml_schema_collections.insert(id, Arc::new(row));
    Ok(Applied::created(Touched::XmlSchemaCollection(id)))
}

pub(super) fn drop_collection(catalog: &mut Catalog, name: &str) -> Result<Applied> {
    let found = catalog.xml_schema_collection(name).ok_or_else(|| Error::object_not_found(COLLECTION, name))?;
    let id = found.id;
    let uses = |validation: &Validation| match validation {
        Validation::ValidXml { schema_collection } => same_name(schema_collection, &found.name),
        _ => false,
    };
    if let Some(user) = catalog.message_types.values().find(|t| !t.is_dropped && uses(&t.validation)) {
        return Err(Error::in_use(COLLECTION, name, format_args!("{WHAT} '{}'", user.name)));
    }
    catalog.xml_schema_collections.remove(&id);
    Ok(Applied::of(Touched::XmlSchemaCollectionDeleted(id)))
}

/// The live message type of that name; refuses the system's.
fn users(catalog: &Catalog, name: &str) -> Result<Arc<MessageType>> {
    let found = catalog.message_type(name).ok_or_else(|| Error::object_not_found(WHAT, name))?;
    if is_system_id(found.id) {
        return Err(Error::system_object(WHAT, name));
    }
    Ok(found.clone())
}

/// The validation as stored: its schema is usable, and its collection exists and has its declared spelling.
fn checked(catalog: &Catalog, validation: &Validation, checks: &BodyChecks) -> Result<Validation> {
    match validation {
        Validation::ValidXml { schema_collection: name } => {
            let found = catalog.xml_schema_collection(name).ok_or_else(|| Error::object_not_found(COLLECTION, name))?;
            Ok(Validation::ValidXml { schema_collection: found.name.to_string() })
        }
        Validation::JsonSchema { schema } => {
            checks.check_json_schema(schema).map_err(|why| bad_schema("the JSON Schema", why))?;
            Ok(validation.clone())
        }
        other => Ok(other.clone()),
    }
}

fn bad_schema(what: &str, why: String) -> Error {
    Error::new(Code::BAD_SCHEMA, format!("{what} is not usable: {why}"))
}
