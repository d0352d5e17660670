//! Patterns of names and paths.

use anyhow::anyhow;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

/// The files that one of these patterns of `flag` matches. A pattern without a slash matches the file's name in any
/// folder.
pub(crate) fn globs<'a>(
    flag: &str,
    patterns: impl IntoIterator<Item = &'a String>,
) -> anyhow::Result<GlobSet> {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let anywhere = if pattern.contains('/') { "" } else { "**/" };
        let whole = format!("{anywhere}{}", pattern.trim_start_matches('/'));
        let glob = GlobBuilder::new(&whole).literal_separator(true).build().map_err(|error| {
            let kind = error.kind();
            anyhow!("{flag} {pattern:?} is not a pattern: {kind}; write it like '*.tar' or 'models/**'")
        })?;
        set.add(glob);
    }
    Ok(set.build()?)
}

#[cfg(test)]
mod tests {
    use super::globs;

    #[test]
    fn patterns_go_by_name_or_by_path() {
        let patterns = ["*.tar", "models/**", "/a/?.bin"].map(str::to_owned);
        let set = globs("--direct-io", &patterns).expect("patterns");
        let matches = ["x.tar", "d/x.tar", "models/7b/w", "a/b.bin"].map(|path| set.is_match(path));
        assert_eq!(matches, [true; 4]);
        let others = ["x.tar.gz", "d/models/w", "a/bb.bin", "d/a/b.bin"].map(|path| set.is_match(path));
        assert_eq!(others, [false; 4]);
        let error = globs("--direct-io", &["[a".to_owned()]).expect_err("no end").to_string();
        assert!(
            error.starts_with("--direct-io \"[a\" is not a pattern: unclosed character class"),
            "{error}"
        );
    }
}
