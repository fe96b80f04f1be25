//! The lab: the same load through every strategy, classic and improved, on a real store.
//!
//! Each run has a database of its own, or on a server definitions of its own; a sender that plays the load in its own time, and readers that work on each
//! message for a set time. Nothing is simulated but that work.

mod contestant;
mod findings;
mod html;
mod jobs;
mod load;
mod measure;
mod play;
mod report;
mod scene;
#[cfg(test)]
mod tests;

pub(crate) use load::Source;
pub(crate) use report::{Report, StrategyResult};

use crate::cli::Interrupt;
use contestant::Contestant;
use dialoq::internals::ErrorConstructors;
use dialoq::receive::strategy::Form;
use dialoq::{Broker, Error, Result};
use load::Load;
use scene::Site;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What to play.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Options {
    /// The arrivals. Default synthetic, 8 s.
    pub source: Source,
    /// How long a reader works on a message. Default 3 ms.
    pub service: Duration,
    /// The strategies to play, by name; all if empty.
    pub strategies: Vec<String>,
    /// Whether the classic forms are left out. Default false.
    pub is_improved_only: bool,
    /// Where the databases are made, and removed again. Default the system's folder for temporary files.
    pub folder: PathBuf,
    /// A server to play on instead. Default none.
    pub server: Option<Server>,
    /// What carries the load. Default messages.
    pub on: On,
}

/// What carries the load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum On {
    /// Messages of conversations.
    #[default]
    Messages,
    /// Jobs of work queues; a conversation is a key, of which one job is taken at a time.
    Work,
}

impl On {
    /// A text about messages, in the words of what carries the load.
    pub(crate) fn words(self, text: &str) -> String {
        const JOBS: [(&str, &str); 10] = [
            ("messages", "jobs"),
            ("Messages", "Jobs"),
            ("message", "job"),
            ("conversations", "keys"),
            ("conversation", "key"),
            ("receives", "takes"),
            ("one receive of", "one take of"),
            ("each receive whose", "each take whose"),
            ("Receives", "Takes"),
            ("enqueueing", "push"),
        ];
        match self {
            Self::Messages => text.to_owned(),
            Self::Work => JOBS.iter().fold(text.to_owned(), |text, (message, job)| text.replace(message, job)),
        }
    }
}

/// A database on a server, which is left as it was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Server {
    /// The database.
    pub url: String,
    /// Whether a database that holds conversations is taken too.
    pub is_in_use: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            source: Source::Synthetic { seed: 1, length: Duration::from_secs(8) },
            service: Duration::from_millis(3),
            strategies: Vec::new(),
            is_improved_only: false,
            folder: std::env::temp_dir(),
            server: None,
            on: On::default(),
        }
    }
}

/// How far a run has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Progress {
    /// The strategy.
    pub strategy: &'static str,
    /// Its form.
    pub form: Form,
    /// Which run it is, from 0; two go on side by side.
    pub run: usize,
    /// How many runs there are.
    pub runs: usize,
    /// Messages served in this run.
    pub served: usize,
    /// Messages it will serve.
    pub messages: usize,
}

/// The names that [`Options::strategies`] knows.
pub(crate) fn strategy_names() -> Vec<&'static str> {
    let mut names: Vec<&'static str> = Contestant::ALL.iter().map(|contestant| contestant.name()).collect();
    names.dedup();
    names
}

/// Plays the load to the strategies, two at a time, and reports; `None` if a stop was requested. Tells of progress as messages are served, so up
/// to some hundred times a second.
///
/// # Errors
/// 60028 the recording is not usable; 60005 a setting is out of range; 60026 the server's database is in use; those of the
/// store.
pub(crate) async fn run(
    options: Options,
    progress: impl Fn(Progress) + Sync,
    interrupt: &Interrupt,
) -> Result<Option<Report>> {
    check(&options)?;
    let load = Load::of(&options.source, options.service)?;
    let wanted = |contestant: &Contestant| {
        let is_named = options.strategies.is_empty() || options.strategies.iter().any(|name| name == contestant.name());
        let is_wanted = is_named && !(options.is_improved_only && contestant.form() == Form::Classic);
        is_wanted && contestant.plays(options.on)
    };
    let contestants: Vec<Contestant> = Contestant::ALL.into_iter().filter(wanted).collect();
    let runs = contestants.len();
    let site = match &options.server {
        Some(server) => {
            if interrupt.unless_requested(check_server(server)).await?.is_none() {
                return Ok(None);
            }
            Site::Server(&server.url)
        }
        None => Site::Below(&options.folder),
    };
    let waiting = Mutex::new(contestants.into_iter().enumerate());
    let lane = async || {
        let mut results = Vec::new();
        loop {
            let next = waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((run, contestant)) = next else { return Ok::<_, Error>(Some(results)) };
            let messages = load.arrivals.len();
            let report_progress = |served: usize| {
                let (strategy, form) = (contestant.name(), contestant.form());
                progress(Progress { strategy, form, run, runs, served, messages });
            };
            report_progress(0);
            let played = match options.on {
                On::Messages => {
                    play::play(contestant, &load, options.service, site, report_progress, interrupt).await?
                }
                On::Work => jobs::play(contestant, &load, options.service, site, report_progress, interrupt).await?,
            };
            let Some(trace) = played else { return Ok(None) };
            results.push((run, StrategyResult::of(contestant, trace, options.on)));
        }
    };
    // Readers sleep most of the time, so two runs side by side do not disturb each other and take half as long. On one
    // server their names would clash.
    let second = async || if options.server.is_none() { lane().await } else { Ok(Some(Vec::new())) };
    let (Some(mut results), Some(others)) = tokio::try_join!(lane(), second())? else { return Ok(None) };
    results.extend(others);
    results.sort_by_key(|(run, _)| *run);
    let strategies = results.into_iter().map(|(_, result)| result).collect();
    let store = match &options.server {
        None => "SQLite",
        Some(server) if server.url.starts_with("mssql:") => "SQL Server",
        Some(_) => "PostgreSQL",
    };
    Ok(Some(Report::new(load, options.service, (store, options.on), strategies)))
}

async fn check_server(server: &Server) -> Result<()> {
    // Missing objects are made before the measurement begins.
    Broker::open(&server.url).await?.close().await?;
    if server.is_in_use { Ok(()) } else { crate::bench::check_unused(&server.url, "the lab").await }
}

fn check(options: &Options) -> Result<()> {
    if options.service > Duration::from_secs(10) {
        let found = format!("{:?}", options.service);
        return Err(Error::out_of_range("the service time of the lab", found, "at most 10 s"));
    }
    if let Source::Synthetic { length, .. } = &options.source
        && !(Duration::from_secs(1)..=Duration::from_secs(3600)).contains(length)
    {
        return Err(Error::out_of_range("the length of the load", format!("{length:?}"), "1 s to 1 h"));
    }
    let names = strategy_names();
    match options.strategies.iter().find(|name| !names.contains(&name.as_str())) {
        Some(unknown) => {
            let right = format!("one of {}", names.join(", "));
            Err(Error::out_of_range("the strategy of the lab", format!("'{unknown}'"), &right))
        }
        None => Ok(()),
    }
}
