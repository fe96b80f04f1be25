//! The codes of errors, and whether the failed work happened.

use crate::servers::{Database, Store};
use crate::stage::{call, error, execute, number, on, refused, rows, sql, url};
use dialoq::internals::store::SqlStatement;
use dialoq::internals::store::database::link::{Arg, Driver, Fate};
use dialoq::internals::store::postgres::PostgresDriver;
use dialoq::{Act, Broker, Code, ErrorKind};
use std::error::Error;

const RAISING: &str = "
CREATE FUNCTION dialoq.raise(number text, at text) RETURNS TABLE (nothing int) LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'SB' || right(number, 3), MESSAGE = at, DETAIL = 'dialoq ' || number;
END $$;
CREATE FUNCTION dialoq.put(id int) RETURNS TABLE (put int) LANGUAGE sql AS $$
    INSERT INTO thing VALUES (id, 'put') RETURNING thing.id $$;";

pub(crate) fn numbers_of_ours_come_through(store: Store) {
    on(store, "", RAISING, |stage| async move {
        let mut link = stage.link().await;
        let raise = |number| call("raise", vec![Arg::Text(number), Arg::Text("what was found")]);
        let (failure, code) = refused(link.call(raise("8426")).await);
        assert_eq!((code, failure.fate), (Code::CONVERSATION_NOT_FOUND, Fate::Undone));
        assert_eq!((failure.error.kind(), failure.error.message()), (ErrorKind::NotFound, "what was found"));
        assert!(failure.is_link_usable);
        let (failure, code) = refused(link.call(raise("60033")).await);
        assert_eq!((code, failure.error.is_retryable()), (Code::CATALOG_STALE, true));
        let (failure, _) = refused(link.call(raise("1205")).await);
        assert_eq!(failure.fate, Fate::TransactionUndone);
        assert!(failure.error.source().unwrap().to_string().contains("SB205"), "{:?}", failure.error);
    });
}

pub(crate) fn the_users_own_sql_is_60022(store: Store) {
    on(store, "", "", |stage| async move {
        let mut link = stage.link().await;
        for (text, part) in [
            ("SELEKT 1", "syntax error"),
            ("INSERT INTO nothing VALUES (1)", "\"nothing\""),
            ("INSERT INTO thing VALUES ($1, 'a')", "parameters"),
            // As dblink and foreign tables say that a connection of their own is lost.
            ("DO $$ BEGIN RAISE SQLSTATE '08006' USING MESSAGE = 'elsewhere'; END $$", "elsewhere"),
            ("DO $$ BEGIN RAISE SQLSTATE '57P01' USING MESSAGE = 'elsewhere'; END $$", "elsewhere"),
        ] {
            let (failure, code) = refused(execute(&mut *link, text).await);
            assert_eq!((code, failure.fate), (Code::USER_SQL_FAILED, Fate::Undone), "{text}");
            let message = failure.error.message();
            assert!(message.contains(part) && message.contains(text), "{message}");
        }
        let blob = sql("INSERT INTO thing VALUES (1, $1)", vec![dialoq::SqlValue::Blob(vec![1])]);
        let (failure, code) = refused(link.execute(&blob).await);
        assert_eq!(code, Code::USER_SQL_FAILED);
        assert!(failure.error.message().contains("bytea"), "{failure:?}");
        assert_eq!(number(&mut *link, "SELECT count(*) FROM thing").await, 0);
    });
}

const STOPPED: &str = "
CREATE FUNCTION dialoq.fail_as(state text, said text, hint text) RETURNS TABLE (nothing int) LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = state, MESSAGE = said, HINT = hint;
END $$;
CREATE FUNCTION dialoq.wait() RETURNS TABLE (nothing int) LANGUAGE sql AS 'SELECT 1 FROM pg_sleep(600)';
CREATE FUNCTION dialoq.define_wait() RETURNS TABLE (nothing int) LANGUAGE sql AS 'SELECT 1 FROM pg_sleep(600)';";

/// A role's statement_timeout may pass while a verb waits for a lock.
pub(crate) fn a_verb_stopped_by_a_limit_may_be_tried_again(store: Store) {
    on(store, "", STOPPED, |stage| async move {
        let name = stage.database.sql("SELECT current_database()");
        stage.database.sql(&format!("ALTER DATABASE {name} SET statement_timeout = '300ms'"));
        let driver = PostgresDriver::new(&url(stage.database.url())).unwrap();
        let mut link = driver.take().await.unwrap();
        link.begin().await.unwrap();
        let (failure, code) = refused(link.call(call("wait", Vec::new())).await);
        assert_eq!((code, failure.fate), (Code::LOCK_TIMEOUT, Fate::Undone), "{failure:?}");
        assert!(failure.error.is_retryable() && failure.error.message().contains("statement_timeout"), "{failure:?}");
        link.rollback().await.unwrap();
        // The same change of definitions would be stopped each time.
        let (failure, code) = refused(link.call(call("define_wait", Vec::new())).await);
        assert_eq!((code, failure.error.is_retryable()), (Code::STORE_IO, false), "{failure:?}");
        // Work that no caller waits for has no limit.
        let mut link = driver.dedicated().await.unwrap();
        assert_eq!(
            rows(&mut *link, "SELECT current_setting('statement_timeout') AS value").await[0]
                .get::<String>("value")
                .unwrap(),
            "0"
        );
    });
}

pub(crate) fn codes_do_not_depend_on_the_language_of_the_server(store: Store) {
    on(store, "", STOPPED, |stage| async move {
        let mut link = stage.link().await;
        let by_user = |state: &str, said: &str| {
            sql("SELECT * FROM dialoq.fail_as($1::text, $2::text, '')", vec![state.into(), said.into()])
        };
        let stopped = "storniere Anfrage wegen Zeitüberschreitung der Anweisung";
        let (failure, code) = refused(link.query(&by_user("57014", stopped)).await);
        assert_eq!((code, failure.fate), (Code::SQL_TIMEOUT, Fate::Undone), "{failure:?}");
        let only_reads = "kann INSERT nicht in einer Read-Only-Transaktion ausführen";
        let (_, code) = refused(link.query(&by_user("25006", only_reads)).await);
        assert_eq!(code, Code::USER_SQL_FAILED);
        let full = vec![
            Arg::Text("53200"),
            Arg::Text("Shared Memory aufgebraucht"),
            Arg::Text("Sie müssen möglicherweise »max_locks_per_transaction« erhöhen."),
        ];
        let (failure, code) = refused(link.call(call("fail_as", full)).await);
        assert_eq!(code, Code::STORE_IO);
        assert!(failure.error.message().contains("no room for another lock"), "{failure:?}");
    });
}

pub(crate) fn deadlocks_are_1205(store: Store) {
    on(store, "", "", |stage| async move {
        let (mut one, mut other) = (stage.link().await, stage.link().await);
        execute(&mut *one, "INSERT INTO thing VALUES (1, 'a'), (2, 'b')").await.unwrap();
        let update = |id: i32| -> SqlStatement { sql(&format!("UPDATE thing SET name = 'c' WHERE id = {id}"), vec![]) };
        one.begin().await.unwrap();
        other.begin().await.unwrap();
        one.execute(&update(1)).await.unwrap();
        other.execute(&update(2)).await.unwrap();
        let (to_two, to_one) = (update(2), update(1));
        let (first, second) = tokio::join!(one.execute(&to_two), other.execute(&to_one));
        assert!(first.is_ok() != second.is_ok(), "one is the victim");
        let (mut winner, mut victim) = if first.is_ok() { (one, other) } else { (other, one) };
        let (failure, code) = refused(first.and(second));
        assert_eq!((code, failure.fate), (Code::DEADLOCK, Fate::TransactionUndone));
        assert!(failure.error.is_retryable() && failure.is_link_usable);
        winner.commit().await.unwrap();
        victim.rollback().await.unwrap();
        victim.begin().await.unwrap();
        victim.execute(&update(1)).await.unwrap();
        victim.commit().await.unwrap();
    });
}

const STEPS: &str = "
CREATE FUNCTION dialoq.inner_step(OUT a int, OUT b int) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(5);
    PERFORM FROM public.thing;
    a := 1;
END $$;
CREATE FUNCTION dialoq.outer_step() RETURNS TABLE (a int) LANGUAGE plpgsql AS $$
DECLARE
    v record;
BEGIN
    SELECT * INTO v FROM dialoq.inner_step();
    RETURN QUERY SELECT v.a;
END $$;";

/// An installation replaces the functions while a call runs.
pub(crate) fn a_function_replaced_under_its_call_is_1205(store: Store) {
    on(store, "", STEPS, |stage| async move {
        let (mut caller, mut holder) = (stage.link().await, stage.link().await);
        holder.begin().await.unwrap();
        number(&mut *holder, "SELECT count(pg_advisory_xact_lock(5))").await;
        let calling = tokio::spawn(async move {
            let answer = caller.call(call("outer_step", Vec::new())).await;
            (caller, answer)
        });
        stage
            .until(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
                1,
            )
            .await;
        let mut installer = stage.link().await;
        let replace = format!("DROP FUNCTION dialoq.inner_step(); DROP FUNCTION dialoq.outer_step(); {STEPS}");
        installer.begin().await.unwrap();
        installer.script(&replace).await.unwrap();
        installer.commit().await.unwrap();
        holder.commit().await.unwrap();
        let (mut caller, answer) = calling.await.unwrap();
        let (failure, code) = refused(answer);
        assert_eq!((code, failure.fate), (Code::DEADLOCK, Fate::TransactionUndone), "{failure:?}");
        assert!(failure.is_link_usable);
        assert_eq!(caller.call(call("outer_step", Vec::new())).await.unwrap().len(), 1);
    });
}

pub(crate) fn a_failed_transaction_is_not_committed(store: Store) {
    on(store, "", RAISING, |stage| async move {
        let mut link = stage.link().await;
        link.begin().await.unwrap();
        link.call(call("put", vec![Arg::Int(1)])).await.unwrap();
        refused(link.call(call("put", vec![Arg::Int(1)])).await);
        let (failure, code) = refused(link.commit().await);
        assert_eq!((code, failure.fate), (Code::TRANSACTION_ENDED, Fate::TransactionUndone));
        assert_eq!(number(&mut *link, "SELECT count(*) FROM thing").await, 0);
        // Nothing was sent at all.
        link.begin().await.unwrap();
        link.commit().await.unwrap();
        link.begin().await.unwrap();
        link.rollback().await.unwrap();
        link.rollback().await.unwrap();
    });
}

pub(crate) fn savepoints_keep_earlier_work(store: Store) {
    on(store, "", RAISING, |stage| async move {
        let mut link = stage.link().await;
        let put = |id| call("put", vec![Arg::Int(id)]);
        link.begin().await.unwrap();
        for id in 1..=3 {
            link.savepoint(0).await.unwrap();
            link.call(put(id)).await.unwrap();
            link.release(0).await.unwrap();
        }
        // A refusal leaves the transaction as it was, also when the statement cannot even be prepared.
        for name in ["put", "no_such_function"] {
            link.savepoint(0).await.unwrap();
            refused(link.call(call(name, vec![Arg::Int(1)])).await);
            link.rollback_to(0).await.unwrap();
            link.release(0).await.unwrap();
        }
        link.savepoint(1).await.unwrap();
        link.call(put(4)).await.unwrap();
        link.savepoint(2).await.unwrap();
        link.call(put(5)).await.unwrap();
        link.rollback_to(1).await.unwrap();
        link.call(put(6)).await.unwrap();
        link.rollback_to(1).await.unwrap();
        link.call(put(7)).await.unwrap();
        link.commit().await.unwrap();
        assert_eq!(number(&mut *link, "SELECT sum(id) FROM thing").await, 1 + 2 + 3 + 7);
    });
}

pub(crate) fn a_missing_schema_is_60035(store: Store) {
    on(store, "", "", |stage| async move {
        let mut link = stage.link().await;
        let (failure, code) = refused(link.call(call("send", vec![Arg::Null])).await);
        assert_eq!(code, Code::SCHEMA_MISSING);
        assert!(failure.error.message().contains("dialoq"), "{failure:?}");
    });
}

pub(crate) fn logins_are_60034(store: Store) {
    on(store, "", "", |stage| async move {
        let unknown_user = stage.database.url().replace("dialoq@", "no_such_user:sesame@");
        let failed = error(PostgresDriver::new(&url(&unknown_user)).unwrap().take().await);
        assert_eq!(failed.code(), Code::ACCESS_DENIED);
        assert!(failed.message().contains("no_such_user") && !failed.message().contains("sesame"), "{failed}");
        let nowhere = stage.database.url().replace("dialoq_test", "no_such_database");
        let failed = error(PostgresDriver::new(&url(&nowhere)).unwrap().take().await);
        assert_eq!(failed.code(), Code::ACCESS_DENIED);
        assert!(failed.message().contains("no_such_database"), "{failed}");
        // The other host is down, which hid the answer.
        if let Some((before, (folder, port))) =
            nowhere.split_once("?host=").and_then(|(before, after)| Some((before, after.split_once("&port=")?)))
        {
            let hosts = format!("{}:{port},127.0.0.1:1", folder.replace('/', "%2F"));
            let failed = error(PostgresDriver::new(&url(&before.replace("localhost", &hosts))).unwrap().take().await);
            assert_eq!(failed.code(), Code::SERVER_UNREACHABLE);
            assert!(failed.message().contains("\" does not exist"), "{failed}");
        }
        let mut link = stage.link().await;
        execute(&mut *link, "CREATE ROLE dialoq_without_rights").await.ok();
        execute(&mut *link, "SELECT set_config('role', 'dialoq_without_rights', false)").await.unwrap();
        // The user's own statement fails as any other of its kind, without advice that would not help.
        let (failure, code) = refused(execute(&mut *link, "DELETE FROM thing").await);
        assert_eq!(code, Code::USER_SQL_FAILED);
        assert!(!failure.error.message().contains("dialoq_user"), "{failure:?}");
    });
}

pub(crate) fn a_server_that_is_not_there_is_60030(store: Store) {
    on(store, "", "", |_| async move {
        let failed = error(PostgresDriver::new(&url("postgres://u:sesame@127.0.0.1:1/d")).unwrap().take().await);
        assert_eq!(failed.code(), Code::SERVER_UNREACHABLE);
        assert!(failed.message().contains("127.0.0.1:1") && !failed.message().contains("sesame"), "{failed}");
        // This listener takes connections and never answers.
        let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = mute.local_addr().unwrap();
        let failed = error(
            PostgresDriver::new(&url(&format!("postgres://u@{address}/d?connect_timeout=1"))).unwrap().take().await,
        );
        assert_eq!(failed.code(), Code::SERVER_UNREACHABLE);
        assert!(
            failed.message().contains(&address.to_string()) && failed.message().contains("connect_timeout"),
            "{failed}"
        );
        let failed = error(PostgresDriver::new(&url("postgres://u@h/d?sslmode=verify-full&sslrootcert=%2Fno%2Fsuch")));
        assert_eq!(failed.code(), Code::BAD_URL);
        assert!(failed.message().contains("/no/such"), "{failed}");
    });
}

pub(crate) fn a_constraint_put_off_fails_the_commit(store: Store) {
    on(store, "", "", |stage| async move {
        let mut link = stage.link().await;
        let child = "CREATE TABLE child (of int REFERENCES thing DEFERRABLE INITIALLY DEFERRED)";
        execute(&mut *link, child).await.unwrap();
        link.begin().await.unwrap();
        execute(&mut *link, "INSERT INTO child VALUES (9)").await.unwrap();
        let (failure, code) = refused(link.commit().await);
        assert_eq!((code, failure.fate), (Code::USER_SQL_FAILED, Fate::TransactionUndone));
        assert_eq!(number(&mut *link, "SELECT count(*) FROM child").await, 0);
    });
}

pub(crate) fn an_exhausted_pool_is_60032(store: Store) {
    on(store, "&pool_size=2&pool_wait_s=1", "", |stage| async move {
        let held = (stage.link().await, stage.link().await);
        let failed = error(stage.driver.take().await);
        assert_eq!(failed.code(), Code::POOL_EXHAUSTED);
        assert!(failed.is_retryable());
        assert!(failed.message().contains("2 connections") && failed.message().contains("pool_size"), "{failed}");
        drop(held);
        drop(stage.link().await);
        stage.driver.close().await;
        assert_eq!(error(stage.driver.take().await).code(), Code::STORE_CLOSED);
    });
}

pub(crate) fn a_runtime_without_timers_is_named(store: Store) {
    let database = Database::fresh(store);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
    let error = runtime.block_on(Broker::open(database.url())).unwrap_err();
    assert_eq!(error.code(), Code::STORE_IO, "{error:?}");
    assert!(error.message().contains("enable_all"), "{error}");
}

pub(crate) fn a_broker_whose_runtime_has_ended_says_so(store: Store) {
    let database = Database::fresh(store);
    let runtime = || tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let home = runtime();
    let broker = home.block_on(async {
        let broker = Broker::open(database.url()).await.unwrap();
        let definitions = "CREATE QUEUE q; CREATE SERVICE s ON QUEUE q ([DEFAULT]); CREATE WORK QUEUE w";
        broker.execute(definitions).await.unwrap();
        broker
    });
    drop(home);
    runtime().block_on(async {
        for _ in 0..2 {
            let answers = [
                broker.begin_dialog("s", "s").await.map(drop),
                broker.push_job("w", "x").await.map(drop),
                broker.take_jobs("w").await.map(drop),
                broker.receive("q").await.map(drop),
                broker.begin().await.map(drop),
            ];
            for answer in answers {
                let error = answer.unwrap_err();
                assert_eq!(error.code(), Code::STORE_CLOSED, "{error:?}");
                assert!(error.message().contains("runtime"), "{error}");
            }
        }
        assert!(broker.failed().await.message().contains("runtime"));
    });
}

pub(crate) fn calls_under_way_as_the_runtime_ends_get_an_answer(store: Store) {
    let database = Database::fresh(store);
    let home = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (broker, handle) = home.block_on(async {
        let broker = Broker::open(database.url()).await.unwrap();
        let definitions = "CREATE QUEUE q; CREATE SERVICE s ON QUEUE q ([DEFAULT]); CREATE WORK QUEUE w";
        broker.execute(definitions).await.unwrap();
        let handle = broker.begin_dialog("s", "s").await.unwrap();
        (broker, handle)
    });
    // Its only thread is kept, so that no batch goes on.
    let (keep, kept) = std::sync::mpsc::channel::<()>();
    let (say, is_kept) = std::sync::mpsc::channel();
    home.spawn(async move {
        say.send(()).unwrap();
        let _ = kept.recv();
    });
    is_kept.recv().unwrap();
    let callers = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    callers.block_on(async {
        let mut calls = tokio::task::JoinSet::new();
        for _ in 0..8 {
            let of = || broker.clone();
            let (sender, beginner, pusher, taker, receiver, user) = (of(), of(), of(), of(), of(), of());
            calls.spawn(async move { sender.send(handle, "DEFAULT", "x").await.map(drop) });
            calls.spawn(async move { beginner.begin_dialog("s", "s").await.map(drop) });
            calls.spawn(async move { pusher.push_job("w", "x").await.map(drop) });
            calls.spawn(async move { taker.take_jobs("w").await.map(drop) });
            calls.spawn(async move { receiver.receive("q").await.map(drop) });
            calls.spawn(async move { user.begin().await?.receive("q").wait_forever().await.map(drop) });
        }
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
        home.shutdown_background();
        drop(keep);
        let mut unknown = 0;
        while let Some(answer) = calls.join_next().await {
            let Err(error) = answer.unwrap() else { continue };
            assert!([Code::STORE_CLOSED, Code::COMMIT_UNKNOWN].contains(&error.code()), "{error:?}");
            unknown += usize::from(error.code() == Code::COMMIT_UNKNOWN && error.message().contains("runtime"));
        }
        assert!(unknown > 8, "{unknown}");
    });
}

/// A document type declaration stands before the first element; elsewhere its words are text.
pub(crate) fn plain_sql_refuses_declarations_and_no_words(store: Store) {
    crate::enlisting::on(store, |broker, client, _| async move {
        broker.execute("CREATE MESSAGE TYPE [//t/Xml] VALIDATION = WELL_FORMED_XML").await.unwrap();
        let fault =
            "SELECT dialoq.body_fault(t.message_type_id, $1) FROM dialoq.message_type AS t WHERE t.name = '//t/Xml'";
        let fault = async |body: &[u8]| client.query_one(fault, &[&body]).await.unwrap().get::<_, String>(0);
        for body in [
            "<page><![CDATA[<!DOCTYPE html>]]></page>",
            "<!-- no <!DOCTYPE a> --><a/>",
            "<?p no <!DOCTYPE a> ?><a><!--<!DOCTYPE a>--></a>",
        ] {
            assert_eq!(fault(body.as_bytes()).await, "", "{body}");
        }
        for before in [
            "",
            "\u{feff}",
            " \n",
            "<?xml version='1.0'?>",
            "<!-- a - b -->",
            "<?p ? > ???>",
            "<!--x--><?p??> <!--y-->",
        ] {
            let body = format!("{before}<!DOCTYPE a [<!ENTITY b 'c'>]><a>&b;</a>");
            let found = fault(body.as_bytes()).await;
            assert!(found.ends_with("it has a document type declaration"), "{body}: {found}");
        }
        for (attributes, is_refused) in [(1024, false), (1025, true)] {
            let names: String = (0..attributes).map(|number| format!(" a{number}='{number}'")).collect();
            let found = fault(format!("<a{names}/>").as_bytes()).await;
            assert_eq!(found.ends_with("more than 1024 attributes"), is_refused, "{attributes}: {found}");
        }
        // The server's parser takes hours for it.
        let hostile = fault("<!--".repeat(1_000_000).as_bytes()).await;
        assert!(hostile.ends_with("is malformed"), "{hostile}");
        let halves: [&[u16]; 3] = [&[0xd800], &[0xdc00], &[0xdc00, 0xd800]];
        for half in halves {
            let units = "\u{feff}<a>".encode_utf16().chain(half.iter().copied()).chain("</a>".encode_utf16());
            let found = fault(&units.flat_map(u16::to_le_bytes).collect::<Vec<u8>>()).await;
            assert!(found.ends_with("an unpaired surrogate"), "{half:x?}: {found}");
        }
    });
}

pub(crate) fn a_verb_of_plain_sql_in_a_transaction_that_only_reads_has_its_number(store: Store) {
    crate::enlisting::on(store, |_, client, _| async move {
        for verb in ["receive('server')", "receive_batch('server', ARRAY[1, 1])", "take_jobs('none')"] {
            client.batch_execute("BEGIN READ ONLY").await.unwrap();
            let refusal = client.query(&format!("SELECT FROM dialoq.{verb}"), &[]).await.unwrap_err();
            let server = refusal.as_db_error().expect("the server refuses it");
            assert_eq!((server.code().code(), server.detail()), ("25006", Some("dialoq 60014")), "{verb}: {server}");
            client.batch_execute("ROLLBACK").await.unwrap();
        }
    });
}

/// As after a failover from a server that hangs: it accepts a connection and sends nothing.
pub(crate) fn the_next_host_is_asked_after_a_silent_one(store: Store) {
    let database = Database::fresh(store);
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let (login, rest) = database.url().split_once('@').expect("a user");
    let (host, name) = rest.split_once('/').expect("a database");
    let parameter = if name.contains('?') { '&' } else { '?' };
    let url = |hosts: &str| format!("{login}@{hosts}/{name}{parameter}connect_timeout=1");
    let first = silent.local_addr().unwrap().to_string();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        let broker = Broker::open(&url(&format!("{first},{host}"))).await.unwrap();
        broker.execute("CREATE QUEUE q").await.unwrap();
        broker.close().await.unwrap();
    });
}

/// A COMMIT may wait for a disk or a standby: a caller that has lost its answer must not be given "no" meanwhile.
pub(crate) fn a_unit_under_way_is_waited_for(store: Store) {
    crate::enlisting::on(store, |broker, client, database| async move {
        for (end, happened) in [("COMMIT", true), ("ROLLBACK", false)] {
            let unit_id = uuid::Uuid::new_v4();
            client.batch_execute(&format!("BEGIN; SELECT dialoq.claim_unit('{unit_id}')")).await.unwrap();
            let asker = broker.clone();
            let asked = tokio::spawn(async move { asker.unit_happened(unit_id).await });
            let waiting =
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
            while database.sql(waiting) == "0" && !asked.is_finished() {
                tokio::task::yield_now().await;
            }
            assert!(!asked.is_finished(), "it answers while the unit is under way");
            client.batch_execute(end).await.unwrap();
            assert_eq!(asked.await.unwrap().unwrap(), happened);
        }
        let reading =
            format!("BEGIN READ ONLY; SELECT happened FROM dialoq.unit_happened('{}'); COMMIT", uuid::Uuid::nil());
        client.batch_execute(&reading).await.unwrap();
        broker.close().await.unwrap();
    });
}
