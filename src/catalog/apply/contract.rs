//! Contracts.

use super::{Applied, Consequence, Touched, take_object_id};
use crate::catalog::builtin::is_system_id;
use crate::catalog::name::check_name;
use crate::catalog::objects::{Catalog, Contract};
use crate::error::{Code, Error, Result};
use crate::protocol::definition::{ContractEntry, SentBy};
use crate::protocol::system;
use std::sync::Arc;

const WHAT: &str = "contract";

pub(super) fn create(
    catalog: &mut Catalog,
    name: &str,
    owner: &Option<String>,
    entries: &[ContractEntry],
) -> Result<Applied> {
    check_name(WHAT, name)?;
    if catalog.contract(name).is_some() {
        return Err(Error::duplicate_name(WHAT, name));
    }
    for (at, ContractEntry { message_type, .. }) in entries.iter().enumerate() {
        let found =
            catalog.message_type(message_type).ok_or_else(|| Error::object_not_found("message type", message_type))?;
        if matches!(found.id, system::ERROR_ID | system::END_DIALOG_ID | system::DIALOG_TIMER_ID) {
            return Err(Error::new(
                Code::SYSTEM_OBJECT,
                format!(
                    "contract '{name}' lists message type '{message_type}', which only the broker sends; leave it out: \
                     every conversation can receive it"
                ),
            ));
        }
        if entries[..at].iter().any(|earlier| earlier.message_type == *message_type) {
            return Err(Error::new(
                Code::MESSAGE_TYPE_LISTED_TWICE,
                format!(
                    "contract '{name}' lists message type '{message_type}' twice; list it once, SENT BY ANY for both"
                ),
            ));
        }
    }
    if entries.iter().all(|entry| entry.sent_by == SentBy::Target) {
        return Err(Error::new(
            Code::CONTRACT_WITHOUT_INITIATOR,
            format!(
                "contract '{name}' lets the initiator send nothing; at least one message type must be SENT BY INITIATOR \
                 or SENT BY ANY"
            ),
        ));
    }
    let id = take_object_id(catalog)?;
    let row = Contract { id, name: name.into(), owner: owner.clone(), entries: entries.to_vec(), is_dropped: false };
    catalog.contracts.insert(id, Arc::new(row));
    Ok(Applied::created(Touched::Contract(id)))
}

pub(super) fn drop(catalog: &mut Catalog, name: &str) -> Result<Applied> {
    let found = catalog.contract(name).ok_or_else(|| Error::object_not_found(WHAT, name))?.clone();
    let id = found.id;
    if is_system_id(id) {
        return Err(Error::system_object(WHAT, name));
    }
    if let Some(service) = catalog.services.values().find(|service| service.contract_ids.contains(&id)) {
        return Err(Error::in_use(WHAT, name, format_args!("service '{}'", service.name)));
    }
    if let Some(priority) = catalog.priorities.values().find(|priority| priority.contract_id == Some(id)) {
        return Err(Error::in_use(WHAT, name, format_args!("broker priority '{}'", priority.name)));
    }
    catalog.contracts.insert(id, Arc::new(Contract { is_dropped: true, ..(*found).clone() }));
    Ok(Applied::of(Touched::Contract(id)).then(Consequence::ContractDropped { contract_id: id }))
}
