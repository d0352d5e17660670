//! Open files: handles, the clock of opens, readers, and passthrough.

pub(crate) mod handle_table;
pub(crate) mod open_clock;
pub(crate) mod passthrough;
pub(crate) mod reader_slot;
