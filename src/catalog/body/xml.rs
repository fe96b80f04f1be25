//! Well-formed XML 1.0 with namespaces, from bytes.
//!
//! Decisions, all in line with the xml type of SQL Server: a document type declaration is refused, so there are no
//! entities to expand and nothing to fetch; elements nest at most [`MAX_DEPTH`] deep; a declared encoding must be the
//! one the bytes are in; attributes and namespaces are [bounded](markup).

use super::weights::{Alike, Parts};
use super::{check_memory, give_way, markup};
use std::borrow::Cow;
use uppsala::{Document, Parser, PullEvent, PullParser, XSI_NAMESPACE};

/// How deep elements may nest; this also keeps the recursion of a validator within a small stack.
pub(super) const MAX_DEPTH: u32 = 128;

/// Whether a body is a well-formed document.
pub(super) fn well_formed(body: &[u8]) -> Result<(), String> {
    let text = decode(body)?;
    markup::check(&text)?;
    let mut parser = PullParser::new(&text).with_max_depth(MAX_DEPTH).with_forbid_dtd(true);
    let mut events = 0;
    while parser.next_event().map_err(|error| error.to_string())?.is_some() {
        count_event(&mut events);
    }
    Ok(())
}

/// Counts an event of a parser, and gives way after some 0.1 ms of them.
fn count_event(events: &mut u32) {
    *events = events.wrapping_add(1);
    if events.is_multiple_of(256) {
        give_way();
    }
}

/// The parts of a document that cost, and the most digits in a row that one of its values has.
pub(super) struct Counted {
    pub(super) parts: Parts,
    pub(super) digits: usize,
    /// Whether an element names its type itself. It may be any type of XML Schema.
    pub(super) has_types: bool,
}

/// Constraints whose rows are counted at one place of a body.
const MOST_ALIKE: usize = 16;

/// Counts the parts of a well-formed document. `constraints` says how many paths the identity constraints of an element of a local name
/// have, and which of them are [`Alike`].
pub(super) fn count<'w>(text: &str, constraints: impl Fn(&str) -> (u64, Vec<&'w Alike>)) -> Result<Counted, String> {
    markup::check(text)?;
    let mut counted =
        Counted { parts: Parts { bytes: text.len() as u64, ..Parts::default() }, digits: 0, has_types: false };
    // The paths of the identity constraints of each open element, and the digits at the end of what was read of its value.
    let mut open: Vec<(u64, usize)> = Vec::new();
    let mut active = 0;
    // Those that are alike, with the depth of their element and the rows so far.
    let mut alike: Vec<(&Alike, usize, u64)> = Vec::new();
    let mut parser = PullParser::new(text).with_max_depth(MAX_DEPTH).with_forbid_dtd(true);
    let mut events = 0;
    while let Some(event) = parser.next_event().map_err(|error| error.to_string())? {
        count_event(&mut events);
        match event {
            PullEvent::StartElement { name, attributes, .. } => {
                alike.iter_mut().for_each(|(of, _, rows)| *rows += u64::from(of.selects(&name.local_name)));
                let (own, own_alike) = constraints(&name.local_name);
                active += own;
                open.push((own, 0));
                let room = MOST_ALIKE.saturating_sub(alike.len());
                alike.extend(own_alike.into_iter().take(room).map(|of| (of, open.len(), 0)));
                counted.parts.elements += 1;
                counted.parts.attributes += attributes.len() as u64;
                counted.parts.found += active;
                for attribute in &attributes {
                    counted.parts.found_bytes += active * attribute.value.len() as u64;
                    counted.has_types |= &*attribute.name.local_name == "type"
                        && attribute.name.namespace_uri.as_deref() == Some(XSI_NAMESPACE);
                    counted.digits = counted.digits.max(digits(&attribute.value, 0).0);
                }
            }
            PullEvent::EndElement { .. } => {
                while let Some((of, _, rows)) = alike.pop_if(|(_, depth, _)| *depth == open.len()) {
                    counted.parts.alike = counted.parts.alike.saturating_add(of.steps(rows));
                }
                active -= open.pop().map_or(0, |(own, _)| own);
            }
            PullEvent::Text { content, .. } | PullEvent::CData { content, .. } => {
                counted.parts.found_bytes += active * content.len() as u64;
                if let Some((_, before)) = open.last_mut() {
                    let (most, last) = digits(&content, *before);
                    *before = last;
                    counted.digits = counted.digits.max(most);
                }
            }
            _ => {}
        }
    }
    Ok(counted)
}

/// The most digits in a row, and those at the end, after so many before it.
fn digits(value: &str, before: usize) -> (usize, usize) {
    value.bytes().fold((before, before), |(most, row), byte| {
        let row = if byte.is_ascii_digit() { row + 1 } else { 0 };
        (most.max(row), row)
    })
}

/// A decoded document as a tree.
pub(super) fn tree(text: &str) -> Result<Document<'_>, String> {
    check_memory(markup::check(text)?)?;
    Parser::new().with_max_depth(MAX_DEPTH).with_forbid_dtd(true).parse(text).map_err(|error| error.to_string())
}

/// The pieces of a text that holds several documents one after the other.
pub(super) fn split_documents(text: &str) -> Result<Vec<&str>, String> {
    markup::check(text)?;
    let mut documents = Vec::new();
    let mut rest = text.trim_start_matches('\u{feff}').trim();
    while !rest.is_empty() {
        let end = document_end(rest)?;
        let (document, next) = rest.split_at(end.unwrap_or(rest.len()));
        if end.is_some() {
            documents.push(document);
        }
        rest = next.trim();
    }
    Ok(documents)
}

/// Where the first document of the text ends: after its root element. `None` if only comments are left.
fn document_end(text: &str) -> Result<Option<usize>, String> {
    let mut parser = PullParser::new(text).with_max_depth(MAX_DEPTH).with_forbid_dtd(true);
    let mut comments_end = 0;
    loop {
        match parser.next_event() {
            Ok(Some(PullEvent::EndElement { depth: 0, byte_end, .. })) => return Ok(Some(byte_end)),
            Ok(Some(PullEvent::Comment { byte_end, .. })) => comments_end = byte_end,
            Ok(Some(_)) => {}
            Ok(None) => return Ok(None),
            Err(_) if text.starts_with("<!--") && text[comments_end..].trim().is_empty() => return Ok(None),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The text of an XML body: UTF-8 or UTF-16 by its byte-order mark, UTF-16 by its first character (nvarchar bodies are
/// UTF-16LE without a mark), else as declared (UTF-8, US-ASCII, ISO-8859-1), else UTF-8.
pub(super) fn decode(body: &[u8]) -> Result<Cow<'_, str>, String> {
    let (text, encoding): (Cow<'_, str>, &str) = match body {
        [0xFF, 0xFE, rest @ ..] => (utf16(rest, u16::from_le_bytes)?, "UTF-16"),
        [0xFE, 0xFF, rest @ ..] => (utf16(rest, u16::from_be_bytes)?, "UTF-16"),
        [0xEF, 0xBB, 0xBF, rest @ ..] => (utf8(rest)?.into(), "UTF-8"),
        [0, second, ..] if is_first_character(*second) => (utf16(body, u16::from_be_bytes)?, "UTF-16"),
        [first, 0, ..] if is_first_character(*first) => (utf16(body, u16::from_le_bytes)?, "UTF-16"),
        _ => match declared_encoding(body) {
            Some(declared) if declared.eq_ignore_ascii_case(b"ISO-8859-1") => {
                return Ok(body.iter().map(|&byte| char::from(byte)).collect());
            }
            _ => (utf8(body)?.into(), "UTF-8"),
        },
    };
    let prefix = &text.as_bytes()[..text.len().min(256)];
    match declared_encoding(prefix) {
        Some(declared) if !is_same_encoding(declared, encoding, body.starts_with(&[0xFE, 0xFF]) || body[0] == 0) => {
            let declared = String::from_utf8_lossy(declared);
            Err(format!("its declaration says encoding '{declared}' but its bytes are {encoding}"))
        }
        _ => Ok(text),
    }
}

fn is_first_character(byte: u8) -> bool {
    matches!(byte, b'<' | b' ' | b'\t' | b'\r' | b'\n')
}

fn is_same_encoding(declared: &[u8], found: &str, is_big_endian: bool) -> bool {
    let same: &[&str] = match found {
        "UTF-16" if is_big_endian => &["UTF-16", "UTF-16BE", "UCS-2", "ISO-10646-UCS-2"],
        "UTF-16" => &["UTF-16", "UTF-16LE", "UCS-2", "ISO-10646-UCS-2"],
        _ => &["UTF-8", "UTF8", "US-ASCII", "ASCII"],
    };
    same.iter().any(|name| declared.eq_ignore_ascii_case(name.as_bytes()))
}

/// The encoding in the XML declaration, read from bytes whose first characters are ASCII; the parser judges its syntax
/// later.
fn declared_encoding(body: &[u8]) -> Option<&[u8]> {
    let rest = body.strip_prefix(b"<?xml")?;
    let declaration = &rest[..rest.iter().position(|&byte| byte == b'>')?];
    let at = declaration.windows(8).position(|window| window == b"encoding")? + 8;
    let value = declaration[at..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    let (&quote, value) = value.split_first()?;
    value.split(|&byte| byte == quote).next()
}

fn utf8(bytes: &[u8]) -> Result<&str, String> {
    std::str::from_utf8(bytes).map_err(|error| format!("it is not UTF-8 from byte {} on", error.valid_up_to()))
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<Cow<'static, str>, String> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    if !rest.is_empty() {
        return Err("it is UTF-16 cut in the middle of a character".into());
    }
    char::decode_utf16(pairs.iter().map(|&pair| unit(pair)))
        .collect::<Result<String, _>>()
        .map(Cow::Owned)
        .map_err(|error| format!("it is UTF-16 with an unpaired surrogate {:#06x}", error.unpaired_surrogate()))
}
