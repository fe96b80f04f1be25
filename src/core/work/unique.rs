//! Unique jobs: at most one job of a name in a queue, until the job is finished or the name's window is over.

use super::change::WorkChange;
use super::state::{Due, Work};
use crate::core::slab::Slab;
use crate::time::Timestamp;
use hashbrown::HashMap;
use std::sync::Arc;

/// A name in use.
#[derive(Debug, Clone)]
pub(super) struct UniqueName {
    pub(super) queue_id: i32,
    pub(super) key: Arc<str>,
    /// The job that was pushed under it; 0 once that is finished.
    pub(super) job_id: u64,
    /// The end of its window in microseconds; `None` is the end of its job.
    pub(super) until: Option<i64>,
    /// Its push asks for a window, which begins at the commit.
    pub(super) has_window: bool,
    /// The same name of a job that this transaction has finished; it is in use again after a rollback.
    pub(super) before: Option<u32>,
}

/// The names in use.
#[derive(Debug, Default)]
pub(super) struct UniqueJobs {
    pub(super) names: Slab<UniqueName>,
    by_key: HashMap<(i32, Arc<str>), u32>,
}

impl UniqueJobs {
    pub(super) fn find(&self, queue_id: i32, key: &Arc<str>) -> Option<u32> {
        self.by_key.get(&(queue_id, key.clone())).copied()
    }

    pub(super) fn insert(&mut self, mut name: UniqueName) -> u32 {
        let key = (name.queue_id, name.key.clone());
        name.before = self.by_key.get(&key).copied();
        let place = self.names.insert(name);
        self.by_key.insert(key, place);
        place
    }

    pub(super) fn remove(&mut self, place: u32) -> Option<UniqueName> {
        let name = self.names.remove(place)?;
        let key = (name.queue_id, name.key.clone());
        let mut later = self.by_key.get(&key).copied();
        if later == Some(place) {
            match name.before {
                Some(before) => self.by_key.insert(key, before),
                None => self.by_key.remove(&key),
            };
            return Some(name);
        }
        while let Some(other) = later {
            later = self.names[other].before;
            if later == Some(place) {
                self.names[other].before = name.before;
                break;
            }
        }
        Some(name)
    }
}

impl Work {
    /// The job that has the name at this time; a name whose window is over is forgotten.
    pub(super) fn job_of_name(&mut self, queue_id: i32, key: &Arc<str>, now: Timestamp) -> Option<UniqueName> {
        let place = self.unique.find(queue_id, key)?;
        let name = &self.unique.names[place];
        if name.until.is_some_and(|until| until <= now.0) {
            self.forget_name(place);
            return None;
        }
        Some(name.clone())
    }

    /// The job of a name is finished: the name goes with it, unless it has a window.
    pub(super) fn release_name(&mut self, place: u32) {
        if self.unique.names[place].until.is_none() {
            self.forget_name(place);
        } else {
            self.unique.names[place].job_id = 0;
        }
    }

    /// Forgets a name, and its row.
    pub(super) fn forget_name(&mut self, place: u32) {
        let Some(name) = self.unique.remove(place) else { return };
        if let Some(until) = name.until {
            self.due.remove(&(until, Due::Unique { name: place }));
        }
        if name.job_id != 0
            && let Some(job) = self.places.get(&name.job_id)
        {
            self.jobs[*job].unique = super::job::NO_NAME;
        }
        let UniqueName { queue_id, key, .. } = name;
        self.write(WorkChange::DeleteUniqueJob { queue_id, key });
    }
}
