//! The question before a change of many.

use super::failure::Failure;
use super::output::Output;
use std::io::{BufRead, IsTerminal, Write};

/// The exit code of a change of many without a confirmation.
pub(super) const UNCONFIRMED: u8 = 6;

/// Asks on a terminal; elsewhere only `--yes` confirms. The preview has been printed.
pub(super) async fn confirm(is_given: bool, question: &str, output: &Output) -> Result<(), Failure> {
    if is_given {
        return Ok(());
    }
    if output.json || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(Failure::Reported {
            code: UNCONFIRMED,
            text: Some("nothing was changed; --yes does it".to_owned()),
        });
    }
    let question = format!("{question} [y/N] ");
    let answer = tokio::task::spawn_blocking(move || {
        let mut answer = String::new();
        let _ = std::io::stderr().lock().write_all(question.as_bytes());
        let _ = std::io::stderr().lock().flush();
        let _ = std::io::stdin().lock().read_line(&mut answer);
        answer
    });
    let answer = answer.await.map_err(|error| Failure::input(error.to_string()))?;
    match answer.trim().to_ascii_lowercase().as_str() {
        "y" | "yes" => Ok(()),
        _ => Err(Failure::Reported { code: UNCONFIRMED, text: Some("nothing was changed".to_owned()) }),
    }
}
