//! Verbs on connections of the user's own.

use crate::error::{Code, Error, Result};
use crate::protocol::{Outcome, Verb};
use crate::store::database::Server;
use crate::store::database::batching::body::settled;
use crate::store::database::calls::retry::{Tries, verdict};
use crate::store::database::calls::verbs;
use crate::store::database::link::Guest;
use std::sync::Arc;

impl Server {
    /// Does a verb there. Nothing is known of the commit: the server tells others by itself, and this process hears it from
    /// there.
    pub(in crate::store::database) async fn perform_on(
        self: &Arc<Self>,
        guest: &mut dyn Guest,
        verb: Verb,
    ) -> Result<Outcome> {
        let (theirs, ours) = (guest.dialect(), self.driver.dialect().name);
        if theirs != ours {
            let message =
                format!("the connection speaks {theirs}, the broker is in {ours}; enlist one to its database");
            return Err(Error::new(Code::UNSUPPORTED, message));
        }
        if matches!(verb, Verb::Define(_)) {
            return Err(Error::definition_in_transaction());
        }
        verb.check_texts()?;
        self.tell_time().await?;
        let verb = settled(verb);
        let mut context = self.call_context(&verb).await?;
        let mut tries = Tries::default();
        loop {
            let failure = match guest.call(verbs::call(&verb, &context)?).await {
                Ok(rows) => return verbs::outcome(&verb, rows),
                Err(failure) => failure,
            };
            if !tries.again_with_new_definitions(&failure.error) {
                return Err(verdict(failure));
            }
            self.reload().await?;
            self.recheck(&verb, &mut context).await;
        }
    }
}
