use crate::shop::Shop;
use assert_cmd::cargo::cargo_bin;
use rusqlite::Connection;
use std::io::{Read, Write};
use std::process::Stdio;

const COMMANDS: &[&[&str]] = &[
    &["dump"],
    &["status"],
    &["receive", "orders"],
    &["end", "01890a5d-ac96-774b-bcce-b302099a8057"],
    &["send", "--from", "a", "--to", "b", "x"],
];

fn all_fail(shop: &Shop, code: &str) {
    for arguments in COMMANDS {
        let error = shop.fails(1, arguments);
        assert!(error.starts_with(&format!("error[{code}]")), "{arguments:?}: {error}");
        assert!(error.contains("shop.db"), "the file is named: {error}");
    }
}

#[test]
fn a_missing_file_is_not_made_by_reading_it() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    all_fail(&shop, "60018");
    assert!(!shop.path("shop.db").exists());
}

#[test]
fn an_empty_file_becomes_a_broker_by_apply_only() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    for size in [0, 1] {
        let bytes = vec![0; size];
        std::fs::write(shop.path("shop.db"), &bytes).unwrap();
        all_fail(&shop, "60012");
        assert!(shop.run_with(&["apply", "-", "--dry-run"], b"CREATE QUEUE q").status.code() == Some(1));
        assert_eq!(std::fs::read(shop.path("shop.db")).unwrap(), bytes);
    }
    std::fs::write(shop.path("shop.db"), []).unwrap();
    shop.ok_with(&["apply", "-"], b"CREATE QUEUE q");
    shop.fails(3, &["receive", "q"]);
}

#[test]
fn a_foreign_file_is_left_alone() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let text = b"This is a letter to my aunt, not a database. ".repeat(100);
    std::fs::write(shop.path("shop.db"), &text).unwrap();
    for arguments in COMMANDS {
        assert!(shop.fails(1, arguments).starts_with("error[6001"), "{arguments:?}");
    }
    shop.fails(1, &["apply", "-"]);
    assert_eq!(std::fs::read(shop.path("shop.db")).unwrap(), text);
}

#[test]
fn a_foreign_database_is_left_alone() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    Connection::open(shop.path("shop.db"))
        .unwrap()
        .execute_batch("CREATE TABLE broker(a); PRAGMA user_version = 7")
        .unwrap();
    all_fail(&shop, "60011");
}

#[test]
fn a_newer_database_is_left_alone() {
    let _limit = crate::limit();
    let shop = Shop::open();
    Connection::open(shop.path("shop.db")).unwrap().execute_batch("PRAGMA user_version = 1000000").unwrap();
    all_fail(&shop, "60013");
}

#[test]
fn a_url_that_is_not_understood_is_named() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    for url in ["", "shop.db?", "mysql://x", "sqlite:"] {
        let error = shop.fails(1, &["--db", url, "dump"]);
        assert!(error.starts_with("error[60019]"), "'{url}': {error}");
    }
    let folder = shop.path("new");
    let url = format!("sqlite:{}/", folder.display());
    std::fs::write(shop.path("queue.sql"), "CREATE QUEUE orders").unwrap();
    let error = shop.fails(1, &["--db", &url, "apply", shop.path("queue.sql").to_str().unwrap()]);
    assert!(error.starts_with("error[60019]") && error.contains("ends in a slash"), "{error}");
    assert!(!folder.exists(), "nothing is made");
    let error = shop.fails(1, &["--json", "--db", "mysql://x", "dump"]);
    let error: serde_json::Value = serde_json::from_str(&error).unwrap();
    assert_eq!(error["error"]["code"], 60019);
}

#[test]
fn a_damaged_file_is_an_error_and_no_crash() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.order(&["a"]);
    let mut bytes = std::fs::read(shop.path("shop.db")).unwrap();
    bytes[100..].fill(0xA5);
    std::fs::write(shop.path("shop.db"), &bytes).unwrap();
    for arguments in COMMANDS {
        let error = shop.fails(1, arguments);
        assert!(error.starts_with("error[60012]"), "{arguments:?}: {error}");
    }
}

/// Verbs that read came with 60022, the code of the user's own SQL; a text that is not UTF-8 came with 60018.
#[test]
fn a_damaged_table_is_reported_as_damage_by_each_verb() {
    let _limit = crate::limit();
    let queries: &[&[&str]] = &[
        &["status"],
        &["doctor"],
        &["peek", "orders"],
        &["explain", "orders"],
        &["work", "list"],
        &["work", "list", "emails"],
        &["work", "show", "1"],
        &["work", "stats", "emails"],
        &["work", "schedule", "list"],
        &["dead", "list"],
    ];
    let shop = Shop::open();
    shop.order(&["a"]);
    let definition = shop.path("work.sql");
    std::fs::write(&definition, "CREATE WORK QUEUE emails").unwrap();
    shop.ok(&["apply", definition.to_str().unwrap()]);
    shop.ok(&["work", "push", "emails", "a"]);
    let sound = std::fs::read(shop.path("shop.db")).unwrap();
    let connection = Connection::open(shop.path("shop.db")).unwrap();
    // Those that the queries read, one or more for each.
    let of_tables = "select rootpage from sqlite_schema where name in
        ('dialoq_queue_message', 'dialoq_queue_monitor', 'dialoq_job', 'dialoq_job_history', 'dialoq_work_schedule', 'dialoq_dead_letter')";
    let mut statement = connection.prepare(of_tables).unwrap();
    let pages: Vec<i64> = statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    drop(statement);
    let size: i64 = connection.query_row("pragma page_size", [], |row| row.get(0)).unwrap();
    drop(connection);
    let mut refused = vec![0; queries.len()];
    for page in pages {
        let mut bytes = sound.clone();
        let (first, end) = ((page - 1) * size, page * size);
        bytes[usize::try_from(first).unwrap()..usize::try_from(end).unwrap()].fill(0);
        std::fs::write(shop.path("shop.db"), &bytes).unwrap();
        for (query, refused) in queries.iter().zip(&mut refused) {
            let done = shop.command(query).output().unwrap();
            let error = String::from_utf8_lossy(&done.stderr);
            if error.contains("error") {
                assert!(error.starts_with("error[60012]"), "page {page}, {query:?}: {error}");
                *refused += 1;
            }
        }
    }
    assert!(refused.iter().all(|times| *times > 0), "{refused:?}");
    std::fs::write(shop.path("shop.db"), &sound).unwrap();
    let invalid = "update dialoq_job set job_type = cast(x'ff' as text)";
    Connection::open(shop.path("shop.db")).unwrap().execute_batch(invalid).unwrap();
    let error = shop.fails(1, &["work", "take", "emails"]);
    assert!(error.starts_with("error[60012]"), "{error}");
}

#[test]
fn a_repair_is_reported_once() {
    let _limit = crate::limit();
    for (format, form) in
        [(&[][..], "warning: the database was repaired: "), (&["--json"], "{\"warning\":\"the database was ")]
    {
        let shop = Shop::open();
        let orphan = "insert into dialoq_receive_sequence values (77, 3)";
        Connection::open(shop.path("shop.db")).unwrap().execute_batch(orphan).unwrap();
        let receive = [format, &["receive", "orders"]].concat();
        let error = shop.fails(3, &receive);
        assert!(error.starts_with(form) && error.contains("dialoq_receive_sequence"), "{error}");
        let again = shop.fails(3, &receive);
        assert!(!again.contains("repaired"), "{again}");
    }
}

/// It was retried, as if the network had failed.
#[test]
fn a_server_that_asks_for_a_password_that_is_not_given_is_no_network_failure() {
    let _limit = crate::limit();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut asked) = (stream.unwrap(), [0; 1000]);
            // Eight bytes ask for TLS; what is longer is the beginning of a session, which is asked for a password.
            while let Ok(length @ 1..) = stream.read(&mut asked) {
                let answer: &[u8] = if length == 8 { b"N" } else { b"R\0\0\0\x08\0\0\0\x03" };
                if stream.write_all(answer).is_err() {
                    break;
                }
            }
        }
    });
    let url = format!("postgres://shop@127.0.0.1:{port}/shop");
    let error = Shop::empty().fails(1, &["--db", &url, "--json", "status"]);
    let error: serde_json::Value = serde_json::from_str(&error).unwrap();
    let error = &error["error"];
    assert_eq!((&error["code"], &error["is_retryable"]), (&60034.into(), &false.into()), "{error}");
    assert!(
        error["message"].as_str().unwrap().contains("the server asks for a password, and none is given"),
        "{error}"
    );
}

/// The store fails at its close too, and says only that an earlier commit has failed.
#[cfg(target_os = "linux")]
#[test]
fn a_push_that_finds_the_disk_full_says_so_and_how_much_was_pushed() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE emails");
    let limited = format!("ulimit -f 3000; exec '{}' work push emails", cargo_bin!("dialoq").display());
    let mut shell = std::process::Command::new("bash");
    shell.args(["-c", &limited]).env("DIALOQ_URL", format!("sqlite:{}", shop.path("shop.db").display()));
    let mut push = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let lines = format!("{}\n", "x".repeat(200)).repeat(30_000);
    // It ends before it has read all.
    let _ = push.stdin.take().unwrap().write_all(lines.as_bytes());
    let output = push.wait_with_output().unwrap();
    let error = crate::shop::text(&output.stderr);
    let message = error.lines().next().unwrap();
    assert!(output.status.code() == Some(1) && !message.contains("60015"), "{error}");
    let pushed = shop.json(&["--json", "work", "list"])[0]["ready"].clone();
    assert!(message.ends_with(&format!("; {pushed} jobs were pushed before")), "{pushed}: {error}");
}
