//! The error behind a number that one of our functions or procedures raised.

use crate::error::{Code, Error};

/// The refusal behind a number, with the message that was raised. A number that is not ours is a failure of the store
/// (60018); drivers map the numbers of their servers themselves.
pub fn refusal(number: i64, message: impl Into<String>) -> Error {
    let known = Code::ALL.iter().map(|(code, _)| *code).find(|code| i64::from(code.0) == number);
    match known {
        Some(code) => Error::new(code, message).with_place_of_its_message(),
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
    fn a_refusal_of_one_message_of_a_list_has_its_place() {
        let place = |text: &str| refusal(8429, text).statement();
        assert_eq!(place("message 3 of 10: it is CLOSED"), Some(2));
        for other in
            ["message 0 of 10: x", "message x of 10: y", "message 3 of ten: y", "message type 'x' of 3: y", "no"]
        {
            assert_eq!(place(other), None, "{other}");
        }
    }

    #[test]
    fn a_number_of_others_is_a_failure_of_the_store() {
        let error = refusal(208, "Invalid object name");
        assert_eq!(error.code(), Code::STORE_IO);
        assert!(error.message().contains("208"), "{error}");
    }
}
