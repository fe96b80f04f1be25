//! The verbs of jobs that tests of callers and guests submit.

use crate::protocol::Verb;
use crate::protocol::work::{Due, Hold, Push, Take, TakeFrom, WorkVerb};
use std::sync::Arc;

/// A take of one job of `w`.
pub(in crate::store::sqlite) fn take(hold: Hold) -> Verb {
    let (queue, taken_by) = ("w".into(), "reader".into());
    Verb::Work(WorkVerb::Take(Box::new(Take { queue, count: 1, job_type: None, from: TakeFrom::Any, hold, taken_by })))
}

/// A push into `w`.
pub(in crate::store::sqlite) fn push(body: Option<Vec<u8>>) -> Verb {
    Verb::Work(WorkVerb::Push(Box::new(Push {
        queue: "w".into(),
        job_type: "".into(),
        key: None,
        level: 5,
        due: Due::Now,
        unique: None,
        body: body.map(Arc::new),
        pushed_by: "writer".into(),
    })))
}
