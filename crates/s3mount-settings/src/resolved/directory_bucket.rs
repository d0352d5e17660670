//! What a directory bucket (S3 Express One Zone) asks of the flags.

use anyhow::ensure;
use s3mount_crt::directory_bucket::{is_directory_bucket, region as region_of, zone};

use crate::flags::access::AccessArgs;

/// The only storage class of a directory bucket.
const CLASS: &str = "EXPRESS_ONEZONE";

/// Refuses flags by which a directory bucket can't be reached. Other buckets take all of them.
pub(super) fn check(bucket: &str, args: &AccessArgs) -> anyhow::Result<()> {
    let given = [("--no-sign-request", args.no_sign_request), ("--requester-pays", args.requester_pays)];
    let given = given.into_iter().find(|(_, is_given)| *is_given && is_directory_bucket(bucket));
    ensure!(
        given.is_none(),
        "{} does not go with the directory bucket {bucket:?} (S3 Express One Zone), all of whose requests are signed \
         and paid by its owner; leave the flag out",
        given.map_or("", |(flag, _)| flag)
    );
    Ok(())
}

/// The region of a directory bucket at AWS, which its name tells. `None` for all other buckets.
pub(super) fn region(bucket: &str, flag: Option<&str>) -> anyhow::Result<Option<String>> {
    let Some(region) = region_of(bucket) else { return Ok(None) };
    ensure!(
        flag.is_none_or(|flag| flag == region),
        "the directory bucket {bucket:?} lies in the zone {}, which is in {region}, and not in --region {}; leave the \
         flag out",
        zone(bucket).unwrap_or_default(),
        flag.unwrap_or_default()
    );
    Ok(Some(region))
}

/// Refuses to wait for what S3 does not tell of a directory bucket.
pub(super) fn check_events(bucket: &str, is_asked: bool) -> anyhow::Result<()> {
    ensure!(
        !(is_asked && is_directory_bucket(bucket)),
        "--events-from does not go with the directory bucket {bucket:?} (S3 Express One Zone), of whose changes S3 tells \
         nobody; leave the flag out, and set --metadata-ttl"
    );
    Ok(())
}

/// Refuses what objects of a directory bucket can't have.
pub fn check_objects(bucket: &str, class: Option<&str>, encryption: Option<&str>) -> anyhow::Result<()> {
    if !is_directory_bucket(bucket) {
        return Ok(());
    }
    ensure!(
        class.is_none_or(|class| class == CLASS),
        "--storage-class {} does not go with the directory bucket {bucket:?}, all of whose objects have the class \
         {CLASS}; leave the flag out",
        class.unwrap_or_default()
    );
    ensure!(
        encryption.is_none(),
        "--sse {} does not go with the directory bucket {bucket:?}, which encrypts all objects as the bucket says; \
         set the bucket's own encryption, and leave the flag out",
        encryption.unwrap_or_default()
    );
    Ok(())
}

/// What to check if a directory bucket is not found, or can't be reached. Empty for all other buckets.
pub(super) fn remedy(bucket: &str) -> String {
    match zone(bucket) {
        Some(zone) => format!(", and its zone {zone:?}"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::{check_objects, region};

    const BUCKET: &str = "data--use1-az4--x-s3";

    #[test]
    fn the_name_tells_the_region() {
        assert_eq!(region(BUCKET, None).expect("a region").as_deref(), Some("us-east-1"));
        assert_eq!(region(BUCKET, Some("us-east-1")).expect("a region").as_deref(), Some("us-east-1"));
        assert_eq!(region("data", Some("eu-west-1")).expect("no directory bucket"), None);
        let error = region(BUCKET, Some("eu-west-1")).expect_err("another region").to_string();
        assert!(error.contains("use1-az4") && error.contains("--region eu-west-1"), "{error}");
    }

    #[test]
    fn objects_have_one_class_and_the_encryption_of_the_bucket() {
        assert!(check_objects(BUCKET, Some("EXPRESS_ONEZONE"), None).is_ok());
        assert!(check_objects(BUCKET, Some("STANDARD_IA"), None).is_err());
        assert!(check_objects(BUCKET, None, Some("aws:kms")).is_err());
        assert!(check_objects("data", Some("STANDARD_IA"), Some("aws:kms")).is_ok());
    }
}
