//! What holds the jobs of a work queue up.

use super::{Explanation, ReasonKind, Reasons, SubjectKind};
use crate::broker::Broker;
use crate::error::Result;
use crate::protocol::definition::{WorkNumber, WorkOrder};
use crate::status::shell::shell_command;
use crate::work::WorkQueueStatus;

impl Broker {
    pub(super) async fn explain_work_queue(&self, name: &str) -> Result<Explanation> {
        let mut reasons = Reasons::default();
        let queues = self.work_queues().await?;
        let limits = self.work_limits(name);
        let summary = match queues.into_iter().find(|queue| queue.name == name) {
            None => format!("work queue '{name}'"),
            Some(queue) => {
                if let Some(full) = self.most_taken(&queue) {
                    let list = shell_command("dialoq work list", name, "--state taken");
                    reasons.blocks(ReasonKind::Limited, full, format!("`{list}` shows who works on them"));
                }
                work_reasons(&queue, !limits.is_empty(), &mut reasons);
                let (ready, taken, scheduled) = (jobs(queue.ready), queue.taken, queue.scheduled);
                match queue.lost {
                    0 => format!("work queue '{name}' has {ready} ready, {taken} taken and {scheduled} scheduled"),
                    lost => format!(
                        "work queue '{name}' has {ready} ready, {taken} taken, {scheduled} scheduled and {lost} lost"
                    ),
                }
            }
        };
        for limit in limits {
            reasons.notes(ReasonKind::Limited, limit, "");
        }
        Ok(reasons.of(SubjectKind::WorkQueue, name.to_owned(), summary))
    }

    /// As many jobs are taken as may be, and others wait for that alone. A lost one has its place until it is given up.
    fn most_taken(&self, queue: &WorkQueueStatus) -> Option<String> {
        let catalog = self.catalog();
        let most = catalog.work_queue(&queue.name)?.settings.limit(WorkNumber::MaxTaken)?;
        let taken = queue.taken + queue.lost;
        let is_full = queue.ready > 0 && i64::try_from(taken).is_ok_and(|taken| taken >= most);
        is_full.then(|| format!("{} taken, and MAX_TAKEN = {most} lets no more", of_jobs(taken, "is", "are")))
    }

    /// What can keep a ready job of a work queue from being taken, as its definition says.
    fn work_limits(&self, name: &str) -> Vec<String> {
        use WorkNumber as N;
        let catalog = self.catalog();
        let Some(settings) = catalog.work_queue(name).map(|queue| &queue.settings) else { return Vec::new() };
        let numbers = [N::MaxTaken, N::MaxTakenPerKey, N::RateJobs, N::KeyRateJobs].into_iter();
        let time = format!(" in {} ms", settings.get(N::RateMs));
        let numbers = numbers.filter_map(|number| {
            let time = if matches!(number, N::RateJobs | N::KeyRateJobs) { &*time } else { "" };
            Some(format!("{} = {}{time}", number.word(), settings.limit(number)?))
        });
        let numbers = numbers.collect::<Vec<_>>().join(", ");
        let numbers = (!numbers.is_empty()).then(|| format!("it has limits: {numbers}"));
        let order = (settings.order == WorkOrder::FifoStrict).then(|| {
            "its ORDER is FIFO_STRICT: a job waits for those of its key that were pushed before it, also while one of them is \
             taken or waits for its next attempt; jobs without a key are one line"
                .to_owned()
        });
        numbers.into_iter().chain(order).collect()
    }
}

fn work_reasons(queue: &WorkQueueStatus, has_limits: bool, reasons: &mut Reasons) {
    let command = |verb, options| shell_command(verb, &queue.name, options);
    let run = command("dialoq work run", "--exec PROGRAM");
    if !queue.is_enabled {
        reasons.blocks(ReasonKind::Paused, "it is paused", format!("`{}`", command("dialoq work resume", "")));
    }
    if queue.scheduled > 0 {
        let what = format!(
            "{} for a later time: a delay, or the back-off after a failure",
            of_jobs(queue.scheduled, "waits", "wait")
        );
        let list = command("dialoq work list", "--state scheduled");
        reasons.notes(ReasonKind::NotDue, what, format!("`{list}` shows when"));
    }
    if queue.dead > 0 {
        let what = format!("{} without an attempt left", of_jobs(queue.dead, "is", "are"));
        let redrive = command("dialoq work redrive", "");
        reasons.notes(ReasonKind::Dead, what, format!("`{redrive}` gives them new ones"));
    }
    if queue.lost > 0 {
        let (are, its) = if queue.lost == 1 { ("is", "its") } else { ("are", "their") };
        let reader = if queue.lost == 1 { "reader has" } else { "readers have" };
        reasons.notes(
            ReasonKind::NoReader,
            format!("{} lost: {its} lease is over, and {its} {reader} reported nothing", of_jobs(queue.lost, are, are)),
            format!(
                "see that a process that opens the broker for changes runs, such as `{run}`: \
                 it gives them to other readers, or makes them dead"
            ),
        );
    }
    match (queue.ready, queue.taken) {
        (0, 0) if queue.lost > 0 => {}
        (0, 0) => reasons.notes(ReasonKind::Empty, "no job is ready", ""),
        (0, taken) => {
            reasons.notes(ReasonKind::Readers, format!("{} being worked on", of_jobs(taken, "is", "are")), "")
        }
        (ready, 0) if queue.is_enabled => reasons.notes(
            ReasonKind::NoReader,
            format!("{} ready and none is taken", of_jobs(ready, "is", "are")),
            format!(
                "{}see that a reader runs, such as `{run}`, and on a server that no transaction which has taken them stays open",
                if has_limits { "unless what follows holds them up, " } else { "" }
            ),
        ),
        (ready, taken) => {
            reasons.notes(
                ReasonKind::Readers,
                format!("{} ready, {} being worked on", of_jobs(ready, "is", "are"), of_jobs(taken, "is", "are")),
                "",
            );
        }
    }
}

fn jobs(number: u64) -> String {
    if number == 1 { "1 job".to_owned() } else { format!("{number} jobs") }
}

fn of_jobs(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", jobs(number), if number == 1 { one } else { many })
}
