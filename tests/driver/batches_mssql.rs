//! Batches of RECEIVEs on SQL Server, as the broker makes them.

use crate::enlisting_mssql::{dialog, on};
use crate::servers::Store;
use dialoq::Act;
use dialoq::mssql::{Client, Enlisted};

/// The levels and the texts that so many RECEIVEs of one message each give, begun at such a level and number.
async fn taken(client: &mut Client, receives: usize, from: &str) -> Vec<(i32, String)> {
    let items: Vec<String> = (0..receives).map(|item| format!("({item}, 1)")).collect();
    let batch = format!(
        "DECLARE @items dialoq.receive_batch_rows; INSERT @items (item, [top]) VALUES {};
        EXEC dialoq.receive_batch N'server', @items, {from};",
        items.join(", ")
    );
    let rows = client.simple_query(batch).await.unwrap().into_first_result().await.unwrap();
    let text = |row: &dialoq::mssql::tiberius::Row| {
        String::from_utf8(row.get::<&[u8], _>("message_body").expect("a body").to_vec()).unwrap()
    };
    rows.iter().map(|row| (row.get("priority").expect("a level"), text(row))).collect()
}

fn of_level_five(texts: &[&str]) -> Vec<(i32, String)> {
    texts.iter().map(|text| (5, (*text).to_owned())).collect()
}

/// A batch that begins where the last one began gives older messages only if no others are left, and messages of a higher
/// level at once. DIFFERENCE(oldest-in-batches)
pub(crate) fn a_batch_begins_where_the_last_one_began(store: Store) {
    on(store, |broker, mut client| async move {
        let mut handles = Vec::new();
        for text in ["a", "b", "c", "d"] {
            let handle = dialog(&broker).await;
            broker.send(handle, "//t/Word", text).await.unwrap();
            handles.push(handle);
        }
        let orders = "SELECT queuing_order FROM dialoq.queue_message ORDER BY queuing_order";
        let orders = client.simple_query(orders).await.unwrap().into_first_result().await.unwrap();
        let third = format!("5, {}", orders[2].get::<i64, _>(0).unwrap());
        assert_eq!(taken(&mut client, 2, &third).await, of_level_five(&["c", "d"]));
        assert_eq!(taken(&mut client, 2, &third).await, of_level_five(&["a", "b"]), "nothing else was left");
        for handle in &handles {
            broker.send(*handle, "//t/Word", "e").await.unwrap();
        }
        let higher = format!(
            "DECLARE @handle uniqueidentifier = (
                SELECT t.conversation_handle FROM dialoq.conversation_endpoint AS i
                JOIN dialoq.conversation_endpoint AS t ON t.conversation_id = i.conversation_id AND t.is_initiator = 0
                WHERE i.conversation_handle = '{}');
            EXEC dialoq.reprioritise @handle, 7;",
            handles[0].0
        );
        client.simple_query(higher).await.unwrap().into_results().await.unwrap();
        assert_eq!(taken(&mut client, 1, "5, 1000000").await, [(7, "e".to_owned())]);
        assert_eq!(taken(&mut client, 2, "NULL, NULL").await, of_level_five(&["e", "e"]));
        assert_eq!(taken(&mut client, 2, "5, 1000000").await, of_level_five(&["e"]));
        assert_eq!(taken(&mut client, 2, "5, 1000000").await, []);
    });
}

/// A row that leads to an empty group is removed, and a later message of the group is received.
pub(crate) fn a_row_that_leads_to_nothing_is_removed(store: Store) {
    on(store, |broker, mut client| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "a").await.unwrap();
        assert!(broker.receive("server").await.unwrap().is_some());
        let leftover = "INSERT dialoq.ready_group (queue_id, rank_from_top, oldest, conversation_group_id)
            SELECT s.queue_id, 5, 1, t.conversation_group_id FROM dialoq.conversation_endpoint AS t
            JOIN dialoq.service AS s ON s.service_id = t.service_id WHERE t.is_initiator = 0;
            BEGIN TRANSACTION";
        client.simple_query(leftover).await.unwrap().into_results().await.unwrap();
        assert!(Enlisted::new(&broker, &mut client).receive("server").await.unwrap().is_none());
        let left = "SELECT COUNT(*) FROM dialoq.ready_group";
        let left = client.simple_query(left).await.unwrap().into_row().await.unwrap().unwrap();
        assert_eq!(left.get::<i32, _>(0), Some(0), "the leftover is gone");
        // A sender that cannot rely on the leftover row adds a row of its own.
        broker.send(handle, "//t/Word", "b").await.unwrap();
        client.simple_query("COMMIT").await.unwrap().into_results().await.unwrap();
        let batch = broker.receive("server").await.unwrap().expect("what was sent meanwhile");
        assert_eq!(batch.first().text().unwrap(), "b");
    });
}

/// A transaction that holds a group, and keeps the claim row of its oldest message, gets one more row, however many messages arrive:
/// a poll reads a thousand rows.
pub(crate) fn sends_into_a_held_group_add_one_row(store: Store) {
    on(store, |broker, mut client| async move {
        let handle = dialog(&broker).await;
        broker.send(handle, "//t/Word", "a").await.unwrap();
        let hold = "DECLARE @handle uniqueidentifier = (
                SELECT conversation_handle FROM dialoq.conversation_endpoint WHERE is_initiator = 0);
            BEGIN TRANSACTION; EXEC dialoq.reprioritise @handle, 5;";
        client.simple_query(hold).await.unwrap().into_results().await.unwrap();
        for text in ["b", "c", "d"] {
            broker.send(handle, "//t/Word", text).await.unwrap();
        }
        let rows = "SELECT COUNT(*) FROM dialoq.ready_group";
        let count = client.simple_query(rows).await.unwrap().into_row().await.unwrap().unwrap();
        assert_eq!(count.get::<i32, _>(0), Some(2));
        client.simple_query("COMMIT").await.unwrap().into_results().await.unwrap();
        for text in ["a", "b", "c", "d"] {
            let batch = broker.receive("server").top(1).await.unwrap().expect("it was sent");
            assert_eq!(batch.first().text().unwrap(), text);
        }
        let count = client.simple_query(rows).await.unwrap().into_row().await.unwrap().unwrap();
        assert_eq!(count.get::<i32, _>(0), Some(0));
    });
}

/// An open SEND locks the claim row of a group whose conversation has moved away. The claim row of the other group has the same
/// level and age. RECEIVE must find it.
pub(crate) fn a_row_that_a_sender_keeps_hides_no_other_group(store: Store) {
    on(store, |broker, mut client| async move {
        let (moved, other) = (dialog(&broker).await, dialog(&broker).await);
        broker.send(moved, "//t/Word", "a").await.unwrap();
        broker.send(other, "//t/Word", "b").await.unwrap();
        let targets = "SELECT CAST(conversation_handle AS nvarchar(36)), CAST(conversation_group_id AS nvarchar(36))
            FROM dialoq.conversation_endpoint WHERE is_initiator = 0 ORDER BY endpoint_id";
        let targets = client.simple_query(targets).await.unwrap().into_first_result().await.unwrap();
        let text = |place: usize, column: usize| targets[place].get::<&str, _>(column).unwrap();
        let command = format!("EXEC dialoq.move_conversation '{}', '{}'", text(0, 0), text(1, 1));
        let sender = broker.begin().await.unwrap();
        sender.send(moved, "//t/Word", "late").await.unwrap();
        client.simple_query(command).await.unwrap().into_results().await.unwrap();
        let mut taken = taken(&mut client, 2, "NULL, NULL").await;
        taken.sort();
        assert_eq!(taken, of_level_five(&["a", "b"]));
        sender.rollback().await.unwrap();
    });
}
