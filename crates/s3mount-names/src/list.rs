//! Lists directories.
//!
//! - [`requests`]: sends LIST requests, with retries and a deadline;
//! - [`throttle`]: how many LIST requests ahead of their readers may be in flight;
//! - [`lister`]: lists the pages of one directory side by side;
//! - [`split`]: cuts the listing of a directory into pieces;
//! - [`gathering`]: sorts the names of a directory whose store lists in no order;
//! - [`shared`]: programs that list one directory at the same time share one listing.

pub(crate) mod gathering;
pub(crate) mod lister;
pub(crate) mod requests;
pub(crate) mod shared;
pub(crate) mod split;
mod throttle;
