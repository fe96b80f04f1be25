//! Bodies as one run of bytes in a binary format, not byte by byte: `#[serde(with = "body_bytes")]`.

use super::Body;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_bytes::{ByteBuf, Bytes};
use std::sync::Arc;

pub(super) fn serialize<S: Serializer>(body: &Body, serializer: S) -> Result<S::Ok, S::Error> {
    body.as_ref().map(|body| Bytes::new(body)).serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Body, D::Error> {
    let bytes = Option::<ByteBuf>::deserialize(deserializer)?;
    Ok(bytes.map(|bytes| Arc::new(bytes.into_vec())))
}
