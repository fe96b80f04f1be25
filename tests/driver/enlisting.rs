//! Verbs in a transaction of the user's own.

use crate::proxy::Network;
use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::postgres::tokio_postgres::{self, Client, NoTls};
use dialoq::postgres::{Enlisted, Statements};
use dialoq::{Act, Broker, Code, ConversationHandle};
use std::future::Future;

const SCRIPT: &str =
    "CREATE MESSAGE TYPE [//t/Word] VALIDATION = NONE; CREATE MESSAGE TYPE [//t/Json] VALIDATION = NONE;
    CREATE CONTRACT [//t/Talk] ([//t/Word] SENT BY ANY, [//t/Json] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server;
    CREATE SERVICE [//t/Asker] ON QUEUE asker; CREATE SERVICE [//t/Server] ON QUEUE server ([//t/Talk]);";

/// A broker, and a connection that is not its own.
pub(crate) fn on<F: Future<Output = ()>>(store: Store, test: impl FnOnce(Broker, Client, Database) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // It goes when this does, after the test.
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        broker.sql("CREATE TABLE thing (id int PRIMARY KEY)", ()).await.unwrap();
        let (client, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        client.batch_execute("SET search_path = public").await.unwrap();
        tokio::time::timeout(3 * SOON, test(broker, client, database.clone())).await.expect("the test hangs");
    });
}

pub(crate) async fn dialog(act: &impl Act) -> ConversationHandle {
    act.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").await.unwrap()
}

async fn things(broker: &Broker) -> i64 {
    broker.query("SELECT count(*) AS n FROM thing", ()).await.unwrap().rows[0].get("n").unwrap()
}

async fn received(act: &impl Act) -> Vec<String> {
    let batch = act.receive("server").await.unwrap();
    batch.map_or_else(Vec::new, |batch| batch.iter().map(|message| message.text().unwrap().into_owned()).collect())
}

pub(crate) fn verbs_commit_with_the_users_writes(store: Store) {
    on(store, |broker, mut client, _| async move {
        for is_committed in [false, true] {
            let transaction = client.transaction().await.unwrap();
            transaction.execute("INSERT INTO thing VALUES (1)", &[]).await.unwrap();
            let enlisted = Enlisted::new(&broker, &transaction);
            let handle = dialog(&enlisted).await;
            enlisted.send(handle, "//t/Word", "a").await.unwrap();
            enlisted.send_many(&[handle], "//t/Word", "b").await.unwrap();
            assert!(received(&broker).await.is_empty(), "nothing is there before the commit");
            if is_committed {
                transaction.commit().await.unwrap();
            } else {
                transaction.rollback().await.unwrap();
            }
            assert_eq!(things(&broker).await, i64::from(is_committed));
        }
        let transaction = client.transaction().await.unwrap();
        let enlisted = Enlisted::new(&broker, &transaction);
        let batch = enlisted.receive("server").await.unwrap().expect("what was committed");
        assert_eq!(batch.iter().map(|message| message.text().unwrap()).collect::<Vec<_>>(), ["a", "b"]);
        enlisted.end(batch.first().handle()).await.unwrap();
        transaction.commit().await.unwrap();
        let ended = broker.receive("asker").await.unwrap().expect("the END arrives");
        assert_eq!(&*ended.first().message_type_name, "http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog");
    });
}

/// The example that users begin with. It checks itself what it prints.
pub(crate) fn the_example_runs_and_leaves_nothing_behind(store: Store) {
    on(store, |broker, _, database| async move {
        for _ in 0..2 {
            crate::example::run(database.url()).await.unwrap();
        }
        let left = "SELECT count(*) AS n FROM dialoq.sys_conversation_endpoints WHERE state <> 'CD'";
        assert_eq!(broker.query(left, ()).await.unwrap().rows[0].get::<i64>("n").unwrap(), 0);
        let names = "SELECT count(*) AS n FROM dialoq.sys_service_queues WHERE name LIKE 'example%'";
        assert_eq!(broker.query(names, ()).await.unwrap().rows[0].get::<i64>("n").unwrap(), 0);
    });
}

pub(crate) fn a_refusal_leaves_the_users_transaction_as_it_was(store: Store) {
    on(store, |broker, mut client, _| async move {
        let transaction = client.transaction().await.unwrap();
        transaction.execute("INSERT INTO thing VALUES (1)", &[]).await.unwrap();
        let enlisted = Enlisted::new(&broker, &transaction);
        let handle = dialog(&enlisted).await;
        let unknown = ConversationHandle(uuid::Uuid::nil());
        let refused = enlisted.send(unknown, "//t/Word", "a").await.unwrap_err();
        assert_eq!(refused.code(), Code::CONVERSATION_NOT_FOUND);
        assert_eq!(enlisted.send(handle, "//t/None", "a").await.unwrap_err().code(), Code::MESSAGE_TYPE_NOT_FOUND);
        enlisted.send(handle, "//t/Word", "b").await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!((things(&broker).await, received(&broker).await), (1, vec!["b".to_owned()]));
    });
}

pub(crate) fn without_a_transaction_each_verb_commits(store: Store) {
    on(store, |broker, client, _| async move {
        let enlisted = Enlisted::new(&broker, &client);
        let handle = dialog(&enlisted).await;
        enlisted.send(handle, "//t/Word", "a").await.unwrap();
        let refused = enlisted.send(ConversationHandle(uuid::Uuid::nil()), "//t/Word", "a").await.unwrap_err();
        assert_eq!(refused.code(), Code::CONVERSATION_NOT_FOUND);
        assert_eq!(received(&broker).await, ["a"]);
        assert_eq!(enlisted.transmission_status(handle).await.unwrap(), "");
    });
}

/// The network is cut after the server has got a verb, before any answer.
pub(crate) fn a_verb_whose_answer_is_lost_is_unknown_only_without_a_transaction(store: Store) {
    on(store, |broker, _, database| async move {
        let network = Network::before(store, database.url()).await;
        let handle = dialog(&broker).await;
        for (text, code) in [("together", Code::SERVER_UNREACHABLE), ("alone", Code::COMMIT_UNKNOWN)] {
            let (mut client, connection) = tokio_postgres::connect(network.url(), NoTls).await.unwrap();
            tokio::spawn(connection);
            let refused = if text == "together" {
                let transaction = client.transaction().await.unwrap();
                network.cut_at(text, true);
                Enlisted::new(&broker, &transaction).send(handle, "//t/Word", text).await.unwrap_err()
            } else {
                network.cut_at(text, true);
                Enlisted::new(&broker, &client).send(handle, "//t/Word", text).await.unwrap_err()
            };
            assert!(network.was_cut());
            assert_eq!(refused.code(), code, "{refused}");
        }
        // The session of the connection that was cut goes on to the end of what it got.
        let batch = broker.receive("server").wait(SOON).await.unwrap().expect("the verb that committed by itself");
        assert_eq!(batch.iter().map(|message| message.text().unwrap()).collect::<Vec<_>>(), ["alone"]);
    });
}

/// The session ended while the user's connection was idle: no verb is sent any more, so none has committed.
pub(crate) fn a_verb_on_a_connection_that_has_ended_has_not_happened(store: Store) {
    on(store, |broker, client, database| async move {
        let (handle, statements) = (dialog(&broker).await, Statements::default());
        let kept = Enlisted::new(&broker, &client).prepared(&statements);
        kept.send(handle, "//t/Word", "before").await.unwrap();
        assert_eq!(received(&broker).await, ["before"]);
        database.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '' AND datname = current_database() AND pid <> pg_backend_pid() AND query NOT LIKE '%pg_terminate%'");
        while !client.is_closed() {
            tokio::task::yield_now().await;
        }
        for enlisted in [Enlisted::new(&broker, &client), kept] {
            let refused = enlisted.send(handle, "//t/Word", "after").await.unwrap_err();
            assert_eq!(refused.code(), Code::SERVER_UNREACHABLE, "{refused}");
        }
        assert!(received(&broker).await.is_empty());
    });
}

pub(crate) fn a_failed_transaction_takes_no_verbs(store: Store) {
    on(store, |broker, mut client, _| async move {
        let transaction = client.transaction().await.unwrap();
        transaction.execute("INSERT INTO nothing VALUES (1)", &[]).await.unwrap_err();
        let refused = Enlisted::new(&broker, &transaction).receive("server").await.unwrap_err();
        assert_eq!(refused.code(), Code::TRANSACTION_ENDED);
        transaction.rollback().await.unwrap();
        let transaction = client.transaction().await.unwrap();
        assert!(Enlisted::new(&broker, &transaction).receive("server").await.unwrap().is_none());
        let defining = Enlisted::new(&broker, &transaction);
        let define = dialoq::act::Perform::perform(&defining, dialoq::protocol::Verb::Define(Vec::new())).await;
        assert_eq!(define.unwrap_err().code(), Code::DEFINITION_IN_TRANSACTION);
    });
}

pub(crate) fn verbs_are_prepared_once_on_the_users_connection(store: Store) {
    on(store, |broker, mut client, _| async move {
        let statements = Statements::default();
        let handle = dialog(&broker).await;
        for text in ["a", "b", "c"] {
            let transaction = client.transaction().await.unwrap();
            let enlisted = Enlisted::new(&broker, &transaction).prepared(&statements);
            enlisted.send(handle, "//t/Word", text).await.unwrap();
            let refused = enlisted.send(ConversationHandle(uuid::Uuid::nil()), "//t/Word", "x").await.unwrap_err();
            assert_eq!(refused.code(), Code::CONVERSATION_NOT_FOUND);
            transaction.commit().await.unwrap();
            let kept = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'SELECT * FROM dialoq.send(%'";
            assert_eq!(client.query_one(kept, &[]).await.unwrap().get::<_, i64>(0), 1, "{text}");
        }
        assert_eq!(received(&broker).await, ["a", "b", "c"]);
    });
}

pub(crate) fn statements_that_a_connection_has_lost_are_prepared_again(store: Store) {
    on(store, |broker, mut client, database| async move {
        let statements = Statements::default();
        let handle = dialog(&broker).await;
        Enlisted::new(&broker, &client).prepared(&statements).send(handle, "//t/Word", "a").await.unwrap();
        let (other, connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        tokio::spawn(connection);
        // The statements of another connection, outside of a transaction and in one.
        Enlisted::new(&broker, &other).prepared(&statements).send(handle, "//t/Word", "b").await.unwrap();
        for (id, lose) in [(1, ""), (2, "DEALLOCATE ALL")] {
            let transaction = client.transaction().await.unwrap();
            transaction.execute("INSERT INTO thing VALUES ($1)", &[&id]).await.unwrap();
            transaction.batch_execute(lose).await.unwrap();
            let enlisted = Enlisted::new(&broker, &transaction).prepared(&statements);
            enlisted.send(handle, "//t/Word", "c").await.unwrap();
            transaction.commit().await.unwrap();
        }
        assert_eq!(
            (things(&broker).await, received(&broker).await),
            (2, ["a", "b", "c", "c"].map(str::to_owned).to_vec())
        );
    });
}

pub(crate) fn a_verb_that_cannot_be_prepared_leaves_the_users_transaction_as_it_was(store: Store) {
    on(store, |broker, mut client, _| async move {
        let statements = Statements::default();
        let handle = dialog(&broker).await;
        let transaction = client.transaction().await.unwrap();
        transaction.execute("INSERT INTO thing VALUES (1)", &[]).await.unwrap();
        transaction.batch_execute("SET LOCAL ROLE pg_monitor").await.unwrap();
        let enlisted = Enlisted::new(&broker, &transaction).prepared(&statements);
        assert_eq!(enlisted.send(handle, "//t/Word", "a").await.unwrap_err().code(), Code::ACCESS_DENIED);
        transaction.batch_execute("RESET ROLE").await.unwrap();
        enlisted.send(handle, "//t/Word", "b").await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!((things(&broker).await, received(&broker).await), (1, vec!["b".to_owned()]));
        let transaction = client.transaction().await.unwrap();
        transaction.execute("INSERT INTO nothing VALUES (1)", &[]).await.unwrap_err();
        let refused = Enlisted::new(&broker, &transaction).prepared(&statements).receive("server").await.unwrap_err();
        assert_eq!(refused.code(), Code::TRANSACTION_ENDED);
    });
}

pub(crate) fn other_processes_are_notified_of_an_enlisted_send(store: Store) {
    on(store, |broker, mut client, database| async move {
        let other = Broker::open(database.url()).await.unwrap();
        let sleeper = other.clone();
        let receiving = tokio::spawn(async move {
            let batch = sleeper.receive("server").wait(2 * SOON).await.unwrap();
            batch.expect("it is woken").first().text().unwrap().into_owned()
        });
        let waiting = async {
            while other.sessions_waiting("server") == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(SOON, waiting).await.expect("it never waits");
        let transaction = client.transaction().await.unwrap();
        let enlisted = Enlisted::new(&broker, &transaction);
        let handle = dialog(&enlisted).await;
        enlisted.send(handle, "//t/Word", "woken").await.unwrap();
        transaction.commit().await.unwrap();
        let woken = tokio::time::timeout(SOON, receiving).await.expect("the receiver was not woken").unwrap();
        assert_eq!(woken, "woken");
    });
}

/// The notifications that come until one of its own.
async fn notifications(client: &Client, arrived: &mut tokio::sync::mpsc::UnboundedReceiver<String>) -> Vec<String> {
    client.batch_execute("SELECT pg_notify('dialoq', 'z:0')").await.unwrap();
    let mut payloads = Vec::new();
    loop {
        match arrived.recv().await.unwrap() {
            last if last == "z:0" => return payloads,
            payload => payloads.push(payload),
        }
    }
}

pub(crate) fn a_session_may_send_its_notices_itself(store: Store) {
    on(store, |broker, client, database| async move {
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        let (listener, mut connection) = tokio_postgres::connect(database.url(), NoTls).await.unwrap();
        let (sender, mut arrived) = tokio::sync::mpsc::unbounded_channel();
        tokio::spawn(async move {
            while let Some(Ok(message)) = std::future::poll_fn(|context| connection.poll_message(context)).await {
                if let tokio_postgres::AsyncMessage::Notification(notification) = message {
                    let _ = sender.send(notification.payload().to_owned());
                }
            }
        });
        listener.batch_execute("LISTEN dialoq").await.unwrap();
        let push = async || {
            let row = client.query_one("SELECT notices FROM dialoq.push_job('w')", &[]).await.unwrap();
            row.get::<_, String>(0)
        };
        client.batch_execute("SET dialoq.notify = 'off'").await.unwrap();
        notifications(&client, &mut arrived).await;
        let notices = push().await;
        assert!(notices.starts_with("q:"), "{notices}");
        assert!(!notifications(&client, &mut arrived).await.contains(&notices), "it keeps them");
        client.execute("SELECT dialoq.notify_processes($1)", &[&notices]).await.unwrap();
        assert!(notifications(&client, &mut arrived).await.contains(&notices));
        client.batch_execute("RESET dialoq.notify").await.unwrap();
        let notices = push().await;
        assert!(notifications(&client, &mut arrived).await.contains(&notices), "the verb sends them");
    });
}

pub(crate) fn messages_are_back_after_a_rollback(store: Store) {
    // DIFFERENCE(rollbacks-by-clients): Dialoq does not see how the user's own transaction ends.
    on(store, |broker, mut client, _| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "a").await.unwrap();
        for _ in 0..6 {
            let transaction = client.transaction().await.unwrap();
            assert_eq!(received(&Enlisted::new(&broker, &transaction)).await, ["a"]);
            assert!(received(&broker).await.is_empty(), "its group is locked");
            transaction.rollback().await.unwrap();
        }
        assert_eq!(received(&broker).await, ["a"]);
    });
}

pub(crate) fn new_definitions_are_noticed(store: Store) {
    on(store, |broker, mut client, database| async move {
        let other = Broker::open(database.url()).await.unwrap();
        let transaction = client.transaction().await.unwrap();
        let enlisted = Enlisted::new(&broker, &transaction);
        let handle = dialog(&enlisted).await;
        other.execute("CREATE QUEUE another").await.unwrap();
        enlisted.send(handle, "//t/Word", "a").await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(received(&broker).await, ["a"]);
    });
}

/// However the planner finds the groups: without an index it sorts them all, and must lock them one by one even so.
pub(crate) fn receivers_lock_only_the_groups_they_take(store: Store) {
    on(store, |broker, client, _| async move {
        for _ in 0..20 {
            let handle = dialog(&broker).await;
            broker.send(handle, "//t/Word", "a").await.unwrap();
        }
        for receive in ["dialoq.receive_batch('server', ARRAY[1, 1, 1]::bigint[])", "dialoq.receive('server', 1)"] {
            client.batch_execute("BEGIN; SET LOCAL enable_indexscan = off").await.unwrap();
            let taken = client.query(&format!("SELECT * FROM {receive}"), &[]).await.unwrap().len();
            let locks = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()";
            let locked: i64 = client.query_one(locks, &[]).await.unwrap().get(0);
            client.batch_execute("ROLLBACK").await.unwrap();
            assert!(taken > 0);
            assert_eq!(locked, taken as i64, "{receive}");
        }
    });
}

/// A trigger that sends is a usual outbox. The answers of its verbs never reach Dialoq's client, so the server must notify.
pub(crate) fn verbs_of_the_users_own_sql_wake_receivers(store: Store) {
    const SEND: &str = "SELECT dialoq.send(d.conversation_handle, '//t/Word', 'a')
        FROM dialoq.begin_dialog_conversation('//t/Asker', '//t/Server', NULL, '//t/Talk') AS d";
    on(store, |broker, _, database| async move {
        database.sql(
            "CREATE TABLE public.at_once (id int); CREATE TABLE public.at_the_commit (id int);
            CREATE FUNCTION public.outbox() RETURNS trigger LANGUAGE plpgsql AS $$
            DECLARE d uuid;
            BEGIN
                SELECT b.conversation_handle INTO d
                FROM dialoq.begin_dialog_conversation('//t/Asker', '//t/Server', NULL, '//t/Talk') AS b;
                PERFORM dialoq.send(d, '//t/Word', 'a');
                RETURN new;
            END $$;
            CREATE TRIGGER t AFTER INSERT ON public.at_once FOR EACH ROW EXECUTE FUNCTION public.outbox();
            CREATE CONSTRAINT TRIGGER t AFTER INSERT ON public.at_the_commit DEFERRABLE INITIALLY DEFERRED
                FOR EACH ROW EXECUTE FUNCTION public.outbox()",
        );
        let other = Broker::open(database.url()).await.unwrap();
        let triggers = ["INSERT INTO public.at_once VALUES (1)", "INSERT INTO public.at_the_commit VALUES (1)"];
        for text in triggers.into_iter().chain([SEND]) {
            for is_in_transaction in [true, false] {
                // Longer than the test waits, and the process polls once a minute.
                let receiver = other.clone();
                let receiving = tokio::spawn(async move { receiver.receive("server").wait(9 * SOON).await });
                while other.sessions_waiting("server") == 0 {
                    tokio::task::yield_now().await;
                }
                if is_in_transaction {
                    let tx = broker.begin().await.unwrap();
                    tx.sql(text, ()).await.unwrap();
                    tx.commit().await.unwrap();
                } else {
                    broker.sql(text, ()).await.unwrap();
                }
                let woken = tokio::time::timeout(SOON, receiving).await;
                let batch =
                    woken.unwrap_or_else(|_| panic!("not woken: {text}, in a transaction: {is_in_transaction}"));
                assert!(batch.unwrap().unwrap().is_some());
            }
        }
    });
}
