//! The XML of uploads and copies.

use std::fmt::Write as _;
use std::time::SystemTime;

use quick_xml::escape::escape;
use s3mount_object::{
    ChecksumAlgorithm, ListedUpload, ObjectChecksum, UploadId, UploadsPage, Written, WrittenPart,
    WrittenParts,
};

use crate::encoding::{decode, encode};
use crate::xml::{XmlError, date, etag, walk};

/// The body of CompleteMultipartUpload, for an upload with checksums or one without.
pub(crate) fn complete_body(parts: &[WrittenPart], has_checksums: bool) -> String {
    let mut xml = String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for part in parts {
        let (etag, number) = (escape(part.etag.as_str()), part.number);
        let checksum = part.checksum.filter(|_| has_checksums);
        // Writing to a string can't fail.
        let _ = write!(xml, "<Part>{}<ETag>{etag}</ETag>", checksum.map(element).unwrap_or_default());
        let _ = write!(xml, "<PartNumber>{number}</PartNumber></Part>");
    }
    xml + "</CompleteMultipartUpload>"
}

/// The element of a part's CRC. S3 does not ask for it where it has one of the whole object. Others do.
fn element(checksum: ObjectChecksum) -> String {
    let name = match checksum.algorithm {
        ChecksumAlgorithm::Crc64Nvme => "ChecksumCRC64NVME",
        ChecksumAlgorithm::Crc32c => "ChecksumCRC32C",
        ChecksumAlgorithm::Crc32 => "ChecksumCRC32",
    };
    format!("<{name}>{}</{name}>", checksum.to_base64())
}

/// The names of an element below the root, and the root's own name.
fn below(path: &[String]) -> (&str, Vec<&str>) {
    let root = path.first().map_or("", String::as_str);
    (root, path.iter().skip(1).map(String::as_str).collect())
}

/// The CRC in an element, if it is one of a CRC. A checksum of checksums is none: it ends in `-` and a number.
fn crc(name: &str, text: &str) -> Option<ObjectChecksum> {
    let algorithm = match name {
        "ChecksumCRC64NVME" => ChecksumAlgorithm::Crc64Nvme,
        "ChecksumCRC32C" => ChecksumAlgorithm::Crc32c,
        "ChecksumCRC32" => ChecksumAlgorithm::Crc32,
        _ => return None,
    };
    ObjectChecksum::from_base64(algorithm, text.trim())
}

/// Parses the answer to a CreateMultipartUpload.
pub(crate) fn upload_id(xml: &[u8]) -> Result<String, XmlError> {
    let mut id = None;
    walk(xml, |path, text| {
        if let ("InitiateMultipartUploadResult", names) = below(path)
            && names == ["UploadId"]
        {
            id = Some(text.to_owned()).filter(|id| !id.is_empty());
        }
        Ok(())
    })?;
    id.ok_or(XmlError::Missing("UploadId"))
}

/// Parses the answer to a CompleteMultipartUpload.
pub(crate) fn written(xml: &[u8]) -> Result<Written, XmlError> {
    result("CompleteMultipartUploadResult", xml)
}

/// Parses the answer to a CopyObject or an UploadPartCopy.
pub(crate) fn copy_result(xml: &[u8]) -> Result<Written, XmlError> {
    result("CopyObjectResult", xml).or_else(|_| result("CopyPartResult", xml))
}

fn result(wanted: &str, xml: &[u8]) -> Result<Written, XmlError> {
    let (mut version, mut checksum) = (None, None);
    walk(xml, |path, text| {
        match below(path) {
            (root, names) if root == wanted && names == ["ETag"] => {
                version = Some(text.trim()).filter(|text| !text.is_empty()).map(etag);
            }
            (root, names) if root == wanted && names.len() == 1 => {
                checksum = crc(names[0], text).or(checksum);
            }
            _ => {}
        }
        Ok(())
    })?;
    let etag = version.ok_or(XmlError::Missing("ETag"))?;
    Ok(Written { etag, checksum, may_come_again: false })
}

/// Parses one page of a ListMultipartUploads.
pub(crate) fn uploads_page(xml: &[u8]) -> Result<UploadsPage, XmlError> {
    let mut page = UploadsPage::default();
    let (mut key, mut id, mut initiated) = (String::new(), String::new(), SystemTime::UNIX_EPOCH);
    let (mut next_key, mut next_id) = (String::new(), String::new());
    let (mut truncated, mut encoded, mut is_page) = (false, false, false);
    walk(xml, |path, text| {
        let (root, names) = below(path);
        match names[..] {
            [] => is_page = root == "ListMultipartUploadsResult",
            ["IsTruncated"] => truncated = text.trim().eq_ignore_ascii_case("true"),
            ["NextKeyMarker"] => text.clone_into(&mut next_key),
            ["NextUploadIdMarker"] => text.clone_into(&mut next_id),
            ["EncodingType"] => encoded = text.trim().eq_ignore_ascii_case("url"),
            ["Upload", "Key"] => text.clone_into(&mut key),
            ["Upload", "UploadId"] => text.clone_into(&mut id),
            ["Upload", "Initiated"] => initiated = date(text),
            ["Upload"] => {
                let upload = UploadId { key: std::mem::take(&mut key), id: std::mem::take(&mut id) };
                page.uploads.push(ListedUpload { upload, initiated });
            }
            _ => {}
        }
        Ok(())
    })?;
    if !is_page {
        return Err(XmlError::Missing("ListMultipartUploadsResult"));
    }
    if encoded {
        page.uploads.iter_mut().for_each(|listed| listed.upload.key = decode(&listed.upload.key));
        next_key = decode(&next_key);
    }
    page.next = truncated.then_some(UploadId { key: next_key, id: next_id });
    Ok(page)
}

/// Parses the answer to a GetObjectTagging: the tags as the query of a URL, if there are any.
pub(crate) fn tags(xml: &[u8]) -> Result<Option<String>, XmlError> {
    let (mut tags, mut key, mut value, mut is_answer) = (Vec::new(), String::new(), String::new(), false);
    walk(xml, |path, text| {
        let (root, names) = below(path);
        match names[..] {
            [] => is_answer = root == "Tagging",
            ["TagSet", "Tag", "Key"] => text.clone_into(&mut key),
            ["TagSet", "Tag", "Value"] => text.clone_into(&mut value),
            ["TagSet", "Tag"] => {
                tags.push(format!("{}={}", encode(&key), encode(&value)));
                (key, value) = (String::new(), String::new());
            }
            _ => {}
        }
        Ok(())
    })?;
    if !is_answer {
        return Err(XmlError::Missing("Tagging"));
    }
    Ok(Some(tags.join("&")).filter(|tags| !tags.is_empty()))
}

/// Parses one page of a ListParts.
pub(crate) fn parts_page(xml: &[u8]) -> Result<WrittenParts, XmlError> {
    let (mut parts, mut next, mut truncated, mut is_page) = (Vec::new(), None, false, false);
    let (mut number, mut tag, mut len, mut checksum) = (0, String::new(), 0, None);
    walk(xml, |path, text| {
        let (root, names) = below(path);
        let bad = |name| XmlError::BadValue(name, text.to_owned());
        match names[..] {
            // moto calls it a response.
            [] => is_page = root.starts_with("ListParts"),
            ["IsTruncated"] => truncated = text.trim().eq_ignore_ascii_case("true"),
            ["NextPartNumberMarker"] => next = text.trim().parse().ok(),
            ["Part", "PartNumber"] => number = text.trim().parse().map_err(|_| bad("PartNumber"))?,
            ["Part", "ETag"] => text.clone_into(&mut tag),
            ["Part", "Size"] => len = text.trim().parse().map_err(|_| bad("Size"))?,
            ["Part"] => parts.push(WrittenPart { number, etag: etag(&tag), len, checksum: checksum.take() }),
            ["Part", name] => checksum = crc(name, text).or(checksum),
            _ => {}
        }
        Ok(())
    })?;
    if !is_page {
        return Err(XmlError::Missing("ListPartsResult"));
    }
    let next = next.or(parts.last().map(|part: &WrittenPart| part.number)).filter(|_| truncated);
    Ok(WrittenParts { parts, next })
}

#[cfg(test)]
mod tests {
    use s3mount_object::{ETag, UploadId, WrittenPart};

    use super::{complete_body, copy_result, parts_page, tags, upload_id, uploads_page, written};

    #[test]
    fn reads_what_was_written() {
        let xml = b"<CompleteMultipartUploadResult><Location>x</Location><ETag>&quot;ab-2&quot;</ETag>\
            <ChecksumCRC64NVME>rosUhgp5mIg=</ChecksumCRC64NVME></CompleteMultipartUploadResult>";
        let whole = written(xml).expect("an answer");
        assert_eq!(whole.etag.as_str(), "\"ab-2\"");
        assert_eq!(whole.checksum.map(|checksum| checksum.value), Some(0xae8b_1486_0a79_9888));
        let copied = copy_result(b"<CopyPartResult><ETag>ab</ETag></CopyPartResult>").expect("an answer");
        assert_eq!((copied.etag.as_str(), copied.checksum), ("\"ab\"", None));
        let id = upload_id(
            b"<InitiateMultipartUploadResult><UploadId>u 1</UploadId></InitiateMultipartUploadResult>",
        );
        assert_eq!(id.expect("an answer"), "u 1");
        for odd in [&b""[..], b"<Error><Code>InternalError</Code><ETag>x</ETag></Error>", b"<html/>"] {
            assert!(written(odd).is_err() && copy_result(odd).is_err() && upload_id(odd).is_err());
            assert!(uploads_page(odd).is_err() && parts_page(odd).is_err());
        }
    }

    #[test]
    fn reads_pages() {
        let page = uploads_page(
            b"<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>\
              <NextKeyMarker>a+b</NextKeyMarker><NextUploadIdMarker>2</NextUploadIdMarker><Upload>\
              <Key>a+b</Key><UploadId>2</UploadId><Initiated>1970-01-01T00:00:09.000Z</Initiated></Upload>\
              </ListMultipartUploadsResult>",
        );
        let page = page.expect("a page");
        let upload = UploadId { key: "a b".into(), id: "2".into() };
        assert_eq!((&page.uploads[0].upload, page.next.as_ref()), (&upload, Some(&upload)));
        let since = page.uploads[0].initiated.duration_since(std::time::SystemTime::UNIX_EPOCH);
        assert_eq!(since.expect("later").as_secs(), 9);
        let page = parts_page(
            b"<ListPartsResult><IsTruncated>true</IsTruncated><Part><PartNumber>7</PartNumber><Size>5</Size>\
              <ETag>x</ETag><ChecksumCRC64NVME>rosUhgp5mIg=</ChecksumCRC64NVME></Part></ListPartsResult>",
        );
        let page = page.expect("a page");
        assert_eq!((page.parts[0].number, page.parts[0].len, page.next), (7, 5, Some(7)));
        assert!(page.parts[0].checksum.is_some());
    }

    #[test]
    fn reads_tags() {
        let xml = b"<Tagging><TagSet><Tag><Key>a b</Key><Value>1&amp;2</Value></Tag><Tag><Key>c</Key>\
            <Value></Value></Tag></TagSet></Tagging>";
        assert_eq!(tags(xml).expect("tags").as_deref(), Some("a%20b=1%262&c="));
        assert_eq!(tags(b"<Tagging><TagSet/></Tagging>").expect("none"), None);
        assert!(tags(b"<html/>").is_err() && tags(b"").is_err());
    }

    #[test]
    fn names_the_parts() {
        let etag = ETag::new("\"a&b\"");
        let body = complete_body(&[WrittenPart { number: 3, etag, len: 1, checksum: None }], true);
        assert!(body.contains("<Part><ETag>&quot;a&amp;b&quot;</ETag><PartNumber>3</PartNumber></Part>"));
    }
}
