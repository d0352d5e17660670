//! What s3mount asks of the machine: its mounts and whether their daemons live, its limits, room for threads, FUSE's
//! helper, the terminal. The daemon, its settings and the tools ask alike, so that they say the same of what they find.
//!
//! Nothing here reads a flag or a setting; messages name the flags that help.
#![expect(clippy::disallowed_methods, reason = "it waits for other processes")]

pub mod connections;
pub mod cpu_time;
pub mod descriptors;
pub mod ending;
pub mod guests;
pub mod logs;
pub mod metrics;
pub mod metrics_server;
pub mod mountable;
pub mod mounts;
pub mod open_files;
pub mod patience;
pub mod probe;
pub mod terminal;
pub mod threads;
pub mod unmounting;
