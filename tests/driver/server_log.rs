//! What a broker leaves in the log of its server: nothing, as long as nothing goes wrong. A line for each message would fill the
//! disk of a server that nobody watches.

use crate::servers::{Database, Store};
use crate::stage::SOON;
use dialoq::work::WorkQueue;
use dialoq::{Act, Broker};

const SCRIPT: &str = "
    CREATE MESSAGE TYPE [Word] VALIDATION = NONE; CREATE CONTRACT [Talk] ([Word] SENT BY ANY);
    CREATE QUEUE asker; CREATE QUEUE server WITH RETRY (MAX_ATTEMPTS = 50, DELAY_MS = 0);
    CREATE SERVICE [Asker] ON QUEUE asker; CREATE SERVICE [Server] ON QUEUE server ([Talk]);
    CREATE WORK QUEUE chores WITH RETRY_DELAY_MS = 0;";

const CHORES: WorkQueue<String> = WorkQueue::text("chores");

pub(crate) fn transactions_leave_no_line_in_it(store: Store) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let database = Database::fresh(store);
        let broker = Broker::open(database.url()).await.unwrap();
        tokio::time::timeout(3 * SOON, work(&broker)).await.expect("the work hangs").unwrap();
        broker.close().await.unwrap();
        if let Some(lines) = database.server_log() {
            assert!(lines.is_empty(), "{lines:#?}");
        }
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
