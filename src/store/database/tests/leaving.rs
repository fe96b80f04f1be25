//! Callers that leave before their answer comes, and the ids of repeated attempts.

use super::*;
use crate::protocol::{Addressee, BeginDialog, Relation, Unit};
use crate::store::Seen;

/// Takes messages of one conversation, in a call of its own.
fn receive_from_a_conversation() -> Verb {
    let from = ReceiveFrom::Conversation(ConversationHandle(Uuid::from_u128(7)));
    Verb::Receive { queue: "Q".into(), top: None, from }
}

/// Polls a future once, lets the server reach that call, then drops the future.
pub(super) async fn leave_during<F: Future>(stage: &Stage, asked: F, call: &str) {
    let mut asked = pin!(asked);
    assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    stage.until_asked(call, 1).await;
}

#[tokio::test]
async fn a_receive_is_not_tried_again_for_a_caller_that_has_left() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.play(|name, _| (name == "receive").then(|| Err(failure(Code::DEADLOCK, Fate::TransactionUndone))));
    stage.gate.forget_permits(usize::MAX);
    leave_during(&stage, store.submit(vec![receive_from_a_conversation()]), "receive").await;
    stage.gate.add_permits(10);
    // Closing waits for work under way.
    store.close().await.unwrap();
    assert_eq!(stage.asked(&["receive"]).len(), 1);
}

#[tokio::test]
async fn messages_of_a_unit_are_returned_if_its_caller_has_left() {
    let _limit = crate::testing::limit();
    for unit_id in [None, Some(Uuid::from_u128(5))] {
        for unit in [vec![send(1, "Text", b"x"), receive()], vec![receive(), receive_from_a_conversation()]] {
            let stage = Stage::new();
            let store = stage.open().await;
            stage.play(|name, _| (name == "receive").then(|| Ok(vec![received(0, "a")])));
            stage.gate.forget_permits(usize::MAX);
            match unit_id {
                None => leave_during(&stage, store.submit(unit), "begin").await,
                Some(id) => leave_during(&stage, store.submit_once(id, unit), "begin").await,
            }
            stage.gate.add_permits(10);
            stage.until_asked("rollback", 1).await;
            // Receivers that met the locked group get a notice that it is free.
            stage.until_asked("notify_processes", 1).await;
            store.close().await.unwrap();
            assert!(stage.asked(&["commit"]).is_empty(), "{unit_id:?}");
        }
    }
}

#[tokio::test]
async fn a_unit_that_received_nothing_commits_without_its_caller() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.gate.forget_permits(usize::MAX);
    leave_during(&stage, store.submit(vec![send(1, "Text", b"x"), receive()]), "begin").await;
    stage.gate.add_permits(10);
    stage.until_asked("commit", 1).await;
    store.close().await.unwrap();
    assert!(stage.asked(&["rollback"]).is_empty());
}

#[tokio::test]
async fn a_unit_that_is_refused_is_rolled_back_at_once() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    // An answer that is not understood.
    stage.play(|name, _| (name == "end_conversation").then(|| Ok(Vec::new())));
    let ending =
        Verb::EndConversation { handle: ConversationHandle(Uuid::from_u128(1)), form: crate::protocol::EndForm::Plain };
    store.submit(vec![send(1, "Text", b"x"), ending]).await.unwrap_err();
    assert_eq!(stage.asked(&["commit", "rollback"]), ["rollback"]);
}

fn begin_dialog() -> Verb {
    Verb::BeginDialog(BeginDialog {
        from_service: "A".into(),
        to_service: "B".into(),
        addressee: Addressee::Anywhere,
        contract: None,
        related: Relation::None,
        lifetime_seconds: None,
        encryption: false,
    })
}

/// A server that may still be rolling a try back has its ids in use until then.
#[tokio::test]
async fn every_try_of_begin_dialog_has_ids_of_its_own() {
    let _limit = crate::testing::limit();
    let two: Unit = vec![send(1, "Text", b"x"), begin_dialog()];
    let roads = [
        Some((None, vec![begin_dialog()])),
        Some((None, two.clone())),
        Some((Some(Uuid::from_u128(5)), two)),
        // In a transaction.
        None,
    ];
    for road in roads {
        let stage = Stage::new();
        let store = stage.open().await;
        let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
        let ids = seen.clone();
        stage.play(move |name, args| {
            let [.., Arg::Uuid(handle), Arg::Uuid(conversation), Arg::Uuid(group)] = args else { return None };
            if name != "begin_dialog_conversation" {
                return None;
            }
            let mut ids = ids.lock().unwrap();
            ids.extend([*handle, *conversation, *group]);
            if ids.len() == 3 {
                return Some(Err(failure(Code::SERVER_UNREACHABLE, Fate::TransactionUndone)));
            }
            let names = ["conversation_handle", "conversation_id", "conversation_group_id"];
            let columns = [(names[0], *handle), (names[1], *conversation), (names[2], *group)];
            Some(Ok(vec![row(columns.map(|(name, id)| (name, id.into())))]))
        });
        match road {
            Some((None, unit)) => drop(store.submit(unit).await.unwrap()),
            Some((Some(id), unit)) => drop(store.submit_once(id, unit).await.unwrap()),
            None => drop(store.begin(Seen::always()).await.unwrap().execute(begin_dialog()).await.unwrap()),
        }
        let seen = seen.lock().unwrap();
        assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), 6, "{seen:?}");
    }
}

/// Without notices other processes poll once a minute only.
#[tokio::test(start_paused = true)]
async fn a_close_sends_the_notices_of_commits_before_it() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    stage.play(|name, _| (name == "send").then(|| Ok(vec![row([("notices", SqlValue::from(format!("q:{QUEUE}")))])])));
    for number in 1..=2 {
        store.submit(vec![send(number, "Text", b"x")]).await.unwrap();
        if number == 1 {
            // The next word waits a few milliseconds for others.
            stage.until_asked("notify_processes", 1).await;
        }
    }
    store.close().await.unwrap();
    assert_eq!(stage.asked(&["notify_processes"]).len(), 2);
}

/// A batch in the runtime of one caller must not end with that runtime: other callers' messages gather behind it.
#[tokio::test]
async fn callers_whose_runtimes_end_leave_the_way_free_for_others() {
    let _limit = crate::testing::limit();
    let stage = Stage::new();
    let store = stage.open().await;
    for number in 0..8 {
        let verb = if number % 2 == 0 { send(number, "Text", b"x") } else { receive() };
        let store = store.clone();
        let caller = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(store.submit(vec![verb])).unwrap();
        };
        tokio::task::spawn_blocking(caller).await.unwrap();
    }
    store.submit(vec![send(9, "Text", b"x")]).await.unwrap();
    store.submit(vec![receive()]).await.unwrap();
}
