//! Messages as lines of JSON: what `dialoq receive --json` prints, what `dialoq send` reads, and what activated
//! programs are handed and answer.

use crate::error::{Code, Error, Result};
use crate::id::ConversationHandle;
use crate::protocol::Message;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::ser::SerializeMap;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// A body as it can be shown. Nothing is lost: the same bytes can be made of it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BodyText<'a> {
    /// There is no body.
    Absent,
    /// Text in UTF-8.
    Text(&'a str),
    /// Text in UTF-16.
    Utf16(String, Utf16),
    /// Anything else.
    Binary(&'a [u8]),
}

/// In which form of UTF-16 a text was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Utf16 {
    /// Little-endian without a byte-order mark, as nvarchar is.
    #[serde(rename = "utf-16le")]
    Little,
    /// Little-endian with a mark, as system messages are.
    #[serde(rename = "utf-16le-bom")]
    MarkedLittle,
    /// Big-endian with a mark.
    #[serde(rename = "utf-16be-bom")]
    MarkedBig,
}

impl Utf16 {
    /// The bytes of a text.
    pub fn encode(self, text: &str) -> Vec<u8> {
        let mark = (self != Self::Little).then_some(0xFEFF);
        let units = mark.into_iter().chain(text.encode_utf16());
        match self {
            Self::Little | Self::MarkedLittle => units.flat_map(u16::to_le_bytes).collect(),
            Self::MarkedBig => units.flat_map(u16::to_be_bytes).collect(),
        }
    }

    fn decode(self, bytes: &[u8]) -> Option<String> {
        let (pairs, rest) = bytes.as_chunks::<2>();
        let unit = if self == Self::MarkedBig { u16::from_be_bytes } else { u16::from_le_bytes };
        let text: String = char::decode_utf16(pairs.iter().map(|&pair| unit(pair))).collect::<Result<_, _>>().ok()?;
        (rest.is_empty() && !text.contains('\0')).then_some(text)
    }
}

impl<'a> BodyText<'a> {
    /// What those bytes are: UTF-16 by a byte-order mark, UTF-8, or UTF-16LE as nvarchar text is, if at least half of
    /// its characters are from Latin alphabets; anything else is binary. A mark of UTF-8 is part of the text.
    pub fn of(body: Option<&'a [u8]>) -> Self {
        let Some(bytes) = body.filter(|bytes| !bytes.is_empty()) else { return Self::Absent };
        let (form, encoded) = match bytes {
            [0xFF, 0xFE, rest @ ..] => (Utf16::MarkedLittle, rest),
            [0xFE, 0xFF, rest @ ..] => (Utf16::MarkedBig, rest),
            _ => match std::str::from_utf8(bytes) {
                Ok(text) if !text.contains('\0') => return Self::Text(text),
                _ if is_mostly_latin(bytes) => (Utf16::Little, bytes),
                _ => return Self::Binary(bytes),
            },
        };
        form.decode(encoded).map_or(Self::Binary(bytes), |text| Self::Utf16(text, form))
    }
}

fn is_mostly_latin(bytes: &[u8]) -> bool {
    let units = bytes.len() / 2;
    let latin = bytes.as_chunks::<2>().0.iter().filter(|[low, high]| *high == 0 && *low != 0).count();
    latin * 2 >= units.max(1)
}

/// The base64 form of bytes, with padding.
pub fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// One received message as a JSON object: the columns of a queue under Service Broker's names, times as RFC 3339 text,
/// the body as `body` (text, or null for none) or as `body_base64`. Where the text was in UTF-16, `body_encoding` says in
/// which form, so that [`SendLine`] makes the same bytes of it.
#[derive(Debug)]
pub struct MessageLine<'a>(pub &'a Message);

impl Serialize for MessageLine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let message = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("status", &message.status)?;
        map.serialize_entry("priority", &message.priority)?;
        map.serialize_entry("queuing_order", &message.queuing_order)?;
        map.serialize_entry("conversation_group_id", &message.conversation_group_id)?;
        map.serialize_entry("conversation_handle", &message.conversation_handle)?;
        map.serialize_entry("message_sequence_number", &message.message_sequence_number)?;
        map.serialize_entry("service_name", &message.service_name)?;
        map.serialize_entry("service_contract_name", &message.service_contract_name)?;
        map.serialize_entry("message_type_name", &message.message_type_name)?;
        map.serialize_entry("validation", message.validation.letter())?;
        map.serialize_entry("message_id", &message.message_id)?;
        map.serialize_entry("message_enqueue_time", &message.message_enqueue_time.to_string())?;
        if let Some(trace) = &message.trace {
            map.serialize_entry("trace", trace)?;
        }
        match BodyText::of(message.message_body.as_deref()) {
            BodyText::Absent => map.serialize_entry("body", &())?,
            BodyText::Text(text) => map.serialize_entry("body", text)?,
            BodyText::Utf16(text, form) => {
                map.serialize_entry("body", &text)?;
                map.serialize_entry("body_encoding", &form)?;
            }
            BodyText::Binary(bytes) => map.serialize_entry("body_base64", &to_base64(bytes))?,
        }
        map.end()
    }
}

/// One message to send, read from a line of JSON.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SendLine {
    /// `type`: the message type; `None` if the line names none.
    pub message_type: Option<String>,
    /// `body` (a string is sent as its text in UTF-8, or in the UTF-16 that `body_encoding` names; any other value as its
    /// JSON text as written) or `body_base64`.
    pub body: Option<Vec<u8>>,
    /// `conversation`: the handle to send on; `None` if the line names none.
    pub conversation: Option<ConversationHandle>,
    /// `end`: whether this side ends the conversation after the message.
    pub end: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawLine {
    #[serde(rename = "type")]
    message_type: Option<String>,
    body: Option<Box<RawValue>>,
    body_encoding: Option<Utf16>,
    body_base64: Option<String>,
    conversation: Option<String>,
    #[serde(default)]
    end: bool,
}

impl SendLine {
    /// Reads one line.
    ///
    /// # Errors
    /// 60028 says what is wrong with it.
    pub fn parse(line: &str) -> Result<Self> {
        let raw: RawLine = object(line).map_err(|why| bad_line(shorten(&why)))?;
        if raw.body_encoding.is_some() && raw.body.is_none() {
            return Err(bad_line(
                "body_encoding goes with a body that is a string; bytes of body_base64 are sent as they are".into(),
            ));
        }
        let body = match (raw.body, raw.body_base64) {
            (Some(_), Some(_)) => return Err(bad_line("it has both body and body_base64; give one of them".into())),
            (Some(body), None) => bytes_of(&body, raw.body_encoding)?,
            (None, Some(encoded)) => {
                let decoded = STANDARD.decode(encoded.as_bytes());
                Some(decoded.map_err(|error| bad_line(format!("body_base64 is not base64: {error}")))?)
            }
            (None, None) => None,
        };
        let conversation = raw.conversation.map(|text| parse_handle(&text)).transpose()?;
        Ok(Self { message_type: raw.message_type, body, conversation, end: raw.end })
    }
}

fn bytes_of(body: &RawValue, encoding: Option<Utf16>) -> Result<Option<Vec<u8>>> {
    match body.get() {
        "null" => Ok(None),
        text if text.starts_with('"') => {
            let text: String = serde_json::from_str(text).map_err(|error| bad_line(fault(&error)))?;
            Ok(Some(encoding.map_or_else(|| text.as_bytes().to_vec(), |encoding| encoding.encode(&text))))
        }
        _ if encoding.is_some() => Err(bad_line("body_encoding goes with a body that is a string".into())),
        json => Ok(Some(json.as_bytes().to_vec())),
    }
}

/// Reads an object of JSON. `serde` would take a list of its values too, in an order that no page names.
///
/// # Errors
/// The fault.
pub fn object<'l, T: Deserialize<'l>>(json: &'l str) -> Result<T, String> {
    match json.trim_start_matches([' ', '\t', '\r', '\n']) {
        // The end of the line would count as a second line.
        text if text.is_empty() || text.starts_with('{') => {
            serde_json::from_str(json.trim_end_matches(['\r', '\n'])).map_err(|error| fault(&error))
        }
        _ => Err("it is no JSON object".to_owned()),
    }
}

/// What is wrong with a text of one line. Its own line is always the first; the reader is given the line of the input.
fn fault(error: &serde_json::Error) -> String {
    error.to_string().replace(" at line 1 column ", " at column ")
}

/// Reads a conversation handle.
///
/// # Errors
/// 60028 if it is not a UUID.
pub fn parse_handle(text: &str) -> Result<ConversationHandle> {
    text.parse().map_err(|_| {
        let shown: String = text.chars().take(80).collect();
        bad_line(format!(
            "'{shown}' is not a conversation handle; it must be a UUID such as 01890a5d-ac96-774b-bcce-b302099a8057"
        ))
    })
}

/// The beginning and the end of a message that may repeat what a stranger wrote.
fn shorten(text: &str) -> String {
    let length = text.chars().count();
    if length <= 400 {
        return text.to_owned();
    }
    let part = |skip: usize, take: usize| text.chars().skip(skip).take(take).collect::<String>();
    format!("{} ... {}", part(0, 200), part(length - 200, 200))
}

fn bad_line(why: String) -> Error {
    Error::new(Code::BAD_INPUT, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> Option<String> {
        match BodyText::of(Some(bytes)) {
            BodyText::Text(text) => Some(text.to_owned()),
            BodyText::Utf16(text, _) => Some(text),
            BodyText::Absent | BodyText::Binary(_) => None,
        }
    }

    #[test]
    fn bodies_are_text_where_they_can_be() {
        let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        assert_eq!(BodyText::of(None), BodyText::Absent);
        assert_eq!(BodyText::of(Some(b"")), BodyText::Absent);
        assert_eq!(text("grün 🚚".as_bytes()).as_deref(), Some("grün 🚚"));
        assert_eq!(text(&utf16("<a>grün 🚚</a>")).as_deref(), Some("<a>grün 🚚</a>"));
        assert_eq!(text(&utf16("\u{feff}中文")).as_deref(), Some("中文"));
        assert_eq!(text(&utf16("a")).as_deref(), Some("a"));
        for binary in [&b"\xff\x00\xfe"[..], b"\0\0\0\0", b"a\0b", b"\x80\x81\x82\x83", b"\xff\xfe\x00\xd8"] {
            assert_eq!(BodyText::of(Some(binary)), BodyText::Binary(binary), "{binary:?}");
        }
    }

    fn message(body: &[u8]) -> Message {
        let name: std::sync::Arc<str> = "n".into();
        Message {
            status: 1,
            priority: 5,
            queuing_order: 1,
            conversation_group_id: crate::id::GroupId(uuid::Uuid::nil()),
            conversation_handle: ConversationHandle(uuid::Uuid::nil()),
            message_sequence_number: 0,
            service_name: name.clone(),
            service_id: 1,
            service_contract_name: name.clone(),
            service_contract_id: 1,
            message_type_name: name,
            message_type_id: 1,
            validation: crate::protocol::MessageValidation::N,
            message_body: Some(body.to_vec()),
            message_id: crate::id::MessageId(uuid::Uuid::nil()),
            message_enqueue_time: crate::time::Timestamp(0),
            trace: None,
        }
    }

    fn sent_again(bytes: &[u8]) -> Option<Vec<u8>> {
        let message = message(bytes);
        let line = serde_json::to_value(MessageLine(&message)).unwrap();
        let mut again = serde_json::Map::new();
        for key in ["body", "body_encoding", "body_base64"] {
            again.extend(line.get(key).map(|value| (key.to_owned(), value.clone())));
        }
        SendLine::parse(&serde_json::Value::Object(again).to_string()).unwrap().body
    }

    #[test]
    fn bytes_come_back_as_they_were() {
        for bytes in [
            &b"A\0B\0"[..],
            b"\xef\xbb\xbfmark",
            b"\xff\xfea\0",
            b"\xfe\xff\0a",
            b"\xff\xfe",
            b"\xff\xfe\xff\xfea\0",
            b"\xff\xfea",
            b"a\0b",
            b"null",
            b"\x01\x1f\x7f\\\"",
        ] {
            assert_eq!(sent_again(bytes).as_deref(), Some(bytes), "{bytes:?}");
        }
        for body in [r#""body":{}"#, r#""body":null"#, r#""body_base64":"eA==""#, r#""end":true"#] {
            let error = SendLine::parse(&format!(r#"{{{body},"body_encoding":"utf-16le"}}"#)).expect_err(body);
            assert!(error.message().contains("a body that is a string"), "{body}: {error}");
        }
        assert!(SendLine::parse(r#"{"body":"x","body_encoding":"utf-32"}"#).is_err());
        // The reader adds the number of the line.
        let broken = SendLine::parse("{\"body\":\n").unwrap_err();
        assert!(!broken.message().contains("line 2"), "{broken}");
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_come_back_as_they_were(bytes in proptest::collection::vec(proptest::num::u8::ANY, 1..40)) {
            proptest::prop_assert_eq!(sent_again(&bytes), Some(bytes));
        }

        #[test]
        fn any_text_of_utf_16_comes_back_as_it_was(text in ".{1,20}", form in 0..3_usize) {
            let bytes = [Utf16::Little, Utf16::MarkedLittle, Utf16::MarkedBig][form].encode(&text);
            proptest::prop_assert_eq!(sent_again(&bytes), Some(bytes));
        }
    }

    #[test]
    fn a_line_names_type_body_and_conversation() {
        let parse = |line: &str| SendLine::parse(line).unwrap();
        assert_eq!(parse(r#"{"type":"//t","body":"a\"ü"}"#).body.unwrap(), "a\"ü".as_bytes());
        let line = parse(r#"{"body": {"b": 1.50, "a":[]}, "end": true}"#);
        assert_eq!(line.body.unwrap(), br#"{"b": 1.50, "a":[]}"#, "as written");
        assert!(line.end);
        assert_eq!(line.message_type, None);
        assert_eq!(parse(r#"{"body_base64":"AP8="}"#).body.unwrap(), [0, 255]);
        assert_eq!(parse(r#"{"body":null}"#).body, None);
        assert_eq!(parse("{}").body, None);
        let handle = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert_eq!(parse(&format!(r#"{{"conversation":"{handle}"}}"#)).conversation.unwrap().to_string(), handle);
    }

    #[test]
    fn a_bad_line_is_reported() {
        for (line, part) in [
            ("", "EOF"),
            ("[]", "no JSON object"),
            (r#"["//t",{"a":1},null,null,null,true]"#, "no JSON object"),
            ("5", "no JSON object"),
            (r#"{"typo":"x"}"#, "typo"),
            (r#"{"body":"x","body_base64":"eA=="}"#, "both"),
            (r#"{"body_base64":"*"}"#, "base64"),
            (r#"{"conversation":"x"}"#, "'x'"),
            (r#"{"body":"x"}{}"#, "trailing"),
        ] {
            let error = SendLine::parse(line).expect_err(line);
            assert_eq!(error.code(), Code::BAD_INPUT);
            assert!(error.message().contains(part), "{error}");
        }
    }
}
