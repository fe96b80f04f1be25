//! Deep queues and many conversations: memory, opening again, and whether depth costs speed.

use super::step::{MANY, StepSetting};
use crate::bench::flow::Side;
use crate::bench::load::{Caller, Round, median, run};
use crate::bench::machine::resident_bytes;
use crate::bench::options::MILLION;
use crate::bench::report::{Figure, Measured, Report};
use crate::bench::subject::{Class, REQUEST, REQUESTS, Style, begin_dialogs};
use crate::bench::targets::{BACKLOG_MEMORY, CONVERSATION_MEMORY, REOPEN};
use dialoq::Result;
use dialoq::protocol::{ReceiveFrom, Verb};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Messages per round at a depth: few enough that the depth hardly changes.
const PER_ROUND: u64 = 5000;
const CALLERS: usize = 64;

/// Resident memory of this process with a million messages waiting.
pub(in crate::bench) async fn backlog(at: &StepSetting<'_>, report: &mut Report) -> Result<()> {
    let subject = at.subject().await?;
    let conversations = subject.conversations(MANY, Style::AtOnce).await?;
    let count = at.options.enough(MILLION);
    conversations.fill(at.bodies(), count).await?;
    note_memory(
        report,
        if count == MILLION { BACKLOG_MEMORY.to_owned() } else { format!("resident with {count} messages waiting") },
    );
    subject.close().await
}

/// Resident memory with a million conversations whose sides both exist, and the time to open them again.
pub(in crate::bench) async fn conversations(at: &StepSetting<'_>, report: &mut Report) -> Result<()> {
    let subject = at.subject().await?;
    let count = at.options.enough(MILLION);
    let handles = begin_dialogs(&subject.broker, Class::Plain, count).await?;
    // The target's side of a conversation is made by its first message.
    for some in handles.chunks(1000) {
        let send = |handle: &_| Verb::Send {
            handles: vec![*handle],
            message_type: Some(REQUEST.into()),
            body: Some(Arc::new(at.bodies().next())),
            trace: None,
        };
        subject.broker.submit(some.iter().map(send).collect()).await?;
        // Fewer in a unit: a transaction that holds many groups checks all of them for each RECEIVE.
        let receive = Verb::Receive { queue: REQUESTS.into(), top: None, from: ReceiveFrom::Any };
        for part in some.chunks(100) {
            subject.broker.submit(vec![receive.clone(); part.len()]).await?;
        }
    }
    drop(handles);
    let whole = count == MILLION;
    let name = |whole_name: &str, what: &str| {
        if whole { whole_name.to_owned() } else { format!("{what} {count} open conversations") }
    };
    note_memory(report, name(CONVERSATION_MEMORY, "resident with"));
    let start = Instant::now();
    let subject = subject.reopen().await?;
    let value = start.elapsed().as_secs_f64();
    report.figures.push(Figure { name: name(REOPEN, "opening again"), value, unit: "s" });
    subject.close().await
}

fn note_memory(report: &mut Report, name: String) {
    if let Some(bytes) = resident_bytes() {
        report.figures.push(Figure { name, value: bytes as f64 / (1 << 20) as f64, unit: "MiB" });
    }
}

/// Receiving a few messages at a time at each depth, the depths in turn.
pub(in crate::bench) async fn depth(at: &StepSetting<'_>, report: &mut Report) -> Result<()> {
    let deepest = at.options.enough(MILLION);
    let mut places = Vec::new();
    for depth in [deepest / 100, deepest / 10, deepest] {
        let folder = at.folder.join(depth.to_string());
        std::fs::create_dir_all(&folder).map_err(crate::bench::rival::log::io_error)?;
        let subject = StepSetting { folder: &folder, ..*at }.subject().await?;
        let conversations = Arc::new(subject.conversations(MANY, Style::AtOnce).await?);
        conversations.fill(at.bodies(), depth).await?;
        places.push((depth, subject, conversations, Vec::new()));
    }
    let per_round = PER_ROUND.min(deepest as u64 / 200).max(1);
    // Short rounds, so more of them.
    for _ in 0..at.options.rounds * 3 {
        for (_, _, conversations, rounds) in &mut places {
            rounds.push(some(conversations, per_round).await?);
            conversations.fill(at.bodies(), per_round as usize).await?;
        }
    }
    for (depth, subject, _, rounds) in places {
        if let Some(round) = median(rounds) {
            let workload = format!("receive_at_{depth}");
            report.results.push(Measured::new(&workload, CALLERS, 1, at.options.body_bytes, &round));
        }
        subject.close().await?;
    }
    Ok(())
}

/// Receives exactly so many messages.
pub(in crate::bench) async fn some<S: Side>(side: &Arc<S>, count: u64) -> Result<Round> {
    let left = Arc::new(AtomicU64::new(count));
    let callers = (0..CALLERS).map(|_| Rationed { side: side.clone(), left: left.clone() });
    run(callers, Duration::from_secs(3600)).await
}

struct Rationed<S> {
    side: Arc<S>,
    left: Arc<AtomicU64>,
}

impl<S: Side> Caller for Rationed<S> {
    async fn call(&mut self) -> Result<u64> {
        if self.left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err() {
            return Ok(0);
        }
        Ok(self.side.receive(1, false).await?.len() as u64)
    }
}
