//! An installation of an earlier version, with rows that it took and this one refuses, is brought up to date.

use crate::servers::{Database, Store};
use crate::stage::{SOON, number, url};
use dialoq::internals::store::database::link::Driver;
use dialoq::internals::store::postgres::PostgresDriver;
use dialoq::{Act, Broker};
use std::future::Future;

const SCRIPT: &str = "
    CREATE MESSAGE TYPE [//t/Word] VALIDATION = NONE; CREATE CONTRACT [//t/Talk] ([//t/Word] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server; CREATE QUEUE off WITH STATUS = OFF;
    CREATE SERVICE [//t/Asker] ON QUEUE asker; CREATE SERVICE [//t/Server] ON QUEUE server ([//t/Talk]);
    CREATE SERVICE [//t/Off] ON QUEUE off ([//t/Talk]); CREATE MESSAGE TYPE [//t/Strange] VALIDATION = NONE;
    CREATE BROKER PRIORITY low FOR CONVERSATION SET (PRIORITY_LEVEL = 1);";

/// Gives the tables of this version the names that those of version 1 had.
const NAMES: &str = "
    ALTER TABLE later.queue_message RENAME COLUMN delivery_class TO stored;
    ALTER TABLE later.retained_message RENAME COLUMN delivery_class TO stored;
    ALTER TABLE later.ready_group RENAME COLUMN rank_from_top TO below_top;
    ALTER TABLE later.recheck_queue RENAME COLUMN recheck_id TO unsettled_id;
    ALTER TABLE later.recheck_queue RENAME TO unsettled;
    ALTER TABLE later.conversation_endpoint ADD COLUMN send_sequence bigint;
    UPDATE later.conversation_endpoint AS e SET send_sequence = coalesce((
        SELECT max(n.send_sequence) FROM later.send_counter AS n WHERE n.endpoint_id = e.endpoint_id), 0);";

/// Puts the rows of the tables of this version into tables of version 1, as its own script makes them.
const COPY: &str = "
    DO $$
    DECLARE
        v_table record;
    BEGIN
        FOR v_table IN
            SELECT c.relname AS name, string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) AS columns,
                max(a.attname) FILTER (WHERE a.attidentity <> '') AS identity
            FROM pg_class AS c
            JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
            WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'r'
            GROUP BY c.relname
        LOOP
            EXECUTE format('INSERT INTO dialoq.%1$I (%2$s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM later.%1$I',
                v_table.name, v_table.columns);
            IF v_table.identity IS NOT NULL THEN
                PERFORM setval(pg_get_serial_sequence('dialoq.' || v_table.name, v_table.identity), 1000);
            END IF;
        END LOOP;
    END $$;
    UPDATE dialoq.installed SET schema_version = 1, logic_hash = 'earlier', installed_by = 'dialoq 0.0.1';
    SET client_min_messages = error; DROP SCHEMA later CASCADE;";

fn run<F: Future<Output = ()>>(test: impl FnOnce() -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(6 * SOON, test()).await.expect("the test hangs") });
}

/// A database whose broker has tables of version 1, with definitions, a message in a queue and one on its way.
async fn of_version_1(store: Store) -> Database {
    let database = Database::fresh(store);
    let broker = Broker::open(database.url()).await.unwrap();
    broker.execute(SCRIPT).await.unwrap();
    for service in ["//t/Server", "//t/Off"] {
        let dialog = broker.begin_dialog("//t/Asker", service).contract("//t/Talk").await.unwrap();
        broker.send(dialog, "//t/Word", "a").await.unwrap();
    }
    broker.close().await.unwrap();
    let begin = include_str!("../../sql/postgres/install/begin.sql");
    let tables = include_str!("../../sql/postgres/schema/0001_broker.sql");
    database.sql(&format!("ALTER SCHEMA dialoq RENAME TO later; {NAMES} {begin}; {tables}; {COPY}"));
    assert_eq!(database.sql("SELECT count(*) FROM dialoq.queue_message"), "1");
    assert_eq!(database.sql("SELECT count(*) FROM dialoq.transmission"), "1");
    database
}

pub(crate) fn rows_of_version_1_are_kept(store: Store) {
    run(|| async move {
        let database = of_version_1(store).await;
        database.sql(
            "UPDATE dialoq.broker SET closed_retention_s = -1, unconfirmed_retention_s = 99999999999;
             UPDATE dialoq.message_type SET validation = 'Q' WHERE name = '//t/Strange';
             UPDATE dialoq.conversation_priority SET priority = 99;
             UPDATE dialoq.service_queue SET folded_name = 'another' WHERE name = 'asker';
             UPDATE dialoq.transmission SET body_fault = 'garbage';
             INSERT INTO dialoq.receive_attempt
             SELECT conversation_handle, conversation_group_id, 1, now() FROM dialoq.conversation_endpoint;
             INSERT INTO dialoq.receive_attempt
             SELECT conversation_id, conversation_group_id, 1, now() FROM dialoq.conversation_endpoint;
             INSERT INTO dialoq.queue_monitor
             VALUES (gen_random_uuid(), -1, 1, repeat('x', 999), 'infinity', NULL, -1, -1, -1, -1, -1, -1, -1, '', -1, now());
             INSERT INTO dialoq.activated_task VALUES (gen_random_uuid(), -1, -1, 1, repeat('x', 999), -1, 'infinity')",
        );
        let broker = Broker::open(database.url()).await.unwrap();
        let found = database.sql(
            "SELECT concat_ws(' ', closed_retention_s, unconfirmed_retention_s, manual_now IS NULL,
                (SELECT validation FROM dialoq.message_type WHERE name = '//t/Strange'),
                (SELECT priority FROM dialoq.conversation_priority),
                (SELECT folded_name FROM dialoq.service_queue WHERE name = 'asker'),
                (SELECT left(body_fault, 6) FROM dialoq.transmission),
                (SELECT schema_version FROM dialoq.installed)) FROM dialoq.broker",
        );
        let scripts = std::fs::read_dir("sql/postgres/schema").unwrap().count();
        assert_eq!(found, format!("0 2147483647 t N 10 asker -8430| {scripts}"));
        // The rollbacks of version 1 are counted meanwhile, under the lock of their groups.
        let received = broker.receive("server").wait(SOON).await.unwrap().expect("the message of version 1");
        assert_eq!(received.first().text().unwrap(), "a");
        let dialog = broker.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").await.unwrap();
        broker.send(dialog, "//t/Word", "b").await.unwrap();
        assert_eq!(broker.receive("server").wait(SOON).await.unwrap().expect("a new message").len(), 1);
        broker.close().await.unwrap();
    });
}

pub(crate) fn a_clock_of_tests_out_of_range_is_brought_into_it(store: Store) {
    run(|| async move {
        for (was, is) in [("infinity", "9999-12-31"), ("-infinity", "0001-01-01"), ("20000-01-01", "9999-12-31")] {
            let database = of_version_1(store).await;
            database.sql(&format!("UPDATE dialoq.broker SET unconfirmed_retention_s = -7, manual_now = '{was}'"));
            Broker::open(database.url()).await.unwrap().close().await.unwrap();
            let found = database.sql(
                "SELECT concat_ws(' ', unconfirmed_retention_s, to_char(manual_now AT TIME ZONE 'UTC', 'YYYY-MM-DD'))
                 FROM dialoq.broker",
            );
            assert_eq!(found, format!("0 {is}"), "{was}");
        }
    });
}

pub(crate) fn rights_on_single_functions_and_views_survive(store: Store) {
    run(|| async move {
        let database = Database::bare(store);
        // What the owner of the database has set for every session is no right that was kept.
        let name = database.sql("SELECT current_database()");
        let planted = r#"[{"relation": "pg_class", "statement": "CREATE TABLE public.planted ()"}]"#;
        database.sql(&format!("ALTER DATABASE {name} SET dialoq.kept_rights = '{planted}'"));
        Broker::open(database.url()).await.unwrap().close().await.unwrap();
        let user = format!("single_{}", uuid::Uuid::new_v4().simple());
        database.sql(&format!(
            "CREATE ROLE {user};
             GRANT EXECUTE ON FUNCTION dialoq.tick(integer) TO {user} WITH GRANT OPTION;
             GRANT SELECT ON dialoq.sys_services TO {user};
             GRANT SELECT (name) ON dialoq.sys_service_queues TO {user};
             CREATE VIEW dialoq.gone AS SELECT 1 AS one; GRANT SELECT (one) ON dialoq.gone TO {user}; COMMENT ON VIEW dialoq.gone IS 'Dialoq';
             GRANT SELECT ON dialoq.gone TO {user};
             GRANT EXECUTE ON FUNCTION dialoq.tick(integer) TO PUBLIC;
             DROP FUNCTION dialoq.count_rollback(uuid, text, integer);
             CREATE FUNCTION dialoq.count_rollback(uuid, text) RETURNS integer LANGUAGE sql SECURITY DEFINER
                 SET search_path = pg_catalog, pg_temp AS 'SELECT 1';
             COMMENT ON FUNCTION dialoq.count_rollback(uuid, text) IS 'Dialoq: with earlier arguments';
             GRANT EXECUTE ON FUNCTION dialoq.count_rollback(uuid, text) TO {user};
             UPDATE dialoq.installed SET logic_hash = 'earlier'"
        ));
        Broker::open(database.url()).await.unwrap().close().await.unwrap();
        let kept = database.sql(&format!(
            "SELECT concat_ws(' ', has_function_privilege('{user}', 'dialoq.tick(integer)', 'EXECUTE WITH GRANT OPTION'),
                has_table_privilege('{user}', 'dialoq.sys_services', 'SELECT'),
                has_table_privilege('{user}', 'dialoq.sys_services', 'UPDATE'),
                has_column_privilege('{user}', 'dialoq.sys_service_queues', 'name', 'SELECT'),
                has_table_privilege('{user}', 'dialoq.sys_service_queues', 'SELECT'),
                has_function_privilege('{user}', 'dialoq.poll()', 'EXECUTE'),
                (SELECT count(*) FROM pg_proc AS p, aclexplode(p.proacl) AS a
                 WHERE p.pronamespace = 'dialoq'::regnamespace AND a.grantee = 0), to_regclass('dialoq.gone') IS NULL,
                to_regclass('public.planted') IS NULL,
                has_function_privilege('{user}', 'dialoq.count_rollback(uuid, text, integer)', 'EXECUTE'))"
        ));
        database.sql(&format!("DROP OWNED BY {user}; DROP ROLE {user}"));
        assert_eq!(kept, "t t f t f f 0 t t t");
    });
}

pub(crate) fn logic_alone_is_refused_by_tables_of_another_version(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        Broker::open(database.url()).await.unwrap().close().await.unwrap();
        database.sql("UPDATE dialoq.installed SET logic_hash = 'earlier'");
        let printed = dialoq::install::plan_script(database.url()).await.unwrap();
        let version_before = database.sql("SELECT schema_version FROM dialoq.installed");
        // As in a database whose tables are older, or newer.
        for version in [1, 99] {
            database.sql(&format!("UPDATE dialoq.installed SET schema_version = {version}"));
            let refused = database.try_sql_as(database.url(), &printed).expect_err("the tables have another version");
            assert!(refused.contains(&format!("have version {version}")), "{refused}");
            assert_eq!(database.sql("SELECT schema_version FROM dialoq.installed"), version.to_string());
        }
        database.sql(&format!("UPDATE dialoq.installed SET schema_version = {version_before}"));
        database.sql(&printed);
        assert_ne!(database.sql("SELECT logic_hash FROM dialoq.installed"), "earlier");
    });
}

pub(crate) fn an_upgrade_that_waits_for_a_reader_stops_no_other_session(store: Store) {
    run(|| async move {
        let database = Database::fresh(store);
        Broker::open(database.url()).await.unwrap().close().await.unwrap();
        database.sql("UPDATE dialoq.installed SET logic_hash = 'earlier'");
        let driver = PostgresDriver::new(&url(database.url())).unwrap();
        let (mut reader, mut other) = (driver.dedicated().await.unwrap(), driver.dedicated().await.unwrap());
        let view = "SELECT count(*) AS n FROM dialoq.sys_services";
        reader.begin().await.unwrap();
        number(&mut *reader, view).await;
        let url = database.url().to_owned();
        let upgrade = tokio::spawn(async move { Broker::open(&url).await });
        let waiting = "SELECT count(*) AS n FROM pg_locks AS l WHERE NOT l.granted AND l.relation = 'dialoq.sys_services'::regclass";
        let met = async { while number(&mut *other, waiting).await == 0 {} };
        tokio::time::timeout(SOON, met).await.expect("the upgrade does not need the view");
        let read = tokio::time::timeout(SOON, number(&mut *other, view)).await;
        assert!(read.expect("a reader waits for the upgrade, which waits for an open transaction") > 0);
        assert!(!upgrade.is_finished(), "the first reader's transaction is open");
        reader.commit().await.unwrap();
        upgrade.await.unwrap().unwrap().close().await.unwrap();
        assert_ne!(database.sql("SELECT logic_hash FROM dialoq.installed"), "earlier");
    });
}
