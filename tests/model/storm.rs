//! Many tasks at once on several threads: senders that commit, roll back and give up, receivers that commit, roll back
//! and go back to savepoints. Whatever the threads do, each message is received once and no group is in two hands.

use crate::servers::{Database, Store, limit};
use dialoq::{Act, Broker, Code, ConversationHandle, Error, GroupId, Tx};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const SENDERS: u64 = 8;
const RECEIVERS: u64 = 8;
const CONVERSATIONS: usize = 6;
const ROUNDS: u64 = 60;

#[derive(Default)]
struct Books {
    /// Bodies whose commit was answered.
    sent: Mutex<BTreeSet<String>>,
    /// Bodies that the same commit wrote into the user's own table.
    noted: Mutex<BTreeSet<String>>,
    /// Bodies whose sender gave up before its answer.
    unknown: Mutex<BTreeSet<String>>,
    /// Conversation to sequence number to body, of receives whose commit was answered.
    received: Mutex<BTreeMap<ConversationHandle, BTreeMap<u64, String>>>,
    in_hand: Mutex<HashSet<GroupId>>,
    senders_left: AtomicUsize,
}

/// A small generator, so that a run needs nothing but its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }
}

pub(crate) fn storm_on(store: Store) {
    limit::allow(3);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime");
    runtime.block_on(storm(store));
}

async fn storm(store: Store) {
    let database = Database::fresh(store);
    let broker = Broker::open(database.url()).await.expect("a broker");
    broker
        .execute(
            "CREATE MESSAGE TYPE [Text]; CREATE CONTRACT [C] ([Text] SENT BY ANY);
             CREATE QUEUE [QI]; CREATE QUEUE [QT] WITH POISON_MESSAGE_HANDLING (STATUS = OFF);
             CREATE SERVICE [I] ON QUEUE [QI]; CREATE SERVICE [T] ON QUEUE [QT] ([C])",
        )
        .await
        .expect("definitions");
    broker.sql("CREATE TABLE note (body varchar(40) PRIMARY KEY)", ()).await.expect("a table");
    let mut dialogs = Vec::new();
    for _ in 0..CONVERSATIONS {
        dialogs.push(broker.begin_dialog("I", "T").contract("C").await.expect("a dialog"));
    }
    let dialogs: Arc<[ConversationHandle]> = dialogs.into();
    let books = Arc::new(Books::default());
    books.senders_left.store(SENDERS as usize, SeqCst);
    let mut tasks = Vec::new();
    for seed in 0..SENDERS {
        tasks.push(tokio::spawn(sender(store, seed, broker.clone(), dialogs.clone(), books.clone())));
    }
    for seed in 0..RECEIVERS {
        tasks.push(tokio::spawn(receiver(seed, broker.clone(), books.clone())));
    }
    for task in tasks {
        task.await.expect("a task of the storm failed");
    }

    let rows = broker.query("SELECT body FROM note", ()).await.expect("the notes").rows;
    let notes: BTreeSet<String> = rows.iter().map(|row| row.get("body").expect("a body")).collect();
    assert_eq!(notes, *books.noted.lock().expect("noted"), "the user's own rows commit with the messages");
    balance(&books);
}

fn balance(books: &Books) {
    let (sent, unknown) = (books.sent.lock().expect("sent"), books.unknown.lock().expect("unknown"));
    let mut all = BTreeSet::new();
    for (conversation, messages) in &*books.received.lock().expect("received") {
        let numbers: Vec<u64> = messages.keys().copied().collect();
        let right: Vec<u64> = (0..numbers.len() as u64).collect();
        assert_eq!(numbers, right, "the numbers of {conversation} have gaps");
        // What one sender sent on one conversation arrives in its order.
        let mut last: BTreeMap<&str, u64> = BTreeMap::new();
        for body in messages.values() {
            // An abandoned send may happen at any time.
            if unknown.contains(body) {
                assert!(all.insert(body.clone()), "{body} was received twice");
                continue;
            }
            let (who, count) = body.split_once('.').expect("a body of this storm");
            let count: u64 = count.split('@').next().expect("a count").parse().expect("a number");
            assert!(last.insert(who, count).is_none_or(|before| before < count), "{body} came late");
            assert!(all.insert(body.clone()), "{body} was received twice");
        }
    }
    let lost: Vec<_> = sent.difference(&all).collect();
    assert!(lost.is_empty(), "committed and never received: {lost:?}");
    let invented: Vec<_> = all.iter().filter(|body| !sent.contains(*body) && !unknown.contains(*body)).collect();
    assert!(invented.is_empty(), "received although rolled back or never sent: {invented:?}");
    assert!(sent.len() as u64 > SENDERS * ROUNDS / 4, "the storm was a calm: {} messages", sent.len());
}

async fn sender(store: Store, seed: u64, broker: Broker, dialogs: Arc<[ConversationHandle]>, books: Arc<Books>) {
    let mut dice = Dice(seed + 1);
    for round in 0..ROUNDS {
        let (one, other) = (dice.roll(dialogs.len() as u64) as usize, dice.roll(dialogs.len() as u64) as usize);
        let body = |place: usize, part: u64| format!("s{seed}.{}@{place}", 2 * round + part);
        match dice.roll(8) {
            0..3 => {
                broker.send(dialogs[one], "Text", &body(one, 0)).await.expect("SEND");
                books.sent.lock().expect("sent").insert(body(one, 0));
            }
            // Gives up while the send is under way: it may have happened.
            3 => {
                books.unknown.lock().expect("unknown").insert(body(one, 0));
                let text = body(one, 0);
                let send = broker.send(dialogs[one], "Text", &text);
                tokio::select! {
                    biased;
                    done = send => done.expect("SEND"),
                    () = tokio::task::yield_now() => {}
                }
            }
            choice => {
                let bodies = [(one, body(one, 0)), (other, body(other, 1))];
                let tx = broker.begin().await.expect("BEGIN");
                for (_, body) in bodies.iter().filter(|_| choice > 5) {
                    tx.sql(store.sql("INSERT INTO note (body) VALUES (?1)"), (body.as_str(),)).await.expect("SQL");
                }
                match send_both(&tx, &dialogs, &bodies).await {
                    Ok(()) if choice == 4 => tx.rollback().await.expect("ROLLBACK"),
                    Ok(()) => {
                        tx.commit().await.expect("COMMIT");
                        if choice > 5 {
                            books.noted.lock().expect("noted").extend(bodies.iter().map(|(_, body)| body.clone()));
                        }
                        books.sent.lock().expect("sent").extend(bodies.into_iter().map(|(_, body)| body));
                    }
                    // Two senders in opposite order; one of them is chosen, and sends nothing.
                    Err(error) => assert_eq!(error.code(), Code::DEADLOCK),
                }
            }
        }
    }
    books.senders_left.fetch_sub(1, SeqCst);
}

async fn send_both(tx: &Tx, dialogs: &[ConversationHandle], bodies: &[(usize, String); 2]) -> Result<(), Error> {
    for (place, body) in bodies {
        tx.send(dialogs[*place], "Text", body).await?;
    }
    Ok(())
}

async fn receiver(seed: u64, broker: Broker, books: Arc<Books>) {
    let mut dice = Dice(1000 + seed);
    loop {
        let is_over = books.senders_left.load(SeqCst) == 0;
        let tx = broker.begin().await.expect("BEGIN");
        let taken = tx.receive("QT").top(1 + dice.roll(4)).wait(Duration::from_millis(20)).await.expect("RECEIVE");
        let Some(batch) = taken else {
            tx.rollback().await.expect("ROLLBACK");
            // Nothing was ready after the last sender had gone, unless another receiver gives it back: it will take it.
            if is_over {
                return;
            }
            continue;
        };
        let group = batch.group();
        assert!(books.in_hand.lock().expect("hands").insert(group), "group {group} is in two hands");
        let choice = dice.roll(6);
        if choice == 0 {
            tx.savepoint("again").await.expect("SAVEPOINT");
            if let Some(more) = tx.receive("QT").group(group).await.expect("RECEIVE") {
                tx.rollback_to("again").await.expect("ROLLBACK TO");
                let again = tx.receive("QT").group(group).await.expect("RECEIVE").expect("it was just given back");
                assert_eq!(again.messages()[..more.len()], *more.messages(), "what was given back comes again");
                let mut messages = batch.into_messages();
                messages.extend(again);
                record(&books, &messages, tx, group).await;
                continue;
            }
        }
        if choice == 1 {
            assert!(books.in_hand.lock().expect("hands").remove(&group));
            tx.rollback().await.expect("ROLLBACK");
            continue;
        }
        if choice == 2 {
            // Asks once more for what arrived meanwhile in the group it holds.
            if let Some(more) = tx.receive("QT").group(group).await.expect("RECEIVE") {
                let mut messages = batch.into_messages();
                messages.extend(more);
                record(&books, &messages, tx, group).await;
                continue;
            }
        }
        record(&books, batch.messages(), tx, group).await;
    }
}

/// Commits and keeps the books. The group is free for others once the commit is ordered, which is before it is answered.
async fn record(books: &Books, messages: &[dialoq::Message], tx: Tx, group: GroupId) {
    assert!(books.in_hand.lock().expect("hands").remove(&group));
    tx.commit().await.expect("COMMIT");
    let mut received = books.received.lock().expect("received");
    for message in messages {
        let body = String::from_utf8_lossy(message.body()).into_owned();
        let of_conversation = received.entry(message.conversation_handle).or_default();
        let before = of_conversation.insert(message.message_sequence_number, body);
        assert!(before.is_none(), "number {} was received twice", message.message_sequence_number);
    }
}
