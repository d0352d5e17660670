//! The filesystem over a client in memory: what callers see, without FUSE.

mod common;
mod epochs;
mod faults;
mod filesystem;
mod interleavings;
mod listings;
mod lookups;
mod model;
mod names;
mod one_inode;
mod unordered;
mod writing;
