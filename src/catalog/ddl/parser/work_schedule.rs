//! Work schedules.

use super::{Action, Definitions};
use crate::catalog::ddl::cursor::{Cursor, either};
use crate::error::Result;
use crate::protocol::definition::{Definition, Missed, WorkScheduleOptions};

pub(super) fn work_schedule(cursor: &mut Cursor, action: Action) -> Definitions {
    let name = cursor.name_in_schema("a work schedule")?;
    let definition = match action {
        Action::Drop => Definition::DropWorkSchedule { name },
        Action::Create => {
            cursor.words("ON WORK QUEUE")?;
            let queue = cursor.name_in_schema("a work queue")?;
            cursor.words("WITH")?;
            Definition::CreateWorkSchedule { name, queue, options: options(cursor)? }
        }
        Action::Alter => {
            cursor.words("WITH")?;
            Definition::AlterWorkSchedule { name, options: options(cursor)? }
        }
    };
    Ok(vec![definition])
}

/// Reads the value of an option, and keeps it.
type Read = fn(&mut Cursor, &mut WorkScheduleOptions) -> Result<()>;

const OPTIONS: [(&str, Read); 8] = [
    ("CRON", |cursor, options| text(cursor, "CRON", &mut options.cron)),
    ("TIME_ZONE", |cursor, options| text(cursor, "TIME_ZONE", &mut options.time_zone)),
    ("MISSED", |cursor, options| {
        cursor.once(&mut options.missed, "MISSED", |cursor| {
            cursor.symbol('=')?;
            cursor.one_of(&Missed::ALL)
        })
    }),
    ("JOB_TYPE", |cursor, options| text(cursor, "JOB_TYPE", &mut options.job_type)),
    ("JOB_KEY", |cursor, options| text(cursor, "JOB_KEY", &mut options.job_key)),
    ("LEVEL", |cursor, options| {
        cursor.once(&mut options.level, "LEVEL", |cursor| {
            cursor.symbol('=')?;
            cursor.integer("LEVEL")
        })
    }),
    ("BODY", |cursor, options| text(cursor, "BODY", &mut options.body)),
    ("STATUS", |cursor, options| cursor.once(&mut options.status, "STATUS", Cursor::equals_on_off)),
];

fn options(cursor: &mut Cursor) -> Result<WorkScheduleOptions> {
    let mut options = WorkScheduleOptions::default();
    loop {
        let Some((_, read)) = OPTIONS.iter().find(|(word, _)| cursor.is_word(word)) else {
            return Err(cursor.unexpected(&either(&OPTIONS.map(|(word, _)| word))));
        };
        read(cursor, &mut options)?;
        if !cursor.eat_symbol(',') {
            return Ok(options);
        }
    }
}

fn text(cursor: &mut Cursor, option: &str, place: &mut Option<String>) -> Result<()> {
    cursor.once(place, option, |cursor| {
        cursor.symbol('=')?;
        cursor.text(option)
    })
}
