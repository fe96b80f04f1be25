//! The file of the embedded store: which process owns it, what other programs may do to it, what ends early, and what an
//! opening repairs.

mod abandoned;
mod busy;
mod ownership;
mod poisoned;
mod repairs;
mod rows;
mod schema;
#[path = "../crash/shop.rs"]
mod shop;
mod statements;

use dialoq::internals::store::Seen;
use dialoq::internals::store::sqlite::SqliteStore;
use dialoq::internals::store::{Store, StoreTx};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const FILE: &str = "DIALOQ_FILES_FILE";
const WORK: &str = "DIALOQ_FILES_WORK";

/// A limit for a test, held to its end.
fn limit() -> dialoq_test_support::limit::Limit {
    dialoq_test_support::limit::limit(|| dialoq::testing::describe_waits().join("\n"))
}

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// Not a test of its own: what another process does to the file.
#[test]
#[ignore = "run by the tests that need another process"]
fn other_process() {
    let (Some(path), Ok(work)) = (std::env::var_os(FILE), std::env::var(WORK)) else { return };
    let path = Path::new(&path);
    let open = || rusqlite::Connection::open(path).unwrap();
    let answer = match work.as_str() {
        "own" => match dialoq::internals::store::sqlite::SqliteStore::open(shop::options(path)) {
            Ok(_) => "owned".to_owned(),
            Err(error) => error.code().to_string(),
        },
        // What docs/operations.md allows: its own table, and then it closes the file.
        "write" => {
            let connection = open();
            connection.busy_timeout(PATIENCE).unwrap();
            connection.execute_batch("create table if not exists mine (n); insert into mine values (1)").unwrap();
            connection.close().unwrap();
            "written".to_owned()
        }
        "count" => {
            let count: i64 = open()
                .query_row("select count(*) from queue_messages where queue_name = 'to'", [], |row| row.get(0))
                .unwrap();
            count.to_string()
        }
        other => panic!("no such work: {other}"),
    };
    println!("answer={answer};");
}

/// Lets another process do something to the file; gives what it answers.
fn elsewhere(path: &Path, work: &str) -> String {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["other_process", "--exact", "--ignored", "--nocapture"])
        .env(FILE, path)
        .env(WORK, work)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let answer = text.split_once("answer=").and_then(|(_, rest)| rest.split_once(';'));
    answer.unwrap_or_else(|| panic!("no answer in {text}")).0.to_owned()
}

/// Waits until the condition holds.
async fn until(what: &str, condition: impl Fn() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "still not: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Whether another connection may write to the file now.
fn is_free(path: &Path) -> bool {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    connection.execute_batch("begin immediate; rollback").is_ok()
}

/// A transaction whose statement does not end when its commit runs it again.
async fn endless_at_its_commit(store: &SqliteStore) -> Box<dyn StoreTx> {
    let gate = |text| shop::sql(text, Vec::new());
    store.run_sql(gate("create table gate (n integer)")).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let text = "insert into t with recursive r(n) as (select 1 union all select n + 1 from r where exists (select 1 from gate)) \
                select max(n) from r";
    tx.sql(gate(text)).await.unwrap();
    store.run_sql(gate("insert into gate values (1)")).await.unwrap();
    tx
}

/// A statement that does not end.
const ENDLESS: &str =
    "insert into t with recursive r(n) as (select 1 union all select n + 1 from r) select max(n) from r";
