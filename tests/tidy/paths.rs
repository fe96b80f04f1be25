//! Every path that the pages for contributors name exists.
//!
//! A path is a link to a file of ours, relative to its page, or a word in backticks with a slash or a known extension,
//! relative to the root. `src/{tx,act}.rs` is two paths. A path with `NAME` is a file to be made: its folder must exist.

use crate::source::root;
use std::fs;
use std::path::{Path, PathBuf};

const PAGES: [&str; 3] = ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/glossary.md"];

const EXTENSIONS: [&str; 7] = [".md", ".rs", ".sql", ".toml", ".yaml", ".txt", ".sh"];

#[test]
fn every_path_that_a_page_names_exists() {
    let mut missing = Vec::new();
    for page in PAGES {
        let text = fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{page}: {error}"));
        let folder = root().join(page).parent().unwrap().to_owned();
        let links = links(&text).into_iter().map(|link| (folder.join(&link), link));
        let words = words(&text).into_iter().map(|word| (root().join(&word), word));
        let found: Vec<(PathBuf, String)> = links.chain(words).collect();
        assert!(!found.is_empty(), "no path was found in {page}");
        missing.extend(found.iter().filter(|(path, _)| !exists(path)).map(|(_, named)| format!("{page}: {named}")));
    }
    assert!(missing.is_empty(), "these paths do not exist: {missing:#?}");
}

/// The files of ours that a page links to.
fn links(text: &str) -> Vec<String> {
    let targets = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
    targets.filter(|target| !target.is_empty() && !target.contains("://")).map(str::to_owned).collect()
}

/// The paths in backticks and in blocks of code.
fn words(text: &str) -> Vec<String> {
    let blocks = text.split("```").skip(1).step_by(2).flat_map(str::split_whitespace);
    let prose: String = text.split("```").step_by(2).collect();
    let spans = prose.split('`').skip(1).step_by(2).filter(|span| !span.contains(' '));
    let named = blocks.chain(spans).map(|word| word.trim_end_matches([',', ':', ';']));
    named.filter(|word| is_path(word)).flat_map(alternatives).collect()
}

fn is_path(word: &str) -> bool {
    let is_plain = word.chars().all(|of| of.is_ascii_alphanumeric() || "._-/{},".contains(of));
    let is_long = word.contains('/') && word.chars().any(|of| of.is_ascii_alphanumeric());
    is_plain && !word.starts_with('/') && (is_long || EXTENSIONS.iter().any(|extension| word.ends_with(extension)))
}

/// `sql/{a,b}/c` is `sql/a/c` and `sql/b/c`.
fn alternatives(word: &str) -> Vec<String> {
    let Some((before, rest)) = word.split_once('{') else { return vec![word.to_owned()] };
    let Some((inner, after)) = rest.split_once('}') else { return vec![word.to_owned()] };
    inner.split(',').flat_map(|choice| alternatives(&format!("{before}{choice}{after}"))).collect()
}

fn exists(path: &Path) -> bool {
    let is_to_be_made = path.file_name().is_some_and(|name| name.to_string_lossy().contains("NAME"));
    if is_to_be_made { path.parent().is_some_and(Path::exists) } else { path.exists() }
}

#[test]
fn paths_are_distinguished_from_other_words() {
    let text = "`src/tx.rs` `a/{b,c}/NAME.sql` [x](docs/y.md#z) [w](https://a.b/c) `Tx` `cargo test` `cargo`\n\
                ```\n sql/a, sql/b: verbs │ ══ 1/2 \n```\n `build.rs` `//shop/Orders`";
    assert_eq!(links(text), ["docs/y.md"]);
    assert_eq!(words(text), ["sql/a", "sql/b", "1/2", "src/tx.rs", "a/b/NAME.sql", "a/c/NAME.sql", "build.rs"]);
}
