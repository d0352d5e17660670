//! What is known of the bytes of a version by their checksums.
//!
//! - [`crc_map`]: the CRC of each range that came;
//! - [`upload_parts`]: the parts in which an object was uploaded, and their CRCs;
//! - [`ledger`]: both of a version, remembered for its next readers.

pub(crate) mod crc_map;
pub(crate) mod ledger;
pub(crate) mod upload_parts;
