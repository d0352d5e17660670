//! Reads zone and region from the name of a directory bucket (S3 Express One Zone): `BASE--ZONE--x-s3`.

/// The names of directory buckets end so, and no others do.
const SUFFIX: &str = "--x-s3";

/// Whether a bucket of this name is a directory bucket.
pub fn is_directory_bucket(bucket: &str) -> bool {
    bucket.ends_with(SUFFIX)
}

/// The id of the zone in which a directory bucket lies, such as `use1-az4`.
pub fn zone(bucket: &str) -> Option<&str> {
    let (_, zone) = bucket.strip_suffix(SUFFIX)?.rsplit_once("--")?;
    Some(zone).filter(|zone| !zone.is_empty())
}

/// The region of a directory bucket. The id of a zone begins with its region in short: `use1-az4` is in `us-east-1`.
/// `None` if the name is not that of a directory bucket, or its zone's id is not formed so.
pub fn region(bucket: &str) -> Option<String> {
    let short = zone(bucket)?.split('-').next()?;
    let (area, rest) = short.split_at_checked(2)?;
    let (part, rest) = match rest.strip_prefix("g") {
        Some(rest) if area == "us" => ("gov-", rest),
        _ => ("", rest),
    };
    let number = rest.find(|c: char| c.is_ascii_digit())?;
    let (direction, number) = rest.split_at(number);
    let direction = match direction {
        "n" => "north",
        "s" => "south",
        "e" => "east",
        "w" => "west",
        "c" => "central",
        "ne" => "northeast",
        "nw" => "northwest",
        "se" => "southeast",
        "sw" => "southwest",
        _ => return None,
    };
    let is_plain = area.chars().all(|c| c.is_ascii_lowercase()) && number.chars().all(|c| c.is_ascii_digit());
    is_plain.then(|| format!("{area}-{part}{direction}-{number}"))
}

#[cfg(test)]
mod tests {
    use super::{is_directory_bucket, region, zone};

    #[test]
    fn a_name_tells_zone_and_region() {
        for (bucket, in_zone, in_region) in [
            ("data--use1-az4--x-s3", "use1-az4", "us-east-1"),
            ("a--b--apne1-az1--x-s3", "apne1-az1", "ap-northeast-1"),
            ("data--eun1-az3--x-s3", "eun1-az3", "eu-north-1"),
            ("data--usw2-lax1-az1--x-s3", "usw2-lax1-az1", "us-west-2"),
            ("data--usgw1-az1--x-s3", "usgw1-az1", "us-gov-west-1"),
            ("data--ilc1-az1--x-s3", "ilc1-az1", "il-central-1"),
        ] {
            assert_eq!(
                (zone(bucket), region(bucket).as_deref()),
                (Some(in_zone), Some(in_region)),
                "{bucket}"
            );
        }
        for bucket in ["data--x-s3", "data--moon-az1--x-s3", "data--ü1--x-s3", "data----x-s3"] {
            assert!(is_directory_bucket(bucket) && region(bucket).is_none(), "{bucket}");
        }
        assert!(!is_directory_bucket("data") && zone("data--use1-az4").is_none());
    }
}
