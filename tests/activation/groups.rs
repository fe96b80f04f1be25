//! A program and everything that it has started end together, and nothing that it leaves behind holds its reader.
#![cfg(unix)]

use crate::external::{Log, answer, script, stop};
use crate::stage::{Stage, failed, soon, until};
use dialoq::Act;
use dialoq::activation::{Mode, ReaderEvent};
use std::path::PathBuf;
use std::time::Duration;

/// Whether a process has ended. Its parent may not have reaped it yet, if that is not us.
fn has_ended(pid: &str) -> bool {
    let status = std::fs::read_to_string(PathBuf::from("/proc").join(pid).join("stat")).unwrap_or_default();
    status.is_empty() || status.contains(") Z")
}

/// Waits for the end of every process whose number is in the log.
async fn all_end(log: &Log, processes: usize) {
    let pids = log.lines();
    assert_eq!(pids.len(), processes, "{pids:?}");
    until("the end of the whole group", || pids.iter().all(|pid| has_ended(pid))).await;
}

/// Writes its own number and that of a process that it starts in the background, then waits. TERM does not end it.
const PARENT: &str = r#"trap '' TERM; echo $$ >> "$0"; sleep 1000 & echo $! >> "$0"; wait"#;

staged!(a_timeout_kills_the_programs_that_the_program_has_started, async |store| {
    for mode in [Mode::Message, Mode::Stream] {
        let (stage, log) = (Stage::new(store).await, Log::new());
        let program = script(PARENT, &log).mode(mode).timeout(Duration::from_secs(10));
        let readers = stage.activate("work", program).start();
        let mut events = readers.events();
        stage.arrive(1).await;
        until("the program running", || log.lines().len() == 2).await;
        stage.advance(Duration::from_secs(10));
        assert_eq!(failed(&mut events).await.0, 60024);
        soon("the abort", readers.abort()).await;
        let leader = PathBuf::from("/proc").join(&log.lines()[0]);
        until("the leader reaped", || !leader.exists()).await;
        let pids = log.lines();
        until("the end of the whole group", || pids.iter().all(|pid| has_ended(pid))).await;
    }
});

staged!(an_abort_kills_the_programs_that_the_program_has_started, async |store| {
    for mode in [Mode::Message, Mode::Stream] {
        let (stage, log) = (Stage::new(store).await, Log::new());
        let readers = stage.activate("work", script(PARENT, &log).mode(mode)).start();
        stage.arrive(1).await;
        until("the program running", || log.lines().len() == 2).await;
        soon("the abort", readers.abort()).await;
        all_end(&log, 2).await;
        let back = stage.receive("work").wait(Duration::from_secs(60)).await.unwrap();
        assert_eq!(back.expect("the message is back").len(), 1);
    }
});

staged!(a_background_process_ends_with_a_program_that_fails, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let readers = stage.activate("work", script(r#"sleep 1000 & echo $! >> "$0"; exit 3"#, &log)).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    let (code, why) = failed(&mut events).await;
    assert_eq!(code, 60025);
    assert!(why.contains("exit status: 3"), "{why}");
    soon("the abort", readers.abort()).await;
    let pids = log.lines();
    until("the end of the whole group", || pids.iter().all(|pid| has_ended(pid))).await;
});

staged!(a_background_process_holds_no_reader, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let text = r#"sleep 1000 & echo $! >> "$0"; echo '{"end": true}'; exit 0"#;
    let readers = stage.activate("work", script(text, &log)).start();
    stage.arrive(3).await;
    for _ in 0..3 {
        assert!(answer(&stage).await.is_end_dialog());
    }
    stop(readers).await;
    all_end(&log, 3).await;
});

// A process with a session of its own is not of the program's group, and holds its output open all the same.
staged!(a_daemon_holds_no_reader, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let text = r#"setsid sh -c 'echo $$ >> "$0"; exec sleep 1000' "$0" &
        until [ -s "$0" ]; do sleep 0.01; done
        echo '{"end": true}'"#;
    let readers = stage.activate("work", script(text, &log)).start();
    stage.arrive(1).await;
    assert!(answer(&stage).await.is_end_dialog());
    stop(readers).await;
    let daemon = &log.lines()[0];
    assert!(!has_ended(daemon), "it left the group on purpose");
    assert!(std::process::Command::new("kill").args(["-9", daemon]).status().unwrap().success());
});

staged!(input_that_no_process_reads_holds_no_reader, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    // The background process keeps the pipe of the input open and never reads it.
    let text = r#"exec 3<&0; sleep 1000 <&3 & echo $! >> "$0"; echo '{"end": true}'"#;
    let readers = stage.activate("work", script(text, &log)).start();
    let dialog = stage.begin_one().await;
    stage.send(dialog, "DEFAULT", &"x".repeat(1 << 20)).await.unwrap();
    assert!(answer(&stage).await.is_end_dialog());
    stop(readers).await;
    all_end(&log, 1).await;
});

staged!(a_stream_whose_program_dies_is_lost_at_once_whatever_holds_its_pipes, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let text = r#"sleep 1000 & echo $! >> "$0"; read -r line; exit 4"#;
    let readers = stage.activate("work", script(text, &log).mode(Mode::Stream)).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    let (code, why) = failed(&mut events).await;
    assert_eq!(code, 60025);
    assert!(why.contains("exit status: 4"), "{why}");
    soon("the abort", readers.abort()).await;
    let pids = log.lines();
    until("the end of the whole group", || pids.iter().all(|pid| has_ended(pid))).await;
});

staged!(a_stream_whose_program_ends_between_two_messages_rolls_nothing_back, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let text = r#"echo $$ >> "$0"; read -r line; echo '{"end": true}'; echo '{"commit": true}'"#;
    let readers = stage.activate("work", script(text, &log).mode(Mode::Stream)).start();
    let mut events = readers.events();
    for run in 1..=3 {
        stage.arrive(1).await;
        assert!(answer(&stage).await.is_end_dialog());
        let pids = log.lines();
        assert_eq!(pids.len(), run);
        until("the end of the program", || pids.iter().all(|pid| has_ended(pid))).await;
    }
    stop(readers).await;
    while let Some(event) = events.next().await {
        assert!(!matches!(event, ReaderEvent::HandlerFailed { .. }), "{event:?}");
    }
});

staged!(a_stream_whose_program_leaves_after_an_answer_fails_no_message, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    // It leaves at once, or when it may have been given the next message already.
    let text = r#"echo run >> "$0"; read -r line; echo '{"end": true}'; echo '{"commit": true}'
        [ "$(wc -l < "$0")" -gt 5 ] && sleep 0.05; exit 0"#;
    let readers = stage.activate("work", script(text, &log).mode(Mode::Stream)).start();
    let mut events = readers.events();
    stage.arrive(10).await;
    for _ in 0..10 {
        assert!(answer(&stage).await.is_end_dialog());
    }
    stop(readers).await;
    assert_eq!(log.lines().len(), 10);
    while let Some(event) = events.next().await {
        assert!(!matches!(event, ReaderEvent::HandlerFailed { .. }), "{event:?}");
    }
});

staged!(answers_of_a_stream_before_its_end_count, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let text = r#"sleep 1000 & echo $! >> "$0"; read -r line
        printf '{"send": {"body": "got it"}}\n\n{"end": true}\n{"commit": true}'"#;
    let readers = stage.activate("work", script(text, &log).mode(Mode::Stream)).start();
    stage.arrive(1).await;
    assert_eq!(answer(&stage).await.text().unwrap(), "got it");
    assert!(answer(&stage).await.is_end_dialog());
    stop(readers).await;
    all_end(&log, 1).await;
});

staged!(a_long_answer_and_an_output_closed_early_are_fine, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let text = r#"head -c 300000 /dev/zero | tr '\0' '\n'; echo '{"end": true}'; exec >&-; cat > "$0""#;
    let readers = stage.activate("work", script(text, &log)).start();
    stage.arrive(1).await;
    assert!(answer(&stage).await.is_end_dialog());
    stop(readers).await;
    assert_eq!(log.lines().len(), 1, "it ran to its end");
});
