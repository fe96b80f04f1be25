//! What the user's own SQL may not do: begin or end transactions, leave this database, or touch Dialoq's own tables.

use super::limit::Watch;
use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Guards a connection, and watches how long its statements run.
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

/// Why a statement that the guard refused was refused; `None` if it failed for another reason.
pub(super) fn explain(error: &rusqlite::Error) -> Option<&'static str> {
    (error.sqlite_error_code() == Some(rusqlite::ErrorCode::AuthorizationForStatementDenied)).then_some(
        "it may not change Dialoq's own tables and views (dialoq_*, sys_*, queue_messages), nor make temporary objects, nor \
         contain BEGIN, COMMIT, ROLLBACK, SAVEPOINT, ATTACH, DETACH or PRAGMA; the broker's verbs and the transaction it \
         runs in do that",
    )
}

/// Whether the statement changes the schema. SQLite does not show a new name or the target of a foreign key here, so that
/// the schema is checked after the statement has run.
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
    let verdict = match context.action {
        A::Transaction { .. } | A::Savepoint { .. } | A::Attach { .. } | A::Detach { .. } => true,
        // Those that only tell which tables, columns and indexes there are. FTS5 asks for data_version by itself.
        A::Pragma { pragma_name: "application_id" | "user_version" | "data_version", pragma_value: None } => false,
        A::Pragma { pragma_name, .. } => !(pragma_name.ends_with("_info") || pragma_name.ends_with("_list")),
        // They would stay on the one connection that writes, and hide tables of the same name from every other caller.
        A::CreateTempTable { .. }
        | A::CreateTempIndex { .. }
        | A::CreateTempTrigger { .. }
        | A::CreateTempView { .. } => true,
        A::CreateVtable { table_name, .. } => context.database_name == Some("temp") || is_ours(table_name),
        // A virtual table of SQLite that writes the pages of the file.
        A::Insert { table_name: "sqlite_dbpage" }
        | A::Delete { table_name: "sqlite_dbpage" }
        | A::Update { table_name: "sqlite_dbpage", .. } => true,
        // Triggers of the user's own that call these would run inside our statements, so the name is what counts.
        A::Insert { table_name } | A::Delete { table_name } | A::Update { table_name, .. } => is_ours(table_name),
        A::CreateTable { table_name } | A::DropTable { table_name } | A::DropVtable { table_name, .. } => {
            is_ours(table_name)
        }
        A::CreateIndex { table_name, .. } | A::DropIndex { table_name, .. } => is_ours(table_name),
        A::CreateTrigger { table_name, .. } | A::DropTrigger { table_name, .. } => is_ours(table_name),
        A::AlterTable { table_name, .. } => is_ours(table_name),
        A::CreateView { view_name } | A::DropView { view_name } => is_ours(view_name),
        A::Function { function_name } => {
            ["load_extension", "fts3_tokenizer"].iter().any(|name| function_name.eq_ignore_ascii_case(name))
        }
        _ => false,
    };
    if verdict { Authorization::Deny } else { Authorization::Allow }
}

fn is_ours(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("dialoq_") || name.starts_with("sys_") || name == "queue_messages"
}
