//! Work schedules that are due. Every process fires them; the row on the server is changed from the time that was read to the
//! next one, so that each time fires once.

use super::Database;
use crate::catalog::Firing;
use crate::error::{Code, Result};
use crate::store::SqlRow;
use crate::store::database::calls::rows::{Row, notices_in, only};
use crate::store::database::definitions::catalog::work_schedule;
use crate::store::database::link::{Arg, Call};
use crate::time::Timestamp;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Schedules of one look: all, so that those that cannot fire leave room for others.
const MOST_AT_ONCE: i32 = 10_000;

/// Times that fire before the rest of what is due has its turn. Five schedules of MISSED = ALL that fired their 1,000 missed times held up
/// leases, timers and delayed jobs for 13 s.
const MOST_TIMES: usize = 50;

/// The pause before a schedule that could not fire is tried again: the first, and the longest. It doubles with each failure.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// Work schedules that could not fire, by id: the failures in a row, and when the next attempt is due.
#[derive(Debug, Default)]
pub(super) struct ScheduleFailures(Mutex<HashMap<i32, (u32, Instant)>>);

impl ScheduleFailures {
    fn all(&self) -> MutexGuard<'_, HashMap<i32, (u32, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the pause after the last failure of a schedule is not over.
    fn rests(&self, id: i32) -> bool {
        self.all().get(&id).is_some_and(|(_, next)| *next > Instant::now())
    }

    /// Notes a failure; gives the pause.
    fn note(&self, id: i32) -> Duration {
        let mut all = self.all();
        let (failures, next) = all.entry(id).or_insert((0, Instant::now()));
        let pause = AGAIN.0.saturating_mul(1 << (*failures).min(16)).min(AGAIN.1);
        (*failures, *next) = (*failures + 1, Instant::now() + pause);
        pause
    }

    fn forget(&self, id: i32) {
        self.all().remove(&id);
    }
}

impl Database {
    /// Fires every work schedule that is due. One that cannot fire stops no other.
    pub(super) async fn fire_schedules(self: &Arc<Self>) -> Result<()> {
        loop {
            let call = Call { name: "due_schedules", args: vec![Arg::Int(MOST_AT_ONCE)] };
            let rows = self.maintenance_control.call(call).await?;
            let mut fired = 0;
            for row in &rows {
                let id = Row(row).id("schedule_id")?;
                if self.schedule_failures.rests(id) {
                    continue;
                }
                match self.fire_schedule(row, &mut fired).await {
                    Ok(()) => self.schedule_failures.forget(id),
                    Err(error) if error.code() == Code::SERVER_UNREACHABLE => return Err(error),
                    Err(error) => {
                        let pause = self.schedule_failures.note(id);
                        let name = Row(row).text("name").unwrap_or_default();
                        let code = error.code();
                        tracing::warn!(schedule = name, %code, %error, ?pause, "a work schedule could not fire; it is tried again");
                        self.maintenance.falls_due(self.clock.now().after(pause));
                    }
                }
            }
            // If none fired, other processes are at it.
            if fired == 0 {
                return Ok(());
            }
        }
    }

    /// Fires a schedule that is due, and counts the steps that this process took.
    async fn fire_schedule(self: &Arc<Self>, row: &SqlRow, fired: &mut usize) -> Result<()> {
        let row = Row(row);
        let (id, schedule) = work_schedule(row)?;
        let (version, due) = (row.int("version")?, Timestamp(row.int("next_at")?));
        let timetable = schedule.timetable()?;
        // The server says that it is due, even if the clock as it was read last is a little behind.
        let now = self.clock.now().max(due);
        for firing in timetable.firings(due, now, schedule.missed) {
            let Firing { due, next, time } = firing;
            let time_or_null = |at: Option<Timestamp>| at.map_or(Arg::Null, Arg::Time);
            let call = Call {
                name: "fire_schedule",
                args: vec![
                    Arg::Int(id),
                    Arg::BigInt(version),
                    Arg::Time(due),
                    time_or_null(next),
                    time_or_null(time),
                    time.and_then(|time| schedule.body_at(time)).map_or(Arg::Null, Arg::Bytes),
                ],
            };
            let answer = self.maintenance_control.call(call).await?;
            self.publish_local(&notices_in(&answer), 1).await;
            if !only(&answer)?.flag("is_fired")? {
                break;
            }
            *fired += 1;
            if fired.is_multiple_of(MOST_TIMES) {
                self.run_due_between().await;
            }
        }
        Ok(())
    }
}
