//! Where the command speaks to its user. A reader who is gone is no reason to fail.

use std::io::{self, Write};

/// Prints a result.
pub(crate) fn result(line: &str) {
    let _ = writeln!(io::stdout(), "{line}");
}

/// Prints what is wrong, or what the user should know.
pub(crate) fn notice(line: &str) {
    let _ = writeln!(io::stderr(), "s3mount: {line}");
}
