//! A server that the test plays: the test gives the answers, and reads the list of requests.

use crate::error::{Code, Error, Result};
use crate::store::database::DatabaseStore;
use crate::store::database::dialect::{Dialect, Install, Reads};
use crate::store::database::link::{Arg, Call, Column, Driver, Failure, Fate, Link, Linked, Listener};
use crate::store::{
    BoxFuture, DoctorTexts, InspectTexts, OpenOptions, SqlRow, SqlRows, SqlStatement, SqlValue, StatusTexts,
    StoreTexts, WorkTexts,
};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore, mpsc};
use uuid::Uuid;

static DIALECT: Dialect = Dialect {
    name: "played",
    schema: &[],
    logic: &[],
    drop: "",
    has_batches: false,
    has_job_batches: false,
    has_dialog_batches: false,
    notes_later: true,
    has_claims: false,
    corrects_rights: false,
    install: Install {
        schema_state: "schema_state",
        version: "version",
        lock: "",
        begin: "",
        clear: "",
        script: "",
        call: "",
        stop: "",
    },
    reads: Reads {
        broker: "broker",
        message_types: "message_types",
        service_contracts: "",
        service_contract_message_usages: "",
        service_queues: "service_queues",
        services: "",
        service_contract_usages: "",
        conversation_priorities: "",
        xml_schema_collections: "",
        event_notifications: "",
        work_queues: "",
        work_schedules: "",
    },
    texts: StoreTexts {
        status: StatusTexts { broker: "", queues: "", monitors: "", levels: "", conversations: "", transmission: "" },
        doctor: DoctorTexts {
            stopped_clock: "",
            foreign_privileges: "",
            data_writers: "",
            disabled_queues: "",
            dead_letters: "",
            quarantined: "",
            never_ended: "",
            waiting_messages: "",
            undelivered: "",
            without_lifetime: "",
            work_queues: "",
            overdue_schedules: "",
        },
        work: WorkTexts { queues: "", jobs: "", job_body: "", finished: "", finish: "", statistics: "", schedules: "" },
        inspect: InspectTexts {
            deliveries: "",
            errors: "",
            dead_letters: "",
            messages: "",
            undelivered: "",
            endpoints: "",
        },
    },
    lock_holder: "",
    receive_holds: "",
};

/// A queue that exists.
pub(super) const QUEUE: i32 = 70_000;

type Play = Box<dyn FnMut(&str, &[Arg<'_>]) -> Option<Linked<Vec<SqlRow>>> + Send>;

/// The server, as the test plays it.
pub(super) struct Stage {
    /// The requests in order: names of calls, with the number of rows of those that pass rows.
    asked: Mutex<Vec<String>>,
    play: Mutex<Play>,
    /// A permit per verb, or first savepoint, that may be answered.
    pub(super) gate: Semaphore,
    /// A permit per rollback that may be answered.
    pub(super) rollbacks: Semaphore,
    /// The next call or read of that name gets no answer before it resumes.
    pub(super) hangs: Mutex<Option<&'static str>>,
    pub(super) resumes: Notify,
    /// The server takes no new connection.
    pub(super) is_full: AtomicBool,
    /// The server has ended all sessions.
    pub(super) has_ended_sessions: AtomicBool,
    pub(super) version: Mutex<i64>,
    received: Mutex<Option<mpsc::UnboundedReceiver<String>>>,
    payloads: mpsc::UnboundedSender<String>,
}

impl Stage {
    pub(super) fn new() -> Arc<Self> {
        let (payloads, received) = mpsc::unbounded_channel();
        Arc::new(Self {
            asked: Mutex::default(),
            play: Mutex::new(Box::new(|_, _| None)),
            gate: Semaphore::new(Semaphore::MAX_PERMITS),
            rollbacks: Semaphore::new(Semaphore::MAX_PERMITS),
            hangs: Mutex::default(),
            resumes: Notify::new(),
            is_full: AtomicBool::default(),
            has_ended_sessions: AtomicBool::default(),
            version: Mutex::new(1),
            received: Mutex::new(Some(received)),
            payloads,
        })
    }

    pub(super) async fn open(self: &Arc<Self>) -> Arc<DatabaseStore> {
        let options = OpenOptions::default().create(false);
        let driver = Arc::new(Played(self.clone()));
        DatabaseStore::open_with(driver, options, Duration::from_secs(3600)).await.expect("the stage is set")
    }

    /// Sets the answers from now on; `None` is the usual answer.
    pub(super) fn play(&self, play: impl FnMut(&str, &[Arg<'_>]) -> Option<Linked<Vec<SqlRow>>> + Send + 'static) {
        *self.play.lock().unwrap() = Box::new(play);
    }

    /// A notification of another process.
    pub(super) fn notify(&self, payload: &str) {
        self.payloads.send(payload.to_owned()).expect("the listener is there");
    }

    /// The requests so far whose names begin like one of these.
    pub(super) fn asked(&self, of: &[&str]) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|name| of.iter().any(|of| name.starts_with(of))).cloned().collect()
    }

    /// Lets all tasks run until `times` requests have a name that begins so.
    pub(super) async fn until_asked(&self, of: &str, times: usize) {
        while self.asked(&[of]).len() < times {
            tokio::task::yield_now().await;
        }
    }

    fn note(&self, what: impl Into<String>) {
        self.asked.lock().unwrap().push(what.into());
    }

    fn usual(call: &Call<'_>) -> Vec<SqlRow> {
        match call.name {
            "tick" => {
                vec![row([
                    ("did", 0.into()),
                    ("due_at", SqlValue::Null),
                    ("notices", SqlValue::Null),
                    ("has_due_schedules", 0.into()),
                ])]
            }
            "poll" => vec![row([
                ("catalog_version", 1.into()),
                ("due_at", SqlValue::Null),
                ("ready_queues", SqlValue::Null),
                ("has_locked", false.into()),
            ])],
            "claim_unit" => vec![row([("is_new", true.into()), ("done_at", SqlValue::Integer(7))])],
            _ => Vec::new(),
        }
    }
}

pub(super) fn row<const N: usize>(columns: [(&str, SqlValue); N]) -> SqlRow {
    let (names, values): (Vec<_>, Vec<_>) = columns.into_iter().map(|(name, value)| (name.to_owned(), value)).unzip();
    SqlRow { columns: names.into(), values }
}

/// A row of RECEIVE.
pub(super) fn received(item: i64, text: &str) -> SqlRow {
    let id = || SqlValue::from(Uuid::from_u128(7));
    row([
        ("item", item.into()),
        ("status", 1.into()),
        ("priority", 5.into()),
        ("queuing_order", 1.into()),
        ("conversation_group_id", id()),
        ("conversation_handle", id()),
        ("message_sequence_number", 0.into()),
        ("service_name", "T".into()),
        ("service_id", 70_001.into()),
        ("service_contract_name", "C".into()),
        ("service_contract_id", 70_002.into()),
        ("message_type_name", "Text".into()),
        ("message_type_id", 70_003.into()),
        ("validation", "N".into()),
        ("message_body", text.as_bytes().into()),
        ("message_id", id()),
        ("message_enqueue_time", 0.into()),
        ("trace", SqlValue::Null),
        ("notices", SqlValue::Null),
    ])
}

/// A failure of that code and fate.
pub(super) fn failure(code: Code, fate: Fate) -> Failure {
    let is_link_usable = !matches!(code, Code::SERVER_UNREACHABLE | Code::COMMIT_UNKNOWN);
    Failure { error: Error::new(code, "as the test asked"), fate, is_link_usable }
}

struct Played(Arc<Stage>);

impl Driver for Played {
    fn dialect(&self) -> &'static Dialect {
        &DIALECT
    }

    fn take(&self) -> BoxFuture<'_, Result<Box<dyn Link>>> {
        Box::pin(async { Ok(Box::new(PlayedLink(self.0.clone())) as Box<dyn Link>) })
    }

    fn dedicated(&self) -> BoxFuture<'_, Result<Box<dyn Link>>> {
        if self.0.is_full.load(SeqCst) {
            return Box::pin(async { Err(Error::new(Code::SERVER_UNREACHABLE, "too many connections")) });
        }
        self.take()
    }

    fn listen(&self) -> BoxFuture<'_, Result<Option<Box<dyn Listener>>>> {
        Box::pin(async {
            let received = self.0.received.lock().unwrap().take().expect("listen is called once");
            Ok(Some(Box::new(PlayedListener(received)) as Box<dyn Listener>))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.0.note("close");
        Box::pin(async {})
    }

    fn wait_for_ends(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

struct PlayedListener(mpsc::UnboundedReceiver<String>);

impl Listener for PlayedListener {
    fn next(&mut self) -> BoxFuture<'_, Result<Vec<String>>> {
        Box::pin(async {
            let first = self.0.recv().await.ok_or_else(Error::closed)?;
            Ok(std::iter::once(first).chain(std::iter::from_fn(|| self.0.try_recv().ok())).collect())
        })
    }

    fn stop(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

struct PlayedLink(Arc<Stage>);

impl PlayedLink {
    fn control(&self, what: String) -> BoxFuture<'_, Linked<()>> {
        self.0.note(what.clone());
        Box::pin(async move {
            let gate = match what.as_str() {
                "hold_locks" => Some(&self.0.gate),
                "rollback" => Some(&self.0.rollbacks),
                _ => None,
            };
            if let Some(gate) = gate {
                gate.acquire().await.expect("the gate stands").forget();
            }
            let played = (self.0.play.lock().unwrap())(&what, &[]);
            played.unwrap_or_else(|| Ok(Vec::new())).map(drop)
        })
    }
}

impl Link for PlayedLink {
    fn call<'a>(&'a mut self, call: Call<'a>) -> BoxFuture<'a, Linked<Vec<SqlRow>>> {
        Box::pin(async move {
            let rows = call.args.iter().find_map(|arg| match arg {
                Arg::Rows { columns, .. } => columns.first().map(|column| match column {
                    Column::Uuid(values) => values.len(),
                    Column::BigInt(values) => values.len(),
                    Column::Int(values) => values.len(),
                    _ => 0,
                }),
                _ => None,
            });
            self.0.note(rows.map_or(call.name.to_owned(), |rows| format!("{} {rows}", call.name)));
            if self.0.hangs.lock().unwrap().take_if(|name| *name == call.name).is_some() {
                self.0.resumes.notified().await;
            }
            if call.name.starts_with("send") || call.name.starts_with("receive") {
                self.0.gate.acquire().await.expect("the gate stands").forget();
            }
            let played = (self.0.play.lock().unwrap())(call.name, &call.args);
            played.unwrap_or_else(|| Ok(Stage::usual(&call)))
        })
    }

    fn read<'a>(&'a mut self, text: &'static str) -> BoxFuture<'a, Linked<Vec<SqlRow>>> {
        self.0.note(format!("read {text}"));
        let rows = match text {
            "broker" => vec![row([
                ("service_broker_guid", Uuid::from_u128(1).into()),
                ("is_broker_enabled", true.into()),
                ("is_honor_broker_priority_on", false.into()),
                ("next_object_id", 80_000.into()),
                ("catalog_version", (*self.0.version.lock().unwrap()).into()),
            ])],
            "schema_state" => vec![row([
                ("has_schema", true.into()),
                ("has_installed", true.into()),
                ("has_roles", true.into()),
                ("is_marked", true.into()),
                ("objects", 0.into()),
                ("missing_to_use", SqlValue::Null),
                ("missing_to_install", SqlValue::Null),
                ("missing_to_remove", SqlValue::Null),
                ("distrust", SqlValue::Null),
                ("user_name", "clerk".into()),
                ("database_name", "played".into()),
            ])],
            "version" => vec![row([
                ("schema_version", 0.into()),
                ("logic_hash", "another".into()),
                ("installed_by", "dialoq 999.0.0".into()),
            ])],
            "message_types" => vec![row([
                ("message_type_id", 70_003.into()),
                ("name", "Xml".into()),
                ("owner", SqlValue::Null),
                ("validation", "X".into()),
                ("xml_schema_collection", SqlValue::Null),
                ("json_schema", SqlValue::Null),
                ("is_dropped", false.into()),
            ])],
            "service_queues" => vec![row([
                ("queue_id", QUEUE.into()),
                ("name", "Q".into()),
                ("is_receive_enabled", true.into()),
                ("is_enqueue_enabled", true.into()),
                ("is_retention_enabled", false.into()),
                ("is_poison_message_handling_enabled", true.into()),
                ("is_poison_quarantine_enabled", false.into()),
                ("is_activation_enabled", SqlValue::Null),
                ("retry_max_attempts", SqlValue::Null),
                ("off_by", SqlValue::Null),
            ])],
            _ => Vec::new(),
        };
        let hangs = self.0.hangs.lock().unwrap().take_if(|name| *name == text).is_some();
        Box::pin(async move {
            if hangs {
                self.0.resumes.notified().await;
            }
            Ok(rows)
        })
    }

    fn query<'a>(&'a mut self, _: &'a SqlStatement) -> BoxFuture<'a, Linked<SqlRows>> {
        Box::pin(async { Ok(SqlRows::default()) })
    }

    fn execute<'a>(&'a mut self, sql: &'a SqlStatement) -> BoxFuture<'a, Linked<u64>> {
        self.0.note(format!("execute {}", sql.text));
        let played = (self.0.play.lock().unwrap())("execute", &[]);
        Box::pin(async { played.map_or(Ok(1), |played| played.map(|_| 1)) })
    }

    fn script<'a>(&'a mut self, _: &'a str) -> BoxFuture<'a, Linked<()>> {
        Box::pin(async { Ok(()) })
    }

    fn begin(&mut self) -> BoxFuture<'_, Linked<()>> {
        self.control("begin".to_owned())
    }

    fn commit(&mut self) -> BoxFuture<'_, Linked<()>> {
        self.control("commit".to_owned())
    }

    fn is_closed(&self) -> bool {
        self.0.has_ended_sessions.load(SeqCst)
    }

    fn rollback(&mut self) -> BoxFuture<'_, Linked<()>> {
        self.control("rollback".to_owned())
    }

    fn savepoint(&mut self, number: u32) -> BoxFuture<'_, Linked<()>> {
        self.control(format!("savepoint {number}"))
    }

    fn release(&mut self, number: u32) -> BoxFuture<'_, Linked<()>> {
        self.control(format!("release {number}"))
    }

    fn rollback_to(&mut self, number: u32) -> BoxFuture<'_, Linked<()>> {
        self.control(format!("rollback_to {number}"))
    }

    fn hold_locks(&mut self) -> BoxFuture<'_, Linked<()>> {
        self.control("hold_locks".to_owned())
    }

    fn keep_locks(&mut self) -> BoxFuture<'_, Linked<()>> {
        self.control("keep_locks".to_owned())
    }
}
