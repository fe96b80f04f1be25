//! A decorator for any store: a span per call, counters and histograms per verb, queue and level.
//!
//! The counters are those of [`metrics`]; without a recorder they cost next to nothing: `dialoq_verbs_total{verb}`,
//! `dialoq_refusals_total{code}`, `dialoq_unit_seconds`, `dialoq_messages_received_total{queue, priority}`,
//! `dialoq_jobs_pushed_total{queue}`, `dialoq_jobs_taken_total{queue, level}`, `dialoq_transactions_total{end}`,
//! `dialoq_messages_dropped_total` (received for a caller that had left); the embedded store adds
//! `dialoq_commit_seconds`, workers what their handlers do.

use super::layer::{CallState, Done, Layer, Request, TxLayer, TxRequest};
use super::{Seen, Store, StoreTx};
use crate::error::Result;
use crate::protocol::work::{Job, WorkVerb};
use crate::protocol::{Message, Outcome, Verb};
use metrics::{counter, histogram};
use std::sync::Arc;
use std::time::Instant;
use tracing::{Span, debug_span};

/// A store whose calls are traced and counted.
#[expect(missing_debug_implementations, reason = "not public, and too much to print")]
pub struct Traced(Arc<dyn Store>);

impl Traced {
    /// Traces this store.
    pub fn over(store: Arc<dyn Store>) -> Arc<Self> {
        Arc::new(Self(store))
    }
}

/// A call that is under way.
pub(crate) struct Call {
    span: Span,
    /// The queue whose messages or jobs each verb moves.
    queues: Vec<Option<Arc<str>>>,
    /// When a unit began.
    began: Option<Instant>,
    /// The end of the user's own SQL is not counted.
    is_counted: bool,
}

impl Call {
    /// Counts the verbs.
    fn of(span: Span, verbs: &[Verb]) -> Self {
        for verb in verbs {
            counter!("dialoq_verbs_total", "verb" => verb.declaration().name).increment(1);
        }
        Self { span, queues: verbs.iter().map(counted_queue).collect(), began: None, is_counted: true }
    }

    fn uncounted(span: Span) -> Self {
        Self { span, queues: Vec::new(), began: None, is_counted: false }
    }
}

/// A text of the store's own begins with a line that says what it is for; the user's is shown whole.
fn shown(text: &str) -> &str {
    if text.starts_with("-- ") && text.contains("\n-- Takes:") { text.lines().next().unwrap_or(text) } else { text }
}

impl CallState for Call {
    fn span(&self) -> Span {
        self.span.clone()
    }

    fn end(self, done: Done<'_>) {
        if let Some(began) = self.began {
            histogram!("dialoq_unit_seconds").record(began.elapsed());
        }
        match done {
            Ok(outcomes) => {
                outcomes.iter().zip(&self.queues).for_each(|(outcome, queue)| note(outcome, queue.as_ref()));
            }
            Err(refusal) if self.is_counted => refused(refusal),
            Err(_) => {}
        }
    }
}

impl Layer for Traced {
    type Call = Call;
    type Tx = TracedTx;

    fn inner(&self) -> &dyn Store {
        &*self.0
    }

    fn before(&self, request: Request<'_>) -> Result<Call> {
        let first = request.verbs().first().map(|verb| verb.declaration().name);
        let span = match request {
            Request::Submit(unit) => debug_span!("submit", verbs = unit.len(), first),
            Request::SubmitOnce(unit_id, unit) => debug_span!("submit_once", %unit_id, verbs = unit.len(), first),
            Request::PerformOn(_) => debug_span!("perform_on", verb = first),
            Request::Begin => Span::none(),
            Request::Query(sql) => return Ok(Call::uncounted(debug_span!("query", sql = shown(&sql.text)))),
            Request::RunSql(sql) => return Ok(Call::uncounted(debug_span!("run_sql", sql = shown(&sql.text)))),
            Request::Close => return Ok(Call::uncounted(debug_span!("close"))),
        };
        let is_unit = matches!(request, Request::Submit(_) | Request::SubmitOnce(..));
        Ok(Call { began: is_unit.then(Instant::now), ..Call::of(span, request.verbs()) })
    }

    fn open(&self, inner: Box<dyn StoreTx>, _: Seen) -> (TracedTx, Box<dyn StoreTx>) {
        (TracedTx { span: debug_span!("transaction"), has_ended: false }, inner)
    }
}

pub(crate) struct TracedTx {
    span: Span,
    has_ended: bool,
}

impl TracedTx {
    fn end(&mut self, how: &'static str) {
        counter!("dialoq_transactions_total", "end" => how).increment(1);
        self.has_ended = true;
    }
}

impl Drop for TracedTx {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end("rollback");
        }
    }
}

impl TxLayer for TracedTx {
    type Call = Call;

    fn before(&mut self, request: TxRequest<'_>) -> Result<Call> {
        let parent = &self.span;
        Ok(match request {
            TxRequest::Execute(verb) => {
                let span = debug_span!(parent: parent, "verb", name = verb.declaration().name);
                Call::of(span, std::slice::from_ref(verb))
            }
            TxRequest::Sql(sql) => Call::uncounted(debug_span!(parent: parent, "sql", sql = shown(&sql.text))),
            TxRequest::Query(sql) => Call::uncounted(debug_span!(parent: parent, "query", sql = shown(&sql.text))),
            TxRequest::Claim | TxRequest::Savepoint(_) | TxRequest::RollbackTo(_) => Call::uncounted(Span::none()),
            TxRequest::Commit => {
                let span = debug_span!(parent: parent, "commit");
                self.end("commit");
                Call::of(span, &[])
            }
            TxRequest::Rollback => {
                let span = debug_span!(parent: parent, "rollback");
                self.end("rollback");
                Call::uncounted(span)
            }
        })
    }
}

fn refused(refusal: &crate::error::Error) {
    counter!("dialoq_refusals_total", "code" => refusal.code().to_string()).increment(1);
}

fn counted_queue(verb: &Verb) -> Option<Arc<str>> {
    match verb {
        Verb::Receive { queue, .. } => Some(queue.clone()),
        Verb::Work(WorkVerb::Push(push)) => Some(push.queue.clone()),
        Verb::Work(WorkVerb::Take(take)) => Some(take.queue.clone()),
        _ => None,
    }
}

/// Counts messages and jobs by queue and level; what one call gives mostly has one level.
fn note(outcome: &Outcome, queue: Option<&Arc<str>>) {
    let Some(queue) = queue else { return };
    match outcome {
        Outcome::Received(messages) => {
            for same_level in messages.chunk_by(|one: &Message, other| one.priority == other.priority) {
                let priority = same_level[0].priority.to_string();
                counter!("dialoq_messages_received_total", "queue" => queue.clone(), "priority" => priority)
                    .increment(same_level.len() as u64);
            }
        }
        Outcome::Jobs(jobs) => {
            for same_level in jobs.chunk_by(|one: &Job, other| one.level == other.level) {
                let level = same_level[0].level.to_string();
                counter!("dialoq_jobs_taken_total", "queue" => queue.clone(), "level" => level)
                    .increment(same_level.len() as u64);
            }
        }
        Outcome::Pushed { is_new: true, .. } => {
            counter!("dialoq_jobs_pushed_total", "queue" => queue.clone()).increment(1);
        }
        _ => {}
    }
}
