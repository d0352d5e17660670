//! The headers of requests that write, and of their answers.

use hyper::Response;
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use s3mount_object::{Encryption, NewObject, UserMetadata};

use crate::object::Object;
use crate::server::body::Reply;
use crate::server::request::header;
use crate::sums::Kept;
use crate::uploads::{Refused, refused};

/// The header of each entry of the user's metadata begins so.
pub(crate) const METADATA_PREFIX: &str = "x-amz-meta-";

const STORAGE_CLASS: &str = "x-amz-storage-class";
const ENCRYPTION: &str = "x-amz-server-side-encryption";
const KMS_KEY_ID: &str = "x-amz-server-side-encryption-aws-kms-key-id";
const TAGGING: &str = "x-amz-tagging";

/// Sets a header, unless the value can't be in one.
pub(crate) fn insert(headers: &mut HeaderMap, name: &str, value: &str) {
    if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_str(value)) {
        headers.insert(name, value);
    }
}

/// A header's text, if it is there.
pub(crate) fn text(headers: &HeaderMap, name: &str) -> Option<String> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
}

/// What a request says of a new object beside its bytes.
pub(crate) fn new_object(headers: &HeaderMap) -> NewObject {
    let method = text(headers, ENCRYPTION);
    let kms_key_id = text(headers, KMS_KEY_ID);
    NewObject {
        content_type: text(headers, "content-type"),
        cache_control: text(headers, "cache-control"),
        content_disposition: text(headers, "content-disposition"),
        content_encoding: encoding(headers),
        content_language: text(headers, "content-language"),
        expires: text(headers, "expires"),
        metadata: user_metadata(headers),
        storage_class: text(headers, STORAGE_CLASS),
        encryption: method.map(|method| Encryption { method, kms_key_id }),
        tags: text(headers, TAGGING),
    }
}

/// How the bytes of an upload are encoded. How they were sent is no part of that.
fn encoding(headers: &HeaderMap) -> Option<String> {
    let text = text(headers, "content-encoding")?;
    let kept: Vec<_> = text.split(',').map(str::trim).filter(|name| *name != "aws-chunked").collect();
    Some(kept.join(",")).filter(|kept| !kept.is_empty())
}

/// The user's metadata in the headers of an upload. A header's name is in lower case here.
fn user_metadata(headers: &HeaderMap) -> UserMetadata {
    let entry = |(name, value): (&HeaderName, &HeaderValue)| {
        Some((name.as_str().strip_prefix(METADATA_PREFIX)?.to_owned(), value.to_str().ok()?.to_owned()))
    };
    headers.iter().filter_map(entry).collect()
}

/// Adds what an object has beside its bytes to the answer to a GET or a HEAD.
pub(crate) fn describe(object: &Object, headers: &mut HeaderMap) {
    let NewObject { content_type, metadata, storage_class, tags, .. } = &object.beside;
    insert(headers, "content-type", content_type.as_deref().unwrap_or("binary/octet-stream"));
    let others = [
        ("cache-control", &object.beside.cache_control),
        ("content-disposition", &object.beside.content_disposition),
        ("content-encoding", &object.beside.content_encoding),
        ("content-language", &object.beside.content_language),
        ("expires", &object.beside.expires),
    ];
    for (name, value) in others {
        value.iter().for_each(|value| insert(headers, name, value));
    }
    for (name, value) in metadata {
        insert(headers, &format!("{METADATA_PREFIX}{name}"), value);
    }
    storage_class.iter().for_each(|class| insert(headers, STORAGE_CLASS, class));
    if let Some(tags) = tags.as_ref().filter(|tags| !tags.is_empty()) {
        insert(headers, "x-amz-tagging-count", &tags.split('&').count().to_string());
    }
    encryption(&object.beside, headers);
}

/// Adds how an object is encrypted.
pub(crate) fn encryption(object: &NewObject, headers: &mut HeaderMap) {
    if let Some(Encryption { method, kms_key_id }) = &object.encryption {
        insert(headers, ENCRYPTION, method);
        kms_key_id.iter().for_each(|id| insert(headers, KMS_KEY_ID, id));
    }
}

/// Adds the checksum that is kept.
pub(crate) fn checksum(kept: &Kept, headers: &mut HeaderMap) {
    insert(headers, kept.sum.header(), &kept.text);
    insert(headers, "x-amz-checksum-type", kept.kind.name());
}

/// Refuses a write whose condition does not hold.
pub(crate) fn check_condition(
    there: Option<&Object>,
    headers: &HeaderMap,
    refuses_conditions: bool,
) -> Result<(), Refused> {
    let condition = |name: &str| {
        text(headers, name).map(|value| match value.trim_matches('"') {
            "*" => "*".to_owned(),
            tag => format!("\"{tag}\""),
        })
    };
    refuse_conditions(headers, refuses_conditions)?;
    let (if_match, if_none_match) = (condition("if-match"), condition("if-none-match"));
    crate::uploads::check_condition(there, if_match.as_deref(), if_none_match.as_deref())
}

/// Refuses a write with a condition where the store knows none, whatever else is wrong with it.
pub(crate) fn refuse_conditions(headers: &HeaderMap, refuses_conditions: bool) -> Result<(), Refused> {
    let has_condition = headers.contains_key("if-match") || headers.contains_key("if-none-match");
    if refuses_conditions && has_condition {
        let message = "A header you provided implies functionality that is not implemented";
        return Err(refused(501, "NotImplemented", message));
    }
    Ok(())
}

/// The bucket and the key that a copy is made of.
pub(crate) fn copy_source(headers: &HeaderMap) -> Result<(String, String), Refused> {
    let text = header(headers, "x-amz-copy-source").trim_start_matches('/');
    let text = text.split_once("?versionId=").map_or(text, |(path, _)| path);
    let decode = |text: &str| percent_decode_str(text).decode_utf8_lossy().into_owned();
    let source = text.split_once('/').map(|(bucket, key)| (decode(bucket), decode(key)));
    source.filter(|(_, key)| !key.is_empty()).ok_or(refused(
        400,
        "InvalidArgument",
        "Copy Source must mention the source bucket and key: sourcebucket/sourcekey",
    ))
}

/// An answer without a body.
pub(crate) fn empty() -> Response<Reply> {
    Response::new(Reply::bytes("", None))
}
