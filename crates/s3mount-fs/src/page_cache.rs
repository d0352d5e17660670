//! How files use the kernel's page cache.
//!
//! - [`direct`]: the policy of large files that are opened around the page cache, and [`direct_io`], which
//!   follows it;
//! - [`map_reads`]: random reads of a map, told by the shape of the kernel's READs;
//! - [`map_table`]: the files that are read so, and their kinds;
//! - [`fills`]: the READs that fill the page cache, some of which are refused.

pub(crate) mod direct;
pub(crate) mod direct_io;
pub(crate) mod fills;
pub(crate) mod kind;
pub(crate) mod map_reads;
pub(crate) mod map_table;
