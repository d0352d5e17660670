//! Look-ups in a store that lists in no order.
//!
//! There no page begins at a name. So a look-up sends two requests at the same time: a HEAD of the key, and a LIST of
//! one key below the folder of this name.

use std::sync::Arc;

use s3mount_object::{ListObjects, ObjectId};
use tokio::time::Instant;

use super::Namespace;
use crate::error::NamesError;
use crate::fact::{Asked, Fact};
use crate::name::{File, NamedDraft, Stored};
use crate::pages::page::Page;

impl<D: NamedDraft> Namespace<D> {
    /// Asks the store for `name`, and keeps the answer.
    pub(super) async fn find_unordered(&self, prefix: &Arc<str>, name: &str) -> Result<Fact<D>, NamesError> {
        let (key, sent) = (format!("{prefix}{name}"), Instant::now());
        let below = ListObjects { prefix: format!("{key}/"), max_keys: Some(1), ..ListObjects::default() };
        let (object, below) = tokio::join!(self.requests.head(&key), self.requests.list(below));
        let (object, is_folder) = (object?, !below?.objects.is_empty());
        let asked = Asked::since(sent);
        let file = object.map(|meta| File {
            object: ObjectId::new(&key, meta.etag),
            size: meta.size,
            mtime: meta.last_modified,
        });
        self.keep(prefix, Page::of_folder(name, is_folder, asked));
        self.keep(prefix, Page::of_one(name, file.as_ref(), asked));
        // If a key and a folder have the same name, the folder is shown.
        let stored = if is_folder { Some(Stored::Directory) } else { file.map(Stored::File) };
        Ok(self.answered(stored, asked))
    }
}
