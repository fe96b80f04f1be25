//! How a command ends when it does not end well.

use super::interrupt::UNDER_WAY;
use super::output::{Output, printable, printable_name};
use dialoq::internals::ErrorConstructors;
use dialoq::{Code, Error};
use serde_json::json;
use std::error::Error as _;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Why ctrl-C found a command that printed.
const NOT_READ: &str = "standard output is not read";

/// Why a command stopped.
#[derive(Debug)]
pub(super) enum Failure {
    /// Something was refused or failed.
    Refused(Error),
    /// The command line was understood by itself, but not as a whole.
    Usage(String),
    /// A script was refused; with the place shown in its text.
    Script { error: Error, excerpt: String },
    /// No message came in time.
    Nothing(String),
    /// Stopped by ctrl-C, with what was done until then.
    Interrupted(String),
    /// A service that SIGTERM has stopped, with what was done until then; nothing was left half done.
    Terminated(String),
    /// What was printed is the answer; its exit code says more, and perhaps a sentence.
    Reported { code: u8, text: Option<String> },
    /// The reader of the output has gone: `dialoq ... | head`.
    BrokenPipe,
    /// Standard output cannot be written for another reason, such as a full disk.
    Unwritten(Error),
    /// Stopped by ctrl-C while the reader of the output did not read.
    NotRead,
}

impl Failure {
    /// Input that is not usable.
    pub(super) fn input(message: impl Into<String>) -> Self {
        Self::Refused(Error::new(Code::BAD_INPUT, message))
    }

    /// A name that does not exist.
    pub(super) fn unknown(what: &str, name: &str) -> Self {
        Self::Refused(Error::object_not_found(what, name))
    }

    /// A file that cannot be read or written.
    pub(super) fn file(done: &str, path: impl std::fmt::Display, error: io::Error) -> Self {
        let message = format!("'{}' cannot be {done}: {error}", printable_name(&path.to_string()));
        Self::Refused(Error::new(Code::BAD_INPUT, message).caused_by(error))
    }

    /// Standard output that cannot be written.
    pub(super) fn unwritten(error: io::Error) -> Self {
        let message = format!("standard output cannot be written: {error}");
        Self::Unwritten(Error::new(Code::BAD_INPUT, message).caused_by(error))
    }

    /// What was done before the output failed; another failure stays as it is.
    pub(super) fn after(self, done: &str) -> Self {
        match self {
            Self::Unwritten(error) => {
                Self::Refused(Error::new(error.code(), format!("{done}; {}", error.message())).caused_by(error))
            }
            Self::NotRead => Self::Interrupted(format!("interrupted; {done}; {NOT_READ}")),
            other => other,
        }
    }

    /// The same end with this exit code where only the reader of the output has gone.
    pub(super) fn or_code(self, code: u8) -> Self {
        match self {
            Self::BrokenPipe => Self::Reported { code, text: None },
            other => other,
        }
    }

    /// ctrl-C has stopped a change of many: so much was done for certain.
    pub(super) fn cut_off(done: &str) -> Self {
        Self::Interrupted(format!("interrupted; {done}; {UNDER_WAY}"))
    }

    /// The end of a change of many, of which so much was done for certain; `None` if ctrl-C has stopped it.
    pub(super) fn unless_whole<T>(ended: Result<Option<T>, Error>, number: u64, done: &str) -> Result<T, Self> {
        match ended {
            Ok(Some(whole)) => Ok(whole),
            Ok(None) => Err(Self::cut_off(done)),
            Err(error) if number == 0 => Err(Self::Refused(error)),
            Err(error) => Err(Self::Refused(
                Error::new(error.code(), format!("{done}, then: {}", error.message())).caused_by(error),
            )),
        }
    }

    /// Tells the user, and says how the process ends.
    pub(super) fn report(&self, output: &Output) -> ExitCode {
        match self {
            Self::Refused(error) | Self::Unwritten(error) => {
                self.print(output, &refusal(error, output.json, ""));
                ExitCode::from(1)
            }
            Self::Usage(message) => {
                let text = match output.json {
                    true => command_line(message),
                    false => format!("error: {}\n\nFor more information, try '--help'.", printable(message)),
                };
                self.print(output, &text);
                ExitCode::from(2)
            }
            Self::Script { error, excerpt } => {
                self.print(output, &refusal(error, output.json, excerpt));
                ExitCode::from(1)
            }
            Self::Nothing(text) => {
                if !output.json {
                    self.print(output, text);
                }
                ExitCode::from(3)
            }
            Self::NotRead => Self::Interrupted(format!("interrupted; {NOT_READ}")).report(output),
            Self::Interrupted(text) => {
                self.print(
                    output,
                    &if output.json { json!({ "interrupted": text }).to_string() } else { text.clone() },
                );
                ExitCode::from(130)
            }
            Self::Terminated(text) => {
                self.print(output, &if output.json { json!({ "stopped": text }).to_string() } else { text.clone() });
                ExitCode::SUCCESS
            }
            Self::Reported { code, text } => {
                if let Some(text) = text.as_ref().filter(|_| !output.json) {
                    self.print(output, text);
                }
                ExitCode::from(*code)
            }
            Self::BrokenPipe => ExitCode::SUCCESS,
        }
    }

    fn print(&self, output: &Output, text: &str) {
        output.note(text);
    }
}

/// The error of a program that was not found; if the working folder has a file of that name, with the path that names it.
pub(super) fn without_path(error: Error, program: &OsStr) -> Error {
    let is_name = Path::new(program).components().count() == 1;
    if !is_name || !Path::new(program).is_file() {
        return error;
    }
    let name = program.to_string_lossy();
    let hint =
        format!("{}; a name is looked up in PATH only: for the file in this folder say ./{name}", error.message());
    Error::new(error.code(), hint)
}

/// A command line that is not understood, as JSON.
pub(super) fn command_line(message: &str) -> String {
    json!({ "error": { "code": null, "kind": "CommandLine", "message": message, "is_retryable": false } }).to_string()
}

fn refusal(error: &Error, as_json: bool, excerpt: &str) -> String {
    if as_json {
        let position = error.position();
        let mut object = json!({
            "code": error.code().0,
            "kind": format!("{:?}", error.kind()),
            "message": error.message(),
            "is_retryable": error.is_retryable(),
        });
        if let Some(position) = position {
            object["line"] = position.line.into();
            object["column"] = position.column.into();
        }
        return json!({ "error": object }).to_string();
    }
    let mut text = format!("error[{}]: {}", error.code(), printable(error.message()));
    match error.position() {
        Some(position) if excerpt.is_empty() => text.push_str(&format!(" ({position})")),
        _ => text.push_str(excerpt),
    }
    // Of an error of ours the message without its code.
    let text_of = |cause: &str| cause.strip_prefix(&format!("[{}] ", error.code())).unwrap_or(cause).to_owned();
    // What the message says already may have a cause of its own.
    let (mut said, mut cause) = (error.message().to_owned(), error.source());
    while let Some(known) = cause.filter(|cause| error.message().contains(&text_of(&cause.to_string()))) {
        (said, cause) = (text_of(&known.to_string()), known.source());
    }
    let cause = cause.map(ToString::to_string).filter(|cause| !is_refusal_of_ours(error, &said, cause));
    if let Some(cause) = cause {
        text.push_str(&format!("\n  caused by: {}", printable(&cause)));
    }
    text
}

/// Whether the cause is a verb's own refusal on PostgreSQL: the message again, and the lines of SQL that it went through.
fn is_refusal_of_ours(error: &Error, message: &str, cause: &str) -> bool {
    cause.contains(message) && cause.contains(&format!("dialoq {}", error.code()))
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dialoq::Position;

    #[test]
    fn a_refusal_names_code_and_place() {
        let error = Error::new(Code::SYNTAX, "no \u{1b}[31mred").at(Position { line: 3, column: 7 });
        assert_eq!(refusal(&error, false, ""), "error[60004]: no \\u{1b}[31mred (line 3, column 7)");
        let object: serde_json::Value = serde_json::from_str(&refusal(&error, true, "")).unwrap();
        assert_eq!(object["error"]["code"], 60004);
        assert_eq!(object["error"]["line"], 3);
    }

    #[test]
    fn a_refusal_of_a_server_is_said_once() {
        let because =
            |cause: &str| Error::new(Code::QUEUE_DISABLED, "queue 'q' is off").caused_by(io::Error::other(cause));
        let ours = because("ERROR: queue 'q' is off\nDETAIL: dialoq 9617 (SQLSTATE SB617); where: PL/pgSQL function x");
        assert_eq!(refusal(&ours, false, ""), "error[9617]: queue 'q' is off");
        let after_some = Failure::unless_whole::<()>(Err(ours), 2, "removed 2 messages");
        let Err(Failure::Refused(after_some)) = after_some else { panic!("{after_some:?}") };
        assert_eq!(refusal(&after_some, false, ""), "error[9617]: removed 2 messages, then: queue 'q' is off");
        let other = because("ERROR: relation 'q' does not exist");
        let after_some = Failure::unless_whole::<()>(Err(other), 2, "removed 2 messages");
        let Err(Failure::Refused(after_some)) = after_some else { panic!("{after_some:?}") };
        assert!(
            refusal(&after_some, false, "")
                .ends_with("then: queue 'q' is off\n  caused by: ERROR: relation 'q' does not exist")
        );
        let other = because("ERROR: relation 'q' does not exist");
        assert!(refusal(&other, false, "").ends_with("caused by: ERROR: relation 'q' does not exist"));
    }
}
