//! Every single write fails in turn, and the file is opened again.
//!
//! A fixed load runs with the n-th operation on the tables failing, for every n there is: before it happens, as when
//! the disk is full, and after it happened, as when the disk loses the answer. What was acknowledged must be there;
//! what was not must be there wholly or not at all.

use crate::shop::{began, bodies, definitions, dialog, enable, open, options, receive, send, sql, texts};
use dialoq::internals::store::Seen;
use dialoq::internals::store::Store;
use dialoq::internals::store::sqlite::{Fault, SqliteStore};
use dialoq::protocol::{EndForm, Verb};
use dialoq::{Code, Error, SqlValue};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

/// The work that the load has had acknowledged.
#[derive(Debug, Default)]
pub(crate) struct Acknowledged {
    sent: BTreeSet<String>,
    received: BTreeSet<String>,
    /// Asked for and not acknowledged: may be there or not, but together.
    open_sends: BTreeSet<String>,
    open_receive: BTreeSet<String>,
}

pub(crate) async fn load(store: &SqliteStore, done: &mut Acknowledged) -> Result<(), Error> {
    let one = began(&store.submit(vec![dialog("b")]).await?[0]);
    let two = began(&store.submit(vec![dialog("b")]).await?[0]);
    let lost = began(&store.submit(vec![dialog("missing")]).await?[0]);
    for number in 0..4 {
        let unit = [(one, format!("one {number}")), (two, format!("two {number}")), (lost, format!("lost {number}"))];
        done.open_sends = unit.iter().map(|(_, body)| body.clone()).collect();
        store.submit(unit.iter().map(|(handle, body)| send(*handle, body)).collect()).await?;
        done.sent.append(&mut done.open_sends);
    }
    for _ in 0..3 {
        let mut tx = store.begin(Seen::always()).await?;
        let taken = bodies(&tx.execute(receive(2)).await?);
        for body in &taken {
            tx.sql(sql("insert into received values (?1)", vec![SqlValue::from(body.as_str())])).await?;
        }
        done.open_receive = taken.into_iter().collect();
        tx.commit().await?;
        done.received.append(&mut done.open_receive);
    }
    store.submit(vec![enable(false)]).await?;
    done.open_sends = BTreeSet::from(["two 4".to_owned()]);
    store.submit(vec![send(two, "two 4")]).await?;
    done.sent.append(&mut done.open_sends);
    store.submit(vec![enable(true)]).await?;
    store.submit(vec![Verb::EndConversation { handle: two, form: EndForm::Plain }]).await?;
    store.submit(Vec::new()).await?;
    Ok(())
}

async fn strike(path: &Path, fault: Arc<Fault>) -> bool {
    prepare(path).await;
    let mut done = Acknowledged::default();
    let store = SqliteStore::open({
        let mut options = options(path);
        options.fault = Some(fault.clone());
        options
    })
    .unwrap();
    let ended = load(&store, &mut done).await;
    if fault.has_struck() {
        let later = store.submit(vec![enable(true)]).await.unwrap_err();
        let expected = [Code::STORE_IO, Code::STORE_POISONED];
        assert!(expected.contains(&later.code()), "{later}");
        // No caller waits for background work, and a batch without rows needs no BEGIN: the load may end well all the same.
        if let Err(failure) = ended {
            assert!(expected.contains(&failure.code()), "{failure}");
            assert_eq!(later.code(), Code::STORE_POISONED, "{later}");
        }
    } else {
        ended.unwrap();
    }
    drop(store);
    assert_kept(path, &done).await;
    fault.has_struck()
}

/// A broker with its definitions and the table that receivers write to, closed.
pub(crate) async fn prepare(path: &Path) {
    let store = open(path);
    store.submit(vec![Verb::Define(definitions())]).await.unwrap();
    store.run_sql(sql("create table received (body text)", Vec::new())).await.unwrap();
    store.close().await.unwrap();
}

/// Opens the file again: acknowledged work is there once and in order, the rest wholly or not at all.
pub(crate) async fn assert_kept(path: &Path, done: &Acknowledged) {
    let store = open(path);
    store.submit(Vec::new()).await.unwrap();
    let in_table = texts(&*store, "select body from received order by rowid").await;
    let in_table_in_order = in_table.clone();
    let system = "select message_body from queue_messages where queue_name = 'to' and message_type_name = 't' \
                  order by queuing_order";
    let in_queue = texts(&*store, system).await;
    let waiting =
        texts(&*store, "select message_body from sys_transmission_queue order by message_sequence_number").await;
    let mut all: Vec<String> = [in_table.clone(), in_queue.clone(), waiting.clone()].concat();
    all.sort();
    let everywhere: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(all.len(), everywhere.len(), "something is there twice: {all:?}");
    let missing: Vec<_> = done.sent.difference(&everywhere).collect();
    assert!(missing.is_empty(), "acknowledged and lost: {missing:?}");
    let beyond: BTreeSet<String> = everywhere.difference(&done.sent).cloned().collect();
    assert!(beyond.is_empty() || beyond == done.open_sends, "half of a unit is there: {beyond:?}");
    let taken: BTreeSet<String> = in_table.into_iter().collect();
    assert!(done.received.is_subset(&taken), "acknowledged as received and undone");
    let beyond: BTreeSet<String> = taken.difference(&done.received).cloned().collect();
    assert!(beyond.is_empty() || beyond == done.open_receive, "half of a transaction is there: {beyond:?}");
    assert!(store.repairs().is_empty(), "nothing had to be mended: {:?}", store.repairs());
    for conversation in ["one", "two", "lost"] {
        let of_this = |bodies: &[String]| -> Vec<String> {
            bodies.iter().filter(|body| body.starts_with(conversation)).cloned().collect()
        };
        // First what was received, then what is queued, then what waits: 0, 1, 2, ... of each conversation.
        let found = [of_this(&in_table_in_order), of_this(&in_queue), of_this(&waiting)].concat();
        let right: Vec<String> = (0..found.len()).map(|number| format!("{conversation} {number}")).collect();
        assert_eq!(found, right, "out of order");
    }
}

async fn strike_everywhere(make: fn(u64) -> Arc<Fault>) -> u64 {
    let folder = tempfile::tempdir().unwrap();
    let mut nth = 1;
    while strike(&folder.path().join(format!("{nth}.db")), make(nth)).await {
        nth += 1;
    }
    nth
}

#[tokio::test]
async fn a_write_that_fails_costs_nothing_acknowledged() {
    let _limit = crate::limit();
    let operations = strike_everywhere(Fault::before).await;
    assert!(operations > 50, "the load wrote only {operations} times");
}

#[tokio::test]
async fn a_write_with_a_lost_answer_is_there_wholly_or_not_at_all() {
    let _limit = crate::limit();
    strike_everywhere(Fault::after).await;
}
