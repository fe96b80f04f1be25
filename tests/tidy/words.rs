//! Retired names and words stay out; `docs/glossary.md` has the good ones.

use crate::source::{files, root};
use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

/// Retired names of files, types, functions and columns, each with the one that replaces it.
const NAMES: &[(&str, &str)] = &[
    ("absorb", "apply_pending"),
    ("below_top", "rank_from_top"),
    ("Beside", "CallContext, WorkloadResult"),
    ("beside_log", "with_log"),
    ("ClassLook", "ClassAttempt"),
    ("ClaimDesk", "ClaimSession"),
    ("ClaimsMark", "HeldJobsMark"),
    ("Deaf", "PeerEnded"),
    ("dialoq.tell", "dialoq.notify_processes"),
    ("Eyes", "RowsFor"),
    ("fly", "send_with"),
    ("follow.sql", "definition_effects.sql"),
    ("Followed", "VerbEffect"),
    ("has_news", "has_pending"),
    ("hear.rs", "queue_poll.rs"),
    ("internal_base.sql", "priority.sql, text.sql"),
    ("internal_event.sql", "event_notification.sql, poison.sql"),
    ("Life", "OpenWork"),
    ("Look", "ReceiveAttempt"),
    ("lone_is_back", "lone_item_done"),
    ("look_at", "recheck_at"),
    ("looked_at", "planned_at"),
    ("noted_endpoint", "effective_endpoint"),
    ("noted_message", "effective_message"),
    ("oldest_claim", "oldest_candidate"),
    ("outcome_ready", "groups_made_ready_at_most"),
    ("p_stored", "p_delivery_class"),
    ("put_off", "pending"),
    ("put_right", "rebuild_ready_rows"),
    ("receive_folded", "receive_in_batch"),
    ("remove_ghost", "delete_stale_ready_row"),
    ("said_by", "with_url"),
    ("saw_out", "reap"),
    ("see_out", "reap_all"),
    ("send_folded", "send_in_batch"),
    ("side.rs", "control_connection.rs"),
    ("somebody_sleeps", "receiver_sleeps"),
    ("Standing", "SchemaState"),
    ("standing.sql", "schema_state.sql"),
    ("Stored", "DeliveryClass"),
    ("taken.rs", "uncommitted_receives.rs"),
    ("tell_depths", "publish_depths"),
    ("tell_of_lost_answers", "announce_lost_answers"),
    ("trail", "scan_start"),
    ("Trouble", "SendError"),
    ("Unseen", "AbandonedResult"),
    ("words.sql", "notices.sql"),
];

/// A name of SQL that begins so is retired, whatever follows.
const BEGINNINGS: &[(&str, &str)] =
    &[("follow_", "definition_effects.sql"), ("noted_endpoint_", "effective_"), ("notify_words", "send_notices")];

/// Retired words of prose and of test names, each with what replaces it.
const WORDS: &[(&str, &str)] = &[
    ("anybody", "the caller, session or process that is meant"),
    ("everybody", "every caller, session or process"),
    ("heard", "got, received, was notified"),
    ("nobody", "no caller, no session, no process"),
    ("somebody", "a caller, another session, another process"),
    ("told", "notified, reported, distinguished"),
    ("whoever", "the caller or session that"),
];

/// Files that name what earlier versions had.
const OF_EARLIER_VERSIONS: &[&str] =
    &["sql/mssql/drop.sql", "tests/driver/rights_mssql.rs", "tests/driver/upgrading.rs", "tests/tidy/words.rs"];

#[test]
fn retired_names_are_gone() {
    let mut found = Vec::new();
    let retired: HashMap<&str, &str> = NAMES.iter().copied().collect();
    for file in texts() {
        let text = fs::read_to_string(&file).unwrap();
        // In a page a capital begins a sentence; in Rust it begins a type.
        let has_types = file.extension().is_some_and(|extension| extension == "rs");
        for (number, line) in text.lines().enumerate() {
            for name in names(line).filter(|name| has_types || !name.starts_with(char::is_uppercase)) {
                let begins = |(old, _): &&(&str, &str)| !has_types && name.starts_with(old);
                let beginning = || BEGINNINGS.iter().find(begins).map(|(_, good)| good);
                if let Some(good) = retired.get(name).or_else(beginning) {
                    found.push(format!("{}:{}: {name}: write {good}", crate::shown(&file), number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "retired names: {found:#?}");
}

#[test]
fn retired_words_are_gone() {
    let mut found = Vec::new();
    for file in texts() {
        let text = fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            for word in line.split(|of: char| !of.is_alphanumeric()) {
                if let Some((_, good)) = WORDS.iter().find(|(old, _)| word.eq_ignore_ascii_case(old)) {
                    found.push(format!("{}:{}: {word}: write {good}", crate::shown(&file), number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "retired words: {found:#?}");
}

/// The folders in which names and words are checked.
const FOLDERS: &[&str] = &["benches", "docs", "examples", "sql", "src", "tests"];

/// The texts in the folders, without released schema scripts, which are never edited; and the pages at the root.
fn texts() -> Vec<PathBuf> {
    let all = FOLDERS.iter().flat_map(|folder| {
        let found: Vec<_> =
            ["rs", "sql", "md", "txt"].iter().flat_map(|extension| files(&root().join(folder), extension)).collect();
        assert!(!found.is_empty(), "{folder} has no texts");
        found
    });
    let is_old = |file: &PathBuf| {
        file.components().any(|part| part.as_os_str() == "schema")
            || OF_EARLIER_VERSIONS.contains(&crate::shown(file).as_str())
    };
    let pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(|page| root().join(page));
    all.filter(|file| !is_old(file)).chain(pages).collect()
}

/// The identifiers of a line, and its names with a dot, such as `hear.rs`.
fn names(line: &str) -> impl Iterator<Item = &str> {
    let is_part = |of: char| of.is_alphanumeric() || of == '_';
    let dotted = line.split(move |of: char| !is_part(of) && of != '.').map(|name| name.trim_matches('.'));
    dotted.chain(line.split(move |of: char| !is_part(of))).filter(|name| !name.is_empty())
}

#[test]
fn names_are_found_whole() {
    let found: Vec<&str> = names("-- hear.rs: dialoq.put_right(@queue_id).").collect();
    assert_eq!(found, ["hear.rs", "dialoq.put_right", "queue_id", "hear", "rs", "dialoq", "put_right", "queue_id"]);
}
