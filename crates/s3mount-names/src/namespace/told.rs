//! Changes of which the store tells by itself.
//!
//! What is told is no fact: it comes late, in any order, and more than once. So a name of which something is told is in
//! doubt, and the store is asked when it is used next. The names around it are believed as before.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::Namespace;
use crate::fact::Fact;
use crate::name::{NamedDraft, Stored, is_file_name, split_key};
use crate::overlay::folders::around;
use crate::pages::page::Page;
use crate::pages::snapshots::Known;

/// The longest time for which a folder is there because this mount has moved it, whatever was told meanwhile.
const LONGEST_STORED: Duration = Duration::from_secs(60);

/// The longest time for which the kernel keeps a name.
const LONGEST_KEPT: Duration = Duration::from_secs(60);

/// What the store says of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// The version with this `ETag` (without quotes) was written, and its bytes are new.
    Written(&'a str),
    /// Something about it is another than before: the version, or its attributes.
    Changed,
    /// A version of it is gone: the object is absent, or an older version is back.
    Gone,
}

impl<D: NamedDraft> Namespace<D> {
    /// Puts the names in doubt that refer to `key`, or did: its own, and those of the folders around it that may have come
    /// or gone with it. Returns whether the mount shows the key at all.
    pub fn was_told(&self, key: &str, told: Told<'_>) -> bool {
        if !key.starts_with(&*self.root) || key.len() == self.root.len() {
            return false;
        }
        let (now, (prefix, name)) = (Instant::now(), split_key(key));
        if is_file_name(name) {
            if self.knows(prefix, name, told, now) && !self.recently_told.has(prefix, name) {
                // The kernel may have an older one, from before this was known.
                self.listener.tell(prefix, &[name.into()]);
            } else {
                self.doubt(prefix, name, name, now);
            }
        }
        let mut below = prefix;
        for (parent, folder) in around(&self.root, prefix) {
            let is_known =
                matches!(self.snapshots.get(parent, folder, now), Known::Found(Stored::Directory, _));
            let stays = told != Told::Gone || self.snapshots.shows_names(below, now);
            if is_known && stays {
                break;
            }
            self.overlay.forget_stored(parent, folder);
            self.doubt(parent, folder, &format!("{folder}/"), now);
            below = parent;
        }
        true
    }

    /// Keeps the page of a change of this mount. If something was told of the `key` lately, the key is in doubt: others may
    /// have changed it after this mount, and before this mount had its answer.
    pub(super) fn keep_own(&self, prefix: &Arc<str>, key: &str, page: Page) {
        let at = page.at();
        self.keep(prefix, page);
        self.doubt_if_told(prefix, key, at);
    }

    /// As [`keep_own`](Self::keep_own), for a name that the kernel itself drops or moves when it has the answer to its request.
    /// A notice would come after that, and drop the name of the file that has it then.
    pub(super) fn keep_asked_for(&self, prefix: &Arc<str>, key: &str, page: Page) {
        let at = page.at();
        self.listings.close(prefix);
        drop(self.snapshots.note(prefix, self.overlay.apply(prefix, page)));
        self.doubt_if_told(prefix, key, at);
    }

    fn doubt_if_told(&self, prefix: &Arc<str>, key: &str, at: Instant) {
        if self.is_told && self.recently_told.has(prefix, key) {
            self.snapshots.doubt(prefix, key, at);
        }
    }

    /// For how long it is believed that the store has a folder because this mount has moved it there.
    pub(super) fn stored_ttl(&self) -> Duration {
        if self.is_told { self.ttl.min(LONGEST_STORED) } else { self.ttl }
    }

    /// When the newest page was requested that a name is known from, if the store tells of changes. What is known of a file
    /// is also from the page that has no folder of its name. Where pages are believed for long, that one may be older than a
    /// change of this mount that others have undone.
    pub(super) fn newest_page(&self, prefix: &str, name: &str) -> Option<Instant> {
        self.is_told.then(|| self.snapshots.newest(prefix, name)).flatten()
    }

    /// How long the kernel may keep a name that is believed for another `left`. Where the store tells of changes, the kernel
    /// asks again within a minute: an answer that was on its way to it may be older than what was told.
    pub fn name_ttl(&self, left: Duration) -> Duration {
        if self.is_told { left.min(LONGEST_KEPT) } else { left }
    }

    /// A fact to give the kernel. One that is in doubt by what was told is not cached.
    pub(super) fn unless_doubted(&self, prefix: &str, name: &str, fact: Fact<D>) -> Fact<D> {
        let is_doubted = self.is_told && self.snapshots.get(prefix, name, Instant::now()) == Known::InDoubt;
        if is_doubted { Fact { left: Duration::ZERO, ..fact } } else { fact }
    }

    /// Whether the version that was written is the one that is known already, as after a write of this mount.
    fn knows(&self, prefix: &str, name: &str, told: Told<'_>, now: Instant) -> bool {
        let Told::Written(etag) = told else { return false };
        match self.snapshots.get(prefix, name, now) {
            Known::Found(Stored::File(file), _) => file.object.etag().as_str().trim_matches('"') == etag,
            Known::Found(Stored::Directory, _) | Known::Absent(_) | Known::InDoubt | Known::Unknown => false,
        }
    }

    /// Has the kernel drop the names again that refer to `key`, or did: it may have got an answer from before they were in
    /// doubt.
    pub fn drop_again(&self, key: &str) {
        if key.starts_with(&*self.root) && key.len() > self.root.len() {
            let (prefix, name) = split_key(key);
            self.listener.tell(prefix, &[name.into()]);
            for (parent, folder) in around(&self.root, prefix) {
                if !matches!(self.snapshots.get(parent, folder, Instant::now()), Known::Found(..)) {
                    self.listener.tell(parent, &[folder.into()]);
                }
            }
        }
    }

    /// Puts the key of `name` in doubt. The kernel drops the name, even if no page shows it any more.
    fn doubt(&self, prefix: &str, name: &str, key: &str, now: Instant) {
        let prefix = Arc::from(prefix);
        self.recently_told.note(&prefix, key, now);
        self.listings.close(&prefix);
        self.snapshots.doubt(&prefix, key, now);
        self.listener.tell(&prefix, &[name.into()]);
    }
}
