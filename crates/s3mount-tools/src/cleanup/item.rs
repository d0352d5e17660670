//! What is said of one upload, or of one rename.

use std::time::UNIX_EPOCH;

use s3mount_object::{ListedUpload, ObjectError};
use s3mount_system::terminal;
use s3mount_write::{Intent, MoveError, Owner, Record, Recovered, Sides};
use serde::Serialize;

/// What was found, and what became of it.
#[derive(Debug, Default, Serialize)]
pub(super) struct Item {
    kind: &'static str,
    bucket: String,
    /// The key of an upload, or the prefix that a folder had.
    key: String,
    /// The prefix that a folder was to get.
    #[serde(skip_serializing_if = "Option::is_none")]
    to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upload_id: Option<String>,
    /// Seconds since 1970.
    begun: u64,
    /// The process that has left it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    /// `aborted`, `nothing`, `unsure`, `undone`, `finished` or `failed`.
    state: &'static str,
    /// Whether nothing was changed.
    dry_run: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    deleted: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<usize>,
    /// Of an upload whose name was lost: those that it may be.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    candidates: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

impl Item {
    /// What became of a record.
    pub(super) fn new(
        owner: &Owner,
        record: &Record,
        recovered: &Result<Recovered, MoveError>,
        dry_run: bool,
    ) -> Self {
        let (kind, key, to, upload_id) = match &record.intent {
            Intent::Upload { key, id } => ("upload", key, None, id.clone()),
            Intent::Rename { from, to, .. } => ("rename", from, Some(to.clone()), None),
        };
        let sides = |Sides { deleted, kept }: &Sides| (Some(*deleted), Some(*kept));
        let (state, (deleted, kept)) = match recovered {
            Ok(Recovered::Aborted) => ("aborted", (None, None)),
            Ok(Recovered::Nothing) => ("nothing", (None, None)),
            Ok(Recovered::Unsure(_)) => ("unsure", (None, None)),
            Ok(Recovered::Undone(both)) => ("undone", sides(both)),
            Ok(Recovered::Finished(both)) => ("finished", sides(both)),
            Err(_) => ("failed", (None, None)),
        };
        let candidates = match recovered {
            Ok(Recovered::Unsure(listed)) => listed.iter().map(|listed| listed.upload.id.clone()).collect(),
            _ => Vec::new(),
        };
        Self {
            kind,
            bucket: owner.store.bucket.clone(),
            key: key.clone(),
            to,
            upload_id,
            begun: record.since,
            pid: Some(owner.pid),
            state,
            dry_run,
            deleted,
            kept,
            candidates,
            error: recovered.as_ref().err().map(ToString::to_string),
        }
    }

    /// What became of an upload that is in no journal.
    pub(super) fn of_upload(
        bucket: &str,
        listed: &ListedUpload,
        aborted: Result<(), ObjectError>,
        dry_run: bool,
    ) -> Self {
        Self {
            kind: "upload",
            bucket: bucket.to_owned(),
            key: listed.upload.key.clone(),
            upload_id: Some(listed.upload.id.clone()),
            begun: listed.initiated.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            state: if aborted.is_ok() { "aborted" } else { "failed" },
            dry_run,
            error: aborted.err().map(|error| error.to_string()),
            ..Self::default()
        }
    }

    /// Whether nothing is left to be done.
    pub(super) fn is_over(&self) -> bool {
        !self.dry_run && !matches!(self.state, "unsure" | "failed")
    }

    /// Prints it.
    pub(super) fn print(&self, json: bool) {
        if json {
            // It has no part that JSON lacks.
            let _ = terminal::json(self);
            return;
        }
        terminal::result(&terminal::plain(&self.text()));
    }

    fn text(&self) -> String {
        let Self { bucket, key, dry_run, .. } = self;
        let (upload, would) =
            (format!("the upload of s3://{bucket}/{key}"), if *dry_run { "would be " } else { "" });
        let id = self.upload_id.as_deref().unwrap_or("unknown id");
        let to = self.to.as_deref().unwrap_or_default();
        let rename = format!("the rename of s3://{bucket}/{key} to {to}");
        let (deleted, kept) = (self.deleted.unwrap_or(0), self.kept.unwrap_or(0));
        let rest = |where_: &str| match kept {
            0 => String::new(),
            kept => {
                format!("; {kept} objects in {where_} stay, because their twins are not on the other side")
            }
        };
        match (self.state, self.kind) {
            ("aborted", _) => format!("{would}aborted: {upload} ({id})"),
            ("nothing", _) => format!("nothing is left of {upload}"),
            ("unsure", _) => format!(
                "left alone: {upload}. Its id was lost. It may be one of {}, which other programs may have begun; \
                 `s3mount cleanup s3://{bucket}/{key} --all --older-than TIME` aborts them",
                self.candidates.join(", ")
            ),
            ("undone", _) => format!("{would}undone: {rename}, {deleted} copies deleted{}", rest(to)),
            ("finished", _) => {
                format!("{would}finished: {rename}, {deleted} old objects deleted{}", rest(key))
            }
            (_, "rename") => format!("failed: {rename}: {}", self.error.as_deref().unwrap_or_default()),
            _ => format!("failed: {upload} ({id}): {}", self.error.as_deref().unwrap_or_default()),
        }
    }
}
