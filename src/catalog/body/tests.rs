use super::*;
use crate::catalog::XmlSchemaCollection;

pub(super) fn check_json_schema(text: &str) -> Result<(), String> {
    BodyChecks::new().check_json_schema(text)
}

pub(super) fn check_xml_schemas(text: &str) -> Result<(), String> {
    BodyChecks::new().check_xml_schemas(text)
}

fn message_type(validation: Validation) -> MessageType {
    MessageType { id: 65536, name: "//t".into(), owner: None, validation, is_dropped: false }
}

fn verdict(validation: Validation, body: &[u8]) -> Option<i32> {
    BodyChecks::new()
        .check(&Catalog::default(), &message_type(validation), Some(body))
        .err()
        .map(|rejection| rejection.code)
}

fn xml(body: &[u8]) -> Option<i32> {
    verdict(Validation::WellFormedXml, body)
}

fn utf16le(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

const ORDER: &str = r#"<?xml version="1.0"?>
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:o="urn:order" targetNamespace="urn:order" elementFormDefault="qualified">
  <xs:simpleType name="sku"><xs:restriction base="xs:string"><xs:pattern value="[A-Z]-[0-9]+"/><xs:maxLength value="6"/></xs:restriction></xs:simpleType>
  <xs:element name="order">
    <xs:complexType>
      <xs:sequence>
        <xs:element name="customer" type="xs:string"/>
        <xs:element name="line" maxOccurs="3">
          <xs:complexType>
            <xs:attribute name="sku" type="o:sku" use="required"/>
            <xs:attribute name="count" type="xs:positiveInteger" default="1"/>
          </xs:complexType>
        </xs:element>
        <xs:choice><xs:element name="cash" type="xs:decimal"/><xs:element name="card" type="xs:long"/></xs:choice>
      </xs:sequence>
    </xs:complexType>
  </xs:element>
</xs:schema>"#;

const NOTE: &str =
    r#"<s:schema xmlns:s="http://www.w3.org/2001/XMLSchema"><s:element name="note" type="s:date"/></s:schema>"#;

const NESTING: &str = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
  <xs:complexType name="box"><xs:sequence><xs:element name="box" type="box" minOccurs="0"/></xs:sequence></xs:complexType>
  <xs:element name="box" type="box"/></xs:schema>"#;

fn catalog(schemas: &str) -> Catalog {
    let mut catalog = Catalog::default();
    let collection = XmlSchemaCollection { id: 65536, name: "Orders".into(), schemas: schemas.into() };
    catalog.xml_schema_collections.insert(65536, Arc::new(collection));
    catalog
}

fn valid(schemas: &str, body: &str) -> Result<(), Rejection> {
    let validation = Validation::ValidXml { schema_collection: "orders".into() };
    BodyChecks::new().check(&catalog(schemas), &message_type(validation), Some(body.as_bytes()))
}

fn order(inside: &str) -> Result<(), Rejection> {
    valid(ORDER, &format!("<order xmlns='urn:order'>{inside}</order>"))
}

#[test]
fn none_takes_anything() {
    assert_eq!(verdict(Validation::None, b"\xff\xfe\x00<"), None);
}

#[test]
fn empty_takes_no_bytes_only() {
    assert_eq!(verdict(Validation::Empty, b""), None);
    assert_eq!(verdict(Validation::Empty, b" "), Some(-8430), "assertion 89");
    let absent = BodyChecks::new().check(&Catalog::default(), &message_type(Validation::Empty), None);
    assert_eq!(absent, Ok(()));
}

#[test]
fn a_missing_body_passes_wherever_there_is_nothing_to_parse() {
    for validation in [
        Validation::WellFormedXml,
        Validation::ValidXml { schema_collection: "orders".into() },
        Validation::Json,
        Validation::JsonSchema { schema: "false".into() },
    ] {
        let message_type = message_type(validation);
        let checks = BodyChecks::new();
        for body in [None, Some(&b""[..])] {
            assert_eq!(checks.check(&catalog(ORDER), &message_type, body), Ok(()), "assertion 85: {message_type:?}");
        }
    }
}

#[test]
fn xml_in_every_encoding_passes() {
    let document = "<?xml version=\"1.0\"?><a b='ü'>🚚<c xmlns:p='urn:p'><p:d/></c></a>";
    assert_eq!(xml(document.as_bytes()), None);
    assert_eq!(xml(&[b"\xef\xbb\xbf", document.as_bytes()].concat()), None, "UTF-8 with a mark");
    assert_eq!(xml(&utf16le(document)), None, "nvarchar");
    assert_eq!(xml(&utf16le(&format!("\u{feff}{document}"))), None, "UTF-16LE with a mark");
    let big_endian: Vec<u8> = format!("\u{feff}{document}").encode_utf16().flat_map(u16::to_be_bytes).collect();
    assert_eq!(xml(&big_endian), None, "UTF-16BE with a mark");
    assert_eq!(xml(&big_endian[2..]), None, "UTF-16BE without a mark");
    assert_eq!(xml(&utf16le("<?xml version='1.0' encoding='utf-16'?><a/>")), None);
    assert_eq!(xml(b"<?xml version='1.0' encoding='ISO-8859-1'?><a>\xfc</a>"), None, "Latin 1, as declared");
}

#[test]
fn malformed_xml_is_rejected() {
    let cases: &[&[u8]] = &[
        b"no xml",
        b" ",
        b"<\x00a\x00/\x00>\x00 ",
        b"\xef\xbb\xbf",
        b"<a>",
        b"<a></b>",
        b"<a/><b/>",
        b"<a b='1' b='2'/>",
        b"<p:a/>",
        b"<a>&nbsp;</a>",
        b"<a>\x01</a>",
        b"<a>\xff</a>",
        b"<a>&#0;</a>",
        b"<a/>\xc3",
        b"\xff\xfe<\x00a\x00/",
        b"\xff\xfe\x00\xd8<\x00",
        b"<?xml version='1.0' encoding='UTF-16'?><a/>",
        b"<?xml version='1.0' encoding='EBCDIC-CP-US'?><a/>",
        b"<?xml version='1.0' encoding=?><a/>",
        b"<!DOCTYPE a><a/>",
        b"<!DOCTYPE a [<!ENTITY x 'y'>]><a>&x;</a>",
        b"<!DOCTYPE a SYSTEM 'file:///etc/passwd'><a/>",
    ];
    for case in cases {
        assert_eq!(xml(case), Some(-9615), "{}", String::from_utf8_lossy(case));
    }
    assert_eq!(xml(&utf16le("<?xml version='1.0' encoding='utf-8'?><a/>")), Some(-9615));
}

#[test]
fn depth_is_bounded_and_costs_no_stack() {
    let nested = |tag: &str, depth: usize| format!("<{tag}>").repeat(depth) + &format!("</{tag}>").repeat(depth);
    // A thread of the smallest usual size: an overflow would end the whole process, and with it this test.
    let work = move || {
        assert_eq!(xml(nested("a", 128).as_bytes()), None);
        assert_eq!(xml(nested("a", 129).as_bytes()), Some(-9615));
        assert_eq!(xml("<a>".repeat(1_000_000).as_bytes()), Some(-9615));
        assert_eq!(valid(NESTING, &nested("box", 128)), Ok(()));
        assert!(valid(NESTING, &nested("box", 100_000)).is_err());
        let json = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        let members = |depth: usize| r#"{"a":"#.repeat(depth) + r#""[\\\"{[""# + &"}".repeat(depth);
        for validation in [Validation::Json, Validation::JsonSchema { schema: "true".into() }] {
            for (depth, code) in [(127, None), (128, Some(-8430)), (1_000_000, Some(-8430))] {
                assert_eq!(verdict(validation.clone(), json(depth).as_bytes()), code, "{validation:?}, {depth} deep");
                assert_eq!(
                    verdict(validation.clone(), members(depth).as_bytes()),
                    code,
                    "{validation:?}, {depth} deep"
                );
            }
        }
        let endless = Validation::JsonSchema { schema: r##"{"$ref":"#"}"##.into() };
        let _either_verdict = verdict(endless, b"{}");
    };
    std::thread::Builder::new().stack_size(1 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
fn valid_xml_knows_elements_sequences_choices_attributes_and_facets() {
    assert_eq!(order("<customer>x</customer><line sku='A-1'/><cash>1.5</cash>"), Ok(()));
    assert_eq!(order("<customer/><line sku='A-1' count='2'/><line sku='B-22'/><card>7</card>"), Ok(()));
    for (wrong, why) in [
        ("<line sku='A-1'/><cash>1</cash>", "an element is missing"),
        ("<line sku='A-1'/><customer/><cash>1</cash>", "the order is wrong"),
        ("<customer/><line/><cash>1</cash>", "an attribute is missing"),
        ("<customer/><line sku='a-1'/><cash>1</cash>", "a pattern fails"),
        ("<customer/><line sku='A-123456'/><cash>1</cash>", "too long"),
        ("<customer/><line sku='A-1' count='0'/><cash>1</cash>", "not positive"),
        ("<customer/><line sku='A-1' size='3'/><cash>1</cash>", "an unknown attribute"),
        ("<customer/><line sku='A-1'/><line sku='A-1'/><line sku='A-1'/><line sku='A-1'/><cash>1</cash>", "too many"),
        ("<customer/><line sku='A-1'/><cash>1</cash><card>1</card>", "both of a choice"),
        ("<customer/><line sku='A-1'/>", "none of a choice"),
        ("<customer/><line sku='A-1'/><cash>much</cash>", "not a decimal"),
        ("<customer/><line sku='A-1'/><cash>1</cash>text", "text between elements"),
    ] {
        let rejection = order(wrong).expect_err(why);
        assert_eq!(rejection.code, -9615, "{why}");
        assert!(rejection.description.contains("//t"), "{}", rejection.description);
    }
    assert!(valid(ORDER, "<order><customer/><line sku='A-1'/><cash>1</cash></order>").is_err(), "another namespace");
    assert!(valid(ORDER, "<order xmlns='urn:order'>").is_err(), "not even well-formed");
}

#[test]
fn a_body_passes_by_any_schema_of_the_collection() {
    let both = format!("{ORDER}\n<!-- and -->\n{NOTE} <!-- the end -->");
    assert_eq!(check_xml_schemas(&both), Ok(()));
    assert_eq!(valid(&both, "<note>2026-02-28</note>"), Ok(()));
    assert_eq!(
        valid(&both, "<o:order xmlns:o='urn:order'><o:customer/><o:line sku='A-1'/><o:cash>1</o:cash></o:order>"),
        Ok(())
    );
    assert!(valid(&both, "<note>2026-02-30</note>").is_err());
    assert!(valid(&both, "<other/>").is_err());
}

/// A quick check may run under a lock, for which others wait while it gives way.
#[test]
fn only_checks_of_full_effort_give_way() {
    let schema = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'><xs:element name='a'><xs:complexType><xs:sequence>\
        <xs:element name='b' maxOccurs='unbounded'/></xs:sequence></xs:complexType></xs:element></xs:schema>";
    let (checks, catalog) = (BodyChecks::new(), catalog(schema));
    let xml = |rows: usize| format!("<a>{}</a>", "<b/>".repeat(rows));
    let json = |rows: usize| format!("[{}]", vec!["0"; rows].join(","));
    for (validation, small, large) in [
        (Validation::WellFormedXml, xml(900), xml(20_000)),
        (Validation::ValidXml { schema_collection: "Orders".into() }, xml(900), xml(20_000)),
        (Validation::JsonSchema { schema: r#"{"items":{"type":"integer"}}"#.into() }, json(1900), json(20_000)),
    ] {
        let of_type = message_type(validation.clone());
        GAVE_WAY.set(0);
        assert_eq!(checks.check(&catalog, &of_type, Some(large.as_bytes())), Ok(()));
        assert!(GAVE_WAY.replace(0) > 0, "{validation:?}");
        assert_eq!(checks.quick_check(&catalog, &of_type, Some(small.as_bytes())), Some(Ok(())), "{validation:?}");
        assert_eq!(GAVE_WAY.get(), 0, "{validation:?}");
    }
}

#[test]
fn no_body_names_an_entity() {
    let schema = "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'><xs:element name='a'><xs:complexType>\
        <xs:attribute name='one' type='xs:ENTITY'/><xs:attribute name='more' type='xs:ENTITIES'/></xs:complexType></xs:element></xs:schema>";
    assert_eq!(valid(schema, "<a/>"), Ok(()));
    for body in ["<a one='x'/>", "<a more='x y'/>"] {
        let why = valid(schema, body).expect_err(body);
        assert!(why.description.contains("entity"), "{}", why.description);
    }
}

#[test]
fn unusable_schemas_are_named() {
    for (text, part) in [
        ("", "no xs:schema"),
        ("<a/>", "root element"),
        ("<schema/>", "root element"),
        ("<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>", ""),
        (
            "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'><xs:import namespace='urn:x'/></xs:schema>",
            "xs:import",
        ),
        ("<!DOCTYPE a><xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'/>", ""),
    ] {
        let why = check_xml_schemas(text).expect_err(text);
        assert!(why.contains(part), "{why}");
    }
    let of_xml = |location: &str| {
        format!(
            "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'><xs:import namespace='http://www.w3.org/XML/1998/namespace'{location}/>\
             <xs:element name='a'><xs:complexType><xs:attribute ref='xml:lang'/></xs:complexType></xs:element></xs:schema>"
        )
    };
    for location in ["", " schemaLocation='http://www.w3.org/2001/xml.xsd'"] {
        assert_eq!(valid(&of_xml(location), "<a xml:lang='de'/>"), Ok(()));
        assert!(
            valid(&of_xml(location), "<a xml:lang='1 2'/>").is_err()
                && valid(&of_xml(location), "<a xml:space='default'/>").is_err()
        );
    }
    let unknown =
        "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'><xs:element name='a' type='nothing'/></xs:schema>";
    let passes = check_xml_schemas(unknown).is_ok() && valid(unknown, "<a>x</a>").is_ok();
    assert!(!passes, "a type that does not exist accepts nothing");
    let second = format!("{NOTE}<a/>");
    assert!(check_xml_schemas(&second).unwrap_err().starts_with("schema 2"));
}

#[test]
fn json_is_one_text_in_utf8() {
    for body in ["{}", " [1, 2.5e3, \"ü\\u00fc\"] ", "null", "\"🚚\""] {
        assert_eq!(verdict(Validation::Json, body.as_bytes()), None, "{body}");
    }
    let cases: &[&[u8]] =
        &[b"{", b"{}{}", b"'a'", b"{a:1}", b"[1,]", b"\"\xff\"", b"nul", b" ", b"\xef\xbb\xbf{}", b"\"\n\""];
    for body in cases {
        assert_eq!(verdict(Validation::Json, body), Some(-8430), "{}", String::from_utf8_lossy(body));
    }
    assert_eq!(verdict(Validation::Json, &utf16le("{}")), Some(-8430));
}

#[test]
fn json_schema_is_obeyed_and_altering_it_takes_effect() {
    let schema = r#"{"type":"object","required":["sku"],"properties":{"sku":{"type":"string","pattern":"^[A-Z]-"},"n":{"type":"integer","minimum":1}}}"#;
    let checks = BodyChecks::new();
    let strict = message_type(Validation::JsonSchema { schema: schema.into() });
    let catalog = Catalog::default();
    assert_eq!(checks.check(&catalog, &strict, Some(br#"{"sku":"A-1","n":2}"#)), Ok(()));
    for body in [r#"{"sku":"A-1","n":0}"#, r#"{"n":1}"#, "[]", "{", r#"{"sku":"a-1"}"#] {
        let rejection = checks.check(&catalog, &strict, Some(body.as_bytes())).unwrap_err();
        assert_eq!(rejection.code, -8430, "{body}");
    }
    let altered = message_type(Validation::JsonSchema { schema: r#"{"type":"array"}"#.into() });
    assert_eq!(checks.check(&catalog, &altered, Some(b"[]")), Ok(()));
    assert!(checks.check(&catalog, &altered, Some(b"{}")).is_err());
    assert!(checks.check(&catalog, &message_type(Validation::Empty), Some(b"[]")).is_err());
}

#[test]
fn json_schema_counts_items_and_members() {
    for (schema, passes, fails) in [
        (r#"{"minItems":2}"#, "[1,2]", "[1]"),
        (r#"{"maxItems":2}"#, "[1,2]", "[1,2,3]"),
        (r#"{"maxItems":0}"#, "[]", "[1]"),
        (r#"{"minProperties":2}"#, r#"{"a":1,"b":2}"#, r#"{"a":1}"#),
        (r#"{"maxProperties":2}"#, r#"{"a":1,"b":2}"#, r#"{"a":1,"b":2,"c":3}"#),
        (r#"{"maxProperties":0}"#, "{}", r#"{"a":1}"#),
        (r#"{"prefixItems":[true,{"type":"null"}],"items":false}"#, "[1,null]", "[1,null,2]"),
    ] {
        let validation = || Validation::JsonSchema { schema: schema.into() };
        assert_eq!(verdict(validation(), passes.as_bytes()), None, "{schema}: {passes}");
        assert_eq!(verdict(validation(), fails.as_bytes()), Some(-8430), "{schema}: {fails}");
    }
}

#[test]
fn a_rejection_by_a_json_schema_names_the_place() {
    let schema = r#"{"properties":{"sizes":{"items":{"type":"integer"}}}}"#;
    let by_schema = message_type(Validation::JsonSchema { schema: schema.into() });
    let why =
        |body: &[u8]| BodyChecks::new().check(&Catalog::default(), &by_schema, Some(body)).unwrap_err().description;
    let secret = why(br#"{"sizes":[1,"secret"]}"#);
    assert!(secret.contains("at /sizes/1:") && secret.contains("integer"), "{secret}");
    assert!(!secret.contains("secret"), "{secret}");
}

#[test]
fn a_rejection_by_a_json_schema_shows_no_value_of_the_body() {
    for (schema, body) in [
        (r#"{"type":"integer"}"#, r#""secret""#),
        (r#"{"enum":[1]}"#, r#""secret""#),
        (r#"{"const":1}"#, r#""secret""#),
        (r#"{"maxLength":3}"#, r#""secret""#),
        (r#"{"pattern":"^x"}"#, r#""secret""#),
        (r#"{"format":"uuid","pattern":"^[0-9a-f-]*$"}"#, r#""secret""#),
        (r#"{"not":{"type":"string"}}"#, r#""secret""#),
        (r#"{"anyOf":[{"type":"integer"},{"type":"null"}]}"#, r#""secret""#),
        (r#"{"uniqueItems":true}"#, r#"["secret","secret"]"#),
        (r#"{"contains":{"type":"integer"}}"#, r#"["secret"]"#),
        (r#"{"prefixItems":[{"type":"integer"}],"items":false}"#, r#"[1,"secret"]"#),
        (r#"{"prefixItems":[{"type":"integer"}],"unevaluatedItems":false}"#, r#"[1,"secret"]"#),
        (r#"{"unevaluatedProperties":false}"#, r#"{"name":"secret"}"#),
        (r#"{"additionalProperties":false}"#, r#"{"name":"secret"}"#),
        (r#"{"dependentRequired":{"name":["other"]}}"#, r#"{"name":"secret"}"#),
        (r#"{"propertyNames":{"maxLength":3}}"#, r#"{"name":"secret"}"#),
    ] {
        let by_schema = message_type(Validation::JsonSchema { schema: schema.into() });
        let checks = BodyChecks::new();
        let why = checks.check(&Catalog::default(), &by_schema, Some(body.as_bytes())).unwrap_err().description;
        assert!(!why.contains("secret"), "{schema}: {why}");
    }
}

#[test]
fn every_validation_but_none_is_checked() {
    for (validation, is_checked) in [
        (Validation::None, false),
        (Validation::Empty, true),
        (Validation::WellFormedXml, true),
        (Validation::Json, true),
    ] {
        assert_eq!(message_type(validation.clone()).is_checked(), is_checked, "{validation:?}");
    }
}

#[test]
fn an_altered_collection_takes_effect() {
    let checks = BodyChecks::new();
    let typed = message_type(Validation::ValidXml { schema_collection: "ORDERS".into() });
    assert_eq!(checks.check(&catalog(NOTE), &typed, Some(b"<note>2026-01-01</note>")), Ok(()));
    assert!(checks.check(&catalog(ORDER), &typed, Some(b"<note>2026-01-01</note>")).is_err());
}

#[test]
fn unusable_json_schemas_are_refused() {
    assert_eq!(check_json_schema("true"), Ok(()));
    assert_eq!(check_json_schema(r##"{"$ref":"#/$defs/a","$defs":{"a":{"type":"string"}}}"##), Ok(()));
    for text in
        ["", "{", r#"{"type":"objekt"}"#, r#"{"pattern":"("}"#, r#"{"$ref":"https://example.com/x.json"}"#, "[]", "7"]
    {
        assert!(check_json_schema(text).is_err(), "{text}");
    }
}

#[test]
fn a_declared_encoding_must_be_the_one_of_the_bytes() {
    let document = |encoding: &str| format!("<?xml version='1.0' encoding = \"{encoding}\" ?><a/>");
    let big_endian = |text: &str| -> Vec<u8> { text.encode_utf16().flat_map(u16::to_be_bytes).collect() };
    for (encoding, [utf8, little, big]) in [
        ("UTF-8", [true, false, false]),
        ("us-ascii", [true, false, false]),
        ("UTF-16", [false, true, true]),
        ("UTF-16LE", [false, true, false]),
        ("UTF-16BE", [false, false, true]),
        ("ISO-10646-UCS-2", [false, true, true]),
    ] {
        let (plain, marked) = (document(encoding), format!("\u{feff}{}", document(encoding)));
        for text in [plain, marked] {
            assert_eq!(xml(text.as_bytes()).is_none(), utf8, "{encoding} as UTF-8");
            assert_eq!(xml(&utf16le(&text)).is_none(), little, "{encoding} as UTF-16LE");
            assert_eq!(xml(&big_endian(&text)).is_none(), big, "{encoding} as UTF-16BE");
        }
    }
    // A body that begins with white space has no declaration, and still its encoding is found.
    for first in [" ", "\t", "\r\n", "\n"] {
        let text = format!("{first}<a>ü</a>");
        assert_eq!((xml(&utf16le(&text)), xml(&big_endian(&text)), xml(text.as_bytes())), (None, None, None));
    }
}

#[test]
fn a_quick_check_reads_bodies_up_to_a_size() {
    let quick = |validation, bytes: usize| {
        let body = format!("<a>{}</a>", " ".repeat(bytes - 7));
        BodyChecks::new().quick_check(&Catalog::default(), &message_type(validation), Some(body.as_bytes()))
    };
    assert_eq!(quick(Validation::WellFormedXml, 4096), Some(Ok(())));
    assert_eq!(quick(Validation::WellFormedXml, 4097), None);
    assert_eq!(quick(Validation::None, 9000), Some(Ok(())));
    assert!(quick(Validation::Empty, 9000).is_some_and(|result| result.is_err()));
}

#[test]
fn steps_grow_with_the_body() {
    assert_eq!(most_steps(0), 1_000_000);
    assert_eq!(most_steps(100), 1_001_600);
}

#[test]
fn a_verdict_counts_while_the_definition_stays() {
    let validation = Validation::ValidXml { schema_collection: "orders".into() };
    let typed = Arc::new(message_type(validation.clone()));
    let checks = BodyChecks::new();
    let notes = catalog(NOTE);
    let reached = Verdict::check(&checks, &notes, &typed, b"<note>2026-01-01</note>");
    let says = |catalog: &Catalog, other: MessageType| reached.under(catalog, &Arc::new(other)).is_some();
    assert_eq!(reached.under(&notes, &typed), Some(&Ok(())));
    assert!(says(&notes, message_type(validation.clone())), "the same definition, read again");
    assert!(!says(&catalog(ORDER), message_type(validation.clone())), "another collection of the same name");
    assert!(!says(&notes, MessageType { id: 1, ..message_type(validation) }), "another type");
    assert!(!says(&notes, message_type(Validation::Json)), "an altered type");
    let refused = Verdict::check(&checks, &notes, &typed, b"<note/>");
    assert!(refused.result().is_err());
    assert_eq!(refused.under(&notes, &typed), Some(refused.result()));
}

#[test]
fn verdicts_are_kept_by_body_and_type_while_they_are_held() {
    let checks = Arc::new(BodyChecks::new());
    let catalog = Catalog::default();
    let xml = Arc::new(message_type(Validation::WellFormedXml));
    let json = Arc::new(MessageType { id: 65537, ..message_type(Validation::Json) });
    let (body, other) = (Arc::new(b"{}".to_vec()), Arc::new(b"<a/>".to_vec()));
    let found = |id: i32, body: &Arc<Vec<u8>>| checks.verdict(id, body).map(|verdict| verdict.result().is_ok());
    let as_xml = checks.pass_judgement(&catalog, &xml, &body);
    let as_json = checks.pass_quick_judgement(&catalog, &json, &body).unwrap();
    let of_other = checks.pass_judgement(&catalog, &xml, &other);
    assert_eq!((found(65536, &body), found(65537, &body), found(65536, &other)), (Some(false), Some(true), Some(true)));
    assert_eq!((found(65537, &other), checks.verdicts_held()), (None, 3));
    let again = checks.pass_judgement(&catalog, &xml, &body);
    drop(as_xml);
    assert_eq!(found(65536, &body), Some(false), "it is still held");
    drop(again);
    assert_eq!((found(65536, &body), checks.verdicts_held()), (None, 2));
    drop((as_json, of_other));
    assert_eq!(checks.verdicts_held(), 0);
}

#[test]
fn only_types_with_a_check_are_looked_up() {
    let mut catalog = Catalog::default();
    for (id, name, validation, is_dropped) in [
        (1, "none", Validation::None, false),
        (2, "empty", Validation::Empty, false),
        (3, "xml", Validation::WellFormedXml, false),
        (4, "dropped", Validation::WellFormedXml, true),
    ] {
        let found = MessageType { id, name: name.into(), is_dropped, ..message_type(validation) };
        catalog.message_types.insert(id, Arc::new(found));
    }
    let types = CheckedTypes::of(&catalog);
    let id = |name: &str| types.get(name).map(|found| found.id);
    assert_eq!((id("none"), id("empty"), id("xml"), id("dropped")), (None, None, Some(3), None));
}

#[test]
fn the_checks_can_move_to_the_thread_that_writes() {
    fn send<T: Send>() {}
    send::<BodyChecks>();
}

#[test]
fn a_text_of_several_documents_ends_with_one_or_with_comments() {
    let documents = |text: &str| super::xml::split_documents(text).map(|documents| documents.len());
    for (text, count) in [
        ("", 0),
        ("<!-- c -->", 0),
        ("<a/>", 1),
        ("<a/> <!-- c --> <!-- d --> ", 1),
        ("<!-- c --><a/><!-- d --><b></b>", 2),
    ] {
        assert_eq!(documents(text), Ok(count), "{text}");
    }
    for text in ["<a", "<a/><b", "<a/>b", "<a/><!-- c --><b", "<a/><!-- c -->b", "<a/><!-- c", "<!-- c --><a></b>"] {
        assert!(documents(text).is_err(), "{text}");
    }
}

/// Most were judged otherwise by the validator before. The right answers are those of libxml2 and of the standard.
#[test]
fn valid_xml_is_judged_as_the_standard_says() {
    const BASE: &str = "<xs:complexType name='B'><xs:sequence><xs:element name='a'/></xs:sequence></xs:complexType>";
    let extends = |content: &str| {
        format!(
            "{BASE}<xs:element name='r'><xs:complexType><xs:complexContent><xs:extension base='B'>{content}</xs:extension>\
             </xs:complexContent></xs:complexType></xs:element>"
        )
    };
    let typed = |content: &str| format!("<xs:element name='r'><xs:complexType>{content}</xs:complexType></xs:element>");
    let simple = |kind: &str| format!("<xs:element name='r'><xs:simpleType>{kind}</xs:simpleType></xs:element>");
    let facets =
        |base: &str, facets: &str| simple(&format!("<xs:restriction base='xs:{base}'>{facets}</xs:restriction>"));
    let group = "<xs:group name='g'><xs:sequence><xs:element name='b'/></xs:sequence></xs:group>";
    let twice = "minOccurs='2' maxOccurs='3'";
    let xsi = "xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance'";
    let nillable = "<xs:element name='r' nillable='true' type='xs:int'/>";
    let (nil, full) = (format!("<r {xsi} xsi:nil='true'/>"), format!("<r {xsi} xsi:nil='true'>1</r>"));
    let of_restrictions = "<xs:simpleType name='A'><xs:restriction base='xs:int'><xs:minInclusive value='0'/></xs:restriction>\
        </xs:simpleType><xs:element name='r'><xs:simpleType><xs:restriction base='A'><xs:maxInclusive value='9'/></xs:restriction>\
        </xs:simpleType></xs:element>";
    let of_items = "<xs:list><xs:simpleType><xs:restriction base='xs:int'><xs:maxInclusive value='9'/></xs:restriction></xs:simpleType></xs:list>";
    let ids = "<xs:sequence><xs:element name='a' maxOccurs='9'><xs:complexType><xs:attribute name='i' type='xs:ID'/></xs:complexType>\
        </xs:element></xs:sequence>";
    let cases: Vec<(String, Vec<&str>, Vec<&str>)> = vec![
        (extends("<xs:attribute name='x'/>"), vec!["<r x='1'><a/></r>"], vec!["<r x='1'><z/></r>", "<r/>"]),
        (
            extends("<xs:choice><xs:element name='b'/><xs:element name='c'/></xs:choice>"),
            vec!["<r><a/><c/></r>"],
            vec!["<r><b/></r>", "<r><a/></r>"],
        ),
        (group.to_owned() + &extends("<xs:group ref='g'/>"), vec!["<r><a/><b/></r>"], vec!["<r><a/></r>"]),
        (
            extends("<xs:sequence maxOccurs='unbounded'><xs:element name='b'/></xs:sequence>"),
            vec!["<r><a/><b/><b/></r>"],
            vec!["<r><b/></r>"],
        ),
        (typed("<xs:group ref='g'/>") + group, vec!["<r><b/></r>"], vec!["<r/>"]),
        (
            typed(&format!("<xs:choice {twice}><xs:element name='a'/><xs:element name='b'/></xs:choice>")),
            vec!["<r><a/><b/></r>"],
            vec!["<r><a/></r>", "<r><a/><a/><a/><a/></r>"],
        ),
        (
            typed("<xs:all minOccurs='0'><xs:element name='a'/><xs:element name='b'/></xs:all>"),
            vec!["<r/>", "<r><b/><a/></r>"],
            vec!["<r><a/></r>"],
        ),
        (typed("<xs:attribute name='x' fixed='1'/>"), vec!["<r/>", "<r x='1'/>"], vec!["<r x='2'/>"]),
        (
            "<xs:attribute name='x' type='xs:int'/>".to_owned() + &typed("<xs:attribute ref='x'/>"),
            vec!["<r x='1'/>"],
            vec!["<r x='p'/>"],
        ),
        ("<xs:complexType name='B' abstract='true'/><xs:element name='r' type='B'/>".to_owned(), vec![], vec!["<r/>"]),
        (of_restrictions.to_owned(), vec!["<r>5</r>"], vec!["<r>-1</r>", "<r>10</r>"]),
        (simple(of_items), vec!["<r>5 6</r>"], vec!["<r>5 10</r>"]),
        (typed(ids), vec!["<r><a i='q'/><a i='w'/></r>"], vec!["<r><a i='q'/><a i='q'/></r>"]),
        (nillable.to_owned(), vec![&nil, "<r>1</r>"], vec![&full, "<r/>"]),
        (simple("<xs:union memberTypes='xs:int xs:boolean'/>"), vec!["<r>1</r>", "<r>true</r>"], vec!["<r>x</r>"]),
        (facets("string", "<xs:maxLength value='5'/>"), vec!["<r>Größe</r>"], vec!["<r>Größen</r>"]),
        (
            facets("string", "<xs:whiteSpace value='collapse'/><xs:maxLength value='2'/>"),
            vec!["<r> ab </r>"],
            vec!["<r>abc</r>"],
        ),
        (
            facets("string", "<xs:pattern value='a'/><xs:pattern value='b'/>"),
            vec!["<r>a</r>", "<r>b</r>"],
            vec!["<r>ab</r>"],
        ),
        (facets("int", "<xs:enumeration value='1'/>"), vec!["<r>01</r>"], vec!["<r>2</r>"]),
        (facets("string", "<xs:enumeration value='a'/>"), vec!["<r>a</r>"], vec!["<r> a</r>"]),
        (facets("decimal", "<xs:totalDigits value='3'/>"), vec!["<r>12.30</r>", "<r>1.</r>"], vec!["<r>12.34</r>"]),
        (facets("NCName", ""), vec!["<r>Größe</r>"], vec!["<r>a b</r>"]),
    ];
    for (schema, right, wrong) in cases {
        let text = format!("<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>{schema}</xs:schema>");
        assert_eq!(check_xml_schemas(&text), Ok(()), "{schema}");
        for body in right {
            assert_eq!(valid(&text, body), Ok(()), "{schema}: {body}");
        }
        for body in wrong {
            assert!(valid(&text, body).is_err(), "{schema}: {body}");
        }
    }
    for refused in [
        "<xs:element name='r' type='Nope'/>",
        "<xs:element name='r' type='xs:nope'/>",
        "<xs:element name='r'><xs:complexType><xs:group ref='nope'/></xs:complexType></xs:element>",
        "<xs:element name='r'><xs:complexType><xs:sequenc/></xs:complexType></xs:element>",
        &facets("int", "<xs:maxLength value='x'/>"),
        &facets("string", "<xs:pattern value='['/>"),
    ] {
        let text = format!("<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>{refused}</xs:schema>");
        assert!(check_xml_schemas(&text).is_err(), "{refused}");
    }
    // DIFFERENCE: the standard lets spaces stand around the value of xsi:nil.
    let text = format!("<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>{nillable}</xs:schema>");
    assert!(valid(&text, &format!("<r {xsi} xsi:nil=' true '/>")).is_err());
    // DIFFERENCE: the standard lets no white space stand in an element without particles.
    let text =
        format!("<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>{}</xs:schema>", typed("<xs:sequence/>"));
    assert_eq!(valid(&text, "<r> </r>"), Ok(()));
}

#[test]
fn only_a_fault_inside_has_a_place() {
    let inside = check_json_schema(r#"{"properties":{"a":{"type":"objekt"}}}"#).unwrap_err();
    assert!(inside.starts_with("at /properties/a"), "{inside}");
    let whole = check_json_schema("7").unwrap_err();
    assert!(!whole.starts_with("at "), "{whole}");
    let of_type = message_type(Validation::JsonSchema { schema: r#"{"type":"integer"}"#.into() });
    let why = BodyChecks::new().check(&Catalog::default(), &of_type, Some(b"\"a\"")).unwrap_err().description;
    assert!(why.contains("JSON Schema: value is not of type"), "{why}");
}

#[test]
fn a_check_may_take_the_most_memory_and_no_more() {
    assert_eq!(check_memory(MOST_MEMORY), Ok(()));
    assert!(check_memory(MOST_MEMORY + 1).is_err());
    let why = check_memory(MOST_MEMORY + (1 << 20)).unwrap_err();
    assert!(why.contains("may take 1025 MiB of memory; the limit is 1024 MiB"), "{why}");
    let of_type = message_type(Validation::JsonSchema { schema: "true".into() });
    let body = "{".repeat(1_700_000);
    let why = BodyChecks::new().check(&Catalog::default(), &of_type, Some(body.as_bytes())).unwrap_err().description;
    assert!(why.contains("of memory"), "it is refused before it is read: {why}");
}

#[test]
fn elements_are_counted_inside_a_constraint_and_digits_in_a_row() {
    let count = |text: &str| super::xml::count(text, |name| (u64::from(name == "u"), Vec::new())).unwrap();
    assert_eq!(count("<r><u><a/></u><b/></r>").parts.found, 2, "the element after it is not inside");
    assert_eq!(count("<r>12a345b</r>").digits, 3);
}
