//! Hearing what happens in the queues: what other processes say, and a look of one's own where nobody can say it.
//!
//! A lock that is freed by a transaction of another process, or by the death of its host, makes no word. So a process in
//! which somebody sleeps looks once when he goes to sleep, and on while something ready is locked. A server that carries
//! no words is looked at by one poller for all who sleep, and by none if nobody does.

use crate::error::Result;
use crate::store::database::Database;
use crate::store::database::calls::rows::{Row, damaged, only};
use crate::store::database::link::{Call, Failure, Listener};
use crate::store::database::notifications::notices::Notices;
use crate::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, sleep, sleep_until};

/// The steps between looks: from the first to the last, growing while nothing changes.
const SHORTEST_POLL: Duration = Duration::from_millis(1);
const LONGEST_POLL: Duration = Duration::from_millis(100);
const SHORTEST_LOOK: Duration = Duration::from_millis(4);
const LONGEST_LOOK: Duration = Duration::from_secs(1);
/// How often queue monitors are shown new facts while much happens.
const MONITOR_LOOK: Duration = Duration::from_millis(50);
/// The facts of queue monitors are refreshed this often at most.
const REFRESH: Duration = Duration::from_millis(20);
/// What happens during a look may not be in it; where much happens, it is enough to be nearly right.
const MOST_LOOKS: u32 = 2;
/// A look for words that were lost with whoever should have said them.
const SAFETY_LOOK: Duration = Duration::from_secs(60);
const LONGEST_RECONNECT: Duration = Duration::from_secs(5);

/// What wants the queues to be looked at.
#[derive(Debug, Default)]
pub(in crate::store::database) struct Watch {
    /// Nobody tells this process anything: it must look for itself.
    is_polling: AtomicBool,
    has_heard: AtomicBool,
    wants_look: AtomicBool,
    told: Notify,
    /// How often something has happened.
    times: AtomicU64,
    /// What that was when the queues were last looked at, and one more; at first they were not.
    seen_times: AtomicU64,
    refreshing: Mutex<Option<Instant>>,
    looking: Mutex<()>,
}

impl Watch {
    /// Nothing has happened since the last look.
    fn is_fresh(&self) -> bool {
        self.times.load(SeqCst) + 1 == self.seen_times.load(SeqCst)
    }

    /// Something happened in a queue.
    pub(in crate::store::database) fn heard(&self) {
        self.times.fetch_add(1, SeqCst);
        if !self.has_heard.swap(true, SeqCst) {
            self.told.notify_one();
        }
    }

    /// Something may be ready that nobody speaks of.
    pub(in crate::store::database) fn look_soon(&self) {
        if !self.wants_look.swap(true, SeqCst) {
            self.told.notify_one();
        }
    }

    pub(in crate::store::database) fn set_polling(&self, is_polling: bool) {
        self.is_polling.store(is_polling, SeqCst);
        self.told.notify_one();
    }
}

/// What a look showed.
#[derive(Debug, Default, PartialEq, Eq)]
struct Picture {
    /// Queues with groups that nobody holds, and how many.
    ready: BTreeMap<i32, usize>,
    /// Queues with groups that somebody holds, and their messages as last committed.
    held: BTreeMap<i32, usize>,
    has_locked: bool,
}

/// When the queues were last looked at, and when they may be again.
struct Pace {
    looked_at: Instant,
    step: Duration,
}

impl Pace {
    /// The same picture again: look less often.
    fn slow_down(&mut self, longest: Duration) {
        self.step = (self.step.mul_f64(1.5)).min(longest);
    }
}

impl Database {
    /// Looks at the queues, as often as need be, until the store closes.
    pub(in crate::store::database) async fn watch_queues(self: Arc<Self>) {
        let mut pace = Pace { looked_at: Instant::now(), step: SHORTEST_POLL };
        let mut last = Picture::default();
        loop {
            let is_polling = self.watch.is_polling.load(SeqCst);
            let has_monitors = self.board.monitors().has_monitors();
            let is_awaited = self.board.sleeping() > 0 || has_monitors;
            let next = match (is_awaited, is_polling, last.has_locked) {
                (false, ..) => None,
                (true, true, _) | (true, _, true) => Some(pace.looked_at + pace.step),
                (true, false, false) => Some(pace.looked_at + SAFETY_LOOK),
            };
            let alarm = async {
                match next {
                    Some(next) => sleep_until(next).await,
                    None => std::future::pending().await,
                }
            };
            let (shortest, longest) =
                if is_polling { (SHORTEST_POLL, LONGEST_POLL) } else { (SHORTEST_LOOK, LONGEST_LOOK) };
            tokio::select! {
                () = self.board.somebody_sleeps() => {}
                () = self.board.monitors().began() => {}
                () = self.watch.told.notified() => {
                    let wants_look = self.watch.wants_look.swap(false, SeqCst);
                    let has_heard = self.watch.has_heard.swap(false, SeqCst);
                    if is_polling {
                        pace.step = shortest;
                    } else if !wants_look {
                        if !has_heard || !has_monitors {
                            continue;
                        }
                        sleep_until(pace.looked_at + MONITOR_LOOK).await;
                    }
                }
                () = alarm => {}
            }
            if pace.looked_at.elapsed() > longest {
                pace.step = shortest;
            }
            sleep_until(pace.looked_at + pace.step).await;
            if self.board.sleeping() == 0 && !self.board.monitors().has_monitors() {
                continue;
            }
            pace.looked_at = Instant::now();
            match self.look().await {
                Ok(picture) => {
                    if picture == last || !is_polling {
                        pace.slow_down(longest);
                    } else {
                        pace.step = shortest;
                    }
                    last = picture;
                }
                Err(error) => {
                    tracing::warn!(%error, "the queues could not be looked at");
                    pace.step = longest;
                }
            }
        }
    }

    /// Brings the facts that queue monitors judge up to date, if anything has happened since they were last.
    pub(in crate::store::database) async fn refresh_facts(self: &Arc<Self>) {
        if self.watch.is_fresh() {
            return;
        }
        let mut refreshed = self.watch.refreshing.lock().await;
        if self.watch.is_fresh() {
            return;
        }
        if let Some(last) = *refreshed
            && !self.is_manual()
        {
            sleep_until(last + REFRESH).await;
        }
        for _ in 0..MOST_LOOKS {
            if let Err(error) = self.look().await {
                tracing::warn!(%error, "the queues could not be looked at");
            }
            if self.watch.is_fresh() {
                break;
            }
        }
        *refreshed = Some(Instant::now());
    }

    /// Looks once, and wakes whom it concerns.
    async fn look(self: &Arc<Self>) -> Result<Picture> {
        let _alone = self.watch.looking.lock().await;
        let times = self.watch.times.load(SeqCst);
        let taken: BTreeMap<i32, u64> = {
            let queues = &self.definitions.known().catalog.queues;
            queues.values().map(|queue| (queue.id, self.board.queue(&queue.name).taken())).collect()
        };
        let rows = self.side.call(Call { name: "poll", args: Vec::new() }).await.map_err(Failure::into_caller_error)?;
        let row = only(&rows)?;
        let picture = Picture {
            ready: counts(row, "ready_queues")?,
            held: counts(row, "held_queues")?,
            has_locked: row.flag("has_locked")?,
        };
        self.upkeep.learn(row)?;
        if row.int("catalog_version")? != self.definitions.known().version {
            self.reload().await?;
        }
        let catalog = self.definitions.known().catalog.clone();
        let is_awaited = self.board.sleeping() > 0;
        for queue in catalog.queues.values() {
            let activity = self.board.queue(&queue.name);
            let facts = activity.facts();
            let groups = picture.ready.get(&queue.id).copied().unwrap_or(0);
            let held = picture.held.get(&queue.id).copied().unwrap_or(0) as u64;
            let shown = groups as u64 + held.saturating_sub(self.taken.of(queue.id));
            let meanwhile = activity.taken() - taken.get(&queue.id).copied().unwrap_or_default();
            let unread = unread_after(facts.unread, shown, meanwhile);
            if groups > 0 && is_awaited {
                activity.arrived(groups, groups, unread);
            } else if (groups, unread) != (facts.ready_groups, facts.unread) {
                activity.stands_for_monitors(groups, unread);
            }
        }
        self.watch.seen_times.store(times + 1, SeqCst);
        Ok(picture)
    }

    /// Listens to other processes until the store closes; when the connection is lost, looks for itself meanwhile.
    pub(in crate::store::database) async fn listen_to_others(self: Arc<Self>, mut listener: Box<dyn Listener>) {
        let own = self.process.simple().to_string();
        loop {
            let error = loop {
                match listener.next().await {
                    Ok(text) => {
                        let words = Notices::parse(&text);
                        if words.process.as_deref() != Some(&*own) {
                            self.hear(&words, 1).await;
                        }
                    }
                    Err(error) => break error,
                }
            };
            tracing::warn!(%error, "the connection on which other processes are heard was lost");
            self.watch.set_polling(true);
            let Some(again) = self.listen_again().await else { return };
            listener = again;
            self.watch.set_polling(false);
            self.catch_up().await;
        }
    }

    async fn listen_again(&self) -> Option<Box<dyn Listener>> {
        let mut step = SHORTEST_LOOK;
        loop {
            sleep(step).await;
            match self.driver.listen().await {
                Ok(listener) => return listener,
                Err(error) => tracing::debug!(%error, "other processes can still not be heard"),
            }
            step = (step * 2).min(LONGEST_RECONNECT);
        }
    }

    /// Notices may have been missed: reads what they would have told, and wakes everybody to look.
    async fn catch_up(self: &Arc<Self>) {
        if let Err(error) = self.reload().await {
            tracing::warn!(%error, "the definitions could not be read");
        }
        self.board.wake_all();
        self.upkeep.falls_due(Timestamp(0));
        self.watch.look_soon();
    }
}

/// How many messages are unread after a look that shows so many, while this process received some: those may be among them
/// or not. So a look that something was received beside never says that nothing is left where something was; a queue
/// monitor that believes it goes INACTIVE, and launches once more for the messages that it did not expect.
fn unread_after(before: u64, shown: u64, received_meanwhile: u64) -> u64 {
    match shown.saturating_sub(received_meanwhile) {
        0 => before.min(shown).min(1),
        at_least => at_least,
    }
}

/// Numbers by queue, `<queue_id>:<number> ...`; none if the server does not tell.
fn counts(row: Row<'_>, column: &str) -> Result<BTreeMap<i32, usize>> {
    let text = if row.has(column) { row.text(column)? } else { "" };
    let pair = |word: &str| {
        let (queue, number) = word.split_once(':')?;
        Some((queue.parse().ok()?, number.parse().ok()?))
    };
    let pairs = text.split_ascii_whitespace();
    pairs
        .map(|word| pair(word).ok_or_else(|| damaged(format!("'{word}' in {column} is no queue and number"))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{SqlRow, SqlValue};

    #[test]
    fn numbers_by_queue_are_read_or_refused() {
        let row = |value| SqlRow { columns: vec!["ready_queues".to_owned()].into(), values: vec![value] };
        let read = |text: &str| counts(Row(&row(SqlValue::Text(text.to_owned()))), "ready_queues");
        assert_eq!(read("7:2  8:1").unwrap(), BTreeMap::from([(7, 2), (8, 1)]));
        assert!(read("").unwrap().is_empty());
        assert!(counts(Row(&row(SqlValue::Null)), "ready_queues").unwrap().is_empty());
        for text in ["7", "7:x", "x:7", "7:2 8:-1"] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
