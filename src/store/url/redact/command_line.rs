//! Connection strings of the command line, wherever an error or a usage message repeats them.

use super::{SCHEMES, redacted};

/// An error's or a usage message's text without the secrets of those words of the command line that are connection
/// strings, wherever it repeats them.
pub fn redacted_in(text: &str, words: impl IntoIterator<Item = String>) -> String {
    let mut text = text.to_owned();
    for word in words {
        // `--name=value` is repeated as a whole, or by its value.
        let value = word.strip_prefix("--").and_then(|word| word.split_once('=')).map(|(_, value)| value);
        for word in [value, Some(word.as_str())].into_iter().flatten() {
            if may_hold_secret(word) && text.contains(word) {
                text = text.replace(word, &redacted(word));
            }
        }
    }
    text
}

/// Whether a word is written as a connection string is.
fn may_hold_secret(word: &str) -> bool {
    let lower = word.to_ascii_lowercase();
    let has_scheme = SCHEMES.iter().any(|scheme| lower.starts_with(scheme) && lower[scheme.len()..].starts_with(':'));
    let has_login = lower.split_once('@').is_some_and(|(login, _)| login.contains(':') || login.contains("%3a"));
    let has_parameter = lower.match_indices('=').any(|(end, _)| {
        let name = lower[..end].trim_end().rsplit(|c: char| !c.is_alphanumeric() && !"_-%".contains(c)).next();
        name.is_some_and(is_secret)
    });
    has_scheme || has_login || has_parameter
}

/// Whether a parameter of that name may hold a secret; one that is written in escapes may be any.
fn is_secret(name: &str) -> bool {
    ["pass", "pwd", "pw", "secret", "token", "key", "cred", "%"].iter().any(|part| name.contains(part))
}
