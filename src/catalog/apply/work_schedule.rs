//! Work schedules.

use super::{Applied, Consequence, Touched, take_object_id};
use crate::catalog::name::check_name;
use crate::catalog::objects::{Catalog, WorkSchedule};
use crate::error::{Code, Error, Result};
use crate::protocol::definition::{Missed, WorkScheduleOptions};
use std::sync::Arc;

const WHAT: &str = "work schedule";

/// The longest type or key of a job, in characters.
const MOST_NAME_CHARACTERS: usize = 128;
/// The longest cron line, in characters.
const MOST_CRON_CHARACTERS: usize = 256;
/// The longest body, in bytes: definitions are in memory.
const MOST_BODY_BYTES: usize = 64 << 10;

pub(super) fn create(catalog: &mut Catalog, name: &str, queue: &str, options: &WorkScheduleOptions) -> Result<Applied> {
    check_name(WHAT, name)?;
    if catalog.work_schedule(name).is_some() {
        return Err(Error::duplicate_name(WHAT, name));
    }
    let queue_id = catalog.work_queue(queue).ok_or_else(|| Error::object_not_found("work queue", queue))?.id;
    if options.cron.is_none() {
        return Err(Error::new(
            Code::SYNTAX,
            format!("work schedule '{name}' has no CRON; say when it fires, e.g. WITH CRON = '0 3 * * *'"),
        ));
    }
    let plain = WorkSchedule {
        id: 0,
        name: name.into(),
        queue_id,
        is_enabled: true,
        cron: Arc::default(),
        time_zone: "UTC".into(),
        missed: Missed::default(),
        job_type: Arc::default(),
        key: None,
        level: 5,
        body: Arc::default(),
    };
    let mut row = changed(plain, options)?;
    row.id = take_object_id(catalog)?;
    let schedule_id = row.id;
    catalog.work_schedules.insert(schedule_id, Arc::new(row));
    Ok(Applied::created(Touched::WorkSchedule(schedule_id)).then(Consequence::WorkScheduleAltered { schedule_id }))
}

pub(super) fn alter(catalog: &mut Catalog, name: &str, options: &WorkScheduleOptions) -> Result<Applied> {
    let found = catalog.work_schedule(name).ok_or_else(|| Error::object_not_found(WHAT, name))?;
    let row = changed((**found).clone(), options)?;
    let schedule_id = row.id;
    catalog.work_schedules.insert(schedule_id, Arc::new(row));
    Ok(Applied::of(Touched::WorkSchedule(schedule_id)).then(Consequence::WorkScheduleAltered { schedule_id }))
}

pub(super) fn drop(catalog: &mut Catalog, name: &str) -> Result<Applied> {
    let schedule_id = catalog.work_schedule(name).ok_or_else(|| Error::object_not_found(WHAT, name))?.id;
    catalog.work_schedules.remove(&schedule_id);
    Ok(Applied::of(Touched::WorkScheduleDeleted(schedule_id)).then(Consequence::WorkScheduleDropped { schedule_id }))
}

/// The schedule with these options, each checked.
fn changed(mut row: WorkSchedule, options: &WorkScheduleOptions) -> Result<WorkSchedule> {
    let WorkScheduleOptions { cron, time_zone, missed, job_type, job_key, level, body, status } = options;
    let of = |option: &str| format!("{option} of work schedule '{}'", row.name);
    if let Some(cron) = cron {
        check_length(&of("CRON"), cron, MOST_CRON_CHARACTERS)?;
        row.cron = cron.as_str().into();
    }
    if let Some(job_type) = job_type {
        check_length(&of("JOB_TYPE"), job_type, MOST_NAME_CHARACTERS)?;
        row.job_type = job_type.as_str().into();
    }
    if let Some(key) = job_key {
        check_length(&of("JOB_KEY"), key, MOST_NAME_CHARACTERS)?;
        row.key = (!key.is_empty()).then(|| key.as_str().into());
    }
    if let Some(level) = *level {
        let known = u8::try_from(level).ok().filter(|level| (1..=10).contains(level));
        row.level = known.ok_or_else(|| Error::out_of_range(&of("LEVEL"), level, "1 to 10"))?;
    }
    if let Some(body) = body {
        if body.len() > MOST_BODY_BYTES {
            let found = format_args!("a text of {} bytes", body.len()).to_string();
            return Err(Error::out_of_range(&of("BODY"), found, &format!("at most {MOST_BODY_BYTES} bytes")));
        }
        row.body = body.as_str().into();
    }
    row.missed = missed.unwrap_or(row.missed);
    row.is_enabled = status.unwrap_or(row.is_enabled);
    if let Some(time_zone) = time_zone {
        row.time_zone = time_zone.as_str().into();
    }
    row.time_zone = row.timetable()?.zone_name().into();
    Ok(row)
}

fn check_length(what: &str, text: &str, most: usize) -> Result<()> {
    match text.chars().count() {
        count if count <= most => Ok(()),
        count => Err(Error::out_of_range(
            what,
            format_args!("a text of {count} characters"),
            &format!("at most {most} characters"),
        )),
    }
}
