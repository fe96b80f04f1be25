//! The process itself: its input, its output, its end.

use super::failed;
use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::io;
use std::process::Stdio;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout, Command};

/// The longest answer a program may give for one message, in bytes: that of the largest body, as base64 in JSON.
const LONGEST_ANSWER: u64 = 96 << 20;

/// How long a program may take to leave after its input has ended; then it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// A running program; dropping it kills it.
pub(super) struct Child {
    name: String,
    process: tokio::process::Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Child {
    pub(super) fn spawn(program: &OsStr, args: &[OsString], environment: Vec<(&str, String)>) -> Result<Self> {
        let name = program.to_string_lossy().into_owned();
        // What it says on standard error goes where ours goes.
        let mut command = Command::new(program);
        command.args(args).envs(environment).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // ctrl-C on a terminal goes to a whole process group; a program is to finish what it has in hand.
        #[cfg(unix)]
        command.process_group(0);
        let mut process = command
            .spawn()
            .map_err(|error| failed(format!("program '{name}' cannot be started: {error}")).caused_by(error))?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(failed(format!("program '{name}' has no standard input or output")));
        };
        Ok(Self { name, process, input, output: BufReader::new(output) })
    }

    /// Hands over all the input, takes all the output, and waits for the end.
    pub(super) async fn run(self, input: Vec<u8>) -> Result<Vec<String>> {
        let Self { name, mut process, input: mut pipe, output } = self;
        let write = async move {
            let written = pipe.write_all(&input).await;
            drop(pipe);
            // A program need not read what it does not want.
            written.or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
        };
        let read = async {
            let mut text = Vec::new();
            output.take(LONGEST_ANSWER + 1).read_to_end(&mut text).await.map(|_| text)
        };
        let (written, text) = tokio::join!(write, read);
        let lost = |error: io::Error| failed(format!("program '{name}' cannot be talked to: {error}")).caused_by(error);
        written.map_err(lost)?;
        let text = text.map_err(lost)?;
        if text.len() as u64 > LONGEST_ANSWER {
            return Err(failed(format!("program '{name}' answered with more than {LONGEST_ANSWER} bytes")));
        }
        let status = process.wait().await.map_err(lost)?;
        if !status.success() {
            return Err(failed(format!("program '{name}' ended with {status}")));
        }
        let text = String::from_utf8(text).map_err(|_| failed(format!("program '{name}' answered with no UTF-8")))?;
        Ok(text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect())
    }

    /// Hands over one line.
    pub(super) async fn write_line(&mut self, line: Vec<u8>) -> Result<()> {
        let written = async {
            self.input.write_all(&line).await?;
            self.input.flush().await
        };
        match written.await {
            Ok(()) => Ok(()),
            Err(error) => Err(self.lost(&error.to_string()).await),
        }
    }

    /// Takes one line that is not blank.
    pub(super) async fn read_line(&mut self) -> Result<String> {
        loop {
            let mut line = Vec::new();
            let read = (&mut self.output).take(LONGEST_ANSWER).read_until(b'\n', &mut line).await;
            match read {
                Ok(0) => return Err(self.lost("it closed its standard output").await),
                Ok(_) if !line.ends_with(b"\n") && line.len() as u64 >= LONGEST_ANSWER => {
                    return Err(failed(format!(
                        "program '{}' answered with a line of more than {LONGEST_ANSWER} bytes",
                        self.name
                    )));
                }
                Ok(_) => {}
                Err(error) => return Err(self.lost(&error.to_string()).await),
            }
            let line = String::from_utf8(line)
                .map_err(|_| failed(format!("program '{}' answered with no UTF-8", self.name)))?;
            if !line.trim().is_empty() {
                return Ok(line);
            }
        }
    }

    /// Ends its input and lets it leave; kills it if it does not.
    pub(super) async fn finish(self) {
        let Self { name, mut process, input, output } = self;
        drop(input);
        drop(output);
        match tokio::time::timeout(GRACE, process.wait()).await {
            Ok(Ok(status)) if status.success() => {}
            Ok(Ok(status)) => tracing::warn!(program = name, %status, "the program left with an error"),
            Ok(Err(error)) => tracing::warn!(program = name, %error, "the program cannot be waited for"),
            Err(_) => {
                tracing::warn!(program = name, "the program did not leave when its input ended; it is killed");
                if let Err(error) = process.kill().await {
                    tracing::warn!(program = name, %error, "the program cannot be killed");
                }
            }
        }
    }

    async fn lost(&mut self, how: &str) -> Error {
        // It may have closed its output just before it ends; its status says more than the closed pipe.
        let status = tokio::time::timeout(GRACE, self.process.wait()).await;
        let end = match status {
            Ok(Ok(status)) => format!("it ended with {status}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it still runs and is killed".to_owned(),
        };
        failed(format!("program '{}' was lost before it answered: {how}; {end}", self.name))
    }
}
