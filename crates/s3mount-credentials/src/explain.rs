//! Says why there are no keys, and what to do.

use std::error::Error;
use std::time::SystemTime;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_sso::operation::get_role_credentials::GetRoleCredentialsError;
use aws_sdk_sts::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_sts::operation::assume_role::AssumeRoleError;
use aws_sdk_sts::operation::assume_role_with_web_identity::AssumeRoleWithWebIdentityError;
use s3mount_crt::NoKeys;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::CredentialKind;
use crate::config::SourceConfig;

/// What AWS's library said.
struct Said {
    /// The code of a service's answer.
    code: Option<String>,
    /// The service has failed by itself.
    is_failure: bool,
    text: String,
}

/// Whose answer there is, or that there is none.
#[derive(Clone, Copy, PartialEq, Eq)]
enum By {
    Portal,
    Sts,
    /// STS, which has no time for anybody.
    BusySts,
    /// STS, which has not answered.
    SilentSts,
    Other,
}

/// Codes with which STS refuses nobody for long, beside its own failures.
const BUSY: [&str; 4] =
    ["IDPCommunicationError", "RequestLimitExceeded", "Throttling", "ThrottlingException"];

pub(crate) fn explain(config: &SourceConfig, error: &CredentialsError) -> NoKeys {
    let (by, said) = said(error);
    no_keys(config, &reason(config, by, &said))
}

/// Nothing came within the limit.
pub(crate) fn no_answer(config: &SourceConfig) -> NoKeys {
    let limit = config.limit;
    no_keys(
        config,
        &match config.kind.origin() {
            CredentialKind::Process { profile } => format!(
                "the credential_process of profile {profile:?} did not end within {limit:?} and was killed; run it \
                 by hand to see what it waits for"
            ),
            _ => format!("no answer within {limit:?}; check the network"),
        },
    )
}

/// Keys came that are of no use.
pub(crate) fn ended(config: &SourceConfig, end: SystemTime) -> NoKeys {
    let end = OffsetDateTime::from(end).format(&Rfc3339).unwrap_or_default();
    no_keys(config, &format!("what came ended at {end}; renew it, and check this machine's clock"))
}

fn no_keys(config: &SourceConfig, why: &str) -> NoKeys {
    let text = match &config.kind {
        CredentialKind::EnvironmentRole { .. } => {
            format!("AWS_ROLE_ARN and AWS_WEB_IDENTITY_TOKEN_FILE: {why}")
        }
        _ => format!("profile {:?}: {why}", config.profile),
    };
    NoKeys(text.into())
}

fn reason(config: &SourceConfig, by: By, Said { code, text, .. }: &Said) -> String {
    let says = |names: &[&str]| names.iter().any(|name| text.to_lowercase().contains(name));
    let role = match &config.kind {
        CredentialKind::Role { role, .. }
        | CredentialKind::EnvironmentRole { role }
        | CredentialKind::WebIdentity { role } => role.as_str(),
        _ => "role",
    };
    match (by, config.kind.origin()) {
        (By::SilentSts, _) => {
            format!("cannot reach STS for {role} ({text}); check the network, and AWS_ENDPOINT_URL_STS")
        }
        (By::BusySts, _) => format!("STS cannot serve now ({text}), and {role} is asked of it; try again"),
        (By::Sts, _) => {
            let advice = match code.as_deref() {
                Some("ExpiredToken" | "ExpiredTokenException") => "renew the credentials it is taken with",
                Some("AccessDenied") => {
                    "the role's trust policy and the caller's permission for sts:AssumeRole decide"
                }
                _ => "check the profile's role_arn and its source",
            };
            format!("STS does not give {role} ({text}); {advice}")
        }
        (By::Portal, CredentialKind::Sso { profile }) => match code.as_deref() {
            Some("UnauthorizedException") => sso_login("the SSO session has ended", profile),
            Some("ForbiddenException") => format!(
                "SSO does not give this role ({text}); check sso_role_name and sso_account_id of profile {profile:?}"
            ),
            _ => format!("the SSO portal does not give keys ({text}); check sso_region and the network"),
        },
        (_, CredentialKind::Sso { profile }) if says(&["expired"]) => {
            sso_login("the SSO session has ended", profile)
        }
        (_, CredentialKind::Sso { profile }) if says(&["cached sso token", "sso/cache", "invalid json"]) => {
            sso_login(&format!("there is no SSO session that can be used ({text})"), profile)
        }
        (_, CredentialKind::Login { profile }) => {
            format!(
                "there is no login session that can be used ({text}); run `aws login --profile {profile}`"
            )
        }
        (_, CredentialKind::Process { profile }) => {
            format!("the credential_process of profile {profile:?} brings no keys ({text}); run it by hand")
        }
        _ => text.clone(),
    }
}

fn sso_login(why: &str, profile: &str) -> String {
    format!("{why}; run `aws sso login --profile {profile}`")
}

/// The service that was asked, its code, and the texts of the error and its causes.
fn said(error: &CredentialsError) -> (By, Said) {
    let (mut by, mut texts): (By, Vec<String>) = (By::Other, Vec::new());
    let mut cause = Some(error as &(dyn Error + 'static));
    while let Some(error) = cause {
        for (by, found) in [
            (By::Portal, answer::<GetRoleCredentialsError>(error)),
            (By::Sts, answer::<AssumeRoleError>(error)),
            (By::Sts, answer::<AssumeRoleWithWebIdentityError>(error)),
        ] {
            if let Some(said) = found {
                let is_busy =
                    said.is_failure || said.code.as_deref().is_some_and(|code| BUSY.contains(&code));
                return (if by == By::Sts && is_busy { By::BusySts } else { by }, said);
            }
        }
        if is_silent::<AssumeRoleError>(error) || is_silent::<AssumeRoleWithWebIdentityError>(error) {
            by = By::SilentSts;
        }
        let text = error.to_string();
        // Some layers only say that something went wrong.
        if !text.starts_with("an error occurred while loading") {
            texts.push(short(&text));
        }
        cause = error.source();
    }
    (by, Said { code: None, is_failure: false, text: texts.join(": ") })
}

/// Whether this is a request that nobody has answered.
fn is_silent<E: Error + 'static>(error: &(dyn Error + 'static)) -> bool {
    let sent = error.downcast_ref::<SdkError<E>>();
    matches!(
        sent,
        Some(SdkError::DispatchFailure(_) | SdkError::TimeoutError(_) | SdkError::ResponseError(_))
    )
}

/// What a service said, if this is its answer.
fn answer<E>(error: &(dyn Error + 'static)) -> Option<Said>
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let SdkError::ServiceError(answer) = error.downcast_ref::<SdkError<E>>()? else { return None };
    let (code, message) = (answer.err().code(), answer.err().message());
    let texts = [code, message].into_iter().flatten().collect::<Vec<_>>();
    let text = if texts.is_empty() { "an answer without a reason".to_owned() } else { texts.join(": ") };
    let is_failure = answer.raw().status().is_server_error();
    Some(Said { code: code.map(str::to_owned), is_failure, text: short(&text) })
}

/// One line of bounded length: a process may print anything.
fn short(text: &str) -> String {
    const MOST: usize = 300;
    let line: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}
