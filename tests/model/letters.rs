//! Dead letters of a random run: the same on both sides, redriven and purged on both.

use crate::run::{Run, same, shown};
use dialoq::act::Perform;
use dialoq::internals::core::{DeadLetterRow, MessageRow};
use dialoq::protocol::{Verb, system};
use dialoq::{DeadLetterId, SqlRow};

impl Run {
    /// The dead letters of the model by what tells them apart on both sides, with their numbers.
    fn model_letters(&self) -> Vec<(String, u64)> {
        let is_open = |letter: &DeadLetterRow| {
            self.model.endpoints().any(|row| row.endpoint_id == letter.endpoint_id && !row.state.is_ended())
        };
        let shown = |(letter, message): &(DeadLetterRow, MessageRow)| {
            let DeadLetterRow { sequence, priority, attempts, .. } = letter;
            let catalog = self.model.core.catalog();
            let name = catalog.message_types.get(&message.message_type_id).map_or("", |named| &*named.name);
            let body = message.body.as_ref().filter(|_| name != system::EVENT_NOTIFICATION);
            let body = body.map_or_else(String::new, |body| String::from_utf8_lossy(body).into_owned());
            let open = i64::from(is_open(letter));
            (format!("{name} #{sequence} at {priority} after {attempts}, open {open}: {body}"), letter.queuing_order)
        };
        self.model.dead_letters().map(shown).collect()
    }

    async fn store_letters(&self) -> Result<Vec<(String, u64)>, String> {
        let view = if self.store().is_server() { "dialoq.dead_letters" } else { "dead_letters" };
        let rows = self.broker.query(&format!("SELECT * FROM {view}"), ()).await;
        let rows = rows.map_err(|error| format!("{view}: {error:?}"))?.rows;
        let shown = |row: &SqlRow| {
            let number = |column: &str| row.get::<i64>(column).map_err(|error| format!("{error:?}"));
            let name: String = row.get("message_type_name").map_err(|error| format!("{error:?}"))?;
            let body: Option<Vec<u8>> = row.get("message_body").map_err(|error| format!("{error:?}"))?;
            let body = body.filter(|_| name != system::EVENT_NOTIFICATION).unwrap_or_default();
            let (sequence, priority) = (number("message_sequence_number")?, number("priority")?);
            let (attempts, open) = (number("attempts")?, number("is_conversation_open")?);
            let body = String::from_utf8_lossy(&body);
            let text = format!("{name} #{sequence} at {priority} after {attempts}, open {open}: {body}");
            Ok((text, number("dead_letter_id")?.unsigned_abs()))
        };
        rows.iter().map(shown).collect()
    }

    pub(crate) async fn compare_letters(&self) -> Result<(), String> {
        let (mut model, mut store) = (self.model_letters(), self.store_letters().await?);
        model.sort();
        store.sort();
        let texts = |letters: Vec<(String, u64)>| letters.into_iter().map(|(text, _)| text).collect::<Vec<_>>();
        same(&texts(model).join("\n  "), &texts(store).join("\n  "))
    }

    /// Redrives or purges one of the dead letters that are the only ones of their kind.
    pub(crate) async fn letter(&mut self, place: usize, goes_back: bool) -> Result<(), String> {
        let mut letters = self.model_letters();
        letters.sort();
        let alike = letters.clone();
        letters.retain(|(text, _)| alike.iter().filter(|(other, _)| other == text).count() == 1);
        if letters.is_empty() {
            return Ok(());
        }
        let (text, in_model) = letters.swap_remove(place % letters.len());
        let found = self.store_letters().await?.into_iter().find(|(other, _)| *other == text);
        let (_, in_store) = found.ok_or_else(|| format!("the store has no dead letter {text}"))?;
        let verb = |number| {
            let letter = DeadLetterId(number);
            if goes_back { Verb::RedriveDeadLetter { letter } } else { Verb::PurgeDeadLetter { letter } }
        };
        // It would wait for an open transaction, and this run has no other session to end that.
        let Some(model) = self.model.submit(vec![verb(in_model)], self.now()).transpose() else { return Ok(()) };
        let model = model.map(|mut outcomes| outcomes.remove(0));
        let store = self.broker.perform(verb(in_store)).await;
        same(&shown(&mut self.model_names, &model), &shown(&mut self.names, &store))?;
        self.compare_rows().await
    }
}
