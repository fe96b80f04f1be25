//! Frames there and back, greetings, and take-overs at moments that no other process shows.

use super::frame::{
    self, Answer, Call, FrameBuffer, FromOwner, Greeting, QueueNews, Readers, Request, TxStep, VERSION, WireOutcome,
};
use super::remote_tx::RemoteTx;
use super::*;
use crate::id::{ConversationHandle, ConversationId, GroupId, JobId, MessageId};
use crate::protocol::work::{Job, JobState, TakenJob, WorkVerb};
use crate::protocol::{
    Addressee, BeginDialog, ConversationState, EndForm, Message, MessageValidation, ReceiveFrom, Relation,
};
use crate::store::Seen;
use crate::store::sqlite::SqliteStore;
use crate::store::sqlite::owner;
use crate::store::url::Durability;
use crate::store::{SqlRow, SqlStatement, SqlValue};
use crate::time::Timestamp;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

mod frames;
mod full_disk;
mod hanging;
mod leaving;
mod reports;
mod roles;

/// Two services of one queue.
const SERVICES: &str = "CREATE CONTRACT [C] ([DEFAULT] SENT BY ANY); CREATE QUEUE q;
    CREATE SERVICE [a] ON QUEUE q; CREATE SERVICE [b] ON QUEUE q ([C])";

/// The text of a value that has been a frame must be the same, and so must its bytes.
fn there_and_back<T: Serialize + DeserializeOwned + Debug>(value: &T) {
    let mut bytes = Vec::new();
    frame::encode(value, &mut bytes).unwrap();
    let mut buffer = FrameBuffer::default();
    buffer.room().extend_from_slice(&bytes);
    let back: T = buffer.next().unwrap().expect("a whole frame");
    assert_eq!(format!("{back:?}"), format!("{value:?}"));
    let mut again = Vec::new();
    frame::encode(&back, &mut again).unwrap();
    assert_eq!(again, bytes);
    for cut in [1, bytes.len() / 2, bytes.len() - 1] {
        let mut buffer = FrameBuffer::default();
        buffer.room().extend_from_slice(&bytes[..cut]);
        assert!(buffer.next::<T>().unwrap().is_none(), "{cut} of {} bytes", bytes.len());
    }
}

fn uuid(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

fn values() -> Vec<SqlValue> {
    vec![
        SqlValue::Null,
        SqlValue::Integer(i64::MIN),
        SqlValue::Real(-0.5),
        SqlValue::Text("ü\0🚚".to_owned()),
        SqlValue::Blob(vec![0, 255]),
        SqlValue::Uuid(uuid(1)),
    ]
}

fn statement() -> SqlStatement {
    SqlStatement { text: "select ?1".to_owned(), params: values(), expected_rows: Some(u64::MAX) }
}

fn verbs() -> Vec<Verb> {
    let handle = ConversationHandle(uuid(2));
    let taken = TakenJob { job: JobId(u64::MAX), token: 3 };
    vec![
        Verb::Send {
            handles: vec![handle; 3],
            message_type: Some("t".into()),
            body: Some(Arc::new(vec![0, 1, 255])),
            trace: Some("00-1-2-01".into()),
        },
        Verb::Receive { queue: "q".into(), top: None, from: ReceiveFrom::Oldest },
        Verb::GetConversationGroup { queue: "q".into() },
        Verb::MoveConversation { handle, group: GroupId(uuid(3)) },
        Verb::EndConversation { handle, form: EndForm::WithError { code: i32::MAX, description: "d".to_owned() } },
        Verb::BeginConversationTimer { handle, timeout_seconds: i64::MAX },
        Verb::CancelConversationTimer { handle },
        Verb::GetTransmissionStatus { handle },
        Verb::Define(Vec::new()),
        Verb::Reprioritise { handle, level: 10 },
        Verb::PostQueueActivation { queue: "q".into() },
        Verb::ReleaseQuarantine { group: GroupId(uuid(4)) },
        Verb::Work(WorkVerb::Complete { taken, result: Some(Arc::new(b"r".to_vec())) }),
        Verb::Work(WorkVerb::Extend { taken, lease_ms: Some(-1) }),
    ]
}

/// Every call; the match refuses to compile when one is added and not listed here.
fn calls() -> Vec<Call> {
    let steps = || {
        let mut steps = vec![
            TxStep::Sql(statement().into()),
            TxStep::Query(statement().into()),
            TxStep::Claim(uuid(5)),
            TxStep::Savepoint("s".to_owned()),
            TxStep::RollbackTo(String::new()),
            TxStep::Commit,
            TxStep::Rollback { reason: Some("a reason".into()) },
        ];
        steps.extend(verbs().into_iter().map(TxStep::Execute));
        steps
    };
    let mut calls = vec![
        Call::Submit(verbs()),
        Call::Submit(Vec::new()),
        Call::SubmitOnce(uuid(6), verbs()),
        Call::UnitHappened(uuid(7)),
        Call::RunSql(statement().into()),
        Call::LockHolder(uuid(7)),
        Call::ReceiveHolds,
        Call::TakeSlot { slot: u64::MAX, queue_id: i32::MIN, most: u16::MAX },
        Call::EnterSlot { slot: 1, queue_id: -1, number: i32::MAX },
        Call::FreeSlot { slot: 1 },
        Call::DropTx { tx: 1, is_seen: false, is_lost: false, reason: Some("a reason".into()) },
        Call::Cancel { request: u64::MAX },
        Call::GiveBack(vec![TakenJob { job: JobId(1), token: 2 }]),
        Call::Watch { queue: "q".to_owned() },
        Call::Publish(Readers::default()),
        Call::Unwatch { queue: "q".to_owned() },
    ];
    calls.extend(steps().into_iter().map(|step| Call::InTx { tx: 9, is_seen: true, step }));
    for call in &calls {
        match call {
            Call::Submit(_)
            | Call::SubmitOnce(..)
            | Call::UnitHappened(_)
            | Call::LockHolder(_)
            | Call::ReceiveHolds
            | Call::RunSql(_)
            | Call::InTx { .. }
            | Call::TakeSlot { .. }
            | Call::EnterSlot { .. }
            | Call::FreeSlot { .. }
            | Call::DropTx { .. }
            | Call::Cancel { .. }
            | Call::GiveBack(_)
            | Call::Watch { .. }
            | Call::Publish(_)
            | Call::Unwatch { .. } => {}
        }
    }
    calls
}

fn outcomes_of_all_kinds() -> Vec<Outcome> {
    let handle = ConversationHandle(uuid(8));
    let message = Message {
        status: 1,
        priority: 10,
        queuing_order: u64::MAX,
        conversation_group_id: GroupId(uuid(9)),
        conversation_handle: handle,
        message_sequence_number: 1,
        service_name: "s".into(),
        service_id: -1,
        service_contract_name: "c".into(),
        service_contract_id: 1,
        message_type_name: "t".into(),
        message_type_id: 2,
        validation: MessageValidation::E,
        message_body: Some(vec![0; 3]),
        message_id: MessageId(uuid(10)),
        message_enqueue_time: Timestamp(i64::MIN),
        trace: None,
    };
    let job = Job {
        taken: TakenJob { job: JobId(1), token: 2 },
        queue: "q".into(),
        job_type: "t".into(),
        key: Some("k".into()),
        level: 5,
        attempt: 1,
        pushed_at: Timestamp(1),
        pushed_by: "p".into(),
        lease_until: None,
        last_error: Some("e".into()),
        body: Some(b"b".to_vec()),
    };
    vec![
        Outcome::Done,
        Outcome::Began { handle, group: GroupId(uuid(11)), conversation_id: ConversationId(uuid(12)) },
        Outcome::Received(vec![message.clone(), Message { message_body: None, ..message }]),
        Outcome::Group(None),
        Outcome::Text("text".to_owned()),
        Outcome::Warnings(vec!["w".to_owned()]),
        Outcome::Ended(ConversationState::Closed),
        Outcome::Pushed { job: Some(JobId(3)), is_new: true },
        Outcome::Jobs(vec![job]),
        Outcome::Failed(JobState::Dead),
    ]
}

fn reports() -> Vec<FromOwner> {
    let columns: Arc<[String]> = ["a".to_owned(), "b".to_owned()].into();
    let rows = SqlRows {
        rows: vec![SqlRow { columns: columns.clone(), values: vec![SqlValue::Null, SqlValue::Integer(1)] }],
        columns,
    };
    let outcomes = outcomes_of_all_kinds().into_iter().map(WireOutcome::from).collect();
    let answers = [
        Answer::Done,
        Answer::Outcomes(outcomes),
        Answer::Happened(true),
        Answer::Changed(u64::MAX),
        Answer::Rows(rows.into()),
        Answer::Slot(None),
        Answer::Holder(None),
        Answer::Slot(Some(i32::MAX)),
    ];
    let mut all: Vec<FromOwner> = answers
        .into_iter()
        .map(|answer| FromOwner::Answer { id: u64::MAX, definitions: 1, answer: Ok(answer) })
        .collect();
    let refusal = Error::new(Code::STORE_IO, "it cannot be read").in_statement(3).caused_by("the disk".to_owned());
    all.extend([
        FromOwner::Answer { id: 0, definitions: 0, answer: Err(refusal.into()) },
        FromOwner::Closing,
        FromOwner::Queue {
            queue: "q".to_owned(),
            news: QueueNews { ready_groups: 1, unread: 2, newly_ready: 3, has_arrivals: true, is_changed: false },
        },
        FromOwner::Redefined,
        FromOwner::SlotFreed { queue: Some("q".to_owned()) },
        FromOwner::SlotFreed { queue: None },
    ]);
    all
}

#[test]
fn every_frame_comes_back_as_it_went() {
    for (id, call) in calls().into_iter().enumerate() {
        there_and_back(&Request { id: id as u64, call });
    }
    reports().iter().for_each(there_and_back);
}

#[test]
fn an_outcome_keeps_its_body_and_an_error_its_place_and_cause() {
    let all = outcomes_of_all_kinds();
    let back: Vec<Outcome> = all.iter().cloned().map(WireOutcome::from).map(Outcome::from).collect();
    assert_eq!(back, all);
    let error = Error::new(Code::STORE_IO, "m").in_statement(3).caused_by("the disk".to_owned());
    let back = Error::from(frame::Refusal::from(error));
    assert_eq!((back.code(), back.message(), back.statement()), (Code::STORE_IO, "m", Some(3)));
    assert_eq!(std::error::Error::source(&back).map(ToString::to_string).as_deref(), Some("the disk"));
    let (session_id, process_id, principal) = (Some(1), Some(2), Some("p".to_owned()));
    let holder =
        crate::store::LockHolder { session_id, process_id, principal, since: Some(Timestamp(3)), ..Default::default() };
    assert_eq!(crate::store::LockHolder::from(frame::Holder::from(holder.clone())), holder);
}

#[test]
fn a_greeting_of_anything_else_is_none() {
    for durability in [Durability::Full, Durability::Normal] {
        let greeting = Greeting { version: VERSION, durability };
        assert_eq!(Greeting::decode(greeting.encode()), Some(greeting));
        for place in 0..8 {
            let mut bytes = greeting.encode();
            bytes[place] ^= 1;
            assert_eq!(Greeting::decode(bytes), None, "byte {place}");
        }
    }
    let other = Greeting { version: u32::MAX, durability: Durability::Full };
    assert_eq!(Greeting::decode(other.encode()), Some(other), "another version is understood, so that it can be named");
}

proptest! {
    #![proptest_config(dialoq_test_support::seeds::config(256))]

    #[test]
    fn any_bytes_are_a_request_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        let _ = frame::decode::<Request>(&bytes);
        let _ = frame::decode::<FromOwner>(&bytes);
    }

    #[test]
    fn a_changed_frame_is_a_frame_or_an_error(which in any::<prop::sample::Index>(), place in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let all = calls();
        let mut bytes = Vec::new();
        frame::encode(&(1_u64, which.get(&all)), &mut bytes).unwrap();
        let place = 4 + place.index(bytes.len() - 4);
        bytes[place] = byte;
        let _ = frame::decode::<Request>(&bytes[4..]);
    }

    #[test]
    fn frames_come_whole_however_they_arrive(texts in proptest::collection::vec(".{0,40}", 0..8), cuts in proptest::collection::vec(1_usize..30, 1..40)) {
        let mut bytes = Vec::new();
        for text in &texts {
            frame::encode(text, &mut bytes).unwrap();
        }
        let (mut buffer, mut found) = (FrameBuffer::default(), Vec::new());
        let (mut rest, mut cuts) = (bytes.as_slice(), cuts.into_iter().cycle());
        while !rest.is_empty() {
            let (now, later) = rest.split_at(cuts.next().unwrap_or(1).min(rest.len()));
            buffer.room().extend_from_slice(now);
            rest = later;
            while let Some(text) = buffer.next::<String>().unwrap() {
                found.push(text);
            }
        }
        prop_assert_eq!(found, texts);
    }
}

fn options(folder: &Path) -> SqliteOptions {
    SqliteOptions::new(Location::File(folder.join("a.db")))
}

/// The path that names a socket: a pipe has a name by the settled path.
fn database_in(folder: &Path) -> PathBuf {
    folder.canonicalize().unwrap().join("a.db")
}

#[cfg(unix)]
async fn until(what: impl Fn() -> bool) {
    let waited = tokio::time::timeout(Duration::from_secs(30), async {
        while !what() {
            tokio::task::yield_now().await;
        }
    });
    waited.await.expect("it comes within 30 s");
}

// Windows renames and removes no file that is open.
#[cfg(unix)]
#[tokio::test]
async fn a_take_over_that_meets_a_passing_obstacle_tries_again() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let guest = SharedStore::open(options(folder.path())).unwrap();
    let note = folder.path().join("a.db.owner");
    std::fs::remove_file(&note).unwrap();
    std::fs::create_dir(&note).unwrap();
    owner.close().await.unwrap();
    let obstacle = guest.membership.options.board.obstacle();
    until(|| obstacle.borrow().as_ref().is_some_and(|error| error.code() == Code::STORE_IO)).await;
    assert!(!guest.is_owner());
    std::fs::remove_dir(&note).unwrap();
    guest.submit(Vec::new()).await.unwrap();
    assert!(guest.is_owner());
}

// Windows renames and removes no file that is open.
#[cfg(unix)]
#[tokio::test]
async fn a_take_over_makes_no_empty_file_where_the_database_was() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let guest = SharedStore::open(options(folder.path())).unwrap();
    let (path, aside) = (folder.path().join("a.db"), folder.path().join("aside"));
    owner.close().await.unwrap();
    // The guest that owns it now is closed, and another one opens while the file is aside.
    guest.close().await.unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let guest = SharedStore::open(options(folder.path())).unwrap();
    std::fs::rename(&path, &aside).unwrap();
    let _ = owner.close().await;
    let obstacle = guest.membership.options.board.obstacle();
    until(|| obstacle.borrow().as_ref().is_some_and(|error| error.code() == Code::STORE_IO)).await;
    assert!(!path.exists(), "an empty database was made");
    std::fs::rename(&aside, &path).unwrap();
    guest.submit(Vec::new()).await.unwrap();
}

// Windows renames and removes no file that is open.
#[cfg(unix)]
#[tokio::test]
async fn a_damaged_file_is_not_tried_again() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let guest = SharedStore::open(options(folder.path())).unwrap();
    let path = folder.path().join("a.db");
    rusqlite::Connection::open(&path).unwrap().pragma_update(None, "application_id", 7).unwrap();
    let _ = owner.close().await;
    let error = guest.submit(Vec::new()).await.unwrap_err();
    assert!([Code::STORE_FOREIGN, Code::STORE_DAMAGED].contains(&error.code()), "{error}");
    let thread = lock(&guest.thread).take().unwrap();
    thread.join().unwrap();
}

#[tokio::test]
async fn a_slot_that_was_asked_for_and_not_taken_is_free() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let _owner = SharedStore::open(options(folder.path())).unwrap();
    let guest = SharedStore::open(options(folder.path())).unwrap();
    {
        let asking = guest.reader_slot(1, 1);
        tokio::pin!(asking);
        // The call is sent, and its caller goes away.
        let polled = std::future::poll_fn(|context| std::task::Poll::Ready(asking.as_mut().poll(context).is_pending()));
        assert!(polled.await);
    }
    assert!(guest.reader_slot(1, 1).await.unwrap().is_some());
}

#[tokio::test]
async fn slots_are_counted_over_take_overs_and_freed_under_the_next_owner() {
    let _limit = crate::testing::limit();
    while !slots_are_counted_over_a_take_over().await {}
}

/// Whether it was seen: a new owner gives the others a second to enter their readers, which this machine may have spent elsewhere.
async fn slots_are_counted_over_a_take_over() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let [first, second] = [0, 1].map(|_| SharedStore::open(options(folder.path())).unwrap());
    let (of_first, of_second) = (first.reader_slot(1, 2).await.unwrap(), second.reader_slot(1, 2).await.unwrap());
    assert!(of_first.is_some() && of_second.is_some());
    assert!(first.reader_slot(1, 2).await.unwrap().is_none(), "two run");
    let closed = std::time::Instant::now();
    owner.close().await.unwrap();
    // Both are counted, whichever of them owns the file now, and also while the new owner does not have both yet.
    for store in [&first, &second] {
        if store.reader_slot(1, 2).await.unwrap().is_some() {
            assert!(closed.elapsed() > Duration::from_secs(1), "two run");
            return false;
        }
    }
    drop((of_first, of_second));
    // New readers start once all have had the time to enter theirs.
    let mut taken = Vec::new();
    let until_both = async {
        while taken.len() < 2 {
            for store in [&first, &second] {
                taken.extend(store.reader_slot(1, 2).await.unwrap());
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), until_both).await.expect("both are free again");
    assert!(first.reader_slot(1, 2).await.unwrap().is_none(), "two run again");
    true
}

#[tokio::test]
async fn a_close_waits_for_the_opening_that_is_under_way() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let guest = SharedStore::open(options(folder.path())).unwrap();
    owner.close().await.unwrap();
    // The guest may be anywhere between losing its owner and owning the file.
    guest.close().await.unwrap();
    SqliteStore::open(options(folder.path())).unwrap().close().await.unwrap();
    assert!(!owner::is_named(&folder.path().join("a.db")));
}

fn statement_of(text: &str) -> SqlStatement {
    SqlStatement { text: text.to_owned(), params: Vec::new(), expected_rows: None }
}

/// A statement that does not end.
fn endless() -> SqlStatement {
    statement_of("with recursive c(n) as (select 1 union all select n + 1 from c) select count(*) from c")
}

fn dialog() -> Verb {
    Verb::BeginDialog(BeginDialog {
        from_service: "a".into(),
        to_service: "b".into(),
        addressee: Addressee::Anywhere,
        contract: Some("C".into()),
        related: Relation::None,
        lifetime_seconds: None,
        encryption: false,
    })
}

fn definitions(text: &str) -> Verb {
    Verb::Define(crate::catalog::ddl::parse(text).unwrap().into_iter().map(|parsed| parsed.definition).collect())
}

#[tokio::test]
async fn a_query_without_end_holds_up_no_other_call_of_its_process() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let guest = SharedStore::open(options(folder.path())).unwrap();
    let querying = tokio::spawn({
        let guest = guest.clone();
        async move { guest.query(endless()).await }
    });
    for round in 0..20 {
        // Each answer has newer definitions, which the guest reads before it hands the answer over.
        owner.submit(vec![definitions(&format!("CREATE QUEUE q{round}"))]).await.unwrap();
        let done = tokio::time::timeout(Duration::from_secs(30), guest.submit(Vec::new())).await;
        done.expect("the call ends while the query runs").unwrap();
        assert!(guest.catalog().queue(&format!("q{round}")).is_some());
    }
    assert!(!querying.is_finished());
    querying.abort();
}

#[tokio::test]
async fn messages_that_fit_in_no_frame_go_back_with_their_transaction() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let guest = SharedStore::open(options(folder.path())).unwrap();
    owner.submit(vec![definitions(SERVICES)]).await.unwrap();
    let Outcome::Began { handle, .. } = owner.submit(vec![dialog()]).await.unwrap()[0] else { panic!("no dialog") };
    for letter in [b'a', b'b', b'c'] {
        let body = Some(Arc::new(vec![letter; frame::MAX_FRAME_BYTES / 2]));
        owner.submit(vec![Verb::Send { handles: vec![handle], message_type: None, body, trace: None }]).await.unwrap();
    }
    let receive = |top| Verb::Receive { queue: "q".into(), top, from: ReceiveFrom::Any };
    let is_on = "select is_receive_enabled from dialoq_service_queue where name = 'q'";
    let is_on = || async {
        // Answered when what was ordered before is written.
        owner.submit(Vec::new()).await.unwrap();
        owner.query(statement_of(is_on)).await.unwrap().rows[0].values[0].clone()
    };
    for _ in 0..4 {
        let mut tx = guest.begin(Seen::default()).await.unwrap();
        tx.execute(receive(None)).await.unwrap_err();
        // Once this is answered, the messages are back.
        let _ = tx.rollback(None).await;
    }
    assert_eq!(is_on().await, SqlValue::Integer(1));
    let mut tx = guest.begin(Seen::default()).await.unwrap();
    let too_long = tx.execute(receive(None)).await.unwrap_err();
    assert_eq!(too_long.code(), Code::OUT_OF_RANGE, "{too_long}");
    let ended = tx.commit().await.unwrap_err();
    assert_eq!(ended.code(), Code::TRANSACTION_ENDED, "a commit would remove messages that were never seen: {ended}");
    assert_eq!(is_on().await, SqlValue::Integer(0), "five rollbacks in a row");
    owner.submit(vec![definitions("ALTER QUEUE q WITH STATUS = ON")]).await.unwrap();
    let given = guest.submit(vec![receive(Some(1))]).await.unwrap();
    let Outcome::Received(messages) = &given[0] else { panic!("{given:?}") };
    assert_eq!(messages[0].message_body.as_ref().map(|body| body[0]), Some(b'a'));
    // Outside a transaction the messages are dropped, and counted as such.
    let too_long = guest.submit(vec![receive(None)]).await.unwrap_err();
    assert_eq!(too_long.code(), Code::OUT_OF_RANGE, "{too_long}");
}

/// A connection to an owner that the test plays.
async fn connected(folder: &Path) -> (interprocess::local_socket::tokio::Stream, Arc<client::Client>) {
    use interprocess::local_socket::traits::tokio::Listener as _;
    SqliteStore::open(options(folder)).unwrap().close().await.unwrap();
    let path = folder.join("a.db");
    let listening = socket::listen(&path).unwrap();
    let (owner, stream) = tokio::join!(
        async {
            let owner = listening.listener.accept().await.unwrap();
            socket::greet_client(&owner, Durability::Full).await.unwrap();
            owner
        },
        socket::connect(&path, Durability::Full)
    );
    let mut given = options(folder);
    given.create_if_missing = false;
    let reader = crate::store::sqlite::read_only::ReadOnlyStore::open(given.clone()).unwrap();
    let client = client::Client::new(stream.unwrap(), given.board.clone(), reader, Arc::default()).unwrap();
    (owner, client)
}

async fn tell(other: &interprocess::local_socket::tokio::Stream, frame: &impl Serialize) {
    use tokio::io::AsyncWriteExt;
    let mut bytes = Vec::new();
    frame::encode(frame, &mut bytes).unwrap();
    let mut other = other;
    other.write_all(&bytes).await.unwrap();
}

/// The owner waits for the end of the connection before it closes its store.
#[tokio::test]
async fn a_guest_ends_the_connection_to_an_owner_that_closes_after_its_last_transaction() {
    let _limit = crate::testing::limit();
    for is_refused in [false, true] {
        let folder = tempfile::tempdir().unwrap();
        let (owner, client) = connected(folder.path()).await;
        let running = tokio::spawn({
            let client = client.clone();
            async move { client.run().await }
        });
        let mut sent = FrameBuffer::default();
        let mut tx = RemoteTx::new(client.clone(), Seen::always());
        let (done, id) = tokio::join!(tx.execute(dialog()), async {
            let id = until_request(&owner, &mut sent).await;
            tell(&owner, &FromOwner::Closing).await;
            client.owner_closes().await;
            let refusal = || Err(owner_gone().into());
            let answer = if is_refused { refusal() } else { Ok(Answer::Outcomes(vec![Outcome::Group(None).into()])) };
            tell(&owner, &FromOwner::Answer { id, definitions: 0, answer }).await;
            id
        });
        assert_eq!(done.is_err(), is_refused, "{done:?}");
        if !is_refused {
            let other = RemoteTx::new(client.clone(), Seen::always()).execute(dialog()).await;
            assert_eq!(other.unwrap_err().code(), Code::OWNER_GONE, "another one begins with the next owner");
            let commit: Box<dyn StoreTx> = Box::new(tx);
            let (done, _) = tokio::join!(commit.commit(), async {
                let commit = until_request(&owner, &mut sent).await;
                assert_ne!(commit, id);
                tell(&owner, &FromOwner::Answer { id: commit, definitions: 0, answer: Ok(Answer::Done) }).await;
            });
            done.unwrap();
        }
        running.await.unwrap();
    }
}

/// A call that is made after the owner has said that it closes, while an earlier one is not answered yet.
#[tokio::test]
async fn a_call_after_the_owner_has_said_that_it_closes_is_not_sent() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let (owner, client) = connected(folder.path()).await;
    let running = tokio::spawn({
        let client = client.clone();
        async move { client.run().await }
    });
    let earlier = tokio::spawn({
        let client = client.clone();
        async move { client.call(&Call::Submit(Vec::new())).await.map(drop) }
    });
    let mut sent = FrameBuffer::default();
    until_request(&owner, &mut sent).await;
    tell(&owner, &FromOwner::Closing).await;
    client.owner_closes().await;
    let call = Call::Submit(Vec::new());
    let later = tokio::time::timeout(Duration::from_secs(30), client.call(&call)).await;
    let later = later.expect("it is refused by itself");
    assert_eq!(later.unwrap_err().code(), Code::STORE_CLOSED, "the next owner is asked");
    drop(owner);
    assert_eq!(earlier.await.unwrap().unwrap_err().code(), Code::OWNER_GONE, "what became of it is unknown");
    running.await.unwrap();
}

/// An error that can be tried again would have the caller do it twice.
#[tokio::test]
async fn a_commit_whose_owner_ends_before_it_answers_is_unknown() {
    let _limit = crate::testing::limit();
    for is_sent in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let (owner, client) = connected(folder.path()).await;
        let running = tokio::spawn({
            let client = client.clone();
            async move { client.run().await }
        });
        let mut sent = FrameBuffer::default();
        let mut tx = RemoteTx::new(client.clone(), Seen::always());
        let (done, ()) = tokio::join!(tx.execute(dialog()), async {
            let id = until_request(&owner, &mut sent).await;
            let answer = Ok(Answer::Outcomes(vec![Outcome::Group(None).into()]));
            tell(&owner, &FromOwner::Answer { id, definitions: 0, answer }).await;
        });
        done.unwrap();
        let commit: Box<dyn StoreTx> = Box::new(tx);
        let error = match is_sent {
            true => {
                let ends = async {
                    until_request(&owner, &mut sent).await;
                    drop(owner);
                };
                let (done, ()) = tokio::join!(commit.commit(), ends);
                running.await.unwrap();
                done.unwrap_err()
            }
            false => {
                drop(owner);
                running.await.unwrap();
                commit.commit().await.unwrap_err()
            }
        };
        let expected = if is_sent { (Code::COMMIT_UNKNOWN, false) } else { (Code::OWNER_GONE, true) };
        assert_eq!((error.code(), error.is_retryable()), expected, "sent: {is_sent}; {error}");
    }
}

/// Whatever is no socket is not replaced by one.
#[cfg(unix)]
#[tokio::test]
async fn a_file_that_has_the_path_of_the_socket_stays() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let database = folder.path().join("a.db");
    let place = folder.path().join("a.db.socket");
    drop(socket::listen(&database).unwrap());
    std::fs::write(&place, "precious").unwrap();
    let refused = socket::listen(&database).map(drop).unwrap_err();
    assert!(refused.to_string().contains("a.db.socket"), "{refused}");
    assert_eq!(std::fs::read_to_string(&place).unwrap(), "precious");
    std::fs::rename(&place, folder.path().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("elsewhere", &place).unwrap();
    socket::listen(&database).map(drop).unwrap_err();
    assert!(place.is_symlink());
    std::fs::remove_file(&place).unwrap();
    // One that a killed owner has left.
    drop(std::os::unix::net::UnixListener::bind(&place).unwrap());
    socket::listen(&database).unwrap();
    let old = socket::listen(&database).unwrap();
    std::fs::remove_file(&place).unwrap();
    assert!(!old.is_current());
    let new = socket::listen(&database).unwrap();
    drop(old);
    assert!(new.is_current() && place.exists(), "it belongs to another owner");
}

/// Waits until a unit or a step of a transaction has arrived whole, and gives the id of the call.
async fn until_request(stream: &interprocess::local_socket::tokio::Stream, buffer: &mut FrameBuffer) -> u64 {
    use tokio::io::AsyncReadExt;
    loop {
        match buffer.next::<Request>().unwrap() {
            Some(Request { id, call: Call::Submit(_) | Call::InTx { .. } }) => return id,
            Some(_) => {}
            None => assert_ne!((&mut &*stream).read_buf(buffer.room()).await.unwrap(), 0, "the guest is there"),
        }
    }
}

/// More transactions than tasks that the runtime runs between two looks at what closes the store.
#[tokio::test]
async fn the_rollbacks_of_a_guest_count_although_its_owner_closes() {
    let _limit = crate::testing::limit();
    use tokio::io::AsyncReadExt;
    const TRANSACTIONS: usize = 300;
    let folder = tempfile::tempdir().unwrap();
    let owner = SharedStore::open(options(folder.path())).unwrap();
    let all = "CREATE CONTRACT [C] ([DEFAULT] SENT BY ANY); CREATE QUEUE [q] WITH RETRY (MAX_ATTEMPTS = 9, DELAY_MS = 0); \
               CREATE SERVICE [a] ON QUEUE [q]; CREATE SERVICE [b] ON QUEUE [q] ([C])";
    owner.submit(vec![definitions(all)]).await.unwrap();
    for _ in 0..TRANSACTIONS {
        let began = owner.submit(vec![dialog()]).await.unwrap().remove(0);
        let Outcome::Began { handle, .. } = began else { panic!("{began:?}") };
        let send = Verb::Send { handles: vec![handle], message_type: None, body: None, trace: None };
        owner.submit(vec![send]).await.unwrap();
    }
    let guest = socket::connect(&database_in(folder.path()), Durability::Full).await.unwrap();
    let mut arrived = FrameBuffer::default();
    let mut next = async || loop {
        match arrived.next::<FromOwner>().unwrap() {
            Some(frame) => return frame,
            None => assert_ne!((&mut &guest).read_buf(arrived.room()).await.unwrap(), 0, "the owner is there"),
        }
    };
    for tx in 1..=TRANSACTIONS as u64 {
        let step = TxStep::Execute(Verb::Receive { queue: "q".into(), top: None, from: ReceiveFrom::Any });
        tell(&guest, &Request { id: tx, call: Call::InTx { tx, is_seen: false, step } }).await;
        let FromOwner::Answer { answer: Ok(Answer::Outcomes(_)), .. } = next().await else { panic!() };
    }
    let closing = tokio::spawn({
        let owner = owner.clone();
        async move { owner.close().await }
    });
    while !matches!(next().await, FromOwner::Closing) {}
    drop(guest);
    closing.await.unwrap().unwrap();
    let store = SqliteStore::open(options(folder.path())).unwrap();
    let counted =
        store.query(statement_of("select * from dialoq_conversation_endpoint where rollbacks = 1")).await.unwrap();
    assert_eq!(counted.rows.len(), TRANSACTIONS);
}
