//! Turns keys of the bucket into names in directories.
//!
//! `docs/SEMANTICS.md` states the rules in full. `/` separates directories. A directory exists if a key lies
//! below it. If a key and a directory have the same name, the directory is shown. A key is hidden if a part
//! of it can't be a file name.

use std::borrow::Cow;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::SystemTime;

use s3mount_object::ObjectId;
use tokio::time::Instant;

use crate::sync::{AtomicU64, Ordering};

/// The longest file name, in bytes: `NAME_MAX` of Linux.
pub const NAME_MAX: usize = 255;

/// A file that is being written, as seen by its name. Two are equal if they are the same file.
pub trait NamedDraft: Debug + Eq + Send + Sync + 'static {
    /// Whether its name refers to it. If it can't be published, its name refers to the version in the store.
    fn has_name(&self) -> bool;
}

/// Whether a name refers to a directory or a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// A directory.
    Directory,
    /// A file.
    File,
}

/// What a name refers to in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// A directory: keys lie below it.
    Directory,
    /// A version of an object.
    File(File),
}

/// What a name refers to. `D` is the type of drafts.
#[derive(Debug, PartialEq, Eq)]
pub enum Target<D> {
    /// A directory.
    Directory,
    /// A version of an object.
    File(File),
    /// A file that this mount is writing.
    Draft(Arc<D>),
}

impl<D> Clone for Target<D> {
    fn clone(&self) -> Self {
        match self {
            Target::Directory => Target::Directory,
            Target::File(file) => Target::File(file.clone()),
            Target::Draft(draft) => Target::Draft(draft.clone()),
        }
    }
}

impl<D> PartialEq<Stored> for Target<D> {
    fn eq(&self, stored: &Stored) -> bool {
        match (self, stored) {
            (Target::Directory, Stored::Directory) => true,
            (Target::File(file), Stored::File(stored)) => file == stored,
            (Target::Directory | Target::File(_) | Target::Draft(_), _) => false,
        }
    }
}

impl<D> From<Stored> for Target<D> {
    fn from(stored: Stored) -> Self {
        match stored {
            Stored::Directory => Target::Directory,
            Stored::File(file) => Target::File(file),
        }
    }
}

impl<D> Target<D> {
    /// Whether the target is a directory or a file.
    pub fn kind(&self) -> NameKind {
        match self {
            Target::Directory => NameKind::Directory,
            Target::File(_) | Target::Draft(_) => NameKind::File,
        }
    }
}

/// One version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// Its key and its ETag.
    pub object: ObjectId,
    /// Its length in bytes.
    pub size: u64,
    /// When it was written.
    pub mtime: SystemTime,
}

/// A name in a directory.
#[derive(Debug, PartialEq, Eq)]
pub struct Named<D> {
    /// The name, without a slash.
    pub name: String,
    /// What the name refers to.
    pub target: Target<D>,
    /// When the page that shows the name was requested, or when this mount made the name.
    pub at: Instant,
}

impl<D> Named<D> {
    /// The key below the directory. That of a folder ends in `/`.
    pub fn key(&self) -> Cow<'_, str> {
        match self.target {
            Target::Directory => Cow::Owned(format!("{}/", self.name)),
            Target::File(_) | Target::Draft(_) => Cow::Borrowed(&self.name),
        }
    }
}

/// Counts hidden keys, and logs a warning for the first.
#[derive(Debug, Default)]
pub struct Hidden(AtomicU64);

impl Hidden {
    pub(crate) fn count(&self, key: &str) {
        if self.0.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!(
                key,
                "key hidden: a part of it cannot be a file name (empty, \".\", \"..\", NUL, or above 255 \
                 bytes); more of these are counted without a word"
            );
        }
    }

    /// How many hidden keys there were. A key that is listed again counts again.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether `name` can be the name of a file.
pub fn is_file_name(name: &str) -> bool {
    !(name.is_empty() || name == "." || name == ".." || name.len() > NAME_MAX || name.contains(['\0', '/']))
}

/// The prefix of a key's directory, and the name in it.
pub fn split_key(key: &str) -> (&str, &str) {
    key.split_at(key.rfind('/').map_or(0, |at| at + 1))
}

/// The key that a LIST starts after so that its page begins at `name`. The key lies before `name`, with few or no keys
/// between them. It gets only plain characters, because it becomes part of a URL and of XML. If there is no such
/// character, it is the beginning of `name`. It has no `/`, because stores differ in whether they list a folder when
/// they start after a key inside it.
pub(crate) fn just_before(name: &str) -> String {
    let mut stem = name.to_owned();
    let last = stem.pop().filter(|last| ('!'..='~').contains(last)).map(|last| match last {
        '0' => '.',
        last => char::from(u8::try_from(last).unwrap_or_default().saturating_sub(1)),
    });
    if let Some(before) = last.filter(char::is_ascii_graphic) {
        stem.push(before);
        stem.push('~');
    }
    stem
}

/// The end of all keys before `name`. It is only compared with keys, and never sent to a store.
pub(crate) fn end_before(name: &str) -> String {
    let mut stem = name.to_owned();
    // Surrogates are not characters.
    let before = stem.pop().and_then(|last| match u32::from(last) {
        0xe000 => Some('\u{d7ff}'),
        code => code.checked_sub(1).and_then(char::from_u32),
    });
    if let Some(before) = before {
        stem.extend([before, char::MAX]);
    }
    stem
}

#[cfg(test)]
mod tests {
    use super::{end_before, just_before};

    #[test]
    fn just_before_is_before_and_near() {
        let before: Vec<_> = ["b", "f001", "10", "0", "a b", "x!", "é", "aé", ""].map(just_before).into();
        assert_eq!(before, ["a~", "f000~", "1.~", ".~", "a a~", "x", "", "a", ""]);
    }

    proptest::proptest! {
        #[test]
        fn nothing_lies_between_a_name_and_the_end_before_it(name in "[ -~é\u{e000}]{1,4}", other in "[ -~é\u{e000}]{0,5}") {
            let end = end_before(&name);
            proptest::prop_assert!(end < name);
            proptest::prop_assert!(other <= end || other >= name);
        }

        #[test]
        fn just_before_never_lies_behind(name in "[^/\0]{1,20}") {
            proptest::prop_assert!(just_before(&name) < name && !just_before(&name).contains('/'));
        }
    }
}
