//! Work queues: jobs that need no conversation. A job is pushed into a queue, taken by one reader, and completed.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> dialoq::Result<()> {
//! use dialoq::work::WorkQueue;
//! use dialoq::{Act, Broker};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Email { to: String }
//!
//! const EMAILS: WorkQueue<Email> = WorkQueue::json("emails");
//!
//! let broker = Broker::open("sqlite::memory:").await?;
//! broker.execute("CREATE WORK QUEUE emails").await?;
//! broker.push_job(EMAILS, &Email { to: "ann@example.org".into() }).await?;
//! for job in broker.take_jobs(EMAILS).await? {
//!     println!("send to {}", job.decode(EMAILS)?.to);
//!     broker.complete_job(&job).await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # How a job is held
//!
//! On a [`Broker`](crate::Broker) a taken job is *leased*: when the lease is over and nothing was reported, the attempt has
//! failed. In a [`Tx`](crate::Tx) the transaction holds it: the commit completes it, the rollback is a failed attempt.
//! [`TakeJobs::lease`] and [`TakeJobs::pop`] choose otherwise. Each taking has a token that grows, so a report about an
//! earlier taking is refused (60042), and a system outside can refuse late writes by it.
//!
//! # When an attempt fails
//!
//! The job is due again after a pause that grows, with jitter; after MAX_ATTEMPTS it is dead and stays until it is
//! redriven or cancelled. An attempt is counted when the job is handed out, so a job that kills its reader has an end too.
//!
//! The options of a queue stand in `CREATE WORK QUEUE`; see [`WorkNumber`](crate::protocol::definition::WorkNumber).

mod inspect;
mod queue;
mod schedules;
mod shown_state;
mod strategic;
mod verbs;
pub(crate) mod worker;

pub use crate::protocol::work::{AfterFailure, Job, JobState, TakenJob};
pub use inspect::{FinishedJob, JobFilter, JobStatus, Spread, StatisticsBy, WorkQueueStatus, WorkStatistics};
pub use queue::{NamesQueue, PushesTo, WorkQueue};
pub use schedules::{WorkScheduleStatus, coming_times};
pub use shown_state::ShownState;
pub use strategic::{JobTurn, JobTurns};
pub use verbs::{PushJob, Pushed, TakeJobs};
pub use worker::{Context, RunningWorker, StrategicWorker, WorkDone, Worker};
