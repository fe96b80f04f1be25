//! Checks of arguments, before any lock.

use super::endpoint::Endpoint;
use super::session::Session;
use super::state::Core;
use crate::error::{Code, Error, Result};
use crate::id::ConversationHandle;
use crate::protocol::{ConversationState, EndForm};

impl Core {
    /// The endpoint of a handle, if this side has not ended it. A committed END is final, so this is checked before the
    /// group's lock is waited for; the core runs a verb without interruption, so it still holds under the lock.
    pub(super) fn find_not_ended(
        &self,
        session: &Session,
        handle: ConversationHandle,
        code: Code,
        statement: &str,
    ) -> Result<u32> {
        let place = self.find_for(session, handle).ok_or_else(|| Error::conversation_not_found(handle))?;
        let endpoint: &Endpoint = &self.endpoints[place];
        let has_ended = session.has_ended(place, endpoint);
        if has_ended || endpoint.state.is_ended() {
            let state = if has_ended { ConversationState::DisconnectedOutbound } else { endpoint.state };
            return Err(Error::new(
                code,
                format!("conversation {handle} is {state}; {statement} needs one that this side has not ended"),
            ));
        }
        Ok(place)
    }
}

pub(super) fn check_levels(lowest: u8, highest: u8) -> Result<()> {
    if (1..=10).contains(&lowest) && (lowest..=10).contains(&highest) {
        return Ok(());
    }
    Err(Error::out_of_range("the range of levels", format!("{lowest} to {highest}"), "within 1 to 10, the lower first"))
}

pub(super) fn check_form(form: &EndForm) -> Result<()> {
    let EndForm::WithError { code, description } = form else { return Ok(()) };
    if *code < 1 {
        return Err(Error::new(
            Code::END_ERROR_CODE_MISSING,
            format!(
                "the error code of END CONVERSATION is {code}; it must be above 0, the others belong to the broker"
            ),
        ));
    }
    let length = description.chars().count();
    if length > 3000 {
        return Err(Error::out_of_range("the length of the error description", length, "3000 characters at most"));
    }
    Ok(())
}

pub(super) fn check_service_name(name: &str) -> Result<()> {
    let length = name.chars().count();
    if (1..=256).contains(&length) {
        return Ok(());
    }
    Err(Error::new(
        Code::BAD_SERVICE_NAME,
        format!("the name of the TO SERVICE has {length} characters; it must have 1 to 256"),
    ))
}
