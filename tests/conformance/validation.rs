//! Bodies at their destination: what passes, what comes back as an Error.

use crate::rig::Text;
use dialoq::{Act, Code};

/// UTF-16LE with a byte-order mark, as a server's own XML travels.
fn utf16(text: &str) -> Vec<u8> {
    std::iter::once(0xFEFF).chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

case!(well_formed_xml, [85, 87], async |t| {
    let good: Vec<Vec<u8>> = vec![
        b"<a/>".to_vec(),
        "<?xml version=\"1.0\"?>\n<order id='1'><!-- x --><b>&lt;&#x20AC;</b></order>".into(),
        "<grüße>🚚</grüße>".into(),
        utf16("<a>grüße</a>"),
        b"<a xmlns=\"urn:x\" xmlns:y=\"urn:y\" y:b=\"1\"/>".to_vec(),
    ];
    let bad: Vec<Vec<u8>> = vec![
        b"<a>".to_vec(),
        b"<a></b>".to_vec(),
        b"plain".to_vec(),
        b"<a b=1/>".to_vec(),
        b"<a>&nope;</a>".to_vec(),
        b"<a b='1' b='2'/>".to_vec(),
        b"<a>\xff</a>".to_vec(),
        b"{\"json\": true}".to_vec(),
    ];
    t.verdicts("Xml", good, bad, -9615).await?;
});

case!(xml_bombs_are_not_expanded, [87], async |t| {
    let mut bomb = String::from("<!DOCTYPE a [<!ENTITY e0 \"x\">");
    for level in 1..30 {
        bomb.push_str(&format!("<!ENTITY e{level} \"&e{0};&e{0};\">", level - 1));
    }
    bomb.push_str("]><a>&e29;</a>");
    t.verdicts("Xml", vec![], vec![bomb.into_bytes()], -9615).await?;
});

case!(xml_of_a_schema, [3, 87], async |t| {
    t.define(
        "CREATE XML SCHEMA COLLECTION [Orders] AS '<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\">
            <xs:element name=\"order\"><xs:complexType><xs:sequence>
                <xs:element name=\"sku\" type=\"xs:string\"/><xs:element name=\"count\" type=\"xs:int\"/>
            </xs:sequence></xs:complexType></xs:element></xs:schema>';
         CREATE MESSAGE TYPE [Order] VALIDATION = VALID_XML WITH SCHEMA COLLECTION [Orders];
         CREATE CONTRACT [Ordering] ([Order] SENT BY ANY);
         ALTER SERVICE [T] (ADD CONTRACT [Ordering])",
    )
    .await?;
    let order = |count: &str| format!("<order><sku>A-1</sku><count>{count}</count></order>").into_bytes();
    let good = vec![order("3"), order("-3")];
    let bad = vec![order("three"), b"<order/>".to_vec(), b"<other/>".to_vec(), b"<order>".to_vec()];
    t.verdicts_over("Ordering", "Order", good, bad, -9615).await?;
});

case!(xml_schemas_stand_alone, [3], async |t| {
    // DIFFERENCE(schemas-stand-alone): a schema that wants another document is refused when it is defined.
    let composed =
        "CREATE XML SCHEMA COLLECTION [Composed] AS '<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\">
        <xs:include schemaLocation=\"other.xsd\"/></xs:schema>'";
    let refused = t.define(composed).await.unwrap_err();
    assert_eq!(refused.code(), Code::BAD_SCHEMA);
});

case!(json, [87], async |t| {
    // DIFFERENCE(json-validation): ours; a body that fails it comes back as -8430, judged at the target like all others.
    let good: Vec<Vec<u8>> = ["{}", "[]", "null", "1", "\"grüße\"", " {\"a\": [1, 2.5e3, true, {\"b\": null}]}\n"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec();
    let bad: Vec<Vec<u8>> = vec![
        b"{".to_vec(),
        b"{'a': 1}".to_vec(),
        b"[1,]".to_vec(),
        b"nope".to_vec(),
        b"{} {}".to_vec(),
        b"\"\xff\"".to_vec(),
        b"<a/>".to_vec(),
    ];
    t.verdicts("Json", good, bad, -8430).await?;
});

case!(json_of_a_schema, [87], async |t| {
    t.define(
        "CREATE MESSAGE TYPE [Item] VALIDATION = JSON SCHEMA '{\"type\": \"object\", \"required\": [\"sku\"],
            \"properties\": {\"sku\": {\"type\": \"string\"}, \"count\": {\"type\": \"integer\", \"minimum\": 1}}}';
         CREATE CONTRACT [Items] ([Item] SENT BY ANY);
         ALTER SERVICE [T] (ADD CONTRACT [Items])",
    )
    .await?;
    let good = ["{\"sku\": \"A-1\"}", "{\"sku\": \"A-1\", \"count\": 2}"].map(|text| text.as_bytes().to_vec()).to_vec();
    let bad = ["{}", "{\"sku\": 1}", "{\"sku\": \"A\", \"count\": 0}", "[]", "{"]
        .map(|text| text.as_bytes().to_vec())
        .to_vec();
    t.verdicts_over("Items", "Item", good, bad, -8430).await?;
});

case!(empty_and_anything, [84, 89], async |t| {
    t.verdicts("Nothing", vec![vec![]], vec![b"x".to_vec(), vec![0]], -8430).await?;
    t.verdicts("Text", vec![vec![0], vec![0xff, 0xfe], b"<".to_vec()], vec![], 0).await?;
});

case!(replies_are_judged_too, [87, 88], async |t| {
    let pair = t.pair().await?;
    t.send(pair.target, "Xml", "<broken").await?;
    assert_eq!(t.receive("QT").await?.error_codes(), [-9615]);
    assert_eq!(t.receive("QI").await?.error_codes(), [-9616]);
    assert_eq!((t.state(pair.initiator).await?, t.state(pair.target).await?), ("ER".into(), "ER".into()));
});

case!(xml_beyond_a_limit, [87], async |t| {
    let attributes = |count: usize| (0..count).map(|number| format!(" a{number}=''")).collect::<String>();
    let good = vec![format!("<a{}/>", attributes(1024)).into_bytes()];
    let bad = vec![
        format!("<a{}/>", attributes(1025)).into_bytes(),
        format!("<a{}/>", attributes(120_000)).into_bytes(),
        ["<a>".repeat(129), "</a>".repeat(129)].concat().into_bytes(),
    ];
    t.verdicts("Xml", good, bad, -9615).await?;
});

case!(json_schemas_that_refer_to_themselves, [87], async |t| {
    t.define(
        "CREATE MESSAGE TYPE [Tree] VALIDATION = JSON SCHEMA '{\"anyOf\": [{\"items\": {\"$ref\": \"#\"}, \"minItems\": 2},
            {\"items\": {\"$ref\": \"#\"}, \"minItems\": 3}]}';
         CREATE CONTRACT [Trees] ([Tree] SENT BY ANY);
         ALTER SERVICE [T] (ADD CONTRACT [Trees])",
    )
    .await?;
    let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat().into_bytes();
    t.verdicts_over(
        "Trees",
        "Tree",
        vec![b"7".to_vec(), b"[1, [2, 3]]".to_vec()],
        vec![nested(22), nested(100)],
        -8430,
    )
    .await?;
});

case!(a_large_message_that_waits_is_judged_by_the_altered_type, [8, 87], async |t| {
    let pair = t.pair().await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    t.send(pair.initiator, "Text", &"<not xml".repeat(1000)).await?;
    t.define("ALTER MESSAGE TYPE [Text] VALIDATION = WELL_FORMED_XML").await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    let error = t.broker.receive("QI").wait(std::time::Duration::from_secs(60)).await?;
    assert_eq!(error.map(dialoq::Batch::into_messages).unwrap_or_default().error_codes(), [-9615]);
});

case!(judged_when_it_arrives_not_when_it_is_sent, [8, 87], async |t| {
    let pair = t.pair().await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    t.send(pair.initiator, "Text", "<not xml").await?;
    t.define("ALTER MESSAGE TYPE [Text] VALIDATION = WELL_FORMED_XML").await?;
    assert!(t.receive("QI").await?.is_empty());
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    assert_eq!(t.receive("QI").await?.error_codes(), [-9615]);
});

case!(schemas_judge_when_a_client_is_there_to_read_them, [87], async |t| {
    // DIFFERENCE(schemas-at-the-send): a server cannot read schemas; what its client found at the SEND goes with the message.
    let pair = t.pair().await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = OFF").await?;
    t.send(pair.initiator, "Text", "{}").await?;
    t.define("ALTER MESSAGE TYPE [Text] VALIDATION = JSON SCHEMA '{\"required\": [\"sku\"]}'").await?;
    t.define("ALTER QUEUE [QT] WITH STATUS = ON").await?;
    let (came_back, arrived) = (t.receive("QI").await?.error_codes(), t.receive("QT").await?);
    if t.store().is_server() {
        assert_eq!((came_back, arrived.texts()), (vec![], vec!["{}".to_owned()]));
        t.send(pair.initiator, "Text", "{}").await?;
        assert_eq!(t.receive("QI").await?.error_codes(), [-8430], "whatever is sent from now on is judged by it");
    } else {
        assert_eq!((came_back, arrived.error_codes()), (vec![-8430], vec![-8430]));
    }
});

case!(bodies_have_a_limit, [86], async |t| {
    let dialog = t.dialog().await?;
    let limit = 64 << 20;
    assert_eq!(crate::rig::code(t.send_bytes(dialog, "Text", Some(vec![7; limit + 1])).await), 8459);
    assert!(t.receive("QT").await?.is_empty());
    let large: Vec<u8> = (0..3_000_000_u32).map(|place| (place % 251) as u8).collect();
    t.send_bytes(dialog, "Text", Some(large.clone())).await?;
    let received = t.receive("QT").await?;
    assert!(received[0].message_body.as_ref() == Some(&large), "three million bytes arrive as they were");
});

case!(many_messages_without_a_body_pass_in_one_transaction, [84, 87], async |t| {
    let dialog = t.dialog().await?;
    let tx = t.begin().await?;
    // More than are checked on the way in one batch.
    for _ in 0..100 {
        tx.send(dialog, "Xml", "").await?;
    }
    tx.commit().await?;
    t.send(dialog, "Text", "after them").await?;
    let received = t.receive("QT").await?;
    assert_eq!(received.len(), 101, "none waits for a check that has nothing to look at");
    assert!(t.transmission().await?.is_empty());
});
