//! Mounts to which the store tells of changes: late, in any order, and sometimes twice.

use std::sync::Arc;
use std::time::Duration;

use s3mount_fs::{Filesystem, Told};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::sleep;

use crate::draw::Draw;
use crate::kernel::Process;
use crate::promise::{Check, Rule, broken};
use crate::store::{Change, SimStore};
use crate::world::{LATEST, Place};

/// The process that looks at the end.
const LAST_LOOK: u32 = 90_000;

/// How often it is looked whether the kernel was told.
const LOOK: Duration = Duration::from_millis(10);

/// How often it looks at a file while requests fail.
const LOOKS: usize = 30;

fn tell(fs: &Filesystem, change: &Change) {
    let told = match &change.etag {
        None => Told::Gone,
        Some(_) if change.is_copied => Told::Changed,
        Some(etag) => Told::Written(etag),
    };
    fs.was_told(&change.key, told);
}

/// Tells the mount that is at `place` of each of the `changes`.
pub(crate) async fn hear(place: Arc<Place>, mut changes: UnboundedReceiver<Change>, draw: Draw) {
    let latest = u64::try_from(LATEST.as_millis()).unwrap_or(u64::MAX);
    while let Some(change) = changes.recv().await {
        for _ in 0..=u64::from(draw.happens(100)) {
            let (place, change, delay) = (place.clone(), change.clone(), draw.below(latest));
            tokio::spawn(async move {
                sleep(Duration::from_millis(delay)).await;
                // Where the daemon dies before nothing shows any more what was so before, the next one is told again.
                loop {
                    place.is_alive().await;
                    let mount = place.mount();
                    let is_dead = || mount.client.is_dead() || !Arc::ptr_eq(&mount, &place.mount());
                    if !is_dead() {
                        place.note_heard(&change);
                        tell(&mount.fs, &change);
                        while !is_dead() && mount.fs.has_outdated() {
                            sleep(LOOK).await;
                        }
                        if !is_dead() {
                            return;
                        }
                    }
                    sleep(LOOK).await;
                }
            });
        }
    }
}

/// A mount that was told of all changes shows what the store has, however long names are believed.
pub(crate) async fn finally(place: &Place, store: &SimStore) -> Check {
    let process = Process::new(&place.mount().kernel, LAST_LOOK);
    for key in store.ever() {
        let is_hidden = store.keys().iter().any(|other| other.starts_with(&format!("{key}/")));
        if is_hidden || key.ends_with('/') {
            continue;
        }
        let expected = store.bytes(&key);
        let mut shown = Err(0);
        for _ in 0..LOOKS {
            shown = read_whole(&process, &key).await;
            let is_answer = matches!(shown, Ok(_) | Err(libc::ENOENT | libc::ENOTDIR));
            if is_answer {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        let is_right = match (&shown, &expected) {
            (Ok(shown), Some(expected)) => *shown == expected[..],
            (Err(libc::ENOENT | libc::ENOTDIR), None) => true,
            (Err(libc::EISDIR), None) => true,
            _ => false,
        };
        if !is_right {
            let len = |bytes: Option<usize>| bytes.map_or("nothing".to_owned(), |len| format!("{len} bytes"));
            let (shown, stored) = (shown.map(|bytes| bytes.len()), len(expected.map(|bytes| bytes.len())));
            return Err(broken(Rule::Fresh, format!("{key} shows {shown:?}, and the store has {stored}")));
        }
    }
    process.exit().await;
    Ok(())
}

async fn read_whole(process: &Process, key: &str) -> Result<Vec<u8>, i32> {
    let len = usize::try_from(process.stat(key).await?.size).unwrap_or(usize::MAX);
    let fd = process.open(key, libc::O_RDONLY).await?;
    let mut bytes = Vec::new();
    let read = loop {
        match process.pread(fd, bytes.len() as u64, (1 << 20).min(len.max(1))).await {
            Ok(piece) if piece.is_empty() => break Ok(()),
            Ok(piece) => bytes.extend(piece),
            Err(error) => break Err(error),
        }
    };
    process.close(fd).await?;
    read.map(|()| bytes)
}
