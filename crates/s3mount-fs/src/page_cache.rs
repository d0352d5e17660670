//! How files use the kernel's page cache: which are opened around it, and which READs that fill it are refused.

pub(crate) mod direct;
pub(crate) mod map_reads;
pub(crate) mod map_table;
