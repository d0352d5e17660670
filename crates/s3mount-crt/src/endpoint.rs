//! The URL to which requests go.

use mountpoint_s3_crt::auth::signing_config::SigningAlgorithm;
use mountpoint_s3_crt::common::allocator::Allocator;
use mountpoint_s3_crt::common::uri::Uri;
use mountpoint_s3_crt::s3::endpoint_resolver::{RequestContext, RuleEngine};
use s3mount_object::{ErrorKind, ObjectError};

use crate::directory_bucket::is_directory_bucket;
use crate::encoding::{encode, encode_path};
use crate::{Addressing, CrtConfig};

/// The base URL of the bucket, and how requests to it are signed.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) uri: Uri,
    /// The value of the `Host` header.
    pub(crate) host: String,
    /// The part of the path before the key: empty, or `/bucket`.
    path: String,
    pub(crate) signing_region: String,
    pub(crate) signing_service: String,
    pub(crate) signing_algorithm: SigningAlgorithm,
    /// Whether requests are signed with the credentials of a session.
    pub(crate) has_sessions: bool,
}

impl Endpoint {
    /// The endpoint of the configured bucket in `region`.
    pub(crate) fn new(config: &CrtConfig, region: &str, allocator: &Allocator) -> Result<Self, ObjectError> {
        match &config.endpoint_url {
            Some(url) => Self::custom(url, config, region, allocator),
            None => Self::aws(config, region, allocator),
        }
    }

    /// The endpoint at `url`.
    fn custom(
        url: &str,
        config: &CrtConfig,
        region: &str,
        allocator: &Allocator,
    ) -> Result<Self, ObjectError> {
        let Some((scheme @ ("http" | "https"), authority)) = url.split_once("://") else {
            return Err(invalid(url, "an endpoint URL begins with http:// or https://"));
        };
        let parsed = |url: &str| Uri::new_from_str(allocator, url).map_err(|error| invalid(url, error));
        let mut uri = parsed(url)?;
        let mut path = uri.path().to_string_lossy().trim_end_matches('/').to_owned();
        let host = uri.host_name().to_string_lossy().into_owned();
        if host.is_empty() {
            return Err(invalid(url, "an endpoint URL names a host"));
        }
        let is_aws = host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn");
        let is_in_host = match config.addressing {
            Addressing::Auto => is_aws && !config.bucket.contains('.'),
            Addressing::Path => false,
            Addressing::Virtual => true,
        };
        if is_in_host {
            uri = parsed(&format!("{scheme}://{}.{authority}", config.bucket))?;
        } else {
            path = format!("{path}/{}", encode(&config.bucket));
        }
        let has_sessions = is_directory_bucket(&config.bucket);
        Ok(Self {
            host: uri.authority().to_string_lossy().into_owned(),
            uri,
            path,
            signing_region: region.to_owned(),
            signing_service: if has_sessions { "s3express" } else { "s3" }.to_owned(),
            signing_algorithm: SigningAlgorithm::SigV4,
            has_sessions,
        })
    }

    /// AWS's own endpoint, by the CRT's rules for endpoints.
    fn aws(config: &CrtConfig, region: &str, allocator: &Allocator) -> Result<Self, ObjectError> {
        let bucket = config.bucket.as_str();
        let fail = |error: &dyn std::fmt::Display| invalid(bucket, error.to_string());
        let mut context = RequestContext::new(allocator).map_err(|error| fail(&error))?;
        context.add_string(allocator, "Bucket", bucket).map_err(|error| fail(&error))?;
        context.add_string(allocator, "Region", region).map_err(|error| fail(&error))?;
        let choices = [
            ("ForcePathStyle", config.addressing == Addressing::Path),
            ("UseDualStack", config.variants.dual_stack),
            ("UseFIPS", config.variants.fips),
            ("Accelerate", config.variants.accelerate),
        ];
        for (name, _) in choices.into_iter().filter(|(_, is_chosen)| *is_chosen) {
            context.add_boolean(allocator, name, true).map_err(|error| fail(&error))?;
        }
        let engine = RuleEngine::new(allocator).map_err(|error| fail(&error))?;
        let resolved = engine.resolve(context).map_err(|error| fail(&error))?;
        let uri = Uri::new_from_str(allocator, resolved.get_url()).map_err(|error| fail(&error))?;
        let properties = resolved.get_properties().into_encoded_bytes();
        let properties: serde_json::Value = serde_json::from_slice(&properties).unwrap_or_default();
        let scheme = &properties["authSchemes"][0];
        let text = |name: &str, default: &str| scheme[name].as_str().unwrap_or(default).to_owned();
        Ok(Self {
            host: uri.authority().to_string_lossy().into_owned(),
            path: uri.path().to_string_lossy().trim_end_matches('/').to_owned(),
            uri,
            signing_region: text("signingRegion", region),
            signing_service: text("signingName", "s3"),
            signing_algorithm: match scheme["name"].as_str() {
                Some("sigv4a") => SigningAlgorithm::SigV4A,
                // A session's credentials sign as others do (see `session`).
                Some(_) | None => SigningAlgorithm::SigV4,
            },
            has_sessions: scheme["name"].as_str() == Some("sigv4-s3express"),
        })
    }

    /// The path of an object, percent-encoded.
    pub(crate) fn object_path(&self, key: &str) -> String {
        format!("{}/{}", self.path, encode_path(key))
    }

    /// The path of the bucket with `query`, whose values are encoded here.
    pub(crate) fn bucket_path(&self, query: &[(&str, &str)]) -> String {
        let base = if self.path.is_empty() { "/" } else { &self.path };
        let pairs: Vec<_> = query.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        if pairs.is_empty() { base.to_owned() } else { format!("{base}?{}", pairs.join("&")) }
    }
}

fn invalid(what: &str, why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> ObjectError {
    ObjectError::new(ErrorKind::Rejected, "resolve endpoint", what).with_source(why)
}

#[cfg(test)]
mod tests {
    use mountpoint_s3_crt::common::allocator::Allocator;

    use super::Endpoint;
    use crate::{Addressing, CrtConfig, Variants};

    /// Checks the `Host` header, the path of the key `k` and the region of the signature.
    fn check(config: &CrtConfig, expected: (&str, &str, &str)) {
        let endpoint = Endpoint::new(config, "eu-west-1", &Allocator::default()).expect("an endpoint");
        let found = (&*endpoint.host, &*endpoint.object_path("k"), &*endpoint.signing_region);
        assert_eq!(found, expected, "{config:?}");
    }

    #[test]
    fn buckets_find_their_place() {
        use Addressing::{Auto, Path, Virtual};
        let aws = "https://s3.eu-west-1.amazonaws.com/";
        let dual = "https://s3.dualstack.eu-west-1.amazonaws.com";
        for (url, addressing, host, path) in [
            (None, Auto, "b1b.s3.eu-west-1.amazonaws.com", "/k"),
            (None, Virtual, "b1b.s3.eu-west-1.amazonaws.com", "/k"),
            (None, Path, "s3.eu-west-1.amazonaws.com", "/b1b/k"),
            (Some("http://127.0.0.1:9000"), Auto, "127.0.0.1:9000", "/b1b/k"),
            (Some("https://minio.example/store/"), Auto, "minio.example", "/store/b1b/k"),
            (Some("https://minio.example:9000/"), Virtual, "b1b.minio.example:9000", "/k"),
            (Some("https://minio.example/store"), Virtual, "b1b.minio.example", "/store/k"),
            (Some(dual), Auto, "b1b.s3.dualstack.eu-west-1.amazonaws.com", "/k"),
            (Some(aws), Path, "s3.eu-west-1.amazonaws.com", "/b1b/k"),
        ] {
            let endpoint_url = url.map(str::to_owned);
            let config = CrtConfig { endpoint_url, addressing, ..CrtConfig::new("b1b") };
            check(&config, (host, path, "eu-west-1"));
        }
        let dotted = CrtConfig::new("dotted.bucket");
        check(&dotted, ("s3.eu-west-1.amazonaws.com", "/dotted.bucket/k", "eu-west-1"));
    }

    #[test]
    fn aws_has_endpoints_of_many_kinds() {
        let point = "arn:aws:s3:us-west-2:111122223333:accesspoint/name";
        let (here, there) = ("eu-west-1", "us-west-2");
        for (bucket, (dual_stack, fips, accelerate), host, region) in [
            ("b1b", (true, false, false), "b1b.s3.dualstack.eu-west-1.amazonaws.com", here),
            ("b1b", (false, true, false), "b1b.s3-fips.eu-west-1.amazonaws.com", here),
            ("b1b", (true, true, false), "b1b.s3-fips.dualstack.eu-west-1.amazonaws.com", here),
            ("b1b", (false, false, true), "b1b.s3-accelerate.amazonaws.com", here),
            ("b1b", (true, false, true), "b1b.s3-accelerate.dualstack.amazonaws.com", here),
            ("n-abc-s3alias", (false, false, false), "n-abc-s3alias.s3.eu-west-1.amazonaws.com", here),
            (point, (false, false, false), "name-111122223333.s3-accesspoint.us-west-2.amazonaws.com", there),
            (
                point,
                (true, false, false),
                "name-111122223333.s3-accesspoint.dualstack.us-west-2.amazonaws.com",
                there,
            ),
            (
                point,
                (false, true, false),
                "name-111122223333.s3-accesspoint-fips.us-west-2.amazonaws.com",
                there,
            ),
        ] {
            let variants = Variants { dual_stack, fips, accelerate };
            check(&CrtConfig { variants, ..CrtConfig::new(bucket) }, (host, "/k", region));
        }
    }

    #[test]
    fn a_directory_bucket_has_a_host_in_its_zone_and_sessions() {
        const BUCKET: &str = "data--euw1-az1--x-s3";
        let at = |url: Option<&str>| {
            let config = CrtConfig { endpoint_url: url.map(str::to_owned), ..CrtConfig::new(BUCKET) };
            Endpoint::new(&config, "eu-west-1", &Allocator::default()).expect("an endpoint")
        };
        for (url, host, path) in [
            (None, "data--euw1-az1--x-s3.s3express-euw1-az1.eu-west-1.amazonaws.com", "/k"),
            (Some("http://127.0.0.1:9000"), "127.0.0.1:9000", "/data--euw1-az1--x-s3/k"),
        ] {
            let endpoint = at(url);
            assert_eq!((endpoint.host.as_str(), endpoint.object_path("k").as_str()), (host, path));
            assert_eq!((endpoint.signing_service.as_str(), endpoint.has_sessions), ("s3express", true));
        }
    }

    #[test]
    fn nonsense_is_no_endpoint() {
        for url in ["localhost:9000", "ftp://host", "http://", ""] {
            let config = CrtConfig { endpoint_url: Some(url.to_owned()), ..CrtConfig::new("b") };
            assert!(Endpoint::new(&config, "eu-west-1", &Allocator::default()).is_err(), "{url}");
        }
    }
}
