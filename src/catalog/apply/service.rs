//! Services.

use super::{Applied, Consequence, Touched, take_object_id};
use crate::catalog::builtin::is_system_id;
use crate::catalog::name::check_name;
use crate::catalog::objects::{Catalog, Service};
use crate::error::{Code, Error, Result};
use std::sync::Arc;

const WHAT: &str = "service";

pub(super) fn create(
    catalog: &mut Catalog,
    name: &str,
    owner: &Option<String>,
    queue: &str,
    contracts: &[String],
) -> Result<Applied> {
    check_name(WHAT, name)?;
    if catalog.service(name).is_some() {
        return Err(Error::duplicate_name(WHAT, name));
    }
    let queue_id = queue_id(catalog, queue)?;
    let mut contract_ids = Vec::with_capacity(contracts.len());
    for contract in contracts {
        let contract_id = contract_id(catalog, contract)?;
        if contract_ids.contains(&contract_id) {
            return Err(listed_twice(name, contract));
        }
        contract_ids.push(contract_id);
    }
    let id = take_object_id(catalog)?;
    let row = Service { id, name: name.into(), owner: owner.clone(), queue_id, contract_ids };
    catalog.services.insert(id, Arc::new(row));
    Ok(Applied::created(Touched::Service(id)))
}

pub(super) fn alter(
    catalog: &mut Catalog,
    name: &str,
    queue: Option<&str>,
    add_contracts: &[String],
    drop_contracts: &[String],
) -> Result<Applied> {
    let found = users(catalog, name)?;
    let id = found.id;
    let from_queue_id = found.queue_id;
    let to_queue_id = queue.map_or(Ok(from_queue_id), |queue| queue_id(catalog, queue))?;

    let mut row = (*found).clone();
    let mut dropped = Vec::with_capacity(drop_contracts.len());
    for contract in drop_contracts {
        let contract_id = contract_id(catalog, contract)?;
        if dropped.contains(&contract_id) {
            return Err(listed_twice(name, contract));
        }
        if !found.contract_ids.contains(&contract_id) {
            return Err(Error::object_not_found(
                &format!("among the contracts of service '{name}', contract"),
                contract,
            ));
        }
        row.contract_ids.retain(|kept| *kept != contract_id);
        dropped.push(contract_id);
    }
    for contract in add_contracts {
        let contract_id = contract_id(catalog, contract)?;
        if row.contract_ids.contains(&contract_id) || dropped.contains(&contract_id) {
            return Err(listed_twice(name, contract));
        }
        row.contract_ids.push(contract_id);
    }
    if to_queue_id == from_queue_id && add_contracts.is_empty() && dropped.is_empty() {
        return Err(Error::new(
            Code::ALTER_SERVICE_EMPTY,
            format!("ALTER SERVICE '{name}' changes nothing; name another queue, or contracts to add or drop"),
        ));
    }

    let mut applied = Applied::of(Touched::Service(id));
    if to_queue_id != from_queue_id {
        row.queue_id = to_queue_id;
        applied = applied.then(Consequence::ServiceMoved { service_id: id, from_queue_id, to_queue_id });
    }
    if !dropped.is_empty() {
        applied = applied.then(Consequence::ServiceContractsDropped { service_id: id, contract_ids: dropped });
    }
    catalog.services.insert(id, Arc::new(row));
    Ok(applied)
}

pub(super) fn drop(catalog: &mut Catalog, name: &str) -> Result<Applied> {
    let found = users(catalog, name)?;
    let id = found.id;
    if let Some(priority) = catalog.priorities.values().find(|priority| priority.local_service_id == Some(id)) {
        return Err(Error::in_use(WHAT, name, format_args!("broker priority '{}'", priority.name)));
    }
    catalog.services.remove(&id);
    let consequence = Consequence::ServiceDropped { service_id: id, queue_id: found.queue_id };
    Ok(Applied::of(Touched::ServiceDeleted(id)).then(consequence))
}

/// The service of that name; refuses the system's.
fn users(catalog: &Catalog, name: &str) -> Result<Arc<Service>> {
    let found = catalog.service(name).ok_or_else(|| Error::object_not_found(WHAT, name))?;
    if is_system_id(found.id) {
        return Err(Error::system_object(WHAT, name));
    }
    Ok(found.clone())
}

fn queue_id(catalog: &Catalog, name: &str) -> Result<i32> {
    catalog.queue(name).map(|queue| queue.id).ok_or_else(|| Error::object_not_found("queue", name))
}

fn contract_id(catalog: &Catalog, name: &str) -> Result<i32> {
    catalog.contract(name).map(|contract| contract.id).ok_or_else(|| Error::object_not_found("contract", name))
}

fn listed_twice(service: &str, contract: &str) -> Error {
    Error::new(
        Code::CONTRACT_LISTED_TWICE,
        format!("service '{service}' would list contract '{contract}' twice; list it once"),
    )
}
