//! `s3mount tune`: finds the flags that suit a bucket, and says why.

use std::ffi::OsString;

use anyhow::Context;
use s3mount_object::{ListObjects, ListedObject, ObjectClient};
use s3mount_settings::flags::access::{AccessArgs, READING};
use s3mount_settings::flags::size::Size;
use s3mount_settings::resolved::source;
use s3mount_settings::resolved::store::Store;
use s3mount_system::terminal;

use crate::bench::{Bench, MEASURING, Measured, Point, columns, headings, progress, runtime};

/// The flags of `s3mount tune`.
#[derive(Clone, Debug, clap::Args)]
pub struct TuneArgs {
    /// Bucket, with or without s3://, and the prefix of the objects that the jobs read.
    #[arg(value_name = "[s3://]BUCKET[/PREFIX]")]
    source: String,

    #[command(flatten)]
    access: AccessArgs,

    /// Memory for object data that the mount will have [default: the same as for a mount].
    #[arg(long, value_name = "SIZE", help_heading = READING)]
    memory_limit: Option<Size>,

    /// End each of about thirty measurements after this many seconds.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 2,
        value_parser = clap::value_parser!(u64).range(1..=3600),
        help_heading = MEASURING
    )]
    seconds: u64,
}

const MIB: u64 = 1 << 20;

/// The number of pages of a listing that are read, to find objects to measure.
const MAX_PAGES: usize = 10;

/// An object below this size is read by one or two GETs. For such objects the speed depends on how many are
/// read at once.
const SMALL_BYTES: u64 = 8 * MIB;

/// The number of objects that are measured, and the number of bytes that are read of each.
const OBJECTS: usize = 3;
const BYTES: u64 = 1 << 30;

const PARTS: [u64; 4] = [2 * MIB, 4 * MIB, 8 * MIB, 16 * MIB];
const CONNECTIONS: [u32; 5] = [8, 16, 32, 64, 128];

/// A setting with at least this share of the best speed is as good as the best: a smaller difference is
/// noise.
const AS_GOOD: f64 = 0.95;

/// The number of passes through a mount with each set of flags.
const PASSES: usize = 3;

/// Measures, and prints the flags.
pub fn run(args: &TuneArgs) -> anyhow::Result<()> {
    let source = source::parse(&args.source, None)?;
    let limit = s3mount_settings::resolved::memory::limit(args.memory_limit)?;
    let store = Store::new(source.bucket, &args.access)?;
    let (objects, is_cut) = sizes(&store, &source.prefix)?;
    let largest = objects.last().with_context(|| {
        format!(
            "there is nothing to measure below {:?} in bucket {:?}; check the prefix",
            source.prefix, store.bucket
        )
    })?;
    let median = &objects[objects.len() / 2];
    terminal::result(&format!(
        "{}{} objects: half of them up to {}, the largest {}",
        if is_cut { "the first " } else { "" },
        objects.len(),
        about(median.meta.size),
        about(largest.meta.size)
    ));
    if largest.meta.size < SMALL_BYTES {
        terminal::result(
            "All are small: each is read by one GET or two, and the parts' size and the windows don't matter.\n\
             What counts is how many are read at once: more workers, or hints of what they will read.\n\
             Use --preset small-files: one GET for each file of up to 4 MiB. Names then count as current for an hour.",
        );
        return Ok(());
    }
    let large: Vec<_> = objects.iter().filter(|object| object.meta.size >= SMALL_BYTES).collect();
    // Choose the largest object, and others at even distances between it and the smallest, in the order of
    // size.
    let mut chosen: Vec<_> =
        (1..=OBJECTS).map(|turn| large[(large.len() * turn).div_ceil(OBJECTS) - 1]).collect();
    chosen.dedup_by(|a, b| a.key == b.key);
    let benches = chosen
        .iter()
        .map(|object| Bench::new(store.clone(), &object.key, limit, BYTES, args.seconds))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let names: Vec<_> =
        benches.iter().map(|bench| format!("{} ({})", bench.object.key(), about(bench.size))).collect();
    terminal::result(&format!("reading {}, in a memory limit of {}", names.join(", "), Size(limit)));
    let client = sweep(&benches)?;
    let (point, best) = choose(&client).context("the memory limit is too small for any part")?;
    let flags = Flags::new(point, best, limit);
    compare(&benches, &flags, best)
}

/// The objects below `prefix`, sorted by size, and whether there are more than were read.
fn sizes(store: &Store, prefix: &str) -> anyhow::Result<(Vec<ListedObject>, bool)> {
    let runtime = runtime(2)?;
    let (client, mut page) = runtime.block_on(store.connect(store.crt_config(1)?, prefix, 1000))?;
    let mut objects = std::mem::take(&mut page.objects);
    for _ in 1..MAX_PAGES {
        if page.next.is_none() {
            break;
        }
        let next = ListObjects {
            prefix: prefix.to_owned(),
            continuation: page.next.take(),
            ..ListObjects::default()
        };
        page = runtime.block_on(client.list_objects(next)).context("cannot list the bucket")?;
        objects.append(&mut page.objects);
    }
    objects.retain(|object| object.meta.size > 0);
    objects.sort_by_key(|object| object.meta.size);
    Ok((objects, page.next.is_some()))
}

/// Measures the client alone on each object in turn, with all part sizes and numbers of connections.
fn sweep(benches: &[Bench]) -> anyhow::Result<Vec<(Point, Measured)>> {
    let points: Vec<_> = PARTS
        .into_iter()
        .flat_map(|part_bytes| CONNECTIONS.map(|connections| Point { part_bytes, connections }))
        .filter(|point| benches[0].fits(*point))
        .collect();
    let bar = progress(points.len() as u64);
    let mut measured = Vec::new();
    for (turn, point) in points.into_iter().enumerate() {
        bar.set_message(format!("parts of {}, {} connections", Size(point.part_bytes), point.connections));
        measured.push((point, benches[turn % benches.len()].client(point)?));
        bar.inc(1);
    }
    bar.finish_and_clear();
    Ok(measured)
}

/// Chooses, of the settings that are as good as the best, the one that takes the least memory.
fn choose(measured: &[(Point, Measured)]) -> Option<(Point, &Measured)> {
    let best = measured.iter().map(|(_, measured)| measured.gb_s()).fold(0.0, f64::max);
    let good = measured.iter().filter(|(_, measured)| measured.gb_s() >= best * AS_GOOD);
    good.min_by_key(|(point, _)| (point.part_bytes * u64::from(point.connections), point.connections))
        .map(|(point, measured)| (*point, measured))
}

/// Flags with their values, and the reason for each flag.
struct Flags(Vec<(&'static str, String, String)>);

impl Flags {
    fn new(point: Point, best: &Measured, limit: u64) -> Self {
        let in_flight = point.part_bytes * u64::from(point.connections);
        let mut flags = vec![
            (
                "--part-size",
                Size(point.part_bytes).to_string(),
                "the client alone is as fast with these as with any other size".to_owned(),
            ),
            (
                "--max-connections",
                point.connections.to_string(),
                format!("more bring less than 5 % on top of {:.2} GB/s", best.gb_s()),
            ),
        ];
        // The window is twice the bytes in flight: parts arrive out of order, and parts that have arrived
        // wait for their reader.
        let window = in_flight * 2;
        if window > s3mount_settings::resolved::memory::window(limit) {
            let why =
                format!("one stream needs twice the {} that are in flight at this speed", Size(in_flight));
            flags.push(("--prefetch-window", Size(window).to_string(), why));
        }
        Self(flags)
    }

    fn args(&self) -> Vec<OsString> {
        self.0.iter().flat_map(|(flag, value, _)| [OsString::from(flag), OsString::from(value)]).collect()
    }

    fn line(&self) -> String {
        let flags: Vec<_> = self.0.iter().map(|(flag, value, _)| format!("{flag} {value}")).collect();
        flags.join(" ")
    }
}

/// Measures a mount without flags and a mount with the flags, in turn, and prints the conclusion.
fn compare(benches: &[Bench], flags: &Flags, best: &Measured) -> anyhow::Result<()> {
    let (args, mut plain, mut tuned) = (flags.args(), Vec::new(), Vec::new());
    let bar = progress(2 * PASSES as u64);
    for pass in 0..PASSES {
        let bench = &benches[benches.len() - 1 - pass % benches.len()];
        for (flags, measured) in [(&[][..], &mut plain), (&args[..], &mut tuned)] {
            bar.set_message("through a mount");
            measured.push(bench.mount(flags)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let (plain, tuned) = (total(&plain), total(&tuned));
    terminal::result(&format!("\n{:>24}{}", "", headings()));
    for (name, measured) in
        [("client alone, at best", best), ("mount, defaults", &plain), ("mount, these flags", &tuned)]
    {
        terminal::result(&format!("{name:>24}{}", columns(Some(measured))));
    }
    if plain.gb_s() >= tuned.gb_s() * AS_GOOD {
        terminal::result(&format!(
            "\nThe defaults are as good as {}: no flags are needed.{}",
            flags.line(),
            if plain.gb_s() < best.gb_s() * 0.8 { REST } else { "" }
        ));
        return Ok(());
    }
    terminal::result(&format!("\nUse {}", flags.line()));
    for (flag, value, why) in &flags.0 {
        terminal::result(&format!("  {flag} {value}: {why}"));
    }
    Ok(())
}

/// The advice if a mount is much slower than the client alone.
const REST: &str = "\nOne reader through the kernel is slower than the client alone: several at once, or reads of \
                    8MiB with --direct-io, come nearer to it.";

/// Adds the passes up to one measurement.
fn total(passes: &[Measured]) -> Measured {
    let sum = |of: fn(&Measured) -> f64| passes.iter().map(of).sum::<f64>();
    Measured {
        bytes: passes.iter().map(|pass| pass.bytes).sum(),
        seconds: sum(|pass| pass.seconds),
        cpu_seconds: sum(|pass| pass.cpu_seconds),
        peak_memory_bytes: passes.iter().map(|pass| pass.peak_memory_bytes).max().unwrap_or(0),
        requests: passes.iter().map(|pass| pass.requests).sum(),
        parts: Vec::new(),
    }
}

/// A rounded size for people to read, not for a flag.
fn about(bytes: u64) -> String {
    let power = (bytes.max(1).ilog2() / 10).min(4);
    let unit = ["B", "KiB", "MiB", "GiB", "TiB"][power as usize];
    let value = bytes as f64 / f64::from(1024u16).powi(power as i32);
    if power == 0 || value >= 10.0 { format!("{value:.0} {unit}") } else { format!("{value:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::{MIB, about, choose};
    use crate::bench::{Measured, Point};

    fn measured(mib: u64, connections: u32, gb_s: f64) -> (Point, Measured) {
        let (seconds, bytes) = (1.0, (gb_s * 1e9) as u64);
        let point = Point { part_bytes: mib * MIB, connections };
        let rest = Measured {
            bytes,
            seconds,
            cpu_seconds: 0.0,
            peak_memory_bytes: 0,
            requests: 0,
            parts: Vec::new(),
        };
        (point, rest)
    }

    #[test]
    fn takes_the_least_memory_of_what_is_as_good_as_the_best() {
        let all = [measured(8, 64, 2.0), measured(8, 32, 1.95), measured(4, 64, 1.92), measured(2, 64, 1.2)];
        let (point, _) = choose(&all).expect("one");
        assert_eq!(point, Point { part_bytes: 8 * MIB, connections: 32 });
        assert!(choose(&[]).is_none());
    }

    #[test]
    fn sizes_are_rounded_for_the_eye() {
        let shown = [0, 999, 110 << 10, 1 << 20, 3 << 29, 5 << 40].map(about);
        assert_eq!(shown, ["0 B", "999 B", "110 KiB", "1.0 MiB", "1.5 GiB", "5.0 TiB"]);
    }
}
