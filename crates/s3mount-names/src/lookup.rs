//! Which look-ups ask the store, and when. Nothing here sends a request.
//!
//! - [`limit`]: few look-ups in one directory send LIST requests at a time;
//! - [`allowance`]: fewer do so while the whole directory is being listed;
//! - [`timed_out`]: look-ups that have timed out a moment ago.

pub(crate) mod allowance;
pub(crate) mod limit;
pub(crate) mod timed_out;
