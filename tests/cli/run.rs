//! Runs the binary for no longer than a limit.

use std::process::Command;
use std::time::Duration;

use s3mount_testkit::run_with_timeout;

/// How long a run may take. No run here uses a network, so this is for slow machines only.
const LIMIT: Duration = Duration::from_secs(100);

/// The exit code of a run, and what it printed.
#[derive(Debug)]
pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The binary, in an environment that is the same everywhere.
pub(crate) fn s3mount(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_s3mount"));
    command.args(args).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    // Help is as wide on every terminal.
    command.env("COLUMNS", "100");
    command
}

/// Runs `command` to its end.
pub(crate) fn run(mut command: Command) -> Output {
    let output = run_with_timeout(&mut command, LIMIT).expect("it ends in time");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Output { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// Runs the binary, which must exit with 1 and print just this message.
pub(crate) fn check_fails(args: &[&str], message: &str) {
    let output = run(s3mount(args));
    assert_eq!(output.stderr, format!("s3mount: {message}\n"), "{args:?}");
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""), "{args:?}");
}

/// Runs the binary, which must exit with 2 and print this line first.
pub(crate) fn check_usage(args: &[&str], line: &str) {
    let output = run(s3mount(args));
    assert_eq!(output.stderr.lines().next(), Some(line), "{args:?}: {}", output.stderr);
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{args:?}");
}
