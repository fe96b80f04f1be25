//! The load bench on a server: its workloads run beside their rivals and leave the database as it was.

use crate::servers::{Database, Store, limit};
use assert_cmd::Command;
use dialoq::Broker;
use serde_json::Value;

pub(crate) fn workloads_run_with_their_rivals_and_leave_nothing(store: Store) {
    limit::allow(4);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let database = Database::fresh(store);
    // Installs the broker: the bench takes an installed database as well as an empty one.
    runtime.block_on(async { Broker::open(database.url()).await.unwrap().close().await.unwrap() });
    // Not the workloads that take half a minute for their own reasons: hostile, idle and load.
    let results = bench(&database, "send,receive,both,wake-up,old-snapshot,depth");
    for workload in ["send", "receive", "both", "send_under_old_snapshot, 1"] {
        let found = results.iter().find(|result| result["workload"] == workload);
        let result = found.unwrap_or_else(|| panic!("no result of {workload}: {results:?}"));
        // 'both' counts only messages that arrive within the round: on a slow machine there may be none.
        let least = if workload == "both" { 0.0 } else { f64::MIN_POSITIVE };
        for rate in ["per_s", "rival_per_s"] {
            assert!(result[rate].as_f64().is_some_and(|rate| rate >= least), "{workload} moved nothing: {result}");
        }
    }
    let cells = techniques(&database);
    let techniques = ["STATEMENT", "CTE", "CURSOR", "APPLOCK"];
    for technique in techniques {
        let found = cells.iter().filter(|cell| cell["take_by"] == technique).count();
        assert_eq!(found, 4 * 2 + 1, "{technique}: four orders at two depths, and a batch");
    }
    assert_eq!(cells.len(), 4 * 9 + 2, "FIFO_STRICT has one way");
    for cell in &cells {
        assert_eq!((&cell["duplicates"], &cell["empties"]), (&0.into(), &0.into()), "{cell}");
    }
    // It refuses a database that holds conversations, and has left none.
    bench(&database, "send");
}

fn bench(database: &Database, workloads: &str) -> Vec<Value> {
    run(database, &["bench", "--workload", workloads], "results")
}

fn techniques(database: &Database) -> Vec<Value> {
    run(database, &["bench", "work"], "techniques")
}

fn run(database: &Database, arguments: &[&str], rows: &str) -> Vec<Value> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dialoq"));
    command.args(arguments).args(["--quick", "--json", "--callers", "2"]);
    // The longer the round, the more messages are sent before it.
    command.args(["--rounds", "1", "--round-length", "20ms", "--backlog", "1000"]);
    let output = command.env("DIALOQ_URL", database.url()).assert().success().get_output().stdout.clone();
    let report: Value = serde_json::from_slice(&output).unwrap();
    report[rows].as_array().unwrap().clone()
}
