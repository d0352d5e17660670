//! The settings of s3mount: the flags of a mount and what `--help` says of them, the layers below the command line
//! (environment, file, preset), and what all of them resolve to: plain data that was checked once.
//!
//! A mount and the tools take the same settings, so both lie above this crate, and so does the command line that names
//! them all. Nothing here knows a command beside the flags that it may take, but `s3mount config`, which shows what is
//! known here.
pub mod flags;
#[cfg(test)]
mod for_tests;
pub mod layers;
pub mod mount_s3;
pub mod resolved;
pub mod show;
