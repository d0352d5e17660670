//! What is varied, and what a measurement came to.

use std::ffi::OsString;

use serde::Serialize;

use crate::flags::size::Size;

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

/// What became of one part, in seconds since the first was asked for.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Part {
    pub(crate) start: f64,
    pub(crate) first_byte: f64,
    pub(crate) end: f64,
}

/// CPU seconds and the largest resident size of a process.
pub(crate) fn usage(pid: i32) -> anyhow::Result<(f64, u64)> {
    let process = procfs::process::Process::new(pid)?;
    let stat = process.stat()?;
    let cpu = (stat.utime + stat.stime) as f64 / procfs::ticks_per_second() as f64;
    Ok((cpu, process.status()?.vmhwm.unwrap_or(0) * 1024))
}
