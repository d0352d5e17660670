//! A new version of the driver takes over the mounts of the one before, which it finds on the host.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use super::{Node, bucket, processes_below};
use crate::world::wait_for;

/// Two versions of the program, as drivers that run in namespaces of their own, as in a container.
struct Versions {
    folder: TempDir,
    container: PathBuf,
}

impl Versions {
    fn new() -> Self {
        let container = format!("/sys/fs/cgroup/freezer/s3mount-test-{}", std::process::id());
        Self { folder: TempDir::new().expect("a folder"), container: container.into() }
    }

    /// The path of a driver that runs `program`.
    fn driver(&self, name: &str, program: &Path) -> String {
        let path = self.folder.path().join(name);
        // Mounts of the machine would live as long as the other namespace has them.
        let unmount = "umount -a -l -t fuse.s3mount";
        // Where there are control groups of version 1, a container has a group in the tree of each resource.
        let join = "mkdir $0 && echo $$ > $0/cgroup.procs";
        let inside = format!("{unmount}; {join} 2> /dev/null; exec {} \"$@\"", program.display());
        let container = self.container.display();
        let text = format!("#!/bin/sh\nexec unshare --mount --uts sh -c '{inside}' {container} \"$@\"\n");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("a script");
        path.display().to_string()
    }

    fn first(&self) -> String {
        self.driver("first", Path::new(env!("CARGO_BIN_EXE_s3mount")))
    }

    fn second(&self) -> String {
        let newer = self.folder.path().join("s3mount");
        fs::copy(env!("CARGO_BIN_EXE_s3mount"), &newer).expect("a copy");
        File::options()
            .append(true)
            .open(&newer)
            .and_then(|mut file| file.write_all(b"\0"))
            .expect("another program");
        self.driver("second", &newer)
    }

    /// Waits for the end of the drivers.
    fn end(self) {
        if self.container.exists() {
            wait_for("the end of the driver", || fs::remove_dir(&self.container).is_ok());
        }
    }
}

/// The daemon of the only mount, which `holder` has started.
fn daemon_of(node: &Node, holder: Pid) -> Option<Pid> {
    let all = processes_below(node.folder.path());
    all.into_iter().find(|(_, parent)| *parent == holder.as_raw()).map(|(pid, _)| Pid::from_raw(pid))
}

fn wait_for_another(node: &Node, holder: Pid, before: Pid) {
    wait_for("the new program", || daemon_of(node, holder).is_some_and(|now| now != before));
}

fn log(node: &Node) -> String {
    fs::read_to_string(node.folder.path().join("driver.log")).expect("a log")
}

#[test]
fn mounts_on_the_host_are_taken_over_by_a_new_driver() {
    let versions = Versions::new();
    let (first, second) = (versions.first(), versions.second());
    let mut node = Node::new(bucket(), &["--on-host"]);
    node.start_anew(&first);
    node.publish(node.publishing("v", "a")).expect("published");
    let reader = File::open(node.target("a").join("there")).expect("it shows on the host");
    let holder = node.holders()[0];
    let groups = fs::read_to_string(format!("/proc/{holder}/cgroup")).expect("its groups");
    assert!(groups.contains("s3mount-csi") && !groups.contains("s3mount-test"), "{groups}");
    let before = daemon_of(&node, holder).expect("a daemon");
    node.start_anew(&second);
    wait_for_another(&node, holder, before);
    assert_eq!(node.holders(), [holder]);
    drop(reader);
    assert_eq!(fs::read(node.target("a").join("there")).expect("it is mounted"), b"bytes");
    node.unpublish("v", "a").expect("gone");
    node.check_empty();
    drop(node);
    versions.end();
}

/// A daemon that is stopped makes way for nobody.
#[test]
fn a_daemon_that_did_not_make_way_is_asked_again() {
    let versions = Versions::new();
    let (first, second) = (versions.first(), versions.second());
    for is_another_driver in [false, true] {
        let mut node = Node::new(bucket(), &["--on-host"]);
        node.start_anew(&first);
        node.publish(node.publishing("v", "a")).expect("published");
        let holder = node.holders()[0];
        let before = daemon_of(&node, holder).expect("a daemon");
        kill(before, Signal::SIGSTOP).expect("it lives");
        node.start_anew(&second);
        wait_for("the refusal", || log(&node).contains("the daemon is stopped"));
        assert_eq!(daemon_of(&node, holder), Some(before));
        if is_another_driver {
            // The next one finds its program installed.
            node.driver.kill().expect("it lives");
            node.driver.wait().expect("its end");
        }
        kill(before, Signal::SIGCONT).expect("it lives");
        if is_another_driver {
            node.start_anew(&second);
        }
        wait_for_another(&node, holder, before);
        let after = daemon_of(&node, holder);
        assert_eq!(fs::read(node.target("a").join("there")).expect("it is mounted"), b"bytes");
        // One that runs the program is left in peace.
        node.start_anew(&second);
        thread::sleep(Duration::from_secs(1));
        assert_eq!(daemon_of(&node, holder), after, "{}", log(&node));
        node.unpublish("v", "a").expect("gone");
        node.check_empty();
    }
    versions.end();
}
