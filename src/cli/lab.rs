//! `dialoq lab`

use super::failure::Failure;
use super::globals::{Globals, parse_span};
use super::interrupt::Interrupt;
use super::output::{Output, fitting, span, table, wrapped};
use crate::lab::{self, On, Options, Report, Server, Source};
use clap::Args;
use clap::builder::PossibleValuesParser;
use comfy_table::Cell;
use dialoq::internals::store::url::StoreUrl;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The load of --quick.
const QUICK_LENGTH: Duration = Duration::from_secs(1);

/// Play one load through every priority strategy and compare them.
///
/// Messages of a high and of a low class arrive in calm, bursts and a flood, and each strategy, in its classic and its
/// improved form, serves them from a database of its own. Shown are waiting times, order violations, the longest
/// starvation of each class and the throughput, the stated bound with the observed value. Takes under a minute.
///
/// With --on work, jobs of work queues carry the same load: a level is the level of the job, and a conversation is a key of
/// which one job is taken at a time. The classic form of drain_high_then_one_low needs a conversation and is left out.
///
/// With --db and the URL of a server it plays there, one strategy after the other. The database must have no other
/// uses; what the lab makes there it removes, after the first ctrl-C too, but for the schema dialoq.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  dialoq lab                                 all strategies; the report with its charts goes to lab.html
  dialoq lab --quick                         the improved forms on a short load
  dialoq lab --strategy dual_queue_loop      one strategy, both forms
  dialoq lab --on work                       the same load as jobs of work queues
  dialoq lab --recorded arrivals.jsonl       arrivals as they were recorded
  dialoq lab --db postgres://me@host/empty   on a server

A line of a recording:
  {\"at_ms\": 12.5, \"class\": \"high\", \"body\": {\"sku\": \"A-1\"}}")]
pub(super) struct Lab {
    /// Which strategies to play [default: all].
    #[arg(long = "strategy", value_name = "NAME", value_delimiter = ',')]
    #[arg(value_parser = PossibleValuesParser::new(lab::strategy_names()))]
    strategies: Vec<String>,
    /// What carries the load.
    #[arg(long, value_name = "WHAT", value_parser = ["messages", "work"], default_value = "messages")]
    on: String,
    /// Where the report with its charts is written: one page that stands by itself.
    #[arg(long, value_name = "FILE", default_value = "lab.html")]
    html: PathBuf,
    /// Write no page.
    #[arg(long, conflicts_with = "html")]
    no_html: bool,
    /// Play the arrivals of this file of JSON lines instead of synthetic ones.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "length"])]
    recorded: Option<PathBuf>,
    /// The same seed gives the same synthetic arrivals.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// One second of arrivals, and the improved forms only: done in some seconds.
    #[arg(long, conflicts_with_all = ["recorded", "length"])]
    quick: bool,
    /// How long the synthetic arrivals last, 1s to 1h.
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "8s")]
    length: Duration,
    /// How long a reader works on one message, up to 10s.
    #[arg(long, value_name = "SPAN", value_parser = parse_span, default_value = "3ms")]
    service: Duration,
    /// The folder in which databases are made and removed again [default: the folder for temporary files].
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// On a server: also if the database holds conversations.
    #[arg(long)]
    in_use: bool,
}

impl Lab {
    pub(super) async fn run(&self, globals: &Globals, output: &Output, interrupt: &Interrupt) -> Result<(), Failure> {
        let options = self.options(&globals.db)?;
        if !self.no_html {
            check_writable(&self.html).map_err(|error| Failure::file("written", self.html.display(), error))?;
        }
        let bar = output.progress(1, "{bar:30} {percent:>3}% {wide_msg} {elapsed}");
        let served: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
        let progress = |progress: lab::Progress| {
            if let Some(run) = served.get(progress.run) {
                run.store(progress.served as u64, Relaxed);
            }
            bar.set_length((progress.runs * progress.messages) as u64);
            bar.set_position(served.iter().map(|served| served.load(Relaxed)).sum());
            bar.set_message(format!("{} {}", progress.strategy, progress.form));
        };
        let played = lab::run(options, progress, interrupt).await;
        bar.finish_and_clear();
        let Some(report) = played? else {
            return Err(Failure::Interrupted("interrupted; what the lab made is removed".into()));
        };
        if !self.no_html {
            let page = report.to_html();
            std::fs::write(&self.html, page).map_err(|error| Failure::file("written", self.html.display(), error))?;
        }
        if output.json {
            return output.json(&report);
        }
        output.text(&shown(&report))?;
        match self.no_html {
            true => Ok(()),
            false => output.text(&format!("\nThe report with its charts is in {}", self.html.display())),
        }
    }

    fn options(&self, url: &str) -> Result<Options, Failure> {
        let is_server = StoreUrl::parse(url)?.server().is_some();
        if is_server && self.folder.is_some() {
            let why = "--folder is for the embedded store; on a server the lab plays in the database of --db";
            return Err(Failure::Usage(why.to_owned()));
        }
        if !is_server && self.in_use {
            return Err(Failure::Usage("--in-use is for a server, which --db names".to_owned()));
        }
        if !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(&self.length) {
            return Err(Failure::Usage(format!("--length is {}; it must be 1s to 1h", span(self.length))));
        }
        if self.service > Duration::from_secs(10) {
            return Err(Failure::Usage(format!("--service is {}; it must be at most 10s", span(self.service))));
        }
        let length = if self.quick { QUICK_LENGTH } else { self.length };
        let synthetic = Source::Synthetic { seed: self.seed, length };
        Ok(Options {
            source: self.recorded.clone().map_or(synthetic, Source::Recorded),
            service: self.service,
            strategies: self.strategies.clone(),
            folder: self.folder.clone().unwrap_or_else(std::env::temp_dir),
            is_improved_only: self.quick,
            on: if self.on == "work" { On::Work } else { On::Messages },
            server: is_server.then(|| Server { url: url.to_owned(), is_in_use: self.in_use }),
        })
    }
}

/// Opens the file for the report, so that a wrong path is an error before the run. A file that this makes is removed again.
fn check_writable(path: &Path) -> std::io::Result<()> {
    let is_new = !path.exists();
    std::fs::OpenOptions::new().append(true).create(true).open(path)?;
    if is_new { std::fs::remove_file(path) } else { Ok(()) }
}

/// The figures as a table, the bounds and what they show below it.
fn shown(report: &Report) -> String {
    let headings = [
        "strategy",
        "form",
        "class",
        "#count",
        "#p50 ms",
        "#p99 ms",
        "#max ms",
        "#starved ms",
        "#per second",
        "#out of order",
    ];
    let mut figures = Vec::new();
    let mut bounds = table(&["strategy", "form", "stated bound", "observed", "kept"]);
    for strategy in &report.strategies {
        let (name, form) = (strategy.name, strategy.form.to_string());
        for (index, class) in strategy.classes.iter().enumerate() {
            let once = |text: String| if index == 0 { text } else { String::new() };
            let row = [
                once(name.to_owned()),
                once(form.clone()),
                class.class.name().to_owned(),
                class.count.to_string(),
                format!("{:.1}", class.p50_ms),
                format!("{:.1}", class.p99_ms),
                format!("{:.1}", class.max_ms),
                format!("{:.1}", class.longest_starvation_ms),
                once(format!("{:.0}", strategy.throughput_per_s)),
                once(strategy.order_violations.to_string()),
            ];
            figures.push(row.map(Cell::new).to_vec());
        }
        let kept = match strategy.is_bound_kept {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "–",
        };
        let bound = report.on.words(&strategy.bound.to_string());
        bounds.add_row([name, &form, &bound, &strategy.observed, kept]);
    }
    // In a narrow terminal first the order and the rate go, then the middle and the end of the distribution.
    let figures = fitting(&headings, &[9, 8, 4, 6, 3], &figures);
    let work = if report.on == On::Work { ", work queues" } else { "" };
    let mut text = format!("On {}{}: {}\n\n{figures}\n\n{}\n", report.store, work, report.load, wrapped(bounds));
    for finding in &report.findings {
        text.push_str(&format!("\n{}\n  {}\n", finding.title, finding.text));
    }
    text.trim_end().to_owned()
}
