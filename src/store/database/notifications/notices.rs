//! Notices: what processes tell each other after a commit.
//!
//! `q:<queue_id>` something became ready in the queue, or it changed; `c` definitions changed; `d:<microseconds>` something
//! falls due then; `s:<queue_id>` the place of a reader is free again; `p:<process>` who says it, so that nobody listens to himself. Notices that are not known are passed over.

use crate::store::database::Database;
use crate::store::database::link::{Arg, Call};
use crate::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;

/// After telling others, this much is gathered before they are told again. Who was idle is told at once; under load a NOTIFY
/// every millisecond cost a twentieth of two cores.
const GATHERING: Duration = Duration::from_millis(5);

/// What one message to others may hold; PostgreSQL takes 8000 bytes.
const MOST_BYTES: usize = 7000;

/// Notices, taken apart.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::store::database) struct Notices {
    pub(in crate::store::database) queues: BTreeSet<i32>,
    pub(in crate::store::database) definitions: bool,
    pub(in crate::store::database) due: Option<Timestamp>,
    /// Queues of which a reader's place is free again.
    pub(in crate::store::database) places: BTreeSet<i32>,
    /// Who says it.
    pub(in crate::store::database) process: Option<String>,
}

impl Notices {
    pub(in crate::store::database) fn parse(text: &str) -> Self {
        let mut words = Self::default();
        for word in text.split_ascii_whitespace() {
            match word.split_once(':') {
                None if word == "c" => words.definitions = true,
                Some(("q", queue)) => words.queues.extend(queue.parse::<i32>().ok()),
                Some(("s", queue)) => words.places.extend(queue.parse::<i32>().ok()),
                Some(("d", due)) => {
                    let due = due.parse().ok().map(Timestamp);
                    words.due = words.due.into_iter().chain(due).min();
                }
                Some(("p", process)) => words.process = Some(process.to_owned()),
                _ => {}
            }
        }
        words
    }
}

/// What others have not been told yet.
#[derive(Debug, Default)]
pub(in crate::store::database) struct Outbox {
    words: Mutex<BTreeSet<String>>,
    came: Notify,
    /// The store closes: what waits is told, and nothing after it.
    is_closing: AtomicBool,
}

impl Outbox {
    pub(in crate::store::database) fn put<'w>(&self, words: impl IntoIterator<Item = &'w str>) {
        let mut waiting = self.words.lock().unwrap_or_else(PoisonError::into_inner);
        for word in words {
            if !waiting.contains(word) {
                waiting.insert(word.to_owned());
            }
        }
        if !waiting.is_empty() {
            self.came.notify_one();
        }
    }

    /// Lets [`Database::tell_others`] end once it has told what waits now.
    pub(in crate::store::database) fn close(&self) {
        self.is_closing.store(true, SeqCst);
        self.came.notify_one();
    }

    /// Whether the store closes and all words were taken. Closing is asked first, because no word comes after it.
    fn is_over(&self) -> bool {
        self.is_closing.load(SeqCst) && self.words.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Everything that waits, in as few messages as it fits in; each says whose it is.
    fn take(&self, process: &str) -> Vec<String> {
        let words = std::mem::take(&mut *self.words.lock().unwrap_or_else(PoisonError::into_inner));
        let mut messages: Vec<String> = Vec::new();
        for word in words {
            match messages.last_mut() {
                Some(last) if last.len() + word.len() < MOST_BYTES => {
                    last.push(' ');
                    last.push_str(&word);
                }
                _ => messages.push(format!("p:{process} {word}")),
            }
        }
        messages
    }
}

impl Database {
    /// What a commit of this process has brought about: heard here at once, and told to others soon. `ready` is how many
    /// groups may have become ready at most.
    pub(in crate::store::database) async fn heard(self: &Arc<Self>, text: &str, ready: usize) {
        if text.is_empty() {
            return;
        }
        self.outbox.put(text.split_ascii_whitespace());
        self.hear(&Notices::parse(text), ready).await;
    }

    /// Acts on words, whoever said them.
    pub(in crate::store::database) async fn hear(self: &Arc<Self>, words: &Notices, ready: usize) {
        if words.definitions
            && let Err(error) = self.reload().await
        {
            tracing::warn!(%error, "definitions have changed and could not be read; they are when the next verb needs them");
        }
        if let Some(due) = words.due {
            self.upkeep.falls_due(due);
        }
        let catalog = &self.definitions.known().catalog;
        for queue in words.queues.iter().filter_map(|id| catalog.queues.get(id)) {
            let activity = self.board.queue(&queue.name);
            let facts = activity.facts();
            activity.arrived(ready, facts.ready_groups + ready, facts.unread + ready as u64);
        }
        for queue in words.places.iter().filter_map(|id| catalog.queues.get(id)) {
            self.board.queue(&queue.name).place_freed();
        }
        if !words.queues.is_empty() {
            self.watch.heard();
            // One is woken for what others brought; a look tells whether there is more.
            if words.process.is_some() && self.board.sleeping() > 0 {
                self.watch.look_soon();
            }
        }
    }

    /// Something may be ready in these queues that was there before: tells of it without counting it as new.
    pub(in crate::store::database) fn left_some(&self, queues: impl IntoIterator<Item = i32>) {
        let catalog = self.definitions.known().catalog.clone();
        for id in queues {
            self.outbox.put([&*format!("q:{id}")]);
            if let Some(queue) = catalog.queues.get(&id) {
                let activity = self.board.queue(&queue.name);
                let facts = activity.facts();
                activity.arrived(1, facts.ready_groups + 1, facts.unread);
            }
        }
        self.watch.heard();
    }

    /// Something of these queues may be free now that was locked: look whether it is.
    pub(in crate::store::database) fn freed(&self) {
        if self.board.sleeping() > 0 {
            self.watch.look_soon();
        }
    }

    /// Tells other processes until the store closes, and then what still waits: without a word they look once a minute only.
    pub(in crate::store::database) async fn tell_others(self: Arc<Self>) {
        let process = self.process.simple().to_string();
        loop {
            self.outbox.came.notified().await;
            for words in self.outbox.take(&process) {
                if let Err(failure) =
                    self.side.call(Call { name: "notify_processes", args: vec![Arg::Text(&words)] }).await
                {
                    // They look by themselves, if less often.
                    tracing::warn!(error = %failure.error, "other processes could not be told: {words}");
                }
            }
            if self.outbox.is_over() {
                return;
            }
            tokio::time::sleep(GATHERING).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_taken_apart_and_unknown_ones_passed_over() {
        let words = Notices::parse("p:ab q:70000 c d:9 q:70001 d:5 s:70002 z:1 q:x nonsense");
        assert_eq!(words.queues, BTreeSet::from([70000, 70001]));
        assert!(words.definitions);
        assert_eq!(words.places, BTreeSet::from([70002]));
        assert_eq!(words.due, Some(Timestamp(5)));
        assert_eq!(words.process.as_deref(), Some("ab"));
        assert_eq!(Notices::parse(""), Notices::default());
    }

    #[test]
    fn what_is_said_often_is_told_once_and_long_talk_is_cut() {
        let outbox = Outbox::default();
        outbox.put(["q:1", "q:2", "q:1"]);
        outbox.put(["q:2"]);
        assert_eq!(outbox.take("me"), ["p:me q:1 q:2"]);
        assert!(outbox.take("me").is_empty());
        let many: Vec<String> = (0..2000).map(|queue| format!("q:{queue}")).collect();
        outbox.put(many.iter().map(String::as_str));
        let messages = outbox.take("me");
        assert!(messages.len() > 1 && messages.iter().all(|text| text.len() < 8000 && text.starts_with("p:me ")));
        let told: usize = messages.iter().map(|text| Notices::parse(text).queues.len()).sum();
        assert_eq!(told, 2000);
    }
}
