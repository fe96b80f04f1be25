//! References and alternatives that a JSON Schema applies to one value, one inside the other.
//!
//! The validator calls itself for each of them, and for each level of the body. If a schema that contains itself follows
//! 30 references at each level, a body of 120 levels overflows a stack of 2 MiB, and the process ends.

use serde_json::{Map, Value};
use std::collections::HashMap;

/// References and alternatives in a row. Schemas that name one another in a circle have no end.
const MOST_IN_A_ROW: u64 = 256;

/// The depth of a body times the references and alternatives in a row, and one more.
const MOST_NESTED: u64 = 2048;

/// The longest row of a schema.
///
/// # Errors
/// It is longer than [`MOST_IN_A_ROW`], or goes in a circle.
pub(super) fn longest(schema: &Value) -> Result<u64, String> {
    let mut chains = Chains { resources: vec![schema], ..Chains::default() };
    chains.collect(schema);
    chains.all(schema).ok_or_else(|| {
        format!(
            "it applies more than {MOST_IN_A_ROW} references and alternatives to one value, one inside the other, or they go in a \
             circle; shorten the row"
        )
    })
}

/// Refuses a body that is too deep for the stack of a thread.
///
/// # Errors
/// Names the limit.
pub(super) fn check_depth(body: &Value, longest: u64) -> Result<(), String> {
    let (most, depth) = (MOST_NESTED / (longest + 1), depth(body));
    if depth <= most {
        return Ok(());
    }
    Err(format!(
        "its values nest {depth} deep, and its schema follows {longest} references and alternatives in a row; for that schema \
         {most} is the most"
    ))
}

fn depth(value: &Value) -> u64 {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

#[derive(Default)]
struct Chains<'a> {
    /// The document, and its parts with an id: pointers begin at one of them.
    resources: Vec<&'a Value>,
    /// By the last part of an anchor or an id.
    named: HashMap<&'a str, Vec<&'a Value>>,
    /// By the address of an object; `None` while it is followed.
    known: HashMap<usize, Option<u64>>,
}

impl<'a> Chains<'a> {
    fn collect(&mut self, value: &'a Value) {
        for (key, text) in value.as_object().into_iter().flatten() {
            let Some(text) = text.as_str().filter(|_| matches!(&**key, "$anchor" | "$dynamicAnchor" | "$id" | "id"))
            else {
                continue;
            };
            self.named.entry(last_part(text)).or_default().push(value);
            if key.ends_with("id") {
                self.resources.push(value);
            }
        }
        parts(value).for_each(|part| self.collect(part));
    }

    /// The longest row that begins anywhere below a value.
    fn all(&mut self, value: &'a Value) -> Option<u64> {
        let mut longest = self.from(value, 0)?;
        for part in parts(value) {
            longest = longest.max(self.all(part)?);
        }
        Some(longest)
    }

    /// The longest row that begins at a value; `None` if it has no end.
    fn from(&mut self, value: &'a Value, before: u64) -> Option<u64> {
        let Some(object) = value.as_object() else { return Some(0) };
        let address = std::ptr::from_ref(value).addr();
        if let Some(known) = self.known.get(&address) {
            return known.filter(|known| before + known <= MOST_IN_A_ROW);
        }
        if before > MOST_IN_A_ROW {
            return None;
        }
        self.known.insert(address, None);
        let mut longest = 0;
        for next in self.next(object) {
            longest = longest.max(1 + self.from(next, before + 1)?);
        }
        self.known.insert(address, Some(longest));
        Some(longest)
    }

    /// The schemas that an object applies to the same value.
    fn next(&self, object: &'a Map<String, Value>) -> Vec<&'a Value> {
        let mut next = Vec::new();
        for (key, value) in object {
            match &**key {
                "allOf" | "anyOf" | "oneOf" | "dependentSchemas" | "dependencies" => next.extend(parts(value)),
                "not" | "if" | "then" | "else" => next.push(value),
                "$ref" | "$dynamicRef" | "$recursiveRef" => {
                    next.extend(value.as_str().into_iter().flat_map(|to| self.target(to)))
                }
                _ => {}
            }
        }
        next
    }

    fn target(&self, reference: &str) -> Vec<&'a Value> {
        match reference.split_once('#') {
            Some((_, pointer)) if pointer.is_empty() || pointer.starts_with('/') => {
                let pointer = decoded(pointer);
                self.resources.iter().filter_map(|resource| resource.pointer(&pointer)).collect()
            }
            _ => self.named.get(last_part(reference)).cloned().unwrap_or_default(),
        }
    }
}

/// A pointer without its percent signs.
fn decoded(pointer: &str) -> String {
    let (mut bytes, mut rest) = (Vec::new(), pointer.as_bytes());
    while let Some((&first, after)) = rest.split_first() {
        let code = after.get(..2).filter(|_| first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn last_part(name: &str) -> &str {
    name.rsplit(['#', '/']).next().unwrap_or(name)
}

fn parts(value: &Value) -> impl Iterator<Item = &Value> {
    let (items, members) = (value.as_array(), value.as_object());
    items.into_iter().flatten().chain(members.into_iter().flat_map(Map::values))
}
