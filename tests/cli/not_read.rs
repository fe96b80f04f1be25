//! Commands whose standard error is a pipe that is full: signals end them all the same.
#![cfg(target_os = "linux")]

use crate::shop::{Shop, listens};
use assert_cmd::cargo::cargo_bin;
use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

/// It is waited for with a bound, because what the test asks is whether it ends.
const SOON: Duration = Duration::from_secs(60);

/// Sends the signal until the command ends; gives its exit code. Signals that come together count as one.
fn code_after(child: &mut std::process::Child, signal: &str) -> Option<i32> {
    let began = std::time::Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        assert!(began.elapsed() < SOON, "{signal} does not end it");
        let sent = Command::new("kill").args(["-s", signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
    }
}

/// The second call to kill the programs waited for the first, which waited for its report to be read.
#[test]
fn two_signals_end_readers_whose_programs_fill_standard_error() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE emails");
    shop.ok(&["work", "push", "emails", "x"]);
    shop.order(&["x"]);
    let script = "touch begun-$0; head -c 300000 /dev/zero >&2; sleep 1000";
    for (command, name) in [(&["work", "run", "emails"][..], "run"), (&["activate", "orders"], "activate")] {
        for form in [&["--json"][..], &[]] {
            let name = format!("{name}{}", form.len());
            let arguments = [form, command, &["--exec", "sh", "--", "-c", script, &name]].concat();
            let mut running = shop.start(&arguments);
            running.until_exists(&shop.path(&format!("begun-{name}")));
            assert_eq!(code_after(&mut running.child, "TERM"), Some(130), "{arguments:?}");
            shop.ok_with(&["work", "push", "emails", "x"], b"");
            shop.order(&["x"]);
        }
    }
}

#[test]
fn a_signal_ends_a_command_that_cannot_say_why_it_failed() {
    let _limit = crate::limit();
    let shop = Shop::open();
    for arguments in [&["receive", "none"][..], &["work", "push", "none", "x"]] {
        let (reader, mut writer) = std::io::pipe().unwrap();
        // As much as a pipe has room for.
        writer.write_all(&vec![b'x'; 1 << 16]).unwrap();
        let mut command = Command::new(cargo_bin!("dialoq"));
        command.args(["--db", &format!("sqlite:{}", shop.path("shop.db").display())]).args(arguments);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(writer).spawn().unwrap();
        drop(command);
        while !listens(&child) {
            assert!(child.try_wait().unwrap().is_none(), "it ended before it listened");
        }
        assert_eq!(code_after(&mut child, "INT"), Some(130));
        drop(reader);
    }
}
