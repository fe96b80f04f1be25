//! Names in commands that advice tells the user to run.

use std::borrow::Cow;

/// The text as one word of a shell: in quotes if it has other characters than those of ordinary names.
pub(crate) fn shell_word(text: &str) -> Cow<'_, str> {
    let is_plain = |character: char| character.is_alphanumeric() || "_-./:@%+=,".contains(character);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''")).into()
}

/// A command on one name. A name that begins with a dash comes last, after `--`: elsewhere it is an option that does not exist.
pub(crate) fn shell_command(verb: &str, name: &str, options: &str) -> String {
    let (word, space) = (shell_word(name), if options.is_empty() { "" } else { " " });
    match name.starts_with('-') {
        true => format!("{verb}{space}{options} -- {word}"),
        false => format!("{verb} {word}{space}{options}"),
    }
}

/// An option with a value.
pub(crate) fn shell_option(option: &str, value: &str) -> String {
    let between = if value.starts_with('-') { '=' } else { ' ' };
    format!("{option}{between}{}", shell_word(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_command_in_advice_can_be_pasted_into_a_shell() {
        let _limit = crate::testing::limit();
        let broker = crate::testing::TestBroker::in_memory().await.unwrap();
        let define = broker.define(|define| {
            define.queue("my orders");
        });
        define.await.unwrap();
        broker.pause("my orders", None).await.unwrap();
        let explained = broker.explain("my orders").await.unwrap();
        assert!(explained.reasons[0].advice.contains("`dialoq resume 'my orders'`"), "{explained:?}");
    }

    #[test]
    fn a_name_that_begins_with_a_dash_is_no_option() {
        assert_eq!(shell_command("resume", "my orders", ""), "resume 'my orders'");
        assert_eq!(shell_command("resume", "-x", ""), "resume -- -x");
        assert_eq!(shell_command("work list", "x", "--state dead"), "work list x --state dead");
        assert_eq!(shell_command("work list", "-x y", "--state dead"), "work list --state dead -- '-x y'");
        assert_eq!(shell_option("--queue", "x"), "--queue x");
        assert_eq!(shell_option("--queue", "-x"), "--queue=-x");
    }

    #[test]
    fn a_name_is_one_word_of_the_shell() {
        for (name, word) in [
            ("orders", "orders"),
            ("//shop/Orders-2.0", "//shop/Orders-2.0"),
            ("Aufträge", "Aufträge"),
            ("my orders", "'my orders'"),
            ("it's; rm -r *", r"'it'\''s; rm -r *'"),
            ("$HOME", "'$HOME'"),
            ("", "''"),
        ] {
            assert_eq!(shell_word(name), word);
        }
    }
}
