//! JSON bodies; ours, Service Broker has XML only.

use super::counted::{self, Counted, CountedNode, Spent};
use super::patterns::{self, Pattern};
use super::{Effort, chains, check_memory, most_steps};
use jsonschema::PatternOptions;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use std::sync::LazyLock;
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
    /// Steps that its slowest pattern may take for each 32 bytes of a string.
    for_text: u64,
}

/// Whether a body is one JSON text in UTF-8, without a byte-order mark.
pub(super) fn well_formed(body: &[u8]) -> Result<(), String> {
    serde_json::from_str::<IgnoredAny>(utf8(body)?).map(drop).map_err(|error| error.to_string())
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
        let for_text = steps_for_text(&schema);
        let options = jsonschema::options_for::<Counted>()
            .with_pattern_options(PatternOptions::fancy_regex().backtrack_limit(BACKTRACKS))
            .with_format("regex", is_pattern);
        options.offline().build(&schema).map(|validator| Self { validator, longest_chain, for_text }).map_err(|error| {
            let at = error.instance_path().to_string();
            if at.is_empty() { error.to_string() } else { format!("at {at}: {error}") }
        })
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
        match counted::within_for(steps, self.for_text, time, || self.validator.is_valid(CountedNode(&value))) {
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
        let explained = counted::within_for(STEPS_TO_EXPLAIN, self.for_text, time, || self.fault(value));
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

/// Steps that the slowest pattern of a schema may take for each 32 bytes of a string.
fn steps_for_text(schema: &Value) -> u64 {
    let inside = |value: &Value| match value {
        Value::Array(items) => items.iter().map(steps_for_text).max().unwrap_or(0),
        Value::Object(members) => members.values().map(steps_for_text).max().unwrap_or(0),
        _ => 0,
    };
    let own = schema.get("pattern").and_then(Value::as_str).map_or(0, steps_of);
    let of_names = schema.get("patternProperties").and_then(Value::as_object);
    let of_names = of_names.and_then(|patterns| patterns.keys().map(|pattern| steps_of(pattern)).max()).unwrap_or(0);
    inside(schema).max(own).max(of_names)
}

/// One that is not tied to the beginning of a text may begin anywhere in it, which is as a repetition; but for the letters that it begins
/// with, which are searched for.
fn steps_of(pattern: &str) -> u64 {
    let is_searched = !pattern.starts_with(|first: char| first == '^' || first.is_alphanumeric());
    let whole = if is_searched { Pattern::of(&format!(".*{pattern}")) } else { Pattern::of(pattern) };
    patterns::long(whole.repeated_places())
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
        let steps = |schema: Value| steps_for_text(&schema);
        assert_eq!(steps(json!({"pattern": "^[a-z]{1,500}$", "items": {"pattern": "a.{0,1000}b"}})), 0);
        let long = "^(.*[a-z].{300}b)?.*x$";
        for schema in [json!({"items": [{"pattern": long}]}), json!({"patternProperties": {long: true, "a": {}}})] {
            assert_eq!(steps(schema), (8 + 11 + 2400 + 1 + 8 + 1 + 2) / 3);
        }
        assert_eq!(steps(json!({"pattern": ".{300}x"})), (8 + 2400 + 1) / 3, "it may begin anywhere");
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
}
