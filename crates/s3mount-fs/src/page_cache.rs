//! How files use the kernel's page cache.
//!
//! - [`direct`]: the policy that decides which large files are opened around the page cache, and
//!   [`direct_io`], which follows it;
//! - [`map_reads`]: the policy that recognises random reads of maps by the shape of the kernel's READs;
//! - [`map_table`]: the files that are read at random through maps, and their kinds;
//! - [`fills`]: sorts the READs that fill the page cache. Some are refused.

pub(crate) mod direct;
pub(crate) mod direct_io;
pub(crate) mod fills;
pub(crate) mod kind;
pub(crate) mod map_reads;
pub(crate) mod map_table;
