//! What an administrator does with the database of an open broker: restores it, lets it only read, publishes all its tables. And
//! definitions that change while transactions hold every connection.

use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::{Act, Broker, Code, ConversationHandle, Result};
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

const SCRIPT: &str = "
    CREATE MESSAGE TYPE [Word] VALIDATION = NONE; CREATE CONTRACT [Talk] ([Word] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server;
    CREATE SERVICE [Asker] ON QUEUE asker; CREATE SERVICE [Server] ON QUEUE server ([Talk]);";

fn on<F: Future<Output = Result<()>>>(
    store: Store,
    parameters: &str,
    test: impl FnOnce(Database, Broker, ConversationHandle) -> F,
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(&format!("{}{parameters}", database.url())).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        let dialog = broker.begin_dialog("Asker", "Server").contract("Talk").await.unwrap();
        tokio::time::timeout(3 * SOON, test(database, broker, dialog)).await.expect("the test hangs").unwrap();
    });
}

pub(crate) fn definitions_of_an_earlier_version_are_read_again(store: Store) {
    on(store, "", |database, broker, dialog| async move {
        broker.execute("CREATE QUEUE later").await?;
        // As a copy of the database from before that definition.
        database.sql(
            "DELETE FROM dialoq.service_queue WHERE name = 'later';
             UPDATE dialoq.broker SET catalog_version = catalog_version - 1",
        );
        broker.send(dialog, "Word", "after the restore").await?;
        // The definition is not there any more, so it can be made again.
        broker.execute("CREATE QUEUE later").await?;
        broker.send(dialog, "Word", "after the definition").await?;
        broker.close().await
    });
}

pub(crate) fn rechecks_that_another_server_has_asked_for_are_made(store: Store) {
    on(store, "", |database, broker, _| async move {
        database.sql(
            "INSERT INTO dialoq.recheck_queue (endpoint_id, noted_at, after_xid) VALUES (999, '2026-01-01', '99999999999')",
        );
        let count = || database.sql("SELECT count(*) FROM dialoq.recheck_queue WHERE endpoint_id = 999");
        let made = async {
            while count() != "0" {
                database.sql("SELECT * FROM dialoq.tick(500)");
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON / 4, made).await.expect("the recheck is never made");
        broker.close().await
    });
}

pub(crate) fn connections_that_only_read_are_replaced(store: Store) {
    on(store, "", |database, broker, dialog| async move {
        broker.close().await?;
        let name = database.sql("SELECT current_database()");
        database.sql(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
        let broker = Broker::open(database.url()).await?;
        // Two connections of the pool, and those that the process keeps for itself.
        let (one, other) = tokio::join!(broker.send(dialog, "Word", "1"), broker.cancel_timer(dialog));
        for refused in [one, other] {
            assert_eq!(refused.unwrap_err().code(), Code::STORE_READ_ONLY);
        }
        database.sql(&format!("BEGIN READ WRITE; ALTER DATABASE {name} RESET default_transaction_read_only; COMMIT"));
        let (one, other) = tokio::join!(broker.send(dialog, "Word", "2"), broker.cancel_timer(dialog));
        one?;
        other?;
        broker.timer(dialog, Duration::from_secs(1)).await?;
        assert!(broker.receive("asker").wait(SOON).await?.is_some(), "no timer of this process fires");
        broker.close().await
    });
}

/// A queue monitor polls, by the connection that takes the jobs of transactions. A poll only reads.
pub(crate) fn a_connection_that_polled_while_a_server_only_read_is_replaced(store: Store) {
    on(store, "", |database, broker, _| async move {
        broker.execute("CREATE WORK QUEUE jobs").await?;
        broker.push_job("jobs", "a").await?;
        broker.close().await?;
        let name = database.sql("SELECT current_database()");
        database.sql(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
        let broker = Broker::open(database.url()).await?;
        let monitor = broker.activate("asker", dialoq::activation::Handlers::new()).start();
        assert!(monitor.monitor().await.is_some());
        database.sql(&format!("BEGIN READ WRITE; ALTER DATABASE {name} RESET default_transaction_read_only; COMMIT"));
        let tx = broker.begin().await?;
        assert_eq!(tx.take_jobs("jobs").await?.len(), 1);
        tx.commit().await?;
        monitor.stop().await;
        broker.close().await
    });
}

/// Roles belong to the server. A copy of the database is restored without them, and without the rights granted to them.
pub(crate) fn a_copy_on_another_server_gets_its_roles_back(store: Store) {
    on(store, "", |database, broker, _| async move {
        broker.close().await?;
        let rights = "SELECT bool_and(has_schema_privilege(r, 'dialoq', 'USAGE')
                AND has_function_privilege(r, 'dialoq.tick(integer)', 'EXECUTE'))
            FROM unnest(ARRAY['dialoq_user', 'dialoq_admin']) AS r";
        assert_eq!(database.sql(rights), "t");
        database.sql(
            "REVOKE ALL ON SCHEMA dialoq FROM dialoq_user, dialoq_admin;
             REVOKE ALL ON ALL ROUTINES IN SCHEMA dialoq FROM dialoq_user, dialoq_admin",
        );
        Broker::open(database.url()).await?.close().await?;
        assert_eq!(database.sql(rights), "t");
        Ok(())
    });
}

/// As `pg_restore --no-privileges` makes it. The error named the membership, which the login had.
pub(crate) fn a_copy_without_privileges_says_who_grants_them(store: Store) {
    on(store, "", |database, broker, _| async move {
        broker.close().await?;
        let user = database.login("dialoq_user");
        let owner = database.sql("SELECT current_user");
        let tries = [
            "REVOKE ALL ON SCHEMA dialoq FROM dialoq_user, dialoq_admin;
             REVOKE ALL ON ALL TABLES IN SCHEMA dialoq FROM dialoq_user, dialoq_admin;
             REVOKE ALL ON ALL ROUTINES IN SCHEMA dialoq FROM dialoq_user, dialoq_admin;
             GRANT EXECUTE ON ALL ROUTINES IN SCHEMA dialoq TO PUBLIC",
            // As if an administrator had begun to grant them one by one.
            "REVOKE ALL ON ALL TABLES IN SCHEMA dialoq FROM dialoq_user, dialoq_admin",
        ];
        for lost in tries {
            database.sql(lost);
            let refused = Broker::open(&user).await.expect_err(lost);
            assert_eq!(refused.code(), Code::ACCESS_DENIED, "{refused}");
            for part in ["the rights of the role dialoq_user", "`dialoq install`", &format!("'{owner}'")] {
                assert!(refused.message().contains(part), "{part}: {refused}");
            }
            assert!(!dialoq::install::install(database.url()).await?.is_empty(), "{lost}");
            Broker::open(&user).await?.close().await?;
            assert!(dialoq::install::plan(database.url()).await?.is_empty(), "{lost}");
        }
        let stranger = Broker::open(&database.login("")).await.unwrap_err();
        assert!(stranger.message().ends_with("membership in the role dialoq_user"), "{stranger}");
        Ok(())
    });
}

/// As `pg_dump --no-comments` makes it: nothing is marked, so the user's own objects were taken for the broker's.
pub(crate) fn a_copy_without_comments_keeps_what_is_the_users(store: Store) {
    on(store, "", |database, broker, _| async move {
        broker.close().await?;
        let other = database.login("");
        let name = other.split("://").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
        database.sql(&format!(
            "DO $$ DECLARE v_of text; BEGIN
                FOR v_of IN
                    SELECT format('%s %s', CASE relkind WHEN 'v' THEN 'VIEW' ELSE 'TABLE' END, oid::regclass) FROM pg_class
                    WHERE relnamespace = 'dialoq'::regnamespace AND relkind IN ('r', 'v')
                    UNION ALL SELECT format('ROUTINE %s', oid::regprocedure) FROM pg_proc WHERE pronamespace = 'dialoq'::regnamespace
                LOOP EXECUTE format('COMMENT ON %s IS NULL', v_of); END LOOP;
             END $$;
             CREATE TABLE dialoq.mine (id bigint PRIMARY KEY); CREATE VIEW dialoq.seen AS SELECT id FROM dialoq.mine;
             CREATE FUNCTION dialoq.seven() RETURNS integer LANGUAGE sql AS 'SELECT 7';
             GRANT ALL ON dialoq.mine, dialoq.seen TO {name}; GRANT EXECUTE ON FUNCTION dialoq.seven() TO {name};
             GRANT USAGE ON SCHEMA dialoq TO {name}; GRANT CREATE ON SCHEMA public TO {name};
             CREATE FUNCTION dialoq.count_rollback(uuid) RETURNS integer LANGUAGE sql SECURITY DEFINER AS 'SELECT 1'"
        ));
        let own = "CREATE TABLE of_mine (id bigint REFERENCES dialoq.mine);
             CREATE FUNCTION of_mine() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
             CREATE TRIGGER of_mine AFTER INSERT ON dialoq.mine FOR EACH ROW EXECUTE FUNCTION of_mine()";
        database.try_sql_as(&other, own).unwrap();
        let broker = Broker::open_read_only(database.url()).await?;
        let found = broker.doctor().await?;
        broker.close().await?;
        assert!(found.is_empty(), "{found:?}");
        let refused = dialoq::install::uninstall(database.url()).await.expect_err("it holds what is the user's");
        for part in ["table dialoq.mine", "view dialoq.seen", "function dialoq.seven()"] {
            assert!(refused.message().contains(part), "{part}: {refused}");
        }
        assert_eq!(refused.message().matches("dialoq.").count(), 3, "{refused}");

        assert!(!dialoq::install::install(database.url()).await?.is_empty());
        let kept = format!(
            "SELECT concat_ws(' ', dialoq.seven(), has_table_privilege('{name}', 'dialoq.mine', 'INSERT'),
                has_table_privilege('{name}', 'dialoq.seen', 'UPDATE'), has_function_privilege('{name}', 'dialoq.seven()', 'EXECUTE'),
                to_regprocedure('dialoq.count_rollback(uuid)') IS NULL)"
        );
        assert_eq!(database.sql(&kept), "7 t t t t");
        // So the build knows the name of everything that it makes.
        let unmarked = "SELECT string_agg(name, ' ' ORDER BY name) FROM (
                SELECT relname::text, obj_description(oid, 'pg_class') FROM pg_class
                WHERE relnamespace = 'dialoq'::regnamespace AND relkind IN ('r', 'v')
                UNION ALL SELECT proname, obj_description(oid, 'pg_proc') FROM pg_proc WHERE pronamespace = 'dialoq'::regnamespace
            ) AS o (name, comment) WHERE comment IS NULL";
        assert_eq!(database.sql(unmarked), "mine seen seven");
        assert!(dialoq::install::plan(database.url()).await?.is_empty());
        Broker::open(database.url()).await?.close().await
    });
}

/// An administrator lets a database only read before it is copied elsewhere: nothing may be acknowledged then.
pub(crate) fn transactions_of_a_database_that_only_reads_write_nothing(store: Store) {
    on(store, "&pool_size=1", |database, broker, dialog| async move {
        broker.close().await?;
        let name = database.sql("SELECT current_database()");
        database.sql(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
        let broker = Broker::open(&format!("{}&pool_size=1", database.url())).await?;
        let tx = broker.begin().await?;
        assert_eq!(tx.send(dialog, "Word", "1").await.unwrap_err().code(), Code::STORE_READ_ONLY);
        drop(tx);
        // They would wait for ever, for a RECEIVE that finds nothing writes nothing.
        let tx = broker.begin().await?;
        assert_eq!(tx.receive("server").wait(SOON).await.unwrap_err().code(), Code::STORE_READ_ONLY);
        drop(tx);
        assert_eq!(broker.receive("server").wait(SOON).await.unwrap_err().code(), Code::STORE_READ_ONLY);
        // The user's own SQL, on a connection of that time.
        let tx = broker.begin().await?;
        assert_eq!(tx.sql("CREATE TABLE mine (id int)", ()).await.unwrap_err().code(), Code::USER_SQL_FAILED);
        database.sql(&format!("BEGIN READ WRITE; ALTER DATABASE {name} RESET default_transaction_read_only; COMMIT"));
        drop(tx);
        let tx = broker.begin().await?;
        tx.sql("CREATE TABLE mine (id int)", ()).await?;
        tx.send(dialog, "Word", "2").await?;
        tx.commit().await?;
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.queue_message"), "1");
        broker.close().await
    });
}

pub(crate) fn other_definitions_of_the_same_version_are_read_after_a_lost_connection(store: Store) {
    on(store, "", |database, broker, _| async move {
        broker.execute("CREATE QUEUE later").await?;
        // As a restored database in which another process has defined another queue.
        database.sql(
            "UPDATE dialoq.service_queue SET name = 'other', folded_name = 'other' WHERE name = 'later';
             SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
        );
        let made = async {
            while broker.execute("CREATE QUEUE later").await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, made).await.expect("the process keeps the definitions of before");
        broker.close().await
    });
}

/// No connection is cut: the processes compare versions alone.
pub(crate) fn definitions_after_a_restore_have_versions_of_their_own(store: Store) {
    on(store, "", |database, broker, _| async move {
        let before =
            database.sql("SELECT catalog_version || ', next_object_id = ' || next_object_id FROM dialoq.broker");
        broker.execute("CREATE QUEUE later").await?;
        database.sql(&format!(
            "DELETE FROM dialoq.service_queue WHERE name = 'later'; UPDATE dialoq.broker SET catalog_version = {before}"
        ));
        let other = Broker::open(database.url()).await?;
        other.execute("CREATE QUEUE other").await?;
        broker.execute("CREATE QUEUE later").await?;
        let waiting = broker.receive("other").wait(Duration::ZERO).await?;
        assert!(waiting.is_none());
        other.close().await?;
        broker.close().await
    });
}

pub(crate) fn definitions_are_read_while_transactions_hold_every_connection(store: Store) {
    on(store, "&pool_size=1&pool_wait_s=2", |database, broker, dialog| async move {
        let tx = broker.begin().await?;
        tx.send(dialog, "Word", "1").await?;
        let other = Broker::open(database.url()).await?;
        other.execute("CREATE QUEUE later").await?;
        tx.send(dialog, "Word", "2").await?;
        tx.commit().await?;
        other.close().await?;
        broker.close().await
    });
}

pub(crate) fn a_publication_of_all_tables_stops_no_verb(store: Store) {
    on(store, "", |database, broker, dialog| async move {
        database.sql("SET client_min_messages = error; CREATE PUBLICATION everything FOR ALL TABLES");
        let tables =
            "SELECT count(*) FROM pg_class AS c WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'r'
            AND c.relpersistence = 'p' AND c.relreplident IN ('d', 'n')
            AND NOT EXISTS (SELECT FROM pg_index AS i WHERE i.indrelid = c.oid AND i.indisprimary)";
        assert_eq!(database.sql(tables), "0", "a table has no replica identity");
        for word in ["one", "two"] {
            broker.send(dialog, "Word", word).await?;
        }
        // A rollback leaves a row that the commit after it deletes.
        for is_committed in [false, true] {
            let tx = broker.begin().await?;
            assert!(tx.receive("server").wait(SOON).await?.is_some());
            match is_committed {
                true => tx.commit().await?,
                false => tx.rollback().await?,
            }
        }
        broker.end(dialog).await?;
        broker.close().await
    });
}

/// Logical replication copies the rows of tables and not the values of sequences. A message that was sent in such a copy was received
/// before those that waited, and a job got the number of another one.
pub(crate) fn a_copy_without_the_values_of_its_sequences_keeps_its_order(store: Store) {
    on(store, "", |database, broker, dialog| async move {
        broker.execute("CREATE WORK QUEUE tasks").await?;
        for word in ["one", "two", "three"] {
            broker.send(dialog, "Word", word).await?;
            broker.push_job("tasks", word).await?;
        }
        let first = broker.receive("server").top(1).await?.expect("it was sent");
        assert_eq!(first.first().text()?, "one");
        broker.complete_job(&broker.take_jobs("tasks").lease(SOON).await?[0]).await?;
        let url = database.url().to_owned();
        broker.close().await?;
        let sequences = "SELECT string_agg(format('SELECT setval(%L, 1, false)', c.oid::regclass), '; ')
            FROM pg_class AS c WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind = 'S'";
        let restart = database.sql(sequences);
        assert_eq!(restart.matches("setval").count(), 7, "a sequence that raise_sequences does not know");
        database.sql(&restart);

        let broker = Broker::open(&url).await?;
        broker.send(dialog, "Word", "four").await?;
        for word in ["two", "three", "four"] {
            let received = broker.receive("server").top(1).await?.expect("it was sent");
            assert_eq!(received.first().text()?, word);
        }
        let other = broker.begin_dialog("Asker", "Server").contract("Talk").await?;
        broker.send(other, "Word", "five").await?;
        broker.push_job("tasks", "four").await?;
        let jobs = broker.take_jobs("tasks").count(9).lease(SOON).await?;
        assert_eq!(jobs.iter().map(|job| job.body()).collect::<Vec<_>>(), [&b"two"[..], b"three", b"four"]);
        for job in &jobs {
            broker.complete_job(job).await?;
        }
        broker.close().await?;

        // Only finished jobs, and no message, tell that numbers were given.
        database.sql("UPDATE dialoq.ready_generation SET recheck_from = 90, recheck_to = 99");
        database.sql(&restart);
        let broker = Broker::open(&url).await?;
        broker.push_job("tasks", "six").await?;
        let job = broker.take_jobs("tasks").lease(SOON).await?.remove(0);
        broker.complete_job(&job).await?;
        assert!(job.taken.job.0 > jobs[2].taken.job.0, "its number was that of another one");
        broker.close().await?;
        let rechecks = "SELECT last_value > 99 FROM dialoq.unsettled_unsettled_id_seq";
        assert_eq!(database.sql(rechecks), "t", "a recheck that was asked for would not be made");

        // Nothing is behind any more.
        let values = "SELECT string_agg(s.last_value::text, ' ' ORDER BY s.sequencename) FROM pg_sequences AS s WHERE s.schemaname = 'dialoq'";
        let before = database.sql(values);
        database.sql("SELECT dialoq.tick()");
        assert_eq!((database.sql("SELECT dialoq.raise_sequences()"), database.sql(values)), ("0".to_owned(), before));
        Ok(())
    });
}

/// A restart of the server ended it.
pub(crate) fn a_watch_of_the_status_goes_on_when_the_database_can_be_reached_again(store: Store) {
    let (database, beside) = (Database::fresh(store), Database::bare(store));
    let name = database.sql("SELECT current_database()");
    let mut command = Command::new(env!("CARGO_BIN_EXE_dialoq"));
    command.args(["--json", "status", "--watch", "100ms"]).env("DIALOQ_URL", database.url());
    let mut watching = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut shown = BufReader::new(watching.stdout.take().unwrap()).lines().map(Result::unwrap);
    let mut warnings = BufReader::new(watching.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut shown_at = || -> String {
        let status: serde_json::Value = serde_json::from_str(&shown.next().unwrap()).unwrap();
        status["at"].as_str().unwrap().to_owned()
    };
    shown_at();
    beside.sql(&format!("ALTER DATABASE \"{name}\" ALLOW_CONNECTIONS false"));
    beside
        .sql(&format!("SELECT count(pg_terminate_backend(pid, 20000)) FROM pg_stat_activity WHERE datname = '{name}'"));
    let warning = warnings.next().unwrap();
    assert!(warning.starts_with("{\"warning\":\"[60030] ") && warning.ends_with("; trying again\"}"), "{warning}");
    let now = r#"SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"')"#;
    let reached_at = beside.sql(now);
    beside.sql(&format!("ALTER DATABASE \"{name}\" ALLOW_CONNECTIONS true"));
    while shown_at() <= reached_at {}
    watching.kill().unwrap();
    watching.wait().unwrap();
}
