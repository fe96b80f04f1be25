//! Judges the samples of a run.

use crate::sample::Sample;
use std::fmt;

/// How one series went.
#[derive(Debug)]
pub(crate) struct Verdict {
    name: &'static str,
    early: f64,
    late: f64,
    /// What the load of the last quarter allows for.
    allowed: f64,
    pub(crate) has_grown: bool,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, early, late, allowed, has_grown } = self;
        let verdict = if *has_grown { "HAS GROWN" } else { "steady" };
        write!(
            f,
            "{name}: median {early:.0} in the second quarter, {late:.0} in the last (allowed {allowed:.0}): {verdict}"
        )
    }
}

/// The variation that counts as no growth: counts vary with the load of the moment.
const TOLERANCE: f64 = 1.25;
const SLACK: [(&str, f64); 10] = [
    ("resident KiB", 8192.0),
    ("handles", 8.0),
    ("tasks", 8.0),
    ("file bytes", 1_048_576.0),
    ("log bytes", 8_388_608.0),
    ("table bytes", 4_194_304.0),
    ("endpoints", 100.0),
    ("groups", 100.0),
    ("undelivered", 100.0),
    ("messages", 200.0),
];

/// What is under way is as much as the pace of the load times how long it stays, and ended endpoints stay for a second.
const FOLLOWS_PACE: [&str; 4] = ["endpoints", "groups", "undelivered", "messages"];
/// What does not shrink follows the most endpoints that there were at once.
const FOLLOWS_PEAK: [&str; 4] = ["resident KiB", "file bytes", "log bytes", "table bytes"];

/// Compares the second quarter of the samples, when everything is warm, with the last.
pub(crate) fn of(samples: &[Sample]) -> Vec<Verdict> {
    // The last sample is taken when everything has ended.
    let samples = &samples[..samples.len() - 1];
    let quarter = samples.len() / 4;
    let Some(first) = samples.first().filter(|_| quarter > 0) else { return Vec::new() };
    let (early, late) = (quarter..2 * quarter, samples.len() - quarter..samples.len());
    let more = |late: f64, early: f64| if early > 0.0 { (late / early).max(1.0) } else { 1.0 };
    let pace = more(scenes_a_second(&samples[late.clone()]), scenes_a_second(&samples[early.clone()]));
    let peak = more(most_endpoints(samples), most_endpoints(&samples[..early.end]));
    let verdict = |(name, _): &(&'static str, f64)| {
        let (before, after) = (median(&samples[early.clone()], name), median(&samples[late.clone()], name));
        let slack = SLACK.iter().find(|(known, _)| known == name).map_or(10.0, |(_, slack)| *slack);
        let load = match *name {
            name if FOLLOWS_PACE.contains(&name) => pace,
            name if FOLLOWS_PEAK.contains(&name) => peak,
            _ => 1.0,
        };
        let allowed = before * load * TOLERANCE + slack;
        Verdict { name, early: before, late: after, allowed, has_grown: after > allowed }
    };
    first.values.iter().map(verdict).collect()
}

/// Judges made-up runs first: what grows at one pace is found, and what only follows a quicker load is not taken for growth.
pub(crate) fn judges_right() {
    let run = |scenes: fn(u64) -> u64, endpoints: fn(u64) -> u64, tasks: fn(u64) -> u64| {
        let sample = |at: u64| Sample {
            at_s: at as f64,
            scenes: scenes(at),
            values: vec![("endpoints", endpoints(at) as f64), ("tasks", tasks(at) as f64)],
        };
        let verdicts = of(&(0..=200).map(sample).collect::<Vec<_>>());
        verdicts.into_iter().filter(|verdict| verdict.has_grown).map(|verdict| verdict.name).collect::<Vec<_>>()
    };
    let quicker = |at| if at < 100 { at * 10 } else { at * 50 };
    assert_eq!(run(|at| at * 10, |at| 500 + at * 5, |_| 9), ["endpoints"], "they are left behind");
    assert_eq!(run(quicker, |at| if at < 100 { 500 } else { 2_500 }, |_| 9), [""; 0], "five times the load");
    assert_eq!(run(quicker, |_| 500, |at| 9 + at), ["tasks"], "tasks do not follow the load");
}

fn scenes_a_second(samples: &[Sample]) -> f64 {
    let (Some(first), Some(last)) = (samples.first(), samples.last()) else { return 0.0 };
    (last.scenes - first.scenes) as f64 / (last.at_s - first.at_s).max(f64::MIN_POSITIVE)
}

fn most_endpoints(samples: &[Sample]) -> f64 {
    samples.iter().filter_map(|sample| sample.value("endpoints")).fold(0.0, f64::max)
}

fn median(samples: &[Sample], name: &str) -> f64 {
    let mut values: Vec<f64> = samples.iter().filter_map(|sample| sample.value(name)).collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// The rows that must be gone when every conversation has ended.
const GONE: [&str; 5] = ["endpoints", "groups", "undelivered", "messages", "transaction locks"];
/// Connections of a pool and the tasks that serve them stay once they are there.
const MORE_HANDLES: f64 = 24.0;
const MORE_TASKS: f64 = 40.0;

/// Whether everything that a run makes is gone.
pub(crate) fn is_as_before(before: &Sample, after: &Sample) -> bool {
    faults(before, after).is_empty()
}

/// Fails if something that a run makes is left.
pub(crate) fn nothing_is_left(before: &Sample, after: &Sample) {
    let faults = faults(before, after);
    assert!(faults.is_empty(), "when everything had ended: {faults:?}");
}

fn faults(before: &Sample, after: &Sample) -> Vec<String> {
    let mut faults = Vec::new();
    for name in GONE {
        if let Some(left) = after.value(name).filter(|left| *left > 0.0) {
            faults.push(format!("{name}: {left} are left"));
        }
    }
    for (name, more) in [("handles", MORE_HANDLES), ("tasks", MORE_TASKS)] {
        if let (Some(first), Some(last)) = (before.value(name), after.value(name))
            && last > first + more
        {
            faults.push(format!("{name}: {last} where there were {first}"));
        }
    }
    faults
}
