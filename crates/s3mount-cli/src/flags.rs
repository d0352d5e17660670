//! The flags, and what `--help` says of them.

pub(crate) mod access;
pub(crate) mod mount;
pub(crate) mod options;
pub(crate) mod size;
pub(crate) mod ttl;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use self::mount::MountArgs;
use crate::commands::bench::BenchArgs;
use crate::commands::tune::TuneArgs;
use crate::commands::warm::WarmArgs;

/// Mount an S3 bucket as a folder, for reading at the speed of the network.
///
/// Reads become parallel ranged GETs that run ahead of the reader, inside a hard memory bound.
/// The mount is read-only. `s3mount umount DIR` takes it down.
///
/// The defaults need no tuning. Sizes are written 8MiB, 1.5G or 512k (powers of 1024), 8MB (of
/// 1000), or in bytes. The command ends when the mount answers, with 0; with 1 when there will be
/// no mount, and 2 when a flag can't be read.
#[derive(Debug, Parser)]
#[command(
    name = "s3mount",
    version,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    disable_help_subcommand = true,
    max_term_width = 100
)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) mount: MountArgs,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Mount a bucket; the word may be left out.
    Mount(Box<MountArgs>),
    /// Unmount a folder that s3mount has mounted.
    ///
    /// Returns when it is gone. A mount in use stays, and the processes that use it are named. A
    /// mount whose daemon was killed is taken down too.
    Umount {
        /// Folder where the bucket is mounted.
        #[arg(value_name = "DIR")]
        dir: PathBuf,
        /// Unmount also what is in use.
        ///
        /// The folder is free at once. Whoever has files open reads on, and the daemon ends when the last
        /// of them is closed.
        #[arg(short, long)]
        lazy: bool,
    },
    /// Have a mount list a tree, or a list of files, before a job asks for it; and read it.
    ///
    /// Names are then known for --metadata-ttl. With --read the files' content is in the kernel's page
    /// cache, as far as there is memory for it.
    Warm(WarmArgs),
    /// Measure how fast an object is read, for each size of part and number of connections.
    ///
    /// Each measurement is taken twice: by the S3 client alone, and through a mount of its own. The
    /// table goes to standard output as it grows, s3mount-bench.json and s3mount-bench.html (with
    /// plots, and the timeline of the best run's parts) to --output.
    Bench(Box<BenchArgs>),
    /// Find the flags that suit a bucket, by a short measurement of a few of its objects.
    Tune(Box<TuneArgs>),
}
