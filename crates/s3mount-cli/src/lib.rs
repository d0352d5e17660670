//! The command line: it turns flags into settings, checks them, and runs the daemon. Only [`daemon::mount`]
//! joins the layers together. No crate below this one reads flags or the environment.
#![expect(clippy::disallowed_methods, reason = "the command line measures, and waits for other processes")]

mod commands;
mod config;
mod daemon;
mod flags;
mod system;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use commands::{bench, cache, cleanup, cp, stats, top, trace, tune, umount, warm};
pub use daemon::DaemonMetrics;
use daemon::start;
use flags::{Args, Command, options};
use system::terminal;

/// Runs the command line `args`, which begins with the name of the program. Returns the exit code: 0, 1 for a
/// failure, 2 for flags that can't be read.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match options::expand(args).and_then(Args::try_parse_from) {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    let result = match args.command {
        Some(Command::Umount { dir, lazy }) => umount::umount(&dir, lazy).map(|()| ExitCode::SUCCESS),
        Some(Command::Mount(mount)) => start(&mount),
        Some(Command::Warm(args)) => warm::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Cache(args)) => cache::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Cp(args)) => cp::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Cleanup(args)) => cleanup::run(&args),
        Some(Command::Stats(args)) => stats::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Top(args)) => top::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Trace(args)) => trace::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Bench(args)) => bench::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Tune(args)) => tune::run(&args).map(|()| ExitCode::SUCCESS),
        None => start(&args.mount),
    };
    result.unwrap_or_else(|error| {
        terminal::notice(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

/// The functions of this crate that fuzzers call. Only `cargo fuzz` builds this module.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use crate::flags::size::Size;

    pub fn size(text: &str) {
        if let Ok(size) = text.parse::<Size>() {
            assert_eq!(size.to_string().parse(), Ok(size), "it is shown as it can be read");
        }
    }
}
