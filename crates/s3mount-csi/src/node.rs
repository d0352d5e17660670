//! The calls by which a node shows a volume to a pod, and takes it away.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use nix::sys::statvfs::Statvfs;
use tonic::Status;

use crate::driver::{Driver, need};
use crate::mounts::{Answer, PATIENCE};
use crate::protocol::{
    Capabilities, Capability, CapabilityKind, Empty, GET_VOLUME_STATS, NodeGetVolumeStats, NodeInfo,
    NodePublishVolume, NodeUnpublishVolume, Unit, VOLUME_CONDITION, VOLUME_MOUNT_GROUP, VolumeCondition,
    VolumeStats, VolumeUsage,
};
use crate::volume;

impl Driver {
    pub(crate) fn node_info(&self) -> NodeInfo {
        NodeInfo { node_id: self.node_id.clone() }
    }

    pub(crate) fn node_capabilities(&self) -> Capabilities {
        capabilities(&[GET_VOLUME_STATS, VOLUME_CONDITION, VOLUME_MOUNT_GROUP])
    }

    /// Shows a volume to a pod. Called again, it renews the volume's credentials.
    pub(crate) async fn publish(self: &Arc<Self>, call: NodePublishVolume) -> Result<Empty, Status> {
        let id = need(&call.volume_id, "volume_id")?;
        let target = target(&call.target_path)?;
        let mounted = volume::mounted(call.volume_capability.as_ref())?;
        let (volume, given) =
            volume::read(id, (&call.volume_context, &call.secrets), mounted, self.defaults)?;
        let is_read_only = call.readonly;
        self.for_volume(id, move |driver| {
            // Kubernetes calls again every minute or so.
            if driver.mounts.publish(&volume, &given, &target, is_read_only)? {
                tracing::info!(source = volume.source, target = %target.display(), "a pod has the volume");
            }
            Ok(Empty {})
        })
        .await
    }

    pub(crate) async fn unpublish(self: &Arc<Self>, call: NodeUnpublishVolume) -> Result<Empty, Status> {
        let id = need(&call.volume_id, "volume_id")?.to_owned();
        let target = target(&call.target_path)?;
        self.for_volume(&id.clone(), move |driver| {
            driver.mounts.unpublish(&id, &target)?;
            tracing::info!(volume = id, target = %target.display(), "a pod has the volume no more");
            Ok(Empty {})
        })
        .await
    }

    pub(crate) async fn volume_stats(
        self: &Arc<Self>,
        call: NodeGetVolumeStats,
    ) -> Result<VolumeStats, Status> {
        let id = need(&call.volume_id, "volume_id")?.to_owned();
        let path = plain(need(&call.volume_path, "volume_path")?);
        let unknown = format!("the volume {id} is not at {}", path.display());
        let driver = self.clone();
        let asked = tokio::task::spawn_blocking(move || driver.mounts.stats(&id, &path)).await;
        let asked = asked.map_err(|error| Status::internal(error.to_string()))?;
        let looked = asked.map_err(|error| Status::internal(format!("{error:#}")))?;
        let looked = looked.ok_or_else(|| Status::not_found(unknown))?;
        let abnormal = match looked.answer {
            Answer::Stats(stats) => {
                let abnormal = looked.is_second.then(|| {
                    "the mount had ended for good and was made anew, but containers that were started before do not see \
                     it; delete the pod, and let it be made anew"
                        .to_owned()
                });
                return Ok(volume_stats(Some(&stats), abnormal));
            }
            Answer::Dead => {
                "the daemon of the mount has ended for good; delete the pod, and let it be made anew"
                    .to_owned()
            }
            Answer::Silence => format!("the mount gave no answer within {PATIENCE:?}"),
            Answer::Error(error) => format!("the mount answers with an error: {error}"),
        };
        Ok(volume_stats(None, Some(abnormal)))
    }
}

/// A path without a slash at its end, and others that say nothing: targets are told apart by their bytes.
fn plain(path: &str) -> PathBuf {
    Path::new(path).components().collect()
}

/// The folder at which a pod finds its volume.
fn target(path: &str) -> Result<PathBuf, Status> {
    let path = plain(need(path, "target_path")?);
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(Status::invalid_argument("the target path has a zero byte, which no path has"));
    }
    let is_plain = |part| matches!(part, Component::RootDir | Component::Normal(_));
    if path.is_absolute() && path.components().all(is_plain) && path.file_name().is_some() {
        return Ok(path);
    }
    let path = path.display();
    Err(Status::invalid_argument(format!(
        "the target path {path} is no absolute path of a folder without .."
    )))
}

/// The capabilities of a controller, or of a node.
pub(crate) fn capabilities(kinds: &[i32]) -> Capabilities {
    let capability = |kind: &i32| Capability { rpc: Some(CapabilityKind { kind: *kind }) };
    Capabilities { capabilities: kinds.iter().map(capability).collect() }
}

/// The usage of a volume that has answered, and what is `abnormal` about it.
fn volume_stats(stats: Option<&Statvfs>, abnormal: Option<String>) -> VolumeStats {
    let usage = |unit: Unit, (total, free, available): (u64, u64, u64), of: u64| {
        let number = |count: u64| i64::try_from(count.saturating_mul(of)).unwrap_or(i64::MAX);
        VolumeUsage {
            available: number(available),
            total: number(total),
            used: number(total.saturating_sub(free)),
            unit: unit.into(),
        }
    };
    let usage = stats.map(|stats| {
        let blocks = (stats.blocks(), stats.blocks_free(), stats.blocks_available());
        let files = (stats.files(), stats.files_free(), stats.files_available());
        vec![usage(Unit::Bytes, blocks, stats.fragment_size()), usage(Unit::Inodes, files, 1)]
    });
    let is_abnormal = abnormal.is_some();
    let message = abnormal.unwrap_or_else(|| "the mount answers".to_owned());
    VolumeStats {
        usage: usage.unwrap_or_default(),
        volume_condition: Some(VolumeCondition { abnormal: is_abnormal, message }),
    }
}
