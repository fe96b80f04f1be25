//! The error behind a number that one of our functions or procedures raised.

use crate::error::{Code, Error};

/// The refusal behind a number, with the message that was raised. A number that is not ours is a failure of the store
/// (60018); drivers map the numbers of their servers themselves.
pub fn refusal(number: i64, message: impl Into<String>) -> Error {
    let known = Code::ALL.iter().map(|(code, _)| *code).find(|code| i64::from(code.0) == number);
    match known {
        Some(code) => Error::new(code, message),
        None => {
            let message = message.into();
            Error::new(Code::STORE_IO, format!("the server refused with {number}: {message}"))
        }
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
