//! The options of every command, and what they open.

use super::failure::Failure;
use super::interrupt::Interrupt;
use super::output::Output;
use clap::Args;
use dialoq::catalog::Catalog;
use dialoq::internals::jsonl;
use dialoq::{Broker, Code, ConversationHandle, GroupId, OpenOptions};
use std::fmt;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// Options of every command.
#[derive(Args)]
pub(super) struct Globals {
    /// The broker's database: sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE or mssql://USER:PASSWORD@HOST/DATABASE.
    /// Only `apply` and `install` make a broker where there is none. Options follow a question mark, as in
    /// sqlite:shop.db?durability=normal. Other users of the machine see the arguments of a command: give a URL with a
    /// password in DIALOQ_URL.
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "DIALOQ_URL",
        hide_env_values = true,
        default_value = "sqlite:dialoq.db"
    )]
    #[arg(help_heading = "Global options")]
    pub(super) db: String,
    /// Print JSON for programs instead of tables for people; errors too.
    #[arg(long, global = true, help_heading = "Global options")]
    pub(super) json: bool,
    /// The definitions of the broker that was opened, for the names in them; a broker that is closed has none.
    #[arg(skip)]
    pub(super) opened: OnceLock<Arc<Catalog>>,
    /// The brokers that were opened, so that none stays open when its command fails.
    #[arg(skip)]
    brokers: Mutex<Vec<Broker>>,
}

/// The longest wait for the end of what ctrl-C has left under way.
const LONGEST_CLOSE: Duration = Duration::from_secs(1);

/// Closes the broker of a command that has ended so. What ctrl-C has stopped says first of all what was done, and a failure says its
/// reason: a store whose disk is full fails at the close too, and no longer says why.
pub(super) async fn close_after<T, E>(broker: &Broker, done: Result<T, E>) -> Result<T, Failure>
where
    Failure: From<E>,
{
    let done = done.map_err(Failure::from);
    if let Err(Failure::Interrupted(_)) = done {
        let _ = tokio::time::timeout(LONGEST_CLOSE, broker.close()).await;
        return done;
    }
    let closed = broker.close().await;
    let done = done?;
    closed?;
    Ok(done)
}

/// The URL may hold a password.
impl fmt::Debug for Globals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Globals").field("json", &self.json).finish_non_exhaustive()
    }
}

impl Globals {
    /// Opens the broker of an existing database.
    pub(super) async fn open(&self) -> Result<Broker, Failure> {
        self.open_with(false).await
    }

    /// The same, unless a stop is requested before: an opening may wait for an owner that does not answer.
    pub(super) async fn open_unless(&self, interrupt: &Interrupt) -> Result<Broker, Failure> {
        let opened = interrupt.unless_requested(self.open()).await?;
        opened.ok_or_else(|| Failure::Interrupted("interrupted".into()))
    }

    /// The same for a service, which SIGTERM may stop before there is anything in hand.
    pub(super) async fn open_service(&self, interrupt: &Interrupt) -> Result<Broker, Failure> {
        let opened = interrupt.unless_requested(self.open()).await?;
        opened.ok_or_else(|| interrupt.after_the_work("interrupted before the broker was open".into()))
    }

    /// Opens the broker; makes its database if there is none.
    pub(super) async fn open_or_create(&self) -> Result<Broker, Failure> {
        self.open_with(true).await
    }

    /// Opens the broker to try something; a broker without definitions if there is no database.
    pub(super) async fn open_to_try(&self) -> Result<Broker, Failure> {
        match self.open().await {
            Err(Failure::Refused(error))
                if error.code() == Code::STORE_IO && error.message().contains("there is no such file") =>
            {
                Ok(self.keep(Broker::open("sqlite::memory:").await?))
            }
            opened => opened,
        }
    }

    /// Opens the broker for reading, also while another process owns the file.
    pub(super) async fn open_read_only(&self) -> Result<Broker, Failure> {
        let broker = Broker::open_read_only(&self.db).await?;
        Ok(self.keep(broker))
    }

    /// Closes what the command has left open.
    pub(super) async fn close(&self) {
        let brokers = std::mem::take(&mut *self.brokers.lock().unwrap_or_else(PoisonError::into_inner));
        for broker in brokers {
            // The command closes its broker itself where a failure of that is worth a word.
            let _ = broker.close().await;
        }
    }

    fn keep(&self, broker: Broker) -> Broker {
        let _ = self.opened.set(broker.catalog());
        self.brokers.lock().unwrap_or_else(PoisonError::into_inner).push(broker.clone());
        broker
    }

    async fn open_with(&self, create: bool) -> Result<Broker, Failure> {
        let options = OpenOptions::new().create(create);
        let broker = Broker::open_with(&self.db, options).await?;
        for repair in broker.repairs() {
            Output::new(self.json).warning(&format!("the database was repaired: {repair}"));
        }
        Ok(self.keep(broker))
    }
}

/// Reads a time span: `5`, `5s`, `250ms`, `2m`, `1h`, `7d`.
pub(super) fn parse_span(text: &str) -> Result<Duration, String> {
    if text.starts_with('-') {
        return Err("a time span is not negative".to_owned());
    }
    let unit_at = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(unit_at);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err("its unit of time must be ms, s, m, h or d, as in 250ms".to_owned()),
    };
    let number: f64 = number.parse().map_err(|_| "a time span is a number and a unit, such as 5s".to_owned())?;
    Duration::try_from_secs_f64(number * seconds)
        .map_err(|_| "the time span is too long; ten years are 3650d".to_owned())
}

/// Reads a time span of whole seconds.
pub(super) fn parse_whole_seconds(text: &str) -> Result<Duration, String> {
    match parse_span(text)? {
        span if span.subsec_nanos() > 0 => Err("it has whole seconds only, such as 1s or 90s".to_owned()),
        span => Ok(span),
    }
}

/// Reads a time span in which something is to be done.
pub(super) fn parse_time_to_work(text: &str) -> Result<Duration, String> {
    match parse_span(text)? {
        Duration::ZERO => Err("it leaves no time for any work; give more, or leave it out for no limit".to_owned()),
        span => Ok(span),
    }
}

/// Reads a conversation handle.
pub(super) fn parse_handle(text: &str) -> Result<ConversationHandle, String> {
    jsonl::parse_handle(text).map_err(|error| error.message().to_owned())
}

/// Reads the id of a conversation, a side or a group.
pub(super) fn parse_id(text: &str) -> Result<Uuid, String> {
    let wrong = "an id is a UUID, such as 01890a5d-ac96-774b-bcce-b302099a8057; `dialoq status --conversations` lists them, and \
                 `dialoq explain` takes names";
    text.parse().map_err(|_| wrong.to_owned())
}

/// Reads the id of a conversation group.
pub(super) fn parse_group(text: &str) -> Result<GroupId, String> {
    text.parse().map_err(|_| "a conversation group id is a UUID".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_units() {
        for (text, ms) in [("5", 5_000), ("5s", 5_000), ("250ms", 250), ("1.5m", 90_000), ("1h", 3_600_000), ("0", 0)] {
            assert_eq!(parse_span(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "5 s", "-1", "5y", "1e9", "9999999999999999999d", "1.2.3s"] {
            assert!(parse_span(text).is_err(), "{text}");
        }
        assert_eq!(parse_span("9999999999999999999d").unwrap_err(), "the time span is too long; ten years are 3650d");
    }
}
