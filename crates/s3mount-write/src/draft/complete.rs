//! The end of an upload in parts.

use std::collections::BTreeMap;
use std::time::Duration;

use s3mount_bucket::Failure;
use s3mount_object::{Condition, ErrorKind, ObjectError, Written, WrittenPart};
use tokio::time::sleep;

use super::Draft;
use super::publish::compare;
use crate::WriteError;
use crate::part_states::PartStates;
use crate::state::Begun;
use crate::store::crc_of;

/// How often an upload is completed anew after the store named a part that it does not have.
const MOST_CORRECTIONS: u32 = 3;

/// How often an upload is begun anew because another write of its key was under way when it was to end.
const MOST_CONFLICTS: u32 = 5;

/// The pause before the first of these, which grows with each.
const PAUSE: Duration = Duration::from_millis(500);

/// Whether an upload that could not be completed has to be made anew: it has met another write of its key, or
/// somebody has given it up.
fn is_void(error: &ObjectError) -> bool {
    matches!(error.kind(), ErrorKind::Conflict | ErrorKind::NoSuchUpload)
}

impl Draft {
    /// Publishes by an upload in parts.
    pub(super) async fn put_parts(
        &self,
        key: &str,
        condition: Option<&Condition>,
    ) -> Result<Written, WriteError> {
        let (mut corrections, mut conflicts) = (0, 0);
        loop {
            self.upload_all(true).await?;
            let (begun, parts) = {
                let state = self.state();
                state.check()?;
                let parts: Vec<WrittenPart> =
                    state.part_states.written().map(|(_, part)| part.clone()).collect();
                (state.upload.clone(), parts)
            };
            // Parts were uploaded, so only a draft that was discarded has none.
            let Some(begun) = begun else { return Err(WriteError::Discarded) };
            let (size, sum): (u64, _) = (parts.iter().map(|part| part.len).sum(), crc_of(&parts));
            if size != self.size() {
                // What does not fit the parts would be missing.
                return Err(WriteError::TooLarge { size: self.size() });
            }
            let written = match self.shared.store.complete(&begun.upload, &parts, condition).await {
                Ok(written) => written,
                Err(Failure { error, .. })
                    if *error.kind() == ErrorKind::InvalidPart && corrections < MOST_CORRECTIONS =>
                {
                    corrections += 1;
                    tracing::warn!(key, %error, "the store has other parts than it said");
                    self.correct(&begun).await?;
                    continue;
                }
                Err(Failure { error, .. }) if is_void(&error) && conflicts < MOST_CONFLICTS => {
                    conflicts += 1;
                    tracing::warn!(key, %error, "the upload is begun anew");
                    if !self.begin_anew() && *error.kind() == ErrorKind::NoSuchUpload {
                        return Err(error.into());
                    }
                    sleep(PAUSE * conflicts).await;
                    continue;
                }
                Err(Failure { error, .. }) => return Err(error.into()),
            };
            compare(key, sum, &written)?;
            let mut state = self.state();
            state.upload = None;
            // What was said after the upload had begun is not in its object.
            state.is_described_late = begun.object != state.object;
            drop(state);
            self.shared.ended(&begun.upload);
            return Ok(written);
        }
    }

    /// Forgets the upload, so that all is uploaded anew. False if bytes are in that upload and nowhere else: then
    /// it stays, because the store may take it all the same.
    fn begin_anew(&self) -> bool {
        {
            let mut state = self.state();
            if state.stored(0, state.size()).is_some() {
                return false;
            }
            (state.part_states, state.layout) = (PartStates::default(), None);
        }
        self.give_up_upload();
        true
    }

    /// Compares the parts that the store has with those that it has told of.
    async fn correct(&self, begun: &Begun) -> Result<(), WriteError> {
        let listed = self.shared.store.bucket.list_parts(&begun.upload).await?;
        let mut listed: BTreeMap<u32, WrittenPart> =
            listed.into_iter().map(|part| (part.number, part)).collect();
        let mut state = self.state();
        let known: Vec<WrittenPart> = state.part_states.written().map(|(_, part)| part.clone()).collect();
        for part in known {
            let found = listed.remove(&part.number).filter(|found| {
                let is_same = found.etag == part.etag;
                let has_same_sum = part.checksum.is_some() && found.checksum == part.checksum;
                found.len == part.len && (is_same || has_same_sum)
            });
            let found = found.map(|found| WrittenPart { checksum: part.checksum, ..found });
            if found.is_none()
                && let Some(offset) = state.stored_in(part.number)
            {
                return Err(WriteError::NotReadable { offset });
            }
            state.part_states.correct(part.number, found);
        }
        Ok(())
    }
}
