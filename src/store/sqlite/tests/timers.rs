//! Timers, and the writer that fires them.

use super::*;
use crate::protocol::work::Hold;
use crate::store::work_queue_on_board;

#[tokio::test]
async fn a_moved_clock_runs_due_events_before_an_empty_unit_is_answered() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(Timestamp(1_000_000));
    let store = defined(SqliteOptions { clock: clock.clone(), ..options(folder.path()) }).await;
    let handle = begin(&store).await;
    store.submit(vec![Verb::BeginConversationTimer { handle, timeout_seconds: 60 }]).await.unwrap();
    clock.advance(Duration::from_secs(59));
    store.submit(Vec::new()).await.unwrap();
    let activity = store.activity().queue("from");
    assert_eq!(activity.facts().unread, 0);
    let signal = activity.register(true);
    clock.advance(Duration::from_secs(1));
    // No caller polls: the clock alone wakes the writer.
    signal.await;
    // The signal comes when the message is ordered; an empty unit is answered when it is written.
    store.submit(Vec::new()).await.unwrap();
    assert_eq!(count(&store, "select count(*) from queue_messages where queue_name = 'from'").await, 1);
}

#[tokio::test]
async fn a_timer_that_a_lone_caller_sets_wakes_the_writer() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let store = defined(options(folder.path())).await;
    let handle = begin(&store).await;
    // Enough to count as alone, so that the timer is written on this thread while the writer sleeps.
    for _ in 0..20 {
        store.submit(vec![send(handle, "x")]).await.unwrap();
    }
    let activity = store.activity().queue("from");
    let signal = activity.register(true);
    store.submit(vec![Verb::BeginConversationTimer { handle, timeout_seconds: 1 }]).await.unwrap();
    signal.await;
    assert_eq!(activity.facts().unread, 1, "{:?}", activity.facts());
}

#[tokio::test]
async fn a_rollback_that_frees_a_due_timer_wakes_the_writer() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(Timestamp(1_000_000));
    let store = defined(SqliteOptions { clock: clock.clone(), ..options(folder.path()) }).await;
    let handle = begin(&store).await;
    let timer = |timeout_seconds| Verb::BeginConversationTimer { handle, timeout_seconds };
    store.submit(vec![timer(1)]).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(timer(60)).await.unwrap();
    clock.advance(Duration::from_secs(2));
    store.submit(Vec::new()).await.unwrap();
    let activity = store.activity().queue("from");
    assert_eq!(activity.facts().unread, 0, "the transaction holds it");
    let signal = activity.register(true);
    drop(tx);
    signal.await;
    assert_eq!(activity.facts().unread, 1, "{:?}", activity.facts());
}

/// What waits for the group of a commit with SQL is done with that commit. A timer of six seconds fired half a second after it was set, behind a
/// statement that took so long, and a conversation was over its lifetime when it began.
#[tokio::test]
async fn a_timer_behind_a_commit_with_sql_counts_from_when_it_is_set() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::manual(Timestamp(1_000_000));
    let store = defined(SqliteOptions { clock: clock.clone(), ..options(folder.path()) }).await;
    let handle = begin(&store).await;
    let timer = |timeout_seconds| Verb::BeginConversationTimer { handle, timeout_seconds };
    store.run_sql(sql("create table t (n)")).await.unwrap();
    let mut tx = store.begin(Seen::always()).await.unwrap();
    tx.execute(timer(600)).await.unwrap();
    tx.sql(sql("insert into t values (1)")).await.unwrap();
    // Its statement has to run again, and waits for the lock of another program.
    store.run_sql(sql("insert into t values (2)")).await.unwrap();
    let other = rusqlite::Connection::open(folder.path().join("a.db")).unwrap();
    other.busy_timeout(Duration::from_secs(20)).unwrap();
    other.execute_batch("begin immediate").unwrap();
    let mut committed = tx.commit();
    let mut set = store.submit(vec![timer(6)]);
    assert_pending(&mut committed);
    assert_pending(&mut set);
    until(|| store.engine.lock_even_failed().describe_orders().contains(" 0 commits for their SQL")).await;
    clock.advance(Duration::from_secs(10));
    other.execute_batch("rollback").unwrap();
    committed.await.unwrap();
    set.await.unwrap();
    store.submit(Vec::new()).await.unwrap();
    let activity = store.activity().queue("from");
    assert_eq!(activity.facts().unread, 0, "six seconds after the call");
    let signal = activity.register(true);
    clock.advance(Duration::from_secs(6));
    signal.await;
    assert_eq!(activity.facts().unread, 1);
}

/// Nothing is due then: the end of the rate's pause lies an hour ahead. No call comes either.
#[tokio::test]
async fn a_clock_that_is_set_back_opens_a_queue_whose_rate_was_used_up() {
    let _limit = crate::testing::limit();
    let folder = tempfile::tempdir().unwrap();
    let clock = Clock::wrong_by(0);
    let store = SqliteStore::open(SqliteOptions { clock: clock.clone(), ..options(folder.path()) }).unwrap();
    let definitions = crate::catalog::ddl::parse("CREATE WORK QUEUE w WITH RATE_JOBS = 1, RATE_MS = 60000").unwrap();
    store.submit(vec![Verb::Define(definitions.into_iter().map(|parsed| parsed.definition).collect())]).await.unwrap();
    store.submit(vec![jobs::push(None), jobs::push(None)]).await.unwrap();
    store.submit(vec![jobs::take(Hold::Lease(None))]).await.unwrap();
    let activity = store.activity().queue(&work_queue_on_board("w"));
    assert_eq!(activity.facts().ready_groups, 0, "the rate is used up");
    clock.jump(-3600);
    until(|| activity.facts().ready_groups == 1).await;
}
