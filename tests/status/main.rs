//! `Broker::status` and `Broker::doctor`, on every store.

mod doctor;
mod looked;
#[path = "../servers/mod.rs"]
mod servers;
mod shown;

use dialoq::testing::START;
use dialoq::{Act, Broker, Clock, ConversationHandle, OpenOptions};
use servers::{Database, OnStores, Store};
use std::ops::Deref;
use std::process::ExitCode;
use std::time::Duration;

macro_rules! tests {
    ($($module:ident::$name:ident),+ $(,)?) => {
        fn main() -> ExitCode {
            servers::run(&[$(OnStores {
                name: stringify!($name),
                stores: &Store::ALL,
                run: |store| {
                    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                    runtime.block_on($module::$name(store));
                },
            }),+])
        }
    };
}

tests! {
    doctor::a_healthy_broker_has_no_findings,
    doctor::services_that_never_end_are_named,
    doctor::waiting_messages_count_only_once_they_are_old,
    doctor::disabled_queues_and_their_waiting_messages_are_named,
    doctor::a_disabled_broker_is_named,
    doctor::a_clock_that_stands_still_is_named,
    doctor::a_role_that_may_change_the_tables_is_named,
    doctor::undelivered_messages_come_with_their_status,
    doctor::quarantined_groups_are_named,
    doctor::conversations_without_lifetime_are_named,
    doctor::dead_jobs_are_named_whatever_their_age,
    doctor::a_paused_work_queue_with_ready_jobs_is_named,
    doctor::jobs_that_no_reader_takes_are_named,
    doctor::jobs_behind_a_failed_one_of_a_strict_queue_wait_for_no_reader,
    doctor::lost_jobs_and_schedules_that_stand_still_are_named,
    shown::messages_are_counted_by_level,
    shown::endpoints_are_counted_by_state,
    shown::undelivered_messages_have_a_reason,
    shown::a_disabled_queue_and_its_activation_are_shown,
    shown::a_queue_says_since_when_and_why_it_is_off,
    shown::another_process_reads_the_same,
    shown::work_queues_are_shown_with_their_jobs_and_readers,
    looked::deliveries_say_what_became_of_messages,
    looked::a_queue_is_peeked_at_without_receiving,
    looked::a_conversation_is_shown_from_both_sides,
    looked::what_does_not_move_is_explained,
    looked::a_queue_whose_messages_all_pause_is_blocked,
    looked::a_queue_that_a_program_activates_is_explained,
    looked::lifetimes_and_timers_are_shown_as_they_are,
    looked::a_purge_drops_messages_and_keeps_conversations,
    looked::many_conversations_are_ended_and_changed_by_a_filter,
    looked::dead_letters_are_seen_redriven_and_purged_by_a_filter,
    looked::dead_letters_are_counted_by_the_name_of_their_queue,
    looked::a_script_is_ensured_twice_and_previewed,
    shown::json_has_the_documented_names,
}

const HOUR: Duration = Duration::from_secs(3600);

/// A broker on a clock that stands still until it is moved.
struct Patient {
    broker: Broker,
    clock: Clock,
    database: Database,
}

impl Patient {
    fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }
}

impl Deref for Patient {
    type Target = Broker;

    fn deref(&self) -> &Broker {
        &self.broker
    }
}

async fn broker(store: Store) -> Patient {
    let (database, clock) = (Database::fresh(store), Clock::manual(START));
    let broker = Broker::open_with(database.url(), OpenOptions::new().clock(clock.clone())).await.unwrap();
    broker
        .execute(
            "CREATE QUEUE work; CREATE QUEUE home;
             CREATE SERVICE worker ON QUEUE work ([DEFAULT]);
             CREATE SERVICE client ON QUEUE home;",
        )
        .await
        .unwrap();
    Patient { broker, clock, database }
}

async fn dialog(broker: &Patient) -> ConversationHandle {
    let dialog = broker.begin_dialog("client", "worker").lifetime(100 * HOUR).await.unwrap();
    broker.send(dialog, "DEFAULT", "x").await.unwrap();
    dialog
}
