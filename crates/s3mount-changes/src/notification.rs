//! The text of a message.
//!
//! S3 writes `{"Records": [...]}`. SNS puts that into the `Message` of an object of its own, unless raw delivery is on.
//! EventBridge writes an object for each event, with another form of it. What a queue gets once its notifications are set
//! up is `{"Event": "s3:TestEvent"}`. MinIO and others write S3's form.
//! Sources: "Event message structure" and "Amazon S3 event message structure" (EventBridge) of S3's user guide.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;
use serde::Deserialize;

/// What has happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A version was uploaded.
    Written,
    /// A version was made by a copy, or restored, or moved to another class: its bytes may be those of the version before.
    Changed,
    /// A version is gone.
    Gone,
}

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The bucket.
    pub bucket: String,
    /// The key.
    pub key: String,
    /// What has happened.
    pub change: Change,
    /// The length in bytes.
    pub size: Option<u64>,
    /// The `ETag`, without quotes.
    pub etag: Option<String>,
    /// When it happened, as RFC 3339 has it.
    pub time: String,
}

/// The text of a message.
#[derive(Debug, Deserialize)]
struct Message {
    #[serde(rename = "Records")]
    records: Option<Vec<serde_json::Value>>,
    #[serde(rename = "Event")]
    event: Option<String>,
    #[serde(rename = "Bucket")]
    bucket: Option<String>,
    #[serde(rename = "Message")]
    message: Option<String>,
    source: Option<String>,
    #[serde(rename = "detail-type")]
    detail_type: Option<String>,
    time: Option<String>,
    detail: Option<Detail>,
}

/// A record of S3.
#[derive(Debug, Deserialize)]
struct Record {
    #[serde(rename = "eventName")]
    event_name: String,
    #[serde(rename = "eventTime", default)]
    event_time: String,
    s3: Detail,
}

/// The bucket and the object that an event is about.
#[derive(Debug, Deserialize)]
struct Detail {
    bucket: Bucket,
    object: Object,
    reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Bucket {
    name: String,
}

#[derive(Debug, Deserialize)]
struct Object {
    key: String,
    size: Option<u64>,
    #[serde(rename = "eTag")]
    e_tag: Option<String>,
    etag: Option<String>,
}

/// What an event of S3 means for names and bytes. `None` for one that changes neither.
fn change_of(event_name: &str) -> Option<Change> {
    let name = event_name.strip_prefix("s3:").unwrap_or(event_name);
    let (kind, how) = name.split_once(':').unwrap_or((name, ""));
    match (kind, how) {
        ("ObjectCreated", "Copy") | ("ObjectRestore" | "LifecycleTransition", _) => Some(Change::Changed),
        ("ObjectCreated", _) => Some(Change::Written),
        ("ObjectRemoved" | "LifecycleExpiration", _) => Some(Change::Gone),
        _ => None,
    }
}

/// As [`change_of`], for EventBridge.
fn bridged_change_of(detail_type: &str, reason: Option<&str>) -> Option<Change> {
    match detail_type {
        "Object Created" if reason == Some("CopyObject") => Some(Change::Changed),
        "Object Created" => Some(Change::Written),
        "Object Deleted" => Some(Change::Gone),
        "Object Restore Completed" | "Object Restore Expired" | "Object Storage Class Changed" => {
            Some(Change::Changed)
        }
        _ => None,
    }
}

/// The key of a record: a space is `+` there, and other characters are encoded as in URLs.
fn decoded(key: &str) -> Option<String> {
    let spaced = key.replace('+', " ");
    percent_decode_str(&spaced).decode_utf8().ok().map(Cow::into_owned)
}

fn key_change(detail: Detail, key: String, change: Change, time: String) -> KeyChange {
    let Object { size, e_tag, etag, .. } = detail.object;
    let etag = e_tag.or(etag).map(|etag| etag.trim_matches('"').to_owned());
    KeyChange { bucket: detail.bucket.name, key, change, size, etag, time }
}

/// The changes that a message tells of, and the buckets that it is about. `None` if it is no notification of a store, so
/// that it is somebody else's.
pub(crate) fn parse(text: &str) -> Option<Parsed> {
    let message: Message = serde_json::from_str(text).ok()?;
    if let Some(inner) = message.message {
        // Only one layer: nobody sends more.
        return (!inner.contains("\"Message\"")).then(|| parse(&inner)).flatten();
    }
    if message.event.as_deref() == Some("s3:TestEvent") {
        return Some(Parsed { buckets: message.bucket.into_iter().collect(), changes: Vec::new() });
    }
    if let Some(records) = message.records {
        // A record that is not understood does not hide the others.
        let records: Vec<Record> =
            records.into_iter().filter_map(|record| serde_json::from_value(record).ok()).collect();
        if records.is_empty() {
            return None;
        }
        let buckets = records.iter().map(|record| record.s3.bucket.name.clone()).collect();
        let changes = records.into_iter().filter_map(|record| {
            let (change, key) = (change_of(&record.event_name)?, decoded(&record.s3.object.key)?);
            Some(key_change(record.s3, key, change, record.event_time))
        });
        return Some(Parsed { buckets, changes: changes.collect() });
    }
    let (Some("aws.s3"), Some(detail), Some(kind)) =
        (message.source.as_deref(), message.detail, message.detail_type)
    else {
        return None;
    };
    let (buckets, key) = (vec![detail.bucket.name.clone()], detail.object.key.clone());
    let change = bridged_change_of(&kind, detail.reason.as_deref());
    let time = message.time.unwrap_or_default();
    let changes = change.map(|change| key_change(detail, key, change, time));
    Some(Parsed { buckets, changes: changes.into_iter().collect() })
}

/// What a message says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Parsed {
    /// The buckets that it is about.
    pub(crate) buckets: Vec<String>,
    /// The changes.
    pub(crate) changes: Vec<KeyChange>,
}

#[cfg(test)]
mod tests {
    use super::{Change, KeyChange, Parsed, parse};

    fn record(event: &str, key: &str) -> String {
        format!(
            r#"{{"Records":[{{"eventVersion":"2.1","eventSource":"aws:s3","awsRegion":"us-east-1","eventTime":"2026-11-28T02:03:04.005Z","eventName":"{event}","s3":{{"s3SchemaVersion":"1.0","bucket":{{"name":"data","arn":"arn:aws:s3:::data"}},"object":{{"key":"{key}","size":7,"eTag":"0123","sequencer":"00"}}}}}}]}}"#
        )
    }

    fn change(key: &str, change: Change) -> KeyChange {
        KeyChange {
            bucket: "data".to_owned(),
            key: key.to_owned(),
            change,
            size: Some(7),
            etag: Some("0123".to_owned()),
            time: "2026-11-28T02:03:04.005Z".to_owned(),
        }
    }

    #[test]
    fn records_of_s3_are_read() {
        for (event, expected) in [
            ("ObjectCreated:Put", Some(Change::Written)),
            ("s3:ObjectCreated:CompleteMultipartUpload", Some(Change::Written)),
            ("ObjectCreated:Copy", Some(Change::Changed)),
            ("ObjectRemoved:Delete", Some(Change::Gone)),
            ("ObjectRemoved:DeleteMarkerCreated", Some(Change::Gone)),
            ("LifecycleExpiration:Delete", Some(Change::Gone)),
            ("ObjectRestore:Completed", Some(Change::Changed)),
            ("ObjectTagging:Put", None),
            ("s3:ObjectAccessed:Get", None),
        ] {
            let changes = expected.map(|expected| change("a/b", expected)).into_iter().collect();
            let parsed = Parsed { buckets: vec!["data".to_owned()], changes };
            assert_eq!(parse(&record(event, "a/b")), Some(parsed), "{event}");
        }
    }

    #[test]
    fn keys_of_records_are_decoded() {
        for (encoded, key) in [
            ("red+flower.jpg", "red flower.jpg"),
            ("a%2Bb%25", "a+b%"),
            ("%C3%A9/%E2%82%AC", "é/€"),
            ("a%26b%3Dc", "a&b=c"),
        ] {
            let parsed = parse(&record("ObjectCreated:Put", encoded)).expect("a notification");
            assert_eq!(parsed.changes, [change(key, Change::Written)]);
        }
        assert_eq!(parse(&record("ObjectCreated:Put", "%FF")).expect("one").changes, [], "no UTF-8");
    }

    #[test]
    fn what_sns_and_eventbridge_make_of_it_is_read_too() {
        let inner = record("ObjectCreated:Put", "a+b");
        let text =
            serde_json::json!({ "Type": "Notification", "TopicArn": "t", "Message": inner }).to_string();
        assert_eq!(parse(&text).expect("one").changes, [change("a b", Change::Written)]);
        let bridged = |kind: &str, reason: &str| {
            serde_json::json!({
                "version": "0", "detail-type": kind, "source": "aws.s3", "time": "2026-11-28T02:03:04.005Z",
                "detail": { "bucket": { "name": "data" }, "object": { "key": "a+b", "size": 7, "etag": "0123" }, "reason": reason }
            })
            .to_string()
        };
        for (kind, reason, expected) in [
            ("Object Created", "PutObject", Change::Written),
            ("Object Created", "CopyObject", Change::Changed),
            ("Object Deleted", "DeleteObject", Change::Gone),
        ] {
            assert_eq!(parse(&bridged(kind, reason)).expect("one").changes, [change("a+b", expected)]);
        }
    }

    #[test]
    fn what_is_no_notification_is_told_apart() {
        let test =
            r#"{"Service":"Amazon S3","Event":"s3:TestEvent","Time":"2026","Bucket":"data","RequestId":"1"}"#;
        assert_eq!(parse(test), Some(Parsed { buckets: vec!["data".to_owned()], changes: Vec::new() }));
        for text in
            ["", "hello", "{}", "[1]", r#"{"Records":[{"a":1}]}"#, r#"{"Message":"hi"}"#, r#"{"detail":{}}"#]
        {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
