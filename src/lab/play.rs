//! One run: a sender that plays the load, and the readers of one contestant.

use super::contestant::{Contestant, Reading};
use super::load::{Arrival, Class, Load};
use super::scene::{ADD_ITEM, Line, Scene, Site};
use crate::cli::Interrupt;
use dialoq::act::SendsAs;
use dialoq::activation::{Context, HandlerError, Handlers, Ramp};
use dialoq::internals::ErrorConstructors;
use dialoq::protocol::{Message, Verb};
use dialoq::receive::strategy::{Bound, Form, Strategy};
use dialoq::{Broker, Clock, Code, ConversationHandle, Error, Result, Timestamp};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_stream::StreamExt;

/// One message as it was served. Times are microseconds since the load began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Take {
    pub(super) class: Class,
    pub(super) conversation: usize,
    /// Its place in the conversation.
    pub(super) sequence: u64,
    pub(super) enqueued_us: i64,
    /// When a reader began to work on it.
    pub(super) taken_us: i64,
    /// When the work on it ended.
    pub(super) done_us: i64,
}

impl Take {
    pub(super) fn waited_us(&self) -> u64 {
        u64::try_from(self.taken_us - self.enqueued_us).unwrap_or(0)
    }
}

/// What a run gave.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Trace {
    /// In the order they were taken.
    pub(super) takes: Vec<Take>,
    pub(super) bound: Bound,
    /// Whether one reader did it all, one message after the other.
    pub(super) is_single_reader: bool,
}

/// What the readers write down.
pub(super) struct Recorder {
    clock: Clock,
    start: Timestamp,
    service: Duration,
    takes: Mutex<Vec<Take>>,
    pub(super) done: watch::Sender<usize>,
}

/// A message or a job as its reader got it.
pub(super) struct Served {
    pub(super) line: Line,
    pub(super) sequence: u64,
    pub(super) enqueued: Timestamp,
}

/// A message with the conversation of the load that it came on.
fn served(lines: &HashMap<ConversationHandle, Line>, message: &Message) -> Result<Served> {
    let Some(&line) = lines.get(&message.conversation_handle) else {
        let why = format!("a message came on conversation {}, which the lab never began", message.conversation_handle);
        return Err(Error::new(Code::STORE_DAMAGED, why));
    };
    Ok(Served { line, sequence: message.message_sequence_number, enqueued: message.message_enqueue_time })
}

impl Recorder {
    fn now_us(&self) -> i64 {
        self.clock.now().0 - self.start.0
    }

    /// Serves what came and writes it down.
    pub(super) async fn serve(&self, served: Served) -> Result<()> {
        let (class, conversation) = served.line;
        let take = Take {
            class,
            conversation,
            sequence: served.sequence,
            enqueued_us: served.enqueued.0 - self.start.0,
            taken_us: self.now_us(),
            done_us: i64::MAX,
        };
        let place = {
            let mut takes = self.takes.lock().unwrap_or_else(PoisonError::into_inner);
            takes.push(take);
            takes.len() - 1
        };
        let service = self.service;
        // A thread sleeps to within a tenth of a millisecond; the runtime's timer would round up to whole ones.
        let slept = tokio::task::spawn_blocking(move || std::thread::sleep(service)).await;
        slept.map_err(|cause| {
            let why = "the lab was stopped while a reader worked";
            Error::new(Code::HANDLER_FAILED, why).caused_by(cause)
        })?;
        self.takes.lock().unwrap_or_else(PoisonError::into_inner)[place].done_us = self.now_us();
        self.done.send_modify(|done| *done += 1);
        Ok(())
    }
}

/// Plays the load to a contestant on a database of its own; `None` if a stop was requested.
pub(super) async fn play(
    contestant: Contestant,
    load: &Load,
    service: Duration,
    site: Site<'_>,
    mut progress: impl FnMut(usize),
    interrupt: &Interrupt,
) -> Result<Option<Trace>> {
    let scene = Scene::set(contestant.layout(), site).await?;
    let played = interrupt.unless_requested(play_in(&scene, contestant, load, service, &mut progress)).await;
    // The objects are removed after a failure or a stop too; the caller gets that failure.
    let struck = scene.strike().await;
    let trace = played?;
    struck.map(|()| trace)
}

async fn play_in(
    scene: &Scene,
    contestant: Contestant,
    load: &Load,
    service: Duration,
    progress: &mut impl FnMut(usize),
) -> Result<Trace> {
    let known = scene.receiver((Class::High, 0));
    let (broker, lines) = (scene.broker.clone(), scene.receivers.clone());
    let run = Run { reading: contestant.reading(known)?, clock: broker.clock().clone(), load, service };
    let senders = scene.senders.clone();
    let sender = broker.clone();
    let send = |clock, start| send(sender, senders, load.arrivals.clone(), clock, start);
    run.go(send, |reading, recorder, total| read(broker, lines, reading, recorder, total), progress).await
}

/// A sender and readers side by side.
pub(super) struct Run<'a> {
    pub(super) reading: Reading,
    pub(super) clock: Clock,
    pub(super) load: &'a Load,
    pub(super) service: Duration,
}

impl Run<'_> {
    pub(super) async fn go<S, R>(
        self,
        send: impl FnOnce(Clock, Timestamp) -> S,
        read: impl FnOnce(Reading, Arc<Recorder>, usize) -> R,
        progress: &mut impl FnMut(usize),
    ) -> Result<Trace>
    where
        S: Future<Output = Result<()>> + Send + 'static,
        R: Future<Output = Result<()>> + Send + 'static,
    {
        let bound = self.reading.bound();
        let is_single_reader = matches!(self.reading, Reading::ByStrategy(_));
        let (done, mut received) = watch::channel(0);
        let start = self.clock.now();
        let clock = self.clock.clone();
        let recorder = Arc::new(Recorder { clock, start, service: self.service, takes: Mutex::default(), done });
        let total = self.load.arrivals.len();
        let mut tasks = JoinSet::new();
        tasks.spawn(send(self.clock, start));
        tasks.spawn(read(self.reading, recorder.clone(), total));
        loop {
            tokio::select! {
                ended = tasks.join_next() => match ended {
                    Some(ended) => joined(ended)?,
                    None => break,
                },
                Ok(()) = received.changed() => progress(*received.borrow_and_update()),
            }
        }
        let takes = std::mem::take(&mut *recorder.takes.lock().unwrap_or_else(PoisonError::into_inner));
        check_complete(&takes, total)?;
        Ok(Trace { takes, bound, is_single_reader })
    }
}

fn joined(done: std::result::Result<Result<()>, tokio::task::JoinError>) -> Result<()> {
    done.map_err(|cause| {
        let why = format!("a task of the lab failed: {cause}");
        Error::new(Code::HANDLER_FAILED, why).caused_by(cause)
    })?
}

/// Sends each message at its time; what is due together goes in one unit.
async fn send(
    broker: Broker,
    senders: HashMap<Line, ConversationHandle>,
    arrivals: Vec<Arrival>,
    clock: Clock,
    start: Timestamp,
) -> Result<()> {
    let mut rest = arrivals.as_slice();
    while let Some(next) = rest.first() {
        clock.sleep_until(start.after(Duration::from_micros(next.at_us))).await;
        let now_us = clock.now().since(start).as_micros();
        let due = rest.partition_point(|arrival| u128::from(arrival.at_us) <= now_us).max(1);
        let mut unit = Vec::with_capacity(due);
        for arrival in &rest[..due] {
            unit.push(Verb::Send {
                handles: vec![senders[&(arrival.class, arrival.conversation)]],
                message_type: Some(ADD_ITEM.name().into()),
                body: SendsAs::body(&ADD_ITEM, &arrival.body)?,
                trace: None,
            });
        }
        broker.submit(unit).await?;
        rest = &rest[due..];
    }
    Ok(())
}

type Lines = HashMap<ConversationHandle, Line>;

async fn read(broker: Broker, lines: Lines, reading: Reading, recorder: Arc<Recorder>, total: usize) -> Result<()> {
    match reading {
        Reading::ByStrategy(strategy) => read_by_strategy(&broker, &lines, strategy, &recorder, total).await,
        Reading::ByPools(pools) => {
            pools.prepare(&broker.catalog())?;
            let lines = Arc::new(lines);
            let ramp = ramp(pools.form());
            let mut received = recorder.done.subscribe();
            let running: Vec<_> = pools
                .pools()
                .iter()
                .map(|(queue, most)| {
                    let readers = broker.activate(queue.clone(), handlers(&lines, recorder.clone()));
                    readers.max_queue_readers(*most).ramp(ramp).start()
                })
                .collect();
            // The recorder holds the sender, so this ends only when everything was served.
            let _ = received.wait_for(|done| *done >= total).await;
            for readers in running {
                readers.stop().await;
            }
            Ok(())
        }
    }
}

/// How the readers of a pool are launched.
pub(super) fn ramp(form: Form) -> Ramp {
    match form {
        Form::Classic => Ramp::ServiceBroker,
        Form::Improved => Ramp::Fast,
    }
}

async fn read_by_strategy(
    broker: &Broker,
    lines: &Lines,
    strategy: Box<dyn Strategy>,
    recorder: &Recorder,
    total: usize,
) -> Result<()> {
    let mut turns = broker.receive_by(strategy)?;
    let mut count = 0;
    while count < total {
        let Some(turn) = turns.next().await else { return Ok(()) };
        let turn = turn?;
        for message in &turn.batch {
            recorder.serve(served(lines, message)?).await?;
            count += 1;
        }
        turn.commit().await?;
    }
    Ok(())
}

fn handlers(lines: &Arc<Lines>, recorder: Arc<Recorder>) -> Handlers {
    let lines = lines.clone();
    let serve = async move |_: &Context, message: Message| {
        recorder.serve(served(&lines, &message)?).await.map_err(HandlerError::from)
    };
    Handlers::new().on_message(ADD_ITEM.name(), serve).top(1)
}

/// Every message was served once; anything else is a fault of the broker and makes the run void.
fn check_complete(takes: &[Take], total: usize) -> Result<()> {
    let mut seen = HashSet::with_capacity(takes.len());
    for take in takes {
        if !seen.insert((take.class, take.conversation, take.sequence)) {
            let why = format!(
                "message {} of {} conversation {} was served twice",
                take.sequence, take.class, take.conversation
            );
            return Err(Error::new(Code::STORE_DAMAGED, why));
        }
    }
    if seen.len() != total {
        let why = format!("{total} messages were sent and {} were served", seen.len());
        return Err(Error::new(Code::STORE_DAMAGED, why));
    }
    Ok(())
}
