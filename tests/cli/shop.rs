//! A database of its own for every test, and short ways to run the command on it.

use assert_cmd::Command;
use assert_cmd::cargo::cargo_bin;
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command as Process, Output, Stdio};
use tempfile::TempDir;

/// Two services that place orders with one another.
pub(crate) const SHOP: &str = "\
CREATE MESSAGE TYPE [//shop/PlaceOrder] VALIDATION = NONE;
CREATE MESSAGE TYPE [//shop/OrderPlaced] VALIDATION = WELL_FORMED_XML;
CREATE CONTRACT [//shop/Orders] ([//shop/PlaceOrder] SENT BY INITIATOR, [//shop/OrderPlaced] SENT BY TARGET);
CREATE QUEUE orders;
CREATE QUEUE checkout;
CREATE SERVICE [//shop/OrderService] ON QUEUE orders ([//shop/Orders]);
CREATE SERVICE [//shop/Checkout] ON QUEUE checkout;
";

pub(crate) struct Shop {
    pub(crate) folder: TempDir,
}

impl Shop {
    /// An empty folder.
    pub(crate) fn empty() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    /// With the definitions of [`SHOP`].
    pub(crate) fn open() -> Self {
        let shop = Self::empty();
        shop.ok_with(&["apply", "-"], SHOP.as_bytes());
        shop
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn url(&self) -> String {
        format!("sqlite:{}", self.path("shop.db").display())
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(cargo_bin!("dialoq"));
        command.current_dir(self.folder.path()).env("DIALOQ_URL", self.url()).env_remove("DIALOQ_LOG").args(arguments);
        command
    }

    /// Runs it to its end with this standard input.
    pub(crate) fn run_with(&self, arguments: &[&str], input: &[u8]) -> Output {
        self.command(arguments).write_stdin(input).output().unwrap()
    }

    /// What it prints; it must succeed.
    pub(crate) fn ok_with(&self, arguments: &[&str], input: &[u8]) -> String {
        let output = self.run_with(arguments, input);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        self.ok_with(arguments, b"")
    }

    /// The lines of JSON it prints; it must succeed.
    pub(crate) fn json(&self, arguments: &[&str]) -> Vec<Value> {
        lines(&self.ok(arguments))
    }

    /// What it prints to standard error; it must fail with this code.
    pub(crate) fn fails(&self, code: i32, arguments: &[&str]) -> String {
        self.fails_with(code, arguments, b"")
    }

    pub(crate) fn fails_with(&self, code: i32, arguments: &[&str], input: &[u8]) -> String {
        let output = self.run_with(arguments, input);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {error}{}", text(&output.stdout));
        error
    }

    /// Sends orders with these bodies on one new dialog; gives its handle.
    pub(crate) fn order(&self, bodies: &[&str]) -> String {
        let arguments = [&["--json"], SEND_ORDER, bodies].concat();
        self.json(&arguments)[0]["conversation_handle"].as_str().unwrap().to_owned()
    }

    /// The bodies that are ready in a queue, in order, taken out.
    pub(crate) fn bodies(&self, queue: &str) -> Vec<String> {
        let mut bodies = Vec::new();
        loop {
            let output = self.run_with(&["--json", "receive", queue], b"");
            match output.status.code() {
                Some(0) => bodies.extend(lines(&text(&output.stdout)).iter().map(body)),
                Some(3) => return bodies,
                _ => panic!("{}", text(&output.stderr)),
            }
        }
    }

    /// Starts it and lets it run.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        self.start_by(Process::new(cargo_bin!("dialoq")), arguments)
    }

    /// The same in a process group of its own, as on a terminal.
    #[cfg(unix)]
    pub(crate) fn start_in_a_group(&self, arguments: &[&str]) -> Running {
        let mut command = Process::new(cargo_bin!("dialoq"));
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        self.start_by(command, arguments)
    }

    fn start_by(&self, mut command: Process, arguments: &[&str]) -> Running {
        let mut child = command
            .current_dir(self.folder.path())
            .env("DIALOQ_URL", self.url())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let input = child.stdin.take();
        Running { child, input, output: Some(output) }
    }

    /// Runs it on a terminal, where it asks before it changes anything; what `meanwhile` does happens between the question and `y`.
    /// Gives what it prints to standard output.
    #[cfg(target_os = "linux")]
    pub(crate) fn asked(&self, arguments: &[&str], meanwhile: impl FnOnce()) -> String {
        use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
        use std::io::{Read, Write};
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
        let side = std::fs::File::options().read(true).write(true).open(name).unwrap();
        let mut command = Process::new(cargo_bin!("dialoq"));
        command.current_dir(self.folder.path()).env("DIALOQ_URL", self.url()).args(arguments);
        command.stdin(side.try_clone().unwrap()).stderr(side).stdout(Stdio::piped());
        let child = command.spawn().unwrap();
        // It holds the other side of the terminal.
        drop(command);
        let (mut terminal, mut shown) = (std::fs::File::from(terminal), Vec::new());
        while !shown.ends_with(b"[y/N] ") {
            let mut some = [0; 100];
            let read = terminal.read(&mut some).unwrap_or_else(|error| panic!("{error}: {}", text(&shown)));
            shown.extend_from_slice(&some[..read]);
        }
        meanwhile();
        terminal.write_all(b"y\n").unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&shown));
        text(&output.stdout)
    }
}

/// The arguments that place an order, without bodies.
pub(crate) const SEND_ORDER: &[&str] = &[
    "send",
    "--from",
    "//shop/Checkout",
    "--to",
    "//shop/OrderService",
    "--contract",
    "//shop/Orders",
    "--type",
    "//shop/PlaceOrder",
];

/// A command that runs until it is stopped; killed if a test fails before.
pub(crate) struct Running {
    pub(crate) child: Child,
    pub(crate) input: Option<std::process::ChildStdin>,
    pub(crate) output: Option<BufReader<std::process::ChildStdout>>,
}

impl Running {
    /// Waits for its next line.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.as_mut().unwrap().read_line(&mut line).unwrap();
        line
    }

    /// Waits for its next line on standard error, and leaves the rest to its end.
    pub(crate) fn error_line(&mut self) -> String {
        let (mut line, mut byte) = (Vec::new(), [0]);
        while !line.ends_with(b"\n") {
            std::io::Read::read_exact(self.child.stderr.as_mut().unwrap(), &mut byte).unwrap();
            line.extend(byte);
        }
        text(&line)
    }

    /// Sends the signal of ctrl-C.
    pub(crate) fn interrupt(&self) {
        self.signal("INT");
    }

    /// Sends the signal of ctrl-C as a terminal does, to its whole group.
    pub(crate) fn interrupt_its_group(&self) {
        let group = format!("-{}", self.child.id());
        assert!(Process::new("kill").args(["-s", "INT", "--", &group]).status().unwrap().success());
    }

    /// Waits until it has a handler of its own for the interrupt; a signal that comes before ends it at once.
    pub(crate) fn until_it_listens(&mut self) {
        while !listens(&self.child) {
            assert!(self.child.try_wait().unwrap().is_none(), "it ended before it listened");
            std::thread::yield_now();
        }
    }

    /// Sends a signal, named without its SIG.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Process::new("kill").args(["-s", name, &pid]).status().unwrap().success());
    }

    /// Waits until it has made that file; it must not end before.
    pub(crate) fn until_exists(&mut self, path: &std::path::Path) {
        while !path.exists() {
            assert!(self.child.try_wait().unwrap().is_none(), "it ended before it made {}", path.display());
            std::thread::yield_now();
        }
    }

    /// The operating system's id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has not ended yet.
    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end; gives the exit code and standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let mut error = String::new();
        std::io::Read::read_to_string(self.child.stderr.as_mut().unwrap(), &mut error).unwrap();
        (self.child.wait().unwrap().code(), error)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a command has a handler of its own for the interrupt.
pub(crate) fn listens(child: &Child) -> bool {
    const INT: u64 = 1 << 1;
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
    u64::from_str_radix(caught, 16).unwrap_or(0) & INT != 0
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

pub(crate) fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

pub(crate) fn body(message: &Value) -> String {
    message["body"].as_str().unwrap_or_default().to_owned()
}
