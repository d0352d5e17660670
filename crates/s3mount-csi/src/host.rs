//! The machine on which volumes are mounted: its namespaces, and the control groups of its daemons.
//!
//! A container that is replaced takes all its processes with it, and its network. So a driver with `--on-host` does all its
//! work in the namespaces of the machine's first process (it needs `hostPID`, and privileges for that): its daemons are
//! processes of the machine, in control groups of their own, and live on while the driver is replaced.
#![expect(unsafe_code, reason = "a process that joins a control group before its program begins")]

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;
use nix::sched::{CloneFlags, setns, unshare};

/// The namespaces that a driver enters. That of the mounts is the last: it changes where /proc leads.
const NAMESPACES: [&str; 5] = ["cgroup", "ipc", "uts", "net", "mnt"];

/// The folder of all groups of this driver, below the root of control groups.
const GROUPS: &str = "s3mount-csi";

/// Where the machine has its control groups.
const ROOT: &str = "/sys/fs/cgroup";

/// The file of a group that names its processes.
const MEMBERS: &str = "cgroup.procs";

/// The bound of a group of version 2.
const MAX: &str = "memory.max";

/// Set by tests: the number of the process whose namespaces are those of the machine.
const FIRST: &str = "S3MOUNT_CSI_FIRST";

/// Where the work of a driver is done.
#[derive(Debug)]
pub(crate) enum Host {
    /// Where the driver runs.
    Here,
    /// In the namespaces of the machine's first process.
    Namespaces(Vec<File>),
}

impl Host {
    /// # Errors
    /// Those of a process that may not look at the machine's first process.
    pub(crate) fn new(on_host: bool) -> anyhow::Result<Self> {
        if !on_host {
            return Ok(Self::Here);
        }
        let first = std::env::var(FIRST).unwrap_or_else(|_| "1".to_owned());
        let open = |name: &&str| File::open(format!("/proc/{first}/ns/{name}"));
        let files = NAMESPACES.iter().map(open).collect::<io::Result<_>>();
        files.map(Self::Namespaces).context(
            "cannot open the namespaces of the machine's first process; --on-host needs hostPID and a privileged container",
        )
    }

    /// Does `work` there, in a thread of its own: the other threads stay where they are.
    ///
    /// # Errors
    /// Those of `work`, and of setns(2).
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
        let Self::Namespaces(files) = self else { return work() };
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                // A thread that shares its working folder with others may not enter another namespace of mounts.
                unshare(CloneFlags::CLONE_FS).context("cannot have a working folder of its own")?;
                for (name, file) in NAMESPACES.iter().zip(files) {
                    setns(file, CloneFlags::empty())
                        .with_context(|| format!("cannot enter the machine's {name} namespace"))?;
                }
                work()
            });
            thread.join().unwrap_or_else(|_| Err(anyhow::anyhow!("a thread of the driver has panicked")))
        })
    }
}

/// A control group, which bounds the memory of one daemon. On a machine without them there is none.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
}

impl Group {
    /// Makes the group `name`, of `limit` bytes. To be called on the host.
    ///
    /// # Errors
    /// Those of a machine whose control groups can't be changed.
    pub(crate) fn new(name: &str, limit: u64) -> anyhow::Result<Self> {
        let (root, bound) = root();
        let all = root.join(GROUPS);
        let failed = || format!("cannot make a control group in {}", all.display());
        fs::create_dir_all(&all).with_context(failed)?;
        // Only version 2 hands memory down to groups.
        if bound == MAX {
            for folder in [&root, &all] {
                write(&folder.join("cgroup.subtree_control"), "+memory").with_context(failed)?;
            }
        }
        let path = all.join(name);
        fs::create_dir_all(&path).with_context(failed)?;
        write(&path.join(bound), &limit.to_string()).with_context(failed)?;
        Ok(Self { path })
    }

    /// Has the process of `command` begin in this group, and in no other of the container: whoever ends a container that
    /// has no namespace of processes ends all that are in its groups.
    pub(crate) fn join(&self, command: &mut Command) -> io::Result<()> {
        let open = |folder: &Path| File::options().write(true).open(folder.join(MEMBERS));
        let members = open(&self.path)?;
        // Version 1 has a tree for each resource, and this group is in one of them.
        let trees: Vec<_> = others(&self.path).iter().filter_map(|tree| open(tree).ok()).collect();
        // SAFETY: between fork and exec this writes to open files, and allocates nothing.
        unsafe {
            command.pre_exec(move || {
                for mut tree in &trees {
                    // A tree may have rules of its own. The process is in the driver's group of it then.
                    let _ = tree.write_all(b"0");
                }
                (&members).write_all(b"0")
            });
        }
        Ok(())
    }

    /// Removes the group `name`, if its processes have ended. To be called on the host.
    pub(crate) fn remove(name: &str) {
        // It fails where there is none.
        let _ = fs::remove_dir(root().0.join(GROUPS).join(name));
    }
}

/// The roots of all trees of groups but that of `group`. Version 2 has one tree.
fn others(group: &Path) -> Vec<PathBuf> {
    if root().1 == MAX {
        return Vec::new();
    }
    let trees = fs::read_dir(ROOT).into_iter().flatten().flatten().map(|entry| entry.path());
    trees
        .filter(|tree| !group.starts_with(tree) && !tree.is_symlink() && tree.join(MEMBERS).exists())
        .collect()
}

/// Where the groups that bound memory are, and the file of a group that has its bound.
fn root() -> (PathBuf, &'static str) {
    let root = Path::new(ROOT);
    match root.join("cgroup.controllers").is_file() {
        true => (root.to_owned(), MAX),
        false => (root.join("memory"), "memory.limit_in_bytes"),
    }
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    File::options().write(true).open(path)?.write_all(text.as_bytes())
}
