//! Message bodies are checked here before they are sent: a server validates neither XML Schema nor JSON Schema as
//! Dialoq does.
//!
//! The version of the definitions travels with the body. If it has changed, the server refuses (60033), and the body is
//! checked again.

use crate::catalog::body::Verdict;
use crate::catalog::{MessageType, fold_name};
use crate::error::Result;
use crate::protocol::work::WorkVerb;
use crate::protocol::{Body, Relation, Verb, check_body_size, system};
use crate::store::database::Database;
use crate::store::database::calls::verbs::CallContext;
use crate::store::database::definitions::catalog::Known;
use std::sync::Arc;

impl Database {
    /// The ids, names and checked body of a verb, for its call.
    ///
    /// # Errors
    /// 8459 the body is too large; 60026 the store has no work queues.
    pub(in crate::store::database) async fn call_context(&self, verb: &Verb) -> Result<CallContext> {
        let mut context = CallContext::default();
        match verb {
            Verb::Send { message_type, body, .. } => {
                self.check_size(body)?;
                context.ids[0] = self.next_id();
                self.check_body(&mut context, message_type.as_deref(), body).await;
            }
            Verb::SendEach(messages) => {
                for (index, message) in messages.iter().enumerate() {
                    self.check_size(&message.body).map_err(|error| error.of_message(index, messages.len()))?;
                }
                for message in messages {
                    let mut one = CallContext::default();
                    one.ids[0] = self.next_id();
                    self.check_body(&mut one, message.message_type.as_deref(), &message.body).await;
                    context.each.push(one);
                }
            }
            Verb::BeginDialog(dialog) => {
                if dialog.related == Relation::None {
                    context.ids[0] = self.next_id();
                }
                context.ids[1] = self.next_id();
                context.ids[2] = self.next_id();
            }
            Verb::Receive { queue, .. }
            | Verb::GetConversationGroup { queue }
            | Verb::PostQueueActivation { queue } => {
                context.folded_name = fold_name(queue);
            }
            Verb::Work(WorkVerb::Push(push)) => {
                self.check_size(&push.body)?;
                context.folded_name = fold_name(&push.queue);
            }
            Verb::Work(WorkVerb::Take(take)) => context.folded_name = fold_name(&take.queue),
            Verb::Work(WorkVerb::Complete { result, .. }) => self.check_size(result)?,
            _ => {}
        }
        Ok(context)
    }

    /// Checks a body against the known definitions: on this thread if that takes milliseconds, else on one for blocking
    /// work. An earlier verdict counts as long as the type is the same.
    pub(in crate::store::database) async fn check_body(
        &self,
        context: &mut CallContext,
        message_type: Option<&str>,
        body: &Body,
    ) {
        let known = self.definitions.known();
        if !self.check_quickly(&known, context, message_type, body)
            && let (Some(message_type), Some(body)) = (checked_type(&known, message_type), body)
        {
            let (checks, catalog) = (self.checks.clone(), known.catalog.clone());
            let (message_type, body, bytes) = (message_type.clone(), body.clone(), body.len());
            let reach = move || Verdict::check(&checks, &catalog, &message_type, &body);
            match self.check_room.run(bytes, reach).await {
                Ok(verdict) => context.judge(Arc::new(verdict), known.version),
                Err(panicked) => {
                    tracing::error!(%panicked, "a body could not be checked; the server refuses its message")
                }
            }
        }
    }

    /// Checks a body if that takes milliseconds; returns false if it would take more.
    pub(in crate::store::database) fn check_quickly(
        &self,
        known: &Known,
        context: &mut CallContext,
        message_type: Option<&str>,
        body: &Body,
    ) -> bool {
        let verdict = match (checked_type(known, message_type), body) {
            (Some(message_type), Some(body)) => {
                if context.verdict.as_ref().is_some_and(|old| old.under(&known.catalog, message_type).is_some()) {
                    context.catalog_version = known.version;
                    return true;
                }
                match Verdict::check_quickly(&self.checks, &known.catalog, message_type, body) {
                    Some(verdict) => Arc::new(verdict),
                    None => return false,
                }
            }
            // The server refuses an unknown type.
            _ => {
                (context.verdict, context.body_fault, context.catalog_version) = (None, String::new(), known.version);
                return true;
            }
        };
        context.judge(verdict, known.version);
        true
    }

    pub(in crate::store::database) fn check_size(&self, body: &Body) -> Result<()> {
        check_body_size(body, self.max_body_bytes)
    }
}

fn checked_type<'a>(known: &'a Known, message_type: Option<&str>) -> Option<&'a Arc<MessageType>> {
    known.catalog.message_type(message_type.unwrap_or(system::DEFAULT)).filter(|found| found.is_checked())
}

impl CallContext {
    /// The fault of a body as SEND takes it is `code|description`, or nothing.
    fn judge(&mut self, verdict: Arc<Verdict>, catalog_version: i64) {
        self.body_fault = match verdict.result() {
            Ok(()) => String::new(),
            Err(rejection) => format!("{}|{}", rejection.code, rejection.description),
        };
        self.verdict = Some(verdict);
        self.catalog_version = catalog_version;
    }
}

/// Replaces a body of no bytes by none, as SEND stores it.
pub(in crate::store::database) fn normalise_empty_body(mut verb: Verb) -> Verb {
    let normalise = |body: &mut Body| {
        if body.as_ref().is_some_and(|bytes| bytes.is_empty()) {
            *body = None;
        }
    };
    match &mut verb {
        Verb::Send { body, .. } => normalise(body),
        Verb::SendEach(messages) => messages.iter_mut().for_each(|message| normalise(&mut message.body)),
        _ => {}
    }
    verb
}
