//! A library user gets a library: the default features are the embedded store only.

use crate::source::{files, root};
use std::collections::BTreeSet;
use std::process::Command;

/// The crates that the library depends on if no feature is named.
fn lean() -> BTreeSet<String> {
    let tree = ["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"];
    let made = Command::new(env!("CARGO")).args(tree).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let text = String::from_utf8(made.stdout).unwrap();
    text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect()
}

#[test]
fn the_default_is_the_embedded_store_without_command_and_servers() {
    let crates = lean();
    assert!(crates.contains("rusqlite"), "{crates:?}");
    for other in ["clap", "comfy-table", "hdrhistogram", "indicatif", "rustls", "tiberius", "tokio-postgres"] {
        assert!(!crates.contains(other), "a library user gets '{other}' without asking for it");
    }
}

/// Without a feature `cargo build` makes the library alone: the figures of a page could not be repeated by its own commands.
#[test]
fn a_command_line_of_the_pages_that_builds_the_command_names_its_features() {
    let pages =
        files(&root().join("docs"), "md").into_iter().chain([root().join("README.md"), root().join("CONTRIBUTING.md")]);
    let mut seen = 0;
    for page in pages {
        for line in std::fs::read_to_string(&page).unwrap().lines() {
            let makes = ["cargo build", "cargo run", "cargo install"].iter().any(|command| line.starts_with(command));
            if makes && !line.contains("--example") {
                seen += 1;
                assert!(line.contains("features"), "{}: {line}", page.display());
            }
        }
    }
    assert!(seen > 3, "{seen}");
}
