//! Activation on a real store with a clock that only the test moves (reference 5.1 to 5.7, assertions 186 to 204).

use libtest_mimic::Arguments;
use servers::Store;
use std::pin::Pin;
use std::process::ExitCode;

/// A test, registered wherever [`staged!`] stands.
struct Staged {
    module: &'static str,
    name: &'static str,
    threads: usize,
    stores: &'static [Store],
    run: fn(Store) -> Pin<Box<dyn Future<Output = ()>>>,
}

inventory::collect!(Staged);

const NOT_MSSQL: &[Store] = &[Store::Sqlite, Store::Postgres];

const SERVERS: &[Store] = &[Store::Postgres, Store::Mssql];

/// `staged!(name, async |store| { ... })`; with `threads, ` before the name it runs on several, with `hosts, ` too, with
/// `servers, ` on servers only and on several, with `postgres, ` on PostgreSQL only, and with `not_mssql, ` on every store but SQL Server.
macro_rules! staged {
    (threads, $name:ident, async |$store:ident| $body:block) => {
        staged!(@ 4, &$crate::Store::ALL, $name, $store, $body);
    };
    (hosts, $name:ident, async |$store:ident| $body:block) => {
        staged!(@ 4, &$crate::Store::ALL, $name, $store, $body);
    };
    (servers, $name:ident, async |$store:ident| $body:block) => {
        staged!(@ 4, $crate::SERVERS, $name, $store, $body);
    };
    (postgres, $name:ident, async |$store:ident| $body:block) => {
        staged!(@ 4, &[$crate::Store::Postgres], $name, $store, $body);
    };
    (not_mssql, $name:ident, async |$store:ident| $body:block) => {
        staged!(@ 1, $crate::NOT_MSSQL, $name, $store, $body);
    };
    ($name:ident, async |$store:ident| $body:block) => {
        staged!(@ 1, &$crate::Store::ALL, $name, $store, $body);
    };
    (@ $threads:literal, $stores:expr, $name:ident, $store:ident, $body:block) => {
        inventory::submit! {
            $crate::Staged {
                module: module_path!(),
                name: stringify!($name),
                threads: $threads,
                stores: $stores,
                run: |$store: $crate::servers::Store| Box::pin(async move $body),
            }
        }
    };
}

mod events;
mod external;
mod giving_up;
mod groups;
mod handlers;
mod hosts;
mod launching;
mod limits;
mod losses;
mod procedures;
mod readers;
mod savepoints;
#[path = "../servers/mod.rs"]
mod servers;
mod stage;
mod workers;

fn main() -> ExitCode {
    let mut trials = Vec::new();
    for store in Store::here() {
        for test in inventory::iter::<Staged>.into_iter().filter(|test| test.stores.contains(&store)) {
            let section = test.module.rsplit("::").next().unwrap_or_default();
            trials.push(servers::trial(format!("{}::{section}::{}", store.name(), test.name), move || {
                let runtime = match test.threads {
                    1 => tokio::runtime::Builder::new_current_thread().enable_all().build()?,
                    threads => {
                        tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?
                    }
                };
                runtime.block_on((test.run)(store));
                Ok(())
            }));
        }
    }
    servers::conclude(&Arguments::from_args(), trials)
}
