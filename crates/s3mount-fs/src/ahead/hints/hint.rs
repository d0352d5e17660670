//! One hint, and one guess.

use std::sync::Arc;

use super::window::HintSource;
use crate::numbers::InodeNo;
use crate::open::open_clock::OpenClock;
use s3mount_names::is_file_name;

/// The longest line, in bytes: S3's longest key, and two numbers.
pub(crate) const MAX_LINE: usize = 1024 + 2 * 21;

/// A path below the root, and optionally an offset and a length. Without these, a file is fetched from its
/// beginning, as far as a new stream would.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hint {
    pub(crate) path: Box<str>,
    pub(crate) range: Option<(u64, u64)>,
    /// When the hint was written.
    pub(crate) given_at: OpenClock,
}

impl Hint {
    /// Parses a line that was written at the time `given_at`. Returns `None` for a line that names no file.
    pub(crate) fn parse(line: &[u8], given_at: OpenClock) -> Option<Self> {
        let line = std::str::from_utf8(line).ok()?;
        let mut fields = line.split('\t');
        let path = fields.next()?;
        let range = match (fields.next(), fields.next(), fields.next()) {
            (None, ..) => None,
            (Some(offset), Some(len), None) => {
                let (offset, len): (u64, u64) = (offset.parse().ok()?, len.trim_end().parse().ok()?);
                offset.checked_add(len).filter(|_| len > 0)?;
                Some((offset, len))
            }
            _ => return None,
        };
        path.split('/').all(is_file_name).then(|| Self { path: path.into(), range, given_at })
    }

    pub(crate) fn source(&self) -> HintSource {
        if self.range.is_some() { HintSource::Range } else { HintSource::File }
    }

    /// The folder below the root, which is empty or ends in `/`, and the name in it.
    pub(crate) fn folder_and_name(&self) -> (&str, &str) {
        self.path.split_at(self.path.rfind('/').map_or(0, |slash| slash + 1))
    }
}

/// A file that will be read if the files of its directory are opened in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Guess {
    pub(crate) parent: InodeNo,
    pub(crate) prefix: Arc<str>,
    pub(crate) name: Box<str>,
    /// When it was guessed, and whether the guess comes from files that had been opened before.
    pub(crate) given_at: OpenClock,
    pub(crate) was_opened_before: bool,
}

/// The bytes of a writer's unfinished line.
#[derive(Debug, Default)]
pub(crate) struct Line {
    text: Vec<u8>,
    is_too_long: bool,
}

impl Line {
    pub(crate) fn extend(&mut self, data: &[u8]) {
        if self.is_too_long || self.text.len() + data.len() > MAX_LINE {
            (self.is_too_long, self.text) = (true, Vec::new());
        } else {
            self.text.extend_from_slice(data);
        }
    }

    /// Ends the line. Returns its text, or `None` if it was too long.
    pub(crate) fn take(&mut self) -> Option<Vec<u8>> {
        let Self { text, is_too_long } = std::mem::take(self);
        (!is_too_long).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::{Hint, Line};
    use crate::open::open_clock::OpenClock;

    const GIVEN_AT: OpenClock = OpenClock(0);

    fn hint(path: &str, range: Option<(u64, u64)>) -> Option<Hint> {
        Some(Hint { path: path.into(), range, given_at: GIVEN_AT })
    }

    #[test]
    fn lines_are_paths_with_or_without_ranges() {
        assert_eq!(Hint::parse(b"a/b c.bin", GIVEN_AT), hint("a/b c.bin", None));
        assert_eq!(Hint::parse("ä\t0\t5".as_bytes(), GIVEN_AT), hint("ä", Some((0, 5))));
        let bad: [&[u8]; 11] = [
            b"",
            b"/a",
            b"a/",
            b"../a",
            b"a/./b",
            b"a//b",
            b"a\t1",
            b"a\t1\t2\t3",
            b"a\tx\t2",
            b"a\t1\t0",
            b"\xff",
        ];
        for line in bad {
            assert_eq!(Hint::parse(line, GIVEN_AT), None, "{}", line.escape_ascii());
        }
        assert_eq!(Hint::parse(format!("a\t{}\t2", u64::MAX).as_bytes(), GIVEN_AT), None);
    }

    #[test]
    fn a_path_is_a_folder_and_a_name() {
        let folder_and_name = |path: &[u8]| {
            let hint = Hint::parse(path, GIVEN_AT).expect("a hint");
            (hint.folder_and_name().0.to_owned(), hint.folder_and_name().1.to_owned())
        };
        assert_eq!(folder_and_name(b"a/b/c"), ("a/b/".into(), "c".into()));
        assert_eq!(folder_and_name(b"c"), (String::new(), "c".into()));
    }

    #[test]
    fn a_line_without_end_is_bounded() {
        let mut line = Line::default();
        for _ in 0..10 {
            line.extend(&vec![b'x'; 1 << 20]);
        }
        assert!(line.text.capacity() < 1 << 20);
        assert_eq!(line.take(), None);
        line.extend(b"after");
        assert_eq!(line.take().as_deref(), Some(&b"after"[..]));
    }
}
