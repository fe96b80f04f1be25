//! What is read from the text of a user's statement: its first word, whether it commits by itself, and its literals.

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

/// Whether every literal of a statement of PostgreSQL means the same at any time and under any settings of a session. The server reads a
/// literal once, when it prepares the statement: `'now'` stays that moment, and `'2026-01-01'` a day of the time zone of that caller.
#[cfg(feature = "postgres")]
pub(crate) fn has_plain_literals(text: &str) -> bool {
    // What a backslash means in a literal is a setting too, and an escaped quote ends no literal.
    if text.contains('\\') {
        return false;
    }
    let is_in_word = |c: char| c.is_alphanumeric() || c == '_' || c == '$';
    let (mut rest, mut literal) = (beginning(text), String::new());
    while let Some(first) = rest.chars().next() {
        let after = match first {
            '\'' | '"' => after_quote(rest, first),
            '$' => after_dollar_quote(rest),
            _ if is_in_word(first) => rest.trim_start_matches(is_in_word),
            _ => &rest[first.len_utf8()..],
        };
        let passed = &rest[..rest.len() - after.len()];
        // Literals behind one another are one.
        match first {
            '\'' => literal.push_str(passed.trim_matches('\'')),
            '$' if passed.len() > 1 => literal.push_str(passed),
            _ => literal.clear(),
        }
        if !is_plain(&literal) {
            return false;
        }
        rest = beginning(after);
    }
    true
}

/// No moment, number or span can be written without a digit or one of these words; what other letters are is a setting.
#[cfg(feature = "postgres")]
fn is_plain(literal: &str) -> bool {
    let mut words = literal.split(|c: char| !c.is_alphabetic());
    let is_moment =
        |word: &str| ["now", "today", "tomorrow", "yesterday"].iter().any(|known| word.eq_ignore_ascii_case(known));
    literal.is_ascii() && !literal.contains(|c: char| c.is_numeric() || c == '{') && !words.any(is_moment)
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

    #[cfg(feature = "postgres")]
    #[test]
    fn literals_that_depend_on_the_time_or_on_settings_are_found() {
        for text in [
            "INSERT INTO t VALUES ($1, 'new', $2)",
            "SELECT count(*) FROM t1 WHERE at < now() -- not 'today'\n AND name = $1 /* '2026' */ LIMIT 10",
            "SELECT \"today\", $$it is plain$$ FROM t WHERE a = $1 AND b=$2",
            "SELECT 'it''s', $1",
        ] {
            assert!(has_plain_literals(text), "{text}");
        }
        for text in [
            "INSERT INTO t VALUES ('now')",
            "SELECT ' Today '::date",
            "SELECT timestamptz '2026-01-01'",
            "SELECT $$2026-01-01$$::date",
            "SELECT $x$tomorrow$x$::date",
            "SELECT 'a', 'b' || 'c1'",
            "SELECT E'it\\'s', 'x'",
            "SELECT interval '1 day'",
            "SELECT -- it's\n 'yesterday'::date",
            "SELECT 'to'\n'day'::date",
            "SELECT c$t$ FROM dt WHERE a = 'x$t$' AND d = date 'today'",
            "SELECT '{a,null}'::text[]",
        ] {
            assert!(!has_plain_literals(text), "{text}");
        }
    }
}
