//! Who finds the credentials of a store: the CRT, or `aws-config` for the profiles that the CRT cannot load.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use s3mount_credentials::{CredentialKind, ProfileSource, SourceConfig};
use s3mount_crt::Credentials;

use crate::resolved::profile::Aws;

/// How long the services that give credentials may take together. A mount waits for its store for longer, so
/// the reason is said.
const LIMIT: Duration = Duration::from_secs(20);

/// The region in which roles are asked for where none is known: its service knows all roles.
const ANY_REGION: &str = "us-east-1";

/// Which of the two finds the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finder {
    /// The CRT, in the environment, the default profile and the services of the machine.
    Chain,
    /// The CRT, in this profile.
    Profile(String),
    /// `aws-config`, by this profile.
    Aws(String, CredentialKind),
}

/// Decides who finds the credentials, by the variables and files of `aws`.
///
/// # Errors
/// For a profile that does not exist, and for one that no mount can use.
pub(crate) fn finder(flag: Option<&str>, aws: &Aws<'_>) -> anyhow::Result<Finder> {
    let is_set = |name: &str| (aws.variable)(name).is_some();
    // One of the keys alone is no reason to look elsewhere: the CRT says what is missing.
    if flag.is_none() && (is_set("AWS_ACCESS_KEY_ID") || is_set("AWS_SECRET_ACCESS_KEY")) {
        return Ok(Finder::Chain);
    }
    let named = flag.map(str::to_owned).or_else(|| (aws.variable)("AWS_PROFILE"));
    let profile = named.clone().unwrap_or_else(|| "default".to_owned());
    if named.is_some() && aws.settings(&profile).is_empty() {
        bail!("{}", missing(&profile, aws));
    }
    match s3mount_credentials::kind(&profile, &|name| aws.settings(name))? {
        Some(kind) if !kind.is_plain() => Ok(Finder::Aws(profile, kind)),
        // The CRT takes the address for a name, and asks nobody.
        None if flag.is_none() && is_set("AWS_WEB_IDENTITY_TOKEN_FILE") && is_set("AWS_ENDPOINT_URL_STS") => {
            let role = (aws.variable)("AWS_ROLE_ARN");
            let kind = role.map(|role| CredentialKind::EnvironmentRole { role });
            Ok(kind.map_or(Finder::Chain, |kind| Finder::Aws(profile, kind)))
        }
        Some(_) | None => Ok(flag.map_or(Finder::Chain, |flag| Finder::Profile(flag.to_owned()))),
    }
}

/// Says that a profile does not exist.
pub fn missing(profile: &str, aws: &Aws<'_>) -> String {
    let [config, keys] = aws.files().map(|file| file.display().to_string());
    format!(
        "the profile {profile:?} is neither in {config} nor in {keys}; aws configure list-profiles shows those that \
         are there"
    )
}

/// The source of a profile that the CRT cannot load.
pub fn source(
    profile: String,
    kind: CredentialKind,
    region: Option<&str>,
    ca_bundle: Option<&Path>,
) -> ProfileSource {
    ProfileSource::new(SourceConfig {
        profile,
        kind,
        region: region.unwrap_or(ANY_REGION).to_owned(),
        ca_bundle: ca_bundle.map(Path::to_owned),
        limit: LIMIT,
    })
}

/// The credentials that a client signs with.
///
/// # Errors
/// Those of [`finder`].
pub(crate) fn credentials(
    profile: Option<&str>,
    region: Option<&str>,
    ca_bundle: Option<&Path>,
) -> anyhow::Result<Credentials> {
    Ok(match finder(profile, &Aws::here())? {
        Finder::Chain => Credentials::Chain,
        Finder::Profile(profile) => Credentials::Profile(profile),
        Finder::Aws(profile, kind) => Credentials::Source(Arc::new(source(profile, kind, region, ca_bundle))),
    })
}

#[cfg(test)]
mod tests {
    use s3mount_credentials::CredentialKind;

    use super::{Finder, finder};
    use crate::resolved::profile::Aws;

    const CONFIG: &str = "\
[default]
sso_session = corp
[profile sso]
sso_session = corp
[profile keys]
aws_access_key_id = a
[profile bare]
region = x
[profile mfa]
role_arn = r
source_profile = keys
mfa_serial = m
";

    fn find(flag: Option<&str>, variables: &[(&str, &str)]) -> Result<Finder, String> {
        let aws = Aws {
            variable: &|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
            },
            read: &|path| (path.ends_with(".aws/config")).then(|| CONFIG.to_owned()),
        };
        finder(flag, &aws).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn a_role_of_the_environment_is_asked_for_where_the_environment_says() {
        let kind = CredentialKind::EnvironmentRole { role: "arn:r".to_owned() };
        let all = [
            ("AWS_CONFIG_FILE", "/dev/null"),
            ("AWS_ROLE_ARN", "arn:r"),
            ("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"),
            ("AWS_ENDPOINT_URL_STS", "http://sts"),
        ];
        assert_eq!(find(None, &all), Ok(Finder::Aws("default".to_owned(), kind)));
        assert_eq!(find(None, &all[..3]), Ok(Finder::Chain));
        assert_eq!(find(Some("keys"), &[&all[1..], &[]].concat()), Ok(Finder::Profile("keys".to_owned())));
    }

    #[test]
    fn the_crt_finds_what_it_can() {
        let sso =
            |name: &str| Ok(Finder::Aws(name.to_owned(), CredentialKind::Sso { profile: name.to_owned() }));
        let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_PROFILE", "sso")];
        assert_eq!(find(None, &keys), Ok(Finder::Chain));
        assert_eq!(find(Some("sso"), &keys), sso("sso"));
        assert_eq!(find(Some("keys"), &keys), Ok(Finder::Profile("keys".to_owned())));
        assert_eq!(find(Some("bare"), &[]), Ok(Finder::Profile("bare".to_owned())));
        assert_eq!(find(None, &[]), sso("default"));
        assert_eq!(find(None, &[("AWS_PROFILE", "sso")]), sso("sso"));
        assert_eq!(find(None, &[("AWS_PROFILE", "keys")]), Ok(Finder::Chain));
        assert_eq!(find(None, &[("AWS_CONFIG_FILE", "/dev/null")]), Ok(Finder::Chain));
    }

    #[test]
    fn profiles_that_no_mount_can_use_are_refused() {
        let error = find(Some("typo"), &[("HOME", "/h")]).expect_err("no profile");
        let said =
            "the profile \"typo\" is neither in /h/.aws/config nor in /h/.aws/credentials; aws configure";
        assert!(error.contains(said), "{error}");
        assert!(find(None, &[("AWS_PROFILE", "typo")]).expect_err("no profile").contains("typo"));
        assert!(find(Some("mfa"), &[]).expect_err("a second factor").contains("mfa_serial"));
    }
}
