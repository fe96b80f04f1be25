//! Queues as streams of transactions.

use super::wait::{Deadline, ReceiveAttempt, receive_first};
use super::window::{Window, WindowPlace};
use crate::act::Perform;
use crate::broker::Broker;
use crate::error::Result;
use crate::message::Batch;
use crate::protocol::{Message, ReceiveFrom};
use crate::store::BoxFuture;
use crate::tx::Tx;
use std::fmt;
use std::future::poll_fn;
use std::ops::RangeInclusive;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio_stream::Stream;

/// One received batch with the transaction that received it: commit it, or drop it to return the messages.
///
/// It has its place in the [window](Arrivals::window) of its stream until it is dropped, committed or rolled back. A `tx` that was
/// moved out of it has none.
#[derive(Debug)]
pub struct Arrival {
    /// The transaction; replies belong in it.
    pub tx: Tx,
    /// The messages of one group, in order.
    pub batch: Batch,
    place: WindowPlace,
}

impl Arrival {
    /// Commits the transaction.
    ///
    /// # Errors
    /// Those of [`Tx::commit`].
    pub async fn commit(self) -> Result<()> {
        self.tx.commit().await
    }

    /// Commits the transaction without waiting for the disk, so that the commits of several arrivals share one sync. Its
    /// messages come again if it fails; the error is an item of the stream then, or that of
    /// [`Arrivals::settled`], and the stream goes on. Bound how many commits may be under way: [`Arrivals::window`].
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn confirm(self) {
        let Self { tx, mut place, .. } = self;
        place.confirm();
        tokio::spawn(async move { place.end(tx.commit().await) });
    }

    /// Returns the messages to the queue; five rollbacks in a row disable it, unless poison handling is off.
    ///
    /// # Errors
    /// Those of [`Tx::rollback`].
    pub async fn rollback(self) -> Result<()> {
        self.tx.rollback().await
    }
}

impl Broker {
    /// A stream of transactions, each with a received batch of one group. It waits for ever; after an error of RECEIVE
    /// it ends.
    ///
    /// ```no_run
    /// # async fn example(broker: dialoq::Broker) -> dialoq::Result<()> {
    /// use tokio_stream::StreamExt;
    /// let mut arrivals = broker.stream("orders").top(10);
    /// while let Some(arrival) = arrivals.next().await {
    ///     let arrival = arrival?;
    ///     for message in &arrival.batch {
    ///         println!("{}", message.text()?);
    ///     }
    ///     arrival.commit().await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn stream(&self, queue: impl Into<Arc<str>>) -> Arrivals {
        Arrivals {
            broker: self.clone(),
            attempt: ReceiveAttempt::new(queue),
            window: Window::default(),
            next: None,
            ended: false,
        }
    }

    /// A stream of messages, each gone from the queue once the stream has taken it: at most once, without replies in
    /// the same commit. It waits for ever; after an error it ends.
    pub fn stream_messages(&self, queue: impl Into<Arc<str>>) -> Messages {
        Messages { broker: self.clone(), attempt: ReceiveAttempt::new(queue).top(1), next: None, ended: false }
    }
}

/// See [`Broker::stream`].
pub struct Arrivals {
    broker: Broker,
    attempt: ReceiveAttempt,
    window: Window,
    next: Option<BoxFuture<'static, Result<(Tx, Batch)>>>,
    ended: bool,
}

impl fmt::Debug for Arrivals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Arrivals")
            .field("attempt", &self.attempt)
            .field("has_ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Arrivals {
    /// At most so many arrivals at a time: given to the application, and neither committed nor rolled back. The stream
    /// waits while there are as many. With [`Arrival::confirm`], one consumer has so many commits under way. A transaction that
    /// was moved out of its arrival, as by `let Arrival { tx, batch, .. } = arrival`, no longer counts: keep the arrival, and use
    /// `arrival.tx`.
    ///
    /// ```no_run
    /// # async fn example(broker: dialoq::Broker) -> dialoq::Result<()> {
    /// use tokio_stream::StreamExt;
    /// let mut arrivals = broker.stream("orders").top(1).window(64);
    /// while let Some(arrival) = arrivals.next().await {
    ///     let arrival = arrival?;
    ///     let is_last = arrival.batch.first().text()? == "stop";
    ///     arrival.confirm();
    ///     if is_last {
    ///         break;
    ///     }
    /// }
    /// arrivals.settled().await?; // all of them are durable now
    /// # Ok(()) }
    /// ```
    pub fn window(self, most: usize) -> Self {
        self.window.bound(most);
        self
    }

    /// Waits until every commit that [`Arrival::confirm`] began is durable or has failed.
    ///
    /// # Errors
    /// That of the first commit that failed and was not an item of the stream; called again, that of the next one.
    pub async fn settled(&mut self) -> Result<()> {
        poll_fn(|context| self.window.poll_settled(context)).await
    }

    /// At most so many messages a batch.
    pub fn top(mut self, top: u64) -> Self {
        self.attempt.top = Some(top.max(1));
        self
    }

    /// Receives only from groups whose level is within these bounds.
    pub fn levels(mut self, levels: RangeInclusive<u8>) -> Self {
        self.attempt = self.attempt.levels(levels);
        self
    }

    /// Takes the oldest ready group of any level.
    pub fn oldest(mut self) -> Self {
        self.attempt.from = ReceiveFrom::Oldest;
        self
    }
}

impl Stream for Arrivals {
    type Item = Result<Arrival>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        if stream.ended {
            return Poll::Ready(None);
        }
        if let Err(failure) = ready!(stream.window.poll_place(context)) {
            return Poll::Ready(Some(Err(failure)));
        }
        let next = stream.next.get_or_insert_with(|| Box::pin(arrive(stream.broker.clone(), stream.attempt.clone())));
        let arrival = ready!(next.as_mut().poll(context));
        stream.next = None;
        stream.ended = arrival.is_err();
        let place = |(tx, batch)| Arrival { tx, batch, place: stream.window.enter() };
        Poll::Ready(Some(arrival.map(place)))
    }
}

async fn arrive(broker: Broker, attempt: ReceiveAttempt) -> Result<(Tx, Batch)> {
    let tx = broker.begin().await?;
    let batch = next_batch(&tx, attempt).await?;
    Ok((tx, batch))
}

async fn next_batch(act: &dyn Perform, attempt: ReceiveAttempt) -> Result<Batch> {
    let attempts = [attempt];
    loop {
        if let Some((_, batch)) = receive_first(act, &attempts, Deadline::Never).await? {
            return Ok(batch);
        }
    }
}

/// See [`Broker::stream_messages`].
pub struct Messages {
    broker: Broker,
    attempt: ReceiveAttempt,
    next: Option<BoxFuture<'static, Result<Batch>>>,
    ended: bool,
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages")
            .field("attempt", &self.attempt)
            .field("has_ended", &self.ended)
            .finish_non_exhaustive()
    }
}

impl Stream for Messages {
    type Item = Result<Message>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        if stream.ended {
            return Poll::Ready(None);
        }
        let next = stream.next.get_or_insert_with(|| {
            let (broker, attempt) = (stream.broker.clone(), stream.attempt.clone());
            Box::pin(async move { next_batch(&broker, attempt).await })
        });
        let batch = ready!(next.as_mut().poll(context));
        stream.next = None;
        stream.ended = batch.is_err();
        Poll::Ready(Some(batch.map(|batch| batch.into_messages().swap_remove(0))))
    }
}
