//! What one daemon has to know of another's mount to go on with it.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::INodeNo;
use s3mount_fs::Left;

use crate::handshake::Handshake;
use crate::mount_point::{MountId, Place};

/// A mount that another daemon has begun.
#[derive(Clone, Debug)]
pub struct KeptSession {
    /// When it was mounted.
    pub mounted_at: SystemTime,
    /// Unset if another process has mounted, and unmounts.
    pub mount: Option<MountId>,
    pub(crate) handshake: Handshake,
}

/// What the kernel has open through the daemon before.
#[derive(Debug)]
pub(crate) struct Inherited {
    pub(crate) device: OwnedFd,
    /// The inode of each open file, and the number of the file that the kernel reads by itself for it.
    pub(crate) opened: Vec<(INodeNo, Option<u32>)>,
}

impl Inherited {
    pub(crate) fn new(device: &OwnedFd, left: &Left) -> io::Result<Self> {
        let opened = left.opened().map(|(ino, backing)| (INodeNo(ino.0), backing)).collect();
        Ok(Self { device: device.try_clone()?, opened })
    }
}

impl KeptSession {
    /// Whether the kernel sends requests again that the daemon before has read and not answered.
    pub fn can_resend(&self) -> bool {
        self.handshake.can_resend()
    }

    /// What [`bytes`](Self::bytes) has written.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (mounted, number_of_mount, unique, len) = (number(0)?, number(8)?, number(16)?, number(24)?);
        let (request, answer) = bytes.get(32..)?.split_at_checked(usize::try_from(len).ok()?)?;
        let mount = (number_of_mount != u64::MAX).then(|| {
            MountId::with_unique(number_of_mount, Some(unique).filter(|unique| *unique != u64::MAX))
        });
        Some(Self {
            mounted_at: UNIX_EPOCH + Duration::from_nanos(mounted),
            mount,
            handshake: Handshake { request: request.to_vec(), answer: answer.to_vec() },
        })
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mounted = self.mounted_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let mounted = u64::try_from(mounted.as_nanos()).unwrap_or(u64::MAX);
        let number = self.mount.map_or(u64::MAX, |id| id.number);
        let unique = self.mount.and_then(MountId::unique).unwrap_or(u64::MAX);
        let len = self.handshake.request.len() as u64;
        let mut bytes = Vec::new();
        for number in [mounted, number, unique, len] {
            bytes.extend_from_slice(&number.to_le_bytes());
        }
        bytes.extend_from_slice(&self.handshake.request);
        bytes.extend_from_slice(&self.handshake.answer);
        bytes
    }

    /// Where it is mounted, if it is at `dir` yet.
    pub(crate) fn place(&self, dir: &Path) -> Option<(Place, MountId)> {
        Some((Place::open(dir).ok()?, self.mount?))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::KeptSession;
    use crate::handshake::Handshake;
    use crate::mount_point::MountId;

    #[test]
    fn what_is_written_is_read() {
        for mount in [None, Some(MountId::numbered(7)), Some(MountId::with_unique(7, Some(1 << 40)))] {
            let session = KeptSession {
                mounted_at: UNIX_EPOCH + Duration::from_nanos(1_790_000_000_123_456_789),
                mount,
                handshake: Handshake { request: vec![1; 104], answer: vec![2; 80] },
            };
            let read = KeptSession::read(&session.bytes()).expect("a session");
            assert_eq!((read.mounted_at, &read.handshake), (session.mounted_at, &session.handshake));
            assert_eq!(format!("{:?}", read.mount), format!("{mount:?}"));
            assert!(KeptSession::read(&session.bytes()[..40]).is_none(), "cut off");
        }
    }
}
