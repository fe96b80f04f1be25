//! MAX_QUEUE_READERS across processes. Two brokers on one database are two processes to the server; one test has a real one,
//! which is killed.

use crate::servers::Database;
use crate::stage::{FIVE_SECONDS, Puppet, Stage, Theatre, define, row, soon};
use dialoq::activation::{Procedure, Ramp, Readers};
use dialoq::{Act, Broker};
use std::process::{Child, Command, Stdio};

/// Readers on another host.
fn activate(host: &Broker, procedure: &Procedure, limit: u16) -> Readers {
    host.activate("work", procedure.clone()).max_queue_readers(limit).ramp(Ramp::Fast).start()
}

async fn count(broker: &Stage, view: &str) -> i64 {
    let text = format!("select count(*) as n from {}", broker.view(view));
    broker.query(text, ()).await.unwrap().rows[0].get("n").unwrap()
}

/// Waits until a reader of this queue was refused because others hold the places.
async fn is_refused(readers: &Readers) -> u64 {
    loop {
        let row = row(readers).await;
        if row.task_limit_reached_total > 0 {
            return row.tasks_running;
        }
        tokio::task::yield_now().await;
    }
}

staged!(hosts, ten_hosts_with_a_limit_of_four_run_four_readers_in_all, async |store| {
    // DIFFERENCE(monitors-by-process)
    let stage = Stage::shared(store).await;
    let (mut theatre, procedure) = Theatre::new();
    let mut hosts = Vec::new();
    for _ in 0..10 {
        let host = stage.another().await;
        let readers = activate(&host, &procedure, 4);
        hosts.push((host, readers));
    }
    stage.arrive(20).await;
    let mut at_work: Vec<Puppet> = Vec::new();
    for _ in 0..4 {
        at_work.push(theatre.next().await);
    }
    for reader in &at_work {
        assert_eq!(reader.receives().await, 1);
    }
    // Only four hosts can have a reader; a guest of a file gets to know of the jobs when its connection has its turn.
    let refused = async || {
        let mut refused = 0;
        for (_, readers) in &hosts {
            refused += u64::from(row(readers).await.task_limit_reached_total > 0);
        }
        refused
    };
    soon("six hosts refused", async { while refused().await < 6 {} }).await;
    stage.advance(FIVE_SECONDS);
    let mut running = 0;
    for (_, readers) in &hosts {
        running += row(readers).await.tasks_running;
    }
    assert_eq!(running, 4);
    assert!(theatre.is_empty());
    // Each host publishes by itself, those without a reader too.
    for (view, rows) in [("dm_broker_activated_tasks", 4), ("dm_broker_queue_monitors", 10)] {
        soon(view, async { while count(&stage, view).await != rows {} }).await;
    }
    let status = stage.status().await.unwrap();
    let work = status.queues.iter().find(|queue| queue.name == "work").unwrap();
    assert_eq!((work.readers_running, work.max_queue_readers), (Some(4), Some(4)), "the limit is of all together");

    // A place that becomes free is taken again, by whichever host.
    let leaves = at_work.pop().unwrap();
    leaves.commits().await;
    leaves.leaves().await;
    stage.advance(FIVE_SECONDS);
    let next = theatre.next().await;
    assert_eq!(next.receives().await, 1);
    for (host, readers) in hosts {
        readers.abort().await;
        host.close().await.unwrap();
    }
});

staged!(hosts, the_places_of_a_host_that_stops_go_to_others, async |store| {
    let stage = Stage::shared(store).await;
    let other = stage.another().await;
    let (mut theatre, procedure) = Theatre::new();
    let (mut others, other_procedure) = Theatre::new();
    let readers = activate(&stage, &procedure, 1);
    stage.arrive(3).await;
    let first = theatre.next().await;
    assert_eq!(first.receives().await, 1);
    let there = activate(&other, &other_procedure, 1);
    assert_eq!(soon("a refusal", is_refused(&there)).await, 0);
    assert!(others.is_empty());
    soon("the end of the first host's readers", readers.abort()).await;
    stage.advance(FIVE_SECONDS);
    let second = others.next().await;
    assert_eq!(second.receives().await, 1);
    soon("the end of the second host's readers", there.abort()).await;
    other.close().await.unwrap();
});

// Each of two hosts that are never out of work kept the place of its reader for the next one, whatever the limit was by then.
staged!(hosts, a_lowered_limit_counts_on_every_host_when_a_reader_has_left, async |store| {
    let stage = Stage::shared(store).await;
    let other = stage.another().await;
    let (mut theatre, procedure) = Theatre::new();
    let (mut others, other_procedure) = Theatre::new();
    let readers = activate(&stage, &procedure, 1);
    stage.arrive(1).await;
    let first = theatre.next().await;
    assert_eq!(first.receives().await, 1);
    let there = activate(&other, &other_procedure, 2);
    stage.arrive(9).await;
    let second = others.next().await;
    assert_eq!(second.receives().await, 1);
    there.set_max_queue_readers(1);
    second.commits().await;
    second.leaves().await;
    // The first host has the only place.
    soon("no reader there", async { while row(&there).await.tasks_running != 0 {} }).await;
    assert!(others.is_empty());
    first.commits().await;
    first.leaves().await;
    for readers in [readers, there] {
        soon("the end of a host's readers", readers.abort()).await;
    }
    other.close().await.unwrap();
});

/// The locks of readers' places, by the number that `dialoq.reader_slot_lock` begins them with.
const PLACES: &str = "from pg_locks where locktype = 'advisory' and classid::bigint >> 16 = 17490
    and database = (select oid from pg_database where datname = current_database())";

/// Waits until so many places of readers are held.
async fn held(host: &Broker, places: i64) {
    let text = format!("select count(*) as n {PLACES}");
    let counted = async { while host.query(&*text, ()).await.unwrap().rows[0].get::<i64>("n").unwrap() != places {} };
    soon(&format!("{places} places of readers held"), counted).await;
}

staged!(postgres, an_idle_host_that_loses_its_connection_is_shown_again, async |store| {
    let stage = Stage::shared(store).await;
    let other = stage.another().await;
    let (_theatre, procedure) = Theatre::new();
    let _readers = stage.activate("work", procedure).start();
    let monitors = format!("select count(*) as n from {}", stage.view("dm_broker_queue_monitors"));
    let shown = async || other.query(&*monitors, ()).await.unwrap().rows[0].get::<i64>("n").unwrap();
    soon("the monitor in the view", async { while shown().await != 1 {} }).await;
    let presence = "from pg_locks where locktype = 'advisory' and classid::bigint >> 16 = 17488
        and database = (select oid from pg_database where datname = current_database())";
    other.query(format!("select pg_terminate_backend(pid, 20000) {presence}"), ()).await.unwrap();
    assert_eq!(shown().await, 0);
    // The monitor has nothing to do, so its row does not change. Each advance is a tick.
    let again = async {
        while shown().await != 1 {
            stage.advance(FIVE_SECONDS);
        }
    };
    soon("the monitor in the view again", again).await;
});

staged!(postgres, a_host_that_loses_its_connection_keeps_its_place, async |store| {
    let stage = Stage::shared(store).await;
    let other = stage.another().await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).max_queue_readers(1).start();
    stage.arrive(1).await;
    let first = theatre.next().await;
    assert_eq!(first.receives().await, 1);
    held(&other, 1).await;
    other.query(format!("select pg_terminate_backend(pid) {PLACES}"), ()).await.unwrap();
    held(&other, 0).await;
    // The row of the monitor changes, and is written on a new connection.
    readers.set_max_queue_readers(2);
    held(&other, 1).await;
    let (mut others, other_procedure) = Theatre::new();
    let there = activate(&other, &other_procedure, 1);
    stage.arrive(1).await;
    assert_eq!(soon("a refusal", is_refused(&there)).await, 0);
    assert!(others.is_empty() && theatre.is_empty());
    readers.set_max_queue_readers(0);
    first.commits().await;
    first.leaves().await;
    let second = others.next().await;
    assert_eq!(second.receives().await, 1);
    for readers in [readers, there] {
        soon("the end of a host's readers", readers.abort()).await;
    }
    other.close().await.unwrap();
});

// As if the connection for the places was cut in silence. The stop waited for the check, and the readers worked on meanwhile.
staged!(postgres, a_stop_does_not_wait_for_a_place_whose_server_hangs, async |store| {
    let stage = Stage::shared(store).await;
    let other = stage.another().await;
    let gate = other.begin().await.unwrap();
    gate.sql("do $$ begin perform pg_advisory_xact_lock(22); end $$", ()).await.unwrap();
    let hangs = "create or replace function dialoq.take_reader_slot(p_queue_id integer, p_max_queue_readers integer)
        returns table (slot integer) language plpgsql as $$ begin perform pg_advisory_xact_lock(22); end $$";
    other.sql(hangs, ()).await.unwrap();
    let under_way = "select count(*) as n from pg_stat_activity where datname = current_database()
        and pid <> pg_backend_pid() and state = 'active' and query like '%dialoq.take_reader_slot(%'";
    let hang = async || while other.query(under_way, ()).await.unwrap().rows[0].get::<i64>("n").unwrap() == 0 {};
    let (_theatre, procedure) = Theatre::new();
    let readers = stage.activate("work", procedure).start();
    stage.arrive(1).await;
    soon("a place is asked for", hang()).await;
    soon("the end of the readers", readers.stop()).await;
    gate.rollback().await.unwrap();
});

staged!(hosts, altering_the_limit_counts_on_every_host, async |store| {
    let stage = Stage::shared(store).await;
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (STATUS = ON, PROCEDURE_NAME = p, MAX_QUEUE_READERS = 1, EXECUTE AS OWNER)").await;
    let other = stage.another().await;
    let (mut theatre, procedure) = Theatre::new();
    // This one waits five seconds before it takes another place, and the clock stands still.
    let readers = stage.activate("work", procedure).start();
    stage.arrive(5).await;
    let first = theatre.next().await;
    assert_eq!(first.receives().await, 1);
    let (mut others, other_procedure) = Theatre::new();
    let there = other.activate("work", other_procedure).ramp(Ramp::Fast).start();
    assert_eq!(soon("a refusal", is_refused(&there)).await, 0);
    // The definition is changed by one broker, and the other is notified.
    stage.ddl("ALTER QUEUE work WITH ACTIVATION (MAX_QUEUE_READERS = 5)").await;
    let there_too = others.next().await;
    assert_eq!(there_too.receives().await, 1);
    assert_eq!(row(&there).await.max_queue_readers, 5);
    for readers in [readers, there] {
        readers.abort().await;
    }
    other.close().await.unwrap();
});

staged!(hosts, a_queue_activates_when_another_process_sends, async |store| {
    let stage = Stage::shared(store).await;
    let other = stage.another().await;
    let (mut theatre, procedure) = Theatre::new();
    let readers = activate(&other, &procedure, 1);
    assert_eq!(row(&readers).await.tasks_running, 0);
    stage.arrive(1).await;
    let reader = theatre.next().await;
    assert_eq!(reader.receives().await, 1);
    assert_eq!(reader.receives().await, 0, "and leaves when nothing comes, as readers do");
    reader.commits().await;
    reader.leaves().await;
    stage.arrive(1).await;
    // What was seen of the queue may be a moment old, and then a reader comes for nothing.
    loop {
        let again = theatre.next().await;
        if again.receives().await == 1 {
            break;
        }
        again.commits().await;
        again.leaves().await;
    }
    readers.abort().await;
    other.close().await.unwrap();
});

/// A process of the command that runs programs, with everything it starts in a group of its own.
#[cfg(unix)]
pub(crate) struct Host(Child);

#[cfg(unix)]
impl Host {
    pub(crate) fn start(url: &str, args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dialoq"));
        command.args(["--db", url]).args(args);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        Self(command.spawn().unwrap())
    }

    pub(crate) fn kill(&mut self) {
        let group = format!("-{}", self.0.id());
        let done = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
        assert!(done.is_ok(), "{done:?}");
        self.0.wait().unwrap();
    }
}

#[cfg(unix)]
impl Drop for Host {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            self.kill();
        }
    }
}

#[cfg(unix)]
staged!(hosts, the_place_and_the_message_of_a_killed_process_go_to_another, async |store| {
    let database = Database::fresh(store);
    let broker = Broker::open(database.url()).await.unwrap();
    define(&broker).await;
    // The program never ends.
    let command = ["activate", "work", "--max-queue-readers", "1", "--exec", "sleep", "--", "600"];
    let mut host = Host::start(database.url(), &command);
    let dialog = broker.begin_dialog("client", "worker").await.unwrap();
    broker.send(dialog, "DEFAULT", "work").await.unwrap();
    let text = format!("select count(*) as n from {}", store.view("dm_broker_activated_tasks"));
    let there = async { while broker.query(&*text, ()).await.unwrap().rows[0].get::<i64>("n").unwrap() == 0 {} };
    soon("the reader of the other process in the view", there).await;
    // Another conversation's message, so that there is work here too.
    let more = broker.begin_dialog("client", "worker").await.unwrap();
    broker.send(more, "DEFAULT", "work").await.unwrap();
    let (mut theatre, procedure) = Theatre::new();
    let readers = activate(&broker, &procedure, 1);
    assert_eq!(soon("a refusal", is_refused(&readers)).await, 0, "the other process has the only place");
    host.kill();
    let reader = theatre.next().await;
    let both = async {
        let mut received = 0;
        while received < 2 {
            received += reader.receives().await;
            reader.commits().await;
        }
        received
    };
    assert_eq!(soon("both messages", both).await, 2, "that which the killed process had is back");
    readers.abort().await;
    broker.close().await.unwrap();
});
