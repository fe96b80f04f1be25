//! Verbs in a SQL Server transaction of the user's own.

use crate::servers::{Database, Store};
use dialoq::internals::store::url::{Encryption, Login, StoreUrl};
use dialoq::mssql::tiberius::{AuthMethod, Config, EncryptionLevel};
use dialoq::mssql::{Client, Enlisted};
use dialoq::{Act, Broker, Code, ConversationHandle};
use std::future::Future;
use tokio::net::TcpStream;
use tokio_util::compat::TokioAsyncWriteCompatExt;

const SCRIPT: &str = "CREATE MESSAGE TYPE [//t/Word] VALIDATION = NONE;
    CREATE CONTRACT [//t/Talk] ([//t/Word] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server;
    CREATE SERVICE [//t/Asker] ON QUEUE asker; CREATE SERVICE [//t/Server] ON QUEUE server ([//t/Talk]);";

/// A connection as an application makes it.
pub(crate) async fn connect(url: &str) -> Client {
    let StoreUrl::Mssql(url) = StoreUrl::parse(url).unwrap() else { panic!("{url}") };
    let Login::Sql { user, password } = &url.login else { panic!("{url:?}") };
    let mut config = Config::new();
    config.host(&url.host);
    config.port(url.port.unwrap_or(1433));
    config.database(&url.database);
    config.authentication(AuthMethod::sql_server(user, password));
    // The limit of the case ends what never answers; 30 s, as tiberius has it, are too few on a busy machine.
    config.command_timeout(None);
    if url.encryption == Encryption::Off {
        config.encryption(EncryptionLevel::NotSupported);
    }
    if url.trust_server_certificate {
        config.trust_cert();
    }
    let stream = TcpStream::connect(config.get_addr()).await.unwrap();
    Client::connect(config, stream.compat_write()).await.unwrap()
}

async fn run(client: &mut Client, text: &str) {
    client.simple_query(text).await.unwrap().into_results().await.unwrap();
}

/// A broker, and a connection that is not its own.
pub(crate) fn on<F: Future<Output = ()>>(store: Store, test: impl FnOnce(Broker, Client) -> F) {
    on_url(store, |broker, client, _| test(broker, client));
}

/// The same with the URL of their database.
pub(crate) fn on_url<F: Future<Output = ()>>(store: Store, test: impl FnOnce(Broker, Client, String) -> F) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        // It goes when this does, after the test.
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        broker.execute(SCRIPT).await.unwrap();
        broker.sql("CREATE TABLE thing (id int NOT NULL)", ()).await.unwrap();
        let client = connect(database.url()).await;
        // Its limit is the case's: a relative on a busy machine is slow.
        test(broker.clone(), client, database.url().to_owned()).await;
        broker.close().await.unwrap();
    });
}

pub(crate) async fn dialog(act: &impl Act) -> ConversationHandle {
    act.begin_dialog("//t/Asker", "//t/Server").contract("//t/Talk").await.unwrap()
}

async fn received(act: &impl Act) -> Vec<String> {
    let batch = act.receive("server").await.unwrap();
    batch.map_or_else(Vec::new, |batch| batch.iter().map(|message| message.text().unwrap().into_owned()).collect())
}

pub(crate) fn verbs_commit_with_the_users_writes(store: Store) {
    on(store, |broker, mut client| async move {
        for is_committed in [false, true] {
            run(&mut client, "BEGIN TRANSACTION; INSERT thing VALUES (1)").await;
            {
                let enlisted = Enlisted::new(&broker, &mut client);
                let handle = dialog(&enlisted).await;
                enlisted.send(handle, "//t/Word", "a").await.unwrap();
                enlisted.send_many(&[handle], "//t/Word", "b").await.unwrap();
            }
            assert!(received(&broker).await.is_empty(), "nothing is there before the commit");
            run(&mut client, if is_committed { "COMMIT" } else { "ROLLBACK" }).await;
            let things = broker.query("SELECT count(*) AS n FROM thing", ()).await.unwrap();
            assert_eq!(things.rows[0].get::<i64>("n").unwrap(), i64::from(is_committed));
        }
        run(&mut client, "BEGIN TRANSACTION").await;
        assert_eq!(received(&Enlisted::new(&broker, &mut client)).await, ["a", "b"]);
        run(&mut client, "ROLLBACK").await;
        assert_eq!(received(&broker).await, ["a", "b"]);
    });
}

pub(crate) fn the_users_isolation_level_blocks_no_other_session(store: Store) {
    on(store, |broker, mut client| async move {
        run(&mut client, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; BEGIN TRANSACTION").await;
        assert!(received(&Enlisted::new(&broker, &mut client)).await.is_empty());
        // The locks of SERIALIZABLE would keep other sessions from adding rows to the ranges that were read.
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "a").await.unwrap();
        run(&mut client, "ROLLBACK").await;
        assert_eq!(received(&broker).await, ["a"]);
    });
}

/// A verb gives whole bodies whatever the settings of the connection are, and leaves them as they are.
pub(crate) fn a_verb_leaves_the_settings_of_the_users_session(store: Store) {
    on(store, |broker, mut client| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "whole").await.unwrap();
        run(&mut client, "SET TEXTSIZE 2").await;
        assert_eq!(received(&Enlisted::new(&broker, &mut client)).await, ["whole"]);
        // Babelfish does not know @@TEXTSIZE.
        let size = "IF SERVERPROPERTY('Babelfish') IS NULL EXEC(N'SELECT CAST(@@TEXTSIZE AS int)'); ELSE SELECT 2";
        let row = client.simple_query(size).await.unwrap().into_row().await.unwrap().unwrap();
        assert_eq!(row.get::<i32, _>(0), Some(2));
    });
}

pub(crate) fn a_refusal_leaves_the_users_transaction_as_it_was(store: Store) {
    on(store, |broker, mut client| async move {
        run(&mut client, "BEGIN TRANSACTION").await;
        {
            let enlisted = Enlisted::new(&broker, &mut client);
            let handle = dialog(&enlisted).await;
            let unknown = ConversationHandle(uuid::Uuid::nil());
            let refused = enlisted.send(unknown, "//t/Word", "a").await.unwrap_err();
            assert_eq!(refused.code(), Code::CONVERSATION_NOT_FOUND);
            enlisted.send(handle, "//t/Word", "b").await.unwrap();
        }
        run(&mut client, "COMMIT").await;
        assert_eq!(received(&broker).await, ["b"]);
        // Without a transaction each verb commits by itself.
        let enlisted = Enlisted::new(&broker, &mut client);
        let handle = dialog(&enlisted).await;
        enlisted.send(handle, "//t/Word", "c").await.unwrap();
        assert_eq!(received(&broker).await, ["c"]);
        let define = dialoq::act::Perform::perform(&enlisted, dialoq::protocol::Verb::Define(Vec::new())).await;
        assert_eq!(define.unwrap_err().code(), Code::DEFINITION_IN_TRANSACTION);
    });
}
