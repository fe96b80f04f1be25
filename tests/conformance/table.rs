//! `docs/conformance.md`, generated from the assertions and the cases, and the list of differences held true.

use crate::rig::Case;
use crate::servers::Store;
use crate::work_keys;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

const ASSERTIONS: &str = include_str!("assertions.txt");
const LAST: u16 = 299;

/// One numbered assertion.
struct Assertion {
    number: u16,
    mark: &'static str,
    text: &'static str,
    section: &'static str,
    /// Store name to the reason why it cannot have this.
    not_applicable: BTreeMap<&'static str, &'static str>,
}

fn root(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(file)
}

/// Reads `assertions.txt`: `# section`, `number mark text`, and below one `! store: why it does not apply`, or `! all: why`.
fn assertions() -> Result<Vec<Assertion>, String> {
    let mut section = "";
    let mut all: Vec<Assertion> = Vec::new();
    for line in ASSERTIONS.lines().filter(|line| !line.is_empty()) {
        if let Some(title) = line.strip_prefix("# ") {
            section = title;
        } else if let Some(reason) = line.strip_prefix("  ! ") {
            let (store, why) = reason.split_once(": ").ok_or(format!("no store in '{line}'"))?;
            let last = all.last_mut().ok_or(format!("'{line}' belongs to no assertion"))?;
            let stores = Store::ALL.map(Store::name).into_iter().filter(|name| store == "all" || store == *name);
            last.not_applicable.extend(stores.map(|store| (store, why)));
        } else {
            let mut parts = line.splitn(3, ' ');
            let number = parts.next().and_then(|number| number.parse().ok()).ok_or(format!("no number in '{line}'"))?;
            let (mark, text) = parts.next().zip(parts.next()).ok_or(format!("no mark or text in '{line}'"))?;
            all.push(Assertion { number, mark, text, section, not_applicable: BTreeMap::new() });
        }
    }
    let numbers: Vec<u16> = all.iter().map(|assertion| assertion.number).collect();
    if numbers != (1..=LAST).collect::<Vec<_>>() {
        return Err(format!("the assertions must be numbered 1 to {LAST} in order, found {numbers:?}"));
    }
    Ok(all)
}

/// Names of what covers an assertion, and the stores it runs on.
type Covering = BTreeMap<String, BTreeSet<Store>>;

/// Other test targets that run on every store; the others run on the embedded one.
const ON_EVERY_STORE: [&str; 3] = ["activation", "model", "interleavings"];

/// Assertions covered by test functions outside this suite: a comment above them says `assertions: 186, 187 on sqlite, postgres`, or `assertions: 186, 187`.
fn covered_elsewhere() -> BTreeMap<u16, Covering> {
    let mut found: BTreeMap<u16, Covering> = BTreeMap::new();
    let folder = root("tests");
    let mut folders = vec![folder.clone()];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = path.strip_prefix(&folder).unwrap_or(&path).to_string_lossy().replace('\\', "/");
            if path.is_dir() {
                if name != "conformance" {
                    folders.push(path);
                }
            } else if name.ends_with(".rs") {
                let text = std::fs::read_to_string(&path).unwrap_or_default();
                for list in
                    text.lines().filter_map(|line| line.trim().trim_start_matches('/').strip_prefix(" assertions:"))
                {
                    let (list, only) = list.split_once(" on ").unwrap_or((list, ""));
                    let only: Vec<&str> = only.split(", ").filter(|name| !name.is_empty()).collect();
                    let is_on = |store: &Store| only.is_empty() || only.contains(&store.name());
                    for number in list.split(',').filter_map(|number| number.trim().trim_end_matches('.').parse().ok())
                    {
                        let is_everywhere = ON_EVERY_STORE.iter().any(|target| name.starts_with(target));
                        let all = if is_everywhere { Store::ALL.to_vec() } else { vec![Store::Sqlite] };
                        let stores: BTreeSet<Store> = all.into_iter().filter(is_on).collect();
                        found.entry(number).or_default().insert(format!("tests/{name}"), stores);
                    }
                }
            }
        }
    }
    found
}

fn generate() -> Result<String, String> {
    let assertions = assertions()?;
    let elsewhere = covered_elsewhere();
    let mut cases: BTreeMap<u16, Covering> = BTreeMap::new();
    for case in inventory::iter::<Case> {
        for number in case.assertions {
            if !(1..=LAST).contains(number) {
                return Err(format!("case {} covers assertion {number}, which does not exist", case.name));
            }
            let name = format!("{}::{}", case.section(), case.name);
            let stores = Store::ALL.into_iter().filter(|store| work_keys::runs_on(case, *store)).collect();
            cases.entry(*number).or_default().insert(name, stores);
        }
    }
    let stores = Store::ALL;
    let mut counts = vec![(0, 0, 0); stores.len()];
    let mut body = String::new();
    let mut section = "";
    for assertion in &assertions {
        if assertion.section != section {
            section = assertion.section;
            let _ = write!(body, "\n## {section}\n\n| # | mark | assertion | shown by |");
            stores.iter().for_each(|store| body.extend([" ", store.name(), " |"]));
            body.push_str("\n|---|---|---|---|");
            stores.iter().for_each(|_| body.push_str("---|"));
            body.push('\n');
        }
        let covering: BTreeMap<&String, &BTreeSet<Store>> =
            cases.get(&assertion.number).into_iter().chain(elsewhere.get(&assertion.number)).flatten().collect();
        let names: Vec<String> = covering.keys().map(|name| format!("`{name}`")).collect();
        let mark = assertion.mark.replace(',', ", ");
        let _ = write!(body, "| {} | {mark} | {} | {} |", assertion.number, assertion.text, names.join(", "));
        for (store, count) in stores.iter().zip(&mut counts) {
            let is_covered = covering.values().any(|stores| stores.contains(store));
            let cell = match (is_covered, assertion.not_applicable.get(store.name())) {
                (true, Some(why)) => {
                    return Err(format!(
                        "assertion {} is covered, yet marked as not applying: {why}",
                        assertion.number
                    ));
                }
                (true, None) => {
                    count.0 += 1;
                    "yes"
                }
                (false, Some(why)) => {
                    count.1 += 1;
                    why
                }
                (false, None) => {
                    count.2 += 1;
                    "not yet"
                }
            };
            let _ = write!(body, " {cell} |");
        }
        body.push('\n');
    }
    let mut document = String::from(
        "# Conformance\n\n\
         What Service Broker does, as numbered assertions in our words, and the cases that show whether each store keeps them.\n\
         This file is generated by `cargo test --test conformance`; with `DIALOQ_BLESS=1` that command writes it anew.\n\n\
         Marks say how sure we are of the assertion itself: D it is documented, E engineers of the product said so, I we\n\
         inferred it, T it was seen on a server, O it is ours. What we do otherwise on purpose is in [semantics.md](semantics.md) under\n\
         \"Differences\".\n\n\
         A name such as `send::sequence_numbers` is a case in `tests/conformance/`, run on every store with\n\
         `cargo test --test conformance -- sequence_numbers`. A cell says `yes` if there is such a\n\
         case for the store, or why the store cannot have this. The cases of SQLite and PostgreSQL run with every change.\n\
         None has run on SQL Server itself; which ones have run on a relative of it: [its runs](measurements/sqlserver-runs.md).\n\n\
         | store | has a case | not applicable | not yet |\n|---|---|---|---|\n",
    );
    for (store, (covered, not_applicable, not_yet)) in stores.iter().zip(counts) {
        let _ = writeln!(document, "| {} | {covered} | {not_applicable} | {not_yet} |", store.name());
    }
    document.push_str(&body);
    Ok(document)
}

/// Fails if `docs/conformance.md` is not what the suite generates.
pub(crate) fn check() -> Result<(), String> {
    let generated = generate()?;
    let path = root("docs/conformance.md");
    if std::env::var_os("DIALOQ_BLESS").is_some() {
        return std::fs::write(&path, generated).map_err(|error| format!("docs/conformance.md: {error}"));
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default().replace("\r\n", "\n");
    if found == generated {
        return Ok(());
    }
    let line = found.lines().zip(generated.lines()).position(|(found, right)| found != right).map_or(0, |at| at + 1);
    Err(format!("docs/conformance.md differs from the suite from line {line} on; DIALOQ_BLESS=1 writes it anew"))
}

/// Every `DIFFERENCE(name)` of a case stands in `docs/semantics.md`, and none stands there without a case.
pub(crate) fn check_differences() -> Result<(), String> {
    let mut in_cases = BTreeSet::new();
    for folder in ["tests/conformance", "tests/activation", "tests/driver", "tests/bad_days"] {
        for entry in std::fs::read_dir(root(folder)).map_err(|error| error.to_string())?.flatten() {
            if entry.file_name() != "table.rs" {
                in_cases.extend(differences(&std::fs::read_to_string(entry.path()).unwrap_or_default()));
            }
        }
    }
    let in_docs = differences(&std::fs::read_to_string(root("docs/semantics.md")).unwrap_or_default());
    let unlisted: Vec<_> = in_cases.difference(&in_docs).collect();
    let untested: Vec<_> = in_docs.difference(&in_cases).collect();
    if unlisted.is_empty() && untested.is_empty() {
        return Ok(());
    }
    Err(format!("differences not in docs/semantics.md: {unlisted:?}; listed there but marked in no case: {untested:?}"))
}

fn differences(text: &str) -> BTreeSet<String> {
    let after = text.split("DIFFERENCE(").skip(1);
    after.filter_map(|rest| rest.split_once(')')).map(|(name, _)| name.to_owned()).collect()
}
