//! One measurement, and what all of them share.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Context, ensure};
use s3mount_object::{ErrorKind, ObjectClient, ObjectId};
use serde::Serialize;
use tokio::runtime::Runtime;

use crate::bench::client::{self, Part};
use crate::bench::private::PrivateMount;
use crate::size::Size;
use crate::store::Store;

/// What is varied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Point {
    pub(crate) part_bytes: u64,
    pub(crate) connections: u32,
}

impl Point {
    /// The flags of a mount that reads like that.
    pub(crate) fn flags(self) -> Vec<OsString> {
        let (part, connections) = (Size(self.part_bytes).to_string(), self.connections.to_string());
        ["--part-size", &part, "--max-connections", &connections].map(OsString::from).into()
    }
}

/// What one measurement came to.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// Of the process that fetched.
    pub(crate) cpu_seconds: f64,
    /// Of the process that fetched: the largest resident size.
    pub(crate) peak_memory_bytes: u64,
    pub(crate) requests: u64,
    /// What became of each part, where it was the client alone.
    pub(crate) parts: Vec<Part>,
}

impl Measured {
    /// 10^9 bytes a second.
    pub(crate) fn gb_s(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e9
    }

    /// CPU seconds for each GiB.
    pub(crate) fn cpu_per_gib(&self) -> f64 {
        self.cpu_seconds / (self.bytes as f64 / f64::from(1 << 30))
    }
}

/// What is read, and within which bounds.
pub(crate) struct Bench {
    pub(crate) store: Store,
    pub(crate) object: ObjectId,
    pub(crate) size: u64,
    pub(crate) memory_limit_bytes: u64,
    /// Bytes of one measurement.
    pub(crate) bytes: u64,
    /// The longest that one takes.
    pub(crate) limit: Duration,
    runtime: Runtime,
    threads: usize,
}

impl Bench {
    /// Finds the object `key`.
    pub(crate) fn new(
        store: Store,
        key: &str,
        memory_limit_bytes: u64,
        bytes: u64,
        seconds: u64,
    ) -> anyhow::Result<Self> {
        let threads = crate::config::cores();
        let runtime = runtime(threads)?;
        // Credentials may be bound to a prefix, so nothing beside the key is asked for.
        let (client, _) = runtime.block_on(store.connect(store.crt_config(1, threads), key, 1))?;
        let meta = runtime.block_on(client.head_object(key)).map_err(|error| {
            let what = match error.kind() {
                ErrorKind::NotFound => {
                    format!("there is no key {key:?} in bucket {:?}; check its name", store.bucket)
                }
                _ => format!("the store does not tell of the key {key:?} in bucket {:?}", store.bucket),
            };
            anyhow::Error::new(error).context(what)
        })?;
        ensure!(meta.size > 0, "the object {key:?} is empty; name a larger one");
        Ok(Self {
            store,
            object: ObjectId::new(key, meta.etag),
            size: meta.size,
            memory_limit_bytes,
            bytes: bytes.min(meta.size),
            limit: Duration::from_secs(seconds),
            runtime,
            threads,
        })
    }

    /// Whether all connections can have a part in flight within the memory limit.
    pub(crate) fn fits(&self, point: Point) -> bool {
        point.part_bytes * u64::from(point.connections) <= self.memory_limit_bytes
    }

    /// The client alone, with a part in flight on each connection.
    pub(crate) fn client(&self, point: Point) -> anyhow::Result<Measured> {
        let config = self.store.crt_config(point.connections, self.threads);
        self.runtime.block_on(client::measure(self, config, point)).context("the client alone failed")
    }

    /// Through a mount with these flags.
    pub(crate) fn mount(&self, flags: &[OsString]) -> anyhow::Result<Measured> {
        let mount = PrivateMount::new(self, flags)?;
        mount.measure(self.bytes, self.limit)
    }
}

pub(crate) fn runtime(threads: usize) -> anyhow::Result<Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(threads)
        .enable_all()
        .build()
        .context("cannot start threads")
}

/// CPU seconds and the largest resident size of a process.
pub(crate) fn usage(pid: i32) -> anyhow::Result<(f64, u64)> {
    let process = procfs::process::Process::new(pid)?;
    let stat = process.stat()?;
    let cpu = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
    Ok((cpu, process.status()?.vmhwm.unwrap_or(0) * 1024))
}
