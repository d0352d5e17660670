//! `s3mount bench`: reads one object with parts of many sizes over many connections, by the client alone and
//! through a mount.

mod client;
mod copy;
mod measure;
mod measured;
mod plot;
mod private;
mod report;
mod steps;
mod subject;

use std::path::PathBuf;

use anyhow::{Context, ensure};
pub(crate) use measured::{Measured, Point};
use report::{Report, Row};
pub(crate) use report::{columns, headings};
use s3mount_settings::flags::access::{AccessArgs, READING};
use s3mount_settings::flags::size::Size;
use s3mount_settings::resolved::source;
use s3mount_settings::resolved::store::Store;
use s3mount_system::terminal;
use steps::given;
pub(crate) use steps::progress;
pub(crate) use subject::{Bench, runtime};

/// The flags of `s3mount bench`.
#[derive(Clone, Debug, clap::Args)]
pub struct BenchArgs {
    /// Object to read, with or without s3://; the larger the better, from 1GiB on.
    #[arg(value_name = "[s3://]BUCKET/KEY")]
    object: String,

    #[command(flatten)]
    access: AccessArgs,

    /// Measure how fast the store copies the object instead, for each size of part.
    ///
    /// The copy is made beside the object, under its key with .s3mount-bench-copy behind it, and deleted
    /// again: this needs s3:PutObject and s3:DeleteObject.
    #[arg(
        long,
        conflicts_with_all = ["quick", "seconds", "bytes", "client_only", "memory_limit", "output"],
        help_heading = MEASURING
    )]
    copy: bool,

    /// Sizes of parts to try, separated by commas [default: 1MiB,2MiB,4MiB,8MiB,16MiB,32MiB,64MiB;
    /// with --copy 8MiB,16MiB and so on to 1GiB].
    #[arg(long, value_name = "SIZES", value_delimiter = ',', help_heading = MEASURING)]
    part_sizes: Vec<Size>,

    /// Numbers of connections to try, separated by commas [default: 1,2,4,8,16,32,64; with --copy 16].
    #[arg(
        long,
        value_name = "NUMBERS",
        value_delimiter = ',',
        value_parser = clap::value_parser!(u32).range(1..=1024),
        help_heading = MEASURING
    )]
    connections: Vec<u32>,

    /// Try only parts of 1MiB, 8MiB and 32MiB over 1, 8 and 64 connections, for a second each.
    #[arg(long, conflicts_with_all = ["part_sizes", "connections", "seconds"], help_heading = MEASURING)]
    quick: bool,

    /// End a measurement after this many seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 5,
        value_parser = clap::value_parser!(u64).range(1..=3600),
        help_heading = MEASURING
    )]
    seconds: u64,

    /// End a measurement after this many bytes of the object.
    #[arg(long, value_name = "SIZE", default_value = "1GiB", help_heading = MEASURING)]
    bytes: Size,

    /// Leave the mount out, and measure the client alone.
    ///
    /// For machines without /dev/fuse, and for keys that can't be the names of files.
    #[arg(long, help_heading = MEASURING)]
    client_only: bool,

    /// Memory for object data, as for a mount [default: the same].
    ///
    /// A combination whose part size times connections does not fit is not measured.
    #[arg(long, value_name = "SIZE", help_heading = READING)]
    memory_limit: Option<Size>,

    /// Folder for s3mount-bench.json and s3mount-bench.html.
    #[arg(long, value_name = "DIR", default_value = ".", help_heading = MEASURING)]
    output: PathBuf,
}

pub(crate) const MEASURING: &str = "What to measure";

/// What is tried if nothing is given.
const PARTS: [Size; 7] = [
    Size(1 << 20),
    Size(2 << 20),
    Size(4 << 20),
    Size(8 << 20),
    Size(16 << 20),
    Size(32 << 20),
    Size(64 << 20),
];
const CONNECTIONS: [u32; 7] = [1, 2, 4, 8, 16, 32, 64];

/// Measures, prints the table, and writes the files.
pub fn run(args: &BenchArgs) -> anyhow::Result<()> {
    let (bucket, key) = source::object(&args.object)?;
    if args.copy {
        return copy::run(&Store::new(bucket, &args.access)?, &key, &args.part_sizes, &args.connections);
    }
    for size in &args.part_sizes {
        ensure!(
            (64 << 10..=64 << 20).contains(&size.0),
            "--part-sizes {size} is not from 64KiB to 64MiB; leave it out"
        );
    }
    let folder = &args.output;
    ensure!(
        folder.is_dir(),
        "the folder {} does not exist; make it, or name another with --output",
        folder.display()
    );
    let (parts, connections, seconds) = if args.quick {
        (vec![Size(1 << 20), Size(8 << 20), Size(32 << 20)], vec![1, 8, 64], 1)
    } else {
        let (parts, connections) = (given(&args.part_sizes, &PARTS), given(&args.connections, &CONNECTIONS));
        (parts, connections, args.seconds)
    };
    let limit = s3mount_settings::resolved::memory::limit(args.memory_limit)?;
    let bench = Bench::new(Store::new(bucket, &args.access)?, &key, limit, args.bytes.0, seconds)?;
    let points: Vec<Point> = parts
        .iter()
        .flat_map(|part| {
            connections.iter().map(|connections| Point { part_bytes: part.0, connections: *connections })
        })
        .collect();
    let mut report = Report::new(&bench);
    terminal::result(&report.heading());
    let bar = progress(points.len() as u64);
    // A first run is not counted: it allocates memory for the first time, and fills the store's own caches.
    bench.client(points[points.len() / 2])?;
    for point in points {
        bar.set_message(format!("parts of {}, {} connections", Size(point.part_bytes), point.connections));
        let client = bench.fits(point).then(|| bench.client(point)).transpose()?;
        let may_mount = !args.client_only && bench.fits(point) && point.part_bytes.is_multiple_of(1 << 20);
        let mount = may_mount.then(|| bench.mount(&point.flags())).transpose()?;
        let row = Row { point, client, mount };
        bar.suspend(|| terminal::result(&row.line()));
        report.rows.push(row);
        bar.inc(1);
    }
    bar.finish_and_clear();
    terminal::result(&report.verdict());
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
    };
    write("s3mount-bench.json", report.json()?)?;
    write("s3mount-bench.html", plot::html(&report)?)?;
    terminal::result(&format!(
        "{0}/s3mount-bench.json and {0}/s3mount-bench.html have it all",
        folder.display()
    ));
    Ok(())
}
