//! Messages as an application sees them: typed bodies, received messages, errors of the peer.

use crate::error::{Code, Error, Result};
use crate::id::{ConversationHandle, GroupId};
use crate::protocol::definition::Validation;
use crate::protocol::{Body, Message, system};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

/// A message type with the Rust type of its bodies. A `const` of it is the whole declaration:
///
/// ```
/// use dialoq::MessageType;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct PlaceOrder { sku: String, pieces: u32 }
///
/// const PLACE_ORDER: MessageType<PlaceOrder> = MessageType::json("//shop/PlaceOrder");
/// ```
pub struct MessageType<T> {
    name: &'static str,
    check: Check,
    encode: fn(&T) -> Result<Body>,
    decode: fn(&Message) -> Result<T>,
}

#[derive(Debug, Clone, Copy)]
enum Check {
    None,
    Empty,
    Json,
    JsonSchema(&'static str),
    WellFormedXml,
    ValidXml(&'static str),
}

impl<T> Clone for MessageType<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for MessageType<T> {}

impl<T> fmt::Debug for MessageType<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageType").field("name", &self.name).field("check", &self.check).finish_non_exhaustive()
    }
}

impl<T: Serialize + DeserializeOwned> MessageType<T> {
    /// Bodies are JSON texts; declared with `VALIDATION = JSON`.
    pub const fn json(name: &'static str) -> Self {
        Self { name, check: Check::Json, encode: encode_json::<T>, decode: decode_json::<T> }
    }

    /// The same, declared with `VALIDATION = JSON SCHEMA '...'`: bodies are checked where they arrive.
    pub const fn json_schema(self, schema: &'static str) -> Self {
        Self { check: Check::JsonSchema(schema), ..self }
    }
}

impl MessageType<Vec<u8>> {
    /// Bodies are any bytes; declared with `VALIDATION = NONE`.
    pub const fn raw(name: &'static str) -> Self {
        Self {
            name,
            check: Check::None,
            encode: |bytes| Ok(bytes_body(bytes)),
            decode: |message| Ok(message.body().to_vec()),
        }
    }
}

impl MessageType<String> {
    /// Bodies are UTF-8 texts; declared with `VALIDATION = NONE`.
    pub const fn text(name: &'static str) -> Self {
        Self {
            name,
            check: Check::None,
            encode: |text| Ok(bytes_body(text.as_bytes())),
            decode: |message| message.text().map(Cow::into_owned),
        }
    }

    /// Bodies are XML texts; declared with `VALIDATION = WELL_FORMED_XML`.
    pub const fn xml(name: &'static str) -> Self {
        Self { check: Check::WellFormedXml, ..Self::text(name) }
    }

    /// XML again, declared with `VALIDATION = VALID_XML WITH SCHEMA COLLECTION ...`.
    pub const fn valid_xml(self, schema_collection: &'static str) -> Self {
        Self { check: Check::ValidXml(schema_collection), ..self }
    }
}

impl MessageType<()> {
    /// No body at all; declared with `VALIDATION = EMPTY`.
    pub const fn empty(name: &'static str) -> Self {
        Self { name, check: Check::Empty, encode: |()| Ok(None), decode: decode_empty }
    }
}

impl<T> MessageType<T> {
    /// The name, compared byte by byte.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The body of a value.
    ///
    /// # Errors
    /// 60027 if the value cannot be written in this form.
    pub fn encode(&self, value: &T) -> Result<Body> {
        (self.encode)(value)
    }
}

pub(crate) fn bytes_body(bytes: &[u8]) -> Body {
    (!bytes.is_empty()).then(|| Arc::new(bytes.to_vec()))
}

pub(crate) fn encode_json<T: Serialize>(value: &T) -> Result<Body> {
    serde_json::to_vec(value).map(|bytes| Some(Arc::new(bytes))).map_err(|cause| {
        Error::new(
            Code::BODY_UNENCODABLE,
            format!("a value of {} cannot be written as JSON: {cause}", std::any::type_name::<T>()),
        )
        .caused_by(cause)
    })
}

fn decode_json<T: DeserializeOwned>(message: &Message) -> Result<T> {
    serde_json::from_slice(message.body())
        .map_err(|cause| undecodable(message, std::any::type_name::<T>(), &cause).caused_by(cause))
}

fn decode_empty(message: &Message) -> Result<()> {
    match message.body() {
        [] => Ok(()),
        body => Err(undecodable(message, "()", &format!("it has {} bytes", body.len()))),
    }
}

fn undecodable(message: &Message, wanted: &str, why: &dyn fmt::Display) -> Error {
    Error::new(
        Code::BODY_UNDECODABLE,
        format!(
            "the body of message {} of type '{}' does not decode as {wanted}: {why}",
            message.message_id, message.message_type_name
        ),
    )
}

/// The name of a message type in a definition: a [`MessageType`], or a plain name (declared with `VALIDATION = NONE`).
pub trait DeclaresType {
    /// The name.
    fn type_name(&self) -> &str;

    /// The validation it is declared with.
    fn validation(&self) -> Validation {
        Validation::None
    }
}

impl<T> DeclaresType for MessageType<T> {
    fn type_name(&self) -> &str {
        self.name
    }

    fn validation(&self) -> Validation {
        match self.check {
            Check::None => Validation::None,
            Check::Empty => Validation::Empty,
            Check::Json => Validation::Json,
            Check::JsonSchema(schema) => Validation::JsonSchema { schema: schema.to_owned() },
            Check::WellFormedXml => Validation::WellFormedXml,
            Check::ValidXml(collection) => Validation::ValidXml { schema_collection: collection.to_owned() },
        }
    }
}

impl DeclaresType for &str {
    fn type_name(&self) -> &str {
        self
    }
}

impl DeclaresType for String {
    fn type_name(&self) -> &str {
        self
    }
}

impl DeclaresType for &String {
    fn type_name(&self) -> &str {
        self
    }
}

/// A message type for bodies of `V`: a [`MessageType`] with its own Rust type, or a plain name with
/// anything that is bytes.
pub trait SendsAs<V: ?Sized>: DeclaresType {
    /// The body of a value.
    ///
    /// # Errors
    /// 60027 if the value cannot be written in this form.
    fn body(&self, value: &V) -> Result<Body>;
}

impl<T> SendsAs<T> for MessageType<T> {
    fn body(&self, value: &T) -> Result<Body> {
        self.encode(value)
    }
}

impl SendsAs<[u8]> for MessageType<Vec<u8>> {
    fn body(&self, value: &[u8]) -> Result<Body> {
        self.encode(&value.to_vec())
    }
}

impl SendsAs<str> for MessageType<String> {
    fn body(&self, value: &str) -> Result<Body> {
        self.encode(&value.to_owned())
    }
}

impl<V: AsRef<[u8]> + ?Sized> SendsAs<V> for &str {
    fn body(&self, value: &V) -> Result<Body> {
        Ok(bytes_body(value.as_ref()))
    }
}

impl<V: AsRef<[u8]> + ?Sized> SendsAs<V> for String {
    fn body(&self, value: &V) -> Result<Body> {
        Ok(bytes_body(value.as_ref()))
    }
}

impl<V: AsRef<[u8]> + ?Sized> SendsAs<V> for &String {
    fn body(&self, value: &V) -> Result<Body> {
        Ok(bytes_body(value.as_ref()))
    }
}

/// Why a conversation broke: the content of an Error message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerError {
    /// Above zero: the number in the peer's END WITH ERROR. Below: the broker's own, as minus its number.
    pub code: i32,
    /// The description from the peer or the broker.
    pub description: String,
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.description)
    }
}

impl Message {
    /// Whether it is of this type, given as a [`MessageType`] or a name.
    pub fn is(&self, message_type: impl DeclaresType) -> bool {
        &*self.message_type_name == message_type.type_name()
    }

    /// The body as the Rust type of that message type.
    ///
    /// # Errors
    /// 60021 if the message is of another type, or its body does not decode.
    pub fn decode<T>(&self, message_type: MessageType<T>) -> Result<T> {
        if !self.is(message_type) {
            let why = format!("it is not a '{}'", message_type.name);
            return Err(undecodable(self, std::any::type_name::<T>(), &why));
        }
        (message_type.decode)(self)
    }

    /// The body as JSON of any type, of any message type.
    ///
    /// # Errors
    /// 60021 if it does not decode.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T> {
        decode_json(self)
    }

    /// The bytes of the body; none if there is no body.
    pub fn body(&self) -> &[u8] {
        self.message_body.as_deref().unwrap_or_default()
    }

    /// The body as text: UTF-8, or UTF-16 after a little-endian byte-order mark.
    ///
    /// # Errors
    /// 60021 if it is neither.
    pub fn text(&self) -> Result<Cow<'_, str>> {
        if let [0xFF, 0xFE, rest @ ..] = self.body() {
            let units: Vec<u16> =
                rest.chunks(2).map(|pair| u16::from_le_bytes([pair[0], *pair.get(1).unwrap_or(&0xD8)])).collect();
            let text = String::from_utf16(&units).ok().filter(|_| rest.len().is_multiple_of(2));
            return text.map(Cow::Owned).ok_or_else(|| undecodable(self, "text", &"it is not UTF-16"));
        }
        std::str::from_utf8(self.body()).map(Cow::Borrowed).map_err(|cause| undecodable(self, "text", &cause))
    }

    /// Whether the peer has ended the conversation: answer with END.
    pub fn is_end_dialog(&self) -> bool {
        self.message_type_id == system::END_DIALOG_ID
    }

    /// Whether the conversation broke: see [`Message::error`], answer with END.
    pub fn is_error(&self) -> bool {
        self.message_type_id == system::ERROR_ID
    }

    /// Whether a conversation timer fired.
    pub fn is_dialog_timer(&self) -> bool {
        self.message_type_id == system::DIALOG_TIMER_ID
    }

    /// Why the conversation broke, if this is an Error message.
    pub fn error(&self) -> Option<BrokerError> {
        let (code, description) = self.is_error().then(|| system::parse_error_body(self.body()))??;
        Some(BrokerError { code, description })
    }

    /// This side's endpoint, to reply on.
    pub fn handle(&self) -> ConversationHandle {
        self.conversation_handle
    }
}

/// The messages of one RECEIVE: of one conversation group, in order; never empty.
#[derive(Debug, Clone, PartialEq)]
pub struct Batch {
    messages: Vec<Message>,
}

impl Batch {
    /// `None` if there are no messages.
    pub(crate) fn new(messages: Vec<Message>) -> Option<Self> {
        (!messages.is_empty()).then_some(Self { messages })
    }

    /// The group they belong to: the key for the application's own state.
    pub fn group(&self) -> GroupId {
        self.messages[0].conversation_group_id
    }

    /// The messages in order.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// The first message.
    pub fn first(&self) -> &Message {
        &self.messages[0]
    }

    /// The messages in order, taken out.
    pub fn into_messages(self) -> Vec<Message> {
        self.messages
    }

    /// The messages in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Message> {
        self.messages.iter()
    }

    /// How many, at least 1.
    #[expect(clippy::len_without_is_empty, reason = "a batch is never empty")]
    pub fn len(&self) -> usize {
        self.messages.len()
    }
}

impl IntoIterator for Batch {
    type Item = Message;
    type IntoIter = std::vec::IntoIter<Message>;

    fn into_iter(self) -> Self::IntoIter {
        self.messages.into_iter()
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = &'a Message;
    type IntoIter = std::slice::Iter<'a, Message>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::fake::message;
    use serde::Deserialize;
    use uuid::Uuid;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Item {
        sku: String,
        pieces: u32,
    }

    const ITEM: MessageType<Item> = MessageType::json("//shop/Item");
    const CHECKED: MessageType<Item> = MessageType::<Item>::json("//shop/Checked").json_schema(r#"{"type":"object"}"#);
    const BYTES: MessageType<Vec<u8>> = MessageType::raw("//shop/Bytes");
    const NOTE: MessageType<String> = MessageType::text("//shop/Note");
    const ORDER: MessageType<String> = MessageType::xml("//shop/Order").valid_xml("orders");
    const PING: MessageType<()> = MessageType::empty("//shop/Ping");

    fn received<T>(message_type: MessageType<T>, body: Body) -> Message {
        let mut message = message(GroupId(Uuid::nil()), 5, "");
        message.message_type_name = message_type.name().into();
        message.message_body = body.map(|body| body.to_vec());
        message
    }

    #[test]
    fn a_body_is_decoded_as_the_type_it_was_sent_as() {
        let item = Item { sku: "A-1".into(), pieces: 3 };
        assert_eq!(received(ITEM, ITEM.encode(&item).unwrap()).decode(ITEM).unwrap(), item);
        let bytes = vec![0, 255];
        assert_eq!(received(BYTES, BYTES.encode(&bytes).unwrap()).decode(BYTES).unwrap(), bytes);
        let note = "ünï 🚚".to_owned();
        assert_eq!(received(NOTE, NOTE.encode(&note).unwrap()).decode(NOTE).unwrap(), note);
        assert_eq!(received(NOTE, NOTE.encode(&String::new()).unwrap()).decode(NOTE).unwrap(), "");
        assert_eq!(PING.encode(&()).unwrap(), None);
        received(PING, None).decode(PING).unwrap();
    }

    #[test]
    fn an_undecodable_body_is_refused_with_its_type_and_place() {
        let body = |text: &str| Some(Arc::new(text.as_bytes().to_vec()));
        for error in [
            received(ITEM, body("{}")).decode(ITEM).unwrap_err(),
            received(ITEM, None).decode(ITEM).unwrap_err(),
            received(PING, body("x")).decode(PING).unwrap_err(),
            received(NOTE, Some(Arc::new(vec![0xC3, 0x28]))).decode(NOTE).unwrap_err(),
            received(NOTE, Some(Arc::new(vec![0xFF, 0xFE, 0x41]))).decode(NOTE).unwrap_err(),
            received(NOTE, Some(Arc::new(vec![0xFF, 0xFE, 0x00, 0xD8]))).decode(NOTE).unwrap_err(),
        ] {
            assert_eq!(error.code(), Code::BODY_UNDECODABLE, "{error}");
        }
        let other = received(NOTE, body("hello")).decode(ITEM).unwrap_err();
        assert!(other.message().contains("//shop/Note") && other.message().contains("//shop/Item"), "{other}");
    }

    #[test]
    fn each_form_is_declared_with_its_validation() {
        assert_eq!(ITEM.validation(), Validation::Json);
        assert_eq!(CHECKED.validation(), Validation::JsonSchema { schema: r#"{"type":"object"}"#.into() });
        assert_eq!(BYTES.validation(), Validation::None);
        assert_eq!(NOTE.validation(), Validation::None);
        assert_eq!(ORDER.validation(), Validation::ValidXml { schema_collection: "orders".into() });
        assert_eq!(PING.validation(), Validation::Empty);
        assert_eq!("plain".validation(), Validation::None);
    }

    #[test]
    fn an_error_message_has_its_reason() {
        let mut message = message(GroupId(Uuid::nil()), 5, "");
        assert_eq!((message.is_error(), message.error()), (false, None));
        message.message_type_id = system::ERROR_ID;
        message.message_body = Some(system::error_body(42, "no stock"));
        assert_eq!(message.error(), Some(BrokerError { code: 42, description: "no stock".into() }));
        assert!(message.text().unwrap().contains("<Code>42</Code>"), "its text is UTF-16");
    }
}
