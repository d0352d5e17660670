//! `s3mount umount DIR`: unmounts what s3mount has mounted.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::errno::Errno;
use s3mount_system::mounts::{self, MountedAt, inside, mount_at, others_of, resolve};
use s3mount_system::probe::{Life, check_above, probe};
use s3mount_system::terminal::{self, plain};
use s3mount_system::unmounting::{detach, unmount};
use s3mount_tools::pending::{self, LeftBehind};

use crate::stat::Stat;

/// The time that the kernel may take to remove the mount.
const GONE_LIMIT: Duration = Duration::from_secs(10);

/// How long somebody may use a mount in passing: the warden of a daemon that was killed opens it for a moment, and a CSI
/// driver looks at its mounts once a second.
const PASSING_LIMIT: Duration = Duration::from_secs(1);

/// How long it is looked who uses a mount.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// How long a daemon with write-behind may take to end: it uploads what is left for up to --read-timeout.
const END_LIMIT: Duration = Duration::from_secs(90);

/// How often the kernel is asked again.
const PAUSE: Duration = Duration::from_millis(10);

/// The largest number of processes that a message names.
const MAX_USERS: usize = 10;

/// Unmounts what s3mount has mounted at `dir`, and returns when the mount is gone. With `lazy` it also
/// unmounts a mount that is in use.
pub(crate) fn umount(dir: &Path, lazy: bool) -> anyhow::Result<()> {
    mounts::check()?;
    check_above(dir)?;
    let dir = resolve(dir).with_context(|| format!("cannot find the folder {}", terminal::shown(dir)))?;
    let shown = terminal::shown(&dir);
    let Some(mount) = mount_at(&dir) else {
        bail!("nothing is mounted at {shown}; `findmnt -t fuse.s3mount` lists what is")
    };
    ensure!(
        mount.kind == "fuse.s3mount" || is_stale(&mount),
        "{} at {shown} is not s3mount's but {}; use umount for it",
        plain(&mount.source),
        plain(&mount.kind)
    );
    let left = if lazy || probe(&mount) != Life::Alive { None } else { upload(&dir) };
    let inner = inside(mount.id);
    let deadline = Instant::now() + PASSING_LIMIT;
    while let Err(error) = if lazy { detach(&mount) } else { unmount(&mount) } {
        if !is_busy(&error) {
            return Err(error.context(format!("cannot unmount {shown}")));
        }
        if Instant::now() >= deadline {
            let users = users(&dir, &inner);
            bail!("{shown} is in use{users}; end what uses it and try again, or pass --lazy");
        }
        std::thread::sleep(PAUSE);
    }
    let deadline = Instant::now() + GONE_LIMIT;
    while mount_at(&dir).is_some_and(|now| now.id == mount.id) {
        ensure!(Instant::now() < deadline, "{shown} is still mounted after {GONE_LIMIT:?}; try again");
        std::thread::sleep(PAUSE);
    }
    for mount in inner {
        terminal::notice(&format!("{mount} lay inside of it, and was taken down with it"));
    }
    for other in others_of(&mount) {
        terminal::notice(&format!("{other} shows the same bucket, and stays"));
    }
    if let Some(left) = &left {
        wait_for_end(left.pid);
    }
    match left.and_then(|left| left.text()) {
        Some(text) => bail!("{shown} is unmounted, but {text}"),
        None => Ok(()),
    }
}

/// Waits until what a mount with write-behind has taken is uploaded, and returns what is left.
fn upload(dir: &Path) -> Option<LeftBehind> {
    pending::upload(dir).unwrap_or_else(|error| {
        tracing::debug!(%error, "what waits in the mount is not known");
        None
    })
}

/// Waits until the daemon of a mount has ended, which tries once more to upload what is left. Until then the folder of
/// `--write-behind` is its own.
fn wait_for_end(pid: u32) {
    let deadline = Instant::now() + END_LIMIT;
    let is_there = || Stat::of(format!("/proc/{pid}")).is_some_and(|stat| !stat.has_ended());
    while is_there() && Instant::now() < deadline {
        std::thread::sleep(PAUSE);
    }
}

/// Whether this is a FUSE mount whose daemon is gone.
fn is_stale(mount: &MountedAt) -> bool {
    mount.kind.starts_with("fuse") && probe(mount) == Life::Gone
}

/// Whether the mount is in use. The kernel says so by an error number, fusermount by a word in its message.
fn is_busy(error: &anyhow::Error) -> bool {
    match error.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) {
        Some(errno) => errno == Errno::EBUSY as i32,
        None => error.to_string().contains("busy"),
    }
}

/// What uses a mount, where we are allowed to see it: " by cat (12)". These are the mounts `inside` of it, and processes
/// that use something below `dir`.
fn users(dir: &Path, inside: &[MountedAt]) -> String {
    let below = dir.to_owned();
    let describe = move |process: PathBuf| {
        let pid: u32 = process.file_name()?.to_str()?.parse().ok()?;
        let name = std::fs::read_to_string(process.join("comm")).ok()?;
        let is_other = pid != std::process::id();
        (is_other && uses(&process, &below)).then(|| format!("{} ({pid})", plain(name.trim())))
    };
    let (found, all) = mpsc::channel();
    // Who looks at a process that another mount keeps from running its program waits for that mount.
    std::thread::spawn(move || {
        let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        processes.filter_map(|entry| describe(entry.path())).try_for_each(|user| found.send(user))
    });
    let deadline = Instant::now() + LOOK_LIMIT;
    let processes =
        std::iter::from_fn(|| all.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok());
    let mounts = inside.iter().map(|mount| format!("the mount {mount}"));
    let found: Vec<_> = mounts.chain(processes).take(MAX_USERS).collect();
    if found.is_empty() { String::new() } else { format!(" by {}", found.join(", ")) }
}

/// Whether a process has its working folder in `dir`, or has a file of `dir` open or mapped.
fn uses(process: &Path, dir: &Path) -> bool {
    let listed = |name: &str| {
        let entries = std::fs::read_dir(process.join(name)).into_iter().flatten().flatten();
        entries.map(|entry| entry.path())
    };
    let links = ["cwd", "root", "exe"].map(|link| process.join(link)).into_iter();
    links
        .chain(listed("fd"))
        .chain(listed("map_files"))
        .any(|link| std::fs::read_link(link).is_ok_and(|target| target.starts_with(dir)))
}
