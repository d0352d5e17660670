//! Listings as ListObjectsV2 answers them: the order of keys, the rolled-up prefixes, and the pages.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use s3mount_object::ListObjects;

use crate::random::mix;

/// What a request asks to list.
#[derive(Clone, Debug, Default)]
pub(crate) struct Query {
    pub(crate) prefix: String,
    pub(crate) delimiter: Option<String>,
    /// Only names after this key, or after this rolled-up prefix, are listed.
    pub(crate) after: Option<String>,
    pub(crate) max_keys: usize,
    /// Whether a prefix before `after` is listed when keys below the prefix come after `after`.
    pub(crate) keeps_prefixes: bool,
}

impl Query {
    /// The query of a request to a store whose continuations are names.
    pub(crate) fn new(request: ListObjects) -> Self {
        Self {
            prefix: request.prefix,
            delimiter: request.delimiter.then(|| "/".to_owned()),
            after: request.continuation.or(request.start_after),
            max_keys: request.max_keys.unwrap_or(1000).min(1000) as usize,
            keeps_prefixes: false,
        }
    }
}

/// One page of a listing.
#[derive(Debug)]
pub(crate) struct Page<'a, V> {
    pub(crate) objects: Vec<(&'a String, &'a V)>,
    pub(crate) prefixes: Vec<String>,
    /// The `after` of the next page.
    pub(crate) next: Option<String>,
}

/// The least string that comes after all strings that begin with `prefix`, if there is one.
fn behind(prefix: &str) -> Option<String> {
    let mut text = prefix.to_owned();
    while let Some(last) = text.pop() {
        // Surrogates are no characters. The next character comes after them.
        let next = match u32::from(last) + 1 {
            0xd800 => char::from_u32(0xe000),
            code => char::from_u32(code),
        };
        if let Some(next) = next {
            text.push(next);
            return Some(text);
        }
    }
    None
}

/// Lists one page of `keys`.
pub(crate) fn page<'a, V>(keys: &'a BTreeMap<String, V>, query: &Query) -> Page<'a, V> {
    let Query { prefix, delimiter, after, max_keys, keeps_prefixes } = query;
    let rolled_up = |key: &str| {
        let delimiter = delimiter.as_deref().filter(|delimiter| !delimiter.is_empty())?;
        let rest = key.strip_prefix(prefix.as_str())?;
        let end = prefix.len() + rest.find(delimiter)? + delimiter.len();
        Some(key[..end].to_owned())
    };
    let mut page = Page { objects: Vec::new(), prefixes: Vec::new(), next: None };
    let first = match after {
        Some(after) if rolled_up(after).as_ref() == Some(after) => match behind(after) {
            Some(behind) => Bound::Included(behind),
            None => return page,
        },
        Some(after) if after >= prefix => Bound::Excluded(after.clone()),
        Some(_) | None => Bound::Included(prefix.clone()),
    };
    let mut last = None;
    let mut left = keys.range((first, Bound::Unbounded));
    while let Some((key, value)) = left.next() {
        if !key.starts_with(prefix.as_str()) {
            break;
        }
        if page.objects.len() + page.prefixes.len() >= *max_keys {
            page.next = last;
            break;
        }
        if let Some(common) = rolled_up(key) {
            // The search goes on after the prefix at once, however many keys the prefix has.
            let next = behind(&common);
            // Like S3, this leaves out prefixes that are not after StartAfter.
            if *keeps_prefixes || after.as_ref().is_none_or(|after| common > *after) {
                last = Some(common.clone());
                page.prefixes.push(common);
            }
            match next {
                Some(next) => left = keys.range((Bound::Included(next), Bound::Unbounded)),
                None => break,
            }
        } else {
            last = Some(key.clone());
            page.objects.push((key, value));
        }
    }
    page
}

/// Whether a directory bucket lists this prefix: it has to end in the delimiter (AWS, "Differences for directory
/// buckets": `ListObjectsV2` behavior).
pub(crate) fn is_directory_prefix(prefix: &str) -> bool {
    prefix.is_empty() || prefix.ends_with('/')
}

/// The place of a name in the listings of a directory bucket. It is the same in each listing, so that the name before
/// is enough to go on.
fn place(name: &str) -> u64 {
    name.bytes().fold(0, |hash, byte| mix(hash ^ u64::from(byte)))
}

/// Lists one page of `keys` as a directory bucket does: in no order, and with the prefixes in which there is nothing
/// but uploads to the keys `uploads` (AWS, "Differences for directory buckets": `ListObjectsV2` behavior).
pub(crate) fn unordered_page<'a, V>(
    keys: &'a BTreeMap<String, V>,
    uploads: &BTreeSet<String>,
    query: &Query,
) -> Page<'a, V> {
    let prefix = query.prefix.as_str();
    let folder = |key: &str| {
        let end = key.strip_prefix(prefix)?.find('/').filter(|_| query.delimiter.is_some())?;
        Some(key[..prefix.len() + end + 1].to_owned())
    };
    let below = keys.range(prefix.to_owned()..).take_while(|(key, _)| key.starts_with(prefix));
    let (mut names, mut folders) = (Vec::new(), BTreeSet::new());
    for (key, value) in below {
        match folder(key) {
            Some(folder) => drop(folders.insert(folder)),
            None => names.push((place(key), key.clone(), Some((key, value)))),
        }
    }
    folders.extend(uploads.iter().filter_map(|key| folder(key)));
    names.extend(folders.into_iter().map(|folder| (place(&folder), folder, None)));
    names.sort_unstable_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    let first = query.after.as_ref().map_or(0, |after| {
        names.partition_point(|(at, name, _)| (*at, name.as_str()) <= (place(after), after.as_str()))
    });
    let has_more = names.len() - first > query.max_keys;
    let shown = &names[first..names.len().min(first + query.max_keys)];
    Page {
        objects: shown.iter().filter_map(|(_, _, object)| *object).collect(),
        prefixes: shown.iter().filter(|name| name.2.is_none()).map(|name| name.1.clone()).collect(),
        next: shown.last().filter(|_| has_more).map(|name| name.1.clone()),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::{Query, page, unordered_page};

    #[test]
    fn a_directory_bucket_lists_each_name_once_and_in_no_order() {
        let keys: BTreeMap<String, ()> = (0..100).map(|name| (format!("d/{name:02}"), ())).collect();
        let uploads = BTreeSet::from(["d/sub/upload".to_owned()]);
        let delimiter = Some("/".to_owned());
        let mut query = Query { prefix: "d/".to_owned(), delimiter, max_keys: 7, ..Query::default() };
        let (mut listed, mut prefixes) = (Vec::new(), Vec::new());
        loop {
            let page = unordered_page(&keys, &uploads, &query);
            listed.extend(page.objects.into_iter().map(|(key, ())| key.clone()));
            prefixes.extend(page.prefixes);
            query.after = page.next;
            if query.after.is_none() {
                break;
            }
        }
        assert!(!listed.is_sorted());
        listed.sort();
        assert_eq!((listed, prefixes), (keys.into_keys().collect(), vec!["d/sub/".to_owned()]));
    }

    proptest! {
        /// All pages together have the names that a look at every key finds, in order, and each name once.
        #[test]
        fn pages_add_up(
            keys in proptest::collection::btree_set("[ab/\\-\u{d7ff}]{1,6}", 0..60),
            prefix in "[ab/]{0,2}",
            delimited in any::<bool>(),
            max_keys in 1usize..10,
        ) {
            let map: BTreeMap<String, ()> = keys.iter().map(|key| (key.clone(), ())).collect();
            let mut query = Query {
                prefix: prefix.clone(),
                delimiter: delimited.then(|| "/".to_owned()),
                after: None,
                max_keys,
                keeps_prefixes: false,
            };
            let (mut objects, mut prefixes) = (Vec::new(), Vec::new());
            loop {
                let page = page(&map, &query);
                prop_assert!(page.objects.len() + page.prefixes.len() <= max_keys);
                objects.extend(page.objects.iter().map(|(key, ())| (*key).clone()));
                prefixes.extend(page.prefixes);
                let Some(next) = page.next else { break };
                query.after = Some(next);
            }
            let below: Vec<_> = keys.iter().filter_map(|key| key.strip_prefix(&prefix)).collect();
            let is_rolled = |rest: &&str| delimited && rest.contains('/');
            let want: Vec<_> =
                below.iter().filter(|rest| !is_rolled(rest)).map(|rest| format!("{prefix}{rest}")).collect();
            let rolled: BTreeSet<_> = below
                .iter()
                .filter(|rest| is_rolled(rest))
                .filter_map(|rest| rest.find('/').map(|end| format!("{prefix}{}", &rest[..=end])))
                .collect();
            prop_assert_eq!(objects, want);
            prop_assert_eq!(prefixes, rolled.into_iter().collect::<Vec<_>>());
        }
    }
}
