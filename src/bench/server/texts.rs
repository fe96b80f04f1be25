//! The SQL of a bench on a server, by dialect.

use dialoq::internals::ErrorConstructors;
use dialoq::internals::server_driver;
use dialoq::internals::store::database::link::{Driver, Failure};
use dialoq::internals::store::url::{Durability, StoreUrl};
use dialoq::{Code, Error, Result, SqlRow};
use std::sync::Arc;

/// The texts of `sql/<dialect>/bench`.
#[derive(Debug)]
pub(in crate::bench) struct Texts {
    pub(in crate::bench) create_message: &'static str,
    pub(in crate::bench) drop_message: &'static str,
    pub(in crate::bench) empty_message: &'static str,
    pub(in crate::bench) clean: &'static str,
    pub(in crate::bench) fill_message: &'static str,
    pub(in crate::bench) insert_message: &'static str,
    pub(in crate::bench) delete_message: &'static str,
    pub(in crate::bench) settings: &'static str,
    pub(in crate::bench) transactions: &'static str,
    pub(in crate::bench) sizes: &'static str,
    pub(in crate::bench) hold_snapshot: &'static str,
    pub(in crate::bench) release_snapshot: &'static str,
    pub(in crate::bench) conversations: &'static str,
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

/// The queries of the bench to a server, outside the broker.
#[derive(Clone)]
pub(in crate::bench) struct Server {
    /// The URL as it was given.
    pub(in crate::bench) named: String,
    pub(in crate::bench) url: StoreUrl,
    pub(in crate::bench) driver: Arc<dyn Driver>,
    pub(in crate::bench) texts: &'static Texts,
    pub(in crate::bench) durability: Durability,
}

impl Server {
    /// The server of that URL.
    pub(in crate::bench) fn new(url: &str) -> Result<Self> {
        let (named, url) = (url.to_owned(), StoreUrl::parse(url)?);
        let (Some(server), Some(driver)) = (url.server(), server_driver(&url, None)?) else {
            let why = "this bench is for servers; an embedded database is measured without a URL";
            return Err(Error::new(Code::UNSUPPORTED, why));
        };
        let texts = if driver.dialect().name == "mssql" { &MSSQL } else { &POSTGRES };
        let durability = server.common.durability;
        Ok(Self { named, url, driver, texts, durability })
    }

    pub(in crate::bench) fn is_postgres(&self) -> bool {
        self.driver.dialect().name == "postgres"
    }

    /// The first row of a read of the bench's own.
    pub(in crate::bench) async fn read(&self, text: &'static str) -> Result<SqlRow> {
        let mut link = self.driver.dedicated().await?;
        let rows = link.read(text).await.map_err(error)?;
        rows.into_iter()
            .next()
            .ok_or_else(|| Error::new(Code::STORE_DAMAGED, "the server gave no row to a read of the bench"))
    }

    /// Runs a script of the bench's own.
    pub(in crate::bench) async fn script(&self, text: &'static str) -> Result<()> {
        let mut link = self.driver.dedicated().await?;
        link.script(text).await.map_err(error)
    }
}

pub(in crate::bench) fn error(failure: Failure) -> Error {
    failure.error
}
