//! The end of mounts: somebody else may use them, something may be left to write, and records may be damaged.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use nix::sys::stat::Mode;
use nix::unistd::mkfifo;

use super::{Node, bucket};
use crate::world::{BUCKET, wait_for};

/// More than a driver waits for a daemon that has nothing to write.
const LONG: Duration = Duration::from_secs(6);

fn check_mounted(node: &Node, pod: &str) {
    assert_eq!(fs::read(node.target(pod).join("there")).expect("it is mounted"), b"bytes", "{pod}");
}

fn namespace(process: u32) -> PathBuf {
    fs::read_link(format!("/proc/{process}/ns/mnt")).unwrap_or_default()
}

#[test]
fn a_pod_goes_also_if_another_namespace_has_its_mount() {
    let mut node = Node::new(bucket(), &[]);
    node.publish(node.publishing("v", "a")).expect("published");
    fs::write(node.target("a").join("new"), "bytes").expect("written, and in the bucket");
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sleep", "300"]).stdin(Stdio::null());
    let mut other = command.spawn().expect("another namespace");
    wait_for("its mounts", || {
        ![PathBuf::new(), namespace(std::process::id())].contains(&namespace(other.id()))
    });
    for _ in 0..2 {
        node.unpublish("v", "a").expect("gone");
    }
    assert!(!node.target("a").exists());
    assert_eq!(node.mounts().len(), 1, "it is used elsewhere");
    // Another pod gets a mount of its own, also from the next driver.
    node.publish(node.publishing("v", "b")).expect("published");
    node.start_anew(env!("CARGO_BIN_EXE_s3mount"));
    check_mounted(&node, "b");
    node.publish(node.publishing("v", "a")).expect("published");
    assert_eq!(node.mounts().len(), 2, "pods share the second mount");
    for pod in ["a", "b"] {
        node.unpublish("v", pod).expect("gone");
    }
    wait_for("the end of the second mount", || node.mounts().len() == 1);
    other.kill().expect("it lives");
    other.wait().expect("its end");
    node.check_empty();
}

#[test]
fn a_pod_goes_also_if_a_program_reads_a_file_of_its_mount() {
    let node = Node::new(bucket(), &[]);
    node.publish(node.publishing("v", "a")).expect("published");
    let file = File::open(node.target("a").join("there")).expect("a file");
    node.unpublish("v", "a").expect("gone");
    assert!(!node.target("a").exists());
    assert_eq!(node.mounts().len(), 1, "a program has a file open");
    drop(file);
    node.check_empty();
}

#[test]
fn a_pod_goes_once_what_it_has_written_is_in_the_bucket() {
    let node = Node::new(bucket(), &[]);
    node.publish(node.publishing("v", "a")).expect("published");
    let mut file = File::create(node.target("a").join("new")).expect("the right to write new files");
    file.write_all(b"bytes").expect("written");
    thread::scope(|scope| {
        let call = scope.spawn(|| node.unpublish("v", "a"));
        thread::sleep(LONG);
        assert!(!call.is_finished(), "the file is not in the bucket");
        drop(file);
        call.join().expect("a call").expect("gone");
    });
    assert_eq!(node.server.stored(BUCKET, "new").map(|stored| stored.bytes()), Some(b"bytes".to_vec()));
    assert_eq!(node.mounts(), Vec::<PathBuf>::new());
}

/// The file of the only pod of the only mount.
fn pod_file(node: &Node) -> PathBuf {
    let pods = fs::read_dir(node.mounts()[0].join("pods")).expect("the pods");
    pods.map(|entry| entry.expect("a pod").path()).next().expect("a pod")
}

#[test]
fn pods_are_found_whose_files_are_damaged() {
    let mut node = Node::new(bucket(), &["--on-host"]);
    let damages: [fn(&Path); 3] = [
        |file| fs::write(file, "").expect("emptied"),
        |file| fs::write(file, "/etc").expect("damaged"),
        |file| fs::remove_dir_all(file.parent().expect("a folder")).expect("removed"),
    ];
    for damage in damages {
        node.publish(node.publishing("v", "a")).expect("published");
        let target = node.target("a").display().to_string();
        damage(&pod_file(&node));
        node.start_anew(env!("CARGO_BIN_EXE_s3mount"));
        wait_for("the file of the pod", || {
            fs::read_to_string(pod_file(&node)).is_ok_and(|text| text == target)
        });
        node.stats("v", "a").expect("stats");
        check_mounted(&node, "a");
        node.unpublish("v", "a").expect("gone");
        node.check_empty();
    }
}

/// Nothing is left that says where the pod is. It keeps what it has, and goes as any other.
#[test]
fn a_pod_goes_all_of_whose_files_are_lost() {
    let mut node = Node::new(bucket(), &["--on-host"]);
    for is_another_driver in [false, true] {
        node.publish(node.publishing("v", "a")).expect("published");
        let mount = node.mounts()[0].clone();
        for folder in ["pods", "views"] {
            fs::remove_dir_all(mount.join(folder)).expect("removed");
        }
        if is_another_driver {
            node.start_anew(env!("CARGO_BIN_EXE_s3mount"));
        }
        wait_for("the end of the record", || mount.join("ending.json").exists());
        check_mounted(&node, "a");
        // Another pod gets a mount of its own.
        node.publish(node.publishing("v", "b")).expect("published");
        check_mounted(&node, "b");
        for pod in ["a", "b"] {
            node.unpublish("v", pod).expect("gone");
            assert!(!node.target(pod).exists());
        }
        node.check_empty();
    }
}

#[test]
fn a_driver_starts_whatever_is_in_the_place_of_a_record() {
    let mut node = Node::new(bucket(), &[]);
    let damages: [fn(&Path); 2] =
        [|file| fs::create_dir(file).expect("a folder"), |file| mkfifo(file, Mode::S_IRWXU).expect("a pipe")];
    for damage in damages {
        node.publish(node.publishing("v", "a")).expect("published");
        let file = node.mounts()[0].join("mount.json");
        fs::remove_file(&file).expect("removed");
        damage(&file);
        // Of a call that was under way.
        let left = node.folder.path().join("state/.tmpAbCdE1");
        fs::create_dir(&left).expect("a folder");
        node.start_anew(env!("CARGO_BIN_EXE_s3mount"));
        assert!(!left.exists());
        check_mounted(&node, "a");
        node.unpublish("v", "a").expect("gone");
        node.check_empty();
    }
}
