//! The model of the kernel is held to the real one: the same scripts of system calls run over both, and give the same
//! answers and the same requests.
//!
//! What is compared: the answer of each line; the requests in their order, with the process that sent each. READs and
//! RELEASEs come by themselves, so these are compared without their order. FORGETs are left out.
#![expect(
    clippy::disallowed_methods,
    reason = "the threads between the kernel and the daemon end with the mount"
)]

mod modelled;
mod real;

use std::sync::Arc;
use std::time::Duration;

use s3mount_fs::{Filesystem, FsConfig, Rights, Writes};
use s3mount_memory::{BufferPool, MemoryBudget};
use s3mount_object::NewObject;
use s3mount_prefetch::{PrefetchConfig, Prefetcher};
use s3mount_sim::kernel::Call;
use s3mount_testkit::MemoryClient;
use s3mount_write::{WriteConfig, Writer};
use tokio::runtime::Handle;

/// The readahead that the kernel gives a mount which nobody raises.
const READAHEAD_BYTES: u64 = 128 << 10;

/// A filesystem that may do everything, over a bucket in memory: `old` of 10 bytes, `long` of 300 KiB, and a folder.
fn filesystem() -> Arc<Filesystem> {
    let client = Arc::new(MemoryClient::new());
    client.put("old", "0123456789");
    client.put("long", (0..300_u32 << 10).map(|at| (at / 100) as u8).collect::<Vec<_>>());
    for name in ["d/a", "d/b", "d/c"] {
        client.put(name, name);
    }
    let (runtime, pool) = (Handle::current(), BufferPool::new(MemoryBudget::new(64 << 20)).expect("a pool"));
    let prefetch = PrefetchConfig { hedge_share: 0.0, ..PrefetchConfig::default() };
    let prefetcher = Prefetcher::new(client.clone(), pool.clone(), prefetch, &runtime);
    let config = WriteConfig { memory_bytes: 32 << 20, ..WriteConfig::default() };
    let writes = Writes {
        writer: Writer::new(client.clone(), pool, config, &runtime),
        rights: Rights { may_delete: true, may_overwrite: true, folder_rename_limit: 100 },
        object: NewObject::default(),
        append_delay: Duration::ZERO,
        outbox: None,
        publishes_on_fsync: false,
    };
    let config = FsConfig { allows_writes: true, ..FsConfig::default() };
    Arc::new(Filesystem::new(client, prefetcher, config, &runtime).with_writes(writes))
}

/// The flags of an open file that the filesystem looks at, as the model writes them down.
fn flags_text(flags: i32) -> String {
    let mut text = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => "r",
        libc::O_WRONLY => "w",
        _ => "rw",
    }
    .to_owned();
    for (flag, name) in [
        (libc::O_APPEND, ",append"),
        (libc::O_TRUNC, ",trunc"),
        (libc::O_CREAT, ",creat"),
        (libc::O_EXCL, ",excl"),
        (libc::O_DIRECT, ",direct"),
    ] {
        if flags & flag != 0 {
            text.push_str(name);
        }
    }
    text
}

/// The place of a number among those that came so far: when the filesystem hears of a FORGET is chance, and with it the
/// numbers that it gives.
fn place_of(known: &mut Vec<u64>, number: u64) -> usize {
    known.iter().position(|known| *known == number).unwrap_or_else(|| {
        known.push(number);
        known.len() - 1
    })
}

/// Requests in their order, and those whose order does not count.
fn sorted(calls: Vec<Call>) -> (Vec<String>, Vec<String>) {
    let (mut pids, mut inodes) = (vec![0], vec![0]);
    let mut text = |call: Call| {
        let (pid, ino) = (place_of(&mut pids, call.pid.into()), place_of(&mut inodes, call.ino));
        let what = match call.what.split_once(" to ") {
            Some((from, to)) if call.name.starts_with("RENAME") => {
                let (folder, to) = to.split_once(' ').expect("a folder and a name");
                format!("{from} to {} {to}", place_of(&mut inodes, folder.parse().expect("a number")))
            }
            _ => call.what,
        };
        format!("{pid}: {} {ino} {what}", call.name)
    };
    let comes_by_itself = |call: &Call| matches!(call.name, "READ" | "RELEASE" | "RELEASEDIR");
    let (alone, ordered): (Vec<_>, Vec<_>) = calls.into_iter().partition(comes_by_itself);
    let ordered: Vec<_> = ordered.into_iter().map(&mut text).collect();
    let mut alone: Vec<_> = alone.into_iter().map(text).collect();
    alone.sort();
    (ordered, alone)
}

/// Runs a script over both kernels.
#[track_caller]
fn same(script: &[&str]) {
    same_calls(script, |_| true);
}

/// Runs a script over both kernels, in which the daemon has the kernel drop a name while a program looks it up: which of
/// the two comes first is chance, and with it how often the name is looked up.
#[track_caller]
fn same_but_for_names(script: &[&str]) {
    same_calls(script, |call| !matches!(call.name, "LOOKUP" | "GETATTR"));
}

/// Runs a script over both kernels, and compares these requests.
#[track_caller]
fn same_calls(script: &[&str], counts: impl Fn(&Call) -> bool) {
    let (real, mut real_calls) = real::run(filesystem, script);
    let (model, mut model_calls) = modelled::run(filesystem, script);
    real_calls.retain(&counts);
    model_calls.retain(&counts);
    let answers = |answers: Vec<String>| -> Vec<_> {
        script.iter().zip(answers).map(|(line, answer)| format!("{line} = {answer}")).collect()
    };
    let (real, model) = (answers(real), answers(model));
    let ((ordered, alone), (model_ordered, model_alone)) = (sorted(real_calls), sorted(model_calls));
    assert!(
        real == model && ordered == model_ordered && alone == model_alone,
        "the model differs\nreal: {real:#?}\n{ordered:#?}\n{alone:#?}\nmodel: {model:#?}\n{model_ordered:#?}\n{model_alone:#?}"
    );
}

#[test]
fn files_are_made_and_read_again() {
    same(&[
        "1 f open new w,creat",
        "1 f write text",
        "1 f write more",
        "1 f fstat",
        "1 f close",
        "1 - stat new",
        "1 g open new r",
        "1 g read 100",
        "1 g read 100",
        "1 g close",
        "1 g open new r",
        "1 g read 3",
        "1 g close",
        "1 - stat missing",
        "1 - stat missing",
        "1 g open missing r",
        "1 g open new rw,creat,excl",
    ]);
}

#[test]
fn files_are_patched_in_place() {
    same(&[
        "1 r open old r",
        "1 r pread 0 100",
        "1 f open old rw",
        "1 f pwrite 3 abc",
        "1 f pread 0 100",
        "1 r pread 0 100",
        "1 f fsync",
        "1 f close",
        "1 r pread 0 100",
        "1 - stat old",
        "1 r fstat",
        "1 g open old r",
        "1 g pread 0 100",
        "1 r close",
        "1 g close",
    ]);
}

#[test]
fn files_are_emptied_while_others_read_them() {
    same_but_for_names(&[
        "1 r open old r",
        "1 r pread 0 5",
        "2 f open old w,creat,trunc",
        "2 f write new",
        "1 r pread 0 100",
        "2 f close",
        "1 r pread 0 100",
        "1 r fstat",
        "1 r close",
    ]);
}

#[test]
fn two_processes_append() {
    same(&[
        "1 f open log w,creat,append",
        "2 g open log w,creat,append",
        "1 f write one",
        "2 g write two",
        "1 f write three",
        "1 f close",
        "2 g write four",
        "2 g close",
        "1 - stat log",
        "3 h open log r",
        "3 h read 100",
        "1 f open log w,append",
        "1 f write five",
        "3 h read 100",
        "1 f close",
        "3 h read 100",
        "3 h read 100",
    ]);
}

#[test]
fn a_log_is_followed_as_tail_does_it() {
    same(&[
        "1 r open old r",
        "1 r read 4096",
        "1 r read 4096",
        "2 f open old w,append",
        "2 f write more",
        "1 r fstat",
        "1 r read 4096",
        "2 f write again",
        "1 - stat old",
        "1 r fstat",
        "1 r read 4096",
        "2 f close",
        "1 r read 4096",
        "1 r fstat",
    ]);
}

#[test]
fn names_are_renamed_over_others_and_removed_while_open() {
    same(&[
        "1 r open old r",
        "1 n open new w,creat",
        "1 n write fresh",
        "1 n close",
        "1 - rename new old",
        "1 - stat old",
        "1 - stat new",
        "1 r pread 0 100",
        "1 - unlink old",
        "1 r pread 0 100",
        "1 r fstat",
        "1 - stat old",
        "1 r close",
        "1 - noreplace d/a d/b",
        "1 - noreplace d/a d/z",
        "1 - stat d/z",
        "1 - unlink missing",
        "1 - rename missing other",
    ]);
}

#[test]
fn folders_are_made_listed_and_removed() {
    same(&[
        "1 - list",
        "1 - list d",
        "1 - stat d/a",
        "1 - stat d/b",
        "1 - list d",
        "1 - mkdir e",
        "1 - mkdir e",
        "1 f open e/x w,creat",
        "1 f close",
        "1 - list e",
        "1 - rmdir e",
        "1 - unlink e/x",
        "1 - rmdir e",
        "1 - stat e",
        "1 - unlink d",
        "1 - rmdir old",
        "1 f open d/a/x r",
        "1 f open d rw",
    ]);
}

#[test]
fn maps_are_written_back() {
    same(&[
        "1 f open long rw",
        "1 m map f 307200 shared",
        "1 m mread 5000 10",
        "1 m mwrite 5000 abc",
        "1 m mwrite 200000 xyz",
        "1 m msync",
        "1 f pread 4999 6",
        "1 m mwrite 5001 q",
        "1 f close",
        "1 m mwrite 9000 late",
        "1 m munmap",
        "2 g open long r",
        "2 g pread 8990 20",
        "2 g pread 199990 20",
    ]);
}

#[test]
fn maps_of_files_that_are_appended_to_are_written_back_in_place() {
    same(&[
        "1 f open old rw,append",
        "1 m map f 10 shared",
        "1 m mwrite 2 ab",
        "1 m munmap",
        "1 f write end",
        "1 f append off",
        "1 f pwrite 0 X",
        "1 f close",
        "1 - stat old",
    ]);
}

#[test]
fn descriptors_are_shared_and_closed_one_by_one() {
    same(&[
        "1 f open new w,creat",
        "1 f write a",
        "1 g dup f",
        "1 f close",
        "1 g write b",
        "1 4 fork",
        "4 g write c",
        "4 g close",
        "1 g write d",
        "4 - exit",
        "1 g close",
        "1 - stat new",
        "2 h open new w,append",
        "2 h write e",
        "2 - exit",
        "1 - stat new",
    ]);
}

#[test]
fn long_files_are_read_ahead() {
    same(&[
        "1 r open long r",
        "1 r read 10",
        "1 r read 70000",
        "1 r read 100000",
        "1 r pread 250000 100",
        "1 r read 300000",
        "1 r close",
        "2 s open long r",
        "2 s pread 150000 5000",
        "2 - exit",
        "3 m open long r",
        "3 n map m 307200 read",
        "3 n mread 160000 10",
        "3 n mread 10 10",
    ]);
}

#[test]
fn files_are_cut_and_lengthened() {
    same(&[
        "1 r open long r",
        "1 r pread 0 5000",
        "2 f open long rw",
        "2 f ftruncate 4000",
        "2 f fstat",
        "1 r pread 3990 100",
        "2 f allocate 0 6000",
        "2 f end",
        "2 f pread 3990 100",
        "2 f fill 6000 9000 z",
        "2 f pread 5990 100",
        "2 f close",
        "1 - truncate long 12",
        "1 - stat long",
        "1 r fstat",
    ]);
}

#[test]
fn ranges_are_copied() {
    same(&[
        "1 f open long r",
        "1 g open copy w,creat",
        "1 f copy g 0 0 307200",
        "1 g fstat",
        "1 g close",
        "1 - stat copy",
        "1 f copy g 0 0 5",
        "1 r open copy r",
        "1 r pread 200000 50",
    ]);
}
