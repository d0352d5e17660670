//! Where the credentials of a profile come from.

use std::collections::BTreeMap;
use std::fmt;

/// The settings of one profile.
pub type Settings = BTreeMap<String, String>;

/// A profile that can't be used. The text says why, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadProfile(pub String);

impl fmt::Display for BadProfile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for BadProfile {}

/// Where the credentials of a profile come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CredentialKind {
    /// Keys in the profile itself.
    Keys,
    /// A session of IAM Identity Center, which `aws sso login` begins for this profile.
    Sso {
        /// The profile that names the session.
        profile: String,
    },
    /// A session of the console, which `aws login` begins for this profile.
    Login {
        /// The profile that names the session.
        profile: String,
    },
    /// A command that prints keys.
    Process {
        /// The profile that names the command.
        profile: String,
    },
    /// A role, taken by a token in a file.
    WebIdentity {
        /// The role's ARN.
        role: String,
    },
    /// A role, taken by a token in a file, both of which the environment names.
    EnvironmentRole {
        /// The role's ARN.
        role: String,
    },
    /// A role, taken with other credentials.
    Role {
        /// The role's ARN.
        role: String,
        /// Those credentials.
        of: Box<CredentialKind>,
    },
    /// The environment, the container or the instance, as `credential_source` names them.
    Service(String),
}

impl CredentialKind {
    /// Whether the CRT loads these credentials as well as anybody.
    pub fn is_plain(&self) -> bool {
        *self == CredentialKind::Keys
    }

    /// The kind at the end of a chain of roles.
    pub fn origin(&self) -> &CredentialKind {
        match self {
            CredentialKind::Role { of, .. } => of.origin(),
            origin => origin,
        }
    }
}

impl fmt::Display for CredentialKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CredentialKind::Keys => f.write_str("keys"),
            CredentialKind::Sso { profile } => write!(f, "SSO (aws sso login --profile {profile})"),
            CredentialKind::Login { profile } => write!(f, "login (aws login --profile {profile})"),
            CredentialKind::Process { profile } => write!(f, "credential_process of profile {profile}"),
            CredentialKind::WebIdentity { role } => write!(f, "the role {role}, by web identity"),
            CredentialKind::EnvironmentRole { role } => {
                write!(f, "the role {role}, by web identity of the environment")
            }
            CredentialKind::Role { role, of } => write!(f, "the role {role}, by {of}"),
            CredentialKind::Service(name) => write!(f, "credential_source {name}"),
        }
    }
}

/// Finds out where the credentials of `profile` come from. `settings` gives the settings of a profile, none if
/// there is no such profile. `None` if the profile says nothing about credentials.
///
/// # Errors
/// A profile that wants a second factor, that names a profile which does not exist, or that names itself in a
/// circle.
pub fn kind(
    profile: &str,
    settings: &dyn Fn(&str) -> Settings,
) -> Result<Option<CredentialKind>, BadProfile> {
    follow(profile, settings, &mut Vec::new())
}

fn follow(
    profile: &str,
    settings: &dyn Fn(&str) -> Settings,
    passed: &mut Vec<String>,
) -> Result<Option<CredentialKind>, BadProfile> {
    let own = settings(profile);
    let get = |name: &str| own.get(name).map(String::as_str).filter(|value| !value.is_empty());
    let is_source = !passed.is_empty();
    // The keys of a profile that another one names as its source count before its own role.
    if is_source && get("aws_access_key_id").is_some() {
        return Ok(Some(CredentialKind::Keys));
    }
    if passed.iter().any(|name| name == profile) {
        let path = passed.join(" -> ");
        return Err(BadProfile(format!("source_profile leads in a circle: {path} -> {profile}")));
    }
    passed.push(profile.to_owned());
    let named = || profile.to_owned();
    if let Some(role) = get("role_arn").map(str::to_owned) {
        if get("web_identity_token_file").is_some() {
            return Ok(Some(CredentialKind::WebIdentity { role }));
        }
        if let Some(device) = get("mfa_serial") {
            return Err(BadProfile(format!(
                "profile {profile:?} asks for a code of the device {device} (mfa_serial), and a mount has nobody to \
                 ask; take its credentials before: eval \"$(aws configure export-credentials --profile {profile} \
                 --format env)\""
            )));
        }
        let of = match (get("source_profile"), get("credential_source")) {
            (Some(source), None) => role_source(profile, source, settings, passed)?,
            (None, Some(service)) => CredentialKind::Service(service.to_owned()),
            (Some(_), Some(_)) => {
                return Err(BadProfile(format!(
                    "profile {profile:?} has both source_profile and credential_source; delete one of them"
                )));
            }
            (None, None) => {
                return Err(BadProfile(format!(
                    "profile {profile:?} has a role_arn and nothing to take it with; add source_profile, \
                     credential_source or web_identity_token_file"
                )));
            }
        };
        return Ok(Some(CredentialKind::Role { role, of: Box::new(of) }));
    }
    Ok(if get("aws_access_key_id").is_some() && get("sso_session").is_none() {
        Some(CredentialKind::Keys)
    } else if get("sso_session").is_some() || get("sso_start_url").is_some() {
        Some(CredentialKind::Sso { profile: named() })
    } else if get("login_session").is_some() {
        Some(CredentialKind::Login { profile: named() })
    } else {
        get("credential_process").map(|_| CredentialKind::Process { profile: named() })
    })
}

/// What the role of `profile` is taken with.
fn role_source(
    profile: &str,
    source: &str,
    settings: &dyn Fn(&str) -> Settings,
    passed: &mut Vec<String>,
) -> Result<CredentialKind, BadProfile> {
    if settings(source).is_empty() {
        return Err(BadProfile(format!(
            "profile {profile:?} names the source_profile {source:?}, which does not exist; aws configure \
             list-profiles shows those that do"
        )));
    }
    follow(source, settings, passed)?.ok_or_else(|| {
        BadProfile(format!(
            "the source_profile {source:?} of profile {profile:?} has no credentials; add them"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::{CredentialKind, Settings, kind};

    /// Profiles, each with its settings.
    const PROFILES: &[(&str, &[(&str, &str)])] = &[
        ("keys", &[("aws_access_key_id", "a"), ("aws_secret_access_key", "b")]),
        ("sso", &[("sso_session", "corp"), ("sso_account_id", "1")]),
        ("legacy", &[("sso_start_url", "https://x")]),
        ("login", &[("login_session", "arn:x")]),
        ("process", &[("credential_process", "/bin/x")]),
        ("bare", &[("region", "x")]),
        ("web", &[("role_arn", "arn:w"), ("web_identity_token_file", "/t")]),
        ("role", &[("role_arn", "arn:r"), ("source_profile", "sso")]),
        ("chain", &[("role_arn", "arn:c"), ("source_profile", "role")]),
        ("own", &[("role_arn", "arn:o"), ("source_profile", "own"), ("aws_access_key_id", "a")]),
        ("ec2", &[("role_arn", "arn:e"), ("credential_source", "Ec2InstanceMetadata")]),
        ("mfa", &[("role_arn", "arn:m"), ("source_profile", "keys"), ("mfa_serial", "arn:device")]),
        ("behind", &[("role_arn", "arn:b"), ("source_profile", "mfa")]),
        ("typo", &[("role_arn", "arn:t"), ("source_profile", "kyes")]),
        ("empty", &[("role_arn", "arn:t"), ("source_profile", "bare")]),
        ("a", &[("role_arn", "arn:a"), ("source_profile", "b")]),
        ("b", &[("role_arn", "arn:b"), ("source_profile", "a")]),
        ("both", &[("role_arn", "r"), ("source_profile", "keys"), ("credential_source", "Environment")]),
        ("lonely", &[("role_arn", "r")]),
    ];

    fn settings(profile: &str) -> Settings {
        let found = PROFILES.iter().find(|(name, _)| *name == profile);
        found
            .into_iter()
            .flat_map(|(_, settings)| settings.iter())
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn each_kind_of_profile_is_known() {
        for (profile, shown) in [
            ("keys", "keys"),
            ("sso", "SSO (aws sso login --profile sso)"),
            ("legacy", "SSO (aws sso login --profile legacy)"),
            ("login", "login (aws login --profile login)"),
            ("process", "credential_process of profile process"),
            ("web", "the role arn:w, by web identity"),
            ("role", "the role arn:r, by SSO (aws sso login --profile sso)"),
            ("chain", "the role arn:c, by the role arn:r, by SSO (aws sso login --profile sso)"),
            ("own", "the role arn:o, by keys"),
            ("ec2", "the role arn:e, by credential_source Ec2InstanceMetadata"),
        ] {
            let found = kind(profile, &settings).expect("a usable profile").expect("credentials");
            assert_eq!(found.to_string(), shown);
        }
        assert_eq!(kind("bare", &settings), Ok(None));
        assert_eq!(kind("absent", &settings), Ok(None));
        let chain = kind("chain", &settings).expect("a usable profile").expect("credentials");
        assert_eq!(chain.origin(), &CredentialKind::Sso { profile: "sso".to_owned() });
    }

    #[test]
    fn profiles_that_cannot_work_are_refused() {
        for (profile, said) in [
            ("mfa", "asks for a code of the device arn:device (mfa_serial)"),
            ("behind", "profile \"mfa\" asks for a code"),
            ("typo", "names the source_profile \"kyes\", which does not exist"),
            ("empty", "the source_profile \"bare\" of profile \"empty\" has no credentials"),
            ("a", "in a circle: a -> b -> a"),
            ("both", "both source_profile and credential_source"),
            ("lonely", "nothing to take it with"),
        ] {
            let error = kind(profile, &settings).expect_err(profile).to_string();
            assert!(error.contains(said), "{error:?}, not {said:?}");
        }
    }
}
