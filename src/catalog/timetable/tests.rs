use super::*;

fn at(text: &str) -> Timestamp {
    Timestamp(text.parse::<jiff::Timestamp>().unwrap().as_microsecond())
}

fn table(line: &str, zone: &str) -> Timetable {
    Timetable::parse("s", line, zone).unwrap()
}

/// The next times after one, as UTC.
fn next(line: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
    let (table, mut last) = (table(line, zone), at(after));
    let mut times = Vec::new();
    for _ in 0..count {
        last = table.next(last).unwrap();
        times.push(last.to_string().replace(":00.000Z", "Z"));
    }
    times
}

fn refusal(line: &str, zone: &str) -> String {
    let error = Timetable::parse("nightly", line, zone).unwrap_err();
    assert_eq!(error.code(), Code::BAD_CRON);
    error.to_string()
}

#[test]
fn a_time_is_read_in_its_zone() {
    let winter = next("0 3 * * *", "Europe/Berlin", "2026-11-22T12:00:00Z", 1);
    let summer = next("0 3 * * *", "Europe/Berlin", "2026-07-01T12:00:00Z", 1);
    assert_eq!((winter, summer), (vec!["2026-11-23T02:00Z".to_owned()], vec!["2026-07-02T01:00Z".to_owned()]));
    assert_eq!(next("0 3 * * *", "UTC", "2026-11-23T03:00:00Z", 1), ["2026-11-24T03:00Z"], "after, not at");
    assert_eq!(next("@daily", "america/new_york", "2026-11-22T12:00:00Z", 1), ["2026-11-23T05:00Z"]);
    assert_eq!(table("@daily", "america/new_york").zone_name(), "America/New_York");
    assert_eq!(next("*/20 * * * * *", "UTC", "2026-11-22T12:00:00.5Z", 1), ["2026-11-22T12:00:20.000Z"]);
}

#[test]
fn a_time_that_the_clocks_skip_comes_at_the_end_of_the_gap() {
    let nightly = next("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2);
    assert_eq!(nightly, ["2026-03-29T01:00Z", "2026-03-30T00:30Z"]);
    let hourly = next("0 * * * *", "Europe/Berlin", "2026-03-28T23:30:00Z", 3);
    assert_eq!(hourly, ["2026-03-29T00:00Z", "2026-03-29T01:00Z", "2026-03-29T02:00Z"]);
}

#[test]
fn a_time_that_the_clocks_repeat_comes_once_and_a_step_goes_on() {
    let nightly = next("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2);
    assert_eq!(nightly, ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]);
    let steps = next("*/30 * * * *", "Europe/Berlin", "2026-10-25T00:00:00Z", 4);
    assert_eq!(steps, ["2026-10-25T00:30Z", "2026-10-25T01:00Z", "2026-10-25T01:30Z", "2026-10-25T02:00Z"]);
}

#[test]
fn a_malformed_line_is_refused_with_its_field_and_place() {
    let cases = [
        ("61 3 * * *", "field 1 (minute) is '61', at character 1; it must be 0 to 59"),
        ("0  3 * * 8", "field 5 (day of week) is '8', at character 10; it must be 0 to 7"),
        ("0 0 3 * 13 *", "field 5 (month) is '13', at character 9"),
        ("60 * * * * *", "field 1 (second) is '60'"),
        ("1,,2 * * * *", "field 1 (minute) is '1,,2'"),
        ("*/0 * * * *", "field 1 (minute) is '*/0'"),
        ("0 3 * * MÖN", "field 5 (day of week) is 'MÖN', at character 9"),
        ("0 3 * *", "it has 4 fields; give 5"),
        ("", "it has 0 fields"),
        ("* * * * * * *", "it has 7 fields"),
        ("@reboot", "the words are @yearly"),
        ("0 0 31 2 *", "it never comes"),
        ("0 0 31 4,6,9,11 *", "it never comes"),
    ];
    for (line, why) in cases {
        let refusal = refusal(line, "UTC");
        assert!(
            refusal.contains(why) && refusal.contains("CRON") && refusal.contains("'nightly'"),
            "{line}: {refusal}"
        );
    }
    let refusal = refusal("0 3 * * *", "Europe/Bern");
    assert!(refusal.contains("TIME_ZONE 'Europe/Bern'"), "{refusal}");
    assert_eq!(next("0 0 29 2 *", "UTC", "2026-11-22T00:00:00Z", 1), ["2028-02-29T00:00Z"], "rare is not never");
}

#[test]
fn no_step_before_the_time() {
    let table = table("0 * * * *", "UTC");
    for (_, missed) in Missed::ALL {
        assert_eq!(table.firings(at("2026-11-22T10:00:00Z"), at("2026-11-22T09:59:59.999Z"), missed), []);
    }
}

#[test]
fn a_punctual_schedule_has_one_job_whatever_missed_says() {
    let table = table("0 * * * *", "UTC");
    let due = at("2026-11-22T10:00:00Z");
    let right = Firing { due, next: Some(at("2026-11-22T11:00:00Z")), time: Some(due) };
    for (word, missed) in Missed::ALL {
        assert_eq!(table.firings(due, due, missed), [right], "{word}");
        assert_eq!(table.firings(due, at("2026-11-22T10:00:59Z"), missed), [right], "{word}");
    }
}

#[test]
fn missed_times() {
    let table = table("0 * * * *", "UTC");
    let (due, now) = (at("2026-11-22T10:00:00Z"), at("2026-11-22T13:20:00Z"));
    let hour = |hour: u32| Some(at(&format!("2026-11-22T{hour}:00:00Z")));
    let once = Firing { due, next: hour(14), time: hour(13) };
    assert_eq!(table.firings(due, now, Missed::Once), [once], "one job, for the last time");
    assert_eq!(table.firings(due, now, Missed::Skip), [Firing { time: None, ..once }]);
    assert_eq!(table.firings(due, at("2026-11-22T13:00:30Z"), Missed::Skip), [once], "the last is not missed");
    let all = table.firings(due, now, Missed::All);
    let times: Vec<_> = all.iter().map(|firing| (Some(firing.due), firing.time, firing.next)).collect();
    let right: Vec<_> = (10..=13).map(|n| (hour(n), hour(n), hour(n + 1))).collect();
    assert_eq!(times, right, "each step begins where the one before ended");
}

#[test]
fn all_missed_times_are_the_last_thousand() {
    let table = table("* * * * * *", "UTC");
    let (due, now) = (at("2025-11-22T10:00:00Z"), at("2026-11-22T10:00:00Z"));
    let all = table.firings(due, now, Missed::All);
    assert_eq!(all.len(), MOST_MISSED);
    let (first, last) = (all[0], all[MOST_MISSED - 1]);
    assert_eq!((first.due, first.time), (due, Some(at("2026-11-22T09:43:21Z"))), "from the time in the row on");
    assert_eq!((last.time, last.next), (Some(now), Some(at("2026-11-22T10:00:01Z"))));
}

mod brute_force {
    //! Timetables against a walk over every minute of the days around a change of the clocks.

    use super::*;
    use jiff::SignedDuration;
    use jiff::civil::DateTime;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Half an hour, two hours, changes at midnight and into it, west and east.
    const PLACES: [&str; 12] = [
        "Europe/Berlin",
        "America/New_York",
        "Australia/Lord_Howe",
        "America/Scoresbysund",
        "America/Havana",
        "Africa/Cairo",
        "Asia/Beirut",
        "America/St_Johns",
        "Pacific/Chatham",
        "Africa/Casablanca",
        "Antarctica/Troll",
        "UTC",
    ];
    const DAY_S: i64 = 86_400;

    /// A field: its text, its values, and whether it has a `*` or a step.
    type Field = (String, BTreeSet<i8>, bool);

    fn field(least: i8, most: i8) -> BoxedStrategy<Field> {
        let set = |text: String, values: BTreeSet<i8>, steps: bool| (text, values, steps);
        prop_oneof![
            6 => prop::collection::btree_set(least..=most, 1..4).prop_map(move |values| {
                let text: Vec<String> = values.iter().map(i8::to_string).collect();
                set(text.join(","), values, false)
            }),
            1 => (least..=most, 0..4i8).prop_map(move |(first, more)| {
                let last = first.saturating_add(more).min(most);
                set(format!("{first}-{last}"), (first..=last).collect(), false)
            }),
            1 => Just(set("*".into(), (least..=most).collect(), true)),
            1 => (2..8i8).prop_map(move |step| {
                set(format!("*/{step}"), (least..=most).step_by(step.unsigned_abs().into()).collect(), true)
            }),
        ]
        .boxed()
    }

    fn hours() -> BoxedStrategy<Field> {
        prop_oneof![
            2 => field(0, 3),
            1 => field(22, 23),
            1 => field(0, 23),
        ]
        // A list of a few hours is not what `*` means.
        .prop_map(|(text, values, steps)| match text.as_str() {
            "*" => (text, (0..=23).collect(), true),
            step if step.starts_with("*/") => {
                let by: usize = step[2..].parse().unwrap();
                (text, (0..=23).step_by(by).collect(), true)
            }
            _ => (text, values, steps),
        })
        .boxed()
    }

    proptest! {
        #![proptest_config(dialoq_test_support::seeds::config(512))]

        #[test]
        fn a_timetable_is_what_a_walk_over_every_minute_finds(
            minutes in field(0, 59),
            hours in hours(),
            days in prop::option::weighted(0.2, prop::collection::btree_set(1..=31i8, 1..12)),
            weekdays in prop::option::weighted(0.3, prop::collection::btree_set(0..=6i8, 1..5)),
            place in 0..PLACES.len(),
            change in 0..4usize,
        ) {
            let list = |values: &Option<BTreeSet<i8>>| values.as_ref().map_or("*".to_owned(), |values| {
                values.iter().map(i8::to_string).collect::<Vec<_>>().join(",")
            });
            let line = format!("{} {} {} * {}", minutes.0, hours.0, list(&days), list(&weekdays));
            let zone = ZONES.get(PLACES[place]).unwrap();
            let changed = zone.following("2026-01-01T00:00:00Z".parse::<jiff::Timestamp>().unwrap()).nth(change);
            let middle = changed.map_or(1_780_012_800, |change| change.timestamp().as_second());
            let (begin, end) = (middle - 2 * DAY_S, middle + 2 * DAY_S);

            let is_fixed = !minutes.2 && !hours.2;
            let matches = |clock: DateTime| {
                let by_day = days.as_ref().map(|days| days.contains(&clock.day()));
                let by_weekday = weekdays.as_ref().map(|all| all.contains(&clock.weekday().to_sunday_zero_offset()));
                let is_day = match (by_day, by_weekday) {
                    (Some(one), Some(other)) => one || other,
                    (one, other) => one.or(other).unwrap_or(true),
                };
                is_day && minutes.1.contains(&clock.minute()) && hours.1.contains(&clock.hour())
            };
            let mut right = BTreeSet::new();
            let mut shown = BTreeSet::new();
            let mut last: Option<DateTime> = None;
            for second in (begin - DAY_S..=end).step_by(60) {
                let clock = jiff::Timestamp::from_second(second).unwrap().to_zoned(zone.clone()).datetime();
                let mut left_out = last.map(|last| last + SignedDuration::from_mins(1)).filter(|_| is_fixed);
                while let Some(missing) = left_out.filter(|missing| *missing < clock) {
                    if matches(missing) {
                        right.insert(second);
                    }
                    left_out = Some(missing + SignedDuration::from_mins(1));
                }
                last = Some(clock);
                if matches(clock) && (shown.insert(clock) || !is_fixed) {
                    right.insert(second);
                }
            }
            let right: Vec<i64> = right.into_iter().filter(|second| *second > begin).collect();

            let Ok(table) = Timetable::parse("s", &line, PLACES[place]) else { return Ok(()) };
            let us = |second: i64| Timestamp(second * 1_000_000);
            let mut found = Vec::new();
            let mut time = us(begin);
            while let Some(next) = table.next(time).filter(|next| *next <= us(end)) {
                prop_assert!(next > time, "{line} in {}: {next} comes after {time}", PLACES[place]);
                found.push(next.0 / 1_000_000);
                time = next;
            }
            prop_assert_eq!(&found, &right, "{} in {}", line, PLACES[place]);
            if let Some(first) = right.first() {
                let missed = table.firings(us(*first), us(end), Missed::All);
                let times: Vec<i64> = missed.iter().map(|firing| firing.time.unwrap().0 / 1_000_000).collect();
                prop_assert_eq!(&times[..], &right[right.len().saturating_sub(MOST_MISSED)..], "{} in {}, back", line, PLACES[place]);
                // From any moment between two times back to the one before.
                for pair in right.windows(2) {
                    let between = us(pair[0] + (pair[1] - pair[0]) / 2);
                    let once = table.firings(us(*first), between, Missed::Once);
                    prop_assert_eq!(once[0].time, Some(us(pair[0])), "{} in {}, at {}", line, PLACES[place], between);
                    prop_assert_eq!(once[0].next, Some(us(pair[1])), "{} in {}, at {}", line, PLACES[place], between);
                }
            }
        }
    }
}

#[test]
fn an_error_of_a_line_without_a_schedule_names_no_schedule() {
    for (line, zone) in [("61 3 * * *", "UTC"), ("0 3 * * *", "Europe/Bern"), ("0 0 31 2 *", "UTC")] {
        let error = Timetable::parse("", line, zone).unwrap_err().to_string();
        assert!(error.contains("is not usable") && !error.contains("of work schedule"), "{error}");
    }
}

#[test]
fn the_word_hourly_goes_on_in_an_hour_that_the_clocks_repeat() {
    let hourly = next("@hourly", "Europe/Berlin", "2026-10-25T00:00:00Z", 3);
    assert_eq!(hourly, ["2026-10-25T01:00Z", "2026-10-25T02:00Z", "2026-10-25T03:00Z"]);
}

#[test]
fn times_at_the_very_moment_of_a_change_of_the_clocks_are_found() {
    let nightly = next("0 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 2);
    assert_eq!(nightly, ["2026-03-29T01:00Z", "2026-03-30T00:00Z"], "the first minute of the gap");
    let back = at("2026-10-25T01:00:00Z");
    let once = table("30 2 * * *", "Europe/Berlin").firings(at("2026-10-24T00:30:00Z"), back, Missed::Once);
    let times: Vec<_> = once.iter().map(|firing| (firing.time, firing.next)).collect();
    assert_eq!(times, [(Some(at("2026-10-25T00:30:00Z")), Some(at("2026-10-26T01:30:00Z")))]);
}
