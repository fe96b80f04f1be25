//! The load bench on a server: its workloads run beside their rivals and leave the database as it was.

use crate::servers::{Database, Store, limit};
use crate::stage::SOON;
use dialoq::Broker;
use dialoq::bench::{ServerOptions, Workload, run_on_server};
use std::time::Duration;

pub(crate) fn workloads_run_beside_their_rivals_and_leave_nothing(store: Store) {
    limit::allow(4);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let database = Database::fresh(store);
    runtime.block_on(async {
        // Installs the broker: the bench takes an installed database as well as an empty one.
        Broker::open(database.url()).await.unwrap().close().await.unwrap();
        // The longer the round, the more messages are sent before it.
        let short = Duration::from_millis(20);
        let options = ServerOptions {
            // Not those that take half a minute for their own reasons: hostile, idle and load.
            workloads: vec![Workload::Send, Workload::Receive, Workload::Both, Workload::WakeUp, Workload::Depth],
            callers: 2,
            rounds: 1,
            round_length: short,
            largest: 1000,
            ..ServerOptions::quick(database.url())
        };
        let report = tokio::time::timeout(12 * SOON, run_on_server(options.clone(), |_| {}));
        let report = report.await.expect("the bench hangs").unwrap();
        for workload in ["send", "receive", "both"] {
            let found = report.results.iter().find(|result| result.workload == workload);
            let result = found.unwrap_or_else(|| panic!("no result of {workload}"));
            // 'both' counts only messages that arrive within the round: on a slow machine there may be none.
            let least = if workload == "both" { 0.0 } else { f64::MIN_POSITIVE };
            assert!(result.per_s >= least, "{workload}: the broker moved nothing");
            assert!(result.rival_per_s.is_some_and(|rate| rate >= least), "{workload}: the rival moved nothing");
        }
        // It refuses a database that holds conversations, and has left none.
        let again = ServerOptions { workloads: vec![Workload::Send], ..options };
        tokio::time::timeout(12 * SOON, run_on_server(again, |_| {})).await.expect("the bench hangs").unwrap();
    });
}
