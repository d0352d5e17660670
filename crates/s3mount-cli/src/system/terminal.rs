//! Prints to the user's terminal. A failed write is no error: the reader may be gone.

use std::io::{self, Write};

/// Prints a result.
pub(crate) fn result(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints an error, or something else that the user should know.
pub(crate) fn notice(line: &str) {
    let _ = writeln!(io::stderr(), "s3mount: {line}");
}
