//! Verbs on connections of the user's own.

use crate::error::{Code, Error, Result};
use crate::protocol::{Outcome, Verb};
use crate::store::database::Database;
use crate::store::database::batching::body::normalise_empty_body;
use crate::store::database::calls::verbs;
use crate::store::database::link::EnlistedConnection;
use crate::store::database::retry::{Again, Repeat, Retry};
use std::sync::Arc;

impl Database {
    /// Executes a verb there. This process does not see the commit, so the server notifies it like all others.
    pub(in crate::store::database) async fn perform_on(
        self: &Arc<Self>,
        connection: &mut dyn EnlistedConnection,
        verb: Verb,
    ) -> Result<Outcome> {
        let (theirs, ours) = (connection.dialect(), self.driver.dialect().name);
        if theirs != ours {
            let message = format!("the connection is to {theirs}, the broker is in {ours}; enlist one to its database");
            return Err(Error::new(Code::UNSUPPORTED, message));
        }
        if matches!(verb, Verb::Define(_)) {
            return Err(Error::definition_in_transaction());
        }
        verb.check_texts()?;
        self.push_test_clock().await?;
        let verb = normalise_empty_body(verb);
        let mut context = self.call_context(&verb).await?;
        let mut tries = Retry::default();
        loop {
            let failure = match connection.call(verbs::call(&verb, &context)?).await {
                Ok(rows) => return verbs::outcome(&verb, rows),
                Err(failure) => failure,
            };
            let again = tries.after(failure, Repeat::Never).await?;
            if again == Again::WithNewDefinitions {
                // Detached: this runs in the caller's future, which may not be polled while it holds the lock of the definitions.
                self.detached(|database| async move { database.reload().await }).await?;
            }
            self.renew_contexts(again, [(&verb, &mut context)]).await?;
        }
    }
}
