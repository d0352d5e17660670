//! The pages of listings, from which names are known.
//!
//! - [`page`]: the packed page of one LIST request;
//! - [`sorted`]: sorts the pages of a listing in no order;
//! - [`snapshots`]: the pages of each directory, with their ages;
//! - [`listing_cache`]: the listings that are kept on a disk.

pub(crate) mod listing_cache;
pub(crate) mod page;
pub(crate) mod snapshots;
pub(crate) mod sorted;
