//! The system's own message types, contracts and error bodies (`docs/semantics.md`, "System messages").

/// Sent by the broker to the peer of a conversation that was ended.
pub const END_DIALOG: &str = "http://schemas.microsoft.com/SQL/ServiceBroker/EndDialog";
/// Sent by the broker when a conversation breaks or is ended WITH ERROR.
pub const ERROR: &str = "http://schemas.microsoft.com/SQL/ServiceBroker/Error";
/// Queued by the broker when a conversation timer is due.
pub const DIALOG_TIMER: &str = "http://schemas.microsoft.com/SQL/ServiceBroker/DialogTimer";
/// The type of event notifications.
pub const EVENT_NOTIFICATION: &str = "http://schemas.microsoft.com/SQL/Notifications/EventNotification";
/// The contract of event notifications.
pub const POST_EVENT_NOTIFICATION: &str = "http://schemas.microsoft.com/SQL/Notifications/PostEventNotification";
/// The service that event notifications come from.
pub const EVENT_NOTIFICATION_SERVICE: &str = "http://schemas.microsoft.com/SQL/Notifications/EventNotificationService";
/// The built-in message type and the built-in contract.
pub const DEFAULT: &str = "DEFAULT";

/// Id of [`ERROR`].
pub const ERROR_ID: i32 = 1;
/// Id of [`END_DIALOG`].
pub const END_DIALOG_ID: i32 = 2;
/// Id of [`DIALOG_TIMER`].
pub const DIALOG_TIMER_ID: i32 = 3;
/// Id of [`EVENT_NOTIFICATION`].
pub const EVENT_NOTIFICATION_ID: i32 = 4;
/// Id of the message type [`DEFAULT`].
pub const DEFAULT_TYPE_ID: i32 = 14;
/// Id of [`POST_EVENT_NOTIFICATION`].
pub const POST_EVENT_NOTIFICATION_ID: i32 = 1;
/// Id of the contract [`DEFAULT`].
pub const DEFAULT_CONTRACT_ID: i32 = 6;
/// Id of [`EVENT_NOTIFICATION_SERVICE`].
pub const NOTIFICATION_SERVICE_ID: i32 = 1;
/// The queue of the system's services: it has no row, so that no caller can receive from it.
pub const SYSTEM_QUEUE_ID: i32 = 0;
/// User objects have ids from here.
pub const FIRST_USER_ID: i32 = 65536;

/// The namespace of an Error body.
pub const ERROR_NAMESPACE: &str = "http://schemas.microsoft.com/SQL/ServiceBroker/Error";

/// The body of an Error message.
pub fn error_body(code: i32, description: &str) -> Vec<u8> {
    let description = xml_text(description);
    body_of(&format!(
        "<?xml version=\"1.0\"?><Error xmlns=\"{ERROR_NAMESPACE}\"><Code>{code}</Code><Description>{description}</Description></Error>"
    ))
}

/// A body of the system's: UTF-16LE with a byte-order mark.
pub(crate) fn body_of(xml: &str) -> Vec<u8> {
    std::iter::once(0xFEFF).chain(xml.encode_utf16()).flat_map(u16::to_le_bytes).collect()
}

/// Text between tags.
pub(crate) fn xml_text(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            // A reader of XML takes one that is not escaped for the end of a line, `\n`.
            '\r' => escaped.push_str("&#x0D;"),
            // XML 1.0 has no way to write the other control characters.
            control if control.is_control() && !matches!(control, '\t' | '\n') => escaped.push('\u{fffd}'),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The code and description of an Error body; `None` if it is not one.
pub fn parse_error_body(body: &[u8]) -> Option<(i32, String)> {
    let units: Vec<u16> = body.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]])).collect();
    let text = String::from_utf16(&units).ok()?;
    let document = uppsala::parse(text.trim_start_matches('\u{feff}')).ok()?;
    let named = |node, name: &str| {
        document.element(node).is_some_and(|element| {
            element.name.local_name == name && element.name.namespace_uri.as_deref() == Some(ERROR_NAMESPACE)
        })
    };
    let root = document.document_element().filter(|&root| named(root, "Error"))?;
    let child = |name| document.children(root).into_iter().find(|&node| named(node, name));
    let code = document.text_content_deep(child("Code")?).trim().parse().ok()?;
    let description = child("Description").map(|node| document.text_content_deep(node)).unwrap_or_default();
    Some((code, description))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_bodies_come_back_whatever_the_description() {
        for description in ["x", "a < b & c > d", "ünï 🚚", "", "tab\tline\nend", "\r\nline\r", "&#x0D;"] {
            let body = error_body(42, description);
            assert_eq!(&body[..2], [0xFF, 0xFE], "a little-endian byte-order mark comes first");
            assert_eq!(parse_error_body(&body), Some((42, description.to_owned())));
        }
        assert_eq!(parse_error_body(b"not an error"), None);
    }
}
