//! The limit of a test that waits for ever: it fails, and its report names the lock and the sessions.

use crate::servers::{Database, Store, limit};
use dialoq::{Act, Broker};
use std::time::Duration;

pub(crate) fn a_wait_without_end_is_reported(store: Store) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let inner = std::thread::spawn(move || {
        let test = move || {
            // The watch begins when the lock is waited for, however long the database took.
            limit::allow(10);
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let database = Database::fresh(store);
                let broker = Broker::open(database.url()).await.expect("a broker");
                broker.execute("CREATE QUEUE q; CREATE SERVICE s ON QUEUE q ([DEFAULT])").await.expect("definitions");
                let dialog = broker.begin_dialog("s", "s").await.expect("a dialog");
                let holder = broker.begin().await.expect("BEGIN");
                holder.send(dialog, "DEFAULT", "x").await.expect("SEND");
                sender.send(dialog).expect("it is waited for");
                // Enough for the SEND to come to its wait, also on a machine that stands still for a moment.
                limit::end_within(Duration::from_secs(10));
                broker.send(dialog, "DEFAULT", "y").await
            })
        };
        limit::run("a test that hangs", test).map(drop)
    });
    let dialog = receiver.recv().expect("the lock is held");
    let report = inner.join().expect("it is reported").expect_err("the SEND waits for ever");
    let expected: &[&str] = match store {
        Store::Sqlite => &["is held by session", "parked for group", "Send"],
        Store::Postgres => &["blocked by sessions {", "waits for Lock advisory", "advisory"],
        Store::Mssql => &["session"],
    };
    for part in expected {
        assert!(report.contains(part), "'{part}' is not in the report on {dialog}: {report}");
    }
}
