//! How far a directory was listed, and whether the store gets on with it.

use std::sync::Arc;
use std::time::Instant;

use s3mount_object::{ErrorKind, ListPage, ObjectError};

use crate::FsError;
use crate::metadata::Metadata;

/// Pages without a single name, one after another, that a store may answer with. S3 does where
/// versions were deleted; one that never ends would hold its reader for ever.
const MAX_EMPTY_PAGES: u32 = 1000;

/// A place in the listing of one directory.
#[derive(Debug, Default)]
pub(crate) struct Cursor {
    /// The last key so far, below the directory.
    after: String,
    /// Where the next page begins, in the store's words.
    pub(crate) next: Option<String>,
    pub(crate) is_complete: bool,
    empty_pages: u32,
}

impl Cursor {
    /// Takes the page that begins here and was asked for `at` this time, and remembers it. Returns what
    /// that takes, in bytes.
    ///
    /// # Errors
    /// When the listing goes back, or round in circles.
    pub(crate) fn advance(
        &mut self,
        metadata: &Metadata,
        prefix: &Arc<str>,
        page: &mut ListPage,
        at: Instant,
    ) -> Result<usize, FsError> {
        let before = format!("{prefix}{}", self.after);
        let fail = |why: &'static str| {
            FsError::Object(
                ObjectError::new(ErrorKind::Integrity, "ListObjectsV2", prefix).with_source(why.to_owned()),
            )
        };
        if self.next.is_some() {
            // Some stores begin with the key that the page before ended with.
            page.objects.retain(|object| object.key != before);
            page.common_prefixes.retain(|key| *key != before);
            let goes_back = |key: &String| *key < before;
            if page.objects.iter().map(|object| &object.key).chain(&page.common_prefixes).any(goes_back) {
                return Err(fail("a page of the listing goes back behind the page before it"));
            }
        }
        let is_empty = page.objects.is_empty() && page.common_prefixes.is_empty();
        self.empty_pages = if is_empty { self.empty_pages + 1 } else { 0 };
        let is_stuck = self.next.is_some() && page.next == self.next;
        if is_stuck || self.empty_pages > MAX_EMPTY_PAGES {
            return Err(fail("the listing has no end"));
        }
        let (upto, bytes) = metadata.note(prefix, &self.after, page, at);
        self.after = upto.unwrap_or_default();
        self.next.clone_from(&page.next);
        self.is_complete = self.next.is_none();
        Ok(bytes)
    }
}
