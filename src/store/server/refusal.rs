//! What a number that a server raised means here.

use crate::error::{Code, Error, ErrorKind};

/// The refusal behind a number that one of our functions or procedures raised, in the words it raised.
///
/// A number that is not ours is a failure of the store (60018): the driver knows better what it means, and asks here only
/// for ours.
pub fn refusal(number: i64, message: impl Into<String>) -> Error {
    let known = Code::ALL.iter().map(|(code, _)| *code).find(|code| i64::from(code.0) == number);
    match known {
        Some(code) => Error::new(code, kind(code), message),
        None => {
            let message = message.into();
            Error::new(Code::STORE_IO, ErrorKind::Store, format!("the server refused with {number}: {message}"))
        }
    }
}

/// The class of a code, as where the embedded store raises it.
fn kind(code: Code) -> ErrorKind {
    match code {
        Code::DEADLOCK | Code::CATALOG_STALE => ErrorKind::Conflict,
        Code::OBJECT_IN_USE | Code::DUPLICATE_NAME => ErrorKind::InUse,
        Code::SERVICE_NOT_FOUND
        | Code::CONTRACT_NOT_FOUND
        | Code::CONVERSATION_NOT_FOUND
        | Code::MESSAGE_TYPE_NOT_FOUND
        | Code::LISTED_CONVERSATION_NOT_FOUND
        | Code::GROUP_NOT_FOUND
        | Code::OBJECT_NOT_FOUND
        | Code::SAVEPOINT_NOT_FOUND => ErrorKind::NotFound,
        Code::STATE_FORBIDS_END
        | Code::STATE_FORBIDS_SEND
        | Code::STATE_FORBIDS_MOVE
        | Code::STATE_FORBIDS_TIMER
        | Code::RELATION_IMPOSSIBLE
        | Code::QUEUE_DISABLED
        | Code::OWN_QUEUE_DISABLED_WITH_RETENTION
        | Code::TRANSACTION_ENDED => ErrorKind::State,
        Code::DEFINITION_IN_TRANSACTION | Code::UNSUPPORTED | Code::ACTIVATION_EXCLUDES_NOTIFICATION => {
            ErrorKind::Unsupported
        }
        Code::USER_SQL_FAILED | Code::HANDLER_FAILED | Code::PROGRAM_FAILED => ErrorKind::User,
        Code(60010..=60018 | 60030..=60032 | 60034 | 60035) => ErrorKind::Store,
        _ => ErrorKind::Input,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_ours_is_the_refusal_the_embedded_store_would_give() {
        let error = refusal(8426, "no such conversation");
        let ours = Error::conversation_not_found("x");
        assert_eq!((error.code(), error.kind()), (ours.code(), ours.kind()));
        assert_eq!(error.message(), "no such conversation");
        assert!(refusal(1205, "").is_retryable());
        assert!(refusal(60033, "").is_retryable());
    }

    #[test]
    fn a_number_of_others_is_a_failure_of_the_store() {
        let error = refusal(208, "Invalid object name");
        assert_eq!(error.code(), Code::STORE_IO);
        assert!(error.message().contains("208"), "{error}");
    }
}
