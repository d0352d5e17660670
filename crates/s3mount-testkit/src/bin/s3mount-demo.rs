//! `make demo`: a mount of a bucket with a large object and many small files, read and checked.
//!
//! Server and daemon are processes of their own, as they would be anywhere else.
#![expect(clippy::print_stdout, reason = "it is a demo")]
#![expect(clippy::disallowed_methods, reason = "it measures")]

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::thread;
use std::time::Instant;

use anyhow::{Context, anyhow, ensure};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use nix::sys::signal::{SigSet, Signal};
use s3mount_testkit::{MountGuard, ServerProcess, check};

const BIG: &str = "big.bin";
const BIG_BYTES: u64 = 2 << 30;
const SMALL: u64 = 2000;
const SMALL_BYTES: u64 = 100 << 10;
const READERS: u64 = 32;

/// Bytes that one read asks for.
const READ_BYTES: usize = 1 << 20;

/// Starts a test server and mounts its bucket, streams an object of 2 GiB twice and 2,000 small files through
/// the mount, checks their bytes, and leaves the mount up until Ctrl-C.
#[derive(Debug, Parser)]
struct Args {
    /// End when all is read.
    #[arg(long)]
    once: bool,
    /// Memory for object data, for s3mount's --memory-limit.
    #[arg(long, default_value = "512MiB")]
    memory_limit: String,
    /// How slow the server is: fast is loopback as it is, aws has S3's latency and bandwidth.
    #[arg(long, default_value = "fast")]
    model: String,
}

fn bar(length: u64, template: &str) -> anyhow::Result<ProgressBar> {
    Ok(ProgressBar::new(length).with_style(ProgressStyle::with_template(template)?))
}

/// Streams the file, past what the page cache has of it; another thread compares what was read.
fn stream(path: &Path, stop: &AtomicBool) -> anyhow::Result<f64> {
    let bar = bar(BIG_BYTES, "{msg} {wide_bar} {bytes}/{total_bytes} {decimal_bytes_per_sec} {eta}")?;
    bar.set_message(BIG);
    let start = Instant::now();
    thread::scope(|scope| {
        let (full, filled) = sync_channel::<Vec<u8>>(8);
        let (empty, emptied) = channel();
        let checker = scope.spawn(move || {
            let mut at = 0;
            for buffer in filled {
                check(BIG, at, &buffer).map_err(|error| anyhow!("{BIG} has wrong bytes: {error}"))?;
                at += buffer.len() as u64;
                // The reader may be done.
                let _ = empty.send(buffer);
            }
            anyhow::Ok(at)
        });
        let mut file = File::open(path)?;
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        while !stop.load(Ordering::Relaxed) {
            let mut buffer: Vec<u8> = emptied.try_recv().unwrap_or_default();
            buffer.resize(READ_BYTES, 0);
            let read = file.read(&mut buffer)?;
            buffer.truncate(read);
            bar.inc(read as u64);
            if read == 0 || full.send(buffer).is_err() {
                break;
            }
        }
        drop(full);
        let checked = checker.join().map_err(|_| anyhow!("the checker panicked"))??;
        ensure!(checked == BIG_BYTES || stop.load(Ordering::Relaxed), "{BIG} ended at {checked}");
        anyhow::Ok(())
    })?;
    bar.finish();
    Ok(start.elapsed().as_secs_f64())
}

/// Reads all small files in an order of no pattern, by many threads.
fn read_small(dir: &Path, stop: &AtomicBool) -> anyhow::Result<f64> {
    let bar = bar(SMALL, "{msg} {wide_bar} {pos}/{len} files {per_sec} {eta}")?;
    bar.set_message("small files");
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let read = || {
        loop {
            let turn = next.fetch_add(1, Ordering::Relaxed);
            if turn >= SMALL || stop.load(Ordering::Relaxed) {
                return anyhow::Ok(());
            }
            // 7 and 2,000 have no common factor: each file comes once.
            let key = format!("small/f{:05}.bin", turn * 7 % SMALL);
            let bytes = std::fs::read(dir.join(&key)).with_context(|| format!("reading {key}"))?;
            ensure!(bytes.len() as u64 == SMALL_BYTES, "{key} has {} bytes", bytes.len());
            check(&key, 0, &bytes).map_err(|error| anyhow!("{key} has wrong bytes: {error}"))?;
            bar.inc(1);
        }
    };
    thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS).map(|_| scope.spawn(read)).collect();
        readers.into_iter().try_for_each(|reader| reader.join().map_err(|_| anyhow!("a reader panicked"))?)
    })?;
    bar.finish();
    Ok(start.elapsed().as_secs_f64())
}

/// The folder of the programs, this one among them.
fn programs() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().context("the program's folder")?.to_owned())
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    // Blocked in all threads, and taken by one: Ctrl-C must not leave the mount behind.
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM]);
    signals.thread_block()?;
    let (interrupt, interrupted) = channel();
    let stop: &'static AtomicBool = Box::leak(Box::default());
    thread::spawn(move || {
        let _ = signals.wait();
        stop.store(true, Ordering::Relaxed);
        let _ = interrupt.send(());
    });

    let programs = programs()?;
    let mut command = Command::new(programs.join("s3mount-test-server"));
    command.args(["--model", &args.model, "--synthetic", &format!("demo/{BIG}={BIG_BYTES}")]);
    command.args(["--many", &format!("demo/small/={SMALL}x{SMALL_BYTES}")]);
    let server = ServerProcess::start(&mut command)?;
    let folder = tempfile::Builder::new().prefix("s3mount-demo-").tempdir()?;
    let dir = folder.path().join("demo");
    std::fs::create_dir(&dir)?;
    let mut command = Command::new(programs.join("s3mount"));
    command.args(["demo"]).arg(&dir).args(["--foreground", "--no-sign-request"]);
    command.args(["--endpoint-url", server.endpoint(), "--memory-limit", &args.memory_limit]);
    let mount = MountGuard::new(&mut command, &dir)?;
    println!("s3://demo of the test server {} is mounted at {}", server.endpoint(), dir.display());

    // The first pass takes memory that nobody on this machine has used, which is slow on virtual machines.
    let first_seconds = stream(&dir.join(BIG), stop)?;
    let (cpu_before, before) = (mount.cpu_seconds(), server.stats()?);
    let seconds = stream(&dir.join(BIG), stop)?;
    let cpu = mount.cpu_seconds() - cpu_before;
    let streamed = server.stats()?;
    let small_seconds = read_small(&dir, stop)?;
    let stats = server.stats()?;
    if stop.load(Ordering::Relaxed) {
        return Ok(());
    }
    let gib = (BIG_BYTES >> 30) as f64;
    println!("every byte is right");
    println!(
        "2 GiB object     {:.2} GB/s at first, {:.2} GB/s again: {} GETs, {:.3} bytes fetched per byte read, {:.2} CPU s \
         per GiB",
        BIG_BYTES as f64 / first_seconds / 1e9,
        BIG_BYTES as f64 / seconds / 1e9,
        streamed.get_object.requests - before.get_object.requests,
        (streamed.get_object.bytes - before.get_object.bytes) as f64 / BIG_BYTES as f64,
        cpu / gib,
    );
    println!(
        "2,000 files      {:.0} files/s, {} GETs, {} LISTs",
        SMALL as f64 / small_seconds,
        stats.get_object.requests - streamed.get_object.requests,
        stats.list_objects.requests - streamed.list_objects.requests,
    );
    println!(
        "daemon's memory  {} MiB at most, under --memory-limit {}",
        mount.peak_rss_bytes() >> 20,
        args.memory_limit
    );
    if !args.once {
        println!("the mount stays at {}; Ctrl-C ends it", dir.display());
        interrupted.recv()?;
    }
    Ok(())
}
