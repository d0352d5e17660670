//! The interface of this crate for fuzzers. Only `cargo fuzz` builds with it.

use std::sync::Arc;
use std::time::UNIX_EPOCH;

use s3mount_object::{ETag, ListPage, ListedObject, ObjectMeta};
use tokio::time::Instant;

use crate::ahead::hints::{Hints, Next};
use crate::directory::assembler::Assembler;
use crate::names::Target;
use crate::open::open_clock::OpenClock;
use s3mount_names::{Asked, Hidden, Page, is_file_name};

/// A page of these keys below `prefix`; those that end in `/` are folders.
pub fn page(prefix: &str, keys: &[&str], has_more: bool) -> ListPage {
    let meta =
        ObjectMeta { etag: ETag::new("\"e\""), size: 1, last_modified: UNIX_EPOCH, storage_class: None };
    let (folders, files): (Vec<&str>, Vec<&str>) = keys.iter().copied().partition(|key| key.ends_with('/'));
    let listed = |key: &&str| ListedObject { key: format!("{prefix}{key}"), meta: meta.clone() };
    ListPage {
        objects: files.iter().map(listed).collect(),
        common_prefixes: folders.iter().map(|key| format!("{prefix}{key}")).collect(),
        next: has_more.then(|| "next".to_owned()),
    }
}

/// Checks that a listing shows no name that the kernel can't use, and none twice, and that a look-up agrees with it.
pub fn names(prefix: &str, listed: ListPage, name: &str) {
    let packed = Page::new(prefix, "", &listed, Asked::at(Instant::now()), &Hidden::default());
    let is_whole = listed.next.is_none();
    let shown = Assembler::default().push(prefix, &packed);
    for (at, named) in shown.iter().enumerate() {
        assert!(is_file_name(&named.name), "{named:?}");
        assert!(shown[..at].iter().all(|other| other.name != named.name), "{named:?} twice");
        let answer = packed.answer(prefix, &named.name);
        let kind = answer.map(|found| found.map(|found| Target::from(found).kind()));
        assert_eq!(kind, Some(Some(named.target.kind())));
    }
    if is_whole && is_file_name(name) && shown.iter().all(|named| named.name != name) {
        assert_eq!(packed.answer(prefix, name), Some(None), "{name:?}");
    }
}

/// Checks that hints name files below the root, however they are written and cut.
pub fn hints(pieces: &[&[u8]]) {
    let (hints, writer) = (Hints::default(), Arc::default());
    for piece in pieces {
        hints.push(&writer, piece, OpenClock::default());
    }
    while let Some(Next::Hint(hint)) = hints.next(&writer) {
        hints.followed(&writer);
        assert!(hint.path.split('/').all(is_file_name), "{hint:?}");
    }
}
