//! Refuses SQL of the user that begins or ends transactions, leaves this database, or touches Dialoq's own tables.

use super::limit::Watch;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Guards a connection, and limits how long its statements run.
#[derive(Debug, Clone, Default)]
pub(super) struct Guard {
    is_on: Arc<AtomicBool>,
    has_defined: Arc<AtomicBool>,
    pub(super) watch: Watch,
}

impl Guard {
    /// Guards a connection that also does the store's own work: switched off.
    pub(super) fn install(connection: &mut Connection) -> rusqlite::Result<Self> {
        let guard = Self { watch: Watch::install(connection)?, ..Self::default() };
        let (is_on, has_defined) = (guard.is_on.clone(), guard.has_defined.clone());
        connection.authorizer(Some(move |context: AuthContext<'_>| {
            if !is_on.load(Relaxed) {
                return Authorization::Allow;
            }
            if defines(&context.action) {
                has_defined.store(true, Relaxed);
            }
            judge(&context)
        }))?;
        Ok(guard)
    }

    /// Guards a connection for good.
    pub(super) fn always(connection: &mut Connection) -> rusqlite::Result<Self> {
        let guard = Self::install(connection)?;
        guard.is_on.store(true, Relaxed);
        Ok(guard)
    }

    /// Prepares or runs the user's SQL under guard.
    pub(super) fn guarded<T>(&self, work: impl FnOnce() -> T) -> T {
        let was_on = self.is_on.swap(true, Relaxed);
        let done = work();
        self.is_on.store(was_on, Relaxed);
        done
    }

    /// Whether a statement has made or changed a table, view, index or trigger since this was asked last.
    pub(super) fn take_defined(&self) -> bool {
        self.has_defined.swap(false, Relaxed)
    }
}

/// The guard's reason for refusing a statement; `None` if it failed for another reason.
pub(super) fn explain(error: &rusqlite::Error) -> Option<&'static str> {
    (error.sqlite_error_code() == Some(rusqlite::ErrorCode::AuthorizationForStatementDenied)).then_some(
        "neither it nor a trigger that it fires may change Dialoq's own tables and views (dialoq_*, sys_*, queue_messages, dead_letters); it \
         may not make temporary objects, nor contain BEGIN, COMMIT, ROLLBACK, SAVEPOINT, ATTACH, DETACH or PRAGMA; the broker's verbs and \
         the transaction it runs in do that. Nor may it call total_changes(), which counts the rows of every caller: ask for changes()",
    )
}

/// Whether the statement changes the schema. SQLite does not show a new name or the target of a foreign key here, so
/// that the schema is checked after the statement has run.
fn defines(action: &AuthAction<'_>) -> bool {
    use AuthAction as A;
    matches!(
        action,
        A::CreateTable { .. }
            | A::CreateIndex { .. }
            | A::CreateTrigger { .. }
            | A::CreateView { .. }
            | A::CreateVtable { .. }
            | A::AlterTable { .. }
            | A::DropTable { .. }
            | A::DropIndex { .. }
            | A::DropTrigger { .. }
            | A::DropView { .. }
            | A::DropVtable { .. }
    )
}

fn judge(context: &AuthContext<'_>) -> Authorization {
    use AuthAction as A;
    // `CREATE TABLE temp.t` is no CreateTempTable. A trigger of that schema on a table of main does not show here; `reserved`
    // finds it.
    if defines(&context.action) && context.database_name == Some("temp") {
        return Authorization::Deny;
    }
    let verdict = match context.action {
        A::Transaction { .. } | A::Savepoint { .. } | A::Attach { .. } | A::Detach { .. } => true,
        // Pragmas that only list tables, columns and indexes are allowed. FTS5 itself reads data_version, an R-tree page_size.
        A::Pragma {
            pragma_name: "application_id" | "user_version" | "data_version" | "page_size",
            pragma_value: None,
        } => false,
        A::Pragma { pragma_name, .. } => !(pragma_name.ends_with("_info") || pragma_name.ends_with("_list")),
        // They would stay on the one connection that writes, and hide tables of the same name from every other caller.
        A::CreateTempTable { .. }
        | A::CreateTempIndex { .. }
        | A::CreateTempTrigger { .. }
        | A::CreateTempView { .. } => true,
        A::CreateVtable { table_name, .. } => is_ours(table_name),
        // A virtual table of SQLite that writes the pages of the file.
        A::Insert { table_name: "sqlite_dbpage" }
        | A::Delete { table_name: "sqlite_dbpage" }
        | A::Update { table_name: "sqlite_dbpage", .. } => true,
        // If a user's own trigger wrote to these, it would run inside our statements, so the name alone decides.
        A::Insert { table_name } | A::Delete { table_name } | A::Update { table_name, .. } => is_ours(table_name),
        A::CreateTable { table_name } | A::DropTable { table_name } | A::DropVtable { table_name, .. } => {
            is_ours(table_name)
        }
        A::CreateIndex { table_name, .. } | A::DropIndex { table_name, .. } => is_ours(table_name),
        A::CreateTrigger { table_name, .. } | A::DropTrigger { table_name, .. } => is_ours(table_name),
        A::AlterTable { table_name, .. } => is_ours(table_name),
        A::CreateView { view_name } | A::DropView { view_name } => is_ours(view_name),
        // A count of all that the connection has ever changed: a statement would give another one each time it runs.
        A::Function { function_name } => ["load_extension", "fts3_tokenizer", "total_changes"]
            .iter()
            .any(|name| function_name.eq_ignore_ascii_case(name)),
        _ => false,
    };
    if verdict { Authorization::Deny } else { Authorization::Allow }
}

fn is_ours(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("dialoq_")
        || name.starts_with("sys_")
        || ["queue_messages", "dead_letters"].contains(&name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(action: AuthAction<'_>, database_name: Option<&str>) -> Authorization {
        judge(&AuthContext { action, database_name, accessor: None })
    }

    /// A view that is added later is not forgotten.
    #[test]
    fn every_view_has_a_name_that_is_reserved() {
        for view in crate::sql::sqlite::views::SCRIPTS {
            let name = view.name.strip_prefix("views/").and_then(|name| name.strip_suffix(".sql")).unwrap();
            assert_eq!(judged(AuthAction::DropView { view_name: name }, Some("main")), Authorization::Deny, "{name}");
            if !name.starts_with("dialoq_") && !name.starts_with("sys_") {
                for text in [crate::sql::sqlite::read::RESERVED_OBJECTS, crate::sql::sqlite::read::NAMES_OF_VIEWS] {
                    assert!(text.contains(&format!("'{name}'")), "{name}");
                }
            }
        }
    }

    /// The schema check after a statement finds many of these too; each of the two checks must suffice alone.
    #[test]
    fn access_to_a_table_of_the_broker_is_denied_by_its_name() {
        use AuthAction as A;
        for (table_name, expected) in [
            ("dialoq_queue_message", Authorization::Deny),
            ("Sys_Services", Authorization::Deny),
            ("queue_messages", Authorization::Deny),
            ("mine", Authorization::Allow),
        ] {
            let (index_name, trigger_name, view_name) = ("i", "t", table_name);
            for action in [
                A::CreateTable { table_name },
                A::DropTable { table_name },
                A::AlterTable { database_name: "main", table_name },
                A::CreateIndex { index_name, table_name },
                A::DropIndex { index_name, table_name },
                A::CreateTrigger { trigger_name, table_name },
                A::DropTrigger { trigger_name, table_name },
                A::CreateView { view_name },
                A::DropView { view_name },
                A::CreateVtable { table_name, module_name: "fts5" },
                A::DropVtable { table_name, module_name: "fts5" },
                A::Insert { table_name },
                A::Delete { table_name },
                A::Update { table_name, column_name: "c" },
            ] {
                assert_eq!(judged(action, Some("main")), expected, "{action:?}");
            }
        }
    }

    #[test]
    fn the_pages_of_the_file_temporary_objects_and_code_from_outside_are_denied() {
        use AuthAction as A;
        for action in [
            A::Insert { table_name: "sqlite_dbpage" },
            A::Delete { table_name: "sqlite_dbpage" },
            A::Update { table_name: "sqlite_dbpage", column_name: "data" },
            A::Function { function_name: "load_extension" },
            A::Function { function_name: "FTS3_TOKENIZER" },
            A::Function { function_name: "total_changes" },
        ] {
            assert_eq!(judged(action, Some("main")), Authorization::Deny, "{action:?}");
        }
        let virtual_table = A::CreateVtable { table_name: "mine", module_name: "fts5" };
        assert_eq!(judged(virtual_table, Some("temp")), Authorization::Deny);
        assert_eq!(judged(A::Function { function_name: "abs" }, None), Authorization::Allow);
    }

    #[test]
    fn a_pragma_that_only_reads_tables_is_allowed_and_no_other() {
        for (pragma_name, pragma_value, expected) in [
            ("table_info", Some("t"), Authorization::Allow),
            ("index_list", Some("t"), Authorization::Allow),
            ("user_version", None, Authorization::Allow),
            ("page_size", None, Authorization::Allow),
            ("page_size", Some("512"), Authorization::Deny),
            ("user_version", Some("2"), Authorization::Deny),
            ("journal_mode", None, Authorization::Deny),
            ("writable_schema", Some("on"), Authorization::Deny),
        ] {
            let pragma = AuthAction::Pragma { pragma_name, pragma_value };
            assert_eq!(judged(pragma, None), expected, "{pragma:?}");
        }
    }

    #[test]
    fn only_a_statement_that_the_guard_refused_is_explained_by_it() {
        let mut connection = Connection::open_in_memory().unwrap();
        let _guard = Guard::always(&mut connection).unwrap();
        let refused = connection.prepare("attach 'x.db' as x").unwrap_err();
        assert!(explain(&refused).is_some_and(|why| why.contains("ATTACH")), "{refused}");
        let wrong = connection.prepare("select nonsense").unwrap_err();
        assert_eq!(explain(&wrong), None, "{wrong}");
    }
}
