//! Blocks of object versions held in memory, evicted by recency of use
