//! XML schema collections.
//!
//! A collection holds one or more `xs:schema` documents, one after the other, and a body passes if it is valid against
//! one of them. Each stands by itself: `xs:import`, `xs:include`, `xs:redefine` and `xs:override` are refused when the
//! collection is created, so that none of them is silently ignored. Only the namespace of `xml:lang` can be imported.

use super::weights::{Alike, Parts, Weights};
use super::xml::Counted;
use super::{Effort, check_memory, give_way, most_steps, most_time, patterns, processor_time, xml};
use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uppsala::XS_NAMESPACE;
use xsd_schema::validation::{
    DriveWithError, ElementStartView, PathStep, SchemaInfo, SchemaValidator, ValidationError, ValidationEventHandler,
    ValidationFlags, ValidationSink, ValidationWarning, drive_quick_xml_with,
};
use xsd_schema::{EmbeddedLoader, SchemaSet, SchemaSetBuilder};

/// Digits of a number, and of a number in a schema. An integer without a bound is read in the square of its length: a million digits took
/// 2.2 s.
const MOST_DIGITS: usize = 10_000;

/// Compiled copies of one schema that are kept, of a large one only one. A check needs one to itself, so that many checks at once make more.
const MOST_COPIES: usize = 8;
const LARGE_PLACES: u64 = 100_000;

/// Bytes of the names that a compiled schema may learn from bodies before it is compiled again. It keeps those of all elements it meets.
const MOST_NAMES: usize = 4 << 20;

/// The memory of what a path of an identity constraint finds, of an attribute that may be an identity, and of half an item of a list, in
/// bytes.
const FOUND_MEMORY: u64 = 200;
const FOUND_COPIES: u64 = 2;
const ATTRIBUTE_MEMORY: u64 = 200;
const ITEM_MEMORY: u64 = 60;
/// Of an element whose value may be or name an `ID`. Eight megabytes of them took 230 MB.
const REFERENCE_MEMORY: u64 = 250;

/// Steps for rows of identity constraints that are compared one by one: 4,000 dates in one element, which take 2 s.
const MOST_FREE: u64 = 10_000_000;

/// The namespace of `xml:lang`, `xml:space`, `xml:base` and `xml:id`, the only one that may be imported.
const XML_NAMESPACE: &str = "http://www.w3.org/XML/1998/namespace";

/// What the validator calls the schema in its messages.
const SCHEMA: &str = "urn:schema";

/// A compiled collection.
pub(super) struct Collection {
    schemas: Vec<Schema>,
}

/// One schema document.
struct Schema {
    text: Box<str>,
    weights: Weights,
    copies: Mutex<Vec<Copy>>,
}

struct Copy {
    set: SchemaSet,
    names: usize,
}

impl Collection {
    /// # Errors
    /// The wrong schema of the text, and its fault.
    pub(super) fn compile(text: &str) -> Result<Self, String> {
        let mut schemas = Vec::new();
        for (index, document) in xml::split_documents(text)?.into_iter().enumerate() {
            schemas.push(Schema::compile(document).map_err(|why| format!("schema {}: {why}", index + 1))?);
        }
        if schemas.is_empty() {
            return Err("it holds no xs:schema document".into());
        }
        Ok(Self { schemas })
    }

    /// `None` if the effort does not suffice.
    pub(super) fn check(&self, body: &[u8], effort: Effort) -> Option<Result<(), String>> {
        let limit = most_steps(body.len());
        let text = match xml::decode(body) {
            Ok(text) => text,
            Err(why) => return Some(Err(why)),
        };
        self.check_text(&text, effort, limit).transpose()
    }

    /// `None` if the effort does not suffice.
    fn check_text(&self, text: &str, effort: Effort, limit: u64) -> Result<Option<()>, String> {
        let counted = xml::count(text, |element| self.constraints(element))?;
        let parts = counted.parts;
        let sum = |steps: fn(&Weights, Parts) -> u64| {
            self.schemas.iter().map(|schema| steps(&schema.weights, parts)).fold(0, u64::saturating_add)
        };
        // On a thread of its own, some rows that are compared one by one cost nothing more. Nor do patterns, which the time ends.
        let free = if effort == Effort::Full { MOST_FREE } else { 0 };
        let for_patterns = sum(Weights::steps_of_patterns);
        let free_for_patterns = effort.time(text.len()).map_or(0, patterns::most_steps_of_match);
        let steps = sum(Weights::steps)
            .saturating_add(parts.alike.saturating_sub(free))
            .saturating_add(for_patterns.saturating_sub(free_for_patterns));
        if steps > effort.steps().min(limit) {
            if steps <= limit {
                return Ok(None);
            }
            return Err(format!(
                "checking it may take {steps} steps; the limit for a body of its size is {limit}; send fewer elements in one message, or \
                 simplify the types and the identity constraints of the schema"
            ));
        }
        if (counted.has_types || self.schemas.iter().any(|schema| schema.weights.has_integers))
            && counted.digits > MOST_DIGITS
        {
            return Err(format!(
                "one of its values has {} digits in a row; the most that are checked is {MOST_DIGITS}",
                counted.digits
            ));
        }
        check_memory(self.memory(&counted))?;
        let time = most_time(text.len());
        let mut first = None;
        for schema in &self.schemas {
            let Some(copy) = schema.take(effort)? else { return Ok(None) };
            // Of several schemas, the one that declares the root element explains most.
            match guarded(|| copy.validate(text, time))? {
                None => {
                    schema.give_back(copy);
                    return Ok(Some(()));
                }
                Some(fault) => {
                    if first.is_none() || !fault.is_of_unknown_root {
                        first = Some(fault.why);
                    }
                }
            }
            schema.give_back(copy);
        }
        Err(first.unwrap_or_else(|| "no schema of the collection accepts it".into()))
    }

    /// How many paths the identity constraints of an element of that local name have, and those of them that are [`Alike`].
    fn constraints(&self, element: &str) -> (u64, Vec<&Alike>) {
        let paths = self.schemas.iter().filter_map(|schema| schema.weights.constraints.get(element)).sum::<u64>();
        let alike = self.schemas.iter().filter_map(|schema| schema.weights.alike.get(element)).flatten();
        (paths, if paths > 0 { alike.collect() } else { Vec::new() })
    }

    fn memory(&self, counted: &Counted) -> u64 {
        let parts = counted.parts;
        let has_references = self.schemas.iter().any(|schema| schema.weights.has_references);
        let references = if has_references { parts.elements.saturating_mul(REFERENCE_MEMORY) } else { 0 };
        let has_lists = counted.has_types || self.schemas.iter().any(|schema| schema.weights.item > 0);
        let items = if has_lists { parts.bytes.saturating_mul(ITEM_MEMORY) } else { 0 };
        let found =
            parts.found.saturating_mul(FOUND_MEMORY).saturating_add(parts.found_bytes.saturating_mul(FOUND_COPIES));
        found
            .saturating_add(parts.attributes.saturating_mul(ATTRIBUTE_MEMORY))
            .saturating_add(items)
            .saturating_add(references)
    }
}

impl Schema {
    fn compile(text: &str) -> Result<Self, String> {
        let weights = {
            let document = xml::tree(text)?;
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
                let is_of_xml =
                    &*element.name.local_name == "import" && element.get_attribute("namespace") == Some(XML_NAMESPACE);
                if composes && !is_of_xml && element.name.namespace_uri.as_deref() == Some(XS_NAMESPACE) {
                    return Err(format!(
                        "xs:{} is not supported; each schema must stand by itself",
                        element.name.local_name
                    ));
                }
            }
            Weights::of(&document)?
        };
        let digits = xml::count(text, |_| (0, Vec::new()))?.digits;
        if digits > MOST_DIGITS {
            return Err(format!("one of its values has {digits} digits in a row; the limit is {MOST_DIGITS}"));
        }
        let schema = Self { text: text.into(), weights, copies: Mutex::default() };
        schema.give_back(schema.compile_again()?);
        Ok(schema)
    }

    fn compile_again(&self) -> Result<Copy, String> {
        // It loads what comes with the crate, and no file.
        let builder = SchemaSetBuilder::with_loader(Box::new(EmbeddedLoader::new()));
        let compiled = guarded(|| builder.add_source(&self.text, SCHEMA)?.compile())?;
        let set = compiled.map_err(|error| named(&error.to_string()))?.into_schema_set();
        // The standard lets a schema name types that it does not have, as long as no body needs them.
        let missing = set.arenas.elements.values().filter_map(|element| element.deferred_type_error.as_ref());
        let missing =
            missing.chain(set.arenas.simple_types.values().filter_map(|of| of.deferred_item_type_error.as_ref()));
        if let Some(missing) = missing.map(|missing| &missing.message).min() {
            return Err(missing.clone());
        }
        let names = set.name_table.heap_bytes();
        Ok(Copy { set, names })
    }

    fn copies(&self) -> MutexGuard<'_, Vec<Copy>> {
        self.copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A copy for one check; `None` if none is free and the effort is quick.
    fn take(&self, effort: Effort) -> Result<Option<Copy>, String> {
        let free = self.copies().pop();
        match (free, effort) {
            (None, Effort::Full) => self.compile_again().map(Some),
            (free, _) => Ok(free),
        }
    }

    fn give_back(&self, copy: Copy) {
        let has_learned_much = copy.set.name_table.heap_bytes() > copy.names + MOST_NAMES;
        let most = if self.weights.places > LARGE_PLACES { 1 } else { MOST_COPIES };
        let mut copies = self.copies();
        if copies.len() < most && !has_learned_much {
            copies.push(copy);
        }
    }
}

/// Why a body is not valid.
struct Fault {
    why: String,
    is_of_unknown_root: bool,
}

/// Keeps the first fault.
struct First<'f>(&'f RefCell<Option<ValidationError>>);

impl ValidationSink for First<'_> {
    fn on_error(&mut self, error: ValidationError) {
        self.0.borrow_mut().get_or_insert(error);
    }

    fn on_warning(&mut self, _: ValidationWarning) {}
}

/// Ends a check at its first fault, or when its time is over.
struct Watch<'f> {
    found: &'f RefCell<Option<ValidationError>>,
    elements: u32,
    began: Duration,
    gave_way: Duration,
    limit: Duration,
}

/// Processor time after which a check gives way.
const IN_A_ROW: Duration = Duration::from_micros(100);

/// Why a check was ended.
enum Ended {
    ByFault,
    ByTime,
}

impl ValidationEventHandler for Watch<'_> {
    type Error = Ended;

    fn after_element(&mut self, _: ElementStartView<'_>, _: &SchemaInfo) -> Result<(), Ended> {
        if self.found.borrow().is_some() {
            return Err(Ended::ByFault);
        }
        self.elements = self.elements.wrapping_add(1);
        // To ask for the time takes as long as a twentieth of a usual element.
        if !self.elements.is_multiple_of(16) {
            return Ok(());
        }
        let now = processor_time();
        if now.saturating_sub(self.began) > self.limit {
            return Err(Ended::ByTime);
        }
        if now.saturating_sub(self.gave_way) > IN_A_ROW {
            give_way();
            self.gave_way = now;
        }
        Ok(())
    }
}

impl Copy {
    fn validate(&self, text: &str, limit: Duration) -> Option<Fault> {
        let found = RefCell::new(None);
        let validator = SchemaValidator::new(&self.set, ValidationFlags::empty());
        let mut run = validator.start_run(First(&found));
        // No document type is allowed, so nothing can declare one.
        run.set_unparsed_entities(HashSet::new());
        let began = processor_time();
        let mut watch = Watch { found: &found, elements: 0, began, gave_way: began, limit };
        let ended = match drive_quick_xml_with(text.as_bytes(), &mut run, &self.set, &mut watch) {
            Ok(_) => run.end_validation().map_err(|error| fault(&error)),
            Err(DriveWithError::Hook(Ended::ByTime)) => Err(
                "checking it takes too long; send fewer elements in one message, or simplify the types of the schema"
                    .to_owned(),
            ),
            Err(DriveWithError::Hook(Ended::ByFault)) => Ok(()),
            Err(error) => Err(error.to_string()),
        };
        drop(run);
        match found.into_inner() {
            Some(error) => Some(Fault { is_of_unknown_root: error.constraint == "cvc-elt.1", why: fault(&error) }),
            None => ended.err().map(|why| Fault { is_of_unknown_root: false, why }),
        }
    }
}

/// The fault, its rule in the standard, and its place: `/order[1]/line[3]/@pieces`.
fn fault(error: &ValidationError) -> String {
    let mut text = format!("{} ({}", error.message, error.constraint);
    let steps: Vec<&PathStep> = error.instance_path().map(|path| path.steps().collect()).unwrap_or_default();
    for (index, step) in steps.into_iter().enumerate() {
        text.push_str(if index == 0 { ", at /" } else { "/" });
        let _ = match step {
            PathStep::Element { name, position, .. } => write!(text, "{}[{position}]", name.local_name()),
            step => write!(text, "@{}", step.name().local_name()),
        };
    }
    text.push(')');
    text
}

/// A message of the compiler, which names the schema by lines and columns.
fn named(message: &str) -> String {
    message.replace(&format!("{SCHEMA}:"), "line ").replace(SCHEMA, "the schema")
}

/// Schemas and bodies come from strangers; should the validator have a bug that panics, it costs one message, not the
/// broker.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| "the schema validator failed on it".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use uppsala::XSI_NAMESPACE;

    fn schema(root: &str, kind: &str) -> String {
        format!("<xs:schema xmlns:xs='{XS_NAMESPACE}'><xs:element name='{root}' type='xs:{kind}'/></xs:schema>")
    }

    fn compiled(schemas: &str) -> Collection {
        Collection::compile(schemas).unwrap()
    }

    fn why(collection: &Collection, body: &str) -> String {
        collection.check_text(body, Effort::Full, most_steps(body.len())).unwrap_err()
    }

    #[test]
    fn the_steps_of_a_check_are_bounded_exactly() {
        let collection = compiled(&format!("<xs:schema xmlns:xs='{XS_NAMESPACE}'><xs:element name='r'/></xs:schema>"));
        let body = "<r><a x='1'/><a/></r>";
        let check = |body: &str, effort, limit| collection.check_text(body, effort, limit);
        assert_eq!(check(body, Effort::Full, 4), Ok(Some(())));
        assert!(check(body, Effort::Full, 3).unwrap_err().contains("4 steps"));
        let long = format!("<r>{}</r>", "<a/>".repeat(5000));
        assert_eq!(check(&long, Effort::Quick, 9999), Ok(None));
        assert_eq!(check(&long, Effort::Full, 9999), Ok(Some(())));
        assert_eq!(check("<r/>", Effort::Quick, 9999), Ok(Some(())));
    }

    #[test]
    fn the_schema_that_declares_the_root_reports_the_fault() {
        let (one, other) = (schema("one", "int"), schema("other", "int"));
        for text in [format!("{one}{other}"), format!("{other}{one}")] {
            let collection = compiled(&text);
            assert!(why(&collection, "<one>x</one>").contains("'x'"), "{}", why(&collection, "<one>x</one>"));
            assert!(why(&collection, "<third/>").contains("'third'"), "{}", why(&collection, "<third/>"));
        }
    }

    #[test]
    fn a_fault_has_its_place() {
        let collection = compiled(&format!(
            "<xs:schema xmlns:xs='{XS_NAMESPACE}'><xs:element name='r'><xs:complexType><xs:sequence>\
             <xs:element name='n' maxOccurs='9'><xs:complexType><xs:attribute name='i' type='xs:int'/></xs:complexType></xs:element>\
             </xs:sequence></xs:complexType></xs:element></xs:schema>"
        ));
        let of_attribute = why(&collection, "<r><n i='1'/><n i='two'/></r>");
        assert!(of_attribute.ends_with("(cvc-datatype-valid, at /r[1]/n[2]/@i)"), "{of_attribute}");
        assert!(why(&collection, "<r><m/></r>").ends_with("at /r[1])"));
        let of_schema = Collection::compile(&schema("one", "nothing")).err().unwrap();
        assert!(of_schema.contains("nothing"), "{of_schema}");
    }

    #[test]
    fn checks_at_once_have_a_copy_each() {
        let collection = compiled(&schema("one", "int"));
        let schema = &collection.schemas[0];
        let taken: Vec<Copy> = (0..MOST_COPIES + 2).map(|_| schema.take(Effort::Full).unwrap().unwrap()).collect();
        assert!(schema.take(Effort::Quick).unwrap().is_none(), "a quick check compiles nothing");
        assert_eq!(collection.check_text("<one>1</one>", Effort::Quick, 99), Ok(None));
        assert_eq!(collection.check_text("<one>1</one>", Effort::Full, 99), Ok(Some(())));
        taken.into_iter().for_each(|copy| schema.give_back(copy));
        assert_eq!(schema.copies().len(), MOST_COPIES);
    }

    // Elsewhere no clock of processor time is read.
    #[cfg(unix)]
    #[test]
    fn a_check_whose_time_is_over_is_given_up() {
        let collection = compiled(&format!("<xs:schema xmlns:xs='{XS_NAMESPACE}'><xs:element name='r'/></xs:schema>"));
        let copy = collection.schemas[0].take(Effort::Full).unwrap().unwrap();
        let body = format!("<r>{}</r>", "<a/>".repeat(100));
        assert!(copy.validate(&body, most_time(0)).is_none());
        let fault = copy.validate(&body, Duration::ZERO).expect("it took some time");
        assert!(fault.why.contains("too long"), "{}", fault.why);
    }

    #[test]
    fn the_names_of_bodies_are_forgotten() {
        let collection = compiled(&format!("<xs:schema xmlns:xs='{XS_NAMESPACE}'><xs:element name='r'/></xs:schema>"));
        let check = |body: &str| collection.check_text(body, Effort::Full, u64::MAX).unwrap();
        let names: String = (0..10_000).map(|name| format!("<a{name}/>")).collect();
        check(&format!("<r>{names}</r>"));
        assert_eq!(collection.schemas[0].copies().len(), 1);
        check(&format!("<r><{}/></r>", "long".repeat(1 << 20)));
        assert_eq!(collection.schemas[0].copies().len(), 0);
        check("<r/>");
        assert_eq!(collection.schemas[0].copies().len(), 1);
    }

    #[test]
    fn the_digits_of_a_number_have_a_limit() {
        let (integers, texts) = (compiled(&schema("one", "nonNegativeInteger")), compiled(&schema("one", "string")));
        let check = |collection: &Collection, value: &str| {
            collection.check_text(&format!("<one>{value}</one>"), Effort::Full, u64::MAX).map(|_| ())
        };
        let digits = |count: usize| "7".repeat(count);
        assert_eq!(check(&integers, &digits(MOST_DIGITS)), Ok(()));
        let half = digits(MOST_DIGITS / 2);
        for too_many in [
            digits(MOST_DIGITS + 1),
            format!("{half}&#55;{half}"),
            format!("{half}<![CDATA[1]]>{half}"),
            format!("{half}<!-- -->1{half}"),
        ] {
            assert!(check(&integers, &too_many).unwrap_err().contains("10001 digits"));
            assert_eq!(check(&texts, &too_many), Ok(()));
        }
        let typed = format!(
            "<one xmlns:xsi='{XSI_NAMESPACE}' xmlns:xs='{XS_NAMESPACE}' xsi:type='xs:string'>{}</one>",
            digits(MOST_DIGITS + 1)
        );
        let refused = texts.check_text(&typed, Effort::Full, u64::MAX).unwrap_err();
        assert!(refused.contains("10001 digits"), "a body may name any type: {refused}");
        let facet = format!(
            "<xs:simpleType name='s'><xs:restriction base='xs:integer'><xs:maxInclusive value='{}'/></xs:restriction></xs:simpleType>",
            digits(MOST_DIGITS + 1)
        );
        let refused = Collection::compile(&format!("<xs:schema xmlns:xs='{XS_NAMESPACE}'>{facet}</xs:schema>"));
        assert!(refused.err().unwrap().contains("digits"));
    }

    #[test]
    fn what_is_kept_of_a_body_counts_as_memory() {
        let memory = |schema: &str, body: &str| {
            let collection = compiled(&format!("<xs:schema xmlns:xs='{XS_NAMESPACE}'>{schema}</xs:schema>"));
            collection.memory(&xml::count(body, |element| collection.constraints(element)).unwrap())
        };
        let plain = "<xs:element name='r'/>";
        assert_eq!(memory(plain, "<r>abcde<a/></r>"), 0);
        assert_eq!(memory(plain, "<r a='b'/>"), ATTRIBUTE_MEMORY);
        let unique = "<xs:element name='r'><xs:unique name='u'><xs:selector xpath='a'/><xs:field xpath='@i'/></xs:unique></xs:element>";
        assert_eq!(memory(unique, "<r>abcde<a/></r>"), 2 * (2 * FOUND_MEMORY + 5 * FOUND_COPIES));
        let list = "<xs:element name='r' type='xs:NMTOKENS'/>";
        assert_eq!(memory(list, "<r>a b</r>"), 10 * ITEM_MEMORY);
        let reference = "<xs:element name='r' type='xs:IDREF'/>";
        assert_eq!(memory(reference, "<r>ab</r>"), REFERENCE_MEMORY);
        let hinted = format!("<r xmlns:xsi='{XSI_NAMESPACE}' xsi:schemaLocation='a b'/>");
        assert_eq!(memory(plain, &hinted), ATTRIBUTE_MEMORY, "it names no type");
        let typed = format!("<r xmlns:xsi='{XSI_NAMESPACE}' xmlns:xs='{XS_NAMESPACE}' xsi:type='xs:NMTOKENS'/>");
        assert_eq!(memory(plain, &typed), ATTRIBUTE_MEMORY + typed.len() as u64 * ITEM_MEMORY);
    }

    #[test]
    fn a_full_check_compares_some_rows_for_nothing_and_limits_are_within_themselves() {
        let collection = compiled(&format!(
            "<xs:schema xmlns:xs='{XS_NAMESPACE}'><xs:element name='r'><xs:complexType><xs:sequence>\
             <xs:element name='n' maxOccurs='unbounded'><xs:complexType><xs:attribute name='at' type='xs:date'/></xs:complexType>\
             </xs:element></xs:sequence></xs:complexType>\
             <xs:unique name='u'><xs:selector xpath='n'/><xs:field xpath='@at'/></xs:unique></xs:element></xs:schema>"
        ));
        let rows: String = (1900..2000).map(|year| format!("<n at='{year}-01-01'/>")).collect();
        let body = format!("<r>{rows}</r>");
        // 1,817 steps, and 6,250 for the rows.
        assert_eq!(collection.check_text(&body, Effort::Full, 5000), Ok(Some(())));
        assert_eq!(collection.check_text(&body, Effort::Quick, 10_000), Ok(None));
        let any = compiled(&format!("<xs:schema xmlns:xs='{XS_NAMESPACE}'><xs:element name='r'/></xs:schema>"));
        let long = format!("<r>{}</r>", "<a/>".repeat(5000));
        assert_eq!(any.check_text(&long, Effort::Full, 5001), Ok(Some(())));
        assert_eq!(any.check_text(&long, Effort::Quick, 5001), Ok(None), "a full check may take so many");
        let noted = |digits: usize| {
            let note =
                format!("<xs:annotation><xs:documentation>{}</xs:documentation></xs:annotation>", "7".repeat(digits));
            Collection::compile(&format!(
                "<xs:schema xmlns:xs='{XS_NAMESPACE}'>{note}<xs:element name='r'/></xs:schema>"
            ))
        };
        assert!(noted(MOST_DIGITS).is_ok());
        assert!(noted(MOST_DIGITS + 1).err().unwrap().contains("10001 digits"));
    }

    // Elsewhere no clock of processor time is read.
    #[cfg(unix)]
    #[test]
    fn the_time_of_a_check_begins_with_it_and_a_long_one_gives_way() {
        use super::super::{GAVE_WAY, MAY_GIVE_WAY};
        let collection = compiled(&format!("<xs:schema xmlns:xs='{XS_NAMESPACE}'><xs:element name='r'/></xs:schema>"));
        let copy = collection.schemas[0].take(Effort::Full).unwrap().unwrap();
        let body = |elements: usize| format!("<r>{}</r>", "<a/>".repeat(elements));
        let limit = Duration::from_millis(200);
        // What the thread did before does not count.
        while processor_time() < limit {}
        assert!(copy.validate(&body(100), limit).is_none());
        MAY_GIVE_WAY.set(true);
        GAVE_WAY.set(0);
        assert!(copy.validate(&body(5000), most_time(0)).is_none());
        MAY_GIVE_WAY.set(false);
        assert!(GAVE_WAY.get() > 0);
    }
}
