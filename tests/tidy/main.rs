//! The house rules that a compiler does not know: levels of modules, sizes of files, where SQL lives, and that the
//! documents are true. The levels are read from the table in `ARCHITECTURE.md`, so that it cannot go stale.

#[path = "../servers/called_by.rs"]
mod called_by;
mod errors;
mod features;
mod frames;
mod levels;
mod links;
mod paths;
mod rooms;
mod source;
mod tsql;
mod verbs;
mod words;
mod work_queues;

use source::{files, root};
use std::fs;
use std::path::Path;

/// A file much longer than this hides something that wants a name of its own.
const MOST_LINES: usize = 800;

#[test]
fn files_are_short() {
    let folders = ["src", "tests", "examples", "benches"];
    let long: Vec<String> = folders
        .iter()
        .flat_map(|folder| files(&root().join(folder), "rs"))
        .filter_map(|file| {
            let lines = fs::read_to_string(&file).unwrap().lines().count();
            (lines > MOST_LINES).then(|| format!("{} has {lines} lines", shown(&file)))
        })
        .collect();
    assert!(long.is_empty(), "over {MOST_LINES} lines: {long:#?}");
}

/// A longer line of prose is not read in a window beside another one, and a change of a word in it shows as a change of all of it.
const MOST_COLUMNS: usize = 160;

/// Pages that tests write.
const WRITTEN_BY_TESTS: [&str; 2] = ["docs/verbs.md", "docs/conformance.md"];

#[test]
fn lines_of_the_pages_are_short() {
    let pages = ["docs", "examples", "sql"].iter().flat_map(|folder| files(&root().join(folder), "md"));
    let at_the_top = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"].map(|name| root().join(name));
    let mut long = Vec::new();
    for page in pages.chain(at_the_top).filter(|page| !WRITTEN_BY_TESTS.contains(&&*shown(page))) {
        let mut is_code = false;
        for (number, line) in fs::read_to_string(&page).unwrap().lines().enumerate() {
            is_code ^= line.trim_start().starts_with("```");
            if !is_code && !line.starts_with('|') && line.chars().count() > MOST_COLUMNS {
                long.push(format!("{}:{}", shown(&page), number + 1));
            }
        }
    }
    assert!(long.is_empty(), "over {MOST_COLUMNS} characters: {long:#?}");
}

#[test]
fn lines_of_comments_are_short() {
    let folders = ["src", "tests", "benches", "examples"];
    let mut long = Vec::new();
    for file in folders.iter().flat_map(|folder| files(&root().join(folder), "rs")) {
        for (number, line) in fs::read_to_string(&file).unwrap().lines().enumerate() {
            if line.trim_start().starts_with("//") && line.chars().count() > MOST_COLUMNS {
                long.push(format!("{}:{}", shown(&file), number + 1));
            }
        }
    }
    assert!(long.is_empty(), "over {MOST_COLUMNS} characters: {long:#?}");
}

#[test]
fn every_module_has_a_doc_comment() {
    let silent: Vec<String> = files(&root().join("src"), "rs")
        .iter()
        .filter(|file| !source::is_test_file(file))
        .filter(|file| !fs::read_to_string(file).unwrap().starts_with("//!"))
        .map(|file| shown(file))
        .collect();
    assert!(silent.is_empty(), "no `//!` on the first line: {silent:#?}");
}

#[test]
fn every_sql_file_has_a_header() {
    let found = files(&root().join("sql"), "sql");
    assert!(!found.is_empty(), "the SQL files have moved");
    let silent: Vec<String> = found
        .iter()
        .filter(|file| !fs::read_to_string(file).unwrap().trim_start().starts_with("--"))
        .map(|file| shown(file))
        .collect();
    assert!(silent.is_empty(), "no header comment: {silent:#?}");
}

/// `build.rs` makes a constant of each; the folders that an installation runs whole are not asked for by name.
#[test]
fn every_sql_text_is_used() {
    let sources: Vec<String> =
        files(&root().join("src"), "rs").iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let is_named = |constant: &str| {
        sources.iter().any(|source| {
            source.split(|of: char| !of.is_ascii_alphanumeric() && of != '_').any(|word| word == constant)
        })
    };
    let unused: Vec<String> = files(&root().join("sql"), "sql")
        .iter()
        .filter(|file| {
            let folder = file.parent().unwrap().file_name().unwrap().to_str().unwrap();
            !["schema", "parts", "rules", "verbs", "views"].contains(&folder)
        })
        .filter(|file| !is_named(&file.file_stem().unwrap().to_str().unwrap().to_uppercase()))
        .map(|file| shown(file))
        .collect();
    assert!(unused.is_empty(), "no source names the constant of: {unused:#?}");
}

/// A user's table with the name of such a function stands before it, and the text would fail for all callers.
#[test]
fn no_text_for_sqlite_reads_from_a_function() {
    const FUNCTIONS: [&str; 4] = ["pragma_", "json_each", "json_tree", "generate_series"];
    let found: Vec<String> = files(&root().join("sql/sqlite"), "sql")
        .iter()
        .filter(|file| {
            let text = fs::read_to_string(file).unwrap().to_lowercase();
            text.lines()
                .filter(|line| !line.trim_start().starts_with("--"))
                .any(|line| FUNCTIONS.iter().any(|name| line.contains(name)))
        })
        .map(|file| shown(file))
        .collect();
    assert!(found.is_empty(), "these read from one of {FUNCTIONS:?}: {found:#?}");
}

#[test]
fn sql_lives_in_sql_files() {
    let mut spliced = Vec::new();
    for file in files(&root().join("src"), "rs") {
        for literal in source::production_literals(&file) {
            if is_sql(&literal) {
                spliced.push(format!("{}: {literal:?}", shown(&file)));
            }
        }
    }
    assert!(spliced.is_empty(), "SQL in Rust: {spliced:#?}");
}

/// Whether a literal is a statement of a database, which Service Broker's own DDL is not.
fn is_sql(literal: &str) -> bool {
    let text = literal.trim_start().to_lowercase();
    let begins = ["select ", "insert into ", "delete from ", "pragma ", "begin immediate", "with recursive "];
    let makes = ["create table", "create index", "create unique index", "create view", "drop table", "drop view"];
    begins.iter().any(|begin| text.starts_with(begin))
        || makes.iter().any(|make| text.starts_with(make))
        || (text.starts_with("update ") && text.contains(" set "))
}

#[test]
fn sql_is_distinguished_from_other_text() {
    for sql in
        ["SELECT 1", " insert into t values (1)", "update t set a = 1", "PRAGMA user_version", "create table t(a)"]
    {
        assert!(is_sql(sql), "{sql}");
    }
    for other in ["CREATE QUEUE orders", "update the clock", "selected", "ALTER QUEUE [q] WITH STATUS = ON"] {
        assert!(!is_sql(other), "{other}");
    }
}

/// Closing any descriptor of a database drops the locks of SQLite, so that a file is opened only here.
const OPENS_FILES: &[(&str, &str)] = &[
    ("src/activation/external/process.rs", "whether a program is loaded, from /proc"),
    ("src/bench/rival/log.rs", "the log of the bench's own sync measurement"),
    ("src/bench/machine.rs", "facts about the machine, from /proc"),
    ("src/cli/apply.rs", "a script of the user"),
    ("src/cli/interrupt.rs", "which signals are ignored, from /proc"),
    ("src/cli/lab.rs", "the page of the report"),
    ("src/cli/send/lines.rs", "a file of messages"),
    ("src/cli/send/mod.rs", "a file of messages"),
    ("src/lab/load.rs", "a file of messages"),
    ("src/store/database/presence.rs", "the name of the machine"),
    ("src/store/sqlite/failure.rs", "/dev/null, to see whether any file can be opened"),
    ("src/store/sqlite/owner.rs", "the lock on the database; closed only if nothing else has the file open"),
];

#[test]
fn only_sqlite_opens_a_database() {
    let words =
        ["use std::fs", "File::", "fs::OpenOptions", "fs::read(", "fs::read_to_string(", "fs::write(", "fs::copy("];
    let found: Vec<String> = files(&root().join("src"), "rs")
        .iter()
        .filter(|file| words.iter().any(|word| source::code(file).contains(word)))
        .map(|file| shown(file))
        .filter(|file| !OPENS_FILES.iter().any(|(known, _)| known == file))
        .collect();
    assert!(found.is_empty(), "these open files; say in OPENS_FILES which, or open the database by SQLite: {found:#?}");
}

#[test]
fn nothing_is_left_undone() {
    let mut undone = Vec::new();
    for file in files(&root().join("src"), "rs") {
        let code = source::code(&file);
        for word in ["todo!(", "unimplemented!(", "dbg!(", "unsafe "] {
            if code.contains(word) {
                undone.push(format!("{}: {word}", shown(&file)));
            }
        }
    }
    assert!(undone.is_empty(), "{undone:#?}");
}

/// A test that waits has an end: see `tests/support/src/limit.rs`. Suites with a harness of their own limit every case.
#[test]
fn tests_that_wait_have_a_limit() {
    let mut unlimited = Vec::new();
    let asynchronous = |line: &str| line.starts_with("#[tokio::test");
    let any = |line: &str| asynchronous(line) || line == "#[test]";
    type IsTest<'a> = &'a dyn Fn(&str) -> bool;
    let folders: [(&str, IsTest<'_>); 4] =
        [("src", &asynchronous), ("tests/face", &any), ("tests/cli", &any), ("tests/crash", &any)];
    for (folder, is_test) in folders {
        for file in files(&root().join(folder), "rs") {
            let text = fs::read_to_string(&file).unwrap();
            let mut lines = text.lines().map(str::trim);
            while let Some(line) = lines.next() {
                if is_test(line) {
                    let name = lines.find(|line| line.contains("fn ")).unwrap_or_default().to_owned();
                    let first = if name.ends_with('{') {
                        lines.next()
                    } else {
                        lines.find(|line| line.ends_with('{')).and(lines.next())
                    };
                    let is_limited =
                        first.is_some_and(|first| first.starts_with("let ") && first.ends_with("limit();"));
                    if !is_limited {
                        unlimited.push(format!("{}: {name}", shown(&file)));
                    }
                }
            }
        }
    }
    assert!(
        unlimited.is_empty(),
        "tests that do not begin with `let _limit = crate::limit();` (in src `crate::testing::limit()`): {unlimited:#?}"
    );
}

/// A link from one of our documents to a file of ours leads somewhere.
#[test]
fn links_between_documents_lead_somewhere() {
    let mut documents = files(&root().join("docs"), "md");
    documents.extend(
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "examples/README.md"]
            .map(|name| root().join(name)),
    );
    let mut broken = Vec::new();
    for document in documents.iter().filter(|document| document.exists()) {
        let text = fs::read_to_string(document).unwrap();
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = link.split('#').next().unwrap_or_default();
            let is_ours = !path.is_empty() && !link.contains("://") && !link.contains(' ');
            if is_ours && !document.parent().unwrap().join(path).exists() {
                broken.push(format!("{} -> {link}", shown(document)));
            }
        }
    }
    assert!(broken.is_empty(), "links to nowhere: {broken:#?}");
}

#[test]
fn every_example_is_in_the_list_of_examples() {
    let list = fs::read_to_string(root().join("examples/README.md")).unwrap();
    let unnamed: Vec<String> = files(&root().join("examples"), "rs")
        .iter()
        .map(|file| file.file_stem().unwrap().to_string_lossy().into_owned())
        .filter(|name| !list.contains(&format!("[{name}]({name}.rs)")))
        .collect();
    assert!(unnamed.is_empty(), "examples that examples/README.md does not name: {unnamed:?}");
}

/// A session may have set `standard_conforming_strings = off`. PostgreSQL reads the body of a function by the setting of the
/// session that calls it.
#[test]
fn backslashes_for_postgres_stand_in_escape_strings() {
    let plain: Vec<String> = files(&root().join("sql/postgres"), "sql")
        .iter()
        .flat_map(|file| {
            let text = fs::read_to_string(file).unwrap();
            let lines: Vec<_> = text.lines().filter(|line| has_plain_backslash(line)).map(str::to_owned).collect();
            lines.into_iter().map(|line| format!("{}: {}", shown(file), line.trim()))
        })
        .collect();
    assert!(plain.is_empty(), "a backslash in no E'...' literal: {plain:#?}");
    assert!(has_plain_backslash(r"RETURN E'\\x' || '\x';") && !has_plain_backslash(r"RETURN E'\\x' || 'x'; -- \x"));
}

fn has_plain_backslash(line: &str) -> bool {
    let code = line.split("--").next().unwrap_or_default();
    let mut parts = code.split('\'');
    let mut before = "";
    let mut is_literal = false;
    parts.any(|part| {
        let is_plain = part.contains('\\') && !(is_literal && before.ends_with('E'));
        (before, is_literal) = (part, !is_literal);
        is_plain
    })
}

fn shown(file: &Path) -> String {
    file.strip_prefix(root()).unwrap_or(file).display().to_string()
}
