//! What to mount: a bucket, and the prefix below it.

use anyhow::{bail, ensure};

/// The source of a mount that the command line names.
#[derive(Debug, PartialEq, Eq)]
pub struct Source {
    /// The bucket, the ARN of an access point, or its alias.
    pub bucket: String,
    /// The prefix below the bucket. It is empty or ends in `/`.
    pub prefix: String,
}

/// Reads `[s3://]BUCKET[/PREFIX]` and the value of `--prefix`.
pub fn parse(source: &str, flag: Option<&str>) -> anyhow::Result<Source> {
    let path = source.strip_prefix("s3://").unwrap_or(source);
    if let Some((kind, _)) = path.split_once("://").filter(|(kind, _)| !kind.contains('/')) {
        bail!(
            "{source:?} is an address of the kind {kind}; write BUCKET, BUCKET/PREFIX or s3://BUCKET/PREFIX"
        );
    }
    let (bucket, prefix) = split(path);
    let prefix = match (prefix, flag.unwrap_or_default()) {
        (prefix, "") | ("", prefix) => prefix,
        (prefix, flag) => {
            bail!("two prefixes were given, {prefix:?} with the bucket and --prefix {flag:?}; give one")
        }
    };
    let slash = if prefix.is_empty() || prefix.ends_with('/') { "" } else { "/" };
    Ok(Source { bucket: bucket.to_owned(), prefix: format!("{prefix}{slash}") })
}

/// Reads `[s3://]BUCKET/KEY`.
pub fn object(source: &str) -> anyhow::Result<(String, String)> {
    let (bucket, key) = split(source.strip_prefix("s3://").unwrap_or(source));
    ensure!(
        !key.is_empty() && !key.ends_with('/'),
        "{source:?} does not name an object; write s3://BUCKET/KEY"
    );
    Ok((bucket.to_owned(), key.to_owned()))
}

/// Splits a source into bucket and rest at the first slash. An ARN such as
/// `arn:aws:s3:eu-west-1:123456789012:accesspoint/name` has a slash of its own, so the next slash ends it.
pub fn split(path: &str) -> (&str, &str) {
    let own = match path.find(":accesspoint/") {
        Some(at) if path.starts_with("arn:") => at + ":accesspoint/".len(),
        // Of what is no bucket, such as an Outpost.
        _ if path.starts_with("arn:") && !path.contains(":::") => path.len(),
        _ => 0,
    };
    match path[own..].find('/') {
        Some(at) => (&path[..own + at], &path[own + at + 1..]),
        None => (path, ""),
    }
}

/// Checks a bucket's name. For AWS it applies AWS's rules. For another store it refuses only what can't be
/// the name of a bucket on any store.
pub(crate) fn check_name(bucket: &str, is_aws: bool) -> anyhow::Result<()> {
    let remedy = "write BUCKET, BUCKET/PREFIX or s3://BUCKET/PREFIX";
    ensure!(!bucket.is_empty(), "the name of the bucket is missing; {remedy}");
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    if bucket.starts_with("arn:") {
        ensure!(bucket.chars().all(|c| is_plain(c) || c == '/'), "{bucket:?} is not the ARN of a bucket");
        return Ok(());
    }
    ensure!(
        bucket.len() <= 255 && bucket.chars().all(is_plain),
        "{bucket:?} is not a bucket's name; {remedy}"
    );
    let is_lower = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = (3..=63).contains(&bucket.len())
        && bucket.chars().all(|c| is_lower(c) || "-.".contains(c))
        && bucket.starts_with(is_lower)
        && bucket.ends_with(is_lower);
    ensure!(
        fits || !is_aws,
        "{bucket:?} is not the name of a bucket at AWS: those have 3 to 63 lower-case letters, digits, dots \
         and hyphens; check it, or name another store with --endpoint-url"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{Source, check_name, object, parse};

    #[test]
    fn sources_are_read_with_and_without_scheme() {
        let check = |source, flag, bucket: &str, prefix: &str| {
            let expected = Source { bucket: bucket.to_owned(), prefix: prefix.to_owned() };
            assert_eq!(parse(source, flag).expect(source), expected);
        };
        check("b", None, "b", "");
        check("s3://b/", None, "b", "");
        check("s3://b/p/q", None, "b", "p/q/");
        check("b", Some("p"), "b", "p/");
        check("b/p/", Some(""), "b", "p/");
        check("arn:aws:s3:r:1:accesspoint/a", None, "arn:aws:s3:r:1:accesspoint/a", "");
        check("arn:aws:s3:r:1:accesspoint/a/p", None, "arn:aws:s3:r:1:accesspoint/a", "p/");
    }

    #[test]
    fn an_object_has_a_key() {
        let named = |bucket: &str, key: &str| Some((bucket.to_owned(), key.to_owned()));
        assert_eq!(object("s3://b/k").ok(), named("b", "k"));
        assert_eq!(object("b/d/k l").ok(), named("b", "d/k l"));
        for source in ["b", "s3://b/", "b/d/", ""] {
            assert!(object(source).is_err(), "{source}");
        }
    }

    #[test]
    fn two_prefixes_are_refused() {
        let error = parse("b/p", Some("q")).expect_err("two").to_string();
        assert!(error.contains("\"p\"") && error.contains("--prefix \"q\""), "{error}");
    }

    #[test]
    fn names_are_strict_at_aws_and_lenient_elsewhere() {
        for bucket in ["abc", "my.data-1", "x--usw2-az1--x-s3", "arn:aws:s3:r:1:accesspoint/a"] {
            assert!(check_name(bucket, true).is_ok(), "{bucket}");
        }
        for bucket in ["b", "My_Bucket", "-ab"] {
            assert!(check_name(bucket, true).is_err(), "{bucket}");
            assert!(check_name(bucket, false).is_ok(), "{bucket}");
        }
        for bucket in ["", "b c", "ä", "a\nb", "arn:a b"] {
            assert!(check_name(bucket, false).is_err(), "{bucket}");
        }
    }
}
