//! Bounds on the markup of an XML body, and the rules for names with a namespace, checked in one pass before it is parsed.
//!
//! The parser splits a name at its first colon and looks at the prefix only.
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
            [b'<', b'?', ..] => {
                let end = after(bytes, start + 2, b"?>");
                check_target(name_in(bytes, start + 2, end), start)?;
                end
            }
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
    check_name(name_in(bytes, start + 1, bytes.len()), start, false)?;
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
                let name = name_in(bytes, word, at);
                let is_namespace = name.starts_with(b"xmlns");
                check_name(name, word, is_namespace)?;
                let value = at + 1;
                at = value_end(bytes, value);
                if name.starts_with(b"xmlns:") && [&b"\"\""[..], b"''"].contains(&bytes[value..at].trim_ascii()) {
                    let name = String::from_utf8_lossy(name);
                    return Err(format!("'{name}' at byte {word} declares a prefix without a namespace"));
                }
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

/// The name that begins there, up to its end or to `end`.
fn name_in(bytes: &[u8], from: usize, end: usize) -> &[u8] {
    let rest = bytes.get(from..end).unwrap_or_default();
    let is_end = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b'/' | b'>' | b'=' | b'?' | b'<');
    &rest[..rest.iter().position(is_end).unwrap_or(rest.len())]
}

/// Refuses a name that the rules for namespaces refuse and the parser takes: it may have one colon, between a prefix and a
/// local part that could be names of their own.
fn check_name(name: &[u8], at: usize, is_namespace: bool) -> Result<(), String> {
    let Some(colon) = name.iter().position(|byte| *byte == b':') else { return Ok(()) };
    let (prefix, local) = (&name[..colon], &name[colon + 1..]);
    let local = std::str::from_utf8(local).unwrap_or_default();
    let is_right = !prefix.is_empty()
        && (prefix != b"xmlns" || is_namespace)
        && local.starts_with(begins_name)
        && !local.contains(':');
    if is_right {
        return Ok(());
    }
    let name = String::from_utf8_lossy(name);
    Err(format!("'{name}' at byte {at} is no name with a namespace: one colon may stand in it, between two names"))
}

/// Refuses the target of an instruction that has a colon.
fn check_target(target: &[u8], at: usize) -> Result<(), String> {
    if !target.contains(&b':') {
        return Ok(());
    }
    let target = String::from_utf8_lossy(target);
    Err(format!("the target '{target}' of the instruction at byte {at} has a colon, which namespaces forbid"))
}

/// Whether a name may begin with it, but for the colon.
fn begins_name(first: char) -> bool {
    matches!(first,
        'A'..='Z' | '_' | 'a'..='z' | '\u{C0}'..='\u{D6}' | '\u{D8}'..='\u{F6}' | '\u{F8}'..='\u{2FF}'
        | '\u{370}'..='\u{37D}' | '\u{37F}'..='\u{1FFF}' | '\u{200C}'..='\u{200D}' | '\u{2070}'..='\u{218F}'
        | '\u{2C00}'..='\u{2FEF}' | '\u{3001}'..='\u{D7FF}' | '\u{F900}'..='\u{FDCF}' | '\u{FDF0}'..='\u{FFFD}'
        | '\u{10000}'..='\u{EFFFF}')
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
    fn names_keep_to_the_rules_for_namespaces() {
        for right in [
            "<p:a xmlns:p='u' p:b='' p:c = ''/>",
            "<a xmlns:p='u'><p:_ p:\u{e9}\u{301}-1.x = ''/></a>",
            "<a xmlns='' xmlns:p=\"'\" xml:lang='en'/>",
            "<a b=':' c='x:y:z'>:<!-- :a:b --><![CDATA[<:a:b>]]><?p :a ?></a>",
            "<a xmlnsb=''/>",
        ] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for (wrong, why) in [
            ("<a:b:c xmlns:a='u'/>", "'a:b:c' at byte 0"),
            ("<:a/>", "':a'"),
            ("<a:/>", "'a:'"),
            ("<a:>", "'a:'"),
            ("<:/>", "':'"),
            ("<a xmlns:p='u' p:='1'/>", "'p:' at byte 15"),
            ("<a :b = '1'/>", "':b' at byte 3"),
            ("<a xmlns:p='u' p:q:r='1'/>", "'p:q:r'"),
            ("<a xmlns:p='u'><p:1/></a>", "'p:1'"),
            ("<a xmlns:p='u'><p:-b/></a>", "'p:-b'"),
            ("<a xmlns:p='u'><p:\u{301}/></a>", "'p:\u{301}'"),
            ("<xmlns:a/>", "'xmlns:a'"),
            ("<a xmlns:='u'/>", "'xmlns:'"),
            ("<a xmlns:p:q='u'/>", "'xmlns:p:q'"),
            ("<a xmlns:p=''/>", "declares a prefix without a namespace"),
            ("<a xmlns:p = \"\"/>", "declares a prefix without a namespace"),
            ("<?a:b c?><a/>", "target 'a:b'"),
            ("<a><?a:b?></a>", "target 'a:b'"),
        ] {
            let found = check(wrong).unwrap_err();
            assert!(found.contains(why), "{wrong}: {found}");
        }
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
