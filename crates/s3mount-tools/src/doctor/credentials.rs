//! Which credentials sign requests, and until when. Whether they work, the store says. Only for SSO, login, roles and
//! processes is anybody asked: nothing else knows until when theirs last.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use s3mount_credentials::CredentialKind;
use s3mount_crt::CredentialSource as _;
use s3mount_settings::flags::access::AccessArgs;
use s3mount_settings::resolved::credentials::{missing, source};
use s3mount_settings::resolved::profile::Aws;
use s3mount_settings::resolved::store;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::finding::Finding;

const NAME: &str = "credentials";

/// Credentials that end so soon do not last for a job.
const SOON: Duration = Duration::from_secs(3600);

/// The names by which tools write down the end of a profile's credentials.
const ENDS: &[&str] = &["aws_session_expiration", "aws_expiration", "x_security_token_expires", "expiration"];

/// Asks for the keys of a profile that the CRT cannot load, and says until when they last.
type Ask<'a> = dyn Fn(&str, &CredentialKind) -> Result<Option<SystemTime>, String> + 'a;

/// What there is to look at.
struct Places<'a> {
    aws: Aws<'a>,
    ask: &'a Ask<'a>,
    now: SystemTime,
}

/// Looks for the credentials in the order in which a mount does.
pub(crate) fn check(access: &AccessArgs) -> Finding {
    let ask = |profile: &str, kind: &CredentialKind| {
        let region = store::region(access).map(|(region, _)| region);
        let bundle = store::ca_bundle(access).map(|(path, _)| path);
        let source = source(profile.to_owned(), kind.clone(), region.as_deref(), bundle.as_deref());
        futures::executor::block_on(source.keys()).map(|keys| keys.end).map_err(|error| error.to_string())
    };
    find(access, &Places { aws: Aws::here(), ask: &ask, now: SystemTime::now() })
}

fn find(access: &AccessArgs, places: &Places<'_>) -> Finding {
    if access.no_sign_request {
        return Finding::ok(NAME, "none: requests are not signed");
    }
    let variable = places.aws.variable;
    if access.profile.is_none() {
        match (variable("AWS_ACCESS_KEY_ID"), variable("AWS_SECRET_ACCESS_KEY")) {
            (Some(_), Some(_)) => return of_environment(places),
            (None, None) => {}
            (id, _) => {
                let (set, missing) = match id {
                    Some(_) => ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
                    None => ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
                };
                return Finding::fail(
                    NAME,
                    format!("{set} is set and {missing} is not"),
                    format!("set {missing}, too"),
                );
            }
        }
    }
    let named = access.profile.clone().or_else(|| variable("AWS_PROFILE"));
    let profile = named.clone().unwrap_or_else(|| "default".to_owned());
    let settings = places.aws.settings(&profile);
    if named.is_some() && settings.is_empty() {
        return Finding::fail(NAME, missing(&profile, &places.aws), "");
    }
    match s3mount_credentials::kind(&profile, &|name| places.aws.settings(name)) {
        Err(bad) => return Finding::fail(NAME, bad.to_string(), ""),
        Ok(Some(kind)) => return of_profile(&profile, &kind, end_of(&settings), places),
        Ok(None) if access.profile.is_some() => {
            return Finding::fail(
                NAME,
                format!("the profile {profile:?} has no credentials"),
                "add them, or name another",
            );
        }
        Ok(None) => {}
    }
    if let (Some(token), Some(role)) = (variable("AWS_WEB_IDENTITY_TOKEN_FILE"), variable("AWS_ROLE_ARN")) {
        return of_web_identity(&token, &role, places);
    }
    if ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"]
        .into_iter()
        .any(|name| variable(name).is_some())
    {
        return Finding::ok(NAME, "the container's role (ECS, EKS), which is renewed by itself");
    }
    let none = "neither in the environment nor in ~/.aws, and no web identity";
    let remedy = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with --profile, or pass --no-sign-request for a \
         public bucket";
    if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
        return Finding::fail(NAME, none, remedy);
    }
    Finding::warn(NAME, format!("{none}: only the role of an EC2 instance is left"), remedy)
}

fn of_profile(
    profile: &str,
    kind: &CredentialKind,
    written: Option<SystemTime>,
    places: &Places<'_>,
) -> Finding {
    let said = format!("profile {profile}: {kind}");
    if kind.is_plain() {
        return ending(&said, written, places.now, "");
    }
    match (places.ask)(profile, kind) {
        // They are renewed by themselves, so it does not matter how soon they end.
        Ok(Some(end)) => Finding::ok(NAME, format!("{said}, until {}, renewed before", date_of(end))),
        Ok(None) => Finding::ok(NAME, said),
        Err(why) => Finding::fail(NAME, why, ""),
    }
}

fn of_environment(places: &Places<'_>) -> Finding {
    let end = (places.aws.variable)("AWS_CREDENTIAL_EXPIRATION").and_then(|text| date(&text));
    let is_temporary = (places.aws.variable)("AWS_SESSION_TOKEN").is_some();
    let said = if is_temporary { "the environment: temporary keys" } else { "the environment: keys" };
    let note = if is_temporary { ", whose end is not known" } else { "" };
    ending(said, end, places.now, note)
}

fn of_web_identity(token: &str, role: &str, places: &Places<'_>) -> Finding {
    match (places.aws.read)(Path::new(token)) {
        None => Finding::fail(
            NAME,
            format!("AWS_WEB_IDENTITY_TOKEN_FILE {token} can't be read"),
            "the service account's token has to be mounted there",
        ),
        Some(text) => ending(
            &format!("web identity as {role}, by the token in {token}"),
            token_end(&text),
            places.now,
            "",
        ),
    }
}

/// A finding about credentials that end at `end`, if that is known.
fn ending(said: &str, end: Option<SystemTime>, now: SystemTime, note: &str) -> Finding {
    const REMEDY: &str =
        "renew them: a mount takes new ones without a remount where a file or a service has them";
    let Some(end) = end else { return Finding::ok(NAME, format!("{said}{note}")) };
    let shown = date_of(end);
    match end.duration_since(now) {
        Err(_) => Finding::fail(NAME, format!("{said}, which ended at {shown}"), REMEDY),
        Ok(left) if left < SOON => Finding::warn(
            NAME,
            format!("{said}, which end at {shown}, in {} min", left.as_secs() / 60),
            REMEDY,
        ),
        Ok(_) => Finding::ok(NAME, format!("{said}, until {shown}")),
    }
}

fn end_of(settings: &BTreeMap<String, String>) -> Option<SystemTime> {
    ENDS.iter().find_map(|name| date(settings.get(*name)?))
}

fn date_of(time: SystemTime) -> String {
    OffsetDateTime::from(time).format(&Rfc3339).unwrap_or_default()
}

fn date(text: &str) -> Option<SystemTime> {
    OffsetDateTime::parse(text.trim(), &Rfc3339).ok().map(SystemTime::from)
}

/// When a token ends: the number `exp` in the middle of its three parts.
fn token_end(token: &str) -> Option<SystemTime> {
    let claims = URL_SAFE_NO_PAD.decode(token.trim().split('.').nth(1)?.trim_end_matches('=')).ok()?;
    let claims: serde_json::Value = serde_json::from_slice(&claims).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(claims["exp"].as_u64()?))
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::time::{Duration, SystemTime};

    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use clap::Parser as _;
    use s3mount_settings::resolved::profile::Aws;

    use super::super::DoctorArgs;
    use super::super::finding::CheckStatus;
    use super::{Places, find};

    /// 2026-01-01.
    const NOW_S: u64 = 1_767_225_600;

    fn check(
        flags: &[&str],
        variables: &[(&str, &str)],
        files: &[(&str, &str)],
        state: CheckStatus,
        said: &str,
    ) {
        let args = DoctorArgs::try_parse_from(["doctor", "b", "/d"].iter().chain(flags)).expect("flags");
        let look_up = |list: &[(&str, &str)], name: &str| {
            list.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_S);
        let places = Places {
            aws: Aws {
                variable: &|name| look_up(variables, name),
                read: &|path: &Path| look_up(files, path.to_str()?),
            },
            ask: &|profile, _| match profile {
                "ended" => Err("run `aws sso login --profile ended`".to_owned()),
                _ => Ok(Some(now + Duration::from_secs(600))),
            },
            now,
        };
        let finding = find(&args.mount.access, &places);
        assert!(finding.state == state && finding.line().contains(said), "{finding:?}, not {said:?}");
    }

    #[test]
    fn keys_of_the_environment() {
        let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
        check(&[], &keys, &[], CheckStatus::Ok, "the environment: keys");
        check(
            &[],
            &keys[..1],
            &[],
            CheckStatus::Fail,
            "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not",
        );
        let until = |end| [keys[0], keys[1], ("AWS_SESSION_TOKEN", "t"), ("AWS_CREDENTIAL_EXPIRATION", end)];
        check(&[], &until(""), &[], CheckStatus::Ok, "temporary keys, whose end is not known");
        check(
            &[],
            &until("2025-12-31T23:59:59Z"),
            &[],
            CheckStatus::Fail,
            "which ended at 2025-12-31T23:59:59Z; renew",
        );
        check(&[], &until("2026-01-01T01:30:00+01:00"), &[], CheckStatus::Warn, "in 30 min");
        check(&[], &until("2026-01-01T09:00:00Z"), &[], CheckStatus::Ok, "until 2026-01-01T09:00:00Z");
        check(&["--no-sign-request"], &keys, &[], CheckStatus::Ok, "not signed");
    }

    #[test]
    fn profiles() {
        let home = ("HOME", "/h");
        let config = (
            "/h/.aws/config",
            "[profile sso]\nsso_session = x\n[profile role]\nrole_arn = arn:r\nsource_profile = sso\n\
             [profile bare]\nregion = x\n[profile ended]\nsso_session = x\n\
             [profile mfa]\nrole_arn = arn:m\nsource_profile = sso\nmfa_serial = arn:d\n",
        );
        let keys = (
            "/h/.aws/credentials",
            "[old]\naws_access_key_id = a\naws_session_expiration = 2025-01-01T00:00:00Z\n",
        );
        let files = [config, keys];
        let until =
            "profile sso: SSO (aws sso login --profile sso), until 2026-01-01T00:10:00Z, renewed before";
        check(&["--profile", "sso"], &[home], &files, CheckStatus::Ok, until);
        check(
            &["--profile", "ended"],
            &[home],
            &files,
            CheckStatus::Fail,
            "run `aws sso login --profile ended`",
        );
        check(
            &["--profile", "mfa"],
            &[home],
            &files,
            CheckStatus::Fail,
            "asks for a code of the device arn:d",
        );
        check(&[], &[home, ("AWS_PROFILE", "role")], &files, CheckStatus::Ok, "the role arn:r, by SSO");
        check(
            &["--profile", "old"],
            &[home],
            &files,
            CheckStatus::Fail,
            "which ended at 2025-01-01T00:00:00Z",
        );
        check(&["--profile", "bare"], &[home], &files, CheckStatus::Fail, "has no credentials");
        check(
            &["--profile", "typo"],
            &[home],
            &files,
            CheckStatus::Fail,
            "is neither in /h/.aws/config nor in /h/.aws/credentials",
        );
    }

    #[test]
    fn services() {
        let claims = URL_SAFE_NO_PAD.encode(format!("{{\"exp\":{}}}", NOW_S - 1));
        let token = format!("x.{claims}.y");
        let identity = [("AWS_WEB_IDENTITY_TOKEN_FILE", "/t"), ("AWS_ROLE_ARN", "arn:r")];
        check(
            &[],
            &identity,
            &[("/t", &token)],
            CheckStatus::Fail,
            "web identity as arn:r, by the token in /t, which ended",
        );
        check(&[], &identity, &[("/t", "opaque")], CheckStatus::Ok, "web identity");
        check(&[], &identity, &[], CheckStatus::Fail, "/t can't be read");
        check(
            &[],
            &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://x")],
            &[],
            CheckStatus::Ok,
            "the container's role",
        );
        check(&[], &[], &[], CheckStatus::Warn, "only the role of an EC2 instance is left");
        check(
            &[],
            &[("AWS_EC2_METADATA_DISABLED", "true")],
            &[],
            CheckStatus::Fail,
            "neither in the environment",
        );
    }
}
