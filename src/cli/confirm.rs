//! The question before a change of many. The change takes what its preview has found, and nothing that came between the preview and
//! the answer to the question.

use super::failure::Failure;
use super::output::Output;
use std::io::{BufRead, IsTerminal, Write};

/// The exit code of a change of many without a confirmation.
pub(super) const UNCONFIRMED: u8 = 6;

/// How the printing of a preview has ended. If its reader has gone, a change that is confirmed goes on and another one is not made.
pub(super) fn previewed(is_confirmed: bool, printed: Result<(), Failure>) -> Result<(), Failure> {
    match printed {
        Err(Failure::BrokenPipe) if is_confirmed => Ok(()),
        Err(Failure::BrokenPipe) => Err(unconfirmed()),
        printed => printed,
    }
}

fn unconfirmed() -> Failure {
    Failure::Reported { code: UNCONFIRMED, text: Some("nothing was changed; --yes does it".to_owned()) }
}

/// Asks on a terminal; elsewhere only `--yes` confirms. The preview has been printed.
pub(super) async fn confirm(is_given: bool, question: &str, output: &Output) -> Result<(), Failure> {
    if is_given {
        return Ok(());
    }
    if output.json || !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(unconfirmed());
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
