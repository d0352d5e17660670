//! The readers over clients in memory.

mod deadlines;
mod reader;
mod throttled;
mod verify;
