//! Another program deletes or changes rows of the broker: the next change of such a row finds it.

use crate::PATIENCE;
use crate::shop::{began, definitions, dialog, enable, open, receive, send};
use dialoq::internals::store::Store;
use dialoq::protocol::{EndForm, Verb};
use dialoq::{Broker, Code};

/// The row that another program removes, and the verb that then uses it.
const CASES: [(&str, &str); 6] = [
    ("delete from dialoq_queue_message", "receive"),
    ("delete from dialoq_queue_message", "retain"),
    ("delete from dialoq_conversation_endpoint", "clean up"),
    ("delete from dialoq_transmission", "deliver"),
    ("delete from dialoq_broker", "close"),
    ("delete from dialoq_service_queue where name = 'spare'", "drop queue"),
];

#[tokio::test]
async fn a_row_of_the_broker_that_another_program_deleted_is_an_error() {
    let _limit = crate::limit();
    for (removal, verb) in CASES {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.db");
        let store = open(&path);
        store.submit(vec![Verb::Define(definitions())]).await.unwrap();
        let spare =
            dialoq::protocol::definition::Definition::CreateQueue { name: "spare".into(), options: Default::default() };
        store.submit(vec![Verb::Define(vec![spare])]).await.unwrap();
        if verb == "retain" {
            let options = dialoq::protocol::definition::QueueOptions { retention: Some(true), ..Default::default() };
            let alter = dialoq::protocol::definition::Definition::AlterQueue { name: "to".into(), options };
            store.submit(vec![Verb::Define(vec![alter])]).await.unwrap();
        }
        let handle = began(&store.submit(vec![dialog("b")]).await.unwrap()[0]);
        if verb == "deliver" {
            store.submit(vec![enable(false)]).await.unwrap();
        }
        store.submit(vec![send(handle, "x")]).await.unwrap();

        rusqlite::Connection::open(&path).unwrap().execute_batch(removal).unwrap();
        let what = format!("{removal}, then {verb}");
        let refused = match verb {
            "receive" | "retain" => store.submit(vec![receive(1)]).await.map(drop),
            "clean up" => store.submit(vec![Verb::EndConversation { handle, form: EndForm::Cleanup }]).await.map(drop),
            "deliver" => store.submit(vec![enable(true)]).await.map(drop),
            "drop queue" => {
                let drop_queue = dialoq::protocol::definition::Definition::DropQueue { name: "spare".into() };
                store.submit(vec![Verb::Define(vec![drop_queue])]).await.map(drop)
            }
            _ => store.close().await,
        };
        // A transmission that is gone when it is to be delivered again was delivered by another owner, or taken away.
        let refused = match (verb, refused) {
            ("deliver", Ok(())) => store.submit(Vec::new()).await.map(drop),
            (_, refused) => refused,
        };
        let refused = refused.expect_err(&what);
        let is_expected = [Code::STORE_CHANGED, Code::STORE_POISONED].contains(&refused.code())
            || verb == "receive" && refused.code() == Code::STORE_DAMAGED;
        assert!(is_expected, "{what}: {refused}");
        if verb != "close" {
            let later = store.submit(vec![enable(true)]).await.expect_err(&what);
            assert_eq!(later.code(), Code::STORE_POISONED, "{what}");
        }
    }
}

const A_LONG_HISTORY: &str = "
    with recursive number (n) as (select 1 union all select n + 1 from number where n < 250000)
    insert into dialoq_job_history (
        queue_id, finish_number, job_id, job_type, level, finished_as, attempts, pushed_at, pushed_by, finished_at)
    select q.queue_id, n, n, '', 5, 4, 1, 0, '', unixepoch() * 1000000 from number, dialoq_work_queue as q";

/// 202,000 rows were cut, and the rest stayed for a tenth of HISTORY_SECONDS.
#[tokio::test]
async fn a_history_that_is_much_too_long_is_cut_to_its_end() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.db");
    let url = format!("sqlite:{}", path.display());
    let broker = Broker::open(&url).await.unwrap();
    broker.execute("CREATE WORK QUEUE w WITH HISTORY_ROWS = 1000").await.unwrap();
    broker.close().await.unwrap();
    rusqlite::Connection::open(&path).unwrap().execute_batch(A_LONG_HISTORY).unwrap();
    let broker = Broker::open(&url).await.unwrap();
    let begun = std::time::Instant::now();
    while broker.work_queues().await.unwrap()[0].finished != 1000 {
        assert!(begun.elapsed() < PATIENCE);
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    broker.close().await.unwrap();
}
