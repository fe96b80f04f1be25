//! References and alternatives that a JSON Schema applies to one value, one inside the other.
//!
//! The validator calls itself for each of them, and for each level of the body. If a schema that contains itself follows
//! 30 references at each level, a body of 120 levels overflows a stack of 2 MiB, and the process ends.

use jsonschema::{Draft, Uri, uri};
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
    let root = uri::from_str("").map_err(|error| error.to_string())?;
    let by_uri = HashMap::from([(root.as_str().to_owned(), vec![schema])]);
    let id_keyword = Draft::default().detect(schema).id_keyword();
    let mut chains = Chains { id_keyword, resources: vec![schema], by_uri, bases: vec![root], ..Chains::default() };
    chains.collect(schema, 0);
    chains.all(schema).ok_or_else(|| {
        format!(
            "it applies more than {MOST_IN_A_ROW} references and alternatives to one value, one inside the other, or they go in a \
             circle; shorten the row"
        )
    })
}

/// Refuses a body that is too deep for the stack of a thread; else returns the depth times the references and
/// alternatives in a row, and one more.
///
/// # Errors
/// Names the limit.
pub(super) fn check_depth(body: &Value, longest: u64) -> Result<u64, String> {
    let (most, depth) = (MOST_NESTED / (longest + 1), depth(body));
    if depth <= most {
        return Ok(depth * (longest + 1));
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
    id_keyword: &'static str,
    /// The document, and its parts with an id.
    resources: Vec<&'a Value>,
    /// The same and the anchors, by the URI.
    by_uri: HashMap<String, Vec<&'a Value>>,
    /// By the last part of an anchor or an id: for a reference whose URI is not found.
    named: HashMap<&'a str, Vec<&'a Value>>,
    dynamic_anchors: HashMap<&'a str, Vec<&'a Value>>,
    /// The URIs that references are relative to.
    bases: Vec<Uri<String>>,
    /// By the address of an object, the place of its base in `bases`.
    base_of: HashMap<usize, usize>,
    /// By the address of an object; `None` while it is followed.
    known: HashMap<usize, Option<u64>>,
}

impl<'a> Chains<'a> {
    fn collect(&mut self, value: &'a Value, base: usize) {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let base = text(self.id_keyword).and_then(|id| self.add_base(value, id, base)).unwrap_or(base);
        for key in ["$id", "id"] {
            if let Some(id) = text(key) {
                self.named.entry(last_part(id)).or_default().push(value);
                self.resources.push(value);
            }
        }
        for key in ["$anchor", "$dynamicAnchor"] {
            let Some(anchor) = text(key) else { continue };
            self.add(base, anchor, value);
            self.named.entry(anchor).or_default().push(value);
            if key == "$dynamicAnchor" {
                self.dynamic_anchors.entry(anchor).or_default().push(value);
            }
        }
        self.base_of.insert(address(value), base);
        parts(value).for_each(|part| self.collect(part, base));
    }

    /// Adds a part with an id. Returns the place of its URI, if the id is more than an anchor.
    fn add_base(&mut self, value: &'a Value, id: &str, base: usize) -> Option<usize> {
        let (document, anchor) = id.split_once('#').unwrap_or((id, ""));
        if !anchor.is_empty() {
            self.add(base, anchor, value);
        }
        let own = uri::resolve_against(&self.bases[base].borrow(), document).ok().filter(|_| !document.is_empty())?;
        self.by_uri.entry(own.as_str().to_owned()).or_default().push(value);
        self.bases.push(own);
        Some(self.bases.len() - 1)
    }

    fn add(&mut self, base: usize, anchor: &str, value: &'a Value) {
        self.by_uri.entry(format!("{}#{anchor}", self.bases[base])).or_default().push(value);
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
        let address = address(value);
        if let Some(known) = self.known.get(&address) {
            return known.filter(|known| before + known <= MOST_IN_A_ROW);
        }
        if before > MOST_IN_A_ROW {
            return None;
        }
        self.known.insert(address, None);
        let mut longest = 0;
        for next in self.next(object, address) {
            longest = longest.max(1 + self.from(next, before + 1)?);
        }
        self.known.insert(address, Some(longest));
        Some(longest)
    }

    /// The schemas that an object applies to the same value.
    fn next(&self, object: &'a Map<String, Value>, address: usize) -> Vec<&'a Value> {
        let mut next = Vec::new();
        for (key, value) in object {
            let to = value.as_str().unwrap_or("");
            match &**key {
                "allOf" | "anyOf" | "oneOf" | "dependentSchemas" | "dependencies" => next.extend(parts(value)),
                "not" | "if" | "then" | "else" => next.push(value),
                "$ref" if value.is_string() => next.extend(self.target(address, to)),
                // Which one is meant depends on the way to it.
                "$dynamicRef" => {
                    next.extend(self.target(address, to));
                    next.extend(self.dynamic_anchors.get(last_part(to)).into_iter().flatten());
                }
                "$recursiveRef" => next.extend(&self.resources),
                _ => {}
            }
        }
        next
    }

    /// The schemas that a reference may mean: more than one if its URI is not found.
    fn target(&self, address: usize, reference: &str) -> Vec<&'a Value> {
        if let Some(found) = self.by_uri(address, reference).filter(|found| !found.is_empty()) {
            return found;
        }
        match reference.split_once('#') {
            // The schemas of JSON Schema itself, which the validator has. They apply few schemas to one value.
            _ if ["http://json-schema.org/", "https://json-schema.org/"].iter().any(|of| reference.starts_with(of)) => {
                Vec::new()
            }
            Some((_, pointer)) if pointer.is_empty() || pointer.starts_with('/') => {
                let pointer = decoded(pointer);
                self.resources.iter().filter_map(|resource| resource.pointer(&pointer)).collect()
            }
            _ => self.named.get(last_part(reference)).cloned().unwrap_or_default(),
        }
    }

    /// The schemas of that URI.
    fn by_uri(&self, address: usize, reference: &str) -> Option<Vec<&'a Value>> {
        let base = &self.bases[*self.base_of.get(&address)?];
        let (document, fragment) = reference.split_once('#').unwrap_or((reference, ""));
        let document = match document {
            "" => base.as_str().to_owned(),
            relative => uri::resolve_against(&base.borrow(), relative).ok()?.as_str().to_owned(),
        };
        let fragment = decoded(fragment);
        if fragment.is_empty() || fragment.starts_with('/') {
            let documents = self.by_uri.get(&document)?;
            return Some(documents.iter().filter_map(|document| document.pointer(&fragment)).collect());
        }
        self.by_uri.get(&format!("{document}#{fragment}")).cloned()
    }
}

fn address(value: &Value) -> usize {
    std::ptr::from_ref(value).addr()
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lists_and_objects_are_as_deep_as_their_deepest_value() {
        let body = json!([1, {"a": 1, "b": [[]], "c": {}}, []]);
        assert_eq!((check_depth(&body, 0), check_depth(&body, 2)), (Ok(4), Ok(12)));
    }

    #[test]
    fn a_reference_to_an_unknown_document_means_the_parts_that_its_end_names() {
        let part = |key: &str| {
            let mut part = json!({"not": {"not": {}}});
            part[key] = "n".into();
            part
        };
        for (reference, part) in [
            ("http://x/other#/$defs/n", part("title")),
            ("http://x/other#n", part("$anchor")),
            ("http://x/n", part("id")),
        ] {
            let schema = json!({"$ref": reference, "$defs": {"n": part}});
            assert_eq!(longest(&schema), Ok(3), "{schema}");
        }
        let of_a_member = json!({"properties": {"$ref": {"type": "string"}}});
        assert_eq!(longest(&of_a_member), Ok(0), "a member of that name is no reference");
    }

    #[test]
    fn an_anchor_means_that_of_its_own_document_and_a_dynamic_reference_all_dynamic_ones() {
        let schema = |anchor: &str| {
            let inside = json!({"$id": "b", "$dynamicRef": "#n", "$defs": {"n": {"$dynamicAnchor": "n"}}});
            let mut schema = json!({"$id": "http://x/a", "allOf": [{"$ref": "b"}], "$defs": {"b": inside}});
            schema[anchor] = "n".into();
            schema
        };
        assert_eq!(longest(&schema("$anchor")), Ok(3), "the anchor of another document, and no dynamic one");
        for endless in [schema("$dynamicAnchor"), json!({"$recursiveRef": "#"})] {
            assert!(longest(&endless).unwrap_err().contains("circle"), "{endless}");
        }
        let old = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$id": "http://x/a",
            "allOf": [{"$ref": "#n"}],
            "definitions": {
                "n": {"$id": "#n"},
                "b": {"$id": "http://x/b", "definitions": {"n": {"$id": "#n", "not": {"not": {}}}}}
            }
        });
        assert_eq!(longest(&old), Ok(2), "an id that is only an anchor");
    }

    /// Each level refers to the next one twice: if each way to a level were followed, there would be 2^128 of them.
    #[test]
    fn a_row_is_as_long_as_its_limit_at_most() {
        let schema = |last: Value| {
            let levels = MOST_IN_A_ROW / 2;
            let twice = |level: u64| {
                let to = json!({"$ref": format!("#/$defs/a{level}")});
                json!([to, to])
            };
            let mut parts: Map<String, Value> =
                (1..levels).map(|level| (format!("a{level}"), json!({"allOf": twice(level + 1)}))).collect();
            parts.insert(format!("a{levels}"), last);
            json!({"allOf": twice(1), "$defs": parts})
        };
        assert_eq!(longest(&schema(json!({}))), Ok(MOST_IN_A_ROW));
        assert!(longest(&schema(json!({"not": {}}))).unwrap_err().contains("more than 256"));
    }
}
