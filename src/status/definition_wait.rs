//! A definition that waits for open transactions: what it needs, and the queues from which it holds receives back meanwhile.

use super::conversation::ConversationFilter;
use crate::broker::Broker;
use crate::catalog::apply::{self, Consequence};
use crate::catalog::ddl;
use crate::error::{Position, Result};
use crate::id::IdSource;
use crate::time::Timestamp;
use std::collections::HashMap;
use std::time::Duration;

/// No hold is longer: after a change of the clock its end may be further away, and the store ignores such a hold.
const LONGEST: Duration = Duration::from_secs(60);

/// What to do about a hold.
pub(super) const HELD_BACK_ADVICE: &str = "commit or roll back the transactions that hold its conversation groups, or cancel the definition; \
     while the definition waits, it holds receives back again after each pause";

/// That receives are held back from a queue.
pub(crate) fn held_back(queue: &str, until: Timestamp) -> String {
    format!(
        "a definition waits for open transactions, and holds receives back from queue '{queue}' until {until} at most"
    )
}

impl Broker {
    /// The ends of the holds at this time, by queue. An owner of a file that does not answer makes no status fail.
    pub(super) async fn receive_holds(&self, at: Timestamp) -> HashMap<String, Timestamp> {
        let catalog = self.catalog();
        let holds = self.shared_store().receive_holds().await.unwrap_or_default();
        let lasts = |until: Timestamp| until > at && until.since(at) <= LONGEST;
        let named = |id| Some(catalog.queues.get(&id)?.name.to_string());
        holds
            .into_iter()
            .filter(|(_, until)| lasts(*until))
            .filter_map(|(id, until)| Some((named(id)?, until)))
            .collect()
    }

    /// That receives are held back from a queue now, if they are.
    pub(crate) async fn receives_held_back(&self, queue: &str) -> Option<String> {
        let name = self.catalog().queue(queue)?.name.to_string();
        let until = self.receive_holds(self.clock().now()).await.remove(&name)?;
        Some(held_back(&name, until))
    }

    /// The conversations that statements of a script need all at one moment, with the places of the statements: each waits for the
    /// transactions that hold one.
    #[cfg_attr(not(feature = "cli"), allow(dead_code, reason = "only the command says for what it waits"))]
    pub(crate) fn conversations_needed(&self, script: &str) -> Result<Vec<(Position, ConversationFilter)>> {
        let before = self.catalog();
        let (mut after, mut ids) = ((*before).clone(), IdSource::Random);
        let service = |id: &i32| before.services.get(id).map(|service| service.name.to_string());
        let mut needed = Vec::new();
        for statement in ddl::parse(script)? {
            for consequence in apply::apply(&mut after, &statement.definition, &mut ids)?.consequences {
                let all = ConversationFilter::default();
                // An object that the script makes itself has no conversations.
                let filter = match &consequence {
                    Consequence::ContractDropped { contract_id } => before
                        .contracts
                        .get(contract_id)
                        .map(|it| ConversationFilter { contract: Some(it.name.to_string()), ..all }),
                    Consequence::ServiceMoved { service_id, .. } | Consequence::ServiceDropped { service_id, .. } => {
                        service(service_id).map(|name| ConversationFilter { service: Some(name), ..all })
                    }
                    Consequence::NewBroker => Some(all),
                    _ => None,
                };
                needed.extend(filter.map(|filter| (statement.position, filter)));
            }
        }
        Ok(needed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_script_needs_the_conversations_of_what_it_moves_or_drops() {
        let _limit = crate::testing::limit();
        let broker = crate::testing::TestBroker::in_memory().await.unwrap();
        let definitions = "CREATE QUEUE q; CREATE QUEUE q2; CREATE CONTRACT c ([DEFAULT] SENT BY ANY);
            CREATE SERVICE moved ON QUEUE q; CREATE SERVICE dropped ON QUEUE q";
        broker.execute(definitions).await.unwrap();
        let script = "ALTER QUEUE q WITH RETENTION = ON;\nALTER SERVICE moved ON QUEUE q2;\n DROP SERVICE dropped;\nDROP CONTRACT c;
            CREATE SERVICE new ON QUEUE q; ALTER SERVICE new ON QUEUE q2;\nALTER DATABASE CURRENT SET NEW_BROKER";
        let needed = broker.conversations_needed(script).unwrap();
        let place = |line, column| Position { line, column };
        let (all, of) = (ConversationFilter::default, |name: &str| Some(name.to_owned()));
        let expected = [
            (place(2, 1), ConversationFilter { service: of("moved"), ..all() }),
            (place(3, 2), ConversationFilter { service: of("dropped"), ..all() }),
            (place(4, 1), ConversationFilter { contract: of("c"), ..all() }),
            (place(6, 1), all()),
        ];
        assert_eq!(needed, expected);
    }
}
