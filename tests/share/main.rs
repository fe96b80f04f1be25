//! Many processes on one SQLite file: what they do to each other, and what becomes of the others when one ends.
//!
//! The conformance suite runs through an owner and after a take-over, the suite `processes` kills processes under load,
//! `activation hosts` counts readers over processes. Here are the edges: the socket, versions, garbage, ends at bad moments.

mod ends;
mod floods;
mod once;
mod refusals;
mod take_over;
mod unpolled;

use dialoq::{Act, Broker, Code};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

const URL: &str = "DIALOQ_SHARE_URL";
const WORK: &str = "DIALOQ_SHARE_WORK";

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(60);

const DEFINITIONS: &str = "
    CREATE CONTRACT [C] ([DEFAULT] SENT BY ANY);
    CREATE QUEUE [from]; CREATE QUEUE [to];
    CREATE SERVICE [sender] ON QUEUE [from]; CREATE SERVICE [receiver] ON QUEUE [to] ([C])";

fn limit() -> dialoq_test_support::limit::Limit {
    dialoq_test_support::limit::limit(|| dialoq::testing::describe_waits().join("\n"))
}

/// A file in a folder of its own.
struct Place {
    _folder: TempDir,
    path: PathBuf,
}

impl Place {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("a.db");
        Self { _folder: folder, path }
    }

    fn url(&self) -> String {
        format!("sqlite:{}", self.path.display())
    }

    fn socket(&self) -> PathBuf {
        self.path.with_extension("db.socket")
    }

    async fn open(&self) -> Broker {
        Broker::open(&self.url()).await.unwrap()
    }

    /// The first broker, with the definitions.
    async fn defined(&self) -> Broker {
        let broker = self.open().await;
        broker.execute(DEFINITIONS).await.unwrap();
        broker
    }
}

async fn send(broker: &Broker, body: &str) -> dialoq::Result<()> {
    let dialog = broker.begin_dialog("sender", "receiver").contract("C").await?;
    broker.send(dialog, "DEFAULT", body).await
}

async fn received(broker: &Broker) -> Vec<String> {
    let batch = broker.receive("to").wait(PATIENCE).await.unwrap();
    bodies(&batch.expect("a message comes"))
}

fn bodies(batch: &dialoq::Batch) -> Vec<String> {
    batch.messages().iter().map(|message| String::from_utf8_lossy(message.body()).into_owned()).collect()
}

/// Another process on the file.
struct Other {
    child: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Other {
    /// Starts one that opens this URL and does this work, and waits until it says that it is ready.
    fn start_on(url: &str, work: &str, variables: &[(&str, &Path)]) -> Self {
        let mut command = Self::command("other_process", url, work);
        command.envs(variables.iter().copied());
        Self::run(command)
    }

    /// This program once more, as a process that does this work.
    fn command(test: &str, url: &str, work: &str) -> Command {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args([test, "--exact", "--ignored", "--nocapture"]).env(URL, url).env(WORK, work);
        command
    }

    fn run(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (commands, answers) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        let mut other = Self { child, commands, answers };
        other.answer("ready");
        other
    }

    fn start(path: &Path, work: &str) -> Self {
        Self::start_on(&format!("sqlite:{}", path.display()), work, &[])
    }

    /// Has it send a message; returns `sent` or the code of the error.
    fn send(&mut self, body: &str) -> String {
        writeln!(self.commands, "{body}").unwrap();
        self.answer("answer ")
    }

    /// The rest of the next line that holds this word.
    fn answer(&mut self, word: &str) -> String {
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "the other process ended");
            if let Some((_, rest)) = line.split_once(word) {
                return rest.trim().to_owned();
            }
        }
    }

    fn signal(&self, name: &str) {
        let done = Command::new("kill").args([format!("-{name}"), self.child.id().to_string()]).status().unwrap();
        assert!(done.success());
        // The signal is sent before its effect: each thread stops by itself.
        while name == "STOP" && !self.has_stopped() {
            std::thread::yield_now();
        }
    }

    /// Whether every thread of it has stopped, where the system shows that.
    fn has_stopped(&self) -> bool {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", self.child.id())) else { return true };
        let state = |stat: String| stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'));
        threads.flatten().all(|thread| std::fs::read_to_string(thread.path().join("stat")).is_ok_and(state))
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Not a test of its own: the other process.
#[test]
#[ignore = "run by the tests that need another process"]
fn other_process() {
    let (Ok(url), Ok(work)) = (std::env::var(URL), std::env::var(WORK)) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let broker = Broker::open(&url).await.unwrap();
        let tx = broker.begin().await.unwrap();
        match work.as_str() {
            "own" => {}
            "hold a message" => assert!(tx.receive("to").wait(PATIENCE).await.unwrap().is_some()),
            "send" => {
                println!("ready");
                for body in std::io::stdin().lines().map_while(Result::ok) {
                    match send(&broker, &body).await {
                        Ok(()) => println!("answer sent"),
                        Err(error) => println!("answer {error}"),
                    }
                }
                return;
            }
            other => panic!("no such work: {other}"),
        }
        println!("ready");
        std::future::pending::<()>().await;
    });
}

fn run(test: impl AsyncFnOnce()) {
    let _limit = limit();
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(test());
}

/// Returns once a RECEIVE of this broker waits.
async fn until_it_waits(broker: &Broker) {
    while broker.sessions_waiting("to") == 0 {
        tokio::task::yield_now().await;
    }
}

#[test]
fn a_waiting_receive_goes_on_when_the_owner_is_killed() {
    run(async || {
        let place = Place::new();
        place.defined().await.close().await.unwrap();
        let mut owner = Other::start(&place.path, "own");
        let broker = place.open().await;
        let waiting = tokio::spawn({
            let broker = broker.clone();
            async move {
                loop {
                    match broker.receive("to").wait(PATIENCE).await {
                        Ok(batch) => break bodies(&batch.unwrap()),
                        // A poll of the RECEIVE was under way when the owner was killed.
                        Err(error) => assert_eq!(error.code(), Code::OWNER_GONE, "{error}"),
                    }
                }
            }
        });
        until_it_waits(&broker).await;
        owner.kill();
        // A connection that no one has found ended yet: the owner is dead, so it cannot have done the call.
        while let Err(error) = send(&broker, "after the end of the owner").await {
            assert_eq!(error.code(), Code::OWNER_GONE, "{error}");
        }
        assert_eq!(waiting.await.unwrap(), ["after the end of the owner"]);
    });
}

#[test]
fn a_waiting_receive_goes_on_when_the_owner_closes() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let (broker, third) = (place.open().await, place.open().await);
        let waiting = tokio::spawn({
            let broker = broker.clone();
            async move { received(&broker).await }
        });
        until_it_waits(&broker).await;
        owner.close().await.unwrap();
        send(&third, "after the close of the owner").await.unwrap();
        assert_eq!(waiting.await.unwrap(), ["after the close of the owner"]);
    });
}

#[test]
fn a_close_of_the_owner_loses_no_call_of_the_others() {
    run(async || {
        let place = Place::new();
        let mut owner = place.defined().await;
        let guest = place.open().await;
        let sending = tokio::spawn({
            let guest = guest.clone();
            async move {
                for number in 0..300 {
                    send(&guest, &number.to_string()).await.unwrap();
                }
            }
        });
        // Owners come and go; the sender works through each in turn, or owns the file itself.
        while !sending.is_finished() {
            let next = place.open().await;
            owner.close().await.unwrap();
            owner = next;
        }
        sending.await.unwrap();
        let mut bodies = Vec::new();
        while let Some(batch) = guest.receive("to").await.unwrap() {
            bodies.extend(batch.messages().iter().map(|message| String::from_utf8_lossy(message.body()).into_owned()));
        }
        let mut numbers: Vec<u32> = bodies.iter().map(|body| body.parse().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..300).collect::<Vec<_>>());
    });
}

#[test]
fn a_call_under_way_fails_with_60046_when_the_owner_is_killed() {
    run(async || {
        let place = Place::new();
        place.defined().await.close().await.unwrap();
        let mut owner = Other::start(&place.path, "own");
        let broker = place.open().await;
        let dialog = broker.begin_dialog("sender", "receiver").contract("C").await.unwrap();
        let tx = broker.begin().await.unwrap();
        tx.send(dialog, "DEFAULT", "in a transaction").await.unwrap();
        owner.signal("STOP");
        let sending = tokio::spawn({
            let broker = broker.clone();
            async move { broker.send(dialog, "DEFAULT", "under way").await }
        });
        // The request has left this process, and its answer cannot come.
        tokio::task::yield_now().await;
        owner.kill();
        let error = sending.await.unwrap().unwrap_err();
        assert_eq!((error.code(), error.is_retryable()), (Code::OWNER_GONE, true), "{error}");
        assert_eq!(tx.commit().await.unwrap_err().code(), Code::OWNER_GONE);
        send(&broker, "through itself").await.unwrap();
        assert_eq!(received(&broker).await, ["through itself"]);
    });
}

#[test]
fn a_message_that_a_killed_process_held_comes_back() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        send(&owner, "held").await.unwrap();
        let mut guest = Other::start(&place.path, "hold a message");
        assert!(owner.receive("to").await.unwrap().is_none(), "the other process has it");
        guest.kill();
        assert_eq!(received(&owner).await, ["held"]);
    });
}

#[test]
fn a_dropped_transaction_of_a_guest_frees_what_it_held() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let guest = place.open().await;
        send(&owner, "held").await.unwrap();
        let tx = guest.begin().await.unwrap();
        assert!(tx.receive("to").await.unwrap().is_some());
        drop(tx);
        assert_eq!(received(&owner).await, ["held"]);
    });
}

#[test]
fn a_guest_has_its_own_definitions_and_those_of_others_at_once() {
    run(async || {
        let place = Place::new();
        let owner = place.defined().await;
        let guest = place.open().await;
        guest.execute("CREATE QUEUE [mine]").await.unwrap();
        assert!(guest.dump().contains("mine"));
        assert!(owner.dump().contains("mine"));
        owner.execute("CREATE QUEUE [theirs]").await.unwrap();
        // Whatever the guest has an answer to, it knows the definitions that were made before.
        assert!(guest.receive("theirs").await.unwrap().is_none());
        assert!(guest.dump().contains("theirs"));
    });
}

#[test]
fn a_statement_of_a_guest_is_seen_by_its_next_query() {
    run(async || {
        let place = Place::new();
        let _owner = place.defined().await;
        let guest = place.open().await;
        guest.sql("create table mine (n integer)", ()).await.unwrap();
        let tx = guest.begin().await.unwrap();
        tx.sql("insert into mine values (?1)", (7,)).await.unwrap();
        tx.commit().await.unwrap();
        let rows = guest.query("select n from mine", ()).await.unwrap().rows;
        assert_eq!(rows[0].get::<i64>("n").unwrap(), 7);
    });
}
