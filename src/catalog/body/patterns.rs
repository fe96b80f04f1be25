//! What the check of a value by an `xs:pattern` costs, read off the pattern.
//!
//! A value is matched in time linear in its length, but for each character as many places of the pattern may be open as it has when
//! its counted repetitions are written out.

use std::time::Duration;

/// A class, as places of the compiled pattern: characters beyond ASCII take several bytes.
const CLASS: u64 = 8;
/// A property (`\p{L}`) or a set of letters and digits (`\w`), likewise.
const PROPERTY: u64 = 64;

/// Written out, so long that its places can make a check slow.
const LONG: u64 = 1600;

/// So short that only a great number of such patterns can.
const SHORT: u64 = 256;

/// The steps that one match may take and is begun, if the check has so much time: ten minutes more, as a match is not ended. Most
/// patterns take a thousandth of what they may: 15 KB with e-mails under `[\w.-]{1,64}@[\w.-]{1,255}` took 0.1 ms, and not 0.4 s.
pub(super) fn most_steps_of_match(time: Duration) -> u64 {
    let microseconds = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    3_000_000_000_u64.saturating_add(microseconds.saturating_mul(5))
}

/// A pattern, written out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pattern {
    /// Its places.
    pub(super) places: u64,
    /// Repetitions and optional parts.
    repetitions: u32,
    /// Groups and classes in one another.
    pub(super) deep: u32,
}

/// A group that is open, and its last part.
#[derive(Clone, Copy, Default)]
struct Open {
    places: u64,
    last: u64,
}

impl Open {
    fn add(&mut self, places: u64) {
        self.places = self.places.saturating_add(places);
        self.last = places;
    }

    fn repeat(&mut self, times: u64) {
        let more = self.last.saturating_mul(times.saturating_sub(1));
        self.places = self.places.saturating_add(more);
        self.last = self.last.saturating_add(more);
    }
}

impl Pattern {
    /// One of XML Schema, where a class may hold another one.
    pub(super) fn of(text: &str) -> Self {
        Self::read(text, true)
    }

    /// One of JSON Schema, where `[` in a class is a character.
    fn of_json(text: &str) -> Self {
        Self::read(text, false)
    }

    fn read(text: &str, classes_nest: bool) -> Self {
        let mut open = vec![Open::default()];
        let (mut repetitions, mut deepest) = (0, 0);
        let mut characters = text.chars();
        while let Some(character) = characters.next() {
            let is_inside = open.len() > 1;
            let inmost = open.last_mut().expect("the outermost stays");
            match character {
                '(' => {
                    open.push(Open::default());
                    deepest = deepest.max(u32::try_from(open.len() - 1).unwrap_or(u32::MAX));
                }
                ')' if is_inside => {
                    let closed = open.pop().map_or(1, |group| group.places.max(1));
                    open.last_mut().expect("the outermost stays").add(closed);
                }
                '*' | '+' | '?' => repetitions += 1,
                '|' => {}
                '{' => {
                    let counts: String = characters.by_ref().take_while(|&next| next != '}').collect();
                    let (least, most) = counts.split_once(',').unwrap_or((&counts, &counts));
                    let read = |count: &str| count.trim().parse::<u64>().ok();
                    let times = read(most).or_else(|| Some(read(least)? + 1)).unwrap_or(u64::MAX);
                    inmost.repeat(times);
                    repetitions += u32::from(times > 1);
                }
                '[' => {
                    let mut deep = 1;
                    let mut inside = 0;
                    deepest = deepest.max(deep);
                    while deep > 0 {
                        match characters.next() {
                            Some('[') if classes_nest => {
                                deep += 1;
                                deepest = deepest.max(deep);
                            }
                            Some(']') => deep -= 1,
                            Some('\\') => inside += escape(&mut characters),
                            Some(_) => inside += 1,
                            None => break,
                        }
                    }
                    inmost.add(CLASS + inside);
                }
                '\\' => {
                    let places = escape(&mut characters);
                    inmost.add(places);
                }
                '.' => inmost.add(CLASS),
                plain => inmost.add(plain.len_utf8() as u64),
            }
        }
        let places = open.iter().fold(0_u64, |sum, group| sum.saturating_add(group.places));
        Self { places, repetitions, deep: deepest }
    }

    /// Steps for each 32 bytes of a value, without [`long`].
    pub(super) fn steps(self) -> u64 {
        match self.repetitions {
            0 | 1 => 1,
            _ if self.places > LONG => 0,
            _ => 1 + self.places / 64,
        }
    }

    /// Its places, if a value may be at many of them at once.
    pub(super) fn repeated_places(self) -> u64 {
        if self.repetitions > 1 && self.places > SHORT { self.places } else { 0 }
    }
}

/// Further steps for each 32 bytes of a value that is held against patterns of so many [repeated places](Pattern::repeated_places). Patterns
/// with several repetitions took 50 µs for each byte with 24,000 places.
pub(super) fn long(places: u64) -> u64 {
    if places > LONG { places / 3 } else { 0 }
}

/// What holding a string against the patterns of a JSON Schema may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cost {
    /// Steps for each 32 bytes.
    pub(super) long: u64,
    /// Whether the string may be read to its end from each of its places.
    pub(super) is_squared: bool,
}

impl Cost {
    pub(super) const NONE: Self = Self { long: 0, is_squared: false };

    /// A pattern that is not tied to the beginning of a text may begin anywhere in it, which is as a repetition; but for the letters that it
    /// begins with, which are searched for.
    pub(super) fn of(pattern: &str) -> Self {
        let is_searched = !pattern.starts_with(|first: char| first == '^' || first.is_alphanumeric());
        let whole = if is_searched { Pattern::of_json(&format!(".*{pattern}")) } else { Pattern::of_json(pattern) };
        Self { long: long(whole.repeated_places()), is_squared: looks_far(pattern) }
    }

    pub(super) fn widest(self, other: Self) -> Self {
        Self { long: self.long.max(other.long), is_squared: self.is_squared || other.is_squared }
    }

    /// Steps for a string. `(?=.*[0-9])` without a `^` took 0.4 s for 4,000 bytes, and hours for a megabyte.
    pub(super) fn steps(self, text: &str) -> u64 {
        let bytes = text.len() as u64;
        let squared = if self.is_squared { bytes.saturating_mul(bytes) / 16 } else { 0 };
        self.long.saturating_mul(bytes / 32).saturating_add(squared)
    }
}

/// Whether a pattern looks ahead or behind without a bound from many places: in a repetition, or from wherever it may begin.
fn looks_far(pattern: &str) -> bool {
    #[derive(Clone, Copy, Default)]
    struct Group {
        looks: bool,
        is_behind: bool,
        /// It has a repetition without a bound.
        is_wide: bool,
        /// It has one that looks, and is wide.
        looks_far: bool,
    }
    let mut open = vec![Group::default()];
    // Whether the part before looks far; whether the pattern can begin elsewhere than at the beginning.
    let (mut before, mut is_free) = (false, !pattern.starts_with('^'));
    let mut rest = pattern;
    while let Some(character) = rest.chars().next() {
        rest = &rest[character.len_utf8()..];
        let is_outside = open.len() == 1;
        let inmost = open.last_mut().expect("the outermost stays");
        match character {
            '\\' => rest = rest.chars().next().map_or("", |escaped| &rest[escaped.len_utf8()..]),
            '[' => {
                let mut is_escaped = false;
                let end = rest.find(|inside| {
                    let is_end = inside == ']' && !is_escaped;
                    is_escaped = inside == '\\' && !is_escaped;
                    is_end
                });
                rest = end.map_or("", |end| &rest[end + 1..]);
            }
            '(' => {
                let is_behind = rest.starts_with("?<=") || rest.starts_with("?<!");
                let looks = is_behind || rest.starts_with("?=") || rest.starts_with("?!");
                rest = rest.strip_prefix('?').unwrap_or(rest);
                open.push(Group { looks, is_behind, ..Group::default() });
            }
            ')' if !is_outside => {
                let closed = open.pop().unwrap_or_default();
                if closed.is_behind && closed.is_wide {
                    return true;
                }
                before = closed.looks_far || (closed.looks && closed.is_wide);
                let parent = open.last_mut().expect("the outermost stays");
                parent.is_wide |= closed.is_wide;
                parent.looks_far |= before;
                continue;
            }
            '*' | '+' | '{' => {
                if before {
                    return true;
                }
                inmost.is_wide |=
                    character != '{' || !rest.starts_with(|count: char| count.is_ascii_digit()) || is_long_count(rest);
            }
            '|' => is_free |= is_outside,
            _ => {}
        }
        before = false;
    }
    is_free && open[0].looks_far
}

/// Whether counts such as `2,}` have no end, or one that is far.
fn is_long_count(counts: &str) -> bool {
    let counts = counts.split('}').next().unwrap_or_default();
    counts.rsplit(',').next().is_none_or(|most| !most.trim().parse::<u64>().is_ok_and(|most| most <= 64))
}

/// What stands behind a backslash.
fn escape(characters: &mut std::str::Chars<'_>) -> u64 {
    match characters.next() {
        Some('p' | 'P') => {
            characters.by_ref().take_while(|&next| next != '}').for_each(drop);
            PROPERTY
        }
        Some('w' | 'W' | 'd' | 'D' | 'i' | 'I' | 'c' | 'C') => PROPERTY,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_written_out() {
        let places = |text: &str| Pattern::of(text).places;
        assert_eq!((places(""), places("abc"), places("a|b"), places("ü")), (0, 3, 2, 2));
        assert_eq!((places("a{3}"), places("a{2,5}"), places("a{4,}"), places("ab{3}c")), (3, 5, 5, 5));
        assert_eq!((places("(ab){3}"), places("((a{3}b){2}){10}"), places("(|)")), (6, 80, 1));
        assert_eq!((places("[A-Z]"), places(r"[a\]b]"), places("[a-z-[aeiou]]"), places(".")), (11, 11, 17, 8));
        assert_eq!((places(r"\p{L}{2}"), places(r"\d"), places(r"\.{2}"), places("(a{9}){0}")), (128, 64, 2, 9));
        assert_eq!(places("((a{9999999999}){9999999999}){9999999999}"), u64::MAX);
        for broken in ["[", "[[", "\\", "a{", ")", "(", "a{x}", "\\p{", "((("] {
            Pattern::of(broken);
        }
    }

    #[test]
    fn what_looks_far_from_many_places() {
        for far in [
            "(?=.*[A-Z])(?=.*[0-9]).{8,}",
            "^(?:(?!.*foo).)*$",
            "foo(?=.*bar)",
            "foo(?=b*5})",
            "(?<=a.*)b$",
            "^x(?<!a+)b",
            "^((a(?=b{2,}))c)+",
            "^a|(?=b{0,100})c",
            "^(?:(?![)]x+).){3}",
        ] {
            assert!(looks_far(far), "{far}");
        }
        for near in [
            "^(?=.*[A-Z])(?=.*[0-9]).{8,}$",
            "^((?!foo).)*$",
            "(?=a)b+",
            "(?<!ab{2})c*",
            "foo.*bar(a|b)+",
            r"^\\(?=.*a",
            "^(?=b{0,9})c+",
            "[(?=.*]",
            "(?=[+*])a",
            "",
            ")",
            "(?=.*",
            "[",
            "\\",
        ] {
            assert!(!looks_far(near), "{near}");
        }
    }

    #[test]
    fn a_string_costs_by_its_pattern() {
        let steps = |pattern: &str, bytes: usize| Cost::of(pattern).steps(&"x".repeat(bytes));
        assert_eq!((steps("^a+$", 0), steps("^a+$", 320), steps("a.{0,1000}b", 320)), (0, 0, 0));
        assert_eq!(steps("^(.*[a-z].{300}b)?.*x$", 320), 10 * 810);
        assert_eq!(steps(".{300}x", 320), 10 * 803, "it may begin anywhere");
        assert_eq!(steps("(?=.*a)b", 1280), 1280 * 1280 / 16);
        assert_eq!(Cost::NONE.widest(Cost::of("(?=.*a)b")), Cost::of("(?=.*a)b"));
    }

    #[test]
    fn groups_and_classes_nest() {
        let deep = |text: &str| Pattern::of(text).deep;
        assert_eq!((deep("abc"), deep("(a)(b)"), deep("((a)b)"), deep("[a-z]"), deep("[a-[b-[c]]]")), (0, 1, 2, 1, 3));
        assert_eq!(deep(&"[a-".repeat(100_000)), 100_000);
    }

    #[test]
    fn only_long_patterns_that_repeat_twice_are_slow() {
        let steps = |text: &str| Pattern::of(text).steps() + long(Pattern::of(text).repeated_places());
        assert_eq!(steps("[A-Z]{6}[A-Z2-9][A-NP-Z0-9]([A-Z0-9]{3})?"), 3);
        assert_eq!(steps(".{0,4000}"), 1);
        assert_eq!(steps("(.?.?){1000}x"), 16_001 / 3);
        assert_eq!(steps("(.*[a-zé].{3000}b)?.*"), (8 + 12 + 24_000 + 1 + 8) / 3);
        let half = Pattern::of("(.*a.{120}b)?.*");
        assert_eq!((half.steps(), half.repeated_places()), (1 + 978 / 64, 978));
        assert_eq!((long(978), long(2 * 978)), (0, 652), "several have their places in common");
    }

    #[test]
    fn repetitions_are_counted_up_to_the_limits() {
        assert_eq!(Pattern::of("a{3}{2}").places, 6, "a repetition of a repetition");
        assert_eq!(Pattern::of("(a{300}){1}").repeated_places(), 0, "once is no repetition");
        let of = |places: u64| Pattern { places, repetitions: 2, deep: 0 };
        assert_eq!((of(LONG).steps(), of(LONG + 1).steps()), (1 + LONG / 64, 0));
        assert_eq!((of(SHORT).repeated_places(), of(SHORT + 1).repeated_places()), (0, SHORT + 1));
        assert_eq!((long(LONG), long(LONG + 1)), (0, (LONG + 1) / 3));
    }

    #[test]
    fn what_looks_far_is_distinguished_from_groups_counts_and_escaped_characters() {
        for far in ["(?!.*a)b", "(?=(a+))b", "(?=b{0,65})c"] {
            assert!(looks_far(far), "{far}");
        }
        for near in ["^(a+b)+$", "(?=b{0,64})c", r"^x\(?=.*a\)+", r"^[\](?=.*a)*]"] {
            assert!(!looks_far(near), "{near}");
        }
    }

    #[test]
    fn a_bracket_in_a_class_of_json_schema_hides_nothing_behind_it() {
        let slow = "(.*[a-z].{3000}b)?.*x$";
        for class in ["[[a]", r"[^[\]]"] {
            assert_ne!(Cost::of(&format!("^{class}{slow}")), Cost::NONE, "{class}");
        }
        assert_eq!(Pattern::of("[a-z-[aeiou]]b").places, Pattern::of("[a-z-[aeiou]]").places + 1);
    }
}
