//! `s3mount upgrade DIR`: the program that is at the path of a mount's daemon now takes the mount over.
//!
//! Nothing is given up before it is known that the other program can go on: this one reads the flags of the daemon and the
//! state of its mount, and it must be the program that the daemon's path leads to.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_fs::Handover;
use s3mount_fuse::{KeptSession, MountId};
use s3mount_settings::layers;
use s3mount_settings::mount_s3::translate;
use s3mount_system::mounts::{self, MountedAt, mount_at, others_of, resolve};
use s3mount_system::probe::check_above;
use s3mount_system::terminal;

use crate::command_line::{Args, Command};
use crate::daemon::{STATE, WRITERS_LIMIT};
use crate::stat::{Stat, is_dumping};
use crate::{helper, mount_s3};

/// How much longer than for its writers a daemon waits at most, before it makes way or goes on.
const ANSWER_LIMIT: Duration = Duration::from_secs(2);

/// How long the next daemon may take then.
const START_LIMIT: Duration = Duration::from_secs(30);

/// How long a mount may have no daemon before it counts as one that has none.
const FIND_LIMIT: Duration = Duration::from_secs(5);

/// How often it is looked who serves a mount.
const PAUSE: Duration = Duration::from_millis(50);

/// The kind of s3mount's mounts.
const KIND: &str = "fuse.s3mount";

/// Has the mount at `dir` taken over, or all mounts of this machine.
pub(crate) fn upgrade(dir: Option<&Path>) -> anyhow::Result<()> {
    mounts::check()?;
    let Some(dir) = dir else { return upgrade_all() };
    check_above(dir)?;
    let dir = resolve(dir).with_context(|| format!("cannot find the folder {}", terminal::shown(dir)))?;
    let shown = terminal::shown(&dir);
    let mount = mount_at(&dir).filter(|mount| mount.kind == KIND);
    let mount = mount.with_context(|| {
        format!("s3mount has mounted nothing at {shown}; findmnt -t {KIND} lists what it has")
    })?;
    replace(&mount)
}

fn upgrade_all() -> anyhow::Result<()> {
    let all: Vec<_> = mounts::mounts().into_iter().filter(|mount| mount.kind == KIND).collect();
    let mut failed = 0;
    for mount in &all {
        if let Err(error) = replace(mount) {
            terminal::notice(&format!("{mount}: {error:#}"));
            failed += 1;
        }
    }
    ensure!(failed == 0, "{failed} of {} mounts are served by the same daemons as before", all.len());
    Ok(())
}

/// Has one mount taken over.
fn replace(mount: &MountedAt) -> anyhow::Result<()> {
    let (before, state) = find(mount)?;
    // One at a time. The state is that of all daemons of the mount, and this lock ends with this process.
    state.as_ref().map_or(Ok(()), File::lock).context("cannot wait for another upgrade of the mount")?;
    let deadline = Instant::now() + FIND_LIMIT;
    let daemon = loop {
        let (daemon, state) = find(mount)?;
        if daemon != before && runs_this(daemon) {
            tell_done(mount);
            return Ok(());
        }
        match ask(daemon, state) {
            Ok(()) => break daemon,
            // Another one follows, and is asked.
            Err(_) if has_died(daemon) && Instant::now() < deadline => std::thread::sleep(PAUSE),
            Err(error) => return Err(error),
        }
    };
    let asked = Instant::now();
    loop {
        let now = daemon_of(mount);
        if now.is_some_and(|now| now != daemon) {
            break;
        }
        ensure!(
            mount_at(&mount.dir).is_some_and(|there| there.id == mount.id),
            "{mount} was taken down; the log of the mount says why"
        );
        ensure!(
            now.is_none() || asked.elapsed() < WRITERS_LIMIT + ANSWER_LIMIT,
            "the daemon goes on: after {WRITERS_LIMIT:?}, files are open for writing, and their bytes would be lost, or \
             requests have no answer; the log of the mount says which, so end what goes on, and try again"
        );
        ensure!(
            asked.elapsed() < WRITERS_LIMIT + START_LIMIT,
            "no daemon serves {mount} yet; the log of the mount says what it waits for"
        );
        std::thread::sleep(PAUSE);
    }
    tell_done(mount);
    Ok(())
}

/// Asks a daemon to make way, if this program can go on with its mount.
fn ask(daemon: i32, state: Option<File>) -> anyhow::Result<()> {
    check(daemon, state)?;
    let is_stopped = Stat::of(format!("/proc/{daemon}")).is_some_and(Stat::is_stopped);
    ensure!(!is_stopped, "the daemon is stopped; have it go on (kill -CONT {daemon}), and try again");
    kill(Pid::from_raw(daemon), Signal::SIGUSR2)
        .context("cannot ask the daemon; run this as its user, or as root")
}

/// Whether a daemon has ended, or writes its core dump.
fn has_died(daemon: i32) -> bool {
    Stat::of(format!("/proc/{daemon}")).is_none_or(Stat::has_ended) || is_dumping(Pid::from_raw(daemon))
}

fn tell_done(mount: &MountedAt) {
    terminal::result(&format!("{mount} is served by s3mount {} now", env!("CARGO_PKG_VERSION")));
}

/// The daemon of a mount, and its state, if it has one that another daemon could read. While a daemon is replaced, there is
/// none for a moment.
fn find(mount: &MountedAt) -> anyhow::Result<(i32, Option<File>)> {
    let deadline = Instant::now() + FIND_LIMIT;
    loop {
        if let Some(daemon) = daemon_of(mount) {
            let files = std::fs::read_dir(format!("/proc/{daemon}/fd")).into_iter().flatten().flatten();
            let is_state = |file: &PathBuf| {
                std::fs::read_link(file).is_ok_and(|target| target.to_string_lossy().contains(STATE))
            };
            let state = files.map(|file| file.path()).find(is_state).map(File::open).transpose();
            if state.is_ok() || !has_died(daemon) {
                return Ok((daemon, state.context("cannot read the daemon's state")?));
            }
        }
        ensure!(
            Instant::now() < deadline,
            "no daemon of {mount} is found; only its owner and root can see it"
        );
        std::thread::sleep(PAUSE);
    }
}

/// Whether a daemon runs the program that is at the path of this one.
fn runs_this(daemon: i32) -> bool {
    let exe = std::fs::read_link(format!("/proc/{daemon}/exe"));
    // A program that was replaced has another path.
    exe.ok().zip(std::env::current_exe().ok()).is_some_and(|(exe, this)| exe == this)
}

/// The words of a file in /proc that end with a zero each.
fn words(path: &str) -> Vec<OsString> {
    let bytes = std::fs::read(path).unwrap_or_default();
    let words = bytes.split(|byte| *byte == 0).map(|word| OsStr::from_bytes(word).to_owned());
    let mut words: Vec<_> = words.collect();
    words.pop();
    words
}

/// The process that serves a mount. Each daemon has a warden, whose arguments name both.
fn daemon_of(mount: &MountedAt) -> Option<i32> {
    // It may be shown elsewhere, too, by a bind mount.
    let mut ids: Vec<_> = others_of(mount).iter().map(|other| other.id).collect();
    ids.push(mount.id);
    // The kernel gives the number of a mount that is gone to the next one, and the daemon of that mount may live: its file
    // system shows elsewhere.
    let is_meant = |of: &str| of.parse::<MountId>().is_ok_and(|of| ids.contains(&of.number) && !of.is_gone());
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    let pids = processes.filter_map(|process| process.file_name().to_str()?.parse::<i32>().ok());
    pids.into_iter().find_map(|pid| {
        let words = words(&format!("/proc/{pid}/cmdline"));
        let texts: Vec<_> = words.iter().map(|word| word.to_str().unwrap_or_default()).collect();
        match texts[..] {
            ["s3mount", "warden", daemon, of, ..] if is_meant(of) => {
                let daemon: i32 = daemon.parse().ok()?;
                // The warden of a daemon that has ended goes, too.
                (!has_died(daemon)).then_some(daemon)
            }
            _ => None,
        }
    })
}

/// Checks that this program can go on with the mount of a daemon, and is the one that will.
fn check(daemon: i32, state: Option<File>) -> anyhow::Result<()> {
    let path = |name: &str| format!("/proc/{daemon}/{name}");
    let exe =
        std::fs::read_link(path("exe")).context("cannot see the daemon; run this as its user, or as root")?;
    // A program that was replaced has this after its path.
    let exe = exe.to_string_lossy().trim_end_matches(" (deleted)").to_owned();
    let this = std::env::current_exe().context("cannot find out which program this is")?;
    ensure!(
        this.canonicalize().ok() == PathBuf::from(&exe).canonicalize().ok(),
        "the daemon's program is {exe}, and this is {}; run: {exe} upgrade",
        this.display()
    );
    let environment = words(&path("environ"));
    let variables = environment.iter().filter_map(|variable| variable.to_str()?.split_once('='));
    let variables: std::collections::HashMap<_, _> =
        variables.map(|(name, value)| (OsString::from(name), OsString::from(value))).collect();
    let is_kept = ["S3MOUNT_HOLDER", "FDSTORE"].iter().any(|name| variables.contains_key(OsStr::new(name)));
    ensure!(is_kept, "nobody keeps the mount while its daemon is replaced; mount with --keep-alive");
    let parent = Stat::of(format!("/proc/{daemon}")).map(|stat| stat.parent);
    ensure!(
        parent != Some(1) || variables.contains_key(OsStr::new("FDSTORE")),
        "the process that kept the mount was killed, so nobody keeps it while its daemon is replaced; unmount it, and \
         mount it again"
    );
    let Some(state) = state else { bail!("the daemon has no state that another one could read") };
    let left = Handover::look(state)?;
    left.session()
        .and_then(KeptSession::read)
        .context("the daemon's session with the kernel can't be read")?;
    let args = words(&path("cmdline"));
    let variables = variables.into_iter().collect();
    let parsed = match args.first() {
        Some(program) if helper::is_called(program) => {
            helper::translate(args).map(|(_, args)| (Vec::new(), args))
        }
        Some(program) if mount_s3::is_called(program) => {
            translate(args, &variables).map(|line| (line.defaults, line.args))
        }
        _ => Ok((Vec::new(), args)),
    };
    // As the next daemon will read them: its file of settings is the one that the first daemon has read.
    let file = left.settings().and_then(|text| String::from_utf8(text.to_vec()).ok());
    let parsed =
        parsed.and_then(|(defaults, args)| layers::parse_above::<Args>(&defaults, args, &variables, file));
    let parsed = parsed
        .map_err(|error| anyhow::anyhow!("this program does not take the daemon's settings: {error}"))?;
    let args = match parsed.args.command {
        Some(Command::Mount(mount)) => *mount,
        _ => parsed.args.mount,
    };
    args.check_places().context("the daemon stays, because another one could not begin")
}
