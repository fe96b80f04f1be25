//! The first word of a user's statement, and whether the statement commits by itself.

/// The first word of a statement in capitals, and the text after it.
pub(crate) fn first_word(text: &str) -> (String, &str) {
    let rest = beginning(text);
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    (rest[..end].to_ascii_uppercase(), &rest[end..])
}

/// Whether a statement of PostgreSQL may commit a part of its work and fail then.
pub(crate) fn commits_by_itself(text: &str) -> bool {
    matches!(first_word(text).0.as_str(), "CALL" | "DO")
}

/// Whether a COPY of PostgreSQL, whose first word is cut off, reads rows from its connection or writes them to it: FROM
/// or TO before STDIN or STDOUT, outside quotes and brackets.
#[cfg(feature = "postgres")]
pub(crate) fn copies_through_the_connection(text: &str) -> bool {
    let (mut rest, mut depth, mut is_after_direction) = (beginning(text), 0_usize, false);
    while let Some(first) = rest.chars().next() {
        let is_in_word = |c: char| c.is_alphanumeric() || c == '_';
        let mut word = "";
        rest = match first {
            '\'' | '"' => after_quote(rest, first),
            '$' => after_dollar_quote(rest),
            _ if is_in_word(first) => {
                let end = rest.find(|c| !is_in_word(c) && c != '$').unwrap_or(rest.len());
                word = &rest[..end];
                &rest[end..]
            }
            _ => {
                depth = match first {
                    '(' => depth + 1,
                    ')' => depth.saturating_sub(1),
                    _ => depth,
                };
                &rest[first.len_utf8()..]
            }
        };
        let is = |words: [&str; 2]| depth == 0 && words.iter().any(|known| word.eq_ignore_ascii_case(known));
        if is_after_direction && is(["STDIN", "STDOUT"]) {
            return true;
        }
        is_after_direction = is(["FROM", "TO"]);
        rest = beginning(rest);
    }
    false
}

/// The text after a string or a quoted name; a doubled quote begins another one at once.
#[cfg(feature = "postgres")]
fn after_quote(text: &str, quote: char) -> &str {
    text[1..].split_once(quote).map_or("", |(_, rest)| rest)
}

/// The text after a string in dollar quotes; after the sign if there is none.
#[cfg(feature = "postgres")]
fn after_dollar_quote(text: &str) -> &str {
    let Some((tag, inner)) = text[1..].split_once('$') else { return &text[1..] };
    if !tag.chars().all(|c| c.is_alphanumeric() || c == '_') {
        return &text[1..];
    }
    let end = format!("${tag}$");
    inner.split_once(&*end).map_or("", |(_, rest)| rest)
}

/// The text from its first word on: without comments, which may be nested, and without empty statements.
fn beginning(text: &str) -> &str {
    let mut rest = text;
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ';');
        rest = if let Some(comment) = rest.strip_prefix("--") {
            comment.find(['\n', '\r']).map_or("", |end| &comment[end..])
        } else if rest.starts_with("/*") {
            after_comment(rest)
        } else {
            return rest;
        };
    }
}

fn after_comment(text: &str) -> &str {
    let (mut rest, mut depth) = (text, 0);
    loop {
        if let Some(inner) = rest.strip_prefix("/*") {
            (rest, depth) = (inner, depth + 1);
        } else if let Some(after) = rest.strip_prefix("*/") {
            (rest, depth) = (after, depth - 1);
            if depth == 0 {
                return rest;
            }
        } else {
            let mut characters = rest.chars();
            if characters.next().is_none() {
                return "";
            }
            rest = characters.as_str();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_word_is_found_behind_comments_and_empty_statements() {
        for (text, word, rest) in [
            ("commit", "COMMIT", ""),
            (" -- so\n/* and so */ rollback to x", "ROLLBACK", " to x"),
            ("-- so\rend", "END", ""),
            ("/* a /* b */ c */ COMMIT", "COMMIT", ""),
            (";; /* */ ; abort", "ABORT", ""),
            ("", "", ""),
            ("-- COMMIT", "", ""),
            ("/* COMMIT", "", ""),
            ("/* /* */ COMMIT", "", ""),
            ("(select 'COMMIT')", "", "(select 'COMMIT')"),
        ] {
            assert_eq!(first_word(text), (word.to_owned(), rest), "{text}");
        }
    }
}
