//! The user's own SQL in a transaction.

use crate::rig::{Session, Text, code};
use crate::servers::Store;
use dialoq::{Act, GroupId};
use uuid::Uuid;

/// INSERT into `stock`, returning the row; the end of the text is `values ...`.
fn insert_returning(store: Store, values: &str) -> String {
    match store {
        Store::Mssql => format!("insert into stock (sku, pieces) output inserted.sku, inserted.pieces {values}"),
        Store::Sqlite | Store::Postgres => format!("insert into stock (sku, pieces) {values} returning sku, pieces"),
    }
}

const STOCK: &str = "create table stock (sku varchar(20) primary key, pieces integer not null)";

async fn pieces(tx: &Session, sku: &str) -> dialoq::Result<i64> {
    let rows = tx.query(&format!("select sum(pieces) as pieces from stock where sku = '{sku}'")).await?;
    Ok(rows[0].int("pieces"))
}

case!(a_statement_gives_its_count_at_once, [275], async |t| {
    t.sql(STOCK).await?;
    let tx = t.begin().await?;
    assert_eq!(tx.sql("insert into stock values ('a', 1), ('b', 2), ('c', 3)").await?, 3);
    assert_eq!(tx.sql("update stock set pieces = pieces + 1 where pieces > 1").await?, 2);
    assert_eq!(tx.sql("delete from stock where sku = 'none'").await?, 0);
    assert_eq!(tx.sql("delete from stock where sku = 'a'").await?, 1);
    tx.commit().await?;
    let rows = t.query("select sum(pieces) as sum from stock").await?;
    assert_eq!(rows[0].int("sum"), 7);
});

case!(rows_that_a_statement_returns_are_those_committed, [275], async |t| {
    t.sql(STOCK).await?;
    let tx = t.begin().await?;
    tx.sql("insert into stock values ('a', 5)").await?;
    let written = tx.query(&insert_returning(t.store(), "values ('b', 7)")).await?;
    assert_eq!((written.len(), written[0].int("pieces")), (1, 7));
    assert_eq!((pieces(&tx, "a").await?, pieces(&tx, "b").await?), (5, 7));
    tx.sql("update stock set pieces = pieces - 2 where sku = 'b'").await?;
    assert_eq!(pieces(&tx, "b").await?, 5);
    assert_eq!(t.query("select * from stock").await?.len(), 0, "nothing is committed yet");
    tx.commit().await?;
    let rows = t.query("select sum(pieces) as sum from stock").await?;
    assert_eq!(rows[0].int("sum"), 10);
});

case!(a_statement_that_fails_is_undone_and_its_transaction_goes_on, [276], async |t| {
    t.sql(STOCK).await?;
    t.sql("insert into stock values ('taken', 1)").await?;
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "order").await?;
    let tx = t.begin().await?;
    let taken = tx.receive("QT").await?;
    tx.sql("insert into stock values ('before', 1)").await?;
    // The first row would fit.
    assert_eq!(code(tx.sql("insert into stock values ('new', 1), ('taken', 2)").await), 60022);
    let returning = insert_returning(t.store(), "values ('taken', 2)");
    assert_eq!(code(tx.query(&returning).await), 60022);
    assert_eq!(pieces(&tx, "before").await?, 1);
    assert_eq!(tx.query("select * from stock").await?.len(), 2);
    let expecting = tx.0.sql("update stock set pieces = 0", ()).expect_rows(1).await;
    assert_eq!(code(expecting), 60022, "it changes two rows");
    tx.sql("insert into stock values ('after', 1)").await?;
    tx.end_with_error(taken[0].conversation_handle, 9, "taken").await?;
    tx.commit().await?;
    let rows = t.query("select sum(pieces) as sum from stock").await?;
    assert_eq!(rows[0].int("sum"), 3);
    assert_eq!(t.receive("QI").await?.error_codes(), [9]);
});

case!(the_first_statement_of_a_transaction_may_fail, [276], async |t| {
    t.sql(STOCK).await?;
    t.sql("insert into stock values ('taken', 1)").await?;
    let dialog = t.dialog().await?;
    let tx = t.begin().await?;
    assert_eq!(code(tx.sql("insert into stock values ('taken', 2)").await), 60022);
    tx.send(dialog, "Text", "sent").await?;
    tx.commit().await?;
    assert_eq!(t.receive("QT").await?.len(), 1);
});

case!(a_rollback_to_a_savepoint_undoes_statements, [277], async |t| {
    t.sql(STOCK).await?;
    let tx = t.begin().await?;
    tx.sql("insert into stock values ('kept', 1)").await?;
    for _ in 0..3 {
        tx.savepoint("attempt").await?;
        tx.sql("update stock set pieces = 100").await?;
        tx.sql("insert into stock values ('undone', 1)").await?;
        assert_eq!(pieces(&tx, "kept").await?, 100);
        tx.rollback_to("attempt").await?;
        assert_eq!((pieces(&tx, "kept").await?, tx.query("select * from stock").await?.len()), (1, 1));
    }
    tx.sql("insert into stock values ('undone', 2)").await?;
    tx.commit().await?;
    let rows = t.query("select sum(pieces) as sum from stock").await?;
    assert_eq!(rows[0].int("sum"), 3);
});

case!(a_table_made_in_a_transaction_is_there_for_its_next_statement, [275], async |t| {
    for commits in [false, true] {
        let tx = t.begin().await?;
        tx.sql(STOCK).await?;
        assert_eq!(tx.sql("insert into stock values ('a', 4)").await?, 1);
        assert_eq!(pieces(&tx, "a").await?, 4);
        if commits {
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
    }
    assert_eq!(t.query("select * from stock").await?.len(), 1);
});

case!(a_deferred_foreign_key_is_checked_at_the_commit, [278], async |t| {
    // SQL Server has no deferred foreign keys: there the statement is refused.
    let deferred = if t.store() == Store::Mssql { "" } else { "deferrable initially deferred" };
    t.sql(STOCK).await?;
    t.sql(&format!("create table shelf (sku varchar(20) references stock (sku) {deferred})")).await?;
    for keeps_the_key in [false, true] {
        let tx = t.begin().await?;
        if t.store() == Store::Mssql {
            assert_eq!(code(tx.sql("insert into shelf values ('a')").await), 60022);
            tx.rollback().await?;
            continue;
        }
        assert_eq!(tx.sql("insert into shelf values ('a')").await?, 1);
        if keeps_the_key {
            tx.sql("insert into stock values ('a', 1)").await?;
            tx.commit().await?;
        } else {
            assert_eq!(code(tx.commit().await), 60022);
        }
        assert_eq!(t.query("select * from shelf").await?.len(), usize::from(keeps_the_key));
    }
});

case!(a_statement_holds_up_no_other_caller, [279], async |t| {
    t.sql(STOCK).await?;
    let dialog = t.dialog().await?;
    let tx = t.begin().await?;
    tx.sql("insert into stock values ('a', 1)").await?;
    // The transaction stays open, and everyone else goes on.
    t.sql("insert into stock values ('b', 2)").await?;
    t.send(dialog, "Text", "x").await?;
    let other = t.begin().await?;
    other.sql("insert into stock values ('c', 3)").await?;
    assert_eq!((pieces(&other, "b").await?, pieces(&other, "c").await?), (2, 3));
    other.commit().await?;
    assert_eq!(pieces(&tx, "a").await?, 1);
    tx.commit().await?;
    let rows = t.query("select sum(pieces) as sum from stock").await?;
    assert_eq!(rows[0].int("sum"), 6);
});

/// Counts the only row up as code does that keeps a state for each conversation: it reads, and writes one more.
async fn count_up(tx: Session) -> dialoq::Result<()> {
    let before = pieces(&tx, "a").await?;
    tx.sql(&format!("update stock set pieces = {} where sku = 'a'", before + 1)).await?;
    tx.commit().await
}

case!(what_is_read_under_the_lock_of_a_group_is_what_its_last_holder_left, [144, 149, 275], async |t| {
    t.sql(STOCK).await?;
    t.sql("insert into stock values ('a', 0)").await?;
    let dialog = t.dialog().await?;
    for _ in 0..80 {
        t.send(dialog, "Text", "x").await?;
    }
    let read = async |gets_the_group: bool| {
        for _ in 0..20 {
            let tx = t.begin().await?;
            if gets_the_group {
                assert!(tx.0.get_conversation_group("QT").wait_forever().await?.is_some());
            }
            assert!(tx.0.receive("QT").top(1).wait_forever().await?.is_some());
            count_up(tx).await?;
        }
        Ok::<_, dialoq::Error>(())
    };
    tokio::try_join!(read(false), read(true), read(false), read(true))?;
    assert_eq!(t.query("select pieces from stock").await?[0].int("pieces"), 80);
});

case!(what_is_read_after_a_send_is_what_the_last_holder_of_its_group_left, [98, 275], async |t| {
    t.sql(STOCK).await?;
    t.sql("insert into stock values ('a', 0)").await?;
    let dialog = t.dialog().await?;
    let send = async || {
        for _ in 0..20 {
            let tx = t.begin().await?;
            tx.send(dialog, "Text", "x").await?;
            count_up(tx).await?;
        }
        Ok::<_, dialoq::Error>(())
    };
    tokio::try_join!(send(), send(), send())?;
    assert_eq!(t.query("select pieces from stock").await?[0].int("pieces"), 60);
});

case!(what_is_read_in_a_group_that_is_made_again_is_what_its_last_holder_left, [144, 275], async |t| {
    t.sql(STOCK).await?;
    t.sql("insert into stock values ('a', 0)").await?;
    let group = GroupId(Uuid::from_u128(7));
    let step = async || {
        for _ in 0..20 {
            let tx = t.begin().await?;
            let dialog = tx.begin_dialog(t.to_target().in_group(group)).await?.handle;
            tx.end(dialog).await?;
            count_up(tx).await?;
            // Its group may get the place of the one that has gone.
            t.dialog().await?;
        }
        Ok::<_, dialoq::Error>(())
    };
    tokio::try_join!(step(), step(), step())?;
    assert_eq!(t.query("select pieces from stock").await?[0].int("pieces"), 60);
});

case!(two_transactions_that_count_down_the_same_row_both_count, [279], async |t| {
    t.sql(STOCK).await?;
    t.sql("insert into stock values ('a', 10)").await?;
    let (one, two) = (t.begin().await?, t.begin().await?);
    assert_eq!(one.sql("update stock set pieces = pieces - 1 where pieces > 0").await?, 1);
    // A server lets the second wait for the first.
    let second = async {
        assert_eq!(two.sql("update stock set pieces = pieces - 1 where pieces > 0").await?, 1);
        two.commit().await
    };
    let (first, second) = tokio::join!(one.commit(), second);
    first.and(second)?;
    assert_eq!(t.query("select pieces from stock").await?[0].int("pieces"), 8);
});

case!(of_two_transactions_that_insert_one_key_the_second_is_refused, [280], async |t| {
    // DIFFERENCE(conflict-at-commit): a server lets the second wait at its statement; the embedded store refuses its commit.
    t.sql(STOCK).await?;
    let dialog = t.dialog().await?;
    t.send(dialog, "Text", "order").await?;
    let (one, two) = (t.begin().await?, t.begin().await?);
    assert_eq!(one.sql("insert into stock values ('a', 1)").await?, 1);
    assert_eq!(two.receive("QT").await?.len(), 1);
    let insert = two.sql("insert into stock values ('a', 2)");
    let second = if t.store().is_server() {
        let (first, second) = tokio::join!(one.commit(), insert);
        first?;
        two.commit().await?;
        second.map(drop)
    } else {
        assert_eq!(insert.await?, 1);
        one.commit().await?;
        two.commit().await
    };
    let expected = if t.store().is_server() { 60022 } else { 1205 };
    assert_eq!(code(second), expected);
    assert_eq!(t.query("select pieces from stock").await?[0].int("pieces"), 1);
    // The transaction that was refused has received nothing; the one that handled its error has.
    assert_eq!(t.receive("QT").await?.len(), usize::from(!t.store().is_server()));
});

case!(a_statement_that_holds_a_nul_is_refused_whole, [276], async |t| {
    t.sql(STOCK).await?;
    t.sql("insert into stock values ('a', 1), ('b', 2)").await?;
    let delete = "delete from stock where pieces > 0\0 and sku = 'a'";
    assert_eq!(code(t.sql(delete).await), 60022);
    assert_eq!(code(t.query("select * from stock\0 where sku = 'a'").await), 60022);
    let tx = t.begin().await?;
    assert_eq!(code(tx.sql(delete).await), 60022);
    assert_eq!(code(tx.query("select * from stock\0 where sku = 'a'").await), 60022);
    assert_eq!(tx.sql("insert into stock values ('c', 3)").await?, 1);
    assert_eq!(code(tx.sql(delete).await), 60022);
    // As a parameter it is a value; PostgreSQL has no texts with one.
    let text = t.store().sql("insert into stock values (?1, 4)");
    let stored = tx.0.sql(text, ("d\0d",)).await;
    assert!(stored.is_ok() || t.store().is_server() && code(stored) == 60022);
    tx.commit().await?;
    assert_eq!(t.query("select * from stock where pieces < 4").await?.len(), 3);
});

case!(the_number_of_a_parameter_is_the_place_of_its_value, [275], async |t| {
    t.sql(STOCK).await?;
    let texts = |text: &str| match t.store() {
        Store::Mssql => vec![text.replace('$', "@P")],
        Store::Postgres => vec![text.to_owned()],
        Store::Sqlite => vec![text.to_owned(), text.replace('$', "@P"), text.replace('$', "?")],
    };
    for (number, insert) in texts("insert into stock (sku, pieces) values ($2, $1)").into_iter().enumerate() {
        let (sku, before, after) = (format!("sku {number}"), number as i64, number as i64 + 100);
        assert_eq!(t.broker.sql(insert, (before, sku.as_str())).await?, 1);
        let update = texts("update stock set pieces = $2 where pieces = $1 and sku = $3").swap_remove(number);
        let tx = t.begin().await?;
        assert_eq!(tx.0.sql(update, (before, after, sku.as_str())).await?, 1);
        let find = texts("select sku from stock where pieces = $2 and sku = $1").swap_remove(number);
        assert_eq!(tx.0.query(find.clone(), (sku.as_str(), after)).await?.rows.len(), 1);
        tx.commit().await?;
        assert_eq!(t.broker.query(find, (sku.as_str(), after)).await?.rows.len(), 1);
    }
    let wrong = t.broker.sql("update stock set pieces = :pieces", (1,)).await;
    assert_eq!(code(wrong), 60022, "a name has no place");
});
