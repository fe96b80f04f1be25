//! External programs as readers: a message on standard input, the answer on standard output.
//!
//! The protocol is described in `docs/operations.md`, section "External activation".

mod child;
mod line;
mod process;

use super::handlers::{Context, HandlerError, HandlerResult, unhandled};
use super::reader::{self, Options, Serve};
use super::{IntoProcedure, Procedure, Session};
use crate::error::{Code, Error, Result};
use crate::jsonl::MessageLine;
use crate::protocol::{Message, ReceiveFrom};
use crate::store::BoxFuture;
use child::{Child, Errors};
use line::{Line, Reply};
#[cfg(all(unix, feature = "cli"))]
pub(crate) use process::kill_all;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A program that was started once, for one input. Dropping it, or the future of its run, kills it and what it has started.
#[cfg(feature = "cli")]
#[expect(missing_debug_implementations, reason = "not public, and too much to print")]
pub struct StartedProgram(Child);

#[cfg(feature = "cli")]
impl StartedProgram {
    /// Starts it.
    ///
    /// # Errors
    /// 60025 if it cannot be started.
    pub fn start(program: &OsStr, args: &[OsString], environment: Vec<(&str, String)>) -> Result<Self> {
        Child::spawn(program, args, environment, Errors::Kept).map(Self)
    }

    /// Gives it its input, and gives its output without the end of its last line.
    ///
    /// # Errors
    /// 60025 if it fails.
    pub async fn run(self, input: Vec<u8>) -> Result<Vec<u8>> {
        let mut output = self.0.run(input).await?;
        output.pop_if(|last| *last == b'\n');
        Ok(output)
    }
}

/// How a program is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Mode {
    /// Once for each message: exit code 0 commits, any other rolls back.
    #[default]
    Message,
    /// Once for each reader: a line of JSON for each message, answered by lines that end with `{"commit": true}` or
    /// `{"rollback": "why"}`.
    Stream,
}

/// An external program as the reader of a queue.
///
/// EndDialog and Error messages end this side of the conversation without running it, unless
/// [`Program::system_messages`] is set.
#[derive(Debug, Clone)]
pub struct Program {
    program: OsString,
    args: Vec<OsString>,
    mode: Mode,
    raw_body: bool,
    system_messages: bool,
    options: Options,
}

impl Program {
    /// A program by its path, or by a name that is searched in `PATH`.
    pub fn new(program: impl Into<OsString>) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            mode: Mode::default(),
            raw_body: false,
            system_messages: false,
            options: Options { top: Some(1), ..Options::default() },
        }
    }

    /// Its arguments.
    pub fn args<A: Into<OsString>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// How it is run; by default once for each message.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.mode = mode;
        self
    }

    /// Standard input is the bare body rather than a line of JSON; only when it is run once for each message.
    pub fn raw_body(mut self) -> Self {
        self.raw_body = true;
        self
    }

    /// Hands it EndDialog and Error messages too; it must end their conversations itself.
    pub fn system_messages(mut self) -> Self {
        self.system_messages = true;
        self
    }

    /// At most so many messages a transaction; 1 by default.
    pub fn top(mut self, top: u64) -> Self {
        self.options.top = Some(top.max(1));
        self
    }

    /// The part of the queue to receive from; by default the best group.
    pub fn only(mut self, from: ReceiveFrom) -> Self {
        self.options.from = from;
        self
    }

    /// If a reader finds nothing for this long, it leaves; 500 ms by default.
    pub fn idle_wait(mut self, wait: Duration) -> Self {
        self.options.idle_wait = wait;
        self
    }

    /// The longest it may take for one message, by the broker's clock; then it is killed and the message rolled back.
    /// No limit by default.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.options.timeout = Some(timeout);
        self
    }

    /// A SEND of it to a side that has ended is an error (8429), which rolls back. By default it is dropped with a warning
    /// and the rest commits.
    pub fn fail_on_ended_peer(mut self) -> Self {
        self.options.fails_on_ended_peer = true;
        self
    }

    /// Whether it is there and may be run.
    ///
    /// # Errors
    /// 60025 if it is not.
    pub fn check(&self) -> Result<()> {
        match find(&self.program) {
            Some(_) => Ok(()),
            None => Err(failed(format!(
                "program '{}' was not found or is not a file that may be run",
                self.program.to_string_lossy()
            ))),
        }
    }

    /// Whether it is for the program, and not for [`unhandled`].
    fn takes(&self, message: &Message) -> bool {
        self.system_messages || !(message.is_end_dialog() || message.is_error())
    }

    fn display(&self) -> String {
        self.program.to_string_lossy().into_owned()
    }

    /// Starts it with the environment of a reader.
    fn spawn(&self, queue: &str, message: Option<&Message>) -> Result<Child> {
        let mut environment = vec![("DIALOQ_QUEUE", queue.to_owned())];
        if let Some(message) = message {
            environment.extend([
                ("DIALOQ_CONVERSATION_HANDLE", message.conversation_handle.to_string()),
                ("DIALOQ_CONVERSATION_GROUP_ID", message.conversation_group_id.to_string()),
                ("DIALOQ_MESSAGE_TYPE_NAME", message.message_type_name.to_string()),
                ("DIALOQ_SERVICE_NAME", message.service_name.to_string()),
                ("DIALOQ_PRIORITY", message.priority.to_string()),
            ]);
        }
        Child::spawn(&self.program, &self.args, environment, Errors::Inherited)
    }
}

impl IntoProcedure for Program {
    fn into_procedure(self) -> Procedure {
        let program = Arc::new(self);
        let checked = program.clone();
        Procedure::new(program.display(), move |session: Session| {
            let queue = session.queue().clone();
            let server = Server { program: program.clone(), queue, child: None, is_to_restart: false };
            reader::run(session, program.options.clone(), server)
        })
        .checked(move || checked.check())
    }
}

/// One reader's side of a program.
struct Server {
    program: Arc<Program>,
    queue: Arc<str>,
    /// The program: started for the next message, or kept alive between messages.
    child: Option<Child>,
    /// The program had left before it saw the message that it was asked about.
    is_to_restart: bool,
}

/// The pause before a start that failed is tried again.
const PAUSE: Duration = Duration::from_secs(5);

impl Serve for Server {
    fn serve<'a>(&'a mut self, context: &'a Context) -> BoxFuture<'a, HandlerResult> {
        Box::pin(async move {
            if !self.program.takes(context.message()) {
                return unhandled(context).await;
            }
            // Taken out, so that a program that fails or is given up on half way is killed and not used again.
            let Some(child) = self.child.take() else { return Err(failed("no program was started".to_owned()).into()) };
            match self.program.mode {
                Mode::Message => self.run_once(child, context).await,
                Mode::Stream => self.ask(child, context).await,
            }
        })
    }

    fn is_able(&self) -> bool {
        self.child.is_some() || self.program.check().is_ok()
    }

    /// A program that cannot be started says nothing about the message, so this is no rollback, which would count
    /// against the queue: the reader keeps the message until a start succeeds or the reader is stopped.
    fn prepare<'a>(&'a mut self, session: &'a Session, message: &'a Message) -> BoxFuture<'a, Result<()>> {
        Box::pin(async move {
            if !self.program.takes(message) {
                return Ok(());
            }
            // One that has ended since its last answer says nothing about this message either.
            if self.child.as_mut().is_some_and(Child::has_ended) {
                self.child = None;
            }
            let of_message = (self.program.mode == Mode::Message).then_some(message);
            while self.child.is_none() {
                let error = match self.program.spawn(&self.queue, of_message) {
                    Ok(child) => {
                        self.child = Some(child);
                        break;
                    }
                    Err(error) if session.is_stopping() => return Err(error),
                    Err(error) => error,
                };
                tracing::error!(queue = %self.queue, %error, "trying again in 5 s");
                session.note_failed_start(error);
                let due = session.clock().now().after(PAUSE);
                tokio::select! {
                    () = session.clock().sleep_until(due) => {}
                    () = session.stopping() => {}
                }
                // A closed broker needs no program.
                session.begin().await?;
            }
            Ok(())
        })
    }

    fn takes_again(&mut self) -> bool {
        std::mem::take(&mut self.is_to_restart)
    }

    fn finish(&mut self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            if let Some(child) = self.child.take() {
                child.finish().await;
            }
        })
    }
}

impl Server {
    async fn run_once(&self, child: Child, context: &Context) -> HandlerResult {
        let message = context.message();
        let input = if self.program.raw_body { message.body().to_vec() } else { line_of(message)? };
        let answer = String::from_utf8(child.run(input).await?)
            .map_err(|_| failed(format!("program '{}' answered with no UTF-8", self.program.display())))?;
        for line in answer.lines().filter(|line| !line.trim().is_empty()) {
            match Line::parse(line)? {
                Line::Reply(reply) => reply.apply(context).await?,
                Line::Commit | Line::Rollback(_) => {
                    let what = "it answered with commit or rollback, which its exit code decides";
                    return Err(failed(format!("program '{}': {what}", self.program.display())).into());
                }
            }
        }
        Ok(())
    }

    async fn ask(&mut self, mut child: Child, context: &Context) -> HandlerResult {
        let line = line_of(context.message())?;
        let has_served = child.has_served();
        let mut answer = child.ask(&line).await;
        // One that leaves after its last answer says nothing about this message. A program that ended itself after each
        // message made dead letters of every second one, which it had never seen. The next start may fail, and the time limit does
        // not run while it is tried again: so it is the work of `prepare`.
        if answer.is_err() && has_served && child.has_left() {
            self.is_to_restart = true;
        }
        let mut replies: Vec<Reply> = Vec::new();
        loop {
            match Line::parse(&answer?)? {
                Line::Reply(reply) => replies.push(reply),
                Line::Commit => break,
                Line::Rollback(why) => {
                    self.child = Some(child);
                    let what = format!("program '{}' rolled back: {why}", self.program.display());
                    return Err(failed(what).into());
                }
            }
            answer = child.read_line().await;
        }
        self.child = Some(child);
        for reply in replies {
            reply.apply(context).await?;
        }
        Ok(())
    }
}

fn line_of(message: &Message) -> std::result::Result<Vec<u8>, HandlerError> {
    let mut line = serde_json::to_vec(&MessageLine(message))?;
    line.push(b'\n');
    Ok(line)
}

/// Whether a line of a program's answer is valid.
pub(crate) fn check_program_line(line: &str) -> Result<()> {
    Line::parse(line).map(drop)
}

/// 60025: the end or failure of a program.
fn failed(what: String) -> Error {
    Error::new(Code::PROGRAM_FAILED, what)
}

/// The file of a program's name, found as the shell would.
fn find(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    if path.components().count() > 1 || path.is_absolute() {
        return may_run(path).then(|| path.to_owned());
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(path)).find(|candidate| may_run(candidate))
}

#[cfg(unix)]
fn may_run(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(not(unix))]
fn may_run(path: &Path) -> bool {
    path.is_file() || path.with_extension("exe").is_file()
}
