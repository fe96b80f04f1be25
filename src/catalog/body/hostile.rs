//! Bodies made to cost much. Each must get a verdict; none is timed: without the limits they would take hours.

use super::tests::{check_json_schema, check_xml_schemas};
use super::*;
use crate::catalog::XmlSchemaCollection;

fn verdict(validation: Validation, body: &str) -> Result<(), Rejection> {
    let message_type = MessageType { id: 65536, name: "//t".into(), owner: None, validation, is_dropped: false };
    BodyChecks::new().check(&Catalog::default(), &message_type, Some(body.as_bytes()))
}

fn quick(validation: Validation, body: &str) -> Option<Result<(), Rejection>> {
    let message_type = MessageType { id: 65536, name: "//t".into(), owner: None, validation, is_dropped: false };
    let checks = BodyChecks::new();
    checks.check(&Catalog::default(), &message_type, Some(b"0")).ok();
    checks.quick_check(&Catalog::default(), &message_type, Some(body.as_bytes()))
}

fn by_schema(schema: &str, body: &str) -> Result<(), Rejection> {
    verdict(Validation::JsonSchema { schema: schema.into() }, body)
}

fn by_xsd(schema: &str, body: &str) -> Result<(), Rejection> {
    let mut catalog = Catalog::default();
    let head = r#"<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">"#;
    let schemas = format!("{head}{schema}</xs:schema>");
    assert_eq!(check_xml_schemas(&schemas), Ok(()), "{schema}");
    let collection = XmlSchemaCollection { id: 65536, name: "c".into(), schemas: schemas.into() };
    catalog.xml_schema_collections.insert(65536, Arc::new(collection));
    let validation = Validation::ValidXml { schema_collection: "c".into() };
    let message_type = MessageType { id: 65536, name: "//t".into(), owner: None, validation, is_dropped: false };
    BodyChecks::new().check(&catalog, &message_type, Some(body.as_bytes()))
}

fn why(result: Result<(), Rejection>) -> String {
    result.expect_err("it is beyond a limit").description
}

/// A list in a list, so many deep.
fn nested(depth: usize) -> String {
    "[".repeat(depth) + &"]".repeat(depth)
}

/// Runs on a stack of the size that threads of a runtime have: an overflow would end the process.
fn on_a_small_stack(work: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
fn attributes_of_one_element() {
    for attribute in [" a", " xmlns:a", " x:a"] {
        let attributes: String = (0..120_000).map(|number| format!("{attribute}{number}='urn:{number}'")).collect();
        for body in [format!("<r xmlns:x='urn:x'{attributes}/>"), format!("<r{attributes}")] {
            let why = why(verdict(Validation::WellFormedXml, &body));
            assert!(why.contains("the most that are checked"), "{why}");
        }
    }
    assert!(why(by_xsd("<xs:element name='r'/>", &format!("<r{}/>", " a=''".repeat(2000)))).contains("1024"));
}

#[test]
fn many_elements_with_many_attributes_are_checked() {
    let attributes: String = (0..1000).map(|number| format!(" a{number}=''")).collect();
    let body = format!("<r>{}</r>", format!("<e{attributes}/>").repeat(20));
    assert_eq!(verdict(Validation::WellFormedXml, &body), Ok(()));
}

#[test]
fn recursive_schemas() {
    let twice = |keyword: &str| {
        format!(
            r##"{{"{keyword}":[{{"items":{{"$ref":"#"}},"minItems":2}},{{"items":{{"$ref":"#"}},"minItems":3}}]}}"##
        )
    };
    let mut schemas = vec![twice("anyOf"), twice("oneOf"), twice("allOf")];
    schemas.extend(
        [
            r##"{"not":{"anyOf":[{"items":{"$ref":"#"},"minItems":2},{"items":{"$ref":"#"},"maxItems":0}]}}"##,
            r##"{"if":{"items":{"$ref":"#"},"minItems":2},"then":{"items":{"$ref":"#"}},"else":{"items":{"$ref":"#"},"minItems":3}}"##,
            r##"{"$dynamicAnchor":"n","anyOf":[{"items":{"$dynamicRef":"#n"},"minItems":2},{"items":{"$dynamicRef":"#n"},"minItems":3}]}"##,
            r##"{"anyOf":[{"contains":{"$ref":"#"},"minItems":2},{"contains":{"$ref":"#"},"minItems":3}]}"##,
            r##"{"anyOf":[{"items":{"$ref":"#"},"minItems":2},{"items":{"$ref":"#"},"minItems":3}],"unevaluatedItems":{"$ref":"#"}}"##,
            r##"{"anyOf":[{"prefixItems":[{"$ref":"#"}],"minItems":2},{"prefixItems":[{"$ref":"#"}],"minItems":3}],"unevaluatedItems":false}"##,
            r##"{"$schema":"http://json-schema.org/draft-07/schema#","anyOf":[{"items":{"$ref":"#"},"minItems":2},{"items":{"$ref":"#"},"minItems":3}]}"##,
            r##"{"$schema":"https://json-schema.org/draft/2019-09/schema","$recursiveAnchor":true,"anyOf":[{"items":{"$recursiveRef":"#"},"minItems":2},{"items":{"$recursiveRef":"#"},"minItems":3}]}"##,
            r##"{"$defs":{"a":{"anyOf":[{"items":{"$ref":"#/$defs/b"},"minItems":2},{"items":{"$ref":"#/$defs/b"},"minItems":3}]},"b":{"oneOf":[{"items":{"$ref":"#/$defs/a"},"minItems":2},{"items":{"$ref":"#/$defs/a"},"minItems":3}]}},"$ref":"#/$defs/a"}"##,
        ]
        .map(str::to_owned),
    );
    on_a_small_stack(move || {
        for schema in schemas {
            for depth in [22, 44, 100, 120] {
                assert!(by_schema(&schema, &nested(depth)).is_err() || schema.contains("not"), "{schema}");
            }
        }
    });
}

/// Without the limits, the stack overflows and the process ends.
#[test]
fn references_in_a_row() {
    let in_a_row = |links: usize, last: &str| {
        let link = |number| format!(r##""a{number}":{{"allOf":[{{"$ref":"#/%24defs/a{}"}}]}}"##, number + 1);
        let links_of_it: Vec<String> = (0..links).map(link).collect();
        format!(r##"{{"$defs":{{{},"a{links}":{last}}},"$ref":"#/$defs/a0"}}"##, links_of_it.join(","))
    };
    on_a_small_stack(move || {
        for (links, most) in [(7, 127), (31, 32), (120, 8)] {
            let schema = in_a_row(links, r##"{"maxItems":1,"items":{"$ref":"#/$defs/a0"}}"##);
            assert_eq!(by_schema(&schema, &nested(most)), Ok(()), "{links} links");
            let wrong = "[".repeat(most) + "1,2" + &"]".repeat(most);
            let why_wrong = why(by_schema(&schema, &wrong));
            assert!(why_wrong.contains("too deep to name the fault"), "{links} links: {why_wrong}");
            let wrong = "[".repeat(most / 2) + "1,2" + &"]".repeat(most / 2);
            let why_wrong = why(by_schema(&schema, &wrong));
            assert!(why_wrong.contains("more than 1 item"), "{links} links: {why_wrong}");
            if most < 127 {
                let why_deep = why(by_schema(&schema, &nested(127)));
                assert!(why_deep.contains(&format!("for that schema {most} is the most")), "{why_deep}");
            }
        }
        assert_eq!(check_json_schema(&in_a_row(120, "{}")), Ok(()));
        for endless in [
            in_a_row(30_000, "{}"),
            r##"{"$ref":"#"}"##.to_owned(),
            r##"{"$defs":{"a":{"$anchor":"n","not":{"$ref":"#n"}}}}"##.to_owned(),
        ] {
            let refused = check_json_schema(&endless).unwrap_err();
            assert!(refused.contains("circle"), "{refused}");
        }
    });
}

/// To name the fault takes more of the stack than to find it.
#[test]
fn faults_under_alternatives_in_a_row() {
    let link = |number| format!(r##""a{number}":{{"oneOf":[{{"$ref":"#/$defs/a{}"}},{{"const":77}}]}}"##, number + 1);
    let links: Vec<String> = (0..7).map(link).collect();
    let last = r##"{"maxItems":1,"items":{"$ref":"#/$defs/a0"}}"##;
    let schema = format!(r##"{{"$defs":{{{},"a7":{last}}},"$ref":"#/$defs/a0"}}"##, links.join(","));
    on_a_small_stack(move || {
        for (depth, named) in [(10, "'oneOf'"), (60, "'oneOf'"), (127, "too deep to name the fault")] {
            assert_eq!(by_schema(&schema, &nested(depth)), Ok(()));
            let wrong = "[".repeat(depth) + "1,2" + &"]".repeat(depth);
            let why_wrong = why(by_schema(&schema, &wrong));
            assert!(why_wrong.contains(named), "{depth} deep: {why_wrong}");
        }
    });
}

/// A reference means the schema of its whole URI, not every one whose URI ends alike.
#[test]
fn references_between_schemas_of_one_document() {
    let bundle = |id: &str, to: &str, base_id: &str, base: &str| {
        format!(r##"{{"$id":"{id}","allOf":[{{"$ref":"{to}"}}],"$defs":{{"base":{{"$id":"{base_id}",{base}}}}}}}"##)
    };
    let (order, base) = ("https://example.com/order/v1", "https://example.com/base/v1");
    let is_object = r#""type":"object""#;
    for usable in [
        bundle(order, base, base, is_object),
        bundle(order, "../base/v1", "../base/v1", is_object),
        bundle(order, "/base/v1#", "/base/v1", is_object),
        bundle(order, "../base/v1#/$defs/it", "/base/v1", r#""$defs":{"it":{"type":"object"}}"#),
        bundle(order, "/base/v1#it", "/base/v1", r#""$defs":{"it":{"$anchor":"it","type":"object"}}"#),
        bundle(order, "#/$defs/base", "/base/v1", r##""$ref":"#/$defs/base","$defs":{"base":{"type":"object"}}"##),
        r#"{"$id":"https://example.com/order/schema","allOf":[{"$ref":"https://json-schema.org/draft/2020-12/schema"}],"type":"object"}"#
            .to_owned(),
    ] {
        assert_eq!(check_json_schema(&usable), Ok(()), "{usable}");
        assert_eq!(by_schema(&usable, "{}"), Ok(()), "{usable}");
        assert!(by_schema(&usable, "1").is_err(), "{usable}");
    }
    let back = |to: &str| format!(r#""not":{{"$ref":"{to}"}}"#);
    for endless in [
        bundle(order, base, base, &back("../order/v1")),
        bundle(order, "/base/v1#it", base, &format!(r#""$defs":{{"it":{{"$anchor":"it",{}}}}}"#, back("#it"))),
        bundle(order, "/base/v1", "../base/v1", &back("/order/v1#")),
        r#"{"$schema":"http://json-schema.org/draft-04/schema#","id":"http://x/a","allOf":[{"$ref":"/a"}]}"#.to_owned(),
    ] {
        let refused = check_json_schema(&endless).unwrap_err();
        assert!(refused.contains("circle"), "{endless}: {refused}");
    }
}

#[test]
fn recursion_over_properties() {
    let schema = r##"{"anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["b"]},{"properties":{"a":{"$ref":"#"}},"required":["c"]},
        {"additionalProperties":{"$ref":"#"},"required":["d"]},{"patternProperties":{"^a":{"$ref":"#"}},"required":["e"]},
        {"unevaluatedProperties":{"$ref":"#"},"required":["f"]},{"dependentSchemas":{"a":{"$ref":"#"}},"required":["g"]}]}"##;
    let body = r#"{"a":"#.repeat(100) + "1" + &"}".repeat(100);
    on_a_small_stack(move || {
        let _either_verdict = by_schema(schema, &body);
    });
}

#[test]
fn a_check_beyond_its_steps_names_the_limit() {
    // 2,000 alternatives for each of 10,000 items are 20 million accesses, and the limit is not much above one.
    let alternatives: Vec<String> = (0..2000).map(|number| format!(r#"{{"maximum":{number},"minimum":1}}"#)).collect();
    let schema = format!(r#"{{"items":{{"anyOf":[{}]}}}}"#, alternatives.join(","));
    assert_eq!(by_schema(&schema, "[1,1999]"), Ok(()));
    assert_eq!(quick(Validation::JsonSchema { schema: schema.clone() }, "[1,2,3]"), Some(Ok(())));
    let many = format!("[{}]", vec!["1999"; 10_000].join(","));
    let why = why(by_schema(&schema, &many));
    assert!(why.contains("steps, the limit for a body of"), "{why}");
    let some = format!("[{}]", vec!["1999"; 700].join(","));
    assert_eq!(quick(Validation::JsonSchema { schema }, &some), None, "not where others wait");
}

#[test]
fn long_enumerations_are_no_reason_to_refuse_a_long_body() {
    let numbers: Vec<String> = (0..2000).map(|number| number.to_string()).collect();
    let schema = format!(r#"{{"items":{{"enum":[{}]}}}}"#, numbers.join(","));
    let body = |number: u32| format!("[{}{number}]", "1999,".repeat(10_000));
    assert_eq!(by_schema(&schema, &body(7)), Ok(()));
    assert!(by_schema(&schema, &body(2000)).is_err());
}

#[test]
fn items_that_hash_alike() {
    let schema = r#"{"uniqueItems":true}"#;
    // All nestings of empty lists, in the order of their size: a million of them have one hash in a usual validator.
    let mut shapes = vec![vec!["[]".to_owned()]];
    for size in 1..10 {
        let mut of_size = Vec::new();
        for first in 0..size {
            for head in &shapes[first] {
                for rest in &shapes[size - 1 - first] {
                    let inside = &rest[1..rest.len() - 1];
                    of_size.push(if inside.is_empty() { format!("[{head}]") } else { format!("[{head},{inside}]") });
                }
            }
        }
        shapes.push(of_size);
    }
    let all: Vec<String> = shapes.into_iter().flatten().collect();
    assert!(all.len() > 6000, "{}", all.len());
    assert_eq!(by_schema(schema, &format!("[{}]", all.join(","))), Ok(()));
    // 50,000 integers that one float stands for, or few.
    let numbers: Vec<String> = (0..50_000).map(|number| (u64::MAX - number).to_string()).collect();
    assert_eq!(by_schema(schema, &format!("[{}]", numbers.join(","))), Ok(()));
    let twice = format!("[{},{}]", numbers.join(","), u64::MAX);
    assert!(by_schema(schema, &twice).is_err());
}

#[test]
fn patterns_that_step_back() {
    for pattern in ["^(?=(a+)+$)b", "^(a+)+$", r"^(a|a)*\1$", "^(?!(a*)*b)"] {
        let schema = format!(r#"{{"items":{{"pattern":"{}"}}}}"#, pattern.replace('\\', r"\\"));
        let body = format!("[{}]", vec![format!("\"{}c\"", "a".repeat(40)); 20].join(","));
        let _either_verdict = by_schema(&schema, &body);
    }
}

/// Each took hours for some megabytes.
#[test]
fn patterns_of_a_body_and_for_a_long_text() {
    let old = r#"{"$schema":"http://json-schema.org/draft-07/schema#","format":"regex"}"#;
    let names = |count: usize| (0..count).map(|number| format!("(?<n{number}>a)")).collect::<String>();
    assert_eq!(by_schema(old, &format!("\"{}\"", names(500))), Ok(()));
    assert!(by_schema(old, &format!("\"{}(?<n7>b)\"", names(500))).is_err(), "a name stands twice");
    assert_eq!(by_schema(r#"{"format":"regex"}"#, "\"(\""), Ok(()), "later drafts note it only");
    let slow = r#"{"pattern":"^(.*[a-z].{3000}b)?.*x$"}"#;
    assert_eq!(by_schema(slow, r#""abx""#), Ok(()));
    let of_names = why(by_schema(old, &format!("\"{}\"", names(200_000))));
    assert!(of_names.contains("steps, the limit for a body of"), "{of_names}");
    let far = r#"{"pattern":"(?=.*[A-Z])(?=.*[0-9]).{8,}"}"#;
    let names_far = r#"{"patternProperties":{"(?=.*[A-Z]).{8,}":true}}"#;
    assert_eq!(by_schema(far, r#""passwordA1""#), Ok(()));
    let of_far = why(by_schema(far, &format!("\"{}\"", "a".repeat(5_000))));
    assert!(of_far.contains("steps, the limit"), "{of_far}");
    assert!(why(by_schema(far, r#""password""#)).contains("does not match"));
    let beside = r#"{"properties":{"password":{"pattern":"(?=.*[0-9]).{8,}"},"note":{"pattern":"^a*$"}}}"#;
    let note = "a".repeat(1_000_000);
    assert_eq!(by_schema(beside, &format!(r#"{{"password":"passwor1","note":"{note}"}}"#)), Ok(()));
    for (schema, text) in [(slow, format!("\"{}\"", "aé".repeat(6_000_000))), (names_far, format!("{{\"{note}\":1}}"))]
    {
        let of_text = why(by_schema(schema, &text));
        assert!(of_text.contains(if cfg!(unix) { "takes too long" } else { "steps, the limit" }), "{of_text}");
    }
}

/// Patterns that may be slow for some text, and are not: no body is refused for them, nor for its other texts.
#[cfg(unix)]
#[test]
fn usual_patterns_and_many_texts() {
    let patterns = [
        r"^[\w.+-]{1,64}@[\w.-]{1,255}$",
        r"^[\w.-]+@[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)*$",
        r"^[-a-z0-9@:%._+~#=]{1,256}\.[a-z]{1,6}([-a-z0-9()@:%_+.~#?&/=]*)$",
    ];
    let (mail, note) = ("first.and.last.name@mail.example.com", "words ".repeat(20));
    for pattern in patterns.map(|pattern| pattern.replace('\\', r"\\")) {
        let schema = format!(
            r#"{{"properties":{{"rows":{{"items":{{"properties":{{"mail":{{"pattern":"{pattern}"}},"note":{{"maxLength":200}}}}}}}},"text":{{"type":"string"}}}}}}"#
        );
        let rows = vec![format!(r#"{{"mail":"{mail}","note":"{note}"}}"#); 5000].join(",");
        let body = format!(r#"{{"rows":[{rows}],"text":"{}"}}"#, "x".repeat(1 << 20));
        assert_eq!(by_schema(&schema, &body), Ok(()), "{pattern}");
        let wrong = body.replacen(mail, "no at", 2000).replacen("no at", mail, 1999);
        assert!(
            why(by_schema(&schema, &wrong)).contains("at /rows/1999/mail: "),
            "{}",
            why(by_schema(&schema, &wrong))
        );
    }
    let schema = "<xs:element name='r'><xs:complexType><xs:sequence><xs:element name='mail' maxOccurs='unbounded'><xs:simpleType>\
                  <xs:restriction base='xs:string'><xs:pattern value='[\\w.\\-]{1,64}@[\\w.\\-]{1,255}'/></xs:restriction></xs:simpleType>\
                  </xs:element></xs:sequence></xs:complexType></xs:element>";
    assert_eq!(by_xsd(schema, &format!("<r>{}</r>", format!("<mail>{mail}</mail>").repeat(5000))), Ok(()));
}

#[test]
fn large_values() {
    assert!(by_schema(r#"{"multipleOf":0.01}"#, &format!("1{}", "0".repeat(1_000_000))).is_err());
    assert_eq!(by_schema(r#"{"maxLength":3000000}"#, &format!("\"{}\"", "ü".repeat(1_000_000))), Ok(()));
    assert!(by_schema(r#"{"items":{"minLength":1}}"#, &format!("[{}]", vec!["\"\""; 100_000].join(","))).is_err());
    let keys: Vec<String> = (0..100_000).map(|number| format!("\"k{number}\":{number}")).collect();
    assert_eq!(by_schema(r#"{"propertyNames":{"pattern":"^k"}}"#, &format!("{{{}}}", keys.join(","))), Ok(()));
    let regex = format!("\"{}\"", "(".repeat(300_000));
    let old = r#"{"$schema":"http://json-schema.org/draft-07/schema#","format":"regex"}"#;
    on_a_small_stack(move || {
        let _either_verdict = by_schema(old, &regex);
    });
}

#[test]
fn faults_in_each_of_many_elements() {
    let schema = "<xs:element name='r'><xs:complexType><xs:sequence><xs:element name='n' type='xs:int' maxOccurs='unbounded'/>\
                  </xs:sequence></xs:complexType></xs:element>";
    let body = format!("<r>{}</r>", "\n<n>x</n>".repeat(200_000));
    assert!(why(by_xsd(schema, &body)).contains('x'));
    let one = why(by_xsd(schema, "<r>\n<n>x</n></r>"));
    assert!(one.contains("/r[1]/n[1]"), "{one}");
}

#[test]
fn identity_constraints_over_many_rows() {
    let schema = "<xs:element name='r'><xs:complexType><xs:sequence><xs:element name='n' maxOccurs='unbounded'><xs:complexType>\
                  <xs:attribute name='id' type='xs:string'/></xs:complexType></xs:element></xs:sequence></xs:complexType>\
                  <xs:unique name='u'><xs:selector xpath='.//n'/><xs:field xpath='@id'/></xs:unique></xs:element>";
    let rows: String = (0..50_000).map(|number| format!("<n id='{number}'/>")).collect();
    assert_eq!(by_xsd(schema, &format!("<r>{rows}</r>")), Ok(()));
    assert!(by_xsd(schema, &format!("<r>{rows}<n id='7'/></r>")).is_err());
}

#[test]
fn an_element_that_many_particles_match() {
    // Not deterministic: the standard refuses it, and to try each particle doubles the work with each level.
    let schema = "<xs:complexType name='t'><xs:sequence><xs:sequence minOccurs='0'><xs:element name='a' type='t'/>\
                  <xs:element name='b'/></xs:sequence><xs:element name='a' type='t' minOccurs='0'/></xs:sequence>\
                  </xs:complexType><xs:element name='a' type='t'/>";
    let schemas = format!("<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>{schema}</xs:schema>");
    let refused = check_xml_schemas(&schemas).unwrap_err();
    assert!(refused.contains("cos-nonambig"), "{refused}");
    let body = |depth: usize| "<a>".repeat(depth) + &"</a>".repeat(depth);
    // A recursive type is checked at any depth.
    let schema = "<xs:complexType name='t'><xs:choice minOccurs='0' maxOccurs='unbounded'><xs:element name='a' type='t'/>\
                  <xs:sequence><xs:element name='b' type='t'/><xs:element name='c'/></xs:sequence></xs:choice>\
                  </xs:complexType><xs:element name='a' type='t'/>";
    assert_eq!(by_xsd(schema, &body(100)), Ok(()));
}

/// A server takes a verdict of 10,000 characters, and a name in a description may be as long as the body.
#[test]
fn descriptions_have_an_end() {
    let name = "é".repeat(20_000);
    let schema = r#"{"type": "object", "additionalProperties": false}"#;
    for result in [
        verdict(Validation::WellFormedXml, &format!("<{name}></b>")),
        by_xsd("<xs:element name='r'/>", &format!("<{name}/>")),
        by_schema(schema, &format!("{{\"{name}\": 1}}")),
    ] {
        let why = why(result);
        let length = why.chars().count();
        assert!(length <= MOST_DESCRIBED + 3, "{length} characters");
        assert!(why.starts_with("the body of a message of type '//t'"), "{}", &why[..60]);
    }
}

/// A realistic invoice: deep, with repeated names, and with a place for any extension.
#[test]
fn a_wildcard_in_one_type_is_no_reason_to_refuse_the_others() {
    let schema = "<xs:element name='r' type='party'/>
        <xs:complexType name='extension'><xs:sequence><xs:sequence minOccurs='0' maxOccurs='unbounded'>
            <xs:any processContents='lax'/></xs:sequence></xs:sequence></xs:complexType>
        <xs:complexType name='party'><xs:sequence>
            <xs:element name='extension' type='extension' minOccurs='0'/>
            <xs:element name='name' type='xs:string' minOccurs='0' maxOccurs='unbounded'/>
            <xs:element name='party' type='party' minOccurs='0' maxOccurs='unbounded'/>
        </xs:sequence></xs:complexType>";
    let party = "<extension><x xmlns='urn:x'/></extension><name>a</name><name>b</name>";
    let body = (0..60).fold(String::new(), |inner, _| format!("{party}<party>{inner}</party>"));
    assert_eq!(by_xsd(schema, &format!("<r>{body}</r>")), Ok(()));
}

#[test]
fn many_small_documents_in_one_collection() {
    let why = check_xml_schemas(&"<a/>".repeat(200_000)).unwrap_err();
    assert!(why.starts_with("schema 1:"), "{why}");
}

/// A schema of some kilobytes that needs more memory than there is, or years.
#[test]
fn groups_that_refer_to_one_another_many_times() {
    for (kind, leaf) in [("group", "<xs:element name='a'/>"), ("attributeGroup", "<xs:attribute name='a'/>")] {
        let inside = |content: &str| match kind {
            "group" => format!("<xs:sequence>{content}</xs:sequence>"),
            _ => content.to_owned(),
        };
        let group = |number: u32, content: &str| format!("<xs:{kind} name='g{number}'>{}</xs:{kind}>", inside(content));
        let refers = |number: u32| format!("<xs:{kind} ref='g{number}'/>");
        let in_type = |number: u32| format!("<xs:complexType name='t'>{}</xs:complexType>", inside(&refers(number)));
        let of_levels = |levels: u32| -> String {
            let groups = (1..=levels).map(|level| group(level, &refers(level - 1).repeat(10)));
            group(0, leaf) + &groups.collect::<String>() + &in_type(levels)
        };
        let check = |schema: &str| {
            check_xml_schemas(&format!("<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>{schema}</xs:schema>"))
        };
        assert_eq!(check(&of_levels(2)), Ok(()));
        let why = check(&of_levels(12)).unwrap_err();
        assert!(why.contains(["units of work", "alternatives or attributes"][usize::from(kind != "group")]), "{why}");
    }
    let itself = "<xs:group name='g'><xs:sequence><xs:group ref='g'/><xs:group ref='g'/><xs:group ref='g'/></xs:sequence></xs:group>";
    let in_type = "<xs:complexType name='t'><xs:sequence><xs:group ref='g'/></xs:sequence></xs:complexType>";
    let schemas = format!("<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>{itself}{in_type}</xs:schema>");
    assert!(check_xml_schemas(&schemas).unwrap_err().contains("contains itself"));
}

/// An element in itself, so many deep, with so much around it at each level.
fn elements_in_groups(kind: &str, groups: usize) -> String {
    let (open, close) = (format!("<xs:{kind}>").repeat(groups), format!("</xs:{kind}>").repeat(groups));
    format!(
        "<xs:element name='r'><xs:complexType>{open}<xs:element ref='r' minOccurs='0'/>{close}</xs:complexType></xs:element>"
    )
}

#[test]
fn deep_elements_in_nested_model_groups() {
    let body = |depth: usize, inmost: &str| "<r>".repeat(depth) + inmost + &"</r>".repeat(depth);
    on_a_small_stack(move || {
        for kind in ["sequence", "choice"] {
            for groups in [5, 13, 61, 110] {
                let schema = elements_in_groups(kind, groups);
                assert_eq!(by_xsd(&schema, &body(128, "")), Ok(()), "{groups} of {kind}");
                let why_wrong = why(by_xsd(&schema, &body(127, "<q/>")));
                assert!(why_wrong.contains("'q'"), "{groups} of {kind}: {why_wrong}");
            }
        }
    });
}

#[test]
fn groups_in_groups() {
    let in_group = |number: usize| {
        let inside = format!("<xs:sequence><xs:group ref='g{}'/></xs:sequence>", number - 1);
        format!("<xs:group name='g{number}'>{inside}</xs:group>")
    };
    let check = move |most: usize, body: &str| {
        let groups: String = (1..=most).map(in_group).collect();
        let schema = format!(
            "<xs:group name='g0'><xs:sequence><xs:element ref='r' minOccurs='0'/></xs:sequence></xs:group>{groups}\
             <xs:element name='r'><xs:complexType><xs:sequence><xs:group ref='g{most}'/></xs:sequence></xs:complexType></xs:element>"
        );
        let schemas = format!("<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>{schema}</xs:schema>");
        check_xml_schemas(&schemas).map(|()| by_xsd(&schema, body))
    };
    let body = "<r>".repeat(120) + &"</r>".repeat(120);
    on_a_small_stack(move || {
        assert_eq!(check(50, &body), Ok(Ok(())));
        let refused = check(4000, &body).unwrap_err();
        assert!(refused.contains("max_depth"), "{refused}");
    });
}

/// Without a bound, each of these takes from seconds to minutes to compile.
#[test]
fn types_and_elements_in_long_chains() {
    let extends = |number: u32| {
        let base = number - 1;
        format!(
            "<xs:complexType name='t{number}'><xs:complexContent><xs:extension base='t{base}'><xs:sequence>\
             <xs:element name='a{number}'/></xs:sequence></xs:extension></xs:complexContent></xs:complexType>"
        )
    };
    let substitutes = |number: u32| format!("<xs:element name='e{number}' substitutionGroup='e{}'/>", number - 1);
    let optional = |number: u32| format!("<xs:sequence minOccurs='0'><xs:element name='b{number}'/></xs:sequence>");
    let typed = |number: u32| format!("<xs:element name='c{number}' type='wide'/>");
    let of = |most: u32, each: &dyn Fn(u32) -> String| (1..=most).map(each).collect::<String>();
    let chain_of_types = |most| "<xs:complexType name='t0'/>".to_owned() + &of(most, &extends);
    let chain_of_elements = |most| "<xs:element name='e0' type='xs:int'/>".to_owned() + &of(most, &substitutes);
    let content = |number: u32| {
        let base = number - 1;
        format!(
            "<xs:complexType name='s{number}'><xs:simpleContent><xs:extension base='s{base}'/></xs:simpleContent></xs:complexType>"
        )
    };
    let of_text = "<xs:complexType name='s0'><xs:simpleContent><xs:extension base='xs:string'/></xs:simpleContent></xs:complexType>";
    let chain_of_texts = |most| of_text.to_owned() + &of(most, &content);
    let wide = |most| {
        let content = of(most, &optional);
        format!("<xs:complexType name='wide'><xs:sequence>{content}</xs:sequence></xs:complexType>{}", of(most, &typed))
    };
    let check = |schema: String| {
        check_xml_schemas(&format!("<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>{schema}</xs:schema>"))
    };
    for usable in [chain_of_types(100), chain_of_texts(100), chain_of_elements(100), wide(500)] {
        assert_eq!(check(usable), Ok(()));
    }
    for (what, schema) in [
        ("max_depth", chain_of_types(150)),
        ("max_depth", chain_of_texts(20_000)),
        ("max_depth", chain_of_elements(600)),
        ("units of work", chain_of_types(4000)),
        ("units of work", wide(2000)),
    ] {
        let why = check(schema).expect_err(what);
        assert!(why.contains(what), "{what}: {why}");
    }
}

/// The description goes to a server as a text, and PostgreSQL takes no text with a NUL.
#[test]
fn a_description_holds_no_nul() {
    let schema = r#"{"additionalProperties": {"type": "object"}}"#;
    let why = why(by_schema(schema, r#"{"a\u0000b": 1}"#));
    assert!(why.contains("at /a\u{fffd}b:"), "{why:?}");
}

/// Each takes more than a gigabyte in a validator that keeps what it has seen.
#[test]
fn many_small_elements_and_values() {
    let elements = |count: usize| format!("<r>{}</r>", "<n/>".repeat(count));
    let unique = "<xs:element name='r'><xs:unique name='u'><xs:selector xpath='n'/><xs:field xpath='@i'/></xs:unique></xs:element>";
    let json = format!("[{}0]", "{\"\":0},".repeat(1_300_000));
    for why in [why(by_xsd(unique, &elements(2_700_000))), why(by_schema("{}", &json))] {
        assert!(why.contains("of memory; the limit is 1024 MiB"), "{why}");
    }
    assert_eq!(by_xsd("<xs:element name='r'/>", &elements(200_000)), Ok(()), "nothing is kept");
    assert_eq!(verdict(Validation::WellFormedXml, &elements(1_800_000)), Ok(()));
    assert_eq!(verdict(Validation::Json, &json), Ok(()), "without a tree");
}

#[test]
fn identity_constraints_at_each_level() {
    let schema = "<xs:element name='folder' type='folder'><xs:unique name='u'><xs:selector xpath='.//file'/><xs:field xpath='@id'/>\
                  </xs:unique></xs:element><xs:complexType name='folder'><xs:sequence>\
                  <xs:element name='file' minOccurs='0' maxOccurs='unbounded'><xs:complexType><xs:attribute name='id'/>\
                  </xs:complexType></xs:element><xs:element ref='folder' minOccurs='0' maxOccurs='unbounded'/></xs:sequence>\
                  </xs:complexType>";
    let body = |depth: usize, files: usize| {
        let files: String = (0..files).map(|number| format!("<file id='{number}'/>")).collect();
        format!("{}{files}{}", "<folder>".repeat(depth), "</folder>".repeat(depth))
    };
    assert_eq!(by_xsd(schema, &body(10, 2000)), Ok(()));
    assert_eq!(by_xsd(schema, &body(120, 100)), Ok(()));
    let why = why(by_xsd(schema, &body(120, 2000)));
    assert!(why.contains("steps"), "{why}");
}

/// The validator has one hash for all dates: a unique constraint over 10,000 of them took 12 s.
#[test]
fn rows_that_are_compared_one_by_one() {
    let unique = |fields: &str| {
        format!(
            "<xs:element name='r'><xs:complexType><xs:sequence><xs:element name='n' maxOccurs='unbounded'><xs:complexType>\
             <xs:attribute name='at' type='moment'/><xs:attribute name='of' type='xs:string'/></xs:complexType></xs:element>\
             </xs:sequence></xs:complexType><xs:unique name='u'><xs:selector xpath='n'/>{fields}</xs:unique></xs:element>\
             <xs:simpleType name='moment'><xs:restriction base='xs:dateTime'/></xs:simpleType>"
        )
    };
    let rows = |count: usize| -> String {
        (0..count)
            .map(|row| {
                format!("<n of='{row}' at='2026-01-01T{:02}:{:02}:{:02}Z'/>", row / 3600, row / 60 % 60, row % 60)
            })
            .collect()
    };
    let body = |count: usize| format!("<r>{}</r>", rows(count));
    let (by_time, by_both) = ("<xs:field xpath='@at'/>", "<xs:field xpath='@of'/><xs:field xpath='@at'/>");
    assert_eq!(by_xsd(&unique(by_time), &body(500)), Ok(()));
    assert!(by_xsd(&unique(by_time), &body(500).replace("</r>", "<n at='2026-01-01T00:00:07Z'/></r>")).is_err());
    let why = why(by_xsd(&unique(by_time), &body(20_000)));
    assert!(why.contains("steps"), "{why}");
    assert_eq!(by_xsd(&unique(by_both), &body(20_000)), Ok(()), "the texts have hashes");
}

/// Each class calls the compiler of patterns: the stack overflowed, and the process ended.
#[test]
fn classes_in_classes() {
    on_a_small_stack(|| {
        for (open, close) in [("[a-z-", "]"), ("(", ")")] {
            let pattern = |deep: usize| format!("{}[b]{}", open.repeat(deep), close.repeat(deep));
            let schema = |deep: usize| {
                format!(
                    "<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'><xs:simpleType name='s'><xs:restriction base='xs:string'>\
                     <xs:pattern value='{}'/></xs:restriction></xs:simpleType></xs:schema>",
                    pattern(deep)
                )
            };
            assert_eq!(check_xml_schemas(&schema(60)), Ok(()), "{open}");
            let why = check_xml_schemas(&schema(100_000)).unwrap_err();
            assert!(why.contains("in one another; the limit is 100"), "{why}");
        }
    });
}

/// Each is short enough; together they took a second for 4 KB.
#[test]
fn many_patterns_that_repeat() {
    let schema = |count: usize| {
        let patterns: String =
            (0..count).map(|number| format!("<xs:pattern value='(.*[a-z].{{180}}b)?.*{number}'/>")).collect();
        format!(
            "<xs:element name='r'><xs:simpleType><xs:restriction base='xs:string'>{patterns}</xs:restriction></xs:simpleType></xs:element>"
        )
    };
    let body = format!("<r>{}0</r>", "aé".repeat(10_000));
    assert_eq!(by_xsd(&schema(1), &body), Ok(()));
    let why = why(by_xsd(&schema(80), &format!("<r>{}0</r>", "aé".repeat(1_000_000))));
    assert!(why.contains("steps"), "{why}");
}

#[test]
fn the_fault_of_a_pattern_is_named_and_one_that_is_not_found_out_counts_as_none() {
    let far = r#"{"properties":{"a":{"pattern":"(?=.*[A-Z])(?=.*[0-9]).{8,}"},"b":{"type":"integer"}}}"#;
    let of_pattern = why(by_schema(far, r#"{"a":"password","b":1}"#));
    assert!(of_pattern.contains(r#"at /a: value does not match "(?=.*[A-Z])"#), "{of_pattern}");
    let of_type = why(by_schema(far, r#"{"a":"passwordA1","b":"x"}"#));
    assert!(of_type.contains("at /b: value is not of type"), "{of_type}");
    // It may match or not, so that its opposite does not hold either.
    let opposite = r#"{"not":{"pattern":"^(?:(?=.)a|(?=[a-c])a)*$"}}"#;
    let undecided = why(by_schema(opposite, &format!("\"{}c\"", "a".repeat(40))));
    assert!(undecided.contains("backtracking"), "{undecided}");
}

/// It counted as no match, and `not` made a pass of it.
#[test]
fn a_match_that_is_not_found_out_passes_nothing_beside_a_pattern_that_looks_far() {
    let deny = r#"{"not":{"pattern":"(?=.*b)(?:(?=.)a|(?=[a-c])a)*bc"}}"#;
    let undecided = why(by_schema(deny, &format!("\"{}bdabc\"", "a".repeat(40))));
    assert!(undecided.contains("takes too long"), "{undecided}");
    assert_eq!(by_schema(deny, "\"abd\""), Ok(()));
}

#[test]
fn a_slow_pattern_is_not_tried_where_others_wait() {
    let slow = || Validation::JsonSchema { schema: r#"{"pattern":"^(.*[a-z].{3000}b)?.*x$"}"#.into() };
    assert_eq!(quick(slow(), r#""abx""#), Some(Ok(())));
    assert_eq!(quick(slow(), &format!("\"{}x\"", "aé".repeat(800))), None);
}
