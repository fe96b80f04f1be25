//! What the command says while it works: the story of `activate`, errors and warnings as JSON, hints, colours, the log.

use crate::shop::{Running, SEND_ORDER, Shop, lines, text};
use serde_json::Value;
use std::process::Command;

/// The next event.
fn event(running: &mut Running) -> Value {
    let line = running.line();
    assert!(!line.is_empty(), "the events have ended");
    lines(&line).remove(0)
}

/// The next event of that kind, and the kinds of those before it.
fn until(running: &mut Running, kind: &str) -> (Value, Vec<String>) {
    let mut before = Vec::new();
    loop {
        let next = event(running);
        let found = next["event"].as_str().unwrap_or_default().to_owned();
        if found == kind {
            return (next, before);
        }
        before.push(found);
    }
}

#[cfg(unix)]
#[test]
fn events_name_a_queue_as_it_is_and_notes_as_a_terminal_may_show_it() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let name = "two\nlines \u{202e}and $HOME";
    shop.ok_with(&["apply", "-"], format!("CREATE QUEUE [{name}] WITH STATUS = OFF").as_bytes());
    let mut running = shop.start(&["--json", "activate", name, "--exec", "true"]);
    for kind in ["waiting", "queue_off"] {
        let said = event(&mut running);
        assert_eq!((&said["event"], &said["queue"]), (&kind.into(), &name.into()));
    }
    running.signal("TERM");
    assert_eq!(running.end().0, Some(0));
    let mut running = shop.start(&["activate", name, "--exec", "true"]);
    assert!(running.error_line().contains(r"queue 'two\nlines \u{202e}and $HOME', 1 reader"));
    let off = running.error_line();
    assert!(off.contains(r"`dialoq resume 'two\nlines \u{202e}and $HOME'`"), "{off}");
    running.signal("TERM");
    assert_eq!(running.end().0, Some(0));
}

#[cfg(unix)]
#[test]
fn activate_tells_its_story_as_events() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok(&["pause", "orders", "--reason", "stock taking"]);
    let arguments = ["--json", "activate", "orders", "--exec", "sh", "--idle-wait", "1ms", "--max-queue-readers", "3"];
    let mut running = shop.start(&[&arguments[..], &["--", "-c", "! grep -q spoilt"]].concat());
    let waiting = event(&mut running);
    assert_eq!((&waiting["event"], &waiting["queue"]), (&"waiting".into(), &"orders".into()));
    assert_eq!(waiting["max_queue_readers"], 3);
    assert_eq!(event(&mut running)["event"], "queue_off", "said at once");
    // Another process turns it on and sends.
    shop.ok(&["resume", "orders"]);
    assert_eq!(until(&mut running, "queue_on").1, Vec::<String>::new());
    shop.order(&["good"]);
    let (ended, before) = until(&mut running, "ended");
    assert_eq!(before, ["started"]);
    assert_eq!((&ended["messages"], &ended["code"]), (&1.into(), &Value::Null), "{ended}");
    shop.order(&["spoilt"]);
    let (failed, _) = until(&mut running, "failed");
    assert_eq!(failed["code"], 60025, "{failed}");
    // Five rollbacks in a row turn the queue off, which may be said before the last failure.
    let (off, before) = until(&mut running, "queue_off");
    assert_eq!(off["queue"], "orders");
    running.signal("TERM");
    let (stopped, after) = until(&mut running, "stopped");
    let failures = [before, after].concat().iter().filter(|kind| *kind == "failed").count();
    assert_eq!(failures, 4, "beside the first one");
    assert_eq!((&stopped["messages"], &stopped["rolled_back"]), (&1.into(), &5.into()), "{stopped}");
    drop(running.output.take());
    assert_eq!(running.end().0, Some(0));
}

#[cfg(unix)]
#[test]
fn activate_writes_plain_lines_where_no_terminal_is() {
    let _limit = crate::limit();
    for (signal, exit_code) in [("TERM", 0), ("INT", 130)] {
        let shop = Shop::open();
        shop.order(&["a"]);
        let script = "cat > in_hand.new; mv in_hand.new in_hand; while [ ! -e go ]; do :; done";
        let mut running = shop.start(&["activate", "orders", "--exec", "sh", "--", "-c", script]);
        running.until_exists(&shop.path("in_hand"));
        running.signal(signal);
        // It is asked to end and finishes what is in hand.
        std::fs::write(shop.path("go"), "").unwrap();
        let (code, error) = running.end();
        assert_eq!(code, Some(exit_code), "{error}");
        for part in [
            "waiting for messages in queue 'orders', 1 reader; ctrl-C ends\n",
            " started\n",
            " ended; 1 message\n",
            "stopped: 1 message done, 0 rolled back",
        ] {
            assert!(error.contains(part), "{signal}: {part}: {error}");
        }
        assert!(!error.contains('\u{1b}') && !error.contains("a second"), "{error}");
        assert!(shop.bodies("orders").is_empty(), "{signal}: it was finished");
    }
}

#[test]
fn errors_and_warnings_are_json_if_that_was_asked_for() {
    let _limit = crate::limit();
    let shop = Shop::open();
    for (code, arguments, kind) in [
        (2, vec!["--json", "receive"], "CommandLine"),
        (2, vec!["--json", "sned"], "CommandLine"),
        (2, vec!["receive", "orders", "--top", "none", "--json"], "CommandLine"),
        (1, vec!["--json", "receive", "oders"], "NotFound"),
    ] {
        let error = shop.fails(code, &arguments);
        let found = lines(&error);
        assert_eq!(found.len(), 1, "{error}");
        let error = &found[0]["error"];
        assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
        if kind == "CommandLine" {
            assert_eq!((&error["kind"], &error["code"]), (&kind.into(), &Value::Null), "{error}");
        } else {
            assert_eq!(error["code"], 60002, "{error}");
        }
    }
    assert!(shop.fails(2, &["receive"]).starts_with("error: "), "people get a text");
    assert!(shop.fails(2, &["sned"]).contains("'send'"), "the nearest command is named");
    // Those of a program are its own.
    let refused = shop.fails(1, &["activate", "orders", "--exec", "no_such_program", "--", "--json"]);
    assert!(refused.starts_with("error"), "{refused}");
}

#[cfg(unix)]
#[test]
fn a_program_in_this_folder_is_named_with_its_path() {
    let _limit = crate::limit();
    let shop = Shop::open();
    std::fs::write(shop.path("worker.sh"), "#!/bin/sh\n").unwrap();
    let error = shop.fails(1, &["activate", "orders", "--exec", "worker.sh"]);
    assert!(error.contains("./worker.sh"), "{error}");
}

/// What it prints in a terminal of that width; `None` where no program makes one.
#[cfg(target_os = "linux")]
fn in_terminal(shop: &Shop, columns: u16, no_color: Option<&str>, arguments: &str) -> Option<String> {
    let dialoq = assert_cmd::cargo::cargo_bin!("dialoq").display().to_string();
    let line = format!("stty cols {columns} rows 12; '{dialoq}' {arguments}");
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(shop.folder.path());
    command.env("DIALOQ_URL", shop.url()).env("TERM", "xterm").env_remove("NO_COLOR").env_remove("COLUMNS");
    if let Some(no_color) = no_color {
        command.env("NO_COLOR", no_color);
    }
    let output = command.stdin(std::process::Stdio::null()).output().ok()?;
    Some(text(&output.stdout).replace('\r', ""))
}

#[cfg(target_os = "linux")]
#[test]
fn a_terminal_gets_colours_and_lines_that_fit() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.order(&["a"]);
    shop.ok(&["pause", "orders", "--reason", "a long reason with many words that fits no narrow terminal on one line"]);
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE emails");
    let Some(shown) = in_terminal(&shop, 80, None, "status") else { return };
    assert!(shown.contains("\u{1b}[") && shown.contains("OFF"), "what wants a human is coloured: {shown:?}");
    for columns in [80, 60] {
        let plain = in_terminal(&shop, columns, Some("1"), "status --conversations").unwrap();
        assert!(!plain.contains('\u{1b}'), "NO_COLOR is obeyed: {plain:?}");
        let widest = plain.lines().map(|line| line.chars().count()).max().unwrap_or(0);
        assert!(widest <= columns.into(), "{columns}: {plain}");
        for word in ["checkout", "messages", "//shop/OrderService", "narrow", "CONVERSING", "emails"] {
            assert!(plain.contains(word), "{word} is in one piece: {plain}");
        }
    }
    let coloured = in_terminal(&shop, 80, Some(""), "status").unwrap();
    assert!(coloured.contains("\u{1b}["), "an empty NO_COLOR says nothing: {coloured:?}");
    // Without a terminal there are no colours.
    assert!(!shop.ok(&["status"]).contains('\u{1b}'));
}

#[test]
fn the_log_says_what_is_called_and_how_long_it_took() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let logged = |filter: &str, command: &[&str]| {
        let output = shop.command(command).env("DIALOQ_LOG", filter).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    let send = [SEND_ORDER, &["a"]].concat();
    let log = logged("dialoq=debug", &send);
    assert!(log.contains("send") && log.contains("time.busy"), "{log}");
    assert!(!log.contains('\u{1b}'), "no colours in a file: {log}");
    assert_eq!(logged("dialoq=warn", &send), "", "nothing is odd");
    // Commands that only read open the database in another way.
    for command in [&["status"][..], &["peek", "orders"], &["explain", "orders"], &["doctor"]] {
        let log = logged("dialoq=debug", command);
        assert!(log.contains("query") && log.contains("time.busy"), "{command:?}: {log}");
        assert!(!log.contains("SELECT"), "a text of the store's own is named by its first line: {log}");
    }
}

#[test]
fn status_lists_conversations_on_request() {
    let _limit = crate::limit();
    let shop = Shop::open();
    assert!(shop.ok(&["status", "--conversations"]).contains("Conversations\nnone"));
    let handles = [shop.order(&["a"]), shop.order(&["b"])];
    let printed = shop.ok(&["status", "--conversations"]);
    assert!(handles.iter().all(|handle| printed.contains(handle)), "{printed}");
    assert!(!shop.ok(&["status"]).contains(&handles[0]));
    let found = &shop.json(&["--json", "status", "--conversations"])[0];
    assert_eq!(found["sides"].as_array().map(Vec::len), Some(4), "{found}");
    assert!(found["queues"].is_array() && shop.json(&["--json", "status"])[0]["sides"].is_null());
    let one = shop.ok(&["status", "--conversations", "1"]);
    assert!(one.contains(&handles[0]) && !one.contains(&handles[1]) && one.contains("and more"), "{one}");
}

#[cfg(unix)]
#[test]
fn status_names_each_process_that_activates_a_queue() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let mut running: Vec<_> = (0..2).map(|_| shop.start(&["--json", "activate", "orders", "--exec", "cat"])).collect();
    running.iter_mut().for_each(|running| assert_eq!(event(running)["event"], "waiting"));
    let orders = || {
        let status = shop.json(&["--json", "status"]).remove(0);
        let queues = status["queues"].as_array().unwrap().clone();
        queues.into_iter().find(|queue| queue["name"] == "orders").unwrap()
    };
    // The second process reports its monitor to the first.
    let mut found = orders();
    while found["monitors"].as_array().map_or(0, Vec::len) < 2 {
        running.iter_mut().for_each(|running| assert!(running.is_running()));
        found = orders();
    }
    for monitor in found["monitors"].as_array().unwrap() {
        assert!(monitor["process_id"].as_u64().is_some() && monitor["state"] == "INACTIVE", "{monitor}");
    }
    let printed = shop.ok(&["status"]);
    assert!(
        printed.contains("orders is activated by process ") && printed.contains("(INACTIVE, 0 readers)"),
        "{printed}"
    );
    let explained = shop.ok(&["explain", "orders"]);
    assert!(explained.contains("- the queue is empty\n- 2 processes activate it; readers running: 0"), "{explained}");
    for mut running in running {
        running.signal("TERM");
        drop(running.output.take());
        running.end();
    }
}

#[cfg(unix)]
#[test]
fn show_and_explain_name_the_process_that_holds_a_group() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let handle = shop.order(&["a"]);
    let script = "cat > in_hand.new; mv in_hand.new in_hand; while [ ! -e go ]; do :; done";
    let mut running = shop.start(&["activate", "orders", "--exec", "sh", "--", "-c", script]);
    running.until_exists(&shop.path("in_hand"));
    let holder = format!("of process {}", running.id());
    let shown = shop.ok(&["show", &handle]);
    assert!(shown.contains("held by session") && shown.contains(&holder), "{shown}");
    let found = &shop.json(&["--json", "show", &handle])[0];
    assert_eq!(found["sides"][1]["held_by"]["process_id"], running.id(), "{found}");
    assert!(found["sides"][1]["held_by"]["since"].is_string() && found["sides"][0]["held_by"].is_null(), "{found}");
    let explained = shop.ok(&["explain", &handle]);
    assert!(explained.contains("! conversation group") && explained.contains(&holder), "{explained}");
    std::fs::write(shop.path("go"), "").unwrap();
    running.signal("TERM");
    drop(running.output.take());
    running.end();
    assert!(!shop.ok(&["show", &handle]).contains("held by"), "a process that has ended holds nothing");
}

/// A full disk, for example: the exit code alone said that something had failed, and the change was done.
#[cfg(target_os = "linux")]
#[test]
fn a_change_whose_result_cannot_be_printed_says_that_it_is_done() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let fails = |arguments: &[&str], input: &str| {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("dialoq"));
        std::fs::write(shop.path("input"), input).unwrap();
        command.stdin(std::fs::File::open(shop.path("input")).unwrap()).stdout(full).env("DIALOQ_URL", shop.url());
        let output = command.args(arguments).output().unwrap();
        let error = crate::shop::text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {error}");
        error
    };
    let cannot = "standard output cannot be written: No space left on device";
    for (arguments, input, done) in [
        (&["apply", "-"][..], "CREATE WORK QUEUE emails", "done"),
        (&["pause", "orders"], "", "done"),
        (&["--json", "resume", "orders"], "", "done"),
        (&["work", "push", "emails"], "one\n", "1 job was pushed"),
        (&["work", "push", "emails", "three"], "", "1 job was pushed"),
        (&[SEND_ORDER, &["a", "b"]].concat(), "", "2 messages were sent"),
        (&["receive", "orders"], "", "messages received: 0"),
    ] {
        let error = fails(arguments, input);
        let said = error.contains("60028") && error.contains(&format!("{done}; {cannot}"));
        assert!(said && !error.contains("caused by: [60028]"), "{arguments:?}: {error}");
    }
    assert!(fails(&["status"], "").starts_with(&format!("error[60028]: {cannot}")));
    assert!(fails(&["apply", "--dry-run", "-"], "CREATE QUEUE other").starts_with(&format!("error[60028]: {cannot}")));
    assert_eq!(shop.json(&["--json", "work", "list", "emails"]).len(), 2);
    assert_eq!(shop.bodies("orders"), ["a", "b"]);
}

/// A log on a full disk ended the readers, and none could be started again.
#[cfg(target_os = "linux")]
#[test]
fn readers_go_on_if_their_events_cannot_be_written() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE emails");
    let script = "cat >> seen; echo >> seen";
    let activate = ["--json", "activate", "orders", "--raw-body", "--exec", "sh", "--", "-c", script];
    let run = ["--json", "work", "run", "emails", "--exec", "sh", "--", "-c", script];
    for (arguments, code) in [(&activate[..], 0), (&run[..], 0)] {
        shop.order(&["a", "b"]);
        shop.ok(&["work", "push", "emails", "a"]);
        shop.ok(&["work", "push", "emails", "b"]);
        let _ = std::fs::remove_file(shop.path("seen"));
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("dialoq"));
        command.args(arguments).current_dir(shop.path(".")).env("DIALOQ_URL", shop.url());
        let stderr = std::process::Stdio::piped();
        let mut running = command.stdin(std::process::Stdio::null()).stdout(full).stderr(stderr).spawn().unwrap();
        while std::fs::read_to_string(shop.path("seen")).unwrap_or_default().lines().count() < 2 {
            assert!(running.try_wait().unwrap().is_none(), "{arguments:?} ended");
            std::thread::yield_now();
        }
        let term = std::process::Command::new("kill").args(["-TERM", &running.id().to_string()]).status().unwrap();
        assert!(term.success());
        let ended = running.wait_with_output().unwrap();
        let error = crate::shop::text(&ended.stderr);
        assert_eq!(ended.status.code(), Some(code), "{error}");
        assert!(error.contains(r#""event":"waiting""#), "{error}");
        assert!(error.contains(r#""event":"stopped""#), "{error}");
        assert_eq!(error.contains("No space left on device"), arguments == activate, "{error}");
    }
}
