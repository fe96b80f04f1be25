//! How a statement of the user's begins.

/// Its first word in capitals, and the text after it.
pub(crate) fn first_word(text: &str) -> (String, &str) {
    let rest = beginning(text);
    let end = rest.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(rest.len());
    (rest[..end].to_ascii_uppercase(), &rest[end..])
}

/// The text from its first word on: without comments, which may hold others, and without empty statements.
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
    fn the_first_word_is_found_behind_whatever_means_nothing() {
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
