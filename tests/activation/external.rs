//! External programs as readers. The programs are scripts for the shell.
#![cfg(unix)]

use crate::stage::{FIVE_SECONDS, Stage, ended, failed, row, soon, until};
use dialoq::Act;
use dialoq::activation::{Mode, Program, ReaderEvent, ReaderEvents, Readers};
use dialoq::protocol::Message;
use dialoq_test_support::program::write_program;
use std::path::PathBuf;
use std::time::Duration;

/// The shell running a script, with a file it may append to as `$0`.
pub(crate) fn script(text: &str, log: &Log) -> Program {
    Program::new("sh").args(["-c", text]).args([log.path.as_os_str()])
}

/// A file of its own for each test.
pub(crate) struct Log {
    pub(crate) path: PathBuf,
}

impl Log {
    pub(crate) fn new() -> Self {
        Self { path: std::env::temp_dir().join(format!("dialoq-program-{}", uuid::Uuid::new_v4())) }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Waits for the next start that fails, and gives its text.
async fn not_started(events: &mut ReaderEvents) -> String {
    loop {
        match soon("a start that fails", events.next()).await {
            Some(ReaderEvent::LaunchFailed { why }) => return why,
            Some(ReaderEvent::HandlerFailed { why, .. }) => panic!("rolled back: {why}"),
            Some(_) => {}
            None => panic!("the readers were stopped"),
        }
    }
}

pub(crate) async fn answer(stage: &Stage) -> Message {
    let home = stage.receive("home").top(1).wait_forever();
    soon("an answer", home.into_future()).await.unwrap().unwrap().first().clone()
}

pub(crate) async fn stop(readers: Readers) {
    soon("the stop", readers.stop()).await;
}

staged!(an_exit_code_of_zero_commits_with_the_answers, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let text = r#"cat >> "$0"; echo '{"send": {"body": {"done": true}}}'; echo '{"end": true}'"#;
    let readers = stage.activate("work", script(text, &log)).start();
    let dialog = stage.arrive(1).await[0];
    let done = answer(&stage).await;
    assert_eq!((done.handle(), &*done.text().unwrap()), (dialog, r#"{"done": true}"#));
    assert!(answer(&stage).await.is_end_dialog());
    stop(readers).await;
    let lines = log.lines();
    assert_eq!(lines.len(), 1);
    let line: serde_json::Value = serde_json::from_str(&lines[0]).unwrap();
    assert_eq!((&line["message_type_name"], &line["body"]), (&"DEFAULT".into(), &"work".into()));
});

staged!(it_gets_the_bare_body_and_its_environment_if_asked, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let text = r#"{ cat; echo " $DIALOQ_QUEUE $DIALOQ_SERVICE_NAME $DIALOQ_MESSAGE_TYPE_NAME $DIALOQ_PRIORITY"; } >> "$0"
        echo '{"end_error": {"code": 8, "description": "done <with> it"}}'"#;
    let readers = stage.activate("work", script(text, &log).raw_body()).start();
    stage.arrive(1).await;
    let error = answer(&stage).await.error().unwrap();
    assert_eq!((error.code, &*error.description), (8, "done <with> it"));
    stop(readers).await;
    assert_eq!(log.lines(), ["work work worker DEFAULT 5"]);
});

staged!(another_exit_code_garbage_or_a_signal_rolls_back, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let text = r#"echo run >> "$0"
        case $(wc -l < "$0" | tr -d ' ') in
            1) echo '{"end": true}'; exit 3 ;;
            2) echo 'all is well' ;;
            3) kill -9 $$ ;;
            *) echo '{"end": true}' ;;
        esac"#;
    let readers = stage.activate("work", script(text, &log)).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    for part in ["exit status: 3", "all is well", "signal: 9"] {
        let (code, why) = failed(&mut events).await;
        assert_eq!(code, 60025);
        assert!(why.contains(part), "{why}");
    }
    assert!(answer(&stage).await.is_end_dialog());
    assert!(stage.receive("home").await.unwrap().is_none(), "what a failed run answered was not done");
    stop(readers).await;
    assert_eq!(log.lines().len(), 4);
});

staged!(a_program_that_hangs_is_killed, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let text = r#"echo $$ >> "$0"; exec sleep 1000"#;
    let program = script(text, &log).timeout(Duration::from_secs(10));
    let readers = stage.activate("work", program).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    until("the program running", || log.lines().len() == 1).await;
    stage.advance(Duration::from_secs(10));
    let (code, why) = failed(&mut events).await;
    assert_eq!(code, 60024);
    assert!(why.contains("did not finish within 10s"), "{why}");
    let process = PathBuf::from("/proc").join(&log.lines()[0]);
    // It is killed at once and reaped by the runtime.
    until("the end of the program", || {
        let status = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
        !process.exists() || status.contains(") Z")
    })
    .await;
    soon("the abort", readers.abort()).await;
});

staged!(a_missing_program_is_tried_each_five_seconds_and_disables_nothing, async |store| {
    let stage = Stage::new(store).await;
    let readers = stage.activate("work", Program::new("/nowhere/to/be/found")).start();
    stage.arrive(1).await;
    for errors in 1..=7 {
        assert_eq!(row(&readers).await.activation_errors_total, errors);
        stage.advance(FIVE_SECONDS);
    }
    assert!(stage.catalog().queue("work").unwrap().is_receive_enabled);
    stop(readers).await;
});

staged!(a_start_that_fails_is_tried_each_five_seconds_and_disables_nothing, async |store| {
    for mode in [Mode::Message, Mode::Stream] {
        let (stage, log, shell) = (Stage::new(store).await, Log::new(), Log::new());
        // It may be run, but the system cannot: its interpreter is missing.
        write_program(&shell.path, "#!/nowhere/to/be/found\n");
        let text = r#"read -r line; echo "$line" >> "$0"; [ -z "$1" ] || echo '{"commit": true}'; cat"#;
        let stream = if mode == Mode::Stream { "stream" } else { "" };
        let program = Program::new(&shell.path).args(["-c", text]).args([log.path.as_os_str(), stream.as_ref()]);
        let readers = stage.activate("work", program.mode(mode).timeout(Duration::from_secs(1))).start();
        let mut events = readers.events();
        stage.arrive(1).await;
        for _ in 0..7 {
            let why = not_started(&mut events).await;
            assert!(why.contains("cannot be started") && why.contains("after #! in its first line"), "{why}");
            stage.advance(FIVE_SECONDS);
        }
        not_started(&mut events).await;
        assert!(stage.catalog().queue("work").unwrap().is_receive_enabled);
        std::fs::remove_file(&shell.path).unwrap();
        std::os::unix::fs::symlink("/bin/sh", &shell.path).unwrap();
        stage.advance(FIVE_SECONDS);
        until("the message handed over", || log.lines().len() == 1).await;
        stop(readers).await;
        assert!(stage.receive("work").await.unwrap().is_none());
    }
});

staged!(a_program_that_is_removed_while_it_works_disables_nothing, async |store| {
    let (stage, shell) = (Stage::new(store).await, Log::new());
    std::os::unix::fs::symlink("/bin/sh", &shell.path).unwrap();
    let program = Program::new(&shell.path).args(["-c", r#"rm "$0""#]).args([&shell.path]);
    stage.arrive(2).await;
    let readers = stage.activate("work", program).start();
    let mut events = readers.events();
    for _ in 0..7 {
        let why = not_started(&mut events).await;
        assert!(why.contains("was not found"), "{why}");
        stage.advance(FIVE_SECONDS);
    }
    assert!(stage.catalog().queue("work").unwrap().is_receive_enabled);
    stop(readers).await;
    assert!(stage.receive("work").await.unwrap().is_some(), "the second message waits");
});

staged!(a_stream_that_left_and_cannot_be_started_again_keeps_its_message, async |store| {
    let (stage, log, shell) = (Stage::new(store).await, Log::new(), Log::new());
    let appear = || std::os::unix::fs::symlink("/bin/sh", &shell.path).unwrap();
    appear();
    // It answers one message, and leaves when it is asked about the next.
    let text = r#"read -r line; rm "$1"; echo served >> "$0"; echo '{"end": true}'; echo '{"commit": true}'
        read -r line && echo asked >> "$0""#;
    let program = Program::new(&shell.path).args(["-c", text]).args([&log.path, &shell.path]).mode(Mode::Stream);
    let readers = stage.activate("work", program.timeout(Duration::from_secs(1))).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    assert!(answer(&stage).await.is_end_dialog());
    stage.arrive(1).await;
    for _ in 0..7 {
        let why = not_started(&mut events).await;
        assert!(why.contains("cannot be started"), "{why}");
        stage.advance(FIVE_SECONDS);
    }
    not_started(&mut events).await;
    assert!(stage.catalog().queue("work").unwrap().is_receive_enabled);
    appear();
    stage.advance(FIVE_SECONDS);
    assert!(answer(&stage).await.is_end_dialog());
    assert_eq!(log.lines(), ["served", "asked", "served"]);
    stop(readers).await;
});

staged!(a_stream_is_one_process_for_many_messages, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let text = r#"echo start >> "$0"
        while read -r line; do
            echo '{"send": {"body": "got it"}}'
            echo '{"end": true}'
            echo '{"commit": true}'
        done
        echo end >> "$0""#;
    let readers = stage.activate("work", script(text, &log).mode(Mode::Stream)).start();
    stage.arrive(5).await;
    for _ in 0..5 {
        assert_eq!(answer(&stage).await.text().unwrap(), "got it");
        assert!(answer(&stage).await.is_end_dialog());
    }
    stop(readers).await;
    assert_eq!(log.lines(), ["start", "end"], "it saw the end of its input");
});

staged!(a_stream_may_roll_back_die_or_talk_nonsense, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let text = r#"while read -r line; do
            echo run >> "$0"
            case $(wc -l < "$0" | tr -d ' ') in
                1) echo '{"send": {"body": "never"}}'; echo '{"rollback": "out of stock"}' ;;
                2) exit 4 ;;
                3) echo 'hm?' ;;
                *) echo '{"end": true}'; echo '{"commit": true}' ;;
            esac
        done"#;
    let readers = stage.activate("work", script(text, &log).mode(Mode::Stream)).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    for part in ["rolled back: out of stock", "exit status: 4", "the line is: hm?"] {
        let (code, why) = failed(&mut events).await;
        assert_eq!(code, 60025);
        assert!(why.contains(part), "{why}");
    }
    assert!(answer(&stage).await.is_end_dialog());
    assert_eq!(log.lines().len(), 4);
    stop(readers).await;
});

// Of a reply that the broker refused it was not said which message it answered.
staged!(a_reply_that_is_refused_names_the_message, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let text = r#"while read -r line; do
            echo run >> "$0"
            case $(wc -l < "$0") in
                1) echo '{"send": {"type": "//no/such", "body": 1}}' ;;
                2) echo '{"end": "01890a5d-ac96-774b-bcce-b302099a8057"}' ;;
                3) echo '{"end_error": {"code": 0, "description": "x"}}' ;;
                *) echo '{"end": true}' ;;
            esac
            echo '{"commit": true}'
        done"#;
    let readers = stage.activate("work", script(text, &log).mode(Mode::Stream)).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    for expected in [8428, 8426, 8424] {
        let (code, why) = failed(&mut events).await;
        assert_eq!(code, expected, "{why}");
        assert!(why.starts_with("message ") && why.contains(" of type 'DEFAULT' on conversation "), "{why}");
    }
    assert!(answer(&stage).await.is_end_dialog());
    stop(readers).await;
});

staged!(a_program_that_always_fails_disables_the_queue, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    let readers = stage.activate("work", script("exit 1", &log)).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    assert_eq!(ended(&mut events).await, 28086);
    assert!(!stage.catalog().queue("work").unwrap().is_receive_enabled);
    stop(readers).await;
});

staged!(a_program_may_write_much_before_it_reads_much, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    // Both are more than a pipe holds. Blank lines are no answers.
    let text = r#"yes '' | head -c 300000
        read -r line
        echo "${#line}" >> "$0"
        echo '{"end": true}'
        echo '{"commit": true}'"#;
    let readers = stage.activate("work", script(text, &log).mode(Mode::Stream)).start();
    let dialog = stage.begin_one().await;
    stage.send(dialog, "DEFAULT", &*"x".repeat(300_000)).await.unwrap();
    assert!(answer(&stage).await.is_end_dialog());
    stop(readers).await;
    let lengths: Vec<usize> = log.lines().iter().map(|line| line.parse().unwrap()).collect();
    assert!(matches!(lengths[..], [length] if length > 300_000), "{lengths:?}");
});

staged!(unrequested_output_answers_no_message, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    // The second commit of the first run would be taken for the answer to the next message.
    let text = r#"while read -r line; do
            echo run >> "$0"
            printf '{"end": true}\n{"commit": true}\n\n'
            [ "$(wc -l < "$0")" -gt 1 ] || echo '{"commit": true}'
            echo said >> "$0.said"
        done"#;
    let readers = stage.activate("work", script(text, &log).mode(Mode::Stream)).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    assert!(answer(&stage).await.is_end_dialog());
    let said = PathBuf::from(format!("{}.said", log.path.display()));
    until("what it said unasked", || said.exists()).await;
    stage.arrive(1).await;
    let (code, why) = failed(&mut events).await;
    assert_eq!(code, 60025);
    assert!(why.contains("unasked"), "{why}");
    assert!(answer(&stage).await.is_end_dialog(), "the message went to a new run of the program");
    stop(readers).await;
    std::fs::remove_file(&said).unwrap();
    assert_eq!(log.lines().len(), 2);
});

staged!(an_answer_without_end_has_an_end, async |store| {
    let (stage, log) = (Stage::new(store).await, Log::new());
    // Each line is short enough and blank; together they are more than the 96 MiB that an answer may have.
    let text = r#"read -r line
        for _ in $(seq 101); do printf '%1000000s\n' ''; done
        echo '{"end": true}'
        echo '{"commit": true}'"#;
    let readers = stage.activate("work", script(text, &log).mode(Mode::Stream)).start();
    let mut events = readers.events();
    stage.arrive(1).await;
    let (code, why) = failed(&mut events).await;
    assert_eq!(code, 60025);
    assert!(why.contains("answered with more than"), "{why}");
    soon("the abort", readers.abort()).await;
});

staged!(an_answer_to_a_side_that_has_ended_is_dropped_unless_asked_otherwise, async |store| {
    for (mode, text) in [
        (Mode::Message, r#"cat > "$0"; echo '{"send": {"body": {"done": true}, "end": true}}'"#),
        (
            Mode::Stream,
            r#"while read -r line; do echo '{"send": {"body": 1, "end": true}}'; echo '{"commit": true}'; done"#,
        ),
    ] {
        let (stage, log) = (Stage::new(store).await, Log::new());
        let dialog = stage.arrive(1).await[0];
        stage.end(dialog).await.unwrap();
        let second = stage.arrive(1).await[0];
        let readers = stage.activate("work", script(text, &log).mode(mode)).start();
        // The one reader serves the older conversation first.
        assert_eq!(answer(&stage).await.handle(), second);
        stop(readers).await;
        assert!(stage.catalog().queue("work").unwrap().is_receive_enabled);
        assert!(stage.receive("work").await.unwrap().is_none(), "its messages were received and committed");

        let dialog = stage.arrive(1).await[0];
        stage.end(dialog).await.unwrap();
        let readers = stage.activate("work", script(text, &log).mode(mode).fail_on_ended_peer()).start();
        let mut events = readers.events();
        assert_eq!(failed(&mut events).await.0, 8429);
        assert_eq!(ended(&mut events).await, 28086);
        stop(readers).await;
    }
});
