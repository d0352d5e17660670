//! Limits for look-ups that ask the store. Nothing here sends a request.
//!
//! - [`limit`]: the look-ups in one directory that send LIST requests at a time;
//! - [`allowance`]: the fewer that do so while the whole directory is being listed;
//! - [`timed_out`]: look-ups that have just timed out.

pub(crate) mod allowance;
pub(crate) mod limit;
pub(crate) mod timed_out;
