//! A short run of everything on the real store.

use super::load::Class;
use super::*;

async fn short(on: On) -> Report {
    let runs = if on == On::Work { 7 } else { 8 };
    let options = Options {
        source: Source::Synthetic { seed: 3, length: Duration::from_secs(1) },
        service: Duration::from_millis(1),
        on,
        ..Options::default()
    };
    let served = Mutex::new(vec![0; runs]);
    let progress = |progress: Progress| {
        assert_eq!(progress.runs, runs);
        served.lock().unwrap()[progress.run] = progress.served;
    };
    let never = Interrupt::never();
    let report = run(options, progress, &never).await.unwrap().unwrap();
    let messages = report.arrivals_us.len();
    assert!(served.into_inner().unwrap().iter().all(|served| (messages / 2..=messages).contains(served)));
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_strategy_serves_the_load_in_order_and_keeps_its_bound() {
    let _limit = crate::limit();
    let report = short(On::Messages).await;
    assert_eq!(report.strategies.len(), 8);
    for result in &report.strategies {
        let served: u64 = result.classes.iter().map(|class| class.count).sum();
        assert_eq!(served, report.arrivals_us.len() as u64, "{} {}", result.name, result.form);
        assert_eq!(result.order_violations, 0, "{} {}", result.name, result.form);
        assert!(result.throughput_per_s > 0.0);
        assert_ne!(result.is_bound_kept, Some(false), "{} {}: {}", result.name, result.form, result.observed);
    }
    let low = |name: &str, form| report.strategy(name, form).unwrap().class(Class::Low).unwrap();
    let classic = low("dual_queue_loop", Form::Classic);
    let improved = low("dual_queue_loop", Form::Improved);
    assert!(classic.idle_p50_ms > Some(9.0), "low pays the polling: {classic:?}");
    assert!(improved.idle_p50_ms < classic.idle_p50_ms, "and does not: {improved:?}");
    let past = low("drain_high_then_one_low", Form::Improved).longest_run_past.unwrap();
    assert!(past > 20, "the flood passes low over, {past} receives in a row");
    let weighted = low("weighted", Form::Improved).longest_run_past.unwrap();
    assert!(weighted <= 3, "shares do not: {weighted}");

    let json = serde_json::to_value(&report).unwrap();
    let entry = &json["strategies"][0];
    let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(json.as_object().unwrap().len(), 1);
    let mut found = keys(entry);
    found.sort();
    assert_eq!(found, ["bound", "classes", "form", "name", "order_violations", "throughput_per_s"]);
    assert_eq!(entry["bound"], "none: a class can starve for ever");
    assert_eq!((&entry["name"], &entry["form"]), (&"drain_high_then_one_low".into(), &"classic".into()));
    let mut found = keys(&entry["classes"][1]);
    found.sort();
    assert_eq!(found, ["class", "count", "longest_starvation_ms", "max_ms", "p50_ms", "p99_ms"]);
    assert_eq!(entry["classes"][1]["class"], "low");

    let page = report.to_html();
    assert_eq!(page.matches("<svg").count(), 17, "two charts a strategy and the load");
    assert!(!page.contains("<script") && !page.contains("http"), "nothing runs and nothing is loaded");
    for finding in &report.findings {
        assert!(page.contains(&finding.title), "{finding:?}");
    }
    assert_eq!(report.findings.len(), 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_strategy_serves_the_same_load_as_jobs_and_keeps_its_bound() {
    let _limit = crate::limit();
    let report = short(On::Work).await;
    let names: Vec<_> = report.strategies.iter().map(|result| (result.name, result.form)).collect();
    assert_eq!(names.len(), 7);
    assert!(!names.contains(&("drain_high_then_one_low", Form::Classic)), "a job has no conversation");
    for result in &report.strategies {
        let served: u64 = result.classes.iter().map(|class| class.count).sum();
        assert_eq!(served, report.arrivals_us.len() as u64, "{} {}", result.name, result.form);
        assert_eq!(result.order_violations, 0, "{} {}", result.name, result.form);
        assert_ne!(result.is_bound_kept, Some(false), "{} {}: {}", result.name, result.form, result.observed);
    }
    let low = |name: &str, form| report.strategy(name, form).unwrap().class(Class::Low).unwrap();
    let classic = low("dual_queue_loop", Form::Classic);
    assert!(classic.idle_p50_ms > Some(9.0), "low pays the polling: {classic:?}");
    assert!(low("dual_queue_loop", Form::Improved).idle_p50_ms < classic.idle_p50_ms);
    let past = low("drain_high_then_one_low", Form::Improved).longest_run_past.unwrap();
    assert!(past > 20, "the flood passes low over, {past} takes in a row");
    let weighted = low("weighted", Form::Improved).longest_run_past.unwrap();
    assert!(weighted <= 3, "shares do not: {weighted}");
    assert_eq!(report.findings.len(), 5, "that of the one conversation is not there");
    let page = report.to_html();
    assert_eq!(page.matches("<svg").count(), 15, "two charts a strategy and the load");
    assert!(page.contains("work queues") && !page.contains("message"), "jobs are called jobs");
    for finding in &report.findings {
        assert!(page.contains(&finding.title), "{finding:?}");
    }
}

#[tokio::test]
async fn settings_out_of_range_are_refused() {
    let _limit = crate::limit();
    let refused = |options: Options| async { run(options, |_| (), &Interrupt::never()).await.unwrap_err() };
    let unknown = Options { strategies: vec!["fifo".to_owned()], ..Options::default() };
    let error = refused(unknown).await;
    assert!(error.message().contains("'fifo'") && error.message().contains("dual_queue_loop"), "{error}");
    let slow = Options { service: Duration::from_secs(60), ..Options::default() };
    assert_eq!(refused(slow).await.code(), dialoq::Code::OUT_OF_RANGE);
    let short = Source::Synthetic { seed: 1, length: Duration::ZERO };
    assert_eq!(refused(Options { source: short, ..Options::default() }).await.code(), dialoq::Code::OUT_OF_RANGE);
    let nowhere = Options { folder: std::path::PathBuf::from("/nonexistent/folder"), ..Options::default() };
    assert!(refused(nowhere).await.message().contains("/nonexistent/folder"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_is_played_to_the_strategies_named() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("load.jsonl");
    let lines: String = (0..30)
        .map(|n| format!("{{\"at_ms\":{},\"class\":\"{}\"}}\n", n * 3, if n % 3 == 0 { "high" } else { "low" }))
        .collect();
    std::fs::write(&path, lines).unwrap();
    let options = Options {
        source: Source::Recorded(path),
        service: Duration::ZERO,
        strategies: vec!["aging".to_owned()],
        is_improved_only: false,
        folder: folder.path().to_owned(),
        server: None,
        on: On::Messages,
    };
    let report = run(options, |_| (), &Interrupt::never()).await.unwrap().unwrap();
    assert_eq!(report.strategies.len(), 1);
    assert_eq!(report.strategies[0].class(Class::High).unwrap().count, 10);
    assert_eq!(report.strategies[0].class(Class::Low).unwrap().count, 20);
    assert!(report.to_html().contains("load.jsonl"));
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().collect();
    assert_eq!(left.len(), 1, "the lab cleans up: {left:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_without_high_messages_shows_nothing_about_them() {
    let _limit = crate::limit();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("load.jsonl");
    std::fs::write(&path, "{\"at_ms\":3,\"class\":\"low\"}\n").unwrap();
    let options = Options {
        source: Source::Recorded(path),
        service: Duration::ZERO,
        folder: folder.path().to_owned(),
        ..Options::default()
    };
    let report = run(options, |_| (), &Interrupt::never()).await.unwrap().unwrap();
    for finding in &report.findings {
        let about_high = ["starve low", "favours", "ramp"].iter().any(|words| finding.title.contains(words));
        assert!(!about_high && !finding.text.contains("Under the flood"), "{finding:?}");
    }
}

#[test]
fn a_bound_over_jobs_speaks_of_takes() {
    let bound = dialoq::receive::aging("q", Duration::from_millis(60));
    let words = On::Work.words(&dialoq::receive::strategy::Strategy::bound(&bound).to_string());
    assert!(words.contains("each take whose oldest job") && !words.contains("receive"), "{words}");
}
