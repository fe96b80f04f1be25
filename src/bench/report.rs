//! What a bench gives back: rates beside their rivals', sizes, and the targets they are held to.

use super::Options;
use super::load::Round;
use super::machine::Machine;
use super::targets::Target;
use super::techniques::Technique;
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, Table};
use serde::Serialize;
use std::fmt;

/// Everything measured in one run. Serializes to the object that `dialoq bench --json` prints.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    /// How it was measured.
    pub settings: Settings,
    /// Where it was measured; a server may be elsewhere.
    pub machine: Machine,
    /// One row per workload and number of callers.
    pub results: Vec<Measured>,
    /// Sizes and times that are not rates.
    pub figures: Vec<Figure>,
    /// The taking techniques and the orders of work queues side by side.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub techniques: Vec<Technique>,
    /// The constant load on a server, slice by slice.
    pub curve: Vec<Slice>,
    /// The targets with the measured values.
    pub targets: Vec<Target>,
}

/// How a run was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Settings {
    /// The server, if it is one.
    #[serde(flatten)]
    pub server: Option<ServerSettings>,
    /// `full`: every commit is synced before it is answered. `normal`: only checkpoints are.
    pub durability: &'static str,
    /// Rounds per workload, subject and rival in turn; the median round counts.
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

/// The server that was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ServerSettings {
    /// What the server calls itself.
    pub server: String,
    /// Its settings that bear on the figures.
    pub server_settings: String,
    /// Callers of the broker, in one process; connections of the rival.
    pub callers: usize,
    /// Seconds of constant load.
    pub load_seconds: f64,
}

impl Settings {
    pub(super) fn of(options: &Options, durability: &'static str) -> Self {
        Self {
            server: None,
            durability,
            rounds: options.rounds,
            round_seconds: options.round_length.as_secs_f64(),
            body_bytes: options.body_bytes,
            worker_threads: tokio::runtime::Handle::current().metrics().num_workers(),
            largest: options.largest,
        }
    }
}

impl Report {
    pub(super) fn new(settings: Settings, machine: Machine) -> Self {
        let (results, figures, techniques, curve, targets) = Default::default();
        Self { settings, machine, results, figures, techniques, curve, targets }
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
    /// What the rival on a server did; empty if there is none.
    pub rival: &'static str,
    /// That rival's messages a second.
    pub rival_per_s: Option<f64>,
    /// That rival's p50 in microseconds.
    pub rival_p50_us: Option<f64>,
    /// `per_s` over `rival_per_s`.
    pub ratio: Option<f64>,
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
            rival: "",
            rival_per_s: None,
            rival_p50_us: None,
            ratio: None,
        }
    }

    pub(super) fn beside_rival(mut self, name: &'static str, rival: Option<&Round>) -> Self {
        self.rival = name;
        self.rival_per_s = rival.map(Round::rate);
        self.rival_p50_us = rival.map(|rival| rival.quantile_us(0.5));
        self.ratio = self.rival_per_s.map(|rival| self.per_s / rival);
        self
    }

    pub(super) fn with_log(mut self, log: Option<&Round>) -> Self {
        self.log_per_s = log.map(Round::rate);
        self.log_p50_us = log.map(|log| log.quantile_us(0.5));
        self.ratio_to_log = self.log_per_s.map(|log| self.per_s / log);
        self
    }

    pub(super) fn with_rival(mut self, rival: Option<&Round>) -> Self {
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

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { settings, machine, .. } = self;
        let server = settings.server.as_ref();
        writeln!(
            f,
            "dialoq {} ({}, {} build); durability {}; {} bytes a body; {}{} rounds of {} s, the median counts; {} worker threads",
            machine.version,
            machine.commit.as_deref().unwrap_or("commit unknown"),
            machine.build,
            settings.durability,
            settings.body_bytes,
            server.map_or(String::new(), |server| format!("{} callers; ", server.callers)),
            settings.rounds,
            settings.round_seconds,
            settings.worker_threads,
        )?;
        if let Some(server) = server {
            writeln!(f, "{}: {}", server.server, server.server_settings)?;
        }
        write!(f, "{}, {} cores; {}", machine.cpu, machine.cores, machine.kernel)?;
        match server {
            None => writeln!(f, "; {}", machine.file_system)?,
            Some(_) => writeln!(f)?,
        }
        self.write_results(f)?;
        write_techniques(f, &self.techniques)?;
        write_figures(f, &self.figures)?;
        write_curve(f, &self.curve)?;
        write_targets(f, &self.targets)
    }
}

impl Report {
    fn write_results(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.results.is_empty() {
            return Ok(());
        }
        let whole = |value: Option<f64>| value.map_or(String::new(), thousands);
        let ratio = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:.2}"));
        let rates = |row: &Measured| [row.per_s, row.p50_us, row.p99_us].map(thousands);
        let (load, common) = (["callers", "batch"], ["per s", "p50 us", "p99 us"]);
        let is_server = self.settings.server.is_some();
        let rivals = match is_server {
            true => ["rival per s", "rival p50 us", "of rival", "rival"],
            false => ["log per s", "of log", "SQLite per s", "of SQLite"],
        };
        let load = if is_server { &[][..] } else { &load[..] };
        let mut table = aligned(&[&["workload"], load, &common[..], &rivals[..]].concat(), 1);
        for row in &self.results {
            let mut cells = vec![row.workload.clone()];
            if is_server {
                cells.extend(rates(row));
                cells.extend([whole(row.rival_per_s), whole(row.rival_p50_us), ratio(row.ratio), row.rival.to_owned()]);
            } else {
                cells.extend([row.callers.to_string(), row.batch.to_string()]);
                cells.extend(rates(row));
                cells.extend([whole(row.log_per_s), ratio(row.ratio_to_log)]);
                cells.extend([whole(row.sqlite_per_s), ratio(row.ratio_to_sqlite)]);
            }
            table.add_row(cells);
        }
        writeln!(f, "{table}")
    }
}

/// The techniques as a table, if they were measured.
fn write_techniques(f: &mut fmt::Formatter<'_>, techniques: &[Technique]) -> fmt::Result {
    if techniques.is_empty() {
        return Ok(());
    }
    let numbers = ["depth", "readers", "jobs a take", "taken per s", "p50 us", "p99 us", "lowest", "highest"];
    let more = ["pushed per s", "push p50 us", "push p99 us", "duplicates", "empty"];
    let mut table = aligned(&[&["order", "TAKE_BY"], &numbers[..], &more[..]].concat(), 2);
    for row in techniques {
        let [lowest, highest] = row.take_per_s_range;
        let mut cells = vec![row.order.to_owned(), row.take_by.to_owned()];
        cells.extend([row.depth, row.callers, row.batch as usize].map(|number| thousands(number as f64)));
        cells.extend([row.take_per_s, row.take_p50_us, row.take_p99_us, lowest, highest].map(thousands));
        cells.extend([row.push_per_s, row.push_p50_us, row.push_p99_us].map(thousands));
        cells.extend([row.duplicates, row.empties].map(|number| number.to_string()));
        table.add_row(cells);
    }
    writeln!(f, "{table}")
}

/// The curve as a table, if there is one.
fn write_curve(f: &mut fmt::Formatter<'_>, curve: &[Slice]) -> fmt::Result {
    if curve.is_empty() {
        return Ok(());
    }
    let mut table = aligned(&["load, s", "old snapshot", "per s", "p50 us", "p99 us", "tables MiB", "dead rows"], 0);
    for slice in curve {
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
    writeln!(f, "{table}")
}

/// The figures as a table, if there are any.
fn write_figures(f: &mut fmt::Formatter<'_>, figures: &[Figure]) -> fmt::Result {
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
fn write_targets(f: &mut fmt::Formatter<'_>, targets: &[Target]) -> fmt::Result {
    if targets.is_empty() {
        return Ok(());
    }
    let mut table = aligned(&["target", "", "asked", "measured", "unit", "reached"], 2);
    for target in targets {
        table.add_row([
            target.what.clone(),
            target.bound.to_owned(),
            short(target.target),
            short(target.measured),
            target.unit.to_owned(),
            if target.reached { "yes" } else { "below" }.to_owned(),
        ]);
    }
    writeln!(f, "{table}")?;
    writeln!(f, "The targets are those of the project for the machine in docs/performance.md.")
}

/// A table whose columns from `first_number` on are numbers, but for its last text columns.
fn aligned(header: &[&str], first_number: usize) -> Table {
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
fn short(value: f64) -> String {
    if value >= 100.0 { thousands(value) } else { format!("{value:.2}") }
}

fn thousands(value: f64) -> String {
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
    async fn a_report_judges_measured_figures_only() {
        let _limit = crate::limit();
        let settings = Settings::of(&Options::embedded(Path::new(".")), "full");
        let mut report = Report::new(settings, Machine::detect(Path::new(".")));
        report.results = vec![
            Measured::new("send", 64, 1, 256, &round(600)).with_log(Some(&round(1000))),
            Measured::new("receive", 1, 1, 256, &round(100)).with_rival(Some(&round(1000))),
        ];
        report.judge_embedded();
        let judged: Vec<_> = report.targets.iter().map(|target| (target.what.as_str(), target.reached)).collect();
        assert_eq!(judged, [("send, 64 callers", true), ("receive, one caller alone", false)]);
        let shown = report.to_string();
        assert!(shown.contains("durability full") && shown.contains("below"), "{shown}");
    }

    #[test]
    fn thousands_are_parted() {
        assert_eq!([0.4, 999.6, 1_234_567.0].map(thousands), ["0", "1,000", "1,234,567"]);
    }
}
