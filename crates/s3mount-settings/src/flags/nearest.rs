//! Finds the known name that is most like a misspelled one.

/// A word that needs more edits than this is another word, not a misspelled name.
const MAX_EDITS: usize = 3;

/// The name that is most like `name`, if there is one that is like it. Short words must be more alike.
pub(crate) fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let most = MAX_EDITS.min(name.chars().count() / 2);
    let rated = names.map(|known| (strsim::damerau_levenshtein(name, known), known));
    rated.min().filter(|(edits, _)| *edits <= most).map(|(_, known)| known)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn only_names_that_are_alike_are_near() {
        let names = || ["uid", "part-size", "write-part-size"].into_iter();
        assert_eq!(nearest("part-szie", names()), Some("part-size"));
        assert_eq!(nearest("uld", names()), Some("uid"));
        for name in ["port", "gib", "", "banana"] {
            assert_eq!(nearest(name, names()), None, "{name}");
        }
    }
}
