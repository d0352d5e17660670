//! `make bench` measures a mount beside its two ceilings in one run. The targets are:
//!
//! - *raw*: the S3 client fetches the same bytes into the same pool, without FUSE;
//! - *null*: the filesystem and the FUSE adapter stand over a client that answers at once;
//! - *mount*: the real binary mounts the bucket;
//! - *cached*: the same with a disk cache in the folder for temporary files, which is empty at the beginning of
//!   each pass. It is measured when it is asked for, and then the mount is made anew for each pass, too;
//! - *kept*: the same with `--keep-alive`, when it is asked for;
//! - *base*: an earlier build of the binary, when one is given;
//! - *peer*: another binary with the flags of `mount-s3`, when one is given.
//!
//! Each target, the server and the readers are processes of their own, so that their CPU time and memory can
//! be told apart. The passes of the targets are interleaved, in one order and then in the other. The page
//! cache is dropped before each pass. The first pass does not count, and the table shows the median of the
//! others.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "it reports to a terminal")]
#![expect(clippy::disallowed_methods, reason = "it measures")]

mod cores;
mod link;
mod null;
mod plot;
mod raw;
mod reader;
mod report;
mod scale;
mod scenario;
mod target;

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Parser;
use indicatif::ProgressBar;

use crate::cores::Cores;
use crate::link::Link;
use crate::report::{Pass, Row};
use crate::scale::Scaled;
use crate::scenario::{Model, SCENARIOS, Scenario, Store};
use crate::target::{Ours, Target};

/// Measures streams and random reads through a mount, beside the client and the filesystem alone.
#[derive(Debug, Parser)]
struct Args {
    /// Only scenarios whose names contain this.
    #[arg(value_name = "NAME")]
    only: Option<String>,
    /// Passes that count, of each target.
    #[arg(long, default_value_t = 5)]
    passes: usize,
    /// A mount-s3 binary to measure beside us.
    #[arg(long, value_name = "PATH")]
    peer: Option<PathBuf>,
    /// An s3mount binary of an earlier build to measure beside this one.
    #[arg(long, value_name = "PATH")]
    base: Option<PathBuf>,
    /// Another s3mount binary than this build's.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// More flags for s3mount, such as --flags="--part-size 4MiB".
    #[arg(long, default_value = "", allow_hyphen_values = true)]
    flags: String,
    /// Only these targets: raw, null, mount, cached, kept, base, peer. "cached" and "kept" are left out by default.
    #[arg(long, value_delimiter = ',')]
    targets: Vec<String>,
    /// Append the results to benches/history.jsonl and draw benches/history.svg.
    #[arg(long)]
    record: bool,
    /// Measure by numbers of processors: 1, 2, 4 and so on, and all of this machine.
    #[arg(long, conflicts_with = "record")]
    scale: bool,
    /// Cargo passes it.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    fn is_wanted(&self, scenario: &Scenario) -> bool {
        self.only.as_deref().is_none_or(|only| scenario.name.contains(only))
    }
}

fn main() -> anyhow::Result<()> {
    // This program starts itself in these roles.
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some("role-reader") => return reader::serve(),
        Some("role-raw") => return raw::serve(&args.collect::<Vec<_>>()),
        Some("role-null") => return null::serve(&args.collect::<Vec<_>>()),
        _ => {}
    }
    let args = Args::parse();
    let cores = Cores::all()?;
    if args.scale {
        return scale(&args, &cores);
    }
    let mut rows = Vec::new();
    for scenario in SCENARIOS.iter().filter(|scenario| args.is_wanted(scenario)) {
        let measured = measure(scenario, &args, &cores)?;
        print!("{}", report::table(scenario, &measured));
        rows.extend(measured);
    }
    if args.record {
        report::record(&rows)?;
        plot::draw()?;
    }
    Ok(())
}

/// Measures by numbers of processors.
fn scale(args: &Args, cores: &Cores) -> anyhow::Result<()> {
    let mut all: Vec<Scaled> = Vec::new();
    for count in cores.steps() {
        for scenario in scale::scenarios(count).iter().filter(|scenario| args.is_wanted(scenario)) {
            let measured = measure(scenario, args, &cores.first(count)?)?;
            let rows = measured.into_iter().map(|row| (count, row));
            match all.iter_mut().find(|scaled| scaled.name == scenario.name) {
                Some(scaled) => scaled.rows.extend(rows),
                None => all.push(Scaled { name: scenario.name, rows: rows.collect() }),
            }
        }
    }
    all.iter().for_each(|scaled| print!("{}", scaled.table()));
    let picture = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/scale.svg");
    scale::draw(&picture, &all, cores)?;
    println!("{}", picture.display());
    Ok(())
}

/// All passes of one scenario.
fn measure(scenario: &Scenario, args: &Args, cores: &Cores) -> anyhow::Result<Vec<Row>> {
    passes(scenario, args, cores).with_context(|| scenario.name.to_owned())
}

fn passes(scenario: &Scenario, args: &Args, cores: &Cores) -> anyhow::Result<Vec<Row>> {
    // All that is started below is behind this link.
    let _link = scenario.megabits.map(Link::enter).transpose()?;
    let programs = target::programs()?;
    let store = cores::on(&cores.others, || Store::start(&programs, scenario.tls))?;
    let mut targets = Vec::new();
    let is_asked = |name: &str| args.targets.iter().any(|target| target == name);
    let wanted = |name: &str| args.targets.is_empty() || is_asked(name);
    if wanted("raw") && scenario.is_sequential() {
        targets.push(Target::raw(&store, scenario, cores)?);
    }
    // The null client answers at once, so it has no model of latency, and no TLS.
    if wanted("null") && scenario.model == Model::Fast && !scenario.tls {
        targets.push(Target::null(scenario, cores)?);
    }
    let binary = args.binary.clone().unwrap_or_else(|| programs.join("s3mount"));
    let is_fresh = is_asked("cached");
    let mount = |name, binary| {
        let (has_cache, is_kept) = (name == "cached", name == "kept");
        Target::mount(
            &Ours { name, binary, flags: &args.flags, has_cache, is_fresh, is_kept },
            &store,
            scenario,
            cores,
        )
    };
    if wanted("mount") {
        targets.push(mount("mount", &binary)?);
    }
    if is_fresh {
        targets.push(mount("cached", &binary)?);
    }
    if is_asked("kept") {
        targets.push(mount("kept", &binary)?);
    }
    if let Some(base) = args.base.as_ref().filter(|_| wanted("base")) {
        targets.push(mount("base", base)?);
    }
    if let Some(peer) = args.peer.as_ref().filter(|_| wanted("peer")) {
        targets.push(Target::peer(peer, &store, scenario, cores)?);
    }
    store.server.shape(scenario.model.shape())?;
    let bar = ProgressBar::new_spinner();
    let mut passes: Vec<Vec<Pass>> = targets.iter().map(|_| Vec::new()).collect();
    for number in 0..=args.passes {
        for (target, passes) in targets.iter_mut().zip(&mut passes) {
            bar.set_message(format!("{}, {}, pass {number} of {}", scenario.name, target.name, args.passes));
            bar.tick();
            let pass = target.pass(&store.server, scenario, number as u64)?;
            if number > 0 {
                passes.push(pass);
            }
        }
    }
    bar.finish_and_clear();
    Ok(targets.iter().zip(&passes).map(|(target, passes)| Row::new(scenario, target.name, passes)).collect())
}
