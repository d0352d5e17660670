//! Names whose open has to be repeated.
//!
//! An open of an inode that has lost its name fails with `ESTALE`, and the kernel looks the name up again and repeats the
//! open: once. So as long as somebody is about to do so, the name keeps its inode.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::numbers::InodeNo;
use crate::sync::{Mutex, lock};

/// How long the kernel may take to repeat an open.
const REPEATED: Duration = Duration::from_secs(10);

/// The threads that have to repeat an open, and since when.
type Opens = Vec<(u32, Instant)>;

/// Names whose open has to be repeated.
#[derive(Debug, Default)]
pub(super) struct Detached(Mutex<HashMap<(InodeNo, Arc<str>), Opens>>);

impl Detached {
    /// Notes that a thread has to repeat its open of a name.
    pub(super) fn note(&self, parent: InodeNo, name: &Arc<str>, thread: u32) {
        let mut names = lock(&self.0);
        names.retain(|_, opens| {
            opens.retain(|(_, since)| since.elapsed() < REPEATED);
            !opens.is_empty()
        });
        names.entry((parent, name.clone())).or_default().push((thread, Instant::now()));
    }

    /// Whether an open of a name is about to be repeated.
    pub(super) fn has(&self, parent: InodeNo, name: &Arc<str>) -> bool {
        let names = lock(&self.0);
        let opens = names.get(&(parent, name.clone()));
        opens.is_some_and(|opens| opens.iter().any(|(_, since)| since.elapsed() < REPEATED))
    }

    /// Whether nobody has to repeat an open.
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.0).is_empty()
    }

    /// A thread has not to repeat its open of a name any more.
    pub(super) fn end(&self, parent: InodeNo, name: &Arc<str>, thread: u32) {
        let mut names = lock(&self.0);
        let place = (parent, name.clone());
        if let Some(opens) = names.get_mut(&place) {
            opens.retain(|(opener, _)| *opener != thread);
            if opens.is_empty() {
                names.remove(&place);
            }
        }
    }
}
