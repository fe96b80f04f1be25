//! The output of the processes, and whether it can be true.

use crate::jobs::JobLedger;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The state after the end of all processes.
pub(crate) struct Left {
    /// Body, conversation and sequence number of what was received in transactions.
    pub(crate) rows: Vec<(String, String, i64)>,
    /// Bodies left in the queue of what is received at once.
    pub(crate) loose: Vec<String>,
    /// Body, key and place of the jobs that are done.
    pub(crate) finished: Vec<(String, String, i64)>,
}

#[derive(Default)]
pub(crate) struct Ledger {
    /// Bodies whose SEND was begun, answered or not.
    tried: BTreeSet<String>,
    sent: BTreeSet<String>,
    received: BTreeSet<String>,
    /// Bodies received at once, with how often.
    taken: HashMap<String, usize>,
    jobs: JobLedger,
}

impl Ledger {
    /// Enters a line of a process; whether it is one that counts as progress.
    pub(crate) fn record(&mut self, line: &str) -> bool {
        let Some((word, body)) = line.split_once(' ') else { return false };
        if let Some(is_progress) = self.jobs.record(word, body) {
            return is_progress;
        }
        let body = body.to_owned();
        match word {
            "tries" => self.tried.insert(body),
            "sent" => self.sent.insert(body),
            "received" => self.received.insert(body),
            "took" => {
                *self.taken.entry(body).or_default() += 1;
                true
            }
            _ => return false,
        };
        word != "tries"
    }

    pub(crate) fn summary(&self) -> String {
        format!(
            "{} tried, {} sent, {} received, {} taken; {}",
            self.tried.len(),
            self.sent.len(),
            self.received.len(),
            self.taken.len(),
            self.jobs.summary()
        )
    }

    /// `under_way` RECEIVEs at once may have been answered to a process that was no more.
    pub(crate) fn check(&self, left: &Left, under_way: usize) {
        self.jobs.check(&left.finished);
        let mut in_table = BTreeSet::new();
        let doubled: Vec<_> = left.rows.iter().map(|(body, ..)| body).filter(|body| !in_table.insert(*body)).collect();
        assert!(doubled.is_empty(), "received twice: {doubled:?}");
        let undone: Vec<_> = self.received.iter().filter(|body| !in_table.contains(body)).collect();
        assert!(undone.is_empty(), "answered as received and undone: {undone:?}");

        let mut taken: BTreeSet<&String> = self.taken.keys().collect();
        let doubled: Vec<_> = self.taken.iter().filter(|(_, times)| **times > 1).collect();
        assert!(doubled.is_empty(), "received at once, and again: {doubled:?}");
        let doubled: Vec<_> = left.loose.iter().filter(|body| !taken.insert(body)).collect();
        assert!(doubled.is_empty(), "received at once, and still there: {doubled:?}");

        let invented: Vec<_> = in_table.iter().chain(&taken).filter(|body| !self.tried.contains(**body)).collect();
        assert!(invented.is_empty(), "received and never sent: {invented:?}");
        let (loose, kept): (Vec<_>, Vec<_>) = self.sent.iter().partition(|body| body.starts_with("loose "));
        let lost: Vec<_> = kept.into_iter().filter(|body| !in_table.contains(body)).collect();
        assert!(lost.is_empty(), "answered as sent and lost: {lost:?}");
        let lost: Vec<_> = loose.into_iter().filter(|body| !taken.contains(body)).collect();
        assert!(lost.len() <= under_way, "{under_way} may be lost with who received them, but these are: {lost:?}");

        let mut conversations: BTreeMap<&str, BTreeSet<i64>> = BTreeMap::new();
        for (_, conversation, sequence) in &left.rows {
            conversations.entry(conversation).or_default().insert(*sequence);
        }
        for (conversation, numbers) in &conversations {
            let right: Vec<i64> = (0..i64::try_from(numbers.len()).expect("few")).collect();
            assert!(numbers.iter().eq(&right), "the numbers of {conversation} have gaps: {numbers:?}");
        }
        assert!(conversations.len() > 4 && self.sent.len() > 50, "the processes did no work: {}", self.summary());
    }
}
