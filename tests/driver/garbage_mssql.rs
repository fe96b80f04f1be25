//! Garbage for every argument of every procedure that dialoq_user may execute, read from the texts that are installed: a new
//! procedure is covered the day it is written. No relative of SQL Server has the catalog's views of parameters and rights.
//!
//! After each call the error has a documented code; after each procedure every other conversation goes on.

use crate::enlisting_mssql::{dialog, on};
use crate::hostile_mssql::{number, run};
use crate::servers::called_by::called_by;
use crate::servers::{Store, limit};
use dialoq::mssql::Client;
use dialoq::work::AfterFailure;
use dialoq::{Act, Broker, Code, ConversationHandle};
use dialoq_test_support::seeds;
use std::path::Path;
use std::time::Duration;

/// A procedure, and the names and types of its arguments.
pub(crate) struct Routine {
    pub(crate) name: String,
    pub(crate) parameters: Vec<(String, String)>,
}

/// The procedures that dialoq_user may execute.
pub(crate) fn routines() -> Vec<Routine> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sql/mssql");
    let granted = called_by("mssql", "dialoq_user");
    let mut found = Vec::new();
    for file in std::fs::read_dir(folder.join("verbs")).unwrap() {
        let text = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for made in text.split("CREATE PROCEDURE dialoq.").skip(1) {
            let (name, rest) = made.split_once('\n').unwrap();
            let list = rest.split_once("AS\nBEGIN").unwrap().0;
            if granted.contains(name) {
                let parameters = list.split(" @").flat_map(|part| part.split("\n@")).filter_map(parameter).collect();
                found.push(Routine { name: name.to_owned(), parameters });
            }
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(found.len() > 25, "the procedures were not understood");
    found
}

/// `conversation_handle uniqueidentifier = NULL,`, as name and type.
fn parameter(text: &str) -> Option<(String, String)> {
    let mut words = text.split_whitespace();
    let (name, of) = (words.next()?, words.next()?);
    Some((name.trim_start_matches('@').to_owned(), of.trim_end_matches(',').to_owned()))
}

/// Literals of a type, some of which name what exists.
fn values(of: &str, ids: &[String]) -> Vec<String> {
    let quoted = |values: &[&str]| values.iter().map(|value| format!("N'{value}'")).collect();
    match of.split('(').next().unwrap() {
        "bit" => ["0", "1"].map(str::to_owned).to_vec(),
        "int" => {
            ["0", "-1", "1", "10", "11", "32768", "65536", "2147483647", "-2147483648"].map(str::to_owned).to_vec()
        }
        "bigint" => {
            ["0", "-1", "1", "3", "10", "65536", "9223372036854775807", "-9223372036854775808", "1000000000001"]
                .map(str::to_owned)
                .to_vec()
        }
        "uniqueidentifier" => {
            let fixed = ["00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff"];
            fixed.iter().map(|id| format!("'{id}'")).chain(ids.iter().cloned()).collect()
        }
        "varbinary" => ["0x", "0x00", "0xff", "0xfffe3c00", "0x3c612f3e", "0x7b7d"].map(str::to_owned).to_vec(),
        "datetime2" => ["'0001-01-01'", "'9999-12-31 23:59:59.999999'", "'2026-01-01'"].map(str::to_owned).to_vec(),
        "nvarchar" => {
            let mut texts: Vec<String> = quoted(&[
                "",
                "garbage",
                "asker",
                "SERVER",
                "jobs",
                "LIMITED",
                "//t/Asker",
                "//t/Server",
                "//t/Talk",
                "//t/Word",
                "//t/Word ",
                "DEFAULT",
                "CURRENT DATABASE",
                "-8430|x",
                "-9615|",
                "-8470|forged",
                "|",
                "it''s 100%d %s [x] ;--",
                "q:1 c d:0",
                "\u{e4}\u{1d11e}",
            ]);
            texts.push(format!("N'{}'", "x".repeat(300)));
            texts
        }
        other => panic!("there is no garbage of type {other}; add some here"),
    }
}

/// The columns of the table types, as the scripts of sql/mssql/schema make them.
fn columns(of: &str) -> &'static [&'static str] {
    match of {
        "dialoq.send_many_rows" => &["uniqueidentifier"],
        "dialoq.send_batch_rows" => &[
            "uniqueidentifier",
            "nvarchar(4000)",
            "varbinary(max)",
            "nvarchar(max)",
            "nvarchar(max)",
            "uniqueidentifier",
        ],
        "dialoq.receive_batch_rows" | "dialoq.job_id_rows" => &["bigint"],
        "dialoq.job_rows" => &["bigint", "bigint"],
        other => panic!("there are no columns for {other}; add them here"),
    }
}

/// Numbers of chance that a seed repeats.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % end as u64).unwrap()
    }

    fn value(&mut self, of: &str, ids: &[String]) -> String {
        let found = values(of, ids);
        match self.below(6) {
            0 => "NULL".to_owned(),
            _ => found[self.below(found.len())].clone(),
        }
    }
}

/// A batch that calls a procedure with that value of one argument; the others are of chance.
fn call(routine: &Routine, special: Option<(usize, &str)>, ids: &[String], chance: &mut Chance) -> String {
    let (mut declared, mut arguments) = (String::new(), Vec::new());
    for (place, (_, of)) in routine.parameters.iter().enumerate() {
        if let Some((_, value)) = special.filter(|(at, _)| *at == place) {
            arguments.push(value.to_owned());
        } else if of.starts_with("dialoq.") {
            declared.push_str(&format!("DECLARE @rows{place} {of}; "));
            let first = [-1, 0, 0, 0, 7][chance.below(5)];
            for item in first..first + i32::try_from(chance.below(4)).unwrap() {
                let cells: Vec<String> = columns(of).iter().map(|of| chance.value(of, ids)).collect();
                declared.push_str(&format!("INSERT @rows{place} VALUES ({item}, {}); ", cells.join(", ")));
            }
            arguments.push(format!("@rows{place}"));
        } else {
            arguments.push(chance.value(of, ids));
        }
    }
    format!("{declared}EXEC dialoq.{} {};", routine.name, arguments.join(", "))
}

fn is_documented(number: u32) -> bool {
    let code = if (50_000..60_000).contains(&number) { number - 50_000 } else { number };
    Code::ALL.iter().any(|known| u32::from(known.0.0) == code)
}

/// A conversation and a work queue that have nothing to do with the calls: a message, a tick and a job go their way.
async fn goes_on(broker: &Broker, client: &mut Client, witness: ConversationHandle) -> Result<(), String> {
    broker.send(witness, "//t/Word", "still here").await.map_err(|error| format!("SEND: {error}"))?;
    let batch = broker.receive("witness").await.map_err(|error| format!("RECEIVE: {error}"))?;
    batch.ok_or("the message did not arrive")?;
    match number(client, "EXEC dialoq.tick").await {
        0 => {}
        refused => return Err(format!("tick: {refused}")),
    }
    broker.push_job("witnesses", "a").await.map_err(|error| format!("a push: {error}"))?;
    let jobs = broker.take_jobs("witnesses").await.map_err(|error| format!("a take: {error}"))?;
    let job = jobs.first().ok_or("no job was taken")?;
    broker.complete_job(job).await.map_err(|error| format!("a completion: {error}"))
}

pub(crate) fn no_argument_stops_another_conversation(store: Store) {
    limit::allow(8);
    on(store, |broker, mut client| async move {
        let more = "CREATE QUEUE witness; CREATE SERVICE [//t/Witness] ON QUEUE witness ([//t/Talk]);
            CREATE QUEUE stuck WITH STATUS = OFF; CREATE SERVICE [//t/Stuck] ON QUEUE stuck ([//t/Talk]);
            CREATE WORK QUEUE jobs WITH ORDER = PRIORITY; CREATE WORK QUEUE witnesses;
            CREATE WORK QUEUE limited WITH MAX_TAKEN_PER_KEY = 1, KEY_RATE_JOBS = 1000000;
            CREATE WORK SCHEDULE s ON WORK QUEUE jobs WITH CRON = '* * * * * *';";
        broker.execute(more).await.unwrap();
        // Ready, scheduled, taken and dead.
        for queue in ["jobs", "limited"] {
            for number in 1..=6 {
                broker.push_job(queue, "a").key("garbage").unique(number.to_string()).await.unwrap();
            }
            broker.push_job(queue, "a").run_after(Duration::from_secs(1000)).await.unwrap();
            broker.take_jobs(queue).count(2).await.unwrap();
        }
        let dead = broker.take_jobs("jobs").await.unwrap().remove(0);
        broker.fail_job_then(&dead, "why", AfterFailure::Dead).await.unwrap();
        let witness = broker.begin_dialog("//t/Asker", "//t/Witness").contract("//t/Talk").await.unwrap();
        broker.send(witness, "//t/Word", "a").await.unwrap();
        broker.receive("witness").await.unwrap().expect("the first message");
        let (open, used) = (dialog(&broker).await, dialog(&broker).await);
        broker.send(used, "//t/Word", "b").await.unwrap();
        let waits = broker.begin_dialog("//t/Asker", "//t/Stuck").contract("//t/Talk").await.unwrap();
        broker.send(waits, "//t/Word", "c").await.unwrap();
        let group = format!(
            "SELECT conversation_group_id FROM dialoq.conversation_endpoint WHERE conversation_handle = '{}'",
            used.0
        );
        let row = client.simple_query(group).await.unwrap().into_row().await.unwrap().unwrap();
        let group: uuid::Uuid = row.get(0).unwrap();
        let ids: Vec<String> = [open.0, used.0, waits.0, group].iter().map(|id| format!("'{id}'")).collect();
        let mut wrong = Vec::new();
        for seed in seeds::seeds(1) {
            let mut chance = Chance(seed);
            for routine in routines() {
                limit::doing(format!("{} with seed {seed}", routine.name));
                let mut batches = vec![call(&routine, None, &ids, &mut chance)];
                for (place, (_, of)) in routine.parameters.iter().enumerate() {
                    let given = if of.starts_with("dialoq.") { Vec::new() } else { values(of, &ids) };
                    batches.extend(given.iter().map(|value| call(&routine, Some((place, value)), &ids, &mut chance)));
                }
                for batch in batches {
                    let refused = number(&mut client, &batch).await;
                    if refused != 0 && !is_documented(refused) {
                        wrong.push(format!("{refused}: {batch}"));
                    }
                    run(&mut client, "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION").await;
                }
                if let Err(why) = goes_on(&broker, &mut client, witness).await {
                    panic!("after {}: {why}", routine.name);
                }
            }
        }
        assert!(wrong.is_empty(), "errors without a documented code: {wrong:#?}");
        broker.execute("ALTER QUEUE stuck WITH STATUS = ON").await.expect("what waits stops no definition");
    });
}
