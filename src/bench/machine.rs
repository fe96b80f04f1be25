//! The machine and build of a measurement: without them a figure means nothing.

use serde::Serialize;
use std::path::Path;
use std::process::Command;
use std::time::UNIX_EPOCH;

/// The machine, the file system and the build.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Machine {
    /// The processor's own name.
    pub cpu: String,
    /// Cores this process may use.
    pub cores: usize,
    /// System and its version.
    pub kernel: String,
    /// The type of the file system under the bench's folder.
    pub file_system: String,
    /// The version of Dialoq.
    pub version: &'static str,
    /// The commit this was built from, if the command still lies in the tree that it was built in; with a `+` if others have
    /// come since, so the sources may differ.
    pub commit: Option<String>,
    /// `release` or `debug`: figures of a debug build are worth nothing.
    pub build: &'static str,
}

impl Machine {
    /// Reads the facts of this machine; a fact that cannot be read is `unknown`.
    pub(super) fn detect(folder: &Path) -> Self {
        let unknown = || "unknown".to_owned();
        Self {
            cpu: cpu().unwrap_or_else(unknown),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: kernel().unwrap_or_else(unknown),
            file_system: file_system(folder).unwrap_or_else(unknown),
            version: env!("CARGO_PKG_VERSION"),
            commit: commit(),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }
}

fn output(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn cpu() -> Option<String> {
    if let Ok(text) = std::fs::read_to_string("/proc/cpuinfo") {
        let line = text.lines().find(|line| line.starts_with("model name"))?;
        return Some(line.split_once(':')?.1.trim().to_owned());
    }
    output(Command::new("sysctl").args(["-n", "machdep.cpu.brand_string"]))
}

fn kernel() -> Option<String> {
    output(Command::new("uname").args(["-s", "-r", "-m"]))
}

fn file_system(folder: &Path) -> Option<String> {
    let folder = folder.canonicalize().ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    // "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw": the mount point is the fifth, the type
    // follows the dash.
    let mounts = mounts.lines().filter_map(|line| {
        let (place, kind) = line.split_once(" - ")?;
        let point = Path::new(place.split(' ').nth(4)?);
        folder.starts_with(point).then_some((point.components().count(), kind.split(' ').next()?))
    });
    mounts.max_by_key(|(depth, _)| *depth).map(|(_, kind)| kind.to_owned())
}

fn commit() -> Option<String> {
    let exe = std::env::current_exe().ok()?;
    let git = |args: &[&str]| output(Command::new("git").arg("-C").arg(exe.parent()?).args(args));
    let built_at = exe.metadata().ok()?.modified().ok()?.duration_since(UNIX_EPOCH).ok()?.as_secs();
    let last_at: u64 = git(&["log", "-1", "--format=%ct"])?.parse().ok()?;
    if last_at <= built_at {
        return git(&["describe", "--always", "--dirty", "--tags"]);
    }
    // The tree has moved on since.
    let before = git(&["log", "-1", &format!("--before={built_at}"), "--format=%h"])?;
    Some(before + "+")
}

/// Memory of this process that is resident now, in bytes.
pub(super) fn resident_bytes() -> Option<u64> {
    if let Ok(text) = std::fs::read_to_string("/proc/self/status") {
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        return line.trim().trim_end_matches("kB").trim().parse::<u64>().ok().map(|kib| kib * 1024);
    }
    let kib = output(Command::new("ps").args(["-o", "rss=", "-p"]).arg(std::process::id().to_string()))?;
    kib.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_grows_with_touched_pages() {
        let before = resident_bytes().unwrap();
        let touched = std::hint::black_box(vec![1u8; 64 << 20]);
        let after = resident_bytes().unwrap();
        assert!(after > before + (touched.len() as u64) / 2, "{before} -> {after}");
    }

    #[test]
    fn the_machine_has_a_name() {
        let machine = Machine::detect(Path::new("."));
        assert!(machine.cores > 0 && !machine.kernel.is_empty() && !machine.cpu.is_empty());
    }
}
