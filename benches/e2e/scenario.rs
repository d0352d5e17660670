//! What is read, how, and from how slow a server.

use std::path::{Path, PathBuf};
use std::process::Command;

use s3mount_testkit::{ServerProcess, Shape, mix};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// Files in the bucket, and the size of each.
pub(crate) const FILES: usize = 64;
pub(crate) const FILE_BYTES: u64 = 16 * GIB;

/// Shards in a folder of their own, behind the others by their index, and the size of each.
const SHARDS: usize = 64;
const SHARD_BYTES: u64 = 256 * MIB;

pub(crate) fn file_name(index: usize) -> String {
    match index.checked_sub(FILES) {
        None => format!("f{index:05}.bin"),
        Some(shard) => format!("shards/f{shard:05}.bin"),
    }
}

/// The test server, and the folder of its certificate if it speaks TLS.
pub(crate) struct Store {
    pub(crate) server: ServerProcess,
    tls: Option<TempDir>,
}

impl Store {
    /// Starts a server with the bucket `bench`.
    pub(crate) fn start(programs: &Path, is_tls: bool) -> anyhow::Result<Self> {
        let mut command = server(programs);
        if !is_tls {
            return Ok(Self { server: ServerProcess::start(&mut command)?, tls: None });
        }
        let dir = tempfile::tempdir()?;
        let server = ServerProcess::start_with_tls(&mut command, dir.path())?;
        Ok(Self { server, tls: Some(dir) })
    }

    /// The certificate to trust, if the server speaks TLS.
    pub(crate) fn ca_bundle(&self) -> Option<PathBuf> {
        self.tls.as_ref().map(|dir| dir.path().join("ca.pem"))
    }
}

fn server(programs: &Path) -> Command {
    let mut command = Command::new(programs.join("s3mount-test-server"));
    command.args(["--many", &format!("bench/={FILES}x{FILE_BYTES}")]);
    command.args(["--many", &format!("bench/shards/={SHARDS}x{SHARD_BYTES}")]);
    command
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Model {
    /// Loopback as it is.
    Fast,
    /// First byte 25 ms, 90 MB/s a connection, LIST 60 ms.
    Aws,
    /// The same, and each hundredth GET takes a second more.
    AwsTail,
}

impl Model {
    pub(crate) fn shape(self) -> Shape {
        match self {
            Model::Fast => Shape::fast(),
            Model::Aws => Shape::aws(),
            Model::AwsTail => Shape::aws_with_tail(),
        }
    }
}

/// One thread's reads of one file, or of several one after another, in order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The first file.
    pub(crate) file: usize,
    /// How many files are read. Each gets an equal share of the `count` reads.
    pub(crate) files: usize,
    pub(crate) reads: Reads,
    pub(crate) block: u64,
    pub(crate) count: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Reads {
    /// The offset of the first read, and the distance from one read to the next.
    Steps { start: u64, step: i64 },
    /// Pieces of `piece` bytes, each `stride` pieces behind the one before. The stride is odd and the number
    /// of pieces a power of two, so that each piece is read once.
    Pieces { piece: u64, stride: u64 },
    /// Anywhere in the first `span` bytes, in an order that follows from the seed.
    Random { span: u64, seed: u64 },
}

impl Plan {
    fn reads_per_file(&self) -> u64 {
        self.count / self.files as u64
    }

    /// The file of the read number `index`.
    pub(crate) fn file_at(&self, index: u64) -> usize {
        self.file + (index / self.reads_per_file()) as usize
    }

    /// All files of the plan.
    pub(crate) fn all_files(&self) -> std::ops::Range<usize> {
        self.file..self.file + self.files
    }

    pub(crate) fn offset(&self, index: u64) -> u64 {
        let index = index % self.reads_per_file();
        match self.reads {
            Reads::Steps { start, step } => start.saturating_add_signed(step * index as i64),
            Reads::Pieces { piece, stride } => {
                let (per_piece, pieces) = (piece / self.block, self.bytes() / piece);
                (index / per_piece * stride % pieces) * piece + index % per_piece * self.block
            }
            Reads::Random { span, seed } => mix(seed << 32 ^ index) % (span - self.block),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.block * self.count
    }
}

/// What all readers of a pass do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) plans: Vec<Plan>,
    /// The files are opened with `O_DIRECT`.
    pub(crate) direct: bool,
    /// The files are read through maps.
    pub(crate) mapped: bool,
    /// The file is opened, and mapped, anew for each read.
    pub(crate) reopened: bool,
    /// A file stays open when the next one is read.
    pub(crate) kept_open: bool,
    /// All plans share one descriptor, and read in turn.
    pub(crate) interleaved: bool,
    /// The folder of the files. Each pass fills it in.
    pub(crate) dir: String,
}

/// A row of the table.
#[derive(Clone, Debug)]
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) model: Model,
    /// The server speaks TLS.
    pub(crate) tls: bool,
    /// How much the link to the server carries, in megabits a second. Unset, it is as fast as loopback.
    pub(crate) megabits: Option<u32>,
    pub(crate) memory_limit: u64,
    pub(crate) pattern: Pattern,
    /// The page cache keeps the pages of the pass before.
    pub(crate) keep_pages: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Pattern {
    /// `streams` files from their beginnings, `bytes` of each.
    Streams { streams: usize, bytes: u64, block: u64, direct: bool },
    /// `readers` of the same file, each `bytes` from its beginning.
    Same { readers: usize, bytes: u64 },
    /// `readers` of one file, each its own share of `bytes`.
    Shares { readers: usize, bytes: u64 },
    /// Two readers of two halves, in turn on one descriptor.
    Interleaved { bytes: u64 },
    /// Every second MiB.
    Skipping { bytes: u64 },
    /// From the end to the beginning, a MiB at a time.
    Backwards { bytes: u64 },
    /// `readers` that map one file of which they read `bytes`, in pieces of 64 MiB, each in an order
    /// of its own.
    Mapped { readers: usize, bytes: u64 },
    /// `readers` that map one file and read `count` windows of 8 KiB each, anywhere in half of it.
    Windows { readers: usize, count: u64, reopened: bool },
    /// `readers` that read so many whole shards each, one after another.
    Shards { readers: usize, shards: usize },
    /// One reader of the first `bytes` of so many files, one after another.
    Beginnings { files: usize, bytes: u64, kept_open: bool },
    /// One reader that opens a file anew for each `sample` of its first `bytes`.
    Samples { bytes: u64, sample: u64 },
    /// `threads` that read `count` blocks each, anywhere in a file.
    Random { threads: usize, count: u64, block: u64 },
}

const fn stream(name: &'static str, streams: usize, bytes: u64, block: u64) -> Scenario {
    pattern(name, Pattern::Streams { streams, bytes, block, direct: false })
}

pub(crate) const fn pattern(name: &'static str, pattern: Pattern) -> Scenario {
    Scenario {
        name,
        model: Model::Fast,
        tls: false,
        megabits: None,
        memory_limit: GIB,
        pattern,
        keep_pages: false,
    }
}

impl Scenario {
    const fn tail(self) -> Self {
        Self { model: Model::AwsTail, ..self }
    }

    const fn aws(self, memory_limit: u64) -> Self {
        Self { model: Model::Aws, memory_limit, ..self }
    }

    pub(crate) const fn tls(self) -> Self {
        Self { tls: true, ..self }
    }

    const fn link(self, megabits: u32) -> Self {
        Self { megabits: Some(megabits), ..self }
    }
}

pub(crate) const SCENARIOS: &[Scenario] = &[
    stream("1 stream 1MiB", 1, 4 * GIB, MIB),
    stream("1 stream 128KiB", 1, 2 * GIB, 128 * KIB),
    stream("4 streams", 4, GIB, MIB),
    stream("16 streams", 16, 256 * MIB, MIB),
    pattern("direct 8MiB", Pattern::Streams { streams: 1, bytes: 4 * GIB, block: 8 * MIB, direct: true }),
    Scenario { keep_pages: true, ..stream("second read", 1, GIB, MIB) },
    pattern("same file 32 readers", Pattern::Same { readers: 32, bytes: 256 * MIB }),
    pattern("same file 8 shares", Pattern::Shares { readers: 8, bytes: 2 * GIB }),
    pattern("interleaved", Pattern::Interleaved { bytes: GIB }),
    pattern("skipping", Pattern::Skipping { bytes: GIB }),
    pattern("backwards", Pattern::Backwards { bytes: GIB }),
    pattern("mapped 4 readers", Pattern::Mapped { readers: 4, bytes: 2 * GIB }),
    pattern("map windows", Pattern::Windows { readers: 4, count: 500, reopened: false }),
    pattern("map windows reopened", Pattern::Windows { readers: 4, count: 500, reopened: true }),
    pattern("random 4KiB", Pattern::Random { threads: 8, count: 500, block: 4 * KIB }),
    pattern("random 150KiB", Pattern::Random { threads: 8, count: 500, block: 150 * KIB }),
    stream("aws 1 stream 1GiB", 1, 4 * GIB, MIB).aws(GIB),
    stream("aws 1 stream 256MiB", 1, 2 * GIB, MIB).aws(256 * MIB),
    stream("aws 16 streams 512MiB", 16, 256 * MIB, MIB).aws(512 * MIB),
    stream("aws 64 streams 512MiB", 64, 64 * MIB, MIB).aws(512 * MIB),
    // What a mount has by default on a machine of 32 GiB.
    stream("aws 64 streams 4GiB", 64, 64 * MIB, MIB).aws(4 * GIB),
    stream("aws first byte", 1, 128 * KIB, 128 * KIB).aws(GIB),
    pattern("aws shards 1 reader", Pattern::Shards { readers: 1, shards: 12 }).aws(GIB),
    pattern("aws shards 4 readers", Pattern::Shards { readers: 4, shards: 4 }).aws(GIB),
    pattern("aws 60 files", Pattern::Beginnings { files: 60, bytes: 24 * MIB, kept_open: false })
        .aws(GIB / 2),
    pattern("aws 60 files kept open", Pattern::Beginnings { files: 60, bytes: 24 * MIB, kept_open: true })
        .aws(GIB / 2),
    pattern("aws samples 256KiB", Pattern::Samples { bytes: GIB, sample: 256 * KIB }).aws(GIB),
    pattern("aws samples 4MiB", Pattern::Samples { bytes: 2 * GIB, sample: 4 * MIB }).aws(GIB),
    pattern("aws map windows", Pattern::Windows { readers: 4, count: 100, reopened: false }).aws(GIB),
    pattern("aws random 4KiB", Pattern::Random { threads: 8, count: 100, block: 4 * KIB }).aws(GIB),
    pattern("aws random 150KiB", Pattern::Random { threads: 8, count: 100, block: 150 * KIB }).aws(GIB),
    stream("tail 1 stream", 1, 2 * GIB, MIB).tail(),
    pattern("tail random 150KiB", Pattern::Random { threads: 8, count: 300, block: 150 * KIB }).tail(),
    stream("tls 1 stream", 1, 4 * GIB, MIB).tls(),
    stream("tls 16 streams", 16, 256 * MIB, MIB).tls(),
    pattern("tls direct 8MiB", Pattern::Streams { streams: 1, bytes: 4 * GIB, block: 8 * MIB, direct: true })
        .tls(),
    pattern("tls random 4KiB", Pattern::Random { threads: 8, count: 500, block: 4 * KIB }).tls(),
    pattern("tls random 150KiB", Pattern::Random { threads: 8, count: 500, block: 150 * KIB }).tls(),
    stream("link 50 Mbit/s", 1, 64 * MIB, MIB).aws(GIB).link(50),
    stream("link 500 Mbit/s", 1, 512 * MIB, MIB).aws(GIB).link(500),
];

fn steps(file: usize, start: u64, step: i64, block: u64, count: u64) -> Plan {
    Plan { file, files: 1, reads: Reads::Steps { start, step }, block, count }
}

/// Blocks anywhere in the first `span` bytes of the first file. Each pass reads other blocks.
fn random(pass: u64, reader: usize, span: u64, block: u64, count: u64) -> Plan {
    let seed = pass * 100 + reader as u64;
    Plan { file: 0, files: 1, reads: Reads::Random { span, seed }, block, count }
}

impl Scenario {
    /// Whether it reads files from front to back. The client alone can read no other way.
    pub(crate) fn is_sequential(&self) -> bool {
        matches!(self.pattern, Pattern::Streams { .. }) && !self.keep_pages
    }

    /// The work of one pass.
    pub(crate) fn work(&self, pass: u64) -> Work {
        let mib = MIB as i64;
        let plans = match self.pattern {
            Pattern::Streams { streams, bytes, block, .. } => {
                (0..streams).map(|file| steps(file, 0, block as i64, block, bytes / block)).collect()
            }
            Pattern::Same { readers, bytes } => vec![steps(0, 0, mib, MIB, bytes / MIB); readers],
            Pattern::Shares { readers, bytes } => {
                let share = bytes / readers as u64;
                (0..readers as u64).map(|turn| steps(0, turn * share, mib, MIB, share / MIB)).collect()
            }
            Pattern::Interleaved { bytes } => {
                [0, bytes / 2].map(|start| steps(0, start, mib, MIB, bytes / 2 / MIB)).into()
            }
            Pattern::Skipping { bytes } => vec![steps(0, 0, 2 * mib, MIB, bytes / 2 / MIB)],
            Pattern::Backwards { bytes } => vec![steps(0, bytes - MIB, -mib, MIB, bytes / MIB)],
            Pattern::Mapped { readers, bytes } => (0..readers as u64)
                .map(|turn| Plan {
                    file: 0,
                    files: 1,
                    reads: Reads::Pieces { piece: 64 * MIB, stride: 2 * turn + 1 },
                    block: MIB,
                    count: bytes / MIB,
                })
                .collect(),
            Pattern::Windows { readers, count, .. } => {
                (0..readers).map(|reader| random(pass, reader, FILE_BYTES / 2, 8 * KIB, count)).collect()
            }
            Pattern::Shards { readers, shards } => (0..readers)
                .map(|reader| Plan {
                    files: shards,
                    ..steps(FILES + reader * shards, 0, mib, MIB, shards as u64 * SHARD_BYTES / MIB)
                })
                .collect(),
            Pattern::Beginnings { files, bytes, .. } => {
                vec![Plan { files, ..steps(0, 0, mib, MIB, files as u64 * bytes / MIB) }]
            }
            Pattern::Samples { bytes, sample } => {
                vec![steps(0, 0, sample as i64, sample, bytes / sample)]
            }
            Pattern::Random { threads, count, block } => {
                (0..threads).map(|thread| random(pass, thread, FILE_BYTES, block, count)).collect()
            }
        };
        let direct = matches!(self.pattern, Pattern::Streams { direct: true, .. });
        let mapped = matches!(self.pattern, Pattern::Mapped { .. } | Pattern::Windows { .. });
        let reopened =
            matches!(self.pattern, Pattern::Windows { reopened: true, .. } | Pattern::Samples { .. });
        let kept_open = matches!(self.pattern, Pattern::Beginnings { kept_open: true, .. });
        let interleaved = matches!(self.pattern, Pattern::Interleaved { .. });
        Work { plans, direct, mapped, reopened, kept_open, interleaved, dir: String::new() }
    }
}
