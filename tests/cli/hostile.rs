//! Hostile arguments and inputs: each is refused with a reason, and nothing panics.
#![cfg(unix)]

use crate::shop::{SEND_ORDER, Shop, text};
use std::process::{Command, Stdio};

const HANDLE: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

#[test]
fn values_beyond_their_range_are_refused() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE jobs");
    let commands: &[&[&str]] = &[
        &["receive", "orders", "--wait", "99999999999999999999d"],
        &["receive", "orders", "--wait", "-1s"],
        &["receive", "orders", "--wait", "NaN"],
        &["receive", "orders", "--wait", ""],
        &["receive", "orders", "--top", "18446744073709551616"],
        &["receive", "orders", "--top", "-1"],
        &["receive", "orders", "--top", ""],
        &["receive", ""],
        &["receive", "orders", "--group", ""],
        &["end", HANDLE, "--error", "99999999999", "--description", "x"],
        &["end", HANDLE, "--error", "0", "--description", "x"],
        &["end", HANDLE, "--error", "-2147483648", "--description", "x"],
        &["end", HANDLE, "--error", "1", "--description", ""],
        &["end", ""],
        &["send", "--from", "", "--to", "", "x"],
        &["send", "--from", "//shop/Checkout", "--to", "", "--type", "", "x"],
        &["send", "--conversation", "", "x"],
        &["send", "--from", "a", "--to", "b", "--lifetime", "99999999999999999d", "x"],
        &["activate", "orders", "--exec", ""],
        &["activate", "orders", "--exec", "true", "--max-queue-readers", "32768"],
        &["activate", "", "--exec", "true"],
        // Each program would be killed before it did anything.
        &["activate", "orders", "--exec", "true", "--timeout", "0"],
        &["work", "run", "jobs", "--exec", "true", "--timeout", "0ms"],
        &["apply", ""],
        &["--db", "", "status"],
        &["status", "--watch="],
        // Dashes that a word processor has joined.
        &["send", "–from=a", "—to=b", "x"],
        &["receive", "–queue=orders"],
    ];
    for arguments in commands {
        let output = shop.run_with(arguments, b"");
        let error = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments:?}: {:?} {error}", output.status);
        assert!(!error.is_empty() && !error.contains("panicked"), "{arguments:?}: {error}");
    }
}

#[test]
fn terminal_control_characters_are_escaped() {
    let _limit = crate::limit();
    let shop = Shop::open();
    for hostile in [
        "a\u{1b}[31m",
        "a\u{feff}b",
        "a\u{200b}b",
        "a\u{202e}b",
        "a\u{200f}b",
        "a\u{9b}31m",
        "a\rerror",
        "a\u{2066}b\u{61c}",
    ] {
        let path = format!("{hostile}.sql");
        std::fs::write(shop.path(&path), "CREATE QUEUE ;").unwrap();
        let commands: &[&[&str]] = &[
            &[hostile],
            &["receive", hostile],
            &["end", hostile],
            &["activate", "orders", "--exec", hostile],
            &["activate", hostile, "--exec", "true"],
            &["apply", hostile],
            &["apply", &path],
            &["send", "--from", hostile, "--to", hostile, "x"],
            &["receive", "orders", "--wait", hostile],
            &["--db", hostile, "status"],
        ];
        for arguments in commands {
            let output = shop.run_with(arguments, b"");
            assert!(!output.status.success(), "{arguments:?}");
            let shown = text(&output.stderr) + &text(&output.stdout);
            let is_bad =
                |c: char| c.is_control() && c != '\n' || "\u{202e}\u{200f}\u{2066}\u{61c}\u{feff}\u{200b}".contains(c);
            assert!(!shown.contains(is_bad), "{arguments:?}: {shown:?}");
        }
    }
    let error = shop.fails(1, &["apply", "no such\nerror[1]: file.sql"]);
    assert_eq!(error.lines().next().map(|line| line.contains("file.sql")), Some(true), "on one line: {error}");
}

#[test]
fn files_that_are_no_files_of_bodies_are_refused() {
    let _limit = crate::limit();
    let shop = Shop::open();
    for option in ["--file", "--lines"] {
        for path in [".", "no-such-file"] {
            let error = shop.fails(1, &[SEND_ORDER, &[option, path]].concat());
            assert!(error.starts_with("error[60028]") && error.contains(path), "{option} {path}: {error}");
        }
    }
    let error = shop.fails(1, &["apply", "."]);
    assert!(error.starts_with("error[60028]") && error.contains("'.'"), "{error}");
    // The pipe has no writer, so it is never open; ctrl-C ends the wait.
    assert!(Command::new("mkfifo").arg(shop.path("fifo")).status().unwrap().success());
    let commands = [
        [SEND_ORDER, &["--file", "fifo"]].concat(),
        [SEND_ORDER, &["--lines", "fifo"]].concat(),
        vec!["apply", "fifo"],
    ];
    for arguments in commands {
        let mut running = shop.start(&arguments);
        running.until_it_listens();
        running.interrupt();
        let (code, error) = running.end();
        assert_eq!(code, Some(130), "{arguments:?}: {error}");
    }
}

#[test]
fn lines_of_any_length_and_bytes_are_sent_or_refused() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let long = format!("{{\"body\":\"{}\"}}\n", "x".repeat(100 << 20));
    let error = shop.fails_with(1, SEND_ORDER, long.as_bytes());
    assert!(error.starts_with("error[") && error.contains("line 1"), "{error}");
    let error = shop.fails_with(1, SEND_ORDER, b"{\"body\":\"a\xff\"}\n");
    assert!(error.contains("not UTF-8"), "{error}");
    let error = shop.fails_with(1, SEND_ORDER, &[b"[".repeat(100_000), b"\n".to_vec()].concat());
    assert!(error.starts_with("error[60028]"), "{error}");
}

#[test]
fn a_reader_of_the_output_that_leaves_early_ends_it_quietly() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let order = shop.order(&["a"]);
    for arguments in [
        &["status"][..],
        &["--json", "status"],
        &["dump"],
        &["completions", "bash"],
        &["--help"],
        &["--json", "receive", "orders"],
        &["end", &order],
    ] {
        let mut child = Command::new(assert_cmd::cargo::cargo_bin!("dialoq"))
            .current_dir(shop.folder.path())
            .env("DIALOQ_URL", shop.url())
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        let error = text(&output.stderr);
        assert!(output.status.code().is_some() && !error.contains("panicked"), "{arguments:?}: {error}");
    }
    assert_eq!(shop.bodies("orders")[0], "a", "what could not be printed stays");
}
