//! Charts as inline SVG: arrivals, waiting over time, cumulative service.

use crate::lab::load::{Class, Phase};
use crate::lab::play::Take;
use std::fmt::Write;

/// The width of a chart in a panel.
pub(super) const PANEL: f64 = 560.0;
/// The width of a chart across the page.
pub(super) const PAGE: f64 = 1170.0;
const LEFT: f64 = 50.0;
const RIGHT: f64 = 8.0;
const BOTTOM: f64 = 18.0;
const TOP: f64 = 8.0;
/// Points of a cumulative curve.
const STEPS: usize = 240;

/// The frame of a chart: time to the right, from 0 to `end_s`.
pub(super) struct Frame<'a> {
    pub(super) width: f64,
    pub(super) end_s: f64,
    pub(super) phases: &'a [Phase],
}

impl Frame<'_> {
    fn x(&self, us: f64) -> f64 {
        LEFT + (self.width - LEFT - RIGHT) * (us / 1e6 / self.end_s).clamp(0.0, 1.0)
    }

    fn open(&self, height: f64, label: &str, names_phases: bool) -> String {
        let mut svg = format!(
            "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{label}\">",
            width = self.width,
            label = super::page::escape(label)
        );
        for phase in self.phases.iter().filter(|phase| names_phases || phase.name == "flood") {
            let (from, to) = (self.x(phase.from_us as f64), self.x(phase.to_us as f64));
            if phase.name == "flood" {
                let _ = write!(
                    svg,
                    "<rect class=\"flood\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                    to - from,
                    height - TOP - BOTTOM
                );
            }
            if names_phases {
                let middle = (from + to) / 2.0;
                let _ =
                    write!(svg, "<text class=\"phase\" x=\"{middle:.1}\" y=\"{:.1}\">{}</text>", TOP + 9.0, phase.name);
            }
        }
        let every = [0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0, 3600.0];
        let step = every.into_iter().find(|step| self.end_s / step <= 10.0).unwrap_or(self.end_s / 5.0);
        let mut at_s = 0.0;
        while at_s <= self.end_s + 1e-9 {
            let x = self.x(at_s * 1e6);
            let _ = write!(svg, "<text class=\"tick\" x=\"{x:.1}\" y=\"{:.1}\">{at_s} s</text>", height - 4.0);
            at_s += step;
        }
        svg
    }

    fn gridline(&self, svg: &mut String, y: f64, label: &str) {
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/><text class=\"value\" \
         x=\"{:.1}\" y=\"{:.1}\">{label}</text>",
            self.width - RIGHT,
            LEFT - 5.0,
            y + 3.5
        );
    }
}

/// A step of 1, 2 or 5 times a power of ten that divides the range into at most four.
fn round_step(most: f64) -> f64 {
    let raw = (most / 4.0).max(1e-9);
    let power = 10_f64.powf(raw.log10().floor());
    let factor = [1.0, 2.0, 5.0, 10.0].into_iter().find(|factor| factor * power >= raw).unwrap_or(10.0);
    factor * power
}

/// Messages that arrive per second, by class.
pub(super) fn arrivals(frame: &Frame<'_>, arrivals_us: &[(u64, Class)]) -> String {
    const HEIGHT: f64 = 150.0;
    const BINS: usize = 100;
    let bin_us = frame.end_s * 1e6 / BINS as f64;
    // Per bin: high, low.
    let mut counts = [[0_u32; 2]; BINS];
    for (at_us, class) in arrivals_us {
        let bin = ((*at_us as f64 / bin_us) as usize).min(BINS - 1);
        counts[bin][usize::from(*class == Class::Low)] += 1;
    }
    let per_s = |count: u32| f64::from(count) / (bin_us / 1e6);
    let most = counts.iter().map(|[high, low]| per_s(high + low)).fold(1.0, f64::max);
    let scale = (HEIGHT - TOP - 14.0 - BOTTOM) / most;
    let base = HEIGHT - BOTTOM;
    let mut svg = frame.open(HEIGHT, "messages arriving per second, by class", true);
    let step = round_step(most);
    let mut value = 0.0;
    while value <= most {
        frame.gridline(&mut svg, base - value * scale, &format!("{value}/s"));
        value += step;
    }
    for (bin, [high, low]) in counts.into_iter().enumerate() {
        let x = frame.x(bin as f64 * bin_us);
        let width = (frame.x((bin + 1) as f64 * bin_us) - x - 0.6).max(0.4);
        let mut y = base;
        for (class, count) in [(Class::Low, low), (Class::High, high)] {
            let height = per_s(count) * scale;
            if height > 0.0 {
                y -= height;
                let _ = write!(
                    svg,
                    "<rect class=\"bar {class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
                );
            }
        }
    }
    svg.push_str("</svg>");
    svg
}

/// Each message's waiting time at the moment it arrived, on a logarithmic scale from 0.1 ms.
pub(super) fn waiting(frame: &Frame<'_>, takes: &[Take], longest_ms: f64) -> String {
    const HEIGHT: f64 = 165.0;
    const LEAST_MS: f64 = 0.1;
    let decades = (longest_ms.max(1.0) / LEAST_MS).log10().ceil();
    let base = HEIGHT - BOTTOM;
    let y = |ms: f64| base - (base - TOP) * ((ms.max(LEAST_MS) / LEAST_MS).log10() / decades).min(1.0);
    let mut svg = frame.open(HEIGHT, "waiting time of each message over time, by class", false);
    for decade in 0..=decades as i32 {
        let ms = LEAST_MS * 10_f64.powi(decade);
        let label = if ms < 0.5 {
            "0.1 ms".to_owned()
        } else if ms < 999.0 {
            format!("{ms:.0} ms")
        } else {
            format!("{:.0} s", ms / 1000.0)
        };
        frame.gridline(&mut svg, y(ms), &label);
    }
    for class in [Class::Low, Class::High] {
        let _ = write!(svg, "<path class=\"dots {class}\" d=\"");
        for take in takes.iter().filter(|take| take.class == class) {
            let _ =
                write!(svg, "M{:.1} {:.1}h0", frame.x(take.enqueued_us as f64), y(take.waited_us() as f64 / 1000.0));
        }
        svg.push_str("\"/>");
    }
    svg.push_str("</svg>");
    svg
}

/// Messages arrived (dashed) and served (drawn through) since the beginning.
pub(super) fn service(frame: &Frame<'_>, takes: &[Take]) -> String {
    const HEIGHT: f64 = 150.0;
    let base = HEIGHT - BOTTOM;
    let count = |class: Class| takes.iter().filter(|take| take.class == class).count();
    let most = Class::ALL.map(count).into_iter().max().unwrap_or(0).max(1) as f64;
    let y = |count: usize| base - (base - TOP) * count as f64 / most;
    let mut svg = frame.open(HEIGHT, "messages arrived and served since the beginning, by class", false);
    let step = round_step(most).max(1.0);
    let mut value = 0.0;
    while value <= most {
        frame.gridline(&mut svg, y(value as usize), &format!("{value}"));
        value += step;
    }
    for class in [Class::Low, Class::High] {
        let moments = |of: fn(&Take) -> i64| {
            let mut moments: Vec<i64> = takes.iter().filter(|take| take.class == class).map(of).collect();
            moments.sort_unstable();
            moments
        };
        let curves = [("arrived", moments(|take| take.enqueued_us)), ("served", moments(|take| take.done_us))];
        for (kind, moments) in curves {
            let _ = write!(svg, "<path class=\"curve {kind} {class}\" d=\"M");
            for step in 0..=STEPS {
                let at_us = frame.end_s * 1e6 * step as f64 / STEPS as f64;
                let so_far = moments.partition_point(|moment| *moment as f64 <= at_us);
                let _ = write!(svg, "{:.1} {:.1} ", frame.x(at_us), y(so_far));
            }
            svg.push_str("\"/>");
        }
    }
    svg.push_str("</svg>");
    svg
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_round_and_few() {
        for (most, step) in [(3.0, 1.0), (10.0, 5.0), (400.0, 100.0), (401.0, 200.0), (1999.0, 500.0)] {
            assert!((round_step(most) - step).abs() < 1e-9, "{most}: {}", round_step(most));
        }
    }

    #[test]
    fn a_longer_wait_is_drawn_higher_and_a_later_one_further_right() {
        let take = |at_ms: i64, wait_ms: i64| Take {
            class: Class::Low,
            conversation: 0,
            sequence: 1,
            enqueued_us: at_ms * 1000,
            taken_us: (at_ms + wait_ms) * 1000,
            done_us: (at_ms + wait_ms + 3) * 1000,
        };
        let frame = Frame { width: PANEL, end_s: 10.0, phases: &[] };
        let svg = waiting(&frame, &[take(0, 1), take(5000, 1000)], 1000.0);
        let dots = svg.split("dots low\" d=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        let place = |dot: &str| {
            let (x, y) = dot.trim_end_matches("h0").split_once(' ').unwrap();
            (x.parse::<f64>().unwrap(), y.parse::<f64>().unwrap())
        };
        let places: Vec<(f64, f64)> = dots.split('M').filter(|dot| !dot.is_empty()).map(place).collect();
        assert_eq!(places.len(), 2);
        assert!(places[0].0 < places[1].0 && places[0].1 > places[1].1, "{places:?}");
        assert!((places[1].1 - TOP).abs() < 0.1, "the longest touches the top");
        let svg = service(&frame, &[take(0, 1), take(5000, 1000)]);
        assert_eq!(svg.matches("class=\"curve").count(), 4);
    }
}
