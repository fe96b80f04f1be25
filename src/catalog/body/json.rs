//! JSON bodies; ours, Service Broker has XML only.

use super::counted::{self, Counted, CountedNode, Spent};
use super::patterns::Cost;
use super::{Effort, chains, check_memory, most_steps};
use jsonschema::error::ValidationErrorKind;
use jsonschema::json::Node;
use jsonschema::{Keyword, PatternOptions, ValidationError, ValidationOptions};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Accesses allowed for composing the text of a rejection.
const STEPS_TO_EXPLAIN: u64 = 100_000;
/// The depth of a body times the references and alternatives in a row, up to which its fault is named. To name it takes four
/// times the stack of finding it: under 7 references to a `oneOf` in a row, a wrong body of 127 levels overflowed a stack of
/// 2 MiB in a debug build.
const MOST_EXPLAINED: u64 = 1024;
/// How often a pattern with look-around or back-references may step back in one string.
const BACKTRACKS: usize = 20_000;

/// A compiled JSON Schema.
pub(super) struct JsonSchema {
    validator: jsonschema::Validator<Counted>,
    /// The longest row of its references and alternatives.
    longest_chain: u64,
    /// What its slowest pattern may cost.
    of_patterns: Cost,
}

/// The most that values nest, as deep as `serde_json` decodes them: a body that passes its check must not fail in each decoding.
const MOST_DEPTH: usize = 127;

/// Whether a body is one JSON text in UTF-8, without a byte-order mark, whose values nest no deeper than is decoded.
pub(super) fn well_formed(body: &[u8]) -> Result<(), String> {
    serde_json::from_str::<IgnoredAny>(utf8(body)?).map_err(|error| error.to_string())?;
    let depth = nesting(body);
    if depth > MOST_DEPTH {
        return Err(format!("its values nest {depth} deep, the most is {MOST_DEPTH}"));
    }
    Ok(())
}

/// How deep the values of a JSON text nest.
fn nesting(text: &[u8]) -> usize {
    let (mut open, mut deepest, mut in_string) = (0_usize, 0, false);
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => in_string = !in_string,
            // A quote behind it ends no string. Outside of strings there is none.
            b'\\' => drop(bytes.next()),
            b'[' | b'{' if !in_string => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' if !in_string => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

impl JsonSchema {
    /// The draft is the one that `$schema` names, 2020-12 if none. References to other documents are refused: a broker
    /// fetches nothing.
    ///
    /// # Errors
    /// The fault of the schema, and its place.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let schema: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        // Before the validator follows them, for which it takes time in proportion to the square of their number.
        let longest_chain = chains::longest(&schema)?;
        let of_patterns = cost_of_patterns(&schema);
        let mut options = with_patterns().with_format("regex", is_pattern);
        if looks_far(&schema) {
            options = options.with_keyword("pattern", |_, pattern, _| Priced::of(pattern));
        }
        options.offline().build(&schema).map(|validator| Self { validator, longest_chain, of_patterns }).map_err(
            |error| {
                let at = error.instance_path().to_string();
                if at.is_empty() { error.to_string() } else { format!("at {at}: {error}") }
            },
        )
    }

    /// `None` if the effort did not suffice.
    pub(super) fn check(&self, body: &[u8], effort: Effort) -> Option<Result<(), String>> {
        if let Err(why) = check_memory(memory(body)) {
            return Some(Err(why));
        }
        let value: Value = match utf8(body).map(serde_json::from_str) {
            Err(why) => return Some(Err(why)),
            Ok(Err(error)) => return Some(Err(format!("it is not JSON: {error}"))),
            Ok(Ok(value)) => value,
        };
        let nested = match chains::check_depth(&value, self.longest_chain) {
            Ok(nested) => nested,
            Err(why) => return Some(Err(why)),
        };
        let limit = most_steps(body.len());
        let steps = effort.steps().min(limit);
        let time = effort.time(body.len());
        match counted::within_for(steps, self.of_patterns, time, || self.validator.is_valid(CountedNode(&value))) {
            Err(Spent::Steps) if steps < limit => None,
            Err(Spent::Steps) => Some(Err(format!(
                "checking it takes more than {limit} steps, the limit for a body of {} bytes; nest it less, or simplify the \
                 schema",
                body.len()
            ))),
            Err(Spent::Time) => Some(Err(
                "checking it takes too long; send shorter strings, or simplify the patterns of the schema".into(),
            )),
            Ok(true) => Some(Ok(())),
            Ok(false) => Some(Err(self.explain(&value, nested, time))),
        }
    }

    /// The fault of a value that does not pass.
    fn explain(&self, value: &Value, nested: u64, time: Option<Duration>) -> String {
        if nested > MOST_EXPLAINED {
            return "its values nest too deep to name the fault".into();
        }
        let explained = counted::within_for(STEPS_TO_EXPLAIN, self.of_patterns, time, || self.fault(value));
        explained.ok().flatten().unwrap_or_else(|| "it has too many faults to name one".into())
    }

    fn fault(&self, value: &Value) -> Option<String> {
        self.validator.validate(CountedNode(value)).err().map(|error| {
            let at = error.instance_path().to_string();
            // The value itself may be large and must not be in the log.
            let error = error.masked();
            if at.is_empty() { error.to_string() } else { format!("at {at}: {error}") }
        })
    }
}

/// What the slowest pattern of a schema may cost for each string; those that look far pay for their own strings, but as names of members.
fn cost_of_patterns(schema: &Value) -> Cost {
    let own = schema.get("pattern").and_then(Value::as_str).map_or(Cost::NONE, Cost::of);
    let names = schema.get("patternProperties").and_then(Value::as_object);
    let of_names = names.into_iter().flat_map(|names| names.keys()).map(|name| Cost::of(name));
    let here = of_names.fold(Cost { is_squared: false, ..own }, Cost::widest);
    parts(schema).map(cost_of_patterns).fold(here, Cost::widest)
}

/// Whether a pattern of a schema looks far.
fn looks_far(schema: &Value) -> bool {
    schema.get("pattern").and_then(Value::as_str).is_some_and(|pattern| Cost::of(pattern).is_squared)
        || parts(schema).any(looks_far)
}

fn parts(schema: &Value) -> Box<dyn Iterator<Item = &Value> + '_> {
    match schema {
        Value::Array(items) => Box::new(items.iter()),
        Value::Object(members) => Box::new(members.values()),
        _ => Box::new(std::iter::empty()),
    }
}

fn with_patterns<'a>() -> ValidationOptions<'a, Arc<dyn jsonschema::Retrieve>, Counted> {
    let options = jsonschema::options_for::<Counted>();
    options.with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS))
}

/// The keyword `pattern` of a schema with patterns that look far, which takes the square of a string's length. It cannot be ended, and
/// 4,000 bytes took 0.4 s, so a string pays for it before.
struct Priced {
    pattern: String,
    cost: Cost,
    validator: jsonschema::Validator<Counted>,
}

impl Priced {
    fn of(pattern: &Value) -> Result<Box<dyn for<'i> Keyword<'i, Counted>>, ValidationError<'static>> {
        let text = pattern.as_str().unwrap_or_default();
        let built = with_patterns().offline().build(&json!({ "pattern": pattern }));
        let validator = built.map_err(|error| ValidationError::schema(error.to_string()))?;
        Ok(Box::new(Self { pattern: text.to_owned(), cost: Cost { long: 0, ..Cost::of(text) }, validator }))
    }
}

impl<'i> Keyword<'i, Counted> for Priced {
    fn validate(&self, value: CountedNode<'i>) -> Result<(), ValidationError<'i>> {
        if self.is_valid(value) {
            return Ok(());
        }
        Err(ValidationError::custom(format!("value does not match \"{}\"", self.pattern)))
    }

    fn is_valid(&self, value: CountedNode<'i>) -> bool {
        let pays = |text: &str| counted::pay(usize::try_from(self.cost.steps(text)).unwrap_or(usize::MAX));
        if !value.as_string().is_none_or(|text| pays(&text)) {
            return false;
        }
        let fault = self.validator.validate(value).err();
        // Undecided is not false, which a `not` around it would turn into a pass.
        if fault
            .as_ref()
            .is_some_and(|fault| matches!(fault.kind(), ValidationErrorKind::BacktrackLimitExceeded { .. }))
        {
            counted::give_up();
        }
        fault.is_none()
    }
}

/// The format `regex`. The names of groups are compared with all before them: 16,000 took 0.3 s, and a string may hold millions.
fn is_pattern(text: &str) -> bool {
    /// Comparisons of names that a step pays for.
    const COMPARED: usize = 16;
    static FORMAT: LazyLock<Option<jsonschema::Validator>> =
        LazyLock::new(|| jsonschema::draft7::new(&json!({"format": "regex"})).ok());
    let names = text.matches("(?<").count() + text.matches(r"\k<").count();
    counted::pay(names.saturating_mul(names) / COMPARED)
        && FORMAT.as_ref().is_none_or(|format| format.is_valid(&Value::String(text.to_owned())))
}

/// About how many bytes of memory the values of a JSON text take, besides the characters of their strings. Measured with
/// `serde_json` 1.0: the map of an object takes 650 bytes for its first member.
fn memory(body: &[u8]) -> u64 {
    let (mut memory, mut is_string, mut is_escaped) = (0, false, false);
    for byte in body {
        if is_string {
            (is_escaped, is_string) = (*byte == b'\\' && !is_escaped, *byte != b'"' || is_escaped);
            continue;
        }
        is_string = *byte == b'"';
        memory += match byte {
            b'{' => 650,
            b'[' => 200,
            b':' => 100,
            b',' => 64,
            b'"' => 32,
            _ => 0,
        };
    }
    memory
}

fn utf8(body: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(body).map_err(|error| format!("it is not UTF-8 from byte {} on", error.valid_up_to()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_cost_as_much_as_the_slowest_pattern() {
        let long = "^(.*[a-z].{300}b)?.*x$";
        let far = "(?=.*a)b";
        let usual = json!({"pattern": "^[a-z]{1,500}$", "properties": {"pattern": {"pattern": "a.{0,1000}b"}}});
        assert_eq!(cost_of_patterns(&usual), Cost::NONE);
        assert_eq!(cost_of_patterns(&json!({"items": [{"pattern": "a"}, {"pattern": long}]})), Cost::of(long));
        let both = json!({"pattern": far, "patternProperties": {long: true, "a": {}}});
        assert_eq!(cost_of_patterns(&both), Cost::of(long));
        assert!(looks_far(&both) && looks_far(&json!({"items": [both]})) && !looks_far(&usual));
        let of_names = json!({"patternProperties": {far: true}});
        assert_eq!((cost_of_patterns(&of_names), looks_far(&of_names)), (Cost::of(far), false));
    }

    #[test]
    fn the_memory_of_values_is_counted_outside_of_strings() {
        for (text, expected) in [
            ("", 0),
            ("17", 0),
            ("[1, 2]", 200 + 64),
            (r#""a""#, 32),
            (r#"{"a": [], "b": {}}"#, 650 + 2 * (32 + 100) + 64 + 200 + 650),
            (r#"["[{:,", "\"[", "\\", {}]"#, 200 + 3 * (32 + 64) + 650),
        ] {
            assert_eq!(memory(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn values_nest_as_deep_as_brackets_outside_of_strings_are_open() {
        for (text, expected) in [("17", 0), ("[[],{},[]]", 2), (r#"["]]}",[{}]]"#, 3), (r#"{"[[{":["\"]"]}"#, 2)] {
            assert_eq!(nesting(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn names_of_groups_and_references_to_them_cost_steps_together() {
        let pattern = |count: usize| "(?<a>b)".repeat(count) + &r"\k<a>".repeat(count);
        let suffices = |count: usize| counted::within(100, || is_pattern(&pattern(count))).is_some();
        assert!(suffices(10) && !suffices(40));
    }
}
