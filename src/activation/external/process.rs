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
/// destructors. A second call only waits for the first, which keeps the lock.
#[cfg(all(unix, feature = "cli"))]
pub(crate) fn kill_all() {
    static KILLED: std::sync::Once = std::sync::Once::new();
    KILLED.call_once(kill_groups);
}

#[cfg(all(unix, feature = "cli"))]
fn kill_groups() {
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

/// Whether a child has ended by a signal without having become its program.
#[cfg(target_os = "linux")]
fn was_killed_before_it_began(child: &mut Child) -> bool {
    use std::os::unix::process::ExitStatusExt;
    use std::time::{Duration, Instant};
    /// A program is loaded in less than a millisecond. One that is not after this is left to its reader.
    const LONGEST_LOADING: Duration = Duration::from_secs(1);
    let Some(id) = child.id() else { return false };
    let begun = Instant::now();
    while begun.elapsed() < LONGEST_LOADING {
        // Without /proc it cannot be known.
        let Some(stage) = Stage::of(id) else { return false };
        match stage {
            Stage::Loaded => return false,
            Stage::EndedUnloaded => {
                return child.try_wait().ok().flatten().is_some_and(|status| status.signal().is_some());
            }
            Stage::Loading => std::thread::sleep(Duration::from_micros(50)),
        }
    }
    false
}

/// How far a child has come.
#[cfg(target_os = "linux")]
#[derive(Debug, PartialEq, Eq)]
enum Stage {
    Loading,
    /// It is its program, or has been.
    Loaded,
    EndedUnloaded,
}

#[cfg(target_os = "linux")]
impl Stage {
    /// From the flag of the kernel that a process has since its fork and loses with its program (PF_FORKNOEXEC). One that has ended keeps it
    /// until it is waited for, while its command line is empty: a program that ended at once was taken for one that had not begun.
    fn of(id: u32) -> Option<Self> {
        const HAS_NO_PROGRAM: u64 = 0x40;
        let line = std::fs::read(format!("/proc/{id}/stat")).ok()?;
        // The name in parentheses may have any bytes.
        let line = String::from_utf8_lossy(&line);
        let mut fields = line.get(line.rfind(')')? + 1..)?.split_ascii_whitespace();
        let state = fields.next()?;
        let flags: u64 = fields.nth(5)?.parse().ok()?;
        Some(match state {
            _ if flags & HAS_NO_PROGRAM == 0 => Self::Loaded,
            "Z" | "X" => Self::EndedUnloaded,
            _ => Self::Loading,
        })
    }
}

#[cfg(test)]
mod tests {
    #[cfg(target_os = "linux")]
    use super::*;

    /// One that ended by its own signal at once was started a hundred times for its message.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_program_that_ended_at_once_is_not_taken_for_one_that_never_began() {
        let _limit = crate::testing::limit();
        let mut child = Command::new("sh").args(["-c", "kill -9 $$"]).spawn().unwrap();
        let id = child.id().unwrap();
        let has_ended = || std::fs::read(format!("/proc/{id}/cmdline")).unwrap().is_empty();
        while Stage::of(id) == Some(Stage::Loading) || !has_ended() {
            tokio::task::yield_now().await;
        }
        assert_eq!(Stage::of(id), Some(Stage::Loaded));
        assert!(!was_killed_before_it_began(&mut child));
    }
}
