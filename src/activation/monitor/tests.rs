use super::MonitorState::{Inactive, Notified, ReceivesOccurring};
use super::*;

/// A queue, its readers and the time, moved by hand.
struct Scene {
    monitor: Monitor,
    settings: MonitorSettings,
    facts: QueueFacts,
    running: Running,
    now: Timestamp,
}

impl Scene {
    fn new(max: u16, ramp: Ramp) -> Self {
        Self {
            monitor: Monitor::new(),
            settings: MonitorSettings { exists: true, launches: Launches::Readers { max, ramp } },
            facts: QueueFacts::default(),
            running: Running::default(),
            now: Timestamp(1_000_000_000),
        }
    }

    /// Checks, runs the launches decided, and returns their number.
    fn check(&mut self) -> usize {
        let decision = self.monitor.check(&self.settings, &self.facts, self.running, self.now);
        self.running.readers += decision.launch;
        self.running.starting += decision.launch;
        decision.launch
    }

    fn next(&self) -> Option<Timestamp> {
        self.monitor.clone().check(&self.settings, &self.facts, self.running, self.now).next_check
    }

    fn rows(&mut self, groups: usize) -> &mut Self {
        self.facts.ready_groups = groups;
        self.facts.unread = groups as u64;
        self
    }

    fn receives(&mut self) -> &mut Self {
        self.facts.receives += 1;
        self.running.starting = 0;
        self
    }

    fn comes_back_empty(&mut self) -> &mut Self {
        self.facts.last_empty = Some(self.now);
        self.receives()
    }

    fn leaves(&mut self, end: ReaderEnd) -> &mut Self {
        self.running.readers -= 1;
        self.running.starting = self.running.starting.min(self.running.readers);
        self.monitor.reader_ended(end, self.now);
        self
    }

    fn after(&mut self, seconds: i64) -> &mut Self {
        self.now = self.now.after_seconds(seconds);
        self
    }

    fn max(&mut self, max: u16) -> &mut Self {
        if let Launches::Readers { max: limit, .. } = &mut self.settings.launches {
            *limit = max;
        }
        self
    }

    fn exists(&mut self, exists: bool) -> &mut Self {
        self.settings.exists = exists;
        self
    }

    #[track_caller]
    fn stands(&self, state: MonitorState) {
        assert_eq!(self.monitor.state(), Some(state));
    }
}

fn plain(max: u16) -> Scene {
    Scene::new(max, Ramp::ServiceBroker)
}

#[test]
fn a_186_the_first_message_starts_one_reader() {
    let mut scene = plain(10);
    assert_eq!(scene.check(), 0);
    scene.stands(Inactive);
    assert_eq!(scene.rows(1).check(), 1);
    scene.stands(Notified);
    assert_eq!(scene.monitor.last_activated(), Some(scene.now));
}

#[test]
fn a_187_further_messages_before_any_receive_start_nothing() {
    let mut scene = plain(10);
    scene.rows(1).check();
    for (seconds, groups) in [(0, 2), (1, 50), (10, 900), (600, 900)] {
        assert_eq!(scene.after(seconds).rows(groups).check(), 0);
        scene.stands(Notified);
    }
    assert_eq!(scene.next(), None, "only a RECEIVE leads out of NOTIFIED");
}

#[test]
fn a_188_any_session_s_receive_is_seen() {
    let mut scene = plain(10);
    scene.rows(2).check();
    scene.facts.receives += 1;
    assert_eq!(scene.check(), 0);
    scene.stands(ReceivesOccurring);
}

#[test]
fn a_189_under_constant_work_one_more_reader_each_five_seconds_up_to_the_limit() {
    let mut scene = plain(3);
    scene.rows(100).check();
    scene.receives().check();
    let mut started = Vec::new();
    for second in 1..=30 {
        if scene.after(1).receives().check() == 1 {
            started.push(second);
        }
    }
    assert_eq!(started, [5, 10]);
    assert_eq!(scene.running.readers, 3);
}

#[test]
fn eight_readers_take_thirty_five_seconds() {
    let mut scene = plain(8);
    scene.rows(100).check();
    scene.receives().check();
    let start = scene.now;
    while scene.running.readers < 8 {
        scene.now = scene.next().expect("there is always a next check while rows wait");
        scene.check();
    }
    assert_eq!(scene.now.since(start), Duration::from_secs(35));
}

#[test]
fn a_190_each_empty_result_restarts_the_five_seconds() {
    let mut scene = plain(10);
    scene.rows(100).check();
    scene.receives().check();
    for _ in 0..10 {
        assert_eq!(scene.after(4).comes_back_empty().check(), 0);
    }
    assert_eq!(scene.after(4).receives().check(), 0);
    assert_eq!(scene.after(1).receives().check(), 1, "five seconds after the last empty result");
}

#[test]
fn a_191_waiting_sessions_keep_readers_from_starting() {
    let mut scene = plain(10);
    scene.facts.waiting = 1;
    scene.facts.waits = 1;
    assert_eq!(scene.check(), 0);
    assert_eq!(scene.rows(1).check(), 0);
    scene.stands(Inactive);
    assert_eq!(scene.next(), Some(scene.now.after(CHECK_INTERVAL)));
    scene.facts.waiting = 0;
    assert_eq!(scene.comes_back_empty().check(), 1, "no waiting session is left");
}

#[test]
fn a_waiting_session_that_does_not_come_for_what_is_ready_keeps_no_reader_from_starting() {
    for ramp in [Ramp::ServiceBroker, Ramp::Fast] {
        let mut scene = Scene::new(10, ramp);
        scene.facts.waiting = 1;
        scene.facts.waits = 1;
        assert_eq!(scene.rows(1).check(), 0);
        scene.facts.is_unserved = true;
        assert_eq!(scene.check(), 1);
    }
}

#[test]
fn a_wait_between_checks_restarts_the_five_seconds() {
    let mut scene = plain(10);
    scene.rows(5).check();
    scene.receives().check();
    scene.after(4).facts.waits += 1;
    assert_eq!(scene.receives().check(), 0);
    assert_eq!(scene.after(4).receives().check(), 0);
    assert_eq!(scene.after(1).receives().check(), 1);
}

#[test]
fn a_192_one_group_and_a_busy_reader_start_one_more_at_most_at_a_time() {
    let mut scene = plain(10);
    scene.rows(1).check();
    scene.facts = QueueFacts { ready_groups: 0, unread: 9, ..scene.facts };
    scene.receives().check();
    assert_eq!(scene.after(5).check(), 1);
    for _ in 0..5 {
        assert_eq!(scene.comes_back_empty().leaves(ReaderEnd::Left).check(), 0, "others hold the only group");
        assert_eq!(scene.running.readers, 1);
        assert_eq!(scene.after(5).check(), 1);
        assert_eq!(scene.running.readers, 2);
    }
}

#[test]
fn a_193_a_reader_without_a_receive_leaves_the_monitor_notified() {
    let mut scene = plain(10);
    scene.rows(1).check();
    assert_eq!(scene.leaves(ReaderEnd::WithoutReceive).check(), 0);
    for _ in 0..5 {
        assert_eq!(scene.after(60).rows(9).check(), 0);
        scene.stands(Notified);
    }
    assert_eq!(scene.monitor.counters().tasks_aborted, 1);
    assert_eq!(scene.receives().check(), 1, "any RECEIVE cures it");
}

#[test]
fn a_194_off_and_on_again_cures_it_too() {
    let mut scene = plain(10);
    scene.rows(1).check();
    scene.leaves(ReaderEnd::WithoutReceive).check();
    assert_eq!(scene.exists(false).check(), 0);
    assert_eq!(scene.monitor.state(), None);
    assert_eq!(scene.exists(true).check(), 1);
    scene.stands(Notified);
}

#[test]
fn a_195_rows_left_by_a_reader_start_another() {
    let mut scene = plain(10);
    scene.rows(3).check();
    assert_eq!(scene.receives().rows(2).check(), 0);
    assert_eq!(scene.leaves(ReaderEnd::Left).check(), 1);
    scene.stands(Notified);
    assert_eq!(scene.receives().rows(1).leaves(ReaderEnd::Left).check(), 1);
    assert_eq!(scene.receives().rows(0).leaves(ReaderEnd::Left).check(), 0);
    scene.stands(Inactive);
    assert_eq!(scene.next(), None);
}

#[test]
fn a_196_and_200_off_launches_nothing_and_on_serves_waiting_rows_at_once() {
    let mut scene = plain(10);
    assert_eq!(scene.exists(false).rows(5).check(), 0);
    assert_eq!(scene.monitor.state(), None);
    assert_eq!(scene.next(), None);
    assert_eq!(scene.after(60).check(), 0);
    assert_eq!(scene.exists(true).check(), 1);
}

#[test]
fn turning_on_serves_waiting_rows_although_a_reader_still_runs_from_before() {
    let mut scene = plain(10);
    scene.rows(5).check();
    scene.exists(false).check();
    assert_eq!(scene.exists(true).check(), 1);
    assert_eq!(scene.running.readers, 2);
}

#[test]
fn a_197_and_198_a_lowered_limit_stops_no_reader_and_starts_none() {
    let mut scene = plain(3);
    scene.rows(100).check();
    scene.receives().check();
    scene.after(5).check();
    scene.after(5).check();
    assert_eq!((scene.running.readers, scene.monitor.counters().task_limit_reached), (3, 0));
    scene.max(1);
    for reached in 1..=4 {
        assert_eq!(scene.after(5).receives().check(), 0);
        assert_eq!(scene.monitor.counters().task_limit_reached, reached);
    }
    scene.leaves(ReaderEnd::Left).leaves(ReaderEnd::Left);
    assert_eq!(scene.after(5).check(), 0, "one runs, one is the limit");
    assert_eq!(scene.leaves(ReaderEnd::Left).check(), 1);
}

#[test]
fn a_raised_limit_starts_the_reader_it_refused_at_once() {
    let mut scene = plain(1);
    scene.rows(100).check();
    scene.receives().check();
    assert_eq!(scene.after(5).check(), 0);
    assert_eq!(scene.after(1).max(4).check(), 1);
    assert_eq!(scene.after(1).check(), 0, "and the next five seconds later");
    assert_eq!(scene.after(4).check(), 1);
}

#[test]
fn a_33_a_limit_of_zero_never_starts_anything() {
    let mut scene = plain(0);
    for _ in 0..20 {
        assert_eq!(scene.rows(3).check(), 0);
        scene.after(1);
    }
    assert_eq!(scene.monitor.counters().task_limit_reached, 4, "an attempt each five seconds");
    assert_eq!(scene.max(1).check(), 1);
}

#[test]
fn a_201_rows_waiting_at_the_start_activate() {
    assert_eq!(plain(1).rows(7).check(), 1);
}

#[test]
fn a_new_message_while_a_reader_works_is_left_to_it() {
    let mut scene = plain(10);
    scene.rows(1).check();
    scene.receives().rows(0).check();
    scene.stands(Inactive);
    assert_eq!(scene.rows(1).check(), 0);
    scene.stands(ReceivesOccurring);
    assert_eq!(scene.after(5).check(), 1, "it did not come back for it in five seconds");
}

#[test]
fn a_missing_procedure_is_tried_each_five_seconds() {
    let mut scene = plain(10);
    scene.rows(1);
    for attempt in 1..=3 {
        assert_eq!(scene.check(), 1);
        scene.running = Running::default();
        scene.monitor.launch_failed(1, scene.now);
        assert_eq!(scene.monitor.counters().activation_errors, attempt);
        assert_eq!(scene.monitor.counters().tasks_started, 0);
        assert_eq!(scene.after(4).check(), 0);
        assert_eq!(scene.next(), Some(scene.now.after_seconds(1)));
        scene.after(1);
    }
    scene.check();
    scene.running = Running::default();
    scene.monitor.launch_failed(1, scene.now);
    scene.monitor.retry_now();
    assert_eq!(scene.check(), 1, "it was registered");
}

#[test]
fn failing_readers_are_replaced_while_they_receive_and_counted() {
    let mut scene = plain(10);
    scene.rows(1).check();
    for failures in 1..=4 {
        assert_eq!(scene.receives().leaves(ReaderEnd::Failed { received: true }).check(), 1);
        let counters = scene.monitor.counters();
        assert_eq!((counters.tasks_aborted, counters.activation_errors), (failures, failures));
    }
}

#[test]
fn a_reader_that_failed_is_replaced_after_a_pause() {
    // A RECEIVE of a server that is down changes no fact; nor does a reader that does not come to its RECEIVE.
    let ends = [true, false].map(|received| ReaderEnd::Failed { received });
    for (ramp, end) in [Ramp::ServiceBroker, Ramp::Fast].into_iter().flat_map(|ramp| ends.map(|end| (ramp, end))) {
        let mut scene = Scene::new(1, ramp);
        assert_eq!(scene.rows(1).check(), 1);
        for _ in 0..3 {
            assert_eq!(scene.leaves(end).check(), 0, "no loop of failures");
            scene.stands(ReceivesOccurring);
            assert_eq!(scene.next(), Some(scene.now.after(CHECK_INTERVAL)));
            assert_eq!(scene.after(4).check(), 0);
            assert_eq!(scene.after(1).check(), 1, "the queue is served again");
        }
    }
}

#[test]
fn a_reader_that_met_its_queue_off_is_replaced_after_a_pause_if_the_queue_is_on_again() {
    let mut scene = plain(1);
    assert_eq!(scene.rows(1).check(), 1);
    assert_eq!(scene.leaves(ReaderEnd::WithQueue).check(), 0, "the definitions may be behind: no loop of failures");
    assert_eq!(scene.after(4).check(), 0);
    assert_eq!(scene.after(1).check(), 1);
    let mut fast = Scene::new(1, Ramp::Fast);
    fast.rows(1).check();
    assert_eq!(fast.leaves(ReaderEnd::WithQueue).check(), 1);
    // Of a queue of that name that was dropped: the reader of the new one is beginning.
    let mut both = plain(2);
    both.rows(1).check();
    both.running.readers += 1;
    assert_eq!(both.leaves(ReaderEnd::WithQueue).check(), 0);
    both.stands(Notified);
}

#[test]
fn a_clock_that_is_put_back_delays_no_launch_by_more_than_the_interval() {
    let mut held = plain(4);
    held.rows(1).check();
    held.running = Running::default();
    held.monitor.launch_failed(1, held.now);
    let mut busy = plain(4);
    busy.rows(9).check();
    busy.comes_back_empty().check();
    for scene in [&mut held, &mut busy] {
        scene.after(-3600).check();
        assert!(scene.next().is_some_and(|next| next <= scene.now.after(CHECK_INTERVAL)), "the next check is soon");
        assert_eq!(scene.after(5).check(), 1);
    }
}

#[test]
fn the_fast_ramp_starts_a_reader_for_every_unserved_group() {
    let mut scene = Scene::new(8, Ramp::Fast);
    assert_eq!(scene.rows(3).check(), 3);
    assert_eq!(scene.check(), 0, "those three are about to receive");
    assert_eq!(scene.rows(5).check(), 2);
    assert_eq!(scene.receives().rows(40).check(), 3, "the limit is eight");
    assert_eq!(scene.check(), 0);
    scene.receives().facts.waiting = 8;
    assert_eq!(scene.max(20).rows(8).check(), 0, "eight wait for eight groups");
    assert_eq!(scene.rows(9).check(), 1);
}

#[test]
fn the_fast_ramp_counts_the_limit_and_ignores_groups_that_others_hold() {
    let mut scene = Scene::new(2, Ramp::Fast);
    assert_eq!(scene.rows(5).check(), 2);
    scene.receives().check();
    assert_eq!(scene.after(5).check(), 0);
    assert_eq!(scene.monitor.counters().task_limit_reached, 1);
    scene.max(9).facts.ready_groups = 0;
    assert_eq!(scene.check(), 0);
    assert_eq!(scene.after(60).receives().check(), 0, "rows in locked groups need no readers");
}

#[test]
fn the_fast_ramp_does_not_spin_while_one_reader_holds_all_that_waits() {
    let mut scene = Scene::new(2, Ramp::Fast);
    assert_eq!(scene.rows(1).check(), 1);
    // The reader works on the first message of the group; the second waits behind it.
    scene.receives().facts.ready_groups = 0;
    for seconds in [0, 5, 1, 60] {
        assert_eq!(scene.after(seconds).check(), 0);
        assert!(scene.next().is_some_and(|next| next > scene.now), "after {seconds} s it would check without a pause");
    }
}

#[test]
fn the_fast_ramp_does_not_spin_on_readers_that_never_receive() {
    let mut scene = Scene::new(2, Ramp::Fast);
    assert_eq!(scene.rows(5).check(), 2);
    scene.leaves(ReaderEnd::WithoutReceive).leaves(ReaderEnd::WithoutReceive);
    assert_eq!(scene.after(4).check(), 0);
    assert_eq!(scene.next(), Some(scene.now.after_seconds(1)));
    assert_eq!(scene.after(1).check(), 2);
}

#[test]
fn a_202_one_event_and_no_second_before_a_receive_or_the_time_out() {
    let mut scene = plain(0);
    scene.settings.launches = Launches::Events;
    assert_eq!(scene.rows(1).check(), 1);
    scene.running = Running::default();
    scene.stands(Notified);
    assert_eq!(scene.after(4).rows(2).check(), 0);
    assert_eq!(scene.next(), Some(scene.now.after_seconds(1)));
    assert_eq!(scene.after(1).check(), 1, "slow to start");
    scene.running = Running::default();
    assert_eq!(scene.receives().check(), 0);
    assert_eq!(scene.after(5).check(), 1, "and again while there is work");
    scene.running = Running::default();
    assert_eq!(scene.receives().rows(0).check(), 0);
    scene.stands(Inactive);
    assert_eq!(scene.rows(1).check(), 1);
}

#[test]
fn never_more_than_the_limit_whatever_happens() {
    use proptest::prelude::*;
    let steps = proptest::collection::vec((0..10u8, 0..12u16), 1..200);
    proptest!(dialoq_test_support::seeds::config(256), |(fast in any::<bool>(), steps in steps)| {
        let mut scene = Scene::new(3, if fast { Ramp::Fast } else { Ramp::ServiceBroker });
        let mut limit = 3;
        for (step, value) in steps {
            match step {
                0 | 1 => { scene.rows(value.into()); }
                2 => { scene.receives(); }
                3 => { scene.comes_back_empty(); }
                4 if scene.running.readers > 0 => { scene.leaves(ReaderEnd::Left); }
                5 if scene.running.readers > 0 => { scene.leaves(ReaderEnd::Failed { received: false }); }
                6 => { scene.after(value.into()); }
                7 => { limit = value; scene.max(value); }
                8 => { scene.facts.waiting = usize::from(value % 3); }
                9 => { scene.facts.ready_groups = 0; }
                _ => {}
            }
            let before = scene.running.readers;
            let decision = scene.monitor.clone().check(&scene.settings, &scene.facts, scene.running, scene.now);
            prop_assert!(decision.next_check.is_none_or(|next| next > scene.now), "it would check without a pause");
            let launched = scene.check();
            prop_assert!(launched == 0 || before + launched <= usize::from(limit));
            prop_assert!(fast || launched <= 1);
            if scene.facts.unread > 0 && scene.running.readers == 0 {
                let stuck = scene.next().is_none() && scene.monitor.state() != Some(Notified);
                prop_assert!(!stuck, "rows wait, no reader runs, and no check is due");
            }
        }
    });
}

/// Checks; readers of other processes hold the places of all launches except so many.
fn check_with_places(scene: &mut Scene, places: usize) -> usize {
    check_if_notified(scene, places, true)
}

/// The same; whether the store tells when one of them becomes free.
fn check_if_notified(scene: &mut Scene, places: usize, is_notified: bool) -> usize {
    let launch = scene.monitor.check(&scene.settings, &scene.facts, scene.running, scene.now).launch;
    let launched = launch.min(places);
    scene.running.readers += launched;
    scene.running.starting += launched;
    if launched < launch {
        scene.monitor.places_taken(launch - launched, scene.running, is_notified, scene.now);
    }
    launched
}

#[test]
fn a_queue_full_of_other_processes_readers_is_retried_every_five_seconds() {
    let mut scene = Scene::new(4, Ramp::ServiceBroker);
    scene.rows(3);
    for refused in 1..=3 {
        assert_eq!(check_with_places(&mut scene, 0), 0);
        assert_eq!((scene.monitor.counters().task_limit_reached, scene.monitor.counters().tasks_started), (refused, 0));
        scene.stands(Inactive);
        assert_eq!(scene.monitor.last_activated(), None);
        assert_eq!(scene.next(), Some(scene.now.after_seconds(5)));
        // Arrivals in between do not cause another request.
        scene.after(1).rows(9);
        assert_eq!(check_with_places(&mut scene, 4), 0);
        scene.after(4);
    }
    assert_eq!(check_with_places(&mut scene, 1), 1);
    scene.stands(Notified);
}

#[test]
fn a_place_of_which_nothing_tells_is_asked_for_while_a_process_without_work_pauses() {
    for ramp in [Ramp::ServiceBroker, Ramp::Fast] {
        let mut scene = Scene::new(1, ramp);
        scene.rows(1);
        for _ in 0..3 {
            assert_eq!(check_if_notified(&mut scene, 0, false), 0, "{ramp:?}");
            let next = scene.next().expect("it is asked for again");
            assert!(next < scene.now.after(PASS_ON.1), "{ramp:?}: the pause of the other process is over by then");
            scene.now = next;
        }
        assert_eq!(check_if_notified(&mut scene, 1, false), 1, "{ramp:?}");
    }
}

#[test]
fn a_reader_that_leaves_frees_its_own_place_at_once() {
    let mut scene = Scene::new(4, Ramp::ServiceBroker);
    scene.rows(9);
    assert_eq!(check_with_places(&mut scene, 1), 1);
    scene.receives();
    scene.check();
    scene.after(5);
    assert_eq!(check_with_places(&mut scene, 0), 0, "the second");
    scene.stands(ReceivesOccurring);
    scene.leaves(ReaderEnd::Left);
    assert_eq!(check_with_places(&mut scene, 1), 1, "rows are left, and a place");
}

#[test]
fn a_raised_limit_ends_the_pause_of_a_full_queue() {
    let mut scene = Scene::new(1, Ramp::ServiceBroker);
    scene.rows(3);
    assert_eq!(check_with_places(&mut scene, 0), 0);
    scene.max(2);
    assert_eq!(check_with_places(&mut scene, 1), 1);
}

#[test]
fn the_fast_ramp_takes_the_places_there_are() {
    let mut scene = Scene::new(8, Ramp::Fast);
    scene.rows(20);
    assert_eq!(check_with_places(&mut scene, 3), 3);
    assert_eq!((scene.monitor.counters().tasks_started, scene.monitor.counters().task_limit_reached), (3, 1));
    scene.receives();
    assert_eq!(check_with_places(&mut scene, 8), 0, "not before something changed");
    scene.after(5);
    assert_eq!(check_with_places(&mut scene, 8), 5);
}

#[test]
fn a_place_that_another_process_frees_is_tried_at_once() {
    let mut scene = Scene::new(1, Ramp::ServiceBroker);
    scene.rows(3);
    assert_eq!(check_with_places(&mut scene, 0), 0);
    assert_eq!(check_with_places(&mut scene, 1), 0);
    scene.facts.places_freed += 1;
    assert_eq!(check_with_places(&mut scene, 1), 1);
}

#[test]
fn a_reader_that_found_nothing_in_its_part_of_the_queue_leaves_its_place_to_others_first() {
    for ramp in [Ramp::ServiceBroker, Ramp::Fast] {
        let mut scene = Scene::new(1, ramp);
        assert_eq!(scene.rows(1).check(), 1);
        scene.receives().leaves(ReaderEnd::Left);
        scene.monitor.reader_found_nothing(scene.now);
        assert_eq!(scene.check(), 0, "{ramp:?}");
        assert_eq!(scene.next(), Some(scene.now.after(PASS_ON.0)), "{ramp:?}");
        scene.now = scene.now.after(PASS_ON.0);
        assert_eq!(scene.check(), 1, "{ramp:?}");
        // The next ones that find nothing wait for longer, until one finds something.
        for pause_ms in [200, 400, 800, 1000, 1000] {
            scene.monitor.reader_found_nothing(scene.now);
            assert_eq!(
                scene.monitor.passed_on_until,
                Some(scene.now.after(Duration::from_millis(pause_ms))),
                "{ramp:?}"
            );
        }
        scene.monitor.reader_found_something();
        scene.monitor.reader_found_nothing(scene.now);
        assert_eq!(scene.monitor.passed_on_until, Some(scene.now.after(PASS_ON.0)), "{ramp:?}");
    }
}

#[test]
fn a_store_that_fails_each_commit_gets_a_pause_whatever_was_received() {
    for ramp in [Ramp::ServiceBroker, Ramp::Fast] {
        let mut scene = Scene::new(1, ramp);
        assert_eq!(scene.rows(1).check(), 1);
        for _ in 0..3 {
            // Its RECEIVE succeeded, its COMMIT did not, and the message is back.
            assert_eq!(scene.receives().leaves(ReaderEnd::StoreFailed).check(), 0, "{ramp:?}");
            assert_eq!(scene.check(), 0, "{ramp:?}: nothing has changed");
            assert_eq!(scene.after(5).check(), 1, "{ramp:?}");
        }
    }
}
