//! Random work against the core: after every step the rows must rebuild exactly the broker that wrote them.

use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Step {
    Begin { to: usize, lifetime_seconds: i64 },
    Send { endpoint: usize, is_bad: bool },
    Receive { queue: usize, top: u64 },
    ReceiveFrom { endpoint: usize },
    End { endpoint: usize, form: usize },
    Timer { endpoint: usize, seconds: i64 },
    Move { endpoint: usize, to: usize },
    Reprioritise { endpoint: usize, level: u8 },
    Status { queue: usize, is_on: bool },
    Broker { is_on: bool },
    DropService,
    CreateService,
    Open { session: usize },
    Commit { session: usize },
    Rollback { session: usize },
    Savepoint { session: usize },
    Pass { seconds: i64 },
    Alter { change: usize },
    Release { endpoint: usize },
    Redrive { letter: usize },
    Purge { letter: usize },
    CancelTimer { endpoint: usize },
    GetGroup { queue: usize },
}

const CHANGES: [&str; 17] = [
    "ALTER QUEUE qt WITH RETRY (MAX_ATTEMPTS = 1, DELAY_MS = 1000, THEN = DEAD_LETTER)",
    "ALTER QUEUE qt WITH RETRY (MAX_ATTEMPTS = 1, DELAY_MS = 0, THEN = DEAD_LETTER)",
    "ALTER QUEUE qt WITH RETRY (MAX_ATTEMPTS = 2, DELAY_MS = 5000, THEN = DEAD_LETTER)",
    "ALTER QUEUE qt WITH RETRY (MAX_ATTEMPTS = 2, DELAY_MS = 5000, THEN = QUARANTINE)",
    "ALTER QUEUE qt WITH RETRY (MAX_ATTEMPTS = 1, DELAY_MS = 5000, THEN = END_WITH_ERROR)",
    "ALTER QUEUE qt WITH RETRY (MAX_ATTEMPTS = 2, DELAY_MS = 5000, THEN = QUEUE_OFF)",
    "ALTER QUEUE qi WITH RETRY (MAX_ATTEMPTS = 1, DELAY_MS = 9000, THEN = DEAD_LETTER)",
    "ALTER QUEUE qt WITH RETRY (DROP)",
    "ALTER QUEUE qi WITH RETRY (DROP)",
    "ALTER QUEUE qt WITH POISON_MESSAGE_HANDLING (QUARANTINE = ON)",
    "ALTER QUEUE qt WITH POISON_MESSAGE_HANDLING (QUARANTINE = OFF)",
    "ALTER QUEUE qt WITH RETENTION = ON",
    "ALTER QUEUE qt WITH RETENTION = OFF",
    "ALTER QUEUE qi WITH RETENTION = ON",
    "ALTER QUEUE qi WITH RETENTION = OFF",
    "ALTER SERVICE t ON QUEUE qi",
    "ALTER SERVICE t ON QUEUE qt",
];

fn step() -> impl Strategy<Value = (Option<usize>, Step)> {
    let endpoint = 0usize..8;
    let session = 0usize..2;
    let step = prop_oneof![
        3 => (0usize..3, 5i64..200).prop_map(|(to, lifetime_seconds)| Step::Begin { to, lifetime_seconds }),
        8 => (endpoint.clone(), prop::bool::weighted(0.05)).prop_map(|(endpoint, is_bad)| Step::Send { endpoint, is_bad }),
        6 => (0usize..2, 0u64..4).prop_map(|(queue, top)| Step::Receive { queue, top }),
        2 => endpoint.clone().prop_map(|endpoint| Step::ReceiveFrom { endpoint }),
        3 => (endpoint.clone(), 0usize..6).prop_map(|(endpoint, form)| Step::End { endpoint, form }),
        1 => (endpoint.clone(), 1i64..30).prop_map(|(endpoint, seconds)| Step::Timer { endpoint, seconds }),
        1 => (endpoint.clone(), 0usize..8).prop_map(|(endpoint, to)| Step::Move { endpoint, to }),
        1 => (endpoint, 1u8..=10).prop_map(|(endpoint, level)| Step::Reprioritise { endpoint, level }),
        1 => (0usize..2, any::<bool>()).prop_map(|(queue, is_on)| Step::Status { queue, is_on }),
        1 => any::<bool>().prop_map(|is_on| Step::Broker { is_on }),
        1 => Just(Step::DropService),
        2 => Just(Step::CreateService),
        3 => session.clone().prop_map(|session| Step::Open { session }),
        2 => session.clone().prop_map(|session| Step::Commit { session }),
        4 => session.clone().prop_map(|session| Step::Rollback { session }),
        1 => session.clone().prop_map(|session| Step::Savepoint { session }),
        2 => (1i64..60).prop_map(|seconds| Step::Pass { seconds }),
        3 => (0..CHANGES.len()).prop_map(|change| Step::Alter { change }),
        2 => (0usize..8).prop_map(|endpoint| Step::Release { endpoint }),
        3 => (0usize..3).prop_map(|letter| Step::Redrive { letter }),
        1 => (0usize..3).prop_map(|letter| Step::Purge { letter }),
        1 => (0usize..8).prop_map(|endpoint| Step::CancelTimer { endpoint }),
        1 => (0usize..2).prop_map(|queue| Step::GetGroup { queue }),
    ];
    (prop::option::of(session), step)
}

const QUEUES: [&str; 2] = ["qi", "qt"];

fn verb(memory: &Memory, step: &Step) -> Option<Verb> {
    let row = |place: usize| memory.endpoints().nth(place);
    let handle = |place: usize| row(place).map(|row| row.handle);
    Some(match step {
        Step::Begin { to, lifetime_seconds } => Verb::BeginDialog(BeginDialog {
            from_service: "i".into(),
            to_service: ["t", "t", "later"][*to].into(),
            addressee: Addressee::Anywhere,
            contract: Some("c".into()),
            related: Relation::None,
            lifetime_seconds: Some(*lifetime_seconds),
            encryption: false,
        }),
        Step::Send { endpoint, is_bad: true } => send_verb(handle(*endpoint)?, "x", "<bad"),
        Step::Send { endpoint, is_bad: false } => send_verb(handle(*endpoint)?, "m", "body"),
        Step::Receive { queue, top } => receive_verb(QUEUES[*queue], (*top > 0).then_some(*top)),
        Step::ReceiveFrom { endpoint } => {
            let row = row(*endpoint)?;
            let queue = memory.core.catalog().services.get(&row.service_id)?.queue_id;
            let queue = memory.core.catalog().queues.get(&queue)?.name.clone();
            Verb::Receive { queue, top: Some(2), from: ReceiveFrom::Conversation(row.handle) }
        }
        Step::End { endpoint, form } => Verb::EndConversation {
            handle: handle(*endpoint)?,
            form: match form {
                0 => EndForm::Cleanup,
                1 => EndForm::WithError { code: 7, description: "x".into() },
                _ => EndForm::Plain,
            },
        },
        Step::Timer { endpoint, seconds } => {
            Verb::BeginConversationTimer { handle: handle(*endpoint)?, timeout_seconds: *seconds }
        }
        Step::Move { endpoint, to } => Verb::MoveConversation { handle: handle(*endpoint)?, group: row(*to)?.group },
        Step::Reprioritise { endpoint, level } => Verb::Reprioritise { handle: handle(*endpoint)?, level: *level },
        Step::Status { queue, is_on } => {
            let options = QueueOptions { status: Some(*is_on), ..QueueOptions::default() };
            Verb::Define(vec![Definition::AlterQueue { name: QUEUES[*queue].into(), options }])
        }
        Step::Broker { is_on } => {
            use crate::protocol::definition::BrokerOption::{DisableBroker, EnableBroker};
            let option = if *is_on { EnableBroker } else { DisableBroker };
            Verb::Define(vec![Definition::AlterDatabase { option }])
        }
        Step::DropService => Verb::Define(vec![Definition::DropService { name: "later".into() }]),
        Step::CreateService => Verb::Define(vec![Definition::CreateService {
            name: "later".into(),
            owner: None,
            queue: "qt".into(),
            contracts: vec!["c".into()],
        }]),
        Step::Alter { change } => {
            let parsed = crate::catalog::ddl::parse(CHANGES[*change]).unwrap();
            Verb::Define(parsed.into_iter().map(|parsed| parsed.definition).collect())
        }
        Step::Release { endpoint } => Verb::ReleaseQuarantine { group: row(*endpoint)?.group },
        Step::Redrive { letter } => {
            let (row, _) = memory.dead_letters().nth(*letter)?;
            Verb::RedriveDeadLetter { letter: crate::id::DeadLetterId(row.queuing_order) }
        }
        Step::Purge { letter } => {
            let (row, _) = memory.dead_letters().nth(*letter)?;
            Verb::PurgeDeadLetter { letter: crate::id::DeadLetterId(row.queuing_order) }
        }
        Step::CancelTimer { endpoint } => Verb::CancelConversationTimer { handle: handle(*endpoint)? },
        Step::GetGroup { queue } => Verb::GetConversationGroup { queue: QUEUES[*queue].into() },
        _ => return None,
    })
}

/// Invariants of the broker between any two steps.
fn assert_sound(memory: &Memory) {
    let core = &memory.core;
    for (place, group) in core.groups.iter() {
        assert!(!group.members.is_empty() || group.owner != 0, "a group without members is gone");
        assert!(group.members.iter().all(|member| core.endpoints[*member].group == place));
        assert!(group.owner == 0 || group.ready.is_none(), "a locked group is not ready");
        if group.owner == 0 {
            let rank = super::super::receive_order::rank(&core.endpoints, &group.members);
            assert_eq!(group.ready, rank, "the ready index says what waits");
        }
    }
    for (place, endpoint) in core.endpoints.iter() {
        if endpoint.peer != super::super::endpoint::NONE {
            let peer = &core.endpoints[endpoint.peer];
            assert_eq!((peer.peer, peer.conversation_id), (place, endpoint.conversation_id), "peers know each other");
            assert_ne!(peer.is_initiator, endpoint.is_initiator);
        }
        assert!(!endpoint.state.is_ended() || endpoint.waiting_rows() == 0, "nothing is left to receive after END");
        assert!(!endpoint.is_dirty, "every touched endpoint was written");
    }
    for queue in core.catalog().queues.keys() {
        let waiting = |place: u32| {
            let endpoint = &core.endpoints[place];
            let counts = !endpoint.is_quarantined && core.groups[endpoint.group].queue_id == *queue;
            if counts { endpoint.waiting_rows() } else { 0 }
        };
        if core.groups.iter().all(|(_, group)| group.owner == 0) {
            let unread: u64 = core.endpoints.iter().map(|(place, _)| waiting(place)).sum();
            assert_eq!(core.depth(*queue).unread, unread, "unread of queue {queue}");
        }
    }
    assert!(core.dead_letters.keys().copied().eq(memory.dead_letters().map(|(row, _)| row.queuing_order)));
    for row in memory.messages() {
        assert!(memory.endpoints().any(|endpoint| endpoint.endpoint_id == row.endpoint_id), "no row without endpoint");
    }
    for row in memory.transmissions() {
        assert!(core.outboxes.contains_key(&row.endpoint_id), "no transmission without endpoint");
    }
}

/// The index of a session's own groups says what is left for it.
fn assert_ranked(memory: &mut Memory, session: &Session) {
    let core = &mut memory.core;
    let left = |group: &u32| Some((*group, (core.groups[*group].queue_id, core.remaining(session, *group)?)));
    let expected: std::collections::BTreeMap<_, _> = session.locks.iter().filter_map(left).collect();
    assert_eq!(core.ranked_own(session).ranks(), &expected);
}

proptest! {
    #![proptest_config(dialoq_test_support::seeds::config(400))]

    #[test]
    fn rows_rebuild_the_broker_that_wrote_them(steps in prop::collection::vec(step(), 1..120)) {
        let mut memory = broker();
        let mut sessions: [Option<(Session, Savepoint)>; 2] = [None, None];
        let mut now = NOW;
        for (inside, step) in steps {
            match &step {
                Step::Open { session } => {
                    if sessions[*session].is_none() {
                        let opened = memory.core.begin_transaction();
                        let savepoint = memory.core.savepoint(&opened);
                        sessions[*session] = Some((opened, savepoint));
                    }
                }
                Step::Commit { session } => {
                    if let Some((session, _)) = sessions[*session].take() {
                        memory.commit(session, now);
                    }
                }
                Step::Rollback { session } => {
                    if let Some((session, _)) = sessions[*session].take() {
                        memory.rollback(session, now);
                    }
                }
                Step::Savepoint { session } => {
                    if let Some((session, savepoint)) = &mut sessions[*session] {
                        let (now_there, earlier) = (memory.core.savepoint(session), *savepoint);
                        memory.rollback_to(session, earlier, now);
                        *savepoint = memory.core.savepoint(session);
                        prop_assert!(now_there != *savepoint || earlier == *savepoint);
                    }
                }
                Step::Pass { seconds } => {
                    now = now.after_seconds(*seconds);
                    memory.tick(now);
                }
                _ => {
                    if let Some(verb) = verb(&memory, &step) {
                        match inside.and_then(|inside| sessions[inside].as_mut()) {
                            // A refusal or a lock leaves the session as it was.
                            Some((session, _)) => drop(memory.execute(session, verb, now)),
                            None => drop(memory.submit(vec![verb], now)),
                        }
                    }
                }
            }
            assert_sound(&memory);
            for (session, _) in sessions.iter().flatten() {
                assert_ranked(&mut memory, session);
            }
            if sessions.iter().all(Option::is_none) {
                assert_recovers(&memory);
            }
        }
    }
}
