//! Mounting and unmounting, and the tasks that tell the kernel what it must forget.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd, RawFd};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fuser::{Config, INodeNo, MountOption, Session, SessionACL};
use nix::errno::Errno;
use nix::mount::MsFlags;
use nix::unistd::{getegid, geteuid};
use s3mount_fs::{Filesystem, Left};
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::adapter::{Adapter, MAX_REQUEST_BYTES, Mounted};
use crate::buffers::make_pages;
use crate::config::FuseConfig;
use crate::handshake::{self, Beginning, Handshake};
use crate::kernel::Kernel;
use crate::mount_point::{MountId, MountPoint, Place};
use crate::readahead::Readahead;
use crate::takeover::{Inherited, KeptSession};

/// The second half of the mount's type `fuse.s3mount`, by which its mounts are found.
const SUBTYPE: &str = "s3mount";

/// How long the task that has the kernel forget files waits for one folder. A READDIR of a large folder waits
/// for the store most of the time, so a longer wait would hold up the other folders.
const OLDEST_PATIENCE: Duration = Duration::from_millis(20);

/// What a request takes at most beside the bytes to write, as two names do.
const HEADER_BYTES: usize = 8 << 10;

/// The pause in which the kernel forgets the files that it was asked to forget, before it is asked for more.
const FORGET_PAUSE: Duration = Duration::from_millis(20);

/// A mounted filesystem. It stays mounted until [`Mount::unmount`] or `umount` ends it.
#[derive(Debug)]
pub struct Mount {
    /// Unset if another process has mounted, and unmounts.
    place: Option<(Place, MountId)>,
    session: JoinHandle<io::Result<()>>,
    ended: Option<oneshot::Receiver<()>>,
    /// The device, for who holds it for the next daemon.
    device: Option<OwnedFd>,
    pub(crate) fs: Arc<Filesystem>,
    kernel: Arc<Kernel>,
    pub(crate) mounted: Arc<Mounted>,
    pub(crate) reading: Reading,
}

/// How the session reads the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// The number by which its threads read it.
    pub(crate) device: RawFd,
    pub(crate) threads: usize,
    /// Whether the kernel sends again to the next daemon what they read and do not answer.
    pub(crate) can_resend: bool,
}

/// Mounts `fs` at a folder. When this returns, the mount answers.
///
/// # Errors
/// Those of opening `/dev/fuse`, of mount(2), or of the kernel's handshake. `ResourceBusy` if somebody else has
/// mounted at the folder since it was opened.
pub fn mount(
    fs: Arc<Filesystem>,
    point: MountPoint,
    config: &FuseConfig,
    runtime: &Handle,
) -> io::Result<Mount> {
    let keeps = fs.handover().is_some();
    serve(fs, config, runtime, None, false, |adapter, options| {
        let ((session, kept), place, id) =
            point.mount(|point| start(adapter, point, options, config, keeps))?;
        Ok(Started { session, kept, place: Some((place, id)) })
    })
}

/// Goes on with the mount at `dir` that another daemon has begun, through its `device`. Files and directories that are
/// open stay open. When this returns, the mount answers.
///
/// # Errors
/// `Unsupported` if this build asks the kernel for something else than the daemon before.
pub fn take_over(
    fs: Arc<Filesystem>,
    device: OwnedFd,
    (session, left): (&KeptSession, Left),
    dir: Option<&Path>,
    config: &FuseConfig,
    runtime: &Handle,
) -> io::Result<Mount> {
    let inherited = Inherited::new(&device, &left)?;
    let unsaved = fs.restore(left);
    let mount =
        serve(fs, config, runtime, Some(inherited), session.mount.is_none(), |adapter, mut options| {
            if session.mount.is_none() {
                options.acl = acl_of_device(config);
            }
            let place = dir.and_then(|dir| session.place(dir));
            let acl = options.acl;
            let (session, handshake) =
                handshake::start(adapter, &device, acl, options, Beginning::Kept(&session.handshake))?;
            Ok(Started { session, kept: Some((device, handshake)), place })
        })?;
    // The kernel has no other pages of these files from now on than those of the versions in the store.
    let kernel = mount.kernel.clone();
    runtime.spawn(async move {
        for ino in unsaved {
            drop(kernel.drop_pages(INodeNo(ino.0), 0, 0).await);
        }
    });
    Ok(mount)
}

/// Serves `fs` through `device`, an open `/dev/fuse` that another process has mounted. When this returns, the
/// mount answers. It needs no privileges, and not `/dev/fuse` itself. What mount(2) decides is up to the other
/// process: who may use the mount, `read_only`, `no_exec`, and the kernel's readahead.
///
/// # Errors
/// Those of the kernel's handshake: `EPERM` if `device` is not mounted.
pub fn serve_device(
    fs: Arc<Filesystem>,
    device: OwnedFd,
    config: &FuseConfig,
    runtime: &Handle,
) -> io::Result<Mount> {
    let keeps = fs.handover().is_some();
    serve(fs, config, runtime, None, true, |adapter, mut options| {
        options.acl = acl_of_device(config);
        // Each thread wants a clone of the device, which starts as a newly opened one.
        options.clone_fd = File::options().read(true).write(true).open("/dev/fuse").is_ok();
        let (session, kept) = session(adapter, device, options, config, keeps)?;
        Ok(Started { session, kept, place: None })
    })
}

/// Whose requests are answered where another process has mounted. The kernel knows from mount(2) who may use the mount, and
/// asks for nobody else. If that is everybody, this process can still refuse all but its own user and root.
fn acl_of_device(config: &FuseConfig) -> SessionACL {
    if config.allow_root { SessionACL::RootAndOwner } else { SessionACL::All }
}

/// The device and the handshake of a session that another daemon may take over.
type Kept = (OwnedFd, Handshake);

/// A session that has begun.
struct Started {
    session: Session<Adapter>,
    kept: Option<Kept>,
    /// Where this process has mounted it.
    place: Option<(Place, MountId)>,
}

/// A session on a device that is mounted.
fn session(
    adapter: Adapter,
    device: OwnedFd,
    options: Config,
    config: &FuseConfig,
    keeps: bool,
) -> io::Result<(Session<Adapter>, Option<Kept>)> {
    let acl = options.acl;
    if !keeps {
        return Ok((Session::from_fd(adapter, device, acl, options)?, None));
    }
    let beginning = Beginning::New { without_resend: config.without_resend };
    let (session, handshake) = handshake::start(adapter, &device, acl, options, beginning)?;
    Ok((session, Some((device, handshake))))
}

/// Starts the session that `start` makes, and the tasks beside it. `is_passed` says that another process has mounted.
fn serve(
    fs: Arc<Filesystem>,
    config: &FuseConfig,
    runtime: &Handle,
    inherited: Option<Inherited>,
    is_passed: bool,
    start: impl FnOnce(Adapter, Config) -> io::Result<Started>,
) -> io::Result<Mount> {
    let kernel = Kernel::start()?;
    let mounted = Arc::<Mounted>::default();
    let adapter =
        Adapter::new(fs.clone(), runtime.clone(), kernel.clone(), mounted.clone(), config, is_passed)?
            .inheriting(inherited);
    let Started { session, kept, place } = start(adapter, options(config))?;
    let reading = Reading {
        device: session.as_fd().as_raw_fd(),
        threads: config.threads.max(1),
        can_resend: kept.as_ref().is_some_and(|(_, handshake)| handshake.can_resend()),
    };
    let device = kept.map(|(device, handshake)| {
        if let Some(handover) = fs.handover() {
            let (mounted_at, mount) = (fs.config().mounted_at, place.as_ref().map(|(_, id)| *id));
            handover.set_session(&KeptSession { mounted_at, mount, handshake }.bytes());
        }
        device
    });
    kernel.connect(session.notifier());
    runtime.spawn(tell_outdated(fs.clone(), kernel.clone()));
    runtime.spawn(forget_oldest(fs.clone(), kernel.clone()));
    let (end, ended) = oneshot::channel();
    let session = std::thread::Builder::new().name("fuse".to_owned()).spawn(move || {
        let result = session.run();
        // It fails where the receiver was dropped. Then nobody waits for the end.
        let _ = end.send(());
        result
    })?;
    if fs.handover().is_some() {
        let most = if fs.allows_writes() { MAX_REQUEST_BYTES } else { 0 };
        runtime.spawn(make_pages(reading.threads, most as usize + HEADER_BYTES));
    }
    if let Some((place, _)) = &place {
        mounted.look(place, config.read_ahead_bytes, &fs, runtime);
    }
    runtime.spawn(drop_pages(fs.clone(), kernel.clone()));
    Ok(Mount { place, session, ended: Some(ended), device, fs, kernel, mounted, reading })
}

/// The settings as fuser takes them.
fn options(config: &FuseConfig) -> Config {
    let mut options = Config::default();
    options.mount_options = vec![
        if config.read_only { MountOption::RO } else { MountOption::RW },
        MountOption::FSName(config.fs_name.clone()),
        MountOption::Subtype(SUBTYPE.to_owned()),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        MountOption::NoAtime,
        if config.no_exec { MountOption::NoExec } else { MountOption::Exec },
    ];
    options.acl = match (config.allow_other, config.allow_root) {
        (true, _) => SessionACL::All,
        (false, true) => SessionACL::RootAndOwner,
        (false, false) => SessionACL::Owner,
    };
    options.n_threads = Some(config.threads.max(1));
    options.clone_fd = true;
    options
}

/// Mounts with the type `fuse.s3mount`, by which `findmnt -t` and `umount -t` find the mount. fuser drops the
/// subtype where it mounts by itself, so this mounts instead. Where the mount needs fusermount3, fuser keeps
/// the subtype.
fn start(
    adapter: Adapter,
    point: &MountPoint,
    options: Config,
    config: &FuseConfig,
    keeps: bool,
) -> io::Result<(Session<Adapter>, Option<Kept>)> {
    let device = File::options().read(true).write(true).open("/dev/fuse")?;
    let mut flags = MsFlags::MS_NODEV | MsFlags::MS_NOSUID | MsFlags::MS_NOATIME;
    flags.set(MsFlags::MS_RDONLY, config.read_only);
    flags.set(MsFlags::MS_NOEXEC, config.no_exec);
    let allow_other = if options.acl == SessionACL::Owner { "" } else { ",allow_other" };
    let data = format!(
        "fd={},rootmode=40000,user_id={},group_id={},default_permissions{allow_other}",
        device.as_raw_fd(),
        geteuid(),
        getegid()
    );
    let kind = format!("fuse.{SUBTYPE}");
    match nix::mount::mount(
        Some(config.fs_name.as_str()),
        &point.folder(),
        Some(kind.as_str()),
        flags,
        Some(data.as_str()),
    ) {
        Ok(()) => session(adapter, device.into(), options, config, keeps).inspect_err(|_| point.undo()),
        Err(Errno::EPERM) => Ok((start_by_fusermount(adapter, &point.shown()?, options, config)?, None)),
        Err(error) => Err(error.into()),
    }
}

/// Mounts through the set-uid helper of FUSE, for users other than root.
fn start_by_fusermount(
    adapter: Adapter,
    dir: &Path,
    mut options: Config,
    config: &FuseConfig,
) -> io::Result<Session<Adapter>> {
    // The helper takes its options as a list with commas.
    let name = config.fs_name.replace('\\', "\\\\").replace(',', "\\,");
    options.mount_options.retain(|option| !matches!(option, MountOption::FSName(_)));
    options.mount_options.push(MountOption::FSName(name));
    Session::new(adapter, dir, &options).map_err(explain_fusermount)
}

fn explain_fusermount(error: io::Error) -> io::Error {
    if error.kind() != io::ErrorKind::NotFound {
        return error;
    }
    let text = "users other than root mount by fusermount3, and there is none; install the package fuse3";
    io::Error::new(error.kind(), text)
}

/// Makes the kernel drop the names of versions that are gone, as a listing or a read has found. An inode
/// stands for one version, so pages and attributes need no notice: the next open finds another inode.
async fn tell_outdated(fs: Arc<Filesystem>, kernel: Arc<Kernel>) {
    loop {
        let was_released = kernel.was_released();
        while let Some((folder, names)) = fs.take_outdated(|folder| !kernel.is_held(INodeNo(folder.0))) {
            let left = kernel.drop_names(INodeNo(folder.0), names, Duration::ZERO).await;
            fs.put_back_outdated(folder, &left);
        }
        tokio::select! {
            () = fs.wait_for_outdated() => {}
            () = was_released => {}
        }
    }
}

/// Makes the kernel forget files while it knows too many. A file that it cannot be told of now is found again
/// later.
async fn forget_oldest(fs: Arc<Filesystem>, kernel: Arc<Kernel>) {
    loop {
        for (folder, names) in fs.oldest().await {
            drop(kernel.drop_names(INodeNo(folder.0), names, OLDEST_PATIENCE).await);
        }
        tokio::time::sleep(FORGET_PAUSE).await;
    }
}

impl Mounted {
    /// Notes the device of the mount, and raises its readahead. A device that is not known is one that may be any.
    fn look(&self, place: &Place, read_ahead_bytes: u64, fs: &Filesystem, runtime: &Handle) {
        let raised = place.device().and_then(|device| {
            let device = self.device.get_or_init(|| device);
            Readahead::raise(device, read_ahead_bytes, runtime)
        });
        match raised {
            Ok(readahead) => {
                fs.set_readahead(read_ahead_bytes);
                self.readahead.get_or_init(|| readahead);
            }
            Err(error) => tracing::info!(
                %error,
                "the kernel's readahead stays at its default: only root can raise it, by writing \
                 read_ahead_kb of the mount's device below /sys/class/bdi"
            ),
        }
    }
}

/// Makes the kernel drop the pages of refused READs once a reader goes through them page by page. The kernel
/// reads ahead only where it has no page.
async fn drop_pages(fs: Arc<Filesystem>, kernel: Arc<Kernel>) {
    loop {
        let (ino, range) = fs.refused_pages().await;
        let [offset, len] =
            [range.start(), range.len()].map(|bytes| i64::try_from(bytes).unwrap_or(i64::MAX));
        // If the kernel can't be told, it reads ahead less.
        drop(kernel.drop_pages(INodeNo(ino.0), offset, len).await);
    }
}

impl Mount {
    /// Resolves when the session has ended, mostly because somebody has unmounted it.
    pub async fn ended(&mut self) {
        // It is awaited by reference, so that a caller who stops waiting may ask again.
        if let Some(ended) = &mut self.ended {
            // An error says that the session's thread is gone. That is an end, too.
            drop(ended.await);
            self.ended = None;
        }
    }

    /// Whether the kernel sends again to the next daemon what this one has read and not answered. Where it does not, only a
    /// daemon that has [made way](Self::make_way) can be followed by another.
    pub fn can_resend(&self) -> bool {
        self.reading.can_resend
    }

    /// The device of the mount, for who holds it for the next daemon. The mount lives while anybody has it open.
    pub fn take_device(&mut self) -> Option<OwnedFd> {
        self.device.take()
    }

    /// The kernel's numbers of the mount, unless another process has mounted it.
    pub fn id(&self) -> Option<MountId> {
        self.place.as_ref().map(|(_, id)| *id)
    }

    /// Takes the mount out of the tree, if it is where it was mounted. Returns whether it was. Programs that have files
    /// open keep them until this process ends. A mount that another process has mounted is left to it, and so is what
    /// somebody else has mounted at the folder since.
    ///
    /// # Errors
    /// Those of umount2(2) and of fusermount3.
    pub fn unmount(&self) -> io::Result<bool> {
        self.place.as_ref().map_or(Ok(false), |(place, id)| take_down(place, *id))
    }

    /// The same at another folder, to which somebody has moved the mount.
    ///
    /// # Errors
    /// Those of open(2), of umount2(2) and of fusermount3.
    pub fn unmount_at(&self, dir: &Path) -> io::Result<bool> {
        self.id().map_or(Ok(false), |id| take_down(&Place::open(dir)?, id))
    }

    /// Waits until the session's threads have ended.
    ///
    /// # Errors
    /// Why the session ended, if not by unmounting.
    pub fn join(self) -> io::Result<()> {
        self.session.join().unwrap_or_else(|_| Err(io::Error::other("the FUSE session panicked")))
    }
}

/// Takes a mount out of the tree, if it is at this place. Returns whether it was.
fn take_down(place: &Place, id: MountId) -> io::Result<bool> {
    match place.detach(id) {
        Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => {
            fusermount(&place.shown()?).map(|()| true)
        }
        result => result,
    }
}

/// Has fusermount take a mount of this user out of the tree.
fn fusermount(dir: &Path) -> io::Result<()> {
    let mut command = Command::new("fusermount3");
    let output = command.arg("-uz").arg("--").arg(dir).output().map_err(explain_fusermount)?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
