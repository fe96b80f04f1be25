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
    assert!(shop.fails(2, &["lab", "--strategy", "magic"]).contains("weighted"), "the names are listed");
    assert!(shop.fails(1, &["lab", "--length", "1ms"]).contains("error[60005]"));
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
        (server, &["lab", "--folder", "."], "--folder"),
        ("sqlite:shop.db", &["bench", "--minutes", "5"], "--minutes"),
        ("sqlite:shop.db", &["bench", "--in-use"], "--in-use"),
        ("sqlite:shop.db", &["lab", "--in-use"], "--in-use"),
    ] {
        let refused = shop.fails(1, &[&["--db", url], arguments].concat());
        assert!(refused.contains("error[") && refused.contains(named), "{arguments:?}: {refused}");
        assert!(!refused.contains("cannot be reached"), "{arguments:?}: {refused}");
    }
}
