//! Tests of the whole chain: the real binary mounts a bucket of a real server on loopback, and real programs
//! read it. The tests compare the bytes that are read. They count requests, bytes and memory, and judge no
//! time.
#![expect(
    clippy::disallowed_methods,
    reason = "the mount is another process, which lives by the machine's time"
)]

mod addressing;
mod appending;
mod as_mount_s3;
mod attributes;
mod bench;
mod beside;
mod calls;
mod cgroup;
mod cleanup;
mod clocks;
mod copying;
mod cp;
mod crash;
mod credentials;
mod csi;
mod csi_life;
mod direct;
mod directory_bucket;
mod disk_cache;
mod doctor;
mod documents;
mod errors;
mod faults;
mod folders;
mod freshness;
mod hints;
mod in_process;
mod inodes;
mod kept_beside;
mod late_writes;
mod left_behind;
mod lifecycle;
mod loader;
mod machines;
mod many_readers;
mod many_writers;
mod maps;
mod metrics;
mod model;
mod moto;
mod names;
mod one_inode;
mod otlp;
mod outage;
mod panics;
mod passthrough;
mod people;
mod posix;
mod profiles;
mod programs;
mod pytorch;
mod random;
mod readonly;
mod refused;
mod security;
mod shared_cache;
mod started_by;
mod streams;
mod taken_over;
mod takeover;
mod throttled;
mod tools;
mod verify;
mod watch;
mod world;
mod write_faults;
mod write_flags;
mod write_model;
mod write_races;
mod writing;
