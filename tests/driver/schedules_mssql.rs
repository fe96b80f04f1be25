//! Work schedules on SQL Server, one step at a time.

use crate::enlisting_mssql::connect;
use crate::hostile_mssql::{number, run};
use crate::schedules::in_database;
use crate::servers::{Database, Store};
use dialoq::mssql::Client;
use dialoq::mssql::tiberius::Row;
use dialoq::{Broker, Clock, OpenOptions, Timestamp};

/// The first time of the schedule, half an hour before the present.
const DUE: &str = "2026-01-01T01:00:00";

async fn one(client: &mut Client, text: &str) -> Row {
    let answer = client.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error}"));
    answer.into_row().await.unwrap_or_else(|error| panic!("{text}: {error}")).expect(text)
}

/// A schedule that is due in a database that no broker has open: its id and its version.
async fn due(database: &Database, options: &str) -> (Client, i32, i64) {
    let clock = Clock::manual(Timestamp(1_767_225_600_000_000));
    let broker = Broker::open_with(database.url(), OpenOptions::default().clock(clock)).await.unwrap();
    let schedule = format!("CREATE WORK SCHEDULE s ON WORK QUEUE w WITH CRON = '0 * * * *', {options}");
    broker.execute(&format!("CREATE WORK QUEUE w; {schedule}")).await.unwrap();
    broker.close().await.unwrap();
    let mut client = connect(database.url()).await;
    run(&mut client, "EXEC dialoq.set_manual_now '2026-01-01T01:30:00'").await;
    let row = one(&mut client, "EXEC dialoq.due_schedules").await;
    let (id, version) = (row.get("schedule_id").unwrap(), row.get("version").unwrap());
    (client, id, version)
}

async fn fire(client: &mut Client, id: i32, version: i64, due: &str) -> bool {
    let text = format!(
        "DECLARE @next datetime2(6) = DATEADD(hour, 1, '{due}');
         EXEC dialoq.fire_schedule {id}, {version}, '{due}', @next, '{due}', 0x62"
    );
    one(client, &text).await.get("is_fired").unwrap()
}

async fn jobs(client: &mut Client) -> i32 {
    one(client, "SELECT COUNT(*) FROM dialoq.read_jobs").await.get(0).unwrap()
}

/// A process that has read a schedule before it fired or was altered fires nothing.
pub(crate) fn a_step_is_taken_from_the_row_as_it_was_read(store: Store) {
    in_database(store, |database| async move {
        let (mut client, id, version) = due(&database, "BODY = 'b'").await;
        let fired = [
            fire(&mut client, id, version + 1, DUE).await,
            fire(&mut client, id, version, "2026-01-01T00:00:00").await,
            fire(&mut client, id, version, DUE).await,
            fire(&mut client, id, version, DUE).await,
            fire(&mut client, id, version, "2026-01-01T02:00:00").await,
        ];
        assert_eq!(fired, [false, false, true, false, false]);
        assert_eq!(jobs(&mut client).await, 1);
    });
}

/// Two processes try at the same moment, and the first rolls back.
pub(crate) fn a_step_that_another_session_takes_is_not_waited_for(store: Store) {
    in_database(store, |database| async move {
        let (mut first, id, version) = due(&database, "BODY = 'b'").await;
        let mut second = connect(database.url()).await;
        run(&mut first, "BEGIN TRANSACTION").await;
        assert!(fire(&mut first, id, version, DUE).await);
        assert!(!fire(&mut second, id, version, DUE).await, "the first may still roll back");
        run(&mut first, "ROLLBACK").await;
        assert!(fire(&mut second, id, version, DUE).await);
        assert_eq!(jobs(&mut first).await, 1);
    });
}

/// Every member of dialoq_user may take the step, and only as the schedule says.
pub(crate) fn a_step_pushes_the_body_of_its_schedule(store: Store) {
    in_database(store, |database| async move {
        let (mut client, id, version) = due(&database, "BODY = '{time} \u{e9}\u{20ac}\u{1d11e} '").await;
        let right = format!("0x{}", hex("2026-01-01T01:00:00Z \u{e9}\u{20ac}\u{1d11e} "));
        let fire = |next: &str, time: &str, body: &str| {
            format!("EXEC dialoq.fire_schedule {id}, {version}, '{DUE}', {next}, {time}, {body}")
        };
        let (next, time) = ("'2026-01-01T02:00:00'", format!("'{DUE}'"));
        let forged = [
            fire(next, &time, "0x62"),
            fire(next, &time, "NULL"),
            fire(next, &time, &format!("{right}00")),
            fire("NULL", &time, &right),
            fire(next, "NULL", &right),
        ];
        for forged in forged {
            assert_eq!(number(&mut client, &forged).await, 60_005, "{forged}");
        }
        assert_eq!(jobs(&mut client).await, 0);
        assert_eq!(number(&mut client, &fire(next, &time, &right)).await, 0);
        assert_eq!(jobs(&mut client).await, 1);
    });
}

fn hex(text: &str) -> String {
    text.bytes().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn a_queue_of_a_schedule_is_not_removed(store: Store) {
    in_database(store, |database| async move {
        let (mut client, id, _) = due(&database, "BODY = 'b'").await;
        let remove = "BEGIN TRANSACTION; DECLARE @id int; SELECT @id = queue_id FROM dialoq.read_work_queues;
            EXEC dialoq.delete_work_queue @id; COMMIT";
        assert_eq!(number(&mut client, remove).await, 53_716);
        run(&mut client, "IF @@TRANCOUNT > 0 ROLLBACK").await;
        run(&mut client, &format!("BEGIN TRANSACTION; EXEC dialoq.delete_work_schedule {id}; COMMIT")).await;
        assert_eq!(number(&mut client, remove).await, 0);
    });
}
