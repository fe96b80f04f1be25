//! The database store over a server that the test plays: its calls, and its reaction to each answer.

mod closing;
mod hanging;
mod jobs;
mod leaving;
mod notices;
mod schedules;
mod stage;

use super::DatabaseStore;
use crate::act::Act;
use crate::broker::Broker;
use crate::error::{Code, Result};
use crate::id::ConversationHandle;
use crate::protocol::definition::{Definition, Validation};
use crate::protocol::{Outcome, ReceiveFrom, Verb};
use crate::store::Seen;
use crate::store::database::link::{Arg, Fate};
use crate::store::{MonitorRow, SqlStatement, SqlValue, Store, StoreTx};
use stage::{QUEUE, Stage, failure, received, row};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::task::JoinHandle;
use uuid::Uuid;

fn send(number: u128, message_type: &str, body: &[u8]) -> Verb {
    Verb::Send {
        handles: vec![ConversationHandle(Uuid::from_u128(number))],
        message_type: Some(message_type.into()),
        body: Some(Arc::new(body.to_vec())),
        trace: None,
    }
}

fn receive() -> Verb {
    Verb::Receive { queue: "Q".into(), top: None, from: ReceiveFrom::Any }
}

fn texts(outcome: &Outcome) -> Vec<String> {
    let Outcome::Received(messages) = outcome else { panic!("{outcome:?} is not of a RECEIVE") };
    messages.iter().map(|message| String::from_utf8(message.message_body.clone().unwrap()).unwrap()).collect()
}

type Sent = JoinHandle<Result<Vec<Outcome>>>;

/// Ten SENDs, of which eight wait until the first two are done.
async fn ten_senders(stage: &Stage, store: &Arc<DatabaseStore>) -> Vec<Sent> {
    stage.gate.forget_permits(usize::MAX);
    let mut sent = Vec::new();
    for number in 0..10 {
        let store = store.clone();
        sent.push(tokio::spawn(async move { store.submit(vec![send(number, "Text", b"x")]).await }));
    }
    stage.until_asked("send", 2).await;
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    stage.gate.add_permits(1000);
    sent
}

async fn codes(sent: Vec<Sent>) -> Vec<Option<Code>> {
    let mut codes = Vec::new();
    for sent in sent {
        codes.push(sent.await.unwrap().err().map(|error| error.code()));
    }
    codes
}

#[tokio::test]
async fn senders_that_come_together_go_together() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let sent = ten_senders(&stage, &store).await;
    assert_eq!(codes(sent).await, [None; 10]);
    assert_eq!(stage.asked(&["send"]), ["send", "send", "send_batch 8"]);
    store.submit(vec![send(1, "Text", b"x")]).await.unwrap();
    assert_eq!(stage.asked(&["send"]).last().unwrap(), "send", "who is alone goes alone");
}

#[tokio::test]
async fn one_that_is_refused_leaves_the_others_alone_and_one_that_is_locked_out_waits_alone() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.play(|name, _| {
        let verdict = |item: i64, number: i64| {
            row([("item", item.into()), ("error_number", number.into()), ("error_message", "no".into())])
        };
        (name == "send_batch").then(|| Ok(vec![verdict(0, 8429), verdict(3, -1)]))
    });
    let sent = ten_senders(&stage, &store).await;
    let mut expected = [None; 10];
    expected[2] = Some(Code::STATE_FORBIDS_SEND);
    assert_eq!(codes(sent).await, expected);
    assert_eq!(stage.asked(&["send"]), ["send", "send", "send_batch 8", "send"]);
}

#[tokio::test]
async fn a_batch_whose_answer_never_came_is_not_sent_again() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.play(|name, _| (name == "send_batch").then(|| Err(failure(Code::COMMIT_UNKNOWN, Fate::Unknown))));
    let sent = ten_senders(&stage, &store).await;
    let codes = codes(sent).await;
    assert_eq!(codes[..2], [None; 2]);
    assert_eq!(codes[2..], [Some(Code::COMMIT_UNKNOWN); 8]);
    assert_eq!(stage.asked(&["send"]), ["send", "send", "send_batch 8"]);
}

#[tokio::test]
async fn a_batch_that_is_known_not_to_have_happened_is_sent_again() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mut failures =
        vec![failure(Code::SERVER_UNREACHABLE, Fate::Undone), failure(Code::DEADLOCK, Fate::TransactionUndone)];
    stage.play(move |name, _| if name == "send_batch" { failures.pop().map(Err) } else { None });
    let sent = ten_senders(&stage, &store).await;
    assert_eq!(codes(sent).await, [None; 10]);
    assert_eq!(stage.asked(&["send_batch"]).len(), 3);
}

#[tokio::test]
async fn a_deadlock_that_never_passes_is_reported_in_the_end() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.play(|name, _| (name == "move_conversation").then(|| Err(failure(Code::DEADLOCK, Fate::TransactionUndone))));
    let handle = ConversationHandle(Uuid::nil());
    let moving = Verb::MoveConversation { handle, group: crate::id::GroupId(Uuid::nil()) };
    assert_eq!(store.submit(vec![moving]).await.unwrap_err().code(), Code::DEADLOCK);
    let tries = stage.asked(&["move_conversation"]).len();
    assert!((3..10).contains(&tries), "{tries} tries");
}

#[tokio::test]
async fn bodies_are_checked_against_the_definitions_that_are_true() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let faults = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (seen, weak_stage) = (faults.clone(), Arc::downgrade(&stage));
    stage.play(move |name, args| {
        if name != "send" {
            return None;
        }
        let (Arg::Text(fault), Arg::BigInt(version)) = (&args[4], &args[5]) else { panic!("{args:?}") };
        seen.lock().unwrap().push((fault.split('|').next().unwrap().to_owned(), *version));
        let true_version = &*weak_stage.upgrade().unwrap();
        let mut true_version = true_version.version.lock().unwrap();
        if *version == 1 {
            *true_version = 2;
            return Some(Err(failure(Code::CATALOG_STALE, Fate::Undone)));
        }
        None
    });
    store.submit(vec![send(1, "Xml", b"<no xml")]).await.unwrap();
    store.submit(vec![send(1, "Xml", b"<xml/>")]).await.unwrap();
    let bad = |version| ("-9615".to_owned(), version);
    assert_eq!(*faults.lock().unwrap(), [bad(1), bad(2), (String::new(), 2)]);
}

#[tokio::test]
async fn messages_received_for_a_caller_that_has_left_come_to_no_other() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mut rows = vec![vec![received(0, "a"), received(0, "b")]];
    stage.play(move |name, _| if name == "receive" { rows.pop().map(Ok) } else { None });
    stage.gate.forget_permits(usize::MAX);
    {
        let mut receiving = pin!(store.submit(vec![receive()]));
        assert!(matches!(receiving.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending));
        stage.until_asked("receive", 1).await;
    }
    stage.gate.add_permits(10);
    for calls in 2..4 {
        assert!(texts(&store.submit(vec![receive()]).await.unwrap()[0]).is_empty());
        assert_eq!(stage.asked(&["receive"]).len(), calls);
    }
}

#[tokio::test]
async fn a_refusal_in_a_transaction_keeps_the_work_before_it() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(send(1, "Text", b"x")).await.unwrap();
    stage.play(|name, _| (name == "send").then(|| Err(failure(Code::STATE_FORBIDS_SEND, Fate::Undone))));
    assert_eq!(tx.execute(send(2, "Text", b"x")).await.unwrap_err().code(), Code::STATE_FORBIDS_SEND);
    tx.sql(SqlStatement { text: "mine".to_owned(), params: Vec::new(), expected_rows: Some(1) }).await.unwrap();
    let refused = tx.sql(SqlStatement { text: "two".to_owned(), params: Vec::new(), expected_rows: Some(2) }).await;
    assert_eq!(refused.unwrap_err().code(), Code::USER_SQL_FAILED);
    tx.commit().await.unwrap();
    let asked = stage.asked(&["begin", "commit", "send", "execute", "savepoint", "release", "rollback"]);
    let guarded = ["savepoint 0", "send", "rollback_to 0", "release 0", "savepoint 0", "execute mine", "release 0"];
    let counted = ["savepoint 0", "execute two", "rollback_to 0", "release 0", "commit"];
    assert_eq!(asked, [&["begin", "send"][..], &guarded, &counted].concat());
}

/// It answered that the transaction was rolled back; then it took the next statement, and committed without the first.
#[tokio::test]
async fn a_transaction_whose_first_statement_loses_its_connection_has_ended() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mine = || SqlStatement { text: "mine".to_owned(), params: Vec::new(), expected_rows: None };
    let mut tx = store.begin(Seen::always()).await.unwrap();
    stage.play(|name, _| (name == "execute").then(|| Err(failure(Code::SERVER_UNREACHABLE, Fate::Unknown))));
    assert_eq!(tx.sql(mine()).await.unwrap_err().code(), Code::SERVER_UNREACHABLE);
    stage.play(|_, _| None);
    assert_eq!(tx.sql(mine()).await.unwrap_err().code(), Code::TRANSACTION_ENDED);
    assert_eq!(tx.commit().await.unwrap_err().code(), Code::TRANSACTION_ENDED);
    assert_eq!(stage.asked(&["execute", "commit"]), ["execute mine"]);
}

#[tokio::test]
async fn a_transaction_that_was_lost_has_ended() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(send(1, "Text", b"x")).await.unwrap();
    stage.play(|name, _| (name == "send").then(|| Err(failure(Code::COMMIT_UNKNOWN, Fate::Unknown))));
    let lost = tx.execute(send(1, "Text", b"x")).await.unwrap_err();
    assert_eq!(lost.code(), Code::SERVER_UNREACHABLE, "without COMMIT nothing has happened: {lost}");
    assert_eq!(tx.execute(send(1, "Text", b"x")).await.unwrap_err().code(), Code::TRANSACTION_ENDED);
    assert_eq!(tx.commit().await.unwrap_err().code(), Code::TRANSACTION_ENDED);
}

/// A transaction that has received.
async fn received_in_a_transaction(stage: &Stage, store: &Arc<DatabaseStore>) -> Box<dyn StoreTx> {
    stage.play(|name, _| (name == "receive").then(|| Ok(vec![received(0, "a")])));
    let mut tx = store.begin(Seen::always()).await.unwrap();
    assert_eq!(texts(&tx.execute(receive()).await.unwrap()), ["a"]);
    tx
}

#[tokio::test]
async fn a_receive_is_noted_before_it_is_seen_and_counted_if_it_is_rolled_back() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let of = ["receive", "begin_attempt", "commit_attempt", "count_rollback", "commit", "rollback"];
    received_in_a_transaction(&stage, &store).await.commit().await.unwrap();
    assert_eq!(stage.asked(&of), ["receive", "begin_attempt", "commit_attempt", "commit_receives 1", "commit"]);
    let rolled_back = ["receive", "begin_attempt", "rollback", "count_rollback"];
    received_in_a_transaction(&stage, &store).await.rollback(None).await.unwrap();
    assert_eq!(stage.asked(&of)[5..], rolled_back);
    drop(received_in_a_transaction(&stage, &store).await);
    stage.until_asked("count_rollback", 2).await;
    assert_eq!(stage.asked(&of)[9..], rolled_back);
}

#[tokio::test(start_paused = true)]
async fn a_transaction_that_ends_soon_is_noted_only_if_it_rolls_back() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    store.database.notes.trust();
    let of = ["receive", "begin_attempt", "count_rollback", "commit", "rollback"];
    received_in_a_transaction(&stage, &store).await.commit().await.unwrap();
    assert_eq!(stage.asked(&of), ["receive", "commit_receives 1", "commit"]);
    let rolled_back = ["receive", "begin_attempt", "rollback", "count_rollback"];
    received_in_a_transaction(&stage, &store).await.rollback(None).await.unwrap();
    assert_eq!(stage.asked(&of)[3..], rolled_back);
    drop(received_in_a_transaction(&stage, &store).await);
    stage.until_asked("count_rollback", 2).await;
    assert_eq!(stage.asked(&of)[7..], rolled_back);
    let tx = received_in_a_transaction(&stage, &store).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(stage.asked(&of)[11..], ["receive", "begin_attempt"]);
    tx.commit().await.unwrap();
    assert_eq!(stage.asked(&of)[13..], ["commit_attempt", "commit_receives 1", "commit"]);
}

#[tokio::test]
async fn a_receive_is_noted_before_a_savepoint_undoes_it() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    store.database.notes.trust();
    stage.play(|name, _| (name == "receive").then(|| Ok(vec![received(0, "a")])));
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.savepoint("a").await.unwrap();
    tx.execute(receive()).await.unwrap();
    tx.rollback_to("a").await.unwrap();
    assert_eq!(stage.asked(&["begin_attempt", "rollback_to"]), ["begin_attempt", "rollback_to 1"]);
}

#[tokio::test]
async fn a_commit_whose_answer_never_came_is_neither_repeated_nor_counted() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let tx = received_in_a_transaction(&stage, &store).await;
    stage.play(|name, _| (name == "commit").then(|| Err(failure(Code::COMMIT_UNKNOWN, Fate::Unknown))));
    assert_eq!(tx.commit().await.unwrap_err().code(), Code::COMMIT_UNKNOWN);
    assert_eq!(stage.asked(&["commit", "count"]), ["commit_attempt", "commit_receives 1", "commit"]);
    let tx = received_in_a_transaction(&stage, &store).await;
    stage.play(|name, _| (name == "commit").then(|| Err(failure(Code::DEADLOCK, Fate::TransactionUndone))));
    assert_eq!(tx.commit().await.unwrap_err().code(), Code::DEADLOCK);
    assert_eq!(stage.asked(&["count"]), ["count_rollback"]);
}

#[tokio::test]
async fn a_receiver_that_finds_no_message_holds_no_connection() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    assert!(texts(&tx.execute(receive()).await.unwrap()).is_empty());
    assert_eq!(stage.asked(&["begin", "receive", "rollback"]), ["begin", "receive", "rollback"]);
    tx.commit().await.unwrap();
    assert!(stage.asked(&["commit"]).is_empty());
}

#[tokio::test]
async fn savepoints_are_numbered_and_hold_locks_beyond_the_end() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.savepoint("a").await.unwrap();
    tx.savepoint("b").await.unwrap();
    tx.savepoint("a").await.unwrap();
    tx.rollback_to("a").await.unwrap();
    tx.rollback_to("b").await.unwrap();
    tx.rollback_to("a").await.unwrap();
    assert_eq!(tx.rollback_to("c").await.unwrap_err().code(), Code::SAVEPOINT_NOT_FOUND);
    tx.commit().await.unwrap();
    let asked = stage.asked(&["hold", "savepoint", "rollback_to", "commit", "unlock"]);
    let marks = ["hold_locks", "savepoint 1", "savepoint 2", "savepoint 3"];
    let undone = ["rollback_to 3", "rollback_to 2", "rollback_to 1", "commit", "unlock_session"];
    assert_eq!(asked, [&marks[..], &undone].concat());
}

#[tokio::test]
async fn a_connection_on_which_a_mark_was_given_up_is_asked_nothing_more() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(send(1, "Text", b"x")).await.unwrap();
    stage.gate.forget_permits(usize::MAX);
    {
        let mut marking = tx.savepoint("a");
        assert!(marking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        stage.until_asked("hold_locks", 1).await;
    }
    drop(tx);
    stage.gate.add_permits(10);
    store.submit(vec![receive()]).await.unwrap();
    assert!(stage.asked(&["rollback"]).is_empty(), "its answer to the mark is still to come");
}

#[tokio::test]
async fn an_id_lets_a_unit_of_unknown_outcome_be_retried() {
    let _limit = crate::testing::limit();
    // The second claim finds the time of the first, or that of another caller's attempt.
    for (found, is_own) in [(7, true), (8, false)] {
        let stage = Stage::new();
        let store = stage.open().await;
        let mut commits = 0;
        stage.play(move |name, _| {
            commits += i32::from(name == "commit");
            match name {
                "commit" if commits == 1 => Some(Err(failure(Code::COMMIT_UNKNOWN, Fate::Unknown))),
                "claim_unit" => {
                    let (is_new, done_at) = if commits == 0 { (true, 7) } else { (false, found) };
                    Some(Ok(vec![row([("is_new", is_new.into()), ("done_at", SqlValue::Integer(done_at))])]))
                }
                _ => None,
            }
        });
        let outcomes = store.submit_once(Uuid::from_u128(5), vec![send(1, "Text", b"x")]).await.unwrap();
        assert_eq!(
            outcomes.map(|outcomes| outcomes.len()),
            is_own.then_some(1),
            "the first try had happened after all"
        );
        assert_eq!(
            stage.asked(&["claim", "send", "commit", "rollback"]),
            ["claim_unit", "send", "commit", "claim_unit", "rollback"]
        );
    }
}

/// It was said that nothing had been changed.
#[tokio::test(start_paused = true)]
async fn a_unit_is_of_unknown_outcome_if_the_server_stays_away_after_its_commit() {
    let _limit = crate::testing::limit();
    let define = || {
        Verb::Define(
            crate::catalog::ddl::parse("CREATE QUEUE other")
                .unwrap()
                .into_iter()
                .map(|parsed| parsed.definition)
                .collect(),
        )
    };
    for unit in [vec![send(1, "Text", b"x")], vec![define()]] {
        let stage = Stage::new();
        let store = stage.open().await;
        let mut commits = 0;
        stage.play(move |name, _| {
            commits += i32::from(name == "commit");
            match name {
                "commit" => Some(Err(failure(Code::COMMIT_UNKNOWN, Fate::Unknown))),
                "claim_unit" if commits > 0 => Some(Err(failure(Code::SERVER_UNREACHABLE, Fate::Undone))),
                "define_begin" => Some(Ok(vec![row([("is_current", true.into())])])),
                "define_end" => Some(Ok(vec![row([("catalog_version", SqlValue::Integer(2))])])),
                _ => None,
            }
        });
        let open = store.submit_once(Uuid::from_u128(5), unit).await.unwrap_err();
        assert_eq!(open.code(), Code::COMMIT_UNKNOWN, "{open}");
        assert!(stage.asked(&["claim_unit"]).len() > 2, "it is tried again");
    }
}

/// The id was free again, so the first attempt has not happened, and the refusal of the second one is the answer.
#[tokio::test(start_paused = true)]
async fn a_refusal_after_an_attempt_that_has_not_happened_is_the_answer() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mut commits = 0;
    stage.play(move |name, _| {
        commits += i32::from(name == "commit");
        match name {
            "commit" => Some(Err(failure(Code::COMMIT_UNKNOWN, Fate::Unknown))),
            "send" if commits > 0 => Some(Err(failure(Code::CONVERSATION_NOT_FOUND, Fate::Undone))),
            _ => None,
        }
    });
    let refused = store.submit_once(Uuid::from_u128(5), vec![send(1, "Text", b"x")]).await.unwrap_err();
    assert_eq!(refused.code(), Code::CONVERSATION_NOT_FOUND, "{refused}");
}

#[tokio::test]
async fn notices_of_other_processes_wake_receivers_and_bring_new_definitions() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mut signal = Box::pin(store.activity().queue("q").register(false));
    signal.as_mut().enable();
    stage.notify(&format!("p:other q:{QUEUE}"));
    signal.await;
    let mut redefined = Box::pin(store.activity().register_definitions());
    redefined.as_mut().enable();
    *stage.version.lock().unwrap() = 2;
    stage.notify("c");
    redefined.await;
    assert_eq!(store.database.definitions.known().version, 2);
}

/// Definitions are applied under the lock of the ids, which each SEND takes.
#[tokio::test]
async fn the_schemas_of_definitions_are_compiled_before_any_lock() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let validation = Validation::JsonSchema { schema: "{".into() };
    let define = Definition::CreateMessageType { name: "bad".into(), owner: None, validation };
    let refused = store.submit(vec![Verb::Define(vec![define])]).await.unwrap_err();
    assert_eq!(refused.code(), Code::BAD_SCHEMA);
    let compiled_on = store.database.checks.compiled_on();
    assert!(!compiled_on.is_empty() && !compiled_on.contains(&std::thread::current().id()));
}

#[tokio::test]
async fn the_notices_of_a_commit_are_sent_once() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let sent = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = sent.clone();
    stage.play(move |name, args| match (name, args) {
        ("send", _) => Some(Ok(vec![row([("notices", SqlValue::from(format!("q:{QUEUE}")))])])),
        ("notify_processes", [Arg::Text(words)]) => {
            seen.lock().unwrap().push((*words).to_owned());
            None
        }
        _ => None,
    });
    let mut signal = Box::pin(store.activity().queue("q").register(false));
    signal.as_mut().enable();
    store.submit(vec![send(1, "Text", b"x")]).await.unwrap();
    signal.await;
    stage.until_asked("notify_processes", 1).await;
    let own = store.database.process.simple();
    assert_eq!(*sent.lock().unwrap(), [format!("p:{own} q:{QUEUE}")]);
}

#[tokio::test]
async fn a_payload_of_this_process_does_not_hide_others_that_came_with_it() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mut signal = Box::pin(store.activity().queue("q").register(false));
    signal.as_mut().enable();
    stage.notify(&format!("p:{} q:{QUEUE}", Uuid::from_u128(1).simple()));
    stage.notify(&format!("p:{} q:1", store.database.process.simple()));
    signal.await;
}

#[tokio::test]
async fn malformed_payloads_stop_nothing() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mut signal = Box::pin(store.activity().queue("q").register(false));
    signal.as_mut().enable();
    for payload in ["", " ", "p:", "q:", "q:99999999999", "s:-1", "d:x", "d:-9223372036854775808", "nonsense \u{1} :"] {
        stage.notify(payload);
    }
    stage.notify(&format!("p:nonsense q:x q:{QUEUE}"));
    signal.await;
}

#[tokio::test(start_paused = true)]
async fn a_notice_of_plain_sql_wakes_as_many_receivers_as_groups_are_ready() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let _sleeping = [store.activity().sleep(), store.activity().sleep()];
    // The paused clock advances when all tasks sleep. A receiver that goes to sleep polls once.
    tokio::time::sleep(Duration::from_secs(1)).await;
    stage.play(|name, _| {
        (name == "poll").then(|| {
            Ok(vec![row([
                ("catalog_version", 1.into()),
                ("due_at", SqlValue::Null),
                ("ready_queues", format!("{QUEUE}:2").into()),
                ("has_locked", false.into()),
            ])])
        })
    });
    let signals = [(); 2].map(|()| {
        let mut signal = Box::pin(store.activity().queue("q").register(false));
        signal.as_mut().enable();
        signal
    });
    let began = tokio::time::Instant::now();
    stage.notify(&format!("q:{QUEUE}"));
    for signal in signals {
        signal.await;
    }
    assert!(began.elapsed() < Duration::from_secs(10), "the second was woken after {:?}", began.elapsed());
}

/// The requests of an idle process in ten minutes, while `receivers` callers wait for messages.
async fn asked_while_idle(receivers: usize) -> Vec<String> {
    let stage = Stage::new();
    let broker = Broker::over(stage.open().await);
    for _ in 0..receivers {
        let broker = broker.clone();
        tokio::spawn(async move { broker.receive("Q").wait_forever().await });
    }
    // The paused clock advances when all tasks sleep.
    tokio::time::sleep(Duration::from_secs(90)).await;
    let before = stage.asked(&[""]).len();
    tokio::time::sleep(Duration::from_secs(600)).await;
    let mut asked = stage.asked(&[""]).split_off(before);
    asked.sort();
    asked
}

#[tokio::test(start_paused = true)]
async fn an_idle_process_ticks_and_polls_once_a_minute_however_many_receivers_wait() {
    let _limit = crate::testing::limit();
    assert_eq!(asked_while_idle(0).await, ["tick"; 10], "no receiver waits, so no poll");
    let one = asked_while_idle(1).await;
    assert_eq!(one, [["poll"; 10], ["tick"; 10]].concat());
    assert_eq!(asked_while_idle(100).await, one);
}

/// The end of a conversation makes no notice: a session that waited for its messages waited without end.
#[tokio::test(start_paused = true)]
async fn a_receiver_that_waits_for_a_conversation_tries_again_after_two_minutes_at_most() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let broker = Broker::over(stage.open().await);
    let mut receives = 0;
    stage.play(move |name, _| {
        receives += i32::from(name == "receive");
        let is_over = name == "receive" && receives > 1;
        is_over.then(|| Err(failure(Code::CONVERSATION_NOT_FOUND, Fate::Undone)))
    });
    let handle = ConversationHandle(Uuid::from_u128(7));
    let waits = broker.receive("Q").conversation(handle).wait_forever();
    let answer = tokio::time::timeout(Duration::from_secs(120), waits).await.expect("it waits without end");
    assert_eq!(answer.unwrap_err().code(), Code::CONVERSATION_NOT_FOUND);
}

#[tokio::test]
async fn a_queue_is_empty_only_if_no_message_was_received_during_the_poll() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let activity = store.activity().queue("Q");
    // The unread messages after a poll that shows `shown`, while `received_meanwhile` messages were received.
    let unread_after_poll = async |shown: &'static str, received_meanwhile: u64| {
        let context = activity.clone();
        stage.play(move |name, _| {
            (name == "poll").then(|| {
                context.took(received_meanwhile);
                Ok(vec![row([
                    ("catalog_version", 1.into()),
                    ("due_at", SqlValue::Null),
                    ("ready_queues", shown.into()),
                    ("has_locked", false.into()),
                ])])
            })
        });
        store.database.watch.note_change();
        store.refresh_facts().await;
        activity.facts().unread
    };
    assert_eq!(unread_after_poll("70000:3", 0).await, 3);
    assert_eq!(unread_after_poll("70000:3", 2).await, 1, "two of the three may be gone");
    assert_eq!(unread_after_poll("70000:1", 1).await, 1, "the one that was received may be another");
    assert_eq!(unread_after_poll("70000:1", 0).await, 1);
    stage.play(|name, _| (name == "receive").then(|| Ok(vec![received(0, "x")])));
    store.submit(vec![receive()]).await.unwrap();
    assert_eq!(activity.facts().unread, 1, "the poll may have counted without it already");
    assert_eq!(unread_after_poll("", 0).await, 0);
    assert_eq!(unread_after_poll("70000:1", 1).await, 0, "nothing was there before");
}

#[tokio::test(start_paused = true)]
async fn events_due_when_the_server_failed_are_still_due() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let mut failures = 3;
    stage.play(move |name, _| {
        failures -= i32::from(name == "tick");
        (name == "tick" && failures >= 0).then(|| Err(failure(Code::STORE_IO, Fate::Undone)))
    });
    let _store = stage.open().await;
    // The paused clock advances when all tasks sleep.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(stage.asked(&["tick"]).len(), 4, "once a second until it is done");
}

#[tokio::test]
async fn rows_published_on_a_lost_connection_are_published_again() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let (published, mut times) = (Arc::new(std::sync::Mutex::new(Vec::new())), 0);
    let seen = published.clone();
    stage.play(move |name, args| {
        let mut seen = seen.lock().unwrap();
        match (name, args) {
            // Other processes took a process that holds presence on a new connection for dead, and deleted its rows.
            ("hold_presence", _) => seen.clear(),
            ("put_queue_monitor", [_, Arg::BigInt(id), ..]) => {
                times += 1;
                if times == 2 {
                    return Some(Err(failure(Code::SERVER_UNREACHABLE, Fate::Undone)));
                }
                seen.push(*id);
            }
            _ => {}
        }
        None
    });
    let monitors = store.activity().monitors();
    for monitor_id in [1, 2] {
        monitors.put_monitor(MonitorRow {
            monitor_id,
            queue_id: QUEUE,
            queue_name: "Q".into(),
            state: "INACTIVE",
            last_empty_rowset_time: None,
            last_activated_time: None,
            tasks_waiting: 0,
            max_queue_readers: 1,
            tasks_running: 0,
            tasks_started_total: 0,
            tasks_aborted_total: 0,
            task_limit_reached_total: 0,
            activation_errors_total: 0,
        });
    }
    store.database.publish().await.unwrap();
    assert_eq!(stage.asked(&["hold_presence"]).len(), 2);
    assert_eq!(published.lock().unwrap().iter().copied().collect::<BTreeSet<_>>(), BTreeSet::from([1, 2]));
}

#[tokio::test]
async fn a_closed_broker_takes_nothing() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let mut tx = store.begin(Seen::always()).await.unwrap();
    store.close().await.unwrap();
    assert_eq!(store.submit(vec![receive()]).await.unwrap_err().code(), Code::STORE_CLOSED);
    assert_eq!(tx.execute(receive()).await.unwrap_err().code(), Code::STORE_CLOSED);
    assert!(store.begin(Seen::always()).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn places_of_readers_are_taken_again_on_a_new_connection() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let (mut slots, mut is_cut) = (0, false);
    let freed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = freed.clone();
    stage.play(move |name, args| match (name, args) {
        // The second poll finds the connection cut; on the new one the numbers begin again.
        ("take_reader_slot", [_, Arg::Int(0)]) if !is_cut => {
            (is_cut, slots) = (true, 10);
            Some(Err(failure(Code::SERVER_UNREACHABLE, Fate::Undone)))
        }
        ("take_reader_slot", [_, Arg::Int(0)]) => Some(Ok(vec![row([("slot", SqlValue::Null)])])),
        ("take_reader_slot", _) => {
            slots += 1;
            Some(Ok(vec![row([("slot", (slots - 1).into())])]))
        }
        ("free_reader_slot", [_, Arg::Int(slot)]) => {
            seen.lock().unwrap().push(*slot);
            Some(Ok(Vec::new()))
        }
        _ => None,
    });
    let one = store.database.take_slot(QUEUE, 2).await.unwrap().expect("a place is free");
    let two = store.database.take_slot(QUEUE, 2).await.unwrap().expect("another is free");
    store.database.keep_places().await.unwrap();
    assert_eq!(stage.asked(&["hold_presence"]).len(), 2);
    // Two, two again, and two polls.
    assert_eq!(stage.asked(&["take_reader_slot"]).len(), 6);
    drop(one);
    stage.until_asked("free_reader_slot", 1).await;
    drop(two);
    stage.until_asked("free_reader_slot", 2).await;
    assert_eq!(*freed.lock().unwrap(), [10, 11], "the numbers of the new connection");
    // No reader holds a place, so no request is sent.
    store.database.keep_places().await.unwrap();
    assert_eq!(stage.asked(&["take_reader_slot"]).len(), 6);
}

/// A server refuses 0 as a queue's number, so such a look failed every five seconds in a process that takes jobs.
#[tokio::test]
async fn a_process_that_holds_jobs_and_no_place_asks_whether_its_connection_lives() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    store.database.presence.hold().await.unwrap();
    stage.play(|name, args| match (name, args) {
        ("take_reader_slot", [Arg::Int(1..), Arg::Int(0)]) => Some(Ok(vec![row([("slot", SqlValue::Null)])])),
        ("take_reader_slot", _) => Some(Err(failure(Code::OUT_OF_RANGE, Fate::Undone))),
        _ => None,
    });
    store.database.keep_places().await.unwrap();
    assert_eq!(stage.asked(&["take_reader_slot"]).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_place_that_the_lost_connection_still_holds_is_taken_later() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    let (mut looks, mut takes) = (0, 0);
    stage.play(move |name, args| match (name, args) {
        ("take_reader_slot", [_, Arg::Int(0)]) => {
            looks += 1;
            let cut = || Err(failure(Code::SERVER_UNREACHABLE, Fate::Undone));
            Some(if looks == 1 { cut() } else { Ok(vec![row([("slot", SqlValue::Null)])]) })
        }
        // The server has not noticed the loss when the new connection asks for the place.
        ("take_reader_slot", _) => {
            takes += 1;
            Some(Ok(vec![row([("slot", if takes == 2 { SqlValue::Null } else { takes.into() })])]))
        }
        ("free_reader_slot", [_, Arg::Int(3)]) => Some(Ok(Vec::new())),
        _ => None,
    });
    let place = store.database.take_slot(QUEUE, 1).await.unwrap().expect("a place is free");
    store.database.keep_places().await.unwrap();
    store.database.keep_places().await.unwrap();
    drop(place);
    stage.until_asked("free_reader_slot", 1).await;
}
