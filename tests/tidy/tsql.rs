//! What no parser of T-SQL checks in the procedures of SQL Server.

use crate::called_by::called_by;
use crate::source::{files, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// How every procedure begins that a user may execute: what the caller's session has set must not reach into it, and a
/// transaction that can only be rolled back takes no verb.
const SETTINGS: &str = "SET NOCOUNT ON;
SET ROWCOUNT 0;
SET TEXTSIZE 2147483647;
SET LOCK_TIMEOUT -1;
SET ANSI_WARNINGS, ANSI_PADDING, ARITHABORT, CONCAT_NULL_YIELDS_NULL ON;
SET NUMERIC_ROUNDABORT OFF;
SET TRANSACTION ISOLATION LEVEL READ COMMITTED;
IF XACT_STATE() = -1 THROW 60020, N'the transaction can only be rolled back: an earlier statement of it failed', 1;";

/// The parts of sql/mssql/parts that begin with these settings.
const BEGINNINGS: [&str; 3] = ["-- <settings>", "-- <definition>", "-- <presence>"];

/// The text of a part without its header.
fn part(name: &str) -> String {
    let text = fs::read_to_string(root().join(format!("sql/mssql/parts/{name}.sql"))).unwrap();
    text.lines().skip_while(|line| line.starts_with("--") && !line.starts_with("-- <")).collect::<Vec<_>>().join("\n")
}

/// Every SQL text of SQL Server without its comments, with its path.
fn texts() -> Vec<(String, String)> {
    let found = files(&root().join("sql/mssql"), "sql");
    assert!(!found.is_empty(), "the SQL files have moved");
    found
        .iter()
        .map(|file| {
            let text = fs::read_to_string(file).unwrap();
            let code: Vec<&str> = text.lines().map(|line| line.split("--").next().unwrap()).collect();
            (file.strip_prefix(root()).unwrap().display().to_string(), code.join("\n"))
        })
        .collect()
}

#[test]
fn every_granted_procedure_begins_with_its_own_session_settings() {
    let granted = &called_by("mssql", "dialoq_user") | &called_by("mssql", "dialoq_admin");
    assert!(granted.contains("send") && granted.contains("put_service"), "the files were not understood: {granted:?}");
    assert_eq!(part("settings"), SETTINGS);
    for beginning in ["definition", "presence"] {
        assert!(part(beginning).starts_with("-- <settings>\n"), "{beginning}");
    }
    let (mut seen, mut wrong) = (BTreeSet::new(), Vec::new());
    for file in files(&root().join("sql/mssql"), "sql") {
        let text = fs::read_to_string(&file).unwrap();
        for made in text.split("CREATE PROCEDURE dialoq.").skip(1) {
            let name = made.split_whitespace().next().unwrap().to_owned();
            if !granted.contains(&name) {
                continue;
            }
            let first = made.split_once("\nBEGIN\n").map_or("", |(_, body)| body.lines().next().unwrap().trim());
            if !BEGINNINGS.contains(&first) {
                wrong.push(format!("{}: {name} begins with {first}", file.display()));
            }
            seen.insert(name);
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(seen, granted, "what is granted is made");
}

/// A time-out of a client sends an attention, which no CATCH sees: XACT_ABORT alone makes the server roll back. tick needs it OFF
/// for its steps.
#[test]
fn a_procedure_aborts_a_transaction_of_its_own() {
    let part = part("transaction");
    let (before, _) = part.split_once("BEGIN TRY").expect("the part has moved");
    assert!(before.contains("IF @is_own = 1 SET XACT_ABORT ON;"), "{before}");
    let opens = |(file, text): &(String, String)| {
        ["/rules/", "/verbs/"].iter().any(|folder| file.contains(folder)) && text.contains("BEGIN TRANSACTION;")
    };
    let others: Vec<String> = texts().into_iter().filter(opens).map(|(file, _)| file).collect();
    assert_eq!(others, ["sql/mssql/rules/job_tick.sql", "sql/mssql/verbs/tick.sql"]);
}

/// THROW takes a doubled % for one, so a text with a name in it goes through throw_text (refuse does that).
#[test]
fn names_in_errors_may_have_a_percent_sign() {
    let mut wrong = Vec::new();
    for (file, text) in texts() {
        if !["/rules/", "/verbs/"].iter().any(|folder| file.contains(folder)) {
            continue;
        }
        let statements: Vec<&str> = text.split(";\n").map(str::trim).collect();
        for (made, next) in statements.iter().zip(&statements[1..]) {
            let is_thrown = next.starts_with("THROW") && next.contains("@text");
            if is_thrown && made.contains("SET @text") && made.contains("''', @") && !made.contains("throw_text(") {
                wrong.push(format!("{file}: {made}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A variable of type varchar has the code page of the database, and in some a byte of UTF-8 takes the next character along. Only
/// the form for Babelfish, which has one code page, reads a body so.
#[test]
fn bodies_are_not_read_in_the_code_page_of_the_database() {
    let of_babelfish = "SET @content = CAST(CAST(@body AS varchar(max)) AS nvarchar(max));";
    let found: Vec<(String, String)> = texts()
        .into_iter()
        .map(|(file, text)| (file, text.replacen(of_babelfish, "", 1)))
        .filter(|(_, text)| text.contains("AS varchar(max)) AS nvarchar(max))"))
        .collect();
    assert!(found.is_empty(), "{:?}", found.iter().map(|(file, _)| file).collect::<Vec<_>>());
}

#[test]
fn application_locks_belong_to_a_role() {
    let mut wrong = Vec::new();
    for (file, text) in texts() {
        // The role is not there yet.
        if file.ends_with("install/lock.sql") {
            continue;
        }
        for word in ["sp_getapplock", "sp_releaseapplock"] {
            for call in text.split(word).skip(1) {
                let call = call.split(';').next().unwrap();
                if !call.contains("@DbPrincipal = N'dialoq_user'") {
                    wrong.push(format!("{file}: {word}{call}"));
                }
            }
        }
        for word in ["APPLOCK_TEST(", "APPLOCK_MODE("] {
            for call in text.split(word).skip(1) {
                // In a text that makes a procedure, quotes are doubled.
                if !["N'dialoq_user',", "N''dialoq_user'',"].iter().any(|role| call.trim_start().starts_with(role)) {
                    wrong.push(format!("{file}: {word}{}", call.lines().next().unwrap()));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "any user can hold the locks of the principal public: {wrong:#?}");
}

/// A RETURN between BEGIN TRANSACTION and COMMIT would leave a transaction open.
#[test]
fn no_procedure_returns_out_of_its_own_transaction() {
    let mut sections = 0;
    for file in files(&root().join("sql/mssql"), "sql") {
        let text = fs::read_to_string(&file).unwrap();
        for section in text.split("-- <transaction>\n").skip(1) {
            let (section, _) = section.split_once("-- </transaction>").expect("the part ends");
            assert!(!section.contains("RETURN"), "{}: {section}", file.display());
            sections += 1;
        }
    }
    assert!(sections > 10, "the part has another name");
}

/// SQL Server refuses FORCESEEK with the index in parentheses on the table that a statement changes, and only when it runs.
#[test]
fn seeks_are_forced_in_the_form_that_changes_allow() {
    let wrong: Vec<String> =
        texts().into_iter().filter(|(_, text)| text.contains("FORCESEEK (")).map(|(file, _)| file).collect();
    assert!(wrong.is_empty(), "write INDEX (name), FORCESEEK: {wrong:?}");
}

/// The columns that verbs seek rows by when they change a table that other verbs write. Every other change names an index:
/// SQL Server scans a small table, and a scan waits for the rows of transactions that have nothing to do with it.
const CLUSTERED: [(&str, &str); 19] = [
    ("activated_task", ""),
    ("conversation_endpoint", "endpoint_id"),
    ("done_unit", "done_at"),
    ("dropped_work_queue", "queue_id"),
    ("job", "job_id"),
    ("job_history", "queue_id"),
    ("job_history_cut", "queue_id"),
    ("queue_message", "endpoint_id"),
    ("queue_monitor", ""),
    ("queue_rollback", "rollback_id"),
    ("ready_group", "queue_id"),
    ("receive_attempt", "attempt_number"),
    ("recheck_queue", "recheck_id"),
    ("retained_message", "endpoint_id"),
    ("tick_failure", "endpoint_id"),
    ("transmission", "transmission_id"),
    ("unique_job", "queue_id"),
    ("work_rate", "queue_id"),
    ("work_schedule", "schedule_id"),
];

#[test]
fn changes_of_rows_scan_no_table() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (file, text) in texts() {
        if !["sql/mssql/rules/", "sql/mssql/verbs/"].iter().any(|folder| file.starts_with(folder)) {
            continue;
        }
        for statement in text.split(';').flat_map(|part| part.split("THEN\n")) {
            let changed = ["UPDATE dialoq.", "DELETE FROM dialoq."]
                .iter()
                .find_map(|verb| statement.split_once(verb))
                .map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>().join(" "));
            let Some(changed) = changed else { continue };
            let name = changed.split(' ').next().unwrap();
            let Some((_, key)) = CLUSTERED.iter().find(|(table, _)| *table == name) else { continue };
            seen += 1;
            let is_whole = !changed.contains(" WHERE ");
            let is_sought = !key.is_empty() && changed.contains(&format!(" WHERE {key} = "))
                || changed.contains(" WHERE CURRENT OF ");
            if !(is_whole || is_sought || changed.contains("FORCESEEK") || changed.contains("READPAST")) {
                wrong.push(format!("{file}: {changed}"));
            }
        }
    }
    assert!(seen > 20, "the statements were not understood: {seen}");
    assert!(wrong.is_empty(), "write FROM table WITH (ROWLOCK, INDEX (name), FORCESEEK): {wrong:#?}");
}

/// SQL Server's catalog views have names in the collation of the database and these columns in another one. SQL Server does not
/// put texts of two collations together (error 457), and only when it compiles the statement.
#[test]
fn columns_of_the_servers_collation_are_converted() {
    let mut seen = 0;
    for (file, text) in texts() {
        for word in ["permission_name", "state_desc", "type_desc", "class_desc"] {
            for after in text.split(&format!("p.{word}")).skip(1) {
                assert!(after.starts_with(" COLLATE DATABASE_DEFAULT"), "{file}: {word}");
                seen += 1;
            }
        }
    }
    assert!(seen > 0, "the installation has other words");
}

/// The collation of a database decides what LOWER and UPPER do; names fold with fold_name.
#[test]
fn names_are_not_folded_by_the_databases_collation() {
    let mut wrong = Vec::new();
    for (file, text) in texts() {
        for word in ["LOWER(@", "UPPER(@"] {
            wrong.extend(text.contains(word).then(|| format!("{file}: {word}")));
        }
    }
    assert!(wrong.is_empty(), "{wrong:?}");
}

/// One limit and one code on both servers for an installation that waits for another.
#[test]
fn installers_wait_alike() {
    let mssql = texts().into_iter().find(|(file, _)| file.ends_with("install/lock.sql")).expect("the file has moved").1;
    let postgres = fs::read_to_string(root().join("sql/postgres/install/lock.sql")).unwrap();
    for (text, parts) in
        [(mssql, ["@LockTimeout = 60000;", "THROW 60010,"]), (postgres, ["lock_timeout = '60s'", "dialoq 60010"])]
    {
        for part in parts {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

/// An uninstallation keeps tables of the user's by naming those of the broker.
#[test]
fn the_removal_names_every_table_of_the_broker() {
    let drop = texts().into_iter().find(|(file, _)| file.ends_with("mssql/drop.sql")).expect("the file has moved").1;
    let named: BTreeSet<&str> = drop
        .split("NOT IN (")
        .nth(1)
        .map_or("", |rest| rest.split(')').next().unwrap())
        .split(',')
        .map(|name| name.trim().trim_start_matches("N'").trim_end_matches('\''))
        .collect();
    let mut made = BTreeSet::new();
    for (_, text) in texts() {
        made.extend(
            text.split("CREATE TABLE dialoq.").skip(1).map(|rest| rest.split_whitespace().next().unwrap().to_owned()),
        );
        // A table that was renamed has the older name in an older installation.
        let renamed = text.lines().filter(|line| line.starts_with("EXEC sp_rename") && line.ends_with("N'OBJECT';"));
        made.extend(renamed.map(|line| line.split("N'").nth(2).unwrap().split('\'').next().unwrap().to_owned()));
    }
    assert_eq!(named, made.iter().map(String::as_str).collect());
}

/// SQL Server cuts a text to the length of the variable that takes it, without an error. A comparison with the whole text is
/// then false.
#[test]
fn texts_fit_the_variables_that_take_them() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (file, text) in texts() {
        for made in text.split("\nGO\n") {
            let lengths = lengths(made);
            for (place, _) in made.match_indices("N'") {
                let literal = made[place + 2..].split('\'').next().unwrap();
                let Some(length) = variable_of(&made[..place]).and_then(|name| lengths.get(name)) else { continue };
                seen += 1;
                if literal.chars().count() > *length {
                    wrong.push(format!("{file}: '{literal}' in {length} characters"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(seen > 50, "the texts were not understood: {seen} literals");
}

/// The texts that a procedure or function declares with a length, by name.
fn lengths(made: &str) -> BTreeMap<&str, usize> {
    let mut lengths = BTreeMap::new();
    for (place, kind) in made.match_indices(" nvarchar(") {
        let length = made[place + kind.len()..].split(')').next().unwrap().parse();
        if let (Some(at), Ok(length)) = (made[..place].rfind('@'), length) {
            lengths.insert(&made[at..place], length);
        }
    }
    lengths
}

/// The variable that takes the literal after this text, or is compared with it.
fn variable_of(before: &str) -> Option<&str> {
    let before = before.trim_end();
    let statement = before.rsplit(';').next()?;
    let name = if before.ends_with("THEN") || before.ends_with("ELSE") {
        statement.rsplit_once(" = CASE")?.0
    } else if let Some(name) = before.strip_suffix('=').or_else(|| before.strip_suffix("<>")) {
        name
    } else {
        let (name, listed) = statement.rsplit_once(" IN (")?;
        if listed.contains(')') {
            return None;
        }
        name
    };
    let name = name.trim_end();
    let name = &name[name.rfind(char::is_whitespace).map_or(0, |at| at + 1)..];
    Some(name.trim_start_matches('(')).filter(|name| name.starts_with('@'))
}
