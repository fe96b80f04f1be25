//! Queues read by a strategy, as a stream of transactions.

use super::strategy::{ClassAttempt, Found, Plan, Served, Strategy, WhenEmpty};
use super::wait::{Deadline, ReceiveAttempt, WaitEnd, is_held, receive_first};
use crate::act::Perform;
use crate::broker::Broker;
use crate::catalog::{Catalog, same_name};
use crate::error::{Code, Error, Result};
use crate::message::Batch;
use crate::store::BoxFuture;
use crate::tx::Tx;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_stream::Stream;

/// One received batch, the class it was received for, and the transaction: commit it, or drop it to return the
/// messages.
#[derive(Debug)]
pub struct Turn {
    /// The transaction; replies belong in it.
    pub tx: Tx,
    /// The messages of one group, in order.
    pub batch: Batch,
    /// The class that the receive attempt was for, by the strategy's name for it.
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

    /// Returns the messages to the queue; five rollbacks in a row disable it, unless poison handling is off.
    ///
    /// # Errors
    /// Those of [`Tx::rollback`].
    pub async fn rollback(self) -> Result<()> {
        self.tx.rollback().await
    }
}

impl Broker {
    /// A stream of transactions, each with the batch that the strategy chose. It waits for ever; after an error it
    /// ends. A queue that is turned off is left out until it is on again, with a warning in the log; 9617 comes if none of its queues is on.
    ///
    /// Poll it, or drop it: a message may be meant for this stream, and another receiver gets it some seconds later if the stream
    /// does not come.
    ///
    /// The strategy learns of a batch when the stream yields it, so take the turns one at a time, or run several
    /// streams concurrently: each has a strategy of its own and they share the groups out by their locks.
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
    /// 60002 a queue of the strategy does not exist, as far as this process knows: of one that another process has made in the same
    /// moment it knows a little later. 60005 one of its settings is out of range, 8425 no such contract.
    pub fn receive_by(&self, strategy: impl Strategy + 'static) -> Result<Strategic> {
        let mut strategy: Box<dyn Strategy> = Box::new(strategy);
        strategy.prepare(&self.catalog())?;
        Ok(Strategic { broker: self.clone(), state: State::Idle(strategy, Messages::default()) })
    }
}

/// See [`Broker::receive_by`].
#[must_use = "nothing is received before it is polled"]
pub struct Strategic {
    broker: Broker,
    state: State,
}

enum State {
    Idle(Box<dyn Strategy>, Messages),
    /// It outlives a caller that gives up polling, so nothing received is lost.
    Running(BoxFuture<'static, (Box<dyn Strategy>, Messages, Result<Turn>)>),
    Ended,
}

impl fmt::Debug for Strategic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Strategic").field("has_ended", &matches!(self.state, State::Ended)).finish_non_exhaustive()
    }
}

impl Stream for Strategic {
    type Item = Result<Turn>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let stream = &mut *self;
        let mut running = match std::mem::replace(&mut stream.state, State::Ended) {
            State::Idle(strategy, messages) => Box::pin(run(stream.broker.clone(), strategy, messages)),
            State::Running(running) => running,
            State::Ended => return Poll::Ready(None),
        };
        let Poll::Ready((strategy, messages, turn)) = running.as_mut().poll(context) else {
            stream.state = State::Running(running);
            return Poll::Pending;
        };
        if turn.is_ok() {
            stream.state = State::Idle(strategy, messages);
        }
        Poll::Ready(Some(turn))
    }
}

async fn run(
    broker: Broker,
    mut strategy: Box<dyn Strategy>,
    messages: Messages,
) -> (Box<dyn Strategy>, Messages, Result<Turn>) {
    let turn = next_turn(&broker, &mut *strategy, &messages).await;
    (strategy, messages, turn)
}

async fn next_turn(broker: &Broker, strategy: &mut dyn Strategy, messages: &Messages) -> Result<Turn> {
    let tx = broker.begin().await?;
    let mut asleep = None;
    loop {
        match next_by(messages, &tx, strategy, Deadline::Never).await {
            Ok(Some((class, batch))) => return Ok(Turn { tx, batch, class }),
            Ok(None) => {}
            // Another process has turned it off, and this one learns of it in a moment; then the plan leaves it out.
            Err(error) if error.code() == Code::QUEUE_DISABLED && messages.has_other_queues(broker, strategy) => {
                // A store that gets no notices reads the definitions again while a receiver sleeps. Without this it asked for ever.
                asleep.get_or_insert_with(|| broker.activity().sleep());
                tokio::time::sleep(AFTER_A_REFUSAL).await;
            }
            Err(error) => return Err(error),
        }
    }
}

/// How long until the next plan after a queue was found to be off. The notice that says so takes a few milliseconds, a poll 100.
const AFTER_A_REFUSAL: Duration = Duration::from_millis(20);

/// The place of the first attempt that found something, and what it found.
pub(crate) type FirstFound<B> = Option<(usize, B)>;

/// What the plans of a strategy are carried out on: queues of messages, or work queues.
pub(crate) trait Chosen: Sync {
    /// What an attempt finds.
    type Batch: Send;

    /// Makes the attempts in order and returns the first that finds something; while all are empty, waits on all of them.
    fn first<'a>(
        &'a self,
        act: &'a dyn Perform,
        attempts: &'a [ClassAttempt],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<FirstFound<Self::Batch>>>;

    /// The places of the attempts to make, if some are left out because their queue is missing, or is held for now.
    fn places(&self, _: &dyn Perform, _: &[ClassAttempt]) -> Option<Vec<usize>> {
        None
    }

    /// A transaction that stays open holds the queue of this attempt, which was refused.
    fn note_held(&self, _: &dyn Perform, _: &ClassAttempt) {}

    /// Whether the attempts that were left out are made at the deadline.
    fn tries_all_at_last(&self) -> bool {
        false
    }

    /// Whether an attempt that finds nothing says that nothing waits for it.
    fn is_empty_certain(&self, _: &dyn Perform, _: &[ClassAttempt]) -> bool {
        true
    }

    /// What the strategy learns of it.
    fn describe(attempt: usize, batch: &Self::Batch) -> Option<Found>;
}

/// Queues of messages; those that are off are left out.
#[derive(Debug, Default)]
struct Messages {
    /// It was said that one is.
    is_said: AtomicBool,
}

impl Messages {
    /// Whether a queue of the strategy is on, as far as this process knows, and there is more than one.
    fn has_other_queues(&self, broker: &Broker, strategy: &dyn Strategy) -> bool {
        let (catalog, plan) = (broker.catalog(), strategy.plan(broker.clock().now()));
        let Some(first) = plan.attempts.first().map(|attempt| &attempt.receive.queue) else { return false };
        plan.attempts.iter().any(|attempt| !same_name(&attempt.receive.queue, first))
            && plan.attempts.iter().any(|attempt| is_on(&catalog, attempt))
    }
}

fn is_on(catalog: &Catalog, attempt: &ClassAttempt) -> bool {
    // That one is missing is an error, which the attempt gives.
    catalog.queue(&attempt.receive.queue).is_none_or(|queue| queue.is_receive_enabled)
}

impl Chosen for Messages {
    type Batch = Batch;

    fn first<'a>(
        &'a self,
        act: &'a dyn Perform,
        attempts: &'a [ClassAttempt],
        deadline: Deadline,
    ) -> BoxFuture<'a, Result<Option<(usize, Batch)>>> {
        Box::pin(async move {
            let attempts: Vec<ReceiveAttempt> = attempts.iter().map(|attempt| attempt.receive.clone()).collect();
            receive_first(act, &attempts, deadline).await
        })
    }

    /// All if none of the queues is on, so that the attempts fail. One poison message in the queue of one class ended the service of all
    /// others.
    fn places(&self, act: &dyn Perform, attempts: &[ClassAttempt]) -> Option<Vec<usize>> {
        let catalog = act.store().catalog();
        let on: Vec<usize> = (0..attempts.len()).filter(|place| is_on(&catalog, &attempts[*place])).collect();
        let are_some_off = !on.is_empty() && on.len() < attempts.len();
        let was_said = self.is_said.swap(are_some_off, Relaxed);
        if are_some_off && !was_said {
            let off = attempts.iter().find(|attempt| !is_on(&catalog, attempt)).map(|attempt| &attempt.receive.queue);
            tracing::warn!(
                queue = off.map(Arc::as_ref),
                "a queue of a strategy is off; messages are received from the others meanwhile"
            );
        }
        are_some_off.then_some(on)
    }

    /// A queue that is off is not asked.
    fn is_empty_certain(&self, act: &dyn Perform, attempts: &[ClassAttempt]) -> bool {
        let catalog = act.store().catalog();
        attempts.iter().all(|attempt| is_on(&catalog, attempt))
    }

    fn describe(attempt: usize, batch: &Batch) -> Option<Found> {
        let level = batch.iter().map(|message| message.priority).max()?;
        let oldest = batch.iter().map(|message| message.message_enqueue_time).min()?;
        Some(Found { attempt, messages: batch.len() as u64, level, oldest })
    }
}

/// What a strategy chooses next, with its class; `None` at the deadline.
pub(crate) async fn next_by<C: Chosen>(
    chosen: &C,
    act: &dyn Perform,
    strategy: &mut dyn Strategy,
    deadline: Deadline,
) -> Result<Option<(Arc<str>, C::Batch)>> {
    let clock = act.store().clock();
    let end = WaitEnd::new(clock, deadline);
    loop {
        let planned_at = clock.now();
        let plan = strategy.plan(planned_at);
        check_plan(&plan)?;
        let was_certain = chosen.is_empty_certain(act, &plan.attempts);
        let (mut answer, some_left_out) = try_plan(chosen, act, &plan, &end).await?;
        if answer.is_none() && some_left_out && chosen.tries_all_at_last() && end.is_over() {
            answer = chosen.first(act, &plan.attempts, Deadline::Now).await?;
        }
        let found = answer.as_ref().and_then(|(attempt, batch)| C::describe(*attempt, batch));
        let is_empty_certain = was_certain && chosen.is_empty_certain(act, &plan.attempts);
        strategy.served(Served { planned_at, found, is_empty_certain });
        if let Some((attempt, batch)) = answer {
            return Ok(Some((plan.attempts[attempt].class.clone(), batch)));
        }
        if end.is_over() {
            return Ok(None);
        }
    }
}

/// Refuses a plan that can find nothing: carried out again and again without a wait, it kept its thread for ever.
fn check_plan(plan: &Plan) -> Result<()> {
    if plan.attempts.is_empty() {
        return Err(Error::out_of_range("the number of attempts of a plan", 0, "at least 1"));
    }
    if plan.attempts.iter().all(|attempt| attempt.receive.top == Some(0)) {
        return Err(Error::out_of_range("the top of each attempt of a plan", 0, "at least 1 in one of them, or none"));
    }
    Ok(())
}

/// How often it is looked whether a queue that is missing or off is there again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Makes the attempts of a plan once, without those that are left out; and whether there are any.
async fn try_plan<C: Chosen>(
    chosen: &C,
    act: &dyn Perform,
    plan: &Plan,
    end: &WaitEnd<'_>,
) -> Result<(FirstFound<C::Batch>, bool)> {
    let Some(places) = chosen.places(act, &plan.attempts) else {
        return Ok((try_attempts(chosen, act, &plan.attempts, plan.when_empty, end).await?, false));
    };
    let attempts: Vec<ClassAttempt> = places.iter().map(|place| plan.attempts[*place].clone()).collect();
    let clock = act.store().clock();
    let soon = WaitEnd::new(clock, Deadline::after(clock, LOOK_AGAIN).or_earlier(end.deadline()));
    // A classic loop without its first queue would not wait at all.
    let found = match try_attempts(chosen, act, &attempts, WhenEmpty::WaitOnAll, &soon).await {
        // Another queue is held too. The time that is over then is that of this look, not the caller's.
        Err(error) if is_held(&error) && !end.is_over() => None,
        found => found?,
    };
    Ok((found.map(|(taken, batch)| (places[taken], batch)), true))
}

/// Makes attempts once, each with its own wait, and then follows `when_empty`.
async fn try_attempts<C: Chosen>(
    chosen: &C,
    act: &dyn Perform,
    attempts: &[ClassAttempt],
    when_empty: WhenEmpty,
    end: &WaitEnd<'_>,
) -> Result<FirstFound<C::Batch>> {
    if attempts.iter().all(|attempt| attempt.wait.is_zero()) {
        return chosen.first(act, attempts, end.deadline()).await;
    }
    let mut held = None;
    for (place, attempt) in attempts.iter().enumerate() {
        let wait = match attempt.wait {
            Duration::ZERO => Deadline::Now,
            wait => Deadline::after(act.store().clock(), wait).or_earlier(end.deadline()),
        };
        match chosen.first(act, &attempts[place..=place], wait).await {
            Ok(Some((_, batch))) => return Ok(Some((place, batch))),
            Ok(None) => {}
            // Another queue may have something, and the next plan leaves this one out.
            Err(error) if is_held(&error) && attempts.len() > 1 => {
                chosen.note_held(act, attempt);
                held = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    match (when_empty, held) {
        (WhenEmpty::Replan, Some(error)) if end.is_over() => Err(error),
        (WhenEmpty::Replan, _) => Ok(None),
        (WhenEmpty::WaitOnAll, _) => chosen.first(act, attempts, end.deadline()).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::Act;
    use crate::define::Level;
    use crate::error::Code;
    use crate::id::ConversationHandle;
    use crate::protocol::ReceiveFrom;
    use crate::receive::strategy::{
        Bound, Form, Share, aging, by_contract, drain_high_then_one_low, drain_one_conversation, dual_queue_loop,
        dual_queue_loop_classic, weighted,
    };
    use crate::testing::TestBroker;
    use crate::time::Timestamp;
    use tokio_stream::StreamExt;

    /// Two queues of one service each, and one queue of both classes.
    async fn broker() -> TestBroker {
        let broker = TestBroker::in_memory().await.unwrap();
        let define = broker.define(|d| {
            d.contract("urgent").sent_by_initiator("DEFAULT");
            d.contract("routine").sent_by_initiator("DEFAULT");
            d.queue("source").queue("high").queue("low").queue("both");
            d.service("source", "source", []);
            d.service("high", "high", ["urgent"]).service("low", "low", ["routine"]);
            d.service("both", "both", ["urgent", "routine"]);
            d.broker_priority("urgent").contract("urgent").level(Level::new(8));
            d.broker_priority("routine").contract("routine").level(Level::new(3));
        });
        define.await.unwrap();
        broker
    }

    async fn dialog(broker: &TestBroker, to: &str, contract: &str) -> ConversationHandle {
        broker.begin_dialog("source", to.to_owned()).contract(contract.to_owned()).await.unwrap()
    }

    async fn send(broker: &TestBroker, to: &str, contract: &str, bodies: &[&str]) {
        let dialog = dialog(broker, to, contract).await;
        for body in bodies {
            broker.send(dialog, "DEFAULT", *body).await.unwrap();
        }
    }

    async fn next(turns: &mut Strategic) -> (String, Vec<String>) {
        let turn = turns.next().await.unwrap().unwrap();
        let bodies = turn.batch.iter().map(|message| message.text().unwrap().into_owned()).collect();
        let class = turn.class.to_string();
        turn.commit().await.unwrap();
        (class, bodies)
    }

    /// Waits until so many sessions wait in the queue.
    async fn until_waiting(broker: &TestBroker, queue: &str) {
        while broker.activity().queue(queue).facts().waiting == 0 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn high_conversations_are_drained_before_one_low_is_taken() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        send(&broker, "both", "routine", &["l1", "l2"]).await;
        send(&broker, "both", "urgent", &["a1", "a2"]).await;
        send(&broker, "both", "urgent", &["b1"]).await;
        let mut turns = broker.receive_by(drain_high_then_one_low("both", by_contract("urgent"))).unwrap();
        assert_eq!(next(&mut turns).await, ("high".to_owned(), vec!["a1".to_owned(), "a2".to_owned()]));
        assert_eq!(next(&mut turns).await.1, ["b1"]);
        assert_eq!(next(&mut turns).await, ("low".to_owned(), vec!["l1".to_owned()]));
        send(&broker, "both", "urgent", &["c1"]).await;
        assert_eq!(next(&mut turns).await.1, ["c1"]);
        assert_eq!(next(&mut turns).await.1, ["l2"]);
    }

    #[tokio::test]
    async fn the_improved_dual_loop_wakes_for_either_queue_while_the_clock_stands_still() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        let mut turns = broker.receive_by(dual_queue_loop("high", "low")).unwrap();
        for (queue, contract) in [("low", "routine"), ("high", "urgent"), ("low", "routine")] {
            let sent = async {
                until_waiting(&broker, queue).await;
                send(&broker, queue, contract, &["x"]).await;
            };
            let ((class, _), ()) = tokio::join!(next(&mut turns), sent);
            assert_eq!(class, queue);
        }
    }

    #[tokio::test]
    async fn a_queue_that_is_off_is_left_out_until_it_is_on() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        send(&broker, "high", "urgent", &["bad"]).await;
        send(&broker, "low", "routine", &["l1", "l2", "l3"]).await;
        let mut turns = broker.receive_by(dual_queue_loop("high", "low")).unwrap();
        for _ in 0..5 {
            let turn = turns.next().await.unwrap().unwrap();
            assert_eq!(&*turn.class, "high");
            turn.rollback().await.unwrap();
        }
        assert!(!broker.catalog().queue("high").unwrap().is_receive_enabled, "five rollbacks turn it off");
        for body in ["l1", "l2", "l3"] {
            assert_eq!(next(&mut turns).await, ("low".to_owned(), vec![body.to_owned()]));
        }
        broker.pause("low", None).await.unwrap();
        let refused = turns.next().await.unwrap().unwrap_err();
        assert_eq!(refused.code(), Code::QUEUE_DISABLED, "none is on");
        for classic in [false, true] {
            broker.resume("low").await.unwrap();
            let mut turns = match classic {
                false => broker.receive_by(dual_queue_loop("high", "low")).unwrap(),
                true => broker.receive_by(dual_queue_loop_classic("high", "low")).unwrap(),
            };
            let resumed = async {
                until_waiting(&broker, "low").await;
                broker.resume("high").await.unwrap();
                // It looks for that once a second.
                loop {
                    broker.advance(Duration::from_secs(1));
                    tokio::task::yield_now().await;
                }
            };
            let (class, bodies) = tokio::select! {
                turn = next(&mut turns) => turn,
                () = resumed => unreachable!("it goes on until the turn comes"),
            };
            assert_eq!((&*class, bodies), ("high", vec!["bad".to_owned()]));
            send(&broker, "high", "urgent", &["bad"]).await;
            broker.pause("high", None).await.unwrap();
        }
    }

    #[tokio::test]
    async fn the_classic_dual_loop_sits_out_its_ten_ms_before_a_low_message() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        send(&broker, "low", "routine", &["x"]).await;
        let mut turns = broker.receive_by(dual_queue_loop_classic("high", "low")).unwrap();
        let begun = broker.clock().now();
        let tick = async {
            until_waiting(&broker, "high").await;
            // A millisecond at a time, so that the clock shows when the wait was over.
            while broker.activity().queue("high").facts().waiting == 1 {
                broker.advance(Duration::from_millis(1));
                for _ in 0..50 {
                    tokio::task::yield_now().await;
                }
            }
        };
        let ((class, _), ()) = tokio::join!(next(&mut turns), tick);
        assert_eq!(class, "low");
        let waited = broker.clock().now().since(begun);
        assert!(waited >= Duration::from_millis(10), "it was given after {waited:?}");
    }

    #[tokio::test]
    async fn aging_lets_a_low_message_overtake_when_it_is_old_enough() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        let mut turns = broker.receive_by(aging("both", Duration::from_secs(1))).unwrap();
        send(&broker, "both", "routine", &["l1", "l2", "l3"]).await;
        send(&broker, "both", "urgent", &["h1", "h2", "h3"]).await;
        // The first of each level, to learn how old they are; then by level, as all are of the same age.
        let mut order = Vec::new();
        for _ in 0..4 {
            order.extend(next(&mut turns).await.1);
        }
        assert_eq!(order, ["h1", "l1", "h2", "h3"]);
        // Five levels apart, so five seconds make it even and six decide.
        broker.advance(Duration::from_secs(6));
        send(&broker, "both", "urgent", &["h4", "h5"]).await;
        // Out of order once, because the last message received at its level was older.
        assert_eq!(next(&mut turns).await.1, ["h4"]);
        assert_eq!(next(&mut turns).await.1, ["l2"]);
        assert_eq!(next(&mut turns).await.1, ["l3"]);
        assert_eq!(next(&mut turns).await.1, ["h5"]);
    }

    #[tokio::test]
    async fn a_message_counts_at_the_highest_level_of_its_group() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        let (low, high) = (dialog(&broker, "both", "routine").await, dialog(&broker, "both", "urgent").await);
        let mut sides = Vec::new();
        for dialog in [high, low] {
            broker.send(dialog, "DEFAULT", "first").await.unwrap();
            sides.push(broker.receive("both").await.unwrap().unwrap());
        }
        broker.move_conversation(sides[1].first().handle(), sides[0].group()).await.unwrap();
        broker.send(low, "DEFAULT", "l").await.unwrap();
        for body in ["h1", "h2", "h3", "h4", "h5"] {
            broker.send(high, "DEFAULT", body).await.unwrap();
        }
        let classes = [Share::levels("urgent", "both", 8..=10, 1), Share::levels("routine", "both", 1..=7, 1)];
        let mut turns = broker.receive_by(weighted(classes)).unwrap();
        let mut order = Vec::new();
        for _ in 0..6 {
            order.extend(next(&mut turns).await.1);
        }
        assert_eq!(order, ["h1", "h2", "h3", "h4", "h5", "l"], "no class of lower levels has messages before");
    }

    #[tokio::test]
    async fn rolled_back_messages_return_and_an_unpolled_turn_is_kept() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        let mut turns = broker.receive_by(dual_queue_loop("high", "low")).unwrap();
        // A caller that gives up after its first poll.
        let gave_up = tokio::select! {
            biased;
            _ = turns.next() => false,
            () = std::future::ready(()) => true,
        };
        assert!(gave_up);
        send(&broker, "high", "urgent", &["x"]).await;
        let turn = turns.next().await.unwrap().unwrap();
        assert_eq!(turn.batch.first().text().unwrap(), "x");
        turn.rollback().await.unwrap();
        assert_eq!(next(&mut turns).await.1, ["x"]);
    }

    #[tokio::test]
    async fn a_bad_strategy_is_refused_at_once_and_an_error_ends_the_stream() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        let refused = broker.receive_by(dual_queue_loop("high", "nowhere")).err().unwrap();
        assert_eq!(refused.code(), Code::OBJECT_NOT_FOUND);
        let unknown = crate::ConversationHandle(uuid::Uuid::from_u128(7));
        let mut turns = broker.receive_by(drain_one_conversation("both", unknown)).unwrap();
        assert_eq!(turns.next().await.unwrap().unwrap_err().code(), Code::CONVERSATION_NOT_FOUND);
        assert!(turns.next().await.is_none());
        let mut turns = broker.receive_by(dual_queue_loop("high", "low")).unwrap();
        let disabled = async {
            until_waiting(&broker, "low").await;
            broker.pause("low", None).await.unwrap();
            broker.pause("high", None).await.unwrap();
        };
        let (turn, ()) = tokio::join!(turns.next(), disabled);
        assert_eq!(turn.unwrap().unwrap_err().code(), Code::QUEUE_DISABLED);
    }

    /// Makes plans that no receive can follow.
    struct Unusable(Vec<ClassAttempt>);

    impl Strategy for Unusable {
        fn name(&self) -> &'static str {
            "unusable"
        }

        fn form(&self) -> Form {
            Form::Improved
        }

        fn bound(&self) -> Bound {
            Bound::None
        }

        fn prepare(&mut self, _: &Catalog) -> Result<()> {
            Ok(())
        }

        fn plan(&self, _: Timestamp) -> Plan {
            Plan { attempts: self.0.clone(), when_empty: WhenEmpty::WaitOnAll }
        }

        fn served(&mut self, _: Served) {}
    }

    #[tokio::test]
    async fn a_plan_that_can_find_nothing_is_refused() {
        let _limit = crate::testing::limit();
        let broker = broker().await;
        broker.execute("CREATE WORK QUEUE w").await.unwrap();
        let of_none = ClassAttempt::new("none", "high", ReceiveFrom::Any, Some(0));
        for attempts in [Vec::new(), vec![of_none]] {
            let mut turns = broker.receive_by(Unusable(attempts)).unwrap();
            assert_eq!(turns.next().await.unwrap().unwrap_err().code(), Code::OUT_OF_RANGE);
        }
        let mut turns = broker.take_jobs_by(Unusable(Vec::new())).unwrap();
        assert_eq!(turns.next(&*broker).await.unwrap_err().code(), Code::OUT_OF_RANGE);
    }
}
