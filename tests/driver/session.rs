//! A connection goes back to the pool as it came, and the user's own SQL has an end.

use crate::servers::{Database, Store};
use crate::stage::{SOON, execute, on, refused, rows, sql, url};
use dialoq::internals::store::database::link::{Driver, Fate, Link};
use dialoq::internals::store::postgres::PostgresDriver;
use dialoq::{Act, Broker, Code, Error};

/// All of a session that a caller could find changed.
const SESSION: &str = "
    SELECT session_user::text || ' ' || current_user::text || ' ' || (
        SELECT md5(string_agg(s.name || '=' || s.setting, ' ' ORDER BY s.name)) FROM pg_settings AS s
        WHERE s.name NOT IN ('transaction_read_only', 'statement_timeout')
            -- The first call of a PL adds its own.
            AND s.name NOT LIKE 'plpgsql.%')
        || ' ' || current_setting('statement_timeout') || ' ' || current_setting('dialoq.client')
        || ' cursors ' || (SELECT count(*) FROM pg_cursors WHERE is_holdable)
        || ' channels ' || (SELECT count(*) FROM pg_listening_channels())
        || ' locks ' || (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())
        || ' temporary ' || (SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()) AS session,
        pg_backend_pid() AS pid";

async fn session(link: &mut dyn Link) -> (String, i64) {
    let row = &rows(link, SESSION).await[0];
    (row.get("session").unwrap(), row.get("pid").unwrap())
}

pub(crate) fn the_pool_gives_sessions_as_new(store: Store) {
    on(store, "&pool_size=1", "", |stage| async move {
        let mut link = stage.link().await;
        let (new, pid) = session(&mut *link).await;
        drop(link);
        for text in [
            "SELECT set_config('role', 'pg_monitor', false)",
            "SELECT set_config('session_authorization', 'dialoq', false), set_config('role', 'pg_monitor', false)",
            "SELECT set_config('statement_timeout', '1234567', false)",
            "SELECT set_config('search_path', 'nowhere', false)",
            "SELECT set_config('dialoq.client', '', false)",
            "SELECT set_config('TimeZone', 'Asia/Tokyo', false)",
            "SELECT set_config('synchronous_commit', 'off', false)",
            "SELECT pg_advisory_lock(5)::text",
            "CREATE TEMP TABLE mine (id int)",
            "DO $$ BEGIN EXECUTE 'LISTEN mine'; END $$",
            "DECLARE mine CURSOR WITH HOLD FOR SELECT 1",
            // What makes the session like new is prepared too.
            "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$",
            "SELECT set_config('TimeZone', 'Asia/Tokyo', false)",
        ] {
            for is_in_transaction in [false, true] {
                let mut link = stage.link().await;
                // A cursor outside of a transaction is refused by the server.
                if is_in_transaction || text.starts_with("DECLARE") {
                    link.begin().await.unwrap();
                }
                execute(&mut *link, text).await.unwrap_or_else(|failure| panic!("{text}: {failure:?}"));
                link.commit().await.unwrap();
                drop(link);
                let mut next = stage.link().await;
                assert_eq!(
                    session(&mut *next).await,
                    (new.clone(), pid),
                    "{text}, in a transaction: {is_in_transaction}"
                );
            }
        }
        // A query is the user's own SQL too.
        let mut link = stage.link().await;
        rows(&mut *link, "SELECT set_config('role', 'pg_monitor', false)").await;
        drop(link);
        // A transaction that is left open.
        let mut link = stage.link().await;
        link.begin().await.unwrap();
        execute(&mut *link, "SELECT set_config('role', 'pg_monitor', false)").await.unwrap();
        drop(link);
        assert_eq!(session(&mut *stage.link().await).await, (new, pid));
    });
}

pub(crate) fn statements_that_change_a_session_are_refused(store: Store) {
    on(store, "", "", |stage| async move {
        let mut link = stage.link().await;
        for text in [
            "SET ROLE pg_monitor",
            "set statement_timeout = '1ms'",
            "SET SESSION AUTHORIZATION dialoq",
            "RESET ALL",
            "PREPARE mine AS SELECT 1",
            "LISTEN mine",
            "DISCARD TEMP",
        ] {
            let (failure, code) = refused(execute(&mut *link, text).await);
            assert_eq!((code, failure.fate), (Code::USER_SQL_FAILED, Fate::Undone), "{text}");
        }
        link.begin().await.unwrap();
        execute(&mut *link, "SET LOCAL work_mem = '1MB'").await.unwrap();
        link.commit().await.unwrap();
    });
}

pub(crate) fn the_users_own_sql_has_a_limit(store: Store) {
    on(store, "&sql_timeout_ms=1500&pool_size=1", "", |stage| async move {
        let endless = "SELECT 1 FROM pg_sleep(600)";
        let mut link = stage.link().await;
        // A query, a statement by itself, and one in a transaction.
        let (failure, code) = refused(link.query(&sql(endless, vec![])).await);
        assert_eq!((code, failure.fate), (Code::SQL_TIMEOUT, Fate::Undone), "{failure:?}");
        assert!(failure.error.message().contains("sql_timeout_ms"), "{failure:?}");
        let (_, code) = refused(execute(&mut *link, endless).await);
        assert_eq!(code, Code::SQL_TIMEOUT);
        drop(link);
        let mut link = stage.link().await;
        link.begin().await.unwrap();
        execute(&mut *link, "INSERT INTO thing VALUES (1, 'a')").await.unwrap();
        link.savepoint(0).await.unwrap();
        let (_, code) = refused(execute(&mut *link, endless).await);
        assert_eq!(code, Code::SQL_TIMEOUT);
        link.rollback_to(0).await.unwrap();
        link.release(0).await.unwrap();
        // Statements of Dialoq have no limit.
        execute(&mut *link, "INSERT INTO thing VALUES (2, 'b')").await.unwrap();
        link.script("SELECT set_config('test.limit', current_setting('statement_timeout'), false)").await.unwrap();
        link.commit().await.unwrap();
        let found =
            &rows(&mut *link, "SELECT current_setting('test.limit') AS limit, (SELECT count(*) FROM thing) AS n").await
                [0];
        assert_eq!((found.get::<String>("limit").unwrap(), found.get::<i64>("n").unwrap()), ("0".to_owned(), 2));
        drop(link);
        let mut link = stage.link().await;
        link.script("SELECT set_config('test.limit', current_setting('statement_timeout'), false)").await.unwrap();
    });
}

pub(crate) fn a_statement_runs_although_its_limit_is_refused(store: Store) {
    on(store, "", "", |stage| async move {
        let user = format!("{}&sql_timeout_ms=60000", stage.database.login(""));
        let mut link = PostgresDriver::new(&url(&user)).unwrap().dedicated().await.unwrap();
        stage.database.sql(
            "GRANT INSERT ON thing TO PUBLIC;
             REVOKE EXECUTE ON FUNCTION pg_catalog.set_config(text, text, boolean) FROM PUBLIC",
        );
        // It commits by itself, so only its own answer says whether it was done.
        let insert = "INSERT INTO thing VALUES (1, 'a')";
        assert_eq!(execute(&mut *link, insert).await.unwrap(), 1);
        let (failure, _) = refused(execute(&mut *link, insert).await);
        assert!(failure.error.message().contains("duplicate key"), "{failure:?}");
        assert_eq!(stage.database.sql("SELECT count(*) FROM thing"), "1");
    });
}

const SLEEPING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";

/// A limit that the user has set counts after a statement of sql_timeout as before it, and errors name the limit that
/// ended the statement.
pub(crate) fn the_users_own_limit_stays(store: Store) {
    for parameters in ["", "&sql_timeout_ms=120000"] {
        on(store, parameters, "", |stage| async move {
            let mut link = stage.link().await;
            link.begin().await.unwrap();
            execute(&mut *link, "SET LOCAL statement_timeout = '1500ms'").await.unwrap();
            execute(&mut *link, "INSERT INTO thing VALUES (1, 'a')").await.unwrap();
            link.script("SELECT set_config('test.limit', current_setting('statement_timeout'), false)").await.unwrap();
            let set = &rows(&mut *link, "SELECT current_setting('test.limit') AS limit").await[0];
            assert_eq!(set.get::<String>("limit").unwrap(), "1500ms");
            let (failure, code) = refused(execute(&mut *link, "SELECT 1 FROM pg_sleep(600)").await);
            assert_eq!((code, failure.fate), (Code::SQL_TIMEOUT, Fate::Undone), "{failure:?}");
            let said = failure.error.message();
            assert!(said.contains("statement_timeout") && !said.contains("sql_timeout_ms"), "{said}");
            link.rollback().await.unwrap();
        });
    }
}

pub(crate) fn a_statement_cancelled_by_another_session_is_reported(store: Store) {
    on(store, "&sql_timeout_ms=120000", "", |stage| async move {
        let mut link = stage.link().await;
        let cancel = async {
            stage.until(SLEEPING, 1).await;
            stage.database.sql(
                "SELECT pg_cancel_backend(pid) FROM pg_stat_activity
                 WHERE datname = current_database() AND wait_event = 'PgSleep'",
            );
        };
        let (answer, ()) = tokio::join!(execute(&mut *link, "SELECT 1 FROM pg_sleep(600)"), cancel);
        let (failure, code) = refused(answer);
        assert_eq!((code, failure.fate), (Code::USER_SQL_FAILED, Fate::Undone), "{failure:?}");
        assert!(!failure.error.message().contains("timeout"), "{failure:?}");
        assert_eq!(execute(&mut *link, "SELECT 1").await.unwrap(), 1, "the connection is as good as before");
    });
}

/// The request to stop a statement travels by itself: it could stop the next one instead.
pub(crate) fn a_session_whose_statement_was_stopped_is_not_used_again(store: Store) {
    on(store, "", "", |stage| async move {
        let mut link = stage.driver.dedicated().await.unwrap();
        link.begin().await.unwrap();
        execute(&mut *link, "INSERT INTO thing VALUES (1, 'a')").await.unwrap();
        let close = async {
            stage.until(SLEEPING, 1).await;
            stage.driver.close().await;
        };
        let (answer, ()) = tokio::join!(execute(&mut *link, "SELECT 1 FROM pg_sleep(600)"), close);
        let (failure, code) = refused(answer);
        assert_eq!((code, failure.is_link_usable), (Code::STORE_CLOSED, false), "{failure:?}");
        let (_, code) = refused(execute(&mut *link, "SELECT 1").await);
        assert_eq!(code, Code::SERVER_UNREACHABLE);
        let (failure, _) = refused(link.commit().await);
        assert_eq!(failure.fate, Fate::TransactionUndone, "{failure:?}");
        drop(link);
        assert_eq!(stage.database.sql("SELECT count(*) FROM thing"), "0");
    });
}

pub(crate) fn the_default_role_of_a_login_stays(store: Store) {
    on(store, "", "", |stage| async move {
        let url = stage.database.login("pg_monitor");
        let name = url.split("://").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
        stage.database.sql(&format!("ALTER ROLE {name} SET role = 'pg_monitor'"));
        let driver = PostgresDriver::new(&crate::stage::url(&format!("{url}&pool_size=1"))).unwrap();
        for text in ["SELECT 1", "SELECT set_config('role', 'none', false)"] {
            let mut link = driver.take().await.unwrap();
            assert_eq!(
                rows(&mut *link, "SELECT current_user::text AS role").await[0].get::<String>("role").unwrap(),
                "pg_monitor"
            );
            execute(&mut *link, text).await.unwrap();
        }
        let mut link = driver.take().await.unwrap();
        let role = rows(&mut *link, "SELECT current_user::text AS role").await[0].get::<String>("role").unwrap();
        assert_eq!(role, "pg_monitor");
    });
}

/// A connection that cannot be cleaned is closed, and the pool opens another.
pub(crate) fn a_session_that_cannot_be_renewed_is_closed(store: Store) {
    on(store, "", "", |stage| async move {
        let url = stage.database.login("");
        let name = url.split("://").nth(1).and_then(|rest| rest.split(':').next()).unwrap();
        // Temporary tables that another session has locked cannot be removed.
        stage.database.sql(&format!("ALTER ROLE {name} SET lock_timeout = '1ms'"));
        let driver = PostgresDriver::new(&crate::stage::url(&format!("{url}&pool_size=1"))).unwrap();
        let mut link = driver.take().await.unwrap();
        execute(&mut *link, "CREATE TEMP TABLE mine (id int)").await.unwrap();
        execute(&mut *link, "SELECT set_config('TimeZone', 'Asia/Tokyo', false)").await.unwrap();
        let table = "SELECT (SELECT nspname FROM pg_namespace WHERE oid = pg_my_temp_schema())::text AS schema";
        let schema = rows(&mut *link, table).await[0].get::<String>("schema").unwrap();
        let mut other = stage.link().await;
        other.begin().await.unwrap();
        other.script(&format!("LOCK TABLE {schema}.mine IN ACCESS SHARE MODE")).await.unwrap();
        drop(link);
        let mut next = driver.take().await.unwrap();
        let zone =
            rows(&mut *next, "SELECT current_setting('TimeZone') AS zone").await[0].get::<String>("zone").unwrap();
        assert_eq!(zone, "UTC");
        other.rollback().await.unwrap();
    });
}

pub(crate) fn closing_stops_a_statement_without_end(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        let running =
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
        let tx = broker.begin().await.unwrap();
        let (alone, in_transaction) =
            (broker.clone(), tokio::spawn(async move { tx.sql("SELECT pg_sleep(600)", ()).await }));
        let alone = tokio::spawn(async move { alone.sql("SELECT pg_sleep(600)", ()).await });
        let until = async |wanted: &str| {
            let all = async {
                while database.sql(running) != wanted {
                    tokio::task::yield_now().await;
                }
            };
            tokio::time::timeout(SOON, all).await.unwrap_or_else(|_| panic!("never {wanted} statements"));
        };
        until("2").await;
        tokio::time::timeout(SOON, broker.close()).await.expect("closing waits for the statement").unwrap();
        until("0").await;
        let answers = async { (alone.await.unwrap().is_err(), in_transaction.await.unwrap().is_err()) };
        assert_eq!(tokio::time::timeout(SOON, answers).await.expect("the callers get no answer"), (true, true));
    });
}

pub(crate) fn closing_does_not_wait_for_a_control_call_of_a_transaction(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        let script = "CREATE QUEUE one; CREATE SERVICE [One] ON QUEUE one ([DEFAULT]);";
        broker.execute(script).await.unwrap();
        let dialog = broker.begin_dialog("One", "One").await.unwrap();
        broker.send(dialog, "DEFAULT", "a").await.unwrap();
        let driver =
            dialoq::internals::store::postgres::PostgresDriver::new(&crate::stage::url(database.url())).unwrap();
        let mut locker = driver.dedicated().await.unwrap();
        // Without its limit of 100 ms the call waits until the end of this test.
        locker.script("ALTER FUNCTION dialoq.begin_attempt RESET lock_timeout").await.unwrap();
        locker.script("BEGIN; LOCK TABLE dialoq.receive_attempt IN EXCLUSIVE MODE").await.unwrap();
        let tx = broker.begin().await.unwrap();
        let receiving = tokio::spawn(async move { tx.receive("one").await.map(drop) });
        let waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'dialoq.receive_attempt'::regclass";
        let noting = async {
            while database.sql(waits) == "0" {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, noting).await.expect("the RECEIVE is not noted");
        tokio::time::timeout(SOON, broker.close()).await.expect("closing waits for the lock").unwrap();
        drop(locker);
        let _ = tokio::time::timeout(SOON, receiving).await.expect("the caller gets no answer");
    });
}

/// They kept their groups for as long as the value was there, and the broker that was opened in its place never got them.
pub(crate) fn closing_ends_the_sessions_of_open_transactions(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        let script = "CREATE QUEUE one; CREATE SERVICE [One] ON QUEUE one ([DEFAULT]);";
        broker.execute(script).await.unwrap();
        let dialog = broker.begin_dialog("One", "One").await.unwrap();
        broker.send(dialog, "DEFAULT", "a").await.unwrap();
        let tx = broker.begin().await.unwrap();
        // The receive is no claim then.
        tx.sql("SELECT 1", ()).await.unwrap();
        assert!(tx.receive("one").await.unwrap().is_some());
        tokio::time::timeout(SOON, broker.close()).await.expect("closing waits for the transaction").unwrap();
        let next = Broker::open(database.url()).await.unwrap();
        let received = next.receive("one").wait_forever();
        let received = tokio::time::timeout(SOON, received).await.expect("the group is held").unwrap();
        assert!(received.is_some());
        assert_eq!(tx.commit().await.unwrap_err().code(), dialoq::Code::STORE_CLOSED);
        next.close().await.unwrap();
    });
}

pub(crate) fn no_text_holds_the_password(store: Store) {
    on(store, "", "", |stage| async move {
        let secret = "s3same";
        let url = stage.database.url().replace("dialoq@", &format!("no_such_user:{secret}@"));
        let parsed = crate::stage::url(&url);
        let driver = dialoq::internals::store::postgres::PostgresDriver::new(&parsed).unwrap();
        let mut texts = vec![format!("{parsed:?} {parsed:#?} {driver:?} {driver:#?}")];
        let error = crate::stage::error(driver.take().await);
        texts.push(format!("{error} {error:?} {error:#?}"));
        let error = crate::stage::error(driver.listen().await);
        texts.push(format!("{error} {error:?}"));
        let error = Broker::open(&url).await.expect_err("this user does not exist");
        texts.push(format!("{error} {error:?}"));
        for text in texts {
            assert!(!text.contains(secret), "{text}");
        }
    });
}

pub(crate) fn copy_rows_of_a_statement_are_refused_before_it_runs(store: Store) {
    on(store, "&pool_size=1", "", |stage| async move {
        let (_, pid) = session(&mut *stage.link().await).await;
        for text in
            ["COPY thing FROM STDIN", "copy public.thing (id) from stdin (format csv)", "COPY (SELECT 1) TO STDOUT"]
        {
            for is_in_transaction in [false, true] {
                let mut link = stage.link().await;
                if is_in_transaction {
                    link.begin().await.unwrap();
                }
                let (failure, code) = refused(execute(&mut *link, text).await);
                assert_eq!(code, Code::USER_SQL_FAILED, "{text}");
                assert!(failure.is_link_usable && failure.error.message().contains("STDIN"), "{}", failure.error);
                assert_eq!(refused(link.query(&sql(text, Vec::new())).await).1, Code::USER_SQL_FAILED, "{text}");
                assert_eq!(session(&mut *link).await.1, pid, "{text}: it is the same session");
                link.commit().await.unwrap();
            }
        }
    });
}

pub(crate) fn a_procedure_that_commits_and_fails_runs_once(store: Store) {
    let procedure = "CREATE TABLE seen (n serial);
        CREATE PROCEDURE step() LANGUAGE plpgsql AS $$
        BEGIN
            INSERT INTO seen DEFAULT VALUES;
            COMMIT;
            PERFORM no_such_function();
        END $$";
    on(store, "&pool_size=1", procedure, |stage| async move {
        let mut link = stage.link().await;
        let block = "DO $$ BEGIN INSERT INTO seen DEFAULT VALUES; COMMIT; PERFORM no_such_function(); END $$";
        for (place, text) in ["CALL step()", block, "/* again */ call step()"].into_iter().enumerate() {
            assert_eq!(refused(execute(&mut *link, text).await).1, Code::USER_SQL_FAILED, "{text}");
            let seen = rows(&mut *link, "SELECT count(*) AS n FROM seen").await[0].get::<i64>("n").unwrap();
            assert_eq!(seen, place as i64 + 1, "{text}");
        }
        // A procedure that is made again is found.
        execute(&mut *link, "CREATE OR REPLACE PROCEDURE step() LANGUAGE sql AS 'DELETE FROM seen'").await.unwrap();
        execute(&mut *link, "CALL step()").await.unwrap();
    });
}

pub(crate) fn a_procedure_that_commits_and_meets_a_deadlock_runs_once(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        let block = |state: &str| {
            format!("BEGIN INSERT INTO seen DEFAULT VALUES; COMMIT; RAISE EXCEPTION 'played' USING ERRCODE = '{state}'; END")
        };
        database.sql(&format!(
            "CREATE TABLE seen (n serial); CREATE PROCEDURE step() LANGUAGE plpgsql AS $${}$$",
            block("deadlock_detected")
        ));
        let texts = ["CALL step()".to_owned(), format!("do $${}$$", block("serialization_failure"))];
        for (place, text) in texts.into_iter().enumerate() {
            assert_eq!(broker.sql(&*text, ()).await.expect_err(&text).code(), Code::DEADLOCK, "{text}");
            assert_eq!(database.sql("SELECT count(*) FROM seen"), (place + 1).to_string(), "{text}");
        }
        // A statement that happens wholly or not at all is repeated: the sequence counts the runs.
        database.sql("CREATE FUNCTION fail() RETURNS void LANGUAGE plpgsql AS \
             $$BEGIN PERFORM nextval('seen_n_seq'); RAISE EXCEPTION 'played' USING ERRCODE = 'deadlock_detected'; END$$");
        let before: i64 = database.sql("SELECT last_value FROM seen_n_seq").parse().unwrap();
        assert_eq!(broker.sql("SELECT fail()", ()).await.unwrap_err().code(), Code::DEADLOCK);
        assert!(database.sql("SELECT last_value FROM seen_n_seq").parse::<i64>().unwrap() > before + 1);
    });
}

pub(crate) fn the_isolation_that_a_database_sets_reaches_no_verb(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let name = database.sql("SELECT current_database()");
        database.sql(&format!("ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'"));
        let broker = Broker::open(database.url()).await.unwrap();
        broker
            .execute(
                "CREATE MESSAGE TYPE [Word] VALIDATION = NONE; CREATE CONTRACT [Talk] ([Word] SENT BY ANY);
                 CREATE QUEUE asker; CREATE QUEUE server;
                 CREATE SERVICE [Asker] ON QUEUE asker; CREATE SERVICE [Server] ON QUEUE server ([Talk]);",
            )
            .await
            .unwrap();
        let dialog = broker.begin_dialog("Asker", "Server").contract("Talk").await.unwrap();
        broker.send(dialog, "Word", "one").await.unwrap();
        assert!(broker.receive("server").wait(SOON).await.unwrap().is_some());
        // In plain SQL the level is the caller's, and every verb that sends or receives refuses it.
        let handles = format!(
            "ARRAY['{dialog}'::uuid], ARRAY['Word'], ARRAY[NULL::bytea], ARRAY[NULL], ARRAY[''], ARRAY[NULL::uuid]"
        );
        for call in [&format!("send('{dialog}', 'Word')")[..], &format!("send_batch({handles})"), "receive('server')"] {
            let refused = database.try_sql_as(database.url(), &format!("SELECT * FROM dialoq.{call}")).unwrap_err();
            assert!(refused.contains("READ COMMITTED"), "{call}: {refused}");
        }
        broker.close().await.unwrap();
    });
}

/// The settings with which the server gives up a silent client.
const KEEPALIVES: &str =
    "select current_setting('tcp_keepalives_idle') || ' ' || current_setting('tcp_keepalives_interval') || ' ' ||
    current_setting('tcp_keepalives_count') || ' ' || current_setting('tcp_user_timeout') as found";

pub(crate) fn the_server_notices_a_lost_host_soon(_: Store) {
    // A unix socket has no such settings. The port was free a moment ago; a server that finds it taken does not start.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let database = Database::on_a_server_at(port);
    let name = database.sql("SELECT current_database()");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    let test = async {
        // A connection that ran the user's SQL is reset before its next use. A shorter limit of the database stays.
        for (limit, expected) in
            [("RESET tcp_keepalives_idle", "10 5 3 30000"), ("SET tcp_keepalives_idle = 7", "7 5 3 30000")]
        {
            database.sql(&format!("ALTER DATABASE {name} {limit}"));
            let broker = Broker::open(&format!("postgres://dialoq@127.0.0.1:{port}/{name}?pool_size=1")).await?;
            for _ in 0..2 {
                assert_eq!(broker.query(KEEPALIVES, ()).await?.rows[0].get::<String>("found")?, expected);
            }
            broker.close().await?;
        }
        Ok::<_, Error>(())
    };
    runtime.block_on(async { tokio::time::timeout(6 * SOON, test).await.expect("the test hangs") }).unwrap();
}

pub(crate) fn a_limit_on_idle_sessions_ends_none_that_serves_no_caller(store: Store) {
    on(store, "", "", |stage| async move {
        let name = stage.database.sql("SELECT current_database()");
        stage.database.sql(&format!("ALTER DATABASE {name} SET idle_session_timeout = '300ms'"));
        let driver = PostgresDriver::new(&url(stage.database.url())).unwrap();
        let mut listener = driver.listen().await.unwrap().expect("PostgreSQL notifies");
        let of_its_own = driver.dedicated().await.unwrap();
        let of_the_pool = driver.take().await.unwrap();
        while !of_the_pool.is_closed() {
            tokio::task::yield_now().await;
        }
        assert!(!of_its_own.is_closed());
        stage.database.sql("NOTIFY dialoq, 'c'");
        assert_eq!(listener.next().await.unwrap(), ["c"]);
    });
}

/// PostgreSQL 17 is the first that has this limit.
pub(crate) fn a_limit_on_transactions_ends_none_that_serves_no_caller(store: Store) {
    on(store, "", "", |stage| async move {
        if stage.database.sql("SELECT current_setting('transaction_timeout', true) IS NULL") == "t" {
            return;
        }
        let name = stage.database.sql("SELECT current_database()");
        stage.database.sql(&format!("ALTER DATABASE {name} SET transaction_timeout = '300ms'"));
        let driver = PostgresDriver::new(&url(stage.database.url())).unwrap();
        let mut of_its_own = driver.dedicated().await.unwrap();
        of_its_own.script("BEGIN; SELECT pg_sleep(0.6); COMMIT").await.expect("an installation takes longer");
    });
}

/// No verb was refused on it: its callers have read, or run SQL of their own.
pub(crate) fn a_session_that_began_while_the_server_only_read_serves_one_caller(store: Store) {
    on(store, "", "", |stage| async move {
        let database = &stage.database;
        let name = database.sql("SELECT current_database()");
        database.sql(&format!("ALTER DATABASE {name} SET default_transaction_read_only = on"));
        let driver = PostgresDriver::new(&url(&format!("{}&pool_size=2", database.url()))).unwrap();
        let (mut one, mut other) = (driver.take().await.unwrap(), driver.take().await.unwrap());
        rows(&mut *one, "SELECT 1 AS n").await;
        assert_eq!(refused(execute(&mut *other, "INSERT INTO thing VALUES (1)").await).1, Code::USER_SQL_FAILED);
        drop((one, other));
        database.sql(&format!("BEGIN READ WRITE; ALTER DATABASE {name} RESET default_transaction_read_only; COMMIT"));
        let (mut one, mut other) = (driver.take().await.unwrap(), driver.take().await.unwrap());
        execute(&mut *one, "INSERT INTO thing VALUES (2)").await.expect("the server writes again");
        execute(&mut *other, "INSERT INTO thing VALUES (3)").await.expect("the server writes again");
    });
}
