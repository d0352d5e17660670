//! Which credentials sign requests, and until when. Nothing is asked for: whether they work, the store says.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::finding::Finding;
use crate::config::{environment, profile};
use crate::flags::access::AccessArgs;

const NAME: &str = "credentials";

/// Credentials that end so soon do not last for a job.
const SOON: Duration = Duration::from_secs(3600);

/// The names by which tools write down the end of a profile's credentials.
const ENDS: &[&str] = &["aws_session_expiration", "aws_expiration", "x_security_token_expires", "expiration"];

/// What there is to look at.
struct Places<'a> {
    variable: &'a dyn Fn(&str) -> Option<String>,
    read: &'a dyn Fn(&Path) -> Option<String>,
    now: SystemTime,
}

/// Looks for the credentials in the order in which a mount does.
pub(crate) fn check(access: &AccessArgs) -> Finding {
    let variable = environment::variable;
    let read = |path: &Path| std::fs::read_to_string(path).ok();
    find(access, &Places { variable: &variable, read: &read, now: SystemTime::now() })
}

fn find(access: &AccessArgs, places: &Places<'_>) -> Finding {
    if access.no_sign_request {
        return Finding::ok(NAME, "none: requests are not signed");
    }
    let variable = places.variable;
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
    let settings = of_profile(&profile, places);
    match (kind(&settings), named) {
        (Some(kind), _) => {
            return ending(&format!("profile {profile}: {kind}"), end_of(&settings), places.now, "");
        }
        (None, Some(_)) if settings.is_empty() => {
            let [config, keys] = files(places).map(|file| file.display().to_string());
            return Finding::fail(
                NAME,
                format!("the profile {profile:?} is neither in {config} nor in {keys}"),
                "aws configure list-profiles shows those that are there",
            );
        }
        (None, Some(_)) if access.profile.is_some() => {
            return Finding::fail(
                NAME,
                format!("the profile {profile:?} has no credentials"),
                "add them, or name another",
            );
        }
        _ => {}
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

fn of_environment(places: &Places<'_>) -> Finding {
    let end = (places.variable)("AWS_CREDENTIAL_EXPIRATION").and_then(|text| date(&text));
    let is_temporary = (places.variable)("AWS_SESSION_TOKEN").is_some();
    let said = if is_temporary { "the environment: temporary keys" } else { "the environment: keys" };
    let note = if is_temporary { ", whose end is not known" } else { "" };
    ending(said, end, places.now, note)
}

fn of_web_identity(token: &str, role: &str, places: &Places<'_>) -> Finding {
    match (places.read)(Path::new(token)) {
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
    let shown = OffsetDateTime::from(end).format(&Rfc3339).unwrap_or_default();
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

/// The config file and the credentials file.
fn files(places: &Places<'_>) -> [PathBuf; 2] {
    let home = PathBuf::from((places.variable)("HOME").unwrap_or_default());
    let file = |name, default| (places.variable)(name).map_or_else(|| home.join(default), PathBuf::from);
    [file("AWS_CONFIG_FILE", ".aws/config"), file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")]
}

/// What both files say of a profile.
fn of_profile(profile: &str, places: &Places<'_>) -> BTreeMap<String, String> {
    let [config, keys] = files(places).map(|file| (places.read)(&file).unwrap_or_default());
    let mut settings = profile::section(&config, profile, profile::Form::Config);
    settings.extend(profile::section(&keys, profile, profile::Form::Credentials));
    settings
}

/// What kind of credentials a profile has.
fn kind(settings: &BTreeMap<String, String>) -> Option<String> {
    let has = |name: &str| settings.contains_key(name);
    if let Some(role) = settings.get("role_arn") {
        return Some(format!("the role {role}"));
    }
    let kinds = [
        ("aws_access_key_id", "keys"),
        ("credential_process", "credential_process"),
        ("sso_session", "SSO"),
        ("sso_start_url", "SSO"),
        ("login_session", "login"),
    ];
    kinds.into_iter().find(|(name, _)| has(name)).map(|(_, kind)| kind.to_owned())
}

fn end_of(settings: &BTreeMap<String, String>) -> Option<SystemTime> {
    ENDS.iter().find_map(|name| date(settings.get(*name)?))
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

    use super::super::finding::State;
    use super::{Places, find};
    use crate::flags::Args;

    /// 2026-01-01.
    const NOW_S: u64 = 1_767_225_600;

    fn check(flags: &[&str], variables: &[(&str, &str)], files: &[(&str, &str)], state: State, said: &str) {
        let args = Args::try_parse_from(["s3mount", "b", "/d"].iter().chain(flags)).expect("flags");
        let look_up = |list: &[(&str, &str)], name: &str| {
            list.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let places = Places {
            variable: &|name| look_up(variables, name),
            read: &|path: &Path| look_up(files, path.to_str()?),
            now: SystemTime::UNIX_EPOCH + Duration::from_secs(NOW_S),
        };
        let finding = find(&args.mount.access, &places);
        assert!(finding.state == state && finding.line().contains(said), "{finding:?}, not {said:?}");
    }

    #[test]
    fn keys_of_the_environment() {
        let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b")];
        check(&[], &keys, &[], State::Ok, "the environment: keys");
        check(&[], &keys[..1], &[], State::Fail, "AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not");
        let until = |end| [keys[0], keys[1], ("AWS_SESSION_TOKEN", "t"), ("AWS_CREDENTIAL_EXPIRATION", end)];
        check(&[], &until(""), &[], State::Ok, "temporary keys, whose end is not known");
        check(
            &[],
            &until("2025-12-31T23:59:59Z"),
            &[],
            State::Fail,
            "which ended at 2025-12-31T23:59:59Z; renew",
        );
        check(&[], &until("2026-01-01T01:30:00+01:00"), &[], State::Warn, "in 30 min");
        check(&[], &until("2026-01-01T09:00:00Z"), &[], State::Ok, "until 2026-01-01T09:00:00Z");
        check(&["--no-sign-request"], &keys, &[], State::Ok, "not signed");
    }

    #[test]
    fn profiles() {
        let home = ("HOME", "/h");
        let config = (
            "/h/.aws/config",
            "[profile sso]\nsso_session = x\n[profile role]\nrole_arn = arn:r\n[profile bare]\nregion = x\n",
        );
        let keys = (
            "/h/.aws/credentials",
            "[old]\naws_access_key_id = a\naws_session_expiration = 2025-01-01T00:00:00Z\n",
        );
        let files = [config, keys];
        check(&["--profile", "sso"], &[home], &files, State::Ok, "profile sso: SSO");
        check(&[], &[home, ("AWS_PROFILE", "role")], &files, State::Ok, "the role arn:r");
        check(&["--profile", "old"], &[home], &files, State::Fail, "which ended at 2025-01-01T00:00:00Z");
        check(&["--profile", "bare"], &[home], &files, State::Fail, "has no credentials");
        check(
            &["--profile", "typo"],
            &[home],
            &files,
            State::Fail,
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
            State::Fail,
            "web identity as arn:r, by the token in /t, which ended",
        );
        check(&[], &identity, &[("/t", "opaque")], State::Ok, "web identity");
        check(&[], &identity, &[], State::Fail, "/t can't be read");
        check(
            &[],
            &[("AWS_CONTAINER_CREDENTIALS_FULL_URI", "http://x")],
            &[],
            State::Ok,
            "the container's role",
        );
        check(&[], &[], &[], State::Warn, "only the role of an EC2 instance is left");
        check(&[], &[("AWS_EC2_METADATA_DISABLED", "true")], &[], State::Fail, "neither in the environment");
    }
}
