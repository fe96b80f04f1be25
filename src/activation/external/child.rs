//! The input and the answers of a running program, up to its end.

use super::failed;
use super::process::Process;
use crate::error::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::io;
#[cfg(unix)]
use std::os::fd::AsFd;
use std::path::Path;
use std::pin::pin;
use std::process::Stdio;
use std::time::Duration;
#[cfg(unix)]
use tokio::io::AsyncBufReadExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout, Command};

/// The longest answer a program may give for one message, in bytes: that of the largest body, as base64 in JSON.
const LONGEST_ANSWER: usize = 96 << 20;

/// How long a program may take to leave after its input has ended; then it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// Bytes of a program's standard error that are read, and written on, at a time. A write is handed to another thread: with
/// pieces of 64 bytes, the room that an empty `Vec` asks for, a program could write 0.7 MB a second.
const PIECE: usize = 64 * 1024;

/// The last bytes of a program's standard error that its failure tells.
const KEPT_ERRORS: usize = 2000;

/// Where the standard error of a program goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Errors {
    /// Where ours goes.
    Inherited,
    /// The same, and its end into the text of a failure.
    Kept,
}

/// A running program; dropping it kills it and what it has started.
pub(super) struct Child {
    name: String,
    process: Process,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    errors: Option<BufReader<ChildStderr>>,
    early: UnreadOutput,
    /// Bytes of the answer under way.
    answered: usize,
}

/// Output of the program that the reader has not yet taken as lines.
#[derive(Default)]
struct UnreadOutput {
    bytes: Vec<u8>,
    /// Taken up to here.
    taken: usize,
    /// Searched for the end of a line up to here.
    scanned: usize,
    /// Nothing more will come.
    is_over: bool,
}

impl UnreadOutput {
    fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// The next line, or the whole rest if the output has ended.
    fn take(&mut self) -> Option<Vec<u8>> {
        let end =
            self.bytes[self.scanned..].iter().position(|byte| *byte == b'\n').map(|place| self.scanned + place + 1);
        let end = match end {
            None if !self.is_over && self.len() < LONGEST_ANSWER => {
                self.scanned = self.bytes.len();
                return None;
            }
            end => end.unwrap_or(self.bytes.len()),
        };
        let line = self.bytes[self.taken..end].to_vec();
        self.taken = end;
        if self.taken * 2 >= self.bytes.len() {
            self.bytes.drain(..self.taken);
            self.taken = 0;
        }
        self.scanned = self.taken;
        Some(line)
    }
}

/// What a program wrote to its standard error.
struct Complaint<W> {
    /// Its end.
    kept: Vec<u8>,
    /// Where it would have gone without us. If its reader stalls, only the program waits, and no thread that drives tasks.
    ours: W,
}

impl<W: AsyncWrite + Unpin> Complaint<W> {
    fn new(ours: W) -> Self {
        Self { kept: Vec::new(), ours }
    }

    /// Adds all that comes, up to its end.
    async fn add_all(&mut self, mut from: impl AsyncRead + Unpin) -> io::Result<()> {
        let mut piece = Vec::with_capacity(PIECE);
        while from.read_buf(&mut piece).await? > 0 {
            self.add(&piece).await;
            piece.clear();
        }
        // What is written next, such as an event of ours, begins a line.
        if self.kept.last().is_some_and(|last| *last != b'\n') {
            let _ = self.ours.write_all(b"\n").await;
            let _ = self.ours.flush().await;
        }
        Ok(())
    }

    async fn add(&mut self, piece: &[u8]) {
        self.kept.extend_from_slice(&piece[piece.len().saturating_sub(KEPT_ERRORS)..]);
        let surplus = self.kept.len().saturating_sub(KEPT_ERRORS);
        self.kept.drain(..surplus);
        // A closed one is no failure of the program.
        let _ = self.ours.write_all(piece).await;
        let _ = self.ours.flush().await;
    }

    fn text(&self) -> String {
        // The end may begin within a character.
        let is_within = |byte: &&u8| (0x80..0xC0).contains(*byte);
        let cut =
            if self.kept.len() < KEPT_ERRORS { 0 } else { self.kept.iter().take(3).take_while(is_within).count() };
        match String::from_utf8_lossy(&self.kept[cut..]).trim() {
            "" => String::new(),
            text => format!(": {text}"),
        }
    }
}

/// What to do where the system's own text does not say it.
fn hint(program: &OsStr, error: &io::Error) -> &'static str {
    /// The number of Linux, macOS and the BSDs.
    const ENOEXEC: i32 = 8;
    if cfg!(unix) && error.raw_os_error() == Some(ENOEXEC) {
        return "; a script begins with a line that names what runs it, such as #!/bin/sh";
    }
    if error.kind() == io::ErrorKind::NotFound && Path::new(program).is_file() {
        return "; the file is there: see that the program after #! in its first line is there too";
    }
    ""
}

impl Child {
    pub(super) fn spawn(
        program: &OsStr,
        args: &[OsString],
        environment: Vec<(&str, String)>,
        errors: Errors,
    ) -> Result<Self> {
        let name = program.to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command.args(args).envs(environment).stdin(Stdio::piped()).stdout(Stdio::piped());
        if errors == Errors::Kept {
            command.stderr(Stdio::piped());
        }
        let mut process = Process::spawn(&mut command).map_err(|error| {
            let hint = hint(program, &error);
            failed(format!("program '{name}' cannot be started: {error}{hint}")).caused_by(error)
        })?;
        let leader = process.leader();
        let (Some(input), Some(output)) = (leader.stdin.take(), leader.stdout.take()) else {
            return Err(failed(format!("program '{name}' has no standard input or output")));
        };
        let errors = leader.stderr.take().map(BufReader::new);
        let (output, early) = (BufReader::new(output), UnreadOutput::default());
        Ok(Self { name, process, input, output, errors, early, answered: 0 })
    }

    /// Writes all the input, reads all the output, and waits for the end.
    ///
    /// Only the program's own end counts: a child that it left running may hold its input and its output open for ever.
    pub(super) async fn run(self, input: Vec<u8>) -> Result<Vec<u8>> {
        let Self { name, mut process, input: mut pipe, mut output, mut errors, .. } = self;
        let lost = |error: io::Error| failed(format!("program '{name}' cannot be talked to: {error}")).caused_by(error);
        let too_long = || failed(format!("program '{name}' answered with more than {LONGEST_ANSWER} bytes"));
        let mut text = Vec::new();
        let mut complaint = Complaint::new(tokio::io::stderr());
        let status = {
            let write = async move {
                let written = pipe.write_all(&input).await;
                drop(pipe);
                // A program need not read its input to the end.
                written
                    .or_else(|error| if error.kind() == io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) })
                    .map_err(lost)
            };
            let read = async {
                while output.read_buf(&mut text).await.map_err(lost)? > 0 {
                    if text.len() > LONGEST_ANSWER {
                        return Err(too_long());
                    }
                }
                Ok(())
            };
            let complain = async {
                match &mut errors {
                    Some(errors) => complaint.add_all(errors).await.map_err(lost),
                    None => Ok(()),
                }
            };
            let mut talk = pin!(async { tokio::try_join!(write, read, complain) });
            let mut is_talking = true;
            loop {
                tokio::select! {
                    status = process.wait() => break status.map_err(lost)?,
                    talked = &mut talk, if is_talking => {
                        talked?;
                        is_talking = false;
                    }
                }
            }
        };
        take_rest(&mut output, &mut text).await.map_err(lost)?;
        if text.len() > LONGEST_ANSWER {
            return Err(too_long());
        }
        if let Some(errors) = &mut errors {
            let mut rest = Vec::new();
            take_rest(errors, &mut rest).await.map_err(lost)?;
            complaint.add(&rest).await;
        }
        if !status.success() {
            return Err(failed(format!("program '{name}' ended with {status}{}", complaint.text())));
        }
        Ok(text)
    }

    /// Writes one line and meanwhile reads the program's output. Otherwise a program that fills its output pipe before
    /// it has read its input would wait for us while we wait for it.
    async fn write_line(&mut self, line: &[u8]) -> Result<()> {
        self.refuse_extra_output().await?;
        self.answered = 0;
        let Self { name, process, input, output, early, .. } = self;
        let mut write = pin!(async {
            input.write_all(line).await?;
            input.flush().await
        });
        let written = loop {
            tokio::select! {
                biased;
                written = &mut write => break written,
                read = output.read_buf(&mut early.bytes), if !early.is_over => match read {
                    Ok(0) => early.is_over = true,
                    Ok(_) if early.len() <= LONGEST_ANSWER => {}
                    Ok(_) => {
                        let what = format!("program '{name}' answered with more than {LONGEST_ANSWER} bytes");
                        return Err(failed(what));
                    }
                    Err(error) => break Err(error),
                },
                ended = process.wait() => break ended.and_then(|_| Err(io::ErrorKind::BrokenPipe.into())),
            }
        };
        match written {
            Ok(()) => Ok(()),
            Err(error) => Err(self.lost(&error.to_string()).await),
        }
    }

    /// Refuses output after the end of the last answer. It would be taken as the answer to a message that the program
    /// has not seen: a second commit would lose that message.
    async fn refuse_extra_output(&mut self) -> Result<()> {
        let Self { name, output, early, .. } = self;
        #[cfg(unix)]
        if let Err(error) = take_rest(output, &mut early.bytes).await {
            return Err(self.lost(&error.to_string()).await);
        }
        let is_blank = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_whitespace);
        if is_blank(&early.bytes[early.taken..]) && is_blank(output.buffer()) {
            return Ok(());
        }
        Err(failed(format!(
            "program '{name}' spoke unasked: after the commit or rollback that ends an answer it must wait for a message"
        )))
    }

    /// Takes one line that is not blank.
    pub(super) async fn read_line(&mut self) -> Result<String> {
        loop {
            let line = match self.read_bytes().await {
                Ok(line) if line.is_empty() => return Err(self.lost("it closed its standard output").await),
                Ok(line) if !line.ends_with(b"\n") && line.len() >= LONGEST_ANSWER => {
                    return Err(failed(format!(
                        "program '{}' answered with a line of more than {LONGEST_ANSWER} bytes",
                        self.name
                    )));
                }
                Ok(line) => line,
                Err(error) => return Err(self.lost(&error.to_string()).await),
            };
            self.answered += line.len();
            if self.answered > LONGEST_ANSWER {
                let what = format!("program '{}' answered with more than {LONGEST_ANSWER} bytes", self.name);
                return Err(failed(what));
            }
            let line = String::from_utf8(line)
                .map_err(|_| failed(format!("program '{}' answered with no UTF-8", self.name)))?;
            if !line.trim().is_empty() {
                return Ok(line);
            }
        }
    }

    /// Reads bytes up to the end of a line, or of the output, which ends with the process.
    async fn read_bytes(&mut self) -> io::Result<Vec<u8>> {
        let Self { process, output, early, .. } = self;
        loop {
            if let Some(line) = early.take() {
                return Ok(line);
            }
            tokio::select! {
                biased;
                read = output.read_buf(&mut early.bytes) => early.is_over = read? == 0,
                // Other functions wait for its status again.
                _ = process.wait() => {
                    take_rest(output, &mut early.bytes).await?;
                    early.is_over = true;
                }
            }
        }
    }

    /// Whether it has ended.
    pub(super) fn has_ended(&mut self) -> bool {
        matches!(self.process.leader().try_wait(), Ok(Some(_)))
    }

    /// Whether it has answered a message.
    pub(super) fn has_served(&self) -> bool {
        self.answered > 0
    }

    /// Whether it has ended with exit code 0, and has said nothing about the message that it was given last.
    pub(super) fn has_left(&mut self) -> bool {
        let is_silent = self.answered == 0 && self.early.len() == 0;
        is_silent && matches!(self.process.leader().try_wait(), Ok(Some(status)) if status.success())
    }

    /// Writes a message, and gives the first line of the answer.
    pub(super) async fn ask(&mut self, message: &[u8]) -> Result<String> {
        self.write_line(message).await?;
        self.read_line().await
    }

    /// Ends its input and lets it leave; kills it if it does not.
    pub(super) async fn finish(self) {
        let Self { name, mut process, input, output, .. } = self;
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
        // It may have closed its output just before it ends; its status explains more than the closed pipe.
        let status = tokio::time::timeout(GRACE, self.process.wait()).await;
        let end = match status {
            Ok(Ok(status)) => format!("it ended with {status}"),
            Ok(Err(error)) => error.to_string(),
            Err(_) => "it still runs and is killed".to_owned(),
        };
        failed(format!("program '{}' was lost before it answered: {how}; {end}", self.name))
    }
}

/// Reads the output that an ended process has left in its pipe. It waits for nothing: all output is there, and other
/// holders of the pipe may never close it.
#[cfg(unix)]
async fn take_rest<R: AsyncRead + AsFd + Unpin>(output: &mut BufReader<R>, text: &mut Vec<u8>) -> io::Result<()> {
    use rustix::io::Errno;
    let buffered = output.buffer().len();
    text.extend_from_slice(output.buffer());
    output.consume(buffered);
    let mut piece = [0; 8192];
    while text.len() <= LONGEST_ANSWER {
        // The pipe is in non-blocking mode, as tokio needs it.
        match rustix::io::read(output.get_ref(), &mut piece[..]) {
            Ok(0) | Err(Errno::AGAIN) => break,
            Ok(bytes) => text.extend_from_slice(&piece[..bytes]),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

#[cfg(not(unix))]
async fn take_rest<R: AsyncRead + Unpin>(output: &mut BufReader<R>, text: &mut Vec<u8>) -> io::Result<()> {
    /// The pipe cannot be read without waiting, so this waits so long for its end.
    const PIPE_GRACE: Duration = Duration::from_secs(1);
    let mut output = output.take(LONGEST_ANSWER as u64 + 1);
    match tokio::time::timeout(PIPE_GRACE, output.read_to_end(text)).await {
        Ok(read) => read.map(drop),
        Err(_) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::{Context, Poll};

    /// Counts what is written to it.
    #[derive(Default)]
    struct Counted {
        writes: usize,
        bytes: usize,
    }

    impl AsyncWrite for Counted {
        fn poll_write(
            mut self: std::pin::Pin<&mut Self>,
            _: &mut Context<'_>,
            piece: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.writes += 1;
            self.bytes += piece.len();
            Poll::Ready(Ok(piece.len()))
        }

        fn poll_flush(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: std::pin::Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    /// A program that wrote 200 MB to its standard error took five minutes.
    #[tokio::test]
    async fn a_program_that_complains_a_lot_is_written_on_in_large_pieces() {
        let _limit = crate::testing::limit();
        const BYTES: usize = 4 << 20;
        let text: Vec<u8> = (0..BYTES).map(|place| b"abcdefgh"[place % 8]).collect();
        let mut complaint = Complaint::new(Counted::default());
        // The buffer of a pipe's reader, as in a running program.
        complaint.add_all(&mut BufReader::new(&text[..])).await.unwrap();
        let Counted { writes, bytes } = complaint.ours;
        assert_eq!(bytes, BYTES + 1, "nothing is left out, and its line is ended");
        assert!(writes <= BYTES / 4096, "{writes} writes");
        assert_eq!(complaint.kept, &text[BYTES - KEPT_ERRORS..], "its end");
    }

    /// An event of `work run` stood in the last line of the program.
    #[tokio::test]
    async fn the_last_line_of_a_program_is_ended() {
        let _limit = crate::testing::limit();
        for (text, bytes) in [("", 0), ("a", 2), ("a\n", 2), ("a\nb", 4)] {
            let mut complaint = Complaint::new(Counted::default());
            complaint.add_all(text.as_bytes()).await.unwrap();
            assert_eq!(complaint.ours.bytes, bytes, "{text:?}");
        }
    }

    /// The reason of a failure began with a character that the program had not written.
    #[tokio::test]
    async fn the_end_of_what_a_program_wrote_begins_with_a_whole_character() {
        let _limit = crate::testing::limit();
        for after in ["", "a", "ab"] {
            let text = "\u{20AC}".repeat(KEPT_ERRORS) + after;
            let mut complaint = Complaint::new(Counted::default());
            complaint.add_all(text.as_bytes()).await.unwrap();
            assert_eq!(complaint.text().chars().nth(2), Some('\u{20AC}'), "{after}");
        }
    }
}
