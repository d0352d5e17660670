//! The log, and what it says.
