//! Rows that a member of dialoq_user holds locked in a transaction that stays open: nothing of other sessions waits for them.

use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls};
use dialoq::status::DeadLetterFilter;
use dialoq::{Act, Broker, Code, ConversationHandle, GroupId, Tx};
use std::future::Future;
use std::time::Duration;
use uuid::Uuid;

const SCRIPT: &str = "
    CREATE MESSAGE TYPE [Word] VALIDATION = NONE; CREATE CONTRACT [Talk] ([Word] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server;
    CREATE SERVICE [Asker] ON QUEUE asker; CREATE SERVICE [Server] ON QUEUE server ([Talk]);";

fn on<F: Future<Output = ()>>(store: Store, test: impl FnOnce(Database, Broker, ConversationHandle) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        let dialog = broker.begin_dialog("Asker", "Server").contract("Talk").await.unwrap();
        tokio::time::timeout(6 * SOON, test(database, broker, dialog)).await.expect("the test hangs");
    });
}

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    // Whatever waits for a row longer than this waits for the whole transaction.
    client.batch_execute(&format!("SET statement_timeout = {}", SOON.as_millis())).await.unwrap();
    client
}

async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(SOON, work)
        .await
        .unwrap_or_else(|_| panic!("{what} waits for a row that another session holds"))
}

async fn until(client: &Client, text: &str) {
    let holds = async { while !client.query_one(text, &[]).await.unwrap().get::<_, bool>(0) {} };
    tokio::time::timeout(SOON, holds).await.unwrap_or_else(|_| panic!("never true: {text}"));
}

/// Writes every row of every process as it is.
const HOLD: &str = "BEGIN;
    SELECT dialoq.put_queue_monitor(m.process, m.monitor_id, m.queue_id, m.state, NULL, NULL, 0, 1, 0, 0, 0, 0, 0, m.host_name,
        m.process_id) FROM dialoq.queue_monitor AS m;
    SELECT dialoq.put_activated_task(a.process, a.task_id, a.monitor_id, a.queue_id, a.procedure_name, a.process_id,
        a.started_at) FROM dialoq.activated_task AS a;";

/// Writes the rows in a transaction that stays open. On a slow machine the process itself may hold one of them for longer
/// than the 100 ms that the member waits.
async fn hold_rows(member: &Client) {
    let held = async {
        while member.batch_execute(HOLD).await.is_err() {
            member.batch_execute("ROLLBACK").await.unwrap();
        }
    };
    tokio::time::timeout(SOON, held).await.expect("the process holds its rows");
}

pub(crate) fn rows_of_readers_stop_no_query_and_no_reader(store: Store) {
    on(store, |database, broker, dialog| async move {
        let (member, side) = (connect(database.url()).await, connect(database.url()).await);
        let (word, mut words) = tokio::sync::mpsc::unbounded_channel();
        let readers = broker
            .activate_with("server", move |session| {
                let word = word.clone();
                async move {
                    while let Some(messages) = session.receive("server").await? {
                        word.send(messages.len()).unwrap();
                    }
                    Ok(())
                }
            })
            .max_queue_readers(1)
            .start();
        until(&side, "SELECT count(*) = 1 FROM dialoq.queue_monitor").await;
        hold_rows(&member).await;
        broker.send(dialog, "Word", "one").await.unwrap();
        soon("a reader", words.recv()).await.unwrap();
        soon("a query", broker.query("SELECT 1 AS one", ())).await.unwrap();
        let tx = broker.begin().await.unwrap();
        soon("a query of a transaction", tx.query("SELECT 1 AS one", ())).await.unwrap();
        tx.rollback().await.unwrap();
        // Callers that go away while their query waits for the row take no place of a reader with them.
        let place = "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ShareLock' AND objsubid = 1
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND classid::bigint >> 16 = 17488";
        let session: i32 = side.query_one(place, &[]).await.unwrap().get(0);
        for round in 0..20 {
            broker.send(dialog, "Word", &format!("{round}")[..]).await.unwrap();
            let _ = tokio::time::timeout(Duration::from_millis(1), broker.query("SELECT 1 AS one", ())).await;
        }
        let mut left = 20;
        while left > 0 {
            left -= soon("a reader", words.recv()).await.unwrap();
        }
        let still: i32 = side.query_one(place, &[]).await.unwrap().get(0);
        assert_eq!(session, still, "the session that holds the presence is another");
        member.batch_execute("ROLLBACK").await.unwrap();
        until(&side, "SELECT tasks_started_total > 0 FROM dialoq.queue_monitor").await;
        readers.stop().await;
        broker.close().await.unwrap();
    });
}

pub(crate) fn rows_of_a_dead_process_do_not_stop_tick(store: Store) {
    on(store, |database, broker, _| async move {
        // Its own tick would hold the rows for a moment.
        broker.close().await.unwrap();
        let (member, side) = (connect(database.url()).await, connect(database.url()).await);
        let put = "SELECT dialoq.put_queue_monitor($1::text::uuid, 1, 70000, 'INACTIVE', NULL, NULL, 0, 1, 0, 0, 0, 0, 0, 'h', 1),
            dialoq.put_activated_task($1::text::uuid, 1, 1, 70000, 'p', 1, now())";
        let (held, free) = (Uuid::new_v4().to_string(), Uuid::new_v4().to_string());
        member.execute(put, &[&held]).await.unwrap();
        side.execute(put, &[&free]).await.unwrap();
        member.batch_execute("BEGIN").await.unwrap();
        member.execute(put, &[&held]).await.unwrap();
        side.query("SELECT * FROM dialoq.tick()", &[]).await.expect("tick waits for a row that another session holds");
        let left = "SELECT count(*) = 0 FROM dialoq.queue_monitor AS m WHERE m.process = $1::text::uuid";
        assert!(side.query_one(left, &[&free]).await.unwrap().get::<_, bool>(0));
        member.batch_execute("COMMIT").await.unwrap();
        side.query("SELECT * FROM dialoq.tick()", &[]).await.unwrap();
        assert!(side.query_one(left, &[&held]).await.unwrap().get::<_, bool>(0));
    });
}

/// A process that has ended costs a lock of the server to the end of the tick.
pub(crate) fn rows_of_thousands_of_dead_processes_do_not_stop_tick(store: Store) {
    on(store, |database, broker, _| async move {
        broker.execute("CREATE WORK QUEUE w WITH RETRY_DELAY_MS = 0").await.unwrap();
        broker.push_job("w", "a").await.unwrap();
        broker.close().await.unwrap();
        let (member, side) = (connect(&database.login("dialoq_user")).await, connect(database.url()).await);
        let put = "SELECT count(*) FROM (
            SELECT dialoq.put_activated_task(gen_random_uuid(), 1, 1, 70000, 'p', 1, now()) FROM generate_series(1, 1000)) AS t";
        member.batch_execute(put).await.unwrap();
        // Jobs of such processes, whose rows stay locked; that of one does not.
        let jobs = "INSERT INTO dialoq.job (job_id, queue_id, rank_from_top, take_order, state, level, attempts, token, pushed_at, taken_at,
                job_type, pushed_by, taken_by, process, holder)
            SELECT -g.n, j.queue_id, 0, -g.n, 2, 5, 1, g.n, now(), now(), '', '', '', gen_random_uuid(), gen_random_uuid()
            FROM dialoq.job AS j, generate_series(1, 1000) AS g (n)";
        side.batch_execute(jobs).await.unwrap();
        let holder = connect(database.url()).await;
        holder.batch_execute("BEGIN; SELECT FROM dialoq.job WHERE job_id < -1 FOR UPDATE").await.unwrap();
        let locks = "SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'";
        let free = "SELECT count(*) FROM dialoq.job WHERE job_id = -1 AND state = 2";
        let tasks = "SELECT count(*) FROM dialoq.activated_task";
        let count = async |text: &str| side.query_one(text, &[]).await.unwrap().get::<_, i64>(0);
        let ticks = async {
            while count(free).await + count(tasks).await > 0 {
                side.batch_execute("BEGIN; SELECT * FROM dialoq.tick()").await.unwrap();
                assert!(count(locks).await <= 400, "a tick takes a lock for each process");
                side.batch_execute("COMMIT").await.unwrap();
            }
        };
        soon("a tick", ticks).await;
        holder.batch_execute("ROLLBACK").await.unwrap();
    });
}

pub(crate) fn an_attempt_that_another_session_noted_first_does_no_harm(store: Store) {
    on(store, |database, broker, dialog| async move {
        broker.send(dialog, "Word", "one").await.unwrap();
        broker.close().await.unwrap();
        let (receiver, member) = (connect(database.url()).await, connect(database.url()).await);
        let side = connect(database.url()).await;
        let ids = "SELECT e.conversation_group_id::text, s.queue_id FROM dialoq.conversation_endpoint AS e
            JOIN dialoq.service AS s ON s.service_id = e.service_id WHERE NOT e.is_initiator AND NOT e.is_system";
        let row = side.query_one(ids, &[]).await.unwrap();
        let (group, queue): (String, i32) = (row.get(0), row.get(1));
        let note = async |client: &Client| {
            let id = Uuid::new_v4().to_string();
            let text = "SELECT dialoq.begin_attempt($1::text::uuid, $2, $3::text::uuid)";
            client.execute(text, &[&id, &queue, &group]).await.map(|_| id)
        };
        let receive = "BEGIN; SELECT * FROM dialoq.receive('server')";
        let rollbacks = "SELECT count(*) FROM dialoq.queue_rollback";
        // It holds the row.
        receiver.batch_execute(receive).await.unwrap();
        member.batch_execute("BEGIN").await.unwrap();
        note(&member).await.unwrap();
        let state = match note(&side).await {
            Ok(_) => None,
            Err(error) => error.code().map(|state| state.code().to_owned()),
        };
        assert_eq!(state.as_deref(), Some("55P03"), "the second waits for the first");
        member.batch_execute("COMMIT").await.unwrap();
        receiver.batch_execute("ROLLBACK").await.unwrap();
        side.query("SELECT * FROM dialoq.tick()", &[]).await.unwrap();
        assert_eq!(database.sql(rollbacks), "1");
        // It was first, and the transaction commits: the row of rollbacks ends all the same.
        receiver.batch_execute(receive).await.unwrap();
        note(&member).await.unwrap();
        let own = note(&side).await.unwrap();
        receiver.execute("SELECT * FROM dialoq.commit_attempt($1::text::uuid)", &[&own]).await.unwrap();
        receiver.batch_execute("COMMIT").await.unwrap();
        side.query("SELECT * FROM dialoq.tick()", &[]).await.unwrap();
        assert_eq!(database.sql(rollbacks), "0");
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.receive_attempt"), "0");
    });
}

pub(crate) fn tick_is_refused_in_a_transaction_that_has_written(store: Store) {
    on(store, |database, broker, dialog| async move {
        let member = connect(database.url()).await;
        member.batch_execute("CREATE TABLE mine (n integer)").await.unwrap();
        let send = format!("SELECT * FROM dialoq.send('{dialog}', 'Word', 'a')");
        for before in ["INSERT INTO mine VALUES (1)", &send] {
            member.batch_execute("BEGIN").await.unwrap();
            member.batch_execute(before).await.unwrap();
            let refused = member.query("SELECT * FROM dialoq.tick()", &[]).await.expect_err("tick is for others");
            assert_eq!(refused.code().map(|state| state.code()), Some("SB005"), "{before}: {refused:?}");
            member.batch_execute("ROLLBACK").await.unwrap();
        }
        member.query("SELECT * FROM dialoq.tick()", &[]).await.unwrap();
        broker.close().await.unwrap();
    });
}

pub(crate) fn sends_that_wait_for_a_group_stop_no_sender_of_another(store: Store) {
    on(store, |database, broker, held| async move {
        let free = broker.begin_dialog("Asker", "Server").contract("Talk").await.unwrap();
        let tx = broker.begin().await.unwrap();
        tx.send(held, "Word", "first").await.unwrap();
        // More than a batch takes, of bodies and of items, and more than the pool has connections.
        let body = vec![b'x'; 1 << 20];
        let mut others = tokio::task::JoinSet::new();
        for number in 0..400 {
            let (broker, body) = (broker.clone(), if number < 8 { body.clone() } else { vec![b'y'] });
            others.spawn(async move { broker.send(held, "Word", &body[..]).await });
        }
        store.barrier(&broker).await;
        for _ in 0..10 {
            soon("a sender of another group", broker.send(free, "Word", "passes")).await.unwrap();
        }
        assert!(others.try_join_next().is_none(), "the group is held");
        tx.commit().await.unwrap();
        while let Some(sent) = others.join_next().await {
            sent.unwrap().unwrap();
        }
        broker.close().await.unwrap();
        drop(database);
    });
}

pub(crate) fn a_member_that_frees_its_locks_stops_no_receive(store: Store) {
    on(store, |database, broker, dialog| async move {
        broker.send(dialog, "Word", "one").await.unwrap();
        let member = connect(database.url()).await;
        member.batch_execute("SET dialoq.session_locks = '1'; BEGIN").await.unwrap();
        assert_eq!(member.query("SELECT * FROM dialoq.receive('server')", &[]).await.unwrap().len(), 1);
        member.batch_execute("SELECT dialoq.unlock_session(); SELECT pg_advisory_unlock_all()").await.unwrap();
        let received = soon("a RECEIVE", async { broker.receive("server").await }).await.unwrap();
        assert!(received.is_none(), "the group is the member's");
        member.batch_execute("ROLLBACK").await.unwrap();
        assert_eq!(broker.receive("server").wait(SOON).await.unwrap().expect("the message").len(), 1);
        broker.close().await.unwrap();
    });
}

/// A prepared transaction holds a group without a session, so the view of sessions does not show it.
pub(crate) fn the_prepared_transaction_that_holds_a_group_is_named(store: Store) {
    on(store, |database, broker, dialog| async move {
        broker.send(dialog, "Word", "one").await.unwrap();
        let member = connect(database.url()).await;
        let can_prepare = "SELECT current_setting('max_prepared_transactions')::integer > 0";
        if !member.query_one(can_prepare, &[]).await.unwrap().get::<_, bool>(0) {
            println!("the server of DIALOQ_TEST_POSTGRES has max_prepared_transactions = 0");
            return broker.close().await.unwrap();
        }
        let name = format!("held {}", Uuid::now_v7());
        member.batch_execute("BEGIN").await.unwrap();
        let received =
            member.query_one("SELECT conversation_group_id::text FROM dialoq.receive('server')", &[]).await.unwrap();
        let group = GroupId(received.get::<_, String>(0).parse().unwrap());
        member.batch_execute(&format!("PREPARE TRANSACTION '{name}'")).await.unwrap();
        let holder = broker.lock_holder(group).await.unwrap();
        let explained = broker.explain("server").await.unwrap();
        // For the messages of waits, which come after 15 seconds.
        let named = format!("SELECT dialoq.lock_holders(dialoq.group_key('{group}'))");
        let holders: String = member.query_one(&named, &[]).await.unwrap().get(0);
        let is_strange = format!("SELECT dialoq.is_held_by_stranger(dialoq.group_key('{group}'))");
        let is_strange: bool = member.query_one(&is_strange, &[]).await.unwrap().get(0);
        member.batch_execute(&format!("ROLLBACK PREPARED '{name}'")).await.unwrap();
        let holder = holder.expect("a holder");
        assert_eq!((holder.session_id, holder.prepared.as_ref()), (None, Some(&name)));
        assert!(holder.to_string().starts_with(&format!("prepared transaction '{name}', login '")), "{holder}");
        assert!(explained.reasons.iter().any(|reason| reason.what.contains(&name)), "{explained:?}");
        assert!(holders.contains(&name) && !is_strange, "{holders}");
        assert_eq!(broker.lock_holder(group).await.unwrap(), None);
        broker.close().await.unwrap();
    });
}

/// As if its connection was cut in silence. Without the second connection the other process learns of the message by its poll, a minute
/// later.
pub(crate) fn a_notification_whose_connection_hangs_goes_by_another(store: Store) {
    on(store, |database, broker, dialog| async move {
        let (gate, side) = (connect(database.url()).await, connect(database.url()).await);
        gate.batch_execute("SELECT pg_advisory_lock(21)").await.unwrap();
        let hangs = "CREATE SEQUENCE public.calls;
            CREATE OR REPLACE FUNCTION dialoq.notify_processes(p_notices text) RETURNS void
            LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
            IF p_notices LIKE '%q:%' AND nextval('public.calls') = 1 THEN PERFORM pg_advisory_lock(21); END IF;
            PERFORM dialoq.send_notices(p_notices); END $$";
        database.sql(hangs);
        let other = Broker::open(database.url()).await.unwrap();
        let receiver = other.clone();
        let received = tokio::spawn(async move { receiver.receive("server").wait(3 * SOON).await });
        let asks = "SELECT count(*) > 0 FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle'
            AND query LIKE '%dialoq.receive%' AND pid <> pg_backend_pid()";
        until(&side, asks).await;
        broker.send(dialog, "Word", "one").await.unwrap();
        let batch = soon("a receiver of another process", received).await.unwrap().unwrap();
        assert_eq!(batch.expect("the message").len(), 1);
        gate.batch_execute("SELECT pg_advisory_unlock(21)").await.unwrap();
        other.close().await.unwrap();
        broker.close().await.unwrap();
    });
}

/// After a savepoint the lock of the group outlives the refusal. The database has checks of PL/pgSQL on that its owner may like.
pub(crate) fn a_refused_redrive_keeps_no_group(store: Store) {
    on(store, |database, first, dialog| async move {
        let name = database.sql("SELECT current_database()");
        database.sql(&format!("ALTER DATABASE {name} SET plpgsql.extra_errors = 'strict_multi_assignment'"));
        first.close().await.unwrap();
        let broker = Broker::open(database.url()).await.unwrap();
        let policy = "ALTER QUEUE server WITH RETRY (MAX_ATTEMPTS = 1, DELAY_MS = 0, THEN = DEAD_LETTER)";
        broker.execute(policy).await.unwrap();
        for body in ["a", "b"] {
            broker.send(dialog, "Word", body).await.unwrap();
        }
        let received = async |tx: &Tx| {
            let batch = tx.receive("server").top(1).await.unwrap();
            batch.and_then(|batch| batch.into_messages().pop()).map(|message| message.text().unwrap().into_owned())
        };
        let tx = broker.begin().await.unwrap();
        assert_eq!(received(&tx).await.as_deref(), Some("a"));
        tx.rollback().await.unwrap();
        let letter = broker.dead_letters(&DeadLetterFilter::default(), 1, 0).await.unwrap()[0].dead_letter_id;
        let purging = broker.begin().await.unwrap();
        purging.purge_dead_letter(letter).await.unwrap();
        let refused = broker.begin().await.unwrap();
        refused.sql("SELECT 1", ()).await.unwrap();
        refused.savepoint("s").await.unwrap();
        assert_eq!(refused.redrive_dead_letter(letter).await.unwrap_err().code(), Code::DEAD_LETTER_LOCKED);
        let other = broker.begin().await.unwrap();
        assert_eq!(received(&other).await.as_deref(), Some("b"), "no lock keeps it from others");
        other.commit().await.unwrap();
        purging.rollback().await.unwrap();
        refused.redrive_dead_letter(letter).await.unwrap();
        refused.commit().await.unwrap();
        let last = broker.begin().await.unwrap();
        assert_eq!(received(&last).await.as_deref(), Some("a"));
        last.commit().await.unwrap();
        broker.close().await.unwrap();
    });
}

/// The check took the lock of the conversation's group first: receivers and other senders waited for it.
pub(crate) fn a_large_body_of_plain_sql_is_checked_before_the_lock(store: Store) {
    on(store, |database, broker, _| async move {
        broker
            .execute(
                "CREATE MESSAGE TYPE [Text] VALIDATION = WELL_FORMED_XML; CREATE CONTRACT [Texts] ([Text] SENT BY ANY);
             ALTER SERVICE [Server] (ADD CONTRACT [Texts])",
            )
            .await
            .unwrap();
        let dialog = broker.begin_dialog("Asker", "Server").contract("Texts").await.unwrap();
        broker.send(dialog, "Text", "<a/>").await.unwrap();
        // Both sides speak on it, so a SEND takes the shortest way.
        let batch = broker.receive("server").await.unwrap().unwrap();
        let answered = batch.into_messages().remove(0).conversation_handle;
        broker.send(answered, "Text", "<b/>").await.unwrap();
        broker.receive("asker").await.unwrap().unwrap();
        let (gate, sender) = (connect(database.url()).await, connect(database.url()).await);
        gate.batch_execute(
            "CREATE OR REPLACE FUNCTION dialoq.body_fault(p_message_type_id integer, p_body bytea) RETURNS text LANGUAGE plpgsql AS $$
                BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN ''; END $$;
            SELECT pg_advisory_lock(7)",
        )
        .await
        .unwrap();
        let large = format!("<c>{}</c>", "x".repeat(5000));
        let text = format!("SELECT dialoq.send('{}', 'Text', convert_to('{large}', 'UTF8'))", dialog.0);
        let others = async {
            let waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
            while gate.query_one(waiting, &[]).await.unwrap().get::<_, i64>(0) == 0 {}
            broker.send(dialog, "Text", "<d/>").await.unwrap();
            gate.batch_execute("SELECT pg_advisory_unlock(7)").await.unwrap();
        };
        let (sent, ()) = tokio::join!(sender.query(&text, &[]), others);
        sent.unwrap();
        broker.close().await.unwrap();
    });
}
