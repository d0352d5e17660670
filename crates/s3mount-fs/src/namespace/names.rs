//! From keys to names: what a directory shows of a bucket.
//!
//! The rules, in full in `docs/SEMANTICS.md`: `/` separates directories; a directory exists when
//! a key lies below it; where a key and a directory have one name, the directory is shown; keys
//! whose parts cannot be file names are hidden.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use s3mount_object::ObjectId;

use crate::namespace::snapshot::Page;

/// Longest file name in bytes: Linux' `NAME_MAX`.
const NAME_MAX: usize = 255;

/// What a name stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Directory,
    File(File),
}

/// One version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct File {
    pub(crate) object: ObjectId,
    pub(crate) size: u64,
    pub(crate) mtime: SystemTime,
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Named {
    pub(crate) name: String,
    pub(crate) target: Target,
}

/// Counts keys that can't be shown, and warns of the first.
#[derive(Debug, Default)]
pub(crate) struct Hidden(AtomicU64);

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

    /// How many there were, counting repeats.
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Whether the kernel can name a file so.
pub(crate) fn is_file_name(name: &str) -> bool {
    !(name.is_empty() || name == "." || name == ".." || name.len() > NAME_MAX || name.contains(['\0', '/']))
}

/// Turns the LIST pages of one directory into its names, in order.
///
/// A key `a` and a directory `a/` may be pages apart, with `a-b` between them. A file at the end
/// of a page is therefore held back until the listing has passed the place of such a directory.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    held_back: Vec<Named>,
}

impl Assembler {
    /// The names that are certain after the page `page` of the directory `prefix`.
    pub(crate) fn push(&mut self, prefix: &str, page: &Page) -> Vec<Named> {
        let directories: HashSet<&str> = page.keys().filter_map(|key| key.strip_suffix('/')).collect();
        let mut names: Vec<Named> = std::mem::take(&mut self.held_back);
        names.extend(page.named(prefix));
        names.retain(|named| named.target == Target::Directory || !directories.contains(&*named.name));
        if let Some(seen) = page.upto() {
            // Its folder would lie behind all that was listed.
            let is_open = |named: &Named| {
                named.target != Target::Directory && seen.bytes().lt(named.name.bytes().chain([b'/']))
            };
            (self.held_back, names) = names.into_iter().partition(is_open);
        }
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        names.dedup_by(|a, b| a.name == b.name);
        names
    }
}

/// A key that lies before `name`, with nothing or little between them: what a LIST that is to begin
/// at `name` starts after. Only plain characters go into it, because it becomes part of a URL and of
/// XML; where there is none, the beginning of `name` has to do. It never holds a `/`: a key inside a
/// folder would leave it to the store whether that folder is listed.
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

/// The end of all keys that lie before `name`: a place, and no key that is ever asked for.
pub(crate) fn end_before(name: &str) -> String {
    let mut stem = name.to_owned();
    // Surrogates are no characters.
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
    use std::time::{Instant, SystemTime};

    use s3mount_object::{ETag, ListPage, ListedObject, ObjectMeta};

    use super::{Assembler, Hidden, Named, Target, end_before, just_before};
    use crate::namespace::snapshot::Page;

    /// A page of the directory `prefix`, with more behind it if there is a `next`.
    fn page(prefix: &str, keys: &[&str], prefixes: &[&str], next: Option<&str>) -> Page {
        let meta = ObjectMeta {
            etag: ETag::new("\"e\""),
            size: 1,
            last_modified: SystemTime::UNIX_EPOCH,
            storage_class: None,
        };
        let objects =
            keys.iter().map(|key| ListedObject { key: (*key).to_owned(), meta: meta.clone() }).collect();
        let common_prefixes = prefixes.iter().map(|prefix| (*prefix).to_owned()).collect();
        let listed = ListPage { objects, common_prefixes, next: next.map(str::to_owned) };
        Page::new(prefix, "", &listed, Instant::now(), &Hidden::default())
    }

    fn shown(names: &[Named]) -> Vec<String> {
        let slash = |named: &Named| {
            if named.target == Target::Directory { "/" } else { "" }
        };
        names.iter().map(|named| format!("{}{}", named.name, slash(named))).collect()
    }

    #[test]
    fn a_directory_wins_over_a_key_of_its_name() {
        let names = Assembler::default().push("d/", &page("d/", &["d/", "d/a", "d/a-b"], &["d/a/"], None));
        assert_eq!(shown(&names), ["a/", "a-b"]);
    }

    #[test]
    fn a_directory_wins_pages_later() {
        let mut assembler = Assembler::default();
        let first = assembler.push("", &page("", &["a", "a-b"], &[], Some("1")));
        assert_eq!(shown(&first), Vec::<String>::new(), "a/ and a-b/ may still come");
        let second = assembler.push("", &page("", &["a-c"], &["a/"], Some("2")));
        assert_eq!(shown(&second), ["a/", "a-b", "a-c"]);
        let third = assembler.push("", &page("", &["b"], &[], None));
        assert_eq!(shown(&third), ["b"]);
    }

    #[test]
    fn impossible_names_are_hidden() {
        let long = "x".repeat(256);
        let longest = "y".repeat(255);
        let keys = [".", "..", "n\0l", "ok", &long, &longest];
        let names = Assembler::default().push("", &page("", &keys, &["/", "../", "fine/"], None));
        assert_eq!(shown(&names), ["fine/", "ok", longest.as_str()]);
    }

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
