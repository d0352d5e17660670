//! The driver: what it answers of itself, and one caller at a time for each volume.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync;
use tonic::{Code, Status};

use crate::mounts::{Mounts, NoRoom, Refusal};
use crate::protocol::{
    CONTROLLER_SERVICE, CapabilityKind, Flag, PluginCapabilities, PluginCapability, PluginInfo, Probed,
};
use crate::volume::Defaults;
use crate::words::Refused;

/// The name of the driver in Kubernetes.
pub(crate) const NAME: &str = "csi.s3mount";

/// Answers the calls of Kubernetes.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) node_id: String,
    pub(crate) defaults: Defaults,
    pub(crate) mounts: Mounts,
    /// Volumes for which something is done now.
    busy: Mutex<HashMap<String, Arc<sync::Mutex<()>>>>,
}

/// How long a call waits for another one of the same volume. Kubernetes calls again, later each time.
const TURN_LIMIT: Duration = Duration::from_secs(5);

impl Driver {
    pub(crate) fn new(node_id: String, defaults: Defaults, mounts: Mounts) -> Self {
        Self { node_id, defaults, mounts, busy: Mutex::default() }
    }

    /// Does `work` on a thread that may wait, when nobody else works for the volume `id`.
    ///
    /// # Errors
    /// Those of `work`; `Aborted` if another call for the volume takes long.
    pub(crate) async fn for_volume<T: Send + 'static>(
        self: &Arc<Self>,
        id: &str,
        work: impl FnOnce(&Self) -> anyhow::Result<T> + Send + 'static,
    ) -> Result<T, Status> {
        let lock = self.locks().entry(id.to_owned()).or_default().clone();
        let alone = tokio::time::timeout(TURN_LIMIT, lock.lock_owned()).await.map_err(|_| {
            Status::aborted(format!(
                "another call for the volume {id} is under way; call again when it has ended"
            ))
        })?;
        let driver = self.clone();
        // It goes on if the caller does not wait for it.
        let done = tokio::task::spawn_blocking(move || {
            let done = work(&driver);
            let mut locks = driver.locks();
            drop(alone);
            // Nobody else has this one but the table.
            locks.retain(|_, lock| Arc::strong_count(lock) > 1);
            drop(locks);
            done
        });
        done.await.map_err(|error| Status::internal(error.to_string()))?.map_err(|error| status(&error))
    }

    /// Takes down mounts that no pod uses. A volume for which something else is done now has its turn later.
    ///
    /// # Errors
    /// Those of reading the records.
    pub(crate) async fn end_unused(self: &Arc<Self>) -> anyhow::Result<()> {
        let driver = self.clone();
        let unused = tokio::task::spawn_blocking(move || driver.mounts.unused()).await??;
        for id in unused {
            let turn = id.clone();
            let ended = self.for_volume(&turn, move |driver| driver.mounts.end_unused(&id));
            // A mount that does not answer keeps only its own volume.
            match tokio::time::timeout(TURN_LIMIT, ended).await {
                Ok(Err(status)) if status.code() != Code::Aborted => anyhow::bail!("{}", status.message()),
                _ => {}
            }
        }
        Ok(())
    }

    fn locks(&self) -> MutexGuard<'_, HashMap<String, Arc<sync::Mutex<()>>>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn plugin_info(&self) -> PluginInfo {
        PluginInfo { name: NAME.to_owned(), vendor_version: env!("CARGO_PKG_VERSION").to_owned() }
    }

    pub(crate) fn plugin_capabilities(&self) -> PluginCapabilities {
        let service = Some(CapabilityKind { kind: CONTROLLER_SERVICE });
        PluginCapabilities { capabilities: vec![PluginCapability { service }] }
    }

    pub(crate) fn probe(&self) -> Probed {
        Probed { ready: Some(Flag { value: true }) }
    }
}

/// What a caller hears of an error.
fn status(error: &anyhow::Error) -> Status {
    let text = format!("{error:#}");
    match error.downcast_ref::<Refusal>() {
        Some(Refusal::AlreadyThere(_)) => return Status::already_exists(text),
        Some(Refusal::UnfitTarget(_)) => return Status::failed_precondition(text),
        Some(Refusal::OtherVolume(_)) => return Status::not_found(text),
        None => {}
    }
    match error.downcast_ref::<Refused>() {
        Some(Refused::Unusable(_)) => return Status::invalid_argument(text),
        Some(Refused::NoBucket(_)) => return Status::not_found(text),
        Some(Refused::Occupied(_)) => return Status::failed_precondition(text),
        Some(Refused::Denied(_)) => return Status::permission_denied(text),
        Some(Refused::NoCredentials(_)) => return Status::unauthenticated(text),
        Some(Refused::Unreachable(_)) => return Status::unavailable(text),
        Some(Refused::DiskFull(_)) => return Status::resource_exhausted(text),
        None => {}
    }
    let is_full =
        |error: &io::Error| matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
    if error.chain().any(|cause| cause.downcast_ref().is_some_and(is_full)) {
        return Status::resource_exhausted(text);
    }
    match error.downcast_ref::<NoRoom>() {
        Some(NoRoom::Full(_)) => Status::resource_exhausted(text),
        Some(NoRoom::NotYet(_)) => Status::unavailable(text),
        None => Status::internal(text),
    }
}

/// Checks that a field of a call is there.
pub(crate) fn need<'a>(value: &'a str, field: &str) -> Result<&'a str, Status> {
    if value.is_empty() {
        return Err(Status::invalid_argument(format!("the field {field} is missing")));
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use std::io;

    use anyhow::Context as _;
    use nix::errno::Errno;
    use tonic::Code;

    use super::status;
    use crate::words::of_failure;

    #[test]
    fn a_full_disk_is_told_by_its_code() {
        let full: io::Result<()> = Err(Errno::ENOSPC.into());
        let error = full.context("cannot write the record").expect_err("a full disk");
        assert_eq!(status(&error).code(), Code::ResourceExhausted);
        let other = anyhow::Error::new(io::Error::from(Errno::EIO));
        assert_eq!(status(&other).code(), Code::Internal);
        let said = of_failure("cannot make the log: No space left on device (os error 28)");
        assert_eq!(status(&said.expect("a cause").into()).code(), Code::ResourceExhausted);
    }
}
