use super::*;
use crate::id::ConversationHandle;
use crate::protocol::definition::{ContractEntry, Definition, QueueOptions, SentBy, Validation};
use crate::protocol::{Addressee, BeginDialog, EndForm, Message, Outcome, ReceiveFrom, Relation};
use crate::store::Seen;
use crate::store::Store;
use crate::store::sqlite::{SqliteOptions, SqliteStore};
use crate::store::url::Location;
use std::sync::mpsc;

const STEPS: usize = 10_000;

/// Larger than a quick check accepts.
fn large(is_good: bool) -> String {
    format!("{}{}", if is_good { "1" } else { "true" }, " ".repeat(5000))
}

fn schema(text: &str) -> Validation {
    Validation::JsonSchema { schema: text.into() }
}

async fn opened(
    location: Location,
    validation: Validation,
) -> (Arc<SqliteStore>, ConversationHandle, ConversationHandle) {
    let store = SqliteStore::open(SqliteOptions::new(location)).unwrap();
    let type_of = |name: &str, validation| Definition::CreateMessageType { name: name.into(), owner: None, validation };
    let entry = |name: &str| ContractEntry { message_type: name.into(), sent_by: SentBy::Any };
    let queue = |name: &str| Definition::CreateQueue { name: name.into(), options: QueueOptions::default() };
    let service = |name: &str, queue: &str| Definition::CreateService {
        name: name.into(),
        owner: None,
        queue: queue.into(),
        contracts: vec!["c".into()],
    };
    let definitions = vec![
        type_of("checked", validation),
        type_of("plain", Validation::None),
        Definition::CreateContract { name: "c".into(), owner: None, entries: vec![entry("checked"), entry("plain")] },
        queue("from"),
        queue("to"),
        service("a", "from"),
        service("b", "to"),
    ];
    store.submit(vec![Verb::Define(definitions)]).await.unwrap();
    let (one, other) = (begin(&store).await, begin(&store).await);
    (store, one, other)
}

async fn begin(store: &SqliteStore) -> ConversationHandle {
    let dialog = Verb::BeginDialog(BeginDialog {
        from_service: "a".into(),
        to_service: "b".into(),
        addressee: Addressee::Anywhere,
        contract: Some("c".into()),
        related: Relation::None,
        lifetime_seconds: None,
        encryption: false,
    });
    match &store.submit(vec![dialog]).await.unwrap()[0] {
        Outcome::Began { handle, .. } => *handle,
        other => panic!("{other:?}"),
    }
}

fn send(handle: ConversationHandle, message_type: &str, body: &str) -> Verb {
    let body = Some(Arc::new(body.as_bytes().to_vec()));
    Verb::Send { handles: vec![handle], message_type: Some(message_type.into()), body, trace: None }
}

async fn receive(store: &SqliteStore, queue: &str) -> Vec<Message> {
    let verb = Verb::Receive { queue: queue.into(), top: None, from: ReceiveFrom::Any };
    match store.submit(vec![verb]).await.unwrap().pop() {
        Some(Outcome::Received(messages)) => messages,
        other => panic!("{other:?}"),
    }
}

/// Receives again and again until something is there.
async fn awaited(store: &SqliteStore, queue: &str) -> Vec<Message> {
    for _ in 0..STEPS {
        let messages = receive(store, queue).await;
        if !messages.is_empty() {
            return messages;
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    panic!("nothing arrives in '{queue}'")
}

async fn set_queue(store: &SqliteStore, is_on: bool) {
    let options = QueueOptions { status: Some(is_on), ..QueueOptions::default() };
    let alter = Definition::AlterQueue { name: "to".into(), options };
    store.submit(vec![Verb::Define(vec![alter])]).await.unwrap();
}

async fn alter_type(store: &SqliteStore, validation: Validation) {
    let alter = Definition::AlterMessageType { name: "checked".into(), validation };
    store.submit(vec![Verb::Define(vec![alter])]).await.unwrap();
}

/// Lets no check by a schema go on until it is dropped.
struct Held(mpsc::Sender<()>, Option<std::thread::JoinHandle<()>>);

impl Held {
    fn of(store: &SqliteStore) -> Self {
        let checks = store.engine.checking.checks.clone();
        let (is_held, held) = mpsc::channel();
        let (release, released) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _hold = checks.hold();
            is_held.send(()).unwrap();
            let _ = released.recv();
        });
        held.recv().unwrap();
        Self(release, Some(thread))
    }

    fn release(mut self) {
        let _ = self.0.send(());
        self.1.take().unwrap().join().unwrap();
    }
}

/// Every thread that takes the lock of the state: that of the callers, which a runtime of one thread runs, and the writer.
fn threads_that_order(store: &SqliteStore) -> Vec<std::thread::ThreadId> {
    let threads = store.threads.lock().unwrap();
    let own = threads.iter().map(|thread| thread.thread().id());
    own.chain([std::thread::current().id()]).collect()
}

fn assert_compiled_elsewhere(store: &SqliteStore, times: usize) {
    let (compiled_on, order) = (store.engine.checking.checks.compiled_on(), threads_that_order(store));
    assert_eq!(compiled_on.len(), times);
    assert!(!compiled_on.iter().any(|thread| order.contains(thread)), "compiled by a thread that may hold the lock");
}

/// A schema of 1.6 MB takes seconds to compile.
#[tokio::test]
async fn no_schema_is_compiled_under_the_lock() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let location = || Location::File(folder.path().join("a.db"));
    let (store, one, _) = opened(location(), schema(r#"{"type":"number"}"#)).await;
    assert_compiled_elsewhere(&store, 1);
    let collection = |name: &str, schemas: &str| {
        let collection = Definition::CreateXmlSchemaCollection { name: name.into(), schemas: schemas.into() };
        store.submit(vec![Verb::Define(vec![collection])])
    };
    let notes =
        r#"<s:schema xmlns:s="http://www.w3.org/2001/XMLSchema"><s:element name="note" type="s:date"/></s:schema>"#;
    collection("notes", notes).await.unwrap();
    collection("wrong", "<a/>").await.unwrap_err();
    assert_compiled_elsewhere(&store, 3);
    alter_type(&store, schema(r#"{"maximum":5}"#)).await;
    assert_compiled_elsewhere(&store, 4);
    store.submit(vec![send(one, "checked", "1")]).await.unwrap();
    assert_eq!(receive(&store, "to").await.len(), 1);
    assert_compiled_elsewhere(&store, 4);
    // After an opening, a waiting message needs its type's schema first.
    set_queue(&store, false).await;
    store.submit(vec![send(one, "checked", "2")]).await.unwrap();
    store.close().await.unwrap();
    let store = SqliteStore::open(SqliteOptions::new(location())).unwrap();
    set_queue(&store, true).await;
    assert_eq!(awaited(&store, "to").await.len(), 1);
    assert_compiled_elsewhere(&store, 1);
    store.close().await.unwrap();
    // And so does a new one.
    let store = SqliteStore::open(SqliteOptions::new(location())).unwrap();
    store.submit(vec![send(one, "checked", "3")]).await.unwrap();
    assert_eq!(receive(&store, "to").await.len(), 1);
    assert_compiled_elsewhere(&store, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_is_answered_while_another_body_is_checked() {
    let _limit = crate::testing::limit();
    let (store, hostile, other) = opened(Location::Memory, schema(r#"{"type":"number"}"#)).await;
    let held = Held::of(&store);
    let sending = {
        let store = store.clone();
        tokio::spawn(async move { store.submit(vec![send(hostile, "checked", &large(true))]).await })
    };
    // In a transaction too.
    let mut tx = store.begin(Seen::always()).await.unwrap();
    let third = begin(&store).await;
    for number in 0..50 {
        store.submit(vec![send(other, "plain", &number.to_string())]).await.unwrap();
    }
    tx.execute(send(third, "plain", "in a transaction")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(receive(&store, "to").await.len(), 50);
    assert!(!sending.is_finished());
    held.release();
    sending.await.unwrap().unwrap();
    let mut found = receive(&store, "to").await;
    found.extend(receive(&store, "to").await);
    assert_eq!(found.len(), 2, "the transaction's, and the one that was checked");
    assert!(store.engine.checking.checks.verdicts_held() == 0, "no verdict is left behind");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_and_schemas_of_some_kilobytes_pass_large_ones() {
    let _limit = crate::testing::limit();
    let (store, one, other) = opened(Location::Memory, schema(r#"{"type":"number"}"#)).await;
    let full = store.engine.checking.room.without_room_for_long_ones();
    let longest = "1".to_owned() + &" ".repeat(1 << 20);
    let sending = {
        let store = store.clone();
        tokio::spawn(async move { store.submit(vec![send(one, "checked", &longest)]).await })
    };
    store.submit(vec![send(other, "checked", &large(true))]).await.unwrap();
    alter_type(&store, schema(r#"{"maximum":5}"#)).await;
    assert_eq!(receive(&store, "to").await.len(), 1);
    assert!(!sending.is_finished());
    drop(full);
    sending.await.unwrap().unwrap();
    assert_eq!(awaited(&store, "to").await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_type_was_altered_is_checked_again_in_the_background() {
    let _limit = crate::testing::limit();
    for location in [Location::Memory, Location::File(tempfile::tempdir().unwrap().keep().join("a.db"))] {
        let (store, altered, other) = opened(location, Validation::None).await;
        set_queue(&store, false).await;
        store.submit(vec![send(altered, "checked", &large(false)), send(altered, "plain", "behind")]).await.unwrap();
        alter_type(&store, schema(r#"{"type":"number"}"#)).await;
        let held = Held::of(&store);
        set_queue(&store, true).await;
        for number in 0..50 {
            store.submit(vec![send(other, "plain", &number.to_string())]).await.unwrap();
        }
        assert_eq!(receive(&store, "to").await.len(), 50);
        assert!(receive(&store, "to").await.is_empty(), "what stands behind it waits with it");
        let status = store.submit(vec![Verb::GetTransmissionStatus { handle: altered }]).await.unwrap();
        assert!(format!("{status:?}").contains("being checked"), "{status:?}");
        held.release();
        let error = awaited(&store, "from").await;
        assert_eq!(&*error[0].message_type_name, crate::protocol::system::ERROR);
        assert_eq!(receive(&store, "to").await.len(), 1, "the receiver's Error, and not what stood behind");
        store.close().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_verdict_goes_with_a_message_that_waits() {
    let _limit = crate::testing::limit();
    let (store, one, _) = opened(Location::Memory, schema(r#"{"type":"number"}"#)).await;
    set_queue(&store, false).await;
    store.submit(vec![send(one, "checked", &large(true)), send(one, "plain", "behind")]).await.unwrap();
    let held = Held::of(&store);
    set_queue(&store, true).await;
    assert_eq!(receive(&store, "to").await.len(), 2, "nothing had to be checked again");
    held.release();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_waits_is_checked_after_a_restart() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let location = || Location::File(folder.path().join("a.db"));
    let (store, one, _) = opened(location(), schema(r#"{"type":"number"}"#)).await;
    set_queue(&store, false).await;
    store.submit(vec![send(one, "checked", &large(true)), send(one, "plain", "behind")]).await.unwrap();
    store.submit(vec![Verb::EndConversation { handle: one, form: EndForm::Plain }]).await.unwrap();
    store.close().await.unwrap();
    let store = SqliteStore::open(SqliteOptions::new(location())).unwrap();
    set_queue(&store, true).await;
    let mut found = awaited(&store, "to").await;
    while found.len() < 3 {
        found.extend(awaited(&store, "to").await);
    }
    let numbers: Vec<_> = found.iter().map(|message| message.message_sequence_number).collect();
    assert_eq!(numbers, [0, 1, 2], "in their order, with the end");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_close_does_not_wait_for_a_check() {
    let _limit = crate::testing::limit();
    let (store, one, _) = opened(Location::Memory, Validation::None).await;
    set_queue(&store, false).await;
    store.submit(vec![send(one, "checked", &large(true))]).await.unwrap();
    alter_type(&store, schema(r#"{"type":"number"}"#)).await;
    let held = Held::of(&store);
    set_queue(&store, true).await;
    store.close().await.unwrap();
    drop(store);
    held.release();
}

// Windows renames and removes no file that is open.
#[cfg(unix)]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_no_reader_can_read_is_read_by_the_writers_connection() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let (path, elsewhere) = (folder.path().join("a.db"), folder.path().join("elsewhere.db"));
    let (store, one, _) = opened(Location::File(path.clone()), Validation::None).await;
    set_queue(&store, false).await;
    store.submit(vec![send(one, "checked", &large(true))]).await.unwrap();
    alter_type(&store, schema(r#"{"type":"number"}"#)).await;
    // Like a process that can open no more files.
    std::fs::rename(&path, &elsewhere).unwrap();
    set_queue(&store, true).await;
    assert_eq!(awaited(&store, "to").await.len(), 1);
    std::fs::rename(&elsewhere, &path).unwrap();
    store.close().await.unwrap();
}

#[tokio::test]
async fn a_check_that_panics_stops_no_later_one() {
    let _limit = crate::testing::limit();
    let (store, _, _) = opened(Location::Memory, Validation::None).await;
    let checking = &store.engine.checking;
    let mut late = checking.late();
    late.add(1);
    late.add(2);
    late.is_running = true;
    drop(late);
    let checked = Mutex::new(Vec::new());
    checking.check_all(|row| {
        assert_ne!(row, 1, "this check fails");
        checked.lock().unwrap().push(row);
        (row < 4).then_some(row + 1)
    });
    assert_eq!(*checked.lock().unwrap(), [2, 3, 4], "each is followed by the next of its conversation");
    let late = checking.late();
    assert!(!late.is_running && late.known.is_empty(), "the next row starts a thread again");
}
