//! Database files in which rows or bytes were changed by something that is not Dialoq.
//!
//! A kept input is a list of SQL statements, or of lines `byte N = M` and `cut at N`, that are done to a closed database.

use crate::harness::text;
use crate::mutate::Random;
use dialoq::testing::START;
use dialoq::{Act, Broker, Clock, Code, ConversationHandle, Error, Level, OpenOptions, Result, SqlRow};
use rusqlite::{Connection, OpenFlags};
use std::fmt::Write;
use std::path::Path;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;
use uuid::Uuid;

const HOUR: Duration = Duration::from_secs(3600);

/// A step that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(30);

const DEFINITIONS: &str = r#"
    CREATE XML SCHEMA COLLECTION notes AS
        N'<s:schema xmlns:s="http://www.w3.org/2001/XMLSchema"><s:element name="note" type="s:date"/></s:schema>';
    CREATE MESSAGE TYPE plain; CREATE MESSAGE TYPE nothing VALIDATION = EMPTY;
    CREATE MESSAGE TYPE xml VALIDATION = WELL_FORMED_XML;
    CREATE MESSAGE TYPE note VALIDATION = VALID_XML WITH SCHEMA COLLECTION notes;
    CREATE MESSAGE TYPE small VALIDATION = JSON SCHEMA N'{"maximum": 9}';
    CREATE CONTRACT talk (plain SENT BY ANY, nothing SENT BY INITIATOR, xml SENT BY TARGET, note SENT BY ANY, small SENT BY ANY);
    CREATE QUEUE asks; CREATE QUEUE answers WITH RETENTION = ON; CREATE QUEUE off; CREATE QUEUE poison WITH
        POISON_MESSAGE_HANDLING (QUARANTINE = ON), RETRY (MAX_ATTEMPTS = 3, DELAY_MS = 10, THEN = END_WITH_ERROR);
    CREATE QUEUE active WITH ACTIVATION (STATUS = ON, PROCEDURE_NAME = work, MAX_QUEUE_READERS = 2, EXECUTE AS SELF);
    CREATE SERVICE asker ON QUEUE asks (talk); CREATE SERVICE answerer ON QUEUE answers (talk, [DEFAULT]);
    CREATE SERVICE sleeper ON QUEUE off (talk); CREATE SERVICE poisoned ON QUEUE poison (talk);
    CREATE SERVICE active ON QUEUE active (talk); CREATE SERVICE watcher ON QUEUE asks
        ([http://schemas.microsoft.com/SQL/Notifications/PostEventNotification]);
    CREATE BROKER PRIORITY high FOR CONVERSATION SET (CONTRACT_NAME = talk, LOCAL_SERVICE_NAME = answerer, PRIORITY_LEVEL = 9);
    CREATE BROKER PRIORITY far FOR CONVERSATION SET (REMOTE_SERVICE_NAME = 'nowhere', PRIORITY_LEVEL = 2);
    CREATE EVENT NOTIFICATION disabled ON QUEUE answers FOR BROKER_QUEUE_DISABLED TO SERVICE 'watcher', 'current database';
"#;

/// Reads a database with other rows: either the broker opens and goes on but for what was changed, or it says why not and
/// changes nothing.
pub(crate) fn check_rows(input: &[u8]) {
    check(input, true);
}

/// Reads a file with other bytes: the broker may be lost over pages that SQLite cannot read, but it says so.
pub(crate) fn check_bytes(input: &[u8]) {
    check(input, false);
}

fn check(input: &[u8], is_readable: bool) {
    // One at a time, so that a panic of a store's own thread belongs to the input that is checked.
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("broker.db");
    std::fs::write(&file, untouched()).expect("a file");
    change(&file, &text(input));
    let before = rows(&file);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let clock = Clock::manual(START);
        clock.advance(HOUR);
        let broker = match limited("opening", open(&file, &clock)).await {
            Ok(broker) => broker,
            Err(error) => {
                let known = [Code::STORE_FOREIGN, Code::STORE_DAMAGED, Code::STORE_NEWER];
                // SQLite only reads a file whose header names a later format.
                let of_bytes = [Code::STORE_IO, Code::STORE_READ_ONLY].contains(&error.code());
                assert!(known.contains(&error.code()) || !is_readable && of_bytes, "{error:?}");
                assert_eq!(rows(&file), before, "an opening that was refused wrote something: {error}");
                return;
            }
        };
        if !is_readable {
            let read = broker.query("SELECT count(*) FROM queue_messages", ());
            let _any_outcome = limited("reading", read).await;
            let _any_outcome = limited("sending", broker.begin_dialog("asker", "answerer")).await;
            let _any_outcome = limited("closing", broker.close()).await;
            return;
        }
        exercise(&broker, &clock).await;
        limited("closing", broker.close()).await.expect("it can be closed");
        drop(broker);
        let broker = limited("opening", open(&file, &clock)).await.expect("what was open once can be opened again");
        limited("closing", broker.close()).await.expect("it can be closed");
    });
}

/// Uses everything there is, then a conversation of its own, which must be as good as any.
async fn exercise(broker: &Broker, clock: &Clock) {
    let mut handles = Vec::new();
    let endpoints = broker.query("SELECT conversation_handle FROM sys_conversation_endpoints", ());
    if let Some(rows) = allowed("the endpoints", limited("reading", endpoints).await) {
        let read = |row: &SqlRow| row.get::<Vec<u8>>("conversation_handle").ok();
        let ids = rows.rows.iter().filter_map(read).filter_map(|bytes| Uuid::from_slice(&bytes).ok());
        handles.extend(ids.map(ConversationHandle));
    }
    let queues: Vec<String> = broker.catalog().queues.values().map(|queue| queue.name.to_string()).collect();
    for round in 0..3 {
        for queue in &queues {
            for _ in 0..4 {
                match allowed(queue, limited("receiving", broker.receive(queue.as_str())).await) {
                    Some(Some(batch)) => handles.extend(batch.iter().map(|message| message.conversation_handle)),
                    _ => break,
                }
            }
            let tx = limited("beginning", broker.begin()).await.expect("a transaction begins");
            allowed(queue, limited("receiving", tx.receive(queue.as_str())).await);
            allowed(queue, limited("rolling back", tx.rollback()).await);
        }
        handles.sort();
        handles.dedup();
        for (place, handle) in handles.iter().enumerate() {
            allowed("SEND", limited("sending", broker.send(*handle, "plain", "x")).await);
            allowed("the status", limited("asking", broker.transmission_status(*handle)).await);
            allowed("the timer", limited("setting", broker.timer(*handle, Duration::from_secs(9))).await);
            allowed("the level", limited("setting", broker.reprioritise(*handle, Level::LOWEST)).await);
            match (place + round) % 4 {
                0 => drop(allowed("END", limited("ending", broker.end(*handle)).await)),
                1 => drop(allowed("END", limited("ending", broker.end_with_error(*handle, 7, "x")).await)),
                2 if round == 2 => drop(allowed("END", limited("ending", broker.end_with_cleanup(*handle)).await)),
                _ => {}
            }
        }
        clock.advance(HOUR);
    }
    allowed("the doctor", limited("asking", broker.doctor()).await);
    let mine = "CREATE QUEUE [of its own]; CREATE MESSAGE TYPE [of its own]; CREATE CONTRACT [of its own] ([of its own] SENT BY ANY);
        CREATE SERVICE [of its own] ON QUEUE [of its own] ([of its own])";
    if allowed("the definitions", limited("defining", broker.execute(mine)).await).is_none() {
        return;
    }
    let name = "of its own";
    let dialog = broker.begin_dialog(name, name).contract(name);
    let dialog = limited("beginning", dialog).await.expect("a new conversation begins");
    limited("sending", broker.send(dialog, name, "hello")).await.expect("a new conversation takes messages");
    let batch = limited("receiving", broker.receive(name)).await.expect("a new queue is received from");
    if !broker.catalog().settings.is_broker_enabled {
        return;
    }
    let batch = batch.expect("what was sent is there");
    assert_eq!(batch.first().body(), b"hello");
    limited("ending", broker.end(batch.first().handle())).await.expect("a new conversation ends");
}

async fn open(file: &Path, clock: &Clock) -> Result<Broker> {
    let url = format!("sqlite:{}", file.display());
    Broker::open_with(&url, OpenOptions::new().clock(clock.clone())).await
}

async fn limited<T>(what: &str, work: impl IntoFuture<Output = T>) -> T {
    match tokio::time::timeout(LIMIT, work.into_future()).await {
        Ok(done) => done,
        Err(_) => panic!("{what} did not end within {LIMIT:?}"),
    }
}

/// What was changed may be refused; the store may not be lost over it.
fn allowed<T>(what: &str, result: Result<T, Error>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let lost = [Code::STORE_POISONED, Code::STORE_IO, Code::STORE_CLOSED, Code::TRANSACTION_ENDED];
            assert!(!lost.contains(&error.code()), "{what}: {error:?}");
            None
        }
    }
}

/// A closed database with something of everything in it.
fn untouched() -> &'static [u8] {
    static MADE: OnceLock<Vec<u8>> = OnceLock::new();
    MADE.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("broker.db");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(fill(&file)).expect("the database is made");
        std::fs::read(&file).expect("the database is there")
    })
}

async fn fill(file: &Path) -> Result<()> {
    let clock = Clock::manual(START);
    let options = OpenOptions::new().clock(clock.clone()).ids(dialoq::IdSource::Counted(0));
    let broker = Broker::open_with(&format!("sqlite:{}", file.display()), options).await?;
    broker.execute(DEFINITIONS).await?;
    let mut dialogs = Vec::new();
    for to in ["answerer", "answerer", "answerer", "sleeper", "poisoned", "active", "nowhere", "answerer", "answerer"] {
        let dialog = broker.begin_dialog("asker", to).contract("talk").lifetime(100 * HOUR).await?;
        broker.send(dialog, "plain", "one").await?;
        broker.send(dialog, "small", "2").await?;
        dialogs.push(dialog);
    }
    broker.execute("ALTER QUEUE off WITH STATUS = OFF").await?;
    broker.send(dialogs[3], "plain", "waits").await?;
    for _ in 0..5 {
        let tx = broker.begin().await?;
        tx.receive("poison").await?;
        tx.rollback().await?;
    }
    let first = broker.receive("answers").await?.expect("messages wait").first().handle();
    broker.send(first, "plain", "an answer").await?;
    let second = broker.receive("answers").await?.expect("messages wait").first().handle();
    broker.end(second).await?;
    let third = broker.receive("answers").top(1).await?.expect("messages wait").first().handle();
    broker.end_with_error(third, 7, "a reason").await?;
    broker.timer(dialogs[7], 2 * HOUR).await?;
    let related = broker.begin_dialog("asker", "answerer").contract("talk").related_to(dialogs[7]).await?;
    broker.send(related, "note", "<note>2026-01-01</note>").await?;
    broker.end(dialogs[8]).await?;
    broker.close().await
}

fn connection(file: &Path) -> rusqlite::Result<Connection> {
    let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    connection.pragma_update(None, "foreign_keys", false)?;
    Ok(connection)
}

/// Does what an input says: first its statements, of which those that SQLite refuses are left out, then its bytes.
fn change(file: &Path, input: &str) {
    let is_bytes = |line: &&str| line.starts_with("byte ") || line.starts_with("cut at ");
    let statements: Vec<&str> = input.lines().filter(|line| !is_bytes(line)).collect();
    if !statements.is_empty() {
        let connection = connection(file).expect("the file is there");
        for statement in statements {
            let _ = connection.execute_batch(statement);
        }
        connection.close().expect("the file is closed");
    }
    let mut bytes = std::fs::read(file).expect("the file is there");
    for line in input.lines().filter(is_bytes) {
        let mut numbers = line.split(' ').filter_map(|word| word.parse::<usize>().ok());
        match (numbers.next(), numbers.next()) {
            (Some(place), Some(value)) => {
                let length = bytes.len().max(1);
                if let Some(byte) = bytes.get_mut(place % length) {
                    *byte = value as u8;
                }
            }
            (Some(place), None) => bytes.truncate(place % (bytes.len() + 1)),
            (None, _) => {}
        }
    }
    std::fs::write(file, bytes).expect("the file is written");
}

const TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name LIKE 'dialoq_%' ORDER BY name";

/// The rows of all tables as text; nothing if SQLite cannot read the file.
fn rows(file: &Path) -> Option<String> {
    let read = || -> rusqlite::Result<String> {
        let connection = connection(file)?;
        let mut all = String::new();
        for (table, columns) in tables(&connection)? {
            let columns: Vec<String> = columns.iter().map(|column| format!("quote({column})")).collect();
            let text = format!("SELECT concat_ws(',', {}) AS row FROM {table} ORDER BY row", columns.join(", "));
            let mut statement = connection.prepare(&text)?;
            let rows = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
            let _ = writeln!(all, "{table}: {}", rows.join("\n"));
        }
        Ok(all)
    };
    read().ok()
}

/// The tables with their columns.
fn tables(connection: &Connection) -> rusqlite::Result<Vec<(String, Vec<String>)>> {
    let list = |text: &str| -> rusqlite::Result<Vec<String>> {
        connection.prepare(text)?.query_map([], |row| row.get(0))?.collect()
    };
    let names = list(TABLES)?;
    names
        .into_iter()
        .map(|table| {
            let columns = list(&format!("SELECT name FROM pragma_table_info('{table}')"))?;
            Ok((table, columns))
        })
        .collect()
}

const VALUES: &[&str] = &[
    "NULL",
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "65536",
    "65540",
    "2147483647",
    "-2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "''",
    "'x'",
    "'CO'",
    "'CD'",
    "'DI'",
    "'DO'",
    "'ER'",
    "'SO'",
    "'S'",
    "'V'",
    "'asker'",
    "x''",
    "x'00'",
    "x'00000000000000000000000000000001'",
    "zeroblob(100000)",
    "char(0)",
    "hex(zeroblob(5000))",
    "1e300",
];

/// Statements that change, delete, copy and exchange values and rows.
pub(crate) fn make_rows(random: &mut Random, corpus: &[Vec<u8>]) -> Vec<u8> {
    static KNOWN: OnceLock<Vec<(String, Vec<String>)>> = OnceLock::new();
    let known = KNOWN.get_or_init(|| {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("broker.db");
        std::fs::write(&file, untouched()).expect("a file");
        tables(&connection(&file).expect("a database")).expect("tables")
    });
    let mut script = String::new();
    if random.once_in(4) && !corpus.is_empty() {
        script.push_str(&text(&corpus[random.below(corpus.len())]));
        script.push('\n');
    }
    for _ in 0..=random.below(4) {
        // Half of it hits what conversations and messages are made of.
        let likely: Vec<_> = known.iter().filter(|(table, _)| LIKELY.contains(&table.as_str())).collect();
        let (table, columns) =
            if random.once_in(2) { likely[random.below(likely.len())] } else { &known[random.below(known.len())] };
        let column = &columns[random.below(columns.len())];
        let other = &columns[random.below(columns.len())];
        let row = format!("(SELECT {column} FROM {table} LIMIT 1 OFFSET {})", random.below(12));
        let value = match random.below(4) {
            0 => format!("{column} + 1"),
            1 => format!("{column} - 1"),
            2 => row.clone(),
            _ => random.pick(VALUES).to_owned(),
        };
        let key = &columns[0];
        let place = format!("{key} = (SELECT {key} FROM {table} LIMIT 1 OFFSET {})", random.below(12));
        let _ = match random.below(8) {
            0 => writeln!(script, "DELETE FROM {table} WHERE {place};"),
            1 if random.once_in(4) => writeln!(script, "DELETE FROM {table};"),
            2 => writeln!(script, "UPDATE {table} SET {column} = {value};"),
            3 => {
                let copied = columns.iter().map(|name| match name {
                    name if name == key => format!("max({key}) + {}", random.below(3)),
                    name if name == other => value.clone(),
                    name => name.clone(),
                });
                let copied: Vec<String> = copied.collect();
                writeln!(script, "INSERT INTO {table} SELECT {} FROM {table};", copied.join(", "))
            }
            _ => writeln!(script, "UPDATE {table} SET {column} = {value} WHERE {place};"),
        };
    }
    script.into_bytes()
}

const LIKELY: [&str; 5] = [
    "dialoq_conversation_endpoint",
    "dialoq_queue_message",
    "dialoq_receive_sequence",
    "dialoq_retained_message",
    "dialoq_transmission",
];

/// Bytes that are others, and files that were cut off.
pub(crate) fn make_bytes(random: &mut Random, _: &[Vec<u8>]) -> Vec<u8> {
    let mut script = String::new();
    let length = untouched().len();
    if random.once_in(8) {
        let _ = writeln!(script, "cut at {}", random.below(length));
    }
    for _ in 0..=random.below(6) {
        // The beginnings of pages say what is in them.
        let place = match random.below(3) {
            0 => random.below(100),
            1 => random.below(length / 4096) * 4096 + random.below(64),
            _ => random.below(length),
        };
        let _ = writeln!(script, "byte {place} = {}", random.below(256));
    }
    script.into_bytes()
}
