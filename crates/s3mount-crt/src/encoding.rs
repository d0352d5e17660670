//! How keys are encoded in URLs and in answers.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// The characters that SigV4 wants percent-encoded: all but letters, digits and `-._~`.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The characters that are percent-encoded in a path: a path keeps its slashes.
const ENCODED_IN_PATH: &AsciiSet = &ENCODED.remove(b'/');

pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, ENCODED).to_string()
}

pub(crate) fn encode_path(key: &str) -> String {
    utf8_percent_encode(key, ENCODED_IN_PATH).to_string()
}

/// Undoes S3's `encoding-type=url`: percent escapes, and `+` for a space. For what is not UTF-8 see [`text_of`].
pub(crate) fn decode(text: &str) -> String {
    text_of(&Cow::from(percent_decode_str(&text.replace('+', " ")))).into_owned()
}

/// Text of the store. What is not UTF-8 becomes NUL: a key with it can be neither asked for nor be a file name, so
/// nobody takes it for another key.
pub(crate) fn text_of(bytes: &[u8]) -> Cow<'_, str> {
    if let Ok(text) = std::str::from_utf8(bytes) {
        return Cow::Borrowed(text);
    }
    let piece = |chunk: std::str::Utf8Chunk<'_>| {
        let end = if chunk.invalid().is_empty() { "" } else { "\0" };
        format!("{}{end}", chunk.valid())
    };
    Cow::Owned(bytes.utf8_chunks().map(piece).collect())
}

#[cfg(test)]
mod tests {
    use super::{decode, encode, encode_path};

    #[test]
    fn keys_survive_the_url() {
        let key = "a b/ü%2F+'\"&=?#~/ _-.~";
        assert_eq!(encode_path("a b/ü"), "a%20b/%C3%BC");
        assert_eq!(encode("a/b+c"), "a%2Fb%2Bc");
        assert_eq!(decode(&encode(key)), key);
        assert_eq!(decode("a+b%2Bc%"), "a b+c%");
        assert_eq!(decode("a%FF%C3b%EF%BF%BD"), "a\0\0b\u{fffd}", "not UTF-8, and a character of its own");
    }
}
