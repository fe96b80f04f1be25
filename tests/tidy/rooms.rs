//! A rule has one file name in `src/core`, `sql/postgres` and `sql/mssql`.

use crate::source::{files, root};
use std::collections::BTreeSet;

/// Rules of the databases without a file in `src/core` or `src/catalog`, and why.
const ONLY_IN_SQL: &[(&str, &str)] = &[
    ("clock", "src/time.rs and src/id.rs, below the core"),
    ("notices", "the core names the queues with new messages in its effects, and the store wakes receivers in memory"),
    ("ready_group", "in memory the index is a field of QueueState in src/core/receive_order.rs"),
    ("recheck", "no other transaction runs while the core applies one"),
    ("retention", "the rows only: src/core/receive.rs and src/core/send.rs say which ones stay"),
    ("text", "Rust has strings; src/protocol/system.rs makes the bodies of system messages"),
];

/// Files of `src/core` without a rule or a verb of their name in the databases, and why.
const ONLY_IN_CORE: &[(&str, &str)] = &[
    ("change", "the rows that a commit writes; SQL writes them itself"),
    ("define", "define_begin and define_end: between them the client writes the rows of the definitions"),
    ("effects", "the results of a commit; SQL returns columns"),
    ("execute", "the entry of all verbs; in SQL each verb is one"),
    ("lookup", "names to ids in memory; the tables have indexes"),
    ("memory", "the rows of the core without a database, for tests"),
    ("mod", "the list of the modules"),
    ("own_groups", "the groups that a session holds, by rank; the database asks for its own locks"),
    ("queuing_orders", "the queue of an endpoint in memory; the tables have indexes"),
    ("repair", "what an opening mends in the catalog"),
    ("restore", "memory from the rows at an opening"),
    ("session", "an open transaction in memory; the database has its own"),
    ("slab", "places in memory"),
    ("state", "the fields of the state machine"),
];

/// Claims of transactions (`Dialect::has_claims`) are for PostgreSQL alone: SQL Server has no lock that two sessions can hold
/// while one hands it to the other.
pub(crate) const CLAIMS: [&str; 6] =
    ["claim", "claim_batch", "commit_claims", "hold_group", "release_claims", "take_claim"];

/// Batches of beginnings and ends of conversations (`Dialect::has_dialog_batches`), likewise.
pub(crate) const DIALOG_BATCHES: [&str; 2] = ["begin_batch", "end_batch"];

/// The names of the files right in a folder.
fn names(folder: &str, extension: &str) -> BTreeSet<String> {
    let folder = root().join(folder);
    let found = files(&folder, extension);
    assert!(!found.is_empty(), "{} has no files", folder.display());
    let here = found.iter().filter(|file| file.parent() == Some(&folder));
    here.map(|file| file.file_stem().unwrap().to_string_lossy().into_owned()).collect()
}

/// The names that stand on one side only must be those of the list: none more, and none that has found its counterpart.
fn assert_listed(side: &str, alone: &BTreeSet<&String>, listed: &[(&str, &str)]) {
    let alone: BTreeSet<&str> = alone.iter().map(|name| name.as_str()).collect();
    let listed: BTreeSet<&str> = listed.iter().map(|(name, _)| *name).collect();
    let unlisted: Vec<&&str> = alone.difference(&listed).collect();
    assert!(unlisted.is_empty(), "{side}: {unlisted:?}; give them one name, or list them with the reason");
    let stale: Vec<&&str> = listed.difference(&alone).collect();
    assert!(stale.is_empty(), "{side}: {stale:?} are listed, but have a counterpart or do not exist");
}

/// The names of the files of a folder of a dialect.
fn scripts(dialect: &str, folder: &str) -> BTreeSet<String> {
    names(&format!("sql/{dialect}/{folder}"), "sql")
}

/// Whether a script is of work queues. Their rules are in `src/core/work`, many to a file.
fn is_of_work_queues(name: &str) -> bool {
    name.contains("job") || name.contains("work_queue")
}

/// The rules of a dialect, and all its files of rules and verbs, but those of work queues.
fn rules_and_all(dialect: &str) -> (BTreeSet<String>, BTreeSet<String>) {
    let of_conversations = |folder| {
        let is_of_both = |name: &String| !is_of_work_queues(name) && !CLAIMS.contains(&name.as_str());
        scripts(dialect, folder).into_iter().filter(is_of_both).collect::<BTreeSet<_>>()
    };
    let rules = of_conversations("rules");
    let all = rules.union(&of_conversations("verbs")).cloned().collect();
    (rules, all)
}

#[test]
fn a_rule_has_the_same_file_name_in_the_core_and_in_sql() {
    let mut core = names("src/core", "rs");
    core.extend(names("src/catalog", "rs").into_iter().filter(|name| name == "priority"));
    for dialect in ["postgres", "mssql"] {
        let (rules, all) = rules_and_all(dialect);
        assert_listed(
            &format!("rules of {dialect} without a file in src/core"),
            &rules.difference(&core).collect(),
            ONLY_IN_SQL,
        );
        assert_listed(
            &format!("files of src/core without one in sql/{dialect}"),
            &core.difference(&all).collect(),
            ONLY_IN_CORE,
        );
    }
}

#[test]
fn the_page_of_the_sql_has_every_folder() {
    let page = std::fs::read_to_string(root().join("sql/README.md")).unwrap();
    let rows: BTreeSet<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let named = |folder: &str| rows.iter().any(|row| row.contains(&format!("`{folder}/")));
    for dialect in ["sqlite", "postgres", "mssql"] {
        for folder in std::fs::read_dir(root().join("sql").join(dialect)).unwrap() {
            let folder = folder.unwrap();
            let name = folder.file_name().into_string().unwrap();
            assert!(!folder.path().is_dir() || named(&name), "sql/README.md has no row of sql/{dialect}/{name}");
        }
    }
}

#[test]
fn the_two_databases_have_the_same_files_of_rules_and_verbs() {
    for folder in ["rules", "verbs"] {
        // Batches of jobs and of dialogs (Dialect::has_job_batches, has_dialog_batches) and later notes (Dialect::notes_later) are for
        // PostgreSQL alone.
        let mut of_postgres = scripts("postgres", folder);
        of_postgres.retain(|name| {
            !name.ends_with("_job_batch")
                && name != "commit_receives"
                && !DIALOG_BATCHES.contains(&name.as_str())
                && !CLAIMS.contains(&name.as_str())
        });
        assert_eq!(
            of_postgres,
            scripts("mssql", folder),
            "sql/*/{folder}: a rule and a verb have one file name in both"
        );
    }
}
