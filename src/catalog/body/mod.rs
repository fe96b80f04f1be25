//! Which bodies pass: XML, XML schemas, JSON, JSON Schema.
