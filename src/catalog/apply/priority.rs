//! Broker priorities.

use super::{Applied, Touched, take_object_id};
use crate::catalog::name::{check_far_service_name, check_name};
use crate::catalog::objects::{Catalog, Priority};
use crate::catalog::priority::DEFAULT_LEVEL;
use crate::error::{Code, Error, Result};
use crate::protocol::definition::{AnyOr, PriorityOptions};
use std::sync::Arc;

const WHAT: &str = "broker priority";

pub(super) fn create(catalog: &mut Catalog, name: &str, set: &PriorityOptions) -> Result<Applied> {
    check_name(WHAT, name)?;
    if catalog.priority(name).is_some() {
        return Err(Error::duplicate_name(WHAT, name));
    }
    let unset = Priority {
        id: 0,
        name: name.into(),
        contract_id: None,
        local_service_id: None,
        remote_service: AnyOr::Any,
        level: DEFAULT_LEVEL,
    };
    let row = with(catalog, unset, set)?;
    let id = take_object_id(catalog)?;
    catalog.priorities.insert(id, Arc::new(Priority { id, ..row }));
    Ok(Applied::created(Touched::Priority(id)))
}

pub(super) fn alter(catalog: &mut Catalog, name: &str, set: &PriorityOptions) -> Result<Applied> {
    let found = catalog.priority(name).ok_or_else(|| Error::object_not_found(WHAT, name))?;
    if *set == PriorityOptions::default() {
        return Err(Error::new(
            Code::SYNTAX,
            format!(
                "ALTER BROKER PRIORITY '{name}' sets nothing; SET must hold CONTRACT_NAME, LOCAL_SERVICE_NAME, \
                 REMOTE_SERVICE_NAME or PRIORITY_LEVEL"
            ),
        ));
    }
    let row = with(catalog, (**found).clone(), set)?;
    let id = row.id;
    catalog.priorities.insert(id, Arc::new(row));
    Ok(Applied::of(Touched::Priority(id)))
}

pub(super) fn drop(catalog: &mut Catalog, name: &str) -> Result<Applied> {
    let id = catalog.priority(name).ok_or_else(|| Error::object_not_found(WHAT, name))?.id;
    catalog.priorities.remove(&id);
    Ok(Applied::of(Touched::PriorityDeleted(id)))
}

/// The priority with the settings of `set`, checked against all others.
fn with(catalog: &Catalog, mut row: Priority, set: &PriorityOptions) -> Result<Priority> {
    if let Some(contract) = &set.contract {
        let find = |name: &str| catalog.contract(name).ok_or_else(|| Error::object_not_found("contract", name));
        row.contract_id = contract.object().map(find).transpose()?.map(|found| found.id);
    }
    if let Some(service) = &set.local_service {
        let find = |name: &str| catalog.service(name).ok_or_else(|| Error::object_not_found("service", name));
        row.local_service_id = service.object().map(find).transpose()?.map(|found| found.id);
    }
    if let Some(remote) = &set.remote_service {
        if let AnyOr::Name(name) = remote {
            check_far_service_name(name)?;
        }
        row.remote_service = remote.clone();
    }
    if let Some(level) = set.level {
        row.level = u8::try_from(level).ok().filter(|level| (1..=10).contains(level)).ok_or_else(|| {
            let what = format!("PRIORITY_LEVEL of broker priority '{}'", row.name);
            Error::out_of_range(&what, level, "1 (low) to 10 (high)")
        })?;
    }
    let criteria = |p: &Priority| (p.contract_id, p.local_service_id, p.remote_service.clone());
    if let Some(same) = catalog.priorities.values().find(|p| p.id != row.id && criteria(p) == criteria(&row)) {
        return Err(Error::new(
            Code::DUPLICATE_PRIORITY_CRITERIA,
            format!(
                "broker priority '{}' would have the same contract, local service and remote service as '{}'; \
                 alter or drop that one",
                row.name, same.name
            ),
        ));
    }
    Ok(row)
}
