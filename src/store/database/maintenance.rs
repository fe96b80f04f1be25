//! Work that falls due: timers, lifetimes, messages of the transmission queue. Every process runs it; row locks on the
//! server make sure that each event happens once.

use super::Database;
use super::closing::LONGEST_ENDING;
use crate::error::{Code, Error, Result};
use crate::store::database::calls::rows::{Row, notices_in, only};
use crate::store::database::link::{Arg, Call};
use crate::store::database::notifications::notice::Notice;
use crate::store::database::retry;
use crate::time::{Clock, Timestamp};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

/// Events run in one transaction.
const MOST_AT_ONCE: i32 = 256;
/// The interval of the sweep for unannounced work, e.g. rows of dead processes.
const SAFETY_TICK: Duration = Duration::from_secs(60);
/// The interval of the search for attempts of dead transactions, after a transaction has received.
const ATTEMPTS: Duration = Duration::from_secs(5);
/// The shortest interval of checks that the connection with the reader places still stands.
const PLACES: Duration = Duration::from_secs(5);

/// A tick that takes so long may hang, and another one goes on beside it. Long enough for a portion on a busy server.
pub(super) const HANGING_TICK: Duration = Duration::from_secs(5);
/// The most ticks of a process at once.
const MOST_TICKS: usize = 2;

/// The shortest interval of the search for jobs that this process holds and none of its transactions does.
const STRAY_JOBS: Duration = Duration::from_secs(5);

/// When the next event falls due.
#[derive(Debug)]
pub(super) struct Maintenance {
    /// The server's clock, or the tests'.
    clock: Clock,
    due: Mutex<Option<Timestamp>>,
    came: Notify,
    attempts: Throttle,
    places: Throttle,
    stray_jobs: Throttle,
    /// A test has set the server's time, and that was said.
    is_manual_now_said: AtomicBool,
}

/// An action that is due once in an interval.
#[derive(Debug)]
struct Throttle {
    every: Duration,
    last: Mutex<Option<Instant>>,
}

/// What one call of `tick` says.
struct Portion {
    /// Nothing is left that was due.
    is_last: bool,
    has_due_schedules: bool,
}

impl Throttle {
    fn new(every: Duration) -> Self {
        Self { every, last: Mutex::default() }
    }

    fn is_due(&self) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|last| last.elapsed() >= self.every);
        if is_due {
            *last = Some(Instant::now());
        }
        is_due
    }
}

impl Maintenance {
    pub(super) fn new(clock: Clock) -> Self {
        let (attempts, places) = (Throttle::new(ATTEMPTS), Throttle::new(PLACES));
        let stray_jobs = Throttle::new(STRAY_JOBS);
        let is_manual_now_said = AtomicBool::new(false);
        Self { clock, due: Mutex::default(), came: Notify::new(), attempts, places, stray_jobs, is_manual_now_said }
    }

    fn due(&self) -> MutexGuard<'_, Option<Timestamp>> {
        self.due.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes an event that falls due then, by the server's clock.
    pub(super) fn falls_due(&self, at: Timestamp) {
        let mut due = self.due();
        if due.is_none_or(|known| at < known) {
            *due = Some(at);
            self.came.notify_one();
        }
    }

    /// Reads the time and the next due time from an answer.
    pub(super) fn learn(&self, row: Row<'_>) -> Result<()> {
        self.learn_time(row)?;
        if let Some(due) = row.maybe_int("due_at")? {
            self.falls_due(Timestamp(due));
        }
        Ok(())
    }

    /// Reads the time from an answer.
    pub(super) fn learn_time(&self, row: Row<'_>) -> Result<()> {
        // Only the read of the definitions says so.
        let is_ruled = row.has("is_manual_now") && row.flag("is_manual_now")?;
        if is_ruled && self.clock.moves().is_none() && !self.is_manual_now_said.swap(true, Relaxed) {
            tracing::warn!(
                "the clock of this database stands still: a broker with a manual clock has set it (OpenOptions::clock) and was not closed; \
                 no lease ends and no timer fires; if no test uses the database now, its owner should call dialoq.set_manual_now with NULL"
            );
        }
        if row.has("now_at") {
            self.clock.set_remote(Timestamp(row.int("now_at")?));
        }
        Ok(())
    }

    /// When to do it, by this machine's steady clock.
    fn next(&self) -> Instant {
        let left = self.due().map_or(SAFETY_TICK, |due| due.since(self.clock.now()));
        Instant::now() + left.min(SAFETY_TICK)
    }

    fn forget(&self) {
        *self.due() = None;
    }
}

impl Database {
    /// Runs due work until the store closes.
    pub(super) async fn maintain(self: Arc<Self>) {
        let mut moves = self.clock.moves();
        // A task of its own, which ends with this one: its connection may hang, and what falls due does not wait for it.
        let mut keeping = JoinSet::new();
        let mut ticks = JoinSet::new();
        loop {
            let moved = async {
                match &mut moves {
                    Some(moves) => moves.changed().await.is_ok(),
                    None => std::future::pending().await,
                }
            };
            let mut done = tokio::select! {
                () = self.maintenance.came.notified() => Ok(()),
                () = tokio::time::sleep_until(self.maintenance.next()), if !self.is_manual() => self.tick_beside(&mut ticks).await,
                true = moved => self.push_test_clock().await,
            };
            if done.is_ok() && self.is_manual() && self.maintenance.due().is_some_and(|due| due <= self.clock.now()) {
                done = self.tick().await;
            }
            while keeping.try_join_next().is_some() {}
            if !self.is_manual() && keeping.is_empty() && self.maintenance.places.is_due() {
                let database = self.clone();
                keeping.spawn(async move {
                    if let Err(error) = database.keep_places().await {
                        tracing::warn!(%error, "whether the places of readers are still held is not known");
                    }
                });
            }
            if let Err(error) = done {
                tracing::warn!(%error, "what is due could not be done");
                tokio::time::sleep(retry::TASK).await;
                // A tick clears the due time when it begins; work that it has not done is still due.
                self.maintenance.falls_due(Timestamp(0));
            }
        }
    }

    /// What has fallen due while no process ran, and its end, for which an opening waits: a program that opens the broker for a single
    /// call is often closed before a task beside it has begun. No work schedule fired for such programs.
    pub(super) fn overdue_work(self: Arc<Self>) -> (impl Future<Output = ()> + Send, oneshot::Receiver<()>) {
        let (ended, is_over) = oneshot::channel();
        let work = async move {
            let done = if self.is_manual() { None } else { Some(self.tick().await) };
            if let Some(Err(error)) = &done {
                tracing::warn!(%error, "what had fallen due could not be done at the opening; it is tried again");
            }
            if !matches!(done, Some(Ok(()))) {
                self.maintenance.falls_due(Timestamp(0));
            }
            let _ = ended.send(());
        };
        (work, is_over)
    }

    /// Runs all due work, beside an earlier tick that may hang: nothing fell due in this process while its connection was cut in silence.
    async fn tick_beside(self: &Arc<Self>, ticks: &mut JoinSet<()>) -> Result<()> {
        while ticks.try_join_next().is_some() {}
        let hangs_at = Instant::now() + HANGING_TICK;
        let is_silent = if ticks.len() < MOST_TICKS {
            let (answer, answered) = oneshot::channel();
            let database = self.clone();
            ticks.spawn(async move {
                if let Err(Err(error)) = answer.send(database.tick().await) {
                    tracing::warn!(%error, "what was due could not be done; a later tick has begun meanwhile");
                }
            });
            // Its own answer: where that of an earlier tick was taken for it, two ran whenever something fell due.
            match timeout_at(hangs_at, answered).await {
                Ok(done) => return done.unwrap_or_else(|_| Err(Error::new(Code::STORE_IO, "a tick was cut short"))),
                Err(_) => true,
            }
        } else {
            timeout_at(hangs_at, ticks.join_next()).await.is_err()
        };
        if is_silent {
            tracing::debug!("what is due takes long, or a connection hangs");
        }
        // It has cleared the due time.
        self.maintenance.falls_due(Timestamp(0));
        Ok(())
    }

    /// Runs all due work.
    pub(super) async fn tick(self: &Arc<Self>) -> Result<()> {
        self.maintenance.forget();
        // First: what they release keeps this process from going on without its connection.
        self.release_owed_jobs().await;
        loop {
            // Each time: while thousands of timers fall due, its connection may be lost, and schedules wait.
            self.show_life().await?;
            self.publish_lost_rows().await;
            let Portion { is_last, has_due_schedules } = self.run_due().await?;
            if has_due_schedules {
                self.fire_schedules().await?;
            }
            if is_last {
                break;
            }
        }
        if self.presence.holds_jobs() && self.maintenance.stray_jobs.is_due() {
            self.give_back_stray_jobs().await?;
        }
        Ok(())
    }

    /// Lets other processes see that this one lives.
    async fn show_life(&self) -> Result<()> {
        if let Err(failure) = self.presence.hold_again().await {
            // It would end the attempts at the jobs of this process. Without jobs, what falls due does not wait for a connection that the
            // server, at its limit, may not take for hours.
            if self.holders.are_open() {
                return Err(failure.into());
            }
            tracing::warn!(error = %failure.error, "other processes do not see that this process lives");
        }
        Ok(())
    }

    /// Runs a portion of due work between the times of a look at the schedules. If it fails, the next tick does it.
    pub(super) async fn run_due_between(self: &Arc<Self>) {
        let done = async {
            self.show_life().await?;
            self.run_due().await
        };
        if let Err(error) = done.await {
            tracing::debug!(%error, "due work could not be done between the times of work schedules");
        }
    }

    /// Runs a portion of due work but for schedules.
    async fn run_due(self: &Arc<Self>) -> Result<Portion> {
        let call = Call { name: "tick", args: vec![Arg::Int(MOST_AT_ONCE)] };
        let rows = self.maintenance_control.call(call).await?;
        let row = only(&rows)?;
        self.maintenance.learn(row)?;
        let did = row.int("did")?;
        let notices = notices_in(&rows);
        let groups = notices.queues().max(usize::try_from(did).unwrap_or(0));
        self.publish_local(&notices, groups).await;
        // Of one server, whose steps fail one by one.
        if row.has("failure")
            && let Some(failure) = row.maybe_text("failure")?
        {
            tracing::warn!(failure, "part of what is due could not be done; it is tried again");
        }
        Ok(Portion { is_last: did < i64::from(MOST_AT_ONCE), has_due_schedules: row.flag("has_due_schedules")? })
    }

    pub(super) fn is_manual(&self) -> bool {
        self.clock.moves().is_some()
    }

    /// A transaction of this process has received. If the process dies, another one must find its attempt. A process
    /// that finds attempts keeps searching, so a notice now and then is enough.
    pub(super) fn attempt_began(&self) {
        if self.is_manual() || !self.maintenance.attempts.is_due() {
            return;
        }
        let at = self.clock.now().after(ATTEMPTS);
        self.outbox.put([Notice::Due(at)]);
        self.maintenance.falls_due(at);
    }

    /// Notes that a test clock rules the time of the database.
    pub(super) fn rule_time(&self) {
        let rule = self.clock.rule(self.definitions.known().catalog.settings.broker_guid);
        *self.clock_rule.lock().unwrap_or_else(PoisonError::into_inner) = rule;
    }

    /// Returns the database to the time of its server, if this is the last broker of this process with the test clock that rules it
    /// and no other clock has set the time since. The time stood still for every process for ever.
    pub(super) async fn return_server_time(&self) {
        let rule = self.clock_rule.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(rule) = rule.and_then(Arc::into_inner) else { return };
        let Some(set) = rule.set.into_inner().unwrap_or_else(PoisonError::into_inner) else { return };
        let call = Call { name: "set_manual_now", args: vec![Arg::Null, Arg::Time(set)] };
        let returned = tokio::time::timeout(LONGEST_ENDING, self.maintenance_control.call(call)).await;
        let late = || Error::new(Code::STORE_IO, "the server did not answer in time");
        if let Err(error) = returned.map_or_else(|_| Err(late()), |returned| returned.map_err(Error::from)) {
            tracing::warn!(%error, "the database keeps the time of a manual clock; its owner should call dialoq.set_manual_now with NULL");
        }
    }

    /// With a test clock: pushes its time to the server and runs the work that is due by it, before any other request.
    pub(super) async fn push_test_clock(self: &Arc<Self>) -> Result<()> {
        if !self.is_manual() {
            return Ok(());
        }
        let mut pushed = self.pushed_time.lock().await;
        let now = self.clock.now();
        if *pushed != Some(now) {
            // Before the call, which a close may cut off although the server does it.
            if let Some(rule) = &*self.clock_rule.lock().unwrap_or_else(PoisonError::into_inner) {
                *rule.set.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
            }
            let call = Call { name: "set_manual_now", args: vec![Arg::Time(now), Arg::Null] };
            self.maintenance_control.call(call).await?;
            self.tick().await?;
            *pushed = Some(now);
        }
        Ok(())
    }
}
