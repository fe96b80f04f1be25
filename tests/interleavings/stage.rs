//! Runs a play in every order.

use crate::jobs::{self, JobStep, Jobs};
use crate::servers::{Database, Store, limit};
use dialoq::{Act, Broker, ConversationHandle, Error, GroupId, OpenOptions, Tx};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;
use uuid::Uuid;

/// One thing a session does, in its transaction. Conversations `'a'` and `'b'` are pairs that the stage has opened.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Do {
    Begin,
    Commit,
    Rollback,
    Savepoint,
    RollbackTo,
    /// Sends this text from the initiator, or from the target, of a conversation.
    Send(char, &'static str),
    Reply(char, &'static str),
    /// Receives whatever is best from the target's queue, or from the initiator's.
    Receive,
    ReceiveReplies,
    GetGroup,
    /// Moves the target of the first conversation into the group of the target of the second.
    Move(char, char),
    EndInitiator(char),
    EndTarget(char),
    Timer(char),
    /// Begins a dialog in the group that the play has chosen.
    BeginInChosenGroup,
    /// Something with the job of that work queue.
    Job(&'static str, JobStep),
}

/// Sessions with their steps, and what may come of them.
pub(crate) struct Play {
    /// Texts the initiators have sent before the sessions begin.
    pub(crate) sent_before: &'static [(char, &'static str)],
    pub(crate) sessions: &'static [&'static [Do]],
    /// Each outcome: the results of the sessions, then the messages left in the target's queue and in the initiator's, and the
    /// jobs that are left, if the play has any. On a server an outcome with `? ` before it need not come: a report waits 100 ms
    /// for a session that holds the row, and whether that session goes on by then is a matter of time.
    pub(crate) outcomes: &'static [&'static str],
}

struct Cast {
    broker: Broker,
    pairs: BTreeMap<char, [ConversationHandle; 2]>,
    chosen: GroupId,
    jobs: Jobs,
    store: Store,
    _theatre: Theatre,
}

/// A database with the definitions that plays need. A server's serves all orders of a play, each with conversations of its
/// own, because making one takes long.
#[derive(Clone)]
struct Theatre {
    broker: Broker,
    database: Database,
}

/// A step under way owns its transaction and gives it back.
type Running = Pin<Box<dyn Future<Output = (Option<Tx>, Result<String, Error>)> + Send>>;

struct Actor {
    name: char,
    steps: Vec<Do>,
    next: usize,
    tx: Option<Tx>,
    running: Option<Running>,
    seen: Vec<String>,
    /// A step failed: the rest is not played.
    is_out: bool,
}

pub(crate) fn run_all(play: &Play, store: Store) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let lengths: Vec<usize> = play.sessions.iter().map(|steps| steps.len()).collect();
    let mut seen: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    let mut theatre = None;
    for order in orders(&lengths) {
        limit::doing(format!("{order:?}"));
        if theatre.is_none() || !store.is_server() {
            theatre = Some(runtime.block_on(Theatre::build(store)).expect("a database"));
        }
        let outcome = runtime.block_on(run(play, &order, theatre.clone().expect("it was just built")));
        assert!(
            play.outcomes.iter().any(|allowed| allowed.trim_start_matches("? ") == outcome),
            "in the order {order:?} came\n    {outcome}\nallowed are\n    {}",
            play.outcomes.join("\n    ")
        );
        seen.entry(outcome).or_insert(order);
    }
    for outcome in play.outcomes {
        let (must_come, outcome) = match outcome.strip_prefix("? ") {
            Some(outcome) => (!store.is_server(), outcome),
            None => (true, *outcome),
        };
        assert!(
            !must_come || seen.contains_key(outcome),
            "no order gives\n    {outcome}\nfound were {:#?}",
            seen.keys()
        );
    }
}

/// Every order of these numbers of steps of each session.
pub(crate) fn orders(left: &[usize]) -> Vec<Vec<usize>> {
    if left.iter().all(|steps| *steps == 0) {
        return vec![Vec::new()];
    }
    let mut all = Vec::new();
    for session in (0..left.len()).filter(|session| left[*session] > 0) {
        let mut rest = left.to_vec();
        rest[session] -= 1;
        for mut order in orders(&rest) {
            order.insert(0, session);
            all.push(order);
        }
    }
    all
}

async fn run(play: &Play, order: &[usize], theatre: Theatre) -> String {
    let cast = Cast::assemble(play, theatre).await.expect("the stage is set");
    let mut actors: Vec<Actor> = play
        .sessions
        .iter()
        .zip('A'..)
        .map(|(steps, name)| Actor {
            name,
            steps: steps.to_vec(),
            next: 0,
            tx: None,
            running: None,
            seen: Vec::new(),
            is_out: false,
        })
        .collect();
    for session in order {
        actors[*session].turn(&cast).await;
        cast.poll_actors(&mut actors).await;
    }
    // A session that had to wait has steps left over.
    let mut idle_rounds = 0;
    while actors.iter().any(|actor| actor.running.is_some() || actor.has_steps()) {
        let before: usize = actors.iter().map(|actor| actor.next + actor.seen.len()).sum();
        for actor in &mut actors {
            actor.turn(&cast).await;
        }
        cast.poll_actors(&mut actors).await;
        let after: usize = actors.iter().map(|actor| actor.next + actor.seen.len()).sum();
        idle_rounds = if before == after { idle_rounds + 1 } else { 0 };
        assert!(
            idle_rounds < if cast.store.is_server() { 200 } else { 20 },
            "every session waits for ever in the order {order:?}"
        );
    }
    let mut lines: Vec<String> =
        actors.iter().map(|actor| format!("{}: {}", actor.name, actor.seen.join(" "))).collect();
    drop(actors);
    cast.barrier().await;
    lines.push(format!("target: {}", cast.left("QT").await));
    lines.push(format!("initiator: {}", cast.left("QI").await));
    lines.extend(cast.jobs.left(&cast.broker).await);
    lines.join("; ")
}

impl Theatre {
    async fn build(store: Store) -> Result<Self, Error> {
        let database = Database::fresh(store);
        // In every other run transactions claim what they receive, where the store has claims.
        static RUNS: AtomicUsize = AtomicUsize::new(0);
        let careful = if RUNS.fetch_add(1, Relaxed).is_multiple_of(2) { 0 } else { 256 };
        let broker = Broker::open_with(database.url(), OpenOptions::default().careful_receives(careful)).await?;
        broker
            .execute(
                "CREATE MESSAGE TYPE [Text]; CREATE CONTRACT [C] ([Text] SENT BY ANY);
                 CREATE QUEUE [QI] WITH POISON_MESSAGE_HANDLING (STATUS = OFF);
                 CREATE QUEUE [QT] WITH POISON_MESSAGE_HANDLING (STATUS = OFF);
                 CREATE SERVICE [I] ON QUEUE [QI]; CREATE SERVICE [T] ON QUEUE [QT] ([C])",
            )
            .await?;
        broker.execute(jobs::QUEUES).await?;
        Ok(Self { broker, database })
    }
}

impl Cast {
    async fn assemble(play: &Play, theatre: Theatre) -> Result<Self, Error> {
        let broker = theatre.broker.clone();
        let mut pairs = BTreeMap::new();
        for name in ['a', 'b'] {
            let initiator = broker.begin_dialog("I", "T").contract("C").await?;
            broker.send(initiator, "Text", "open").await?;
            let target = broker.receive("QT").await?.expect("it was sent").first().handle();
            pairs.insert(name, [initiator, target]);
        }
        for (name, text) in play.sent_before {
            broker.send(pairs[name][0], "Text", *text).await?;
        }
        let store = theatre.database.store();
        let jobs = Jobs::make(play, &broker).await?;
        Ok(Self { broker, pairs, chosen: GroupId(Uuid::new_v4()), jobs, store, _theatre: theatre })
    }

    async fn barrier(&self) {
        self.store.barrier(&self.broker).await;
    }

    async fn poll_actors(&self, actors: &mut [Actor]) {
        // A verb is one step of the embedded store, but several questions to a server.
        for _ in 0..if self.store.is_server() { 6 } else { 3 } {
            self.barrier().await;
            for actor in &mut *actors {
                actor.poll().await;
            }
        }
    }

    /// The messages that can still be received from a queue.
    async fn left(&self, queue: &str) -> String {
        let mut texts = Vec::new();
        while let Some(batch) = self.broker.receive(queue).await.expect("the queue is on") {
            texts.extend(batch.iter().map(shown));
        }
        texts.sort();
        format!("[{}]", texts.join(" "))
    }
}

fn shown(message: &dialoq::Message) -> String {
    let kind = message.message_type_name.rsplit('/').next().unwrap_or_default();
    if kind == "Text" { message.text().expect("text").into_owned() } else { kind.to_owned() }
}

impl Actor {
    fn has_steps(&self) -> bool {
        !self.is_out && self.next < self.steps.len()
    }

    /// Starts the next step, unless the one before still waits.
    async fn turn(&mut self, cast: &Cast) {
        self.poll().await;
        if self.running.is_some() || !self.has_steps() {
            return;
        }
        let step = self.steps[self.next];
        self.next += 1;
        self.running = Some(play(step, self.tx.take(), cast));
        self.poll().await;
    }

    /// Polls the step under way once.
    async fn poll(&mut self) {
        let Some(running) = &mut self.running else { return };
        let polled = poll_fn(|context| Poll::Ready(running.as_mut().poll(context))).await;
        let Poll::Ready((tx, result)) = polled else { return };
        self.running = None;
        self.tx = tx;
        match result {
            Ok(text) if text.is_empty() => {}
            Ok(text) => self.seen.push(text),
            Err(error) => {
                self.seen.push(error.code().to_string());
                // What a failed statement leaves is rolled back, as an application would.
                self.is_out = true;
                self.tx = None;
            }
        }
    }
}

fn play(step: Do, tx: Option<Tx>, cast: &Cast) -> Running {
    let broker = cast.broker.clone();
    let pairs = cast.pairs.clone();
    let chosen = cast.chosen;
    let jobs = cast.jobs.clone();
    Box::pin(async move {
        if matches!(step, Do::Begin) {
            return match broker.begin().await {
                Ok(tx) => (Some(tx), Ok(String::new())),
                Err(error) => (None, Err(error)),
            };
        }
        let Some(tx) = tx else { panic!("{step:?} needs a transaction") };
        match step {
            Do::Commit => (None, tx.commit().await.map(|()| String::new())),
            Do::Rollback => (None, tx.rollback().await.map(|()| String::new())),
            Do::Job(queue, step) => {
                let done = jobs.perform(&tx, queue, step).await;
                (Some(tx), done)
            }
            other => {
                let done = verb(other, &tx, &pairs, chosen).await;
                (Some(tx), done)
            }
        }
    })
}

async fn verb(
    step: Do,
    tx: &Tx,
    pairs: &BTreeMap<char, [ConversationHandle; 2]>,
    chosen: GroupId,
) -> Result<String, Error> {
    let nothing = |()| String::new();
    match step {
        Do::Savepoint => tx.savepoint("s").await.map(nothing),
        Do::RollbackTo => tx.rollback_to("s").await.map(nothing),
        Do::Send(name, text) => tx.send(pairs[&name][0], "Text", text).await.map(nothing),
        Do::Reply(name, text) => tx.send(pairs[&name][1], "Text", text).await.map(nothing),
        Do::Receive | Do::ReceiveReplies => {
            let queue = if matches!(step, Do::Receive) { "QT" } else { "QI" };
            let mut messages = tx.receive(queue).await?.map(dialoq::Batch::into_messages).unwrap_or_default();
            // Conversations of one group come in the order of their handles, which is chance.
            messages.sort_by_key(|message| pairs.values().position(|pair| pair.contains(&message.handle())));
            let texts: Vec<String> = messages.iter().map(shown).collect();
            Ok(format!("[{}]", texts.join(" ")))
        }
        Do::GetGroup => {
            let group = tx.get_conversation_group("QT").await?;
            Ok(if group.is_some() { "group" } else { "none" }.to_owned())
        }
        Do::Move(conversation, to) => {
            // The group of the other target is found by joining it: a dialog of T in that group shows its id.
            let probe = tx.begin_dialog("T", "I").contract("C").related_to(pairs[&to][1]).with_ids().await?;
            tx.move_conversation(pairs[&conversation][1], probe.group).await?;
            tx.end(probe.handle).await.map(|_| String::new())
        }
        Do::EndInitiator(name) => tx.end(pairs[&name][0]).await.map(|_| String::new()),
        Do::EndTarget(name) => tx.end(pairs[&name][1]).await.map(|_| String::new()),
        Do::Timer(name) => tx.timer(pairs[&name][1], Duration::from_secs(3600)).await.map(nothing),
        Do::BeginInChosenGroup => tx.begin_dialog("I", "T").contract("C").in_group(chosen).await.map(|_| String::new()),
        Do::Begin | Do::Commit | Do::Rollback | Do::Job(..) => unreachable!("these are done elsewhere"),
    }
}
