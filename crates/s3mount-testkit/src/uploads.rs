//! Uploads in parts, as strictly as S3 has them. The server and the client in memory share these rules.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::SystemTime;

use s3mount_object::NewObject;

use crate::object::{Content, Object, now};
use crate::sums::{ChecksumType, Kept, Sum, Value, joined_tag};

/// The smallest part that S3 takes, in bytes. The last part may be smaller.
pub(crate) const MIN_PART: u64 = 5 << 20;

/// The largest part, and the largest object that one request writes or copies.
pub(crate) const MAX_PART: u64 = 5 << 30;

/// The highest number of a part.
const MAX_NUMBER: u32 = 10_000;

/// Why a store refuses a request, as S3 says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) message: &'static str,
}

pub(crate) fn refused(status: u16, code: &'static str, message: &'static str) -> Refused {
    Refused { status, code, message }
}

pub(crate) fn precondition_failed() -> Refused {
    refused(412, "PreconditionFailed", "At least one of the pre-conditions you specified did not hold")
}

/// What a store demands of the parts of an upload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// The smallest part but the last, in bytes.
    pub(crate) min_part: u64,
    /// Whether all parts but the last have to have the same length.
    pub(crate) equal_parts: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self { min_part: MIN_PART, equal_parts: false }
    }
}

/// One part of an upload.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    pub(crate) content: Content,
    pub(crate) len: u64,
    /// The tag in hexadecimal, without quotes.
    pub(crate) tag: String,
    /// The checksum of the upload's kind.
    pub(crate) value: Value,
    pub(crate) modified: SystemTime,
}

/// An upload that is not complete.
#[derive(Clone, Debug)]
pub(crate) struct Upload {
    pub(crate) initiated: SystemTime,
    pub(crate) beside: NewObject,
    /// The kind of checksum, and whether each part has to bring one.
    pub(crate) sum: Sum,
    pub(crate) kind: ChecksumType,
    pub(crate) demands_sums: bool,
    pub(crate) parts: BTreeMap<u32, Part>,
}

impl Upload {
    /// An upload whose parts need not bring checksums.
    pub(crate) fn new(beside: NewObject) -> Self {
        let (sum, kind) = (Sum::DEFAULT, ChecksumType::FullObject);
        Self { initiated: now(), beside, sum, kind, demands_sums: false, parts: BTreeMap::new() }
    }
}

/// A part as the request to complete an upload names it.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) number: u32,
    /// The tag, without quotes.
    pub(crate) tag: String,
    /// The checksum in base64.
    pub(crate) value: Option<String>,
}

/// What a request to complete an upload says of the whole object.
#[derive(Clone, Debug, Default)]
pub(crate) struct Whole {
    pub(crate) size: Option<u64>,
    pub(crate) kind: Option<String>,
    /// The checksum in base64.
    pub(crate) value: Option<(Sum, String)>,
}

/// The uploads to one bucket, by key and in the order in which they were begun.
#[derive(Debug, Default)]
pub(crate) struct Uploads {
    open: BTreeMap<(String, String), Upload>,
    begun: u64,
}

fn no_such_upload() -> Refused {
    refused(
        404,
        "NoSuchUpload",
        "The specified upload does not exist. It may have been aborted or completed.",
    )
}

fn invalid_part() -> Refused {
    refused(400, "InvalidPart", "One or more of the specified parts could not be found, or has another tag.")
}

impl Uploads {
    /// Begins an upload, and returns its id.
    pub(crate) fn create(&mut self, key: &str, upload: Upload) -> String {
        self.begun += 1;
        let id = format!("upload-{:08}", self.begun);
        self.open.insert((key.to_owned(), id.clone()), upload);
        id
    }

    fn position(key: &str, id: &str) -> (String, String) {
        (key.to_owned(), id.to_owned())
    }

    /// The upload of this id to this key.
    pub(crate) fn get(&self, key: &str, id: &str) -> Result<&Upload, Refused> {
        self.open.get(&Self::position(key, id)).ok_or_else(no_such_upload)
    }

    /// Checks the number of a part before it is sent.
    pub(crate) fn check_number(number: u32) -> Result<(), Refused> {
        let message = "Part number must be an integer between 1 and 10000, inclusive";
        (1..=MAX_NUMBER).contains(&number).then_some(()).ok_or(refused(400, "InvalidArgument", message))
    }

    /// Adds a part. It replaces the part that had this number.
    pub(crate) fn put(&mut self, key: &str, id: &str, number: u32, part: Part) -> Result<(), Refused> {
        Self::check_number(number)?;
        let upload = self.open.get_mut(&Self::position(key, id)).ok_or_else(no_such_upload)?;
        upload.parts.insert(number, part);
        Ok(())
    }

    /// Ends an upload without an object.
    pub(crate) fn abort(&mut self, key: &str, id: &str) -> Result<(), Refused> {
        self.open.remove(&Self::position(key, id)).map(drop).ok_or_else(no_such_upload)
    }

    /// Makes an object of the parts, and leaves the upload as it is.
    pub(crate) fn join(
        &self,
        key: &str,
        id: &str,
        named: &[Named],
        whole: &Whole,
        rules: Rules,
    ) -> Result<Object, Refused> {
        let upload = self.get(key, id)?;
        if named.is_empty() {
            return Err(refused(400, "MalformedXML", "The XML you provided names no part"));
        }
        if !named.is_sorted_by(|a, b| a.number < b.number) {
            let message = "The list of parts was not in ascending order.";
            return Err(refused(400, "InvalidPartOrder", message));
        }
        let parts: Vec<&Part> = named.iter().map(|named| upload.named(named)).collect::<Result<_, _>>()?;
        check_lengths(&parts, rules)?;
        let size = parts.iter().map(|part| part.len).sum();
        if whole.size.is_some_and(|told| told != size) {
            let message = "The provided 'x-amz-mp-object-size' header does not match what was computed.";
            return Err(refused(400, "InvalidRequest", message));
        }
        let values = parts.iter().map(|part| (part.value.clone(), part.len)).collect();
        let kept = Kept::joined(upload.sum, upload.kind, values);
        check_whole(&kept, whole)?;
        let content = Content::join(parts.iter().map(|part| (part.content.clone(), part.len)));
        let etag = format!("\"{}\"", joined_tag(parts.iter().map(|part| part.tag.as_str())));
        let (beside, kept) = (upload.beside.clone(), Some(kept));
        Ok(Object { beside, kept, ..Object::new(content, size, etag, now()) })
    }

    /// The keys to which uploads are not complete.
    pub(crate) fn keys(&self) -> BTreeSet<String> {
        self.open.keys().map(|(key, _)| key.clone()).collect()
    }

    /// Up to `most` uploads to keys that begin with `prefix`, after the upload `after`, and whether there are
    /// more.
    pub(crate) fn list(
        &self,
        prefix: &str,
        after: Option<(&str, &str)>,
        most: usize,
    ) -> (Vec<(&str, &str, &Upload)>, bool) {
        // Without an id, all uploads to the key are passed over.
        let after = after.map(|(key, id)| match id {
            "" => Self::position(key, "\u{10ffff}"),
            id => Self::position(key, id),
        });
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.open.range((begin, Bound::Unbounded));
        let mut wanted = all.filter(|((key, _), _)| key.starts_with(prefix));
        let page = wanted.by_ref().take(most);
        let page = page.map(|((key, id), upload)| (key.as_str(), id.as_str(), upload)).collect();
        (page, wanted.next().is_some())
    }
}

impl Upload {
    fn named(&self, named: &Named) -> Result<&Part, Refused> {
        let part = self.parts.get(&named.number).filter(|part| part.tag == named.tag);
        let part = part.ok_or_else(invalid_part)?;
        if self.kind == ChecksumType::Composite && self.demands_sums && named.value.is_none() {
            let message = "The complete request must include the checksum for each part.";
            return Err(refused(400, "InvalidRequest", message));
        }
        if named.value.as_ref().is_some_and(|value| *value != part.value.base64()) {
            return Err(invalid_part());
        }
        Ok(part)
    }
}

fn check_lengths(parts: &[&Part], rules: Rules) -> Result<(), Refused> {
    let Some((_, before)) = parts.split_last() else { return Ok(()) };
    if before.iter().any(|part| part.len < rules.min_part) {
        let message = "Your proposed upload is smaller than the minimum allowed size";
        return Err(refused(400, "EntityTooSmall", message));
    }
    let Some(first) = before.first() else { return Ok(()) };
    if rules.equal_parts
        && parts
            .iter()
            .enumerate()
            .any(|(at, part)| part.len > first.len || part.len < first.len && at < before.len())
    {
        return Err(refused(400, "InvalidPart", "All non-trailing parts must have the same length."));
    }
    Ok(())
}

fn check_whole(kept: &Kept, whole: &Whole) -> Result<(), Refused> {
    if whole.kind.as_ref().is_some_and(|kind| kind != kept.kind.name()) {
        let message = "The upload was created using another checksum type.";
        return Err(refused(400, "InvalidRequest", message));
    }
    match &whole.value {
        Some((sum, _)) if *sum != kept.sum => {
            Err(refused(400, "InvalidRequest", "The upload was created using another checksum."))
        }
        Some((_, text)) if *text != kept.text => Err(refused(
            400,
            "BadDigest",
            "The checksum you specified did not match the calculated checksum.",
        )),
        Some(_) | None => Ok(()),
    }
}

/// Refuses a write whose condition does not hold for what is at the key.
pub(crate) fn check_condition(
    there: Option<&Object>,
    if_match: Option<&str>,
    if_none_match: Option<&str>,
) -> Result<(), Refused> {
    match (if_match, there) {
        (Some(_), None) => return Err(refused(404, "NoSuchKey", "The specified key does not exist.")),
        (Some(wanted), Some(object)) if wanted != "*" && wanted != object.etag => {
            return Err(precondition_failed());
        }
        _ => {}
    }
    match (if_none_match, there) {
        (Some("*"), Some(_)) => Err(precondition_failed()),
        (Some(other), _) if other != "*" => Err(refused(
            501,
            "NotImplemented",
            "A header you provided implies functionality that is not implemented",
        )),
        _ => Ok(()),
    }
}
