//! Prints to the user's terminal. A failed write is no error: the reader may be gone.
//!
//! Names of files, and what a store says, may hold anything, also what changes a terminal. So all that is printed comes
//! through here.

use std::borrow::Cow;
use std::io::{self, Write};
use std::path::Path;

use serde::Serialize;

/// Prints a result. It may have more than one line.
pub fn result(text: &str) {
    let _ = writeln!(io::stdout(), "{}", lines(text));
}

/// Prints a result as one line of JSON. Returns whether anybody reads it.
pub fn json(value: &impl Serialize) -> anyhow::Result<bool> {
    let text = serde_json::to_string(value)?;
    // Outside of its strings, JSON has no such characters.
    let text = escaped(&text, changes_terminal, |character| {
        let mut units = [0; 2];
        character.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")).collect()
    });
    let mut out = io::stdout();
    Ok(writeln!(out, "{text}").and_then(|()| out.flush()).is_ok())
}

/// Prints an error, or something else that the user should know.
pub fn notice(text: &str) {
    let _ = writeln!(io::stderr(), "s3mount: {}", lines(text));
}

/// A name of a file or a process: what could change what the terminal shows is escaped.
pub fn plain(name: &str) -> Cow<'_, str> {
    escaped(name, changes_terminal, |character| character.escape_default().to_string())
}

/// The same for text of JSON, which has other escapes.
pub fn plain_json(text: &str) -> Cow<'_, str> {
    // All of these characters have one unit of UTF-16.
    escaped(text, changes_terminal, |character| format!("\\u{:04x}", u32::from(character)))
}

/// The same for a path.
pub fn shown(path: &Path) -> String {
    plain(&path.to_string_lossy()).into_owned()
}

/// The same for text that may have more than one line.
fn lines(text: &str) -> Cow<'_, str> {
    let changes = |character| character != '\n' && changes_terminal(character);
    escaped(text, changes, |character| character.escape_default().to_string())
}

/// Whether it is a control character, or a mark that turns the direction of the text.
fn changes_terminal(character: char) -> bool {
    let turns =
        matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || turns
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool, escape: impl Fn(char) -> String) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return Cow::Borrowed(text);
    }
    let shown = |character| if is_escaped(character) { escape(character) } else { String::from(character) };
    Cow::Owned(text.chars().map(shown).collect())
}

#[cfg(test)]
mod tests {
    use super::{lines, plain};

    #[test]
    fn names_cannot_change_the_terminal() {
        assert_eq!(plain("a\u{1b}[31mb\n\u{202e}"), r"a\u{1b}[31mb\n\u{202e}");
        assert_eq!(plain("ä 中"), "ä 中");
        assert_eq!(lines("a\nb\u{9b}2J\r"), "a\nb\\u{9b}2J\\r");
    }
}
