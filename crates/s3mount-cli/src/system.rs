//! What this crate asks of the machine: its mounts, its limits, FUSE's helper, the terminal.

pub(crate) mod connections;
pub(crate) mod cpu_time;
pub(crate) mod descriptors;
pub(crate) mod ending;
pub(crate) mod home;
pub(crate) mod mounts;
pub(crate) mod open_files;
pub(crate) mod patience;
pub(crate) mod probe;
pub(crate) mod terminal;
pub(crate) mod threads;
pub(crate) mod unmounting;
