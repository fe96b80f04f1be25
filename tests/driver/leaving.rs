//! Callers that go away, connections that do, and what sessions are like.

use crate::servers::{Database, Store, socket_of};
use crate::stage::{SOON, Stage, call, error, execute, number, on, refused, rows, sql};
use dialoq::internals::store::database::link::{Arg, Driver, Fate, Link};
use dialoq::protocol::{ReceiveFrom, Verb};
use dialoq::{Act, Broker, Code, ConversationHandle, GroupId};
use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

/// No test sleeps to the end of `nap`: the test ends the connection of a running statement as soon as the server shows it.
/// The test waits for that a third of a minute at most, so the statement must run longer.
const LOCKING: &str = "
CREATE FUNCTION dialoq.lock(key int) RETURNS TABLE (locked int) LANGUAGE plpgsql AS $$
BEGIN
    IF coalesce(current_setting('dialoq.session_locks', true), '') = '1' THEN
        PERFORM pg_advisory_lock(key);
    ELSE
        PERFORM pg_advisory_xact_lock(key);
    END IF;
    RETURN QUERY SELECT key;
END $$;
CREATE FUNCTION dialoq.nap() RETURNS TABLE (slept int) LANGUAGE sql AS $$ SELECT 1 FROM pg_sleep(60) $$;";

const WAITING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
const LOCKS: &str = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
const SLEEPING: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";

fn lock(key: i32) -> dialoq::internals::store::database::link::Call<'static> {
    call("lock", vec![Arg::Int(key)])
}

/// Ends every other session of the database whose last statement is like that.
async fn end_others(stage: &Stage, like: &str) {
    let mut link = stage.driver.dedicated().await.unwrap();
    let text = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid() AND query LIKE '{like}'"
    );
    assert!(number(&mut *link, &text).await > 0, "no session was ended");
}

pub(crate) fn a_transaction_left_open_is_rolled_back(store: Store) {
    on(store, "&pool_size=1", LOCKING, |stage| async move {
        let mut link = stage.link().await;
        link.begin().await.unwrap();
        execute(&mut *link, "INSERT INTO thing VALUES (1, 'a')").await.unwrap();
        link.call(lock(5)).await.unwrap();
        drop(link);
        let mut next = stage.link().await;
        assert_eq!(number(&mut *next, LOCKS).await, 0);
        assert_eq!(number(&mut *next, "SELECT count(*) FROM thing").await, 0);
        next.begin().await.unwrap();
        execute(&mut *next, "INSERT INTO thing VALUES (1, 'a')").await.unwrap();
        next.commit().await.unwrap();
        assert_eq!(number(&mut *next, "SELECT count(*) FROM thing").await, 1);
    });
}

pub(crate) fn a_call_left_waiting_is_ended_and_its_locks_are_free(store: Store) {
    on(store, "&pool_size=2", LOCKING, |stage| async move {
        let mut holder = stage.link().await;
        holder.begin().await.unwrap();
        holder.call(lock(5)).await.unwrap();
        let mut waiter = stage.link().await;
        waiter.begin().await.unwrap();
        waiter.call(lock(6)).await.unwrap();
        // The form of a call that does not travel with BEGIN is prepared by this: one poll sends the next one.
        waiter.call(lock(7)).await.unwrap();
        {
            let mut waiting = pin!(waiter.call(lock(5)));
            let first = waiting.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(matches!(first, Poll::Pending));
            stage.until(WAITING, 1).await;
        }
        drop(waiter);
        stage.until(WAITING, 0).await;
        stage.until(LOCKS, 1).await;
        // The pool has room for another in its place.
        let mut next = stage.link().await;
        assert_eq!(number(&mut *next, "SELECT 1").await, 1);
        holder.commit().await.unwrap();
    });
}

pub(crate) fn locks_of_the_session_do_not_go_back_to_the_pool(store: Store) {
    on(store, "&pool_size=1", LOCKING, |stage| async move {
        let mut link = stage.link().await;
        link.begin().await.unwrap();
        link.hold_locks().await.unwrap();
        link.savepoint(1).await.unwrap();
        link.call(lock(5)).await.unwrap();
        link.rollback_to(1).await.unwrap();
        stage.until(LOCKS, 1).await;
        link.commit().await.unwrap();
        stage.until(LOCKS, 1).await;
        drop(link);
        let mut next = stage.link().await;
        assert_eq!(number(&mut *next, LOCKS).await, 0);
        next.begin().await.unwrap();
        next.call(lock(5)).await.unwrap();
        next.commit().await.unwrap();
        assert_eq!(number(&mut *next, LOCKS).await, 0, "a transaction's locks are its own again");
    });
}

pub(crate) fn the_error_of_a_lost_connection_states_the_outcome(store: Store) {
    on(store, "", LOCKING, |stage| async move {
        for (in_transaction, fate, expected) in
            [(false, Fate::Unknown, Code::COMMIT_UNKNOWN), (true, Fate::TransactionUndone, Code::SERVER_UNREACHABLE)]
        {
            let mut link = stage.link().await;
            if in_transaction {
                link.begin().await.unwrap();
            }
            let ending = async {
                stage.until(SLEEPING, 1).await;
                end_others(&stage, "%dialoq.nap%").await;
            };
            let (answer, ()) = tokio::join!(link.call(call("nap", vec![])), ending);
            let (failure, code) = refused(answer);
            assert_eq!((code, failure.fate, failure.is_link_usable), (expected, fate, false), "{failure:?}");
            assert!(failure.error.message().contains("administrator"), "{failure:?}");
            // Nothing is sent over it any more, so that nothing more is unknown.
            link.rollback().await.unwrap();
            let (failure, code) = refused(link.call(call("nap", vec![])).await);
            assert_eq!((code, failure.fate), (Code::SERVER_UNREACHABLE, Fate::Undone));
        }
        // A query changes nothing, so that nothing about it can be unknown.
        let mut link = stage.link().await;
        let ending = async {
            stage.until(SLEEPING, 1).await;
            end_others(&stage, "%pg_sleep(60)%").await;
        };
        // Ended in the middle, like `nap`.
        let query = sql("SELECT 1 FROM pg_sleep(60)", vec![]);
        let (answer, ()) = tokio::join!(link.query(&query), ending);
        let (failure, code) = refused(answer);
        assert_eq!((code, failure.fate), (Code::SERVER_UNREACHABLE, Fate::Undone));
    });
}

/// RECEIVEs of every form, alone and in units, of callers that leave while the only connection is in use.
pub(crate) fn a_receive_given_up_before_it_has_a_connection_takes_nothing(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(&format!("{}&pool_size=1", database.url())).await.unwrap();
        broker
            .execute(
                "CREATE MESSAGE TYPE [//t/Word] VALIDATION = NONE; CREATE CONTRACT [//t/Talk] ([//t/Word] SENT BY ANY);
                 CREATE QUEUE asker; CREATE QUEUE server;
                 CREATE SERVICE [//t/Asker] ON QUEUE asker; CREATE SERVICE [//t/Server] ON QUEUE server ([//t/Talk]);",
            )
            .await
            .unwrap();
        let dialog = broker.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").await.unwrap();
        broker.send(dialog, "//t/Word", "a").await.unwrap();
        let ids = database.sql(
            "SELECT conversation_handle, conversation_group_id FROM dialoq.conversation_endpoint WHERE NOT is_initiator",
        );
        let (handle, group) = ids.split_once('|').unwrap();
        let (handle, group) = (ConversationHandle(handle.parse().unwrap()), GroupId(group.parse().unwrap()));
        let forms = [
            ReceiveFrom::Any,
            ReceiveFrom::Oldest,
            ReceiveFrom::Levels { lowest: 1, highest: 10 },
            ReceiveFrom::Conversation(handle),
            ReceiveFrom::Group(group),
        ];
        let receive = |from| Verb::Receive { queue: "server".into(), top: None, from };
        let holder = broker.begin().await.unwrap();
        holder.send(dialog, "//t/Word", "b").await.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        for from in forms {
            for verbs in [1, 2] {
                let unit = vec![receive(from); verbs];
                assert!(pin!(broker.submit(unit.clone())).poll(&mut context).is_pending());
                assert!(pin!(broker.submit_once(uuid::Uuid::new_v4(), unit)).poll(&mut context).is_pending());
            }
        }
        holder.commit().await.unwrap();
        // Waits for what is under way.
        broker.close().await.unwrap();
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.queue_message"), "2");
    });
}

/// DIFFERENCE(given-up-a-moment-before): one whose group becomes free within 250 ms is done, so each is waited for here.
pub(crate) fn calls_whose_callers_leave_while_they_wait_for_a_group_are_not_done(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let until_waiting = async |sessions: &str| {
            while database.sql(WAITING) != sessions {
                tokio::task::yield_now().await;
            }
        };
        let broker = Broker::open(database.url()).await.unwrap();
        let definitions = "CREATE QUEUE asker; CREATE QUEUE server;
             CREATE SERVICE [//t/Asker] ON QUEUE asker; CREATE SERVICE [//t/Server] ON QUEUE server ([DEFAULT]);";
        broker.execute(definitions).await.unwrap();
        let dialog = broker.begin_dialog("//t/Asker", "//t/Server").await.unwrap();
        broker.send(dialog, "DEFAULT", "a").await.unwrap();
        let holder = broker.begin().await.unwrap();
        // The receive is no claim then.
        holder.sql("SELECT 1", ()).await.unwrap();
        let handle = holder.receive("server").await.unwrap().unwrap().first().handle();
        let other = Broker::open(database.url()).await.unwrap();
        let hour = std::time::Duration::from_secs(3600);
        let reply = Verb::Send { handles: vec![handle], message_type: None, body: None, trace: None };
        let calls: Vec<Pin<Box<dyn Future<Output = dialoq::Result<()>>>>> = vec![
            Box::pin(async { other.end(handle).await.map(drop) }),
            Box::pin(async { other.end_with_error(handle, 1, "late").await.map(drop) }),
            Box::pin(async { other.timer(handle, hour).await }),
            Box::pin(async { other.send(handle, "DEFAULT", "late").await }),
            Box::pin(async { other.begin_dialog("//t/Server", "//t/Asker").related_to(handle).await.map(drop) }),
            Box::pin(async { other.submit(vec![reply.clone(), reply.clone()]).await.map(drop) }),
            Box::pin(async { other.execute("DROP SERVICE [//t/Server]").await.map(drop) }),
        ];
        for mut call in calls {
            tokio::select! {
                done = &mut call => panic!("it did not wait: {done:?}"),
                () = until_waiting("1") => {}
            }
            drop(call);
            until_waiting("0").await;
        }
        holder.rollback().await.unwrap();
        // Waits for what is under way.
        other.close().await.unwrap();
        let state = "SELECT count(*) || (SELECT ' ' || count(*) || min(state) || count(dialog_timer) FROM dialoq.conversation_endpoint)
             FROM dialoq.sys_services WHERE name LIKE '//t/%'";
        assert_eq!(database.sql(state), "2 2CO0");
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.queue_message"), "1");
        broker.close().await.unwrap();
    });
}

pub(crate) fn a_connection_lost_while_idle_is_replaced(store: Store) {
    on(store, "&pool_size=1", "", |stage| async move {
        let mut link = stage.link().await;
        assert_eq!(number(&mut *link, "SELECT 1 AS marked").await, 1);
        drop(link);
        end_others(&stage, "%").await;
        stage
            .until(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
                0,
            )
            .await;
        let well = async {
            // Whether the loss has been noticed yet when the next link is taken is up to the network.
            loop {
                let mut link = stage.link().await;
                if link.query(&sql("SELECT 1", vec![])).await.is_ok() {
                    return;
                }
            }
        };
        tokio::time::timeout(SOON, well).await.expect("it is never replaced");
    });
}

pub(crate) fn a_notice_reaches_a_listener(store: Store) {
    on(store, "", "", |stage| async move {
        let mut listener = stage.driver.listen().await.unwrap().expect("PostgreSQL tells");
        let mut link = stage.link().await;
        execute(&mut *link, "SELECT pg_notify('other', 'no'), pg_notify('dialoq', 'q:1 c')").await.unwrap();
        let payloads = tokio::time::timeout(SOON, listener.next()).await.expect("no notification came").unwrap();
        assert_eq!(payloads, ["q:1 c"]);
        link.begin().await.unwrap();
        execute(&mut *link, "SELECT pg_notify('dialoq', 'q:2')").await.unwrap();
        link.rollback().await.unwrap();
        execute(&mut *link, "SELECT pg_notify('dialoq', 'q:3')").await.unwrap();
        let payloads = tokio::time::timeout(SOON, listener.next()).await.expect("no notification came").unwrap();
        assert_eq!(payloads, ["q:3"]);
    });
}

pub(crate) fn a_lost_listener_is_reported(store: Store) {
    on(store, "", "", |stage| async move {
        let mut listener = stage.driver.listen().await.unwrap().expect("PostgreSQL tells");
        end_others(&stage, "LISTEN%").await;
        let lost = error(tokio::time::timeout(SOON, listener.next()).await.expect("the listener does not fail"));
        assert_eq!(lost.code(), Code::SERVER_UNREACHABLE);
        assert!(lost.message().contains("administrator"), "{lost}");
    });
}

pub(crate) fn durability_and_the_search_path_are_set(store: Store) {
    on(store, "&durability=normal&options=-c%20search_path%3Dshop", "", |stage| async move {
        let shown = async |link: &mut dyn Link| {
            let text = "SELECT current_setting('synchronous_commit') AS sync, current_setting('search_path') AS path,
                current_setting('dialoq.client') AS client, current_setting('TimeZone') AS zone,
                current_setting('application_name') AS name";
            let row = &rows(link, text).await[0];
            ["sync", "path", "client", "zone", "name"].map(|column| row.get::<String>(column).unwrap())
        };
        let mut link = stage.link().await;
        assert_eq!(shown(&mut *link).await, ["off", "shop, dialoq", "marked", "UTC", "dialoq"]);
        let full =
            dialoq::internals::store::postgres::PostgresDriver::new(&crate::stage::url(stage.database.url())).unwrap();
        let mut link = full.take().await.unwrap();
        assert_eq!(shown(&mut *link).await, ["on", "public, dialoq", "marked", "UTC", "dialoq"]);
        // The user is called dialoq: its own schema leaves the path, wherever it stands.
        let paths =
            [("public,%22$user%22", "public, dialoq"), ("$user,public", "public, dialoq"), ("%22$user%22", "dialoq")];
        for (path, expected) in paths {
            let text = format!("{}&options=-c%20search_path%3D{path}", stage.database.url());
            let driver = dialoq::internals::store::postgres::PostgresDriver::new(&crate::stage::url(&text)).unwrap();
            assert_eq!(shown(&mut *driver.take().await.unwrap()).await[1], expected, "{path}");
        }
    });
}

/// Leads a port to the server's socket, on threads of its own. The client can send although the server has ended the session.
fn port_before(url: &str) -> String {
    let (start, _) = url.split_once('?').expect("a URL with the folder of the socket");
    let socket = socket_of(url);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("a port").port();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (Ok(client), Ok(server)) = (client, std::os::unix::net::UnixStream::connect(&socket)) else { return };
            let (mut asks, mut asked) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut asks, &mut asked));
            std::thread::spawn(move || {
                let (mut server, mut client) = (server, client);
                let _ = std::io::copy(&mut server, &mut client);
                let _ = client.shutdown(std::net::Shutdown::Write);
            });
        }
    });
    format!("{}?sslmode=disable", start.replace("localhost", &format!("127.0.0.1:{port}")))
}

/// The runtime has one thread, which waits for the end of the session here: the client reads of it only after the next request.
pub(crate) fn what_is_sent_to_a_session_that_was_ended_while_idle_has_not_run(store: Store) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let name = database.sql("SELECT current_database()");
        let set = |limit: &str, value: &str| database.sql(&format!("ALTER DATABASE {name} SET {limit} = {value}"));
        let url = port_before(database.url());
        let sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND";
        set("idle_in_transaction_session_timeout", "'100ms'");
        let broker = Broker::open(&url).await.unwrap();
        broker.sql("CREATE TABLE thing (id int PRIMARY KEY)", ()).await.unwrap();
        let tx = broker.begin().await.unwrap();
        tx.sql("INSERT INTO thing VALUES (1)", ()).await.unwrap();
        while database.sql(&format!("{sessions} state = 'idle in transaction'")) != "0" {}
        let error = tx.commit().await.expect_err("the server has rolled it back");
        assert_eq!(error.code(), Code::SERVER_UNREACHABLE, "{error}");
        broker.close().await.unwrap();
        set("idle_session_timeout", "'500ms'");
        let broker = Broker::open(&url).await.unwrap();
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        broker.push_job("w", "a").await.unwrap();
        while database.sql(&format!("{sessions} query LIKE '%push_job%' AND pid <> pg_backend_pid()")) != "0" {}
        broker.push_job("w", "b").await.expect("it has not run, so it is repeated");
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.job"), "2");
        broker.close().await.unwrap();
    });
}
