//! Figures of a run: waiting, starvation, order, and what was seen of the bound.

use super::findings::time;
use super::load::Class;
use super::play::{Take, Trace};
use super::scene::{HIGH_QUEUE, LOW_QUEUE};
use dialoq::receive::strategy::Bound;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::collections::HashMap;

/// A message counts as ready once it was enqueued so long before a reader chose: its sender's commit comes in between, and
/// a busy disk may need as long as this.
const VISIBLE_AFTER_US: i64 = 50_000;

/// What a histogram can hold: 2 days.
const LONGEST_US: u64 = 2 * 24 * 3_600_000_000;

/// The figures of one class under one strategy.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct ClassResult {
    /// The class.
    pub class: Class,
    /// Messages served.
    pub count: u64,
    /// Median time from a message's enqueueing to the start of the work on it, in milliseconds.
    pub p50_ms: f64,
    /// The 99th percentile of that time.
    pub p99_ms: f64,
    /// The longest such time.
    pub max_ms: f64,
    /// The longest time in which messages of the class waited and none of them was taken.
    pub longest_starvation_ms: f64,
    /// The median time in which the message waited and the one reader did nothing; `None` with several readers.
    #[serde(skip)]
    pub idle_p50_ms: Option<f64>,
    /// The most receives of the other class in a row while messages of this one waited; `None` with several readers.
    #[serde(skip)]
    pub longest_run_past: Option<u64>,
}

impl ClassResult {
    pub(super) fn of(trace: &Trace, class: Class) -> Self {
        let own = || trace.takes.iter().filter(move |take| take.class == class);
        let waits = histogram(own().map(Take::waited_us));
        let longest_us = own().map(Take::waited_us).max().unwrap_or(0);
        // A histogram gives the highest value of its step, which may lie above every value in it.
        let ms = |quantile: f64| to_ms(waits.value_at_quantile(quantile).min(longest_us));
        let idle = trace.is_single_reader.then(|| histogram(idle_us(&trace.takes, class).into_iter()));
        Self {
            class,
            count: waits.len(),
            p50_ms: ms(0.5),
            p99_ms: ms(0.99),
            max_ms: to_ms(longest_us),
            longest_starvation_ms: to_ms(longest_starvation_us(&trace.takes, class)),
            idle_p50_ms: idle.map(|idle| to_ms(idle.value_at_quantile(0.5))),
            longest_run_past: trace.is_single_reader.then(|| longest_run_past(&trace.takes, class)),
        }
    }
}

fn to_ms(us: u64) -> f64 {
    us as f64 / 1000.0
}

fn histogram(values: impl Iterator<Item = u64>) -> Histogram<u64> {
    let mut histogram =
        Histogram::new_with_bounds(1, LONGEST_US, 3).expect("3 significant digits of 1 us to 2 days are representable");
    for value in values {
        histogram.saturating_record(value);
    }
    histogram
}

/// How many messages came after a later one of their conversation.
pub(super) fn order_violations(takes: &[Take]) -> u64 {
    let mut latest: HashMap<(Class, usize), u64> = HashMap::new();
    let mut violations = 0;
    for take in takes {
        let latest = latest.entry((take.class, take.conversation)).or_insert(take.sequence);
        violations += u64::from(take.sequence < *latest);
        *latest = take.sequence.max(*latest);
    }
    violations
}

/// Messages per second from the first arrival to the end of the last message.
pub(super) fn throughput_per_s(takes: &[Take]) -> f64 {
    let first_us = takes.iter().map(|take| take.enqueued_us).min().unwrap_or(0);
    let last_us = takes.iter().map(|take| take.done_us).max().unwrap_or(0);
    let per_s = takes.len() as f64 / ((last_us - first_us).max(1) as f64 / 1e6);
    (per_s * 10.0).round() / 10.0
}

fn longest_starvation_us(takes: &[Take], class: Class) -> u64 {
    let mut events: Vec<(i64, i32)> = Vec::new();
    for take in takes.iter().filter(|take| take.class == class) {
        events.push((take.enqueued_us, 1));
        events.push((take.taken_us.max(take.enqueued_us), -1));
    }
    // At the same moment a message arrives before it is taken.
    events.sort_by_key(|(at_us, change)| (*at_us, -change));
    let mut waiting = 0;
    let mut since_us = 0;
    let mut longest_us = 0;
    for (at_us, change) in events {
        if change > 0 {
            if waiting == 0 {
                since_us = at_us;
            }
        } else {
            longest_us = longest_us.max(at_us - since_us);
            since_us = at_us;
        }
        waiting += change;
    }
    u64::try_from(longest_us).unwrap_or(0)
}

/// Per message of the class: how long it waited while the one reader was free.
fn idle_us(takes: &[Take], class: Class) -> Vec<u64> {
    let mut free_us = i64::MIN;
    let mut idle = Vec::new();
    for take in takes {
        if take.class == class {
            idle.push(u64::try_from(take.taken_us - take.enqueued_us.max(free_us)).unwrap_or(0));
        }
        free_us = take.done_us;
    }
    idle
}

/// Per take: whether messages of the class were ready when the reader chose.
fn ready_at_choice(takes: &[Take], class: Class) -> Vec<bool> {
    let mut enqueued: Vec<i64> =
        takes.iter().filter(|take| take.class == class).map(|take| take.enqueued_us + VISIBLE_AFTER_US).collect();
    enqueued.sort_unstable();
    let mut taken = 0;
    let mut free_us = i64::MIN;
    let mut ready = Vec::with_capacity(takes.len());
    for take in takes {
        ready.push(enqueued.partition_point(|visible_us| *visible_us <= free_us) > taken);
        taken += usize::from(take.class == class);
        free_us = take.done_us;
    }
    ready
}

fn longest_run_past(takes: &[Take], class: Class) -> u64 {
    let (mut run, mut longest) = (0, 0);
    for (take, ready) in takes.iter().zip(ready_at_choice(takes, class)) {
        run = if ready && take.class != class { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// The fewest messages of the class in any so many takes in a row while it had messages; `None` if it never had them for
/// so long.
fn fewest_in_window(takes: &[Take], class: Class, window: usize) -> Option<usize> {
    let ready = ready_at_choice(takes, class);
    let full = |(takes, ready): (&[Take], &[bool])| {
        ready.iter().all(|ready| *ready).then(|| takes.iter().filter(|take| take.class == class).count())
    };
    takes.windows(window).zip(ready.windows(window)).filter_map(full).min()
}

/// The most by which a message taken earlier was newer than one of the class, and the same but for one message of the
/// other class each: an aging bound allows that one.
fn overtaken_by_us(takes: &[Take], class: Class) -> (u64, u64) {
    let (mut newest_us, mut second_us) = (i64::MIN, i64::MIN);
    let (mut most_us, mut but_one_us) = (0, 0);
    for take in takes {
        if take.class == class {
            most_us = most_us.max(newest_us.saturating_sub(take.enqueued_us));
            but_one_us = but_one_us.max(second_us.saturating_sub(take.enqueued_us));
        } else {
            second_us = second_us.max(newest_us.min(take.enqueued_us));
            newest_us = newest_us.max(take.enqueued_us);
        }
    }
    (u64::try_from(most_us).unwrap_or(0), u64::try_from(but_one_us).unwrap_or(0))
}

/// The longest wait of a message of the class, divided by one more than the messages of its class before it.
fn wait_per_message_us(takes: &[Take], class: Class) -> u64 {
    let mut own: Vec<&Take> = takes.iter().filter(|take| take.class == class).collect();
    own.sort_by_key(|take| take.enqueued_us);
    let mut done: Vec<i64> = own.iter().map(|take| take.done_us).collect();
    done.sort_unstable();
    let per_message = own.iter().enumerate().map(|(earlier, take)| {
        let finished = done.partition_point(|done_us| *done_us <= take.enqueued_us);
        take.waited_us() / (earlier.saturating_sub(finished) as u64 + 1)
    });
    per_message.max().unwrap_or(0)
}

/// What the run showed of its bound.
pub(super) fn observed(trace: &Trace, classes: &[ClassResult]) -> String {
    match &trace.bound {
        Bound::None => {
            let worst = classes.iter().max_by(|a, b| a.longest_starvation_ms.total_cmp(&b.longest_starvation_ms));
            worst.map_or_else(String::new, |worst| {
                let past =
                    worst.longest_run_past.map_or_else(String::new, |run| format!(", up to {run} receives in a row"));
                format!("{} was passed over for {}{past}", worst.class, time(worst.longest_starvation_ms))
            })
        }
        Bound::Window { receives, .. } => {
            let window = usize::try_from(*receives).unwrap_or(usize::MAX).max(1);
            let seen = Class::ALL.map(|class| match fewest_in_window(&trace.takes, class, window) {
                Some(fewest) => format!("{class} {fewest}"),
                None => format!("{class} never waited so long"),
            });
            format!("fewest of {receives}: {}", seen.join(", "))
        }
        Bound::Age { .. } => {
            format!(
                "low was overtaken by messages up to {:.0} ms newer",
                to_ms(overtaken_by_us(&trace.takes, Class::Low).0)
            )
        }
        Bound::OwnBacklog { .. } => {
            let seen = Class::ALL.map(|class| {
                let each = time(to_ms(wait_per_message_us(&trace.takes, class)));
                format!("{class} waited up to {each} per message of its own queue")
            });
            seen.join(", ")
        }
    }
}

/// Whether the run kept the bound that was stated.
pub(super) fn kept(trace: &Trace, low_level: u8) -> Option<bool> {
    match &trace.bound {
        Bound::Window { receives, weights } => {
            let window = usize::try_from(*receives).ok()?;
            let weight_of =
                |queue: &str| weights.iter().find(|(class, _)| &**class == queue).map(|(_, weight)| *weight);
            let kept = |class: Class, queue: &str| {
                let fewest = fewest_in_window(&trace.takes, class, window);
                fewest.zip(weight_of(queue)).is_none_or(|(fewest, weight)| fewest as u64 >= weight)
            };
            Some(kept(Class::High, HIGH_QUEUE) && kept(Class::Low, LOW_QUEUE))
        }
        bound @ Bound::Age { .. } => {
            let within = bound.overtaken_within(low_level)?;
            let (_, but_one_us) = overtaken_by_us(&trace.takes, Class::Low);
            Some(u128::from(but_one_us) <= within.as_micros() + VISIBLE_AFTER_US as u128)
        }
        Bound::None | Bound::OwnBacklog { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn take(class: Class, sequence: u64, enqueued_ms: i64, taken_ms: i64) -> Take {
        Take {
            class,
            conversation: 0,
            sequence,
            enqueued_us: enqueued_ms * 1000,
            taken_us: taken_ms * 1000,
            done_us: (taken_ms + 10) * 1000,
        }
    }

    use Class::{High, Low};

    #[test]
    fn starvation_is_the_longest_time_without_a_receive_of_the_class() {
        let takes =
            [take(Low, 1, 0, 0), take(High, 1, 5, 10), take(High, 2, 6, 20), take(Low, 2, 1, 30), take(Low, 3, 90, 95)];
        assert_eq!(longest_starvation_us(&takes, Low), 29_000, "from 1 to 30; from 30 to 90 no message waited");
        assert_eq!(longest_starvation_us(&takes, High), 10_000, "from 10 to 20");
    }

    #[test]
    fn order_is_broken_by_a_later_message_that_came_first() {
        let mut takes = vec![take(Low, 1, 0, 0), take(Low, 3, 0, 1), take(Low, 2, 0, 2), take(Low, 4, 0, 3)];
        assert_eq!(order_violations(&takes), 1);
        takes[2].conversation = 1;
        assert_eq!(order_violations(&takes), 0, "another conversation has an order of its own");
        takes[2].class = High;
        takes[2].conversation = 0;
        assert_eq!(order_violations(&takes), 0, "another class too");
    }

    #[test]
    fn idle_is_waiting_while_the_reader_is_free() {
        let takes = [take(Low, 1, 0, 8), take(Low, 2, 0, 28), take(High, 1, 50, 50)];
        assert_eq!(idle_us(&takes, Low), [8_000, 10_000], "free from the start, and from 18 to 28");
        assert_eq!(idle_us(&takes, High), [0]);
    }

    #[test]
    fn runs_and_windows_count_only_while_the_class_has_messages() {
        let mut takes: Vec<Take> = (0..6).map(|n| take(High, n, 0, n as i64 * 10)).collect();
        takes.insert(4, take(Low, 1, 150, 400));
        for (place, take) in takes.iter_mut().enumerate() {
            take.taken_us = place as i64 * 100_000;
            take.done_us = take.taken_us + 100_000;
        }
        assert_eq!(longest_run_past(&takes, Low), 2, "ready from 200 on, taken at 400");
        assert_eq!(fewest_in_window(&takes, Low, 3), Some(1));
        assert_eq!(fewest_in_window(&takes, Low, 2), Some(0));
        assert_eq!(fewest_in_window(&takes, Low, 4), None, "it was not there for so long");
    }

    #[test]
    fn bounds_are_compared_with_observed_starvation() {
        let age = Bound::Age { per_level: Duration::from_millis(10) };
        let overtaken = |newer_ms: i64| {
            let highs = [take(High, 1, newer_ms, newer_ms), take(High, 2, newer_ms, newer_ms + 10)];
            let takes = vec![highs[0], highs[1], take(Low, 1, 0, newer_ms + 20)];
            Trace { takes, bound: age.clone(), is_single_reader: true }
        };
        assert_eq!(kept(&overtaken(60), 3), Some(true));
        assert_eq!(kept(&overtaken(130), 3), Some(false), "70 ms and what the commit may take");
        let once = Trace { takes: overtaken(130).takes[1..].to_vec(), bound: age.clone(), is_single_reader: true };
        assert_eq!(kept(&once, 3), Some(true), "each other level may once");
        let result = ClassResult::of(&overtaken(130), Low);
        assert_eq!((result.count, result.max_ms), (1, 150.0));
        assert!(observed(&overtaken(130), &[result]).contains("130 ms newer"));
    }

    #[test]
    fn no_quantile_is_above_the_longest_wait() {
        let takes: Vec<Take> = (0..3).map(|n| take(Low, n, 0, 2_345)).collect();
        let trace = Trace { takes, bound: Bound::None, is_single_reader: true };
        let result = ClassResult::of(&trace, Low);
        assert_eq!((result.p50_ms, result.p99_ms, result.max_ms), (2_345.0, 2_345.0, 2_345.0));
    }

    #[test]
    fn a_wait_is_shared_among_the_attempts_before_it() {
        let takes = [take(Low, 1, 0, 0), take(Low, 2, 1, 10), take(Low, 3, 2, 20)];
        assert_eq!(wait_per_message_us(&takes, Low), 6_000, "18 ms behind two");
    }
}
