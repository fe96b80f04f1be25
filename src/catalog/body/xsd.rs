//! XML schema collections.
//!
//! A collection holds one or more `xs:schema` documents, one after the other, and a body passes if it is valid against
//! one of them. Each stands by itself: `xs:import`, `xs:include`, `xs:redefine` and `xs:override` are refused when the
//! collection is created, so that none of them is silently ignored.

use super::retries::Retries;
use super::{Effort, check_memory, copies, most_steps, xml};
use std::panic::{AssertUnwindSafe, catch_unwind};
use uppsala::{Document, NodeId, XS_NAMESPACE, XsdValidator};

/// Up to this size a rejection names line and column.
const MOST_BYTES_WITH_PLACES: usize = 64 * 1024;

/// The memory of the report of one fault, in bytes.
const FAULT_MEMORY: u64 = 128;

/// A compiled collection.
pub(super) struct Collection {
    schemas: Vec<XsdValidator>,
    retries: Retries,
}

impl Collection {
    /// # Errors
    /// The wrong schema of the text, and its fault.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let (mut schemas, mut retries) = (Vec::new(), Retries::default());
        for (index, document) in xml::split_documents(text)?.into_iter().enumerate() {
            let schema = compile_one(document, &mut retries).map_err(|why| format!("schema {}: {why}", index + 1))?;
            schemas.push(schema);
        }
        if schemas.is_empty() {
            return Err("it holds no xs:schema document".into());
        }
        Ok(Self { schemas, retries })
    }

    /// `None` if the effort does not suffice.
    pub(super) fn check(&self, body: &[u8], effort: Effort) -> Option<Result<(), String>> {
        let limit = most_steps(body.len());
        let parsed = match xml::decode(body) {
            Ok(text) => text,
            Err(why) => return Some(Err(why)),
        };
        let result = self.check_text(&parsed, effort.steps().min(limit), limit);
        result.transpose()
    }

    /// `None` if it takes more than `steps`, but not more than the limit.
    fn check_text(&self, text: &str, steps: u64, limit: u64) -> Result<Option<()>, String> {
        let parsed = xml::tree(text)?;
        self.retries.check_depth(&parsed)?;
        let searches = self.retries.searches(&parsed);
        check_memory(searches.found.saturating_mul(FAULT_MEMORY))?;
        let visits = self.retries.visits(&parsed).saturating_add(searches.steps);
        if visits > limit {
            return Err(format!(
                "checking it may take {visits} steps; the limit for a body of its size is {limit}; nest it less, or simplify \
                 the optional sequences and the identity constraints of the schema"
            ));
        }
        if visits > steps {
            return Ok(None);
        }
        let has_places = text.len() <= MOST_BYTES_WITH_PLACES;
        let document = if has_places { parsed } else { without_places(&parsed) };
        let mut first = None;
        for schema in &self.schemas {
            // Of several schemas, the one that declares the root element explains most.
            match guarded(|| schema.validate(&document))?.into_iter().next() {
                None => return Ok(Some(())),
                Some(error) => {
                    let knows_root = !error.message.starts_with("No element declaration");
                    if first.is_none() || knows_root {
                        first = Some(if has_places { error.to_string() } else { error.message });
                    }
                }
            }
        }
        Err(first.unwrap_or_else(|| "no schema of the collection accepts it".into()))
    }
}

/// The same tree without its text. The validator counts the lines before each fault it finds, from the beginning of the
/// text: a megabyte with a fault in each of its elements took minutes.
fn without_places(parsed: &Document<'_>) -> Document<'static> {
    let mut document = Document::new();
    let root = document.root();
    for child in parsed.children_iter(parsed.root()) {
        if let Some(copy) = document.import_subtree(parsed, child) {
            document.append_child(root, copy);
        }
    }
    document
}

fn compile_one(text: &str, retries: &mut Retries) -> Result<XsdValidator, String> {
    let mut document = xml::tree(text)?;
    let root = document.document_element().ok_or("it has no root element")?;
    let is_schema = document.element(root).is_some_and(|element| {
        element.name.local_name == "schema" && element.name.namespace_uri.as_deref() == Some(XS_NAMESPACE)
    });
    if !is_schema {
        return Err(format!("its root element must be 'schema' in the namespace {XS_NAMESPACE}"));
    }
    for child in document.children(root) {
        let Some(element) = document.element(child) else { continue };
        let composes = matches!(&*element.name.local_name, "import" | "include" | "redefine" | "override");
        if composes && element.name.namespace_uri.as_deref() == Some(XS_NAMESPACE) {
            return Err(format!("xs:{} is not supported; each schema must stand by itself", element.name.local_name));
        }
    }
    if let Some(prefix) = foreign_prefix(&document) {
        return Err(format!(
            "the prefix '{prefix}' is of another namespace than {XS_NAMESPACE}; give that one another prefix"
        ));
    }
    leave_out_alternatives_of_none(&mut document);
    copies::check(&document)?;
    retries.add(&document)?;
    guarded(|| XsdValidator::from_schema(&document))?.map_err(|error| error.to_string())
}

/// An element whose prefix is that of XML Schema by custom, but of another namespace. The validator takes it for one of XML Schema,
/// and the checks before it do not.
fn foreign_prefix<'d>(document: &'d Document<'_>) -> Option<&'d str> {
    let mut open = vec![document.root()];
    while let Some(node) = open.pop() {
        if let Some(element) = document.element(node)
            && let Some(prefix @ ("xs" | "xsd")) = element.name.prefix.as_deref()
            && element.name.namespace_uri.as_deref() != Some(XS_NAMESPACE)
        {
            return Some(prefix);
        }
        open.extend(document.children(node));
    }
    None
}

/// Removes each element with maxOccurs="0" from its `xs:choice`: it stands for no element. The validator took such an element of a
/// body for an alternative, went on to the next repetition without it, and in an unbounded choice never ended.
fn leave_out_alternatives_of_none(document: &mut Document<'_>) {
    let is_named = |document: &Document<'_>, node: NodeId, name: &str| {
        document.element(node).is_some_and(|element| {
            &*element.name.local_name == name && element.name.namespace_uri.as_deref() == Some(XS_NAMESPACE)
        })
    };
    let is_none = |document: &Document<'_>, node: NodeId| {
        let most = document.get_attribute(node, "maxOccurs");
        is_named(document, node, "element") && most.is_some_and(|most| most.trim().parse() == Ok(0_u64))
    };
    let mut found = Vec::new();
    let mut open = vec![document.root()];
    while let Some(parent) = open.pop() {
        let is_choice = is_named(document, parent, "choice");
        for child in document.children(parent) {
            if is_choice && is_none(document, child) {
                found.push(child);
            } else {
                open.push(child);
            }
        }
    }
    for node in found {
        document.detach(node);
    }
}

/// Schemas and bodies come from strangers; should the validator have a bug that panics, it costs one message, not the
/// broker.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| "the schema validator failed on it".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema(root: &str, kind: &str) -> String {
        format!("<xs:schema xmlns:xs='{XS_NAMESPACE}'><xs:element name='{root}' type='xs:{kind}'/></xs:schema>")
    }

    #[test]
    fn the_steps_of_a_check_are_bounded_exactly() {
        let of_three = format!(
            "<xs:schema xmlns:xs='{XS_NAMESPACE}'><xs:element name='r'><xs:complexType><xs:sequence>\
             <xs:element name='a' maxOccurs='2'/></xs:sequence></xs:complexType></xs:element></xs:schema>"
        );
        let collection = Collection::compile(&of_three).unwrap();
        let check = |steps, limit| collection.check_text("<r><a/><a/></r>", steps, limit);
        assert_eq!(check(3, 3), Ok(Some(())));
        assert_eq!(check(4, 4), Ok(Some(())));
        assert_eq!(check(2, 3), Ok(None));
        assert_eq!(check(1, 9), Ok(None));
        assert!(check(2, 2).unwrap_err().contains("3 steps"));
        assert!(check(1, 1).is_err());
    }

    #[test]
    fn an_alternative_of_no_element_ends_the_check() {
        for (repeats, none) in [("unbounded", " 0 "), ("unbounded", "0"), ("18446744073709551615", "00")] {
            let text = format!(
                "<xs:schema xmlns:xs='{XS_NAMESPACE}'><xs:element name='r'><xs:complexType><xs:choice maxOccurs='{repeats}'>\
                 <xs:element name='b' minOccurs='0' maxOccurs='{none}'/><xs:element name='a'/></xs:choice></xs:complexType>\
                 </xs:element></xs:schema>"
            );
            let collection = Collection::compile(&text).unwrap();
            let check = |body: &str| collection.check_text(body, 99, 99);
            assert!(check("<r><a/><b/></r>").is_err());
            assert_eq!(check("<r><a/><a/></r>"), Ok(Some(())));
        }
    }

    #[test]
    fn an_element_of_another_namespace_is_none_of_xml_schema() {
        for prefix in ["xs", "xsd"] {
            let text = format!(
                "<schema xmlns='{XS_NAMESPACE}' xmlns:{prefix}='urn:x'><element name='r'><complexType><choice maxOccurs='unbounded'>\
                 <{prefix}:element name='b' maxOccurs='0'/><element name='a'/></choice></complexType></element></schema>"
            );
            let refused = Collection::compile(&text).err().expect(prefix);
            assert!(refused.contains("another namespace"), "{refused}");
        }
    }

    #[test]
    fn the_schema_that_declares_the_root_reports_the_fault() {
        let (one, other) = (schema("one", "int"), schema("other", "int"));
        for text in [format!("{one}{other}"), format!("{other}{one}")] {
            let collection = Collection::compile(&text).unwrap();
            let why = |body: &str| collection.check_text(body, 9, 9).unwrap_err();
            assert!(!why("<one>x</one>").contains("No element declaration"), "{}", why("<one>x</one>"));
            assert!(why("<third/>").contains("No element declaration"), "{}", why("<third/>"));
        }
    }

    #[test]
    fn the_line_of_a_fault_is_reported_for_bodies_up_to_a_size() {
        let collection = Collection::compile(&schema("one", "int")).unwrap();
        let why = |bytes: usize| {
            let head = format!("{}<one>x", "\n".repeat(776));
            let body = format!("{head}{}</one>", " ".repeat(bytes - head.len() - "</one>".len()));
            collection.check_text(&body, 9, 9).unwrap_err()
        };
        assert!(why(1000).contains("777"), "{}", why(1000));
        assert!(why(64 << 10).contains("777"), "{}", why(64 << 10));
        assert!(!why((64 << 10) + 1).contains("777"), "{}", why((64 << 10) + 1));
    }

    #[test]
    fn a_long_body_is_checked_as_a_short_one() {
        let collection = Collection::compile(&schema("one", "int")).unwrap();
        for bytes in [1000, (64 << 10) + 1] {
            let check = |value: &str| {
                let body = format!("<one>{value}{}</one>", " ".repeat(bytes - value.len() - "<one></one>".len()));
                assert_eq!(body.len(), bytes);
                collection.check_text(&body, 9, 9)
            };
            assert_eq!(check("7"), Ok(Some(())), "{bytes} bytes");
            let why = check("seven").unwrap_err();
            assert!(why.contains("seven"), "{bytes} bytes: {why}");
        }
    }
}
