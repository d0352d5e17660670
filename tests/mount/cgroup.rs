//! The kernel enforces the memory limit: the daemon runs in a control group that is hardly larger than the
//! limit.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use s3mount_testkit::{TestS3, check, mix};

use crate::world::{BUCKET, GIB, KIB, MIB, World, check_stream, run};

/// How many bytes the control group has beyond `--memory-limit`. They are for the daemon itself, and for the
/// kernel's memory that counts as the daemon's.
const BEYOND: u64 = 96 * MIB;

/// A control group of version 2 or 1, which bounds memory. Its processes must have ended when it is dropped.
pub(crate) struct Group {
    path: PathBuf,
    events: &'static str,
}

impl Group {
    /// Makes a group with this limit. Returns `None` if the user is not root, or the machine allows no
    /// control groups.
    pub(crate) fn new(limit: u64) -> Option<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("s3mount-test-{}-{number}", std::process::id());
        let kinds = [
            ("/sys/fs/cgroup", "memory.max", "memory.events"),
            ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.oom_control"),
        ];
        for (root, bound, events) in kinds {
            let path = Path::new(root).join(&name);
            if fs::create_dir(&path).is_err() {
                continue;
            }
            let group = Self { path, events };
            // If the folder is no control group, it has no such file, and the file can't be made.
            let bound = File::options().write(true).open(group.path.join(bound));
            if bound.and_then(|mut bound| bound.write_all(limit.to_string().as_bytes())).is_ok() {
                return Some(group);
            }
        }
        None
    }

    /// A command that runs `program` in the group.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        let script = format!("echo $$ > {} && exec \"$@\"", self.path.join("cgroup.procs").display());
        command.args(["-c", &script, "sh", program]);
        command
    }

    fn add(&self, pid: u32) {
        fs::write(self.path.join("cgroup.procs"), pid.to_string()).expect("a new member");
    }

    /// How many processes of the group the kernel has killed for want of memory.
    fn killed(&self) -> u64 {
        let events = fs::read_to_string(self.path.join(self.events)).expect("its events");
        let line = events.lines().find_map(|line| line.strip_prefix("oom_kill "));
        line.expect("a count of kills").trim().parse().expect("a number")
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

#[test]
fn many_readers_of_all_kinds_and_a_million_names_fit_the_bound() {
    let limit = 128 * MIB;
    let mut server = TestS3::builder();
    for index in 0..256_u64 {
        server = server.synthetic(BUCKET, &format!("d/{index:03}"), GIB);
    }
    for index in 0..1_000_000_u64 {
        server = server.synthetic(BUCKET, &format!("names/{index:07}"), 7);
    }
    // The group is made before the mount, so that it is dropped after the mount.
    let group = Group::new(limit + BEYOND);
    let world = World::new(server, &["--memory-limit", "128MiB", "--metadata-limit", "16MiB"]);
    group.iter().for_each(|group| group.add(world.mount.pid()));
    let files: Vec<_> = (0..256).map(|index| world.open(&format!("d/{index:03}"))).collect();
    std::thread::scope(|scope| {
        for (index, file) in files.iter().enumerate().take(64) {
            scope.spawn(move || check_stream(file.take(24 * MIB), &format!("d/{index:03}"), 0, 128 << 10));
        }
        for (index, file) in files.iter().enumerate().skip(64) {
            scope.spawn(move || {
                let mut buffer = vec![0; 20 * KIB as usize];
                for turn in 0..20 {
                    let at = mix((index as u64) << 32 | turn) % (GIB - MIB);
                    file.read_exact_at(&mut buffer, at).expect("no ENOMEM");
                    check(&format!("d/{index:03}"), at, &buffer).expect("right bytes");
                }
            });
        }
        scope.spawn(|| assert_eq!(run("ls", &["-U".into(), world.path("names")]).lines().count(), 1_000_000));
    });
    match &group {
        Some(group) => assert_eq!(group.killed(), 0),
        // Without a group, only the resident size shows whether the daemon keeps to the bound. The pages of the program
        // itself are a part of it; the kernel takes them back where a group is full.
        None => world.check_memory(limit + BEYOND - 64 * MIB),
    }
    drop((files, world));
}

#[test]
fn the_default_limits_fit_a_small_group() {
    for limit in [128 * MIB, 256 * MIB, 512 * MIB] {
        let mut server = TestS3::builder().synthetic(BUCKET, "f", GIB);
        for index in 0..100_000_u64 {
            server = server.synthetic(BUCKET, &format!("names/{index:05}"), 7);
        }
        let group = Group::new(limit);
        let world = World::with(server, &[], |command| {
            let Some(group) = &group else { return };
            // The daemon has to be in the group before it looks how much memory there is.
            let mut shell = group.command(&command.get_program().to_string_lossy());
            shell.args(command.get_args()).env_clear();
            shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
            *command = shell;
        });
        std::thread::scope(|scope| {
            for reader in 0..32 {
                let file = world.open("f");
                scope.spawn(move || {
                    let at = reader * 32 * MIB;
                    let mut buffer = vec![0; MIB as usize];
                    for offset in (at..at + 24 * MIB).step_by(MIB as usize) {
                        file.read_exact_at(&mut buffer, offset).expect("no ENOMEM");
                        check("f", offset, &buffer).expect("right bytes");
                    }
                });
            }
            scope.spawn(|| {
                assert_eq!(run("ls", &["-U".into(), world.path("names")]).lines().count(), 100_000);
            });
        });
        assert_eq!(group.as_ref().map_or(0, Group::killed), 0, "in {} MiB", limit / MIB);
        let (peak, program) = (world.mount.peak_rss_bytes(), world.mount.file_rss_bytes());
        // The program's pages are not the group's. Where no group can be made, the limits are those of the machine.
        assert!(
            program > 0 && program < peak && (peak - program < limit || group.is_none()),
            "{} of {} MiB, and {} of files",
            peak / MIB,
            limit / MIB,
            program / MIB
        );
        drop((world, group));
    }
}
