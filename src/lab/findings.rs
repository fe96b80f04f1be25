//! What the figures show, in sentences with the figures in them.

use super::load::{Class, Phase};
use super::play::Take;
use super::report::StrategyResult;
use dialoq::receive::strategy::Form;

/// One thing the lab shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Finding {
    /// In a few words.
    pub title: String,
    /// With the figures.
    pub text: String,
}

/// A time for people.
pub(super) fn time(ms: f64) -> String {
    match ms {
        ms if ms < 9.95 => format!("{ms:.1} ms"),
        ms if ms < 999.5 => format!("{ms:.0} ms"),
        ms => format!("{:.2} s", ms / 1000.0),
    }
}

pub(super) fn findings(strategies: &[StrategyResult], phases: &[Phase]) -> Vec<Finding> {
    let find = |name: &str, form: Form| strategies.iter().find(|result| result.name == name && result.form == form);
    let mut findings = Vec::new();
    if let (Some(classic), Some(improved)) =
        (find("dual_queue_loop", Form::Classic), find("dual_queue_loop", Form::Improved))
    {
        findings.extend(polling(classic, improved, phases));
    }
    let drain = find("drain_high_then_one_low", Form::Improved);
    let dual = find("dual_queue_loop", Form::Improved);
    findings.extend(starving(&[drain, dual].into_iter().flatten().collect::<Vec<_>>()));
    if let (Some(classic), Some(improved)) = (find("drain_high_then_one_low", Form::Classic), drain) {
        findings.extend(one_conversation(classic, improved));
    }
    let pools: Vec<_> = [find("independent_readers", Form::Classic), find("independent_readers", Form::Improved)]
        .into_iter()
        .flatten()
        .collect();
    findings.extend(pools.last().and_then(|pool| steady(pool, phases)));
    findings.extend(ramp(&pools, phases));
    let bounded: Vec<_> =
        [find("weighted", Form::Improved), find("aging", Form::Improved)].into_iter().flatten().collect();
    findings.extend(bounds(&bounded));
    findings
}

fn polling(classic: &StrategyResult, improved: &StrategyResult, phases: &[Phase]) -> Option<Finding> {
    let idle = |result: &StrategyResult| result.class(Class::Low)?.idle_p50_ms;
    let mut text = format!(
        "A low message waited {} (median) beside a free reader in the classic dual-queue loop, which sits out its 10 ms on \
         the empty high queue first. The improved loop sleeps on both queues: {}.",
        time(idle(classic)?),
        time(idle(improved)?),
    );
    if let Some(calm) = phases.iter().find(|phase| phase.name == "calm") {
        let calm_ms = |result: &StrategyResult| {
            let within = |take: &&Take| take.class == Class::Low && take.enqueued_us < calm.to_us as i64;
            time(quantile_ms(result.takes.iter().filter(within).map(Take::waited_us), 0.5))
        };
        let (slow, fast) = (calm_ms(classic), calm_ms(improved));
        text.push_str(&format!(
            " In the calm, with no high message at all, a low one waited {slow} against {fast} in all."
        ));
    }
    let title = match idle(classic)? > idle(improved)? {
        true => "Polling costs low messages 10 ms each",
        false => "What polling cost low messages",
    };
    Some(Finding { title: title.to_owned(), text })
}

fn quantile_ms(waits_us: impl Iterator<Item = u64>, quantile: f64) -> f64 {
    let mut waits_us: Vec<u64> = waits_us.collect();
    waits_us.sort_unstable();
    let place = (waits_us.len() as f64 * quantile).ceil() as usize;
    waits_us.get(place.saturating_sub(1)).map_or(0.0, |us| *us as f64 / 1000.0)
}

fn starving(results: &[&StrategyResult]) -> Option<Finding> {
    let sentences: Vec<String> = results
        .iter()
        .filter_map(|result| {
            let low = result.class(Class::Low)?;
            let run = low.longest_run_past.filter(|run| *run > 0)?;
            let starved = time(low.longest_starvation_ms);
            Some(format!("{} left low alone for {starved}, {run} receives in a row", result.name))
        })
        .collect();
    (!sentences.is_empty()).then(|| Finding {
        title: "Strategies 1 and 2 starve low under a flood of high".to_owned(),
        text: format!("{}. With a longer flood it would have been longer: they have no bound.", sentences.join("; ")),
    })
}

fn one_conversation(classic: &StrategyResult, improved: &StrategyResult) -> Option<Finding> {
    let is_other = |take: &&Take| take.class == Class::High && take.conversation != 0;
    classic.takes.iter().find(is_other)?;
    let others_p99 =
        |result: &StrategyResult| time(quantile_ms(result.takes.iter().filter(is_other).map(Take::waited_us), 0.99));
    let text = format!(
        "The classic form of strategy 1 drains the one conversation it knows; a high message on another conversation \
         queued with the low ones and waited up to {} (99th percentile). The improved form drains all of them: {}.",
        others_p99(classic),
        others_p99(improved),
    );
    Some(Finding { title: "Classic strategy 1 favours a single conversation".to_owned(), text })
}

/// How many low messages were taken while the high queue had messages waiting.
fn overlapping(takes: &[Take]) -> (usize, usize) {
    let highs: Vec<&Take> = takes.iter().filter(|take| take.class == Class::High).collect();
    let lows: Vec<&Take> = takes.iter().filter(|take| take.class == Class::Low).collect();
    let during = |low: &&&Take| highs.iter().any(|high| (high.enqueued_us..high.done_us).contains(&low.taken_us));
    (lows.iter().filter(during).count(), lows.len())
}

/// Whether a class went on moving: one that is not served for half of a flood stands still.
fn is_short(starvation_ms: f64, flood_ms: f64) -> bool {
    starvation_ms < flood_ms / 2.0
}

fn steady(pool: &StrategyResult, phases: &[Phase]) -> Option<Finding> {
    let low = pool.class(Class::Low)?;
    let (overlap, all) = overlapping(&pool.takes);
    let mut text = format!(
        "With readers of its own, low never went longer than {} without being served, and its 99th percentile was {}. \
         The classes overlap: {overlap} of {all} low messages were taken while high ones waited or were worked on.",
        time(low.longest_starvation_ms),
        time(low.p99_ms),
    );
    let mut is_moving = true;
    if let Some(flood) = phases.iter().find(|phase| phase.name == "flood") {
        let within = |us: i64| u64::try_from(us).is_ok_and(|us| (flood.from_us..flood.to_us).contains(&us));
        let lows = || pool.takes.iter().filter(|take| take.class == Class::Low);
        let arrived = lows().filter(|take| within(take.enqueued_us)).count();
        let served = lows().filter(|take| within(take.done_us)).count();
        let flood_ms = flood.to_us.saturating_sub(flood.from_us) as f64 / 1000.0;
        is_moving = (served > 0 || arrived == 0) && is_short(low.longest_starvation_ms, flood_ms);
        text.push_str(&format!(" During the flood {arrived} low messages arrived and {served} were served."));
    }
    let title = if is_moving { "Strategy 3 keeps low moving" } else { "Strategy 3 did not keep low moving here" };
    Some(Finding { title: title.to_owned(), text })
}

fn ramp(pools: &[&StrategyResult], phases: &[Phase]) -> Option<Finding> {
    let [classic, improved] = pools else { return None };
    classic.takes.iter().find(|take| take.class == Class::High)?;
    let load = if phases.iter().any(|phase| phase.name == "flood") { "the flood" } else { "this load" };
    let p99_ms = |result: &StrategyResult| result.class(Class::High).map(|high| high.p99_ms);
    let (slow_ms, fast_ms) = (p99_ms(classic)?, p99_ms(improved)?);
    let text = format!(
        "Under {load}, the classic ramp of one more reader each 5 s left the 99th percentile of high at {}; readers \
         launched at once had it at {}. One conversation still feeds one reader only.",
        time(slow_ms),
        time(fast_ms),
    );
    // On a machine that has nothing to spare, more readers do not help.
    let title = match slow_ms > fast_ms {
        true => "A ramp of 5 s comes too late for a burst",
        false => "Two ways to launch readers",
    };
    Some(Finding { title: title.to_owned(), text })
}

fn bounds(results: &[&StrategyResult]) -> Option<Finding> {
    let sentences: Vec<String> = results
        .iter()
        .map(|result| {
            let kept = match result.is_bound_kept {
                Some(false) => " (the bound was broken)",
                _ => "",
            };
            let starved = result.class(Class::Low).map_or(0.0, |low| low.longest_starvation_ms);
            format!(
                "{}: low never waited longer than {} for a turn; {}{kept}",
                result.name,
                time(starved),
                result.observed
            )
        })
        .collect();
    (!sentences.is_empty()).then(|| Finding {
        title: "Weighted and aging bound the starvation".to_owned(),
        text: format!("{}.", sentences.join(". ")),
    })
}

#[cfg(test)]
mod tests {
    use super::is_short;

    #[test]
    fn a_class_that_is_not_served_for_half_of_a_flood_does_not_move() {
        assert!(is_short(900.0, 2_000.0));
        assert!(!is_short(1_000.0, 2_000.0));
    }
}
