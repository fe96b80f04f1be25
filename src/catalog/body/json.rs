//! JSON bodies; ours, Service Broker has XML only.

use serde::de::IgnoredAny;
use serde_json::Value;

/// A compiled JSON Schema.
pub(super) struct JsonSchema(jsonschema::Validator);

/// Whether that text is a JSON Schema that can be used: what CREATE and ALTER MESSAGE TYPE ask.
///
/// The draft is the one that `$schema` names, 2020-12 if none. References to other documents are refused: a broker
/// fetches nothing.
///
/// # Errors
/// Says what is wrong with the schema, and where.
pub fn check_json_schema(text: &str) -> Result<(), String> {
    JsonSchema::compile(text).map(drop)
}

/// Whether a body is one JSON text in UTF-8, without a byte-order mark.
pub(super) fn well_formed(body: &[u8]) -> Result<(), String> {
    serde_json::from_str::<IgnoredAny>(utf8(body)?).map(drop).map_err(|error| error.to_string())
}

impl JsonSchema {
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let schema: Value = serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))?;
        jsonschema::options().offline().build(&schema).map(Self).map_err(|error| {
            let at = error.instance_path().to_string();
            if at.is_empty() { error.to_string() } else { format!("at {at}: {error}") }
        })
    }

    pub(super) fn check(&self, body: &[u8]) -> Result<(), String> {
        let value: Value = serde_json::from_str(utf8(body)?).map_err(|error| format!("it is not JSON: {error}"))?;
        self.0.validate(&value).map_err(|error| {
            let at = error.instance_path().to_string();
            // The value itself may be large and none of the log's business.
            let error = error.masked();
            if at.is_empty() { error.to_string() } else { format!("at {at}: {error}") }
        })
    }
}

fn utf8(body: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(body).map_err(|error| format!("it is not UTF-8 from byte {} on", error.valid_up_to()))
}
