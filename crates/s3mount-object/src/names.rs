//! The parts of a key that tell what kind of file it is: its folder and its extension.

/// A key's folder, up to its last slash and with it, and its name there.
#[must_use]
pub fn folder_and_name(key: &str) -> (&str, &str) {
    key.split_at(key.rfind('/').map_or(0, |slash| slash + 1))
}

/// What follows the last dot of a key or a name; nothing where its name has no dot.
#[must_use]
pub fn extension(key: &str) -> &str {
    folder_and_name(key).1.rsplit_once('.').map_or("", |(_, extension)| extension)
}

#[cfg(test)]
mod tests {
    use super::{extension, folder_and_name};

    #[test]
    fn a_key_has_a_folder_a_name_and_an_extension() {
        let check = |key, expected: (&str, &str, &str)| {
            let (folder, name) = folder_and_name(key);
            assert_eq!((folder, name, extension(key)), expected, "{key:?}");
        };
        check("a.bin", ("", "a.bin", "bin"));
        check("d/e/a.tar.gz", ("d/e/", "a.tar.gz", "gz"));
        check("d.0/part-1", ("d.0/", "part-1", ""));
        check("d/", ("d/", "", ""));
        check("", ("", "", ""));
    }
}
