//! Seeds of random tests.
//!
//! `cargo test` runs seeds 1, 2, 3, ..., the same each time. A test that fails names its seed; `DIALOQ_SEED=<number>`
//! runs that one. `DIALOQ_SEED=fresh` begins at a seed of chance. `DIALOQ_CASES=<number>` says how many seeds, and
//! `DIALOQ_MINUTES=<number>` for how long.

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed, TestCaseError, TestError, TestRng, TestRunner};
use std::fmt::Debug;
use std::time::{Duration, Instant};

/// The seeds to run: this many unless the environment sets another number.
pub fn seeds(by_default: u64) -> impl Iterator<Item = u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = std::env::var("DIALOQ_SEED").ok();
    let (first, cases) = match seed.as_deref() {
        None => (1, by_default),
        Some("fresh") => (by_chance(), by_default),
        Some(_) => (number("DIALOQ_SEED").expect("DIALOQ_SEED is a number, or `fresh`"), 1),
    };
    let until = number("DIALOQ_MINUTES").map(|minutes| Instant::now() + Duration::from_secs(60 * minutes));
    let cases = match until {
        Some(_) => number("DIALOQ_CASES").unwrap_or(u64::MAX),
        None => number("DIALOQ_CASES").unwrap_or(cases),
    };
    (0..cases).map(move |case| first.wrapping_add(case)).take_while(move |_| until.is_none_or(|at| Instant::now() < at))
}

fn by_chance() -> u64 {
    // Seeds in a row stay far from those of another run, and short enough to be typed.
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let mixed = (since.as_nanos() as u64 ^ u64::from(std::process::id()) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> 24
}

/// For tests of `proptest!`: this many cases from the first seed, unless the environment sets another number.
pub fn config(by_default: u32) -> Config {
    let cases = std::env::var("DIALOQ_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(by_default);
    let seed = seeds(1).next().unwrap_or(1);
    println!("DIALOQ_SEED={seed}");
    Config { cases, rng_seed: RngSeed::Fixed(seed), failure_persistence: None, ..Config::default() }
}

/// Runs a property with a value of each seed. Panics with the seed and the smallest value that fails.
pub fn check<S: Strategy<Value: Debug>>(
    by_default: u64,
    max_shrink_iters: u32,
    values: &S,
    property: impl Fn(u64, S::Value) -> Result<(), TestCaseError>,
) {
    let mut cases = 0;
    for seed in seeds(by_default) {
        cases += 1;
        let config = Config { cases: 1, failure_persistence: None, max_shrink_iters, ..Config::default() };
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        match TestRunner::new_with_rng(config, rng).run(values, |value| property(seed, value)) {
            Ok(()) => {}
            Err(TestError::Fail(why, value)) => {
                panic!("DIALOQ_SEED={seed}: {why}\nthe smallest that fails: {value:#?}")
            }
            Err(TestError::Abort(why)) => panic!("DIALOQ_SEED={seed} was aborted: {why}"),
        }
    }
    if std::env::var_os("DIALOQ_SEED").is_some() {
        println!("{cases} cases");
    }
}
