//! What a bench on a server gives back.

use crate::bench::load::Round;
use crate::bench::machine::Machine;
use crate::bench::report::{
    Figure, HOSTILE_JSON, HOSTILE_XML, Target, aligned, short, thousands, write_figures, write_targets,
};
use serde::Serialize;
use std::fmt;

/// Everything measured in one run on a server. Serializes to the object that `dialoq bench --json` prints.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ServerReport {
    /// How it was measured.
    pub settings: ServerSettings,
    /// Where the clients ran; the server may be elsewhere.
    pub machine: Machine,
    /// One row per workload.
    pub results: Vec<Beside>,
    /// Sizes and times that are not rates.
    pub figures: Vec<Figure>,
    /// The constant load, slice by slice.
    pub curve: Vec<Slice>,
    /// What was promised beside what was measured.
    pub targets: Vec<Target>,
}

/// How a run on a server was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ServerSettings {
    /// What the server calls itself.
    pub server: String,
    /// Its settings that bear on the figures.
    pub server_settings: String,
    /// `full` or `normal`, as the URL says.
    pub durability: String,
    /// Rounds per workload, broker and rival in turn; the median round counts.
    pub rounds: usize,
    /// Seconds per round.
    pub round_seconds: f64,
    /// Bytes per message body.
    pub body_bytes: usize,
    /// Callers of the broker, in one process; connections of the rival.
    pub callers: usize,
    /// Threads that run the callers.
    pub worker_threads: usize,
    /// Messages in the deep backlog.
    pub largest: usize,
    /// Seconds of constant load.
    pub load_seconds: f64,
}

/// One workload: the broker's median round and the rival's.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Beside {
    /// What was done; the names are explained in `docs/performance.md`.
    pub workload: String,
    /// What the rival did; empty if there is none.
    pub rival: String,
    /// Messages a second; for `both`, messages that went in and came out.
    pub per_s: f64,
    /// Half of the calls took less, in microseconds; for `both` from before the send to after the receive.
    pub p50_us: f64,
    /// 99 of 100 calls took less, in microseconds.
    pub p99_us: f64,
    /// The rival's messages a second.
    pub rival_per_s: Option<f64>,
    /// The rival's p50 in microseconds.
    pub rival_p50_us: Option<f64>,
    /// `per_s` over `rival_per_s`.
    pub ratio: Option<f64>,
}

impl Beside {
    pub(super) fn new(workload: &str, round: &Round, rival: Option<(&str, &Round)>) -> Self {
        let rival_per_s = rival.map(|(_, rival)| rival.rate());
        Self {
            workload: workload.to_owned(),
            rival: rival.map_or(String::new(), |(name, _)| name.to_owned()),
            per_s: round.rate(),
            p50_us: round.quantile_us(0.5),
            p99_us: round.quantile_us(0.99),
            rival_per_s,
            rival_p50_us: rival.map(|(_, rival)| rival.quantile_us(0.5)),
            ratio: rival_per_s.map(|rival| round.rate() / rival),
        }
    }
}

/// A slice of the constant load.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Slice {
    /// Seconds from the beginning of the load to the end of this slice.
    pub at_seconds: f64,
    /// Whether a reader with an old snapshot was there all along.
    pub reader_holds_snapshot: bool,
    /// Messages a second that went through.
    pub per_s: f64,
    /// From before the send to after the receive, microseconds.
    pub p50_us: f64,
    /// Likewise.
    pub p99_us: f64,
    /// Size of the tables that change with every message, MiB.
    pub mib: Option<f64>,
    /// Rows in them that are gone and not cleaned up yet.
    pub dead_rows: Option<i64>,
}

/// The names under which the report finds its own figures.
pub(super) const WAKE_UP_OTHER: &str = "wake-up by another process, p50";
pub(super) const WAKE_UP_OTHER_P99: &str = "wake-up by another process, p99";
pub(super) const WAKE_UP_SAME: &str = "wake-up within the process, p50";
pub(super) const WAKE_UP_SAME_P99: &str = "wake-up within the process, p99";
pub(super) const IDLE: &str = "idle, 100 waiting receivers: transactions on the server";
pub(super) const IDLE_EMPTY: &str = "idle, nobody waits: transactions on the server";

impl ServerReport {
    /// Fills in the targets that this run measured.
    pub(super) fn judge(&mut self, is_postgres: bool) {
        let ratio = |workload: &str| self.results.iter().find(|row| row.workload == workload).and_then(|row| row.ratio);
        let rate = |workload: &str| self.results.iter().find(|row| row.workload == workload).map(|row| row.per_s);
        let figure = |name: &str| self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value);
        let deep = rate("receive_at_1000000").zip(rate("receive_at_10000")).map(|(deep, shallow)| deep / shallow);
        let wake_bound = if is_postgres { 3.0 } else { 100.0 };
        let per_receiver = figure(IDLE).zip(figure(IDLE_EMPTY)).map(|(full, empty)| (full - empty) / 100.0);
        let (growth, pace) = (self.growth_after_reader(), self.pace_after_reader());
        let promised = [
            ("send, 64 callers", 1.5, "times a plain INSERT on 64 connections", ratio("send")),
            ("receive one by one, 64 callers", 3.0, "times a table queue on 64 connections", ratio("receive")),
            ("both at once, 64+64 callers", 3.0, "times the same table queue", ratio("both")),
            ("receive at 1,000,000 waiting", 0.8, "of the rate at 10,000", deep),
            ("constant load: throughput after the old snapshot", 0.8, "of that before it", pace),
        ];
        let bounded = [
            ("wake-up, send to receive, idle system, p50", wake_bound, "ms", figure(WAKE_UP_OTHER)),
            ("idle, statements per waiting receiver", 0.1, "a minute", per_receiver),
            ("constant load: size of the tables at the end", 1.25, "times that when the old snapshot ended", growth),
            ("send beside hostile XML, p99", 3.0, "times alone", figure(HOSTILE_XML)),
            ("send beside hostile JSON, p99", 3.0, "times alone", figure(HOSTILE_JSON)),
        ];
        self.targets = Target::judged(&promised, &bounded);
    }

    /// The size at the end over that at the end of the reader; while a reader looks at the past nothing can be cleaned up.
    fn growth_after_reader(&self) -> Option<f64> {
        let held = self.curve.iter().rev().find(|slice| slice.reader_holds_snapshot)?.mib?;
        Some(self.curve.last().filter(|slice| !slice.reader_holds_snapshot)?.mib? / held.max(1.0))
    }

    fn pace_after_reader(&self) -> Option<f64> {
        let first = self.curve.iter().position(|slice| slice.reader_holds_snapshot)?;
        let last = self.curve.iter().rposition(|slice| slice.reader_holds_snapshot)?;
        Some(middle(&self.curve[last + 1..])? / middle(&self.curve[..first])?)
    }
}

fn middle(slices: &[Slice]) -> Option<f64> {
    let mut rates: Vec<f64> = slices.iter().map(|slice| slice.per_s).collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied()
}

impl fmt::Display for ServerReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, machine, .. } = self;
        writeln!(
            f,
            "dialoq {} ({}, {} build); durability {}; {} bytes a body; {} callers; {} rounds of {} s, the median counts; {} worker threads",
            machine.version,
            machine.commit.as_deref().unwrap_or("commit unknown"),
            machine.build,
            settings.durability,
            settings.body_bytes,
            settings.callers,
            settings.rounds,
            settings.round_seconds,
            settings.worker_threads,
        )?;
        writeln!(f, "{}: {}", settings.server, settings.server_settings)?;
        writeln!(f, "{}, {} cores; {}", machine.cpu, machine.cores, machine.kernel)?;
        if !self.results.is_empty() {
            let mut table = aligned(
                &["workload", "per s", "p50 us", "p99 us", "rival per s", "rival p50 us", "of rival", "rival"],
                1,
            );
            for row in &self.results {
                let whole = |value: Option<f64>| value.map_or(String::new(), thousands);
                table.add_row([
                    row.workload.clone(),
                    thousands(row.per_s),
                    thousands(row.p50_us),
                    thousands(row.p99_us),
                    whole(row.rival_per_s),
                    whole(row.rival_p50_us),
                    row.ratio.map_or(String::new(), |ratio| format!("{ratio:.2}")),
                    row.rival.clone(),
                ]);
            }
            writeln!(f, "{table}")?;
        }
        write_figures(f, &self.figures)?;
        if !self.curve.is_empty() {
            let mut table =
                aligned(&["load, s", "old snapshot", "per s", "p50 us", "p99 us", "tables MiB", "dead rows"], 0);
            for slice in &self.curve {
                table.add_row([
                    thousands(slice.at_seconds),
                    if slice.reader_holds_snapshot { "held" } else { "" }.to_owned(),
                    thousands(slice.per_s),
                    thousands(slice.p50_us),
                    thousands(slice.p99_us),
                    slice.mib.map_or(String::new(), short),
                    slice.dead_rows.map_or(String::new(), |rows| thousands(rows as f64)),
                ]);
            }
            writeln!(f, "{table}")?;
        }
        write_targets(f, &self.targets)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(at_seconds: f64, reader_holds_snapshot: bool, per_s: f64, mib: f64) -> Slice {
        Slice { at_seconds, reader_holds_snapshot, per_s, p50_us: 1.0, p99_us: 1.0, mib: Some(mib), dead_rows: Some(0) }
    }

    fn report(curve: Vec<Slice>) -> ServerReport {
        let settings = ServerSettings {
            server: "PostgreSQL 15".to_owned(),
            server_settings: "fsync on".to_owned(),
            durability: "full".to_owned(),
            rounds: 1,
            round_seconds: 1.0,
            body_bytes: 256,
            callers: 64,
            worker_threads: 2,
            largest: 1000,
            load_seconds: 3.0,
        };
        let machine = Machine::look(std::path::Path::new("."));
        ServerReport { settings, machine, results: Vec::new(), figures: Vec::new(), curve, targets: Vec::new() }
    }

    #[test]
    fn what_grows_after_the_snapshot_has_ended_is_unbounded() {
        let held = || vec![slice(1.0, false, 1000.0, 10.0), slice(2.0, true, 900.0, 50.0)];
        for (last, reached) in
            [(slice(3.0, false, 990.0, 52.0), [true, true]), (slice(3.0, false, 700.0, 90.0), [false, false])]
        {
            let mut curve = held();
            curve.push(last);
            let mut report = report(curve);
            report.judge(true);
            let judged: Vec<_> = report.targets.iter().map(|target| target.reached).collect();
            assert_eq!(judged, reached);
            assert!(report.to_string().contains("held") && report.to_string().contains("fsync on"));
        }
    }

    #[test]
    fn what_was_not_measured_is_not_judged() {
        let mut report = report(vec![slice(1.0, false, 1000.0, 10.0)]);
        report.judge(true);
        assert!(report.targets.is_empty());
    }
}
