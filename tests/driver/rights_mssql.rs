//! The rights of dialoq_user and dialoq_admin, and the installation that an administrator runs by hand.
//!
//! The server itself is asked for rights (HAS_PERMS_BY_NAME), because procedures of a relative run with their caller's rights
//! and so fail for a member of dialoq_user alone.

use crate::enlisting_mssql::connect;
use crate::hostile_mssql::{number, run};
use crate::servers::called_by::called_by;
use crate::servers::{Database, Store, limit};
use dialoq::install::{install, plan, plan_script};
use dialoq::mssql::Client;
use dialoq::{Act, Broker, Code};
use std::collections::BTreeSet;
use std::future::Future;

fn on<F: Future<Output = ()>>(test: F) {
    limit::allow(5);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(test);
}

pub(crate) async fn is_relative(client: &mut Client) -> bool {
    numbers(client, "SELECT COALESCE(CAST(SERVERPROPERTY('Babelfish') AS int), 0)").await == [1]
}

async fn numbers(client: &mut Client, text: &str) -> Vec<i32> {
    let rows = client.simple_query(text).await.unwrap().into_first_result().await.unwrap();
    rows.iter().map(|row| row.get(0).unwrap()).collect()
}

/// Objects of schema dialoq of a type.
fn names(database: &Database, of: &str) -> BTreeSet<String> {
    let text = format!("SELECT name FROM sys.objects WHERE schema_id = SCHEMA_ID(N'dialoq') AND type = '{of}'");
    database.sql(&text).lines().map(str::to_owned).collect()
}

/// Those of them on which the user of that URL has the right.
fn allowed(database: &Database, url: &str, right: &str, names: &BTreeSet<String>) -> BTreeSet<String> {
    let values: Vec<String> = names.iter().map(|name| format!("(N'{name}')")).collect();
    let text = format!(
        "SELECT v.name FROM (VALUES {}) AS v (name)
         WHERE HAS_PERMS_BY_NAME(CONCAT(N'dialoq.', v.name), N'OBJECT', N'{right}') = 1",
        values.join(", ")
    );
    database.try_sql_as(url, &text).unwrap().lines().map(str::to_owned).collect()
}

pub(crate) fn members_execute_documented_routines_and_touch_no_table(_: Store) {
    on(async {
        let database = Database::bare(Store::Mssql);
        install(database.url()).await.unwrap();
        let (user, admin, stranger) =
            (database.login("dialoq_user"), database.login("dialoq_admin"), database.login(""));
        let of_users = called_by("mssql", "dialoq_user");
        let of_admins = &of_users | &called_by("mssql", "dialoq_admin");
        assert!(of_users.len() > 25 && of_admins.len() > 50, "{of_users:?} {of_admins:?}");
        let procedures = names(&database, "P");
        assert_eq!(allowed(&database, &user, "EXECUTE", &procedures), of_users);
        assert_eq!(allowed(&database, &admin, "EXECUTE", &procedures), of_admins);
        assert_eq!(allowed(&database, &stranger, "EXECUTE", &procedures), BTreeSet::new());
        // Plain T-SQL makes the body of a job with it.
        let functions = names(&database, "FN");
        let for_bodies = BTreeSet::from(["utf8".to_owned()]);
        assert_eq!(allowed(&database, &user, "EXECUTE", &functions), for_bodies);
        assert_eq!(allowed(&database, &admin, "EXECUTE", &functions), for_bodies);
        assert_eq!(allowed(&database, &stranger, "EXECUTE", &functions), BTreeSet::new());
        let (tables, views) = (names(&database, "U"), names(&database, "V"));
        assert!(tables.len() > 15 && views.len() > 20, "{tables:?} {views:?}");
        for (who, url) in [("user", &user), ("admin", &admin), ("stranger", &stranger)] {
            for right in ["SELECT", "INSERT", "UPDATE", "DELETE"] {
                let readable = who != "stranger" && right == "SELECT";
                let mut expected = BTreeSet::from_iter(readable.then(|| "installed".to_owned()));
                if who == "admin" && readable {
                    expected.insert("tick_failure".to_owned());
                }
                assert_eq!(allowed(&database, url, right, &tables), expected, "{right} of tables by {who}");
                let seen = allowed(&database, url, right, &views);
                let expected = if readable { views.clone() } else { BTreeSet::new() };
                assert_eq!(seen, expected, "{right} of views by {who}");
            }
        }
        for text in [
            "EXEC dialoq.set_manual_now NULL",
            "EXEC dialoq.erase 1, NULL",
            "EXEC dialoq.record_installation 1, N'', N'', 1",
        ] {
            for url in [&user, &admin] {
                let why = database.try_sql_as(url, text).unwrap_err();
                assert!(why.contains("permission"), "{text}: {why}");
            }
        }
        // Verbs fail there for other reasons.
        let mut client = connect(database.url()).await;
        if !is_relative(&mut client).await {
            let broker = Broker::open(&user).await.unwrap();
            let refused = broker.execute("CREATE QUEUE q").await.unwrap_err();
            assert_eq!(refused.code(), Code::ACCESS_DENIED, "{refused}");
            let defines = Broker::open(&admin).await.unwrap();
            defines.execute("CREATE QUEUE q; CREATE SERVICE s ON QUEUE q ([DEFAULT])").await.unwrap();
            let handle = broker.begin_dialog("s", "s").await.unwrap();
            broker.send(handle, "DEFAULT", "a").await.unwrap();
            broker.send_many(&[handle], "DEFAULT", "b").await.unwrap();
            assert_eq!(broker.receive("q").await.unwrap().expect("they were sent").len(), 2);
            let mut stranger = connect(&stranger).await;
            let lock = "DECLARE @got int; EXEC @got = sp_getapplock @Resource = N'dialoq:1:tick', @LockMode = N'Exclusive',
                @LockOwner = N'Session', @LockTimeout = 0, @DbPrincipal = N'dialoq_user'; IF @got < 0 THROW 50001, N'refused', 1";
            assert_ne!(number(&mut stranger, lock).await, 0, "the lock is the members' alone");
        }
    });
}

/// The batches of a text, as sqlcmd cuts it.
fn batches(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for line in text.lines() {
        if line.trim() == "GO" {
            found.push(String::new());
        } else {
            let batch = found.last_mut().unwrap();
            batch.push_str(line);
            batch.push('\n');
        }
    }
    found.retain(|batch| !batch.trim().is_empty());
    found
}

/// Runs them one after the other in a session as sqlcmd opens it; gives the numbers of errors.
async fn run_by_hand(url: &str, batches: &[String]) -> Vec<u32> {
    let mut client = connect(url).await;
    run(&mut client, "SET QUOTED_IDENTIFIER OFF").await;
    let mut errors = Vec::new();
    for batch in batches {
        errors.extend(Some(number(&mut client, batch).await).filter(|number| *number != 0));
    }
    errors
}

pub(crate) fn the_printed_installation_runs_by_hand(_: Store) {
    on(async {
        let database = Database::bare(Store::Mssql);
        let url = database.url();
        let text = plan_script(url).await.unwrap();
        let whole = batches(&text);
        let mut client = connect(url).await;
        let is_relative = is_relative(&mut client).await;
        // A relative runs what comes after SET NOEXEC ON.
        if !is_relative {
            let mut broken = whole.clone();
            broken.insert(broken.len() / 2, "SELECT 1 / 0".to_owned());
            assert_ne!(run_by_hand(url, &broken).await, Vec::<u32>::new());
            let there = "SELECT CAST(COUNT(*) AS int) FROM sys.schemas WHERE name = N'dialoq'";
            assert_eq!(numbers(&mut client, there).await, [0], "one batch fails, and nothing is installed");
        }
        assert_eq!(run_by_hand(url, &whole).await, Vec::<u32>::new());
        assert_eq!(plan(url).await.unwrap(), [], "nothing is left to do");
        assert_eq!(plan_script(url).await.unwrap(), "");
        let broker = Broker::open(url).await.unwrap();
        broker.execute("CREATE QUEUE q; CREATE SERVICE s ON QUEUE q ([DEFAULT])").await.unwrap();
        let handle = broker.begin_dialog("s", "s").await.unwrap();
        broker.send(handle, "DEFAULT", "a").await.unwrap();

        // An upgrade by hand: the same broker, and rights that an administrator gave on a single verb.
        let user = database.login("");
        let name = user.split("://").nth(1).unwrap().split(':').next().unwrap();
        run(&mut client, &format!("GRANT EXECUTE ON dialoq.tick TO {name}")).await;
        run(&mut client, "UPDATE dialoq.installed SET logic_hash = N'another', installed_by = N'dialoq 0.0.1'").await;
        let upgrade = plan_script(url).await.unwrap();
        assert!(!upgrade.contains("CREATE TABLE dialoq.broker"), "the tables stay");
        assert_eq!(run_by_hand(url, &batches(&upgrade)).await, Vec::<u32>::new());
        assert_eq!(plan(url).await.unwrap(), []);
        assert_eq!(broker.receive("q").await.unwrap().expect("it was sent").len(), 1);
        // A relative has no view of rights.
        if !is_relative {
            let kept = allowed(&database, &user, "EXECUTE", &names(&database, "P"));
            assert_eq!(kept, BTreeSet::from(["tick".to_owned()]));
        }
    });
}

/// Other sessions wait behind an installer that waits for a table, so it waits for each lock two seconds only.
pub(crate) fn an_upgrade_gives_up_while_a_transaction_stays_open(_: Store) {
    on(async {
        let database = Database::bare(Store::Mssql);
        let url = database.url();
        install(url).await.unwrap();
        let mut open = connect(url).await;
        // As version 2 left it. The views go first: a relative drops no column that a view reads.
        let views = "DECLARE @views nvarchar(max) = (SELECT STRING_AGG(CAST(CONCAT(N'dialoq.', v.name) AS nvarchar(max)), N', ')
                FROM sys.views AS v WHERE v.schema_id = SCHEMA_ID(N'dialoq'));
            EXEC(N'DROP VIEW ' + @views)";
        run(&mut open, views).await;
        let of_queues = "retry_max_attempts retry_delay_ms retry_factor_percent retry_max_delay_ms retry_jitter_percent \
            retry_then off_since off_by off_reason receives_held_until";
        for column in of_queues.split(' ') {
            run(&mut open, &format!("ALTER TABLE dialoq.service_queue DROP COLUMN {column}")).await;
        }
        for text in [
            "ALTER TABLE dialoq.conversation_endpoint DROP COLUMN retry_at",
            "ALTER TABLE dialoq.queue_rollback DROP COLUMN lost_group",
            "ALTER TABLE dialoq.queue_rollback DROP COLUMN counted_in",
            "ALTER TABLE dialoq.receive_attempt DROP COLUMN endpoint_id",
            "ALTER TABLE dialoq.receive_attempt DROP COLUMN first_order",
            "DROP TABLE dialoq.dead_letter",
            "DROP PROCEDURE dialoq.finish_held_jobs, dialoq.return_jobs",
            "DROP TYPE dialoq.job_rows; DROP TYPE dialoq.job_id_rows",
            "DROP TABLE dialoq.job, dialoq.job_history, dialoq.job_history_cut, dialoq.unique_job, dialoq.work_rate,
                dialoq.work_queue, dialoq.work_schedule, dialoq.dropped_work_queue",
            "DROP SEQUENCE dialoq.next_job_id; DROP SEQUENCE dialoq.next_job_token",
            "EXEC sp_rename N'dialoq.recheck_queue', N'unsettled', N'OBJECT'",
            "EXEC sp_rename N'dialoq.unsettled.recheck_id', N'unsettled_id', N'COLUMN'",
            "EXEC sp_rename N'dialoq.unsettled.recheck_at', N'look_at', N'COLUMN'",
            "EXEC sp_rename N'dialoq.ready_group.rank_from_top', N'below_top', N'COLUMN'",
            "EXEC sp_rename N'dialoq.queue_message.delivery_class', N'stored', N'COLUMN'",
            "EXEC sp_rename N'dialoq.retained_message.delivery_class', N'stored', N'COLUMN'",
            "UPDATE dialoq.installed SET schema_version = 2, logic_hash = N'earlier', installed_by = N'dialoq 0.0.1'",
        ] {
            run(&mut open, text).await;
        }
        run(&mut open, "BEGIN TRANSACTION; DELETE dialoq.queue_message WHERE endpoint_id = -1").await;
        let refused = install(url).await.expect_err("the transaction uses a table that is to be changed");
        assert_eq!(refused.code(), Code::STORE_OWNED, "{refused}");
        run(&mut open, "ROLLBACK TRANSACTION").await;
        install(url).await.unwrap();
        let scripts = i32::try_from(std::fs::read_dir("sql/mssql/schema").unwrap().count()).unwrap();
        assert_eq!(numbers(&mut open, "SELECT schema_version FROM dialoq.installed").await, [scripts]);
    });
}
