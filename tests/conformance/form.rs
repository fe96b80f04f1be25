//! The forms in which a case runs on a store: alone, through another process, after another process, with another technique.

use crate::rig::Case;
use crate::servers::Store;
use dialoq::protocol::definition::TakingTechnique;
use dialoq::{Broker, OpenOptions, Result};

/// How a broker uses the database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// It is the only one.
    Alone,
    /// It works through another that owns the file. Embedded only.
    Guest,
    /// It worked through another that owned the file, and owns it since that one closed. Embedded only.
    Heir,
    /// It is the only one, and its transactions claim what they receive from the first RECEIVE on. PostgreSQL only.
    Claims,
    /// It is the only one, and every work queue that names no technique has this one. Servers only, cases of work queues only.
    TakesBy(TakingTechnique),
}

impl Form {
    /// The forms of a case on a store, each with what it adds to the names of cases.
    pub(crate) fn of(store: Store, case: &Case) -> &'static [(Self, &'static str)] {
        match store {
            Store::Sqlite => &[(Self::Alone, ""), (Self::Guest, "_as_guest"), (Self::Heir, "_as_heir")],
            _ if case.section().starts_with("work_") => &[
                (Self::Alone, ""),
                (Self::TakesBy(TakingTechnique::Statement), "_by_statement"),
                (Self::TakesBy(TakingTechnique::Cte), "_by_cte"),
                (Self::TakesBy(TakingTechnique::Cursor), "_by_cursor"),
                (Self::TakesBy(TakingTechnique::AppLock), "_by_applock"),
            ],
            Store::Postgres => &[(Self::Alone, ""), (Self::Claims, "_by_claim")],
            Store::Mssql => &[(Self::Alone, "")],
        }
    }

    /// The options of its broker.
    pub(crate) fn options(self) -> OpenOptions {
        match self {
            Self::Claims => OpenOptions::default().careful_receives(0),
            _ => OpenOptions::default(),
        }
    }

    /// Whether a process owned the file before the broker was opened.
    pub(crate) fn has_owner(self) -> bool {
        matches!(self, Self::Guest | Self::Heir)
    }

    /// Runs after each definition.
    pub(crate) async fn prepare(self, broker: &Broker) -> Result<()> {
        let Self::TakesBy(technique) = self else { return Ok(()) };
        let catalog = broker.catalog();
        let queues = catalog.work_queues.values();
        for queue in queues.filter(|queue| queue.settings.take_by == TakingTechnique::Default) {
            let name = queue.name.replace(']', "]]");
            broker.execute(&format!("ALTER WORK QUEUE [{name}] WITH TAKE_BY = {}", technique.word())).await?;
        }
        Ok(())
    }
}
