//! Bounds on the markup of an XML body, checked in one pass before it is parsed.
//!
//! The parser compares each attribute of an element with all before it, and searches all namespaces in scope for a
//! prefix. 120,000 attributes on one element took it 20 seconds; with these bounds its time is linear in the size.

use super::xml::MAX_DEPTH;

/// Attributes of one element, namespace declarations included: as many as a table of SQL Server has columns.
pub(super) const MAX_ATTRIBUTES: usize = 1024;
/// Namespace declarations in scope at one place.
pub(super) const MAX_NAMESPACES: usize = 128;
/// Bytes of a namespace name.
pub(super) const MAX_NAMESPACE_BYTES: usize = 1024;

/// The most bytes of memory that an element, comment, section or instruction takes in a tree and in its copy, with the
/// report of a fault; likewise for a text between two of them, and for an attribute. Measured with `uppsala` 0.12.
const ELEMENT_MEMORY: u64 = 600;
const TEXT_MEMORY: u64 = 500;
const ATTRIBUTE_MEMORY: u64 = 250;

/// Refuses markup beyond the bounds. Where the markup is malformed the pass ends early, as the parser will. Returns
/// about how many bytes of memory a tree of the text takes.
pub(super) fn check(text: &str) -> Result<u64, String> {
    let bytes = text.as_bytes();
    let mut memory = 0;
    // The namespaces in scope before each open element.
    let mut open: Vec<usize> = Vec::new();
    let mut in_scope = 0;
    let mut at = 0;
    while let Some(start) = find(bytes, at, b"<") {
        memory += if start > at { TEXT_MEMORY } else { 0 };
        if bytes.get(start + 1) != Some(&b'/') {
            memory += ELEMENT_MEMORY;
        }
        at = match &bytes[start..] {
            [b'<', b'!', b'-', b'-', ..] => after(bytes, start + 4, b"-->"),
            [b'<', b'!', b'[', ..] => after(bytes, start + 3, b"]]>"),
            [b'<', b'?', ..] => after(bytes, start + 2, b"?>"),
            [b'<', b'/', ..] => {
                in_scope = open.pop().unwrap_or(0);
                after(bytes, start + 2, b">")
            }
            // A document type, which the parser refuses.
            [b'<', b'!', ..] | [] => return Ok(memory),
            _ => {
                let tag = start_tag(bytes, start, in_scope)?;
                memory += ATTRIBUTE_MEMORY * tag.attributes as u64;
                if !tag.is_empty_element {
                    if open.len() >= MAX_DEPTH as usize {
                        return Ok(memory);
                    }
                    open.push(in_scope);
                    in_scope += tag.namespaces;
                }
                tag.end
            }
        };
    }
    Ok(memory)
}

struct Tag {
    end: usize,
    attributes: usize,
    namespaces: usize,
    is_empty_element: bool,
}

/// Reads a start tag up to its `>`, or to where the parser would stop.
fn start_tag(bytes: &[u8], start: usize, in_scope: usize) -> Result<Tag, String> {
    let (mut attributes, mut namespaces) = (0, 0);
    let mut at = start + 1;
    let mut word = at;
    while let Some(&byte) = bytes.get(at) {
        match byte {
            b'>' => return Ok(Tag { end: at + 1, attributes, namespaces, is_empty_element: bytes[at - 1] == b'/' }),
            b'<' => break,
            b' ' | b'\t' | b'\r' | b'\n' => {
                at = bytes.len() - bytes[at..].trim_ascii_start().len();
                // Space may stand between a name and its equals sign.
                if bytes.get(at) != Some(&b'=') {
                    word = at;
                }
            }
            b'=' => {
                attributes += 1;
                if attributes > MAX_ATTRIBUTES {
                    return Err(format!(
                        "the element at byte {start} has more than {MAX_ATTRIBUTES} attributes, the most that are checked"
                    ));
                }
                let is_namespace = bytes[word..at].starts_with(b"xmlns");
                at = value_end(bytes, at + 1);
                if is_namespace {
                    namespaces += 1;
                    if in_scope + namespaces > MAX_NAMESPACES {
                        return Err(format!(
                            "more than {MAX_NAMESPACES} namespaces are declared around byte {start}, the most that are checked"
                        ));
                    }
                    if at - word > MAX_NAMESPACE_BYTES {
                        return Err(format!(
                            "the namespace declared at byte {word} is longer than {MAX_NAMESPACE_BYTES} bytes, the most \
                             that are checked"
                        ));
                    }
                }
                word = at;
            }
            _ => at += 1,
        }
    }
    Ok(Tag { end: at.min(bytes.len()), attributes, namespaces, is_empty_element: true })
}

/// Behind the quoted value that begins at or after `at`; `at` if there is none.
fn value_end(bytes: &[u8], at: usize) -> usize {
    let rest = bytes[at..].trim_ascii_start();
    let begin = bytes.len() - rest.len();
    match rest.first() {
        Some(quote @ (b'"' | b'\'')) => after(bytes, begin + 1, std::slice::from_ref(quote)),
        _ => at,
    }
}

/// Behind the next occurrence; the end if there is none.
fn after(bytes: &[u8], from: usize, wanted: &[u8]) -> usize {
    find(bytes, from, wanted).map_or(bytes.len(), |found| found + wanted.len())
}

fn find(bytes: &[u8], from: usize, wanted: &[u8]) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let found = match wanted {
        [byte] => rest.iter().position(|other| other == byte),
        _ => rest.windows(wanted.len()).position(|window| window == wanted),
    };
    found.map(|found| from + found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<(), String> {
        super::check(text).map(drop)
    }

    #[test]
    fn a_tree_takes_memory_for_each_of_its_nodes_and_attributes() {
        let memory = |text: &str| super::check(text).unwrap();
        let of = |elements: u64, texts: u64, attributes: u64| {
            elements * ELEMENT_MEMORY + texts * TEXT_MEMORY + attributes * ATTRIBUTE_MEMORY
        };
        assert_eq!(memory("<a/>"), of(1, 0, 0));
        assert_eq!(memory("<a></a>"), of(1, 0, 0));
        assert_eq!(memory("<a>x</a>"), of(1, 1, 0));
        assert_eq!(memory("<a b='' c=\"=\"> <d e=''/> </a>"), of(2, 2, 3));
        assert_eq!(memory("<a><!-- < --><![CDATA[<]]><?p <?></a>"), of(4, 0, 0));
    }

    fn attributes(count: usize) -> String {
        (0..count).map(|number| format!(" a{number}=''")).collect()
    }

    #[test]
    fn attributes_are_bounded_for_each_element() {
        let most = attributes(MAX_ATTRIBUTES);
        assert_eq!(check(&format!("<a{most}/>")), Ok(()));
        assert_eq!(check(&format!("<a{most}><b{most}>=</b><!-- = --><![CDATA[<x = = ]]><?p = ?></a>")), Ok(()));
        let more = attributes(MAX_ATTRIBUTES + 1);
        for text in [format!("<a{more}/>"), format!("<a{more}"), format!("<a><b{most}/><c {more}></c></a>")] {
            assert!(check(&text).unwrap_err().contains("1024 attributes"), "{}", &text[..20]);
        }
        let spaced = more.replace('=', " = ").replace('\'', "\"");
        assert!(check(&format!("<a{spaced}/>")).is_err());
    }

    #[test]
    fn comments_and_sections_are_skipped_to_their_end() {
        let more = attributes(MAX_ATTRIBUTES + 1);
        for skipped in [
            "<!-- - -->",
            "<!---->",
            "<![CDATA[]]]>",
            "<?p?>",
            "<b/>",
            "<b></b>",
            "<b c='>' d=\"'\"/>",
            "<b c = '='\n/>",
        ] {
            for count in 1..4 {
                let text = format!("<r>{}<a{more}/></r>", skipped.repeat(count));
                assert!(check(&text).is_err(), "{}", &text[..40]);
                let text = format!("<r>{}<a{}/></r>", skipped.repeat(count), attributes(MAX_ATTRIBUTES));
                assert_eq!(check(&text), Ok(()), "{}", &text[..40]);
            }
        }
        for no_element in ["<?p", "<!--", "<![CDATA["] {
            let text = format!("<r>{no_element}{more}?>-->]]></r>");
            assert_eq!(check(&text), Ok(()), "{no_element}");
        }
        assert_eq!(check(&format!("<!DOCTYPE a><a{more}/>")), Ok(()), "the parser refuses it");
        let deep = "<d>".repeat(MAX_DEPTH as usize - 1);
        assert!(check(&format!("{deep}<a><b{more}/>")).is_err());
        assert_eq!(check(&format!("{deep}<a><d><b{more}/>")), Ok(()), "the parser refuses what nests so deep");
    }

    #[test]
    fn namespaces_in_scope_are_bounded() {
        let declare = |from: usize, count: usize| -> String {
            (from..from + count).map(|number| format!(" xmlns:p{number}='urn:{number}'")).collect()
        };
        let half = MAX_NAMESPACES / 2;
        let (one, other, third) = (declare(0, half), declare(half, half), declare(0, 1));
        assert_eq!(check(&format!("<a{one}><b{other}/><b{other}></b><c{other}/></a><a{one}/>")), Ok(()));
        assert!(check(&format!("<a{one}><b{other}><c{third}/></b></a>")).unwrap_err().contains("128 namespaces"));
        let long = "x".repeat(MAX_NAMESPACE_BYTES);
        assert!(check(&format!("<a xmlns='{long}'/>")).unwrap_err().contains("1024 bytes"));
        assert!(check(&format!("<a b='{long}'/>")).is_ok());
        // The name and its quotes count.
        let longest = "x".repeat(MAX_NAMESPACE_BYTES - "xmlns=''".len());
        assert_eq!(check(&format!("<a b='' xmlns='{longest}'/>")), Ok(()));
        assert!(check(&format!("<a b='' xmlns='{longest}x'/>")).is_err());
    }

    #[test]
    fn malformed_markup_ends_the_pass() {
        for text in [
            "<",
            "<a",
            "<a b",
            "<a b=",
            "<a b='",
            "<a b='>'",
            "<!",
            "<!--",
            "<![CDATA[",
            "<?",
            "</",
            "</>",
            "<a <b c='1'>",
        ] {
            assert_eq!(check(text), Ok(()), "{text}");
        }
    }
}
