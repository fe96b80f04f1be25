//! The workloads of the embedded store, against a bare log, and against bare SQLite for one caller alone.

mod flood;
mod jobs;
mod sizes;
mod step;
mod window;

pub(super) use flood::middle;
pub(super) use sizes::some;
pub(super) use step::{MANY, StepSetting};

use super::machine::Machine;
use super::report::{Report, Settings};
use super::rival::log::io_error;
use super::{Options, Progress};
use dialoq::internals::ErrorConstructors;
use dialoq::{Code, Error, Result};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(super) async fn run(
    options: &Options,
    folder: &Path,
    synced: bool,
    progress: impl Fn(Progress) + Send + Sync,
) -> Result<Report> {
    let scratch = Scratch::create(folder)?;
    let plan = step::plan(options);
    let total = plan.len();
    let durability = if synced { "full" } else { "normal" };
    let mut report = Report::new(Settings::of(options, durability), Machine::detect(&scratch.path));
    for (done, step) in plan.into_iter().enumerate() {
        progress(Progress { done, total, next: step.to_string() });
        let folder = scratch.folder(done)?;
        step::take(step, &StepSetting { options, folder: &folder, synced }, &mut report).await?;
        // Deleted now, so that later steps find the page cache and the disk as empty as the first did.
        std::fs::remove_dir_all(&folder).map_err(io_error)?;
    }
    progress(Progress { done: total, total, next: String::new() });
    report.judge_embedded();
    Ok(report)
}

/// A folder that goes away with this value.
pub(super) struct Scratch {
    pub(super) path: PathBuf,
}

impl Scratch {
    pub(super) fn create(parent: &Path) -> Result<Self> {
        let path = parent.join(format!("dialoq-bench-{}", std::process::id()));
        // Not the folder above it too: that one would stay behind.
        match std::fs::create_dir(&path) {
            Err(cause) if cause.kind() != ErrorKind::AlreadyExists => {
                let why = format!("the bench's folder {} cannot be made: {cause}", path.display());
                Err(Error::new(Code::STORE_READ_ONLY, why).caused_by(cause))
            }
            // One that a killed bench has left serves as well.
            _ => Ok(Self { path }),
        }
    }

    fn folder(&self, number: usize) -> Result<PathBuf> {
        let path = self.path.join(number.to_string());
        std::fs::create_dir_all(&path).map_err(io_error)?;
        Ok(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be deleted is left for its owner to see.
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
