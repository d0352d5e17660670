//! The calls that make and delete volumes: each is a prefix of a bucket that the storage class names.

use std::sync::Arc;

use anyhow::Context;
use tonic::Status;

use crate::credentials;
use crate::driver::{Driver, need};
use crate::node::capabilities;
use crate::protocol::{
    CREATE_DELETE_VOLUME, Capabilities, Confirmed, CreateVolume, CreatedVolume, DeleteVolume, Empty, Texts,
    ValidateVolumeCapabilities, ValidatedVolumeCapabilities, Volume, VolumeCapability,
};
use crate::volume::{self, FOR_CLAIM};

/// The parameters of a storage class. They become attributes of its volumes, but for the name of the bucket.
const PARAMETERS: [&str; 4] = ["authenticationSource", "bucket", "bucketName", "prefix"];

/// The longest name that the interface allows, in bytes.
const LONGEST_NAME: usize = 128;

impl Driver {
    pub(crate) fn controller_capabilities(&self) -> Capabilities {
        capabilities(&[CREATE_DELETE_VOLUME])
    }

    /// Makes a volume: a prefix with the name of the claim, and a marker that says how large the volume shall be.
    pub(crate) async fn create_volume(self: &Arc<Self>, call: CreateVolume) -> Result<CreatedVolume, Status> {
        let name = need(&call.name, "name")?;
        check_capabilities(&call.volume_capabilities)?;
        if call.volume_content_source.is_some() {
            return Err(Status::invalid_argument(
                "a volume can't be made from a snapshot, or from another volume",
            ));
        }
        let unknown = call
            .parameters
            .keys()
            .find(|name| !PARAMETERS.contains(&name.as_str()) && !name.starts_with("csi.storage.k8s.io/"));
        if let Some(unknown) = unknown {
            let known = PARAMETERS.join(", ");
            return Err(Status::invalid_argument(format!(
                "{unknown:?} is no parameter of a storage class; these are: {known}; options of the mount are its \
                 mountOptions"
            )));
        }
        if call.parameters.get("authenticationSource").is_some_and(|source| source == "pod") {
            return Err(Status::invalid_argument(
                "a volume that is made for a claim has no pod yet whose credentials it could have",
            ));
        }
        let (bucket, prefix) = volume::place(&call.parameters)?;
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.len() > LONGEST_NAME || !name.chars().all(is_plain) || name.starts_with('.') {
            return Err(Status::invalid_argument(format!(
                "{name:?} can't be the name of a folder in a bucket"
            )));
        }
        let source = format!("{}{name}/", volume::source(bucket, prefix));
        let range = call.capacity_range.unwrap_or_default();
        let (required, limit) = (range.required_bytes, range.limit_bytes);
        if required < 0 || limit < 0 || limit > 0 && required > limit {
            return Err(Status::out_of_range(format!("no volume has {required} bytes and at most {limit}")));
        }
        let prefix =
            source.split_once("://").and_then(|(_, path)| path.strip_prefix(bucket)).unwrap_or_default();
        let attributes: Texts =
            [("bucket", bucket.to_owned()), ("prefix", prefix.to_owned()), (FOR_CLAIM, "true".to_owned())]
                .into_iter()
                .chain(
                    call.parameters
                        .get("authenticationSource")
                        .map(|from| ("authenticationSource", from.clone())),
                )
                .map(|(name, value)| (name.to_owned(), value))
                .collect();
        let (source, capacity) = (source.clone(), required.to_string());
        let kept = self.tool(
            &source,
            vec!["create".into(), source.clone(), "--capacity".into(), capacity],
            &call.secrets,
        );
        let kept = kept.await?;
        let kept: i64 =
            kept.trim().parse().map_err(|_| Status::internal(format!("{kept:?} is no number of bytes")))?;
        if kept < required || limit > 0 && kept > limit {
            return Err(Status::already_exists(format!("the volume {name} is there, with {kept} bytes")));
        }
        let volume = Volume { capacity_bytes: kept, volume_id: source, volume_context: attributes };
        Ok(CreatedVolume { volume: Some(volume) })
    }

    /// Deletes a volume that this driver has made, and all objects in it. One that it has not made stays.
    pub(crate) async fn delete_volume(self: &Arc<Self>, call: DeleteVolume) -> Result<Empty, Status> {
        let id = need(&call.volume_id, "volume_id")?;
        if volume::is_made_here(id) {
            self.tool(id, vec!["delete".into(), id.to_owned()], &call.secrets).await?;
        }
        Ok(Empty {})
    }

    pub(crate) async fn validate_volume_capabilities(
        self: &Arc<Self>,
        call: ValidateVolumeCapabilities,
    ) -> Result<ValidatedVolumeCapabilities, Status> {
        let id = need(&call.volume_id, "volume_id")?;
        if call.volume_capabilities.is_empty() {
            return Err(Status::invalid_argument("the volume capabilities are missing"));
        }
        let is_there = match volume::is_made_here(id) {
            true => {
                !self.tool(id, vec!["find".into(), id.to_owned()], &call.secrets).await?.trim().is_empty()
            }
            // Nobody but its own attributes knows a volume that this driver has not made.
            false => volume::place(&call.volume_context).is_ok(),
        };
        if !is_there {
            return Err(Status::not_found(format!("there is no volume {id:?}")));
        }
        Ok(match check_capabilities(&call.volume_capabilities) {
            Ok(()) => ValidatedVolumeCapabilities {
                confirmed: Some(Confirmed {
                    volume_context: call.volume_context,
                    volume_capabilities: call.volume_capabilities,
                    parameters: call.parameters,
                }),
                message: String::new(),
            },
            Err(why) => ValidatedVolumeCapabilities { confirmed: None, message: why.message().to_owned() },
        })
    }

    /// Runs `s3mount volume` with the credentials of `secrets`, or with the driver's if there are none.
    async fn tool(self: &Arc<Self>, id: &str, args: Vec<String>, secrets: &Texts) -> Result<String, Status> {
        let (credentials, given) = credentials::read(&Texts::new(), secrets)?;
        self.for_volume(id, move |driver| {
            let done = driver.mounts.run_tool(&args, (&credentials, &given));
            done.with_context(|| format!("cannot {} the volume {}", args[0], args[1]))
        })
        .await
    }
}

fn check_capabilities(capabilities: &[VolumeCapability]) -> Result<(), Status> {
    if capabilities.is_empty() {
        return Err(Status::invalid_argument("the volume capabilities are missing"));
    }
    capabilities.iter().try_for_each(|capability| volume::mounted(Some(capability)).map(drop))
}
