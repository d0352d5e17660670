//! What is open: handles, when files were opened, their readers, and whether the kernel reads them by itself.

pub(crate) mod handle_table;
pub(crate) mod open_clock;
pub(crate) mod passthrough;
pub(crate) mod reader_slot;
