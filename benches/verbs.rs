//! What one verb costs: in the core alone, and through the broker on the embedded store.
//!
//! `cargo bench --bench verbs` measures; `cargo test --bench verbs` only runs each once.

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use dialoq::internals::core::{Limits, Memory};
use dialoq::protocol::definition::Definition;
use dialoq::protocol::{Addressee, BeginDialog, EndForm, Outcome, ReceiveFrom, Relation, Verb};
use dialoq::{Act, Broker, ConversationHandle, Timestamp};
use std::sync::Arc;
use tokio::runtime::Runtime;

const SCRIPT: &str = "
    CREATE MESSAGE TYPE [//bench/Request] VALIDATION = NONE;
    CREATE CONTRACT [//bench/Contract] ([//bench/Request] SENT BY ANY);
    CREATE QUEUE replies; CREATE QUEUE requests;
    CREATE SERVICE [//bench/Client] ON QUEUE replies;
    CREATE SERVICE [//bench/Service] ON QUEUE requests ([//bench/Contract]);";
const NOW: Timestamp = Timestamp(1_700_000_000_000_000);

fn definitions() -> Vec<Definition> {
    let statements = dialoq::catalog::ddl::parse(SCRIPT).expect("the script is right");
    statements.into_iter().map(|statement| statement.definition).collect()
}

fn begin() -> Verb {
    Verb::BeginDialog(BeginDialog {
        from_service: "//bench/Client".into(),
        to_service: "//bench/Service".into(),
        addressee: Addressee::Anywhere,
        contract: Some("//bench/Contract".into()),
        related: Relation::None,
        lifetime_seconds: None,
        encryption: false,
    })
}

fn send(handle: ConversationHandle, body: &Arc<Vec<u8>>) -> Verb {
    Verb::Send {
        handles: vec![handle],
        message_type: Some("//bench/Request".into()),
        body: Some(body.clone()),
        trace: None,
    }
}

fn receive(queue: &str) -> Verb {
    Verb::Receive { queue: queue.into(), top: Some(1), from: ReceiveFrom::Any }
}

fn end(handle: ConversationHandle) -> Verb {
    Verb::EndConversation { handle, form: EndForm::Plain }
}

fn one(memory: &mut Memory, verb: Verb) -> Outcome {
    let outcomes =
        memory.submit(vec![verb], NOW).expect("the verb is right").expect("no other session holds the group");
    outcomes.into_iter().next().expect("one outcome per verb")
}

fn dialog(memory: &mut Memory) -> ConversationHandle {
    match one(memory, begin()) {
        Outcome::Began { handle, .. } => handle,
        other => panic!("BEGIN DIALOG gave {other:?}"),
    }
}

fn taken(outcome: Outcome) -> ConversationHandle {
    match outcome {
        Outcome::Received(messages) => messages[0].conversation_handle,
        other => panic!("RECEIVE gave {other:?}"),
    }
}

/// The semantics alone: no database, no threads.
fn core(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("core");
    let body = Arc::new(vec![b'x'; 256]);
    let mut memory = Memory::new(Limits::default());
    one(&mut memory, Verb::Define(definitions()));

    group.throughput(Throughput::Elements(1));
    for conversations in [1, 1000] {
        let handles: Vec<_> = (0..conversations).map(|_| dialog(&mut memory)).collect();
        let mut next = handles.iter().cycle();
        group.bench_function(BenchmarkId::new("send_receive", conversations), |bencher| {
            bencher.iter(|| {
                one(&mut memory, send(*next.next().expect("a cycle never ends"), &body));
                taken(one(&mut memory, receive("requests")))
            });
        });
    }
    group.bench_function("dialog_cycle", |bencher| {
        bencher.iter(|| {
            let handle = dialog(&mut memory);
            one(&mut memory, send(handle, &body));
            let target = taken(one(&mut memory, receive("requests")));
            one(&mut memory, end(target));
            let initiator = taken(one(&mut memory, receive("replies")));
            one(&mut memory, end(initiator));
        });
    });
    group.finish();
}

async fn open(url: &str) -> (Broker, ConversationHandle) {
    let broker = Broker::open(url).await.expect("the store opens");
    broker.apply(definitions()).await.expect("the definitions are right");
    let begin = broker.begin_dialog("//bench/Client", "//bench/Service").contract("//bench/Contract");
    let handle = begin.await.expect("the dialog begins");
    (broker, handle)
}

/// One caller on the embedded store: every call ends with its commit, on the disk synced.
fn store(criterion: &mut Criterion) {
    let runtime = Runtime::new().expect("a runtime");
    let folder = tempfile::tempdir().expect("a folder");
    let url = format!("sqlite:{}", folder.path().join("bench.db").display());
    let mut group = criterion.benchmark_group("store");
    group.throughput(Throughput::Elements(1));
    let body = vec![b'x'; 256];
    for (place, url) in [("memory", "sqlite::memory:"), ("disk", url.as_str())] {
        let (broker, handle) = runtime.block_on(open(url));
        group.bench_function(BenchmarkId::new("send_receive", place), |bencher| {
            bencher.to_async(&runtime).iter(|| async {
                broker.send(handle, "//bench/Request", &body).await.expect("sent");
                broker.receive("requests").await.expect("received").expect("one message")
            });
        });
        group.bench_function(BenchmarkId::new("tx_send_receive", place), |bencher| {
            bencher.to_async(&runtime).iter(|| async {
                let tx = broker.begin().await.expect("begun");
                tx.send(handle, "//bench/Request", &body).await.expect("sent");
                tx.commit().await.expect("committed");
                let tx = broker.begin().await.expect("begun");
                let batch = tx.receive("requests").await.expect("received").expect("one message");
                tx.commit().await.expect("committed");
                batch
            });
        });
        group.bench_function(BenchmarkId::new("receive_nothing", place), |bencher| {
            bencher.to_async(&runtime).iter(|| async {
                assert!(broker.receive("requests").await.expect("received").is_none());
            });
        });
        runtime.block_on(broker.close()).expect("closed");
    }
    group.finish();
}

criterion_group!(benches, core, store);
criterion_main!(benches);
