#![cfg(unix)]

use crate::servers::{Database, Store};
use crate::shop::{SHOP, Shop, lines};
use serde_json::Value;

/// The next event of this kind.
fn event(running: &mut crate::shop::Running, kind: &str) -> Value {
    loop {
        let line = running.line();
        assert!(!line.is_empty(), "the events ended before '{kind}'");
        let event = lines(&line).remove(0);
        if event["event"] == kind {
            return event;
        }
    }
}

#[test]
fn a_program_is_run_for_every_message_until_ctrl_c() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.order(&["a", "b"]);
    shop.order(&["c"]);
    let script =
        "body=$(cat); echo \"$body\" >> seen; echo '{\"send\":{\"type\":\"//shop/OrderPlaced\",\"body\":\"<ok/>\"}}'";
    let mut running = shop.start(&[
        "--json",
        "activate",
        "orders",
        "--exec",
        "sh",
        "--raw-body",
        "--idle-wait",
        "1ms",
        "--",
        "-c",
        script,
    ]);
    event(&mut running, "ended");
    running.interrupt();
    drop(running.output.take());
    let (code, error) = running.end();
    assert_eq!(code, Some(130), "{error}");
    let mut seen: Vec<String> =
        std::fs::read_to_string(shop.path("seen")).unwrap().lines().map(str::to_owned).collect();
    seen.extend(shop.bodies("orders"));
    seen.sort();
    assert_eq!(seen, ["a", "b", "c"], "each was handled or waits still");
    assert!(shop.bodies("checkout").iter().all(|body| body == "<ok/>"));
}

/// An idle one was silent for as long as its server was away, and looked like one that waits for messages.
#[test]
fn what_keeps_a_waiting_command_from_all_messages_is_said() {
    let _limit = crate::limit();
    if Store::Postgres.why_missing().is_some() {
        return;
    }
    let (shop, database) = (Shop::empty(), Database::fresh(Store::Postgres));
    shop.ok_with(&["--db", database.url(), "apply", "-"], SHOP.as_bytes());
    let url = database.login("dialoq_user");
    let mut activation = shop.start(&["--db", &url, "--json", "activate", "orders", "--exec", "true"]);
    let mut following = shop.start(&["--db", &url, "receive", "orders", "--follow"]);
    event(&mut activation, "waiting");
    let listening = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'LISTEN%'";
    while database.sql(listening) != "2" {}
    let theirs = "FROM pg_stat_activity WHERE datname = current_database() AND usename LIKE 'dialoq_test%'";
    let user = database.sql(&format!("SELECT min(usename) {theirs}"));
    database.sql(&format!("ALTER ROLE {user} NOLOGIN"));
    database.sql(&format!("SELECT count(pg_terminate_backend(pid, 20000)) {theirs}"));
    let why = event(&mut activation, "cannot_receive")["why"].as_str().unwrap().to_owned();
    assert!(why.starts_with("[6003"), "{why}");
    let said = following.error_line();
    assert!(said.starts_with("warning: no message can be received: [6003") && said.contains("trying again"), "{said}");
}

/// `activate --json | head -1` ended with success, and messages stayed.
#[test]
fn activation_goes_on_if_the_reader_of_its_events_goes() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let script = "cat >> seen; echo >> seen";
    let arguments =
        ["--json", "activate", "orders", "--exec", "sh", "--raw-body", "--idle-wait", "1ms", "--", "-c", script];
    let mut running = shop.start(&arguments);
    event(&mut running, "waiting");
    drop(running.output.take());
    for number in 1..=3 {
        shop.order(&["a"]);
        while std::fs::read_to_string(shop.path("seen")).unwrap_or_default().lines().count() < number {
            assert!(running.is_running(), "it ended");
            std::thread::yield_now();
        }
    }
    while !running.error_line().contains(r#""event":"output_gone""#) {}
    while !running.error_line().contains(r#""event":"ended""#) {}
    running.interrupt();
    assert_eq!(running.end().0, Some(130));
}

#[test]
fn a_clause_that_is_off_is_named_and_starts_readers_when_it_is_turned_on() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let clause = "ACTIVATION (STATUS = OFF, PROCEDURE_NAME = p, MAX_QUEUE_READERS = 1, EXECUTE AS OWNER)";
    shop.ok_with(&["apply", "-"], format!("ALTER QUEUE orders WITH {clause}").as_bytes());
    shop.order(&["a"]);
    let turn_on = "ALTER QUEUE [orders] WITH ACTIVATION (STATUS = ON)";
    let explained = shop.ok(&["explain", "orders"]);
    assert!(explained.contains(turn_on) && !explained.contains("dialoq activate"), "{explained}");
    let mut running = shop.start(&["activate", "orders", "--exec", "true"]);
    running.error_line();
    let off = running.error_line();
    assert!(off.contains("no reader starts") && off.contains(turn_on), "{off}");
    shop.ok_with(&["apply", "-"], turn_on.as_bytes());
    assert!(running.error_line().contains("started"));
    running.interrupt();
    running.end();
}

#[test]
fn a_message_that_fails_stays() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.order(&["a"]);
    let mut running =
        shop.start(&["--json", "activate", "orders", "--exec", "sh", "--", "-c", "echo no stock >&2; exit 3"]);
    let failed = event(&mut running, "failed");
    assert_eq!(failed["code"], 60025, "{failed}");
    running.interrupt();
    drop(running.output.take());
    running.end();
    shop.ok_with(&["apply", "-"], b"ALTER QUEUE orders WITH STATUS = ON");
    assert_eq!(shop.bodies("orders"), ["a"]);
}

#[test]
fn a_store_that_takes_nothing_more_ends_the_command() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.order(&["a", "b"]);
    let script = "touch begun; while [ ! -e go ]; do sleep 0.01; done";
    let mut running = shop.start(&["activate", "orders", "--exec", "sh", "--", "-c", script]);
    running.until_exists(&shop.path("begun"));
    let other = rusqlite::Connection::open(shop.path("shop.db")).unwrap();
    other.execute_batch("delete from dialoq_queue_message").unwrap();
    std::fs::write(shop.path("go"), "").unwrap();
    let (code, error) = running.end();
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("[60037]") && error.contains("error[60015]"), "{error}");
}

/// Another process had done the work that failed, so no reader met the failure: the command went on and took no message more.
#[test]
fn a_store_that_takes_nothing_more_ends_a_command_that_waits() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE jobs");
    let mut running = shop.start(&["activate", "orders", "--exec", "true"]);
    running.error_line();
    shop.ok(&["work", "push", "jobs", "one"]);
    let other = rusqlite::Connection::open(shop.path("shop.db")).unwrap();
    other.execute_batch("delete from dialoq_job").unwrap();
    shop.fails(1, &["work", "take", "jobs"]);
    let (code, error) = running.end();
    assert_eq!(code, Some(1), "{error}");
    assert!(error.contains("error[60015]") && error.contains("[60037]"), "{error}");
}

/// Other processes may have to wait for a moment until one of them can take the file over. That ended the command.
#[test]
fn an_obstacle_that_goes_does_not_end_the_command() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE jobs");
    let mut owner = shop.start(&["work", "run", "jobs", "--exec", "true"]);
    owner.error_line();
    shop.order(&["a"]);
    let script = "touch begun; while [ ! -e go ]; do sleep 0.01; done; cat >> done";
    let mut running = shop.start(&["activate", "orders", "--exec", "sh", "--raw-body", "--", "-c", script]);
    running.until_exists(&shop.path("begun"));
    std::fs::hard_link(shop.path("shop.db"), shop.path("second")).unwrap();
    drop(owner);
    std::fs::write(shop.path("go"), "").unwrap();
    while !running.error_line().contains("ended[28088]") {}
    std::fs::remove_file(shop.path("second")).unwrap();
    // What it did first was rolled back.
    while std::fs::read_to_string(shop.path("done")).unwrap() != "aa" && running.is_running() {
        std::thread::yield_now();
    }
    if running.is_running() {
        running.interrupt();
    }
    let (code, error) = running.end();
    assert_eq!(code, Some(130), "{error}");
}

/// It was silent for as long as its queue was gone, and looked like one that waits for messages.
#[test]
fn a_queue_that_is_dropped_is_named_and_served_when_it_is_there_again() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let mut running = shop.start(&["activate", "orders", "--exec", "sh", "--raw-body", "--", "-c", "cat >> seen"]);
    let mut with_events = shop.start(&["--json", "activate", "orders", "--exec", "true"]);
    running.error_line();
    event(&mut with_events, "waiting");
    shop.ok_with(&["apply", "-"], b"DROP SERVICE [//shop/OrderService]; DROP QUEUE orders");
    assert_eq!(event(&mut with_events, "queue_dropped")["queue"], "orders");
    with_events.interrupt();
    assert_eq!(with_events.end().0, Some(130));
    while !running.error_line().contains("warning: queue 'orders' was dropped") {}
    shop.ok_with(
        &["apply", "-"],
        b"CREATE QUEUE orders; CREATE SERVICE [//shop/OrderService] ON QUEUE orders ([//shop/Orders])",
    );
    shop.order(&["a"]);
    while std::fs::read_to_string(shop.path("seen")).unwrap_or_default() != "a" {
        assert!(running.is_running(), "it ended");
        std::thread::yield_now();
    }
    running.interrupt();
    assert_eq!(running.end().0, Some(130));
}

#[test]
fn ctrl_c_lets_a_running_handler_finish() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.order(&["a"]);
    let script = "touch begun; while [ ! -e go ]; do sleep 0.01; done; cat > done";
    let mut running = shop.start(&["activate", "orders", "--exec", "sh", "--raw-body", "--", "-c", script]);
    running.until_exists(&shop.path("begun"));
    running.interrupt();
    std::fs::write(shop.path("go"), "").unwrap();
    assert_eq!(running.end().0, Some(130));
    assert_eq!(std::fs::read_to_string(shop.path("done")).unwrap(), "a");
    assert!(shop.bodies("orders").is_empty(), "it was committed");
}

#[test]
fn a_program_that_cannot_start_is_reported_at_once() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let error = shop.fails(1, &["activate", "orders", "--exec", "./no-such-program"]);
    assert!(error.starts_with("error[60025]") && error.contains("no-such-program"), "{error}");
    let error = shop.fails(1, &["activate", "nowhere", "--exec", "true"]);
    assert!(error.contains("'nowhere'"), "{error}");
    shop.fails(2, &["activate", "orders"]);
    shop.fails(2, &["activate", "orders", "--exec", "true", "--max-queue-readers", "0"]);
}

#[test]
fn a_second_ctrl_c_aborts_running_handlers() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.order(&["a"]);
    let script = "echo $$ > pid.new; mv pid.new pid; exec sleep 1000";
    let mut running = shop.start(&["activate", "orders", "--exec", "sh", "--", "-c", script]);
    running.until_exists(&shop.path("pid"));
    while running.is_running() {
        running.interrupt();
    }
    let (code, error) = running.end();
    assert_eq!(code, Some(130), "{error}");
    until_it_is_gone(&shop);
    assert_eq!(shop.bodies("orders"), ["a"]);
}

/// Waits until the program that has written its number is gone. It was sent KILL before the command ended; the system takes its moment.
fn until_it_is_gone(shop: &Shop) {
    let pid = std::fs::read_to_string(shop.path("pid")).unwrap();
    loop {
        let state = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
        if state.is_empty() || state.contains(") Z ") {
            return;
        }
        std::thread::yield_now();
    }
}

/// Whether this process, and so what it starts, ignores a signal: `nohup` does that, and a shell in the background.
fn is_ignored(number: u32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask >> (number - 1) & 1 == 1)
}

#[test]
fn every_ending_signal_ends_the_children_of_its_programs() {
    let _limit = crate::limit();
    // With their numbers on Linux. INT and TERM end it also where they were ignored.
    let all = [("HUP", 1), ("QUIT", 3), ("USR1", 10), ("USR2", 12), ("ALRM", 14), ("XCPU", 24)];
    let handled = all.into_iter().filter(|(_, number)| !is_ignored(*number)).map(|(signal, _)| signal);
    for signal in ["INT", "TERM"].into_iter().chain(handled) {
        let shop = Shop::open();
        shop.order(&["a"]);
        let script = "sleep 1000 & echo $! > pid.new; mv pid.new pid; wait";
        let mut running = shop.start(&["activate", "orders", "--exec", "sh", "--", "-c", script]);
        running.until_exists(&shop.path("pid"));
        while running.is_running() {
            running.signal(signal);
        }
        let (code, error) = running.end();
        assert_eq!(code, Some(130), "{signal}: {error}");
        until_it_is_gone(&shop);
        assert_eq!(shop.bodies("orders"), ["a"], "{signal}");
    }
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.order(&["a"]);
    let dialoq = assert_cmd::cargo::cargo_bin!("dialoq").display().to_string();
    let script = "trap '' HUP; \"$0\" activate orders --exec sh -- -c 'kill -HUP $PPID; cat > done.new; mv done.new done' & \
                  while [ ! -e done ]; do :; done; kill -TERM $!; wait $!; echo $?";
    let output = std::process::Command::new("sh")
        .args(["-c", script, &dialoq])
        .current_dir(shop.folder.path())
        .env("DIALOQ_URL", shop.url())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0", "{error}");
    assert!(error.contains("stopp"), "TERM stopped it, HUP had not: {error}");
}
