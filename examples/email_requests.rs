//! E-mail requests in a work queue: retries with growing pauses, a dead letter, and its redrive.
//!
//! `cargo run --example email_requests`

use dialoq::work::{AfterFailure, Job, JobFilter, JobState, ShownState, StatisticsBy, WorkQueue};
use dialoq::{Act, Broker, Clock, OpenOptions, Result, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::time::Duration;

#[derive(Debug, Serialize, Deserialize)]
struct Email {
    to: String,
    subject: String,
}

const EMAILS: WorkQueue<Email> = WorkQueue::json("emails");

#[tokio::main]
async fn main() -> Result<()> {
    // A clock that the program moves: the pauses between attempts pass in no time.
    let clock = Clock::manual(Timestamp(1_767_225_600_000_000));
    let broker = Broker::open_with("sqlite::memory:", OpenOptions::new().clock(clock.clone())).await?;
    broker.execute("CREATE WORK QUEUE emails WITH MAX_ATTEMPTS = 3, RETRY_DELAY_MS = 60000").await?;
    broker.sql("create table customer (name text not null)", ()).await?;

    // The customer's row and the e-mail are one commit: a rollback leaves neither.
    for name in ["ann", "bob", "carol", "dave"] {
        let tx = broker.begin().await?;
        tx.sql("insert into customer (name) values (?1)", (name,)).await?;
        let email = Email { to: format!("{name}@example.org"), subject: "Welcome".to_owned() };
        tx.push_job(EMAILS, &email).job_type("welcome").unique(format!("welcome {name}")).pushed_by("signup").await?;
        if name == "dave" {
            tx.rollback().await?;
        } else {
            tx.commit().await?;
        }
    }
    // A second request for the same e-mail finds the first one.
    let again = Email { to: "ann@example.org".to_owned(), subject: "Welcome".to_owned() };
    let pushed = broker.push_job(EMAILS, &again).unique("welcome ann").await?;
    assert!(!pushed.is_new);
    let waiting = broker.work_queues().await?;
    println!("{} e-mails wait; dave's signup was rolled back, ann's second request was refused", waiting[0].ready);
    assert_eq!(waiting[0].ready, 3);

    // Bob's mailbox is full, and carol's server is slow to answer once.
    let mut mailboxes = Mailboxes { full: BTreeSet::from(["bob@example.org"]), slow: 1 };
    work_until_idle(&broker, &clock, &mut mailboxes).await?;

    // All of bob's attempts failed: his job is the dead letter, with its last error.
    let dead = JobFilter { state: Some(ShownState::Dead), ..JobFilter::default() };
    let letters = broker.jobs(&dead, 100).await?;
    assert_eq!(letters.len(), 1);
    assert_eq!((letters[0].attempts, letters[0].last_error.as_deref()), (3, Some("the mailbox is full")));
    println!(
        "dead letters: job {} after {} attempts, {:?}",
        letters[0].job,
        letters[0].attempts,
        letters[0].last_error.as_deref().unwrap_or_default()
    );

    // Bob makes room. The filter is counted first, then redriven.
    mailboxes.full.clear();
    let filter = JobFilter { error: Some("mailbox".to_owned()), ..dead.clone() };
    println!("would redrive {}", broker.jobs(&filter, 100).await?.len());
    assert_eq!(broker.redrive_jobs(&filter).await?, 1);
    work_until_idle(&broker, &clock, &mut mailboxes).await?;
    assert!(broker.jobs(&JobFilter::default(), 100).await?.is_empty());

    println!("history:");
    let mut finished = broker.finished_jobs(&JobFilter::default(), 100).await?;
    finished.reverse();
    for job in &finished {
        let attempts = if job.attempts == 1 { "1 attempt" } else { "2 attempts" };
        println!("  job {}: {} at {} with {attempts}", job.job, job.finished_as, job.finished_at);
    }
    // Bob's job counts its attempts from the redrive.
    assert_eq!(finished.iter().map(|job| job.attempts).collect::<Vec<_>>(), [1, 2, 1]);
    let statistics = broker.work_statistics(Some("emails"), StatisticsBy::Writer).await?;
    assert_eq!((statistics[0].name.as_str(), statistics[0].jobs), ("signup", 3));
    broker.close().await
}

/// Sends every e-mail that is due, and moves the clock to the next attempt, until no attempt is left.
async fn work_until_idle(broker: &Broker, clock: &Clock, mailboxes: &mut Mailboxes) -> Result<()> {
    loop {
        while let Some(job) = broker.take_jobs(EMAILS).taken_by("mailer").await?.pop() {
            attempt(broker, clock, &job, mailboxes).await?;
        }
        let scheduled = JobFilter { state: Some(ShownState::Scheduled), ..JobFilter::default() };
        let due = broker.jobs(&scheduled, 100).await?.into_iter().filter_map(|job| job.due_at).min();
        let Some(due) = due else { return Ok(()) };
        clock.advance(due.since(clock.now()));
    }
}

/// One attempt: done, or failed with its reason.
async fn attempt(broker: &Broker, clock: &Clock, job: &Job, mailboxes: &mut Mailboxes) -> Result<()> {
    let email = job.decode(EMAILS)?;
    let report = match mailboxes.deliver(&email) {
        Ok(()) => {
            broker.complete_job(job).await?;
            "sent".to_owned()
        }
        Err(reason) => {
            let state = broker.fail_job_then(job, reason, AfterFailure::Policy).await?;
            assert_eq!(state == JobState::Dead, job.attempt == 3);
            format!("{reason}; the job is {}", state.name())
        }
    };
    println!("{} attempt {} to {} ({}): {report}", clock.now(), job.attempt, email.to, email.subject);
    // The lease is a minute by default, and nothing of it has passed.
    assert_eq!(job.lease_until.map(|until| until.since(clock.now())), Some(Duration::from_secs(60)));
    Ok(())
}

/// The mail server.
struct Mailboxes {
    full: BTreeSet<&'static str>,
    slow: u32,
}

impl Mailboxes {
    fn deliver(&mut self, email: &Email) -> std::result::Result<(), &'static str> {
        if self.full.contains(&*email.to) {
            return Err("the mailbox is full");
        }
        if email.to.starts_with("carol") && self.slow > 0 {
            self.slow -= 1;
            return Err("the server does not answer");
        }
        Ok(())
    }
}
