use crate::servers::{Database, Store};
use crate::shop::Shop;

#[test]
fn the_lab_compares_and_writes_its_page() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let arguments = ["lab", "--strategy", "weighted", "--length", "1s", "--folder", "."];
    let printed = shop.ok(&arguments);
    for part in ["weighted", "high", "low", "lab.html"] {
        assert!(printed.contains(part), "{printed}");
    }
    let page = std::fs::read_to_string(shop.path("lab.html")).unwrap();
    assert!(page.contains("<svg") && page.contains("weighted"));
    let report = &shop.json(&[&["--json"], &arguments[..], &["--no-html"]].concat())[0];
    assert_eq!(report["strategies"][0]["name"], "weighted");
    assert_eq!(report["strategies"][0]["order_violations"], 0);
    let jobs = shop.ok(&[&arguments[..], &["--on", "work"]].concat());
    for part in ["On SQLite, work queues", "of any 4 takes in a row, a class with jobs", "fewest of 4"] {
        let words = |text: &str| {
            text.split_whitespace().filter(|word| *word != "│" && *word != "┆").collect::<Vec<_>>().join(" ")
        };
        let column = |place: usize| {
            let lines = jobs.lines().filter(|line| line.starts_with('│'));
            lines.filter_map(|line| line.split('┆').nth(place)).collect::<Vec<_>>().join(" ")
        };
        let places = [jobs.clone(), column(2), column(3)];
        assert!(places.iter().any(|text| words(text).contains(part)), "no '{part}' in {jobs}");
    }
    let page = std::fs::read_to_string(shop.path("lab.html")).unwrap();
    assert!(page.contains("jobs were served") && !page.contains("message"), "jobs are called jobs");
    let quick = shop.ok(&["--json", "lab", "--quick", "--strategy", "weighted,dual_queue_loop", "--no-html"]);
    let quick: serde_json::Value = serde_json::from_str(&quick).unwrap();
    let forms = quick["strategies"].as_array().unwrap().iter().map(|strategy| strategy["form"].as_str().unwrap());
    assert_eq!(forms.collect::<Vec<_>>(), ["improved", "improved"]);
    assert!(shop.fails(2, &["lab", "--quick", "--length", "2s"]).contains("--length"));
    assert!(shop.fails(2, &["lab", "--on", "paper"]).contains("messages, work"));
    assert!(shop.fails(2, &["lab", "--strategy", "magic"]).contains("weighted"), "the names are listed");
    assert!(shop.fails(2, &["lab", "--length", "1ms"]).contains("it must be 1s to 1h"));
    assert!(shop.fails(1, &["lab", "--recorded", "missing.jsonl"]).contains("missing.jsonl"));
    assert_eq!(std::fs::read_dir(shop.folder.path()).unwrap().count(), 1, "only the page is left");
}

#[test]
fn the_bench_measures_the_bare_log_too() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let short = ["--rounds", "1", "--round-length", "500ms", "--callers", "2", "--folder", "."];
    let report = &shop.json(&[&["--json", "bench", "--quick", "--workload", "send"], &short[..]].concat())[0];
    let send = &report["results"][0];
    assert!(send["per_s"].as_f64().unwrap() > 0.0 && send["ratio_to_log"].as_f64().unwrap() > 0.0, "{send}");
    assert_eq!(send["callers"], 2);
    shop.fails(2, &["bench", "--workload", "juggle"]);
    shop.fails(2, &["bench", "--body-bytes", "1"]);
    assert_eq!(std::fs::read_dir(shop.folder.path()).unwrap().count(), 0, "the scratch folder is removed");
}

#[test]
fn the_bench_sets_the_orders_of_work_queues_side_by_side() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let short = ["--quick", "--rounds", "1", "--round-length", "20ms", "--callers", "1,4", "--backlog", "1000"];
    let report = &shop.json(&[&["--json", "bench", "work", "--folder", "."], &short[..]].concat())[0];
    let cells = report["techniques"].as_array().unwrap();
    let found: std::collections::BTreeSet<String> =
        cells.iter().map(|cell| format!("{} {} {}", cell["order"], cell["depth"], cell["callers"])).collect();
    assert_eq!((found.len(), cells.len()), (5 * 2 * 2, 5 * 2 * 2 + 2), "{found:?}");
    for cell in cells {
        assert_eq!((&cell["duplicates"], &cell["empties"]), (&0.into(), &0.into()), "{cell}");
        assert!(cell["take_per_s"].as_f64().unwrap() > 0.0 && cell["take_by"] == "DEFAULT", "{cell}");
    }
    let text = shop.ok(&[&["bench", "work", "--folder", "."], &short[..]].concat());
    assert!(text.contains("FIFO_STRICT") && text.contains("duplicates"), "{text}");
    assert_eq!(std::fs::read_dir(shop.folder.path()).unwrap().count(), 0, "the scratch folder is removed");
}

/// Before anything is reached: the server of these does not exist.
#[test]
fn options_without_effect_on_the_measurement_are_refused() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let server = "postgres://no_such_user@127.0.0.1:1/nowhere";
    for (url, arguments, named) in [
        (server, &["bench", "--folder", "."][..], "--folder"),
        (server, &["bench", "--unsynced"], "durability=normal"),
        (server, &["bench", "--callers", "1,8"], "--callers"),
        (server, &["bench", "work", "--workload", "send"], "--workload"),
        (server, &["bench", "work", "--folder", "."], "--folder"),
        (server, &["lab", "--folder", "."], "--folder"),
        ("sqlite:shop.db", &["bench", "--minutes", "5"], "--minutes"),
        ("sqlite:shop.db", &["bench", "--in-use"], "--in-use"),
        ("sqlite:shop.db", &["lab", "--in-use"], "--in-use"),
    ] {
        let refused = shop.fails(2, &[&["--db", url], arguments].concat());
        assert!(refused.starts_with("error: ") && refused.contains(named), "{arguments:?}: {refused}");
        assert!(!refused.contains("cannot be reached"), "{arguments:?}: {refused}");
    }
}

#[test]
fn a_report_that_cannot_be_written_is_an_error_before_the_run() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    // The recording is read before the run, and later than the path of the report is checked.
    let arguments = ["lab", "--html", "missing/lab.html", "--recorded", "missing.jsonl"];
    let refused = shop.fails(1, &arguments);
    assert!(refused.contains("'missing/lab.html' cannot be written"), "{refused}");
    let refused = shop.fails(1, &["lab", "--recorded", "missing.jsonl"]);
    assert!(refused.contains("missing.jsonl") && !shop.path("lab.html").exists(), "{refused}");
}

#[test]
fn a_filter_of_the_log_that_is_none_is_an_error() {
    let _limit = crate::limit();
    let shop = Shop::open();
    let output = shop.command(&["dump"]).env("DIALOQ_LOG", "dialoq=loud").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{error}");
    assert!(error.contains("DIALOQ_LOG is 'dialoq=loud'"), "{error}");
    assert!(shop.command(&["dump"]).env("DIALOQ_LOG", "dialoq=warn").output().unwrap().status.success());
}

/// They left their definitions, with thousands of conversations, in the database of the server.
#[test]
fn the_lab_and_the_bench_remove_what_they_made_after_an_interrupt() {
    let _limit = crate::limit();
    if Store::Postgres.why_missing().is_some() {
        return;
    }
    for (arguments, made) in [
        (&["lab", "--length", "1h", "--no-html"][..], "//inventory/Urgent"),
        (&["bench", "--quick", "--round-length", "1h"], "bench"),
    ] {
        let (shop, database) = (Shop::empty(), Database::fresh(Store::Postgres));
        let before = shop.ok(&["--db", database.url(), "dump"]);
        let mut running = shop.start(&[&["--db", database.url()], arguments].concat());
        let count = "SELECT count(*) FROM dialoq.conversation_endpoint";
        while database.sql(count) == "0" {
            assert!(running.is_running(), "{arguments:?}");
        }
        assert!(shop.ok(&["--db", database.url(), "dump"]).contains(made), "{arguments:?}");
        running.interrupt();
        let (code, error) = running.end();
        assert_eq!(code, Some(130), "{error}");
        assert!(error.contains("is removed"), "{error}");
        assert_eq!(shop.ok(&["--db", database.url(), "dump"]), before, "{arguments:?}");
        assert_eq!(database.sql("SELECT count(*) FROM dialoq.conversation_endpoint"), "0", "{arguments:?}");
        let tables =
            "SELECT count(*) FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema', 'dialoq')";
        assert_eq!(database.sql(tables), "0", "{arguments:?}");
    }
}

#[test]
fn the_bench_makes_no_folder_above_its_own() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let refused = shop.fails(1, &["bench", "--quick", "--workload", "send", "--folder", "missing"]);
    assert!(refused.starts_with("error[60014]") && refused.contains("missing"), "{refused}");
    assert!(!shop.path("missing").exists());
}

/// "Lower pool_size" did not help: the connections are those of the table queue that is measured beside the broker.
#[test]
fn a_server_with_too_few_connections_for_the_callers_is_named() {
    let _limit = crate::limit();
    if Store::Postgres.why_missing().is_some() {
        return;
    }
    // It takes all connections that the server has, and other tests met "too many clients".
    let (shop, database) = (Shop::empty(), Database::on_a_server_of_its_own());
    let arguments = ["--db", database.url(), "bench", "--quick", "--workload", "both", "--callers", "4000"];
    let refused = shop.fails(1, &arguments);
    for part in ["error[60030]", "needs 8000 connections", "use fewer --callers, or raise max_connections"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
}
