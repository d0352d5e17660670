//! The two ends of a copy, as the command line names them.

use std::fmt;

use anyhow::{Context as _, ensure};
use s3mount_settings::resolved::source;
use s3mount_system::terminal::plain;

/// An object, or a folder: a key that is empty or ends in a slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) bucket: String,
    pub(super) key: String,
}

impl Place {
    /// Reads `s3://BUCKET[/KEY]`.
    pub(super) fn new(text: &str) -> anyhow::Result<Self> {
        let path = text.strip_prefix("s3://").with_context(|| {
            format!(
                "{text:?} does not begin with s3://; cp copies from bucket to bucket, and files are copied by the \
                 system's own cp on a mount"
            )
        })?;
        let (bucket, key) = source::split(path);
        ensure!(!bucket.is_empty(), "{text:?} names no bucket; write s3://BUCKET/KEY");
        ensure!(key.len() <= 1024, "the key in {text:?} has {} bytes; S3 allows up to 1024", key.len());
        Ok(Self { bucket: bucket.to_owned(), key: key.to_owned() })
    }

    /// The same bucket, and another key.
    pub(super) fn with(&self, key: &str) -> Self {
        Self { bucket: self.bucket.clone(), key: key.to_owned() }
    }

    pub(super) fn is_folder(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }

    /// The prefix of the keys below this.
    pub(super) fn folder(&self) -> String {
        let slash = if self.is_folder() { "" } else { "/" };
        format!("{}{slash}", self.key)
    }

    /// What is behind the last slash.
    pub(super) fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    /// The key of something that is called `name` and copied to here.
    pub(super) fn named(&self, name: &str) -> String {
        if self.is_folder() { format!("{}{name}", self.key) } else { self.key.clone() }
    }
}

/// For people. What a key holds can't change a terminal, or make a second line.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s3://{}/{}", plain(&self.bucket), plain(&self.key))
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn targets_are_keys_or_folders() {
        let target = |text: &str| Place::new(text).expect("a place").named("k");
        let cases = [("s3://b", "k"), ("s3://b/", "k"), ("s3://b/d/", "d/k"), ("s3://b/d", "d")];
        for (text, key) in cases {
            assert_eq!(target(text), key, "{text}");
        }
        let place = Place::new("s3://b/d/x y").expect("a place");
        assert_eq!((place.name(), place.folder().as_str(), place.is_folder()), ("x y", "d/x y/", false));
        assert_eq!(place.to_string(), "s3://b/d/x y");
        assert_eq!(place.with("a\nb\u{1b}[2J").to_string(), r"s3://b/a\nb\u{1b}[2J");
        for text in ["b/k", "/tmp/file", "s3:/b/k", "s3://", "s3:///k"] {
            assert!(Place::new(text).is_err(), "{text}");
        }
    }
}
