//! Where the endpoint of a bucket is: its host name, and whether the bucket is part of it. The CRT's rules make the
//! names of AWS's hosts. Here is checked that the flags, the bucket and the store fit together, so that an error has
//! the names of the flags.

use anyhow::{bail, ensure};
use s3mount_crt::{Addressing, Variants};

/// What a bucket's name says beyond a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named<'a> {
    Bucket,
    /// The ARN of an access point, and its region.
    AccessPoint(&'a str),
}

/// Reads the name of a bucket, which may be the ARN of an access point.
fn named(bucket: &str) -> anyhow::Result<Named<'_>> {
    let is_lambda = bucket.ends_with("--ol-s3");
    if !bucket.starts_with("arn:") {
        ensure!(!is_lambda, "{}", of_lambda(bucket));
        ensure!(!bucket.ends_with(".mrap"), "{}", of_many_regions(bucket));
        return Ok(Named::Bucket);
    }
    let parts: Vec<_> = bucket.splitn(6, ':').collect();
    let [_, _, service, region, account, resource] = parts[..] else {
        bail!("{bucket:?} is not an ARN; write arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME");
    };
    let point = resource.strip_prefix("accesspoint").map(|name| name.trim_start_matches(['/', ':']));
    match (service, point) {
        ("s3-object-lambda", _) => bail!("{}", of_lambda(bucket)),
        ("s3", Some(_)) if region.is_empty() => bail!("{}", of_many_regions(bucket)),
        ("s3", Some(name)) if !name.is_empty() && !account.is_empty() => Ok(Named::AccessPoint(region)),
        ("s3", None) if region.is_empty() && account.is_empty() && !resource.is_empty() => {
            bail!("{bucket:?} is the ARN of a bucket; give its name, {resource:?}")
        }
        _ => bail!(
            "{bucket:?} is not the ARN of an access point of S3; write arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME"
        ),
    }
}

fn of_lambda(bucket: &str) -> String {
    format!(
        "{bucket:?} is an access point of S3 Object Lambda: it makes each object anew when it is read, so ranges and \
         sizes do not fit; mount the bucket or the access point behind it"
    )
}

fn of_many_regions(bucket: &str) -> String {
    format!(
        "{bucket:?} is a multi-region access point: two requests may reach two buckets that do not hold the same; \
         mount the bucket of the nearest region"
    )
}

/// The region that the ARN of an access point names.
pub(crate) fn region(bucket: &str) -> Option<&str> {
    match named(bucket) {
        Ok(Named::AccessPoint(region)) => Some(region),
        _ => None,
    }
}

/// Checks that a bucket can be where the flags say. `endpoint` is the URL of another store than AWS, and where it was
/// given.
///
/// # Errors
/// For what AWS does not have, and for what no host name can say.
pub(crate) fn check(
    bucket: &str,
    endpoint: Option<(&str, &str)>,
    region: Option<&str>,
    addressing: Addressing,
    variants: Variants,
) -> anyhow::Result<()> {
    let named = named(bucket)?;
    let Variants { dual_stack, fips, accelerate } = variants;
    let chosen = [("--dual-stack", dual_stack), ("--fips", fips), ("--transfer-acceleration", accelerate)];
    let chosen = chosen.into_iter().find_map(|(flag, is_set)| is_set.then_some(flag));
    if let Some((url, from)) = endpoint {
        if let Some(flag) = chosen {
            bail!(
                "{flag} chooses among AWS's endpoints, and {from} names another, {url:?}; give one of the two, and \
                 unset $AWS_ENDPOINT_URL if the store is AWS"
            );
        }
        ensure!(
            named == Named::Bucket,
            "{bucket:?} is an access point of AWS, and {from} names another store, {url:?}; give the access point's \
             alias as the bucket, or no endpoint"
        );
        let host = host(url);
        ensure!(
            addressing != Addressing::Virtual || !is_address(host),
            "--addressing virtual puts the bucket before the host's name, and {host:?} is an address; give {from} with \
             a name, or --addressing path"
        );
        return Ok(());
    }
    let is_path = addressing == Addressing::Path;
    if let Named::AccessPoint(_) = named {
        ensure!(
            !is_path,
            "access points have no path: {bucket:?} can't be reached with --addressing path or --force-path-style"
        );
        ensure!(!accelerate, "access points have no --transfer-acceleration; give the bucket's name instead");
    }
    let has_dots = bucket.contains('.') && named == Named::Bucket;
    ensure!(
        !(has_dots && addressing == Addressing::Virtual),
        "{bucket:?} has dots, and AWS's certificates fit no host name with them; leave --addressing virtual out"
    );
    if accelerate {
        ensure!(
            !is_path,
            "--transfer-acceleration needs the bucket in the host name; leave path addressing out"
        );
        ensure!(!fips, "AWS has no endpoint with both --transfer-acceleration and --fips; give one of them");
        ensure!(!has_dots, "{bucket:?} has dots: AWS has no --transfer-acceleration for it");
        let elsewhere = region.filter(|region| region.starts_with("cn-") || region.starts_with("us-gov-"));
        if let Some(region) = elsewhere {
            bail!("AWS has no --transfer-acceleration in region {region:?}; leave it out");
        }
    }
    let in_china = region.filter(|region| region.starts_with("cn-"));
    if let (true, Some(region)) = (fips, in_china) {
        bail!("AWS has no --fips in region {region:?}; leave it out");
    }
    Ok(())
}

/// The host of a URL, without port.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

fn is_address(host: &str) -> bool {
    host.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use s3mount_crt::{Addressing, Variants};

    use super::{check, region};

    const POINT: &str = "arn:aws:s3:eu-west-1:111122223333:accesspoint/name";
    const PLAIN: Variants = Variants { dual_stack: false, fips: false, accelerate: false };
    const DUAL: Variants = Variants { dual_stack: true, ..PLAIN };
    const FIPS: Variants = Variants { fips: true, ..PLAIN };
    const FAST: Variants = Variants { accelerate: true, ..PLAIN };

    #[test]
    fn what_aws_has_is_taken() {
        use Addressing::{Auto, Path, Virtual};
        for (bucket, addressing, variants) in [
            ("bucket", Auto, PLAIN),
            ("bucket", Path, DUAL),
            ("bucket", Virtual, Variants { dual_stack: true, ..FIPS }),
            ("bucket", Auto, Variants { dual_stack: true, ..FAST }),
            ("dotted.bucket", Auto, PLAIN),
            ("name-abc123-s3alias", Auto, PLAIN),
            (POINT, Auto, Variants { dual_stack: true, ..FIPS }),
            ("arn:aws:s3:eu-west-1:111122223333:accesspoint:name", Virtual, PLAIN),
        ] {
            check(bucket, None, Some("eu-west-1"), addressing, variants).expect(bucket);
        }
        assert_eq!(region(POINT), Some("eu-west-1"));
        assert_eq!(region("bucket"), None);
    }

    #[test]
    fn what_nobody_has_is_refused_by_its_flag() {
        use Addressing::{Auto, Path, Virtual};
        let minio = Some(("http://minio:9000", "--endpoint-url"));
        let address = Some(("http://[::1]:9000", "AWS_ENDPOINT_URL"));
        for (bucket, endpoint, region, addressing, variants, said) in [
            (
                "bucket",
                minio,
                "",
                Auto,
                DUAL,
                "--dual-stack chooses among AWS's endpoints, and --endpoint-url names",
            ),
            (
                "bucket",
                address,
                "",
                Auto,
                FIPS,
                "--fips chooses among AWS's endpoints, and AWS_ENDPOINT_URL names",
            ),
            (
                "bucket",
                address,
                "",
                Virtual,
                PLAIN,
                "--addressing virtual puts the bucket before the host's name, and \"::1\"",
            ),
            (
                POINT,
                minio,
                "",
                Auto,
                PLAIN,
                "is an access point of AWS, and --endpoint-url names another store",
            ),
            (POINT, None, "", Path, PLAIN, "can't be reached with --addressing path"),
            (POINT, None, "", Auto, FAST, "access points have no --transfer-acceleration"),
            ("dotted.bucket", None, "", Virtual, PLAIN, "leave --addressing virtual out"),
            ("dotted.bucket", None, "", Auto, FAST, "has dots"),
            ("bucket", None, "", Path, FAST, "leave path addressing out"),
            (
                "bucket",
                None,
                "",
                Auto,
                Variants { fips: true, ..FAST },
                "both --transfer-acceleration and --fips",
            ),
            ("bucket", None, "cn-north-1", Auto, FAST, "no --transfer-acceleration in region \"cn-north-1\""),
            ("bucket", None, "cn-north-1", Auto, FIPS, "no --fips in region"),
            (
                "arn:aws:s3::111122223333:accesspoint/a.mrap",
                None,
                "",
                Auto,
                PLAIN,
                "a multi-region access point",
            ),
            ("abc.mrap", None, "", Auto, PLAIN, "a multi-region access point"),
            ("arn:aws:s3-object-lambda:r:1:accesspoint/a", None, "", Auto, PLAIN, "S3 Object Lambda"),
            ("name-abc--ol-s3", None, "", Auto, PLAIN, "S3 Object Lambda"),
            ("arn:aws:s3:::bucket", None, "", Auto, PLAIN, "give its name, \"bucket\""),
            (
                "arn:aws:s3-outposts:r:1:outpost/o/accesspoint/a",
                None,
                "",
                Auto,
                PLAIN,
                "is not the ARN of an access point",
            ),
            ("arn:aws:s3", None, "", Auto, PLAIN, "is not an ARN"),
        ] {
            let region = Some(region).filter(|region| !region.is_empty());
            let error = check(bucket, endpoint, region, addressing, variants).expect_err(said).to_string();
            assert!(error.contains(said), "{error:?}, not {said:?}");
        }
    }
}
