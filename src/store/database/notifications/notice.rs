//! Notices: what a commit means for receivers, monitors and timers of all processes, and the one text form of that.
//!
//! The same words stand in the column of a call's result and in the payloads of NOTIFY. A notice is a hint: the process
//! that gets one polls. Words that cannot be understood are skipped, because any session of the database can notify.

use crate::time::Timestamp;
use std::collections::BTreeSet;
use std::fmt;
use uuid::Uuid;

/// The longest payload in bytes; PostgreSQL takes 8000.
const LONGEST_PAYLOAD: usize = 7000;

/// One notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::store::database) enum Notice {
    /// `c`: definitions changed.
    Definitions,
    /// `q:<queue_id>`: groups of the queue became ready or unlocked, or its definition changed.
    Queue(i32),
    /// `s:<queue_id>`: the place of one of the queue's readers is free.
    PlaceFree(i32),
    /// `d:<microseconds>`: something falls due then.
    Due(Timestamp),
    /// `l`: the answer to something that may have committed was lost, with its notices.
    Lost,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Definitions => f.write_str("c"),
            Self::Queue(id) => write!(f, "q:{id}"),
            Self::PlaceFree(id) => write!(f, "s:{id}"),
            Self::Due(at) => write!(f, "d:{}", at.0),
            Self::Lost => f.write_str("l"),
        }
    }
}

impl Notice {
    fn decode(word: &str) -> Option<Self> {
        match word.split_once(':') {
            None if word == "c" => Some(Self::Definitions),
            None if word == "l" => Some(Self::Lost),
            Some(("q", id)) => id.parse().ok().map(Self::Queue),
            Some(("s", id)) => id.parse().ok().map(Self::PlaceFree),
            Some(("d", at)) => at.parse().ok().map(Timestamp).map(Self::Due),
            _ => None,
        }
    }
}

/// Notices, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::store::database) struct Notices(BTreeSet<Notice>);

impl Notices {
    /// The notices of a text, separated by spaces.
    pub(in crate::store::database) fn decode(text: &str) -> Self {
        text.split_ascii_whitespace().filter_map(Notice::decode).collect()
    }

    pub(in crate::store::database) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(in crate::store::database) fn iter(&self) -> impl Iterator<Item = Notice> {
        self.0.iter().copied()
    }

    /// Whether definitions changed.
    pub(in crate::store::database) fn has_definitions(&self) -> bool {
        self.0.contains(&Notice::Definitions)
    }

    /// The number of queues that they name.
    pub(in crate::store::database) fn queues(&self) -> usize {
        self.iter().filter(|notice| matches!(notice, Notice::Queue(_))).count()
    }

    /// Keeps the first time at which something falls due: a process that looks then learns of the next.
    pub(in crate::store::database) fn forget_later_dues(&mut self) {
        let mut has_due = false;
        self.0.retain(|notice| !matches!(notice, Notice::Due(_)) || !std::mem::replace(&mut has_due, true));
    }

    /// The payloads that carry these notices, as few as the length allows; each names its sender.
    pub(in crate::store::database) fn payloads(&self, sender: Uuid) -> Vec<String> {
        let mut payloads: Vec<String> = Vec::new();
        for word in self.iter().map(|notice| notice.to_string()) {
            match payloads.last_mut() {
                Some(last) if last.len() + word.len() < LONGEST_PAYLOAD => {
                    last.push(' ');
                    last.push_str(&word);
                }
                _ => payloads.push(format!("p:{} {word}", sender.simple())),
            }
        }
        payloads
    }

    /// The notices of a payload, unless this process sent it.
    pub(in crate::store::database) fn of_peer(payload: &str, own: Uuid) -> Self {
        let sender = payload.split_ascii_whitespace().find_map(|word| word.strip_prefix("p:"));
        if sender.is_some_and(|sender| Uuid::parse_str(sender) == Ok(own)) {
            return Self::default();
        }
        Self::decode(payload)
    }
}

impl IntoIterator for Notices {
    type Item = Notice;
    type IntoIter = std::collections::btree_set::IntoIter<Notice>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl FromIterator<Notice> for Notices {
    fn from_iter<I: IntoIterator<Item = Notice>>(notices: I) -> Self {
        Self(notices.into_iter().collect())
    }
}

impl Extend<Notice> for Notices {
    fn extend<I: IntoIterator<Item = Notice>>(&mut self, notices: I) {
        self.0.extend(notices);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_survive_their_text() {
        let numbered = [Notice::Queue(70_000), Notice::PlaceFree(-1), Notice::Due(Timestamp(-9))];
        for notice in numbered.into_iter().chain([Notice::Definitions, Notice::Lost]) {
            assert_eq!(Notice::decode(&notice.to_string()), Some(notice));
        }
        assert_eq!(Notices::decode("d:9 q:7 c s:8 d:5 q:7").iter().count(), 5);
        assert!(Notices::decode("").is_empty());
    }

    #[test]
    fn malformed_words_are_skipped() {
        for text in [
            "q",
            "q:",
            "q:x",
            "q:99999999999",
            "q:-",
            "d:1e9",
            "d:99999999999999999999",
            "c:1",
            "C",
            "l:1",
            "z:1",
            ":",
            "é:\u{1}",
        ] {
            assert!(Notices::decode(text).is_empty(), "{text}");
        }
        assert_eq!(Notices::decode("q:x nonsense q:7 \u{0} s:"), Notices::from_iter([Notice::Queue(7)]));
    }

    #[test]
    fn own_payloads_are_skipped_and_payloads_of_strangers_are_not() {
        let (own, peer) = (Uuid::from_u128(1), Uuid::from_u128(2));
        let notices = Notices::from_iter([Notice::Queue(7)]);
        for (sender, expected) in [(own, Notices::default()), (peer, notices.clone())] {
            let payloads = notices.payloads(sender);
            assert_eq!(Notices::of_peer(&payloads[0], own), expected);
        }
        for stranger in ["q:7", "p: q:7", "p:nonsense q:7"] {
            assert_eq!(Notices::of_peer(stranger, own), notices, "{stranger}");
        }
    }

    #[test]
    fn of_notices_that_wait_for_the_server_only_the_first_time_is_kept() {
        let mut notices = Notices::decode("d:7 q:7 d:5 c q:8 d:6 l");
        notices.forget_later_dues();
        assert_eq!(notices, Notices::decode("c q:7 q:8 d:5 l"));
    }

    #[test]
    fn many_notices_need_several_payloads() {
        let own = Uuid::from_u128(1);
        let notices: Notices = (0..2000).map(Notice::Queue).collect();
        let payloads = notices.payloads(own);
        assert!(payloads.len() > 1 && payloads.iter().all(|payload| payload.len() < 8000));
        let decoded: Notices = payloads.iter().flat_map(|payload| Notices::of_peer(payload, Uuid::nil())).collect();
        assert_eq!(decoded, notices);
    }
}
