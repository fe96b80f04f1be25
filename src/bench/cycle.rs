//! The full dialog cycle: begin, send, receive, reply, end, end.

use crate::bench::flow::{Bodies, Side};
use crate::bench::load::Caller;
use crate::bench::subject::{CLIENT, Class, REPLIES, REPLY, REQUEST, REQUESTS, SERVICE, Style, Subject, stalled};
use dialoq::{Act, Batch, Broker, Message, Result};
use std::sync::Arc;
use std::time::Duration;

const SILENCE_LIMIT: Duration = Duration::from_secs(10);

/// Plays both sides: begins one dialog, serves one (whosever it is), and ends one. One call is one cycle.
pub(in crate::bench) struct Cycle {
    broker: Broker,
    style: Style,
    bodies: Bodies,
}

impl Cycle {
    pub(in crate::bench) fn new(subject: &Subject, style: Style, bodies: Bodies) -> Self {
        Self { broker: subject.broker.clone(), style, bodies }
    }

    /// Every statement commits by itself.
    async fn at_once(&self) -> Result<()> {
        let broker = &self.broker;
        let dialog = broker.begin_dialog(CLIENT, SERVICE).contract(Class::Plain.contract()).await?;
        broker.send(dialog, REQUEST, &self.bodies.next()).await?;
        let request = broker.receive(REQUESTS).wait(SILENCE_LIMIT).await?.ok_or_else(|| stalled("a request"))?;
        broker.send(request.first().handle(), REPLY, request.first().body()).await?;
        broker.end(request.first().handle()).await?;
        // A reply may come before the end that follows it; what counts is the end.
        loop {
            let answer = broker.receive(REPLIES).wait(SILENCE_LIMIT).await?.ok_or_else(|| stalled("a reply"))?;
            if let Some(end) = end_of(&answer) {
                broker.end(end.handle()).await?;
                return Ok(());
            }
        }
    }

    /// Three transactions: begin and send; receive, reply and end; receive and end.
    async fn in_tx(&self) -> Result<()> {
        let tx = self.broker.begin().await?;
        let dialog = tx.begin_dialog(CLIENT, SERVICE).contract(Class::Plain.contract()).await?;
        tx.send(dialog, REQUEST, &self.bodies.next()).await?;
        tx.commit().await?;

        let tx = self.broker.begin().await?;
        let request = tx.receive(REQUESTS).wait(SILENCE_LIMIT).await?.ok_or_else(|| stalled("a request"))?;
        tx.send(request.first().handle(), REPLY, request.first().body()).await?;
        tx.end(request.first().handle()).await?;
        tx.commit().await?;

        let tx = self.broker.begin().await?;
        let answer = tx.receive(REPLIES).wait(SILENCE_LIMIT).await?.ok_or_else(|| stalled("a reply"))?;
        let end = end_of(&answer).ok_or_else(|| stalled("the end of a dialog, committed with its reply,"))?;
        tx.end(end.handle()).await?;
        tx.commit().await
    }
}

fn end_of(batch: &Batch) -> Option<&Message> {
    batch.iter().find(|message| message.is_end_dialog())
}

impl Caller for Cycle {
    async fn call(&mut self) -> Result<u64> {
        match self.style {
            Style::AtOnce => self.at_once().await?,
            Style::InTx => self.in_tx().await?,
        }
        Ok(1)
    }
}

/// What is left of a cycle without dialogs: a request and a reply through a side, each sent and received by itself.
pub(in crate::bench) struct Exchange<S> {
    pub(in crate::bench) side: Arc<S>,
    pub(in crate::bench) bodies: Bodies,
}

impl<S: Side> Caller for Exchange<S> {
    async fn call(&mut self) -> Result<u64> {
        for _ in 0..2 {
            self.side.send(vec![self.bodies.next()]).await?;
            while self.side.receive(1, true).await?.is_empty() {}
        }
        Ok(1)
    }
}
