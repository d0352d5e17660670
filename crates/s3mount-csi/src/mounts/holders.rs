//! Who keeps a mount alive that the driver has unmounted, or is about to: its daemon, and mounts of the same file system
//! that others have made, here or in other namespaces.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::targets::KIND;

/// A mount of a file system, as a process sees it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Holder {
    process: String,
    /// Where that process has it.
    dir: PathBuf,
    /// Whether it is all of the file system, and no folder of it.
    is_whole: bool,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the process {} sees it at {}", self.process, self.dir.display())
    }
}

impl Holder {
    /// Where this process finds the root of the file system, if it can be found there.
    pub(super) fn root(&self) -> Option<PathBuf> {
        let seen = self.dir.strip_prefix("/").ok()?;
        self.is_whole.then(|| Path::new("/proc").join(&self.process).join("root").join(seen))
    }
}

/// A mount of the file system of the `device` (a minor number) in any namespace that this process may look into. One that
/// shows all of it, if there is one.
pub(super) fn find(device: u64) -> Option<Holder> {
    let (mut namespaces, mut found) = (BTreeSet::new(), None);
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let path = process.path();
        let Ok(namespace) = fs::read_link(path.join("ns/mnt")) else { continue };
        if namespaces.contains(&namespace) {
            continue;
        }
        // The process may have ended meanwhile, and another one of its namespace may not.
        let Ok(table) = fs::read(path.join("mountinfo")) else { continue };
        namespaces.insert(namespace);
        let name = process.file_name().to_string_lossy().into_owned();
        for holder in table.split(|byte| *byte == b'\n').filter_map(|line| parse(line, device, &name)) {
            if holder.is_whole {
                return Some(holder);
            }
            found.get_or_insert(holder);
        }
    }
    found
}

/// Reads a line of mountinfo of `process`. `None` if it is not of this device.
fn parse(line: &[u8], device: u64, process: &str) -> Option<Holder> {
    let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
    let kind = fields.get(fields.iter().position(|field| *field == b"-")? + 1)?;
    let is_of_device = *fields.get(2)? == format!("0:{device}").as_bytes();
    (is_of_device && *kind == KIND.as_bytes()).then(|| Holder {
        process: process.to_owned(),
        // A name with a blank is escaped. It is shown so, and not found.
        dir: OsStr::from_bytes(fields[4]).into(),
        is_whole: fields[3] == b"/",
    })
}

/// Whether a process serves the mount at `folder`, or keeps it, or publishes what was written there.
///
/// # Errors
/// Where there is no `/proc`.
pub(super) fn has_daemon(folder: &Path) -> anyhow::Result<bool> {
    Ok(processes_of(folder)?.next().is_some())
}

/// Whether the daemon of the mount at `folder` runs another program than the one at the path `program`, also if that was
/// there before. Who has started the daemon does not count.
///
/// # Errors
/// Where there is no `/proc`, or no program.
pub(super) fn runs_another(folder: &Path, program: &Path) -> anyhow::Result<bool> {
    let failed = || format!("cannot see the program {}", program.display());
    let wanted = file_of(program).with_context(failed)?;
    let all: Vec<_> = processes_of(folder)?.collect();
    let parents: Vec<_> = all.iter().filter_map(|process| parent_of(process)).collect();
    let daemons = all.iter().filter(|process| {
        let name = process.file_name();
        !parents.iter().any(|parent| name.is_some_and(|name| name == parent.as_str()))
    });
    // A process that has ended meanwhile runs nothing.
    let mut programs = daemons.filter_map(|daemon| file_of(&daemon.join("exe")).ok());
    Ok(programs.any(|program| program != wanted))
}

/// What no other file has, as long as it is there or a process runs it.
fn file_of(path: &Path) -> io::Result<(u64, u64)> {
    fs::metadata(path).map(|file| (file.dev(), file.ino()))
}

/// The number of a process's parent.
fn parent_of(process: &Path) -> Option<String> {
    let stat = fs::read_to_string(process.join("stat")).ok()?;
    // Its name, which may have any characters, is in brackets.
    stat.rsplit_once(") ")?.1.split(' ').nth(1).map(str::to_owned)
}

/// The folders in `/proc` of the processes of s3mount that name `folder` among their arguments.
fn processes_of(folder: &Path) -> anyhow::Result<impl Iterator<Item = PathBuf>> {
    let processes = fs::read_dir("/proc").context("cannot see the processes")?.flatten();
    let names_it = |process: &PathBuf| {
        let Ok(line) = fs::read(process.join("cmdline")) else { return false };
        let mut words = line.split(|byte| *byte == 0);
        words.next().is_some_and(|program| program.ends_with(b"s3mount"))
            && words.any(|word| word == folder.as_os_str().as_bytes())
    };
    Ok(processes.map(|process| process.path()).filter(names_it))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::parse;

    #[test]
    fn a_holder_shows_the_file_system_or_a_folder_of_it() {
        let whole = b"36 35 0:45 / /mnt/a rw,nosuid shared:1 - fuse.s3mount s3://b/ rw,user_id=0";
        let holder = parse(whole, 45, "7").expect("it is of the device");
        assert_eq!(holder.root(), Some(PathBuf::from("/proc/7/root/mnt/a")));
        assert_eq!(parse(whole, 4, "7"), None);
        let folder = b"36 35 0:45 /d /mnt/a rw,nosuid - fuse.s3mount s3://b/ rw,user_id=0";
        assert_eq!(parse(folder, 45, "7").expect("it is of the device").root(), None);
        assert_eq!(parse(b"36 35 0:45 / /mnt/a rw - tmpfs tmpfs rw", 45, "7"), None);
    }
}
