//! What is known of a file that waits.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use s3mount_object::{Condition, ETag, Encryption, NewObject, ObjectId};
use serde::{Deserialize, Serialize};

/// The number of an entry. No other entry of the outbox has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryId(pub u64);

impl std::fmt::Display for EntryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// When an entry was given its key. Of those that are to have the same key, the greatest has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Named {
    /// The number of the record that has given it the key.
    last: u64,
    /// The number of the last such record that was about this entry alone. What moves with its folder stays in order.
    alone: u64,
}

impl Named {
    /// By a record about the entry alone.
    pub(crate) fn new(number: u64) -> Self {
        Self { last: number, alone: number }
    }

    /// The highest number in it.
    pub(crate) fn last(self) -> u64 {
        self.last
    }
}

/// How an upload of the entry is known at the store: the number of the daemon that made the entry, and of the file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The daemon.
    pub family: u32,
    /// The file.
    pub file: u32,
}

/// What is to become of the bytes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key that they are to have.
    pub key: String,
    /// What has to be true of the key then.
    pub condition: Option<Condition>,
    /// What the object is to have beside its bytes.
    pub object: NewObject,
    /// A version at an earlier key of the file, which is to be deleted: the file was renamed.
    pub leaves: Option<ObjectId>,
    /// When the file was changed last.
    pub modified: SystemTime,
    /// How its uploads are known.
    pub mark: Mark,
}

impl Entry {
    /// Gives the file another key, if it lies below the prefix `from`. Nobody else has that key. `number` is that of the
    /// record that says so.
    pub(crate) fn move_below(&mut self, from: &str, to: &str, named: &mut Named, number: u64) -> bool {
        let Some(rest) = self.key.strip_prefix(from) else { return false };
        (self.key, self.condition) = (format!("{to}{rest}"), Some(Condition::Absent));
        named.last = number;
        true
    }
}

/// A version as it is written.
pub(crate) fn version_text(version: &ObjectId) -> (String, String) {
    (version.key().to_owned(), version.etag().as_str().to_owned())
}

/// The version of a text.
pub(crate) fn version((key, etag): (String, String)) -> ObjectId {
    ObjectId::new(&key, ETag::new(&etag))
}

/// A condition as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ConditionText {
    Absent,
    Matches(String),
}

impl ConditionText {
    pub(crate) fn of(condition: Option<&Condition>) -> Option<Self> {
        condition.map(|condition| match condition {
            Condition::Absent => Self::Absent,
            Condition::Matches(etag) => Self::Matches(etag.as_str().to_owned()),
        })
    }

    pub(crate) fn condition(self) -> Condition {
        match self {
            Self::Absent => Condition::Absent,
            Self::Matches(etag) => Condition::Matches(ETag::new(&etag)),
        }
    }
}

/// What is beside the bytes of an object, as it is written.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ObjectText {
    content_type: Option<String>,
    cache_control: Option<String>,
    content_disposition: Option<String>,
    content_encoding: Option<String>,
    content_language: Option<String>,
    expires: Option<String>,
    metadata: s3mount_object::UserMetadata,
    storage_class: Option<String>,
    encryption: Option<(String, Option<String>)>,
    tags: Option<String>,
}

impl ObjectText {
    fn of(object: &NewObject) -> Self {
        let NewObject {
            content_type,
            cache_control,
            content_disposition,
            content_encoding,
            content_language,
            expires,
            metadata,
            storage_class,
            encryption,
            tags,
        } = object.clone();
        Self {
            content_type,
            cache_control,
            content_disposition,
            content_encoding,
            content_language,
            expires,
            metadata,
            storage_class,
            encryption: encryption.map(|Encryption { method, kms_key_id }| (method, kms_key_id)),
            tags,
        }
    }

    fn object(self) -> NewObject {
        NewObject {
            content_type: self.content_type,
            cache_control: self.cache_control,
            content_disposition: self.content_disposition,
            content_encoding: self.content_encoding,
            content_language: self.content_language,
            expires: self.expires,
            metadata: self.metadata,
            storage_class: self.storage_class,
            encryption: self.encryption.map(|(method, kms_key_id)| Encryption { method, kms_key_id }),
            tags: self.tags,
        }
    }
}

/// An entry as it is written.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct EntryText {
    key: String,
    condition: Option<ConditionText>,
    #[serde(default)]
    object: ObjectText,
    /// Nanoseconds since 1970.
    modified: u64,
    mark: Mark,
    /// The entry that this one stands for from now on.
    pub(crate) replaces: Option<u64>,
    /// Why the store did not take it, where an entry is written anew.
    #[serde(default)]
    pub(crate) failed: Option<String>,
    #[serde(default)]
    leaves: Option<(String, String)>,
    #[serde(default)]
    pub(crate) is_ending: bool,
    pub(crate) named: Named,
}

impl EntryText {
    pub(crate) fn of(entry: &Entry, replaces: Option<EntryId>, failed: Option<String>, named: Named) -> Self {
        let since = entry.modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            key: entry.key.clone(),
            condition: ConditionText::of(entry.condition.as_ref()),
            object: ObjectText::of(&entry.object),
            modified: u64::try_from(since.as_nanos()).unwrap_or(u64::MAX),
            mark: entry.mark,
            replaces: replaces.map(|id| id.0),
            failed,
            leaves: entry.leaves.as_ref().map(version_text),
            is_ending: false,
            named,
        }
    }

    pub(crate) fn entry(self) -> Entry {
        Entry {
            key: self.key,
            condition: self.condition.map(ConditionText::condition),
            object: self.object.object(),
            leaves: self.leaves.map(version),
            modified: UNIX_EPOCH + Duration::from_nanos(self.modified),
            mark: self.mark,
        }
    }
}
