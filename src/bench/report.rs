//! What a bench gives back: rates beside their limit, sizes, and the targets they are held to.

use super::Options;
use super::load::Round;
use super::machine::Machine;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use std::fmt;

/// Everything measured in one run. Serializes to the object that `dialoq bench --json` prints.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    /// How it was measured.
    pub settings: Settings,
    /// Where it was measured.
    pub machine: Machine,
    /// One row per workload and number of callers.
    pub results: Vec<Measured>,
    /// Sizes and times that are not rates.
    pub figures: Vec<Figure>,
    /// What was promised beside what was measured.
    pub targets: Vec<Target>,
}

/// How a run was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Settings {
    /// `full`: every commit is synced before it is answered. `normal`: only checkpoints are.
    pub durability: &'static str,
    /// Rounds per workload, store and limit in turn; the median round counts.
    pub rounds: usize,
    /// Seconds per round.
    pub round_seconds: f64,
    /// Bytes per message body.
    pub body_bytes: usize,
    /// Threads that run the callers.
    pub worker_threads: usize,
    /// Messages in the deepest backlog, and conversations in the largest crowd.
    pub largest: usize,
}

impl Settings {
    pub(super) fn of(options: &Options) -> Self {
        Self {
            durability: if options.synced { "full" } else { "normal" },
            rounds: options.rounds,
            round_seconds: options.round_length.as_secs_f64(),
            body_bytes: options.body_bytes,
            worker_threads: tokio::runtime::Handle::current().metrics().num_workers(),
            largest: options.largest,
        }
    }
}

/// One workload at one number of callers: the median round.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Measured {
    /// What was done; the names are explained in `docs/performance.md`.
    pub workload: String,
    /// How many asked at the same time.
    pub callers: usize,
    /// Messages per transaction.
    pub batch: usize,
    /// Bytes per body.
    pub body_bytes: usize,
    /// Messages a second; for the dialog cycle, cycles a second.
    pub per_s: f64,
    /// Half of the calls took less, in microseconds; for `both` and `end_to_end`, from before the send to after the
    /// receive.
    pub p50_us: f64,
    /// 99 of 100 calls took less, in microseconds.
    pub p99_us: f64,
    /// The bare log's messages a second under the same load in the same run.
    pub log_per_s: Option<f64>,
    /// The bare log's p50 in microseconds.
    pub log_p50_us: Option<f64>,
    /// `per_s` over `log_per_s`.
    pub ratio_to_log: Option<f64>,
    /// Bare SQLite's statements a second, for one caller alone.
    pub sqlite_per_s: Option<f64>,
    /// `per_s` over `sqlite_per_s`.
    pub ratio_to_sqlite: Option<f64>,
}

impl Measured {
    pub(super) fn new(workload: &str, callers: usize, batch: usize, body_bytes: usize, store: &Round) -> Self {
        Self {
            workload: workload.to_owned(),
            callers,
            batch,
            body_bytes,
            per_s: store.rate(),
            p50_us: store.quantile_us(0.5),
            p99_us: store.quantile_us(0.99),
            log_per_s: None,
            log_p50_us: None,
            ratio_to_log: None,
            sqlite_per_s: None,
            ratio_to_sqlite: None,
        }
    }

    pub(super) fn beside_log(mut self, log: Option<&Round>) -> Self {
        self.log_per_s = log.map(Round::rate);
        self.log_p50_us = log.map(|log| log.quantile_us(0.5));
        self.ratio_to_log = self.log_per_s.map(|log| self.per_s / log);
        self
    }

    pub(super) fn beside_sqlite(mut self, rival: Option<&Round>) -> Self {
        self.sqlite_per_s = rival.map(Round::rate);
        self.ratio_to_sqlite = self.sqlite_per_s.map(|rival| self.per_s / rival);
        self
    }
}

/// A size or a time.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figure {
    /// What was measured.
    pub name: String,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
}

/// A promise, and whether this run keeps it.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Target {
    /// What is promised.
    pub what: String,
    /// `at least` or `at most`.
    pub bound: &'static str,
    /// The figure promised.
    pub target: f64,
    /// What `target` and `measured` count.
    pub unit: &'static str,
    /// The figure of this run.
    pub measured: f64,
    /// Whether the promise is kept.
    pub reached: bool,
}

/// What is promised, the figure, what that counts, and what was measured, if it was.
pub(super) type Promise<'a> = (&'a str, f64, &'static str, Option<f64>);

impl Target {
    /// Those promises that were measured: what must be reached at least, then what must not be passed.
    pub(super) fn judged(promised: &[Promise<'_>], bounded: &[Promise<'_>]) -> Vec<Self> {
        let judge = |&(what, target, unit, measured): &Promise<'_>, is_least: bool| {
            let measured = measured?;
            let (bound, reached) =
                if is_least { ("at least", measured >= target) } else { ("at most", measured <= target) };
            Some(Self { what: what.to_owned(), bound, target, unit, measured, reached })
        };
        let least = promised.iter().filter_map(|promise| judge(promise, true));
        least.chain(bounded.iter().filter_map(|promise| judge(promise, false))).collect()
    }
}

impl Report {
    fn row(&self, workload: &str, callers: usize) -> Option<&Measured> {
        self.results.iter().find(|row| row.workload == workload && row.callers == callers)
    }

    fn figure(&self, name: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.name == name).map(|figure| figure.value)
    }

    /// Fills in the targets that this run measured.
    pub(super) fn judge(&mut self) {
        let log = |row: &Measured| row.ratio_to_log;
        let sqlite = |row: &Measured| row.ratio_to_sqlite;
        let rate = |row: &Measured| Some(row.per_s);
        let end_to_end = |row: &Measured| row.log_p50_us.map(|log| row.p50_us / log);
        const LOG: &str = "of the bare log";
        const SQLITE: &str = "of bare SQLite";
        let at = |workload: &str, callers, of: fn(&Measured) -> Option<f64>| self.row(workload, callers).and_then(of);
        let depth = |messages: u64| at(&format!("receive_at_{messages}"), 64, rate);
        let deep = depth(1_000_000).zip(depth(10_000)).map(|(deep, shallow)| deep / shallow);
        let promised = [
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
        self.targets = Target::judged(&promised, &bounded);
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, machine, .. } = self;
        writeln!(
            f,
            "dialoq {} ({}, {} build); durability {}; {} bytes a body; {} rounds of {} s, the median counts; {} worker threads",
            machine.version,
            machine.commit.as_deref().unwrap_or("commit unknown"),
            machine.build,
            settings.durability,
            settings.body_bytes,
            settings.rounds,
            settings.round_seconds,
            settings.worker_threads,
        )?;
        writeln!(f, "{}, {} cores; {}; {}", machine.cpu, machine.cores, machine.kernel, machine.file_system)?;
        if !self.results.is_empty() {
            let mut table = aligned(
                &[
                    "workload",
                    "callers",
                    "batch",
                    "per s",
                    "p50 us",
                    "p99 us",
                    "log per s",
                    "of log",
                    "SQLite per s",
                    "of SQLite",
                ],
                1,
            );
            for row in &self.results {
                let whole = |value: Option<f64>| value.map_or(String::new(), thousands);
                let ratio = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
                table.add_row([
                    row.workload.clone(),
                    row.callers.to_string(),
                    row.batch.to_string(),
                    thousands(row.per_s),
                    thousands(row.p50_us),
                    thousands(row.p99_us),
                    whole(row.log_per_s),
                    ratio(row.ratio_to_log),
                    whole(row.sqlite_per_s),
                    ratio(row.ratio_to_sqlite),
                ]);
            }
            writeln!(f, "{table}")?;
        }
        write_figures(f, &self.figures)?;
        write_targets(f, &self.targets)
    }
}

/// The figures as a table, if there are any.
pub(super) fn write_figures(f: &mut fmt::Formatter<'_>, figures: &[Figure]) -> fmt::Result {
    if figures.is_empty() {
        return Ok(());
    }
    let mut table = aligned(&["figure", "value", "unit"], 1);
    for figure in figures {
        table.add_row([figure.name.clone(), short(figure.value), figure.unit.to_owned()]);
    }
    writeln!(f, "{table}")
}

/// The targets as a table, if there are any.
pub(super) fn write_targets(f: &mut fmt::Formatter<'_>, targets: &[Target]) -> fmt::Result {
    if targets.is_empty() {
        return Ok(());
    }
    let mut table = aligned(&["target", "", "promised", "measured", "unit", "reached"], 2);
    for target in targets {
        table.add_row([
            target.what.clone(),
            target.bound.to_owned(),
            short(target.target),
            short(target.measured),
            target.unit.to_owned(),
            if target.reached { "yes" } else { "NO" }.to_owned(),
        ]);
    }
    writeln!(f, "{table}")
}

/// A table whose columns from `first_number` on are numbers, but for its last text columns.
pub(super) fn aligned(header: &[&str], first_number: usize) -> Table {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_header(header.iter().copied());
    for (place, name) in header.iter().enumerate() {
        if place >= first_number
            && !matches!(*name, "unit" | "reached" | "rival")
            && let Some(column) = table.column_mut(place)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Three digits that mean something.
pub(super) fn short(value: f64) -> String {
    if value >= 100.0 { thousands(value) } else { format!("{value:.2}") }
}

pub(super) fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::load::new_histogram;
    use std::path::Path;
    use std::time::Duration;

    fn round(messages: u64) -> Round {
        Round { messages, elapsed: Duration::from_secs(1), latency: new_histogram() }
    }

    #[tokio::test]
    async fn a_report_judges_what_was_measured_and_nothing_else() {
        let _limit = crate::limit();
        let options = Options::quick(Path::new("."));
        let mut report = Report {
            settings: Settings::of(&options),
            machine: Machine::look(Path::new(".")),
            results: vec![
                Measured::new("send", 64, 1, 256, &round(600)).beside_log(Some(&round(1000))),
                Measured::new("receive", 1, 1, 256, &round(100)).beside_sqlite(Some(&round(1000))),
            ],
            figures: vec![],
            targets: vec![],
        };
        report.judge();
        let judged: Vec<_> = report.targets.iter().map(|target| (target.what.as_str(), target.reached)).collect();
        assert_eq!(judged, [("send, 64 callers", true), ("receive, one caller alone", false)]);
        let shown = report.to_string();
        assert!(shown.contains("durability full") && shown.contains("NO"), "{shown}");
    }

    #[test]
    fn thousands_are_parted() {
        assert_eq!([0.4, 999.6, 1_234_567.0].map(thousands), ["0", "1,000", "1,234,567"]);
    }
}
