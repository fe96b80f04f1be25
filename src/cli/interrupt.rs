//! ctrl-C: the first asks a command to stop where nothing is half done, the second to drop what it has in hand.

use super::failure::Failure;
use std::time::Duration;
use tokio::sync::watch;

/// How long a command may take to let go after the second ctrl-C.
const GRACE: Duration = Duration::from_secs(2);

/// Whether somebody asked to stop, by ctrl-C or by the signal TERM.
#[derive(Debug, Clone)]
pub(super) struct Interrupt(watch::Receiver<u32>);

impl Interrupt {
    /// Listens from now on.
    pub(super) fn listen() -> Result<Self, Failure> {
        let (sender, receiver) = watch::channel(0);
        let mut signals =
            Signals::new().map_err(|error| Failure::input(format!("signals cannot be heard: {error}")))?;
        tokio::spawn(async move {
            while signals.next().await {
                let mut times = 0;
                sender.send_modify(|seen| {
                    *seen += 1;
                    times = *seen;
                });
                if times == 2 {
                    std::thread::spawn(|| {
                        std::thread::sleep(GRACE);
                        // Commits are atomic and acknowledged only once synced, so this loses nothing either.
                        std::process::exit(130);
                    });
                }
            }
        });
        Ok(Self(receiver))
    }

    /// Waits until somebody asks to stop.
    pub(super) async fn asked(&mut self) {
        self.asked_times(1).await;
    }

    /// Waits until somebody asks so many times.
    pub(super) async fn asked_times(&mut self, times: u32) {
        if self.0.wait_for(|seen| *seen >= times).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Runs work that can be dropped at any time: its transactions roll back.
    pub(super) async fn stops(&mut self, work: impl Future<Output = Result<(), Failure>>) -> Result<(), Failure> {
        tokio::select! {
            done = work => done,
            () = self.asked() => Err(Failure::Interrupted("interrupted".into())),
        }
    }
}

#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) -> bool {
        tokio::select! {
            heard = self.interrupt.recv() => heard.is_some(),
            heard = self.terminate.recv() => heard.is_some(),
        }
    }
}

#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> std::io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) -> bool {
        tokio::signal::ctrl_c().await.is_ok()
    }
}
