//! The calls that make and delete volumes: each is a prefix of a bucket that the storage class names.

use std::sync::Arc;

use anyhow::Context;
use tonic::{Code, Status};

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
        refuse_mutable(&call.mutable_parameters)?;
        let (bucket, prefix) = place(name, &call.parameters)?;
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
            match self.tool(id, vec!["delete".into(), id.to_owned()], &call.secrets).await {
                // A volume went with its bucket. The interface wants that to be no error.
                Err(status) if status.code() == Code::NotFound => {
                    tracing::warn!(volume = id, "nothing is left to delete: {}", status.message());
                }
                done => drop(done?),
            }
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
        refuse_mutable(&call.mutable_parameters)?;
        let is_there = match volume::is_made_here(id) {
            true => {
                !self.tool(id, vec!["find".into(), id.to_owned()], &call.secrets).await?.trim().is_empty()
            }
            false => match is_described(&call.volume_context) {
                true => self.has_bucket(&call.volume_context, &call.secrets).await?,
                false => false,
            },
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

    /// Whether the bucket of a volume that this driver has not made is there. One that can't be asked counts as there: its
    /// pods may have other credentials.
    async fn has_bucket(self: &Arc<Self>, attributes: &Texts, secrets: &Texts) -> Result<bool, Status> {
        let (bucket, _) = volume::place(attributes)?;
        let any = volume::source(bucket, "any");
        let found = self.tool(&any, vec!["find".into(), any.clone()], secrets).await;
        Ok(found.err().is_none_or(|status| status.code() != Code::NotFound))
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

/// The bucket and the prefix of the class of a volume that is to have this `name`.
///
/// # Errors
/// Says which parameter no class has, or why the volume can't have the name.
fn place<'a>(name: &str, parameters: &'a Texts) -> Result<(&'a str, &'a str), Status> {
    let is_known = |name: &str| PARAMETERS.contains(&name) || name.starts_with("csi.storage.k8s.io/");
    if let Some(unknown) = parameters.keys().find(|name| !is_known(name)) {
        let known = PARAMETERS.join(", ");
        return Err(Status::invalid_argument(format!(
            "{unknown:?} is no parameter of a storage class; these are: {known}; options of the mount are its \
             mountOptions"
        )));
    }
    match parameters.get("authenticationSource").map(String::as_str) {
        None | Some("driver" | "secret") => {}
        Some("pod") => {
            return Err(Status::invalid_argument(
                "a volume that is made for a claim has no pod yet whose credentials it could have; a class may have \
                 authenticationSource: driver or secret",
            ));
        }
        Some(other) => {
            return Err(Status::invalid_argument(format!(
                "authenticationSource {other:?} is none of driver and secret, which a class may have"
            )));
        }
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.len() > LONGEST_NAME || !name.chars().all(is_plain) || name.starts_with('.') {
        return Err(Status::invalid_argument(format!(
            "{name:?} can't be the name of a folder in a bucket: it may have up to {LONGEST_NAME} letters (a-z, A-Z), \
             digits, hyphens, underscores and dots, and no dot at its begin"
        )));
    }
    volume::place(parameters)
}

/// Whether attributes are those of a volume that this driver has not made: nobody else knows it.
fn is_described(attributes: &Texts) -> bool {
    !attributes.contains_key(FOR_CLAIM) && volume::place(attributes).is_ok()
}

/// Refuses parameters that could be changed later.
fn refuse_mutable(parameters: &Texts) -> Result<(), Status> {
    match parameters.keys().next() {
        None => Ok(()),
        Some(name) => Err(Status::invalid_argument(format!(
            "the mutable parameter {name:?} can't be taken: this driver changes no volume; leave out the \
             VolumeAttributesClass"
        ))),
    }
}

fn check_capabilities(capabilities: &[VolumeCapability]) -> Result<(), Status> {
    if capabilities.is_empty() {
        return Err(Status::invalid_argument("the volume capabilities are missing"));
    }
    capabilities.iter().try_for_each(|capability| volume::mounted(Some(capability)).map(drop))
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::{is_described, place, refuse_mutable};
    use crate::protocol::Texts;

    fn texts(pairs: &[(&str, &str)]) -> Texts {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn a_class_has_what_its_volumes_can_have() {
        let long = "v".repeat(129);
        for (name, parameters, word) in [
            ("v", &[("bucket", "b"), ("authenticationSource", "pod")][..], "no pod yet"),
            ("v", &[("bucket", "b"), ("authenticationSource", "me")], "none of driver and secret"),
            ("v", &[("bucket", "b"), ("authenticationSource", "")], "none of driver and secret"),
            ("v", &[("bucket", "b"), ("roleArn", "r")], "no parameter"),
            ("v", &[("bucket", "b"), ("bucketName", "c")], "two buckets"),
            ("a/b", &[("bucket", "b")], "up to 128 letters"),
            (".v", &[("bucket", "b")], "no dot at its begin"),
            (long.as_str(), &[("bucket", "b")], "up to 128 letters"),
        ] {
            let status = place(name, &texts(parameters)).expect_err("refused");
            assert!(status.message().contains(word), "{status}");
            assert_eq!(status.code(), Code::InvalidArgument);
        }
        let parameters = texts(&[("bucket", "b"), ("authenticationSource", "secret"), ("prefix", "p")]);
        assert_eq!(place("pvc-1", &parameters).expect("a place"), ("b", "p"));
    }

    #[test]
    fn only_what_was_not_made_here_is_known_by_its_attributes() {
        assert!(is_described(&texts(&[("bucket", "b")])));
        assert!(!is_described(&texts(&[("bucket", "b"), ("madeForClaim", "true")])), "it has another id");
        assert!(!is_described(&Texts::new()));
    }

    #[test]
    fn nothing_is_changed_later() {
        assert!(refuse_mutable(&Texts::new()).is_ok());
        let status = refuse_mutable(&texts(&[("size", "1")])).expect_err("refused");
        assert!(status.code() == Code::InvalidArgument && status.message().contains("\"size\""), "{status}");
    }
}
