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
        let (leader, id) = start(command)?;
        #[cfg(unix)]
        let group = id.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        #[cfg(not(unix))]
        let _ = id;
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

#[cfg(not(target_os = "linux"))]
fn start(command: &mut Command) -> io::Result<(Child, Option<u32>)> {
    let child = command.spawn()?;
    let id = child.id();
    Ok((child, id))
}

/// Starts it again if a signal has killed it before it became the program. A signal to the group of this process, as ctrl-C on a terminal,
/// meets a child that has no group of its own yet. That was taken for the end of the program: one ctrl-C in seven made a dead letter of a
/// message that no program had seen.
#[cfg(target_os = "linux")]
fn start(command: &mut Command) -> io::Result<(Child, Option<u32>)> {
    const MOST_STARTS: u32 = 100;
    let mut starts = 0;
    loop {
        let mut child = command.spawn()?;
        // The check forgets it of a program that has ended already. Its group may have other members.
        let id = child.id();
        starts += 1;
        if starts == MOST_STARTS || !was_killed_before_it_began(&mut child) {
            return Ok((child, id));
        }
    }
}

/// Whether a child has ended by a signal without having become its program, which has a command line as soon as it is loaded.
#[cfg(target_os = "linux")]
fn was_killed_before_it_began(child: &mut Child) -> bool {
    use std::os::unix::process::ExitStatusExt;
    use std::time::{Duration, Instant};
    /// A program is loaded in less than a millisecond; one that removes its command line is taken for loaded after this.
    const LONGEST_LOADING: Duration = Duration::from_secs(1);
    let Some(id) = child.id() else { return false };
    let command_line = format!("/proc/{id}/cmdline");
    let begun = Instant::now();
    while begun.elapsed() < LONGEST_LOADING {
        // Without /proc it cannot be known.
        if std::fs::read(&command_line).map_or(true, |text| !text.is_empty()) {
            return false;
        }
        if let Some(status) = child.try_wait().ok().flatten() {
            return status.signal().is_some();
        }
        std::thread::sleep(Duration::from_micros(50));
    }
    false
}
