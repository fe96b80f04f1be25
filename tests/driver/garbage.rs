//! Garbage for every argument of every function that a role may call, read from the catalog: a new function is covered the
//! day it is written.
//!
//! After each call the error has a documented code and the session is usable; after each function every other conversation
//! goes on. `DIALOQ_SEED` and `DIALOQ_CASES` as in `tests/support/src/seeds.rs`.

use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls};
use dialoq::protocol::definition::TakingTechnique;
use dialoq::{Act, Broker, Code, ConversationHandle};
use dialoq_test_support::seeds;

const SCRIPT: &str = "
    CREATE MESSAGE TYPE [//t/Word] VALIDATION = NONE; CREATE MESSAGE TYPE [//t/Xml] VALIDATION = WELL_FORMED_XML;
    CREATE MESSAGE TYPE [//t/Nothing] VALIDATION = EMPTY; CREATE MESSAGE TYPE [//t/Json] VALIDATION = JSON SCHEMA '{}';
    CREATE CONTRACT [//t/Talk] ([//t/Word] SENT BY ANY, [//t/Xml] SENT BY ANY, [//t/Nothing] SENT BY ANY,
        [//t/Json] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server; CREATE QUEUE stuck WITH STATUS = OFF;
    CREATE SERVICE [//t/Asker] ON QUEUE asker; CREATE SERVICE [//t/Server] ON QUEUE server ([//t/Talk]);
    CREATE SERVICE [//t/Stuck] ON QUEUE stuck ([//t/Talk]);
    CREATE QUEUE witness; CREATE SERVICE [//t/Witness] ON QUEUE witness ([//t/Talk]);
    CREATE WORK QUEUE jobs WITH ORDER = PRIORITY; CREATE WORK QUEUE limited WITH MAX_TAKEN_PER_KEY = 1, KEY_RATE_JOBS = 1000000;
    CREATE WORK SCHEDULE often ON WORK QUEUE jobs WITH CRON = '* * * * *'; CREATE WORK QUEUE witnesses";

/// A function of the catalog: its name, the names and types of its arguments.
const ROUTINES: &str = "
    SELECT p.proname::text, p.proargnames[:p.pronargs]::text[], ARRAY(
        SELECT pg_catalog.format_type(a.type, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY AS a (type, place)
        ORDER BY a.place)
    FROM pg_proc AS p
    WHERE p.pronamespace = 'dialoq'::regnamespace AND has_function_privilege($1, p.oid, 'EXECUTE')
    ORDER BY 1";

/// Numbers of chance that a seed repeats.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn pick<'a>(&mut self, values: &'a [String]) -> &'a str {
        &values[self.below(values.len())]
    }
}

/// Ids and names that exist, so that garbage gets past the first check.
struct Material {
    uuids: Vec<String>,
    numbers: Vec<String>,
}

fn strings(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

/// Values of a type as SQL has them, without NULL.
fn values(of: &str, material: &Material) -> Vec<String> {
    match of {
        "boolean" => strings(&["true", "false"]),
        "integer" => {
            let mut found =
                strings(&["0", "-1", "1", "2", "10", "11", "32768", "65536", "2147483647", "(-2147483648)"]);
            found.extend(material.numbers.iter().cloned());
            found
        }
        "bigint" => {
            let mut found = values("integer", material);
            found.extend(strings(&["9223372036854775807", "(-9223372036854775808)", "4294967296", "1000000000001"]));
            found
        }
        "text" => strings(&[
            "''",
            "'garbage'",
            "'asker'",
            "'server'",
            "'SERVER'",
            "'stuck'",
            "'jobs'",
            "'limited'",
            "'//t/Asker'",
            "'//t/Server'",
            "'//t/Stuck'",
            "'//t/Talk'",
            "'//t/Word'",
            "'//t/Xml'",
            "'//t/Json'",
            "'//t/Nothing'",
            "'CURRENT DATABASE'",
            "'-8430|x'",
            "'-9615|'",
            "'-8470|forged'",
            "'-99999999999|x'",
            "'N'",
            "'it''s %s %I $1 \\ \n;--'",
            "'q:1 c d:0'",
            "U&'\\00e4\\D834\\DD1E'",
            "repeat('x', 300)",
            "repeat(U&'\\20AC', 20000)",
            "'00000000-0000-0000-0000-000000000000'",
            "'2026-01-01'",
        ]),
        "uuid" => {
            let mut found = strings(&[
                "'00000000-0000-0000-0000-000000000000'",
                "'ffffffff-ffff-ffff-ffff-ffffffffffff'",
                "gen_random_uuid()",
            ]);
            found.extend(material.uuids.iter().cloned());
            found
        }
        "bytea" => strings(&["''", "'\\x00'", "'\\xff'", "'\\xfffe3c00'", "'<a/>'", "'<a'", "'{}'", "'\\xfeff'"]),
        "timestamp with time zone" => strings(&[
            "'infinity'",
            "'-infinity'",
            "now()",
            "'0001-01-01 00:00:00+00'",
            "'4713-01-01 00:00:00+00 BC'",
            "'294276-12-31 23:59:59+00'",
        ]),
        "jsonb" => {
            strings(&["'null'", "'{}'", "'[[[]]]'", "'\"x\"'", "'1e400'", "'{\"a\": \"\\u00e4\\ud834\\udd1e\"}'"])
        }
        other => panic!("there is no garbage of type {other}; add some here"),
    }
}

/// An argument of that type, cast to it.
fn argument(of: &str, material: &Material, chance: &mut Chance) -> String {
    if chance.below(8) == 0 {
        return format!("NULL::{of}");
    }
    let Some(member) = of.strip_suffix("[]") else {
        return format!("{}::{of}", chance.pick(&values(of, material)));
    };
    let mut one = || match chance.below(6) {
        0 => format!("NULL::{member}"),
        _ => format!("{}::{member}", chance.pick(&values(member, material))),
    };
    let (first, second, third) = (one(), one(), one());
    match chance.below(6) {
        0 => format!("'{{}}'::{of}"),
        1 => format!("ARRAY[{first}]"),
        2 => format!("ARRAY[{first}, {second}]"),
        3 => format!("ARRAY[{first}, {second}, {third}]"),
        4 => format!("ARRAY[ARRAY[{first}], ARRAY[{second}]]"),
        // An array need not begin with 1.
        _ => format!("(array_fill(NULL::{member}, ARRAY[2], ARRAY[5]) || {first})"),
    }
}

/// Why the answer to a call is not a documented one.
fn undocumented(error: &tokio_postgres::Error) -> Option<String> {
    let Some(server) = error.as_db_error() else { return Some(format!("the session was lost: {error}")) };
    let number = server.detail().and_then(|detail| detail.strip_prefix("dialoq ")?.trim().parse::<u16>().ok());
    let is_known = number.is_some_and(|number| Code::ALL.iter().any(|(code, ..)| code.0 == number));
    (!is_known).then(|| format!("{}: {}", server.code().code(), server.message()))
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    // What a call waits for has an end, and is a failure.
    client
        .batch_execute("SET statement_timeout = '20s'; SET lock_timeout = '5s'; SET search_path = public")
        .await
        .unwrap();
    client
}

/// Conversations that are begun, converse, wait for a queue that is off, and have ended. Jobs that are ready, scheduled, taken
/// and dead, in a queue with limits and one without.
async fn prepare(owner: &Client) -> Material {
    owner
        .batch_execute(
            "CREATE TEMP TABLE material AS
             SELECT (dialoq.begin_dialog_conversation('//t/Asker', k.to_service, NULL, '//t/Talk')).*, k.n
             FROM (SELECT n, CASE WHEN n <= 4 THEN '//t/Server' ELSE '//t/Stuck' END AS to_service
                FROM generate_series(1, 8) AS g (n)) AS k;
             SELECT dialoq.send(conversation_handle, '//t/Word', 'a') FROM material WHERE n NOT IN (1, 8);
             SELECT dialoq.end_conversation(conversation_handle) FROM material WHERE n IN (4, 7);
             SELECT dialoq.push_job(w.name, 'garbage', '//t/Word', n, NULL, NULL, n::text)
             FROM generate_series(1, 8) AS g (n), (VALUES ('jobs'), ('limited')) AS w (name);
             SELECT dialoq.push_job('jobs', p_delay_ms => 100000000);
             SELECT dialoq.fail_job(t.job_id, t.token, 'why', p_is_last => true) FROM dialoq.take_jobs('jobs', p_has_lease => true) AS t;
             SELECT dialoq.take_jobs(w.name, 2, p_has_lease => true) FROM (VALUES ('jobs'), ('limited')) AS w (name);",
        )
        .await
        .unwrap();
    let texts = async |text: &str| -> Vec<String> {
        owner.query(text, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    };
    let uuids = texts(
        "SELECT quote_literal(i.id) FROM dialoq.conversation_endpoint AS e
         JOIN dialoq.service AS s ON s.service_id = e.service_id AND s.name <> '//t/Witness',
         LATERAL (VALUES (e.conversation_handle), (e.conversation_id), (e.conversation_group_id)) AS i (id)
         WHERE NOT e.is_system AND e.far_service <> '//t/Witness'",
    )
    .await;
    let numbers = texts(
        "SELECT q.queue_id::text FROM dialoq.service_queue AS q WHERE q.name <> 'witness'
         UNION SELECT s.service_id::text FROM dialoq.service AS s WHERE s.name <> '//t/Witness'
         UNION SELECT w.queue_id::text FROM dialoq.work_queue AS w WHERE w.name <> 'witnesses'
         UNION SELECT w.schedule_id::text FROM dialoq.work_schedule AS w
         UNION SELECT n::text FROM dialoq.job AS j, LATERAL (VALUES (j.job_id), (j.token)) AS i (n)",
    )
    .await;
    Material { uuids, numbers }
}

/// A conversation and a work queue that have nothing to do with the calls: a message, a timer, a tick, a definition and a job
/// go their way.
async fn goes_on(broker: &Broker, owner: &Client, witness: ConversationHandle) -> Result<(), String> {
    let failed = |what: &str, error: &dyn std::fmt::Display| format!("{what}: {error}");
    broker.send(witness, "//t/Word", "still here").await.map_err(|error| failed("SEND", &error))?;
    let batch = broker.receive("witness").await.map_err(|error| failed("RECEIVE", &error))?;
    batch.ok_or("the message did not arrive")?;
    owner
        .execute(
            "UPDATE dialoq.conversation_endpoint SET dialog_timer = clock_timestamp(), due_at = clock_timestamp()
             WHERE conversation_handle = $1::text::uuid",
            &[&witness.0.to_string()],
        )
        .await
        .unwrap();
    // The tick of the broker's own process may have the conversation in hand, and not have committed yet.
    let mut is_delivered = false;
    for _ in 0..500 {
        owner.query("SELECT * FROM dialoq.tick(NULL)", &[]).await.map_err(|error| failed("tick", &error))?;
        let timer = owner
            .query_one(
                "WITH gone AS (DELETE FROM dialoq.queue_message AS m USING dialoq.conversation_endpoint AS e
                     WHERE e.endpoint_id = m.endpoint_id AND e.conversation_handle = $1::text::uuid AND m.delivery_class = 2 RETURNING m.*)
                 SELECT count(*) FROM gone",
                &[&witness.0.to_string()],
            )
            .await
            .unwrap();
        is_delivered = timer.get::<_, i64>(0) > 0;
        if is_delivered {
            break;
        }
    }
    if !is_delivered {
        return Err("the timer was not delivered".to_owned());
    }
    broker.execute("ALTER QUEUE stuck WITH RETENTION = OFF").await.map_err(|error| failed("ALTER QUEUE", &error))?;
    broker.push_job("witnesses", "a").await.map_err(|error| failed("a push", &error))?;
    let jobs = broker.take_jobs("witnesses").await.map_err(|error| failed("a take", &error))?;
    let job = jobs.first().ok_or("no job was taken")?;
    broker.complete_job(job).await.map_err(|error| failed("a completion", &error))
}

async fn run(store: Store, role: &str, is_undone: bool, seed: u64) {
    let database = Database::fresh(store);
    let broker = Broker::open(database.url()).await.unwrap();
    broker.execute(SCRIPT).await.unwrap();
    let (technique, _) = TakingTechnique::ALL[(seed % 5) as usize];
    broker.execute(&format!("ALTER WORK QUEUE jobs WITH TAKE_BY = {technique}")).await.unwrap();
    let owner = connect(database.url()).await;
    let material = prepare(&owner).await;
    let witness = broker.begin_dialog("//t/Asker", "//t/Witness").contract("//t/Talk").await.unwrap();
    let caller = connect(&database.login(role)).await;
    let mut chance = Chance(seed);
    let mut failures = Vec::new();
    let routines = owner.query(ROUTINES, &[&role]).await.unwrap();
    assert!(routines.len() > 20, "{role} may call {} functions", routines.len());
    for routine in &routines {
        let name: String = routine.get(0);
        let types: Vec<String> = routine.get(2);
        // Each argument has its turn with each of some values, whatever the others are.
        for _ in 0..4 + 10 * types.len() {
            let arguments: Vec<String> = types.iter().map(|of| argument(of, &material, &mut chance)).collect();
            let call = format!("SELECT * FROM dialoq.{name}({})", arguments.join(", "));
            if is_undone {
                caller.batch_execute("BEGIN").await.unwrap();
            }
            if let Err(error) = caller.batch_execute(&call).await
                && let Some(why) = undocumented(&error)
            {
                failures.push(format!("{why}\n    {}", call.chars().take(700).collect::<String>()));
            }
            let end = if is_undone { "ROLLBACK" } else { "SELECT pg_advisory_unlock_all()" };
            caller.batch_execute(end).await.unwrap_or_else(|error| panic!("seed {seed}: after {call}: {error}"));
        }
        if let Err(why) = goes_on(&broker, &owner, witness).await {
            failures.push(format!("after {name}: {why}"));
        }
    }
    failures.sort();
    failures.dedup();
    assert!(
        failures.is_empty(),
        "DIALOQ_SEED={seed}, {} failures:\n{}",
        failures.len(),
        failures[..failures.len().min(25)].join("\n")
    );
    broker.close().await.unwrap();
}

fn each(store: Store, role: &str, is_undone: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    for seed in seeds::seeds(1) {
        runtime.block_on(async {
            tokio::time::timeout(9 * SOON, run(store, role, is_undone, seed)).await.expect("the test hangs");
        });
    }
}

pub(crate) fn no_argument_of_a_user_stops_another_caller(store: Store) {
    each(store, "dialoq_user", false);
}

/// Each call is undone: an administrator may change every definition, and garbage would leave none.
pub(crate) fn no_argument_of_an_administrator_fails_without_a_code(store: Store) {
    each(store, "dialoq_admin", true);
}
