//! How much may be in flight: GETs and bytes ahead of readers, requests at once, second GETs, and the window of a
//! stream. All of these are policies over counts and times, and none of them knows a reader.

pub(crate) mod ahead;
pub(crate) mod concurrency;
pub(crate) mod congestion;
pub(crate) mod hedge;
pub(crate) mod latency;
pub(crate) mod link;
pub(crate) mod need;
pub(crate) mod request_permits;
pub(crate) mod window;
