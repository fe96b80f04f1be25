//! What the tables say.

use crate::broker::Broker;
use crate::cli::failure::Failure;
use crate::error::{Code, Error, Result};
use crate::protocol::ConversationState;
use crate::store::{SqlRow, SqlValue, StatusTexts};
use crate::time::Timestamp;
use serde::Serialize;
use std::collections::HashMap;
use uuid::Uuid;

/// How a broker stands.
#[derive(Debug, Serialize)]
pub(super) struct Status {
    /// When it was looked at.
    pub(super) at: String,
    pub(super) service_broker_guid: Uuid,
    pub(super) is_broker_enabled: bool,
    pub(super) is_honor_broker_priority_on: bool,
    pub(super) queues: Vec<Queue>,
    pub(super) conversations: Vec<Conversations>,
    pub(super) transmission_queue: Vec<Transmission>,
}

/// How a queue stands.
#[derive(Debug, Serialize)]
pub(super) struct Queue {
    pub(super) name: String,
    pub(super) is_receive_enabled: bool,
    pub(super) is_enqueue_enabled: bool,
    pub(super) is_retention_enabled: bool,
    pub(super) is_activation_enabled: bool,
    pub(super) activation_procedure: Option<String>,
    pub(super) max_queue_readers: Option<i64>,
    /// `None` if no process tells of its readers.
    pub(super) readers_running: Option<i64>,
    pub(super) sessions_waiting: Option<i64>,
    pub(super) process_id: Option<i64>,
    /// Highest first; levels without messages are left out.
    pub(super) levels: Vec<Level>,
}

/// What waits in a queue at one level.
#[derive(Debug, Serialize)]
pub(super) struct Level {
    pub(super) priority: i64,
    pub(super) messages: i64,
    pub(super) conversation_groups: i64,
    pub(super) oldest_waiting_ms: u64,
    /// Set aside by poison handling.
    pub(super) is_quarantined: bool,
}

/// How many endpoints of a service are in one state.
#[derive(Debug, Serialize)]
pub(super) struct Conversations {
    pub(super) service_name: String,
    pub(super) state: String,
    pub(super) state_desc: &'static str,
    pub(super) endpoints: i64,
}

/// What waits for one service for one reason.
#[derive(Debug, Serialize)]
pub(super) struct Transmission {
    pub(super) to_service_name: String,
    pub(super) transmission_status: String,
    pub(super) messages: i64,
    pub(super) oldest_waiting_ms: u64,
}

/// Reads a database that another process may own.
pub(super) struct Reader(Broker);

impl Reader {
    pub(super) async fn open(url: &str) -> Result<Self, Failure> {
        Ok(Self(Broker::open_read_only(url).await?))
    }

    pub(super) async fn look(&self) -> Result<Status> {
        let now = self.0.clock().now();
        let broker = self.rows(|texts| texts.broker).await?;
        let broker = broker.first().ok_or_else(|| {
            Error::new(Code::STORE_DAMAGED, "the database holds no settings of a broker; it is damaged")
        })?;
        let mut levels = self.levels(now).await?;
        let mut queues = Vec::new();
        for row in self.rows(|texts| texts.queues).await? {
            queues.push(Queue {
                name: row.get("name")?,
                is_receive_enabled: flag(&row, "is_receive_enabled")?,
                is_enqueue_enabled: flag(&row, "is_enqueue_enabled")?,
                is_retention_enabled: flag(&row, "is_retention_enabled")?,
                is_activation_enabled: flag(&row, "is_activation_enabled")?,
                activation_procedure: row.get("activation_procedure")?,
                max_queue_readers: row.get("max_queue_readers")?,
                readers_running: row.get("readers_running")?,
                sessions_waiting: row.get("sessions_waiting")?,
                process_id: row.get("process_id")?,
                levels: levels.remove(&row.get::<i64>("queue_id")?).unwrap_or_default(),
            });
        }
        Ok(Status {
            at: now.to_string(),
            service_broker_guid: guid(broker),
            is_broker_enabled: flag(broker, "is_broker_enabled")?,
            is_honor_broker_priority_on: flag(broker, "is_honor_broker_priority_on")?,
            queues,
            conversations: self.conversations().await?,
            transmission_queue: self.transmission(now).await?,
        })
    }

    async fn levels(&self, now: Timestamp) -> Result<HashMap<i64, Vec<Level>>> {
        let mut levels: HashMap<i64, Vec<Level>> = HashMap::new();
        for row in self.rows(|texts| texts.levels).await? {
            levels.entry(row.get("queue_id")?).or_default().push(Level {
                priority: row.get("priority")?,
                messages: row.get("messages")?,
                conversation_groups: row.get("conversation_groups")?,
                oldest_waiting_ms: waiting_ms(&row, now)?,
                is_quarantined: flag(&row, "is_quarantined")?,
            });
        }
        Ok(levels)
    }

    async fn conversations(&self) -> Result<Vec<Conversations>> {
        let read = |row: &SqlRow| {
            let state: String = row.get("state")?;
            Ok(Conversations {
                service_name: row.get("service_name")?,
                state_desc: ConversationState::from_code(&state).map_or("", ConversationState::description),
                state,
                endpoints: row.get("endpoints")?,
            })
        };
        self.rows(|texts| texts.conversations).await?.iter().map(read).collect()
    }

    async fn transmission(&self, now: Timestamp) -> Result<Vec<Transmission>> {
        let read = |row: &SqlRow| {
            Ok(Transmission {
                to_service_name: row.get("to_service_name")?,
                transmission_status: row.get("transmission_status")?,
                messages: row.get("messages")?,
                oldest_waiting_ms: waiting_ms(row, now)?,
            })
        };
        self.rows(|texts| texts.transmission).await?.iter().map(read).collect()
    }

    async fn rows(&self, text: impl Fn(&StatusTexts) -> &'static str) -> Result<Vec<SqlRow>> {
        Ok(self.0.query(text(&self.0.shared_store().texts().status), ()).await?.rows)
    }
}

/// Stores that know ids show them as text, the others hold their bytes.
fn guid(row: &SqlRow) -> Uuid {
    let found = match row.values().first() {
        Some(SqlValue::Blob(bytes)) => Uuid::from_slice(bytes).ok(),
        Some(SqlValue::Text(text)) => Uuid::parse_str(text).ok(),
        _ => None,
    };
    found.unwrap_or_default()
}

fn flag(row: &SqlRow, column: &str) -> Result<bool> {
    Ok(row.get::<i64>(column)? != 0)
}

fn waiting_ms(row: &SqlRow, now: Timestamp) -> Result<u64> {
    let oldest = Timestamp(row.get("oldest")?);
    Ok(u64::try_from(now.since(oldest).as_millis()).unwrap_or(u64::MAX))
}
