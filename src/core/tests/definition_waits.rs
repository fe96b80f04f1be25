//! Definitions that wait for conversations, and hold receives back meanwhile.

use super::edges::{receive_in, targets_at};
use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn after_ms(ms: i64) -> Timestamp {
    Timestamp(NOW.0 + ms * 1000)
}

/// A broker with two conversations at the queue `qt`; a transaction holds the first of them.
fn busy() -> (Memory, Session) {
    let mut memory = broker();
    let targets = targets_at(&mut memory, &[5, 5]);
    let mut session = memory.core.begin_transaction();
    memory.execute(&mut session, send_verb(targets[0], "m", "reply"), NOW).unwrap().unwrap();
    (memory, session)
}

fn move_service(name: &str) -> Verb {
    let (add_contracts, drop_contracts) = Default::default();
    let queue = Some("elsewhere".into());
    let create = Definition::CreateQueue { name: "elsewhere".into(), options: QueueOptions::default() };
    let alter = Definition::AlterService { name: name.into(), queue, add_contracts, drop_contracts };
    Verb::Define(vec![create, alter])
}

/// Tries to move the service `t`, which is blocked. Returns for how long receives are held back from now on.
fn blocked(memory: &mut Memory, now: Timestamp) -> Option<Duration> {
    let (mut session, mut effects) = (memory.core.begin(), Effects::default());
    let step = memory.core.execute(&mut session, move_service("t"), now);
    assert!(matches!(step, Ok(Step::Blocked(_))), "{step:?}");
    memory.core.abandon(session, &mut effects);
    memory.core.definition_waits(now, &mut effects)
}

#[test]
fn a_wait_holds_receives_back_for_twice_as_long_each_time() {
    let mut wait = DefinitionWait::begin(NOW);
    let mut begins = after_ms(1000);
    for seconds in [1, 2, 4, 8, 16, 32, 32, 32] {
        assert_eq!(wait.hold(Timestamp(begins.0 - 1)), None, "before the hold of {seconds} seconds");
        let hold_for = SECOND * seconds;
        assert_eq!(wait.hold(begins), Some(hold_for));
        assert_eq!(wait.hold(begins), None, "it holds them back already");
        begins = begins.after(hold_for * 2);
    }
}

#[test]
fn receives_are_held_back_from_new_sessions_until_the_hold_ends() {
    let (mut memory, mut session) = busy();
    assert_eq!(blocked(&mut memory, NOW), None);
    assert_eq!(depth(&memory, "qt"), (1, 2), "one of the two groups is locked");
    assert_eq!(blocked(&mut memory, after_ms(1000)), Some(SECOND));
    memory.tick(after_ms(1999));
    assert_eq!(depth(&memory, "qt"), (0, 2));
    let queue_id = memory.core.catalog().queue("qt").unwrap().id;
    assert_eq!(memory.core.receive_holds(), [(queue_id, after_ms(2000))]);
    let mut other = memory.core.begin_transaction();
    for from in [ReceiveFrom::Any, ReceiveFrom::Oldest] {
        assert!(receive_in(&mut memory, &mut other, None, from).is_empty());
    }
    assert_eq!(receive_in(&mut memory, &mut session, Some(1), ReceiveFrom::Any), ["level 5"], "it finishes its work");
    memory.tick(after_ms(2000));
    assert_eq!(memory.core.receive_holds(), []);
    assert_eq!(receive_in(&mut memory, &mut other, None, ReceiveFrom::Any), ["level 5"]);
    memory.rollback(other, NOW);
    memory.rollback(session, NOW);
}

#[test]
fn a_hold_ends_if_the_clock_is_set_back_by_more_than_the_longest_one() {
    for (set_back, left) in [(32_000_000, 0), (32_000_001, 1)] {
        let (mut memory, session) = busy();
        blocked(&mut memory, NOW);
        assert_eq!(blocked(&mut memory, after_ms(1000)), Some(SECOND));
        let end = after_ms(2000);
        memory.core.tick(Timestamp(end.0 - set_back), &mut Effects::default());
        assert_eq!(depth(&memory, "qt").0, left, "{set_back} microseconds before the end of the hold");
        memory.rollback(session, NOW);
    }
}

/// The definition holds receives back again a second later, not when the old time comes.
#[test]
fn a_wait_begins_again_when_the_clock_is_set_back() {
    let (mut memory, session) = busy();
    let an_hour_before = -3_600_000;
    memory.tick(NOW);
    assert_eq!([0, 1000].map(|ms| blocked(&mut memory, after_ms(ms))), [None, Some(SECOND)]);
    assert_eq!(depth(&memory, "qt").0, 0);
    memory.tick(after_ms(an_hour_before));
    assert_eq!((depth(&memory, "qt").0, memory.core.next_due()), (1, None));
    let again = [0, 1000].map(|ms| blocked(&mut memory, after_ms(an_hour_before + ms)));
    assert_eq!((again, depth(&memory, "qt").0), ([None, Some(SECOND)], 0));
    memory.tick(after_ms(an_hour_before + 2000));
    let mut other = memory.core.begin_transaction();
    assert_eq!(receive_in(&mut memory, &mut other, None, ReceiveFrom::Any), ["level 5"]);
    memory.rollback(other, NOW);
    memory.rollback(session, NOW);
}

#[test]
fn a_wait_that_was_given_up_for_a_minute_begins_again() {
    for (late_ms, hold_for) in [(59_999, Some(SECOND * 2)), (60_000, None)] {
        let (mut memory, session) = busy();
        blocked(&mut memory, NOW);
        assert_eq!(blocked(&mut memory, after_ms(1000)), Some(SECOND));
        // The next hold begins a second after the end of the first.
        assert_eq!(blocked(&mut memory, after_ms(3000 + late_ms)), hold_for);
        memory.rollback(session, NOW);
    }
}

#[test]
fn a_service_moves_while_conversations_of_other_services_are_held() {
    let (mut memory, session) = busy();
    assert_eq!(memory.submit(vec![move_service("t")], NOW).unwrap(), None, "a conversation of it is held");
    assert!(memory.submit(vec![move_service("i")], NOW).unwrap().is_some());
    memory.rollback(session, NOW);
}
