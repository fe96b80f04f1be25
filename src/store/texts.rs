//! The reads of [`Broker::status`](crate::Broker::status) and [`Broker::doctor`](crate::Broker::doctor), in each database's dialect.

/// One text for each; they return the same columns in every dialect, times as microseconds.
#[derive(Debug, Clone, Copy)]
pub struct StoreTexts {
    /// The queries of [`Broker::status`](crate::Broker::status).
    pub status: StatusTexts,
    /// The queries of [`Broker::doctor`](crate::Broker::doctor).
    pub doctor: DoctorTexts,
    /// The queries of work queues.
    pub work: WorkTexts,
    /// The queries that look at single conversations and messages.
    pub inspect: InspectTexts,
}

/// `inspect/*.sql`
#[derive(Debug, Clone, Copy)]
pub struct InspectTexts {
    /// Both sides of conversations that were sent on.
    pub deliveries: &'static str,
    /// The bodies of Error messages.
    pub errors: &'static str,
    /// Dead letters.
    pub dead_letters: &'static str,
    /// Messages in queues.
    pub messages: &'static str,
    /// Messages in the transmission queue.
    pub undelivered: &'static str,
    /// Sides of conversations.
    pub endpoints: &'static str,
}

/// `work/*.sql`
#[derive(Debug, Clone, Copy)]
pub struct WorkTexts {
    /// Every work queue with the number of its jobs by state.
    pub queues: &'static str,
    /// Jobs that are not finished.
    pub jobs: &'static str,
    /// The content of one job that is not finished.
    pub job_body: &'static str,
    /// Finished jobs.
    pub finished: &'static str,
    /// How one job of a queue ended.
    pub finish: &'static str,
    /// How long jobs waited, and took.
    pub statistics: &'static str,
    /// Every work schedule, with its times.
    pub schedules: &'static str,
}

/// `status/*.sql`
#[derive(Debug, Clone, Copy)]
pub struct StatusTexts {
    /// The broker's own settings.
    pub broker: &'static str,
    /// Every queue with its readers.
    pub queues: &'static str,
    /// The queue monitors of every process.
    pub monitors: &'static str,
    /// The messages waiting in every queue, per level.
    pub levels: &'static str,
    /// How many endpoints each service has in each state.
    pub conversations: &'static str,
    /// The messages waiting to be delivered, and the reasons.
    pub transmission: &'static str,
}

/// `doctor/*.sql`
#[derive(Debug, Clone, Copy)]
pub struct DoctorTexts {
    /// The clock of the database, if it stands still.
    pub stopped_clock: &'static str,
    /// Roles with rights on what is for the owner alone.
    pub foreign_privileges: &'static str,
    /// Logins that may write every table of the database.
    pub data_writers: &'static str,
    /// Disabled queues.
    pub disabled_queues: &'static str,
    /// Quarantined conversation groups.
    pub quarantined: &'static str,
    /// Dead letters.
    pub dead_letters: &'static str,
    /// Conversations that were never ended; the parameter is a moment.
    pub never_ended: &'static str,
    /// Messages that no caller receives; the parameter is a moment.
    pub waiting_messages: &'static str,
    /// Messages that cannot be delivered; the parameter is a moment.
    pub undelivered: &'static str,
    /// Conversations without LIFETIME; the parameter is a moment.
    pub without_lifetime: &'static str,
    /// Work queues with jobs that need a look; the parameters are now and a moment.
    pub work_queues: &'static str,
    /// Work schedules that should have fired; the parameter is a moment.
    pub overdue_schedules: &'static str,
}

/// The texts below `sql/<dialect>/status` and `sql/<dialect>/doctor`.
macro_rules! store_texts {
    ($dialect:ident) => {{
        use crate::sql::$dialect::{doctor, inspect, status, work};
        $crate::store::StoreTexts {
            status: $crate::store::StatusTexts {
                broker: status::BROKER,
                queues: status::QUEUES,
                monitors: status::MONITORS,
                levels: status::LEVELS,
                conversations: status::CONVERSATIONS,
                transmission: status::TRANSMISSION,
            },
            doctor: $crate::store::DoctorTexts {
                stopped_clock: doctor::STOPPED_CLOCK,
                foreign_privileges: doctor::FOREIGN_PRIVILEGES,
                data_writers: doctor::DATA_WRITERS,
                disabled_queues: doctor::DISABLED_QUEUES,
                quarantined: doctor::QUARANTINED,
                dead_letters: doctor::DEAD_LETTERS,
                never_ended: doctor::NEVER_ENDED,
                waiting_messages: doctor::WAITING_MESSAGES,
                undelivered: doctor::UNDELIVERED,
                without_lifetime: doctor::WITHOUT_LIFETIME,
                work_queues: doctor::WORK_QUEUES,
                overdue_schedules: doctor::OVERDUE_SCHEDULES,
            },
            work: $crate::store::WorkTexts {
                queues: work::QUEUES,
                jobs: work::JOBS,
                job_body: work::JOB_BODY,
                finished: work::FINISHED,
                finish: work::FINISH,
                statistics: work::STATISTICS,
                schedules: work::SCHEDULES,
            },
            inspect: $crate::store::InspectTexts {
                deliveries: inspect::DELIVERIES,
                errors: inspect::ERRORS,
                dead_letters: inspect::DEAD_LETTERS,
                messages: inspect::MESSAGES,
                undelivered: inspect::UNDELIVERED,
                endpoints: inspect::ENDPOINTS,
            },
        }
    }};
}
pub(crate) use store_texts;
