//! How often the schema validator may visit the elements of a body.
//!
//! An optional or repeated `xs:sequence` inside another model group is tried and given up again: its elements, with all
//! below them, are then validated once more by what follows. If such a type contains itself, the visits double with each
//! level. The validator has no limit of its own, so an upper bound of its visits is counted before it is asked.

use std::collections::HashMap;
use uppsala::{Document, NodeId, XS_NAMESPACE};

/// Groups that refer to groups, at most so deep.
const MAX_GROUPS: u32 = 16;

/// Visits of an element by its parent, by local name: the largest of all types of the schemas.
#[derive(Debug, Default)]
pub(super) struct Retries {
    visits: HashMap<String, u64>,
    /// Added for each element, for wildcards.
    any: u64,
}

struct Schema<'a> {
    document: &'a Document<'a>,
    groups: HashMap<String, NodeId>,
}

/// Where a particle stands.
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
    /// Adds what a schema document asks for.
    pub(super) fn add(&mut self, document: &Document<'_>) {
        let Some(root) = document.document_element() else { return };
        let named = document.children_iter(root).filter(|node| name(document, *node) == Some("group"));
        let groups = named.filter_map(|node| Some((attribute(document, node, "name")?.to_owned(), node))).collect();
        let schema = Schema { document, groups };
        self.visit_types(&schema, root);
        let members: Vec<(String, String)> = document
            .children_iter(root)
            .filter(|node| name(document, *node) == Some("element"))
            .filter_map(|node| {
                let member = attribute(document, node, "name")?;
                Some((member.to_owned(), local(attribute(document, node, "substitutionGroup")?).to_owned()))
            })
            .collect();
        // A member of a substitution group is visited where its head is, and so are the members it heads.
        for _ in 0..members.len() {
            let mut has_changed = false;
            for (member, head) in &members {
                let visits = self.visits.get(head).copied().unwrap_or(0);
                let known = self.visits.entry(member.clone()).or_default();
                has_changed |= visits > *known;
                *known = visits.max(*known);
            }
            if !has_changed {
                break;
            }
        }
    }

    fn visit_types(&mut self, schema: &Schema<'_>, node: NodeId) {
        for child in schema.document.children_iter(node) {
            if name(schema.document, child) == Some("complexType") {
                let mut of_type = Self::default();
                of_type.visit_particles(schema, child, Place::default());
                self.any = self.any.max(of_type.any);
                for (name, visits) in of_type.visits {
                    let known = self.visits.entry(name).or_default();
                    *known = visits.max(*known);
                }
            }
            self.visit_types(schema, child);
        }
    }

    fn visit_particles(&mut self, schema: &Schema<'_>, node: NodeId, place: Place) {
        let document = schema.document;
        for child in document.children_iter(node) {
            let Some(kind) = name(document, child) else { continue };
            let visits = if place.may_retry { 1 << place.repeated.min(32) } else { 0_u64 };
            match kind {
                "element" => {
                    let named = attribute(document, child, "name").or_else(|| attribute(document, child, "ref"));
                    if let Some(named) = named {
                        let known = self.visits.entry(local(named).to_owned()).or_default();
                        *known = known.saturating_add(visits);
                    }
                }
                "any" => self.any = self.any.saturating_add(visits),
                "group" if place.groups < MAX_GROUPS => {
                    let group = attribute(document, child, "ref").and_then(|name| schema.groups.get(local(name)));
                    if let Some(&group) = group {
                        let inside = inside(document, child, place);
                        self.visit_particles(schema, group, Place { groups: place.groups + 1, ..inside });
                    }
                }
                "sequence" | "choice" | "all" => self.visit_particles(schema, child, inside(document, child, place)),
                // What a type extends comes first, inside the same sequence.
                "complexContent" | "extension" | "restriction" => self.visit_particles(schema, child, place),
                _ => {}
            }
        }
    }

    /// An upper bound of the visits that validating a body takes.
    pub(super) fn visits(&self, body: &Document<'_>) -> u64 {
        body.document_element().map_or(0, |root| self.below(body, root))
    }

    fn below(&self, body: &Document<'_>, node: NodeId) -> u64 {
        let mut visits = 1_u64;
        for child in body.children_iter(node) {
            if let Some(element) = body.element(child) {
                let again = self.visits.get(&*element.name.local_name).copied().unwrap_or(0).saturating_add(self.any);
                visits = visits.saturating_add(self.below(body, child).saturating_mul(again.saturating_add(1)));
            }
        }
        visits
    }
}

/// The place of what a model group, or a reference to one, holds.
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
        retries.add(&xml::tree(&text).unwrap());
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
        let schema = "<xs:complexType name='t'><xs:sequence><xs:sequence minOccurs='0'><xs:element name='a'/></xs:sequence>\
                      </xs:sequence></xs:complexType>";
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
        assert_eq!(visits(&format!("{itself}{}", refers("")), "<r><a/></r>"), 1 + u64::from(MAX_GROUPS));
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
