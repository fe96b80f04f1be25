//! A process that leads a group of its own. The whole group ends with it.

use std::io;
use std::process::ExitStatus;
#[cfg(unix)]
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::process::{Child, Command};

/// The groups of this process that may still have members.
#[cfg(unix)]
static GROUPS: Mutex<Vec<rustix::process::Pid>> = Mutex::new(Vec::new());

#[cfg(unix)]
fn groups() -> MutexGuard<'static, Vec<rustix::process::Pid>> {
    GROUPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Kills all programs and their children, and lets none start from now on: this process ends without running
/// destructors.
#[cfg(all(unix, feature = "cli"))]
pub(crate) fn kill_all() {
    let groups = groups();
    for group in groups.iter() {
        // Fails if no member is left.
        let _ = rustix::process::kill_process_group(*group, rustix::process::Signal::KILL);
    }
    // Held to the end of the process, so that no start comes between.
    std::mem::forget(groups);
}

/// A running process. When it has ended, or when this is dropped, the rest of its group is killed.
///
/// On Windows there are no process groups: only the process itself is killed there.
pub(super) struct Process {
    leader: Child,
    #[cfg(unix)]
    group: Option<rustix::process::Pid>,
}

impl Process {
    /// Starts it as the leader of a new group, so that ctrl-C on a terminal, which goes to a whole group, leaves it to
    /// finish its message.
    pub(super) fn spawn(command: &mut Command) -> io::Result<Self> {
        command.kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        #[cfg(unix)]
        let mut groups = groups();
        let leader = command.spawn()?;
        #[cfg(unix)]
        let group = leader.id().and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        #[cfg(unix)]
        groups.extend(group);
        Ok(Self {
            leader,
            #[cfg(unix)]
            group,
        })
    }

    /// The process itself, for its pipes.
    pub(super) fn leader(&mut self) -> &mut Child {
        &mut self.leader
    }

    /// Waits until the process has ended, then kills the rest of its group. The future may be dropped and the call
    /// repeated.
    pub(super) async fn wait(&mut self) -> io::Result<ExitStatus> {
        let status = self.leader.wait().await?;
        self.kill_group();
        Ok(status)
    }

    /// Kills the group and waits until its leader is gone.
    pub(super) async fn kill(&mut self) -> io::Result<()> {
        self.kill_group();
        self.leader.kill().await
    }

    /// The number of a group stays taken while one of its members lives, so it names this group or none: another
    /// process could get it only after all other numbers had been used since the leader's end, a moment ago.
    fn kill_group(&mut self) {
        #[cfg(unix)]
        if let Some(group) = self.group.take() {
            // Fails if no member is left.
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            groups().retain(|other| *other != group);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill_group();
    }
}
