//! Turns the pages of a listing into the names that a directory shows.

use std::collections::HashSet;

use crate::names::{Named, Target};
use s3mount_names::Page;

/// Turns the LIST pages of one directory into its names, in order.
///
/// A key `a` and a directory `a/` may be pages apart, with `a-b` between them. So a file at the end of a page is held
/// back until the listing has passed the place of such a directory.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    held_back: Vec<Named>,
}

impl Assembler {
    /// Takes the next page of the directory `prefix`. Returns the names that no later page can change.
    pub(crate) fn push(&mut self, prefix: &str, page: &Page) -> Vec<Named> {
        let directories: HashSet<&str> = page.keys().filter_map(|key| key.strip_suffix('/')).collect();
        let mut names: Vec<Named> = std::mem::take(&mut self.held_back);
        names.extend(page.named(prefix));
        names.retain(|named| named.target == Target::Directory || !directories.contains(&*named.name));
        if let Some(seen) = page.upto() {
            // A folder of this name would follow all keys that were listed so far.
            let is_open = |named: &Named| {
                named.target != Target::Directory && seen.bytes().lt(named.name.bytes().chain([b'/']))
            };
            (self.held_back, names) = names.into_iter().partition(is_open);
        }
        names.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        names.dedup_by(|a, b| a.name == b.name);
        names
    }

    /// The names that are held back.
    pub(crate) fn held_back(&self) -> impl Iterator<Item = &Named> {
        self.held_back.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use s3mount_object::{ETag, ListPage, ListedObject, ObjectMeta};
    use tokio::time::Instant;

    use super::{Assembler, Named, Page, Target};
    use s3mount_names::{Asked, Hidden};

    /// A page of the directory `prefix`, followed by more if there is a `next`.
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
        Page::new(prefix, "", &listed, Asked::at(Instant::now()), &Hidden::default())
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
}
