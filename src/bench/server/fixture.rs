//! The database that is measured: found empty, left empty.

use super::texts::Server;
use crate::bench::subject::{CLIENT, Class, Conversations, REPLIES, REPLY, REQUEST, REQUESTS, SERVICE, Style, Subject};
use dialoq::define::Definitions;
use dialoq::internals::ErrorConstructors;
use dialoq::internals::store::database::link::Link;
use dialoq::{Broker, Code, Error, Result};
use std::sync::Arc;

/// Callers that fill a queue, unmeasured.
const FILLERS: usize = 128;

/// Refuses a database that is in use.
///
/// # Errors
/// 60026 there are conversations in it.
pub(crate) async fn check_unused(url: &str, what: &str) -> Result<()> {
    let server = Server::new(url)?;
    let conversations: i64 = server.read(server.texts.conversations).await?.get("conversations")?;
    if conversations == 0 {
        return Ok(());
    }
    let why = format!(
        "the database holds {conversations} conversation endpoints; {what} would load it and measure their presence: name an \
         empty database, or say --in-use"
    );
    Err(Error::new(Code::UNSUPPORTED, why))
}

/// The broker under test and what it stands on.
pub(super) struct Fixture {
    pub(super) subject: Subject,
    pub(super) conversations: Arc<Conversations>,
}

impl Fixture {
    /// Defines what the workloads need, and has a message through each of so many conversations, so that both sides of
    /// them are there.
    pub(super) async fn set(broker: Broker, count: usize) -> Result<Self> {
        let subject = Subject::over(broker).await?;
        let conversations = Arc::new(subject.conversations(count, Style::AtOnce).await?);
        conversations.fill_by_callers(FILLERS, super::Bodies::new(8), count).await?;
        let fixture = Self { subject, conversations };
        fixture.drain().await?;
        Ok(fixture)
    }

    pub(super) async fn fill(&self, bodies: super::Bodies, count: usize) -> Result<()> {
        self.conversations.fill_by_callers(FILLERS, bodies, count).await
    }

    /// Receives whatever waits.
    pub(super) async fn drain(&self) -> Result<()> {
        self.conversations.drain_by_callers(FILLERS).await
    }

    /// Takes everything away that was defined; the conversations go with their services.
    pub(super) async fn leave(&self) -> Result<()> {
        self.subject.broker.define(undefine).await.map(drop)
    }
}

fn undefine(define: &mut Definitions) {
    define.drop_service(CLIENT).drop_service(SERVICE).drop_queue(REQUESTS).drop_queue(REPLIES);
    for class in [Class::High, Class::Low] {
        define.drop_broker_priority(class.contract());
    }
    for class in [Class::Plain, Class::High, Class::Low] {
        define.drop_contract(class.contract());
    }
    define.drop_message_type(REQUEST).drop_message_type(REPLY);
}

/// A reader that holds an old snapshot.
pub(super) struct OldReader {
    link: Box<dyn Link>,
    server: Server,
}

impl OldReader {
    pub(super) async fn begin(server: &Server) -> Result<Self> {
        let mut link = server.driver.dedicated().await?;
        link.script(server.texts.hold_snapshot).await.map_err(super::texts::error)?;
        Ok(Self { link, server: server.clone() })
    }

    pub(super) async fn end(mut self) -> Result<()> {
        self.link.script(self.server.texts.release_snapshot).await.map_err(super::texts::error)
    }
}
