//! ctrl-C: the first asks a command to stop where nothing is half done, the second to drop what it has in hand. Every other
//! signal that would end the process and can be caught counts as ctrl-C, so that no program of a reader outlives it.
//!
//! Signals that come together are one request: `timeout` sends its signal twice, systemd with SendSIGHUP sends TERM and HUP, and a
//! terminal that closes sends HUP as its shell does. The second of them killed the programs at work.

use super::failure::Failure;
use super::globals::Globals;
use super::output::Output;
use std::pin::pin;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a command may take to let go after the second ctrl-C.
const GRACE: Duration = Duration::from_secs(2);

/// How long a change under way may take to be done after ctrl-C. One that waits for nothing takes milliseconds.
const LAST_MOMENT: Duration = Duration::from_millis(500);

/// How soon after a request a signal still belongs to it. No person presses ctrl-C again so soon.
const TOGETHER: Duration = Duration::from_millis(100);

/// Whether a stop was requested, by ctrl-C or by another signal that ends a process.
#[derive(Debug, Clone)]
pub(crate) struct Interrupt(watch::Receiver<Requests>);

#[derive(Debug, Clone, Copy, Default)]
struct Requests {
    times: u32,
    /// The first came by SIGTERM, or with one.
    is_termination: bool,
}

impl Interrupt {
    /// One that never comes.
    #[cfg(test)]
    pub(crate) fn never() -> Self {
        Self(watch::channel(Requests::default()).1)
    }

    /// Runs work that can be dropped at any time; `None` if a stop is requested before it is done.
    pub(crate) async fn unless_requested<T, E>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<Option<T>, E> {
        let mut interrupt = self.clone();
        tokio::select! {
            done = work => done.map(Some),
            () = interrupt.requested() => Ok(None),
        }
    }

    /// Listens from now on. `is_json` says how the end is reported that a second request brings.
    pub(super) fn listen(is_json: bool) -> Result<Self, Failure> {
        let (sender, receiver) = watch::channel(Requests::default());
        let mut signals =
            Signals::new().map_err(|error| Failure::input(format!("signal handlers cannot be installed: {error}")))?;
        tokio::spawn(async move {
            let mut last: Option<Instant> = None;
            while let Some(is_termination) = signals.next().await {
                if last.is_some_and(|last| last.elapsed() < TOGETHER) {
                    // The system may deliver them in another order than they were sent in.
                    sender.send_modify(|seen| seen.is_termination |= is_termination && seen.times == 1);
                    continue;
                }
                last = Some(Instant::now());
                let mut times = 0;
                sender.send_modify(|seen| {
                    seen.is_termination = if seen.times == 0 { is_termination } else { seen.is_termination };
                    seen.times += 1;
                    times = seen.times;
                });
                if times == 2 {
                    let end = move || {
                        kill_programs();
                        report_end(is_json);
                        // Commits are atomic and acknowledged only once synced, so this loses nothing either.
                        std::process::exit(130);
                    };
                    let ends_later = std::thread::Builder::new().spawn(move || {
                        std::thread::sleep(GRACE);
                        end();
                    });
                    // Where the system gives no more threads, the process must end all the same.
                    if ends_later.is_err() {
                        end();
                    }
                }
            }
        });
        Ok(Self(receiver))
    }

    /// Waits until a stop is requested.
    pub(super) async fn requested(&mut self) {
        self.requested_times(1).await;
    }

    /// Waits until a stop is requested so many times.
    pub(super) async fn requested_times(&mut self, times: u32) {
        if self.0.wait_for(|seen| seen.times >= times).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// How a service ends that was asked to stop and has finished what it had in hand. SIGTERM is how a system ends a service, which has
    /// not failed then.
    pub(super) fn after_the_work(&self, done: String) -> Failure {
        if self.0.borrow().is_termination { Failure::Terminated(done) } else { Failure::Interrupted(done) }
    }

    /// Runs work that can be dropped at any time: it changes nothing, or its transaction rolls back.
    pub(super) async fn stops<T>(&self, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        self.unless_requested(work).await?.ok_or_else(|| Failure::Interrupted("interrupted".into()))
    }

    /// Runs a change. If a stop is requested, the change has a moment to be done; else `None`. It may be done all the same then: the store
    /// may have it already.
    pub(super) async fn finishes<T>(&self, change: impl Future<Output = T>) -> Option<T> {
        let mut change = pin!(change);
        let mut interrupt = self.clone();
        tokio::select! {
            biased;
            done = &mut change => return Some(done),
            () = interrupt.requested() => {}
        }
        tokio::time::timeout(LAST_MOMENT, change).await.ok()
    }

    /// The same for a change that is all there is to do.
    pub(super) async fn stops_change<T>(&self, change: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
        let done = self.finishes(change).await;
        done.unwrap_or_else(|| Err(Failure::Interrupted(format!("interrupted; {UNDER_WAY}"))))
    }

    /// Runs a command that opens the broker for one change. Before it is open nothing is under way.
    pub(super) async fn stops_command(
        &self,
        globals: &Globals,
        command: impl Future<Output = Result<(), Failure>>,
    ) -> Result<(), Failure> {
        let mut command = pin!(command);
        let mut interrupt = self.clone();
        tokio::select! {
            biased;
            done = &mut command => return done,
            () = interrupt.requested() => {}
        }
        match globals.opened.get() {
            Some(_) => self.stops_change(command).await,
            None => Err(Failure::Interrupted("interrupted".into())),
        }
    }
}

/// What is said of a change that ctrl-C has cut off.
pub(super) const UNDER_WAY: &str = "what was under way may have been done";

/// Says why the process ends without a report of its work; the reader of standard error may have stopped reading.
fn report_end(is_json: bool) {
    let (done, is_done) = std::sync::mpsc::channel();
    // Without a thread nothing is said.
    let _ = std::thread::Builder::new().spawn(move || {
        Failure::Interrupted(format!("interrupted again; {UNDER_WAY}")).report(&Output::new(is_json));
        let _ = done.send(());
    });
    let _ = is_done.recv_timeout(Duration::from_millis(100));
}

/// From now on the first signal ends the process: all that is left is to say how it went, and standard error may be a pipe that is not
/// read. The signals that came before were for the work.
pub(super) fn ends_at_once() {
    // Without a thread or a runtime the report may wait, as before.
    let _ = std::thread::Builder::new().spawn(|| {
        let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() else { return };
        runtime.block_on(async {
            if let Ok(mut signals) = Signals::new()
                && signals.next().await.is_some()
            {
                // The signal may belong to one that has ended the work, and a report that is read takes no time.
                std::thread::sleep(LAST_MOMENT);
                std::process::exit(130);
            }
        });
    });
}

/// Kills the programs of readers and what they have started.
pub(super) fn kill_programs() {
    #[cfg(unix)]
    dialoq::internals::kill_all();
}

#[cfg(unix)]
struct Signals {
    that_end: Vec<tokio::signal::unix::Signal>,
    /// Caught, so that a write beyond the limit of a file's size (`ulimit -f`) fails, and does not end the process without a word.
    _file_size: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        // SIGTERM is the first: `next` says so by its place.
        let mut signals = vec![signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?];
        let others = [
            SignalKind::hangup(),
            SignalKind::quit(),
            SignalKind::alarm(),
            SignalKind::user_defined1(),
            SignalKind::user_defined2(),
        ];
        // XCPU, VTALRM and PROF.
        #[cfg(target_os = "linux")]
        let others = others.into_iter().chain([24, 26, 27].map(SignalKind::from_raw));
        // `nohup` and shells start programs with signals that are to do nothing.
        let ignored = ignored();
        for kind in others {
            if ignored & (1 << (kind.as_raw_value() - 1)) == 0 {
                signals.push(signal(kind)?);
            }
        }
        Ok(Self { that_end: signals, _file_size: signal(SignalKind::from_raw(XFSZ))? })
    }

    /// Whether it was SIGTERM.
    async fn next(&mut self) -> Option<bool> {
        use std::task::Poll;
        std::future::poll_fn(|task| {
            for (place, signal) in self.that_end.iter_mut().enumerate() {
                if let Poll::Ready(received) = signal.poll_recv(task) {
                    return Poll::Ready(received.map(|()| place == 0));
                }
            }
            Poll::Pending
        })
        .await
    }
}

/// The same number on Linux, macOS and the BSDs.
#[cfg(unix)]
const XFSZ: i32 = 25;

/// The signals that this process was started to ignore, a bit each; none where the system does not tell.
#[cfg(unix)]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> Option<bool> {
        tokio::signal::ctrl_c().await.ok().map(|()| false)
    }
}
