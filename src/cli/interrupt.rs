//! ctrl-C: the first asks a command to stop where nothing is half done, the second ends the process at once.

use super::failure::Failure;
use tokio::sync::watch;

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
                if sender.send_if_modified(|times| {
                    *times += 1;
                    *times == 1
                }) {
                    continue;
                }
                // Every commit is atomic and acknowledged only once synced, so this loses nothing either.
                std::process::exit(130);
            }
        });
        Ok(Self(receiver))
    }

    /// Waits until somebody asks to stop.
    pub(super) async fn asked(&mut self) {
        if self.0.wait_for(|times| *times > 0).await.is_err() {
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
