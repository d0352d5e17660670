//! Holes of versions on the disk, which are fetched while no reader waits.

pub(crate) mod holes;
pub(crate) mod refill;
