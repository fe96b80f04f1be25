//! The definitions of a random run.

use dialoq::protocol::definition::{
    AfterRetries, AnyOr, ContractEntry, Definition, PriorityOptions, QueueOptions, RetryChange, RetryOptions, SentBy,
    Validation,
};
use dialoq::protocol::system;

pub(crate) fn definitions() -> Vec<Definition> {
    let message_type =
        |name: &str, validation| Definition::CreateMessageType { name: name.into(), owner: None, validation };
    let entry = |name: &str, sent_by| ContractEntry { message_type: name.into(), sent_by };
    let queue = |name: &str| Definition::CreateQueue { name: name.into(), options: QueueOptions::default() };
    let priority = |name: &str, level| Definition::CreateBrokerPriority {
        name: name.into(),
        set: PriorityOptions {
            remote_service: Some(AnyOr::Name(name.into())),
            level: Some(level),
            ..PriorityOptions::default()
        },
    };
    vec![
        message_type("Text", Validation::None),
        message_type("Nothing", Validation::Empty),
        message_type("Xml", Validation::WellFormedXml),
        message_type("Unlisted", Validation::None),
        message_type("OfInitiators", Validation::None),
        message_type("OfTargets", Validation::None),
        Definition::CreateContract {
            name: "C".into(),
            owner: None,
            entries: vec![
                entry("Text", SentBy::Any),
                entry("Nothing", SentBy::Any),
                entry("Xml", SentBy::Any),
                entry("OfInitiators", SentBy::Initiator),
                entry("OfTargets", SentBy::Target),
            ],
        },
        queue("QI"),
        queue("QT"),
        queue("QU"),
        service("I", "QI", &[]),
        service("J", "QI", &[]),
        service("T", "QT", &["C"]),
        service("U", "QU", &["C"]),
        service("Watched", "QI", &[system::POST_EVENT_NOTIFICATION]),
        priority("J", 8),
        priority("U", 2),
    ]
}

pub(crate) fn service(name: &str, queue: &str, contracts: &[&str]) -> Definition {
    Definition::CreateService {
        name: name.into(),
        owner: None,
        queue: queue.into(),
        contracts: contracts.iter().map(|name| (*name).to_owned()).collect(),
    }
}

pub(crate) fn alter_service(name: &str, queue: Option<&str>, add: &[&str], drop: &[&str]) -> Definition {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Definition::AlterService {
        name: name.into(),
        queue: queue.map(Into::into),
        add_contracts: names(add),
        drop_contracts: names(drop),
    }
}

/// A retry policy with so many attempts and what follows the last one; 0 attempts is none.
pub(crate) fn alter_retry(queue: &str, attempts: u8, then: AfterRetries) -> Definition {
    let retry = match attempts {
        0 => RetryChange::Drop,
        attempts => RetryChange::Set(RetryOptions {
            max_attempts: Some(attempts.into()),
            delay_ms: Some(2000),
            // It is made of the numbers of endpoints, which each store gives.
            jitter_percent: Some(0),
            then: Some(then),
            ..RetryOptions::default()
        }),
    };
    Definition::AlterQueue {
        name: queue.into(),
        options: QueueOptions { retry: Some(retry), ..QueueOptions::default() },
    }
}

/// Makes, alters or drops one of three priorities.
pub(crate) fn priority(place: usize, level: u8, alters: bool) -> Definition {
    let name = format!("P{place}");
    let mut set = PriorityOptions { level: Some(level.into()), ..PriorityOptions::default() };
    match place {
        0 => set.contract = Some(AnyOr::Name("C".into())),
        1 => set.local_service = Some(AnyOr::Name("T".into())),
        _ => set.remote_service = Some(AnyOr::Name("I".into())),
    }
    match (level, alters) {
        (0, _) => Definition::DropBrokerPriority { name },
        (_, true) => Definition::AlterBrokerPriority { name, set },
        (_, false) => Definition::CreateBrokerPriority { name, set },
    }
}
