//! A database with functions of the tests' own in schema `dialoq`, and links to it.

use crate::servers::{Database, Store};
use dialoq::internals::store::SqlStatement;
use dialoq::internals::store::database::link::{Arg, Call, Driver, Failure, Link};
use dialoq::internals::store::postgres::PostgresDriver;
use dialoq::internals::store::url::{PostgresUrl, StoreUrl};
use dialoq::{Code, Error, SqlRow, SqlValue};
use std::future::Future;
use std::time::Duration;

/// How long something that must happen may take before the test gives up on it.
pub(crate) const SOON: Duration = Duration::from_secs(20);

pub(crate) struct Stage {
    pub(crate) database: Database,
    pub(crate) driver: PostgresDriver,
}

pub(crate) fn url(text: &str) -> PostgresUrl {
    match StoreUrl::parse(text).unwrap() {
        StoreUrl::Postgres(url) => url,
        other => panic!("{other:?}"),
    }
}

/// Runs a test on a runtime of its own.
pub(crate) fn on<F: Future<Output = ()>>(
    store: Store,
    parameters: &str,
    functions: &str,
    test: impl FnOnce(Stage) -> F,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::bare(store);
        let driver = PostgresDriver::new(&url(&format!("{}{parameters}", database.url()))).unwrap();
        let stage = Stage { database, driver };
        let mut link = stage.link().await;
        link.script("CREATE SCHEMA dialoq; CREATE TABLE thing (id int PRIMARY KEY, name text)").await.unwrap();
        if !functions.is_empty() {
            link.script(functions).await.unwrap();
        }
        drop(link);
        tokio::time::timeout(3 * SOON, test(stage)).await.expect("the test hangs");
    });
}

impl Stage {
    pub(crate) async fn link(&self) -> Box<dyn Link> {
        self.driver.take().await.unwrap()
    }

    /// Waits until the server gives that answer.
    pub(crate) async fn until(&self, text: &str, wanted: i64) {
        let mut link = self.driver.dedicated().await.unwrap();
        let waiting = async {
            while number(&mut *link, text).await != wanted {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, waiting).await.unwrap_or_else(|_| panic!("never {wanted}: {text}"));
    }
}

pub(crate) fn sql(text: &str, params: Vec<SqlValue>) -> SqlStatement {
    SqlStatement { text: text.to_owned(), params, expected_rows: None }
}

pub(crate) async fn rows(link: &mut dyn Link, text: &str) -> Vec<SqlRow> {
    link.query(&sql(text, Vec::new())).await.unwrap().rows
}

pub(crate) async fn number(link: &mut dyn Link, text: &str) -> i64 {
    match rows(link, text).await[0].values() {
        [SqlValue::Integer(number)] => *number,
        other => panic!("{text}: {other:?}"),
    }
}

pub(crate) async fn execute(link: &mut dyn Link, text: &str) -> Result<u64, Failure> {
    link.execute(&sql(text, Vec::new())).await
}

pub(crate) fn call<'a>(name: &'static str, args: Vec<Arg<'a>>) -> Call<'a> {
    Call { name, args }
}

pub(crate) fn refused<T>(answer: Result<T, Failure>) -> (Failure, Code) {
    match answer {
        Ok(_) => panic!("it was not refused"),
        Err(failure) => {
            let code = failure.error.code();
            (failure, code)
        }
    }
}

pub(crate) fn error<T>(answer: Result<T, Error>) -> Error {
    match answer {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error,
    }
}
