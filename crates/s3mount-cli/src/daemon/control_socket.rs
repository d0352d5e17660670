//! `--control-socket`: serves the files of the mount's `.s3mount/` on a Unix socket, for programs that can't
//! use them in the mount.
//!
//! Such a program may run in a container whose mount is read-only, or as another user. It connects to the
//! socket and sends a line with the name of a file of `.s3mount/`. For `stats`, `metrics` or `streams` it
//! receives the contents of the file, and after `events` what happens, until it closes the socket. After
//! `prefetch` it sends hints, as many as it likes.
//!
//! Anybody whom the mount lets in may connect, and the owner's probes ask here whether the daemon is alive. So what is
//! answered at once needs no place among the clients that stay ([`places`](super::places)), and nobody waits behind
//! clients that say nothing ([`guests`](s3mount_system::guests)).

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{FileTypeExt, MetadataExt as _, OpenOptionsExt as _, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::errno::Errno;
use nix::libc;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use nix::unistd::geteuid;
use s3mount_fs::{FileHandle, Filesystem, FsError, OWNER_ONLY, ROOT};
use s3mount_system::guests::Guests;
use s3mount_system::terminal::shown;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::runtime::Handle;
use tokio::time::timeout;

use super::places::{Client, Places};

/// The longest first line, in bytes.
const MAX_COMMAND: u64 = 64;

/// The most clients that are being answered, or have not said yet what they want, of the owner and of all others.
const MAX_GUESTS: usize = 128;

/// A client that sends nothing for this long is disconnected, so that idle clients keep no other client out.
/// A loader that has more hints later connects again.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// The file whose contents go on for as long as somebody listens.
const EVENTS: &str = "events";

/// Files that show what each user does.
const PRIVATE: [&str; 3] = ["memory", "streams", EVENTS];

/// How often new events are sent.
const EVENT_INTERVAL: Duration = Duration::from_millis(100);

/// A socket whose file is removed when this is dropped, unless another one has its name by then.
#[derive(Debug)]
pub(crate) struct ControlSocket {
    name: Name,
    /// The numbers of the file.
    file: (u64, u64),
}

/// A name in a folder that is held. A path may lead elsewhere later: to where a file of the same name is deleted.
#[derive(Debug)]
struct Name {
    folder: File,
    name: OsString,
}

impl Name {
    fn new(path: &Path) -> io::Result<Self> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let folder =
            File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(folder)?;
        Ok(Self { folder, name: name.to_owned() })
    }

    /// The path of the folder, for this process alone.
    fn folder(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.folder.as_raw_fd()))
    }

    fn path(&self) -> PathBuf {
        self.folder().join(&self.name)
    }

    /// The numbers of the file that has this name.
    fn file(&self) -> io::Result<(u64, u64)> {
        self.path().symlink_metadata().map(|file| (file.dev(), file.ino()))
    }
}

impl ControlSocket {
    /// Listens at `path`. This user and root may connect; with `all_users`, every user may.
    ///
    /// # Errors
    /// Fails if `path` is something else than a stale socket, or if its folder is missing or no folder.
    pub(crate) fn listen(
        path: &Path,
        all_users: bool,
        fs: Arc<Filesystem>,
        runtime: &Handle,
    ) -> anyhow::Result<Self> {
        let failed = || format!("cannot listen at --control-socket {}", shown(path));
        let name = Name::new(path).with_context(failed)?;
        remove_stale(path, &name)?;
        let _inside = runtime.enter();
        let mode = if all_users { 0o666 } else { 0o600 };
        let listener = bind(&name, mode).with_context(failed)?;
        let file = name.file().with_context(failed)?;
        runtime.spawn(accept(listener, all_users, fs));
        Ok(Self { name, file })
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if self.name.file().is_ok_and(|there| there == self.file) {
            // It fails if somebody removes the file in this moment. That is no error.
            let _ = std::fs::remove_file(self.name.path());
        }
    }
}

/// Makes the socket in a folder that no other user may enter, sets its mode there, and then gives it its
/// `name`. Other users may write to a folder such as /tmp: there they could put a link in the place of the
/// socket before its mode is set.
fn bind(name: &Name, mode: u32) -> io::Result<UnixListener> {
    let home = tempfile::Builder::new().prefix(".s3mount-").tempdir_in(name.folder())?;
    let made = home.path().join("socket");
    let listener = UnixListener::bind(&made)?;
    std::fs::set_permissions(&made, Permissions::from_mode(mode))?;
    std::fs::rename(&made, name.path())?;
    Ok(listener)
}

/// Removes the socket of a daemon that has ended.
fn remove_stale(path: &Path, name: &Name) -> anyhow::Result<()> {
    let shown = shown(path);
    let Ok(there) = name.path().symlink_metadata() else { return Ok(()) };
    if !there.file_type().is_socket() {
        bail!("--control-socket {shown} exists and is not a socket; name another path");
    }
    if is_heard(&name.path()) {
        bail!(
            "--control-socket {shown} is in use by another process; name another path, and set \
             $S3MOUNT_CONTROL_SOCKET for programs that ask a mount, not for the mounts of a shell"
        );
    }
    std::fs::remove_file(name.path()).with_context(|| format!("cannot remove the stale socket {shown}"))
}

/// Whether somebody listens at a socket. One whose owner takes no clients lets none wait here.
fn is_heard(path: &Path) -> bool {
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let connected = socket(AddressFamily::Unix, SockType::Stream, flags, None)
        .and_then(|client| connect(client.as_raw_fd(), &UnixAddr::new(path)?));
    matches!(connected, Ok(()) | Err(Errno::EAGAIN))
}

async fn accept(listener: UnixListener, all_users: bool, fs: Arc<Filesystem>) {
    let places = Arc::new(Places::default());
    let (mut owners, mut others) = (Guests::new(MAX_GUESTS), Guests::new(MAX_GUESTS));
    loop {
        let socket = match listener.accept().await {
            Ok((socket, _)) => socket,
            Err(error) => {
                // Most often the process has no file descriptor left. Descriptors become free again.
                tracing::warn!(%error, "the control socket cannot accept");
                tokio::time::sleep(std::time::Duration::from_millis(100)).await;
                continue;
            }
        };
        let uid = socket.peer_cred().map(|peer| peer.uid());
        let client = match uid {
            Ok(uid) if uid == 0 || uid == geteuid().as_raw() => Client::Owner,
            Ok(uid) if all_users => Client::Other(uid),
            _ => {
                tracing::warn!(?uid, "the control socket refuses a user");
                continue;
            }
        };
        let guests = if client == Client::Owner { &mut owners } else { &mut others };
        let (fs, places) = (fs.clone(), places.clone());
        guests.admit(async move { tell(serve(socket, fs, client, &places).await) });
    }
}

fn tell(served: io::Result<()>) {
    if let Err(error) = served {
        tracing::debug!(%error, "a client of the control socket left");
    }
}

/// Answers one client. One that stays gets a place, and goes on by itself. Only to the owner of the mount it tells
/// what each user does.
async fn serve(socket: UnixStream, fs: Arc<Filesystem>, client: Client, places: &Places) -> io::Result<()> {
    let (from, mut to) = socket.into_split();
    let mut from = BufReader::new(from);
    let mut command = String::new();
    timeout(MAX_SILENCE, (&mut from).take(MAX_COMMAND).read_line(&mut command)).await??;
    let name = command.trim_end();
    if client != Client::Owner && PRIVATE.contains(&name) {
        let text = format!("s3mount: {command:?}: {OWNER_ONLY}\n");
        return timeout(MAX_SILENCE, to.write_all(text.as_bytes())).await?;
    }
    let (file, is_writable) = match open(&fs, name).await {
        Ok(opened) => opened,
        Err(error) => {
            let text = format!(
                "s3mount: {command:?}: {error}; write stats, metrics, streams or events, or prefetch and lines\n"
            );
            return timeout(MAX_SILENCE, to.write_all(text.as_bytes())).await?;
        }
    };
    let file = Opened { fs, file };
    if name != EVENTS && !is_writable {
        let held = file.read().await;
        return timeout(MAX_SILENCE, to.write_all(&held)).await?;
    }
    let Some(place) = places.take(client).await else { return Ok(()) };
    tokio::spawn(async move {
        let _place = place;
        tell(if is_writable {
            copy_in(&mut from, &file).await
        } else {
            send_events(&mut from, &mut to, &file).await
        });
    });
    Ok(())
}

/// An open file of `.s3mount/`, which is closed when this is dropped.
struct Opened {
    fs: Arc<Filesystem>,
    file: FileHandle,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.fs.release(self.file);
    }
}

impl Opened {
    async fn read(&self) -> Vec<u8> {
        let (send, receive) = tokio::sync::oneshot::channel();
        self.fs.read(self.file, 0, 1 << 20, move |result| {
            // Sending fails if nobody waits for the result any more. That is no error.
            let _ = send.send(result.map(<[u8]>::to_vec).unwrap_or_default());
        });
        receive.await.unwrap_or_default()
    }
}

/// Opens a file of `.s3mount/`. Also returns whether the file can be written.
async fn open(fs: &Arc<Filesystem>, name: &str) -> Result<(FileHandle, bool), FsError> {
    let folder = fs.lookup(ROOT, ".s3mount").await?.attr.ino;
    let file = fs.lookup(folder, name).await?.attr.ino;
    Ok((fs.open(file)?.handle, fs.is_writable(file)))
}

/// Writes the bytes that the client sends into the file.
async fn copy_in(from: &mut (impl AsyncReadExt + Unpin), file: &Opened) -> io::Result<()> {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match timeout(MAX_SILENCE, from.read(&mut buffer)).await?? {
            0 => return Ok(()),
            len => {
                let written = file.fs.write(file.file, 0, &buffer[..len], 0);
                written.map_err(|error| io::Error::from_raw_os_error(error.errno()))?;
            }
        }
    }
}

/// Sends events until the client closes the socket, or takes none for too long.
async fn send_events(
    from: &mut (impl AsyncReadExt + Unpin),
    to: &mut (impl AsyncWriteExt + Unpin),
    file: &Opened,
) -> io::Result<()> {
    loop {
        let events = file.read().await;
        if !events.is_empty() {
            timeout(MAX_SILENCE, to.write_all(&events)).await??;
            continue;
        }
        // What the client sends is of no meaning here. Its end is.
        if let Ok(read) = timeout(EVENT_INTERVAL, from.read(&mut [0; 64])).await
            && read? == 0
        {
            return Ok(());
        }
    }
}
