//! The folder of `--write-behind`: takes it for this daemon, and finds what waits there.

use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use nix::sys::statfs::{TMPFS_MAGIC, statfs};
use s3mount_outbox::{FolderDisk, Outbox, Waiting};
use s3mount_settings::resolved::writes::OutboxConfig;

/// The file that says for which store the files wait.
const STORE: &str = "store";

/// Opens the outbox, whose files go to `source` at this endpoint. Those of another store wait for a mount of that.
pub(super) fn open(
    config: &OutboxConfig,
    source: &str,
    endpoint: Option<&str>,
) -> anyhow::Result<(Outbox, Vec<Waiting>)> {
    let store = &endpoint.map_or_else(|| source.to_owned(), |endpoint| format!("{source} at {endpoint}"));
    let shown = config.dir.display();
    let disk = match FolderDisk::take(&config.dir) {
        Ok(disk) => disk,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            anyhow::bail!("--write-behind {shown} is another mount's; name a folder for this one alone")
        }
        Err(error) => return Err(error).with_context(|| format!("cannot use --write-behind {shown}")),
    };
    let (outbox, waiting) = Outbox::open(Arc::new(disk), config.limits)
        .with_context(|| format!("cannot read what waits in --write-behind {shown}"))?;
    let path = config.dir.join(STORE);
    let before = match std::fs::read_to_string(&path) {
        Ok(before) => Some(before),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
    };
    let is_other = before.as_deref().is_some_and(|before| before.trim_end() != store);
    ensure!(
        waiting.is_empty() || !is_other,
        "in --write-behind {shown}, {} files wait for {}: mount that with this folder, and they are uploaded; or name another \
         folder for {store}",
        waiting.len(),
        before.unwrap_or_default().trim_end()
    );
    if statfs(&config.dir).is_ok_and(|found| found.filesystem_type() == TMPFS_MAGIC) {
        tracing::warn!(dir = %shown, "--write-behind is in memory (tmpfs): what waits there is lost if the machine fails");
    }
    write(&config.dir, &path, store).with_context(|| format!("cannot write {}", path.display()))?;
    Ok((outbox, waiting))
}

/// Writes the file so that it is there as a whole, or as it was.
fn write(dir: &Path, path: &Path, store: &str) -> io::Result<()> {
    let new = tempfile::NamedTempFile::new_in(dir)?;
    std::fs::write(new.path(), format!("{store}\n"))?;
    new.as_file().sync_all()?;
    new.persist(path)?;
    std::fs::File::open(dir)?.sync_all()
}
