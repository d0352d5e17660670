//! A file that got another key when its first parts had left the memory: they are in an upload to the old key, and
//! nowhere else. When another file is to have the old key, they are moved to an upload to the new one.

use std::sync::Arc;

use futures::future::{BoxFuture, FutureExt as _};
use s3mount_object::ObjectId;

use super::Draft;
use crate::WriteError;
use crate::copies::{Piece, plan};
use crate::extents::{Content, Copy, Place};
use crate::old_keys::Renamed;
use crate::state::{Begun, DraftState, Published};

impl Draft {
    /// Notes that the old key is not free, if bytes are in the upload to it and nowhere else.
    pub(super) fn note_old_key(&self) {
        let old = {
            let state = self.state();
            let is_needed = state.has_old_upload() && state.stored(0, state.size()).is_some();
            state.upload.as_ref().filter(|_| is_needed).map(|begun| begun.upload.key.clone())
        };
        if let Some(key) = old {
            self.shared.old_keys.note(&key, self.me.clone());
        }
    }

    /// Frees the key `old`, to which bytes were uploaded that are nowhere else. The upload is completed there, and its
    /// parts are copied to an upload to the file's key; so the old key shows the file for a moment, as far as it is
    /// written. Waits for changes and publications that are under way.
    async fn free_old_key(&self, old: &str) {
        let _turn = self.turn.lock().await;
        self.idle().await;
        let begun = {
            let state = self.state();
            let is_needed = state.check().is_ok() && state.stored(0, state.size()).is_some();
            state.upload.clone().filter(|begun| is_needed && begun.upload.key == old && state.key != old)
        };
        let Some(begun) = begun else { return };
        if let Err(error) = self.move_parts(old, &begun).await {
            self.fail(error);
        }
    }

    async fn move_parts(&self, old: &str, begun: &Begun) -> Result<(), WriteError> {
        let written = self.put_parts(old, begun.condition.as_ref()).await?;
        let version = ObjectId::new(old, written.etag);
        let before = self.state().take_from(&version);
        let copied = self.copy_parts_of(&version).await;
        if copied.is_ok() {
            self.state().leave(&version, before);
        }
        // What has failed is never complete, and no part of a file stays.
        if let Err(error) = self.shared.store.bucket.delete(&version).await {
            tracing::warn!(key = old, %error, "a file that was renamed while it was written is left at its old key");
        }
        copied
    }

    /// Uploads all parts that have bytes of a version, to the file's key.
    async fn copy_parts_of(&self, version: &ObjectId) -> Result<(), WriteError> {
        let most_copied = self.most_copied();
        loop {
            let missing: Vec<Piece> = {
                let state = self.state();
                state.check()?;
                let missing =
                    state.layout.map(|layout| plan(&state, layout, most_copied)).unwrap_or_default();
                missing.into_iter().filter(|piece| state.is_piece_of(piece, version)).collect()
            };
            if missing.is_empty() {
                return Ok(());
            }
            let Some(me) = self.me.upgrade() else { return Err(WriteError::Discarded) };
            for piece in missing {
                me.clone().start_piece(piece);
            }
            self.idle().await;
        }
    }
}

impl Renamed for Draft {
    fn free(self: Arc<Self>, key: String) -> BoxFuture<'static, ()> {
        async move { self.free_old_key(&key).await }.boxed()
    }
}

impl<B: AsRef<[u8]> + AsMut<[u8]> + Send + 'static> DraftState<B> {
    /// The upload has become `version`: what was only there is to be had from the version. Returns what was published
    /// before it.
    fn take_from(&mut self, version: &ObjectId) -> Option<(u64, Published)> {
        let size = self.size();
        let starts: Vec<u64> = self.extents.range(0, size).map(|(start, _)| start).collect();
        for start in starts {
            self.extents.change_at(start, |content| match content {
                Content::Stored => Content::Source(Place { object: version.clone(), offset: start }),
                other => other,
            });
        }
        self.part_states = Default::default();
        self.is_described_late = false;
        // If the move is cut off here, the publication deletes the version.
        let published = Published { object: version.clone(), size, modified: self.modified };
        self.published.replace((u64::MAX, published))
    }

    /// Whether a part has bytes of a version.
    fn is_piece_of(&self, piece: &Piece, version: &ObjectId) -> bool {
        let (Piece::Upload(part) | Piece::Copy(part, ..)) = piece;
        let mut extents = self.extents.range(part.start, part.end.min(self.size()));
        extents.any(|(_, extent)| extent.content.place().is_some_and(|place| place.object == *version))
    }

    /// The upload to the file's key has all that was had from `version`, which goes.
    fn leave(&mut self, version: &ObjectId, published: Option<(u64, Published)>) {
        let is_of = |place: &Place| place.object == *version;
        self.extents.change(0, self.size(), |content| match content {
            Content::Source(place) if is_of(place) => Some(Content::Stored),
            Content::Frozen(bytes, Copy::Source(place)) if is_of(place) => {
                Some(Content::Frozen(bytes.clone(), Copy::None))
            }
            _ => None,
        });
        self.published = published;
    }
}
