//! The process that closes a descriptor: its threads, and its other descriptors.

use std::fs;
use std::path::PathBuf;

use procfs::process::Process;
use s3mount_fs::{Closer, InodeNo};

/// The process of the thread that closes a descriptor.
#[derive(Debug)]
pub(crate) struct ClosingProcess {
    thread: u32,
    /// The numbers of the device of this mount, as `0:42`, if they are known.
    device: Option<String>,
}

/// The process of a thread, unless the thread is gone.
fn process_of(thread: u32) -> Option<i32> {
    Process::new(i32::try_from(thread).ok()?)
        .and_then(|process| process.status())
        .ok()
        .map(|status| status.tgid)
}

impl ClosingProcess {
    /// The process of a thread that sends a FLUSH to the mount with this device.
    pub(crate) fn new(thread: u32, device: Option<String>) -> Self {
        Self { thread, device }
    }

    /// The descriptors of the process. A process that ends has none any more.
    fn descriptors(&self) -> Option<Vec<PathBuf>> {
        // Threads may have tables of their own, but nearly none has.
        let folder = format!("/proc/{}/fdinfo", self.thread);
        fs::read_dir(folder).ok()?.map(|entry| entry.map(|entry| entry.path()).ok()).collect()
    }

    /// Whether the mount `id` of the process is one of this file system, or may be.
    fn is_of_this_mount(&self, id: &str) -> Option<bool> {
        let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", self.thread)).ok()?;
        let line = mounts.lines().find(|line| line.split(' ').next() == Some(id))?;
        let (_, kind) = line.split_once(" - ")?;
        Some(match &self.device {
            Some(device) => line.split(' ').nth(2) == Some(device),
            None => kind.starts_with("fuse"),
        })
    }
}

impl Closer for ClosingProcess {
    /// A thread that is gone counts as one of the process.
    fn is_of(&self, thread: u32) -> bool {
        thread == self.thread
            || match (process_of(thread), process_of(self.thread)) {
                (Some(one), Some(other)) => one == other,
                _ => true,
            }
    }

    fn has_another(&self, ino: InodeNo) -> Option<bool> {
        for descriptor in self.descriptors()? {
            // One that is gone by now is none.
            let Ok(info) = fs::read_to_string(descriptor) else { continue };
            let field = |name| info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
            if field("ino:")? == ino.0.to_string() && self.is_of_this_mount(field("mnt_id:")?) != Some(false)
            {
                return Some(true);
            }
        }
        Some(false)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::MetadataExt as _;

    use s3mount_fs::{Closer as _, InodeNo};

    use super::ClosingProcess;

    #[test]
    fn a_file_of_another_file_system_is_another_file() {
        let file = File::open("/proc/self/exe").expect("a file");
        let ino = InodeNo(file.metadata().expect("metadata").ino());
        let me = ClosingProcess::new(std::process::id(), None);
        assert_eq!(me.has_another(ino), Some(false), "it is on no mount of ours");
        assert!(me.is_of(std::process::id()));
        assert_eq!(ClosingProcess::new(u32::MAX / 2, None).has_another(ino), None, "nobody knows");
    }
}
