//! The folders of pods, where somebody else has something, or calls come with other arguments than before.

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use nix::mount::{MsFlags, mount};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tonic::Code;

use super::{Node, Publish, bucket};
use crate::takeover::wait_for_end;

/// A bind mount of `from`, which no driver knows.
fn bind(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    let none: Option<&str> = None;
    mount(Some(from), to, none, MsFlags::MS_BIND, none).expect("a bind mount");
}

fn is_mounted(node: &Node, pod: &str) -> bool {
    fs::read(node.target(pod).join("there")).is_ok_and(|bytes| bytes == b"bytes")
}

#[test]
fn a_place_that_is_no_empty_folder_is_refused_and_left_alone() {
    let node = Node::new(bucket(), &[]);
    let make = |pod: &str| {
        let target = node.target(pod);
        fs::create_dir_all(target.parent().expect("a folder above")).expect("a folder");
        target
    };
    fs::write(make("file"), "mine").expect("a file");
    symlink(node.folder.path(), make("link")).expect("a link");
    fs::create_dir(make("full")).expect("a folder");
    fs::write(node.target("full").join("mine"), "mine").expect("a file");
    for (pod, why) in [("file", "is a file"), ("link", "is a symbolic link"), ("full", "something in it")] {
        let refused = node.publish(node.publishing("v", pod)).expect_err("no place for a volume");
        assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
        assert!(refused.message().contains(why), "{refused}");
        node.check_empty();
        node.unpublish("v", pod).expect("nothing is there");
    }
    assert_eq!(fs::read(node.target("file")).expect("it stays"), b"mine");
    assert_eq!(fs::read_link(node.target("link")).expect("it stays"), node.folder.path());
    assert_eq!(fs::read(node.target("full").join("mine")).expect("it stays"), b"mine");
    // As soon as they are gone, pods have their volumes.
    fs::remove_file(node.target("file")).expect("removed");
    node.publish(node.publishing("v", "file")).expect("published");
    node.unpublish("v", "file").expect("gone");
    assert!(!node.target("file").exists());
}

#[test]
fn a_volume_goes_also_if_its_folder_can_not() {
    let node = Node::new(bucket(), &[]);
    fs::create_dir_all(node.target("a")).expect("a folder");
    let under = File::open(node.target("a")).expect("the folder");
    node.publish(node.publishing("v", "a")).expect("published");
    let under = PathBuf::from(format!("/proc/self/fd/{}", under.as_raw_fd())).join("mine");
    fs::write(&under, "mine").expect("a file under the mount");
    let holder = node.holders()[0];
    for _ in 0..2 {
        node.unpublish("v", "a").expect("gone");
    }
    wait_for_end(holder);
    node.check_empty();
    assert_eq!(fs::read(node.target("a").join("mine")).expect("it stays"), b"mine");
    let log = fs::read_to_string(node.folder.path().join("driver.log")).expect("a log");
    assert!(log.contains("what is at its place stays"), "{log}");
}

#[test]
fn a_volume_is_not_taken_away_by_the_name_of_another() {
    let node = Node::new(bucket(), &[]);
    node.publish(node.publishing("v", "a")).expect("published");
    let refused = node.unpublish("w", "a").expect_err("another volume");
    assert_eq!(refused.code(), Code::NotFound, "{refused}");
    assert!(refused.message().contains("the volume v is there"), "{refused}");
    assert_eq!(node.stats("w", "a").expect_err("another volume").code(), Code::NotFound);
    assert!(is_mounted(&node, "a"));
    node.stats("v", "a").expect("stats");
    // What a killed driver has left is nobody's.
    bind(&node.target("a"), &node.target("b"));
    node.unpublish("w", "b").expect("taken away");
    assert!(!node.target("b").exists());
    let slash =
        Publish { target_path: format!("{}/", node.target("a").display()), ..node.publishing("v", "a") };
    node.publish(slash).expect("the same folder");
    node.unpublish("v", "a").expect("gone");
    node.check_empty();
}

#[test]
fn a_pod_keeps_the_right_to_write_that_it_had_first() {
    let node = Node::new(bucket(), &[]);
    let call = |pod: &str, readonly: bool| Publish { readonly, ..node.publishing("v", pod) };
    for (pod, readonly) in [("writer", false), ("reader", true)] {
        node.publish(call(pod, readonly)).expect("published");
        let refused = node.publish(call(pod, !readonly)).expect_err("another view");
        assert_eq!(refused.code(), Code::AlreadyExists, "{refused}");
        assert!(refused.message().contains("readonly differs"), "{refused}");
        node.publish(call(pod, readonly)).expect("the same view");
        assert_eq!(fs::write(node.target(pod).join("new"), "x").is_err(), readonly, "{pod}");
    }
    // A driver may be killed between the two steps by which a view becomes read-only.
    node.unpublish("v", "reader").expect("gone");
    node.publish(call("reader", true)).expect("published");
    let driver_stopped_here = node.mounts()[0].join("data");
    nix::mount::umount(&node.target("reader")).expect("unmounted");
    bind(&driver_stopped_here, &node.target("reader"));
    fs::write(node.target("reader").join("early"), "x").expect("not read-only yet");
    node.publish(call("reader", true)).expect("published");
    fs::write(node.target("reader").join("late"), "x").expect_err("read-only");
    for pod in ["reader", "writer"] {
        node.unpublish("v", pod).expect("gone");
    }
}

/// A daemon with `read-only` refuses writes also where the pod does not ask for that.
#[test]
fn a_mount_that_is_read_only_stays_where_it_is_when_kubernetes_calls_again() {
    let node = Node::new(bucket(), &[]);
    let call = || node.publishing_with("v", "a", &["memory-limit=128MiB", "read-only"]);
    let number = || {
        let table = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
        let target = node.target("a").display().to_string();
        let line = table.lines().find(|line| line.contains(&target)).expect("it is mounted").to_owned();
        line.split(' ').next().map(str::to_owned)
    };
    node.publish(call()).expect("published");
    // No other mount gets the number of one that somebody has open.
    let open = File::open(node.target("a")).expect("the folder");
    let before = number();
    node.publish(call()).expect("again");
    assert_eq!(number(), before, "a running container would lose the volume");
    drop(open);
    node.unpublish("v", "a").expect("gone");
}

#[test]
fn a_mount_with_a_damaged_record_goes_with_its_last_pod() {
    let mut node = Node::new(bucket(), &[]);
    node.publish(node.publishing("v", "a")).expect("published");
    node.publish(node.publishing("v", "b")).expect("published");
    fs::write(node.mounts()[0].join("mount.json"), "{").expect("damaged");
    node.unpublish("v", "a").expect("gone");
    assert!(is_mounted(&node, "b"), "a pod has it");
    node.start_anew(env!("CARGO_BIN_EXE_s3mount"));
    assert!(is_mounted(&node, "b"), "a pod has it");
    node.unpublish("v", "b").expect("gone");
    node.check_empty();
}

#[test]
fn a_driver_that_ends_removes_its_socket() {
    let mut node = Node::new(bucket(), &[]);
    let socket = node.folder.path().join("csi.sock");
    assert!(socket.exists());
    kill(Pid::from_raw(node.driver.id() as i32), Signal::SIGTERM).expect("the driver");
    assert!(node.driver.wait().expect("its end").success());
    assert!(!socket.exists());
}
