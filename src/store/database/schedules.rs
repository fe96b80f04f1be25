//! Work schedules that are due. Every process fires them; the row on the server is changed from the time that was read to the
//! next one, so that each time fires once.

use super::Database;
use crate::catalog::Firing;
use crate::error::Result;
use crate::store::SqlRow;
use crate::store::database::calls::rows::{Row, notices_in, only};
use crate::store::database::definitions::catalog::work_schedule;
use crate::store::database::link::{Arg, Call};
use crate::time::Timestamp;
use std::sync::Arc;

/// Schedules of one look.
const MOST_AT_ONCE: i32 = 100;

impl Database {
    /// Fires every work schedule that is due.
    pub(super) async fn fire_schedules(self: &Arc<Self>) -> Result<()> {
        loop {
            let call = Call { name: "due_schedules", args: vec![Arg::Int(MOST_AT_ONCE)] };
            let rows = self.maintenance_control.call(call).await?;
            let mut fired = 0;
            for row in &rows {
                fired += self.fire_schedule(row).await?;
            }
            // If none fired, other processes are at it.
            if fired == 0 {
                return Ok(());
            }
        }
    }

    /// Fires a schedule that is due; how many steps this process took.
    async fn fire_schedule(self: &Arc<Self>, row: &SqlRow) -> Result<usize> {
        let row = Row(row);
        let (id, schedule) = work_schedule(row)?;
        let (version, due) = (row.int("version")?, Timestamp(row.int("next_at")?));
        let timetable = match schedule.timetable() {
            Ok(timetable) => timetable,
            Err(error) => {
                tracing::warn!(%error, "a work schedule does not fire until it is altered");
                return Ok(0);
            }
        };
        // The server says that it is due, even if the clock as it was read last is a little behind.
        let now = self.clock.now().max(due);
        for (steps, firing) in timetable.firings(due, now, schedule.missed).into_iter().enumerate() {
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
                return Ok(steps);
            }
        }
        Ok(1)
    }
}
