//! The store and the credentials that the flags name, and the first connection to the store.

use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use s3mount_bucket::first_answer;
use s3mount_changes::{QueueConfig, QueueName};
use s3mount_crt::directory_bucket::is_directory_bucket;
use s3mount_crt::{Addressing, Credentials, CrtClient, CrtConfig, NoKeys, Variants};
use s3mount_object::{ErrorKind, ListObjects, ListPage, ObjectClient, ObjectError};
use s3mount_write::StoreAddress;

use crate::flags::access::AccessArgs;
use crate::resolved::environment::variable;
use crate::resolved::{credentials, directory_bucket, place, profile, source};

/// The time that the store may take for its first answer.
const CONNECT_LIMIT: Duration = Duration::from_secs(30);

/// The advice for a store that does not answer. An untrusted certificate also looks like no answer, because
/// s2n waits for up to 30 s before it reports the certificate.
pub const SILENCE: &str = "check the network, and whether its certificate needs --ca-bundle FILE";

/// A bucket, the endpoint of its store, and the credentials to use.
#[derive(Clone, Debug)]
pub struct Store {
    /// The bucket, the ARN of an access point, or its alias.
    pub bucket: String,
    region: Option<String>,
    endpoint_url: Option<String>,
    addressing: Addressing,
    variants: Variants,
    profile: Option<String>,
    no_sign_request: bool,
    expected_bucket_owner: Option<String>,
    requester_pays: bool,
    /// The file with the certificates to trust, if one is named.
    pub ca_bundle: Option<PathBuf>,
    network_interfaces: Vec<String>,
    user_agent_prefix: Option<String>,
}

/// The region that the flag, the environment or the profile names, and which of them. `None` if none of them names a
/// region: the client then asks the store.
pub fn region(args: &AccessArgs) -> Option<(String, String)> {
    let flag = args.region.clone().map(|region| (region, "--region".to_owned()));
    let variables = ["AWS_REGION", "AWS_DEFAULT_REGION"].into_iter();
    let profile = || {
        let region = profile::region(args.profile.as_deref())?;
        Some((region, format!("profile {}", profile::name(args.profile.as_deref()))))
    };
    flag.or_else(|| first(variables)).or_else(profile)
}

/// The CA bundle that the flag or the environment names, and which of them. The daemon's working folder is `/`, so
/// the caller must make the path absolute.
pub fn ca_bundle(args: &AccessArgs) -> Option<(PathBuf, String)> {
    let flag = args.ca_bundle.clone().map(|path| (path, "--ca-bundle".to_owned()));
    flag.or_else(|| first(["AWS_CA_BUNDLE"].into_iter()).map(|(path, from)| (path.into(), from)))
}

/// Checks that the CA bundle can be read.
pub fn check_bundle(bundle: &Path) -> anyhow::Result<()> {
    let remedy = "give a readable PEM file with --ca-bundle or $AWS_CA_BUNDLE";
    let readable = File::open(bundle).and_then(|file| file.metadata());
    let metadata =
        readable.with_context(|| format!("cannot read the CA bundle {}; {remedy}", bundle.display()))?;
    ensure!(!metadata.is_dir(), "the CA bundle {} is a folder; {remedy}", bundle.display());
    Ok(())
}

/// The endpoint that the flag or the environment names, and which of them.
pub(super) fn endpoint_url(flag: Option<&str>) -> anyhow::Result<Option<(String, String)>> {
    let flag = flag.map(|url| (url.to_owned(), "--endpoint-url".to_owned()));
    let named = flag.or_else(|| first(["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"].into_iter()));
    named.iter().try_for_each(|(url, from)| check_url(from, url))?;
    Ok(named)
}

/// The value of the first of these variables that is set, and its name.
fn first(mut variables: impl Iterator<Item = &'static str>) -> Option<(String, String)> {
    variables.find_map(|name| Some((variable(name)?, name.to_owned())))
}

/// Which of AWS's endpoints the flags name, or the environment if the store is AWS.
fn variants(named: Variants, is_aws: bool, variable: impl Fn(&str) -> Option<String>) -> Variants {
    let is_set = |name| is_aws && variable(name).is_some_and(|value| value.eq_ignore_ascii_case("true"));
    Variants {
        dual_stack: named.dual_stack || is_set("AWS_USE_DUALSTACK_ENDPOINT"),
        fips: named.fips || is_set("AWS_USE_FIPS_ENDPOINT"),
        ..named
    }
}

/// Checks a URL that the flag or the variable `name` gives.
fn check_url(name: &str, url: &str) -> anyhow::Result<()> {
    ensure!(
        url.starts_with("http://") || url.starts_with("https://"),
        "{name} {url:?} is not a URL; write it with http:// or https://, such as http://127.0.0.1:9000"
    );
    Ok(())
}

/// Checks the account that the bucket has to belong to. AWS's have numbers.
fn bucket_owner(named: Option<&str>, is_aws: bool) -> anyhow::Result<Option<String>> {
    let Some(account) = named else { return Ok(None) };
    let is_number = account.len() == 12 && account.bytes().all(|byte| byte.is_ascii_digit());
    let is_word = !account.is_empty() && account.bytes().all(|byte| byte.is_ascii_graphic());
    ensure!(
        is_number || is_word && !is_aws,
        "--expected-bucket-owner {account:?} is not an AWS account; write its 12 digits, such as 111122223333"
    );
    Ok(Some(account.to_owned()))
}

impl Store {
    /// The store of `bucket`, as the flags and the environment describe it.
    pub fn new(bucket: String, args: &AccessArgs) -> anyhow::Result<Self> {
        let endpoint = endpoint_url(args.endpoint_url.as_deref())?;
        source::check_name(&bucket, endpoint.is_none())?;
        directory_bucket::check(&bucket, args)?;
        let zonal = match endpoint {
            None => directory_bucket::region(&bucket, args.region.as_deref())?,
            Some(_) => None,
        };
        let region = region(args).map(|(region, _)| region);
        let region = place::region(&bucket).map(str::to_owned).or(zonal).or(region);
        let (addressing, variants) =
            (args.addressing(), variants(args.variants(), endpoint.is_none(), variable));
        let named = endpoint.as_ref().map(|(url, from)| (url.as_str(), from.as_str()));
        place::check(&bucket, named, region.as_deref(), addressing, variants)?;
        let endpoint_url = endpoint.map(|(url, _)| url);
        let owner = bucket_owner(args.expected_bucket_owner.as_deref(), endpoint_url.is_none())?;
        Ok(Self {
            bucket,
            region,
            endpoint_url,
            addressing,
            variants,
            profile: args.profile.clone(),
            no_sign_request: args.no_sign_request,
            expected_bucket_owner: owner,
            requester_pays: args.requester_pays,
            ca_bundle: ca_bundle(args).map(|(path, _)| std::path::absolute(path)).transpose()?,
            network_interfaces: args.bind.clone(),
            user_agent_prefix: args.user_agent_prefix.clone(),
        })
    }

    /// The same store for a bucket that another one is copied from. At AWS it may be in a region of its own, which
    /// is found out unless it is given.
    pub fn of_another_bucket(self, region: Option<&str>) -> Self {
        let is_aws = self.endpoint_url.is_none();
        let region = region.map(str::to_owned).or_else(|| self.region.filter(|_| !is_aws));
        Self { region, ..self }
    }

    /// The same store for a bucket that lists are read from. Who owns it, and which of AWS's endpoints it has, is not what
    /// the flags say of the mounted bucket.
    pub(crate) fn of_lists(&self, bucket: &str) -> anyhow::Result<Self> {
        source::check_name(bucket, self.endpoint_url.is_none())?;
        let store = if bucket == self.bucket { self.clone() } else { self.clone().of_another_bucket(None) };
        let variants = Variants { accelerate: false, ..store.variants };
        let expected_bucket_owner = store.expected_bucket_owner.filter(|_| bucket == self.bucket);
        Ok(Self { bucket: bucket.to_owned(), variants, expected_bucket_owner, ..store })
    }

    /// A client of the bucket, after its first answer, which says in which region it is.
    ///
    /// # Errors
    /// Why there is none, and what to do.
    pub async fn connect_only(&self, config: CrtConfig) -> anyhow::Result<CrtClient> {
        let connect = first_answer(CONNECT_LIMIT, || CrtClient::connect(config.clone()));
        tokio::time::timeout(CONNECT_LIMIT, connect)
            .await
            .map_err(|_| self.silent())?
            .map(|(client, _)| client)
            .map_err(|error| explain(self, error))
    }

    fn silent(&self) -> anyhow::Error {
        anyhow!("{} gave no answer within {CONNECT_LIMIT:?}; {SILENCE}", self.shown())
    }

    /// The bucket and its store, in the form of a URL. Two stores never have the same: what is kept on a disk
    /// is filed under this. The names of AWS's buckets are unique without an endpoint.
    pub fn identity(&self) -> String {
        match &self.endpoint_url {
            Some(url) => format!("{}/{}", url.trim_end_matches('/'), self.bucket),
            None => format!("s3://{}", self.bucket),
        }
    }

    /// The endpoint as the keys of the shared cache name it.
    pub(crate) fn endpoint_name(&self) -> &str {
        self.endpoint_url.as_deref().map_or("s3", |url| url.trim_end_matches('/'))
    }

    /// The store of a shared cache. Credentials are those of this store where `profile` names none, and
    /// certificates are trusted alike.
    pub(crate) fn shared_cache(
        &self,
        bucket: &str,
        endpoint: Option<&str>,
        region: Option<&str>,
        profile: Option<&str>,
    ) -> anyhow::Result<Self> {
        if let Some(url) = endpoint {
            check_url("--shared-cache: endpoint", url)?;
        }
        source::check_name(bucket, endpoint.is_none())?;
        Ok(Self {
            bucket: bucket.to_owned(),
            region: region.map(str::to_owned),
            endpoint_url: endpoint.map(str::to_owned),
            addressing: Addressing::Auto,
            // Those of the source may not be there for the other bucket.
            variants: Variants::default(),
            profile: profile.map(str::to_owned).or_else(|| self.profile.clone()),
            // The source says nothing about the shared bucket: not that it is public, nor whose it is.
            no_sign_request: false,
            expected_bucket_owner: None,
            requester_pays: false,
            ca_bundle: self.ca_bundle.clone(),
            network_interfaces: self.network_interfaces.clone(),
            user_agent_prefix: self.user_agent_prefix.clone(),
        })
    }

    /// The store that a journal names.
    pub fn at(address: &StoreAddress) -> Self {
        let StoreAddress {
            bucket,
            endpoint_url,
            region,
            profile,
            force_path_style,
            virtual_host,
            dual_stack,
            fips,
            accelerate,
            no_sign_request,
            expected_bucket_owner,
            requester_pays,
            ca_bundle,
        } = address.clone();
        Self {
            bucket,
            region,
            endpoint_url,
            addressing: match (force_path_style, virtual_host) {
                (true, _) => Addressing::Path,
                (false, true) => Addressing::Virtual,
                (false, false) => Addressing::Auto,
            },
            variants: Variants { dual_stack, fips, accelerate },
            profile,
            no_sign_request,
            expected_bucket_owner,
            requester_pays,
            ca_bundle,
            network_interfaces: Vec::new(),
            user_agent_prefix: None,
        }
    }

    /// What a journal says of this store.
    pub fn address(&self) -> StoreAddress {
        let Self {
            bucket,
            region,
            endpoint_url,
            addressing,
            variants: Variants { dual_stack, fips, accelerate },
            profile,
            no_sign_request,
            expected_bucket_owner,
            requester_pays,
            ca_bundle,
            // Who cleans up may be another machine, with other interfaces.
            network_interfaces: _,
            user_agent_prefix: _,
        } = self.clone();
        StoreAddress {
            bucket,
            endpoint_url,
            region,
            profile,
            force_path_style: addressing == Addressing::Path,
            virtual_host: addressing == Addressing::Virtual,
            dual_stack,
            fips,
            accelerate,
            no_sign_request,
            expected_bucket_owner,
            requester_pays,
            ca_bundle,
        }
    }

    /// The name of the store for messages.
    pub fn shown(&self) -> &str {
        self.endpoint_url.as_deref().unwrap_or("S3")
    }

    /// The settings of a client for this store, with at most `max_connections` connections, and one event loop: that is
    /// enough for a few requests, and starts at once.
    ///
    /// # Errors
    /// For a profile that does not exist, and for one that no mount can use.
    pub fn crt_config(&self, max_connections: u32) -> anyhow::Result<CrtConfig> {
        let credentials = if self.no_sign_request {
            Credentials::Anonymous
        } else {
            credentials::credentials(
                self.profile.as_deref(),
                self.region.as_deref(),
                self.ca_bundle.as_deref(),
            )?
        };
        let usual = CrtConfig::new(&self.bucket);
        let user_agent = match &self.user_agent_prefix {
            Some(prefix) => format!("{prefix} {}", usual.user_agent),
            None => usual.user_agent.clone(),
        };
        Ok(CrtConfig {
            region: self.region.clone(),
            endpoint_url: self.endpoint_url.clone(),
            addressing: self.addressing,
            variants: self.variants,
            credentials,
            ca_bundle: self.ca_bundle.clone(),
            expected_bucket_owner: self.expected_bucket_owner.clone(),
            requester_pays: self.requester_pays,
            max_connections,
            event_loops: 1,
            network_interfaces: self.network_interfaces.clone(),
            user_agent,
            ..usual
        })
    }

    /// The queue of this name, which tells of changes of the bucket, for a bucket in `region`.
    pub fn queue(&self, name: QueueName, region: &str) -> QueueConfig {
        let (profile, ca_bundle) = (self.profile.clone(), self.ca_bundle.clone());
        // An access point has another name than its bucket, by which notifications go.
        let is_access_point = self.bucket.starts_with("arn:") || self.bucket.ends_with("-s3alias");
        let bucket = (!is_access_point).then(|| self.bucket.clone());
        QueueConfig { name, bucket, region: region.to_owned(), profile, ca_bundle }
    }

    /// The flags that name this store, for a command line that we start ourselves.
    pub fn flags(&self) -> Vec<OsString> {
        let values = [
            ("--region", self.region.clone().map(OsString::from)),
            ("--endpoint-url", self.endpoint_url.clone().map(OsString::from)),
            ("--profile", self.profile.clone().map(OsString::from)),
            ("--expected-bucket-owner", self.expected_bucket_owner.clone().map(OsString::from)),
            ("--ca-bundle", self.ca_bundle.clone().map(OsString::from)),
            ("--user-agent-prefix", self.user_agent_prefix.clone().map(OsString::from)),
            ("--addressing", (self.addressing == Addressing::Virtual).then(|| "virtual".into())),
        ];
        let switches = [
            ("--force-path-style", self.addressing == Addressing::Path),
            ("--dual-stack", self.variants.dual_stack),
            ("--fips", self.variants.fips),
            ("--transfer-acceleration", self.variants.accelerate),
            ("--no-sign-request", self.no_sign_request),
            ("--requester-pays", self.requester_pays),
        ];
        let interfaces = self.network_interfaces.iter().map(|name| ("--bind", Some(name.into())));
        let values = values.into_iter().chain(interfaces);
        let values = values.filter_map(|(flag, value)| Some([OsString::from(flag), value?]));
        let switches = switches.into_iter().filter(|(_, is_set)| *is_set);
        values.flatten().chain(switches.map(|(flag, _)| flag.into())).collect()
    }

    /// Makes a client, and asks the store for a page of at most `max_keys` keys below `prefix`. So an error
    /// is reported before anything is built on the client.
    pub async fn connect(
        &self,
        config: CrtConfig,
        prefix: &str,
        max_keys: u32,
    ) -> anyhow::Result<(CrtClient, ListPage)> {
        // A directory bucket lists whole folders only.
        let prefix = match is_directory_bucket(&self.bucket) {
            true => &prefix[..prefix.rfind('/').map_or(0, |slash| slash + 1)],
            false => prefix,
        };
        let attempt = async {
            let (client, _) = first_answer(CONNECT_LIMIT, || CrtClient::connect(config.clone())).await?;
            let first =
                ListObjects { prefix: prefix.to_owned(), max_keys: Some(max_keys), ..ListObjects::default() };
            let page = first_answer(CONNECT_LIMIT, || client.list_objects(first.clone())).await?;
            Ok((client, page))
        };
        tokio::time::timeout(CONNECT_LIMIT, attempt)
            .await
            .map_err(|_| self.silent())?
            .map_err(|error| explain(self, error))
    }
}

/// Explains an error: what failed, with which value, and what the user can do.
pub fn explain(store: &Store, error: ObjectError) -> anyhow::Error {
    let Store { bucket, region, expected_bucket_owner: owner, .. } = store;
    let store = store.shown();
    let detail = error.detail();
    let said = [&detail.code, &detail.message].map(|text| text.as_deref().unwrap_or_default()).join(": ");
    let said = if said == ": " { "access denied".to_owned() } else { said };
    let text = match error.kind() {
        _ if detail.code.as_deref() == Some("RequestTimeTooSkewed") => format!(
            "{store} refuses the requests of this machine because its clock is wrong; set the clock (timedatectl \
             shows whether it is synchronized)"
        ),
        ErrorKind::NoSuchBucket | ErrorKind::NotFound => format!(
            "bucket {bucket:?} does not exist at {store}; check its name{}, and --endpoint-url if it is not at AWS",
            directory_bucket::remedy(bucket)
        ),
        ErrorKind::WrongRegion(Some(region)) => {
            format!("bucket {bucket:?} is in region {region:?}; pass --region {region}")
        }
        ErrorKind::WrongRegion(None) => format!(
            "bucket {bucket:?} is not in region {:?}; pass its own with --region",
            region.as_deref().unwrap_or("us-east-1")
        ),
        ErrorKind::Forbidden if owner.is_some() => format!(
            "{store} refuses access to bucket {bucket:?} ({said}); either it does not belong to the account {} of \
             --expected-bucket-owner, or the credentials lack s3:ListBucket and s3:GetObject for it",
            owner.as_deref().unwrap_or_default()
        ),
        ErrorKind::Forbidden if is_directory_bucket(bucket) => format!(
            "{store} refuses access to the directory bucket {bucket:?} ({said}); the credentials need \
             s3express:CreateSession for it"
        ),
        ErrorKind::Forbidden => format!(
            "{store} refuses access to bucket {bucket:?} ({said}); the credentials need s3:ListBucket and \
             s3:GetObject for it, and a public bucket needs --no-sign-request"
        ),
        ErrorKind::BadCredentials => format!(
            "{store} does not accept the credentials for bucket {bucket:?} ({said}); renew them, or choose others \
             with --profile"
        ),
        ErrorKind::NoCredentials if let Some(why) = no_keys(&error) => {
            format!("no credentials for bucket {bucket:?}: {why}")
        }
        ErrorKind::NoCredentials => format!(
            "no credentials for bucket {bucket:?}; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a \
             profile with --profile, or pass --no-sign-request for a public bucket"
        ),
        ErrorKind::Tls => format!(
            "no TLS with {store}; an http:// server needs http:// in --endpoint-url, and a certificate of your own \
             authority needs --ca-bundle FILE"
        ),
        // A server without TLS closes the connection during the TLS handshake.
        ErrorKind::Network if store.starts_with("https://") => format!(
            "cannot reach {store} for bucket {bucket:?}; check --endpoint-url (a server without TLS takes http://) \
             and the network"
        ),
        ErrorKind::Network | ErrorKind::TimedOut => {
            let zone = directory_bucket::remedy(bucket);
            format!("cannot reach {store} for bucket {bucket:?}; check --endpoint-url{zone} and the network")
        }
        _ => format!("{store} does not serve bucket {bucket:?}"),
    };
    match no_keys(&error) {
        // It is the text's end already.
        Some(_) => anyhow!(text),
        None => anyhow::Error::new(error).context(text),
    }
}

/// Why a source of credentials has none.
fn no_keys(error: &ObjectError) -> Option<&NoKeys> {
    std::error::Error::source(error)?.downcast_ref()
}

#[cfg(test)]
mod tests {
    use s3mount_crt::Variants;

    use super::{bucket_owner, endpoint_url, variants};

    #[test]
    fn an_owner_is_an_account() {
        for (named, is_aws) in
            [("my-account", true), ("11112222333", true), ("", false), ("two words", false)]
        {
            assert!(bucket_owner(Some(named), is_aws).is_err(), "{named}");
        }
        assert_eq!(
            bucket_owner(Some("111122223333"), true).expect("12 digits").as_deref(),
            Some("111122223333")
        );
        assert!(bucket_owner(Some("ceph-user"), false).is_ok() && bucket_owner(None, true).is_ok());
    }

    #[test]
    fn an_endpoint_is_a_url() {
        let error = endpoint_url(Some("127.0.0.1:9000")).expect_err("no scheme").to_string();
        assert!(error.starts_with("--endpoint-url \"127.0.0.1:9000\" is not a URL"), "{error}");
        assert!(endpoint_url(Some("http://[::1]:9000")).is_ok());
    }

    #[test]
    fn the_environment_chooses_among_aws_s_endpoints() {
        let set = |name: &str| (name == "AWS_USE_FIPS_ENDPOINT").then(|| "True".to_owned());
        let none = Variants::default();
        assert_eq!(variants(none, true, set), Variants { fips: true, ..none });
        assert_eq!(variants(none, false, set), none, "other stores have none");
        let flag = Variants { dual_stack: true, ..none };
        assert_eq!(variants(flag, true, |_| Some("false".to_owned())), flag);
    }
}
