//! The command line: flags to settings, checks, the daemon, and the one place that wires the
//! layers together ([`wire`]). Nothing below this crate reads flags or the environment.

mod args;
mod checks;
mod config;
mod daemon;
mod logging;
mod mounts;
mod options;
mod size;
mod umount;
mod wire;

use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

use args::{Args, Command, MountArgs};
use config::Config;
use daemon::{Outcome, Role};

/// Runs the command line `args`, its own name first; returns what to exit with: 0, 1 for a
/// failure, 2 for a command line that makes no sense.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args = match Args::try_parse_from(options::expand(args)) {
        Ok(args) => args,
        Err(error) => error.exit(),
    };
    let result = match args.command {
        Some(Command::Umount { dir }) => umount::umount(&dir).map(|()| ExitCode::SUCCESS),
        Some(Command::Mount(mount)) => start(&mount),
        None => start(&args.mount),
    };
    result.unwrap_or_else(|error| {
        say(&format!("s3mount: {error:#}"));
        ExitCode::FAILURE
    })
}

fn start(args: &MountArgs) -> anyhow::Result<ExitCode> {
    let config = Config::new(args)?;
    checks::check(&config)?;
    if config.foreground {
        logging::start(&config)?;
        wire::mount(&config, || say(&mounted(&config)))?;
        return Ok(ExitCode::SUCCESS);
    }
    // The fork comes before the first thread of ours, of tokio's, or of the CRT's.
    match daemon::daemonise().context("cannot start a daemon")? {
        Role::Parent(Outcome::Ready) => {
            say(&mounted(&config));
            Ok(ExitCode::SUCCESS)
        }
        Role::Parent(Outcome::Failed(message)) => {
            say(&format!("s3mount: {message}"));
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
    format!("s3://{}/{} is mounted at {}", config.bucket, config.prefix, config.dir.display())
}

/// Tells the user one line.
#[expect(clippy::print_stderr, reason = "this is where the command speaks")]
fn say(line: &str) {
    eprintln!("{line}");
}
