//! By whose credentials a volume is read: the driver's, those of a Secret, or those of the pod's service account.
//!
//! All but the driver's are a profile in files of the mount, which the daemon is told to use and no other: where they fail,
//! it takes no role of the machine in their place.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tonic::Status;

use crate::protocol::Texts;

/// The audience of tokens that AWS takes for a role.
const AUDIENCE: &str = "sts.amazonaws.com";

/// The profile of a volume that does not have the driver's credentials.
pub(crate) const PROFILE: &str = "volume";

/// The names that the keys have in a Secret: those of AWS's driver, and those of the environment.
const KEY_ID: [&str; 2] = ["key_id", "AWS_ACCESS_KEY_ID"];
const SECRET_KEY: [&str; 2] = ["access_key", "AWS_SECRET_ACCESS_KEY"];
const SESSION_TOKEN: [&str; 2] = ["session_token", "AWS_SESSION_TOKEN"];

/// Whose credentials they are. Who has the same may share a mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Credentials {
    /// Those that the driver runs with.
    Driver,
    /// Those of a Secret, known by their SHA-256.
    Secret { sha256: String },
    /// Those of a service account, which takes a role.
    Pod { namespace: String, account: String, role: String },
}

impl Credentials {
    /// Whether a volume that had the `former` ones may have these in their place: they come from where those came from.
    pub(crate) fn replace(&self, former: &Self) -> bool {
        match (self, former) {
            (Self::Secret { .. }, Self::Secret { .. }) => true,
            _ => self == former,
        }
    }

    /// The `authenticationSource` that they come from.
    pub(crate) fn source(&self) -> &'static str {
        match self {
            Self::Driver => "driver",
            Self::Secret { .. } => "secret",
            Self::Pod { .. } => "pod",
        }
    }
}

impl fmt::Display for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver => f.write_str("those of the driver"),
            Self::Secret { .. } => f.write_str("those of a Secret"),
            Self::Pod { namespace, account, role } => {
                write!(f, "those of the service account {namespace}/{account} with the role {role}")
            }
        }
    }
}

/// The files of a mount by which its daemon finds them, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Given {
    keys: Option<String>,
    role: Option<TakenRole>,
    token: Option<String>,
}

/// A role, and the name under which it is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TakenRole {
    arn: String,
    session: String,
}

/// The longest name of a session.
const MOST_OF_SESSION: usize = 64;

/// The file of the settings of the profile, of its keys, and of the service account's token.
pub(crate) const CONFIG: &str = "config";
pub(crate) const KEYS: &str = "credentials";
const TOKEN: &str = "token";

impl Given {
    /// The files, and what is in them, for a mount whose files are in `dir`.
    pub(crate) fn files(&self, dir: &Path) -> Vec<(&'static str, String)> {
        let mut files = Vec::new();
        if let Some(token) = &self.token {
            files.push((TOKEN, token.clone()));
        }
        if let Some(TakenRole { arn, session }) = &self.role {
            let token = dir.join(TOKEN);
            let text = format!(
                "[profile {PROFILE}]\nrole_arn = {arn}\nrole_session_name = {session}\nweb_identity_token_file = {}\n",
                token.display()
            );
            files.push((CONFIG, text));
        }
        if let Some(keys) = &self.keys {
            files.push((KEYS, keys.clone()));
        }
        files
    }
}

/// Finds out whose credentials a volume has.
///
/// # Errors
/// Says which attribute, or which key of the Secret, is missing or can't be one.
pub(crate) fn read(attributes: &Texts, secrets: &Texts) -> Result<(Credentials, Given), Status> {
    let source = attributes.get("authenticationSource").map(String::as_str);
    let source = source.unwrap_or(if secrets.is_empty() { "driver" } else { "secret" });
    if source != "pod" && attributes.get("roleArn").is_some_and(|role| !role.is_empty()) {
        return Err(Status::invalid_argument(format!(
            "the attribute roleArn is for volumes with authenticationSource: pod, and this one has {source}; set it, or \
             leave the role out"
        )));
    }
    if matches!(source, "driver" | "pod") && !secrets.is_empty() {
        return Err(Status::invalid_argument(format!(
            "the volume has a Secret, and authenticationSource {source} takes no keys from it; leave the Secret out, or \
             set authenticationSource: secret"
        )));
    }
    match source {
        "driver" => Ok((Credentials::Driver, Given::default())),
        "secret" => of_secret(secrets),
        "pod" => of_pod(attributes),
        other => Err(Status::invalid_argument(format!(
            "authenticationSource {other:?} is none of driver, secret and pod"
        ))),
    }
}

fn of_secret(secrets: &Texts) -> Result<(Credentials, Given), Status> {
    for [name, other] in [KEY_ID, SECRET_KEY, SESSION_TOKEN] {
        let value = |name: &str| secrets.get(name).map(|value| value.trim());
        if let (Some(value), Some(second)) = (value(name), value(other))
            && value != second
        {
            return Err(Status::invalid_argument(format!(
                "the Secret of the volume has {name} and {other}, and these differ; leave one of them out"
            )));
        }
    }
    let find = |names: [&str; 2]| names.iter().find_map(|name| secrets.get(*name)).map(|value| value.trim());
    let need = |names: [&str; 2]| {
        find(names).ok_or_else(|| {
            Status::invalid_argument(format!(
                "the Secret of the volume has neither {} nor {}; name one by nodePublishSecretRef that has",
                names[0], names[1]
            ))
        })
    };
    let (key, secret, session) = (need(KEY_ID)?, need(SECRET_KEY)?, find(SESSION_TOKEN));
    let mut text = format!("[{PROFILE}]\n");
    for (name, value) in [
        ("aws_access_key_id", Some(key)),
        ("aws_secret_access_key", Some(secret)),
        ("aws_session_token", session),
    ] {
        let Some(value) = value else { continue };
        one_word(value).map_err(|why| Status::invalid_argument(format!("the Secret's {name} {why}")))?;
        text.push_str(&format!("{name} = {value}\n"));
    }
    let sha256 = format!("{:x}", Sha256::digest(&text));
    Ok((Credentials::Secret { sha256 }, Given { keys: Some(text), ..Given::default() }))
}

fn of_pod(attributes: &Texts) -> Result<(Credentials, Given), Status> {
    let find = |name: &str| attributes.get(name).filter(|value| !value.is_empty());
    let role = find("roleArn").ok_or_else(|| {
        Status::invalid_argument(
            "the attribute roleArn is missing: name the role that the pod's service account takes",
        )
    })?;
    one_word(role).map_err(|why| Status::invalid_argument(format!("the attribute roleArn {why}")))?;
    if !role.starts_with("arn:") {
        return Err(Status::invalid_argument(format!("roleArn {role:?} is not the ARN of a role")));
    }
    let of_pod = |name: &str| {
        find(&format!("csi.storage.k8s.io/{name}")).ok_or_else(|| {
            Status::failed_precondition(format!(
                "Kubernetes did not tell the {name} of the pod; the CSIDriver object needs podInfoOnMount: true, and \
                 tokenRequests with the audience {AUDIENCE}"
            ))
        })
    };
    let tokens = of_pod("serviceAccount.tokens")?;
    let tokens: serde_json::Value = serde_json::from_str(tokens).map_err(|error| {
        Status::invalid_argument(format!("the tokens of the service account are no JSON: {error}"))
    })?;
    let token = tokens[AUDIENCE]["token"].as_str().ok_or_else(|| {
        Status::failed_precondition(format!(
            "the pod's service account has no token for {AUDIENCE}; add it to tokenRequests of the CSIDriver object"
        ))
    })?;
    one_word(token).map_err(|why| Status::invalid_argument(format!("the token {why}")))?;
    let (namespace, account) = (of_pod("pod.namespace")?.clone(), of_pod("serviceAccount.name")?.clone());
    for (name, value) in [("namespace", &namespace), ("service account", &account)] {
        one_word(value)
            .map_err(|why| Status::invalid_argument(format!("the name of the pod's {name} {why}")))?;
    }
    // The names that Kubernetes takes have no other characters than those of a session. It shows in AWS's logs.
    let session = format!("{namespace}.{account}").chars().take(MOST_OF_SESSION).collect();
    let taken = TakenRole { arn: role.clone(), session };
    let given = Given { role: Some(taken), token: Some(token.to_owned()), keys: None };
    Ok((Credentials::Pod { namespace, account, role: role.clone() }, given))
}

/// Checks that a value fits in a line of a file of profiles.
fn one_word(value: &str) -> Result<(), &'static str> {
    match value {
        "" => Err("is empty"),
        value if value.chars().all(|c| c.is_ascii_graphic()) => Ok(()),
        _ => Err("has a character that is none of ASCII, or a blank"),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{Credentials, read};
    use crate::protocol::Texts;

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn keys_of_a_secret_become_a_profile() {
        for names in [["key_id", "access_key"], ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]] {
            let secrets = texts(&[(names[0], "AK\n"), (names[1], "s+/=")]);
            let (credentials, given) = read(&Texts::new(), &secrets).expect("keys");
            assert!(matches!(credentials, Credentials::Secret { .. }));
            let text = "[volume]\naws_access_key_id = AK\naws_secret_access_key = s+/=\n".to_owned();
            assert_eq!(given.files(Path::new("/d")), [("credentials", text)]);
        }
    }

    #[test]
    fn other_keys_are_other_credentials() {
        let of = |key: &str, secret: &str| {
            read(&Texts::new(), &texts(&[("key_id", key), ("access_key", secret)])).expect("keys").0
        };
        assert_eq!(of("a", "b"), of("a", "b"));
        assert_ne!(of("a", "b"), of("a", "c"), "who knows only the name of a key shares nothing");
        assert!(of("a", "b").replace(&of("c", "d")));
        assert!(!Credentials::Driver.replace(&of("c", "d")));
    }

    #[test]
    fn a_secret_that_contradicts_is_refused() {
        let keys = [("key_id", "a"), ("access_key", "b")];
        let with = |pairs: &[(&str, &str)]| texts(&[&keys[..], pairs].concat());
        let refused = read(&Texts::new(), &with(&[("AWS_ACCESS_KEY_ID", "c")])).expect_err("two keys");
        assert!(refused.message().contains("key_id and AWS_ACCESS_KEY_ID"), "{refused}");
        assert!(read(&Texts::new(), &with(&[("AWS_ACCESS_KEY_ID", "a\n")])).is_ok());
        for source in ["driver", "pod"] {
            let attributes = texts(&[("authenticationSource", source)]);
            let refused = read(&attributes, &with(&[])).expect_err("nobody takes the keys");
            assert!(refused.message().contains("has a Secret"), "{refused}");
        }
    }

    #[test]
    fn a_secret_adds_no_line_of_its_own() {
        let secrets = texts(&[("key_id", "a"), ("access_key", "b\nrole_arn = arn:aws:iam::1:role/other")]);
        assert!(read(&Texts::new(), &secrets).is_err());
    }
}
