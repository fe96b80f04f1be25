//! Reading our own sources, roughly: enough to tell code from comments, text and tests.

use std::fs;
use std::path::{Path, PathBuf};

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The files below a folder with that extension, in order.
pub(crate) fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries.map(|entry| entry.unwrap().path()) {
        if entry.is_dir() {
            found.extend(files(&entry, extension));
        } else if entry.extension().is_some_and(|found| found == extension) {
            found.push(entry);
        }
    }
    found.sort();
    found
}

/// Whether a file of `src` is compiled for tests only.
pub(crate) fn is_test_file(file: &Path) -> bool {
    let mut declared_by = vec![];
    let stem = file.file_stem().unwrap().to_string_lossy().into_owned();
    let folder = file.parent().unwrap();
    declared_by.push(folder.join("mod.rs"));
    declared_by.push(folder.with_extension("rs"));
    declared_by.push(folder.join("lib.rs"));
    let in_tests = folder.components().any(|part| part.as_os_str() == "tests");
    let declared = declared_by.iter().filter_map(|parent| fs::read_to_string(parent).ok()).any(|parent| {
        parent.split("#[cfg(test)]").skip(1).any(|rest| {
            let line = rest.trim_start().lines().next().unwrap_or_default();
            line.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ") == format!("mod {stem};")
        })
    });
    in_tests || declared
}

/// The code of a file without comments, string literals and its test module.
pub(crate) fn code(file: &Path) -> String {
    split(file).0
}

/// The string literals of a file that are not in its tests.
pub(crate) fn production_literals(file: &Path) -> Vec<String> {
    split(file).1
}

fn split(file: &Path) -> (String, Vec<String>) {
    if is_test_file(file) {
        return (String::new(), Vec::new());
    }
    let text = fs::read_to_string(file).unwrap();
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
    lex(text)
}

/// Code with comments and literals taken out, and the literals.
pub(crate) fn lex(text: &str) -> (String, Vec<String>) {
    let (mut code, mut literals) = (String::new(), Vec::new());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if rest.starts_with("//") {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
        } else if let Some(length) = raw_literal(rest) {
            literals.push(rest[..length].trim_start_matches(['r', '#']).trim_matches(['"', '#']).to_owned());
            rest = &rest[length..];
        } else if first == '"' {
            let length = literal(rest);
            literals.push(rest[1..length.saturating_sub(1).max(1)].to_owned());
            rest = &rest[length..];
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\\"'") || rest.starts_with("b'\"'") {
            rest = &rest[rest.find("\"'").unwrap() + 2..];
        } else {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    (code, literals)
}

fn raw_literal(text: &str) -> Option<usize> {
    let hashes = text.strip_prefix('r')?.chars().take_while(|found| *found == '#').count();
    let body = text[1 + hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(2 + hashes + body.find(&end)? + end.len())
}

fn literal(text: &str) -> usize {
    let mut escaped = false;
    for (place, found) in text.char_indices().skip(1) {
        match found {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return place + 1,
            _ => {}
        }
    }
    text.len()
}

#[test]
fn comments_and_literals_are_separated_from_code() {
    let text = "let a = \"x\\\"y\"; // \"no\"\nlet b = r#\"raw \"it\" is\"#; let c = '\"'; use crate::id;";
    let (code, literals) = lex(text);
    assert_eq!(literals, ["x\\\"y", "raw \"it\" is"]);
    assert_eq!(code, "let a = ; \nlet b = ; let c = ; use crate::id;");
}
