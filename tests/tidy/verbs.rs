//! The table of verbs (`src/protocol/verb.rs`) agrees with the SQL of both databases, and `docs/verbs.md` shows it.

use crate::called_by::called_by;
use crate::source::root;
use dialoq::protocol::declared::Declaration;
use dialoq::protocol::verb::{DEFINE, VERBS};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs;

/// A routine of a database: its arguments with their types, and what its header says.
struct Routine {
    arguments: Vec<(String, String)>,
    header: BTreeMap<String, String>,
    text: String,
}

fn routine(dialect: &str, name: &str) -> Routine {
    let path = root().join(format!("sql/{dialect}/verbs/{name}.sql"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let (create, prefix) = match dialect {
        "postgres" => ("FUNCTION dialoq.", "p_"),
        _ => ("PROCEDURE dialoq.", "@"),
    };
    let (before, rest) = text
        .split_once(&format!("CREATE {create}{name}"))
        .or_else(|| text.split_once(&format!("CREATE OR REPLACE {create}{name}")))
        .unwrap_or_else(|| panic!("{} makes no {name}", path.display()));
    let end = if dialect == "postgres" { "RETURNS" } else { "\nAS" };
    let list = rest.split_once(end).unwrap_or_else(|| panic!("{}: no {end:?}", path.display())).0.trim();
    let list = list.strip_prefix('(').and_then(|list| list.strip_suffix(')')).unwrap_or(list);
    let arguments = split(list).iter().flat_map(|argument| of_arguments(argument, prefix)).collect();
    Routine { arguments, header: header(before), text }
}

/// Splits at the commas that are in no bracket.
fn split(list: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut from) = (Vec::new(), 0, 0);
    for (at, character) in list.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&list[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&list[from..]);
    parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()).collect()
}

/// Rows of messages, which PostgreSQL takes as a column each.
const MESSAGE_COLUMNS: [(&str, &str); 6] = [
    ("conversation_handles", "uuid[]"),
    ("message_type_names", "text[]"),
    ("message_bodies", "bytea[]"),
    ("traces", "text[]"),
    ("body_faults", "text[]"),
    ("message_ids", "uuid[]"),
];

fn of_arguments(argument: &str, prefix: &str) -> Vec<(String, String)> {
    match argument.contains(" dialoq.send_batch_rows ") {
        true => MESSAGE_COLUMNS.iter().map(|(name, of)| ((*name).to_owned(), (*of).to_owned())).collect(),
        false => vec![of_argument(argument, prefix)],
    }
}

/// `@trace nvarchar(max) = NULL` is the argument `trace` of type `text`.
fn of_argument(argument: &str, prefix: &str) -> (String, String) {
    let (name, rest) = argument.split_once(char::is_whitespace).unwrap_or((argument, ""));
    let declared = rest.split([' ', '=']).next().unwrap_or_default();
    let plain = match declared.split('(').next().unwrap_or_default() {
        "uniqueidentifier" => "uuid",
        "nvarchar" => "text",
        "varbinary" => "bytea",
        "bit" => "boolean",
        "int" => "integer",
        "dialoq.send_many_rows" => "uuid[]",
        other => other,
    };
    (name.trim_start_matches(prefix).to_owned(), plain.to_owned())
}

/// The fields of a header comment: `Takes`, `Gives`, `Errors`, `Locks`, `Granted to`.
fn header(text: &str) -> BTreeMap<String, String> {
    let mut fields: BTreeMap<String, String> = BTreeMap::new();
    let mut field = String::new();
    for line in text.lines().take_while(|line| line.starts_with("--")) {
        let line = line.trim_start_matches("--").strip_prefix(' ').unwrap_or_default();
        if let Some((name, value)) = line.split_once(": ").filter(|(name, _)| !name.contains(' ')) {
            name.clone_into(&mut field);
            fields.insert(field.clone(), value.to_owned());
        } else if let Some(more) = line.strip_prefix("    ").filter(|_| !field.is_empty()) {
            let _ = write!(fields.get_mut(&field).unwrap(), " {more}");
        }
    }
    fields
}

fn numbers(errors: &str) -> BTreeSet<u16> {
    let all = errors.split(|of: char| !of.is_ascii_digit()).filter_map(|number| number.parse::<u32>().ok());
    // SQL Server raises Service Broker's numbers above 50000.
    all.map(|number| u16::try_from(if (50000..60000).contains(&number) { number - 50000 } else { number }).unwrap())
        .collect()
}

fn routines() -> impl Iterator<Item = &'static Declaration> {
    VERBS.iter().filter(|verb| verb.name != DEFINE.name)
}

#[test]
fn both_databases_declare_what_the_table_declares() {
    let mut wrong = Vec::new();
    for verb in routines() {
        let mut raised = BTreeSet::<u16>::new();
        for dialect in ["postgres", "mssql"] {
            let routine = routine(dialect, verb.name);
            let mut complain = |what: &str, found: String, declared: String| {
                if found != declared {
                    wrong.push(format!("{dialect} {}: {what} are {found}, declared {declared}", verb.name));
                }
            };
            let declared: Vec<(String, String)> =
                verb.arguments.iter().map(|(name, of)| ((*name).to_owned(), (*of).to_owned())).collect();
            complain("arguments", format!("{:?}", routine.arguments), format!("{declared:?}"));
            raised.extend(routine.header.get("Errors").map(|errors| numbers(errors)).unwrap_or_default());
            // RECEIVE has its columns from a rule on SQL Server.
            let rule = root().join(format!("sql/{dialect}/rules/{}.sql", verb.name));
            let rule = fs::read_to_string(rule).unwrap_or_default();
            for column in verb.gives.columns() {
                if !routine.text.contains(column) && !rule.contains(column) {
                    wrong.push(format!("{dialect} {} has no column '{column}'", verb.name));
                }
            }
        }
        if !raised.iter().eq(verb.errors) {
            wrong.push(format!("{}: the SQL of both raises {raised:?}, declared {:?}", verb.name, verb.errors));
        }
        if verb.errors.iter().any(|number| dialoq::Code::ALL.iter().all(|(code, _)| code.0 != *number)) {
            wrong.push(format!("{}: an error of {:?} is no code", verb.name, verb.errors));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Two verbs of one call, which is no verb itself; the second is what it gives.
const TOGETHER: [(&str, &str); 1] = [(
    "complete_and_take_job",
    "`complete_job` and `take_jobs` in one call, the jobs with leases. Both are done or neither, by one commit.",
)];

#[test]
fn both_databases_take_the_same_arguments_for_two_verbs_in_one_call() {
    for (name, _) in TOGETHER {
        let [postgres, mssql] = ["postgres", "mssql"].map(|dialect| routine(dialect, name));
        assert_eq!(postgres.arguments, mssql.arguments, "{name}");
    }
}

#[test]
fn both_databases_let_the_same_roles_call_a_routine() {
    for role in ["dialoq_user", "dialoq_admin"] {
        let mut postgres = called_by("postgres", role);
        // Batches of jobs and of dialogs (Dialect::has_job_batches, has_dialog_batches) and later notes (Dialect::notes_later) are for
        // PostgreSQL alone.
        // SQL Server has no type for JSON that every version knows.
        let only_there = ["commit_receives", "send_json"];
        postgres.retain(|name| !name.ends_with("_job_batch") && !only_there.contains(&name.as_str()));
        postgres.retain(|name| !crate::rooms::CLAIMS.contains(&name.as_str()));
        postgres.retain(|name| !crate::rooms::DIALOG_BATCHES.contains(&name.as_str()));
        assert_eq!(postgres, called_by("mssql", role), "{role}");
    }
    let verbs: BTreeSet<String> = routines().map(|verb| verb.name.to_owned()).collect();
    assert!(called_by("postgres", "dialoq_user").is_superset(&verbs), "a verb that users may not call: {verbs:?}");
}

#[test]
fn the_page_of_verbs_shows_the_table() {
    let page = root().join("docs/verbs.md");
    let text = page_of_verbs();
    if std::env::var_os("DIALOQ_BLESS").is_some() {
        fs::write(&page, &text).unwrap();
    }
    let stands = fs::read_to_string(&page).unwrap_or_default();
    assert!(
        stands == text,
        "docs/verbs.md is not what the table says; DIALOQ_BLESS=1 cargo test --test tidy writes it"
    );
}

fn page_of_verbs() -> String {
    let mut page = String::from(
        "# Verbs\n\n\
         Each verb of the broker as a function of PostgreSQL or a procedure of SQL Server in schema `dialoq`, with arguments\n\
         and results of the same names. PostgreSQL's arguments begin with `p_`, SQL Server's with `@`; its error numbers of\n\
         four digits are raised as 5xxxx. The embedded store has the same verbs behind the same API. Most routines also give\n\
         the column `notices`, which only Dialoq's own clients read.\n\n\
         This page is made from `src/protocol/verb.rs`: `DIALOQ_BLESS=1 cargo test --test tidy` writes it.\n",
    );
    for verb in routines() {
        let _ = write!(page, "\n## {}\n\n{}.\n", verb.name, sentence(verb.statement));
        page.push_str("\n| argument | type |\n|---|---|\n");
        for (name, of) in verb.arguments {
            let _ = writeln!(page, "| `{name}` | {of} |");
        }
        let mut columns: Vec<String> = verb.gives.columns().iter().map(|column| format!("`{column}`")).collect();
        // What clients of Dialoq know without it: they make the id of a message themselves.
        let header = routine("postgres", verb.name).header;
        if let (true, Some(given)) = (columns.is_empty(), header["Gives"].strip_suffix(", notices")) {
            columns.push(format!("`{given}`"));
        }
        let gives = if columns.is_empty() { "nothing".to_owned() } else { columns.join(", ") };
        let errors: Vec<String> = verb.errors.iter().map(u16::to_string).collect();
        let errors = if errors.is_empty() { "none".to_owned() } else { errors.join(", ") };
        let _ = writeln!(page, "\nGives {gives}. Errors: {errors}.");
        if let Some(batch) = verb.batch {
            let is_there_only = batch.ends_with("_job_batch") || crate::rooms::DIALOG_BATCHES.contains(&batch);
            let on = if is_there_only { " on PostgreSQL" } else { "" };
            let _ = writeln!(page, "Calls outside a transaction go together as `{batch}`{on}.");
        }
        if verb.reads_only {
            page.push_str("It changes and locks nothing.\n");
        }
    }
    for (name, sentence) in TOGETHER {
        let routine = routine("postgres", name);
        let _ = write!(page, "\n## {name}\n\n{sentence}\n\n| argument | type |\n|---|---|\n");
        for (name, of) in routine.arguments {
            let _ = writeln!(page, "| `{name}` | {of} |");
        }
        let _ = writeln!(
            page,
            "\nGives the columns of `take_jobs`. Errors: {}.",
            routine.header["Errors"].split(':').next().unwrap()
        );
        let _ = writeln!(page, "Calls outside a transaction go together as `{name}_batch` on PostgreSQL.");
    }
    page
}

fn sentence(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map_or_else(String::new, |first| first.to_uppercase().chain(characters).collect())
}
