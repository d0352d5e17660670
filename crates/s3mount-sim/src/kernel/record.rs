//! The requests that were sent, one line each.

use std::sync::Mutex;

use super::common::lock;

/// A request of the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The process that it was sent for. 0 where the kernel does not say.
    pub pid: u32,
    /// Its name, as `include/uapi/linux/fuse.h` has it.
    pub name: &'static str,
    /// The inode that it is about.
    pub ino: u64,
    /// What it asks for.
    pub what: String,
    /// The errno of its answer. Unset until the answer came.
    pub errno: Option<i32>,
}

/// The requests of a mount.
#[derive(Debug, Default)]
pub(super) struct Record {
    is_on: bool,
    calls: Mutex<Vec<Call>>,
}

impl Record {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, calls: Mutex::default() }
    }

    /// Notes a request. Returns its number.
    pub(super) fn sent(
        &self,
        pid: u32,
        name: &'static str,
        ino: u64,
        what: impl FnOnce() -> String,
    ) -> usize {
        if !self.is_on {
            return 0;
        }
        let mut calls = lock(&self.calls);
        calls.push(Call { pid, name, ino, what: what(), errno: None });
        calls.len() - 1
    }

    /// Notes an answer.
    pub(super) fn answered(&self, number: usize, errno: i32) {
        if let Some(call) = lock(&self.calls).get_mut(number) {
            call.errno = Some(errno);
        }
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        lock(&self.calls).clone()
    }
}
