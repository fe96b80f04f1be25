//! Random transactions against a store and, step by step, against the pure core with its rows in memory: both must say
//! the same. What was sent and received is kept in a ledger that must balance whatever happened.

mod definitions;
mod ledger;
mod run;
#[path = "../servers/mod.rs"]
mod servers;
mod steps;
mod storm;

use proptest::test_runner::{Config, TestError, TestRunner};
use servers::{OnStores, Store};
use std::process::ExitCode;

/// `PROPTEST_CASES` asks for more.
fn check(store: Store, steps: impl proptest::strategy::Strategy<Value = Vec<steps::Step>>) {
    // A server's steps take a hundred times as long.
    let by_default = if store.is_server() { 12 } else { 48 };
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(by_default);
    let max_shrink_iters = if store.is_server() { 100 } else { 400 };
    let config = Config { cases, failure_persistence: None, max_shrink_iters, ..Config::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let result = TestRunner::new(config).run(&steps, |steps| {
        runtime.block_on(run::run(store, &steps)).map_err(proptest::test_runner::TestCaseError::fail)
    });
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, steps)) => panic!("{why}\nsteps: {steps:#?}"),
        Err(TestError::Abort(why)) => panic!("the run was aborted: {why}"),
    }
}

fn main() -> ExitCode {
    servers::run(&[
        OnStores {
            name: "the_store_does_what_the_core_does",
            stores: &Store::ALL,
            run: |store| check(store, steps::any_steps(60)),
        },
        OnStores {
            name: "conversations_that_nobody_ends_lose_nothing",
            stores: &Store::ALL,
            run: |store| check(store, steps::peaceful_steps(80)),
        },
        OnStores { name: "a_storm_of_tasks_loses_and_doubles_nothing", stores: &Store::ALL, run: storm::storm_on },
    ])
}
