//! The SQL of a bench on a server, by dialect.

use dialoq::internals::ErrorConstructors;
use dialoq::internals::server_driver;
use dialoq::internals::store::database::link::{Driver, Failure};
use dialoq::internals::store::url::{Durability, StoreUrl};
use dialoq::{Code, Error, Result, SqlRow};
use std::sync::Arc;

/// The texts of `sql/<dialect>/bench`.
#[derive(Debug)]
pub(super) struct Texts {
    pub(super) create_message: &'static str,
    pub(super) drop_message: &'static str,
    pub(super) empty_message: &'static str,
    pub(super) clean: &'static str,
    pub(super) fill_message: &'static str,
    pub(super) insert_message: &'static str,
    pub(super) delete_message: &'static str,
    pub(super) settings: &'static str,
    pub(super) transactions: &'static str,
    pub(super) sizes: &'static str,
    pub(super) hold_snapshot: &'static str,
    pub(super) release_snapshot: &'static str,
    pub(super) conversations: &'static str,
}

macro_rules! texts {
    ($dialect:ident) => {{
        use crate::bench::sql::$dialect as texts;
        Texts {
            create_message: texts::CREATE_MESSAGE,
            drop_message: texts::DROP_MESSAGE,
            empty_message: texts::EMPTY_MESSAGE,
            clean: texts::CLEAN,
            fill_message: texts::FILL_MESSAGE,
            insert_message: texts::INSERT_MESSAGE,
            delete_message: texts::DELETE_MESSAGE,
            settings: texts::SETTINGS,
            transactions: texts::TRANSACTIONS,
            sizes: texts::SIZES,
            hold_snapshot: texts::HOLD_SNAPSHOT,
            release_snapshot: texts::RELEASE_SNAPSHOT,
            conversations: texts::CONVERSATIONS,
        }
    }};
}

static POSTGRES: Texts = texts!(postgres);
static MSSQL: Texts = texts!(mssql);

/// A server as the bench asks it beside the broker.
#[derive(Clone)]
pub(super) struct Server {
    pub(super) url: StoreUrl,
    pub(super) driver: Arc<dyn Driver>,
    pub(super) texts: &'static Texts,
    pub(super) durability: Durability,
}

impl Server {
    /// The server of that URL.
    pub(super) fn new(url: &str) -> Result<Self> {
        let url = StoreUrl::parse(url)?;
        let (Some(server), Some(driver)) = (url.server(), server_driver(&url, None)?) else {
            let why = "this bench is for servers; an embedded database is measured without a URL";
            return Err(Error::new(Code::UNSUPPORTED, why));
        };
        let texts = if driver.dialect().name == "mssql" { &MSSQL } else { &POSTGRES };
        let durability = server.common.durability;
        Ok(Self { url, driver, texts, durability })
    }

    pub(super) fn is_postgres(&self) -> bool {
        self.driver.dialect().name == "postgres"
    }

    /// The first row of a read of the bench's own.
    pub(super) async fn read(&self, text: &'static str) -> Result<SqlRow> {
        let mut link = self.driver.dedicated().await?;
        let rows = link.read(text).await.map_err(error)?;
        rows.into_iter()
            .next()
            .ok_or_else(|| Error::new(Code::STORE_DAMAGED, "the server gave no row to a read of the bench"))
    }

    /// Runs a script of the bench's own.
    pub(super) async fn script(&self, text: &'static str) -> Result<()> {
        let mut link = self.driver.dedicated().await?;
        link.script(text).await.map_err(error)
    }
}

pub(super) fn error(failure: Failure) -> Error {
    failure.error
}
