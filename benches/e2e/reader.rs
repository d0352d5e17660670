//! The process that reads. It takes one piece of work from each line, and prints one line with the result.
#![expect(unsafe_code, reason = "maps files")]

use std::fs::{File, OpenOptions};
use std::io::{BufRead, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use memmap2::Mmap;
use serde::{Deserialize, Serialize};

use crate::scenario::{Plan, Work, file_name};

/// The result of one pass of the readers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Read {
    pub(crate) bytes: u64,
    pub(crate) seconds: f64,
    /// From before open(2) to the end of the first read, in milliseconds.
    pub(crate) first_byte_ms: f64,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
    /// Speed of the slowest plan, in bytes a second, and the mean of all.
    pub(crate) slowest: f64,
    pub(crate) mean: f64,
    /// Speed after the first 1.5 s, in bytes a second. 0 when the pass took less.
    pub(crate) after_ramp: f64,
}

/// The reads of one plan: when each ended after the start, and how long it took.
struct Timeline {
    block: u64,
    ends: Vec<(Duration, Duration)>,
}

/// Does the work that each line of standard input describes.
pub(crate) fn serve() -> anyhow::Result<()> {
    for line in std::io::stdin().lock().lines() {
        let work: Work = serde_json::from_str(&line?)?;
        println!("{}", serde_json::to_string(&read(&work)?)?);
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// An open file, and its map if it is read through one.
struct Opened {
    index: usize,
    file: File,
    map: Option<Mmap>,
}

impl Opened {
    fn new(work: &Work, index: usize) -> anyhow::Result<Self> {
        let file = open(work, index)?;
        // SAFETY: objects do not change while the bench runs, and nobody else writes to the file.
        let map = if work.mapped { Some(unsafe { Mmap::map(&file) }?) } else { None };
        Ok(Self { index, file, map })
    }

    fn read(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
        let Some(map) = &self.map else {
            return read_fully(&self.file, buffer, offset);
        };
        buffer.copy_from_slice(&map[offset as usize..][..buffer.len()]);
        Ok(buffer.len())
    }
}

fn open(work: &Work, index: usize) -> anyhow::Result<File> {
    let path = Path::new(&work.dir).join(file_name(index));
    let mut options = OpenOptions::new();
    options.read(true);
    if work.direct {
        options.custom_flags(libc::O_DIRECT);
    }
    options.open(&path).with_context(|| format!("opening {}", path.display()))
}

fn read(work: &Work) -> anyhow::Result<Read> {
    // The names are looked up first, as a job does that has listed its files.
    for index in work.plans.iter().flat_map(Plan::all_files) {
        std::fs::metadata(Path::new(&work.dir).join(file_name(index)))?;
    }
    let turns: Vec<Vec<&Plan>> = if work.interleaved {
        vec![work.plans.iter().collect()]
    } else {
        work.plans.iter().map(|plan| vec![plan]).collect()
    };
    let barrier = Barrier::new(turns.len());
    let timelines = thread::scope(|scope| {
        let threads: Vec<_> =
            turns.iter().map(|plans| scope.spawn(|| read_in_turn(work, plans, &barrier))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a reader panicked"))?)
            .collect::<anyhow::Result<Vec<_>>>()
    })?;
    Ok(summary(&timelines))
}

/// Reads the plans on one descriptor, one read of each in turn.
fn read_in_turn(work: &Work, plans: &[&Plan], barrier: &Barrier) -> anyhow::Result<Timeline> {
    let block = plans[0].block;
    // O_DIRECT needs a buffer that begins at the edge of a page.
    let mut memory = vec![1; block as usize + 4096];
    let skip = memory.as_ptr().align_offset(4096);
    let buffer = &mut memory[skip..skip + block as usize];
    barrier.wait();
    let start = Instant::now();
    let mut opened = Opened::new(work, plans[0].file)?;
    let (mut ends, mut kept_open) = (Vec::new(), Vec::new());
    let mut before = start;
    for index in 0..plans[0].count {
        for plan in plans {
            let file = plan.file_at(index);
            if file != opened.index || work.reopened {
                let before = std::mem::replace(&mut opened, Opened::new(work, file)?);
                if work.kept_open {
                    kept_open.push(before);
                }
            }
            let read = opened.read(buffer, plan.offset(index))?;
            ensure!(read == buffer.len(), "a read at {} ended after {read} bytes", plan.offset(index));
            let now = Instant::now();
            ends.push((now - start, now - before));
            before = now;
        }
    }
    Ok(Timeline { block, ends })
}

fn read_fully(file: &File, buffer: &mut [u8], offset: u64) -> std::io::Result<usize> {
    let mut done = 0;
    while done < buffer.len() {
        match file.read_at(&mut buffer[done..], offset + done as u64)? {
            0 => break,
            read => done += read,
        }
    }
    Ok(done)
}

fn summary(timelines: &[Timeline]) -> Read {
    const RAMP: Duration = Duration::from_millis(1500);
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let mut took: Vec<Duration> =
        timelines.iter().flat_map(|line| line.ends.iter().map(|end| end.1)).collect();
    took.sort_unstable();
    let at = |share: f64| {
        took.get((took.len() as f64 * share) as usize).or(took.last()).copied().unwrap_or_default()
    };
    let last = |line: &Timeline| line.ends.last().map_or(0.0, |end| end.0.as_secs_f64());
    let bytes = |line: &Timeline| line.ends.len() as u64 * line.block;
    let speeds: Vec<f64> = timelines.iter().map(|line| bytes(line) as f64 / last(line)).collect();
    let seconds = timelines.iter().map(last).fold(0.0, f64::max);
    let late: u64 = timelines
        .iter()
        .map(|line| line.ends.iter().filter(|end| end.0 > RAMP).count() as u64 * line.block)
        .sum();
    let rest = seconds - RAMP.as_secs_f64();
    let first = timelines.iter().filter_map(|line| line.ends.first()).map(|end| end.0).min();
    Read {
        bytes: timelines.iter().map(bytes).sum(),
        seconds,
        first_byte_ms: ms(first.unwrap_or_default()),
        p50_ms: ms(at(0.5)),
        p99_ms: ms(at(0.99)),
        max_ms: ms(at(1.0)),
        slowest: speeds.iter().copied().fold(f64::INFINITY, f64::min),
        mean: speeds.iter().sum::<f64>() / speeds.len() as f64,
        after_ramp: if rest > 0.1 { late as f64 / rest } else { 0.0 },
    }
}
