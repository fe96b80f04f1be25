//! What the check of a body by an XML schema costs, read off the schema before it is compiled.
//!
//! The validator has no limit of its own that a body of some megabytes would meet, so an upper bound of its work is counted before it runs.
//! One step is about 0.2 µs of a release build. The factors below were measured with `xsd-schema` 0.3.

mod alike;

use super::patterns::{self, Pattern};
use std::cell::RefCell;
use std::collections::HashMap;
use uppsala::{Document, NodeId, XS_NAMESPACE};

pub(super) use alike::Alike;

/// The work of compiling the content models of a schema, in units of 9 ns. For n particles with r repetitions in one another it is
/// n² · (16 + 12 · 4^r): a choice of 30 elements in six repeated groups took 0.4 s, in seven 1.6.
const MOST_COMPILING: u64 = 200_000_000;

/// Repetitions that the compiler copies instead of counting them. Nine copies of nine copies, six times over, took all memory there was.
const COPIED: u64 = 16;

/// How many ways of counting the repetitions of one content model may be open at once. A sequence of 0 to 100 sequences of 0 to 100 `a` has
/// 10,000, and takes 73 µs for each `a`; with one more around it, of 9 or more, 75 ms.
const MOST_COUNTS: u64 = 10_000;

/// Alternatives of one simple type and of its members, and attributes of one element. A union of unions doubles with each.
const MOST_ALTERNATIVES: u64 = 100_000;

/// Components that refer to one another in a row. The compiler refuses half as many; this only ends the recursion.
const MOST_IN_A_ROW: u32 = 256;

/// Places of all patterns of a schema, written out. 2,900,000 took 2.3 s and 435 MB to compile.
const MOST_PLACES: u64 = 1_000_000;

/// Groups and classes of a pattern in one another. The compiler calls itself for each: 100,000 of `[a-[a-[` overflowed its stack, and the
/// process ended.
const MOST_DEEP: u32 = 100;

/// Steps for an element that a path of an identity constraint may find. A constraint has two at least, and took 2 to 6 µs.
const FOUND: u64 = 8;

/// The types of XML Schema whose values are their texts.
const TEXTS: [&str; 11] =
    ["string", "normalizedString", "token", "language", "Name", "NCName", "NMTOKEN", "ID", "IDREF", "ENTITY", "anyURI"];

/// The namespace of attributes such as `vc:minVersion`.
const VERSIONING: &str = "http://www.w3.org/2007/XMLSchema-versioning";

/// Those whose values are moments; durations are apart.
const MOMENTS: [&str; 8] = ["dateTime", "time", "date", "gYearMonth", "gYear", "gMonthDay", "gDay", "gMonth"];

/// Those whose values name elements by their `ID`, and are kept to the end.
const REFERENCES: [&str; 3] = ["ID", "IDREF", "IDREFS"];

/// The types of XML Schema whose values are lists.
const LISTS: [&str; 3] = ["NMTOKENS", "IDREFS", "ENTITIES"];

/// What a schema costs for each part of a body, in steps.
#[derive(Debug, Default)]
pub(super) struct Weights {
    /// For each check.
    pub(super) check: u64,
    /// For each element, its value included.
    pub(super) element: u64,
    /// For each attribute.
    pub(super) attribute: u64,
    /// For each two bytes, of items of lists.
    pub(super) item: u64,
    /// For each 32 bytes: patterns that a value is held against.
    pub(super) patterns: u64,
    /// How many paths the identity constraints of an element of that local name have.
    pub(super) constraints: HashMap<String, u64>,
    /// The constraints of that element whose rows are compared one by one.
    pub(super) alike: HashMap<String, Vec<Alike>>,
    /// Whether the value of an element may be or name an `ID`.
    pub(super) has_references: bool,
    /// Whether a type has integers without a bound.
    pub(super) has_integers: bool,
    /// The places of all patterns, which are most of the memory of a compiled schema.
    pub(super) places: u64,
}

/// The parts of a body that cost.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Parts {
    pub(super) bytes: u64,
    pub(super) elements: u64,
    pub(super) attributes: u64,
    /// Elements inside others with identity constraints, one for each path of these.
    pub(super) found: u64,
    /// Bytes of values inside others with identity constraints, likewise.
    pub(super) found_bytes: u64,
    /// Steps for the rows of constraints that are [`Alike`].
    pub(super) alike: u64,
}

impl Weights {
    /// # Errors
    /// The schema would take too long to compile, or a body too long to check.
    pub(super) fn of(document: &Document<'_>) -> Result<Self, String> {
        let schema = Schema::of(document);
        if let Some(name) = schema.versioning {
            return Err(format!("the attribute '{name}' is of XML Schema 1.1; remove it"));
        }
        let (mut compiling, mut weights) = (0_u64, Self { element: 1, attribute: 1, ..Self::default() });
        let (mut model, mut attributes, mut value) = (Model::default(), 0_u64, Value::default());
        let (mut namespaces, mut given, mut deep, mut compared) = (0, 0, 0, None);
        for &node in &schema.elements {
            given = given.max(schema.given(node));
            match schema.kind(node) {
                "complexType" => {
                    let of_type = schema.model_of_type(node, 0);
                    compiling = compiling.saturating_add(of_type.compiling());
                    model = model.widest(of_type);
                    attributes = attributes.max(schema.attributes_of(node, 0));
                }
                "restriction" | "list" | "union" => value = value.widest(schema.value_of_parts(node, 0)),
                "unique" | "key" | "keyref" => {
                    let owner = document.parent(node).and_then(|owner| schema.attribute(owner, "name"));
                    let paths = weights.constraints.entry(owner.unwrap_or_default().to_owned()).or_default();
                    *paths = paths.saturating_add(schema.paths(node));
                    let compared = compared.get_or_insert_with(|| schema.compared());
                    if let Some(alike) = schema.alike(node, compared) {
                        weights.alike.entry(owner.unwrap_or_default().to_owned()).or_default().push(alike);
                    }
                }
                "pattern" => {
                    let pattern = schema.pattern(node);
                    weights.places = weights.places.saturating_add(pattern.places);
                    deep = deep.max(pattern.deep);
                }
                "any" | "anyAttribute" => namespaces = namespaces.max(schema.namespaces(node)),
                _ => {}
            }
        }
        if compiling > MOST_COMPILING {
            return Err(format!(
                "compiling its content models takes {compiling} units of work; the limit is {MOST_COMPILING}; use fewer elements in one \
                 type, and fewer repeated groups in one another"
            ));
        }
        if model.counts > MOST_COUNTS {
            return Err(format!(
                "repeated groups in one another can be counted in {} ways; the limit is {MOST_COUNTS}; give fewer of them a minOccurs of 0 \
                 or above 1, or a smaller maxOccurs",
                model.counts
            ));
        }
        let alternatives = value.steps.max(attributes);
        if alternatives > MOST_ALTERNATIVES {
            return Err(format!(
                "one of its types has {alternatives} alternatives or attributes; the limit is {MOST_ALTERNATIVES}; refer less often"
            ));
        }
        if deep > MOST_DEEP {
            return Err(format!(
                "a pattern nests {deep} groups or classes in one another; the limit is {MOST_DEEP}; write it with fewer"
            ));
        }
        if weights.places > MOST_PLACES {
            return Err(format!(
                "its patterns have {} places with their repetitions written out; the limit is {MOST_PLACES}; repeat less, or use xs:maxLength",
                weights.places
            ));
        }
        // Each counter is kept for each place in the model that may be the next: in 60 fields, some counted, 89 µs for each element.
        let counters = match model.all_counters {
            0 | 1 => 0,
            counters => counters.saturating_mul(7 + model.particles / 8),
        };
        weights.element += model.particles / 8
            + model.counts * model.counts / 25_000
            + counters
            + attributes / 4
            + namespaces / 4
            + given / 2
            + value.steps;
        weights.attribute += attributes / 80 + namespaces / 4 + given / 2 + value.steps;
        // The first element of each check goes through the whole model: 8 ns for the square of its particles.
        weights.check = model.particles.saturating_mul(model.particles) / 25;
        weights.item = if value.is_list || schema.has_lists { value.steps.max(1) } else { 0 };
        weights.patterns = value.patterns.saturating_add(patterns::long(value.places));
        weights.has_integers = schema.has_integers;
        weights.has_references = schema.has_references;
        Ok(weights)
    }

    /// The steps that the patterns may take.
    pub(super) fn steps_of_patterns(&self, parts: Parts) -> u64 {
        (parts.bytes / 32).saturating_mul(self.patterns)
    }

    /// The steps of a check, at most, without those of the patterns.
    pub(super) fn steps(&self, parts: Parts) -> u64 {
        let by_part = [
            self.check,
            parts.elements.saturating_mul(self.element),
            parts.attributes.saturating_mul(self.attribute),
            parts.found.saturating_mul(FOUND),
            (parts.bytes / 2).saturating_mul(self.item),
        ];
        by_part.into_iter().fold(0, u64::saturating_add)
    }
}

/// A content model.
#[derive(Debug, Default, Clone, Copy)]
struct Model {
    /// Elements, wildcards and groups, with the elements that may stand for one.
    particles: u64,
    /// Repetitions in one another.
    repeated: u32,
    /// Counters of repetitions in one another, and the ways in which they can be counted.
    counters: u32,
    counts: u64,
    /// All counters.
    all_counters: u64,
    /// Whether it can be empty.
    may_be_empty: bool,
}

impl Model {
    fn compiling(self) -> u64 {
        let by_loops = 4_u64.saturating_pow(self.repeated).saturating_mul(12).saturating_add(16);
        let counters = self.all_counters.saturating_mul(self.particles).saturating_mul(12);
        self.particles.saturating_mul(self.particles).saturating_mul(by_loops).saturating_add(counters)
    }

    /// The larger of each.
    fn widest(self, other: Self) -> Self {
        Self {
            particles: self.particles.max(other.particles),
            repeated: self.repeated.max(other.repeated),
            counters: self.counters.max(other.counters),
            counts: self.counts.max(other.counts),
            all_counters: self.all_counters.max(other.all_counters),
            may_be_empty: self.may_be_empty && other.may_be_empty,
        }
    }

    /// Both, one after the other.
    fn and(self, other: Self) -> Self {
        Self {
            particles: self.particles.saturating_add(other.particles),
            all_counters: self.all_counters.saturating_add(other.all_counters),
            ..self.widest(other)
        }
    }

    /// This as often as a particle says. Up to [`COPIED`] repetitions the compiler copies it, more are counted.
    fn times(mut self, (least, most): (u64, u64)) -> Self {
        self.repeated += u32::from(most > 1);
        let is_endless = most == u64::MAX;
        if (is_endless && least <= COPIED) || most <= COPIED {
            let copies = if is_endless { least.saturating_add(1) } else { most.max(1) };
            self.particles = self.particles.saturating_mul(copies);
            self.all_counters = self.all_counters.saturating_mul(copies);
            // Each copy has counters of its own. Sixteen of 1 to 100 of 0 to 9 took 21 ms for each element.
            if copies > 1 && self.counters > 0 {
                self.counters += 1;
                self.counts = self.counts.saturating_mul(copies).saturating_mul(copies);
            }
        } else {
            self.counters += 1;
            self.all_counters = self.all_counters.saturating_add(1);
            let by_least = least.max(1).saturating_mul(least.max(1));
            let is_free = self.may_be_empty || least == 0;
            let ways = if is_free && !is_endless { most.max(by_least) } else { by_least };
            // One counter alone is counted as a range.
            self.counts = self.counts.max(1).saturating_mul(ways);
        }
        self.may_be_empty |= least == 0;
        self
    }

    fn with_one_counter_free(mut self) -> Self {
        if self.counters < 2 {
            self.counts = 0;
        }
        self
    }
}

/// A simple type.
#[derive(Debug, Default, Clone, Copy)]
struct Value {
    /// Steps for one value.
    steps: u64,
    patterns: u64,
    /// The places of its patterns that repeat twice.
    places: u64,
    /// What a comparison of two of them takes, if they have one hash, in eighths of a step.
    alike: u64,
    is_list: bool,
    /// Whether two texts may be one value: `1` and `01`.
    has_spellings: bool,
}

impl Value {
    fn widest(self, other: Self) -> Self {
        Self {
            steps: self.steps.max(other.steps),
            patterns: self.patterns.max(other.patterns),
            places: self.places.max(other.places),
            alike: self.alike.max(other.alike),
            is_list: self.is_list || other.is_list,
            has_spellings: self.has_spellings || other.has_spellings,
        }
    }

    fn and(self, other: Self) -> Self {
        Self {
            steps: self.steps.saturating_add(other.steps),
            patterns: self.patterns.saturating_add(other.patterns),
            places: self.places.saturating_add(other.places),
            alike: self.alike.max(other.alike),
            is_list: self.is_list || other.is_list,
            has_spellings: self.has_spellings || other.has_spellings,
        }
    }
}

/// A schema document by the names of its components. What is computed of one is kept, and stands for nothing while it is computed: a
/// component that contains itself is the compiler's to refuse. Those of one name in several namespaces do not occur: a document declares one.
struct Schema<'d> {
    document: &'d Document<'d>,
    /// All elements of XML Schema.
    elements: Vec<NodeId>,
    named: HashMap<(&'d str, &'d str), NodeId>,
    /// Elements that may stand for one, by its name.
    members: HashMap<&'d str, Vec<&'d str>>,
    has_integers: bool,
    /// Whether it names a type of [`LISTS`].
    has_lists: bool,
    /// Or one of [`REFERENCES`].
    has_references: bool,
    /// An attribute that leaves parts out by the version of the processor.
    versioning: Option<&'d str>,
    groups: RefCell<HashMap<NodeId, Model>>,
    types: RefCell<HashMap<NodeId, Model>>,
    values: RefCell<HashMap<NodeId, Value>>,
    attributes: RefCell<HashMap<NodeId, u64>>,
    members_of: RefCell<HashMap<&'d str, u64>>,
}

impl<'d> Schema<'d> {
    fn of(document: &'d Document<'d>) -> Self {
        let mut schema = Self {
            document,
            elements: Vec::new(),
            named: HashMap::new(),
            members: HashMap::new(),
            has_integers: false,
            has_lists: false,
            has_references: false,
            versioning: None,
            groups: RefCell::default(),
            types: RefCell::default(),
            values: RefCell::default(),
            attributes: RefCell::default(),
            members_of: RefCell::default(),
        };
        let mut open: Vec<NodeId> = document.document_element().into_iter().collect();
        while let Some(node) = open.pop() {
            open.extend(document.children_iter(node).filter(|child| document.element(*child).is_some()));
            if schema.kind(node).is_empty() {
                continue;
            }
            let attributes = document.element(node).map(|element| &element.attributes[..]).unwrap_or_default();
            let of_versions =
                attributes.iter().find(|attribute| attribute.name.namespace_uri.as_deref() == Some(VERSIONING));
            schema.versioning = schema.versioning.or(of_versions.map(|attribute| &*attribute.name.local_name));
            let name = schema.attribute(node, "name");
            if let Some(name) = name.filter(|_| document.parent(node) == document.document_element()) {
                schema.named.entry((schema.kind(node), name)).or_insert(node);
            }
            for head in schema.attribute(node, "substitutionGroup").unwrap_or_default().split_whitespace() {
                schema.members.entry(local(head)).or_default().extend(name);
            }
            for attribute in ["type", "base", "itemType", "memberTypes"] {
                for name in schema.attribute(node, attribute).unwrap_or_default().split_whitespace().map(local) {
                    schema.has_integers |= name.contains("nteger");
                    schema.has_lists |= LISTS.contains(&name);
                    schema.has_references |= REFERENCES.contains(&name) && schema.kind(node) != "attribute";
                }
            }
            schema.elements.push(node);
        }
        schema
    }

    /// The local name of an element of XML Schema; empty for any other.
    fn kind(&self, node: NodeId) -> &'d str {
        self.document
            .element(node)
            .filter(|element| element.name.namespace_uri.as_deref() == Some(XS_NAMESPACE))
            .map_or("", |element| &*element.name.local_name)
    }

    fn attribute(&self, node: NodeId, name: &str) -> Option<&'d str> {
        self.document.get_attribute(node, name).map(str::trim)
    }

    /// The local part of a name in an attribute.
    fn reference(&self, node: NodeId, attribute: &str) -> Option<&'d str> {
        self.attribute(node, attribute).map(local)
    }

    fn children(&self, node: NodeId) -> impl Iterator<Item = NodeId> + use<'_, 'd> {
        self.document.children_iter(node).filter(|child| !self.kind(*child).is_empty())
    }

    fn pattern(&self, node: NodeId) -> Pattern {
        // With its spaces, unlike other attributes.
        Pattern::of(self.document.get_attribute(node, "value").unwrap_or_default())
    }

    /// The bytes of a value that the schema gives, which each element without one of its own is held against: a list of 50,000 took 9 ms.
    fn given(&self, node: NodeId) -> u64 {
        let values = ["default", "fixed"].map(|name| self.attribute(node, name).map_or(0, str::len));
        values.into_iter().max().filter(|bytes| *bytes > 16).unwrap_or(0) as u64
    }

    /// The namespaces that a wildcard names.
    fn namespaces(&self, node: NodeId) -> u64 {
        self.attribute(node, "namespace").map_or(0, |names| names.split_whitespace().count() as u64)
    }

    /// The paths of an identity constraint: those of its selector, and of each field.
    fn paths(&self, node: NodeId) -> u64 {
        let paths = |child| self.attribute(child, "xpath").map_or(1, |path| 1 + path.matches('|').count() as u64);
        self.children(node).map(paths).sum()
    }

    fn occurrence(&self, node: NodeId) -> (u64, u64) {
        let read = |name, or| match self.attribute(node, name) {
            None => or,
            Some("unbounded") => u64::MAX,
            // Longer than any number; the compiler refuses what is none.
            Some(text) => text.parse().unwrap_or(u64::MAX - 1),
        };
        (read("minOccurs", 1), read("maxOccurs", 1))
    }

    fn members_of(&self, head: &'d str, row: u32) -> u64 {
        if let Some(&known) = self.members_of.borrow().get(head) {
            return known;
        }
        let Some(members) = self.members.get(head).filter(|_| row < MOST_IN_A_ROW) else { return 0 };
        self.members_of.borrow_mut().insert(head, 0);
        let count = members.iter().fold(0_u64, |sum, member| sum.saturating_add(1 + self.members_of(member, row + 1)));
        self.members_of.borrow_mut().insert(head, count);
        count
    }

    fn particle(&self, node: NodeId, row: u32) -> Option<Model> {
        let occurrence = self.occurrence(node);
        let model = match self.kind(node) {
            "element" => {
                let head = self.reference(node, "ref");
                let members = head.map_or(0, |head| self.members_of(head, 0));
                Model { particles: members.saturating_add(1), ..Model::default() }.times(occurrence)
            }
            "any" => Model { particles: 1, ..Model::default() }.times(occurrence),
            "group" => self.group(self.reference(node, "ref")?, row + 1)?.times(occurrence),
            "sequence" | "all" | "choice" if row < MOST_IN_A_ROW => {
                let parts = self.parts(node, row + 1);
                Model { particles: parts.particles.saturating_add(1), ..parts }.times(occurrence)
            }
            _ => return None,
        };
        Some(model)
    }

    fn parts(&self, node: NodeId, row: u32) -> Model {
        let mut parts = self.children(node).filter_map(|child| self.particle(child, row));
        let Some(first) = parts.next() else { return Model { may_be_empty: true, ..Model::default() } };
        let is_choice = self.kind(node) == "choice";
        let mut may_be_empty = first.may_be_empty;
        let mut sum = first;
        for part in parts {
            may_be_empty =
                if is_choice { may_be_empty || part.may_be_empty } else { may_be_empty && part.may_be_empty };
            sum = sum.and(part);
        }
        Model { may_be_empty, ..sum }
    }

    fn group(&self, name: &'d str, row: u32) -> Option<Model> {
        let node = *self.named.get(&("group", name)).filter(|_| row < MOST_IN_A_ROW)?;
        if let Some(&known) = self.groups.borrow().get(&node) {
            return Some(known);
        }
        self.groups.borrow_mut().insert(node, Model::default());
        let model = self.children(node).find_map(|child| self.particle(child, row))?;
        self.groups.borrow_mut().insert(node, model);
        Some(model)
    }

    /// The content of a type, with that of the type it extends.
    fn model_of_type(&self, node: NodeId, row: u32) -> Model {
        if let Some(&known) = self.types.borrow().get(&node) {
            return known;
        }
        self.types.borrow_mut().insert(node, Model::default());
        let mut model = self.parts(node, row);
        for content in self.children(node).filter(|child| self.kind(*child) == "complexContent") {
            for derivation in self.children(content) {
                model = model.and(self.parts(derivation, row));
                let base = self.reference(derivation, "base").and_then(|base| self.named.get(&("complexType", base)));
                if let Some(&base) = base.filter(|_| self.kind(derivation) == "extension" && row < MOST_IN_A_ROW) {
                    model = model.and(self.model_of_type(base, row + 1));
                }
            }
        }
        let model = model.with_one_counter_free();
        self.types.borrow_mut().insert(node, model);
        model
    }

    /// The attributes of a type or a group, with those of its base and its groups.
    fn attributes_of(&self, node: NodeId, row: u32) -> u64 {
        if let Some(&known) = self.attributes.borrow().get(&node) {
            return known;
        }
        self.attributes.borrow_mut().insert(node, 0);
        let mut count = 0_u64;
        for child in self.children(node) {
            count = count.saturating_add(match self.kind(child) {
                "attribute" => 1,
                "attributeGroup" => self.attributes_of_named("attributeGroup", child, "ref", row),
                "complexContent" | "simpleContent" => self.attributes_of(child, row),
                "extension" | "restriction" => {
                    let base = self.attributes_of_named("complexType", child, "base", row);
                    base.saturating_add(self.attributes_of(child, row))
                }
                _ => 0,
            });
        }
        self.attributes.borrow_mut().insert(node, count);
        count
    }

    fn attributes_of_named(&self, kind: &'static str, node: NodeId, attribute: &str, row: u32) -> u64 {
        let named = self.reference(node, attribute).and_then(|name| self.named.get(&(kind, name)));
        named.filter(|_| row < MOST_IN_A_ROW).map_or(0, |&named| self.attributes_of(named, row + 1))
    }

    /// A simple type, or a complex type with a simple content, of a name.
    fn value_of_named(&self, name: &str, row: u32) -> Value {
        let name = local(name);
        let kinds = ["simpleType", "complexType"];
        let Some(&node) = kinds.iter().find_map(|kind| self.named.get(&(*kind, name))) else {
            let is_list = LISTS.contains(&name);
            let alike = match name {
                "duration" => alike::OF_DURATIONS,
                _ if MOMENTS.contains(&name) => alike::OF_DATES,
                _ if is_list => alike::OF_LISTS,
                _ => 0,
            };
            return Value { has_spellings: !TEXTS.contains(&name), is_list, alike, ..Value::default() };
        };
        if row < MOST_IN_A_ROW { self.value_of_type(node, row + 1) } else { Value::default() }
    }

    fn value_of_type(&self, node: NodeId, row: u32) -> Value {
        if let Some(&known) = self.values.borrow().get(&node) {
            return known;
        }
        self.values.borrow_mut().insert(node, Value::default());
        let mut value = Value::default();
        for child in self.children(node) {
            value = value.and(match self.kind(child) {
                "simpleContent" => self.value_of_type(child, row + 1),
                "restriction" | "extension" | "list" | "union" => self.value_of_parts(child, row),
                _ => Value::default(),
            });
        }
        self.values.borrow_mut().insert(node, value);
        value
    }

    /// A restriction with its base, a list with its items, or a union with its members.
    fn value_of_parts(&self, node: NodeId, row: u32) -> Value {
        let is_list = self.kind(node) == "list";
        let mut value = Value { is_list, alike: if is_list { alike::OF_LISTS } else { 0 }, ..Value::default() };
        let mut enumerated = 0_u64;
        for child in self.children(node) {
            match self.kind(child) {
                "enumeration" => enumerated += 1,
                "pattern" => {
                    let pattern = self.pattern(child);
                    value.patterns = value.patterns.saturating_add(pattern.steps());
                    value.places = value.places.saturating_add(pattern.repeated_places());
                }
                "simpleType" if row < MOST_IN_A_ROW => {
                    value = value.and(self.member(node, self.value_of_type(child, row + 1)));
                }
                _ => {}
            }
        }
        for attribute in ["base", "itemType", "memberTypes"] {
            for name in self.attribute(node, attribute).unwrap_or_default().split_whitespace() {
                value = value.and(self.member(node, self.value_of_named(name, row)));
            }
        }
        // A text is looked up. A value in another spelling than that of the schema is compared with all of them, 45 ns each.
        if value.has_spellings {
            value.steps = value.steps.saturating_add(enumerated.div_ceil(4));
        }
        value
    }

    /// A value of a union is held against each member, 0.7 µs each.
    fn member(&self, node: NodeId, value: Value) -> Value {
        let steps = if self.kind(node) == "union" { 4 } else { 0 };
        Value { steps: value.steps.saturating_add(steps), ..value }
    }
}

fn local(name: &str) -> &str {
    name.rsplit_once(':').map_or(name, |(_, local)| local)
}

#[cfg(test)]
mod tests;
