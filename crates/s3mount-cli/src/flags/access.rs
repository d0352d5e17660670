//! The flags that mounts and measurements share.

use std::path::PathBuf;

const ACCESS: &str = "Endpoint and credentials";
pub(crate) const READING: &str = "Memory and reading ahead";

/// Which store, and with which credentials.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct AccessArgs {
    /// Region of the bucket [default: $AWS_REGION, $AWS_DEFAULT_REGION, the profile's, else found
    /// out].
    ///
    /// Giving it saves a request at the start.
    #[arg(long, value_name = "REGION", help_heading = ACCESS)]
    pub(crate) region: Option<String>,

    /// URL of another S3 server than AWS's, such as http://127.0.0.1:9000 [default:
    /// $AWS_ENDPOINT_URL_S3, $AWS_ENDPOINT_URL, else AWS].
    #[arg(long, value_name = "URL", help_heading = ACCESS)]
    pub(crate) endpoint_url: Option<String>,

    /// Put the bucket into the path and not into the host name.
    ///
    /// Needed for buckets of AWS whose names contain dots. For servers given by --endpoint-url the
    /// bucket is always in the path.
    #[arg(long, help_heading = ACCESS)]
    pub(crate) force_path_style: bool,

    /// Take the credentials from this profile of ~/.aws [default: the environment, $AWS_PROFILE,
    /// web identity, ECS, EC2, in this order].
    #[arg(long, value_name = "PROFILE", help_heading = ACCESS)]
    pub(crate) profile: Option<String>,

    /// Do not sign requests: for public buckets.
    #[arg(long, conflicts_with = "profile", help_heading = ACCESS)]
    pub(crate) no_sign_request: bool,

    /// Account that the bucket has to belong to.
    ///
    /// S3 refuses all requests to a bucket of another account, so nothing is read from or written to a
    /// bucket that somebody else has made under the expected name.
    #[arg(long, value_name = "ACCOUNT", help_heading = ACCESS)]
    pub(crate) expected_bucket_owner: Option<String>,

    /// Pay for the requests, as buckets demand whose owners do not.
    #[arg(long, conflicts_with = "no_sign_request", help_heading = ACCESS)]
    pub(crate) requester_pays: bool,

    /// PEM file of the certificate authorities to trust [default: $AWS_CA_BUNDLE, else the
    /// system's].
    #[arg(long, value_name = "FILE", help_heading = ACCESS)]
    pub(crate) ca_bundle: Option<PathBuf>,
}

impl AccessArgs {
    /// Whether no flag is set.
    pub(crate) fn is_default(&self) -> bool {
        let names = [&self.region, &self.endpoint_url, &self.profile, &self.expected_bucket_owner];
        let is_set = names.iter().any(|name| name.is_some()) || self.ca_bundle.is_some();
        !(is_set || self.force_path_style || self.no_sign_request || self.requester_pays)
    }
}
