//! `dialoq work`

use crate::shop::{Shop, text};
#[cfg(unix)]
use dialoq_test_support::program::write_program;
use serde_json::Value;

/// A shop with the work queue `emails` and so many jobs.
fn emails(options: &str, jobs: usize) -> Shop {
    let shop = Shop::empty();
    shop.ok_with(&["apply", "-"], format!("CREATE WORK QUEUE emails {options};").as_bytes());
    for job in 0..jobs {
        shop.ok(&["work", "push", "emails", &job.to_string()]);
    }
    shop
}

fn dead(shop: &Shop) -> Vec<Value> {
    shop.json(&["--json", "work", "list", "emails", "--state", "dead"])
}

#[cfg(unix)]
#[test]
fn a_program_that_fails_leaves_its_last_words_with_the_job() {
    let _limit = crate::limit();
    let shop = emails("WITH MAX_ATTEMPTS = 1", 1);
    let script = "i=0; while [ $i -lt 300 ]; do echo 'a line of no interest' >&2; i=$((i+1)); done; echo 'no such address' >&2; exit 3";
    let running = shop.start(&["work", "run", "emails", "--activated", "--exec", "sh", "--", "-c", script]);
    let failed = loop {
        if let [job] = &dead(&shop)[..] {
            break job["last_error"].as_str().unwrap().to_owned();
        }
    };
    assert!(failed.starts_with("program 'sh' ended with exit status: 3: "), "{failed}");
    assert!(failed.ends_with("no interest\nno such address"), "{failed}");
    assert!(failed.len() < 2100, "{}", failed.len());
    running.interrupt();
    let (code, error) = running.end();
    assert_eq!(code, Some(130), "{error}");
    let first = "waiting for jobs in work queue 'emails', 1 reader, started while there are jobs; ctrl-C ends\n";
    assert!(error.starts_with(first), "{error}");
    assert!(
        error.contains("\njob 1: attempt 1 failed: program 'sh' ended with exit status: 3: ")
            && error.ends_with("stopped: 0 jobs completed, 1 failed, 0 lost\n"),
        "{error}"
    );
}

/// It met programs that had no group of their own yet: one in seven was a failed attempt at a job that no program had seen.
#[cfg(target_os = "linux")]
#[test]
fn ctrl_c_on_a_terminal_ends_no_program_that_is_being_started() {
    let _limit = crate::limit();
    const ROUNDS: i64 = 40;
    const JOBS: usize = 20_000;
    let shop = emails("WITH MAX_ATTEMPTS = 1", 0);
    shop.ok_with(&["work", "push", "emails"], "x\n".repeat(JOBS).as_bytes());
    let file = rusqlite::Connection::open(shop.path("shop.db")).unwrap();
    let left = || file.query_row("SELECT count(*) FROM dialoq_job", (), |row| row.get::<_, i64>(0)).unwrap();
    for round in 0..ROUNDS {
        let before = left();
        assert!(before > 0, "round {round} has no jobs");
        let mut running = shop.start_in_a_group(&["work", "run", "emails", "--readers", "4", "--exec", "true"]);
        running.until_it_listens();
        // At another moment in each round.
        while left() + round % 7 >= before {
            std::thread::yield_now();
        }
        running.interrupt_its_group();
        let (code, error) = running.end();
        assert_eq!(code, Some(130), "{error}");
        assert!(error.ends_with(" completed, 0 failed, 0 lost\n"), "round {round}: {error}");
    }
    assert!(dead(&shop).is_empty());
}

#[test]
fn one_job_is_called_one_job() {
    let _limit = crate::limit();
    let shop = emails("", 2);
    assert!(shop.fails(6, &["work", "cancel", "--job", "1"]).contains("nothing was changed; --yes does it"));
    shop.fails(6, &["--json", "work", "cancel", "emails"]);
    // Without a filter it would be all jobs of all work queues.
    assert!(shop.fails(2, &["work", "cancel", "--yes"]).contains("--all"));
    assert!(shop.fails(2, &["work", "redrive", "--yes"]).contains("--all"));
    shop.fails(2, &["work", "cancel", "--all", "emails"]);
    assert_eq!(shop.ok(&["work", "cancel", "--job", "1", "--yes"]).trim(), "cancelled 1 job");
}

#[test]
fn a_refused_note_leaves_the_lease_as_it_is() {
    let _limit = crate::limit();
    let shop = emails("", 1);
    let taken = &shop.json(&["--json", "work", "take", "emails", "--lease", "10m"])[0];
    let [job, token] = ["job", "token"].map(|name| taken[name].to_string());
    let until = || shop.json(&["--json", "work", "list", "--job", &job])[0]["due_at"].clone();
    let before = until();
    assert!(before.is_string(), "{before}");
    let long = "x".repeat(3001);
    let refused = shop.fails(1, &["work", "extend", &job, &token, "--lease", "2h", "--progress", &long]);
    assert!(refused.contains("60005"), "{refused}");
    assert_eq!(until(), before);
    shop.ok(&["work", "extend", &job, &token, "--lease", "2h", "--progress", "half"]);
    assert_ne!(until(), before);
    shop.fails(2, &["work", "list", "emails", "--limit", "0"]);
}

#[test]
fn a_report_on_a_job_that_no_reader_took_says_so() {
    let _limit = crate::limit();
    let shop = emails("", 1);
    let refused = shop.fails(1, &["work", "complete", "1", "7"]);
    assert!(refused.contains("60042") && refused.contains("no reader has taken it yet"), "{refused}");
}

#[cfg(unix)]
#[test]
fn jobs_from_standard_input_are_pushed_as_they_come_until_an_interrupt() {
    let _limit = crate::limit();
    let shop = emails("", 0);
    let mut running = shop.start(&["work", "push", "emails"]);
    let mut input = running.input.take().unwrap();
    for (place, lines) in [(1, "one\n"), (2, "two\n"), (3, "three\nwithout its end")] {
        std::io::Write::write_all(&mut input, lines.as_bytes()).unwrap();
        // No line comes after it.
        assert_eq!(running.line(), format!("job {place}\n"));
    }
    running.interrupt();
    let (code, error) = running.end();
    assert_eq!((code, error.trim()), (Some(130), "interrupted; pushed 3 jobs"));
    assert_eq!(shop.json(&["--json", "work", "list", "emails"]).len(), 3);
    drop(input);
}

#[test]
fn a_line_that_is_no_text_ends_the_push_after_the_lines_before_it() {
    let _limit = crate::limit();
    let shop = emails("", 0);
    let refused = shop.fails_with(1, &["work", "push", "emails"], b"one\ntwo\n\xff\nfour\n");
    assert!(refused.contains("standard input"), "{refused}");
    assert_eq!(shop.json(&["--json", "work", "list", "emails"]).len(), 2);
    let many: String = (0..2500).map(|line| format!("{line}\n")).collect();
    assert_eq!(shop.ok_with(&["work", "push", "emails"], many.as_bytes()).lines().count(), 2500);
}

#[cfg(unix)]
#[test]
fn the_output_of_a_program_is_the_result_byte_by_byte() {
    let _limit = crate::limit();
    for (script, column, right) in [
        (r"printf 'a\n\n  \nb\377\n'", "result_base64", "YQoKICAKYv8="),
        (r"printf 'a\n\n  b\n\n'", "result", "a\n\n  b\n"),
        ("true", "result", "null"),
    ] {
        let shop = emails("WITH MAX_ATTEMPTS = 1", 1);
        let running = shop.start(&["work", "run", "emails", "--exec", "sh", "--", "-c", script]);
        let job = loop {
            let job = shop.json(&["--json", "work", "show", "1"]).remove(0);
            if job["finished_at"].is_string() || job["state"] == "dead" {
                break job;
            }
        };
        let result = job[column].as_str().unwrap_or("null");
        assert_eq!((&job["finished_as"], result), (&Value::from("done"), right), "{script}: {job}");
        running.interrupt();
        assert_eq!(running.end().0, Some(130));
    }
}

/// A check by exit code did not see work queues.
#[test]
fn the_doctor_names_faults_of_work_queues() {
    let _limit = crate::limit();
    let shop = emails("WITH MAX_ATTEMPTS = 1", 1);
    let faults = |options: &[&str]| {
        let output = shop.run_with(&[&["--json", "doctor"], options].concat(), b"");
        let found: Vec<Value> = text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(output.status.code(), Some(if found.is_empty() { 0 } else { 3 }));
        found
    };
    assert!(faults(&[]).is_empty(), "it has not waited for long");
    let waiting = &faults(&["--after", "0s"])[0];
    assert_eq!((&waiting["kind"], &waiting["subject"]), (&"waiting_jobs".into(), &"emails".into()));
    let taken = shop.json(&["--json", "work", "take", "emails"]).remove(0);
    assert!(faults(&["--after", "0s"]).is_empty(), "a reader has it");
    shop.ok(&["work", "fail", &taken["job"].to_string(), &taken["token"].to_string(), "no such address"]);
    let dead = &faults(&[])[0];
    assert_eq!((&dead["kind"], &dead["subject"], &dead["amount"]), (&"dead_jobs".into(), &"emails".into(), &1.into()));
    let output = shop.run_with(&["doctor", "--after", "2d"], b"");
    let shown = text(&output.stdout);
    assert!(shown.starts_with("- work queue 'emails' has 1 dead job, the first for"), "{shown}");
    assert!(shown.contains("`dialoq work list emails --state dead`"), "{shown}");
    shop.ok(&["work", "redrive", "emails", "--yes"]);
    shop.ok(&["work", "pause", "emails"]);
    assert_eq!(faults(&[])[0]["kind"], "paused_work_queue");
    shop.ok(&["work", "resume", "emails"]);
    shop.ok(&["work", "take", "emails", "--pop"]);
    assert!(faults(&["--after", "0s"]).is_empty());
    assert_eq!(shop.ok(&["doctor", "--after", "0s"]), "no fault was found\n");
}

/// `dialoq explain` says that this list shows when.
#[test]
fn the_list_says_when_a_scheduled_job_is_due() {
    let _limit = crate::limit();
    let shop = emails("", 0);
    shop.ok(&["work", "push", "emails", "later", "--after", "90m"]);
    let explained = shop.ok(&["explain", "emails"]);
    assert!(explained.contains("`dialoq work list emails --state scheduled` shows when"), "{explained}");
    let list = shop.ok(&["work", "list", "emails", "--state", "scheduled"]);
    assert!(list.contains("scheduled, due in 1 h 29 min"), "{list}");
}

#[test]
fn the_list_says_that_there_are_more_jobs_than_it_shows() {
    let _limit = crate::limit();
    let shop = emails("WITH HISTORY = ON", 3);
    let more = "and more; --limit shows more than 2\n";
    assert!(shop.ok(&["work", "list", "emails", "--limit", "2"]).ends_with(more));
    assert!(!shop.ok(&["work", "list", "emails", "--limit", "3"]).contains("and more"));
    assert_eq!(shop.json(&["--json", "work", "list", "emails", "--limit", "2"]).len(), 2);
    shop.ok(&["work", "cancel", "emails", "--yes"]);
    assert!(shop.ok(&["work", "list", "emails", "--finished", "--limit", "2"]).ends_with(more));
    assert!(!shop.ok(&["work", "list", "emails", "--finished", "--limit", "3"]).contains("and more"));
}

#[test]
fn a_queue_of_the_other_kind_is_named() {
    let _limit = crate::limit();
    let shop = emails("", 0);
    shop.ok_with(&["apply", "-"], b"CREATE QUEUE orders");
    for verb in ["receive", "peek", "pause"] {
        let refused = shop.fails(1, &[verb, "emails"]);
        assert!(refused.contains("60002") && refused.contains("there is a work queue of this name"), "{refused}");
    }
    for verb in ["take", "pause"] {
        let refused = shop.fails(1, &["work", verb, "orders"]);
        assert!(refused.contains("60002") && refused.contains("there is a queue of messages"), "{refused}");
    }
}

#[test]
fn a_redrive_of_another_state_and_a_misspelled_queue_are_refused() {
    let _limit = crate::limit();
    let shop = emails("WITH MAX_ATTEMPTS = 1", 1);
    let token = shop.json(&["--json", "work", "take", "emails"])[0]["token"].to_string();
    shop.ok(&["work", "fail", "1", &token, "no such address"]);
    let refused = shop.fails(2, &["work", "redrive", "emails", "--state", "scheduled", "--yes"]);
    assert!(refused.contains("only dead jobs"), "{refused}");
    assert_eq!(dead(&shop).len(), 1);
    for command in
        [&["work", "list", "emial"][..], &["work", "redrive", "emial"], &["work", "cancel", "emial", "--yes"]]
    {
        let refused = shop.fails(1, command);
        assert!(refused.contains("60002") && refused.contains("'emial'"), "{refused}");
    }
    shop.ok(&["work", "redrive", "emails", "--state", "dead", "--yes"]);
    assert!(dead(&shop).is_empty());
}

#[cfg(unix)]
#[test]
fn a_worker_says_what_it_waits_for() {
    let _limit = crate::limit();
    let shop = emails("WITH STATUS = OFF", 1);
    let mut running = shop.start(&["--json", "work", "run", "emails", "--exec", "true", "--readers", "3"]);
    let line = running.line();
    let waiting: Value = serde_json::from_str(&line).unwrap();
    let expected = serde_json::json!({ "event": "waiting", "queue": "emails", "readers": 3, "is_paused": true });
    assert_eq!(waiting, expected);
    running.interrupt();
    drop(running.output.take());
    assert_eq!(running.end().0, Some(130));
    let mut running = shop.start(&["work", "run", "emails", "--exec", "true"]);
    assert_eq!(running.error_line(), "waiting for jobs in work queue 'emails', 1 reader; ctrl-C ends\n");
    let paused = "work queue 'emails' is paused, so it hands out no job; `dialoq work resume emails` ends that\n";
    assert_eq!(running.error_line(), paused);
    running.interrupt();
    running.end();
}

#[cfg(unix)]
#[test]
fn the_events_of_a_worker_are_lines_on_standard_output() {
    let _limit = crate::limit();
    let shop = emails("WITH MAX_ATTEMPTS = 1", 1);
    let mut running = shop.start(&["--json", "work", "run", "emails", "--exec", "false"]);
    assert!(running.line().contains("\"waiting\""));
    let failed: Value = serde_json::from_str(&running.line()).unwrap();
    assert_eq!((&failed["event"], &failed["job"], &failed["attempt"]), (&"failed".into(), &1.into(), &1.into()));
    assert!(failed["why"].as_str().unwrap().contains("exit status: 1"), "{failed}");
    running.interrupt();
    let stopped: Value = serde_json::from_str(&running.line()).unwrap();
    assert_eq!(
        stopped,
        serde_json::json!({ "event": "stopped", "completed": 0, "failed": 1, "lost": 0, "unreported": 0 })
    );
    let (code, error) = running.end();
    assert!(code == Some(130) && !error.contains("event"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_job_that_is_cancelled_while_its_program_runs_is_named() {
    let _limit = crate::limit();
    let shop = emails("WITH LEASE_MS = 1000", 1);
    let mut running = shop.start(&["--json", "work", "run", "emails", "--exec", "sleep", "--", "1000"]);
    running.line();
    while shop.json(&["--json", "work", "list", "emails"])[0]["state"] != "taken" {}
    shop.ok(&["work", "cancel", "--job", "1", "--yes"]);
    let lost: Value = serde_json::from_str(&running.line()).unwrap();
    assert_eq!((&lost["event"], &lost["job"], &lost["attempt"]), (&"lost".into(), &1.into(), &1.into()));
    assert!(lost["why"].as_str().unwrap().contains("60040"), "{lost}");
    running.interrupt();
    assert_eq!(running.end().0, Some(130));
}

#[test]
fn the_content_of_a_job_is_shown_until_it_is_finished() {
    let _limit = crate::limit();
    let shop = emails("", 0);
    shop.ok_with(&["work", "push", "emails"], b"to ann\n");
    assert!(shop.ok(&["work", "show", "1"]).contains("to ann"));
    assert_eq!(shop.json(&["--json", "work", "show", "1"])[0]["body"], "to ann");
    assert!(shop.json(&["--json", "work", "list", "emails"])[0].get("body").is_none());
    shop.ok(&["work", "cancel", "--job", "1", "--yes"]);
    let shown = &shop.json(&["--json", "work", "show", "1"])[0];
    assert!(shown["finished_as"] == "cancelled" && shown.get("body").is_none(), "{shown}");
}

#[cfg(unix)]
#[test]
fn a_worker_says_that_its_queue_was_dropped_and_goes_on_when_it_is_there_again() {
    let _limit = crate::limit();
    let shop = emails("", 0);
    let mut running = shop.start(&["work", "run", "emails", "--exec", "true"]);
    running.error_line();
    shop.ok_with(&["apply", "-"], b"DROP WORK QUEUE emails");
    while !running.error_line().contains("warning: work queue 'emails' was dropped") {}
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE emails");
    shop.ok(&["work", "push", "emails", "1"]);
    while shop.json(&["--json", "work", "list"])[0]["finished"] != 1 {}
    running.interrupt();
    assert_eq!(running.end().0, Some(130));
}

#[test]
fn a_take_from_a_paused_queue_says_that_it_is_paused() {
    let _limit = crate::limit();
    let shop = emails("WITH STATUS = OFF", 1);
    let none = shop.fails(3, &["work", "take", "emails"]);
    assert!(none.contains("work queue 'emails' is paused") && none.contains("`dialoq work resume emails`"), "{none}");
}

/// The job that came next was taken, could not be printed, and was lost, or had a failed attempt at the end of its lease.
#[cfg(unix)]
#[test]
fn a_take_that_waits_ends_with_the_reader_of_its_output() {
    let _limit = crate::limit();
    let shop = emails("", 0);
    for hold in [&["--pop"][..], &[]] {
        let mut running = shop.start(&[&["work", "take", "emails", "--wait", "1h"][..], hold].concat());
        drop(running.output.take());
        let (code, error) = running.end();
        assert_eq!((code, error.as_str()), (Some(0), ""), "{hold:?}");
    }
}

#[test]
fn a_reader_of_the_output_that_has_gone_keeps_no_line_from_being_pushed() {
    let _limit = crate::limit();
    let shop = emails("", 0);
    let mut running = shop.start(&["work", "push", "emails"]);
    drop(running.output.take());
    let mut input = running.input.take().unwrap();
    let lines: String = (0..2500).map(|line| format!("{line}\n")).collect();
    std::io::Write::write_all(&mut input, lines.as_bytes()).unwrap();
    drop(input);
    let (code, error) = running.end();
    assert_eq!((code, error.as_str()), (Some(0), ""));
    assert_eq!(shop.json(&["--json", "work", "list"])[0]["ready"], 2500);
}

#[test]
fn a_refused_line_is_named_and_those_before_it_are_pushed() {
    let _limit = crate::limit();
    let shop = emails("", 0);
    let url = format!("{}?max_body_bytes=9", shop.url());
    let lines = "\u{feff}one\r\ntwo\n\na line that is too long\nfive\n";
    let refused = shop.fails_with(1, &["--db", &url, "work", "push", "emails"], lines.as_bytes());
    assert!(
        refused.starts_with("error[8459]: line 4 of standard input: ") && refused.contains("before it"),
        "{refused}"
    );
    let jobs = shop.json(&["--json", "work", "take", "emails", "--count", "9"]);
    let bodies: Vec<_> = jobs.iter().map(|job| job["body"].as_str().unwrap_or_default()).collect();
    assert_eq!(bodies, ["one", "two", ""]);
    let refused = shop.fails_with(1, &["work", "push", "email"], b"one\n");
    assert!(refused.contains("line 1") && refused.contains("nothing was pushed; did you mean 'emails'"), "{refused}");
}

#[cfg(unix)]
#[test]
fn a_worker_whose_store_has_failed_ends() {
    let _limit = crate::limit();
    for more in [&[][..], &["--activated"]] {
        let shop = emails("", 1);
        // The job's row is gone when the worker completes it.
        let fifo = shop.path("gone");
        assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
        let program = ["--exec", "cat", "--", fifo.to_str().unwrap()];
        let running = shop.start(&[&["work", "run", "emails"], more, &program].concat());
        // Opened once the program reads it, so the job is taken.
        let to_program = std::fs::File::create(&fifo).unwrap();
        let file = rusqlite::Connection::open(shop.path("shop.db")).unwrap();
        file.execute("delete from dialoq_job", ()).unwrap();
        drop((file, to_program));
        let (code, error) = running.end();
        assert_eq!(code, Some(1), "{error}");
        assert!(error.contains("error[60015]") && error.contains("opened again"), "{error}");
    }
}

#[cfg(unix)]
#[test]
fn a_worker_whose_store_has_failed_ends_although_a_program_cannot_be_started() {
    let _limit = crate::limit();
    let shop = emails("", 1);
    let (fifo, program) = (shop.path("gone"), shop.path("program"));
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    write_program(&program, "#!/bin/sh\nexec cat gone\n");
    let mut running = shop.start(&["work", "run", "emails", "--readers", "2", "--exec", "./program"]);
    // Opened once the program reads it.
    let to_program = std::fs::File::create(&fifo).unwrap();
    std::fs::remove_file(&program).unwrap();
    shop.ok(&["work", "push", "emails", "2"]);
    while !running.error_line().contains("not started") {}
    let file = rusqlite::Connection::open(shop.path("shop.db")).unwrap();
    file.execute("delete from dialoq_job", ()).unwrap();
    drop((file, to_program));
    let (code, error) = running.end();
    assert!(code == Some(1) && error.contains("error[60015]"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_program_that_cannot_be_started_yet_costs_its_job_no_attempt() {
    let _limit = crate::limit();
    let shop = emails("WITH MAX_ATTEMPTS = 1", 1);
    let program = shop.path("program");
    write_program(&program, "#!/no/such/interpreter\n");
    let mut running = shop.start(&["--json", "work", "run", "emails", "--exec", program.to_str().unwrap()]);
    assert!(running.line().contains("waiting"));
    while shop.json(&["--json", "work", "show", "1"])[0]["state"] != "taken" {}
    write_program(&program, "#!/bin/sh\n");
    while shop.json(&["--json", "work", "show", "1"])[0]["finished_as"] != "done" {}
    running.interrupt();
    let (code, error) = running.end();
    let first: Value = serde_json::from_str(error.lines().next().unwrap()).unwrap();
    let warning = first["warning"].as_str().unwrap_or_default();
    assert!(code == Some(130) && warning.starts_with("not started: program"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_worker_that_ends_before_its_program_could_be_started_costs_its_job_no_attempt() {
    let _limit = crate::limit();
    let shop = emails("WITH MAX_ATTEMPTS = 1; CREATE WORK QUEUE others", 1);
    write_program(&shop.path("program"), "#!/no/such/interpreter\n");
    let stops = |activated: &[&str]| {
        let mut running = shop.start(&[&["work", "run", "emails", "--exec", "./program"], activated].concat());
        while !running.error_line().contains("not started") {}
        assert_eq!(shop.json(&["--json", "work", "show", "1"])[0]["state"], "taken");
        running.interrupt();
        let (code, error) = running.end();
        assert!(code == Some(130) && error.contains("stopped: 0 jobs completed, 0 failed, 0 lost"), "{error}");
        // Where another process owns the file, the job is given back a moment after the worker's end.
        let job = loop {
            let job = shop.json(&["--json", "work", "show", "1"])[0].clone();
            if job["state"] != "taken" {
                break job;
            }
        };
        assert_eq!((&job["state"], &job["attempts"]), (&"ready".into(), &0.into()), "{job}");
    };
    stops(&[]);
    // The others work through the owner of the file.
    let mut owner = shop.start(&["work", "run", "others", "--exec", "true"]);
    owner.error_line();
    stops(&[]);
    stops(&["--activated"]);
}

#[cfg(unix)]
#[test]
fn signals_that_come_together_let_running_programs_end() {
    let _limit = crate::limit();
    let shop = emails("WITH MAX_ATTEMPTS = 1", 1);
    let script = "touch begun; while [ ! -e go ]; do sleep 0.01; done";
    let mut running = shop.start(&["work", "run", "emails", "--exec", "sh", "--", "-c", script]);
    running.until_exists(&shop.path("begun"));
    // Both come when it goes on, however slow this test is.
    ["STOP", "TERM", "INT", "CONT"].into_iter().for_each(|signal| running.signal(signal));
    while !running.error_line().contains("waiting for the programs that run") {}
    std::fs::write(shop.path("go"), "").unwrap();
    let (code, error) = running.end();
    assert!(code == Some(0) && error.contains("stopped: 1 job completed, 0 failed, 0 lost"), "{error}");
}

#[cfg(unix)]
#[test]
fn a_stalled_standard_error_holds_up_only_the_programs_that_write_to_it() {
    let _limit = crate::limit();
    // More of them than threads that drive tasks.
    let loud = std::thread::available_parallelism().map_or(8, usize::from) + 1;
    let shop = emails("", loud);
    let readers = (loud + 1).to_string();
    let script = "read -r job; [ \"$job\" = quiet ] || { touch \"loud-$job\"; head -c 300000 /dev/zero >&2; }";
    let run = ["work", "run", "emails", "--readers", &readers, "--exec", "sh", "--", "-c", script];
    let mut running = shop.start(&run);
    (0..loud).for_each(|job| running.until_exists(&shop.path(&format!("loud-{job}"))));
    shop.ok(&["work", "push", "emails", "quiet"]);
    let quiet = (loud + 1).to_string();
    while shop.json(&["--json", "work", "show", &quiet])[0]["finished_as"] != "done" {}
    running.interrupt();
    let (code, error) = running.end();
    assert_eq!(code, Some(130), "{}", error.len());
    assert!(error.ends_with(&format!("stopped: {quiet} jobs completed, 0 failed, 0 lost\n")), "{}", error.len());
}

/// The readers wrote the events themselves: once the pipe was full, no job was worked on and no lease was prolonged.
#[cfg(unix)]
#[test]
fn events_that_are_not_read_hold_up_no_job() {
    let _limit = crate::limit();
    // As bytes more than a pipe has room for.
    const FAILURES: usize = 900;
    let shop = emails("WITH MAX_ATTEMPTS = 1", 0);
    shop.ok_with(&["work", "push", "emails"], "fails\n".repeat(FAILURES).as_bytes());
    let script = "read -r job; [ \"$job\" = quiet ]";
    let mut running =
        shop.start(&["--json", "work", "run", "emails", "--readers", "8", "--exec", "sh", "--", "-c", script]);
    running.line();
    while shop.json(&["--json", "work", "list"])[0]["dead"] != FAILURES {}
    shop.ok(&["work", "push", "emails", "quiet"]);
    let quiet = (FAILURES + 1).to_string();
    while shop.json(&["--json", "work", "show", &quiet])[0]["finished_as"] != "done" {}
    running.interrupt();
    let (code, error) = running.end();
    assert!(code == Some(130) && error.contains("1 job completed, 900 failed, 0 lost"), "{code:?}, {error}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_commands_whose_output_is_not_read() {
    let _limit = crate::limit();
    let shop = emails("", 0);
    let lines: String = (0..20_000).map(|line| format!("{line}\n")).collect();
    let mut push = shop.start(&["--json", "work", "push", "emails"]);
    let mut input = push.input.take().unwrap();
    let writes = std::thread::spawn(move || drop(std::io::Write::write_all(&mut input, lines.as_bytes())));
    std::io::Read::read_exact(push.output.as_mut().unwrap().get_mut(), &mut [0]).unwrap();
    // Until more jobs are pushed than the pipe has room for: then it prints.
    let printed_bytes =
        |jobs: u64| (1..=jobs).map(|job| format!("{{\"is_new\":true,\"job\":{job}}}\n").len()).sum::<usize>();
    while shop.json(&["--json", "work", "list"])[0]["ready"].as_u64().is_none_or(|jobs| printed_bytes(jobs) < 66_000) {}
    push.interrupt();
    let (code, error) = push.end();
    writes.join().unwrap();
    let said =
        error.starts_with("{\"interrupted\":\"interrupted; ") && error.contains(" jobs were pushed; standard output");
    assert!(code == Some(130) && said, "{code:?}, {error}");

    shop.ok(&["work", "push", "emails", "--type", "long", &"x".repeat(100_000)]);
    let mut take = shop.start(&["--json", "work", "take", "emails", "--type", "long"]);
    std::io::Read::read_exact(take.output.as_mut().unwrap().get_mut(), &mut [0]).unwrap();
    take.interrupt();
    let (code, error) = take.end();
    assert!(
        code == Some(130) && error.contains("interrupted; 1 job was taken; standard output is not read"),
        "{error}"
    );
}

/// "all" in its place read as the total of the readers.
#[test]
fn a_reader_without_a_name_is_no_total() {
    let _limit = crate::limit();
    let shop = emails("", 1);
    shop.ok(&["work", "take", "emails", "--pop", "--name", ""]);
    let by_reader = shop.ok(&["work", "stats", "--by", "reader"]);
    assert!(by_reader.contains("–") && !by_reader.contains("all"), "{by_reader}");
    assert!(shop.ok(&["work", "stats"]).contains("all"));
}

/// It waited for ever, and said nothing.
#[test]
fn a_run_whose_takes_would_all_be_refused_does_not_begin() {
    let _limit = crate::limit();
    let shop = emails("", 1);
    let long = "x".repeat(200);
    for option in ["--name", "--type"] {
        let error = shop.fails(1, &["work", "run", "emails", option, &long, "--exec", "true"]);
        assert!(error.starts_with("error[60005]: ") && error.contains("a text of 200 characters"), "{error}");
    }
}
