//! The encoding of pages on a disk.

use tokio::time::Instant;

use super::{Packed, Page};
use crate::fact::Asked;

/// Adds a text after its length.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.extend_from_slice(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

/// Takes the next `N` bytes.
fn take<const N: usize>(bytes: &mut &[u8]) -> Option<[u8; N]> {
    let (front, back) = bytes.split_first_chunk::<N>()?;
    *bytes = back;
    Some(*front)
}

fn take_text<'a>(bytes: &mut &'a [u8]) -> Option<&'a str> {
    let len = u32::from_le_bytes(take(bytes)?) as usize;
    let (text, back) = bytes.split_at_checked(len)?;
    *bytes = back;
    std::str::from_utf8(text).ok()
}

impl Page {
    /// Encodes the page. `listed_at` is when it was requested, in milliseconds since 1970.
    pub(crate) fn to_bytes(&self, listed_at: i64) -> Vec<u8> {
        let mut bytes = listed_at.to_le_bytes().to_vec();
        bytes.push(u8::from(self.upto.is_some()));
        put_text(&mut bytes, &self.after);
        put_text(&mut bytes, self.upto.as_deref().unwrap_or_default());
        put_text(&mut bytes, &self.text);
        for Packed { size, modified, end, etag_len } in &self.entries {
            bytes.extend_from_slice(&size.to_le_bytes());
            bytes.extend_from_slice(&modified.to_le_bytes());
            bytes.extend_from_slice(&end.to_le_bytes());
            bytes.extend_from_slice(&etag_len.to_le_bytes());
        }
        bytes
    }

    /// Decodes a page. `at` converts the time of its request, in milliseconds since 1970, to the clock of this process.
    /// `None` if that fails, or if the bytes are no page.
    pub(crate) fn from_bytes(mut bytes: &[u8], at: impl FnOnce(i64) -> Option<Instant>) -> Option<Self> {
        // The answer came long before any request of this process.
        let asked = Asked::at(at(i64::from_le_bytes(take(&mut bytes)?))?);
        let [has_end] = take(&mut bytes)?;
        let (after, upto) = (take_text(&mut bytes)?.into(), take_text(&mut bytes)?);
        let text = take_text(&mut bytes)?;
        let (mut entries, mut start) = (Vec::new(), 0);
        while !bytes.is_empty() {
            let entry = Packed {
                size: u64::from_le_bytes(take(&mut bytes)?),
                modified: i64::from_le_bytes(take(&mut bytes)?),
                end: u32::from_le_bytes(take(&mut bytes)?),
                etag_len: u16::from_le_bytes(take(&mut bytes)?),
            };
            let etag = (entry.end as usize).checked_sub(usize::from(entry.etag_len))?;
            // Both must be pieces of the text, else slicing it would panic.
            text.get(start..etag).and(text.get(etag..entry.end as usize))?;
            start = entry.end as usize;
            entries.push(entry);
        }
        let upto = (has_end != 0).then(|| upto.into());
        let (text, entries) = (text.into(), entries.into());
        Some(Self { after, upto, asked, is_in_doubt: false, is_outdated: false, text, entries, used: 0 })
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use proptest::prelude::*;
    use s3mount_object::{ETag, ListPage, ListedObject, ObjectMeta};
    use tokio::time::Instant;

    use super::{Asked, Page};
    use crate::name::Hidden;

    proptest! {
        #[test]
        fn a_page_comes_back_as_it_was(names in prop::collection::btree_set("[a-zé]{1,4}/?", 0..20), more: bool) {
            let object = |name: &String| ListedObject {
                key: format!("d/{name}"),
                meta: ObjectMeta {
                    etag: ETag::new(&format!("\"{name}\"")),
                    size: name.len() as u64,
                    last_modified: SystemTime::UNIX_EPOCH,
                    storage_class: None,
                },
            };
            let (folders, files): (Vec<_>, Vec<_>) = names.iter().partition(|name| name.ends_with('/'));
            let listed = ListPage {
                objects: files.into_iter().map(object).collect(),
                common_prefixes: folders.into_iter().map(|name| format!("d/{name}")).collect(),
                next: more.then(String::new),
            };
            let now = Instant::now();
            let page = Page::new("d/", "", &listed, Asked::at(now), &Hidden::default());
            let bytes = page.to_bytes(-5);
            let again = Page::from_bytes(&bytes, |millis| (millis == -5).then_some(now)).expect("a page");
            prop_assert_eq!(format!("{again:?}"), format!("{page:?}"));
            // Cut anywhere, it is no page, or a shorter one: never a panic.
            for len in 0..bytes.len() {
                if let Some(cut) = Page::from_bytes(&bytes[..len], |_| Some(now)) {
                    prop_assert!(cut.len() < page.len());
                }
            }
        }

        #[test]
        fn bytes_that_are_no_page_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(page) = Page::from_bytes(&bytes, |_| Some(Instant::now())) {
                prop_assert_eq!(page.keys().count(), page.len());
            }
        }
    }
}
