//! The SQL of a bench on a server, by dialect.

use crate::broker::server_driver;
use crate::error::{Code, Error, Result};
use crate::store::SqlRow;
use crate::store::server::link::{Driver, Failure};
use crate::store::url::{Durability, StoreUrl};
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
    ($dialect:literal) => {
        Texts {
            create_message: include_str!(concat!("../../../sql/", $dialect, "/bench/create_message.sql")),
            drop_message: include_str!(concat!("../../../sql/", $dialect, "/bench/drop_message.sql")),
            empty_message: include_str!(concat!("../../../sql/", $dialect, "/bench/empty_message.sql")),
            clean: include_str!(concat!("../../../sql/", $dialect, "/bench/clean.sql")),
            fill_message: include_str!(concat!("../../../sql/", $dialect, "/bench/fill_message.sql")),
            insert_message: include_str!(concat!("../../../sql/", $dialect, "/bench/insert_message.sql")),
            delete_message: include_str!(concat!("../../../sql/", $dialect, "/bench/delete_message.sql")),
            settings: include_str!(concat!("../../../sql/", $dialect, "/bench/settings.sql")),
            transactions: include_str!(concat!("../../../sql/", $dialect, "/bench/transactions.sql")),
            sizes: include_str!(concat!("../../../sql/", $dialect, "/bench/sizes.sql")),
            hold_snapshot: include_str!(concat!("../../../sql/", $dialect, "/bench/hold_snapshot.sql")),
            release_snapshot: include_str!(concat!("../../../sql/", $dialect, "/bench/release_snapshot.sql")),
            conversations: include_str!(concat!("../../../sql/", $dialect, "/bench/conversations.sql")),
        }
    };
}

static POSTGRES: Texts = texts!("postgres");
static MSSQL: Texts = texts!("mssql");

/// A server as the bench asks it beside the broker.
#[derive(Clone)]
pub(super) struct Server {
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
        Ok(Self { driver, texts, durability: server.common.durability })
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
