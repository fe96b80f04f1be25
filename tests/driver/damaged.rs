//! A row that makes no sense breaks its own conversation and stops no other.
//!
//! Every column of every table that a background step reads gets the extremes of its type in turn, read from the catalog, as
//! only a superuser can write them. Then due events and waiting deliveries of other conversations still happen.

use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::Broker;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls};

const SCRIPT: &str = "
    CREATE MESSAGE TYPE [//t/Word] VALIDATION = NONE; CREATE CONTRACT [//t/Talk] ([//t/Word] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server;
    CREATE SERVICE [//t/Asker] ON QUEUE asker; CREATE SERVICE [//t/Server] ON QUEUE server ([//t/Talk]);";

/// Functions of the test's own: a conversation with a message in each queue and one that waits in the transmission queue,
/// and a step of everything that is due.
const FUNCTIONS: &str = "
    CREATE SCHEMA test;
    CREATE FUNCTION test.off() RETURNS void LANGUAGE sql AS $$
        UPDATE dialoq.service_queue SET is_enqueue_enabled = false WHERE name = 'server' $$;
    CREATE FUNCTION test.on() RETURNS void LANGUAGE sql AS $$
        UPDATE dialoq.service_queue SET is_enqueue_enabled = true WHERE name = 'server' $$;
    CREATE FUNCTION test.conversation() RETURNS uuid LANGUAGE plpgsql AS $$
    DECLARE
        v_handle uuid := (SELECT conversation_handle FROM dialoq.begin_dialog_conversation(
            '//t/Asker', '//t/Server', NULL, '//t/Talk', p_lifetime_seconds => 1000));
    BEGIN
        PERFORM test.on();
        PERFORM dialoq.send(v_handle, '//t/Word', 'a');
        PERFORM dialoq.send((SELECT t.conversation_handle FROM dialoq.conversation_endpoint AS e
            JOIN dialoq.conversation_endpoint AS t ON t.conversation_id = e.conversation_id AND NOT t.is_initiator
            WHERE e.conversation_handle = v_handle), '//t/Word', 'b');
        PERFORM test.off();
        PERFORM dialoq.send(v_handle, '//t/Word', 'c');
        RETURN v_handle;
    END $$;
    CREATE FUNCTION test.id(p_handle uuid) RETURNS bigint LANGUAGE sql AS $$
        SELECT endpoint_id FROM dialoq.conversation_endpoint WHERE conversation_handle = p_handle $$;
    CREATE FUNCTION test.fall_due(p_handle uuid) RETURNS void LANGUAGE sql AS $$
        UPDATE dialoq.conversation_endpoint SET dialog_timer = clock_timestamp(), due_at = clock_timestamp()
        WHERE conversation_handle = p_handle $$;
    -- The requests are old enough for a recheck.
    CREATE FUNCTION test.age() RETURNS void LANGUAGE sql AS $$
        UPDATE dialoq.recheck_queue SET after_xid = '3', noted_at = '2026-01-01' $$;";

/// Tables with the condition under which a row is of endpoint $1, and their columns.
const TABLES: [(&str, &str); 5] = [
    ("conversation_endpoint", "endpoint_id = $1"),
    ("transmission", "endpoint_id = $1"),
    ("queue_message", "endpoint_id = $1"),
    (
        "receive_attempt",
        "attempt_id IN (SELECT conversation_handle FROM dialoq.conversation_endpoint WHERE endpoint_id = $1)",
    ),
    ("recheck_queue", "endpoint_id = $1"),
];

const COLUMNS: &str = "
    SELECT a.attname::text, format_type(a.atttypid, NULL) FROM pg_attribute AS a
    WHERE a.attrelid = ('dialoq.' || $1)::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attidentity = ''
    ORDER BY a.attnum";

fn extremes(of: &str) -> &'static [&'static str] {
    match of {
        "text" => &["''", "'garbage'", "'-99999999999|x'"],
        "smallint" => &["-32768", "32767"],
        "integer" => &["-2147483648", "2147483647", "0"],
        "bigint" => &["-9223372036854775808", "9223372036854775807"],
        "boolean" => &["true", "false"],
        "uuid" => &["'00000000-0000-0000-0000-000000000000'"],
        "bytea" => &["NULL", "'\\x00'"],
        "timestamp with time zone" => &["'infinity'", "'-infinity'", "'4713-01-01 00:00:00+00 BC'"],
        "xid8" => &["NULL", "'0'", "'3'"],
        other => panic!("there is no extreme of type {other}; add one here"),
    }
}

struct Plants {
    client: Client,
}

impl Plants {
    async fn number(&self, text: &str, handle: &String) -> i64 {
        self.client.query_one(text, &[handle]).await.unwrap_or_else(|error| panic!("{text}: {error}")).get(0)
    }

    async fn conversation(&self) -> String {
        self.client.query_one("SELECT test.conversation()::text", &[]).await.unwrap().get(0)
    }

    /// Plants a row; `false` if the table does not take it.
    async fn plant(&self, text: &str) -> bool {
        match self.client.batch_execute(text).await {
            Ok(()) => true,
            Err(error) => {
                let state = error.code().map(|code| code.code().to_owned()).unwrap_or_default();
                assert!(["23514", "23505", "23502", "428C9"].contains(&&*state), "{text}: {error}");
                false
            }
        }
    }

    /// Why something of others did not happen.
    async fn others_go_on(&self) -> Result<(), String> {
        let (waits, due) = (self.conversation().await, self.conversation().await);
        self.client.execute("SELECT test.fall_due($1::text::uuid)", &[&due]).await.unwrap();
        self.client.batch_execute("SELECT test.on()").await.unwrap();
        for step in ["SELECT * FROM dialoq.define_end()", "SELECT test.age()", "SELECT * FROM dialoq.tick(500)"] {
            self.client.batch_execute(step).await.map_err(|error| format!("{step}: {error:?}"))?;
        }
        let left = "SELECT count(*) FROM dialoq.transmission WHERE endpoint_id = test.id($1::text::uuid)";
        let timers = "SELECT count(*) FROM dialoq.queue_message WHERE endpoint_id = test.id($1::text::uuid) AND delivery_class = 2";
        if self.number(left, &waits).await != 0 {
            return Err("a message of another conversation was not delivered".to_owned());
        }
        if self.number(timers, &due).await != 1 {
            return Err("a timer of another conversation was not delivered".to_owned());
        }
        let again = "SELECT did FROM dialoq.tick(500)";
        self.client.query_one(again, &[]).await.map_err(|error| format!("a second tick: {error:?}"))?;
        Ok(())
    }

    /// Removes what a conversation has left.
    async fn clear(&self) {
        self.client
            .batch_execute(
                "DELETE FROM dialoq.conversation_endpoint; DELETE FROM dialoq.transmission; DELETE FROM dialoq.queue_message;
                 DELETE FROM dialoq.ready_group; DELETE FROM dialoq.recheck_queue; DELETE FROM dialoq.receive_attempt;",
            )
            .await
            .unwrap();
    }
}

pub(crate) fn a_damaged_row_breaks_its_own_conversation_only(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        // It would do by itself what the test does.
        broker.close().await.unwrap();
        let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("SET client_min_messages = error; SET statement_timeout = '20s'").await.unwrap();
        client.batch_execute(FUNCTIONS).await.unwrap();
        let plants = Plants { client };
        let mut failures = Vec::new();
        let all = async {
            for (table, condition) in TABLES {
                for column in plants.client.query(COLUMNS, &[&table]).await.unwrap() {
                    let (name, of): (String, String) = (column.get(0), column.get(1));
                    for value in extremes(&of) {
                        let damaged = plants.conversation().await;
                        let id = plants.number("SELECT test.id($1::text::uuid)", &damaged).await;
                        let rows = format!(
                            "INSERT INTO dialoq.recheck_queue (endpoint_id, noted_at) VALUES ({id}, now());
                             INSERT INTO dialoq.receive_attempt (attempt_id, conversation_group_id, queue_id, began_at)
                             SELECT conversation_handle, conversation_group_id, 65536, now()
                             FROM dialoq.conversation_endpoint WHERE endpoint_id = {id};
                             SELECT test.fall_due('{damaged}');"
                        );
                        plants.client.batch_execute(&rows).await.unwrap();
                        let condition = condition.replace("$1", &id.to_string());
                        let text = format!("UPDATE dialoq.{table} SET {name} = {value} WHERE {condition}");
                        if plants.plant(&text).await
                            && let Err(why) = plants.others_go_on().await
                        {
                            failures.push(format!("{text}: {why}"));
                        }
                        plants.clear().await;
                    }
                }
            }
        };
        tokio::time::timeout(9 * SOON, all).await.expect("the test hangs");
        assert!(failures.is_empty(), "{} failures:\n{}", failures.len(), failures.join("\n"));
    });
}

pub(crate) fn both_sides_get_an_error_for_a_damaged_conversation(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        broker.close().await.unwrap();
        let sql = |text: &str| database.sql(text);
        database.sql(FUNCTIONS);
        let handle = sql("SELECT test.conversation()::text");
        // A verdict that a caller of an earlier version could store.
        sql("ALTER TABLE dialoq.transmission DROP CONSTRAINT transmission_body_fault_check");
        sql("UPDATE dialoq.transmission SET body_fault = 'garbage'");
        sql("SELECT test.on()");
        sql("SELECT * FROM dialoq.define_end()");
        let with_error = sql(
            "SELECT string_agg(q.name || ' ' || (position('60012' IN replace(encode(m.body, 'escape'), '\\000', '')) > 0), ', '
                ORDER BY q.name)
             FROM dialoq.queue_message AS m JOIN dialoq.conversation_endpoint AS e ON e.endpoint_id = m.endpoint_id
             JOIN dialoq.service AS s ON s.service_id = e.service_id
             JOIN dialoq.service_queue AS q ON q.queue_id = s.queue_id WHERE m.delivery_class = 1",
        );
        assert_eq!(with_error, "asker true, server true", "conversation {handle}");
        assert_eq!(sql("SELECT count(*) FROM dialoq.transmission"), "0");
    });
}

pub(crate) fn a_damaged_conversation_that_another_holds_is_left_for_later(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        broker.close().await.unwrap();
        database.sql(FUNCTIONS);
        let handle = database.sql("SELECT test.conversation()::text");
        let (holder, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        let lock = format!(
            "BEGIN; SELECT dialoq.try_lock_group(conversation_group_id) FROM dialoq.conversation_endpoint
             WHERE conversation_handle = '{handle}'"
        );
        holder.batch_execute(&lock).await.unwrap();
        let step = format!("SELECT is_done FROM dialoq.break_damaged(test.id('{handle}'), 'as the test asked')");
        assert_eq!(database.sql(&step), "", "it is not done");
        holder.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(database.sql(&step), "t");
        assert_eq!(database.sql("SELECT is_done FROM dialoq.break_damaged(-1, 'it is gone')"), "t");
    });
}
