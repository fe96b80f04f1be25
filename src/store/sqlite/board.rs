//! The readers of the file's owner and of the processes that work through it, published for all to read.

use super::batch::WriteSide;
use super::write::strike;
use crate::sql::sqlite::rows;
use crate::store::MonitorBoard;
use crate::time::Timestamp;
use rusqlite::{Params, Result, params};
use std::time::Instant;

const DELETE_MONITORS: &str = rows::DELETE_QUEUE_MONITORS;
const DELETE_TASKS: &str = rows::DELETE_ACTIVATED_TASKS;
const INSERT_MONITOR: &str = rows::INSERT_QUEUE_MONITOR;
const INSERT_TASK: &str = rows::INSERT_ACTIVATED_TASK;

/// Writes the current board, in the transaction of the batch.
pub(super) fn write(side: &mut WriteSide, board: &MonitorBoard, now: Timestamp) -> Result<()> {
    let version = board.version();
    clear(side)?;
    for process in board.all_processes() {
        for row in &process.monitors {
            run(
                side,
                INSERT_MONITOR,
                params![
                    row.monitor_id.cast_signed(),
                    row.queue_id,
                    row.state,
                    row.last_empty_rowset_time.map(|time| time.0),
                    row.last_activated_time.map(|time| time.0),
                    row.tasks_waiting.cast_signed(),
                    row.max_queue_readers,
                    row.tasks_running.cast_signed(),
                    row.tasks_started_total.cast_signed(),
                    row.tasks_aborted_total.cast_signed(),
                    row.task_limit_reached_total.cast_signed(),
                    row.activation_errors_total.cast_signed(),
                    process.process_id,
                    now.0,
                ],
            )?;
        }
        for row in &process.tasks {
            run(
                side,
                INSERT_TASK,
                params![
                    row.task_id.cast_signed(),
                    row.monitor_id.cast_signed(),
                    row.queue_id,
                    &*row.procedure_name,
                    process.process_id,
                    row.started_at.0,
                ],
            )?;
        }
    }
    side.board_version = version;
    side.board_written = Instant::now();
    Ok(())
}

/// Removes the published rows.
pub(super) fn clear(side: &WriteSide) -> Result<()> {
    side.begin()?;
    run(side, DELETE_MONITORS, [])?;
    run(side, DELETE_TASKS, [])
}

fn run(side: &WriteSide, text: &str, params: impl Params) -> Result<()> {
    strike(side.fault.as_deref(), || side.connection.prepare_cached(text)?.execute(params)).map(drop)
}
