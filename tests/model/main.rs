//! Random transactions against a store and, step by step, against the pure core with its rows in memory: both must say
//! the same. What was sent and received is kept in a ledger that must balance whatever happened.

mod definitions;
mod holders;
mod jobs;
mod known;
mod ledger;
mod letters;
mod run;
#[path = "../servers/mod.rs"]
mod servers;
mod steps;
mod storm;
mod together;
mod transmissions;

use servers::{OnStores, Store};
use std::process::ExitCode;

/// Seeds as [`dialoq_test_support::seeds`] says; `DIALOQ_SEED=fresh DIALOQ_MINUTES=60 cargo test --test model` looks for an hour.
fn check<S: std::fmt::Debug>(
    store: Store,
    steps: impl proptest::strategy::Strategy<Value = Vec<S>>,
    run: impl AsyncFn(Store, &[S]) -> Result<(), String>,
) {
    // A server's steps take a hundred times as long.
    let (by_default, max_shrink_iters) = if store.is_server() { (12, 100) } else { (48, 400) };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    dialoq_test_support::seeds::check(by_default, max_shrink_iters, &steps, |seed, steps| {
        servers::limit::doing(format!("DIALOQ_SEED={seed}"));
        runtime.block_on(run(store, &steps)).map_err(proptest::test_runner::TestCaseError::fail)
    });
}

fn main() -> ExitCode {
    servers::run(&[
        OnStores {
            name: "the_store_does_what_the_core_does",
            stores: &Store::ALL,
            run: |store| check(store, steps::any_steps(60), run::run),
        },
        OnStores {
            name: "conversations_that_never_end_lose_nothing",
            stores: &Store::ALL,
            run: |store| check(store, steps::peaceful_steps(80), run::run),
        },
        OnStores {
            name: "the_store_does_with_jobs_what_the_core_does",
            stores: &Store::ALL,
            run: |store| check(store, jobs::steps(60), jobs::run),
        },
        OnStores { name: "a_storm_of_tasks_loses_and_doubles_nothing", stores: &Store::ALL, run: storm::storm_on },
    ])
}
