//! Sessions against each other in every order: each play gives its sessions' steps as data and is run once for every
//! way to interleave them; what comes of each run must be one of the outcomes the play allows, and every outcome it
//! names must come of some run.

mod job_callers;
mod jobs;
mod limits;
mod plays;
mod refusals;
#[path = "../servers/mod.rs"]
mod servers;
mod stage;

use servers::{OnStores, Store};
use std::process::ExitCode;

macro_rules! plays {
    ($($module:ident: $($name:ident),+;)+) => {
        fn main() -> ExitCode {
            servers::run(&[
                $($(OnStores {
                    name: stringify!($name),
                    stores: &Store::ALL,
                    run: |store| stage::run_all(&$module::$name(), store),
                },)+)+
                OnStores {
                    name: "two_callers_on_one_job",
                    stores: &[Store::Sqlite],
                    run: job_callers::two_callers_on_one_job,
                },
                OnStores {
                    name: "a_wait_without_end_is_reported",
                    stores: &Store::ALL,
                    run: limits::a_wait_without_end_is_reported,
                },
                OnStores {
                    name: "a_refused_verb_waits_for_no_lock",
                    stores: &Store::ALL,
                    run: refusals::a_refused_verb_waits_for_no_lock,
                },
            ])
        }
    };
}

plays! {
    plays: two_senders_on_one_dialog,
    two_receivers_of_one_group,
    two_receivers_of_two_groups,
    receive_against_end_by_the_peer,
    receive_against_end_on_the_same_side,
    send_against_end_by_the_peer,
    move_against_receive,
    two_groups_in_opposite_order,
    savepoint_keeps_the_lock,
    rollback_returns_received_messages,
    two_ends_cross,
    timer_against_end,
    get_group_against_receive,
    begin_in_a_chosen_group,
    reply_against_receive;
    jobs: take_against_cancel, complete_against_fail, redrive_against_take, take_against_a_rolled_back_take;
}
