//! What a broker leaves in the log of its server: nothing, as long as nothing goes wrong. A line for each message would fill the
//! disk of a server without an operator.

use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::work::WorkQueue;
use dialoq::{Act, Broker};

const SCRIPT: &str = "
    CREATE MESSAGE TYPE [Word] VALIDATION = NONE; CREATE CONTRACT [Talk] ([Word] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server WITH RETRY (MAX_ATTEMPTS = 50, DELAY_MS = 0);
    CREATE SERVICE [Asker] ON QUEUE asker; CREATE SERVICE [Server] ON QUEUE server ([Talk]);
    CREATE WORK QUEUE chores WITH RETRY_DELAY_MS = 0;";

/// The sessions of the database but the one that asks.
const SESSIONS: &str =
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";

const CHORES: WorkQueue<String> = WorkQueue::text("chores");

pub(crate) fn transactions_leave_no_line_in_it(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        tokio::time::timeout(3 * SOON, work(&broker)).await.expect("the work hangs").unwrap();
        broker.close().await.unwrap();
        assert_eq!(lines(&database), [""; 0]);
    });
}

/// Every way a transaction can end, with and without savepoints.
async fn work(broker: &Broker) -> dialoq::Result<()> {
    broker.execute(SCRIPT).await?;
    let dialog = broker.begin_dialog("Asker", "Server").contract("Talk").await?;
    let other = broker.begin_dialog("Asker", "Server").contract("Talk").await?;
    for n in 0..12 {
        broker.send(dialog, "Word", &format!("{n}")).await?;
        broker.send(other, "Word", &format!("{n}")).await?;
        broker.push_job(CHORES, &format!("{n}")).await?;
    }
    for keeps in [true, false] {
        for savepoints in 0..3 {
            let tx = broker.begin().await?;
            for number in 0..savepoints {
                tx.savepoint(&number.to_string()).await?;
                assert!(tx.receive("server").top(1).wait(SOON).await?.is_some());
                tx.send(dialog, "Word", "more").await?;
                tx.sql("SELECT 1", ()).await?;
                if number > 0 {
                    tx.rollback_to("0").await?;
                }
            }
            assert!(tx.receive("server").top(1).wait(SOON).await?.is_some());
            assert_eq!(tx.take_jobs(CHORES).count(1).await?.len(), 1);
            if keeps { tx.commit().await? } else { tx.rollback().await? }
        }
    }
    Ok(())
}

/// As each command of `dialoq` does.
pub(crate) fn a_broker_that_opens_works_and_closes_leaves_no_line_in_it(store: Store) {
    let database = Database::fresh(store);
    for turn in 0..10 {
        // The process ends at once after the close.
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let brief = async {
            let broker = Broker::open(database.url()).await?;
            if turn == 0 {
                broker.execute(SCRIPT).await?;
            }
            let dialog = broker.begin_dialog("Asker", "Server").contract("Talk").await?;
            broker.send(dialog, "Word", "once").await?;
            broker.push_job(CHORES, &"once".to_owned()).await?;
            broker.close().await
        };
        runtime.block_on(async { tokio::time::timeout(3 * SOON, brief).await }).expect("it hangs").unwrap();
    }
    assert_eq!(lines(&database), [""; 0]);
}

/// What it refuses is in the log, but no session looks lost.
pub(crate) fn no_command_leaves_a_lost_session_in_it(store: Store) {
    let database = Database::fresh(store);
    let commands: [&[&str]; 6] = [
        &["status"],
        &["work", "list"],
        &["work", "schedule", "list"],
        &["dump"],
        &["receive", "nowhere"],
        &["send", "--from", "Stranger", "--to", "Stranger", "--type", "Word", "body"],
    ];
    for arguments in commands.repeat(3) {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_dialoq"));
        let output = command.env("DIALOQ_URL", database.url()).args(arguments).output().unwrap();
        assert!(output.status.code().is_some_and(|code| code < 3), "{arguments:?}: {output:?}");
    }
    let lines = lines(&database);
    assert!(!lines.iter().any(|line| line.contains("FATAL: ") || line.contains(" LOG: ")), "{lines:#?}");
}

/// What the log says of the database once its sessions have ended; nothing of a server that the tests have not started.
fn lines(database: &Database) -> Vec<String> {
    let until = std::time::Instant::now() + SOON;
    while database.sql(SESSIONS) != "0" {
        assert!(std::time::Instant::now() < until, "sessions stay");
    }
    database.server_log().unwrap_or_default()
}
