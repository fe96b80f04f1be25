//! What the user's own SQL may not do: begin or end transactions, leave this database, or touch Dialoq's own tables.

use rusqlite::Connection;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Switches the guard of a connection that also does the store's own work.
#[derive(Debug, Clone, Default)]
pub(super) struct Guard(Arc<AtomicBool>);

impl Guard {
    /// Sets the guard up, switched off.
    pub(super) fn install(connection: &mut Connection) -> rusqlite::Result<Self> {
        let guard = Self::default();
        let is_on = guard.0.clone();
        connection.authorizer(Some(
            move |context: AuthContext<'_>| {
                if is_on.load(Relaxed) { judge(&context) } else { Authorization::Allow }
            },
        ))?;
        Ok(guard)
    }

    /// Prepares or runs the user's SQL under guard.
    pub(super) fn guarded<T>(&self, work: impl FnOnce() -> T) -> T {
        self.0.store(true, Relaxed);
        let done = work();
        self.0.store(false, Relaxed);
        done
    }
}

/// Guards a connection for good.
pub(super) fn always(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.authorizer(Some(|context: AuthContext<'_>| judge(&context)))
}

/// Why a statement that the guard refused was refused; `None` if it failed for another reason.
pub(super) fn explain(error: &rusqlite::Error) -> Option<&'static str> {
    (error.sqlite_error_code() == Some(rusqlite::ErrorCode::AuthorizationForStatementDenied)).then_some(
        "it may not change Dialoq's own tables and views (dialoq_*, sys_*, queue_messages), nor contain BEGIN, COMMIT, \
         ROLLBACK, SAVEPOINT, ATTACH, DETACH or PRAGMA; the broker's verbs and the transaction it runs in do that",
    )
}

fn judge(context: &AuthContext<'_>) -> Authorization {
    use AuthAction as A;
    let verdict = match context.action {
        A::Transaction { .. } | A::Savepoint { .. } | A::Attach { .. } | A::Detach { .. } => true,
        // Those that only tell which tables, columns and indexes there are.
        A::Pragma { pragma_name: "application_id" | "user_version", pragma_value: None } => false,
        A::Pragma { pragma_name, .. } => !(pragma_name.ends_with("_info") || pragma_name.ends_with("_list")),
        // Triggers of the user's own that call these would run inside our statements, so the name is what counts.
        A::Insert { table_name } | A::Delete { table_name } | A::Update { table_name, .. } => is_ours(table_name),
        A::CreateTable { table_name } | A::CreateTempTable { table_name } | A::DropTable { table_name } => {
            is_ours(table_name)
        }
        A::CreateIndex { table_name, .. } | A::DropIndex { table_name, .. } => is_ours(table_name),
        A::CreateTrigger { table_name, .. }
        | A::CreateTempTrigger { table_name, .. }
        | A::DropTrigger { table_name, .. } => is_ours(table_name),
        A::AlterTable { table_name, .. } => is_ours(table_name),
        A::CreateView { view_name } | A::CreateTempView { view_name } | A::DropView { view_name } => is_ours(view_name),
        A::CreateVtable { table_name, .. } | A::DropVtable { table_name, .. } => is_ours(table_name),
        A::Function { function_name } => function_name.eq_ignore_ascii_case("load_extension"),
        _ => false,
    };
    if verdict { Authorization::Deny } else { Authorization::Allow }
}

fn is_ours(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.starts_with("dialoq_") || name.starts_with("sys_") || name == "queue_messages"
}
