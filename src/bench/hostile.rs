//! What other senders feel while one caller sends bodies that are made to be expensive to check.

use super::embedded::{MANY, StepSetting, middle};
use super::flow::{self, Bodies};
use super::load::Round;
use super::report::{Figure, Measured, Report};
use super::subject::{CLIENT, Conversations, REQUESTS, Style};
use super::targets::{HOSTILE_JSON, HOSTILE_XML};
use dialoq::Error;
use dialoq::define::Definitions;
use dialoq::internals::ErrorConstructors;
use dialoq::protocol::definition::Validation;
use dialoq::protocol::{Addressee, BeginDialog, EndForm, Outcome, Relation, Verb};
use dialoq::{Broker, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

const CALLERS: usize = 8;
const HOSTILE: &str = "//bench/Hostile";
const XML_BYTES: usize = 10 << 20;
const ATTRIBUTES: usize = 100_000;

/// Each item is tried against both branches and each branch against all that is below: 2^depth visits for a validator
/// that does not count its steps.
const RECURSIVE: &str = r##"{"anyOf":[{"items":{"$ref":"#"},"minItems":2},{"items":{"$ref":"#"},"minItems":3}]}"##;
const JSON_DEPTH: usize = 120;

/// One kind of expensive body.
pub(super) struct Kind {
    workload: &'static str,
    figure: &'static str,
    validation: Validation,
    body: Arc<Vec<u8>>,
}

pub(super) fn kinds() -> [Kind; 2] {
    // 10 MB in all: the text fills what the attributes leave.
    let attributes: String = (0..ATTRIBUTES).map(|number| format!(" a{number}='{number}'")).collect();
    let text = "x".repeat(XML_BYTES - attributes.len() - "<r></r>".len());
    let xml = format!("<r{attributes}>{text}</r>");
    let json = "[".repeat(JSON_DEPTH) + &"]".repeat(JSON_DEPTH);
    [
        Kind {
            workload: "send_beside_hostile_xml",
            figure: HOSTILE_XML,
            validation: Validation::WellFormedXml,
            body: Arc::new(xml.into_bytes()),
        },
        Kind {
            workload: "send_beside_hostile_json",
            figure: HOSTILE_JSON,
            validation: Validation::JsonSchema { schema: RECURSIVE.into() },
            body: Arc::new(json.into_bytes()),
        },
    ]
}

pub(super) async fn measure(at: &StepSetting<'_>, report: &mut Report) -> Result<()> {
    for (place, kind) in kinds().into_iter().enumerate() {
        let folder = at.folder.join(place.to_string());
        std::fs::create_dir_all(&folder).map_err(super::rival::log::io_error)?;
        let subject = StepSetting { folder: &folder, ..*at }.subject().await?;
        let conversations = Arc::new(subject.conversations(MANY, Style::AtOnce).await?);
        let (rounds, length) = (at.options.rounds, at.options.round_length);
        let pair = send_beside(&subject.broker, &conversations, &kind, at.bodies(), rounds, length, async || {
            subject.drain().await
        })
        .await?;
        report.figures.push(pair.figure(&kind));
        for (workload, round) in pair.named(&kind) {
            report.results.push(Measured::new(&workload, CALLERS, 1, at.options.body_bytes, &round));
        }
        subject.close().await?;
    }
    Ok(())
}

/// The rounds in the middle by their p99.
pub(super) struct Pair {
    alone: Round,
    with_hostile: Round,
}

impl Pair {
    pub(super) fn figure(&self, kind: &Kind) -> Figure {
        let value = self.with_hostile.quantile_us(0.99) / self.alone.quantile_us(0.99);
        Figure { name: kind.figure.to_owned(), value, unit: "times" }
    }

    pub(super) fn named(self, kind: &Kind) -> [(String, Round); 2] {
        [(format!("{}_alone", kind.workload), self.alone), (kind.workload.to_owned(), self.with_hostile)]
    }
}

/// The senders of these conversations alone, and with the hostile caller, in turn.
pub(super) async fn send_beside(
    broker: &Broker,
    conversations: &Arc<Conversations>,
    kind: &Kind,
    bodies: Bodies,
    rounds: usize,
    length: Duration,
    drain: impl AsyncFn() -> Result<()>,
) -> Result<Pair> {
    broker.define(|define| make(define, kind)).await?;
    let (mut alone, mut with_hostile) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        alone.push(flow::send(conversations, bodies, CALLERS, 1, length).await?);
        drain().await?;
        let is_over = Arc::new(AtomicBool::new(false));
        let hostile = tokio::spawn(keep_sending(broker.clone(), kind.body.clone(), is_over.clone()));
        let round = flow::send(conversations, bodies, CALLERS, 1, length).await;
        is_over.store(true, Relaxed);
        hostile.await.map_err(|_| Error::closed())??;
        with_hostile.push(round?);
        drain().await?;
    }
    broker.define(unmake).await?;
    Ok(Pair { alone: middle(alone), with_hostile: middle(with_hostile) })
}

fn make(define: &mut Definitions, kind: &Kind) {
    define.message_type_with(HOSTILE, kind.validation.clone());
    define.contract(HOSTILE).sent_by_initiator(HOSTILE);
    define.service(HOSTILE, REQUESTS, [HOSTILE]);
}

fn unmake(define: &mut Definitions) {
    define.drop_service(HOSTILE).drop_contract(HOSTILE).drop_message_type(HOSTILE);
}

/// A dialog for each body, because a body that is refused breaks its conversation.
async fn keep_sending(broker: Broker, body: Arc<Vec<u8>>, is_over: Arc<AtomicBool>) -> Result<()> {
    while !is_over.load(Relaxed) {
        let begin = Verb::BeginDialog(BeginDialog {
            from_service: CLIENT.into(),
            to_service: HOSTILE.into(),
            addressee: Addressee::Anywhere,
            contract: Some(HOSTILE.into()),
            related: Relation::None,
            lifetime_seconds: None,
            encryption: false,
        });
        let handle = match broker.submit(vec![begin]).await?.pop() {
            Some(Outcome::Began { handle, .. }) => handle,
            Some(other) => return Err(dialoq::internals::unexpected(&other)),
            None => return Err(Error::closed()),
        };
        let send = Verb::Send {
            handles: vec![handle],
            message_type: Some(HOSTILE.into()),
            body: Some(body.clone()),
            trace: None,
        };
        broker.submit(vec![send, Verb::EndConversation { handle, form: EndForm::Cleanup }]).await?;
    }
    Ok(())
}
