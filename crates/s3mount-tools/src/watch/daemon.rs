//! Asks the daemon of a mount: through the files of the mount's `.s3mount/`, or through its control socket.
//!
//! A daemon that is stopped, or hangs, answers nothing. So each question is asked by a thread of its own, which
//! is left behind when the answer takes too long.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};
use nix::errno::Errno;
use s3mount_fs::OWNER_ONLY;
use s3mount_system::mounts::{self, enclosing, mount_at, others_of, resolve};
use s3mount_system::terminal::{plain, shown};

use super::events::Event;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long one read of a socket waits for events.
const SOCKET_WAIT: Duration = Duration::from_millis(20);

/// The longest answer, in bytes. Whoever has mounted something may answer without an end.
const MOST_BYTES: u64 = 64 << 20;

/// The most bytes that are taken at once.
const PIECE_BYTES: usize = 256 << 10;

/// The most bytes of events that are taken by one call: some hundred thousand events. The rest comes with the next one.
const MOST_TAKEN: usize = 16 << 20;

/// The longest event, in bytes. S3 has keys of up to 1,024.
const MOST_LINE: usize = 64 << 10;

/// The daemon of a mount.
#[derive(Clone, Debug)]
pub(crate) struct Daemon {
    path: PathBuf,
    is_socket: bool,
    /// What is mounted, such as `s3://bucket/`. Empty for a socket.
    pub(crate) source: String,
}

impl Daemon {
    /// The daemon of the mount at `path`, or the one that listens at the control socket `path`.
    ///
    /// # Errors
    /// Fails if `path` is neither, if the daemon is gone, or if it does not answer.
    pub(crate) fn at(path: &Path) -> anyhow::Result<Self> {
        let given = path.to_owned();
        within(path, move || Self::find(&given))?
    }

    fn find(path: &Path) -> anyhow::Result<Self> {
        let shown = shown(path);
        let is_socket = match path.metadata() {
            Ok(metadata) => metadata.file_type().is_socket(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                bail!("{shown} does not exist; name the folder of a mount, or its control socket")
            }
            Err(error) => return Err(explain(path, "stats", error)),
        };
        if is_socket {
            return Ok(Self { path: path.to_owned(), is_socket, source: String::new() });
        }
        mounts::check()?;
        let dir = resolve(path).with_context(|| format!("cannot find the folder {shown}"))?;
        let Some(mount) = mount_at(&dir) else {
            if let Some(mount) = enclosing(&dir).filter(|mount| mount.kind == "fuse.s3mount") {
                let holder = self::shown(&mount.dir);
                bail!("{shown} lies in the mount at {holder}; name the mount: {holder}");
            }
            bail!("nothing is mounted at {shown}; `findmnt -t fuse.s3mount` lists what is")
        };
        ensure!(
            mount.kind == "fuse.s3mount",
            "{} at {shown} is not s3mount's but {}; name a folder that s3mount has mounted",
            plain(&mount.source),
            plain(&mount.kind)
        );
        if mount.root != Path::new("/") {
            let whole = others_of(&mount).into_iter().find(|other| other.root == Path::new("/"));
            let name = whole.map_or_else(
                || "its --control-socket".to_owned(),
                |whole| format!("the mount: {}", self::shown(&whole.dir)),
            );
            bail!("{mount} shows only the folder {} of it; name {name}", self::shown(&mount.root));
        }
        Ok(Self { path: dir, is_socket, source: mount.source })
    }

    /// The text of one of its files.
    ///
    /// # Errors
    /// Fails if the daemon is gone, does not answer, refuses this user, or does not know the file.
    pub(crate) fn ask(&self, file: &'static str) -> anyhow::Result<String> {
        let daemon = self.clone();
        within(&self.path, move || {
            let answer = match daemon.open(file)? {
                Open::File(file) => io::read_to_string(file.take(MOST_BYTES)),
                Open::Socket(socket) => io::read_to_string(socket.take(MOST_BYTES)),
            };
            let text = answer.map_err(|error| explain(&daemon.path, file, error))?;
            // So the socket says that it does not know a word.
            if daemon.is_socket && text.starts_with("s3mount: ") {
                return Err(refused(&daemon.path, file, &text));
            }
            Ok(text)
        })?
    }

    /// Listens to its events from now on.
    ///
    /// # Errors
    /// As of [`ask`](Self::ask).
    pub(crate) fn listen(&self) -> anyhow::Result<Listener> {
        let daemon = self.clone();
        let open = within(&self.path, move || daemon.open("events"))??;
        if let Open::Socket(socket) = &open {
            socket.set_read_timeout(Some(SOCKET_WAIT))?;
        }
        Ok(Listener { path: self.path.clone(), open: Some(open), rest: Vec::new() })
    }

    fn open(&self, file: &str) -> anyhow::Result<Open> {
        let explained = |error| explain(&self.path, file, error);
        if self.is_socket {
            let mut socket = UnixStream::connect(&self.path).map_err(|error| match error.kind() {
                io::ErrorKind::ConnectionRefused => {
                    anyhow!("no daemon listens at {} any more; mount again", shown(&self.path))
                }
                _ => explained(error),
            })?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.write_all(format!("{file}\n").as_bytes()).map_err(explained)?;
            return Ok(Open::Socket(socket));
        }
        Ok(Open::File(File::open(self.path.join(".s3mount").join(file)).map_err(explained)?))
    }
}

#[derive(Debug)]
enum Open {
    File(File),
    Socket(UnixStream),
}

/// The events of a mount, from when it was made until it is dropped.
#[derive(Debug)]
pub(crate) struct Listener {
    path: PathBuf,
    /// Unset while a thread reads it.
    open: Option<Open>,
    /// The beginning of a line whose end has not come yet.
    rest: Vec<u8>,
}

impl Listener {
    /// The events that have happened since the last call, or the first of these, if they are more than the memory
    /// should hold at once.
    ///
    /// # Errors
    /// Fails if the daemon is gone, does not answer, or does not know events.
    pub(crate) fn take(&mut self) -> anyhow::Result<Vec<Event>> {
        let (mut events, mut taken) = (Vec::new(), 0);
        while taken < MOST_TAKEN
            && let Some(mut open) = self.open.take()
        {
            let (open, read) = within(&self.path, move || {
                let mut piece = vec![0; PIECE_BYTES];
                let read = match &mut open {
                    Open::File(file) => file.read(&mut piece).map(Some),
                    Open::Socket(socket) => match socket.read(&mut piece) {
                        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
                        Ok(0) => Err(io::Error::from_raw_os_error(Errno::ENOTCONN as i32)),
                        read => read.map(Some),
                    },
                };
                (open, read.map(|len| piece[..len.unwrap_or(0)].to_vec()))
            })?;
            self.open = Some(open);
            let piece = read.map_err(|error| explain(&self.path, "events", error))?;
            if piece.is_empty() {
                break;
            }
            if self.rest.is_empty() && piece.starts_with(b"s3mount: ") {
                return Err(refused(&self.path, "events", &String::from_utf8_lossy(&piece)));
            }
            taken += piece.len();
            self.rest.extend(piece);
            let end = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
            let lines: Vec<u8> = self.rest.drain(..end).collect();
            events.extend(lines.split(|byte| *byte == b'\n').filter_map(Event::parse));
            ensure!(
                self.rest.len() <= MOST_LINE,
                "the daemon of {} sends what is no event",
                shown(&self.path)
            );
        }
        Ok(events)
    }
}

/// Runs `question` in a thread of its own, and waits for its end for a bounded time.
fn within<T: Send + 'static>(
    path: &Path,
    question: impl FnOnce() -> T + Send + 'static,
) -> anyhow::Result<T> {
    let (send, receive) = mpsc::channel();
    std::thread::Builder::new().name("question".into()).spawn(move || {
        // Sending fails if nobody waits for the answer any more.
        let _ = send.send(question());
    })?;
    receive.recv_timeout(PATIENCE + Duration::from_secs(1)).map_err(|_| {
        anyhow!(
            "the daemon of {} did not answer within {PATIENCE:?}; it may be stopped: see its log, and its state \
             with ps",
            shown(path)
        )
    })
}

/// What an error means for somebody who asks the daemon of `path`.
fn explain(path: &Path, file: &str, error: io::Error) -> anyhow::Error {
    let shown = shown(path);
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::ENOTCONN | Errno::ECONNABORTED | Errno::EPIPE | Errno::ECONNRESET) => {
            anyhow!("the daemon of {shown} is gone; take the mount down with: s3mount umount {shown}")
        }
        Some(Errno::EACCES | Errno::EPERM) => anyhow!(
            "you may not look at {shown}: only the user who mounted may{}, and root with --allow-root; run this as that \
             user, or name the mount's --control-socket",
            std::path::absolute(path)
                .ok()
                .and_then(|path| mount_at(&path)?.other_user())
                .map_or_else(String::new, |user| format!(", {user}"))
        ),
        Some(Errno::ENOENT) => unknown(path, file),
        Some(Errno::EBUSY) => {
            anyhow!("{shown} already has its maximum of event listeners; stop one and try again")
        }
        Some(Errno::EAGAIN) => {
            anyhow!("the daemon of {shown} did not answer within {PATIENCE:?}; it may be stopped")
        }
        _ => anyhow::Error::from(error).context(format!("cannot ask the daemon of {shown} for {file}")),
    }
}

/// What it means that a control socket answers with `text`.
fn refused(path: &Path, file: &str, text: &str) -> anyhow::Error {
    if text.contains(OWNER_ONLY) { explain(path, file, Errno::EACCES.into()) } else { unknown(path, file) }
}

fn unknown(path: &Path, file: &str) -> anyhow::Error {
    anyhow!(
        "the daemon of {} does not know `{file}`: it is of another version; unmount, and mount again with this one \
         ({})",
        shown(path),
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Seek as _, Write as _};
    use std::path::PathBuf;

    use super::{Listener, MOST_LINE, MOST_TAKEN, Open, PIECE_BYTES};

    /// A listener to a daemon that sends these bytes.
    fn listener(bytes: &[u8]) -> Listener {
        let mut file: File = tempfile::tempfile().expect("a file");
        file.write_all(bytes).and_then(|()| file.rewind()).expect("a disk");
        Listener { path: PathBuf::from("/mnt"), open: Some(Open::File(file)), rest: Vec::new() }
    }

    #[test]
    fn more_events_than_fit_at_once_come_one_after_another() {
        let line = format!("{:>4095}\n", r#"{"event": "lost", "count": 1}"#);
        let count = MOST_TAKEN / line.len() + 100;
        let mut listener = listener(line.repeat(count).as_bytes());
        let first = listener.take().expect("events").len();
        assert!(first * line.len() < MOST_TAKEN + PIECE_BYTES, "{first}");
        assert_eq!(first + listener.take().expect("events").len(), count);
    }

    #[test]
    fn a_line_without_an_end_is_refused() {
        let mut listener = listener(&vec![b'x'; 4 * MOST_LINE]);
        let error = listener.take().expect_err("it is no event");
        assert_eq!(error.to_string(), "the daemon of /mnt sends what is no event");
    }
}
