//! S3 servers that others wrote, each run as a process.

use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use nix::sys::signal::{Signal, killpg};
use procfs::net::TcpState;
use procfs::process::{FDTarget, Process, all_processes};

use crate::process::group;

/// The seconds after which such a server is killed, however its test ended.
const LIFETIME: &str = "300";

/// How long a server may take until it listens. moto takes 2 s, and most of this time goes into Python's
/// imports.
const START_LIMIT: Duration = Duration::from_secs(100);

/// A running server. Dropping this ends the server, also in a panic.
#[derive(Debug)]
pub struct OtherServer {
    /// The program `timeout`, which leads the server's process group.
    child: Child,
    endpoint: String,
}

impl OtherServer {
    /// Runs `program`, and waits until it listens on a port of an IPv4 address. Its output goes to the file
    /// `log`.
    ///
    /// # Errors
    /// When the program can't be started. Also when it ends, or does not listen within 100 s: the error then
    /// quotes what the program said.
    pub fn start(program: &Command, log: &Path) -> anyhow::Result<Self> {
        let output = File::create(log).context("creating the server's log")?;
        let mut command = Command::new("timeout");
        command.arg("--signal=KILL").arg(LIFETIME).arg(program.get_program()).args(program.get_args());
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.process_group(0).stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("starting {:?}", program.get_program()))?;
        let mut server = Self { child, endpoint: String::new() };
        let deadline = Instant::now() + START_LIMIT;
        let said = || std::fs::read_to_string(log).unwrap_or_default();
        loop {
            if let Some(address) = server.address() {
                server.endpoint = format!("http://{address}");
                return Ok(server);
            }
            if let Some(status) = server.child.try_wait()? {
                bail!("{:?} ended with {status} and said: {}", program.get_program(), said());
            }
            if Instant::now() > deadline {
                bail!("{:?} does not listen; it said: {}", program.get_program(), said());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts moto from the virtual environment at `venv`. moto checks signatures and policies, but not those
    /// of the first `unchecked_requests` requests.
    ///
    /// # Errors
    /// Those of [`start`](Self::start).
    pub fn moto(venv: &Path, unchecked_requests: u32, log: &Path) -> anyhow::Result<Self> {
        let mut program = Command::new(venv.join("bin/python"));
        program.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]);
        program.env("INITIAL_NO_AUTH_ACTION_COUNT", unchecked_requests.to_string());
        Self::start(&program, log)
    }

    /// Starts `program`, which is versitygw, for the user `key` with `secret`. Its buckets are folders in
    /// `folder/buckets`. The metadata of its objects lies in `folder/metadata`, because some filesystems have
    /// no extended attributes. It listens on a port of `address` that the kernel chooses.
    ///
    /// # Errors
    /// Those of [`start`](Self::start). Also when the folders can't be made.
    pub fn versitygw(
        program: &Path,
        folder: &Path,
        address: IpAddr,
        (key, secret): (&str, &str),
    ) -> anyhow::Result<Self> {
        let [buckets, metadata]: [PathBuf; 2] = ["buckets", "metadata"].map(|name| folder.join(name));
        std::fs::create_dir(&buckets).and_then(|()| std::fs::create_dir(&metadata)).context("folders")?;
        let mut command = Command::new(program);
        command.arg("--port").arg(SocketAddr::new(address, 0).to_string());
        command.args(["--quiet", "posix", "--sidecar"]).args([metadata, buckets]);
        command.env("ROOT_ACCESS_KEY", key).env("ROOT_SECRET_KEY", secret);
        Self::start(&command, &folder.join("log"))
    }

    /// The server's URL.
    pub fn endpoint(&self) -> &str {
        &self.endpoint
    }

    /// The address that a process of the server's group listens on.
    fn address(&self) -> Option<SocketAddr> {
        let leader = i32::try_from(self.child.id()).ok()?;
        let is_member = |process: &Process| process.stat().is_ok_and(|stat| stat.pgrp == leader);
        // A process that ends while this looks at it is not the server.
        let mut members = all_processes().ok()?.filter_map(Result::ok).filter(is_member);
        members.find_map(|process| listens(&process))
    }
}

/// The address that a process listens on. The process may have a network of its own.
fn listens(process: &Process) -> Option<SocketAddr> {
    let files = process.fd().ok()?.filter_map(Result::ok);
    let sockets: Vec<u64> = files
        .filter_map(|file| match file.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        })
        .collect();
    let mut entries = process.tcp().ok()?.into_iter();
    let socket = entries.find(|entry| entry.state == TcpState::Listen && sockets.contains(&entry.inode));
    socket.map(|entry| entry.local_address)
}

impl Drop for OtherServer {
    fn drop(&mut self) {
        // The server may have ended by itself.
        let _ = killpg(group(self.child.id()), Signal::SIGKILL);
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::OtherServer;

    #[test]
    fn a_server_that_ends_is_quoted() {
        let log = tempfile::NamedTempFile::new().expect("a file");
        let mut program = Command::new("sh");
        program.args(["-c", "echo no such flag >&2; exit 3"]);
        let error = OtherServer::start(&program, log.path()).expect_err("it listens to nothing");
        assert!(error.to_string().contains("no such flag"), "{error}");
    }
}
