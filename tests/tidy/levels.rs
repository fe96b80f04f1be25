//! A level imports only lower ones, and its own.

use crate::source::{code, files, root};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// What the lowest levels, which are pure, may not touch.
const IMPURE: [&str; 8] =
    ["tokio", "std::fs", "std::net", "std::thread", "std::process", "rusqlite", "async fn", "SystemTime::now"];

/// Level by module path, as `ARCHITECTURE.md` has it.
fn table() -> BTreeMap<String, u8> {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let mut levels = BTreeMap::new();
    for row in text.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (Some(Ok(level)), Some(modules)) = (cells.get(1).map(|cell| cell.parse::<u8>()), cells.get(2)) else {
            continue;
        };
        for module in modules.split('`').skip(1).step_by(2) {
            levels.insert(module.to_owned(), level);
        }
    }
    levels
}

/// The level of the longest part of a path that the table names.
fn level(levels: &BTreeMap<String, u8>, path: &str) -> Option<(String, u8)> {
    let mut path = path.to_owned();
    loop {
        if let Some(level) = levels.get(&path) {
            return Some((path, *level));
        }
        path.truncate(path.rfind("::")?);
    }
}

/// `src/store/sqlite/mod.rs` is `store::sqlite`.
fn module(file: &Path) -> String {
    let path = file.strip_prefix(root().join("src")).unwrap().with_extension("");
    let parts: Vec<String> = path.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let parts = if parts.last().is_some_and(|last| last == "mod") { &parts[..parts.len() - 1] } else { &parts[..] };
    parts.join("::")
}

/// Every path into this crate that a text names, with the braces of imports opened. The command names the library's paths
/// by the crate's name, and some by way of `internals`.
fn imports(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    let code = code.replace("dialoq::internals::", "crate::").replace("dialoq::", "crate::");
    for rest in code.split("crate::").skip(1) {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':')).unwrap_or(rest.len());
        let path = rest[..end].trim_end_matches(':');
        if rest[end..].starts_with('{') {
            let inner = &rest[end + 1..closing(&rest[end..]) + end];
            found.extend(split_list(inner).iter().map(|item| join(path, item)));
        } else {
            found.push(path.to_owned());
        }
    }
    found
}

fn join(path: &str, item: &str) -> String {
    let item = item.split(['{', ' ']).next().unwrap_or_default().trim_end_matches(':');
    if path.is_empty() { item.to_owned() } else { format!("{path}::{item}") }
}

fn closing(text: &str) -> usize {
    let mut depth = 0;
    for (place, found) in text.char_indices() {
        match found {
            '{' => depth += 1,
            '}' if depth == 1 => return place,
            '}' => depth -= 1,
            _ => {}
        }
    }
    text.len()
}

/// The items of an import's braces; nested ones stay whole.
fn split_list(text: &str) -> Vec<String> {
    let (mut items, mut depth, mut item) = (Vec::new(), 0, String::new());
    for found in text.chars() {
        match found {
            ',' if depth == 0 => items.push(std::mem::take(&mut item)),
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if found != ',' || depth > 0 {
            item.push(found);
        }
    }
    items.push(item);
    items.iter().map(|item| item.trim().to_owned()).filter(|item| !item.is_empty()).collect()
}

/// What the root of the crate re-exports: `Broker` is `broker::Broker`.
fn re_exports() -> BTreeMap<String, String> {
    let code = code(&root().join("src/lib.rs"));
    let mut found = BTreeMap::new();
    for line in code.split("pub use ").skip(1).filter_map(|rest| rest.split(';').next()) {
        let (path, names) = line.trim_start_matches("crate::").split_once("::").unwrap();
        for name in split_list(names.trim_matches(['{', '}'])) {
            let name = name.rsplit("::").next().unwrap().to_owned();
            found.insert(name.clone(), format!("{path}::{name}"));
        }
    }
    found
}

#[test]
fn a_level_imports_only_lower_ones() {
    let (levels, re_exports) = (table(), re_exports());
    assert!(levels.len() > 10, "the table of levels in ARCHITECTURE.md was not found: {levels:?}");
    let mut wrong = Vec::new();
    for file in files(&root().join("src"), "rs") {
        let module = module(&file);
        if module == "lib" {
            continue;
        }
        let Some((own, own_level)) = level(&levels, &module) else {
            wrong.push(format!("{module} has no level in ARCHITECTURE.md"));
            continue;
        };
        for import in imports(&code(&file)) {
            let first = import.split("::").next().unwrap_or_default();
            let import = re_exports.get(first).cloned().unwrap_or(import);
            let Some((other, other_level)) = level(&levels, &import) else { continue };
            let is_sibling_store = own_level == 5 && other_level == 5 && own != other;
            if other_level > own_level || is_sibling_store {
                wrong.push(format!("{module} (level {own_level}) imports {import} (level {other_level})"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn the_lowest_levels_are_pure() {
    let levels = table();
    let mut wrong = Vec::new();
    for file in files(&root().join("src"), "rs") {
        let module = module(&file);
        // The clock is where time comes in.
        if level(&levels, &module).is_none_or(|(_, level)| level > 3) || module == "time" {
            continue;
        }
        let code = code(&file);
        wrong.extend(IMPURE.iter().filter(|word| code.contains(**word)).map(|word| format!("{module}: {word}")));
    }
    assert!(wrong.is_empty(), "levels 0 to 3 do no I/O and wait for nothing: {wrong:#?}");
}

#[test]
fn only_stores_and_the_bench_know_sqlite() {
    let levels = table();
    let mut wrong = Vec::new();
    for file in files(&root().join("src"), "rs") {
        let module = module(&file);
        let knows = level(&levels, &module).is_some_and(|(module, level)| level == 5 || module == "bench");
        if !knows && code(&file).contains("rusqlite") {
            wrong.push(module);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn imports_are_read_with_their_braces() {
    let code = "use crate::store::{Store, url::{Durability, Location}};\nuse dialoq::{Code, act::Act}; dialoq::internals::core::x()";
    assert_eq!(
        imports(code),
        ["store::Store", "store::url", "Code", "act::Act", "core::x"].map(str::to_owned).to_vec()
    );
}
