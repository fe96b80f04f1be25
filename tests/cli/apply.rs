use crate::shop::{SHOP, Shop};
use dialoq::Act as _;

#[test]
fn a_dump_recreates_the_broker() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let first = shop.ok(&["dump"]);
    assert!(first.contains("//shop/PlaceOrder"), "{first}");
    let other = format!("sqlite:{}", shop.path("other.db").display());
    shop.ok_with(&["--db", &other, "apply", "-"], first.as_bytes());
    assert_eq!(shop.ok(&["--db", &other, "dump"]), first);
    let object = &shop.json(&["dump", "--json"])[0];
    assert_eq!(object["script"], first.as_str());
}

#[test]
fn a_file_is_applied() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    std::fs::write(shop.path("shop.sql"), format!("\u{feff}{}", SHOP.replace('\n', "\r\n"))).unwrap();
    let applied = shop.ok(&["apply", "shop.sql"]);
    assert!(applied.starts_with("created message type '//shop/PlaceOrder'\n"), "{applied}");
    assert!(applied.ends_with("applied shop.sql\n"), "{applied}");
    assert_eq!(shop.json(&["status", "--json"])[0]["queues"].as_array().unwrap().len(), 2);
}

#[test]
fn an_error_in_the_tenth_statement_names_its_place_and_nothing_is_applied() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let before = shop.ok(&["dump"]);
    let mut script: String = (1..=9).map(|number| format!("CREATE QUEUE q{number};\n")).collect();
    script.push_str("CREATE SERVICE [//s] ON QUEUE nowhere;\nCREATE QUEUE q11;\n");
    std::fs::write(shop.path("ten.sql"), &script).unwrap();
    let error = shop.fails(1, &["apply", "ten.sql"]);
    assert!(error.contains("--> ten.sql:10:"), "{error}");
    assert!(error.contains("CREATE SERVICE [//s] ON QUEUE nowhere;"), "{error}");
    assert!(error.contains("'nowhere'"), "{error}");
    assert_eq!(shop.ok(&["dump"]), before);
    let error = shop.fails_with(1, &["apply", "-", "--json"], script.as_bytes());
    let error: serde_json::Value = serde_json::from_str(&error).unwrap();
    assert_eq!(error["error"]["line"], 10);
}

#[test]
fn a_queue_that_was_turned_off_does_not_stop_the_script_of_a_start() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let scripts = [&b"CREATE QUEUE orders WITH STATUS = ON"[..], b"CREATE QUEUE orders"];
    shop.ok(&["pause", "orders"]);
    for (script, options) in scripts.into_iter().flat_map(|script| [(script, &["--dry-run"][..]), (script, &[])]) {
        let output = shop.run_with(&[&["apply", "-", "--ensure"], options].concat(), script);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            output.status.success()
                && error.contains("warning: queue 'orders' has STATUS = OFF, not ON")
                && error.ends_with("; ALTER changes it\n"),
            "{error}"
        );
        let shown = shop.ok_with(&[&["--json", "apply", "-", "--ensure"], options].concat(), script);
        assert!(shown.contains("has STATUS = OFF"), "{shown}");
    }
    shop.ok(&["resume", "orders"]);
    for script in scripts {
        assert!(!shop.ok_with(&["--json", "apply", "-", "--ensure"], script).contains("STATUS"));
    }
}

#[test]
fn a_dry_run_shows_what_a_script_erases_and_the_options_of_the_broker() {
    let _limit = crate::limit();
    let shop = Shop::open();
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE emails");
    let cases = [
        ("ALTER DATABASE shop SET NEW_BROKER", "+ ALTER DATABASE CURRENT SET NEW_BROKER;", "dropped all conversations"),
        (
            "DROP WORK QUEUE EMAILS; CREATE WORK QUEUE emails",
            "- CREATE WORK QUEUE [emails]",
            "dropped work queue 'emails'\ncreated work queue 'emails'",
        ),
        (
            "ALTER DATABASE shop SET DISABLE_BROKER",
            "- ALTER DATABASE CURRENT SET ENABLE_BROKER;\n+ ALTER DATABASE CURRENT SET DISABLE_BROKER;",
            "altered database option DISABLE_BROKER",
        ),
        ("ALTER DATABASE shop SET DISABLE_BROKER", "standard input would change nothing", "nothing has changed"),
    ];
    for (script, preview, done) in cases {
        let dry = shop.ok_with(&["apply", "-", "--dry-run"], script.as_bytes());
        assert!(dry.contains(preview), "{script}: {dry}");
        let applied = shop.ok_with(&["apply", "-"], script.as_bytes());
        assert!(applied.contains(done), "{script}: {applied}");
    }
}

#[test]
fn a_syntax_error_shows_its_place() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let error = shop.fails_with(1, &["apply", "-"], "CREATE QUEUE [a🚚] WIHT STATUS = ON".as_bytes());
    assert!(error.starts_with("error[60004]"), "{error}");
    assert!(error.contains("WIHT"), "{error}");
    assert_eq!(error.lines().last().unwrap().trim_end().matches('^').count(), 1, "{error}");
}

#[test]
fn a_file_that_cannot_be_read_changes_nothing() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let error = shop.fails(1, &["apply", "missing.sql"]);
    assert!(error.contains("'missing.sql'"), "{error}");
    std::fs::write(shop.path("latin.sql"), b"CREATE QUEUE a;\nCREATE QUEUE [\xfc]").unwrap();
    let error = shop.fails(1, &["apply", "latin.sql"]);
    assert!(error.contains("'latin.sql' is not UTF-8: line 2"), "{error}");
    let error = shop.fails_with(1, &["apply", "-"], b"CREATE QUEUE [\xfc]");
    assert!(error.contains("'standard input' is not UTF-8: line 1"), "{error}");
    assert!(!shop.path("shop.db").exists(), "the script is read before the database is made");
}

#[test]
fn a_url_of_the_environment_that_is_empty_is_as_not_set() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let done = shop.command(&["apply", "-"]).env("DIALOQ_URL", "").write_stdin("CREATE QUEUE q").output().unwrap();
    assert!(done.status.success(), "{done:?}");
    assert!(shop.path("dialoq.db").exists(), "the database of the default");
    let refused = shop.command(&["--db", "", "status"]).env("DIALOQ_URL", "").output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
}

#[test]
fn a_parameter_that_is_written_twice_is_refused() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let url = format!("{}?durability=full&durability=normal", shop.url());
    let refused = shop.fails(1, &["--db", &url, "status"]);
    assert!(refused.starts_with("error[60019]") && refused.contains("'durability' is there twice"), "{refused}");
}

/// It looked like a command that hangs.
#[tokio::test(flavor = "multi_thread")]
async fn a_statement_that_waits_for_a_transaction_is_named_with_its_holder() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    shop.ok_with(&["apply", "-"], b"CREATE QUEUE q; CREATE SERVICE s ON QUEUE q ([DEFAULT])");
    shop.ok(&["send", "--from", "s", "--to", "s", "held"]);
    let broker = dialoq::Broker::open(&shop.url()).await.unwrap();
    let holder = broker.begin().await.unwrap();
    let group = holder.get_conversation_group("q").await.unwrap().unwrap();
    std::fs::write(shop.path("move.sql"), "CREATE QUEUE q2;\n  ALTER SERVICE s ON QUEUE q2;\n").unwrap();
    let mut running = shop.start(&["apply", "move.sql"]);
    let line = tokio::task::block_in_place(|| running.error_line());
    assert!(
        line.starts_with(&format!("move.sql:2:3: waits for conversation group {group}, held by session ")),
        "{line}"
    );
    assert!(line.trim_end().ends_with("; ctrl-C ends the wait"), "{line}");
    holder.commit().await.unwrap();
    let (code, error) = tokio::task::spawn_blocking(move || running.end()).await.unwrap();
    assert_eq!((code, error.as_str()), (Some(0), ""));
    broker.close().await.unwrap();
}
