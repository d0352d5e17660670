//! The values of the flags for how long names are cached.

use std::str::FromStr;
use std::time::Duration;

/// The value of `--metadata-ttl` or `--negative-metadata-ttl`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MetadataTtl(pub(crate) s3mount_fs::MetadataTtl);

impl FromStr for MetadataTtl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        use s3mount_fs::MetadataTtl::{For, Indefinite, Minimal};
        Ok(Self(match text {
            "minimal" => Minimal,
            "indefinite" => Indefinite,
            seconds => For(Duration::from_secs(
                seconds
                    .parse::<u32>()
                    .map_err(|_| "neither seconds, such as 60, nor minimal, nor indefinite")?
                    .into(),
            )),
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::MetadataTtl;

    #[test]
    fn a_ttl_is_seconds_or_one_of_two_words() {
        use s3mount_fs::MetadataTtl::{For, Indefinite, Minimal};
        assert_eq!("60".parse(), Ok(MetadataTtl(For(Duration::from_secs(60)))));
        assert_eq!("minimal".parse(), Ok(MetadataTtl(Minimal)));
        assert_eq!("indefinite".parse(), Ok(MetadataTtl(Indefinite)));
        for text in ["", "soon", "-1", "1.5", "99999999999"] {
            assert!(text.parse::<MetadataTtl>().is_err(), "{text}");
        }
    }
}
