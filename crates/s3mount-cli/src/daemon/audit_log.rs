//! The audit log: who opens and changes what, as lines of JSON.
//!
//! A thread of its own writes the lines. The threads that serve the kernel hand it what was called, and never wait: what a
//! full queue has no room for is left out, and counted.

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use nix::errno::Errno;
use s3mount_fuse::{AuditSink, AuditedCall, program_of};
use s3mount_settings::resolved::AuditTarget;
use serde::Serialize;
use time::OffsetDateTime;

use super::logging::file::{LogFile, Writers};

/// The length of a file in bytes. There are two at most: the one that is written, and the one before.
const MOST_BYTES: u64 = 64 << 20;

/// How many calls wait for the disk at most. Each takes some hundred bytes of memory.
const MOST_WAITING: usize = 8192;

/// Of how many processes it is known which program they ran when they called last.
const MOST_PROGRAMS: usize = 4096;

/// How often it is looked whether somebody has moved the file away.
const LOOK: Duration = Duration::from_secs(1);

/// How long a mount that ends waits for the last lines.
const PATIENCE: Duration = Duration::from_secs(2);

/// A call, as it stands in the log.
#[derive(Serialize)]
struct Line<'a> {
    time: String,
    call: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    access: Option<&'static str>,
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<&'a str>,
    result: String,
    uid: u32,
    gid: u32,
    pid: u32,
    program: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    repeated: bool,
}

/// Calls that are not in the log.
#[derive(Serialize)]
struct LeftOut {
    time: String,
    call: &'static str,
    count: u64,
}

/// The time, with as many digits each time, so that lines can be sorted.
fn text_of(time: SystemTime) -> String {
    let time = OffsetDateTime::from(time);
    let (year, month, day) = time.to_calendar_date();
    let (hour, minute, second, micros) = time.to_hms_micro();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z", u8::from(month))
}

fn line_of(time: SystemTime, call: &AuditedCall) -> Vec<u8> {
    let result = match call.errno {
        0 => "ok".to_owned(),
        errno => format!("{:?}", Errno::from_raw(errno)),
    };
    line(&Line {
        time: text_of(time),
        call: call.call,
        access: call.access,
        key: &call.key,
        to: call.to.as_deref(),
        result,
        uid: call.uid,
        gid: call.gid,
        pid: call.pid,
        program: call.program.as_ref().map(|program| program.to_string_lossy().into_owned()),
        repeated: call.is_repeated,
    })
}

/// Which programs processes ran when they called last. Who serves the kernel can't ask for that of a `close`, and the
/// process may be gone when this thread asks.
#[derive(Default)]
struct Programs(HashMap<u32, PathBuf>);

impl Programs {
    /// Completes a call.
    fn complete(&mut self, call: &mut AuditedCall) {
        if let Some(program) = &call.program {
            if self.0.len() >= MOST_PROGRAMS {
                self.0.clear();
            }
            self.0.insert(call.pid, program.clone());
        } else if call.call == "close" {
            call.program = self.0.get(&call.pid).cloned().or_else(|| program_of(call.pid));
        }
    }
}

/// Opens the file of a mount.
fn open(path: &Path, is_taken: bool) -> anyhow::Result<LogFile> {
    let by = if is_taken { Writers::Successor } else { Writers::One };
    let began = Instant::now();
    loop {
        match LogFile::open(path, MOST_BYTES, by) {
            // The daemon of the mount that was here before writes its last lines after the unmount.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && began.elapsed() < 2 * PATIENCE => {
                std::thread::sleep(PATIENCE / 20);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                anyhow::bail!("another mount writes to it; name a file of its own")
            }
            opened => return Ok(opened?),
        }
    }
}

fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Where the lines go.
enum Sink {
    File(LogFile),
    /// A file that can't be written yet.
    Later(PathBuf),
    Stream(Box<dyn io::Write + Send>),
}

impl Sink {
    fn add(&mut self, line: &[u8]) -> io::Result<()> {
        match self {
            Self::File(file) => file.add(line),
            Self::Later(_) => Err(io::ErrorKind::NotFound.into()),
            Self::Stream(stream) => stream.write_all(line),
        }
    }

    /// Goes on with another file where that is to be.
    fn follow(&mut self) {
        match self {
            Self::File(file) => file.follow(),
            Self::Later(path) => {
                if let Ok(file) = LogFile::open(path, MOST_BYTES, Writers::Successor) {
                    *self = Self::File(file);
                }
            }
            Self::Stream(_) => {}
        }
    }
}

#[derive(Debug)]
enum Message {
    Call(SystemTime, AuditedCall),
    /// Answered once all before it is written.
    Flush(SyncSender<()>),
}

/// The log of a mount. Lines that were handed to it may be lost when the daemon is killed.
#[derive(Debug)]
pub(super) struct AuditLog {
    queue: SyncSender<Message>,
    left_out: Arc<AtomicU64>,
}

impl AuditLog {
    /// Opens a log, and goes on with a file that is there. If it `is_taken` over with its mount, a file that can't be
    /// written is tried again later: programs are not to lose the mount for its log.
    ///
    /// # Errors
    /// Those of the file, and that another mount writes to it.
    pub(super) fn open(target: &AuditTarget, is_taken: bool) -> anyhow::Result<Self> {
        let sink = match target {
            AuditTarget::File(path) => match open(path, is_taken) {
                Ok(file) => Sink::File(file),
                Err(error) if is_taken => {
                    tracing::error!(%error, path = %path.display(), "the audit log can't be written: calls are left out");
                    Sink::Later(path.clone())
                }
                Err(error) => {
                    let failed = || format!("cannot write to the file --audit-log {}", path.display());
                    return Err(error).with_context(failed);
                }
            },
            AuditTarget::Stdout => Sink::Stream(Box::new(io::stdout())),
        };
        Self::begin(sink)
    }

    fn begin(sink: Sink) -> anyhow::Result<Self> {
        let (queue, calls) = sync_channel(MOST_WAITING);
        let left_out = Arc::new(AtomicU64::new(0));
        let counted = left_out.clone();
        let write = move || write(sink, &calls, &counted);
        std::thread::Builder::new().name("s3mount-audit".to_owned()).spawn(write)?;
        Ok(Self { queue, left_out })
    }

    /// Waits until all is written, or the disk has taken too long.
    pub(super) fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        if self.queue.try_send(Message::Flush(done)).is_ok() {
            let _ = is_done.recv_timeout(PATIENCE);
        }
    }
}

impl AuditSink for AuditLog {
    fn note(&self, call: AuditedCall) {
        if self.queue.try_send(Message::Call(SystemTime::now(), call)).is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Writes what comes, until the log is dropped.
fn write(mut sink: Sink, calls: &Receiver<Message>, left_out: &AtomicU64) {
    let (mut looked, mut has_failed) = (Instant::now(), false);
    let mut programs = Programs::default();
    let mut add = |sink: &mut Sink, line: &[u8]| {
        if let Err(error) = sink.add(line) {
            left_out.fetch_add(1, Ordering::Relaxed);
            if !std::mem::replace(&mut has_failed, true) {
                tracing::error!(%error, "the audit log can't be written: calls are left out");
            }
        } else {
            has_failed = false;
        }
    };
    loop {
        let message = match calls.recv_timeout(LOOK) {
            Ok(message) => Some(message),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if looked.elapsed() >= LOOK {
            looked = Instant::now();
            sink.follow();
        }
        match message {
            Some(Message::Call(time, mut call)) => {
                programs.complete(&mut call);
                add(&mut sink, &line_of(time, &call));
            }
            Some(Message::Flush(done)) => drop(done.send(())),
            None => {}
        }
        let count = left_out.swap(0, Ordering::Relaxed);
        if count > 0 {
            let told = LeftOut { time: text_of(SystemTime::now()), call: "left-out", count };
            if sink.add(&line(&told)).is_err() {
                left_out.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use s3mount_fuse::{AuditSink as _, AuditedCall};
    use s3mount_settings::resolved::AuditTarget;

    use super::{AuditLog, LOOK, MOST_WAITING, Sink};

    fn call(key: &str) -> AuditedCall {
        AuditedCall {
            call: "rename",
            uid: 1,
            gid: 2,
            pid: 3,
            program: Some("/bin/mv".into()),
            key: key.to_owned(),
            to: Some("b\n\"".to_owned()),
            access: None,
            is_repeated: true,
            errno: nix::errno::Errno::ENOTEMPTY as i32,
        }
    }

    #[test]
    fn each_call_is_an_object_on_a_line() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        fs::write(&path, "before\n").expect("a file");
        let log = AuditLog::open(&AuditTarget::File(path.clone()), false).expect("a log");
        log.note(call("a"));
        log.flush();
        let text = fs::read_to_string(&path).expect("text");
        let line = text.strip_prefix("before\n{\"time\":\"20").expect("it goes on");
        assert_eq!(
            line.split_once(',').expect("a time").1,
            "\"call\":\"rename\",\"key\":\"a\",\"to\":\"b\\n\\\"\",\
             \"result\":\"ENOTEMPTY\",\"uid\":1,\"gid\":2,\"pid\":3,\"program\":\"/bin/mv\",\"repeated\":true}\n"
        );
    }

    #[test]
    fn a_file_that_is_moved_away_is_followed_by_a_new_one() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let log = AuditLog::open(&AuditTarget::File(path.clone()), false).expect("a log");
        log.note(call("first"));
        log.flush();
        fs::rename(&path, folder.path().join("moved")).expect("moved");
        std::thread::sleep(LOOK + Duration::from_millis(100));
        log.note(call("second"));
        log.flush();
        let read = |name| fs::read_to_string(folder.path().join(name)).expect("text");
        assert!(read("moved").contains("first") && read("log").contains("second"));
    }

    #[test]
    fn each_line_is_whole_after_a_full_disk_and_a_missing_folder() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("d/log");
        let target = AuditTarget::File(path.clone());
        AuditLog::open(&target, false).expect_err("no folder");
        let log = AuditLog::open(&target, true).expect("a log of a mount that goes on");
        log.note(call("lost"));
        log.flush();
        fs::create_dir(folder.path().join("d")).expect("a folder");
        // Whoever wrote there was killed in the midst of a line.
        fs::write(&path, "cut").expect("a file");
        std::thread::sleep(LOOK + Duration::from_millis(100));
        log.note(call("kept"));
        log.flush();
        let text = fs::read_to_string(&path).expect("text");
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "cut");
        assert!(lines.iter().any(|line| line.contains("\"kept\"")), "{text}");
        assert!(lines.iter().any(|line| line.ends_with("\"call\":\"left-out\",\"count\":1}")), "{text}");
        assert!(lines[1..].iter().all(|line| line.starts_with('{') && line.ends_with('}')), "{text}");
    }

    /// Each would move the other's lines out of the way when the file is full.
    #[test]
    fn a_file_has_the_lines_of_one_mount() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        let target = AuditTarget::File(path.clone());
        let first = AuditLog::open(&target, false).expect("a log");
        let error = AuditLog::open(&target, false).expect_err("it has a mount");
        assert!(
            format!("{error:#}").ends_with("another mount writes to it; name a file of its own"),
            "{error:#}"
        );
        // The daemon before still writes its last lines.
        let successor = AuditLog::open(&target, true).expect("a log of the same mount");
        first.note(call("last"));
        first.flush();
        drop(first);
        successor.note(call("next"));
        std::thread::sleep(LOOK + Duration::from_millis(100));
        successor.flush();
        AuditLog::open(&target, false).expect_err("the successor has it now");
        let text = fs::read_to_string(&path).expect("text");
        assert!(text.contains("\"last\"") && text.contains("\"next\""), "{text}");
    }

    /// A pipe that nobody reads from takes no more after a while.
    #[test]
    fn nobody_waits_for_a_log_that_is_stuck() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let reader = fs::File::options().read(true).write(true).open(&path).expect("both ends");
        let error = AuditLog::open(&AuditTarget::File(path.clone()), false).expect_err("a pipe");
        assert!(format!("{error:#}").ends_with("it is no regular file"), "{error:#}");
        let writer = fs::File::options().write(true).open(&path).expect("an end");
        let log = AuditLog::begin(Sink::Stream(Box::new(writer))).expect("a log");
        let key = "k".repeat(1000);
        for _ in 0..MOST_WAITING * 2 {
            log.note(call(&key));
        }
        assert!(log.left_out.load(std::sync::atomic::Ordering::Relaxed) > 0);
        let mut lines = std::io::BufRead::lines(std::io::BufReader::new(reader));
        let is_told = lines.any(|line| line.expect("text").contains("\"call\":\"left-out\",\"count\":"));
        assert!(is_told);
    }
}
