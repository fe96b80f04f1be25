//! Message bodies, checked here before they are sent: a server knows neither XML Schema nor JSON Schema.
//!
//! The definitions a body was checked against travel with it; if they have changed, the server refuses (60033), and the
//! body is checked again.

use super::Server;
use super::catalog::Known;
use super::verbs::Beside;
use crate::catalog::fold_name;
use crate::error::{Code, Error, Result};
use crate::protocol::definition::Validation;
use crate::protocol::{Body, Relation, Verb, system};
use std::sync::PoisonError;

impl Server {
    /// What goes beside a verb in its call.
    ///
    /// # Errors
    /// 8459 the body is too large.
    pub(super) fn beside(&self, verb: &Verb) -> Result<Beside> {
        let mut beside = Beside::default();
        match verb {
            Verb::Send { message_type, body, .. } => {
                self.check_size(body)?;
                beside.ids[0] = self.next_id();
                self.check_body(&mut beside, message_type.as_deref(), body);
            }
            Verb::BeginDialog(dialog) => {
                if dialog.related == Relation::None {
                    beside.ids[0] = self.next_id();
                }
                beside.ids[1] = self.next_id();
                beside.ids[2] = self.next_id();
            }
            Verb::Receive { queue, .. }
            | Verb::GetConversationGroup { queue }
            | Verb::PostQueueActivation { queue } => {
                beside.folded = fold_name(queue);
            }
            _ => {}
        }
        Ok(beside)
    }

    /// Checks a body against the definitions as they are known now.
    pub(super) fn check_body(&self, beside: &mut Beside, message_type: Option<&str>, body: &Body) {
        let known = self.definitions.known();
        beside.body_fault = self.body_fault(&known, message_type.unwrap_or(system::DEFAULT), body);
        beside.catalog_version = known.version;
    }

    /// The fault of a body as SEND takes it: `code|description`, or nothing. A type that is not known is refused there.
    pub(super) fn body_fault(&self, known: &Known, message_type: &str, body: &Body) -> String {
        let Some(message_type) = known.catalog.message_type(message_type) else { return String::new() };
        if message_type.validation == Validation::None {
            return String::new();
        }
        let body = body.as_ref().map(|body| body.as_slice());
        let mut checks = self.checks.lock().unwrap_or_else(PoisonError::into_inner);
        match checks.check(&known.catalog, message_type, body) {
            Ok(()) => String::new(),
            Err(rejection) => format!("{}|{}", rejection.code, rejection.description),
        }
    }

    pub(super) fn check_size(&self, body: &Body) -> Result<()> {
        let limit = self.max_body_bytes;
        match body.as_ref().map(|body| body.len()).filter(|length| *length > limit) {
            None => Ok(()),
            Some(length) => Err(Error::new(
                Code::MESSAGE_TOO_LARGE,
                format!("the message body has {length} bytes; the limit of this broker is {limit} (max_body_bytes)"),
            )),
        }
    }
}

/// A verb as it is stored: a body of no bytes is none.
pub(super) fn settled(mut verb: Verb) -> Verb {
    if let Verb::Send { body, .. } = &mut verb
        && body.as_ref().is_some_and(|bytes| bytes.is_empty())
    {
        *body = None;
    }
    verb
}
