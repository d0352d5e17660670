//! Missing ranges of versions on the disk, which are fetched while no reader waits.

pub(crate) mod backfill;
pub(crate) mod missing;
