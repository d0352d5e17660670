//! Compares what the disk holds of a version with its checksums, and removes what is damaged.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::{Held, Look, Version};
use crate::disk::blocks;
use crate::disk::io::health::Operation;
use crate::disk::object::read::Fault;
use crate::disk::object::whole::Whole;

impl Version {
    /// Notes that all bytes of the version matched the store's checksums. Their CRC-64/NVME is `crc`.
    pub(crate) fn confirm(&self, crc: u64) {
        self.state().right = Some(crc);
        if let Some(operation) = self.dir.health.begin() {
            self.compare(&operation);
        }
    }

    /// Compares the whole object's CRC with the store's, if that is known and was not done before. The CRC follows from
    /// the checksums of the blocks, without a read.
    pub(crate) fn compare(&self, operation: &Operation<'_>) {
        let Some(right) = self.state().right else { return };
        self.look_within(operation, Look::Check);
        let Held::Whole(whole) = self.held() else { return };
        self.state().right = None;
        if whole.is_compared() {
            return;
        }
        if blocks::joined(&whole.sums, self.named.size) != right {
            return self.on_corrupt(&Held::Whole(whole), 0..0);
        }
        self.state().is_compared = true;
        if let Err(error) = whole.on_compared(&self.dir, &self.named) {
            self.dir.health.on_error("write the record of", &error);
        }
    }

    /// The whole object, if it is here and can't be trusted, or `in_any_case`: then it is compared with its checksums.
    pub(crate) fn whole_to_check(&self, in_any_case: bool) -> Option<Arc<Whole>> {
        self.look(Look::Check);
        match self.held() {
            Held::Whole(whole) if in_any_case || !whole.is_trusted() => Some(whole),
            Held::Whole(_) | Held::Partial(_) | Held::Nothing | Held::Closed | Held::Unknown => None,
        }
    }

    /// Compares a piece of the whole object, from block `first` on, with its checksums, in memory that is as long as
    /// a piece. Returns where the next piece begins, if the piece is right. After the last one, the object can be
    /// trusted.
    pub(crate) fn check_piece(
        &self,
        whole: &Arc<Whole>,
        first: u64,
        memory: &mut [u8],
    ) -> Option<Option<u64>> {
        let _operation = self.dir.health.begin()?;
        let checked = whole.check_piece(&self.dir, &self.named, first, memory);
        let held = || Held::Whole(whole.clone());
        match checked {
            Ok(next) => {
                self.dir.health.on_success();
                return Some(next);
            }
            Err(Fault::Io(error)) => self.on_unreadable("check", &held(), 0..0, &error),
            Err(Fault::Corrupt) => self.on_corrupt(&held(), 0..0),
        }
        None
    }

    pub(crate) fn on_corrupt(&self, held: &Held, touched: Range<u64>) {
        tracing::warn!(object = ?self.named.object, "bytes of the disk cache are wrong; they are fetched again");
        self.dir.metrics.corrupt.inc();
        self.take_out(held, touched);
    }

    /// Notes that a read of the disk failed. An unreadable sector concerns this version alone.
    pub(crate) fn on_unreadable(
        &self,
        operation: &'static str,
        held: &Held,
        touched: Range<u64>,
        error: &io::Error,
    ) {
        if self.dir.health.on_read_error(&self.named.hash, operation, error) {
            tracing::warn!(object = ?self.named.object, %error, "the disk can't read bytes of its cache; they are fetched again");
            self.dir.metrics.unreadable.inc();
            self.take_out(held, touched);
        }
    }

    /// Removes what is damaged: a whole object, or blocks of a partial one.
    fn take_out(&self, held: &Held, touched: Range<u64>) {
        match held {
            Held::Partial(part) => part.take_out(&self.dir, &self.named, touched),
            Held::Whole(_) | Held::Closed | Held::Nothing | Held::Unknown => self.delete(&self.give_up()),
        }
    }
}
