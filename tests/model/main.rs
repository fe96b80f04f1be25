//! Random transactions against the embedded store and, step by step, against the pure core with its rows in memory: both
//! must say the same. What was sent and received is kept in a ledger that must balance whatever happened.

mod ledger;
mod run;
mod steps;
mod storm;

use proptest::test_runner::{Config, TestError, TestRunner};

/// `PROPTEST_CASES` asks for more.
fn check(steps: impl proptest::strategy::Strategy<Value = Vec<steps::Step>>) {
    let cases = std::env::var("PROPTEST_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(48);
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 400, ..Config::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let result = TestRunner::new(config)
        .run(&steps, |steps| runtime.block_on(run::run(&steps)).map_err(proptest::test_runner::TestCaseError::fail));
    match result {
        Ok(()) => {}
        Err(TestError::Fail(why, steps)) => panic!("{why}\nsteps: {steps:#?}"),
        Err(TestError::Abort(why)) => panic!("the run was aborted: {why}"),
    }
}

#[test]
fn the_store_does_what_the_core_does() {
    check(steps::any_steps(60));
}

#[test]
fn conversations_that_nobody_ends_lose_nothing() {
    check(steps::peaceful_steps(80));
}
