//! Message bodies under each validation. The first line of an input names the validation, and a schema for it stands
//! between that line and a line `---`.

use crate::harness::text;
use dialoq::catalog::{Catalog, MessageType, XmlSchemaCollection};
use dialoq::internals::body::BodyChecks;
use dialoq::protocol::definition::Validation;
use std::sync::Arc;

pub(crate) const WORDS: &[&str] = &[
    "<a>",
    "</a>",
    "<a/>",
    "<a b='1'>",
    " b='1'",
    " c:d=\"2\"",
    " xmlns='urn:x'",
    " xmlns:c='urn:c'",
    "<c:a>",
    "</c:a>",
    "<!-- x -->",
    "<![CDATA[x]]>",
    "<?x y?>",
    "<?xml version='1.0'?>",
    "<?xml version='1.0' encoding='utf-16'?>",
    "encoding='ISO-8859-1'",
    "<!DOCTYPE a>",
    "<!DOCTYPE a [<!ENTITY b 'c'>]>",
    "&amp;",
    "&b;",
    "&#x10ffff;",
    "&#xd800;",
    "]]>",
    "xsi:type='o:sku'",
    "xsi:nil='true'",
    "<xs:sequence>",
    "<xs:sequence maxOccurs='9'>",
    "<xs:sequence minOccurs='0' maxOccurs='100'>",
    "</xs:sequence>",
    "<xs:choice maxOccurs='unbounded'>",
    "</xs:choice>",
    "<xs:element name='a' maxOccurs='5'/>",
    "<xs:element ref='r' minOccurs='0'/>",
    "<xs:group ref='g' maxOccurs='7'/>",
    "<xs:any processContents='lax'/>",
    " minOccurs='20'",
    " maxOccurs='17'",
    " base='t'",
    " substitutionGroup='r'",
    "<xs:attribute name='b' type='xs:ID'/>",
    "<xs:pattern value='(.*a.{300})?b'/>",
    "<xs:key name='k'><xs:selector xpath='.//a|.'/><xs:field xpath='@b'/></xs:key>",
    "<order xmlns='urn:order'>",
    "<customer>",
    "<line sku='A-1'/>",
    "<cash>1.5</cash>",
    "{",
    "}",
    "[",
    "]",
    "[[",
    "]]",
    ":",
    ",",
    "\"",
    "\"a\"",
    "\"a\":",
    "null",
    "true",
    "false",
    "0",
    "-0",
    "1e400",
    "1.",
    "\\u0000",
    "\\ud800",
    "\"$ref\":\"#\"",
    "\"anyOf\":[",
    "\"items\":",
    "\"type\":\"object\"",
    "\"pattern\":\"^(a+)+$\"",
    "\"uniqueItems\":true",
    "\"minItems\":2",
    "\u{feff}",
    "\n---\n",
    "json\n",
    "empty\n",
    "well_formed_xml\n",
    "valid_xml\n",
    "json_schema\n",
];

const ORDER: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:o="urn:order" targetNamespace="urn:order" elementFormDefault="qualified">
  <xs:simpleType name="sku"><xs:restriction base="xs:string"><xs:pattern value="[A-Z]-[0-9]+"/><xs:maxLength value="6"/></xs:restriction></xs:simpleType>
  <xs:element name="order"><xs:complexType><xs:sequence>
    <xs:element name="customer" type="xs:string"/>
    <xs:element name="line" maxOccurs="unbounded"><xs:complexType><xs:attribute name="sku" type="o:sku" use="required"/></xs:complexType></xs:element>
    <xs:choice><xs:element name="cash" type="xs:decimal"/><xs:element name="card" type="xs:long"/></xs:choice>
  </xs:sequence></xs:complexType>
  <xs:unique name="skus"><xs:selector xpath="o:line"/><xs:field xpath="@sku"/></xs:unique></xs:element>
</xs:schema>"#;

const TREE: &str = r##"{"anyOf":[{"items":{"$ref":"#"},"minItems":2},{"items":{"$ref":"#"},"minItems":3},{"type":"object","properties":{"a":{"type":"integer","maximum":9},"b":{"pattern":"^(a+)+$"},"c":{"uniqueItems":true}},"additionalProperties":{"$ref":"#"}}]}"##;

/// The same body gets the same verdict twice, and a refusal is short enough for an Error message.
pub(crate) fn check(input: &[u8]) {
    let (validation, rest) = match input.iter().position(|byte| *byte == b'\n') {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (&b""[..], input),
    };
    let (schema, body) = match rest.windows(5).position(|bytes| bytes == b"\n---\n") {
        Some(end) => (Some(text(&rest[..end]).into_owned()), &rest[end + 5..]),
        None => (None, rest),
    };
    let mut catalog = Catalog::default();
    let validation = match validation {
        b"empty" => Validation::Empty,
        b"json" => Validation::Json,
        b"json_schema" => Validation::JsonSchema { schema: schema.unwrap_or_else(|| TREE.to_owned()) },
        b"valid_xml" => {
            let schemas = schema.unwrap_or_else(|| ORDER.to_owned()).into();
            let collection = XmlSchemaCollection { id: 65536, name: "schemas".into(), schemas };
            catalog.xml_schema_collections.insert(65536, Arc::new(collection));
            Validation::ValidXml { schema_collection: "schemas".into() }
        }
        b"none" => Validation::None,
        _ => Validation::WellFormedXml,
    };
    let message_type = MessageType { id: 65536, name: "//t".into(), owner: None, validation, is_dropped: false };
    let checks = BodyChecks::new();
    let first = checks.check(&catalog, &message_type, Some(body));
    assert_eq!(checks.check(&catalog, &message_type, Some(body)), first, "the verdict changed");
    match first {
        Ok(()) => {
            let is_json = matches!(message_type.validation, Validation::Json | Validation::JsonSchema { .. });
            assert!(!is_json || body.is_empty() || std::str::from_utf8(body).is_ok(), "JSON is UTF-8");
        }
        Err(rejection) => {
            assert!(!body.is_empty(), "no body is no wrong body: {rejection:?}");
            assert!([-8430, -9615].contains(&rejection.code), "{rejection:?}");
            assert!(rejection.description.contains("'//t'"), "{rejection:?}");
        }
    }
}
