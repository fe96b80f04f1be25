//! What arrives when: drawn from a seed, or read from a recording.

use dialoq::internals::ErrorConstructors;
use dialoq::{Code, Error, Result};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Conversations that carry the high messages; the first is the one that the classic form of strategy 1 knows.
pub(super) const HIGH_CONVERSATIONS: usize = 4;
/// Conversations that carry the low messages.
pub(super) const LOW_CONVERSATIONS: usize = 8;

/// Where the arrivals come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Source {
    /// Drawn: a calm with low orders only, bursts of high, a flood of high, and low orders again to the end.
    Synthetic {
        /// The same seed gives the same arrivals.
        seed: u64,
        /// From the first arrival to the last.
        length: Duration,
    },
    /// Read from a file of JSON lines: `{"at_ms": 12.5, "class": "high", "body": {...}}`, `body` optional.
    Recorded(PathBuf),
}

/// The two classes of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Class {
    /// Urgent.
    High,
    /// The rest.
    Low,
}

impl Class {
    /// Both, high first.
    pub(crate) const ALL: [Self; 2] = [Self::High, Self::Low];

    /// The name in reports and recordings.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::High => "high",
            Self::Low => "low",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// One message to come.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Arrival {
    pub(super) at_us: u64,
    pub(super) class: Class,
    /// Which conversation of its class.
    pub(super) conversation: usize,
    pub(super) body: serde_json::Value,
}

/// A stretch of a synthetic load.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Phase {
    pub(super) name: &'static str,
    pub(super) from_us: u64,
    pub(super) to_us: u64,
}

/// All messages to come, in order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Load {
    pub(super) description: String,
    pub(super) arrivals: Vec<Arrival>,
    /// None for a recording.
    pub(super) phases: Vec<Phase>,
}

impl Load {
    /// The arrivals of that source, for a reader that needs `service` for a message.
    pub(super) fn of(source: &Source, service: Duration) -> Result<Self> {
        let mut load = match source {
            Source::Synthetic { seed, length } => synthetic(*seed, *length, service),
            Source::Recorded(path) => recorded(path)?,
        };
        load.arrivals.sort_by_key(|arrival| arrival.at_us);
        match load.arrivals.first() {
            Some(_) => Ok(load),
            None => Err(Error::new(Code::BAD_INPUT, format!("the load holds no messages: {}", load.description))),
        }
    }

    #[cfg(test)]
    fn count(&self, class: Class) -> usize {
        self.arrivals.iter().filter(|arrival| arrival.class == class).count()
    }
}

/// SplitMix64: small, and the same everywhere.
struct SplitMix64(u64);

impl SplitMix64 {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to, not including, 1.
    fn unit(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn below(&mut self, end: u64) -> u64 {
        self.roll() % end.max(1)
    }

    /// The time to the next of events that come independently at that rate.
    fn pause_us(&mut self, per_s: f64) -> u64 {
        (-(1.0 - self.unit()).ln() / per_s.max(1e-9) * 1e6).max(1.0) as u64
    }

    /// Most high messages come on the first conversation, the rest evenly; low ones evenly.
    fn conversation(&mut self, class: Class) -> usize {
        match class {
            Class::High if self.unit() < 0.75 => 0,
            Class::High => 1 + self.below(HIGH_CONVERSATIONS as u64 - 1) as usize,
            Class::Low => self.below(LOW_CONVERSATIONS as u64) as usize,
        }
    }
}

fn add_item(dice: &mut SplitMix64) -> serde_json::Value {
    serde_json::json!({ "item": format!("SKU-{:04}", dice.below(10_000)), "quantity": 1 + dice.below(9) })
}

/// Rates follow from the service time, so that a flood is a flood whatever it is.
fn synthetic(seed: u64, length: Duration, service: Duration) -> Load {
    let length_us = length.as_micros() as u64;
    let at = |part: f64| (length_us as f64 * part) as u64;
    let phases = vec![
        Phase { name: "calm", from_us: 0, to_us: at(0.25) },
        Phase { name: "bursts", from_us: at(0.25), to_us: at(0.55) },
        Phase { name: "flood", from_us: at(0.55), to_us: at(0.8) },
        Phase { name: "after", from_us: at(0.8), to_us: length_us },
    ];
    // A commit and the hand-over come on top of the service; a reader that is kept busy takes about so many a second.
    let capacity_per_s = 1.0 / (service.as_secs_f64() + 0.001);
    let mut dice = SplitMix64(seed);
    let mut arrivals = Vec::new();
    let mut push = |dice: &mut SplitMix64, at_us: u64, class: Class| {
        let conversation = dice.conversation(class);
        let body = add_item(dice);
        arrivals.push(Arrival { at_us, class, conversation, body });
    };
    // Low: orders of 1 to 5 items, a quarter of what one reader can do.
    let mut now_us = 0;
    loop {
        now_us += dice.pause_us(capacity_per_s * 0.25 / 3.0);
        if now_us >= length_us {
            break;
        }
        for _ in 0..1 + dice.below(5) {
            push(&mut dice, now_us, Class::Low);
        }
    }
    // High: a burst of 15 to 25 items every twentieth of the load.
    for burst in 0..6 {
        let burst_us = phases[1].from_us + at(0.05) * burst + at(0.01);
        for _ in 0..15 + dice.below(11) {
            push(&mut dice, burst_us, Class::High);
        }
    }
    // High: a third more than one reader can do.
    let mut now_us = phases[2].from_us;
    loop {
        now_us += dice.pause_us(capacity_per_s * 1.33);
        if now_us >= phases[2].to_us {
            break;
        }
        push(&mut dice, now_us, Class::High);
    }
    let description = format!(
        "synthetic, seed {seed}, {:.1} s: a calm with low orders only; bursts of 15 to 25 high messages; a flood of high, a \
         third more than one reader can serve; low orders all along, a quarter of what one reader can serve",
        length.as_secs_f64()
    );
    Load { description, arrivals, phases }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    at_ms: f64,
    class: Class,
    body: Option<serde_json::Value>,
}

fn recorded(path: &Path) -> Result<Load> {
    let text = std::fs::read_to_string(path).map_err(|cause| {
        let why = format!("the recording {} cannot be read as text: {cause}", path.display());
        Error::new(Code::BAD_INPUT, why).caused_by(cause)
    })?;
    let mut dice = SplitMix64(1);
    let mut arrivals = Vec::new();
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let refuse = |why: String| {
            let place = format!("line {} of {}", index + 1, path.display());
            let right =
                r#"it must be like {"at_ms": 12.5, "class": "high", "body": {...}}, where body may be left out"#;
            Error::new(Code::BAD_INPUT, format!("{place}: {why}; {right}"))
        };
        let line: Line = dialoq::internals::jsonl::object(line).map_err(refuse)?;
        // A day: a recording is played in its own time.
        if !(0.0..=86_400_000.0).contains(&line.at_ms) {
            return Err(refuse(format!("at_ms is {}, not within 0 to 86400000", line.at_ms)));
        }
        let conversation = dice.conversation(line.class);
        let body = line.body.unwrap_or_else(|| add_item(&mut dice));
        arrivals.push(Arrival { at_us: (line.at_ms * 1000.0) as u64, class: line.class, conversation, body });
    }
    Ok(Load { description: format!("recorded in {}", path.display()), arrivals, phases: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn synthetic_load(seed: u64) -> Load {
        let source = Source::Synthetic { seed, length: Duration::from_secs(8) };
        Load::of(&source, Duration::from_millis(3)).unwrap()
    }

    #[test]
    fn a_seed_names_a_load() {
        assert_eq!(synthetic_load(7), synthetic_load(7));
        assert_ne!(synthetic_load(7).arrivals, synthetic_load(8).arrivals);
    }

    #[test]
    fn the_synthetic_load_has_its_stated_shape() {
        let load = synthetic_load(1);
        assert!(load.arrivals.windows(2).all(|pair| pair[0].at_us <= pair[1].at_us));
        let in_phase = |index: usize, class: Class| {
            let phase = &load.phases[index];
            let within = |arrival: &&Arrival| (phase.from_us..phase.to_us).contains(&arrival.at_us);
            let count = load.arrivals.iter().filter(within).filter(|arrival| arrival.class == class).count();
            count as f64 / ((phase.to_us - phase.from_us) as f64 / 1e6)
        };
        assert_eq!(in_phase(0, Class::High), 0.0, "the calm is calm");
        assert!(
            (280.0..390.0).contains(&in_phase(2, Class::High)),
            "1.33 x 250 a second: {}",
            in_phase(2, Class::High)
        );
        let low_per_s = load.count(Class::Low) as f64 / 8.0;
        assert!((45.0..80.0).contains(&low_per_s), "0.25 x 250 a second: {low_per_s}");
        let first = load.arrivals.iter().filter(|a| a.class == Class::High && a.conversation == 0).count();
        let share = first as f64 / load.count(Class::High) as f64;
        assert!((0.68..0.82).contains(&share), "three quarters on the first conversation: {share}");
    }

    #[test]
    fn recordings_are_played_in_order_and_refused_by_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("load.jsonl");
        std::fs::write(&path, "{\"at_ms\":5,\"class\":\"low\"}\n\n{\"at_ms\":1.5,\"class\":\"high\",\"body\":[1]}\n")
            .unwrap();
        let load = Load::of(&Source::Recorded(path.clone()), Duration::ZERO).unwrap();
        let found: Vec<_> = load.arrivals.iter().map(|arrival| (arrival.at_us, arrival.class)).collect();
        assert_eq!(found, [(1500, Class::High), (5000, Class::Low)]);
        assert_eq!(load.arrivals[0].body, serde_json::json!([1]));
        let bad_lines = [
            (r#"{"at_ms":-1,"class":"low"}"#, "at_ms is -1"),
            (r#"{"at_ms":1,"class":"middle"}"#, "unknown variant `middle`"),
            (r#"{"at_ms":1}"#, "missing field `class`"),
            (r#"{"at_ms":1,"class":"low","x":1}"#, "unknown field `x`"),
            (r#"[1,"low",null]"#, "no JSON object"),
        ];
        for (line, why) in bad_lines {
            std::fs::write(&path, format!("{{\"at_ms\":0,\"class\":\"low\"}}\n{line}\n")).unwrap();
            let refused = Load::of(&Source::Recorded(path.clone()), Duration::ZERO).unwrap_err();
            assert_eq!(refused.code(), Code::BAD_INPUT);
            assert!(refused.message().contains("line 2") && refused.message().contains(why), "{refused}");
        }
        std::fs::write(&path, "\n").unwrap();
        let refused = Load::of(&Source::Recorded(path), Duration::ZERO).unwrap_err();
        assert!(refused.message().contains("no messages"), "{refused}");
        let missing = Source::Recorded(folder.path().join("none"));
        assert_eq!(Load::of(&missing, Duration::ZERO).unwrap_err().code(), Code::BAD_INPUT);
    }
}
