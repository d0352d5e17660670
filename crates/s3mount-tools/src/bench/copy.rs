//! Measures how fast the store copies an object, for each size of part.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, ensure};
use s3mount_crt::{CrtConfig, usual_event_loops};
use s3mount_object::{Condition, ErrorKind, ObjectWriter as _};
use s3mount_settings::flags::size::Size;
use s3mount_settings::resolved::store::Store;
use s3mount_system::terminal;
use s3mount_system::threads::cores;
use s3mount_write::{Copier, CopyConfig, CopyError, CopyOrder};

use super::steps::{given, progress};
use super::subject::runtime;

const MIB: u64 = 1 << 20;

/// What is tried if nothing is given.
const PARTS: [Size; 8] = [
    Size(8 * MIB),
    Size(16 * MIB),
    Size(32 * MIB),
    Size(64 * MIB),
    Size(128 * MIB),
    Size(256 * MIB),
    Size(512 * MIB),
    Size(1024 * MIB),
];
const CONNECTIONS: [u32; 1] = [16];

/// The key of the copy ends so.
const SUFFIX: &str = ".s3mount-bench-copy";

/// Copies the object with each size of part, and prints the seconds.
pub(super) fn run(store: &Store, key: &str, parts: &[Size], connections: &[u32]) -> anyhow::Result<()> {
    let (parts, connections) = (given(parts, &PARTS), given(connections, &CONNECTIONS));
    for size in &parts {
        ensure!(
            (5 * MIB..=5 << 30).contains(&size.0),
            "--part-sizes {size} is not from 5MiB to 5GiB, as S3 copies parts; leave it out"
        );
    }
    let runtime = runtime(cores())?;
    let most = connections.iter().copied().max().unwrap_or(1);
    let config = CrtConfig { event_loops: usual_event_loops(), ..store.crt_config(most)? };
    let (client, _) = runtime.block_on(store.connect(config, key, 1))?;
    let client = Arc::new(client);
    let target = format!("{key}{SUFFIX}");
    let order = CopyOrder { condition: Some(Condition::Absent), ..CopyOrder::to(&target) };
    let copier = |part: Size, connections: u32| {
        let max_requests = usize::try_from(connections).unwrap_or(usize::MAX);
        let config = CopyConfig { part_bytes: Some(part.0), max_requests, ..CopyConfig::default() };
        Copier::new(client.clone(), client.clone(), config)
    };
    let source = runtime.block_on(copier(parts[0], 1).describe(key)).map_err(|error| {
        let what = match &error {
            CopyError::Object(error) if *error.kind() == ErrorKind::NotFound => {
                format!("there is no key {key:?} in bucket {:?}; check its name", store.bucket)
            }
            _ => format!("the store does not tell of the key {key:?} in bucket {:?}", store.bucket),
        };
        anyhow::Error::new(error).context(what)
    })?;
    let size = source.description.meta.size;
    ensure!(size > 0, "the object {key:?} is empty; name a larger one");
    terminal::result(&format!(
        "copying s3://{}/{key}, {:.2} GB, inside {}",
        store.bucket,
        size as f64 / 1e9,
        store.shown()
    ));
    terminal::result(&format!("{:>10} {:>12} {:>9} {:>9}", "part", "connections", "seconds", "MB/s"));
    let bar = progress((parts.len() * connections.len()) as u64);
    for part in parts {
        for connections in &connections {
            bar.set_message(format!("parts of {part}, {connections} connections"));
            let start = Instant::now();
            let copied = runtime
                .block_on(copier(part, *connections).copy(&source, &order, &|_| {}))
                .with_context(|| format!("cannot copy {key:?} to {target:?}"))?;
            let seconds = start.elapsed().as_secs_f64();
            let deleted = runtime.block_on(client.delete(&target, Some(copied.object.etag())));
            deleted.with_context(|| format!("cannot delete the copy {target:?}; delete it by hand"))?;
            let speed = size as f64 / seconds / 1e6;
            let (part, connections) = (part.to_string(), *connections);
            bar.suspend(|| {
                terminal::result(&format!("{part:>10} {connections:>12} {seconds:>9.1} {speed:>9.0}"));
            });
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok(())
}
