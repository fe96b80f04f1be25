//! The little broker that these tests work on.

use dialoq::internals::store::sqlite::{SqliteOptions, SqliteStore};
use dialoq::internals::store::url::Location;
use dialoq::internals::store::{SqlStatement, Store};
use dialoq::protocol::definition::{BrokerOption, ContractEntry, Definition, QueueOptions, SentBy, Validation};
use dialoq::protocol::{Addressee, BeginDialog, Outcome, ReceiveFrom, Relation, Verb};
use dialoq::{ConversationHandle, SqlValue};
use std::path::Path;
use std::sync::Arc;

pub(crate) fn definitions() -> Vec<Definition> {
    let service = |name: &str, queue: &str| Definition::CreateService {
        name: name.to_owned(),
        owner: None,
        queue: queue.to_owned(),
        contracts: vec!["c".to_owned()],
    };
    let queue = |name: &str| Definition::CreateQueue { name: name.to_owned(), options: QueueOptions::default() };
    vec![
        Definition::CreateMessageType { name: "t".to_owned(), owner: None, validation: Validation::None },
        Definition::CreateContract {
            name: "c".to_owned(),
            owner: None,
            entries: vec![ContractEntry { message_type: "t".to_owned(), sent_by: SentBy::Any }],
        },
        queue("from"),
        queue("to"),
        service("a", "from"),
        service("b", "to"),
    ]
}

pub(crate) fn options(path: &Path) -> SqliteOptions {
    SqliteOptions::new(Location::File(path.to_owned()))
}

pub(crate) fn open(path: &Path) -> Arc<SqliteStore> {
    SqliteStore::open(options(path)).unwrap()
}

pub(crate) fn dialog(to: &str) -> Verb {
    Verb::BeginDialog(BeginDialog {
        from_service: "a".into(),
        to_service: to.into(),
        addressee: Addressee::Anywhere,
        contract: Some("c".into()),
        related: Relation::None,
        lifetime_seconds: None,
        encryption: false,
    })
}

pub(crate) fn send(handle: ConversationHandle, body: &str) -> Verb {
    let body = Some(Arc::new(body.as_bytes().to_vec()));
    Verb::Send { handles: vec![handle], message_type: Some("t".into()), body, trace: None }
}

pub(crate) fn receive(top: u64) -> Verb {
    Verb::Receive { queue: "to".into(), top: Some(top), from: ReceiveFrom::Any }
}

pub(crate) fn enable(is_on: bool) -> Verb {
    let option = if is_on { BrokerOption::EnableBroker } else { BrokerOption::DisableBroker };
    Verb::Define(vec![Definition::AlterDatabase { option }])
}

pub(crate) fn began(outcome: &Outcome) -> ConversationHandle {
    match outcome {
        Outcome::Began { handle, .. } => *handle,
        other => panic!("not begun: {other:?}"),
    }
}

pub(crate) fn bodies(outcome: &Outcome) -> Vec<String> {
    match outcome {
        Outcome::Received(messages) => messages
            .iter()
            .map(|message| String::from_utf8(message.message_body.clone().unwrap_or_default()).unwrap())
            .collect(),
        other => panic!("not received: {other:?}"),
    }
}

pub(crate) fn sql(text: &str, params: Vec<SqlValue>) -> SqlStatement {
    SqlStatement { text: text.to_owned(), params, expected_rows: None }
}

pub(crate) async fn texts(store: &dyn Store, text: &str) -> Vec<String> {
    let rows = store.query(sql(text, Vec::new())).await.unwrap().rows;
    rows.iter()
        .map(|row| match &row.values()[0] {
            SqlValue::Text(text) => text.clone(),
            SqlValue::Blob(bytes) => String::from_utf8(bytes.clone()).unwrap(),
            other => format!("{other:?}"),
        })
        .collect()
}
