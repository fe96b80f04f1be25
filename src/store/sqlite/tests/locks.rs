//! Waiting for a locked group: the order of the waiters, and the ends of a wait.

use super::*;
use crate::id::GroupId;
use crate::store::Seen;

async fn begin_in_group(store: &SqliteStore, related: Relation) -> (ConversationHandle, GroupId) {
    let Verb::BeginDialog(dialog) = dialog() else { unreachable!() };
    match &store.submit(vec![Verb::BeginDialog(BeginDialog { related, ..dialog })]).await.unwrap()[0] {
        Outcome::Began { handle, group, .. } => (*handle, *group),
        other => panic!("{other:?}"),
    }
}

/// A store whose groups are locked in the order in which they were made.
async fn counted() -> Arc<SqliteStore> {
    let mut options = SqliteOptions::new(Location::Memory);
    options.ids = IdSource::Counted(1);
    defined(options).await
}

#[tokio::test]
async fn transactions_get_a_group_in_the_order_in_which_they_came() {
    let _limit = crate::testing::limit();
    let store = counted().await;
    let handle = begin(&store).await;
    let mut holder = store.begin(Seen::always()).await.unwrap();
    holder.execute(send(handle, "0")).await.unwrap();
    let [mut a, mut b, mut c] = three_transactions(&store).await;
    let (mut first, mut second, mut third) =
        (a.execute(send(handle, "1")), b.execute(send(handle, "2")), c.execute(send(handle, "3")));
    assert_pending(&mut first);
    assert_pending(&mut second);
    assert_pending(&mut third);
    holder.commit().await.unwrap();
    first.await.unwrap();
    assert_pending(&mut second);
    a.commit().await.unwrap();
    assert_pending(&mut third);
    second.await.unwrap();
    b.commit().await.unwrap();
    third.await.unwrap();
    c.commit().await.unwrap();
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["0", "1", "2", "3"]);
}

#[tokio::test]
async fn a_unit_whose_caller_has_gone_does_not_hold_up_the_next() {
    let _limit = crate::testing::limit();
    let store = counted().await;
    let handle = begin(&store).await;
    let mut holder = store.begin(Seen::always()).await.unwrap();
    holder.execute(send(handle, "0")).await.unwrap();
    let mut gone = store.submit(vec![send(handle, "never")]);
    assert_pending(&mut gone);
    let mut next = store.submit(vec![send(handle, "1")]);
    assert_pending(&mut next);
    drop(gone);
    holder.commit().await.unwrap();
    assert!(store.engine.lock_even_failed().parked.is_empty(), "the group is free");
    next.await.unwrap();
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["0", "1"]);
}

#[tokio::test]
async fn a_caller_that_gives_up_its_wait_leaves_the_wait_of_another_alone() {
    let _limit = crate::testing::limit();
    let store = counted().await;
    let (handle, free) = (begin(&store).await, begin(&store).await);
    let mut holder = store.begin(Seen::always()).await.unwrap();
    holder.execute(send(handle, "0")).await.unwrap();
    let (mut a, mut b) = (store.begin(Seen::always()).await.unwrap(), store.begin(Seen::always()).await.unwrap());
    let mut waits = a.execute(send(handle, "1"));
    assert_pending(&mut waits);
    let mut gives_up = b.execute(send(handle, "never"));
    assert_pending(&mut gives_up);
    drop(gives_up);
    holder.commit().await.unwrap();
    waits.await.unwrap();
    b.execute(send(free, "2")).await.unwrap();
    a.commit().await.unwrap();
    b.commit().await.unwrap();
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["0", "1"]);
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["2"]);
}

#[tokio::test]
async fn a_verb_that_is_refused_after_its_wait_leaves_its_transaction_open() {
    let _limit = crate::testing::limit();
    let store = counted().await;
    let (handle, free) = (begin(&store).await, begin(&store).await);
    let mut holder = store.begin(Seen::always()).await.unwrap();
    holder.execute(Verb::EndConversation { handle, form: EndForm::Cleanup }).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(send(free, "1")).await.unwrap();
    let mut waits = tx.execute(send(handle, "never"));
    assert_pending(&mut waits);
    holder.commit().await.unwrap();
    assert_ne!(waits.await.unwrap_err().code(), Code::DEADLOCK);
    tx.execute(send(free, "2")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["1", "2"]);
}

#[tokio::test]
async fn a_deadlock_that_is_found_after_a_wait_ends_the_transaction_and_frees_its_groups() {
    let _limit = crate::testing::limit();
    let store = counted().await;
    let (own, first, second) = (begin(&store).await, begin(&store).await, begin(&store).await);
    let [mut lost, mut holder, mut other] = three_transactions(&store).await;
    lost.execute(send(own, "never")).await.unwrap();
    holder.execute(send(first, "0")).await.unwrap();
    other.execute(send(second, "1")).await.unwrap();
    let Verb::Send { message_type, body, trace, .. } = send(first, "never") else { unreachable!() };
    let both = Verb::Send { handles: vec![first, second], message_type, body, trace };
    let mut waits = lost.execute(both);
    assert_pending(&mut waits);
    let mut wanted = other.execute(send(own, "2"));
    assert_pending(&mut wanted);
    // The first group is free now, and the second is held by a transaction that waits for this one.
    holder.commit().await.unwrap();
    assert_eq!(waits.await.unwrap_err().code(), Code::DEADLOCK);
    assert_eq!(lost.execute(send(own, "never")).await.unwrap_err().code(), Code::TRANSACTION_ENDED);
    assert!(store.engine.lock_even_failed().parked.is_empty(), "what it held is free");
    wanted.await.unwrap();
    other.commit().await.unwrap();
}

#[tokio::test]
async fn a_conversation_that_was_moved_does_not_hold_up_the_others_of_its_old_group() {
    let _limit = crate::testing::limit();
    let store = counted().await;
    let (moved, group) = begin_in_group(&store, Relation::None).await;
    let (stays, _) = begin_in_group(&store, Relation::Group(group)).await;
    let (there, new) = begin_in_group(&store, Relation::None).await;
    let mut mover = store.begin(Seen::always()).await.unwrap();
    mover.execute(Verb::MoveConversation { handle: moved, group: new }).await.unwrap();
    let [mut a, mut b, mut c] = three_transactions(&store).await;
    let (mut of_new, mut of_moved, mut of_old) =
        (a.execute(send(there, "a")), b.execute(send(moved, "b")), c.execute(send(stays, "c")));
    assert_pending(&mut of_new);
    assert_pending(&mut of_moved);
    assert_pending(&mut of_old);
    mover.commit().await.unwrap();
    of_new.await.unwrap();
    assert_pending(&mut of_moved);
    assert_eq!(store.engine.lock_even_failed().parked.iter().count(), 1, "the old group is free");
    of_old.await.unwrap();
    c.commit().await.unwrap();
    a.commit().await.unwrap();
    of_moved.await.unwrap();
    b.commit().await.unwrap();
}

#[tokio::test]
async fn a_close_ends_every_wait_for_a_group() {
    let _limit = crate::testing::limit();
    let store = counted().await;
    let handle = begin(&store).await;
    let (mut holder, mut tx) = (store.begin(Seen::always()).await.unwrap(), store.begin(Seen::always()).await.unwrap());
    holder.execute(send(handle, "never")).await.unwrap();
    let (mut unit, mut verb) = (store.submit(vec![send(handle, "never")]), tx.execute(send(handle, "never")));
    assert_pending(&mut unit);
    assert_pending(&mut verb);
    store.close().await.unwrap();
    assert_eq!(unit.await.unwrap_err().code(), Code::STORE_CLOSED);
    assert_eq!(verb.await.unwrap_err().code(), Code::STORE_CLOSED);
}

#[tokio::test]
async fn a_group_that_a_transaction_has_taken_does_not_count_as_ready() {
    let _limit = crate::testing::limit();
    let store = counted().await;
    let handle = begin(&store).await;
    store.submit(vec![send(handle, "one")]).await.unwrap();
    let ready = || store.activity().queue("to").facts().ready_groups;
    for verb in [receive(), Verb::GetConversationGroup { queue: "to".into() }] {
        assert_eq!(ready(), 1);
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.execute(verb).await.unwrap();
        assert_eq!(ready(), 0);
        tx.rollback(None).await.unwrap();
    }
}

/// The store parks no more units for a locked group: one that costs the whole room waits for it, and goes when the
/// returned value is dropped.
async fn fill<'s>(store: &'s SqliteStore, handle: ConversationHandle) -> Submitted<'s> {
    let body = Arc::new(vec![b'x'; ROOM as usize * BODY_SHARE_BYTES / 4]);
    let quarter = Verb::Send { handles: vec![handle], message_type: Some("t".into()), body: Some(body), trace: None };
    let mut whole = store.submit(vec![quarter; 4]);
    // The writer answers earlier units before it gives their shares of the room back.
    until(|| {
        assert_pending(&mut whole);
        store.engine.lock_even_failed().parked.cost() >= ROOM
    })
    .await;
    whole
}

type Submitted<'s> = BoxFuture<'s, Result<Vec<Outcome>>>;

#[tokio::test]
async fn callers_that_give_up_and_retry_fill_no_memory() {
    let _limit = crate::testing::limit();
    for is_full in [false, true] {
        let (store, handle) = with_a_dialog().await;
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.execute(send(handle, "first")).await.unwrap();
        let whole = if is_full { Some(fill(&store, handle).await) } else { None };
        for _ in 0..2000 {
            let mut leaves = store.submit(vec![send(handle, "never")]);
            for _ in 0..2 {
                assert_pending(&mut leaves);
            }
        }
        let stays = store.submit(vec![send(handle, "second")]);
        let end = async {
            tokio::task::yield_now().await;
            {
                let parked = &store.engine.lock_even_failed().parked;
                assert!(parked.iter().count() < 100, "{} wait", parked.iter().count());
            }
            drop(whole);
            tx.commit().await.unwrap();
        };
        let (sent, ()) = tokio::join!(stays, end);
        sent.unwrap();
        assert_eq!(bodies(&store.submit(vec![receive()]).await.unwrap()[0]), ["first", "second"]);
        let state = store.engine.lock_even_failed();
        assert!(state.parked.is_empty() && state.parked.cost() == 0);
    }
}

#[tokio::test]
async fn a_caller_that_keeps_its_unit_gets_the_error_of_a_close_or_failure() {
    let _limit = crate::testing::limit();
    for fails in [false, true] {
        let (store, handle) = with_a_dialog().await;
        let other = begin(&store).await;
        let mut tx = store.begin(Seen::always()).await.unwrap();
        tx.execute(send(handle, "first")).await.unwrap();
        let _whole = fill(&store, handle).await;
        let end = async {
            tokio::task::yield_now().await;
            match fails {
                true => {
                    store.engine.write.lock().unwrap().fault = Some(Fault::before(1));
                    store.submit(vec![send(other, "fails")]).await.map(drop).unwrap_err();
                }
                false => store.close().await.unwrap(),
            }
        };
        let (sent, ()) = tokio::join!(store.submit(vec![send(handle, "never")]), end);
        let expected = if fails { Code::STORE_POISONED } else { Code::STORE_CLOSED };
        assert_eq!(sent.unwrap_err().code(), expected);
    }
}
