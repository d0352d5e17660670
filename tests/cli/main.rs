//! Tests the command line from outside: its help texts, and its exact messages for what cannot work. No test
//! here needs a server. `tests/mount` tests what mounts.

mod bad_input;
mod cache;
mod cleanup;
mod config;
mod help;
mod packaging;
mod run;
mod umount;
mod watch;
