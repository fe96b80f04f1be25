//! The copies that the schema validator makes of named groups.
//!
//! The validator copies the content of a group to each place that refers to the group. If each of ten groups refers ten
//! times to the group before it, a schema of two kilobytes has 10,000,000,000 elements.

use std::collections::HashMap;
use uppsala::{Document, NodeId};

/// Elements that the groups and types of a schema may copy. A copy takes about 500 bytes.
pub(super) const MOST_COPIES: u64 = 500_000;

/// Why the schema is refused: it copies more than [`MOST_COPIES`].
pub(super) fn refusal() -> String {
    format!(
        "its groups refer to one another so often that they copy more than {MOST_COPIES} elements; refer less often"
    )
}

/// The elements in each group, by kind and local name. The validator supports groups of one namespace only.
type Sizes = HashMap<(String, String), u64>;

/// Refuses a schema that copies too much.
///
/// # Errors
/// Names the limit.
pub(super) fn check(document: &Document<'_>) -> Result<(), String> {
    if copies(document) > MOST_COPIES { Err(refusal()) } else { Ok(()) }
}

fn copies(document: &Document<'_>) -> u64 {
    let Some(root) = document.document_element() else { return 0 };
    // The validator reads all groups first, in their order: a group finds only those before it.
    let (groups, others): (Vec<NodeId>, Vec<NodeId>) =
        document.children_iter(root).partition(|node| kind(document, *node).is_some());
    let (mut sizes, mut copied) = (Sizes::new(), 0_u64);
    for node in groups.into_iter().chain(others) {
        let (written, copies) = size(document, node, &sizes);
        copied = copied.saturating_add(copies);
        if let (Some(kind), Some(name)) = (kind(document, node), attribute(document, node, "name")) {
            sizes.entry((kind.to_owned(), name.to_owned())).or_insert(written.saturating_add(copies));
        }
    }
    copied
}

/// The elements below a node: its own, and those copied by its references.
fn size(document: &Document<'_>, node: NodeId, sizes: &Sizes) -> (u64, u64) {
    let (mut written, mut copied) = (0_u64, 0_u64);
    for child in document.children_iter(node).filter(|child| document.element(*child).is_some()) {
        let (below, copies) = size(document, child, sizes);
        written = written.saturating_add(below).saturating_add(1);
        copied = copied.saturating_add(copies);
        if let (Some(kind), Some(name)) = (kind(document, child), attribute(document, child, "ref")) {
            let local = name.rsplit_once(':').map_or(name, |(_, local)| local);
            let copies = sizes.get(&(kind.to_owned(), local.to_owned())).copied().unwrap_or(0);
            copied = copied.saturating_add(copies);
        }
    }
    (written, copied)
}

/// `group` or `attributeGroup`, in any namespace: the validator takes some prefixes for that of XML Schema.
fn kind<'a>(document: &'a Document<'_>, node: NodeId) -> Option<&'a str> {
    let local = &*document.element(node)?.name.local_name;
    matches!(local, "group" | "attributeGroup").then_some(local)
}

fn attribute<'a>(document: &'a Document<'_>, node: NodeId, name: &str) -> Option<&'a str> {
    document.element(node)?.get_attribute(name)
}

#[cfg(test)]
mod tests {
    use super::super::xml;
    use super::*;

    #[test]
    fn a_reference_copies_the_particles_of_its_group() {
        let group = |kind: &str, name: &str, content: &str| format!("<xs:{kind} name='{name}'>{content}</xs:{kind}>");
        let refers = |kind: &str, name: &str| format!("<xs:{kind} ref='{name}'/>");
        let of_two = group("group", "g", "<xs:sequence><xs:element name='a'/></xs:sequence>");
        let attributes = group("attributeGroup", "g", "<xs:attribute name='a'/>");
        let in_type = |content: &str| format!("<xs:complexType name='t'>{content}</xs:complexType>");
        let by_two = group("group", "h", &refers("group", "g").repeat(2));
        for (schema, expected) in [
            (of_two.clone(), 0),
            (format!("{of_two}{}", in_type(&refers("group", "g"))), 2),
            (format!("{}{of_two}", in_type(&refers("group", "x:g"))), 2),
            (format!("{of_two}{by_two}"), 4),
            // Two references stand in `h`, and their copies count for it.
            (format!("{of_two}{by_two}{}", in_type(&refers("group", "h"))), 4 + 6),
            (format!("{by_two}{of_two}"), 0),
            (format!("{of_two}{attributes}{}", in_type(&refers("attributeGroup", "g"))), 1),
            (group("group", "g", &refers("group", "g").repeat(9)), 0),
        ] {
            let text = format!("<xs:schema xmlns:xs='http://www.w3.org/2001/XMLSchema'>{schema}</xs:schema>");
            assert_eq!(copies(&xml::tree(&text).unwrap()), expected, "{schema}");
        }
    }
}
