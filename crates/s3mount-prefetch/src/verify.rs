//! Compares whole objects with the store's checksums of them.
//!
//! A store sends no checksum with a range. So the CRC of each range is computed when the range lands. When every byte
//! of a version has been fetched, the combined CRC of all ranges is compared with the store's. The range that completes
//! the object waits for the comparison. So a reader that receives all bytes receives the right ones, or an error.
//!
//! Of an object that was uploaded in parts, the store may keep CRCs of the parts instead. Each part is
//! compared when all of its bytes have come. If it came in one GET, no reader has seen it yet, and it is
//! fetched again when it is wrong.

use std::error::Error;
use std::sync::Arc;

use bytes::Bytes;
use s3mount_memory::Buffer;
use s3mount_object::{
    ByteRange, ChecksumAlgorithm, ErrorKind, KeptChecksum, ObjectChecksum, ObjectError, ObjectId,
};
use tokio::time::{Instant, timeout_at};

use crate::ReadError;
use crate::fetch::{Failure, Place, Wanted, fetch, from_nearest, in_time};
use crate::shared::Shared;
use crate::sums::crc_map::{CrcMap, Noted, Sums};
use crate::sums::ledger::{Kept, Ledger, Verification};
use crate::sums::upload_parts::{MOST_PARTS, UploadParts};
use crate::sync::{lock, spawn};
use crate::version::Version;

/// The store is asked for a checksum when this many bytes of an object, or all of it, have been requested. A reader of
/// headers alone does not pay for the request. One that goes on has the answer long before the last range.
const ASK_AFTER: u64 = 8 << 20;

/// The most extra bytes that are fetched with a range that was fetched before in other pieces. Objects of up to 2 GiB
/// have no longer pieces.
const MOST_BESIDE: u64 = 2 << 20;

/// The most times that a range is fetched when its bytes are wrong.
const TRIES: u32 = 3;

/// Compares one object version with its checksum.
#[derive(Debug)]
pub(crate) struct Verifier {
    version: Arc<Version>,
    ledger: Arc<Ledger>,
}

impl Verifier {
    /// A verifier of `version`, with what is known of it.
    pub(crate) fn new(version: Arc<Version>, ledger: Arc<Ledger>) -> Self {
        // The disk may not have known the version when it was compared.
        if let (Some(disk), Some(right)) = (&version.disk, lock(&ledger.state).right) {
            disk.confirm(right);
        }
        Self { version, ledger }
    }

    /// Fetches as [`fetch`] does, and compares the bytes: with the same range if it was fetched before, and the whole
    /// object with its checksum if this range completes it.
    async fn fetch(
        self: &Arc<Self>,
        shared: &Arc<Shared>,
        range: ByteRange,
        mut buffer: Option<Buffer>,
        wanted: &dyn Wanted,
    ) -> Result<Bytes, Failure> {
        let mut at_once = None;
        if self.comes_compared(range) {
            let came = from_nearest(shared, &self.version, range, buffer.take(), wanted).await?;
            if self.was_compared(came.from) {
                return Ok(came.bytes);
            }
            at_once = Some(came);
        }
        self.ask_in_time(shared, range.len());
        let wide = self.widen(shared, range);
        // A wider range needs another buffer; this one must not be held meanwhile.
        buffer = buffer.filter(|_| wide == range);
        for tries in 1.. {
            let came = match at_once.take().filter(|_| wide == range) {
                Some(came) => came,
                None => from_nearest(shared, &self.version, wide, buffer.take(), wanted).await?,
            };
            let bytes = came.bytes;
            let error = match self.note(shared, wide, &bytes) {
                Some((then, now)) => ReadError::Changed { then, now },
                None => match self.compare(shared, wide, wanted).await {
                    None => {
                        let index = |at: u64| usize::try_from(at - wide.start()).unwrap_or(usize::MAX);
                        return Ok(bytes.slice(index(range.start())..index(range.end())));
                    }
                    Some(wrong) if tries < TRIES && self.is_unseen(&wrong, wide) => wrong.error,
                    Some(wrong) => return Err(wrong.error.into()),
                },
            };
            let (key, version) = (self.version.object.key(), self.version.object.etag());
            tracing::warn!(key, %version, %range, %error, "wrong bytes came: they are fetched again");
            if tries == TRIES {
                return Err(error.into());
            }
            // A tier may already hold the wrong bytes.
            shared.tiers.distrust(&self.version.object);
            shared.metrics.refetches.inc();
        }
        unreachable!("the last try returns")
    }

    /// Whether a GET of `range` brings the checksum of its bytes, which the client compares. A GET of a whole object
    /// does, except for objects uploaded in parts: the store may keep only the CRCs of the parts. Places other than the
    /// store send no checksum.
    fn comes_compared(&self, range: ByteRange) -> bool {
        range.len() == self.version.size && !self.version.object.etag().as_str().contains('-')
    }

    /// Whether all bytes of the object that came `from` a place were compared with the store's checksum. The disk's
    /// note covers only bytes from the disk: the disk may be off by now, so that another place brought them.
    fn was_compared(&self, from: Place) -> bool {
        match from {
            Place::Store => true,
            Place::Disk => self.version.disk.as_ref().is_some_and(|disk| disk.is_compared()),
            Place::Shared => false,
        }
    }

    /// The parts in which the object was uploaded, once they are known, if each has a CRC.
    pub(crate) fn parts(&self) -> Option<&UploadParts> {
        match self.ledger.kept.get() {
            Some(Kept::Parts(parts)) => Some(parts),
            Some(Kept::Nothing | Kept::Whole(_)) | None => None,
        }
    }

    /// `range` with the rest of the pieces in which it begins and ends, so that it can be compared with them. If that
    /// is much longer, returns `range` unchanged.
    fn widen(&self, shared: &Shared, range: ByteRange) -> ByteRange {
        let wide = lock(&self.ledger.state).pieces.as_ref().map_or(range, |pieces| pieces.widen(range));
        let most = (shared.pool.max_buffer_bytes() as u64).min(range.len() + MOST_BESIDE);
        if wide.len() <= most { wide } else { range }
    }

    /// Asks the store for the checksum in the background, once enough of the object has been requested.
    fn ask_in_time(self: &Arc<Self>, shared: &Arc<Shared>, len: u64) {
        let enough = self.version.size.min(ASK_AFTER);
        let mut state = lock(&self.ledger.state);
        let before = state.asked_bytes;
        state.asked_bytes = before.saturating_add(len);
        if before < enough && state.asked_bytes >= enough {
            let (me, asker) = (self.clone(), shared.clone());
            spawn(&shared.runtime, async move {
                me.kept(&asker).await;
            });
        }
    }

    /// Notes the CRCs of a range. If the range had another CRC before, returns both, the earlier one first.
    fn note(
        &self,
        shared: &Shared,
        range: ByteRange,
        bytes: &[u8],
    ) -> Option<(ObjectChecksum, ObjectChecksum)> {
        let only = match self.ledger.kept.get() {
            Some(Kept::Nothing) => return None,
            Some(Kept::Whole(kept)) => Some(kept.algorithm),
            Some(Kept::Parts(parts)) => Some(parts.algorithm()),
            None => None,
        };
        let cuts = lock(&self.ledger.state).pieces.as_ref()?.cut(range);
        // The lock is not held here: this takes 0.7 ms for 8 MiB.
        let sum = |cut: ByteRange| {
            let index = |at: u64| usize::try_from(at - range.start()).unwrap_or(usize::MAX);
            let bytes = &bytes[index(cut.start())..index(cut.end())];
            let sums = Sums::of(bytes, only);
            (cut, if self.version.disk.is_some() { sums.with_crc64(bytes) } else { sums })
        };
        let sums: Vec<_> = cuts.into_iter().map(sum).collect();
        let mut state = lock(&self.ledger.state);
        for (cut, sums) in sums {
            let budget = shared.pool.budget();
            let has_room = state.make_room(budget) || {
                shared.ledgers.clear();
                state.make_room(budget)
            };
            match state.pieces.as_mut()?.note(cut, sums) {
                Noted::Differs(then, now) => return Some((then, now)),
                Noted::Fine if has_room => {}
                Noted::Fine | Noted::TooMany => {
                    state.give_up();
                    shared.metrics.objects_unverified.inc();
                    tracing::debug!(object = ?self.version.object, "the object is read in too many pieces to be verified");
                }
            }
        }
        None
    }

    /// Compares what `range` has completed: the object, or parts of it. The GET that completes the object waits for the
    /// store's checksum.
    async fn compare(&self, shared: &Shared, range: ByteRange, wanted: &dyn Wanted) -> Option<Wrong> {
        let kept = match self.ledger.kept.get() {
            Some(kept) => kept,
            None => {
                let is_whole = |pieces: &CrcMap| pieces.is_whole();
                if !lock(&self.ledger.state).pieces.as_ref().is_some_and(is_whole) {
                    return None;
                }
                // The store was asked long ago, but the read's time-out still applies.
                timeout_at(wanted.deadline(), self.kept(shared)).await.ok()?
            }
        };
        match kept {
            Kept::Whole(kept) => self.compare_whole(shared, *kept),
            Kept::Parts(parts) => self.compare_parts(shared, parts, range),
            Kept::Nothing => None,
        }
    }

    fn compare_whole(&self, shared: &Shared, kept: ObjectChecksum) -> Option<Wrong> {
        let mut state = lock(&self.ledger.state);
        if !state.was_right.is_empty() {
            return None;
        }
        // This CRC exists, because all of them are computed until the store has named one.
        let sums = state.pieces.as_ref().and_then(CrcMap::whole)?;
        let came = sums.get(kept.algorithm);
        if came != kept {
            let error = ReadError::Corrupt { kept, came };
            return Some(Wrong { ranges: vec![ByteRange::new(0, self.version.size)], error });
        }
        state.was_right.push(true);
        shared.metrics.objects_verified.inc();
        self.confirm(&mut state, &sums);
        None
    }

    /// Compares the parts whose last bytes `range` has brought. The first time, it compares all complete parts.
    fn compare_parts(&self, shared: &Shared, parts: &UploadParts, range: ByteRange) -> Option<Wrong> {
        let state = &mut *lock(&self.ledger.state);
        let is_first = state.was_right.is_empty();
        state.was_right.resize(parts.count(), false);
        let pieces = state.pieces.as_ref()?;
        let (mut error, mut ranges) = (None, Vec::new());
        let completed = parts.touching(if is_first { ByteRange::new(0, self.version.size) } else { range });
        for index in completed {
            let (range, kept) = (parts.range(index), parts.checksum(index));
            let sums = (!state.was_right[index]).then(|| pieces.of(range)).flatten();
            let Some(came) = sums.map(|sums| sums.get(kept.algorithm)) else { continue };
            if came == kept {
                state.was_right[index] = true;
            } else {
                ranges.push(range);
                error.get_or_insert(ReadError::CorruptPart { part: index + 1, range, kept, came });
            }
        }
        let is_complete = error.is_none() && state.was_right.iter().all(|right| *right);
        if is_complete && !std::mem::replace(&mut state.was_counted, true) {
            shared.metrics.objects_verified.inc();
            if let Some(sums) = pieces.whole() {
                self.confirm(state, &sums);
            }
        }
        error.map(|error| Wrong { ranges, error })
    }

    /// Tells the disk the CRC of the version's right bytes, to compare its own bytes with.
    fn confirm(&self, state: &mut Verification, sums: &Sums) {
        if let Some(disk) = &self.version.disk {
            let right = sums.get(ChecksumAlgorithm::Crc64Nvme).value;
            state.right = Some(right);
            disk.confirm(right);
        }
    }

    /// Whether all wrong bytes came by the GET of `range`, which has just landed, and never before. Then no
    /// reader has seen them, and their CRCs are forgotten.
    fn is_unseen(&self, wrong: &Wrong, range: ByteRange) -> bool {
        let is_in = wrong.ranges.iter().all(|wrong| range.covers(*wrong));
        // `forget` must run for each of them.
        is_in && wrong.ranges.iter().filter(|wrong| !self.forget(**wrong)).count() == 0
    }

    /// The store's checksums. Asks the store once.
    async fn kept(&self, shared: &Shared) -> &Kept {
        let ask = || async {
            let kept = ask(shared, &self.version.object, self.version.size).await;
            let state = &mut *lock(&self.ledger.state);
            let is_all = match (&kept, &mut state.pieces) {
                (Kept::Nothing, _) => {
                    state.give_up();
                    false
                }
                // Ranges that came before the answer were not cut at the parts' ends.
                (Kept::Parts(parts), Some(pieces)) => !pieces.set_parts(parts.clone()),
                (Kept::Parts(_) | Kept::Whole(_), _) => true,
            };
            if !is_all {
                shared.metrics.objects_unverified.inc();
                state.was_counted = true;
            }
            kept
        };
        self.ledger.kept.get_or_init(ask).await
    }

    /// Forgets the CRCs in `range` of bytes that were fetched only once, because the range will be fetched again.
    /// Returns whether all of its bytes are forgotten.
    fn forget(&self, range: ByteRange) -> bool {
        lock(&self.ledger.state).pieces.as_mut().is_none_or(|pieces| pieces.forget(range))
    }
}

/// Bytes that differ from the store's.
struct Wrong {
    /// The object, or each part that is wrong.
    ranges: Vec<ByteRange>,
    /// The error of the first of them.
    error: ReadError,
}

/// Asks the store for the checksums of `object`, until the read time-out.
async fn ask(shared: &Shared, object: &ObjectId, size: u64) -> Kept {
    let deadline = Instant::now() + shared.config.read_timeout;
    let result = shared.bucket.until(deadline).checksum(object).await;
    let result = match result {
        Ok(KeptChecksum::None) => return Kept::Nothing,
        Ok(KeptChecksum::Whole(whole)) => return Kept::Whole(whole),
        Ok(KeptChecksum::OfParts) => ask_parts(shared, object, size, deadline).await,
        Err(error) => Err(error),
    };
    match result {
        Ok(kept) => return kept,
        // This needs a different permission than reading the object.
        Err(error) if *error.kind() == ErrorKind::Forbidden => {
            tracing::debug!(%error, "no permission to read the checksums of the upload's parts: the object is not verified");
        }
        Err(error) => tracing::warn!(
            error = &error as &dyn Error,
            "the checksum could not be read: the object is not verified"
        ),
    }
    Kept::Nothing
}

/// Asks for the CRCs of the parts in which `object` was uploaded, page by page.
async fn ask_parts(
    shared: &Shared,
    object: &ObjectId,
    size: u64,
    deadline: Instant,
) -> Result<Kept, ObjectError> {
    let (mut parts, mut after) = (Vec::new(), 0);
    loop {
        let page = shared.bucket.until(deadline).upload_parts(object, after).await?;
        parts.extend(page.parts);
        match page.next.filter(|next| *next > after && parts.len() < MOST_PARTS) {
            Some(next) => after = next,
            None => break,
        }
    }
    Ok(UploadParts::new(size, &parts).map_or(Kept::Nothing, |parts| Kept::Parts(Arc::new(parts))))
}

/// Fetches as [`fetch`] does, through the object's verifier if it has one.
pub(crate) async fn fetch_by(
    verifier: Option<&Arc<Verifier>>,
    shared: &Arc<Shared>,
    version: &Version,
    range: ByteRange,
    buffer: Option<Buffer>,
    wanted: &dyn Wanted,
) -> Result<Bytes, Failure> {
    match verifier {
        Some(verifier) => in_time(shared, wanted, verifier.fetch(shared, range, buffer, wanted)).await,
        None => Ok(fetch(shared, version, range, buffer, wanted).await?.bytes),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use s3mount_cache::{DiskCache, DiskConfig};
    use s3mount_object::{ByteRange, ETag, ObjectId};

    use super::Verifier;
    use crate::fetch::Place;
    use crate::sums::ledger::Ledgers;
    use crate::tiers::Tiers;
    use crate::version::Version;

    /// The disk has the right bytes, but a read from it may hang or fail. Then another place is asked.
    #[test]
    fn what_the_disk_knows_says_nothing_of_bytes_from_elsewhere() {
        let folder = tempfile::tempdir().expect("a folder");
        let config = DiskConfig {
            dirs: vec![folder.path().join("cache")],
            max_bytes: Some(1 << 40),
            queue_bytes: 1 << 20,
            ..DiskConfig::default()
        };
        let disk = DiskCache::open(&config).expect("a directory of this test");
        let tiers = Tiers { disk: Some(disk.clone()), ..Tiers::default() };
        let (object, bytes) = (ObjectId::new("key", ETag::new("\"1\"")), Bytes::from_static(b"bytes"));
        let version = Version::new(object, bytes.len() as u64, &tiers);
        version.disk.as_ref().expect("a disk").offer_compared(ByteRange::new(0, 5), &bytes);
        assert!(disk.flush(Duration::from_secs(20)));
        let ledger = Ledgers::new(1 << 20).of(&version.object, version.size, 1 << 20);
        let verifier = Verifier::new(version, ledger);
        assert!(verifier.was_compared(Place::Disk) && verifier.was_compared(Place::Store));
        assert!(!verifier.was_compared(Place::Shared), "nobody has compared these");
    }
}
