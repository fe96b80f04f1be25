//! The conformance suite: every numbered assertion of Service Broker's behaviour that a store can have, as a case that
//! runs on every store because it exists. `docs/conformance.md` is generated from it; `DIALOQ_BLESS=1` writes it anew.

mod form;
#[macro_use]
mod rig;
#[path = "../servers/mod.rs"]
mod servers;
mod table;

mod dead_letters;
mod definitions;
mod delivery;
mod dialogs;
mod ending;
mod groups;
mod lifetime;
mod names;
mod operators;
mod ours;
mod poison;
mod priorities;
mod queues;
mod receive;
mod retries;
mod send;
mod send_each;
mod services;
mod transactions;
mod user_sql;
mod validation;
mod views;
mod work_keys;
mod work_next;
mod work_operators;
mod work_queues;
mod work_schedules;
mod work_strategies;
mod work_techniques;
mod work_transactions;

use form::Form;
use libtest_mimic::{Arguments, Failed};
use rig::{Case, Rig};
use servers::Store;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let mut trials = vec![
        servers::trial("table::conformance_table_is_what_the_suite_generates".into(), || {
            table::check().map_err(Failed::from)
        }),
        servers::trial("table::differences_are_listed_where_users_read".into(), || {
            table::check_differences().map_err(Failed::from)
        }),
    ];
    for store in Store::here() {
        for case in inventory::iter::<Case>.into_iter().filter(|case| work_keys::runs_on(case, store)) {
            for (form, suffix) in Form::of(store, case) {
                let name = format!("{}{suffix}::{}::{}", store.name(), case.section(), case.name);
                trials.push(servers::trial(name, move || run(store, *form, case)));
            }
        }
    }
    servers::conclude(&arguments, trials)
}

/// One case on one store: its own runtime, broker, database and clock.
fn run(store: Store, form: Form, case: &Case) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let rig = Rig::open(store, form).await.map_err(|failure| Failed::from(failure.to_string()))?;
        (case.run)(rig).await.map_err(|failure| Failed::from(failure.to_string()))
    })
}
