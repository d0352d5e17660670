//! Opens a disk cache, and says what that costs: at once, and while the housekeeper goes through it.
//!
//! `cargo run --release -p s3mount-cache --example open_disk -- DIR SECONDS`
#![expect(clippy::print_stdout, clippy::disallowed_methods, reason = "an example prints what it measures")]

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use s3mount_cache::{DiskCache, DiskConfig};

fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let dir = args.next().ok_or("give a DIR")?;
    let seconds = args.next().unwrap_or_default().parse().unwrap_or(0);
    let config = DiskConfig {
        dirs: vec![PathBuf::from(dir)],
        max_bytes: None,
        source: "http://127.0.0.1:9000/data".to_owned(),
        queue_bytes: 1 << 20,
        ..DiskConfig::default()
    };
    show("before")?;
    let start = std::time::Instant::now();
    let cache = DiskCache::open(&config)?;
    println!("opened in {:?}", start.elapsed());
    show("after")?;
    for _ in 0..seconds {
        std::thread::sleep(Duration::from_secs(1));
    }
    show("later")?;
    drop(cache);
    Ok(())
}

/// Prints the memory, the processor time and the bytes read of this process.
fn show(when: &str) -> Result<(), Box<dyn Error>> {
    let line = |file: &str, name: &str| -> Result<String, Box<dyn Error>> {
        let text = std::fs::read_to_string(format!("/proc/self/{file}"))?;
        let line = text.lines().find(|line| line.starts_with(name)).ok_or("a line")?;
        Ok(line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "))
    };
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let ticks: Vec<_> = stat.split_whitespace().skip(13).take(2).collect();
    println!(
        "{when}: {} resident, peak {}, user and system {} in 10 ms, {} bytes read from disks",
        line("status", "VmRSS")?,
        line("status", "VmHWM")?,
        ticks.join(" and "),
        line("io", "read_bytes")?
    );
    Ok(())
}
