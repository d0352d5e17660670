//! The settings that a measurement varies, and its result.

use std::ffi::OsString;

use s3mount_settings::flags::size::Size;
use serde::Serialize;

/// The settings that a measurement varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Point {
    pub(crate) part_bytes: u64,
    pub(crate) connections: u32,
}

impl Point {
    /// The flags of a mount that reads with these settings.
    pub(crate) fn flags(self) -> Vec<OsString> {
        let (part, connections) = (Size(self.part_bytes).to_string(), self.connections.to_string());
        ["--part-size", &part, "--max-connections", &connections].map(OsString::from).into()
    }
}

/// The result of one measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// The CPU seconds of the process that fetched the object.
    pub(crate) cpu_seconds: f64,
    /// The largest resident size of the process that fetched the object.
    pub(crate) peak_memory_bytes: u64,
    pub(crate) requests: u64,
    /// The times of each part. Empty for a measurement through a mount.
    pub(crate) parts: Vec<PartTimes>,
}

impl Measured {
    /// The speed, in 10^9 bytes a second.
    pub(crate) fn gb_s(&self) -> f64 {
        self.bytes as f64 / self.seconds / 1e9
    }

    /// The CPU seconds for each GiB.
    pub(crate) fn cpu_per_gib(&self) -> f64 {
        self.cpu_seconds / (self.bytes as f64 / f64::from(1 << 30))
    }
}

/// The times of one part, in seconds since the first part was asked for.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct PartTimes {
    pub(crate) start: f64,
    pub(crate) first_byte: f64,
    pub(crate) end: f64,
}

/// The CPU seconds and the largest resident size of a process.
pub(crate) fn usage(pid: i32) -> anyhow::Result<(f64, u64)> {
    let process = procfs::process::Process::new(pid)?;
    let stat = process.stat()?;
    let cpu = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
    Ok((cpu, process.status()?.vmhwm.unwrap_or(0) * 1024))
}
