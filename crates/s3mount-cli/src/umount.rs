//! `s3mount umount DIR`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::errno::Errno;
use nix::mount::{MntFlags, umount2};

use crate::mounts::mount_at;

/// Unmounts what s3mount has mounted at `dir`, and returns when it is gone.
pub(crate) fn umount(dir: &Path) -> anyhow::Result<()> {
    // A mount whose daemon is dead can't be looked into, so the path is taken as it is.
    let dir = std::path::absolute(dir).with_context(|| format!("{} is no path", dir.display()))?;
    let shown = dir.display();
    let Some(mount) = mount_at(&dir) else { bail!("nothing is mounted at {shown}") };
    ensure!(
        mount.kind == "fuse.s3mount",
        "{} at {shown} is not s3mount's but {}; use umount for it",
        mount.source,
        mount.kind
    );
    let result = match umount2(&dir, MntFlags::empty()) {
        Err(Errno::EPERM) => fusermount(&dir, "-u"),
        Err(Errno::EBUSY) => bail!("{shown} is in use{}; end what uses it, and try again", users(&dir)),
        result => result.map_err(Into::into),
    };
    result.with_context(|| format!("cannot unmount {shown}"))?;
    let deadline = Instant::now() + Duration::from_secs(5);
    while mount_at(&dir).is_some_and(|now| now == mount) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Has the set-uid helper of FUSE unmount for us.
pub(crate) fn fusermount(dir: &Path, how: &str) -> anyhow::Result<()> {
    let output = Command::new("fusermount3")
        .args([how, "--"])
        .arg(dir)
        .output()
        .context("cannot run fusermount3; install fuse3")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(())
}

/// The processes that have something below `dir` open, as far as we may see.
fn users(dir: &Path) -> String {
    let uses = |process: &Path| {
        let links = ["cwd", "root"].map(|link| process.join(link)).into_iter();
        let open = std::fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|fd| fd.path());
        links.chain(open).any(|link| std::fs::read_link(link).is_ok_and(|target| target.starts_with(dir)))
    };
    let describe = |process: PathBuf| {
        let pid: u32 = process.file_name()?.to_str()?.parse().ok()?;
        let name = std::fs::read_to_string(process.join("comm")).ok()?;
        uses(&process).then(|| format!("{} ({pid})", name.trim()))
    };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let found: Vec<_> = processes.filter_map(|entry| describe(entry.path())).take(10).collect();
    if found.is_empty() { String::new() } else { format!(" by {}", found.join(", ")) }
}
