//! What became of the messages, seen after their commit.

use crate::cli::failure::Failure;
use crate::cli::output::{Output, printable};
use dialoq::Broker;
use dialoq::status::{Delivery, DeliveryOutcome, SentOn};
use std::collections::BTreeMap;
use std::time::Duration;

/// The exit code if the broker has refused messages that were sent.
const REFUSED: u8 = 4;
/// The exit code if messages wait for what looks like a mistake.
const MISTAKEN: u8 = 5;

/// How often, and how far apart, conversations are looked at again whose bodies the broker is still checking.
const LOOKS: u32 = 50;
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);

/// The outcomes of all conversations, counted by what is to be said about them.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    lines: BTreeMap<String, Count>,
    refused: u64,
    mistaken: u64,
}

#[derive(Debug, Default)]
struct Count {
    conversations: u64,
    messages: u64,
    is_refused: bool,
}

impl Outcomes {
    /// Looks at conversations and counts what became of them. A look that fails says nothing of the messages, which are sent.
    pub(super) async fn look(&mut self, broker: &Broker, sent: &[SentOn], output: &Output) -> Vec<Delivery> {
        match seen(broker, sent).await {
            Ok(deliveries) => {
                deliveries.iter().for_each(|delivery| self.count(&delivery.outcome));
                deliveries
            }
            Err(error) => {
                output.warning(&format!("what became of the messages cannot be read: {}", error.message()));
                Vec::new()
            }
        }
    }

    fn count(&mut self, outcome: &DeliveryOutcome) {
        let (messages, is_refused) = match outcome {
            DeliveryOutcome::Waits { messages, is_mistake, .. } => {
                self.mistaken += u64::from(*is_mistake);
                (*messages, false)
            }
            DeliveryOutcome::Refused { .. } => {
                self.refused += 1;
                (0, true)
            }
            _ => return,
        };
        let count = self.lines.entry(outcome.to_string()).or_default();
        count.conversations += 1;
        count.messages += messages;
        count.is_refused = is_refused;
    }

    /// One line for each distinct outcome that is not delivery.
    pub(super) fn report(&self, output: &Output) {
        for (line, count) in self.lines.iter().filter(|_| !output.json) {
            let line = printable(line);
            let (level, number, what) = match count.is_refused {
                true => ("refused", count.conversations, "conversation"),
                false => ("warning", count.messages, "message"),
            };
            output.note(&format!("{level}: {number} {what}{}: {line}", if number == 1 { "" } else { "s" }));
        }
    }

    /// The exit code that says of the worst of them.
    pub(super) fn end(&self) -> Result<(), Failure> {
        let ended = |code| Err(Failure::Reported { code, text: None });
        match (self.refused, self.mistaken) {
            (0, 0) => Ok(()),
            (0, _) => ended(MISTAKEN),
            _ => ended(REFUSED),
        }
    }
}

async fn seen(broker: &Broker, sent: &[SentOn]) -> dialoq::Result<Vec<Delivery>> {
    let mut looks = 1;
    loop {
        let deliveries = broker.deliveries(sent.iter().copied()).await?;
        // A reason without a number is a delivery under way: the broker checks the body.
        let is_under_way = |delivery: &Delivery| matches!(delivery.outcome, DeliveryOutcome::Waits { code: None, .. });
        if looks == LOOKS || !deliveries.iter().any(is_under_way) {
            return Ok(deliveries);
        }
        looks += 1;
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_outcome_decides_the_exit_code() {
        let waits = |is_mistake| DeliveryOutcome::Waits {
            code: Some(9793),
            reason: "9793: x".into(),
            hint: None,
            messages: 2,
            is_mistake,
        };
        let refused = DeliveryOutcome::Refused { code: Some(-8408), text: "y".into(), hint: None };
        let mut outcomes = Outcomes::default();
        outcomes.count(&DeliveryOutcome::Delivered);
        outcomes.count(&waits(false));
        assert!(outcomes.end().is_ok());
        outcomes.count(&waits(true));
        assert!(matches!(outcomes.end(), Err(Failure::Reported { code: 5, .. })));
        outcomes.count(&refused);
        assert!(matches!(outcomes.end(), Err(Failure::Reported { code: 4, .. })));
        assert_eq!(outcomes.lines.len(), 2, "one line per distinct outcome: {outcomes:?}");
    }
}
