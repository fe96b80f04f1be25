//! The committed SENDs and RECEIVEs of a run, and the laws that they must keep.

use dialoq::{ConversationHandle, GroupId};
use std::collections::{HashMap, HashSet};

/// One thing that counts once its transaction commits.
#[derive(Debug, Clone)]
pub(crate) enum Entry {
    Sent {
        by: ConversationHandle,
        number: u64,
    },
    Received {
        at: ConversationHandle,
        by: ConversationHandle,
        number: u64,
    },
    /// A row of the user's own table.
    Noted {
        number: i64,
    },
}

/// The work and the locks of an open transaction.
#[derive(Debug, Default)]
pub(crate) struct Open {
    entries: Vec<Entry>,
    savepoint: Option<usize>,
    groups: HashSet<GroupId>,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    sent: HashMap<ConversationHandle, Vec<u64>>,
    received: HashMap<ConversationHandle, Vec<u64>>,
    /// The endpoint that receives the messages of that endpoint.
    receiver: HashMap<ConversationHandle, ConversationHandle>,
    /// Endpoints that were ended, or whose conversation broke.
    disturbed: HashSet<ConversationHandle>,
    /// Rows of the user's own table.
    noted: Vec<i64>,
    next_number: u64,
}

impl Ledger {
    pub(crate) fn next_number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(crate) fn disturb(&mut self, handle: ConversationHandle) {
        self.disturbed.insert(handle);
    }

    /// A message of that sender was seen there, whether or not its receive will commit: the two are peers.
    pub(crate) fn link(&mut self, by: ConversationHandle, at: ConversationHandle) {
        self.receiver.entry(by).or_insert(at);
        self.receiver.entry(at).or_insert(by);
    }

    pub(crate) fn noted(&self) -> &[i64] {
        &self.noted
    }

    pub(crate) fn is_disturbed(&self, handle: ConversationHandle) -> bool {
        self.disturbed.contains(&handle)
    }

    pub(crate) fn commit(&mut self, open: Open) -> Result<(), String> {
        for entry in open.entries {
            match entry {
                Entry::Noted { number } => self.noted.push(number),
                Entry::Sent { by, number } => self.sent.entry(by).or_default().push(number),
                Entry::Received { at, by, number } => {
                    if *self.receiver.entry(by).or_insert(at) != at {
                        return Err(format!("what {by} sends is received by two endpoints"));
                    }
                    let before = self.received.entry(by).or_default();
                    if before.last().is_some_and(|last| *last >= number) {
                        return Err(format!("{at} received {number} after {before:?}: doubled, or out of order"));
                    }
                    before.push(number);
                }
            }
        }
        Ok(())
    }

    /// After everything that can be received was: sent is received, unless a conversation ended or broke.
    pub(crate) fn balance(&self) -> Result<(), String> {
        for (by, received) in &self.received {
            let sent = self.sent.get(by).map_or(&[][..], |sent| sent);
            if let Some(number) = received.iter().find(|number| !sent.contains(number)) {
                return Err(format!("{number} was received and never sent by {by}"));
            }
        }
        for (by, sent) in &self.sent {
            let receiver = self.receiver.get(by);
            if self.disturbed.contains(by) || receiver.is_some_and(|receiver| self.disturbed.contains(receiver)) {
                continue;
            }
            let received = self.received.get(by).map_or(&[][..], |received| received);
            if received != sent {
                return Err(format!("{by} sent {sent:?}, its peer received {received:?}"));
            }
        }
        Ok(())
    }
}

impl Open {
    pub(crate) fn note(&mut self, entry: Entry) {
        self.entries.push(entry);
    }

    pub(crate) fn savepoint(&mut self) {
        self.savepoint = Some(self.entries.len());
    }

    /// Undoes the entries and keeps the groups, as the locks are kept. Says whether there was a savepoint.
    pub(crate) fn rollback_to(&mut self) -> bool {
        self.savepoint.inspect(|length| self.entries.truncate(*length)).is_some()
    }

    pub(crate) fn hold(&mut self, group: GroupId) {
        self.groups.insert(group);
    }

    pub(crate) fn holds(&self, group: GroupId) -> bool {
        self.groups.contains(&group)
    }
}
