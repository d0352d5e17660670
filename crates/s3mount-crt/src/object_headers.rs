//! The headers for a new object's metadata, and for the condition under which it may be written.

use mountpoint_s3_crt::http::request_response::Headers as AnswerHeaders;
use s3mount_object::{Condition, Encryption, NewObject};

use crate::answer::{metadata_headers, user_metadata};
use crate::xml::etag;

/// Headers of a request.
pub(crate) type Headers = Vec<(String, String)>;

const STORAGE_CLASS: &str = "x-amz-storage-class";
const ENCRYPTION: &str = "x-amz-server-side-encryption";
const KMS_KEY_ID: &str = "x-amz-server-side-encryption-aws-kms-key-id";

/// The headers of a request that makes `object`.
pub(crate) fn new_object(object: &NewObject) -> Headers {
    let NewObject { metadata, storage_class, encryption, tags, .. } = object;
    let method = encryption.as_ref().map(|encryption| &encryption.method);
    let kms_key_id = encryption.as_ref().and_then(|encryption| encryption.kms_key_id.as_ref());
    let optional = [
        ("Content-Type", object.content_type.as_ref()),
        ("Cache-Control", object.cache_control.as_ref()),
        ("Content-Disposition", object.content_disposition.as_ref()),
        ("Content-Encoding", object.content_encoding.as_ref()),
        ("Content-Language", object.content_language.as_ref()),
        ("Expires", object.expires.as_ref()),
        (STORAGE_CLASS, storage_class.as_ref()),
        (ENCRYPTION, method),
        (KMS_KEY_ID, kms_key_id),
        ("x-amz-tagging", tags.as_ref().filter(|tags| !tags.is_empty())),
    ];
    let owned = |(name, value): (&str, Option<&String>)| Some((name.to_owned(), value?.clone()));
    let kept = metadata_headers(metadata).into_iter().map(|(name, value)| (name, value.to_owned()));
    optional.into_iter().filter_map(owned).chain(kept).collect()
}

/// The object's metadata in the headers of an answer. The CRT's callbacks call this, so it can't fail.
pub(crate) fn described(headers: &AnswerHeaders) -> NewObject {
    let text = |name: &str| headers.get_as_optional_string(name).ok().flatten();
    NewObject {
        content_type: text("Content-Type"),
        cache_control: text("Cache-Control"),
        content_disposition: text("Content-Disposition"),
        content_encoding: text("Content-Encoding"),
        content_language: text("Content-Language"),
        expires: text("Expires"),
        metadata: user_metadata(headers),
        storage_class: text(STORAGE_CLASS),
        encryption: text(ENCRYPTION).map(|method| Encryption { method, kms_key_id: text(KMS_KEY_ID) }),
        tags: None,
    }
}

/// The header of a condition.
pub(crate) fn condition(condition: Option<&Condition>) -> Option<(String, String)> {
    condition.map(|condition| match condition {
        Condition::Absent => ("If-None-Match".to_owned(), "*".to_owned()),
        Condition::Matches(version) => ("If-Match".to_owned(), etag(version.as_str()).as_str().to_owned()),
    })
}
