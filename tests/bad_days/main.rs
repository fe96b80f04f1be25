//! Faults of servers, networks and hosts: the broker reports them or tries again, and loses and doubles no message.

mod clocks;
mod cut;
mod dying;
mod jobs;
mod pooler;
mod proxy;
#[path = "../servers/mod.rs"]
mod servers;

use dialoq::{Act, Broker, ConversationHandle, MessageType, Result};
use servers::{Database, OnStores, Store};
use std::future::Future;
use std::process::ExitCode;
use std::time::Duration;

const TEXT: MessageType<String> = MessageType::text("Text");

/// How long something that must happen may take before the test gives up on it.
const SOON: Duration = Duration::from_secs(60);

const DEFINITIONS: &str = "
    CREATE MESSAGE TYPE [Text]; CREATE CONTRACT [C] ([Text] SENT BY ANY);
    CREATE QUEUE [asker]; CREATE QUEUE [server];
    CREATE SERVICE [Asker] ON QUEUE [asker]; CREATE SERVICE [Server] ON QUEUE [server] ([C])";

macro_rules! tests {
    ($($stores:ident $module:ident: $($name:ident)*;)*) => {
        &[$($(OnStores {
            name: concat!(stringify!($module), "::", stringify!($name)),
            stores: $stores,
            run: $module::$name,
        }),*),*]
    };
}

const SERVERS: &[Store] = &[Store::Postgres, Store::Mssql];
/// Where the test may have the server fall, or reads its tables.
const OWN: &[Store] = &[Store::Postgres];

fn main() -> ExitCode {
    servers::run(tests! {
        SERVERS cut: a_commit_whose_answer_is_lost_is_unknown a_commit_that_never_arrived_is_unknown_too
            a_unit_with_an_id_happens_once_whatever_is_lost a_send_whose_answer_is_lost_is_unknown
            a_request_that_never_left_a_transaction_undoes_it a_receive_cut_off_in_a_transaction_gives_its_messages_back
            a_message_whose_send_lost_its_answer_is_received_at_once a_schedule_that_lost_an_answer_goes_on;
        SERVERS dying: every_connection_ended_under_load_loses_and_doubles_nothing a_host_that_dies_in_a_receive_counts_once;
        OWN dying: a_server_that_falls_comes_back_with_everything a_waiting_receiver_outlives_the_server
            no_token_is_given_twice_if_the_server_falls;
        OWN pooler: a_pooler_of_transactions_is_refused;
        OWN jobs: every_connection_ended_under_load_loses_and_doubles_no_job;
        SERVERS clocks: a_host_whose_clock_is_wrong_changes_nothing a_clock_that_jumps_delays_no_timer_and_no_wait;
        OWN clocks: a_server_whose_clock_jumps_ends_no_lease_of_a_handler_that_begins_then;
    })
}

/// Runs a test on a runtime of its own; it fails if it hangs.
fn on<F: Future<Output = Result<()>>>(test: F) {
    servers::limit::allow(3);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(5 * SOON, test).await.expect("the test hangs") }).unwrap();
}

/// A broker with its definitions, and a table of the tests' own.
async fn broker(url: &str) -> Result<Broker> {
    let broker = Broker::open(url).await?;
    broker.execute(DEFINITIONS).await?;
    broker.sql("create table thing (id bigint primary key)", ()).await?;
    Ok(broker)
}

async fn dialog(act: &impl Act) -> Result<ConversationHandle> {
    act.begin_dialog("Asker", "Server").contract("C").await
}

/// Every text that waits in the queue of the server, taken out.
async fn drain(broker: &Broker) -> Result<Vec<String>> {
    let mut texts = Vec::new();
    while let Some(batch) = broker.receive("server").await? {
        for message in &batch {
            texts.push(message.decode(TEXT)?);
        }
    }
    texts.sort();
    Ok(texts)
}

async fn things(broker: &Broker) -> Result<i64> {
    broker.query("select cast(count(*) as bigint) as number from thing", ()).await?.rows[0].get("number")
}
