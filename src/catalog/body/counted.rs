//! A JSON value that counts a validator's accesses.
//!
//! A schema that refers to itself under `anyOf` or `oneOf` can need a number of steps that doubles with each level of
//! the body. The validator has no limit of its own, so each access to the body costs a step here. When the steps are
//! used up, strings, arrays and objects appear empty, and the validator comes to its end.

use super::patterns::Cost;
use super::{give_way, patterns, processor_time};
use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object};
use serde_json::{Map, Number, Value};
use std::borrow::Cow;
use std::cell::Cell;
use std::collections::HashSet;
use std::time::Duration;

thread_local! {
    /// The steps left to the check under way on this thread, in comparisons.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    static STRINGS: Cell<Strings> = const { Cell::new(Strings::NONE) };
}

/// What the strings of the check under way may take.
#[derive(Clone, Copy)]
struct Strings {
    /// What the slowest pattern may cost. Few strings are under that pattern, and few patterns are as slow as they may be.
    cost: Cost,
    /// Where the processor time ends the check, and the most steps that one match may take; without them, the steps are paid.
    until: Option<(Duration, u64)>,
    /// Steps since the time was asked for.
    unchecked: u64,
    is_over: bool,
}

impl Strings {
    const NONE: Self = Self { cost: Cost::NONE, until: None, unchecked: 0, is_over: false };
}

/// Comparisons of two plain values that one step pays for. A validator compares with the values of an enumeration one
/// by one, in some nanoseconds each: 2,000 numbers are no reason to refuse a body with 10,000 of them.
const COMPARISONS_PER_STEP: u64 = 64;
/// After these other threads have a turn: 1,024 steps take 0.1 ms.
const COMPARISONS_IN_A_ROW: u64 = 1024 * COMPARISONS_PER_STEP;
/// Bytes of a string that one step pays for.
const BYTES_PER_STEP: usize = 32;
/// Steps of strings after which the processor time is asked for: 2 ms.
const STEPS_UNCHECKED: u64 = 10_000;

/// Why some work has no result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spent {
    Steps,
    Time,
}

/// Does some work with at most so many steps. `None` if they did not suffice: the result means nothing then.
#[cfg(test)]
pub(super) fn within<T>(steps: u64, work: impl FnOnce() -> T) -> Option<T> {
    within_for(steps, Cost::NONE, None, work).ok()
}

/// The same, where the patterns may cost so much for each string. With a limit of processor time, that ends the work instead.
pub(super) fn within_for<T>(
    steps: u64,
    of_patterns: Cost,
    time: Option<Duration>,
    work: impl FnOnce() -> T,
) -> Result<T, Spent> {
    /// Panic or not, later work on this thread is not counted.
    struct Uncounted;
    impl Drop for Uncounted {
        fn drop(&mut self) {
            LEFT.set(u64::MAX);
            STRINGS.set(Strings::NONE);
        }
    }
    let _uncounted = Uncounted;
    LEFT.set(steps.saturating_mul(COMPARISONS_PER_STEP));
    let time = time.filter(|_| of_patterns != Cost::NONE);
    let until = time.map(|time| (processor_time() + time, patterns::most_steps_of_match(time)));
    STRINGS.set(Strings { cost: of_patterns, until, ..Strings::NONE });
    let done = work();
    match LEFT.get() {
        0 if STRINGS.get().is_over => Err(Spent::Time),
        0 => Err(Spent::Steps),
        _ => Ok(done),
    }
}

/// Ends the check, because something in it cannot be decided.
pub(super) fn give_up() {
    STRINGS.set(Strings { is_over: true, ..STRINGS.get() });
    LEFT.set(0);
}

/// Pays for an access. False if no steps are left.
pub(super) fn pay(steps: usize) -> bool {
    pay_comparisons((steps as u64).saturating_mul(COMPARISONS_PER_STEP))
}

fn pay_comparisons(comparisons: u64) -> bool {
    let before = LEFT.get();
    let left = before.saturating_sub(comparisons);
    LEFT.set(left);
    if before / COMPARISONS_IN_A_ROW != left / COMPARISONS_IN_A_ROW {
        give_way();
    }
    left > 0
}

fn pay_for_text(text: &str) -> bool {
    let parts = text.len() / BYTES_PER_STEP;
    let strings = STRINGS.get();
    if strings.cost == Cost::NONE || parts == 0 {
        return pay(1 + parts);
    }
    let for_patterns = strings.cost.steps(text);
    let Some((until, most)) = strings.until else {
        return pay(usize::try_from(for_patterns).unwrap_or(usize::MAX).saturating_add(1 + parts));
    };
    let mut strings = Strings { unchecked: strings.unchecked.saturating_add(for_patterns), ..strings };
    if strings.unchecked > STEPS_UNCHECKED {
        strings.is_over = for_patterns > most || processor_time() > until;
        strings.unchecked = 0;
    }
    STRINGS.set(strings);
    if strings.is_over {
        LEFT.set(0);
    }
    pay(1 + parts)
}

/// The representation.
pub(super) struct Counted;

/// One value of the body.
#[derive(Clone, Copy)]
pub(super) struct CountedNode<'a>(pub(super) &'a Value);

#[derive(Clone, Copy)]
pub(super) struct CountedObject<'a>(&'a Map<String, Value>);

#[derive(Clone, Copy)]
pub(super) struct CountedArray<'a>(&'a [Value]);

pub(super) struct Members<'a>(serde_json::map::Iter<'a>);

pub(super) struct Elements<'a>(std::slice::Iter<'a, Value>);

impl Json for Counted {
    type Node<'a> = CountedNode<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(buffer: &mut Value, string: &str, work: impl FnOnce(CountedNode<'_>) -> T) -> T {
        *buffer = Value::String(string.to_owned());
        work(CountedNode(buffer))
    }
}

impl<'a> Node<'a, Counted> for CountedNode<'a> {
    type Object = CountedObject<'a>;
    type Array = CountedArray<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<CountedObject<'a>> {
        let is_paid = pay(1);
        self.0.as_object().filter(|_| is_paid).map(CountedObject)
    }

    fn as_array(&self) -> Option<CountedArray<'a>> {
        let is_paid = pay(1);
        self.0.as_array().filter(|_| is_paid).map(|items| CountedArray(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.0.as_str()?;
        // A match is not ended, so that of a text that costs too much is not begun.
        Some(Cow::Borrowed(if pay_for_text(text) { text } else { "" }))
    }

    fn as_number(&self) -> Option<&'a Number> {
        pay(1);
        match self.0 {
            Value::Number(number) => Some(number),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        pay(1);
        self.0.as_bool()
    }

    fn is_null(&self) -> bool {
        pay(1);
        self.0.is_null()
    }

    fn json_type(&self) -> JsonType {
        pay(1);
        match self.0 {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        let is_plain = match (self.0, expected) {
            (Value::String(one), Value::String(other)) => one.len() != other.len(),
            (Value::Array(_), Value::Array(_)) | (Value::Object(_), Value::Object(_)) => false,
            _ => true,
        };
        match is_plain {
            true => pay_comparisons(1),
            false => pay(1 + weight(expected)),
        };
        jsonschema::json::cmp::equal(self.0, expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Borrowed(self.0)
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(std::ptr::from_ref::<Value>(self.0) as usize))
    }
}

/// The cost of a comparison with a value of the schema at its own level.
fn weight(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len() / BYTES_PER_STEP,
        Value::Array(items) => items.len(),
        Value::Object(members) => members.len(),
        _ => 0,
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = (&'a str, CountedNode<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (key, value) = self.0.next()?;
        pay_for_text(key).then_some((key.as_str(), CountedNode(value)))
    }
}

impl<'a> Object<'a, Counted> for CountedObject<'a> {
    type Node = CountedNode<'a>;
    type MemberName = &'a str;
    type MembersIter = Members<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<CountedNode<'a>> {
        let is_paid = pay(1);
        self.0.get(key.as_str()).filter(|_| is_paid).map(CountedNode)
    }

    fn members(&self) -> Members<'a> {
        Members(self.0.iter())
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = CountedNode<'a>;

    fn next(&mut self) -> Option<Self::Item> {
        let item = self.0.next()?;
        pay(1).then_some(CountedNode(item))
    }
}

impl<'a> Array<'a, Counted> for CountedArray<'a> {
    type Node = CountedNode<'a>;
    type ElementsIter = Elements<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn elements(&self) -> Elements<'a> {
        Elements(self.0.iter())
    }

    /// Not the crate's own hash: that one is equal for all nestings of empty arrays and for all integers of one float,
    /// and comparing many values of one hash is quadratic.
    fn is_unique(&self) -> bool {
        let mut seen = HashSet::with_capacity(self.0.len().min(1 << 16));
        self.0.iter().all(|item| {
            let mut canonical = Vec::new();
            write_canonical(item, &mut canonical) && seen.insert(canonical)
        })
    }
}

/// Bytes that are the same for values equal in JSON Schema, and only for those. False if the steps ran out.
fn write_canonical(value: &Value, to: &mut Vec<u8>) -> bool {
    let mut text = |tag: u8, text: &str| {
        to.push(tag);
        to.extend_from_slice(&(text.len() as u64).to_le_bytes());
        to.extend_from_slice(text.as_bytes());
        pay_for_text(text)
    };
    match value {
        Value::Null => text(b'n', ""),
        Value::Bool(is_true) => text(b'b', if *is_true { "t" } else { "f" }),
        Value::Number(number) => text(b'0', &canonical_number(number)),
        Value::String(string) => text(b's', string),
        Value::Array(items) => text(b'[', "") && items.iter().all(|item| write_canonical(item, to)) && end(to),
        Value::Object(members) => {
            let is_paid = text(b'{', "");
            // The map keeps them sorted, unless another crate of the program has turned the feature `preserve_order` on.
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(key, _)| *key);
            is_paid
                && sorted.into_iter().all(|(key, value)| {
                    to.extend_from_slice(&(key.len() as u64).to_le_bytes());
                    to.extend_from_slice(key.as_bytes());
                    pay_for_text(key) && write_canonical(value, to)
                })
                && end(to)
        }
    }
}

fn end(to: &mut Vec<u8>) -> bool {
    to.push(b'e');
    true
}

/// Equal numbers are written alike, whether as integers or with a fraction of zero, also if another crate of the program has turned the
/// feature `arbitrary_precision` on, with which a number is its text.
fn canonical_number(number: &Number) -> String {
    /// Below this a float without a fraction is exactly an `i128`.
    const EXACT: f64 = 1e30;
    let integer = || number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from));
    match number.as_f64().filter(|_| integer().is_none()) {
        None => integer().map_or_else(|| number.to_string(), |integer| integer.to_string()),
        #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is in range")]
        Some(float) if float.trunc() == float && float.abs() < EXACT => (float as i128).to_string(),
        Some(float) => format!("{:x}", float.to_bits()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn is_unique(items: &Value) -> bool {
        CountedArray(items.as_array().unwrap()).is_unique()
    }

    #[test]
    fn items_are_compared_as_json_schema_does() {
        for same in [
            json!([1, 1.0]),
            json!([0, -0.0]),
            json!([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]),
            json!(["x", "x"]),
            json!([[], [1], []]),
            json!([1e18, 1_000_000_000_000_000_000_u64]),
        ] {
            assert!(!is_unique(&same), "{same}");
        }
        for apart in [
            json!([1, 1.5, "1", true, null, [1], {"1": 1}]),
            json!([[], [[]], [[[]]], [[], []], {}]),
            json!([["a", "b"], ["ab"], ["a"], [["a"], "b"], ["a", ["b"]]]),
            json!([u64::MAX, u64::MAX - 1, i64::MIN, i64::MIN + 1]),
            json!([{"a": "b"}, {"ab": ""}, {"a": {"b": 0}}]),
            json!([false, 0, "", "f"]),
            json!([true, false]),
            json!([{"a": 1}, {"b": 1}]),
            json!([["asb"], ["a", "b"]]),
        ] {
            assert!(is_unique(&apart), "{apart}");
        }
    }

    #[test]
    fn items_with_other_members_differ() {
        for apart in [json!([{"a": 1}, {"a": 2}]), json!([[1, 2], [1, 3], [1]]), json!([[{"a": [1]}], [{"a": [2]}]])] {
            assert!(is_unique(&apart), "{apart}");
        }
        let mut written = Vec::new();
        assert!(write_canonical(&json!([{}, []]), &mut written));
        assert_eq!(written.iter().filter(|byte| **byte == b'e').count(), 3, "each list and object has its end");
        let items = json!([[1, 2], "x"]);
        assert_eq!(within(2, || is_unique(&items)), None, "the steps do not suffice");
    }

    #[test]
    fn each_access_costs_its_steps() {
        /// The cost of the work, in comparisons.
        fn cost<T>(work: impl FnOnce() -> T) -> u64 {
            within(1000, || {
                let before = LEFT.get();
                work();
                before - LEFT.get()
            })
            .unwrap()
        }
        let of_bytes = |bytes: usize| Value::String("x".repeat(bytes));
        for (bytes, steps) in [(0, 1), (31, 1), (32, 2), (320, 11)] {
            let text = of_bytes(bytes);
            assert_eq!(cost(|| CountedNode(&text).as_string()), steps * COMPARISONS_PER_STEP, "{bytes} bytes");
            assert_eq!(cost(|| CountedNode(&text).equals_value(&text)), steps * COMPARISONS_PER_STEP, "{bytes} bytes");
            assert_eq!(cost(|| CountedNode(&json!(1)).equals_value(&text)), 1, "another type");
            assert_eq!(cost(|| CountedNode(&text).equals_value(&of_bytes(bytes + 1))), 1, "another length");
        }
        for (value, comparisons) in [
            (json!(7), 1),
            (json!(null), 1),
            (json!([1, 2, 3]), 4 * COMPARISONS_PER_STEP),
            (json!({"a": 1, "b": 2}), 3 * COMPARISONS_PER_STEP),
            (json!([]), COMPARISONS_PER_STEP),
        ] {
            assert_eq!(cost(|| CountedNode(&value).equals_value(&value)), comparisons, "{value}");
            let node = CountedNode(&value);
            let accesses = cost(|| (node.as_number(), node.as_boolean(), node.is_null(), node.json_type()));
            assert_eq!(accesses, 4 * COMPARISONS_PER_STEP, "{value}");
            let kinds = cost(|| (node.as_object().is_some(), node.as_array().is_some()));
            assert_eq!(kinds, 2 * COMPARISONS_PER_STEP, "{value}");
        }
    }

    #[test]
    fn strings_cost_more_under_long_patterns() {
        let text = Value::String("x".repeat(320));
        let cost = |long, time| {
            within_for(1000, Cost { long, ..Cost::NONE }, time, || {
                CountedNode(&text).as_string();
                1000 - LEFT.get() / COMPARISONS_PER_STEP
            })
        };
        assert_eq!((cost(0, None), cost(7, None), cost(u64::MAX, None)), (Ok(11), Ok(81), Err(Spent::Steps)));
        assert_eq!(within(1000, || LEFT.get() / COMPARISONS_PER_STEP), Some(1000));
        let enough = Some(Duration::from_secs(3600));
        assert_eq!((cost(7, enough), cost(700_000, enough)), (Ok(11), Ok(11)), "the time ends the check instead");
        assert_eq!(cost(1 << 40, enough), Err(Spent::Time), "one string that may take hours");
    }

    #[cfg(unix)]
    #[test]
    fn the_time_of_strings_has_an_end() {
        let text = Value::String("x".repeat(320));
        let read = |long, time| {
            within_for(1000, Cost { long, ..Cost::NONE }, Some(time), || {
                let began = processor_time();
                while processor_time() == began {}
                CountedNode(&text).as_string();
            })
        };
        assert_eq!(read(STEPS_UNCHECKED, Duration::ZERO), Err(Spent::Time));
        assert_eq!(read(1, Duration::ZERO), Ok(()), "so few steps are not worth a look");
        assert_eq!(read(STEPS_UNCHECKED, Duration::from_secs(3600)), Ok(()));
        assert_eq!(within(1000, || CountedNode(&text).as_string().is_some()), Some(true), "later work has no end");
    }

    #[test]
    fn without_steps_strings_lists_and_objects_appear_empty() {
        let (list, object) = (json!([1]), json!({"a": 1}));
        let seen = Cell::new((true, true, true));
        let access = || {
            let first = pay(1);
            seen.set((first, CountedNode(&list).as_array().is_some(), CountedNode(&object).as_object().is_some()));
        };
        assert_eq!(within(1, access), None, "the last step leaves nothing");
        assert_eq!(seen.get(), (false, false, false));
        assert_eq!(within(4, access), Some(()));
        assert_eq!(seen.get(), (true, true, true));
        let text = json!("text");
        let read = || CountedNode(&text).as_string().map(Cow::into_owned);
        assert_eq!((within(1, || assert_eq!(read().as_deref(), Some(""))), read().as_deref()), (None, Some("text")));
        let members = || CountedObject(object.as_object().unwrap()).members().count();
        assert_eq!((within(1, || assert_eq!(members(), 0)), members()), (None, 1));
    }

    #[test]
    fn work_beyond_its_steps_has_no_result() {
        let list = json!([1, 2, 3, 4, 5, 6, 7, 8, 9]);
        let count = || CountedArray(list.as_array().unwrap()).elements().count();
        assert_eq!(within(100, count), Some(9));
        assert_eq!(within(5, count), None);
        assert_eq!(count(), 9, "and later work is not counted");
    }

    #[test]
    fn a_short_string_costs_one_step_and_a_match_may_take_the_most_steps() {
        let cost = |bytes: usize, of_patterns: Cost, time: Option<Duration>| {
            let text = Value::String("x".repeat(bytes));
            within_for(1000, of_patterns, time, || {
                CountedNode(&text).as_string();
                1000 - LEFT.get() / COMPARISONS_PER_STEP
            })
        };
        let far = Cost { is_squared: true, ..Cost::NONE };
        assert_eq!((cost(31, far, None), cost(32, far, None)), (Ok(1), Ok(2 + 32 * 32 / 16)));
        let hour = Duration::from_secs(3600);
        let most = patterns::most_steps_of_match(hour);
        let of = |long| cost(32, Cost { long, ..Cost::NONE }, Some(hour));
        assert_eq!((of(most), of(most + 1)), (Ok(2), Err(Spent::Time)));
    }
}
