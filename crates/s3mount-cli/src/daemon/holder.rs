//! The parent of a daemon, which keeps its mount and starts another daemon when it is killed (`--keep-alive`).
//!
//! The kernel keeps a mount while anybody has its device open. Requests wait meanwhile. So this process has the device
//! open, and the file with what the kernel was given, and does nothing else: it has one thread, reads no request, and
//! passes on signals. When the daemon ends other than by its own will, it starts the program at the same path again, with
//! both files.
//!
//! A daemon is dead once none of its threads can read a request any more. A thread that tells the kernel of a name may
//! wait inside the kernel for a folder's lock, whose holder waits for the daemon: it never ends by itself, and the next
//! daemon frees it by its answer. So a process whose first thread has ended, and whose other threads all wait in the
//! kernel, counts as dead.
#![expect(unsafe_code, reason = "a process that is started with open files")]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::Context;
use nix::cmsg_space;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, MsgFlags, SockFlag, SockType, recvmsg, socketpair,
};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use procfs::process::Process;
use s3mount_fuse::MountId;
use s3mount_settings::resolved::Config;
use s3mount_system::mounts::by_id;
use s3mount_system::open_files;
use s3mount_system::unmounting::detach;

use super::keeper::{
    BEFORE, DEVICE, HOLDER, LAST_WORDS, MADE_WAY, MAKES_WAY, MOUNT, ONLY_PLANNED, OOM_SCORE, OOM_SCORE_FILE,
    SPOOL, SPOOL_FILES, STATE,
};
use super::{logging, manager, warden};
use crate::stat::is_gone;

/// How often it is looked whether a daemon is dead whose threads wait in the kernel.
const LOOK_MS: u16 = 100;

/// A daemon that is killed so often within this time is not started again.
const MOST_DEATHS: usize = 3;
const DEATHS_WITHIN: Duration = Duration::from_secs(10);

/// How long daemons may fail to start, and how long it takes until the next one is tried.
const START_LIMIT: Duration = Duration::from_secs(10);
const START_PAUSE: Duration = Duration::from_millis(100);

/// The exit code of a daemon that asks to be replaced by the program that is at its path now.
pub(crate) const REPLACE: u8 = 75;

/// The first number of the descriptors that a daemon inherits. Those before are the standard streams.
const FIRST: RawFd = 3;

/// The signals that ask a daemon to end.
const ASKS_TO_END: [Signal; 4] = [Signal::SIGHUP, Signal::SIGINT, Signal::SIGQUIT, Signal::SIGTERM];

/// The signals that a daemon does not hear at first. One that `goes_on` with a mount has what others have written: it must
/// hear that it is asked to end, once it can, and not die of the signal.
pub(super) fn blocked_at_start(goes_on: bool) -> SigSet {
    ASKS_TO_END.into_iter().filter(|_| goes_on).collect()
}

/// Whether this daemon was asked to end while it does not hear that yet.
pub(super) fn is_asked_to_end() -> anyhow::Result<bool> {
    let status = Process::myself()?.status()?;
    let pending = status.sigpnd | status.shdpnd;
    Ok(ASKS_TO_END.into_iter().any(|signal| pending & 1 << (signal as i32 - 1) != 0))
}

/// How to start a daemon.
#[derive(Debug)]
pub(crate) struct Program {
    path: PathBuf,
    args: Vec<OsString>,
    /// Where it was started, to which its arguments are relative.
    folder: Option<PathBuf>,
    /// The same, if the mount covers it: the path leads into the mount.
    covered: Option<File>,
    /// The descriptor that the mount was passed on, if another process has mounted.
    passed: Option<RawFd>,
}

impl Program {
    /// The program that this process runs, with its arguments, in the folder where it is.
    pub(crate) fn this(config: &Config) -> anyhow::Result<Self> {
        let path = std::env::current_exe().context("cannot find out which program this is")?;
        let (args, folder) = (std::env::args_os().collect(), std::env::current_dir().ok());
        let is_covered = |folder: &PathBuf| config.target.dir().is_some_and(|dir| folder.starts_with(dir));
        // This process must never ask the mount for anything: nobody might answer.
        let covered = folder.as_ref().filter(|folder| is_covered(folder)).map(|_| {
            File::options().read(true).custom_flags(nix::libc::O_PATH | nix::libc::O_DIRECTORY).open(".")
        });
        let covered = covered.transpose().context("cannot open the folder that this was started in")?;
        Ok(Self { path, args, folder, covered, passed: config.target.device() })
    }

    /// Starts a daemon as [`start`](Self::start) does. Where that fails, tries again until `limit`: while a package is
    /// installed, there is no program at its path for a moment.
    fn start_within(
        &self,
        limit: Duration,
        kept: (&[&OwnedFd], &str),
        ended: Option<&str>,
        score: Option<&str>,
    ) -> io::Result<Pid> {
        let deadline = Instant::now() + limit;
        loop {
            match self.start(kept, ended, score) {
                Err(_) if Instant::now() < deadline => std::thread::sleep(START_PAUSE),
                started => return started,
            }
        }
    }

    /// Starts a daemon, which inherits `kept`. The last of these are `files` of the spool.
    fn start(
        &self,
        (kept, files): (&[&OwnedFd], &str),
        ended: Option<&str>,
        score: Option<&str>,
    ) -> io::Result<Pid> {
        let mut command = Command::new(&self.path);
        if let Some((program, args)) = self.args.split_first() {
            command.arg0(program).args(args);
        }
        let covered = self.covered.as_ref().map(|folder| folder.as_raw_fd());
        if let Some(folder) = self.folder.as_deref().filter(|folder| covered.is_none() && folder.is_dir()) {
            command.current_dir(folder);
        }
        // High numbers, so that none is in the place of another.
        let highest = FIRST.max(self.passed.unwrap_or_default() + 1) + kept.len() as RawFd + 1;
        let sources: Vec<OwnedFd> =
            kept.iter().map(|kept| duplicate(kept, highest)).collect::<io::Result<_>>()?;
        // The descriptor that was passed on keeps its number.
        let first = self.passed.map_or(FIRST, |passed| passed.max(FIRST) + 1);
        let numbers: Vec<RawFd> = sources.iter().map(|source| source.as_raw_fd()).collect();
        command.env(HOLDER, format!("{first}-{}", first as usize + numbers.len()));
        command.env(SPOOL_FILES, files).env_remove("NOTIFY_SOCKET").env_remove("FDSTORE");
        match ended {
            Some(ended) => command.env(BEFORE, ended),
            None => command.env_remove(BEFORE),
        };
        if let Some(score) = score {
            command.env(OOM_SCORE, score);
        }
        let blocked = blocked_at_start(kept.len() > 1);
        // SAFETY: between fork and exec these calls allocate nothing and take no lock.
        unsafe {
            command.pre_exec(move || {
                sigprocmask(SigmaskHow::SIG_SETMASK, Some(&blocked), None)?;
                if covered.is_some_and(|folder| nix::libc::fchdir(folder) < 0) {
                    return Err(io::Error::last_os_error());
                }
                for (number, source) in (first..).zip(&numbers) {
                    if nix::libc::dup2(*source, number) < 0 {
                        return Err(io::Error::last_os_error());
                    }
                }
                Ok(())
            });
        }
        let child = command.spawn()?;
        // It is waited for by its number.
        Ok(Pid::from_raw(child.id().cast_signed()))
    }
}

/// Another number for an open file, `least` or more.
fn duplicate(file: &OwnedFd, least: RawFd) -> io::Result<OwnedFd> {
    let number = fcntl(file, FcntlArg::F_DUPFD_CLOEXEC(least))?;
    // SAFETY: the kernel has just opened it for this.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// What a daemon has told.
#[derive(Debug, Default)]
struct Told {
    device: Option<OwnedFd>,
    state: Option<OwnedFd>,
    /// Files of the spool, by their numbers.
    files: BTreeMap<u64, OwnedFd>,
    mount: Option<MountId>,
    /// The mount has answered.
    is_ready: bool,
    /// The daemon that lives, or was the last one, has begun to serve the mount.
    serves: bool,
    /// The holder was asked to end.
    was_asked: bool,
    /// Only a daemon that has made way can be followed by another.
    only_planned: bool,
    /// The daemon that lives, or was the last one, makes way for another.
    makes_way: bool,
    /// Why the last daemon could not start, or ended by itself.
    last_words: Option<String>,
}

impl Told {
    /// Keeps the mount no more, and takes it down if it is there. All who wait get `ENOTCONN` once nobody has the device
    /// open.
    fn take_down(&mut self) -> anyhow::Result<()> {
        (self.device, self.state) = (None, None);
        self.files.clear();
        let Some(mount) = self.mount.and_then(by_id) else { return Ok(()) };
        // A thread of a dead daemon may wait in the kernel, and has the device open, too. Without it, nobody waits.
        let _ = warden::abort(&mount);
        detach(&mount)
    }

    /// How the last daemon has ended, and its own words for that.
    fn end_of_daemon(&self, how: Ended) -> String {
        let words = self.last_words.as_ref().map(|words| format!(": {words}"));
        format!("{}{}", how.text(), words.unwrap_or_default())
    }

    /// Takes the mount down, and says why.
    fn give_up(&mut self, config: &Config, why: &str) -> anyhow::Error {
        let text = format!("{why}; the mount at {} is taken down", config.target);
        // They may be all that this process may have open.
        self.files.clear();
        if self.is_ready && !config.foreground && logging::start(config).is_ok() {
            tracing::error!("{text}");
        }
        match self.take_down() {
            Ok(()) => anyhow::anyhow!(text),
            Err(error) => error.context(text),
        }
    }
}

/// How a daemon has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Exited(u8),
    Killed(Signal),
    /// Its first thread has ended, and others wait in the kernel.
    Stuck,
}

impl Ended {
    fn text(self) -> String {
        match self {
            Self::Exited(REPLACE) => MADE_WAY.to_owned(),
            Self::Exited(code) => format!("has ended with exit code {code}"),
            Self::Killed(signal) => format!("was killed by {signal}"),
            Self::Stuck => "was killed".to_owned(),
        }
    }
}

/// Starts a daemon, and another one whenever it is killed. Calls `ready` once the mount answers. Returns the exit code
/// of the daemon that has ended by its own will.
///
/// # Errors
/// Those of starting it. A mount whose daemons are killed again and again is taken down.
pub(crate) fn hold(config: &Config, program: &Program, mut ready: impl FnMut()) -> anyhow::Result<ExitCode> {
    // What the program that started this one ignores, as nohup does, stays ignored.
    let ignored = Process::myself()?.status()?.sigign;
    let heeded = ASKS_TO_END.into_iter().filter(|signal| ignored & 1 << (*signal as i32 - 1) == 0);
    let signals: SigSet = heeded.chain([Signal::SIGUSR2, Signal::SIGCHLD]).collect();
    // No other signal ends this process, either.
    SigSet::all().thread_block()?;
    let signals = SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let score = lower_oom_score();
    let (ours, theirs) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
    let (mut told, mut deaths, mut ended) = (Told::default(), Vec::new(), None);
    let mut fails_since = None;
    // Files of the spool are kept here, too.
    open_files::raise_limit();
    loop {
        let mut kept: Vec<_> =
            [Some(&theirs), told.device.as_ref(), told.state.as_ref()].into_iter().flatten().collect();
        kept.extend(told.files.values());
        let files = told.files.keys().map(u64::to_string).collect::<Vec<_>>().join(",");
        let before = ended.map(Ended::text);
        let daemon = program.start_within(START_LIMIT, (&kept, &files), before.as_deref(), score.as_deref());
        let daemon = match daemon {
            Ok(daemon) => daemon,
            Err(error) => {
                told.take_down()?;
                return Err(error).with_context(|| format!("cannot start {}", program.path.display()));
            }
        };
        if told.was_asked {
            // It hears that once it serves the mount, and publishes what is left.
            let _ = kill(daemon, Signal::SIGTERM);
        }
        (told.last_words, told.makes_way, told.serves) = (None, false, false);
        let how = watch(daemon, &ours, &signals, &mut told, &mut ready)?;
        // A mount that was unmounted meanwhile is gone on with, too: what the spool has for its files is to be published.
        let is_kept = told.device.is_some() && told.state.is_some();
        let is_by_will = match how {
            Ended::Exited(code) => code == 0 || told.was_asked && code != REPLACE,
            // The first daemon does not catch it yet when it is about to begin.
            Ended::Killed(signal) if ASKS_TO_END.contains(&signal) => {
                told.was_asked = true;
                !is_kept
            }
            Ended::Killed(_) | Ended::Stuck => false,
        };
        let is_over = is_by_will || !is_kept;
        let is_there = || told.mount.is_none_or(|id| by_id(id).is_some());
        if told.only_planned && is_over && !is_by_will && is_there() {
            let end = told.end_of_daemon(how);
            let why = format!(
                "the daemon {end}; on a kernel before Linux 6.9, another one goes on only after `s3mount upgrade`"
            );
            return Err(told.give_up(config, &why));
        }
        if is_over {
            // A daemon that ends by its own will has taken its mount down.
            told.take_down()?;
            return Ok(match how {
                Ended::Exited(code) => ExitCode::from(code),
                Ended::Killed(signal) => ExitCode::from(128_u8.saturating_add(signal as u8)),
                Ended::Stuck => ExitCode::FAILURE,
            });
        }
        if let Ended::Exited(code) = how
            && code != REPLACE
            && !told.serves
        {
            // Its program, or the folder of its spool, may be away for a moment.
            if fails_since.get_or_insert_with(Instant::now).elapsed() < START_LIMIT {
                std::thread::sleep(START_PAUSE);
                continue;
            }
            let end = told.end_of_daemon(how);
            let why = format!("no other daemon could start within {START_LIMIT:?}, the last one {end}");
            return Err(told.give_up(config, &why));
        }
        fails_since = None;
        if how != Ended::Exited(REPLACE) {
            let now = Instant::now();
            deaths.retain(|death| now.duration_since(*death) < DEATHS_WITHIN);
            deaths.push(now);
        }
        if deaths.len() >= MOST_DEATHS {
            let end = told.end_of_daemon(how);
            let why =
                format!("{MOST_DEATHS} daemons were killed within {DEATHS_WITHIN:?}, the last one {end}");
            return Err(told.give_up(config, &why));
        }
        ended = Some(how);
    }
}

/// Lets the machine end others before this process when memory is short. Returns the score that it had.
fn lower_oom_score() -> Option<String> {
    let before = std::fs::read_to_string(OOM_SCORE_FILE).ok()?;
    std::fs::write(OOM_SCORE_FILE, "-1000").ok()?;
    Some(before.trim().to_owned())
}

/// Waits until the daemon is dead. Returns how it has ended.
///
/// A holder that is asked to end asks the daemon. If that is dead by then, or dies of something else, the next one is asked:
/// it has what the programs have written and nobody has published yet.
fn watch(
    daemon: Pid,
    socket: &OwnedFd,
    signals: &SignalFd,
    told: &mut Told,
    ready: &mut impl FnMut(),
) -> anyhow::Result<Ended> {
    loop {
        let mut polled =
            [PollFd::new(socket.as_fd(), PollFlags::POLLIN), PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
        match poll(&mut polled, LOOK_MS) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(error.into()),
        }
        while let Ok(Some(signal)) = signals.read_signal() {
            let Ok(signal) = Signal::try_from(signal.ssi_signo.cast_signed()) else { continue };
            if signal != Signal::SIGCHLD {
                told.was_asked |= signal != Signal::SIGUSR2;
                // It fails for a daemon that has ended.
                let _ = kill(daemon, signal);
            }
        }
        let was_ready = told.is_ready;
        while listen(socket, told)? {}
        if told.is_ready && !was_ready {
            ready();
        }
        // Daemons whose threads waited in the kernel end later than they count as dead.
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) if pid == daemon => {
                    while listen(socket, told)? {}
                    return Ok(Ended::Exited(code as u8));
                }
                Ok(WaitStatus::Signaled(pid, signal, _)) if pid == daemon => {
                    while listen(socket, told)? {}
                    return Ok(Ended::Killed(signal));
                }
                Ok(WaitStatus::StillAlive) | Err(_) => break,
                Ok(_) => {}
            }
        }
        // Where no other daemon lets these threads go, the warden does, and they end.
        if told.device.is_some() && is_gone(daemon) {
            while listen(socket, told)? {}
            return Ok(if told.makes_way { Ended::Exited(REPLACE) } else { Ended::Stuck });
        }
    }
}

/// Takes one message of a daemon. Returns whether there was one.
fn listen(socket: &OwnedFd, told: &mut Told) -> anyhow::Result<bool> {
    let mut bytes = [0; 4096];
    let mut space = cmsg_space!([RawFd; 4]);
    let (len, files) = {
        let mut parts = [IoSliceMut::new(&mut bytes)];
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_CMSG_CLOEXEC;
        let message = match recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut space), flags) {
            Ok(message) => message,
            Err(Errno::EAGAIN | Errno::EINTR) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let mut files = Vec::new();
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = control {
                // SAFETY: the kernel has just opened them for this.
                files.extend(numbers.into_iter().map(|number| unsafe { OwnedFd::from_raw_fd(number) }));
            }
        }
        (message.bytes, files)
    };
    let text = String::from_utf8_lossy(&bytes[..len]);
    let mut states = Vec::new();
    for line in text.lines() {
        match line.split_once('=') {
            Some(("FDNAME", name)) => {
                let file = files.first().map(OwnedFd::try_clone).transpose()?;
                match name {
                    DEVICE => told.device = file,
                    STATE => told.state = file,
                    name => match (name.strip_prefix(SPOOL).and_then(|number| number.parse().ok()), file) {
                        (Some(number), Some(file)) => drop(told.files.insert(number, file)),
                        // It is to be removed.
                        (Some(number), None) => drop(told.files.remove(&number)),
                        (None, _) => {}
                    },
                }
            }
            Some((MOUNT, id)) => told.mount = id.parse().ok(),
            Some((ONLY_PLANNED, _)) => told.only_planned = true,
            Some((MAKES_WAY, _)) => told.makes_way = true,
            Some((LAST_WORDS, words)) => told.last_words = Some(words.to_owned()),
            Some(("FDSTORE" | "FDSTOREREMOVE", _)) | None => {}
            Some((name, value)) => {
                let is_ready = (name, value) == ("READY", "1");
                told.is_ready |= is_ready;
                told.serves |= is_ready;
                states.push(line);
            }
        }
    }
    // A service manager that has started this process hears what its daemon says.
    if !states.is_empty() {
        manager::tell(&states.join("\n"));
    }
    Ok(true)
}

/// Checks whether a mount can be kept.
///
/// # Errors
/// Says why not.
pub(crate) fn check(config: &Config) -> anyhow::Result<()> {
    anyhow::ensure!(
        nix::unistd::geteuid().is_root() || config.target.device().is_some(),
        "--keep-alive takes root, or a descriptor of FUSE in place of the folder: fusermount3 does not give a mount to \
         another daemon; leave the flag out, or run s3mount as root"
    );
    Ok(())
}
