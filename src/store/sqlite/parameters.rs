//! Which value each parameter of the user's SQL gets.

use super::failure::user;
use crate::error::Result;
use rusqlite::Statement;

/// The places of the values in the order of the parameters; `None` if they are in order.
///
/// SQLite takes `$2` for a name, and numbers names as they come: `SET net = $2 WHERE net = $1` would get its values the wrong way
/// round. Here it is the second value, as on PostgreSQL; so is SQL Server's `@P2`.
pub(super) fn places(prepared: &Statement<'_>, text: &str) -> Result<Option<Vec<usize>>> {
    if !text.contains(['$', '@', ':']) {
        return Ok(None);
    }
    let names: Vec<_> = (1..=prepared.parameter_count()).map(|index| prepared.parameter_name(index)).collect();
    let named: Vec<_> = names.iter().copied().flatten().filter(|name| !name.starts_with('?')).collect();
    let Some(first) = named.first() else { return Ok(None) };
    if let Some(name) = named.iter().find(|name| number(name).is_none()) {
        let why = match name.split_once("::") {
            Some((number, of)) => format!("SQLite has no '::'; write CAST({number} AS {of})"),
            None => {
                format!("its parameter {name} has a name, and values are given by their places: write ?1, ?2 or $1, $2")
            }
        };
        return Err(user(text, why));
    }
    if has_question_mark(text) {
        return Err(user(text, format!("it has ? and {first} for parameters; write all of them in one way")));
    }
    Ok(Some(named.into_iter().filter_map(number).map(|number| number - 1).collect()))
}

/// Whether a parameter is written with `?`: SQLite gives `?1` the place of a `$2` before it, so the names do not show it.
fn has_question_mark(mut text: &str) -> bool {
    while let Some(place) = text.find(['?', '\'', '"', '`', '[', '-', '/']) {
        let after = &text[place + 1..];
        let after_end = |after: &str, end: &str| match after.split_once(end) {
            Some((before, _)) => before.len() + end.len(),
            None => after.len(),
        };
        let skipped = match text.as_bytes()[place] {
            b'?' => return true,
            b'-' if after.starts_with('-') => after_end(after, "\n"),
            b'/' if after.starts_with('*') => after_end(&after[1..], "*/") + 1,
            b'-' | b'/' => 0,
            b'[' => after_end(after, "]"),
            b'\'' => after_end(after, "'"),
            b'"' => after_end(after, "\""),
            _ => after_end(after, "`"),
        };
        text = &after[skipped..];
    }
    false
}

/// The number of `$2` or `@P2`.
fn number(name: &str) -> Option<usize> {
    let digits = ["$", "@P", "@p"].iter().find_map(|start| name.strip_prefix(start))?;
    digits.parse().ok().filter(|number| *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    fn of(text: &str) -> Result<Option<Vec<usize>>> {
        places(&Connection::open_in_memory().unwrap().prepare(text).unwrap(), text)
    }

    #[test]
    fn a_number_is_the_place_of_the_value() {
        for text in ["SELECT 1", "SELECT ?", "SELECT ?2, ?1", "SELECT ?1, '$1 :a @P1'", "SELECT ?1 -- $1"] {
            assert_eq!(of(text).unwrap(), None, "{text}");
        }
        assert_eq!(of("SELECT $2, $1, $2").unwrap(), Some(vec![1, 0]));
        assert_eq!(of("SELECT @P3, @p1").unwrap(), Some(vec![2, 0]));
        assert_eq!(of("SELECT $007").unwrap(), Some(vec![6]));
        for text in [
            "SELECT $1, '''?'",
            "SELECT [?], $1 FROM (SELECT 1 AS `?`) -- ?",
            "SELECT 4-2/1, $1 /*/ '? */ AS \"?\"",
            "SELECT $1 -- ?",
            "SELECT 2/* ? */*$1 /* '?' */",
        ] {
            assert_eq!(of(text).unwrap(), Some(vec![0]), "{text}");
        }
    }

    #[test]
    fn a_name_and_a_mixture_are_refused() {
        for text in
            ["SELECT :net", "SELECT @net", "SELECT $net", "SELECT $0", "SELECT $1, :a", "SELECT $99999999999999999999"]
        {
            assert!(of(text).unwrap_err().message().contains("has a name"), "{text}");
        }
        assert!(of("SELECT $1::text").unwrap_err().message().contains("CAST($1 AS text)"));
        for text in ["SELECT ?, $1", "SELECT $1, ?1", "SELECT $2, ?1", "SELECT @P2, ?", "SELECT '?' - /*?*/ $1 - ?"] {
            assert!(of(text).unwrap_err().message().contains("in one way"), "{text}");
        }
    }
}
