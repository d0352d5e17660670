//! Which files and directories are wanted next: what hints name, and what the order of opens lets guess.
//!
//! - [`hints`]: what readers say they will read, and what of it is here or on its way;
//! - [`sequence`]: files, or directories, that are opened in the order of their names;
//! - [`successors`]: the large file that is opened next;
//! - [`fetcher`]: files that are fetched ahead of their readers;
//! - [`seams`]: large files that are joined with the one before them.

pub(crate) mod fetcher;
pub(crate) mod hints;
pub(crate) mod seams;
pub(crate) mod sequence;
pub(crate) mod successors;
