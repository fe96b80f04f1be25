//! The faults of a running broker: findings with advice.

use super::BY_POISON;
use super::definition_wait::{HELD_BACK_ADVICE, held_back};
use super::shell::{shell_command, shell_option};
use crate::broker::Broker;
use crate::catalog::body::BodyChecks;
use crate::catalog::{Catalog, OffBy, same_name};
use crate::error::{Error, Result};
use crate::protocol::definition::Validation;
use crate::store::SqlRow;
use crate::time::Timestamp;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// How long messages and jobs must have waited, conversations been left open, leases been over and schedules been due before
/// [`Broker::doctor`] reports them: five minutes.
pub const FAULT_AGE: Duration = Duration::from_secs(5 * 60);

const MEND_SCHEMA: &str = "`dialoq dump` prints it; ALTER MESSAGE TYPE with a mended one (XML: CREATE XML SCHEMA COLLECTION under another name first)";

const MEND_BROKER: &str = "`echo 'ALTER DATABASE CURRENT SET ENABLE_BROKER' | dialoq apply -` delivers what waits";

/// The kind of finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FindingKind {
    /// The clock of the database stands still, so that no lease ends and no timer fires: a broker with a manual clock was not closed.
    StoppedClock,
    /// The broker is disabled, so no message is delivered: DISABLE_BROKER.
    BrokerDisabled,
    /// The other side has ended, or the conversation broke, and this side never ENDs: the classic leak.
    NeverEnded,
    /// Conversations without LIFETIME stay open for ever if either side forgets them.
    WithoutLifetime,
    /// A role may change the broker's tables, and so do what their owner may, or execute what is for the owner alone.
    ForeignPrivileges,
    /// A login may write every table of the database, and so the broker's past its functions.
    DataWriters,
    /// A queue is off: disabled by poison handling or by a statement.
    DisabledQueue,
    /// Messages wait and no caller receives them.
    WaitingMessages,
    /// Messages cannot be delivered.
    Undelivered,
    /// Poison handling quarantined conversation groups.
    Quarantined,
    /// The schema of message types cannot be used, so their messages are rejected: an earlier version took it.
    RefusedSchema,
    /// Messages died after the last attempt of a retry policy.
    DeadLetters,
    /// A work queue is paused, and jobs that are ready wait in it.
    PausedWorkQueue,
    /// Jobs of a work queue have used up their attempts.
    DeadJobs,
    /// The leases of taken jobs are over, and no process gives the jobs to other readers.
    LostJobs,
    /// Jobs of a work queue are ready, and no reader takes one.
    WaitingJobs,
    /// A work schedule should have fired and has not.
    OverdueSchedule,
}

/// The order of findings.
const WORST_FIRST: [FindingKind; 17] = [
    FindingKind::StoppedClock,
    FindingKind::BrokerDisabled,
    FindingKind::ForeignPrivileges,
    FindingKind::DataWriters,
    FindingKind::DisabledQueue,
    FindingKind::PausedWorkQueue,
    FindingKind::RefusedSchema,
    FindingKind::Quarantined,
    FindingKind::DeadLetters,
    FindingKind::DeadJobs,
    FindingKind::NeverEnded,
    FindingKind::WaitingMessages,
    FindingKind::WaitingJobs,
    FindingKind::LostJobs,
    FindingKind::OverdueSchedule,
    FindingKind::Undelivered,
    FindingKind::WithoutLifetime,
];

/// Something [`Broker::doctor`] found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The kind of finding.
    pub kind: FindingKind,
    /// The service, queue, work queue, work schedule, message type, XML schema collection, role or login it is about; `broker` if it is the broker
    /// itself.
    pub subject: String,
    /// How many conversations, messages, groups, message types, objects or jobs; 1 if it is the broker itself, a work schedule or a login.
    pub amount: u64,
    /// Since when, for the oldest of them; `None` if there are none, or the broker does not know it. Serializes as UTC text with milliseconds.
    pub since: Option<Timestamp>,
    /// The finding, as text.
    pub what: String,
    /// The advice.
    pub advice: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.what, self.advice)
    }
}

impl Broker {
    /// Finds the usual faults, worst first: a clock of the database that stands still, a disabled broker, roles with rights on its
    /// tables, logins that may write all tables, disabled queues, paused work queues with ready jobs, schemas that are refused,
    /// quarantined groups, dead letters, dead jobs, conversations that were never ended, messages that no caller receives, jobs that no
    /// reader takes, lost jobs, work schedules that do not fire, messages that cannot be delivered, and open conversations without
    /// LIFETIME. The first ten kinds are reported whatever their age, the others if they are older than [`FAULT_AGE`].
    ///
    /// A backlog of a work queue is no fault while a reader takes jobs from it: jobs wait for no reader if none is taken now, and none of
    /// those in the queue, or of the last hundred in its history, was taken within the patience.
    ///
    /// Every job that is not finished is read once. Every schema is compiled, on a thread for blocking work, which
    /// takes a second for megabytes.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn doctor(&self) -> Result<Vec<Finding>> {
        self.doctor_after(FAULT_AGE).await
    }

    /// The same with another patience; with zero every fault counts, however young.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn doctor_after(&self, patience: Duration) -> Result<Vec<Finding>> {
        let now = self.clock().now();
        // Nothing is older than 1970, and PostgreSQL has no time before the year -4713.
        let before = now.0.saturating_sub(i64::try_from(patience.as_micros()).unwrap_or(i64::MAX)).max(0);
        let texts = &self.shared_store().texts().doctor;
        let (mut findings, mut holds) = (Vec::new(), None);
        if !self.catalog().settings.is_broker_enabled {
            findings.push(disabled_broker());
        }
        // A broker with a manual clock has stopped it itself.
        if self.clock().moves().is_none() {
            for row in &self.query_own(texts.stopped_clock, ()).await?.rows {
                findings.push(Seen::of(row)?.finding(FindingKind::StoppedClock, now));
            }
        }
        for (kind, text, is_timed) in [
            (FindingKind::ForeignPrivileges, texts.foreign_privileges, false),
            (FindingKind::DataWriters, texts.data_writers, false),
            (FindingKind::DisabledQueue, texts.disabled_queues, false),
            (FindingKind::Quarantined, texts.quarantined, false),
            (FindingKind::DeadLetters, texts.dead_letters, false),
            (FindingKind::NeverEnded, texts.never_ended, true),
            (FindingKind::WaitingMessages, texts.waiting_messages, true),
            (FindingKind::OverdueSchedule, texts.overdue_schedules, true),
            (FindingKind::Undelivered, texts.undelivered, true),
            (FindingKind::WithoutLifetime, texts.without_lifetime, true),
        ] {
            let rows = match is_timed {
                true => self.query_own(text, (before,)).await?,
                false => self.query_own(text, ()).await?,
            };
            for row in &rows.rows {
                let mut finding = Seen::of(row)?.finding(kind, now);
                match kind {
                    FindingKind::DisabledQueue => self.name_cause(&mut finding),
                    FindingKind::WaitingMessages => {
                        // Asked once: an owner of a file that is stopped answers none.
                        let holds = match &mut holds {
                            Some(holds) => holds,
                            None => holds.insert(self.receive_holds(now).await),
                        };
                        if let Some(until) = holds.get(&finding.subject) {
                            finding.what = format!("{}; {}", finding.what, held_back(&finding.subject, *until));
                            finding.advice = HELD_BACK_ADVICE.to_owned();
                        }
                    }
                    _ => {}
                }
                findings.push(finding);
            }
        }
        for row in &self.query_own(texts.work_queues, (now.0, before)).await?.rows {
            findings.extend(of_work_queue(row, now)?);
        }
        let catalog = self.catalog();
        let refused = tokio::task::spawn_blocking(move || refused_schemas(&catalog)).await;
        findings.extend(match refused.map_err(tokio::task::JoinError::try_into_panic) {
            Ok(found) => found,
            Err(Ok(panic)) => std::panic::resume_unwind(panic),
            // The runtime is shutting down.
            Err(Err(_)) => return Err(Error::closed()),
        });
        findings.sort_by_key(|finding| WORST_FIRST.iter().position(|kind| *kind == finding.kind));
        Ok(findings)
    }

    /// Adds why the queue of a finding is off, as far as that is stored.
    fn name_cause(&self, finding: &mut Finding) {
        let catalog = self.catalog();
        let Some(off) = catalog.queue(&finding.subject).and_then(|queue| queue.off.as_ref()) else { return };
        let since = off.since.map_or_else(String::new, |since| format!(" since {since}"));
        let resume = shell_command("dialoq resume", &finding.subject, "");
        let (by, advice) = match off.by {
            OffBy::Poison => (BY_POISON.to_owned(), format!("find out why they happened, then `{resume}`")),
            OffBy::Statement => (
                match &off.reason {
                    Some(reason) => format!("by a statement, because: {reason}"),
                    None => "by a statement that gave no reason".to_owned(),
                },
                format!("when the reason is gone, `{resume}`"),
            ),
        };
        finding.what = format!("{}; it is off{since} {by}", finding.what);
        finding.advice = advice;
    }
}

/// The definitions do not say since when.
fn disabled_broker() -> Finding {
    Finding {
        kind: FindingKind::BrokerDisabled,
        subject: "broker".to_owned(),
        amount: 1,
        since: None,
        what: "the broker is disabled, so no message is delivered".to_owned(),
        advice: MEND_BROKER.to_owned(),
    }
}

/// The schemas of message types that cannot be used.
fn refused_schemas(catalog: &Catalog) -> Vec<Finding> {
    let checks = BodyChecks::new();
    let live = || catalog.message_types.values().filter(|found| !found.is_dropped);
    let refused = |subject: &str, what: String, types: Vec<String>| Finding {
        kind: FindingKind::RefusedSchema,
        subject: subject.to_owned(),
        amount: types.len() as u64,
        since: None,
        what: format!("{what}; messages of {} are rejected", types.join(", ")),
        advice: MEND_SCHEMA.to_owned(),
    };
    let mut findings = Vec::new();
    for collection in catalog.xml_schema_collections.values() {
        let uses = |validation: &Validation| matches!(validation, Validation::ValidXml { schema_collection } if same_name(schema_collection, &collection.name));
        let types: Vec<_> =
            live().filter(|found| uses(&found.validation)).map(|found| format!("'{}'", found.name)).collect();
        if !types.is_empty()
            && let Err(why) = checks.check_xml_schemas(&collection.schemas)
        {
            let what = format!("XML schema collection '{}' is not usable: {why}", collection.name);
            findings.push(refused(&collection.name, what, types));
        }
    }
    for found in live() {
        if let Validation::JsonSchema { schema } = &found.validation
            && let Err(why) = checks.check_json_schema(schema)
        {
            let what = format!("the JSON Schema of message type '{}' is not usable: {why}", found.name);
            findings.push(refused(&found.name, what, vec![format!("'{}'", found.name)]));
        }
    }
    findings
}

/// What a work queue may have: up to four findings.
fn of_work_queue(row: &SqlRow, now: Timestamp) -> Result<Vec<Finding>> {
    let (is_enabled, is_idle): (bool, bool) = (row.own("is_enabled")?, row.own("is_idle")?);
    let mut findings = Vec::new();
    for (kind, amount, since, is_fault) in [
        (FindingKind::PausedWorkQueue, "ready", "ready_since", !is_enabled),
        (FindingKind::DeadJobs, "dead", "dead_since", true),
        (FindingKind::WaitingJobs, "waiting", "waiting_since", is_enabled && is_idle),
        (FindingKind::LostJobs, "lost", "lost_since", true),
    ] {
        let amount = row.count(amount)?;
        if is_fault && amount > 0 {
            let since = row.get::<Option<i64>>(since)?.map(Timestamp);
            findings.push(Seen { subject: row.own("subject")?, amount, since, detail: None }.finding(kind, now));
        }
    }
    Ok(findings)
}

/// What a row says of a fault.
struct Seen {
    subject: String,
    amount: u64,
    since: Option<Timestamp>,
    detail: Option<String>,
}

impl Seen {
    fn of(row: &SqlRow) -> Result<Self> {
        Ok(Self {
            subject: row.own("subject")?,
            amount: row.count("amount")?,
            since: row.own::<Option<i64>>("since")?.map(Timestamp),
            detail: row.own("detail")?,
        })
    }

    fn finding(self, kind: FindingKind, now: Timestamp) -> Finding {
        let (what, advice) = self.texts(kind, now);
        Finding { kind, subject: self.subject, amount: self.amount, since: self.since, what, advice }
    }

    fn texts(&self, kind: FindingKind, now: Timestamp) -> (String, String) {
        let Self { subject, amount, since, detail } = self;
        let age = since.map_or_else(|| "no time".to_owned(), |since| rough(now.since(since)));
        let many = |one: &str| if *amount == 1 { format!("1 {one}") } else { format!("{amount} {one}s") };
        let (wait, are) = if *amount == 1 { ("waits", "is") } else { ("wait", "are") };
        let detail = detail.as_deref();
        let command = |verb, options| shell_command(verb, subject, options);
        match kind {
            FindingKind::NeverEnded => (
                format!(
                    "service '{subject}' has not ended {} whose other side has ended or that broke, the oldest {age} old",
                    many("conversation")
                ),
                format!(
                    "the reader of queue '{}' should END the conversation when it receives EndDialog or Error",
                    detail.unwrap_or_default()
                ),
            ),
            FindingKind::WithoutLifetime => (
                format!(
                    "service '{subject}' holds {} with '{}' open without LIFETIME, the oldest {age} old",
                    many("conversation"),
                    detail.unwrap_or_default()
                ),
                "begin them WITH LIFETIME, so that forgotten ones end, or END them when their work is done".to_owned(),
            ),
            FindingKind::DisabledQueue => (
                match amount {
                    0 => format!("queue '{subject}' is disabled; no message waits for it"),
                    _ => format!(
                        "queue '{subject}' is disabled; {} for it {wait}, the oldest for {age}",
                        many("message")
                    ),
                },
                format!(
                    "if rollbacks disabled it, find out why they happened, then `{}`",
                    command("dialoq resume", "")
                ),
            ),
            FindingKind::WaitingMessages => (
                format!("{} {wait} in queue '{subject}', the oldest for {age}", many("message")),
                match detail {
                    Some(procedure) => format!(
                        "see that a process with procedure '{procedure}' registered runs, that its readers keep up, and that \
                         MAX_QUEUE_READERS is not too low"
                    ),
                    None => format!(
                        "receive from it, or activate readers for it; if readers run, `{}` says which session holds the first message",
                        command("dialoq explain", "")
                    ),
                },
            ),
            FindingKind::Undelivered => (
                format!(
                    "{} to service '{subject}' cannot be delivered, the oldest for {age}: {}",
                    many("message"),
                    detail.filter(|status| !status.is_empty()).unwrap_or("delivery has not been tried yet")
                ),
                "do what the status says, or erase the sides that sent them: `dialoq end HANDLE --cleanup`, and those that have \
                 ended `dialoq end --all --state DO --cleanup`"
                    .to_owned(),
            ),
            FindingKind::DeadLetters => (
                format!("queue '{subject}' has {}, the first for {age}", many("dead letter")),
                format!(
                    "look at them with `dialoq dead list {of_it}`, mend what failed, then `dialoq dead redrive {of_it}` or \
                     `dialoq dead purge {of_it}`",
                    of_it = shell_option("--queue", subject)
                ),
            ),
            FindingKind::StoppedClock => (
                format!(
                    "the clock of the database stands still at {}, so no lease ends and no timer fires: a broker with a manual clock has \
                     stopped it and was not closed",
                    since.unwrap_or_default()
                ),
                "if no test uses the database now, its owner should call dialoq.set_manual_now with NULL".to_owned(),
            ),
            FindingKind::ForeignPrivileges => (
                format!(
                    "'{subject}' has rights on {} of the broker that only the owner should have ({}); with a trigger on a table a role can do \
                     what the owner may",
                    many("object"),
                    detail.unwrap_or_default()
                ),
                "on PostgreSQL `dialoq install` by the owner of schema dialoq takes these rights away; on SQL Server REVOKE does".to_owned(),
            ),
            FindingKind::DataWriters => {
                let role = detail.unwrap_or_default();
                (
                    format!("'{subject}' is a member of {role}, and so may write the broker's tables past its functions and procedures"),
                    format!("take it out of {role}, and grant it rights on your own tables and membership in dialoq_user"),
                )
            }
            FindingKind::BrokerDisabled => (format!("{subject} is disabled"), MEND_BROKER.to_owned()),
            FindingKind::RefusedSchema => (format!("the schema of '{subject}' is not usable"), MEND_SCHEMA.to_owned()),
            FindingKind::Quarantined => (
                format!("{} of queue '{subject}' {are} quarantined", many("conversation group")),
                format!(
                    "find out why their messages cannot be handled (`{}`), then `dialoq release GROUP`, or `dialoq end HANDLE` \
                     of each conversation",
                    command("dialoq peek", "")
                ),
            ),
            FindingKind::PausedWorkQueue => (
                format!("work queue '{subject}' is paused; {} {are} ready in it, the oldest for {age}", many("job")),
                format!("when the reason is gone, `{}`", command("dialoq work resume", "")),
            ),
            FindingKind::DeadJobs => (
                format!("work queue '{subject}' has {}, the first for {age}", many("dead job")),
                format!(
                    "look at them with `{}`, mend what failed, then `{}` or `{}`",
                    command("dialoq work list", "--state dead"),
                    command("dialoq work redrive", ""),
                    command("dialoq work cancel", "--state dead")
                ),
            ),
            FindingKind::WaitingJobs => (
                format!("{} {are} ready in work queue '{subject}', the oldest for {age}, and no reader takes one", many("job")),
                format!(
                    "see that a reader runs, such as `{}`; `{}` says what else may hold them up",
                    command("dialoq work run", "--exec PROGRAM"),
                    command("dialoq explain", "")
                ),
            ),
            FindingKind::LostJobs => (
                format!(
                    "{} of work queue '{subject}' {are} lost: the lease is over, the first for {age}, and the reader has reported \
                     nothing",
                    many("job")
                ),
                format!(
                    "see that a process that opens the broker for changes runs: it gives them to other readers, or makes them dead; \
                     `{}` shows who took them",
                    command("dialoq work list", "--state lost")
                ),
            ),
            FindingKind::OverdueSchedule => (
                format!(
                    "work schedule '{subject}' of work queue '{}' has been due for {age} and has not fired",
                    detail.unwrap_or_default()
                ),
                "see that a process that opens the broker for changes runs; if one does, its log says why it cannot fire, and \
                 `dialoq work schedule list` shows the times"
                    .to_owned(),
            ),
        }
    }
}

/// A duration in its largest unit, for reading.
pub(super) fn rough(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_queue_that_a_retry_policy_turned_off_is_said_to_be_so() {
        let _limit = crate::testing::limit();
        use crate::act::Act;
        let broker = crate::testing::TestBroker::in_memory().await.unwrap();
        let definitions = "CREATE QUEUE q WITH RETRY (MAX_ATTEMPTS = 1, THEN = QUEUE_OFF);
            CREATE SERVICE s ON QUEUE q ([DEFAULT])";
        broker.execute(definitions).await.unwrap();
        let dialog = broker.begin_dialog("s", "s").await.unwrap();
        broker.send(dialog, "DEFAULT", "x").await.unwrap();
        let tx = broker.begin().await.unwrap();
        assert!(tx.receive("q").await.unwrap().is_some());
        tx.rollback().await.unwrap();
        let findings = broker.doctor().await.unwrap();
        assert!(findings.len() == 1 && findings[0].what.contains("retry policy"), "{findings:?}");
    }

    /// Messages of such a type were rejected one by one, and no tool said why before they were.
    #[tokio::test]
    async fn schemas_that_an_earlier_version_took_are_found() {
        let _limit = crate::testing::limit();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("broker.db");
        let url = format!("sqlite:{}?share=off", file.display());
        let broker = Broker::open(&url).await.unwrap();
        let schema = "<xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\"><xs:element name=\"a\" type=\"xs:int\"/></xs:schema>";
        let definitions = format!(
            "CREATE XML SCHEMA COLLECTION c AS N'{schema}'; CREATE XML SCHEMA COLLECTION unused AS N'{schema}';
             CREATE MESSAGE TYPE x VALIDATION = VALID_XML WITH SCHEMA COLLECTION c;
             CREATE MESSAGE TYPE y VALIDATION = VALID_XML WITH SCHEMA COLLECTION C;
             CREATE MESSAGE TYPE j VALIDATION = JSON SCHEMA '{{\"type\": \"object\"}}'"
        );
        broker.execute(&definitions).await.unwrap();
        assert_eq!(broker.doctor().await.unwrap(), []);
        broker.close().await.unwrap();
        let database = rusqlite::Connection::open(&file).unwrap();
        let text = schema.replace("xs:int", "xs:none");
        assert_eq!(database.execute("UPDATE dialoq_xml_schema_collection SET schemas = ?", [text]).unwrap(), 2);
        drop(database);
        let broker = Broker::open(&url).await.unwrap();
        let findings = broker.doctor().await.unwrap();
        assert_eq!(findings.len(), 1, "{findings:?}");
        let Finding { kind, subject, amount, what, .. } = &findings[0];
        assert_eq!((kind, subject.as_str(), amount), (&FindingKind::RefusedSchema, "c", &2));
        assert!(what.contains("XMLSchema}none") && what.ends_with("messages of 'x', 'y' are rejected"), "{what}");
    }

    #[test]
    fn ages_are_shown_in_their_largest_unit() {
        let seconds = |seconds| rough(Duration::from_secs(seconds));
        assert_eq!([seconds(0), seconds(119), seconds(120)], ["0 s", "119 s", "2 min"]);
        assert_eq!([seconds(7_199), seconds(7_200), seconds(200_000)], ["119 min", "2 h", "2 days"]);
    }
}
