//! Random units on the store and on the model: after each the tables hold the model's rows, and after a close and an
//! opening the store goes on as the model does.

use crate::shop::{definitions, dialog, enable, options, sql};
use dialoq::internals::core::{Limits, Memory, MessageRow};
use dialoq::internals::store::Store;
use dialoq::internals::store::sqlite::{SqliteOptions, SqliteStore};
use dialoq::internals::store::url::Durability;
use dialoq::protocol::definition::{Definition, QueueOptions};
use dialoq::protocol::{EndForm, Outcome, ReceiveFrom, Verb};
use dialoq::{Clock, ConversationHandle, IdSource, SqlValue, Timestamp};
use proptest::prelude::*;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

#[derive(Debug, Clone)]
enum Step {
    Begin { to: usize },
    Send { endpoints: Vec<usize>, body: Vec<u8> },
    Receive { queue: usize, top: u64 },
    End { endpoint: usize, form: usize },
    Timer { endpoint: usize, seconds: i64 },
    Move { endpoint: usize, to: usize },
    Reprioritise { endpoint: usize, level: u8 },
    Queue { queue: usize, is_on: bool, is_retaining: bool },
    Broker { is_on: bool },
    Service { is_there: bool },
    Pass { seconds: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let endpoint = 0usize..8;
    let endpoints = prop::collection::vec(0usize..8, 1..3);
    prop_oneof![
        3 => (0usize..3).prop_map(|to| Step::Begin { to }),
        9 => (endpoints, prop::collection::vec(any::<u8>(), 0..40))
            .prop_map(|(endpoints, body)| Step::Send { endpoints, body }),
        6 => (0usize..2, 0u64..4).prop_map(|(queue, top)| Step::Receive { queue, top }),
        3 => (endpoint.clone(), 0usize..6).prop_map(|(endpoint, form)| Step::End { endpoint, form }),
        1 => (endpoint.clone(), 1i64..30).prop_map(|(endpoint, seconds)| Step::Timer { endpoint, seconds }),
        1 => (endpoint.clone(), 0usize..8).prop_map(|(endpoint, to)| Step::Move { endpoint, to }),
        1 => (endpoint, 1u8..=10).prop_map(|(endpoint, level)| Step::Reprioritise { endpoint, level }),
        1 => (0usize..2, any::<bool>(), any::<bool>())
            .prop_map(|(queue, is_on, is_retaining)| Step::Queue { queue, is_on, is_retaining }),
        1 => any::<bool>().prop_map(|is_on| Step::Broker { is_on }),
        1 => any::<bool>().prop_map(|is_there| Step::Service { is_there }),
        1 => (1u64..60).prop_map(|seconds| Step::Pass { seconds }),
    ]
}

const QUEUES: [&str; 2] = ["from", "to"];

fn receive_from(queue: &str, top: Option<u64>) -> Verb {
    Verb::Receive { queue: queue.into(), top, from: ReceiveFrom::Any }
}

fn verb(memory: &Memory, step: &Step) -> Option<Verb> {
    let handle = |place: usize| memory.endpoints().nth(place).map(|row| row.handle);
    Some(match step {
        Step::Begin { to } => dialog(["b", "b", "later"][*to]),
        Step::Send { endpoints, body } => {
            let mut handles: Vec<ConversationHandle> = endpoints.iter().filter_map(|place| handle(*place)).collect();
            handles.dedup();
            let body = (!body.is_empty()).then(|| Arc::new(body.clone()));
            Verb::Send { handles, message_type: Some("t".into()), body, trace: Some("00-trace".into()) }
        }
        Step::Receive { queue, top } => receive_from(QUEUES[*queue], (*top > 0).then_some(*top)),
        Step::End { endpoint, form } => Verb::EndConversation {
            handle: handle(*endpoint)?,
            form: match form {
                0 => EndForm::Cleanup,
                1 => EndForm::WithError { code: 7, description: "x".into() },
                _ => EndForm::Plain,
            },
        },
        Step::Timer { endpoint, seconds } => {
            Verb::BeginConversationTimer { handle: handle(*endpoint)?, timeout_seconds: *seconds }
        }
        Step::Move { endpoint, to } => {
            Verb::MoveConversation { handle: handle(*endpoint)?, group: memory.endpoints().nth(*to)?.group }
        }
        Step::Reprioritise { endpoint, level } => Verb::Reprioritise { handle: handle(*endpoint)?, level: *level },
        Step::Queue { queue, is_on, is_retaining } => {
            let options =
                QueueOptions { status: Some(*is_on), retention: Some(*is_retaining), ..QueueOptions::default() };
            Verb::Define(vec![Definition::AlterQueue { name: QUEUES[*queue].into(), options }])
        }
        Step::Broker { is_on } => enable(*is_on),
        Step::Service { is_there: true } => Verb::Define(vec![Definition::CreateService {
            name: "later".into(),
            owner: None,
            queue: "to".into(),
            contracts: vec!["c".into()],
        }]),
        Step::Service { is_there: false } => Verb::Define(vec![Definition::DropService { name: "later".into() }]),
        Step::Pass { .. } => return None,
    })
}

fn settings(path: &Path, clock: &Clock) -> SqliteOptions {
    let mut options = options(path);
    options.clock = clock.clone();
    options.ids = IdSource::Counted(0);
    options.durability = Durability::Normal;
    options
}

fn number(value: u64) -> SqlValue {
    SqlValue::Integer(value.cast_signed())
}

/// An id as this store keeps it.
fn id(id: impl Into<Uuid>) -> SqlValue {
    SqlValue::Blob(id.into().as_bytes().to_vec())
}

fn message_values(row: &MessageRow) -> Vec<SqlValue> {
    vec![
        number(row.queuing_order),
        number(row.endpoint_id),
        SqlValue::from(row.delivery_class as u8),
        number(row.sequence),
        SqlValue::from(row.message_type_id),
        id(row.message_id),
        SqlValue::Integer(row.enqueued_at.0),
        SqlValue::from(row.body.as_ref().map(|body| body.to_vec())),
        SqlValue::from(row.trace.as_deref()),
    ]
}

async fn table(store: &SqliteStore, columns: &str, table: &str, order: &str) -> Vec<Vec<SqlValue>> {
    let text = format!("select {columns} from {table} order by {order}");
    let rows = store.query(sql(&text, Vec::new())).await.unwrap().rows;
    rows.iter().map(|row| row.values().to_vec()).collect()
}

const MESSAGE: &str =
    "queuing_order, endpoint_id, stored, sequence, message_type_id, message_id, enqueued_at, body, trace";

async fn assert_same_rows(store: &SqliteStore, memory: &Memory) {
    let messages: Vec<_> = memory.messages().map(message_values).collect();
    assert_eq!(table(store, MESSAGE, "dialoq_queue_message", "queuing_order").await, messages);
    let mut retained: Vec<_> =
        memory.retained().map(|(status, row)| [vec![SqlValue::from(*status)], message_values(row)].concat()).collect();
    retained.sort_by_key(|row| format!("{row:?}"));
    let mut found = table(store, &format!("status, {MESSAGE}"), "dialoq_retained_message", "queuing_order").await;
    found.sort_by_key(|row| format!("{row:?}"));
    assert_eq!(found, retained);
    let transmissions: Vec<_> = memory
        .transmissions()
        .map(|row| {
            vec![
                number(row.transmission_id),
                number(row.endpoint_id),
                number(row.sequence),
                SqlValue::from(row.message_type_id),
                SqlValue::from(row.is_end_of_dialog),
                id(row.message_id),
                SqlValue::from(row.body.as_ref().map(|body| body.to_vec())),
                SqlValue::from(&*row.status),
            ]
        })
        .collect();
    let columns = "transmission_id, endpoint_id, sequence, message_type_id, is_end_of_dialog, message_id, body, status";
    assert_eq!(table(store, columns, "dialoq_transmission", "transmission_id").await, transmissions);
    let endpoints: Vec<_> = memory
        .endpoints()
        .map(|row| {
            vec![
                number(row.endpoint_id),
                id(row.handle),
                id(row.conversation_id),
                id(row.group),
                SqlValue::from(row.state.code()),
                SqlValue::from(row.priority),
                SqlValue::from(row.dialog_timer.map(|due| due.0)),
                SqlValue::from(row.security_timestamp.map(|due| due.0)),
                number(row.send_sequence),
                number(row.receive_sequence),
                SqlValue::from(row.is_quarantined),
                number(row.rollbacks.into()),
                SqlValue::from(row.retry_at.map(|at| at.0)),
            ]
        })
        .collect();
    let columns = "endpoint_id, conversation_handle, conversation_id, conversation_group_id, state, priority, \
                   dialog_timer, security_timestamp, send_sequence, receive_sequence, is_quarantined, \
                   rollbacks, retry_at";
    assert_eq!(table(store, columns, "dialoq_conversation_endpoint", "endpoint_id").await, endpoints);
}

async fn play(steps: Vec<Step>) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("rows.db");
    let clock = Clock::manual(Timestamp(1_000_000_000));
    let mut memory = Memory::new(Limits::default());
    let mut store = SqliteStore::open(settings(&path, &clock)).unwrap();
    let define = vec![Verb::Define(definitions())];
    memory.submit(define.clone(), clock.now()).unwrap();
    store.submit(define).await.unwrap();
    for step in steps {
        if let Step::Pass { seconds } = step {
            clock.advance(Duration::from_secs(seconds));
            store.submit(Vec::new()).await.unwrap();
            memory.tick(clock.now());
        } else if let Some(verb) = verb(&memory, &step) {
            let model = memory.submit(vec![verb.clone()], clock.now());
            let ours = store.submit(vec![verb]).await;
            match (model, ours) {
                (Ok(Some(model)), Ok(ours)) => assert_eq!(ours, model),
                (Err(model), Err(ours)) => assert_eq!(ours.code(), model.code()),
                (model, ours) => panic!("the model says {model:?}, the store {ours:?}"),
            }
        }
        assert_same_rows(&store, &memory).await;
    }
    // Ids start from one again in an opened store, so what makes any is done before.
    for queue in QUEUES {
        let on = QueueOptions { status: Some(true), ..QueueOptions::default() };
        let alter = vec![Verb::Define(vec![Definition::AlterQueue { name: queue.into(), options: on }])];
        memory.submit(alter.clone(), clock.now()).unwrap();
        store.submit(alter).await.unwrap();
    }
    assert_same_rows(&store, &memory).await;
    store.close().await.unwrap();
    drop(store);
    store = SqliteStore::open(settings(&path, &clock)).unwrap();
    for queue in QUEUES {
        loop {
            let unit = vec![receive_from(queue, None)];
            let model = memory.submit(unit.clone(), clock.now()).unwrap().unwrap();
            let ours = store.submit(unit).await.unwrap();
            assert_eq!(ours, model);
            if ours == [Outcome::Received(Vec::new())] {
                break;
            }
        }
    }
}

proptest! {
    #![proptest_config(dialoq_test_support::seeds::config(40))]

    #[test]
    fn the_tables_hold_what_the_model_holds(steps in prop::collection::vec(step(), 1..60)) {
        let _limit = crate::limit();
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap().block_on(play(steps));
    }
}
