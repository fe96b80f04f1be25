//! Programs that a test writes and then has started.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Writes a program that may be run at once, in one step: a start meets all of it or the one before. Another process
/// writes it: whatever the tests beside this one start at that moment would inherit a file that is open for writing
/// here, and no file can be started while any process has it open for writing ("Text file busy").
///
/// # Panics
/// If the shell does not run or cannot write there.
pub fn write_program(path: &Path, text: &str) {
    let mut shell = Command::new("sh")
        .args(["-ec", r#"cat > "$0.new"; chmod 755 "$0.new"; mv "$0.new" "$0""#])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("the shell runs");
    shell.stdin.take().expect("its input is a pipe").write_all(text.as_bytes()).expect("the shell reads the program");
    assert!(shell.wait().expect("the shell ends").success(), "{} was not written", path.display());
}
