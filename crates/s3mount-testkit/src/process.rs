//! Runs programs that might hang.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

/// The process group that a child leads.
pub(crate) fn group(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap_or(i32::MAX))
}

fn drain(mut pipe: impl Read + Send + 'static) -> JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // A pipe that breaks ends the output. What was read before counts as the output.
        let _ = pipe.read_to_end(&mut bytes);
        bytes
    })
}

/// Runs `command` to its end, and returns what it printed. The command runs in a process group of its own.
/// The whole group is killed after `limit`. When the command ends before, the processes that are left of the
/// group are killed.
///
/// # Errors
/// When the command can't be started. Also when it was killed: the error then quotes what the command had
/// printed.
pub fn run_with_timeout(command: &mut Command, limit: Duration) -> anyhow::Result<Output> {
    let deadline = Instant::now() + limit;
    let mut child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("starting {:?}", command.get_program()))?;
    let stdout = drain(child.stdout.take().context("stdout is piped")?);
    let stderr = drain(child.stderr.take().context("stderr is piped")?);
    let status = loop {
        if let Some(status) = child.try_wait()? {
            // Processes that are left of the group would hold the pipes open. Mostly there are none.
            let _ = killpg(group(child.id()), Signal::SIGKILL);
            break Some(status);
        }
        if Instant::now() >= deadline {
            killpg(group(child.id()), Signal::SIGKILL).context("killing what hangs")?;
            child.wait()?;
            break None;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let join = |thread: JoinHandle<Vec<u8>>| thread.join().unwrap_or_default();
    let (stdout, stderr) = (join(stdout), join(stderr));
    match status {
        Some(status) => Ok(Output { status, stdout, stderr }),
        None => bail!(
            "{command:?} was killed after {limit:?}; it printed {:?} and {:?}",
            String::from_utf8_lossy(&stdout),
            String::from_utf8_lossy(&stderr)
        ),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::run_with_timeout;

    #[test]
    fn what_hangs_is_killed_with_its_children() {
        let start = Instant::now();
        let error = run_with_timeout(
            Command::new("sh").args(["-c", "echo started; sleep 100 & sleep 100"]),
            Duration::from_millis(300),
        )
        .expect_err("it hangs");
        assert!(error.to_string().contains("started"), "{error}");
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn what_is_left_behind_is_not_waited_for() {
        let start = Instant::now();
        let mut left = Command::new("sh");
        left.args(["-c", "echo a; sleep 100 & exit 0"]);
        let output = run_with_timeout(&mut left, Duration::from_secs(50)).expect("it ends");
        assert_eq!(output.stdout, b"a\n");
        assert!(start.elapsed() < Duration::from_secs(40));
    }

    #[test]
    fn what_ends_is_returned() {
        let output = run_with_timeout(
            Command::new("sh").args(["-c", "echo a; echo b >&2; exit 3"]),
            Duration::from_secs(10),
        );
        let output = output.expect("it ends");
        assert_eq!(
            (output.status.code(), &output.stdout[..], &output.stderr[..]),
            (Some(3), &b"a\n"[..], &b"b\n"[..])
        );
    }
}
