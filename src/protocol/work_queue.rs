//! The settings of work queues, as data: each option with its word in the DDL, its default and its range.

use serde::{Deserialize, Serialize};

/// The order in which the jobs of a work queue are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum WorkOrder {
    /// Whatever is quickest; no promise.
    Unordered,
    /// The job pushed first, of those that no reader works on. A failed job comes again after its pause, so that later
    /// jobs may overtake it.
    #[default]
    Fifo,
    /// One job after the other: the next is taken when the one before is done, dead or cancelled. In a queue with keys,
    /// one after the other of each key.
    FifoStrict,
    /// The job pushed last.
    Lifo,
    /// The highest level first, within a level the job pushed first.
    Priority,
}

impl WorkOrder {
    /// Each with its word in the DDL, which the tables keep.
    pub const ALL: [(&'static str, Self); 5] = [
        ("UNORDERED", Self::Unordered),
        ("FIFO", Self::Fifo),
        ("FIFO_STRICT", Self::FifoStrict),
        ("LIFO", Self::Lifo),
        ("PRIORITY", Self::Priority),
    ];

    /// Its word in the DDL.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, order)| *order == self).map_or("FIFO", |(word, _)| *word)
    }
}

/// How takes lock and mark the jobs of a work queue on a server. Each gives the same jobs in the same order, to one reader each,
/// also if processes use several at the same time; they differ in speed. On SQLite, where one process orders all takes, it
/// changes nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum TakingTechnique {
    /// The one that was measured to be best on the server.
    #[default]
    Default,
    /// A statement that passes over locked rows. PostgreSQL: `SELECT ... FOR UPDATE SKIP LOCKED`, and one `UPDATE` of these
    /// rows. SQL Server: `UPDATE ... OUTPUT` with `READPAST`.
    Statement,
    /// One statement with a common table expression that chooses the jobs. SQL Server: an `UPDATE` of the expression, with
    /// `OUTPUT`.
    Cte,
    /// A cursor that locks the next job, and `UPDATE ... WHERE CURRENT OF`.
    Cursor,
    /// As `Statement`, under a lock that lets one take of the queue after the other choose its jobs. PostgreSQL: an advisory
    /// lock. SQL Server: `sp_getapplock`. After a short wait for the lock the take goes on without it.
    AppLock,
}

impl TakingTechnique {
    /// Each with its word in the DDL, which the tables keep.
    pub const ALL: [(&'static str, Self); 5] = [
        ("DEFAULT", Self::Default),
        ("STATEMENT", Self::Statement),
        ("CTE", Self::Cte),
        ("CURSOR", Self::Cursor),
        ("APPLOCK", Self::AppLock),
    ];

    /// Its word in the DDL.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(_, technique)| *technique == self).map_or("DEFAULT", |(word, _)| *word)
    }
}

macro_rules! numbers {
    ($($(#[doc = $doc:literal])* $name:ident = $word:literal, $default:literal, $least:literal..=$most:literal;)*) => {
        /// An option of a work queue that is a number.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum WorkNumber {
            $($(#[doc = $doc])* $name),*
        }

        impl WorkNumber {
            /// All of them, in the order of the tables' columns.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its word in the DDL; in lower case the name of its column.
            pub fn word(self) -> &'static str {
                match self { $(Self::$name => $word),* }
            }

            /// Its value in a queue that does not name it.
            pub fn default_value(self) -> i64 {
                match self { $(Self::$name => $default),* }
            }

            /// The least and the largest value.
            pub fn range(self) -> (i64, i64) {
                match self { $(Self::$name => ($least, $most)),* }
            }
        }

        const NUMBERS: usize = [$($word),*].len();
    };
}

numbers! {
    /// How often a job is handed out before it is dead.
    MaxAttempts = "MAX_ATTEMPTS", 5, 1..=32767;
    /// The pause after the first failed attempt, in milliseconds.
    RetryDelayMs = "RETRY_DELAY_MS", 1000, 0..=31_536_000_000;
    /// By what the pause grows with each further failure, in percent of the one before.
    RetryFactorPercent = "RETRY_FACTOR_PERCENT", 200, 100..=1000;
    /// The longest pause, in milliseconds.
    MaxRetryDelayMs = "MAX_RETRY_DELAY_MS", 3_600_000, 0..=31_536_000_000;
    /// By how much a pause is longer or shorter at most, in percent, so that jobs that failed together do not come
    /// together again.
    RetryJitterPercent = "RETRY_JITTER_PERCENT", 20, 0..=100;
    /// How long a reader holds a job that it does not prolong, in milliseconds.
    LeaseMs = "LEASE_MS", 60_000, 1..=31_536_000_000;
    /// How long finished jobs are kept, in seconds.
    HistorySeconds = "HISTORY_SECONDS", 86_400, 1..=3_153_600_000;
    /// How many finished jobs are kept.
    HistoryRows = "HISTORY_ROWS", 1_000_000, 1..=1_000_000_000;
    /// The most jobs taken at a time; 0 is no limit.
    MaxTaken = "MAX_TAKEN", 0, 0..=1_000_000;
    /// The most jobs of one key taken at a time; 0 is no limit.
    MaxTakenPerKey = "MAX_TAKEN_PER_KEY", 0, 0..=1_000_000;
    /// The most jobs taken in RATE_MS; 0 is no limit.
    RateJobs = "RATE_JOBS", 0, 0..=1_000_000_000;
    /// The time of RATE_JOBS and KEY_RATE_JOBS, in milliseconds.
    RateMs = "RATE_MS", 1000, 1..=86_400_000;
    /// The most jobs of one key taken in RATE_MS; 0 is no limit.
    KeyRateJobs = "KEY_RATE_JOBS", 0, 0..=1_000_000_000;
    /// The most activated readers at a time, over all processes; 0 is no limit but those of the workers themselves.
    MaxQueueReaders = "MAX_QUEUE_READERS", 0, 0..=32767;
}

/// One option that a statement names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WorkOption {
    /// `STATUS = ON | OFF`: whether jobs may be taken. Default ON; OFF pauses the queue, pushes go on.
    Status(bool),
    /// `ORDER = ...`. Fixed when the queue is created.
    Order(WorkOrder),
    /// `HISTORY = ON | OFF`: whether finished jobs are kept, with their times and readers. Default ON.
    History(bool),
    /// `TAKE_BY = ...`: how takes lock and mark jobs on a server. Default DEFAULT.
    TakeBy(TakingTechnique),
    /// Any other. The value is kept as given, so that the error can name one that is out of range.
    Number(WorkNumber, i64),
}

/// All settings of a work queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkSettings {
    /// Whether jobs may be taken.
    pub is_enabled: bool,
    /// The order of taking.
    pub order: WorkOrder,
    /// Whether finished jobs are kept.
    pub has_history: bool,
    /// How takes lock and mark jobs on a server.
    pub take_by: TakingTechnique,
    numbers: [i64; NUMBERS],
}

impl Default for WorkSettings {
    fn default() -> Self {
        let mut numbers = [0; NUMBERS];
        for number in WorkNumber::ALL {
            numbers[*number as usize] = number.default_value();
        }
        let (order, take_by) = Default::default();
        Self { is_enabled: true, order, has_history: true, take_by, numbers }
    }
}

impl WorkSettings {
    /// The value of a number.
    pub fn get(&self, number: WorkNumber) -> i64 {
        self.numbers[number as usize]
    }

    /// A limit; `None` if there is none.
    pub fn limit(&self, number: WorkNumber) -> Option<i64> {
        Some(self.get(number)).filter(|limit| *limit > 0)
    }

    /// Whether a take depends on what other takes have committed, so that takes come one after the other.
    pub(crate) fn is_limited(&self) -> bool {
        let limits = [WorkNumber::MaxTaken, WorkNumber::MaxTakenPerKey, WorkNumber::RateJobs, WorkNumber::KeyRateJobs];
        self.order == WorkOrder::FifoStrict || limits.into_iter().any(|limit| self.limit(limit).is_some())
    }

    /// Sets an option, whatever its value.
    pub fn set(&mut self, option: WorkOption) {
        match option {
            WorkOption::Status(is_enabled) => self.is_enabled = is_enabled,
            WorkOption::Order(order) => self.order = order,
            WorkOption::History(has_history) => self.has_history = has_history,
            WorkOption::TakeBy(take_by) => self.take_by = take_by,
            WorkOption::Number(number, value) => self.numbers[number as usize] = value,
        }
    }

    /// The options by which it differs from a queue that names none.
    pub fn options(&self) -> Vec<WorkOption> {
        let plain = Self::default();
        let mut options = Vec::new();
        if !self.is_enabled {
            options.push(WorkOption::Status(false));
        }
        if self.order != plain.order {
            options.push(WorkOption::Order(self.order));
        }
        if !self.has_history {
            options.push(WorkOption::History(false));
        }
        if self.take_by != plain.take_by {
            options.push(WorkOption::TakeBy(self.take_by));
        }
        let differing = WorkNumber::ALL.iter().filter(|number| self.get(**number) != plain.get(**number));
        options.extend(differing.map(|number| WorkOption::Number(*number, self.get(*number))));
        options
    }
}
