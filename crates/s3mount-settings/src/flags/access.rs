//! The flags that mounts and measurements share.

use std::path::PathBuf;

use nix::net::if_::{if_nameindex, if_nametoindex};
use s3mount_crt::{Addressing, Variants};

const ACCESS: &str = "Endpoint and credentials";
/// The heading of the flags of memory and reading ahead.
pub const READING: &str = "Memory and reading ahead";

/// Where the bucket's name goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum AddressingArg {
    /// As the store usually has it.
    Auto,
    /// HOST/BUCKET/KEY.
    Path,
    /// BUCKET.HOST/KEY.
    Virtual,
}

/// The store and the credentials.
#[derive(Clone, Debug, clap::Args)]
pub struct AccessArgs {
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

    /// Where the bucket's name goes: into the path, or before the host name.
    ///
    /// auto is before the host name at AWS, unless the bucket's name has dots, and in the path of a server
    /// given by --endpoint-url. Stores that want BUCKET.HOST, such as Alibaba OSS and Tencent COS, need
    /// virtual.
    #[arg(long, value_name = "WHERE", default_value = "auto", help_heading = ACCESS, hide_short_help = true)]
    pub(crate) addressing: AddressingArg,

    /// The same as --addressing path.
    #[arg(long, conflicts_with = "addressing", hide = true)]
    pub(crate) force_path_style: bool,

    /// Use AWS's endpoints that have IPv6 addresses, too.
    ///
    /// So does AWS_USE_DUALSTACK_ENDPOINT=true, unless an endpoint is given.
    #[arg(long, help_heading = ACCESS, hide_short_help = true)]
    pub(crate) dual_stack: bool,

    /// Use AWS's endpoints whose cryptography is validated by FIPS 140.
    ///
    /// So does AWS_USE_FIPS_ENDPOINT=true, unless an endpoint is given.
    #[arg(long, help_heading = ACCESS, hide_short_help = true)]
    pub(crate) fips: bool,

    /// Use AWS's endpoints of S3 Transfer Acceleration.
    ///
    /// The bucket must have it enabled, and AWS charges for it. It is for readers far from the bucket's
    /// region.
    #[arg(long, help_heading = ACCESS, hide_short_help = true)]
    pub(crate) transfer_acceleration: bool,

    /// Take the credentials from this profile of ~/.aws [default: the environment, $AWS_PROFILE,
    /// web identity, ECS, EC2, in this order].
    #[arg(long, value_name = "PROFILE", help_heading = ACCESS)]
    pub profile: Option<String>,

    /// Do not sign requests: for public buckets.
    #[arg(long, conflicts_with = "profile", help_heading = ACCESS)]
    pub no_sign_request: bool,

    /// Account that the bucket has to belong to.
    ///
    /// S3 refuses all requests to a bucket of another account, so nothing is read from or written to a
    /// bucket that another account has made under the expected name.
    #[arg(long, value_name = "ACCOUNT", help_heading = ACCESS, hide_short_help = true)]
    pub(crate) expected_bucket_owner: Option<String>,

    /// Pay for the requests, for buckets whose owners do not.
    #[arg(long, conflicts_with = "no_sign_request", help_heading = ACCESS, hide_short_help = true)]
    pub(crate) requester_pays: bool,

    /// PEM file of the certificate authorities to trust [default: $AWS_CA_BUNDLE, else the
    /// system's].
    #[arg(long, value_name = "FILE", help_heading = ACCESS)]
    pub(crate) ca_bundle: Option<PathBuf>,

    /// Text before s3mount's own in the User-Agent of all requests, by which logs of the store tell who has asked.
    #[arg(long, value_name = "TEXT", value_parser = agent, help_heading = ACCESS, hide_short_help = true)]
    pub(crate) user_agent_prefix: Option<String>,

    /// Network interface that the connections to the store use [default: the system's routes choose].
    ///
    /// Given several times, the connections use the interfaces in turn, so that a machine with several network cards
    /// has the bandwidth of all. Requests for credentials use the system's routes.
    #[arg(long, value_name = "INTERFACE", value_parser = interface, help_heading = ACCESS, hide_short_help = true)]
    pub(crate) bind: Vec<String>,
}

/// Checks that a text can be in a header.
fn agent(text: &str) -> Result<String, String> {
    let is_header = !text.is_empty() && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    is_header
        .then(|| text.to_owned())
        .ok_or_else(|| "not text for a header; write ASCII, such as team-a/1.0".to_owned())
}

/// Checks that there is a network interface of this name.
fn interface(name: &str) -> Result<String, String> {
    if if_nametoindex(name).is_ok() {
        return Ok(name.to_owned());
    }
    let all = if_nameindex().map_err(|error| format!("cannot list the network interfaces: {error}"))?;
    let names: Vec<_> = all.iter().map(|interface| interface.name().to_string_lossy()).collect();
    Err(format!("this machine has no network interface of this name; it has {}", names.join(", ")))
}

impl AccessArgs {
    /// Whether no flag is set.
    pub fn is_default(&self) -> bool {
        let names = [
            &self.region,
            &self.endpoint_url,
            &self.profile,
            &self.expected_bucket_owner,
            &self.user_agent_prefix,
        ];
        let is_set =
            names.iter().any(|name| name.is_some()) || self.ca_bundle.is_some() || !self.bind.is_empty();
        let is_placed = self.addressing() != Addressing::Auto || self.variants() != Variants::default();
        !(is_set || is_placed || self.no_sign_request || self.requester_pays)
    }

    /// Where the bucket's name goes.
    pub(crate) fn addressing(&self) -> Addressing {
        match self.addressing {
            AddressingArg::Path => Addressing::Path,
            AddressingArg::Auto if self.force_path_style => Addressing::Path,
            AddressingArg::Auto => Addressing::Auto,
            AddressingArg::Virtual => Addressing::Virtual,
        }
    }

    /// The variants of AWS's endpoints to use.
    pub(crate) fn variants(&self) -> Variants {
        let Self { dual_stack, fips, transfer_acceleration: accelerate, .. } = *self;
        Variants { dual_stack, fips, accelerate }
    }
}
