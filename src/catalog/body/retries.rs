//! How often the schema validator may visit the elements of a body.
//!
//! An optional or repeated `xs:sequence` inside another model group is tried and given up again: its elements, with all
//! below them, are then validated once more by the next particles. If such a type contains itself, the visits double
//! with each level. The validator has no limit of its own, so an upper bound of its visits is counted before it runs.

use super::copies::{MOST_COPIES, refusal};
use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use uppsala::{Document, NodeId, XS_NAMESPACE, XSI_NAMESPACE};

/// Groups that refer to groups, at most so deep. Visits in a group further down are not counted, so a schema that has one is
/// refused: under 20 groups, one in the other, the visits doubled with each level of a body unseen.
const MAX_GROUPS: u32 = 16;

/// The depth of a body times the model groups in one another, and [`ELEMENT_GROUPS`] more. On a stack of 2 MiB, 127 elements
/// in 16 nested choices ended the process.
pub(super) const MOST_NESTED: u64 = 1024;

/// The validator takes about as much of the stack for an element as for three model groups around it: 3 KiB.
const ELEMENT_GROUPS: u64 = 3;

/// Steps of following types to the types they extend, and elements to the heads of their substitution groups. A chain
/// of 4,000 types took 8,000,000 steps.
const MOST_STEPS: u64 = 2_000_000;

#[derive(Default)]
struct Steps(u64);

impl Steps {
    fn take(&mut self, steps: usize) -> Result<(), String> {
        self.0 = self.0.saturating_add(steps as u64);
        if self.0 <= MOST_STEPS {
            return Ok(());
        }
        Err(format!(
            "following its types to their bases and its elements to their substitution groups takes more than \
             {MOST_STEPS} steps; make the chains shorter or the types smaller"
        ))
    }
}

/// Visits of an element, by the name of its parent: the largest of all types that an element of that name may have.
#[derive(Debug, Default)]
pub(super) struct Retries {
    by_parent: HashMap<String, Visits>,
    /// The largest of all types, for a parent that names its type itself or is declared nowhere.
    worst: Visits,
    /// By the name of an element, how many of its identity constraints search all elements below it.
    searches: HashMap<String, u64>,
    /// The most model groups in one another of one type.
    groups: u32,
}

/// The work of the identity constraints in a part of a body.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Searches {
    /// Elements in the part, and the sum of their depths in it.
    elements: u64,
    depths: u64,
    /// Elements found, each time a constraint finds them. The validator may report a fault for each.
    pub(super) found: u64,
    /// The validator follows the path from each element to the one that has the constraint.
    pub(super) steps: u64,
}

/// Further visits of the elements in one type, by local name.
#[derive(Debug, Default, Clone)]
struct Visits {
    elements: HashMap<String, u64>,
    /// Added for each element, for wildcards.
    any: u64,
}

/// The types and elements of a schema document, by local name.
#[derive(Default)]
struct Declared {
    /// Of each type its own visits, and the type that it extends or restricts. Types may have one local name.
    types: HashMap<String, Vec<(Visits, Option<String>)>>,
    /// Elements with a type of their own.
    inline: Vec<(String, Visits, Option<String>)>,
    /// Elements and the names of their types.
    typed: Vec<(String, String)>,
    /// Members of substitution groups, by the head.
    members: HashMap<String, Vec<String>>,
    /// Members without a type: they have their head's.
    untyped: HashMap<String, Vec<String>>,
    elements: HashSet<String>,
    searches: HashMap<String, u64>,
}

struct Schema<'a> {
    document: &'a Document<'a>,
    groups: HashMap<String, NodeId>,
    /// Particles of groups that were visited, in all types.
    visited: Cell<u64>,
    /// The most model groups in one another of one type.
    nested: Cell<u32>,
    /// Whether groups refer to one another more than [`MAX_GROUPS`] deep.
    is_too_deep: Cell<bool>,
}

/// The context of a particle.
#[derive(Clone, Copy, Default)]
struct Place {
    /// Model groups around it.
    around: u32,
    /// Of these, repeated ones: each may come to the same element twice.
    repeated: u32,
    /// Whether one of them may be given up after it has visited elements.
    may_retry: bool,
    groups: u32,
}

impl Retries {
    /// Adds the visits that a schema document can cause. Documents refer to no other.
    ///
    /// # Errors
    /// Its groups refer to one another too often or too deep, or its types and elements form too long chains.
    pub(super) fn add(&mut self, document: &Document<'_>) -> Result<(), String> {
        let Some(root) = document.document_element() else { return Ok(()) };
        let named = document.children_iter(root).filter(|node| name(document, *node) == Some("group"));
        let groups = named.filter_map(|node| Some((attribute(document, node, "name")?.to_owned(), node))).collect();
        let mut declared = Declared::default();
        let schema = Schema {
            document,
            groups,
            visited: Cell::default(),
            nested: Cell::default(),
            is_too_deep: Cell::default(),
        };
        declared.collect(&schema, root, None);
        if schema.visited.get() > MOST_COPIES {
            return Err(refusal());
        }
        if schema.is_too_deep.get() {
            return Err(format!("its groups refer to one another more than {MAX_GROUPS} deep; refer less deep"));
        }
        self.groups = self.groups.max(schema.nested.get());

        let mut steps = Steps::default();
        declared.follow_substitutions(&mut steps)?;
        let mut by_parent: HashMap<String, Visits> = HashMap::new();
        let of_types =
            declared.types.keys().map(|of_type| Ok((of_type.clone(), declared.of_type(of_type, &mut steps)?)));
        let types = of_types.collect::<Result<HashMap<_, _>, String>>()?;
        for (element, own, base) in &declared.inline {
            let mut visits = own.clone();
            if let Some(base) = base.as_ref().and_then(|base| types.get(base)) {
                visits.add(base);
            }
            visits.substitute(&declared.members);
            steps.take(visits.elements.len())?;
            by_parent.entry(element.clone()).or_default().raise(&visits);
        }
        for (element, of_type) in &declared.typed {
            if let Some(visits) = types.get(of_type) {
                steps.take(visits.elements.len())?;
                by_parent.entry(element.clone()).or_default().raise(visits);
            }
        }
        let mut heads: Vec<String> = by_parent.keys().cloned().collect();
        let mut seen: HashSet<(String, String)> = HashSet::new();
        while let Some(head) = heads.pop() {
            for member in declared.untyped.get(&head).into_iter().flatten() {
                if seen.insert((head.clone(), member.clone())) {
                    let visits = by_parent[&head].clone();
                    steps.take(visits.elements.len())?;
                    by_parent.entry(member.clone()).or_default().raise(&visits);
                    heads.push(member.clone());
                }
            }
        }
        for visits in types.values().chain(by_parent.values()) {
            self.worst.raise(visits);
        }
        for (element, searches) in declared.searches {
            let known = self.searches.entry(element).or_default();
            *known = searches.max(*known);
        }
        for element in declared.elements {
            self.by_parent.entry(element).or_default();
        }
        for (element, visits) in by_parent {
            self.by_parent.entry(element).or_default().raise(&visits);
        }
        Ok(())
    }

    /// The work of all identity constraints in a body. Elements with a constraint may contain one another, so that the
    /// same elements are searched at each level.
    pub(super) fn searches(&self, body: &Document<'_>) -> Searches {
        let root = body.document_element().filter(|_| !self.searches.is_empty());
        root.map_or_else(Searches::default, |root| self.searches_below(body, root))
    }

    fn searches_below(&self, body: &Document<'_>, node: NodeId) -> Searches {
        let mut sum = Searches::default();
        for child in body.children_iter(node).filter(|child| body.element(*child).is_some()) {
            let below = self.searches_below(body, child);
            sum.elements += below.elements + 1;
            sum.depths += below.depths + below.elements + 1;
            sum.found = sum.found.saturating_add(below.found);
            sum.steps = sum.steps.saturating_add(below.steps);
        }
        let name = body.element(node).map_or("", |element| &element.name.local_name);
        let constraints = self.searches.get(name).copied().unwrap_or(0);
        sum.found = sum.found.saturating_add(constraints.saturating_mul(sum.elements));
        sum.steps = sum.steps.saturating_add(constraints.saturating_mul(sum.depths));
        sum
    }

    /// Refuses a body that is too deep for the stack of a thread.
    ///
    /// # Errors
    /// Names the limit.
    pub(super) fn check_depth(&self, body: &Document<'_>) -> Result<(), String> {
        let most = MOST_NESTED / (u64::from(self.groups) + ELEMENT_GROUPS);
        let depth = body.document_element().map_or(0, |root| depth(body, root));
        if depth <= most {
            return Ok(());
        }
        Err(format!(
            "its elements nest {depth} deep, and its schema nests {} model groups in one type; for that schema {most} is the most",
            self.groups
        ))
    }

    /// An upper bound of the visits that validating a body takes.
    pub(super) fn visits(&self, body: &Document<'_>) -> u64 {
        body.document_element().map_or(0, |root| self.below(body, root))
    }

    fn below(&self, body: &Document<'_>, node: NodeId) -> u64 {
        let of_parent = self.of_parent(body, node);
        let mut visits = 1_u64;
        for child in body.children_iter(node) {
            if let Some(element) = body.element(child) {
                let again = of_parent.of(&element.name.local_name);
                visits = visits.saturating_add(self.below(body, child).saturating_mul(again.saturating_add(1)));
            }
        }
        visits
    }

    fn of_parent(&self, body: &Document<'_>, node: NodeId) -> &Visits {
        let Some(element) = body.element(node) else { return &self.worst };
        // The validator takes the prefix alone for the namespace, too.
        let names_its_type = element.attributes.iter().any(|attribute| {
            *attribute.name.local_name == *"type"
                && (attribute.name.namespace_uri.as_deref() == Some(XSI_NAMESPACE)
                    || attribute.name.prefix.as_deref() == Some("xsi"))
        });
        if names_its_type {
            return &self.worst;
        }
        self.by_parent.get(&*element.name.local_name).unwrap_or(&self.worst)
    }
}

impl Declared {
    /// Collects the declarations below a node, which lies in an element of that name.
    fn collect(&mut self, schema: &Schema<'_>, node: NodeId, around: Option<&str>) {
        let document = schema.document;
        for child in document.children_iter(node) {
            let mut inside = around;
            match name(document, child) {
                Some("complexType") => self.add_type(schema, child, around),
                Some("element") => {
                    if let Some(element) = attribute(document, child, "name") {
                        self.add_element(document, child, element);
                        inside = Some(element);
                    }
                }
                _ => {}
            }
            self.collect(schema, child, inside);
        }
    }

    fn add_type(&mut self, schema: &Schema<'_>, node: NodeId, around: Option<&str>) {
        let document = schema.document;
        let mut own = Visits::default();
        own.visit_particles(schema, node, Place::default());
        let base = document
            .children_iter(node)
            .filter(|node| matches!(name(document, *node), Some("complexContent" | "simpleContent")))
            .flat_map(|content| document.children_iter(content))
            .find_map(|derivation| attribute(document, derivation, "base"))
            .map(|base| local(base).to_owned());
        match (attribute(document, node, "name"), around) {
            (Some(named), _) => self.types.entry(named.to_owned()).or_default().push((own, base)),
            (None, Some(element)) => self.inline.push((element.to_owned(), own, base)),
            // Not in a schema that can be compiled.
            (None, None) => self.types.entry(format!("#{}", self.types.len())).or_default().push((own, base)),
        }
    }

    fn add_element(&mut self, document: &Document<'_>, node: NodeId, element: &str) {
        self.elements.insert(element.to_owned());
        let constraints = document
            .children_iter(node)
            .filter(|node| matches!(name(document, *node), Some("unique" | "key" | "keyref")));
        let selectors = constraints.flat_map(|constraint| document.children_iter(constraint));
        let paths = selectors.filter_map(|selector| attribute(document, selector, "xpath"));
        let searches =
            paths.flat_map(|paths| paths.split('|')).filter(|path| path.trim().starts_with(".//")).count() as u64;
        if searches > 0 {
            // Elements of one name may have different constraints.
            let known = self.searches.entry(element.to_owned()).or_default();
            *known = searches.max(*known);
        }
        let of_type = attribute(document, node, "type");
        if let Some(of_type) = of_type {
            self.typed.push((element.to_owned(), local(of_type).to_owned()));
        }
        if let Some(head) = attribute(document, node, "substitutionGroup") {
            let head = local(head).to_owned();
            if of_type.is_none() {
                self.untyped.entry(head.clone()).or_default().push(element.to_owned());
            }
            self.members.entry(head).or_default().push(element.to_owned());
        }
    }

    /// The visits in a named type: its own, and those of the types that it is derived from.
    fn of_type(&self, of_type: &str, steps: &mut Steps) -> Result<Visits, String> {
        let mut visits = Visits::default();
        let (mut names, mut seen) = (vec![of_type], HashSet::new());
        while let Some(name) = names.pop() {
            if !seen.insert(name) {
                continue;
            }
            for (own, base) in self.types.get(name).into_iter().flatten() {
                steps.take(1 + own.elements.len())?;
                visits.add(own);
                names.extend(base.as_deref());
            }
        }
        visits.substitute(&self.members);
        steps.take(visits.elements.len())?;
        Ok(visits)
    }

    /// Counts what the validator does: it follows each member to all heads above it, and compares each head with all
    /// heads before it.
    fn follow_substitutions(&self, steps: &mut Steps) -> Result<(), String> {
        let pairs = self.members.iter().flat_map(|(head, members)| members.iter().map(move |member| (member, head)));
        let heads: HashMap<&String, &String> = pairs.collect();
        for member in heads.keys() {
            let (mut at, mut depth) = (*member, 0);
            // A circle has no end; the validator stops there too. An element of another namespace may have the same
            // name.
            while let Some(head) = heads.get(at).filter(|head| **head != at && depth < heads.len()) {
                depth += 1;
                steps.take(depth)?;
                at = head;
            }
        }
        Ok(())
    }
}

impl Visits {
    fn of(&self, element: &str) -> u64 {
        self.elements.get(element).copied().unwrap_or(0).saturating_add(self.any)
    }

    fn add(&mut self, other: &Self) {
        self.any = self.any.saturating_add(other.any);
        for (name, visits) in &other.elements {
            let known = self.elements.entry(name.clone()).or_default();
            *known = known.saturating_add(*visits);
        }
    }

    fn raise(&mut self, other: &Self) {
        self.any = self.any.max(other.any);
        for (name, visits) in &other.elements {
            let known = self.elements.entry(name.clone()).or_default();
            *known = visits.max(known).to_owned();
        }
    }

    /// A member of a substitution group is visited where its head is, and so are the members it heads.
    fn substitute(&mut self, members: &HashMap<String, Vec<String>>) {
        let mut heads: Vec<String> = self.elements.keys().filter(|name| members.contains_key(*name)).cloned().collect();
        while let Some(head) = heads.pop() {
            let visits = self.elements.get(&head).copied().unwrap_or(0);
            for member in members.get(&head).into_iter().flatten() {
                let known = self.elements.entry(member.clone()).or_default();
                if visits > *known {
                    *known = visits;
                    heads.push(member.clone());
                }
            }
        }
    }

    fn visit_particles(&mut self, schema: &Schema<'_>, node: NodeId, place: Place) {
        let document = schema.document;
        for child in document.children_iter(node) {
            let Some(kind) = name(document, child) else { continue };
            // Groups may refer to themselves, each time more often.
            if place.groups > 0 {
                schema.visited.set(schema.visited.get() + 1);
                if schema.visited.get() > MOST_COPIES {
                    return;
                }
            }
            let visits = if place.may_retry { 1 << place.repeated.min(32) } else { 0_u64 };
            match kind {
                "element" => {
                    let named = attribute(document, child, "name").or_else(|| attribute(document, child, "ref"));
                    // Most elements are visited once only: without entries of 0 a long chain of types costs little.
                    if let Some(named) = named.filter(|_| visits > 0) {
                        let known = self.elements.entry(local(named).to_owned()).or_default();
                        *known = known.saturating_add(visits);
                    }
                }
                "any" => self.any = self.any.saturating_add(visits),
                "group" => {
                    let group = attribute(document, child, "ref").and_then(|name| schema.groups.get(local(name)));
                    if place.groups == MAX_GROUPS {
                        schema.is_too_deep.set(schema.is_too_deep.get() || group.is_some());
                    } else if let Some(&group) = group {
                        let inside = inside(document, child, place);
                        self.visit_particles(schema, group, Place { groups: place.groups + 1, ..inside });
                    }
                }
                "sequence" | "choice" | "all" => {
                    let inside = inside(document, child, place);
                    // A reference to a group is no model group of its own.
                    schema.nested.set(schema.nested.get().max(inside.around - inside.groups));
                    self.visit_particles(schema, child, inside);
                }
                // The content of an extended type comes first, inside the same sequence.
                "complexContent" | "extension" | "restriction" => self.visit_particles(schema, child, place),
                _ => {}
            }
        }
    }
}

/// How many elements lie in one another.
fn depth(body: &Document<'_>, node: NodeId) -> u64 {
    let elements = body.children_iter(node).filter(|child| body.element(*child).is_some());
    1 + elements.map(|child| depth(body, child)).max().unwrap_or(0)
}

/// The place for the content of a model group, or of a reference to one.
fn inside(document: &Document<'_>, node: NodeId, place: Place) -> Place {
    let occurs = |bound: &str| attribute(document, node, bound).unwrap_or("1");
    let (is_optional, is_repeated) = (occurs("minOccurs") == "0", !matches!(occurs("maxOccurs"), "0" | "1"));
    let may_be_given_up = place.around > 0 && (is_optional || is_repeated) && name(document, node) != Some("choice");
    Place {
        around: place.around + 1,
        repeated: place.repeated + u32::from(is_repeated),
        may_retry: place.may_retry || may_be_given_up,
        groups: place.groups,
    }
}

/// The name of an element of XML Schema.
fn name<'a>(document: &'a Document<'_>, node: NodeId) -> Option<&'a str> {
    let element = document.element(node)?;
    (element.name.namespace_uri.as_deref() == Some(XS_NAMESPACE)).then_some(&*element.name.local_name)
}

fn attribute<'a>(document: &'a Document<'_>, node: NodeId, name: &str) -> Option<&'a str> {
    document.element(node)?.get_attribute(name)
}

fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

#[cfg(test)]
mod tests {
    use super::super::xml;
    use super::*;

    /// The bound for a body under a schema of that content.
    fn visits(schema: &str, body: &str) -> u64 {
        let text = format!("<xs:schema xmlns:xs='{XS_NAMESPACE}'>{schema}</xs:schema>");
        let mut retries = Retries::default();
        retries.add(&xml::tree(&text).unwrap()).unwrap();
        retries.visits(&xml::tree(body).unwrap())
    }

    /// The bound for `<r><a/></r>` under a type of that content: 2, and one more for each further visit of the element.
    fn of_type(content: &str) -> u64 {
        visits(&format!("<xs:complexType name='t'>{content}</xs:complexType>"), "<r><a/></r>")
    }

    #[test]
    fn an_element_is_visited_again_where_a_group_around_it_may_be_given_up() {
        let a = "<xs:element name='a'/>";
        let sequence = |bounds: &str, content: &str| format!("<xs:sequence {bounds}>{content}</xs:sequence>");
        let outer = |content: &str| sequence("", content);
        let optional = sequence("minOccurs='0'", a);
        let repeated = sequence("maxOccurs='unbounded'", a);
        for (content, expected) in [
            (outer(a), 2),
            (optional.clone(), 2),
            (outer(&outer(a)), 2),
            (outer(&sequence("minOccurs='1' maxOccurs='1'", a)), 2),
            (outer(&sequence("maxOccurs='0'", a)), 2),
            (outer(&format!("<xs:choice minOccurs='0'>{a}</xs:choice>")), 2),
            (outer(&optional), 3),
            (format!("<xs:choice>{optional}</xs:choice>"), 3),
            (outer(&format!("<xs:all minOccurs='0'>{a}</xs:all>")), 3),
            (outer(&sequence("minOccurs='0'", &outer(a))), 3),
            (outer(&sequence("minOccurs='0'", "<xs:element ref='x:a'/>")), 3),
            (outer(&sequence("minOccurs='0'", "<xs:element name='b'/>")), 2),
            (outer(&sequence("minOccurs='0'", &format!("{a}{a}"))), 4),
            (outer(&repeated), 4),
            (sequence("maxOccurs='2'", &optional), 4),
            (sequence("maxOccurs='2'", &repeated), 6),
            (outer(&sequence("minOccurs='0'", "<xs:any/>")), 3),
            (
                format!(
                    "<xs:complexContent><xs:extension base='b'>{}</xs:extension></xs:complexContent>",
                    outer(&optional)
                ),
                3,
            ),
        ] {
            assert_eq!(of_type(&content), expected, "{content}");
        }
    }

    #[test]
    fn the_type_that_visits_most_counts() {
        let of = |bounds: &str, particle: &str| {
            format!(
                "<xs:complexType><xs:sequence><xs:sequence {bounds}>{particle}</xs:sequence></xs:sequence></xs:complexType>"
            )
        };
        for particle in ["<xs:element name='a'/>", "<xs:any/>"] {
            let (one, two) = (of("minOccurs='0'", particle), of("maxOccurs='2'", particle));
            for schema in [format!("{one}{two}"), format!("{two}{one}")] {
                assert_eq!(visits(&schema, "<r><a/></r>"), 4, "{schema}");
            }
            let inside = format!("<xs:element name='e'>{one}</xs:element>");
            let around = format!("<xs:complexType><xs:sequence>{inside}</xs:sequence></xs:complexType>");
            assert_eq!(visits(&around, "<r><a/></r>"), 3, "the type of an element of a type");
        }
        let both = of("minOccurs='0'", "<xs:any/><xs:any/>");
        assert_eq!(visits(&both, "<r><a/></r>"), 4);
    }

    #[test]
    fn visits_double_with_each_level() {
        let schema = "<xs:complexType name='t'><xs:sequence><xs:sequence minOccurs='0'><xs:element name='a' type='t'/>\
                      </xs:sequence></xs:sequence></xs:complexType>";
        for (body, expected) in [
            ("<a/>", 1),
            ("<a><a/></a>", 3),
            ("<a><a/><a/></a>", 5),
            ("<a><a><a/></a></a>", 7),
            ("<r><b/><c><a/></c></r>", 5),
        ] {
            assert_eq!(visits(schema, body), expected, "{body}");
        }
    }

    #[test]
    fn only_the_types_that_the_parent_may_have_count() {
        let optional =
            |particle: &str| format!("<xs:sequence><xs:sequence minOccurs='0'>{particle}</xs:sequence></xs:sequence>");
        let of_type = |name: &str, content: &str| format!("<xs:complexType name='{name}'>{content}</xs:complexType>");
        let anything = optional("<xs:any/>");
        let derived = "<xs:complexContent><xs:extension base='t'/></xs:complexContent>";
        // `p` has the type with a wildcard, `q` another.
        let schema = [
            of_type("t", &anything),
            of_type("d", derived),
            of_type("u", &format!("<xs:sequence>{}</xs:sequence>", "<xs:element name='p' type='x:t'/>")),
            "<xs:element name='q' type='u'/>".to_owned(),
            "<xs:element name='e' type='x:d'/>".to_owned(),
            "<xs:element name='plain'/>".to_owned(),
            "<xs:element name='m' substitutionGroup='p'/>".to_owned(),
            format!("<xs:element name='i'><xs:complexType>{derived}</xs:complexType></xs:element>"),
        ]
        .concat();
        for (body, expected) in [
            ("<p><z/></p>", 3),
            ("<q><p/></q>", 2),
            ("<q><q><q><q/></q></q></q>", 4),
            ("<e><z/></e>", 3),
            ("<i><z/></i>", 3),
            ("<m><z/></m>", 3),
            ("<plain><plain/></plain>", 2),
            ("<unknown><q/></unknown>", 3),
            ("<q xmlns:xsi='http://www.w3.org/2001/XMLSchema-instance' xsi:type='d'><z/></q>", 3),
            ("<q xmlns:i='http://www.w3.org/2001/XMLSchema-instance' i:type='d'><z/></q>", 3),
            ("<q xmlns:xsi='urn:another' xsi:type='d'><z/></q>", 3),
            ("<q type='d'><z/></q>", 2),
        ] {
            assert_eq!(visits(&schema, body), expected, "{body}");
        }
    }

    #[test]
    fn groups_are_followed_to_a_depth() {
        let a = "<xs:element name='a'/>";
        let group = |name: &str, content: &str| format!("<xs:group name='{name}'>{content}</xs:group>");
        let refers = |bounds: &str| {
            format!("<xs:complexType><xs:sequence><xs:group ref='x:g' {bounds}/></xs:sequence></xs:complexType>")
        };
        let plain = group("g", &format!("<xs:sequence>{a}</xs:sequence>"));
        let optional = group("g", &format!("<xs:sequence minOccurs='0'>{a}</xs:sequence>"));
        let other = group("h", &format!("<xs:sequence minOccurs='0'>{a}{a}</xs:sequence>"));
        for (schema, expected) in [
            (format!("{plain}{}", refers("")), 2),
            (format!("{plain}{}", refers("minOccurs='0'")), 3),
            (format!("{other}{optional}{}", refers("")), 3),
            (format!("{other}{}", refers("")), 2),
        ] {
            assert_eq!(visits(&schema, "<r><a/></r>"), expected, "{schema}");
        }
        let itself = group("g", &format!("<xs:sequence>{a}<xs:group ref='g' minOccurs='0'/></xs:sequence>"));
        let text = format!("<xs:schema xmlns:xs='{XS_NAMESPACE}'>{itself}{}</xs:schema>", refers(""));
        let refused = Retries::default().add(&xml::tree(&text).unwrap()).unwrap_err();
        assert!(refused.contains("more than 16 deep"), "{refused}");
    }

    #[test]
    fn members_of_a_substitution_group_are_visited_as_their_head() {
        let schema = "<xs:element name='n' substitutionGroup='m'/><xs:element name='m' substitutionGroup='x:a'/>\
                      <xs:element name='other'/><xs:complexType name='t'><xs:sequence><xs:sequence minOccurs='0'>\
                      <xs:element ref='a'/></xs:sequence></xs:sequence></xs:complexType>";
        for (body, expected) in [("<r><a/></r>", 3), ("<r><m/></r>", 3), ("<r><n/></r>", 3), ("<r><other/></r>", 2)] {
            assert_eq!(visits(schema, body), expected, "{body}");
        }
    }

    #[test]
    fn elements_of_other_namespaces_are_no_schema() {
        let strange =
            "<complexType><sequence><sequence minOccurs='0'><element name='a'/></sequence></sequence></complexType>";
        assert_eq!(visits(strange, "<r><a/></r>"), 2);
    }
}
