//! One search for keys.

use std::fs;
use std::time::SystemTime;

use aws_config::Region;
use aws_config::profile::ProfileFileCredentialsProvider;
use aws_config::provider_config::ProviderConfig;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_credential_types::Credentials;
use aws_credential_types::provider::ProvideCredentials as _;
use aws_sdk_sts::config::SharedHttpClient;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_crt::{Keys, NoKeys};

use crate::CredentialKind;
use crate::config::SourceConfig;
use crate::explain::{ended, explain, no_answer};
use crate::http::http_client;

/// Searches for the keys of the profile, in a runtime of its own. The thread must have no children but those that
/// the search starts.
pub(crate) fn fetch(config: &SourceConfig) -> Result<Keys, NoKeys> {
    let fail = |error: &dyn std::fmt::Display| NoKeys(error.to_string().into());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| fail(&error))?;
    let http = http_client(config.ca_bundle.as_deref()).map_err(|error| NoKeys(error.into()))?;
    let found = runtime.block_on(async { tokio::time::timeout(config.limit, find(config, http)).await });
    if found.is_err() {
        end_children();
    }
    let credentials = found.map_err(|_| no_answer(config))??;
    let keys = Keys {
        access_key_id: credentials.access_key_id().to_owned(),
        secret_access_key: credentials.secret_access_key().to_owned(),
        session_token: credentials.session_token().map(str::to_owned),
        end: credentials.expiry(),
    };
    match keys.end {
        Some(end) if end <= SystemTime::now() => Err(ended(config, end)),
        Some(_) | None => Ok(keys),
    }
}

async fn find(config: &SourceConfig, http: SharedHttpClient) -> Result<Credentials, NoKeys> {
    let provider_config = ProviderConfig::without_region()
        .with_region(Some(Region::new(config.region.clone())))
        .with_http_client(http);
    if let CredentialKind::EnvironmentRole { .. } = config.kind {
        let provider = WebIdentityTokenCredentialsProvider::builder().configure(&provider_config).build();
        return provider.provide_credentials().await.map_err(|error| explain(config, &error));
    }
    let provider = ProfileFileCredentialsProvider::builder()
        .configure(&provider_config)
        .profile_name(&config.profile)
        .build();
    provider.provide_credentials().await.map_err(|error| explain(config, &error))
}

/// Kills the processes that this thread has started, and theirs. Nobody else waits for them, so no other process
/// can have got their numbers.
fn end_children() {
    let children = |path: &str| {
        let text = fs::read_to_string(path).unwrap_or_default();
        text.split_whitespace().filter_map(|pid| pid.parse::<i32>().ok()).collect::<Vec<_>>()
    };
    let mut found = children("/proc/thread-self/children");
    let mut next = 0;
    while let Some(pid) = found.get(next).copied() {
        found.extend(children(&format!("/proc/{pid}/task/{pid}/children")));
        next += 1;
    }
    for pid in found {
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
}
