//! The command line: flags to settings, checks, the daemon, and the one place that wires the
//! layers together ([`wire`]). Nothing below this crate reads flags or the environment.

mod args;
mod bench;
mod checks;
mod config;
mod control_socket;
mod daemon;
mod logging;
mod memory;
mod mounts;
mod options;
mod output;
mod profile;
mod size;
mod source;
mod store;
mod tune;
mod umount;
mod warm;
mod wire;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

use args::{Args, Command, MountArgs};
use config::Config;
use daemon::{Outcome, Role};

/// Runs the command line `args`, its own name first; returns what to exit with: 0, 1 for a
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
        Some(Command::Bench(args)) => bench::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Tune(args)) => tune::run(&args).map(|()| ExitCode::SUCCESS),
        None => start(&args.mount),
    };
    result.unwrap_or_else(|error| {
        output::notice(&format!("{error:#}"));
        ExitCode::FAILURE
    })
}

fn start(args: &MountArgs) -> anyhow::Result<ExitCode> {
    let config = Config::new(args)?;
    checks::check(&config)?;
    for warning in &config.warnings {
        output::notice(warning);
    }
    if config.foreground {
        logging::start(&config)?;
        wire::mount(&config, || output::result(&mounted(&config)))?;
        return Ok(ExitCode::SUCCESS);
    }
    // The fork comes before the first thread of ours, of tokio's, or of the CRT's.
    match daemon::daemonise().context("cannot start a daemon")? {
        Role::Parent(Outcome::Ready) => {
            output::result(&mounted(&config));
            Ok(ExitCode::SUCCESS)
        }
        Role::Parent(Outcome::Failed(message)) => {
            output::notice(&message);
            Ok(ExitCode::FAILURE)
        }
        Role::Daemon(parent) => {
            let result = logging::start(&config).and_then(|()| wire::mount(&config, || parent.ready()));
            if let Err(error) = &result {
                tracing::error!("{error:#}");
                parent.failed(&format!("{error:#}"));
            }
            Ok(if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

fn mounted(config: &Config) -> String {
    format!("s3://{}/{} is mounted at {}", config.store.bucket, config.prefix, config.dir.display())
}

/// What fuzzers reach of this crate: `cargo fuzz` builds with it, nothing else does.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    use crate::size::Size;

    pub fn size(text: &str) {
        if let Ok(size) = text.parse::<Size>() {
            assert_eq!(size.to_string().parse(), Ok(size), "it is shown as it can be read");
        }
    }
}
