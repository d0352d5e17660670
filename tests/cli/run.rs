//! Running the binary, never for longer than a limit.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Nothing here asks a network, so this is a bound for slow machines.
const LIMIT: Duration = Duration::from_secs(20);

/// What a run came to.
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
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // Both pipes hold more than any of these runs prints, so the process never waits for us.
    let deadline = Instant::now() + LIMIT;
    let status = loop {
        if let Some(status) = child.try_wait().expect("the state of a child") {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().expect("killing a child");
            panic!("{command:?} did not end within {LIMIT:?}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (mut stdout, mut stderr) = (String::new(), String::new());
    child.stdout.take().expect("a pipe").read_to_string(&mut stdout).expect("text");
    child.stderr.take().expect("a pipe").read_to_string(&mut stderr).expect("text");
    Output { code: status.code(), stdout, stderr }
}

/// Runs the binary; it must fail by 1 and say just this.
pub(crate) fn check_fails(args: &[&str], message: &str) {
    let output = run(s3mount(args));
    assert_eq!(output.stderr, format!("s3mount: {message}\n"), "{args:?}");
    assert_eq!((output.code, output.stdout.as_str()), (Some(1), ""), "{args:?}");
}

/// Runs the binary; it must fail by 2 and begin with this line.
pub(crate) fn check_usage(args: &[&str], line: &str) {
    let output = run(s3mount(args));
    assert_eq!(output.stderr.lines().next(), Some(line), "{args:?}: {}", output.stderr);
    assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{args:?}");
}
