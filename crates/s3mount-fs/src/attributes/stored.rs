//! The attributes that are stored with an object, and their text.
//!
//! s3fs, geesefs and rclone share the names: user metadata called `mode`, `uid`, `gid` and `mtime`, all in decimal
//! digits. The mode includes the type of the file, and the time is in seconds since 1970. s3fs and rclone also write
//! fractions of seconds, which geesefs does not read. So whole seconds are written, and fractions are read and dropped.

use std::time::SystemTime;

use s3mount_object::UserMetadata;

use crate::attr::{Attr, FileKind};
use s3mount_names::time::{millis, time};

/// The permission bits of a mode. Set-user-ID and set-group-ID are not among them: any writer of the bucket could set
/// them, and a copy on another file system would have them. Nor is the sticky bit.
const PERMISSIONS: u32 = 0o777;

/// The attributes that are stored with an object. Unset ones were never set, or by a program that stores none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoredAttr {
    /// The type and the permission bits, as `st_mode` has them.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// When the file was changed last, in seconds since 1970.
    pub mtime: Option<i64>,
}

/// The whole seconds since 1970.
pub(crate) fn seconds(time: SystemTime) -> i64 {
    millis(time).div_euclid(1000)
}

impl StoredAttr {
    /// The attributes of a new regular file.
    pub fn new_file(mode: u32, uid: u32, gid: u32) -> Self {
        let mode = Some(libc::S_IFREG | mode & PERMISSIONS);
        Self { mode, uid: Some(uid), gid: Some(gid), mtime: None }
    }

    /// The attributes of a new symbolic link.
    pub fn new_link(uid: u32, gid: u32) -> Self {
        Self { mode: Some(libc::S_IFLNK | 0o777), uid: Some(uid), gid: Some(gid), mtime: None }
    }

    /// The attributes of a new folder.
    pub fn new_folder(mode: u32, uid: u32, gid: u32) -> Self {
        let mode = Some(libc::S_IFDIR | mode & PERMISSIONS);
        Self { mode, uid: Some(uid), gid: Some(gid), mtime: None }
    }

    /// Parses the metadata of an object. A text that is no number counts as unset.
    pub(crate) fn of(metadata: &UserMetadata) -> Self {
        let number = |name| metadata.get(name)?.split('.').next()?.parse::<i64>().ok();
        let small = |name| number(name).and_then(|number| u32::try_from(number).ok());
        Self { mode: small("mode"), uid: small("uid"), gid: small("gid"), mtime: number("mtime") }
    }

    /// Writes the attributes into the metadata, in place of the former ones.
    pub(crate) fn put_into(self, metadata: &mut UserMetadata) {
        let numbers = [("mode", self.mode), ("uid", self.uid), ("gid", self.gid)];
        let numbers = numbers.map(|(name, number)| (name, number.map(i64::from)));
        for (name, number) in numbers.into_iter().chain([("mtime", self.mtime)]) {
            match number {
                Some(number) => metadata.insert(name.to_owned(), number.to_string()),
                None => metadata.remove(name),
            };
        }
    }

    /// The type of the file. Only links are recognised: an object that another program made for a pipe or a device is
    /// shown as a file.
    pub(crate) fn kind(self) -> FileKind {
        let is_link = self.mode.is_some_and(|mode| mode & libc::S_IFMT == libc::S_IFLNK);
        if is_link { FileKind::Link } else { FileKind::File }
    }

    /// The attributes of an inode, with these in place of its own.
    pub(crate) fn shown_in(self, attr: Attr) -> Attr {
        Attr {
            kind: self.kind(),
            mode: self.mode.and_then(|mode| u16::try_from(mode & PERMISSIONS).ok()).or(attr.mode),
            uid: self.uid.or(attr.uid),
            gid: self.gid.or(attr.gid),
            mtime: self.mtime.map_or(attr.mtime, |seconds| time(seconds.saturating_mul(1000))),
            ..attr
        }
    }
}

/// Attributes that a program sets. Unset ones stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttrChange {
    /// The permission bits.
    pub mode: Option<u32>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// When the file was changed last.
    pub mtime: Option<NewTime>,
}

/// A time that a program sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewTime {
    /// The time of the call.
    Now,
    /// This time.
    At(SystemTime),
}

impl AttrChange {
    /// Whether nothing is set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The attributes after the change at the time `now`.
    pub(crate) fn applied_to(&self, stored: StoredAttr, now: SystemTime) -> StoredAttr {
        let kind = stored.mode.map_or(libc::S_IFREG, |mode| mode & libc::S_IFMT);
        let mtime = self.mtime.map(|time| match time {
            NewTime::Now => seconds(now),
            NewTime::At(time) => seconds(time),
        });
        StoredAttr {
            mode: self.mode.map(|mode| kind | mode & PERMISSIONS).or(stored.mode),
            uid: self.uid.or(stored.uid),
            gid: self.gid.or(stored.gid),
            mtime: mtime.or(stored.mtime),
        }
    }

    /// What is left of the change for a file that shows `attr`, and otherwise the values of the flags.
    pub(crate) fn beyond(self, attr: Attr, mode: u16, uid: u32, gid: u32) -> Self {
        let is_same = |time| matches!(time, NewTime::At(time) if seconds(time) == seconds(attr.mtime));
        let (shown, owner, group) =
            (attr.mode.unwrap_or(mode), attr.uid.unwrap_or(uid), attr.gid.unwrap_or(gid));
        Self {
            mode: self.mode.filter(|mode| mode & PERMISSIONS != u32::from(shown)),
            uid: self.uid.filter(|uid| *uid != owner),
            gid: self.gid.filter(|gid| *gid != group),
            mtime: self.mtime.filter(|time| !is_same(*time)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    use s3mount_object::UserMetadata;

    use super::{AttrChange, NewTime, StoredAttr};
    use crate::attr::{Attr, FileKind};
    use crate::numbers::InodeNo;

    fn text(pairs: &[(&str, &str)]) -> UserMetadata {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_is_written_is_what_others_read() {
        let stored = StoredAttr { mtime: Some(-5), ..StoredAttr::new_file(0o100_640, 1000, 100) };
        let mut metadata = text(&[("author", "me"), ("mtime", "17.5")]);
        stored.put_into(&mut metadata);
        let expected =
            [("author", "me"), ("gid", "100"), ("mode", "33184"), ("mtime", "-5"), ("uid", "1000")];
        assert_eq!(metadata, text(&expected));
        assert_eq!(StoredAttr::of(&metadata), stored);
        StoredAttr::default().put_into(&mut metadata);
        assert_eq!(metadata, text(&[("author", "me")]));
    }

    #[test]
    fn fractions_and_nonsense_are_read() {
        let metadata =
            text(&[("mtime", "1136214245.123456789"), ("mode", "rw"), ("uid", "-1"), ("gid", "7")]);
        let expected = StoredAttr { mtime: Some(1_136_214_245), gid: Some(7), ..StoredAttr::default() };
        assert_eq!(StoredAttr::of(&metadata), expected);
        assert_eq!(StoredAttr::of(&text(&[("mode", "41471")])).kind(), FileKind::Link);
        assert_eq!(StoredAttr::of(&text(&[("mode", "4480")])).kind(), FileKind::File, "a pipe");
    }

    #[test]
    fn nobody_gets_the_rights_of_an_owner_from_the_bucket() {
        let stored = StoredAttr::of(&text(&[("mode", &0o107_755.to_string())]));
        let attr = Attr::new(InodeNo(9), FileKind::File, (0, UNIX_EPOCH), Duration::ZERO);
        let shown = stored.shown_in(attr);
        assert_eq!(shown.mode, Some(0o755));
        let change = AttrChange { mode: Some(0o104_755), ..AttrChange::default() };
        assert_eq!(change.applied_to(StoredAttr::default(), UNIX_EPOCH).mode, Some(0o100_755));
        assert!(change.beyond(shown, 0o644, 0, 0).is_empty(), "nothing is to be written");
        let touched = AttrChange { mtime: Some(NewTime::Now), ..AttrChange::default() };
        assert_eq!(touched.applied_to(stored, UNIX_EPOCH).mode, stored.mode, "attributes of others stay");
    }

    #[test]
    fn a_change_keeps_what_it_does_not_name() {
        let now = UNIX_EPOCH + Duration::from_millis(5999);
        let link = StoredAttr::new_link(1, 2);
        let change = AttrChange { mode: Some(0o600), mtime: Some(NewTime::Now), ..AttrChange::default() };
        let changed = change.applied_to(link, now);
        assert_eq!(changed, StoredAttr { mode: Some(0o120_600), mtime: Some(5), ..link });
        let before = SystemTime::UNIX_EPOCH - Duration::from_millis(1);
        let change = AttrChange { mtime: Some(NewTime::At(before)), ..AttrChange::default() };
        assert_eq!(change.applied_to(StoredAttr::default(), now).mtime, Some(-1));
    }
}
