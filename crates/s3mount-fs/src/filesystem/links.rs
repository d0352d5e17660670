//! Symbolic links: short objects whose mode says that they are links, and whose bytes are the target, as in s3fs. Hard
//! links are refused.

use std::sync::Arc;
use std::sync::Once;

use bytes::Bytes;
use s3mount_object::{Condition, NewObject};

use super::Filesystem;
use super::attributes::MOST_TARGET;
use super::writing::version_of;
use crate::FsError;
use crate::attr::{Entry, FileKind};
use crate::attributes::stored::StoredAttr;
use crate::names::Target;
use crate::numbers::InodeNo;
use crate::tree::inode::Node;
use s3mount_names::NamesError;

static REFUSED: Once = Once::new();
static REFUSED_HARD: Once = Once::new();

impl Filesystem {
    /// Says once that files get no second name: an object has one key. `name` is what a program wanted to call one, and
    /// mostly has not said itself that it calls link(2).
    pub fn on_hard_link(&self, name: &str) {
        REFUSED_HARD.call_once(|| {
            tracing::warn!(
                name,
                "hard links can't be made, so this and all others are refused (EPERM); a program that makes files by them \
                 needs another way, or a folder that is not on the mount"
            );
        });
    }

    /// Makes a symbolic link to `target`, with these attributes.
    ///
    /// # Errors
    /// `ReadOnly`; `NotAllowed` if attributes are not kept, because the mode makes the link; `Exists`,
    /// `NameTooLong`, those of looking the name up, and those of writing.
    pub async fn symlink(
        self: &Arc<Self>,
        parent: InodeNo,
        name: &str,
        target: &[u8],
        attr: StoredAttr,
    ) -> Result<Entry, FsError> {
        let writer = self.writer()?;
        let (prefix, _name) = self.hold_name(parent, name).await?;
        let Some(attrs) = &self.attributes.kept else {
            REFUSED.call_once(|| {
                tracing::warn!(name, "links need --keep-attributes, so this and all others are refused");
            });
            return Err(FsError::NotAllowed("--keep-attributes"));
        };
        if target.len() as u64 > MOST_TARGET {
            return Err(FsError::NameTooLong);
        }
        match self.namespace.get(&prefix, name).await {
            Err(NamesError::NotFound) => {}
            Ok(_) => return Err(FsError::Exists),
            Err(error) => return Err(error.into()),
        }
        let now = attrs.now();
        let attr = StoredAttr { mtime: Some(crate::attributes::stored::seconds(now)), ..attr };
        let mut object = NewObject { content_type: None, ..self.new_object(name) };
        attr.put_into(&mut object.metadata);
        writer.free(&format!("{prefix}{name}"), None).await;
        let draft = writer.create(&format!("{prefix}{name}"), object);
        draft.set_condition(Some(Condition::Absent));
        draft.write(0, Bytes::copy_from_slice(target)).await?;
        let file = version_of(draft.publish().await?);
        let _ = attrs.note(&file, attr);
        self.namespace.note_file(&prefix, name, &file);
        let attr = self.inodes.lookup_or_insert(parent, &prefix, name, &Target::File(file));
        Ok(Entry { attr, name_ttl: self.namespace.name_ttl(self.namespace.ttl()) })
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `NotLink`, and those of the store.
    pub async fn readlink(&self, ino: InodeNo) -> Result<Vec<u8>, FsError> {
        let Some(attrs) = &self.attributes.kept else { return Err(FsError::NotLink) };
        let file = match self.inodes.node(ino) {
            Some(Node::File(file)) => file,
            Some(Node::Directory(_) | Node::Draft(_)) => return Err(FsError::NotLink),
            None => return Err(FsError::UnknownInode(ino)),
        };
        let mut is_link = self.getattr(ino)?.kind == FileKind::Link;
        if !is_link {
            // The daemon before may have known it for one.
            self.namespace.in_time(attrs.ask(&file)).await?;
            is_link = attrs.get(&file).is_some_and(|found| found.attr.kind() == FileKind::Link);
        }
        if !is_link || file.size > MOST_TARGET {
            return Err(FsError::NotLink);
        }
        self.namespace.in_time(attrs.read(&file)).await
    }
}
