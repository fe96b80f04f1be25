//! Lines of JSON: messages to send, messages that were received, answers of external programs; and Error bodies.

use crate::harness::text;
use dialoq::internals::jsonl::{MessageLine, SendLine, to_base64};
use dialoq::protocol::{Message, MessageValidation, system};
use dialoq::testing::check_program_line;
use dialoq::{Code, ConversationHandle, GroupId, MessageId, Timestamp};
use serde_json::json;
use uuid::Uuid;

pub(crate) const WORDS: &[&str] = &[
    "{",
    "}",
    "[",
    "]",
    ":",
    ",",
    "\"",
    "\"type\":",
    "\"body\":",
    "\"body_base64\":",
    "\"conversation\":",
    "\"end\":",
    "null",
    "true",
    "false",
    "\"send\":",
    "\"end_error\":",
    "\"code\":",
    "\"description\":",
    "\"timer\":",
    "\"seconds\":",
    "\"commit\":",
    "\"rollback\":",
    "4294967296",
    "-1",
    "1e99",
    "\"AP8=\"",
    "\"AP8\"",
    "\\u0000",
    "\\ud83d\\ude9a",
    "\\ud800",
    "\"01890a5d-ac96-774b-bcce-b302099a8057\"",
    "\u{feff}",
    "[[[[[[[[",
    "{\"a\":{\"a\":",
];

/// A line that is understood says the same when it is written again.
pub(crate) fn send_line(input: &[u8]) {
    let line = text(input);
    match SendLine::parse(&line) {
        Ok(read) => {
            let mut again = json!({ "end": read.end });
            if let Some(message_type) = &read.message_type {
                again["type"] = json!(message_type);
            }
            if let Some(body) = &read.body {
                again["body_base64"] = json!(to_base64(body));
            }
            if let Some(conversation) = read.conversation {
                again["conversation"] = json!(conversation.to_string());
            }
            assert_eq!(SendLine::parse(&again.to_string()).expect("it was written as it must be"), read);
        }
        Err(error) => {
            assert_eq!(error.code(), Code::BAD_INPUT, "{error}");
            assert!(error.message().len() < 4000, "an error shows a part of a line only");
        }
    }
}

/// A received message is one line, and its body can be sent again byte by byte.
pub(crate) fn message_line(input: &[u8]) {
    let message = Message {
        status: 1,
        priority: 5,
        queuing_order: 1,
        conversation_group_id: GroupId(Uuid::from_u128(1)),
        conversation_handle: ConversationHandle(Uuid::from_u128(2)),
        message_sequence_number: 0,
        service_name: text(input).into(),
        service_id: 65536,
        service_contract_name: "DEFAULT".into(),
        service_contract_id: 6,
        message_type_name: "DEFAULT".into(),
        message_type_id: 14,
        validation: MessageValidation::N,
        message_body: Some(input.to_vec()),
        message_id: MessageId(Uuid::from_u128(3)),
        message_enqueue_time: Timestamp(0),
        trace: None,
    };
    let line = serde_json::to_string(&MessageLine(&message)).expect("every message is a line");
    assert!(!line.contains(['\n', '\r']), "{line}");
    let line: serde_json::Value = serde_json::from_str(&line).expect("a line is JSON");
    let sent: serde_json::Map<_, _> = ["body", "body_base64", "body_encoding"]
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), line.get(name)?.clone())))
        .collect();
    let sent = SendLine::parse(&serde_json::Value::Object(sent).to_string()).expect("a body is sent as it is shown");
    assert_eq!(sent.body.unwrap_or_default(), input, "the body is another one");
}

/// An answer is understood or refused.
pub(crate) fn program_line(input: &[u8]) {
    if let Err(error) = check_program_line(&text(input)) {
        assert_eq!(error.code(), Code::PROGRAM_FAILED, "{error}");
        assert!(error.message().len() < 4000, "an error shows a part of a line only");
    }
}

/// An Error body that is understood says the same when it is written again; every description can be written.
pub(crate) fn error_body(input: &[u8]) {
    let rewritten = |code: i32, description: &str| system::parse_error_body(&system::error_body(code, description));
    if let Some((code, description)) = system::parse_error_body(input) {
        assert_eq!(rewritten(code, &description).expect("our own words are understood").0, code);
    }
    let (code, description) = rewritten(-8408, &text(input)).expect("our own words are understood");
    assert_eq!(code, -8408);
    let (_, again) = rewritten(code, &description).expect("our own words are understood");
    assert_eq!(again, description, "a description that was read once stays");
}
