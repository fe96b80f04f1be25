//! A long run of everything at once, with faults: what grows that should not?
//!
//! Initiators and targets use every verb, in transactions and alone, with savepoints, cancelled calls, bodies that are
//! refused, conversations that expire and SQL that fails. Meanwhile faults strike the store. Samples of memory, handles,
//! tasks, locks, rows and bytes are taken all the time and written as a table and as a page of charts.
//!
//! In the end the load stops and every conversation ends. Then nothing may be left: no conversation, message or lock,
//! and no more handles and tasks than at the start. After ten minutes or more, no series may have grown either; what follows
//! the pace of the load is compared at one pace, because other programs of the machine change it.
//!
//! `DIALOQ_SOAK_MINUTES=60 cargo test --release --test soak` runs for that long on each store, one store at a time with
//! `-- sqlite::` or `-- postgres::`. Without it a run takes a few seconds. `DIALOQ_SOAK_FOLDER` names the folder of the
//! results; the build's own folder for tests by default.

mod chart;
mod faults;
mod load;
mod sample;
#[path = "../servers/mod.rs"]
mod servers;
mod verdict;

use dialoq::Broker;
use load::Load;
use sample::{Sample, Sampler};
use servers::{Database, OnStores, Store, limit};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long a run takes by default: each kind of fault strikes once.
const BRIEF: Duration = Duration::from_secs(6);
/// From here on no series may grow.
const LONG: Duration = Duration::from_secs(600);
/// Samples of a run.
const SAMPLES: u32 = 240;
/// The longest that conversations may need to end once the load stops: lifetimes, timers and retention are shorter.
const DRAIN: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    servers::run(&[OnStores { name: "a_soak_with_faults_leaves_nothing_behind", stores: &Store::ALL, run: soak_on }])
}

fn soak_on(store: Store) {
    verdict::judges_right();
    let minutes = std::env::var("DIALOQ_SOAK_MINUTES").ok().and_then(|minutes| minutes.parse::<f64>().ok());
    let duration = minutes.map_or(BRIEF, |minutes| Duration::from_secs_f64(minutes * 60.0));
    limit::end_within(duration + DRAIN * 3);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(soak(store, duration));
}

async fn soak(store: Store, duration: Duration) {
    let database = Database::fresh(store);
    // Closed endpoints go after a second, so that a steady state is reached.
    let separator = if database.url().contains('?') { '&' } else { '?' };
    let url = format!("{}{separator}closed_retention_s=1", database.url());
    let broker = Broker::open(&url).await.expect("a broker");
    load::define(store, &broker).await.expect("definitions");

    let mut sampler = Sampler::new(store, broker.clone(), &url);
    let before = sampler.take(0).await;
    let load = Load::start(store, broker.clone());
    let faults = faults::start(&database, url.clone());
    let started = Instant::now();
    let mut pace = tokio::time::interval((duration / SAMPLES).max(Duration::from_millis(200)));
    let mut samples = Vec::new();
    while started.elapsed() < duration {
        pace.tick().await;
        samples.push(sampler.take(load.scenes()).await);
    }
    faults.stop().await;
    let counts = load.stop().await;
    let after = drained(store, &broker, &mut sampler, &before).await;
    samples.push(after.clone());

    let folder = folder();
    let page =
        chart::write(&folder, store.name(), &samples, &counts).expect("the folder of the results can be written");
    println!("{}: {} samples, {page}", store.name(), samples.len());
    for (what, count) in &counts {
        println!("  {what}: {count}");
    }
    verdict::nothing_is_left(&before, &after);
    assert!(counts.values().sum::<u64>() > 50, "the load did next to nothing: {counts:?}");
    // A shorter run has not reached its steady state by the second quarter.
    if duration >= LONG {
        let verdicts = verdict::of(&samples);
        verdicts.iter().for_each(|verdict| println!("  {verdict}"));
        let grown: Vec<_> = verdicts.iter().filter(|verdict| verdict.has_grown).collect();
        assert!(grown.is_empty(), "these have grown: {grown:?}");
    }
    broker.close().await.expect("close");
}

/// The first sample in which everything has ended, or the last one that was taken.
async fn drained(store: Store, broker: &Broker, sampler: &mut Sampler, before: &Sample) -> Sample {
    let until = Instant::now() + DRAIN;
    let mut pace = tokio::time::interval(Duration::from_millis(200));
    loop {
        pace.tick().await;
        let states = load::end_open_conversations(store, broker).await;
        let sample = sampler.take(0).await;
        if verdict::is_as_before(before, &sample) {
            return sample;
        }
        if Instant::now() > until {
            println!("states of what is left: {states:?}");
            return sample;
        }
    }
}

fn folder() -> PathBuf {
    std::env::var_os("DIALOQ_SOAK_FOLDER").map_or_else(|| env!("CARGO_TARGET_TMPDIR").into(), PathBuf::from)
}
