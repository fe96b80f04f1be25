//! The targets of the project, and whether a run reaches them.

use super::report::{Measured, Report, Slice};
use serde::Serialize;

/// A target, and whether this run reaches it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Target {
    /// What the target is for.
    pub what: String,
    /// `at least` or `at most`.
    pub bound: &'static str,
    /// The figure asked.
    pub target: f64,
    /// What `target` and `measured` count.
    pub unit: &'static str,
    /// The figure of this run.
    pub measured: f64,
    /// Whether it is reached.
    pub reached: bool,
}

/// What the target is for, the figure, what that counts, and what was measured, if it was.
pub(super) type Asked<'a> = (&'a str, f64, &'static str, Option<f64>);

impl Target {
    /// Those that were measured: what must be reached at least, then what must not be passed.
    pub(super) fn judged(asked: &[Asked<'_>], bounded: &[Asked<'_>]) -> Vec<Self> {
        let judge = |&(what, target, unit, measured): &Asked<'_>, is_least: bool| {
            let measured = measured?;
            let (bound, reached) =
                if is_least { ("at least", measured >= target) } else { ("at most", measured <= target) };
            Some(Self { what: what.to_owned(), bound, target, unit, measured, reached })
        };
        let least = asked.iter().filter_map(|asked| judge(asked, true));
        least.chain(bounded.iter().filter_map(|asked| judge(asked, false))).collect()
    }
}

pub(super) const BACKLOG_MEMORY: &str = "resident with 1,000,000 messages waiting in 1,000 conversations";
pub(super) const CONVERSATION_MEMORY: &str = "resident with 1,000,000 open conversations";
pub(super) const REOPEN: &str = "opening the file with 1,000,000 open conversations again";
pub(super) const FLOOD: &str = "high class under a low flood: p99 wait in the queue over that unloaded";
pub(super) const HOSTILE_XML: &str =
    "SEND beside a caller of 10 MB XML bodies with 100,000 attributes: p99 over that alone";
pub(super) const HOSTILE_JSON: &str = "SEND beside a caller of bodies for a recursive JSON schema: p99 over that alone";
pub(super) const FLOOD_END_TO_END: &str = "high class under a low flood: p99 from send to receipt over that unloaded";

/// The names under which the report finds its own figures.
pub(super) const WAKE_UP_OTHER: &str = "wake-up by another process, p50";
pub(super) const WAKE_UP_OTHER_P99: &str = "wake-up by another process, p99";
pub(super) const WAKE_UP_SAME: &str = "wake-up within the process, p50";
pub(super) const WAKE_UP_SAME_P99: &str = "wake-up within the process, p99";
pub(super) const IDLE: &str = "idle, 100 waiting receivers: transactions on the server";
pub(super) const IDLE_EMPTY: &str = "idle, no receiver waits: transactions on the server";

impl Report {
    fn row(&self, workload: &str, callers: usize) -> Option<&Measured> {
        self.results.iter().find(|row| row.workload == workload && row.callers == callers)
    }

    fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// Fills in the targets that this run on the embedded store measured.
    pub(super) fn judge_embedded(&mut self) {
        let log = |row: &Measured| row.ratio_to_log;
        let sqlite = |row: &Measured| row.ratio_to_sqlite;
        let rate = |row: &Measured| Some(row.per_s);
        let end_to_end = |row: &Measured| row.log_p50_us.map(|log| row.p50_us / log);
        const LOG: &str = "of the bare log";
        const SQLITE: &str = "of bare SQLite";
        let at = |workload: &str, callers, of: fn(&Measured) -> Option<f64>| self.row(workload, callers).and_then(of);
        let depth = |messages: u64| at(&format!("receive_at_{messages}"), 64, rate);
        let deep = depth(1_000_000).zip(depth(10_000)).map(|(deep, shallow)| deep / shallow);
        let asked = [
            ("send, 64 callers", 0.5, LOG, at("send", 64, log)),
            ("send, 256 callers", 0.4, LOG, at("send", 256, log)),
            ("receive, 64 callers, many conversations", 0.5, LOG, at("receive", 64, log)),
            ("receive, 64 callers, many conversations", 15_000.0, "a second", at("receive", 64, rate)),
            ("receive, 64 callers, 8 conversations", 0.5, LOG, at("receive_8_conversations", 64, log)),
            ("receive, 64 callers, 8 conversations", 15_000.0, "a second", at("receive_8_conversations", 64, rate)),
            ("both at once, 64+64 callers", 0.45, LOG, at("both", 64, log)),
            ("send, 100 per transaction, 8 callers", 0.2, LOG, at("send_100", 8, log)),
            ("receive, 100 per transaction, 8 callers", 0.1, LOG, at("receive_100", 8, log)),
            ("send, one caller alone", 0.7, SQLITE, at("send", 1, sqlite)),
            ("receive, one caller alone", 0.7, SQLITE, at("receive", 1, sqlite)),
            ("full dialog cycle, 64 callers", 12_000.0, "a second", at("dialog_cycle", 64, rate)),
            ("receive at 1,000,000 waiting", 0.8, "of the rate at 10,000", deep),
        ];
        let bounded = [
            ("end to end at half load, p50", 2.0, "times the bare log's", at("end_to_end", 64, end_to_end)),
            ("resident, 1,000,000 waiting in 1,000 conversations", 100.0, "MiB", self.figure(BACKLOG_MEMORY)),
            ("resident, 1,000,000 open conversations", 600.0, "MiB", self.figure(CONVERSATION_MEMORY)),
            ("opening 1,000,000 conversations again", 5.0, "s", self.figure(REOPEN)),
            ("high class under a low flood, p99 wait", 2.0, "times unloaded", self.figure(FLOOD)),
            ("send beside hostile XML, p99", 3.0, "times alone", self.figure(HOSTILE_XML)),
            ("send beside hostile JSON, p99", 3.0, "times alone", self.figure(HOSTILE_JSON)),
        ];
        self.targets = Target::judged(&asked, &bounded);
    }

    /// Fills in the targets that this run on a server measured.
    pub(super) fn judge_server(&mut self, is_postgres: bool) {
        let ratio = |workload: &str| self.results.iter().find(|row| row.workload == workload).and_then(|row| row.ratio);
        let rate = |workload: &str| self.results.iter().find(|row| row.workload == workload).map(|row| row.per_s);
        let figure = |name: &str| self.figure(name);
        let deep = rate("receive_at_1000000").zip(rate("receive_at_10000")).map(|(deep, shallow)| deep / shallow);
        let wake_bound = if is_postgres { 3.0 } else { 100.0 };
        let per_receiver = figure(IDLE).zip(figure(IDLE_EMPTY)).map(|(full, empty)| (full - empty) / 100.0);
        let (growth, pace) = (self.growth_after_reader(), self.pace_after_reader());
        let (pace_under, p99_under) = self.end_of_reader().unzip();
        let held = self.results.iter().filter(|row| row.workload.contains("_under_old_snapshot"));
        let held = held.filter_map(|row| row.ratio).min_by(f64::total_cmp);
        let asked = [
            ("send, 64 callers", 1.5, "times a plain INSERT on 64 connections", ratio("send")),
            ("receive one by one, 64 callers", 3.0, "times a table queue on 64 connections", ratio("receive")),
            ("both at once, 64+64 callers", 3.0, "times the same table queue", ratio("both")),
            ("receive at 1,000,000 waiting", 0.8, "of the rate at 10,000", deep),
            ("every rate under an old snapshot", 0.5, "of that before it", held),
            ("constant load: throughput at the end of the old snapshot", 0.95, "of that before it", pace_under),
            ("constant load: throughput after the old snapshot", 0.8, "of that before it", pace),
        ];
        let bounded = [
            ("wake-up, send to receive, idle system, p50", wake_bound, "ms", figure(WAKE_UP_OTHER)),
            ("idle, statements per waiting receiver", 0.1, "a minute", per_receiver),
            ("constant load: size of the tables at the end", 1.25, "times that when the old snapshot ended", growth),
            ("constant load: end to end at the end of the old snapshot, p99", 25.0, "ms", p99_under),
            ("send beside hostile XML, p99", 3.0, "times alone", figure(HOSTILE_XML)),
            ("send beside hostile JSON, p99", 3.0, "times alone", figure(HOSTILE_JSON)),
        ];
        self.targets = Target::judged(&asked, &bounded);
    }

    /// In the last slices with the reader: the throughput over that before it, and the p99 in milliseconds.
    fn end_of_reader(&self) -> Option<(f64, f64)> {
        let first = self.curve.iter().position(|slice| slice.reader_holds_snapshot)?;
        let last = self.curve.iter().rposition(|slice| slice.reader_holds_snapshot)?;
        let (before, under) = (&self.curve[..first], &self.curve[first..=last]);
        let end = &under[under.len() - before.len().min(under.len())..];
        let per_s = |slice: &Slice| slice.per_s;
        Some((middle(end, per_s)? / middle(before, per_s)?, middle(end, |slice| slice.p99_us)? / 1000.0))
    }

    /// The size at the end over that at the end of the reader; while a reader keeps an old snapshot, no row can be cleaned up.
    fn growth_after_reader(&self) -> Option<f64> {
        let held = self.curve.iter().rev().find(|slice| slice.reader_holds_snapshot)?.mib?;
        Some(self.curve.last().filter(|slice| !slice.reader_holds_snapshot)?.mib? / held.max(1.0))
    }

    fn pace_after_reader(&self) -> Option<f64> {
        let first = self.curve.iter().position(|slice| slice.reader_holds_snapshot)?;
        let last = self.curve.iter().rposition(|slice| slice.reader_holds_snapshot)?;
        let per_s = |slice: &Slice| slice.per_s;
        Some(middle(&self.curve[last + 1..], per_s)? / middle(&self.curve[..first], per_s)?)
    }
}

fn middle(slices: &[Slice], of: impl Fn(&Slice) -> f64) -> Option<f64> {
    let mut values: Vec<f64> = slices.iter().map(of).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Options;
    use crate::bench::machine::Machine;
    use crate::bench::report::{ServerSettings, Settings};
    use std::path::Path;

    fn slice(at_seconds: f64, reader_holds_snapshot: bool, per_s: f64, mib: f64) -> Slice {
        Slice { at_seconds, reader_holds_snapshot, per_s, p50_us: 1.0, p99_us: 1.0, mib: Some(mib), dead_rows: Some(0) }
    }

    fn report(curve: Vec<Slice>) -> Report {
        let server = ServerSettings {
            server: "PostgreSQL 15".to_owned(),
            server_settings: "fsync on".to_owned(),
            callers: 64,
            load_seconds: 3.0,
        };
        let settings = Settings { server: Some(server), ..Settings::of(&Options::server(""), "full") };
        Report { curve, ..Report::new(settings, Machine::detect(Path::new("."))) }
    }

    #[tokio::test]
    async fn a_load_that_falls_under_the_snapshot_or_after_it_is_missed() {
        let _limit = crate::limit();
        let slow = Slice { p99_us: 25_001.0, ..slice(2.0, true, 900.0, 50.0) };
        // The throughput under the snapshot and after it, the growth after it, the p99 under it.
        for (under, after, reached) in [
            (slice(2.0, true, 960.0, 50.0), slice(3.0, false, 990.0, 52.0), [true, true, true, true]),
            (slice(2.0, true, 960.0, 50.0), slice(3.0, false, 700.0, 90.0), [true, false, false, true]),
            (slow, slice(3.0, false, 990.0, 52.0), [false, true, true, false]),
        ] {
            let earlier = slice(1.5, true, 1000.0, 30.0);
            let mut report = report(vec![slice(1.0, false, 1000.0, 10.0), earlier, under, after]);
            report.judge_server(true);
            let judged: Vec<_> = report.targets.iter().map(|target| target.reached).collect();
            assert_eq!(judged, reached);
            assert!(report.to_string().contains("held") && report.to_string().contains("fsync on"));
        }
    }

    #[tokio::test]
    async fn an_unmeasured_figure_is_not_judged() {
        let _limit = crate::limit();
        let mut report = report(vec![slice(1.0, false, 1000.0, 10.0)]);
        report.judge_server(true);
        assert!(report.targets.is_empty());
    }
}
