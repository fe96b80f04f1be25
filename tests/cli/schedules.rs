use crate::shop::Shop;

#[test]
fn schedules_are_made_seen_paused_and_dropped() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE reports");
    let add = ["work", "schedule", "add", "nightly", "reports", "0 3 * * *", "--time-zone", "Europe/Berlin"];
    let options = ["--type", "pdf", "--key", "k", "--level", "7", "--missed", "all", "--body", "{time}"];
    let done = shop.ok(&[&add[..], &options[..]].concat());
    assert_eq!(done.trim(), "added work schedule 'nightly'");
    shop.fails(1, &add);
    let listed = shop.json(&["--json", "work", "schedule", "list"]);
    let (seen, known) = (&listed[0], ["nightly", "reports", "0 3 * * *", "Europe/Berlin", "ALL", "pdf", "k"]);
    let names = ["name", "queue", "cron", "time_zone", "missed", "job_type", "key"];
    assert_eq!(names.map(|name| seen[name].as_str().unwrap()), known);
    assert!(seen["next_at"].as_str().is_some_and(|at| at.ends_with(".000Z")) && seen["last_at"].is_null(), "{seen}");
    let next = shop.ok(&["work", "schedule", "next", "NIGHTLY", "--count", "3"]);
    let hours: Vec<&str> = next.lines().map(|line| &line[11..19]).collect();
    assert_eq!(hours, ["03:00:00"; 3], "as the clocks of the zone show it: {next}");

    assert_eq!(shop.ok(&["work", "schedule", "pause", "nightly"]).trim(), "paused work schedule 'nightly'");
    assert!(shop.ok(&["work", "schedule", "list"]).contains("paused"));
    shop.ok(&["work", "schedule", "resume", "nightly"]);
    assert!(!shop.ok(&["work", "schedule", "list"]).contains("paused"));
    let script = shop.ok(&["dump"]);
    let statement = "CREATE WORK SCHEDULE [nightly] ON WORK QUEUE [reports] WITH CRON = '0 3 * * *', \
        TIME_ZONE = 'Europe/Berlin', MISSED = ALL, JOB_TYPE = 'pdf', JOB_KEY = 'k', LEVEL = 7, BODY = '{time}';";
    assert!(script.contains(statement), "{script}");
    let dropped = shop.json(&["--json", "work", "schedule", "drop", "nightly"]);
    assert_eq!((&dropped[0]["schedule"], &dropped[0]["status"]), (&"nightly".into(), &"dropped".into()));
    assert!(shop.json(&["--json", "work", "schedule", "list"]).is_empty());
}

#[test]
fn lines_are_tried_without_a_schedule() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    let new_year =
        shop.ok(&["work", "schedule", "next", "--cron", "0 0 1 1 *", "--time-zone", "Asia/Tokyo", "--count", "2"]);
    assert!(new_year.lines().all(|line| line.ends_with("-01-01 00:00:00 +09:00")), "{new_year}");
    let refused = shop.fails(1, &["work", "schedule", "next", "--cron", "0 25 * * *"]);
    assert!(refused.contains("60045") && refused.contains("field 2 (hour) is '25', at character 3"), "{refused}");
    shop.fails(2, &["work", "schedule", "next"]);
    shop.fails(1, &["work", "schedule", "next", "none"]);
    let help = shop.ok(&["work", "schedule", "--help"]);
    assert!(help.contains("Examples:") && help.contains("cron line"), "{help}");
}

#[test]
fn the_coming_times_of_a_paused_schedule_are_marked() {
    let _limit = crate::limit();
    let shop = Shop::empty();
    shop.ok_with(&["apply", "-"], b"CREATE WORK QUEUE reports");
    shop.ok(&["work", "schedule", "add", "nightly", "reports", "0 3 * * *"]);
    let next = ["work", "schedule", "next", "nightly"];
    let as_json = || shop.json(&[&["--json"], &next[..]].concat());
    assert!(as_json().iter().all(|time| time["is_paused"] == false));
    assert!(shop.run_with(&next, b"").stderr.is_empty());
    shop.ok(&["work", "schedule", "pause", "nightly"]);
    assert!(as_json().iter().all(|time| time["is_paused"] == true));
    let output = shop.run_with(&next, b"");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && error.contains("schedule 'nightly' is paused"), "{error}");
}
