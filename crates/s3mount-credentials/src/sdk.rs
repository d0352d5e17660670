//! What the clients of other services than S3 have in common.

use std::path::Path;

use aws_config::{BehaviorVersion, Region, SdkConfig};

use crate::http::http_client;

/// The settings of a client in `region`, with the credentials of `profile`, or those that the AWS CLI would find.
///
/// # Errors
/// If the CA bundle can't be read, as text for users.
pub async fn sdk_config(
    profile: Option<&str>,
    region: &str,
    ca_bundle: Option<&Path>,
) -> Result<SdkConfig, String> {
    let loader = aws_config::defaults(BehaviorVersion::latest())
        .http_client(http_client(ca_bundle)?)
        .region(Region::new(region.to_owned()));
    Ok(match profile {
        Some(profile) => loader.profile_name(profile).load().await,
        None => loader.load().await,
    })
}
