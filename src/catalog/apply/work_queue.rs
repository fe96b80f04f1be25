//! Work queues.

use super::{Applied, Consequence, Touched, take_object_id};
use crate::catalog::name::check_queue_name;
use crate::catalog::objects::{Catalog, WorkQueue};
use crate::error::{Code, Error, Result};
use crate::protocol::definition::{WorkOption, WorkOrder, WorkSettings};
use std::sync::Arc;

const WHAT: &str = "work queue";

pub(super) fn create(catalog: &mut Catalog, name: &str, options: &[WorkOption]) -> Result<Applied> {
    check_queue_name(name)?;
    if catalog.work_queue(name).is_some() {
        return Err(Error::duplicate_name(WHAT, name));
    }
    let settings = changed(name, WorkSettings::default(), options)?;
    let id = take_object_id(catalog)?;
    catalog.work_queues.insert(id, Arc::new(WorkQueue { id, name: name.into(), settings }));
    Ok(Applied::created(Touched::WorkQueue(id)).then(Consequence::WorkQueueAltered { queue_id: id }))
}

pub(super) fn alter(catalog: &mut Catalog, name: &str, options: &[WorkOption]) -> Result<Applied> {
    let found = catalog.work_queue(name).ok_or_else(|| Error::object_not_found(WHAT, name))?;
    let mut row = (**found).clone();
    row.settings = changed(name, row.settings, options)?;
    if row.settings.order != found.settings.order {
        let (was, wanted): (WorkOrder, WorkOrder) = (found.settings.order, row.settings.order);
        return Err(Error::new(
            Code::SYNTAX,
            format!(
                "ORDER of work queue '{name}' is {} and cannot become {}: it is fixed when the queue is created; create \
                 another queue",
                was.word(),
                wanted.word()
            ),
        ));
    }
    let id = row.id;
    catalog.work_queues.insert(id, Arc::new(row));
    Ok(Applied::of(Touched::WorkQueue(id)).then(Consequence::WorkQueueAltered { queue_id: id }))
}

pub(super) fn drop(catalog: &mut Catalog, name: &str) -> Result<Applied> {
    let id = catalog.work_queue(name).ok_or_else(|| Error::object_not_found(WHAT, name))?.id;
    if let Some(schedule) = catalog.work_schedules.values().find(|schedule| schedule.queue_id == id) {
        return Err(Error::in_use(WHAT, name, format_args!("work schedule '{}'", schedule.name)));
    }
    catalog.work_queues.remove(&id);
    Ok(Applied::of(Touched::WorkQueueDeleted(id)).then(Consequence::WorkQueueDropped { queue_id: id }))
}

/// The settings with these options, each checked.
fn changed(queue: &str, mut settings: WorkSettings, options: &[WorkOption]) -> Result<WorkSettings> {
    for option in options {
        if let WorkOption::Number(number, value) = *option {
            let (least, most) = number.range();
            if !(least..=most).contains(&value) {
                let what = format!("{} of work queue '{queue}'", number.word());
                return Err(Error::out_of_range(&what, value, &format!("{least} to {most}")));
            }
        }
        settings.set(*option);
    }
    Ok(settings)
}
