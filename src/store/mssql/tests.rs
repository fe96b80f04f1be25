//! The driver against a server, which is that of `DIALOQ_TEST_MSSQL`; without it they say so and pass.

mod played;

use super::MssqlDriver;
use crate::error::{Code, ErrorKind};
use crate::store::database::link::{Arg, Call, Column, Driver, Fate, Link};
use crate::store::url::StoreUrl;
use crate::store::{SqlRow, SqlStatement, SqlValue};
use crate::time::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const SCRIPT: [&str; 7] = [
    "CREATE SCHEMA dialoq;",
    "CREATE TABLE dialoq.t (a int NOT NULL PRIMARY KEY, b varbinary(max) NULL, u uniqueidentifier NULL, d datetime2 NULL);",
    "CREATE TYPE dialoq.pair_rows AS TABLE (item int NOT NULL, i int NULL, l bigint NULL, t nvarchar(max) NULL, b varbinary(max) NULL, u uniqueidentifier NULL);",
    "CREATE PROCEDURE dialoq.echo @f bit, @i int, @l bigint, @t nvarchar(max), @b varbinary(max), @u uniqueidentifier, @d datetime2(6) AS BEGIN \
     SET NOCOUNT ON; SELECT @f AS F, @i AS i, @l AS l, @t AS t, @b AS b, @u AS u, @d AS d; END;",
    "CREATE PROCEDURE dialoq.pairs @r dialoq.pair_rows READONLY, @x int AS BEGIN SET NOCOUNT ON; SELECT item, i, l, t, b, u, @x AS x FROM @r ORDER BY item; END;",
    "CREATE PROCEDURE dialoq.unlock_session AS BEGIN SET NOCOUNT ON; SELECT 1 AS done; END;",
    "CREATE PROCEDURE dialoq.add_and_fail @a int, @number int AS BEGIN SET NOCOUNT ON; INSERT dialoq.t (a) VALUES (@a); THROW @number, N'as asked', 1; END;",
];

/// A database of the test's own.
struct Database {
    master: String,
    name: String,
    url: String,
    driver: MssqlDriver,
}

fn driver(url: &str) -> MssqlDriver {
    match StoreUrl::parse(url).unwrap() {
        StoreUrl::Mssql(url) => MssqlDriver::new(&url, None).unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The server's database `master`, whatever database its URL names, or none.
fn master() -> Option<String> {
    std::env::var("DIALOQ_TEST_MSSQL").ok().map(|url| with_database(&url, "master"))
}

/// The URL with another database.
fn with_database(url: &str, name: &str) -> String {
    let (place, query) = url.split_once('?').unwrap_or((url, ""));
    let (scheme, place) = place.split_once("://").unwrap();
    let server = place.split_once('/').map_or(place, |(server, _)| server);
    format!("{scheme}://{server}/{name}?{query}")
}

impl Database {
    async fn new(parameters: &str) -> Option<Self> {
        let Some(master) = master() else {
            eprintln!("skipped: DIALOQ_TEST_MSSQL is not set");
            return None;
        };
        let name = format!("dialoq_{}", Uuid::new_v4().simple());
        // A relative of SQL Server cannot make two at once.
        static ONE_BY_ONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let alone = ONE_BY_ONE.lock().await;
        run(&master, &format!("CREATE DATABASE {name};")).await;
        drop(alone);
        let url = with_database(&master, &name);
        let driver = driver(&format!("{url}&{parameters}"));
        let database = Self { master, name, url, driver };
        let mut link = database.driver.dedicated().await.unwrap();
        for batch in SCRIPT {
            link.script(batch).await.unwrap();
        }
        Some(database)
    }

    async fn end(self) {
        self.driver.close().await;
        run(&self.master, &format!("DROP DATABASE {};", self.name)).await;
    }
}

async fn run(url: &str, text: &str) {
    driver(url).dedicated().await.unwrap().script(text).await.unwrap();
}

fn sql(text: &str, params: Vec<SqlValue>) -> SqlStatement {
    SqlStatement { text: text.to_owned(), params, expected_rows: None }
}

async fn count(link: &mut dyn Link) -> i64 {
    let rows = link.read("SELECT count(*) AS n FROM dialoq.t").await.unwrap();
    rows[0].get("n").unwrap()
}

fn value(row: &SqlRow, column: &str) -> SqlValue {
    row.values[row.columns.iter().position(|name| name == column).unwrap()].clone()
}

fn fail(a: i32, number: i32) -> Call<'static> {
    Call { name: "add_and_fail", args: vec![Arg::Int(a), Arg::Int(number)] }
}

#[tokio::test]
async fn values_go_there_and_come_back() {
    let _limit = crate::testing::limit();
    let Some(database) = Database::new("").await else { return };
    let mut link = database.driver.take().await.unwrap();
    let id = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    for (text, body) in [("", vec![]), ("h\u{e9} \u{1f642}", vec![0, 255]), (&"x".repeat(9_000), vec![7; 20_000])] {
        let args = vec![
            Arg::Bool(true),
            Arg::Int(-1),
            Arg::BigInt(1 << 40),
            Arg::Text(text),
            Arg::Bytes(Arc::new(body.clone())),
            Arg::Uuid(id),
            Arg::Time(Timestamp(1_700_000_000_123_456)),
        ];
        let rows = link.call(Call { name: "echo", args }).await.unwrap();
        assert_eq!(value(&rows[0], "f"), SqlValue::Integer(1));
        assert_eq!(value(&rows[0], "i"), SqlValue::Integer(-1));
        assert_eq!(value(&rows[0], "l"), SqlValue::Integer(1 << 40));
        assert_eq!(value(&rows[0], "t"), SqlValue::Text(text.to_owned()));
        assert_eq!(value(&rows[0], "b"), SqlValue::Blob(body));
        assert_eq!(value(&rows[0], "u"), SqlValue::Blob(id.as_bytes().to_vec()));
        assert_eq!(value(&rows[0], "d"), SqlValue::Integer(1_700_000_000_123_456));
    }
    let rows = link.call(Call { name: "echo", args: vec![Arg::Null; 7] }).await.unwrap();
    assert!(rows[0].values().iter().all(|value| *value == SqlValue::Null), "{rows:?}");
    drop(link);
    database.end().await;
}

#[tokio::test]
async fn rows_go_together() {
    let _limit = crate::testing::limit();
    let Some(database) = Database::new("").await else { return };
    let mut link = database.driver.take().await.unwrap();
    let id = Uuid::from_u128(7);
    let body = Arc::new(vec![1, 2, 3]);
    for count in [1, 0, 3, 2, 500] {
        let columns = vec![
            Column::Int((0..count).map(|n| (n % 2 == 0).then_some(n)).collect()),
            Column::BigInt((0..count).map(|n| Some(i64::from(n))).collect()),
            Column::Text((0..count).map(|n| (n % 3 != 0).then_some("\u{e9}")).collect()),
            Column::Bytes((0..count).map(|n| (n % 2 == 0).then(|| body.clone())).collect()),
            Column::Uuid((0..count).map(|n| (n != 1).then_some(id)).collect()),
        ];
        let args = vec![Arg::Rows { type_name: "pair_rows", columns }, Arg::Int(5)];
        let rows = link.call(Call { name: "pairs", args }).await.unwrap();
        assert_eq!(rows.len(), count as usize);
        for (place, row) in (0_i64..).zip(&rows) {
            assert_eq!(value(row, "item"), SqlValue::Integer(place));
            let even = place % 2 == 0;
            assert_eq!(value(row, "i"), if even { SqlValue::Integer(place) } else { SqlValue::Null });
            assert_eq!(value(row, "b"), if even { SqlValue::Blob(body.to_vec()) } else { SqlValue::Null });
            assert_eq!(value(row, "t") == SqlValue::Null, place % 3 == 0);
            assert_eq!(value(row, "u") == SqlValue::Null, place == 1);
            assert_eq!(value(row, "x"), SqlValue::Integer(5));
        }
    }
    drop(link);
    database.end().await;
}

/// Babelfish gives the rows of the first table-valued parameter of a session for every later one, so this sends one.
#[tokio::test]
async fn rows_go_as_a_table() {
    let _limit = crate::testing::limit();
    let Some(database) = Database::new("").await else { return };
    let StoreUrl::Mssql(url) = StoreUrl::parse(&database.url).unwrap() else { panic!("{}", database.url) };
    let mut connection = super::connect::Connector::new(url, None).connect().await.unwrap();
    let columns = vec![
        Column::Int(vec![Some(1), None]),
        Column::BigInt(vec![None, Some(2)]),
        Column::Text(vec![Some("\u{1f642}"), None]),
        Column::Bytes(vec![None, Some(Arc::new(vec![7; 9_000]))]),
        Column::Uuid(vec![Some(Uuid::from_u128(1)), None]),
    ];
    let call = Call { name: "pairs", args: vec![Arg::Rows { type_name: "pair_rows", columns }, Arg::Null] };
    let request = super::args::Request::of_call(&call, super::args::RowsForm::Table);
    let rows = connection.session.call(&mut connection.client, request).await.unwrap().rows;
    assert_eq!(rows.len(), 2);
    assert_eq!(value(&rows[0], "i"), SqlValue::Integer(1));
    assert_eq!(value(&rows[0], "t"), SqlValue::Text("\u{1f642}".to_owned()));
    assert_eq!(value(&rows[0], "u"), SqlValue::Blob(Uuid::from_u128(1).as_bytes().to_vec()));
    assert_eq!(value(&rows[0], "b"), SqlValue::Null);
    assert_eq!(value(&rows[1], "l"), SqlValue::Integer(2));
    assert_eq!(value(&rows[1], "b"), SqlValue::Blob(vec![7; 9_000]));
    assert_eq!(value(&rows[1], "u"), SqlValue::Null);
    drop(connection);
    database.end().await;
}

#[tokio::test]
async fn a_refusal_leaves_the_transaction_and_a_mark_undoes_it() {
    let _limit = crate::testing::limit();
    let Some(database) = Database::new("").await else { return };
    let mut link = database.driver.take().await.unwrap();
    link.begin().await.unwrap();
    link.execute(&sql("INSERT dialoq.t (a) VALUES (@P1)", vec![SqlValue::Integer(1)])).await.unwrap();
    link.savepoint(0).await.unwrap();
    let failure = link.call(fail(2, 58_426)).await.unwrap_err();
    assert_eq!(failure.error.code(), Code::CONVERSATION_NOT_FOUND);
    assert_eq!(failure.error.message(), "as asked");
    assert_eq!((failure.fate, failure.is_link_usable), (Fate::Undone, true));
    link.rollback_to(0).await.unwrap();
    link.savepoint(1).await.unwrap();
    link.execute(&sql("INSERT dialoq.t (a) VALUES (3)", vec![])).await.unwrap();
    link.rollback_to(1).await.unwrap();
    link.execute(&sql("INSERT dialoq.t (a) VALUES (4)", vec![])).await.unwrap();
    link.commit().await.unwrap();
    let rows = link.read("SELECT a FROM dialoq.t ORDER BY a").await.unwrap();
    assert_eq!(rows.iter().map(|row| row.get::<i64>("a").unwrap()).collect::<Vec<_>>(), [1, 4]);
    drop(link);
    database.end().await;
}

#[tokio::test]
async fn transactions_are_not_the_users() {
    let _limit = crate::testing::limit();
    let Some(database) = Database::new("").await else { return };
    let mut link = database.driver.take().await.unwrap();
    link.begin().await.unwrap();
    link.execute(&sql("INSERT dialoq.t (a) VALUES (1)", vec![])).await.unwrap();
    for text in ["COMMIT", "-- so\nrollback transaction", "BEGIN TRAN"] {
        let failure = link.execute(&sql(text, vec![])).await.unwrap_err();
        assert_eq!((failure.error.code(), failure.fate), (Code::USER_SQL_FAILED, Fate::Undone), "{text}");
        assert!(failure.is_link_usable && failure.error.message().contains("Dialoq"), "{failure:?}");
    }
    link.rollback().await.unwrap();
    assert_eq!(count(&mut *link).await, 0, "it was not committed");
    drop(link);
    database.end().await;
}

/// The COMMIT only lowered the count: it seemed to succeed, and the connection kept all later work in that transaction.
#[tokio::test]
async fn a_procedure_that_leaves_a_transaction_open_loses_no_commit() {
    let _limit = crate::testing::limit();
    let Some(database) = Database::new("").await else { return };
    let mut link = database.driver.take().await.unwrap();
    link.script(
        "CREATE PROCEDURE dialoq.leaves_one_open AS BEGIN BEGIN TRANSACTION; INSERT dialoq.t (a) VALUES (9); END;",
    )
    .await
    .unwrap();
    link.begin().await.unwrap();
    link.execute(&sql("INSERT dialoq.t (a) VALUES (1)", vec![])).await.unwrap();
    link.savepoint(0).await.unwrap();
    let failure = link.execute(&sql("EXEC dialoq.leaves_one_open", vec![])).await.unwrap_err();
    assert_eq!((failure.error.code(), failure.fate), (Code::USER_SQL_FAILED, Fate::Undone));
    link.rollback_to(0).await.unwrap();
    link.commit().await.unwrap();
    let open = link.read("SELECT @@TRANCOUNT AS n").await.unwrap();
    assert_eq!(open[0].get::<i64>("n").unwrap(), 0, "it is committed");
    drop(link);
    let mut link = database.driver.take().await.unwrap();
    assert_eq!(count(&mut *link).await, 1, "the row of the procedure is undone");
    drop(link);
    database.end().await;
}

#[tokio::test]
async fn a_refusal_outside_a_transaction_leaves_nothing_open() {
    let _limit = crate::testing::limit();
    let Some(database) = Database::new("pool_size=1").await else { return };
    let mut link = database.driver.take().await.unwrap();
    let failure = link.call(fail(1, 60_033)).await.unwrap_err();
    assert_eq!((failure.error.code(), failure.fate), (Code::CATALOG_STALE, Fate::Undone));
    let open = link.read("SELECT @@TRANCOUNT AS n").await.unwrap();
    assert_eq!(open[0].get::<i64>("n").unwrap(), 0);
    let failure = link.call(Call { name: "no_such", args: vec![] }).await.unwrap_err();
    assert_eq!(failure.error.code(), Code::SCHEMA_MISSING);
    drop(link);
    database.end().await;
}

#[tokio::test]
async fn a_transaction_dropped_is_rolled_back_at_once() {
    let _limit = crate::testing::limit();
    let Some(database) = Database::new("pool_size=1&pool_wait_s=1").await else { return };
    let mut link = database.driver.take().await.unwrap();
    link.begin().await.unwrap();
    link.execute(&sql("INSERT dialoq.t (a) VALUES (1)", vec![])).await.unwrap();
    let error = database.driver.take().await.err().unwrap();
    assert_eq!((error.code(), error.kind()), (Code::POOL_EXHAUSTED, ErrorKind::Store));
    drop(link);
    let mut link = database.driver.take().await.unwrap();
    assert_eq!(count(&mut *link).await, 0);
    // An answer that was not read to its end.
    let slow = sql("SELECT a.a FROM dialoq.t a", vec![]);
    let mut cut = Box::pin(link.query(&slow));
    assert!(futures_poll_once(&mut cut).await.is_none(), "it answered before it was asked");
    drop(cut);
    drop(link);
    let mut link = database.driver.take().await.unwrap();
    assert_eq!(count(&mut *link).await, 0);
    drop(link);
    database.end().await;
}

#[tokio::test]
async fn locks_of_the_session_do_not_go_back_to_the_pool() {
    let _limit = crate::testing::limit();
    let Some(database) = Database::new("pool_size=1&pool_wait_s=1").await else { return };
    let session = async |link: &mut dyn Link| -> i64 {
        let rows = link.read("SELECT CAST(@@SPID AS bigint) AS n").await.unwrap();
        rows[0].get("n").unwrap()
    };
    let mut link = database.driver.take().await.unwrap();
    let first = session(&mut *link).await;
    for is_unlocked in [true, false] {
        link.begin().await.unwrap();
        link.hold_locks().await.unwrap();
        link.commit().await.unwrap();
        if is_unlocked {
            link.call(Call { name: "unlock_session", args: vec![] }).await.unwrap();
        }
        drop(link);
        link = database.driver.take().await.unwrap();
        assert_eq!(session(&mut *link).await == first, is_unlocked, "unlocked: {is_unlocked}");
    }
    drop(link);
    database.end().await;
}

async fn futures_poll_once<T>(future: &mut (impl Future<Output = T> + Unpin)) -> Option<T> {
    std::future::poll_fn(|context| match std::pin::Pin::new(&mut *future).poll(context) {
        std::task::Poll::Ready(value) => std::task::Poll::Ready(Some(value)),
        std::task::Poll::Pending => std::task::Poll::Ready(None),
    })
    .await
}

#[tokio::test]
async fn the_users_sql_has_values_of_every_type() {
    let _limit = crate::testing::limit();
    let Some(database) = Database::new("").await else { return };
    let mut link = database.driver.take().await.unwrap();
    let id = Uuid::from_u128(0x0011_2233_4455_6677_8899_aabb_ccdd_eeff);
    let insert = "INSERT dialoq.t (a, b, u, d) VALUES (@P1, @P2, @P3, @P4)";
    let params = vec![SqlValue::Integer(1), SqlValue::Null, id.into(), SqlValue::Text("2024-02-03 04:05:06.7".into())];
    assert_eq!(link.execute(&sql(insert, params)).await.unwrap(), 1);
    let params = vec![SqlValue::Integer(2), SqlValue::Blob(vec![9; 16]), SqlValue::Null, SqlValue::Null];
    assert_eq!(link.execute(&sql(insert, params)).await.unwrap(), 1);
    assert_eq!(link.execute(&sql("UPDATE dialoq.t SET a = a + 10", vec![])).await.unwrap(), 2);
    let query = sql(
        "SELECT a AS A, b, u, d, CAST(1.50 AS decimal(9,2)) AS n FROM dialoq.t WHERE u = @P1 OR a = @P2 ORDER BY a",
        vec![id.into(), SqlValue::Integer(12)],
    );
    let rows = link.query(&query).await.unwrap();
    assert_eq!(
        rows.columns.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>(),
        ["a", "b", "u", "d", "n"]
    );
    assert_eq!(
        rows.rows[0].values(),
        [
            SqlValue::Integer(11),
            SqlValue::Null,
            SqlValue::Text("00112233-4455-6677-8899-aabbccddeeff".into()),
            SqlValue::Text("2024-02-03 04:05:06.700000".into()),
            SqlValue::Text("1.50".into()),
        ]
    );
    assert_eq!(rows.rows[1].values()[1..3], [SqlValue::Blob(vec![9; 16]), SqlValue::Null]);
    // A query that writes has no effect.
    link.query(&sql("DELETE dialoq.t OUTPUT deleted.a", vec![])).await.unwrap();
    assert_eq!(count(&mut *link).await, 2);
    let none = link.query(&sql("SELECT a, b FROM dialoq.t WHERE a < 0", vec![])).await.unwrap();
    assert_eq!((none.columns.len(), none.rows.len()), (2, 0));
    let failure = link.query(&sql("SELECT nothing FROM dialoq.t", vec![])).await.unwrap_err();
    assert_eq!((failure.error.code(), failure.error.kind()), (Code::USER_SQL_FAILED, ErrorKind::User));
    drop(link);
    database.end().await;
}

#[tokio::test]
async fn one_of_two_deadlocked_sessions_gets_1205() {
    let _limit = crate::testing::limit();
    let Some(database) = Database::new("").await else { return };
    let mut first = database.driver.take().await.unwrap();
    for a in [1, 2] {
        first.execute(&sql("INSERT dialoq.t (a) VALUES (@P1)", vec![SqlValue::Integer(a)])).await.unwrap();
    }
    let mut second = database.driver.take().await.unwrap();
    let write = |a| sql("UPDATE dialoq.t SET b = 0x01 WHERE a = @P1", vec![SqlValue::Integer(a)]);
    first.begin().await.unwrap();
    second.begin().await.unwrap();
    first.execute(&write(1)).await.unwrap();
    second.execute(&write(2)).await.unwrap();
    let (to_two, to_one) = (write(2), write(1));
    let ends = |link: Box<dyn Link>, statement: SqlStatement| async move {
        let mut link = link;
        let answer = link.execute(&statement).await.map_err(|failure| (failure.error.code(), failure.fate));
        link.rollback().await.unwrap();
        answer
    };
    let answers = tokio::join!(ends(first, to_two), ends(second, to_one));
    let victims: Vec<_> = [answers.0, answers.1].into_iter().filter_map(Result::err).collect();
    assert_eq!(victims, [(Code::DEADLOCK, Fate::TransactionUndone)]);
    database.end().await;
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_not_given_out() {
    let _limit = crate::testing::limit();
    let Some(database) = Database::new("pool_size=1").await else { return };
    let mut link = database.driver.take().await.unwrap();
    let row = link.read("SELECT CAST(@@SPID AS int) AS n").await.unwrap();
    let session: i64 = row[0].get("n").unwrap();
    drop(link);
    run(&database.url, &format!("KILL {session};")).await;
    tokio::time::timeout(Duration::from_secs(10), async {
        // The server closes it some time later; until then it works.
        loop {
            let mut link = database.driver.take().await.unwrap();
            match link.read("SELECT CAST(@@SPID AS int) AS n").await {
                Ok(row) if row[0].get::<i64>("n").unwrap() != session => break,
                Ok(_) => {}
                Err(failure) => assert_eq!((failure.fate, failure.is_link_usable), (Fate::Undone, false)),
            }
        }
    })
    .await
    .unwrap();
    database.end().await;
}

#[tokio::test]
async fn a_server_that_is_not_there_or_refuses_is_named() {
    let _limit = crate::testing::limit();
    let error = driver("mssql://sa:secret@127.0.0.1:9/d?connect_timeout_s=5").take().await.err().unwrap();
    assert_eq!(error.code(), Code::SERVER_UNREACHABLE);
    assert!(error.message().contains("127.0.0.1:9") && !error.message().contains("secret"), "{error}");
    let Some(master) = master() else { return };
    let error = driver(&with_database(&master, "dialoq_no_such")).take().await.err().unwrap();
    assert_eq!(error.code(), Code::ACCESS_DENIED, "{error}");
    let (scheme, rest) = master.split_once("://").unwrap();
    let (_, place) = rest.rsplit_once('@').unwrap();
    let error = driver(&format!("{scheme}://sa:wrong-one@{place}")).take().await.err().unwrap();
    assert_eq!(error.code(), Code::ACCESS_DENIED, "{error}");
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_stopped() {
    let _limit = crate::testing::limit();
    let Some(database) = Database::new("sql_timeout_ms=300").await else { return };
    let mut link = database.driver.take().await.unwrap();
    let slow = sql("WAITFOR DELAY '00:00:30'; INSERT dialoq.t (a) VALUES (1);", vec![]);
    let failure = link.execute(&slow).await.unwrap_err();
    assert_eq!((failure.error.code(), failure.fate), (Code::SQL_TIMEOUT, Fate::Unknown), "{failure:?}");
    assert!(failure.error.message().contains("sql_timeout_ms"), "{failure:?}");
    drop(link);
    // In a transaction what it did is undone, by the mark before it or with the transaction.
    let mut link = database.driver.take().await.unwrap();
    link.begin().await.unwrap();
    link.savepoint(0).await.unwrap();
    let failure = link.execute(&slow).await.unwrap_err();
    assert_eq!(failure.error.code(), Code::SQL_TIMEOUT);
    assert!(matches!(failure.fate, Fate::Undone | Fate::TransactionUndone), "{failure:?}");
    drop(link);
    // Our own texts have no such limit, and the pool's connections work afterwards.
    let mut link = database.driver.take().await.unwrap();
    assert_eq!(count(&mut *link).await, 0);
    drop(link);
    database.end().await;
}

/// The bytes of TDS that a server answers to a request.
fn token_done() -> Vec<u8> {
    let mut bytes = vec![0xFD];
    bytes.resize(13, 0);
    bytes
}

/// The error with which SQL Server ends a session after KILL; its class is 21.
fn token_killed() -> Vec<u8> {
    token_error(596, 21, "the session is in the kill state")
}

fn token_error(number: u32, class: u8, text: &str) -> Vec<u8> {
    let text: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let mut body = number.to_le_bytes().to_vec();
    body.extend([1, class]);
    body.extend(u16::try_from(text.len() / 2).unwrap().to_le_bytes());
    body.extend(text);
    body.extend([0, 0]);
    body.extend(0_u32.to_le_bytes());
    let mut bytes = vec![0xAA];
    bytes.extend(u16::try_from(body.len()).unwrap().to_le_bytes());
    bytes.extend(body);
    bytes.extend(token_done());
    bytes
}

/// A row with one number.
fn token_number(number: i32) -> Vec<u8> {
    let mut bytes = vec![0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0x38, 0, 0xD1];
    bytes.extend(number.to_le_bytes());
    bytes.extend(token_done());
    bytes
}

/// A server that lets one connection in, answers its requests with these in turn, and closes it then.
fn server_that_answers(answers: Vec<Vec<u8>>) -> MssqlDriver {
    server_that_records(answers).0
}

/// Likewise, and gives the requests as they come.
fn server_that_records(answers: Vec<Vec<u8>>) -> (MssqlDriver, std::sync::mpsc::Receiver<Vec<u8>>) {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (asked, requests) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut answers = answers.into_iter();
        loop {
            let mut header = [0; 8];
            let mut request = Vec::new();
            // The request may come in several packets; the last has the status 1.
            while header[1] & 1 == 0 {
                if socket.read_exact(&mut header).is_err() {
                    return;
                }
                let length = usize::from(u16::from_be_bytes([header[2], header[3]])) - header.len();
                let mut part = vec![0; length];
                socket.read_exact(&mut part).unwrap();
                request.extend(part);
            }
            let answer = match header[0] {
                // The version, and that there is no TLS.
                0x12 => vec![0, 0, 11, 0, 6, 1, 0, 17, 0, 1, 0xFF, 15, 0, 0, 0, 0, 0, 2],
                // The login is acknowledged for TDS 7.4.
                0x10 => [vec![0xAD, 10, 0, 1, 0x74, 0, 0, 4, 0, 15, 0, 0, 0], token_done()].concat(),
                _ => match answers.next() {
                    Some(answer) => {
                        // The test may have dropped the receiver.
                        let _ = asked.send(request);
                        answer
                    }
                    None => return,
                },
            };
            let length = u16::try_from(answer.len() + header.len()).unwrap().to_be_bytes();
            socket.write_all(&[&[4, 1, length[0], length[1], 0, 0, 1, 0], &answer[..]].concat()).unwrap();
        }
    });
    (driver(&format!("mssql://u:p@127.0.0.1:{port}/d?encrypt=off")), requests)
}

/// SQL Server runs nothing of a batch that it cannot compile: a mark in the same batch would not be set, and going back to it
/// would undo what was done since the mark before.
#[tokio::test]
async fn a_statement_that_cannot_be_compiled_undoes_nothing_before_it() {
    let _limit = crate::testing::limit();
    let refused = token_error(102, 15, "incorrect syntax");
    let once = [token_done(), refused, token_number(1), token_done()];
    let (driver, requests) = server_that_records([vec![token_done(); 2], once.to_vec(), once.to_vec()].concat());
    let mut link = driver.dedicated().await.unwrap();
    link.begin().await.unwrap();
    let wrong = sql("SELEC nothing", vec![]);
    for is_query in [false, true] {
        link.savepoint(0).await.unwrap();
        let failure = match is_query {
            true => link.query(&wrong).await.unwrap_err(),
            false => link.execute(&wrong).await.unwrap_err(),
        };
        assert_eq!((failure.error.code(), failure.fate), (Code::USER_SQL_FAILED, Fate::Undone), "{failure:?}");
        link.rollback_to(0).await.unwrap();
    }
    let has = |request: &[u8], text: &str| {
        let text: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        request.windows(text.len()).any(|part| part == text)
    };
    let requests: Vec<Vec<u8>> = requests.try_iter().collect();
    for (place, request) in requests.iter().enumerate().filter(|(_, request)| has(request, "SELEC nothing")) {
        assert!(!has(request, "SAVE TRANSACTION"), "the mark is part of the statement's batch");
        assert!(has(&requests[place - 1], "SAVE TRANSACTION dialoq_0"), "the mark is set before");
    }
    assert_eq!(requests.len(), 10);
}

/// A verb outside a transaction commits by itself before it gives its rows, and KILL may come in between.
#[tokio::test]
async fn a_verb_whose_session_was_ended_may_have_happened() {
    let _limit = crate::testing::limit();
    let verb = || Call { name: "unlock_session", args: vec![] };
    let driver = server_that_answers(vec![token_done(), token_killed()]);
    let failure = driver.dedicated().await.unwrap().call(verb()).await.unwrap_err();
    assert_eq!((failure.error.code(), failure.fate), (Code::COMMIT_UNKNOWN, Fate::Unknown), "{failure:?}");
    assert!(failure.error.message().contains("kill state"), "{failure:?}");
    let driver = server_that_answers(vec![token_done(), token_done(), token_killed()]);
    let mut link = driver.dedicated().await.unwrap();
    link.begin().await.unwrap();
    let failure = link.call(verb()).await.unwrap_err();
    assert_eq!(
        (failure.error.code(), failure.fate),
        (Code::SERVER_UNREACHABLE, Fate::TransactionUndone),
        "{failure:?}"
    );
}
