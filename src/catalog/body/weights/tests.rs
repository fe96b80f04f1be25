use super::super::xml;
use super::*;

fn weights(schema: &str) -> Result<Weights, String> {
    let text = format!("<xs:schema xmlns:xs='{XS_NAMESPACE}'>{schema}</xs:schema>");
    Weights::of(&xml::tree(&text).unwrap())
}

fn of_type(content: &str) -> Result<Weights, String> {
    weights(&format!("<xs:element name='r'><xs:complexType>{content}</xs:complexType></xs:element>"))
}

fn groups(deep: usize, occurrence: &str) -> String {
    let open = format!("<xs:sequence {occurrence}>").repeat(deep);
    format!("{open}<xs:element name='a'/>{}", "</xs:sequence>".repeat(deep))
}

#[test]
fn an_element_costs_more_the_wider_its_type_and_its_value() {
    let element = |schema: &str| weights(schema).unwrap().element;
    assert_eq!(element("<xs:element name='r'/>"), 1);
    let wide = |particles: usize| {
        let choice = "<xs:element name='a'/>".repeat(particles);
        format!("<xs:complexType name='t'><xs:choice>{choice}</xs:choice></xs:complexType>")
    };
    assert_eq!((element(&wide(6)), element(&wide(7)), element(&wide(799))), (1, 2, 101));
    let by_group = format!(
        "{}<xs:group name='g'><xs:choice>{}</xs:choice></xs:group>",
        "<xs:complexType name='t'><xs:sequence>\
         <xs:group ref='g'/><xs:group ref='g'/></xs:sequence></xs:complexType>",
        "<xs:element name='a'/>".repeat(40)
    );
    assert_eq!(element(&by_group), 1 + 80 / 8);
    let extends =
        "<xs:complexType name='u'><xs:complexContent><xs:extension base='t'/></xs:complexContent></xs:complexType>";
    assert_eq!(element(&format!("{extends}{}", wide(80))), 1 + 80 / 8);
    let members = "<xs:element name='h'/>".to_owned() + &"<xs:element name='m' substitutionGroup='x h'/>".repeat(79);
    let head = "<xs:complexType name='t'><xs:sequence><xs:element ref='h'/></xs:sequence></xs:complexType>";
    assert_eq!(element(&format!("{members}{head}")), 1 + 80 / 8);
    let union = |members: usize| {
        format!("<xs:simpleType name='s'><xs:union memberTypes='{}'/></xs:simpleType>", "xs:int ".repeat(members))
    };
    assert_eq!((element(&union(2)), element(&union(20))), (9, 81));
    let enumerated = |base: &str| {
        let values = "<xs:enumeration value='1'/>".repeat(400);
        format!("<xs:simpleType name='s'><xs:restriction base='xs:{base}'>{values}</xs:restriction></xs:simpleType>")
    };
    assert_eq!((element(&enumerated("decimal")), element(&enumerated("token"))), (101, 1));
    let attributes = format!("<xs:complexType name='t'>{}</xs:complexType>", "<xs:attribute name='a'/>".repeat(400));
    let weights = weights(&attributes).unwrap();
    assert_eq!((weights.element, weights.attribute), (101, 6));
}

#[test]
fn an_identity_constraint_counts_all_its_paths() {
    let constraint = "<xs:element name='r'><xs:unique name='u'><xs:selector xpath='a|b | c'/><xs:field xpath='@x'/>\
         <xs:field xpath='@y|@z'/></xs:unique><xs:key name='k'><xs:selector xpath='a'/><xs:field xpath='@x'/></xs:key></xs:element>";
    assert_eq!(weights(constraint).unwrap().constraints["r"], 3 + 1 + 2 + 2);
}

#[test]
fn wildcards_cost_by_the_namespaces_they_name() {
    let wildcard = |kind: &str, namespaces: &str| of_type(&format!("<xs:{kind} namespace='{namespaces}'/>")).unwrap();
    let many = "urn:x ".repeat(400);
    assert_eq!(wildcard("anyAttribute", "##any").attribute, 1);
    assert_eq!(wildcard("anyAttribute", &many).attribute, 101);
    assert_eq!(of_type(&format!("<xs:sequence><xs:any namespace='{many}'/></xs:sequence>")).unwrap().element, 101);
}

#[test]
fn patterns_cost_by_what_they_repeat() {
    let pattern = |patterns: &str| {
        weights(&format!(
            "<xs:simpleType name='s'><xs:restriction base='xs:string'>{patterns}</xs:restriction></xs:simpleType>"
        ))
    };
    assert_eq!(pattern("<xs:pattern value='a*'/><xs:pattern value='b*'/>").unwrap().patterns, 2);
    assert_eq!(pattern("<xs:pattern value='(.*.{3000})?'/>").unwrap().patterns, 24_008 / 3);
    let refused = pattern(&"<xs:pattern value='.{0,900}x'/>".repeat(400)).unwrap_err();
    assert!(refused.contains("2880400 places"), "{refused}");
}

#[test]
fn what_takes_long_to_compile_is_refused() {
    let refused = |content: &str| of_type(content).err().is_some_and(|why| why.contains("units of work"));
    let repeated = "minOccurs='0' maxOccurs='unbounded'";
    assert!(!refused(&groups(8, repeated)) && refused(&groups(9, repeated)));
    assert!(!refused(&groups(100, "minOccurs='0'")), "an optional group costs nothing");
    let wide = |particles: usize| format!("<xs:choice>{}</xs:choice>", "<xs:element name='a'/>".repeat(particles));
    assert!(!refused(&wide(2670)) && refused(&wide(2680)));
    assert!(refused(&format!("<xs:choice>{}</xs:choice>", "<xs:sequence/>".repeat(2680))), "also without elements");
    let copied = |particles: usize| {
        format!("<xs:sequence>{}</xs:sequence>", "<xs:element name='a' maxOccurs='9'/>".repeat(particles))
    };
    assert!(!refused(&copied(190)) && refused(&copied(200)));
    assert!(!refused(&groups(2, "maxOccurs='9'")) && refused(&groups(5, "maxOccurs='9'")));
    let at_least = "minOccurs='9' maxOccurs='unbounded'";
    assert!(!refused(&groups(1, at_least)) && refused(&groups(4, at_least)));
}

#[test]
fn repetitions_that_can_be_counted_in_many_ways_are_refused() {
    let refused =
        |deep: usize, occurrence: &str| of_type(&groups(deep, occurrence)).is_err_and(|why| why.contains("ways"));
    assert!(!refused(2, "minOccurs='0' maxOccurs='100'") && refused(3, "minOccurs='0' maxOccurs='100'"));
    assert!(!refused(2, "minOccurs='10' maxOccurs='100'") && refused(2, "minOccurs='100' maxOccurs='unbounded'"));
    assert!(!refused(5, "maxOccurs='1000'"), "the fewest repetitions so far are the best");
    assert!(!refused(1, "minOccurs='1000' maxOccurs='100000000'"), "one count alone is a range");
    let inside = groups(1, "minOccurs='1000' maxOccurs='100000000'");
    assert!(of_type(&format!("<xs:sequence>{inside}</xs:sequence>")).is_ok(), "also in a group that is there once");
    assert_eq!(
        of_type(&groups(2, "minOccurs='0' maxOccurs='100'")).unwrap().element,
        1 + 10_000 * 10_000 / 25_000 + 2 * 7,
        "two of 100 in one another"
    );
    let siblings =
        format!("<xs:sequence>{}</xs:sequence>", "<xs:element name='a' minOccurs='0' maxOccurs='90'/>".repeat(79));
    let siblings = of_type(&siblings).unwrap();
    assert_eq!((siblings.check, siblings.element), (80 * 80 / 25, 1 + 10 + 79 * (7 + 10)));
    assert!(
        weights("<xs:element name='r' vc:minVersion='1.1' xmlns:vc='http://www.w3.org/2007/XMLSchema-versioning'/>")
            .is_err()
    );
}

#[test]
fn a_repetition_of_what_may_be_empty_can_be_counted_in_more_ways() {
    let ways = |kind: &str, occurrence: &str| {
        let often = "minOccurs='2' maxOccurs='100'";
        let parts = format!("<xs:element name='a'/><xs:element name='b' {occurrence}/>");
        let content = format!("<xs:sequence {often}><xs:{kind} {often}>{parts}</xs:{kind}></xs:sequence>");
        of_type(&content).unwrap().element
    };
    let of_100_in_100 = 10_000 * 10_000 / 25_000;
    assert!(ways("choice", "minOccurs='0'") > of_100_in_100, "one part that may be empty is enough");
    assert!(ways("choice", "") < of_100_in_100);
    assert!(ways("sequence", "minOccurs='0'") < of_100_in_100, "all its parts must be so");
}

#[test]
fn a_pattern_nests_to_its_limit() {
    let nested = |deep: usize| {
        let pattern = format!("{}a{}", "(".repeat(deep), ")".repeat(deep));
        weights(&format!(
            "<xs:simpleType name='t'><xs:restriction base='xs:string'><xs:pattern value='{pattern}'/></xs:restriction></xs:simpleType>"
        ))
    };
    assert!(nested(100).is_ok());
    assert!(nested(101).unwrap_err().contains("nests 101"));
}

#[test]
fn components_that_contain_themselves_have_an_end() {
    let group = |name: &str| {
        format!("<xs:group name='{name}'><xs:sequence>{}</xs:sequence></xs:group>", "<xs:group ref='g'/>".repeat(30))
    };
    let union = "<xs:simpleType name='s'><xs:union memberTypes='s s s s s s s s s s s s'/></xs:simpleType>";
    let attributes =
        format!("<xs:attributeGroup name='g'>{}</xs:attributeGroup>", "<xs:attributeGroup ref='g'/>".repeat(30));
    let members = "<xs:element name='a' substitutionGroup='a'/>".repeat(30);
    let typed = "<xs:complexType name='t'><xs:sequence><xs:group ref='g'/><xs:element ref='a'/></xs:sequence>\
                 <xs:attributeGroup ref='g'/></xs:complexType>";
    assert!(weights(&format!("{}{union}{attributes}{members}{typed}", group("g"))).is_ok());
    let extends = "<xs:complexContent><xs:extension base='t'/></xs:complexContent>".repeat(30);
    assert!(weights(&format!("<xs:complexType name='t'>{extends}</xs:complexType>")).is_ok());
    let doubling: String = (1..60)
        .map(|number| {
            format!("<xs:simpleType name='s{number}'><xs:union memberTypes='s{0} s{0}'/></xs:simpleType>", number - 1)
        })
        .collect();
    assert!(weights(&doubling).unwrap_err().contains("alternatives"));
}

#[test]
fn a_long_chain_needs_little_of_the_stack() {
    let work = || {
        let chain = |of: &dyn Fn(u32) -> String| (1..3_000).map(of).collect::<String>();
        let deep = "<xs:sequence>".repeat(100);
        let groups = chain(&|number| {
            let inside = format!("{deep}<xs:group ref='g{}'/>{}", number - 1, "</xs:sequence>".repeat(100));
            format!("<xs:group name='g{number}'>{inside}</xs:group>")
        });
        let types = chain(&|number| {
            let base = number - 1;
            format!(
                "<xs:complexType name='t{number}'><xs:complexContent><xs:extension base='t{base}'/></xs:complexContent></xs:complexType>"
            )
        });
        let values = chain(&|number| {
            format!("<xs:simpleType name='s{number}'><xs:restriction base='s{}'/></xs:simpleType>", number - 1)
        });
        let top = "<xs:complexType name='u'><xs:group ref='g2999'/></xs:complexType>";
        for schema in [groups[..].to_owned() + top, types, values] {
            assert!(weights(&schema).is_ok());
        }
    };
    std::thread::Builder::new().stack_size(2 << 20).spawn(work).unwrap().join().unwrap();
}

#[test]
fn a_schema_may_cost_as_much_as_its_limits() {
    let repeated = "minOccurs='0' maxOccurs='unbounded'";
    let choice = |particles: usize, occurrence: &str| {
        let elements = "<xs:element name='a'/>".repeat(particles - 1);
        format!("<xs:complexType name='t'><xs:choice {occurrence}>{elements}</xs:choice></xs:complexType>")
    };
    let most = choice(1750, repeated) + &choice(250, repeated);
    assert_eq!(64 * (1750 * 1750 + 250 * 250), MOST_COMPILING);
    assert!(weights(&most).is_ok());
    let why = weights(&(most + &choice(2, ""))).unwrap_err();
    assert!(why.contains("200000112 units of work"), "{why}");
    let union = |members: usize| {
        weights(&format!(
            "<xs:simpleType name='s'><xs:union memberTypes='{}'/></xs:simpleType>",
            "xs:int ".repeat(members)
        ))
    };
    assert!(union(25_000).is_ok() && union(25_001).unwrap_err().contains("100004 alternatives"));
    let pattern = |text: &str| {
        weights(&format!(
            "<xs:simpleType name='s'><xs:restriction base='xs:string'><xs:pattern value='{text}'/></xs:restriction></xs:simpleType>"
        ))
    };
    assert!(pattern("a{1000000}").is_ok() && pattern("a{1000000}b").unwrap_err().contains("1000001 places"));
    let counted = |elements: usize| {
        of_type(&format!("<xs:choice>{}</xs:choice>", "<xs:element name='a' maxOccurs='90'/>".repeat(elements)))
    };
    assert!(counted(1600).is_ok() && counted(1700).unwrap_err().contains("units of work"), "counters cost too");
    for (deep, occurrence, why) in [(9, repeated, "units of work"), (3, "minOccurs='0' maxOccurs='100'", "ways")] {
        let beside = format!("<xs:sequence>{}<xs:element name='b'/></xs:sequence>", groups(deep, occurrence));
        assert!(of_type(&beside).unwrap_err().contains(why), "an element beside them makes no repetition cheaper");
    }
}

#[test]
fn up_to_sixteen_repetitions_are_copied_with_their_counters() {
    let element = |occurrence: &str| of_type(&groups(1, occurrence)).unwrap().element;
    assert_eq!((element("maxOccurs='16'"), element("maxOccurs='17'")), (1 + 16 * 2 / 8, 1));
    let at_least = |least: u32| element(&format!("minOccurs='{least}' maxOccurs='unbounded'"));
    assert_eq!((at_least(16), at_least(17)), (1 + 17 * 2 / 8, 1), "one copy more for the rest");
    let copies = |often: usize| {
        let inside = "<xs:element name='a' minOccurs='0' maxOccurs='100'/>";
        of_type(&format!("<xs:sequence maxOccurs='{often}'>{inside}</xs:sequence>"))
    };
    assert!(copies(10).is_ok() && copies(11).unwrap_err().contains("12100 ways"));
    let inside = "<xs:sequence maxOccurs='9'><xs:element name='a'/></xs:sequence>";
    let one_counter = format!("<xs:sequence minOccurs='101' maxOccurs='200'>{inside}</xs:sequence>");
    assert!(of_type(&one_counter).is_ok(), "copies without a counter add none");
}

#[test]
fn a_long_value_that_the_schema_gives_costs_for_each_element_and_attribute() {
    let costs = |schema: &str| weights(schema).map(|weights| (weights.element, weights.attribute)).unwrap();
    let given = |name: &str, bytes: usize| format!("<xs:element name='r' {name}='{}'/>", "x".repeat(bytes));
    for name in ["default", "fixed"] {
        assert_eq!((costs(&given(name, 16)), costs(&given(name, 17))), ((1, 1), (1 + 17 / 2, 1 + 17 / 2)), "{name}");
    }
    assert_eq!(costs(&(given("default", 100) + &given("fixed", 20))), (51, 51), "the longest counts");
    let hint = format!("<xs:annotation><xs:appinfo><hint default='{}'/></xs:appinfo></xs:annotation>", "x".repeat(100));
    assert_eq!(costs(&hint), (1, 1), "an element of another namespace gives no value");
}

#[test]
fn a_type_has_the_attributes_and_the_patterns_of_its_base() {
    let many = "<xs:attribute name='a'/>".repeat(400);
    for content in ["complexContent", "simpleContent"] {
        let extends = format!("<xs:{content}><xs:extension base='b'>{many}</xs:extension></xs:{content}>");
        let types = format!(
            "<xs:complexType name='b'>{many}</xs:complexType><xs:complexType name='t'>{extends}</xs:complexType>"
        );
        let of_both = weights(&types).unwrap();
        assert_eq!((of_both.element, of_both.attribute), (1 + 800 / 4, 1 + 800 / 80), "{content}");
    }
    let half = "<xs:pattern value='(.*a.{120}b)?.*'/>";
    let restricts = |name: &str, base: &str| {
        format!("<xs:simpleType name='{name}'><xs:restriction base='{base}'>{half}</xs:restriction></xs:simpleType>")
    };
    let of_both = weights(&(restricts("s", "xs:string") + &restricts("t", "s"))).unwrap();
    assert_eq!(of_both.patterns, 2 * (1 + 978 / 64) + 2 * 978 / 3);
}

#[test]
fn the_items_of_a_list_and_the_members_of_a_union_cost() {
    let simple = |kind: &str| weights(&format!("<xs:simpleType name='s'>{kind}</xs:simpleType>")).unwrap();
    let list = simple("<xs:list itemType='xs:int'/>");
    assert_eq!((list.item, simple("<xs:restriction base='xs:int'/>").item), (1, 0));
    assert_eq!(list.steps(Parts { bytes: 100, ..Parts::default() }), 50, "one item for each two bytes");
    let member = "<xs:simpleType><xs:restriction base='xs:int'/></xs:simpleType>";
    assert_eq!(simple(&format!("<xs:union>{}</xs:union>", member.repeat(20))).element, 1 + 20 * 4);
}

#[test]
fn wildcards_and_the_members_of_members_are_particles() {
    let wildcards = of_type(&format!("<xs:sequence>{}</xs:sequence>", "<xs:any/>".repeat(9))).unwrap();
    assert_eq!(wildcards.check, 10 * 10 / 25);
    let member = |number: u32| format!("<xs:element name='e{number}' substitutionGroup='e{}'/>", number - 1);
    let members: String = (1..10).map(member).collect();
    let head = "<xs:element name='e0'/><xs:complexType name='t'><xs:sequence><xs:element ref='e0'/></xs:sequence></xs:complexType>";
    assert_eq!(weights(&(members + head)).unwrap().check, 11 * 11 / 25);
}

/// Which rows are compared one by one: the eighths of a step for two of them, and whether the elements `n` and `m` are rows. `None` if
/// the validator finds them by a hash.
fn alike(selector: &str, field: &str) -> Option<(u64, bool, bool)> {
    let declared = "<xs:element name='n' type='xs:date'/><xs:element name='m' type='xs:string'/>\
        <xs:element name='c'><xs:complexType><xs:simpleContent><xs:extension base='xs:date'/></xs:simpleContent></xs:complexType></xs:element>\
        <xs:attribute name='at' type='xs:dateTime'/><xs:attribute name='for' type='xs:duration'/>\
        <xs:attribute name='of' type='xs:string'/><xs:attribute name='words' type='xs:NMTOKENS'/>\
        <xs:attribute name='numbers'><xs:simpleType><xs:list itemType='xs:int'/></xs:simpleType></xs:attribute>\
        <xs:attribute name='text'><xs:simpleType><xs:restriction base='xs:string'/></xs:simpleType></xs:attribute>";
    let unique =
        format!("<xs:unique name='u'><xs:selector xpath='{selector}'/><xs:field xpath='{field}'/></xs:unique>");
    let found = weights(&format!("<xs:element name='r'>{unique}</xs:element>{declared}")).unwrap();
    let rows = found.alike.get("r")?.first()?;
    Some((rows.steps(8) / 8, rows.selects("n"), rows.selects("m")))
}

#[test]
fn rows_whose_values_have_one_hash_are_compared_one_by_one() {
    for (selector, field, expected) in [
        ("n", "@at", Some((5, true, false))),
        (".//n", "@at", Some((5, true, false))),
        ("p:n", "@p:at", Some((5, true, false))),
        ("*", "@at", Some((5, true, true))),
        ("n", "@for", Some((17, true, false))),
        ("n", "@words", Some((2, true, false))),
        ("n", "@numbers", Some((2, true, false))),
        ("n", "@text", None),
        ("n", "@of", None),
        ("n", "@at|@of", None),
        ("n", ".", Some((5, true, false))),
        ("n|m", ".", None),
        ("m", "n", Some((5, false, true))),
        ("c", ".", Some((5, false, false))),
    ] {
        assert_eq!(alike(selector, field), expected, "{selector} {field}");
    }
}

#[test]
fn the_rows_of_sixteen_constraints_are_counted_at_one_place() {
    let unique = "<xs:unique name='u'><xs:selector xpath='n'/><xs:field xpath='@at'/></xs:unique>";
    let found = weights(&format!("<xs:element name='r'>{unique}</xs:element><xs:attribute name='at' type='xs:date'/>"))
        .unwrap();
    let alike = &found.alike["r"][0];
    let steps = |body: &str| {
        let ten = |name: &str| (0, if name == "r" { vec![alike; 10] } else { Vec::new() });
        xml::count(body, ten).unwrap().parts.alike
    };
    let rows = "<n/>".repeat(4);
    let each = 4 * 4 * 5 / 8;
    assert_eq!(steps(&format!("<r>{rows}</r>")), 10 * each);
    assert_eq!(steps(&format!("<r><r>{rows}</r></r>")), 16 * each, "the other four are left out");
}
