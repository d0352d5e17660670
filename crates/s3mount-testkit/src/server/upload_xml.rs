//! The XML bodies of answers about uploads, copies and deletions.

use std::fmt::Write as _;
use std::time::SystemTime;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::server::xml::{HEAD, NAMESPACE, escape, url_encode};
use crate::sums::{Kept, Sum};
use crate::uploads::{Part, Upload};

fn date(at: SystemTime) -> String {
    OffsetDateTime::from(at).format(&Rfc3339).unwrap_or_default()
}

fn sum(kept: (Sum, &str)) -> String {
    let (sum, text) = kept;
    format!("<Checksum{0}>{text}</Checksum{0}>", sum.name())
}

fn checksum(kept: Option<&Kept>) -> String {
    kept.map_or_else(String::new, |kept| {
        sum((kept.sum, &kept.text)) + &format!("<ChecksumType>{}</ChecksumType>", kept.kind.name())
    })
}

/// The answer to a CreateMultipartUpload.
pub(crate) fn initiated(bucket: &str, key: &str, id: &str) -> String {
    format!(
        "{HEAD}<InitiateMultipartUploadResult xmlns=\"{NAMESPACE}\"><Bucket>{}</Bucket><Key>{}</Key>\
         <UploadId>{id}</UploadId></InitiateMultipartUploadResult>",
        escape(bucket),
        escape(key)
    )
}

/// The answer to a CompleteMultipartUpload.
pub(crate) fn completed(bucket: &str, key: &str, etag: &str, kept: Option<&Kept>) -> String {
    format!(
        "{HEAD}<CompleteMultipartUploadResult xmlns=\"{NAMESPACE}\"><Bucket>{}</Bucket><Key>{}</Key>\
         <ETag>{}</ETag>{}</CompleteMultipartUploadResult>",
        escape(bucket),
        escape(key),
        escape(etag),
        checksum(kept)
    )
}

/// The answer to a CopyObject.
pub(crate) fn copied(root: &str, etag: &str, modified: SystemTime, kept: Option<&Kept>) -> String {
    format!(
        "{HEAD}<{root} xmlns=\"{NAMESPACE}\"><LastModified>{}</LastModified><ETag>{}</ETag>{}</{root}>",
        date(modified),
        escape(etag),
        checksum(kept)
    )
}

/// The answer to an UploadPartCopy.
pub(crate) fn copied_part(tag: &str, modified: SystemTime, kept: (Sum, &str)) -> String {
    format!(
        "{HEAD}<CopyPartResult xmlns=\"{NAMESPACE}\"><LastModified>{}</LastModified>\
         <ETag>&quot;{tag}&quot;</ETag>{}</CopyPartResult>",
        date(modified),
        sum(kept)
    )
}

/// The answer to a ListMultipartUploads.
pub(crate) fn uploads(
    bucket: &str,
    prefix: &str,
    page: &[(&str, &str, &Upload)],
    has_more: bool,
    url: bool,
) -> String {
    let name = |text: &str| if url { url_encode(text) } else { escape(text) };
    let mut xml = format!(
        "{HEAD}<ListMultipartUploadsResult xmlns=\"{NAMESPACE}\"><Bucket>{}</Bucket><Prefix>{}</Prefix>\
         <IsTruncated>{has_more}</IsTruncated>",
        escape(bucket),
        name(prefix)
    );
    if url {
        xml.push_str("<EncodingType>url</EncodingType>");
    }
    if let Some((key, id, _)) = page.last().filter(|_| has_more) {
        // Writing to a string can't fail.
        let _ = write!(
            xml,
            "<NextKeyMarker>{}</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>",
            name(key)
        );
    }
    for (key, id, upload) in page {
        let _ = write!(
            xml,
            "<Upload><Key>{}</Key><UploadId>{id}</UploadId><StorageClass>{}</StorageClass>\
             <Initiated>{}</Initiated></Upload>",
            name(key),
            upload.beside.storage_class.as_deref().unwrap_or("STANDARD"),
            date(upload.initiated)
        );
    }
    xml + "</ListMultipartUploadsResult>"
}

/// The answer to a ListParts.
pub(crate) fn parts(
    bucket: &str,
    key: &str,
    id: &str,
    kind: Sum,
    page: &[(&u32, &Part)],
    has_more: bool,
) -> String {
    let mut xml = format!(
        "{HEAD}<ListPartsResult xmlns=\"{NAMESPACE}\"><Bucket>{}</Bucket><Key>{}</Key>\
         <UploadId>{id}</UploadId><IsTruncated>{has_more}</IsTruncated>",
        escape(bucket),
        escape(key)
    );
    if let Some((number, _)) = page.last().filter(|_| has_more) {
        let _ = write!(xml, "<NextPartNumberMarker>{number}</NextPartNumberMarker>");
    }
    for (number, part) in page {
        let _ = write!(
            xml,
            "<Part><PartNumber>{number}</PartNumber><ETag>&quot;{}&quot;</ETag><Size>{}</Size>\
             <LastModified>{}</LastModified>{}</Part>",
            part.tag,
            part.len,
            date(part.modified),
            sum((kind, &part.value.base64()))
        );
    }
    xml + "</ListPartsResult>"
}

/// The answer to a DeleteObjects.
pub(crate) fn deleted(results: &[(String, Result<(), &'static str>)], is_quiet: bool) -> String {
    let mut xml = format!("{HEAD}<DeleteResult xmlns=\"{NAMESPACE}\">");
    for (key, result) in results {
        let key = escape(key);
        let _ = match result {
            Ok(()) if is_quiet => Ok(()),
            Ok(()) => write!(xml, "<Deleted><Key>{key}</Key></Deleted>"),
            Err(code) => {
                write!(xml, "<Error><Key>{key}</Key><Code>{code}</Code><Message>{code}</Message></Error>")
            }
        };
    }
    xml + "</DeleteResult>"
}

/// The answer to a GetObjectTagging.
pub(crate) fn tagging(tags: &str) -> String {
    let decode = |text: &str| {
        let text = text.replace('+', " ");
        escape(&percent_encoding::percent_decode_str(&text).decode_utf8_lossy())
    };
    let tags: String = tags
        .split('&')
        .filter(|tag| !tag.is_empty())
        .map(|tag| tag.split_once('=').unwrap_or((tag, "")))
        .map(|(key, value)| format!("<Tag><Key>{}</Key><Value>{}</Value></Tag>", decode(key), decode(value)))
        .collect();
    format!("{HEAD}<Tagging xmlns=\"{NAMESPACE}\"><TagSet>{tags}</TagSet></Tagging>")
}
