//! The transmission queue of a random run: the same messages with the same reasons on both sides.

use crate::run::{Run, same};
use crate::servers::Store;
use std::time::{Duration, Instant};

/// How long a reason may stay the old one when no transaction is open: PostgreSQL looks again some seconds after the last one.
const REASON_LIMIT: Duration = Duration::from_secs(60);

/// A message that waits: its sequence number, and why it waits.
type Waiting = (i64, String);

impl Run {
    async fn store_transmissions(&self) -> Result<Vec<Waiting>, String> {
        let text = format!("SELECT * FROM {}", self.store().view("transmission_queue"));
        let rows = self.broker.query(&text, ()).await.map_err(|error| format!("{text}: {error:?}"))?.rows;
        let mut waiting = Vec::new();
        for row in &rows {
            let sequence = row.get::<i64>("message_sequence_number").map_err(|error| format!("{error:?}"))?;
            let status = row.get::<String>("transmission_status").map_err(|error| format!("{error:?}"))?;
            waiting.push((sequence, status));
        }
        waiting.sort();
        Ok(waiting)
    }

    /// The messages that wait are the same at once. So are the reasons, with one DIFFERENCE: on PostgreSQL a definition changes the
    /// reason of a message whose group a transaction holds only after that transaction's end, some seconds later.
    pub(crate) async fn compare_transmissions(&self) -> Result<(), String> {
        let mut model: Vec<Waiting> =
            self.model.transmissions().map(|row| (row.sequence.cast_signed(), row.status.to_string())).collect();
        model.sort();
        let begun = Instant::now();
        loop {
            let store = self.store_transmissions().await?;
            let compared = same(&texts(&model), &texts(&store));
            let are_only_reasons = sequences(&model) == sequences(&store) && self.store() == Store::Postgres;
            if compared.is_ok() || !are_only_reasons || begun.elapsed() > REASON_LIMIT {
                return compared;
            }
            if self.sessions.iter().any(Option::is_some) {
                return Ok(());
            }
            self.broker.sql("SELECT did FROM dialoq.tick()", ()).await.map_err(|error| format!("tick: {error:?}"))?;
            self.barrier().await;
        }
    }
}

fn sequences(waiting: &[Waiting]) -> Vec<i64> {
    let mut sequences: Vec<i64> = waiting.iter().map(|(sequence, _)| *sequence).collect();
    sequences.sort_unstable();
    sequences
}

fn texts(waiting: &[Waiting]) -> String {
    waiting.iter().map(|(sequence, status)| format!("{sequence} {status}")).collect::<Vec<_>>().join("\n  ")
}
