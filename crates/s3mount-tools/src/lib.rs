//! The tools of s3mount, each a command of its own. Some look at mounts that are up (`stats`, `top`, `trace`), at what
//! a mount would need (`doctor`), at disk caches (`cache`) or at journals (`cleanup`); some do work before a job or
//! beside it (`warm`, `names`, `cp`); some measure (`bench`, `tune`).
//!
//! A tool reads its own flags and those of the settings, and runs to its end. None of them mounts by itself: who
//! measures a mount starts the program anew. So the daemon is not known here, and the command line on top calls both.
#![expect(clippy::disallowed_methods, reason = "tools measure, and wait for other processes")]

pub mod bench;
pub mod cache;
pub mod cleanup;
pub mod cp;
pub mod doctor;
pub mod names;
pub mod pending;
pub mod stats;
pub mod top;
pub mod trace;
pub mod tune;
pub mod volume;
pub mod warm;
pub mod watch;
