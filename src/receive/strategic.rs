//! Queues read by a strategy, as a stream of transactions.

use super::strategy::{Found, Plan, Served, Strategy, WhenEmpty};
use super::wait::{Deadline, Look, receive_first};
use crate::act::Perform;
use crate::broker::Broker;
use crate::error::Result;
use crate::message::Batch;
use crate::store::BoxFuture;
use crate::tx::Tx;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_stream::Stream;

/// One received batch, the class it was received for, and the transaction: commit to have done with it, drop to give
/// it back.
#[derive(Debug)]
pub struct Turn {
    /// The transaction; replies belong in it.
    pub tx: Tx,
    /// The messages of one group, in order.
    pub batch: Batch,
    /// The class that the look was for, as the strategy calls it.
    pub class: Arc<str>,
}

impl Turn {
    /// Commits the transaction.
    ///
    /// # Errors
    /// Those of [`Tx::commit`].
    pub async fn commit(self) -> Result<()> {
        self.tx.commit().await
    }

    /// Gives the messages back; five times in a row disable the queue, unless poison handling is off.
    ///
    /// # Errors
    /// Those of [`Tx::rollback`].
    pub async fn rollback(self) -> Result<()> {
        self.tx.rollback().await
    }
}

impl Broker {
    /// A stream of transactions, each with the batch that the strategy chose. It waits for ever; after an error it ends.
    ///
    /// The strategy learns of a batch when it is handed out, so take the turns one at a time, or run several such
    /// streams side by side: each has a strategy of its own and they share the groups out by their locks.
    ///
    /// ```no_run
    /// # async fn example(broker: dialoq::Broker) -> dialoq::Result<()> {
    /// use dialoq::receive;
    /// use tokio_stream::StreamExt;
    /// let mut turns = broker.receive_by(receive::weighted([("orders_high", 8), ("orders_low", 1)]))?;
    /// while let Some(turn) = turns.next().await {
    ///     let turn = turn?;
    ///     println!("{} of class {}", turn.batch.len(), turn.class);
    ///     turn.commit().await?;
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// 60002 a queue of the strategy does not exist, 60005 one of its settings is out of range, 8425 no such contract.
    pub fn receive_by(&self, strategy: impl Strategy + 'static) -> Result<Strategic> {
        let mut strategy: Box<dyn Strategy> = Box::new(strategy);
        strategy.prepare(&self.catalog())?;
        Ok(Strategic { broker: self.clone(), state: State::Idle(strategy) })
    }
}

/// See [`Broker::receive_by`].
#[must_use = "nothing is received before it is polled"]
pub struct Strategic {
    broker: Broker,
    state: State,
}

enum State {
    Idle(Box<dyn Strategy>),
    /// It outlives a caller that gives up polling, so nothing received is lost.
    Running(BoxFuture<'static, (Box<dyn Strategy>, Result<Turn>)>),
    Ended,
}

impl Stream for Strategic {
    type Item = Result<Turn>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        let mut running = match std::mem::replace(&mut stream.state, State::Ended) {
            State::Idle(strategy) => Box::pin(run(stream.broker.clone(), strategy)),
            State::Running(running) => running,
            State::Ended => return Poll::Ready(None),
        };
        let Poll::Ready((strategy, turn)) = running.as_mut().poll(context) else {
            stream.state = State::Running(running);
            return Poll::Pending;
        };
        if turn.is_ok() {
            stream.state = State::Idle(strategy);
        }
        Poll::Ready(Some(turn))
    }
}

async fn run(broker: Broker, mut strategy: Box<dyn Strategy>) -> (Box<dyn Strategy>, Result<Turn>) {
    let turn = next_turn(&broker, &mut *strategy).await;
    (strategy, turn)
}

async fn next_turn(broker: &Broker, strategy: &mut dyn Strategy) -> Result<Turn> {
    let tx = broker.begin().await?;
    loop {
        let looked_at = broker.clock().now();
        let plan = strategy.plan(looked_at);
        let answer = follow(&tx, &plan).await?;
        let found = answer.as_ref().map(|(look, batch)| describe(*look, batch));
        strategy.served(Served { looked_at, found });
        if let Some((look, batch)) = answer {
            let class = plan.looks[look].class.clone();
            return Ok(Turn { tx, batch, class });
        }
    }
}

fn describe(look: usize, batch: &Batch) -> Found {
    let mut found = Found {
        look,
        messages: batch.len() as u64,
        level: batch.first().priority,
        oldest: batch.first().message_enqueue_time,
    };
    for message in batch {
        found.level = found.level.max(message.priority);
        found.oldest = found.oldest.min(message.message_enqueue_time);
    }
    found
}

/// Tries the looks of a plan once, each with its own wait, and then as the plan says.
async fn follow(act: &dyn Perform, plan: &Plan) -> Result<Option<(usize, Batch)>> {
    let looks: Vec<Look> = plan.looks.iter().map(|look| look.look.clone()).collect();
    if plan.looks.iter().all(|look| look.wait.is_zero()) {
        return receive_first(act, &looks, Deadline::Never).await;
    }
    for (place, look) in plan.looks.iter().enumerate() {
        let deadline = match look.wait {
            Duration::ZERO => Deadline::Now,
            wait => Deadline::after(act.store().clock(), wait),
        };
        if let Some((_, batch)) = receive_first(act, &looks[place..=place], deadline).await? {
            return Ok(Some((place, batch)));
        }
    }
    match plan.when_empty {
        WhenEmpty::Again => Ok(None),
        WhenEmpty::WaitOnAll => receive_first(act, &looks, Deadline::Never).await,
    }
}
