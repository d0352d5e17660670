//! The process that serves a mount.

mod checks;
mod control_socket;
mod fork;
mod journal;
mod logging;
mod metrics;
mod metrics_server;
mod mount;

use std::process::ExitCode;

use anyhow::Context;

pub(crate) use self::control_socket::OWNER_ONLY;
use self::fork::{Outcome, Role, daemonise};
pub use self::metrics::DaemonMetrics;
use crate::config::Config;
use crate::flags::mount::MountArgs;
use crate::system::terminal;

/// Mounts, in the foreground or as a daemon. Returns the exit code.
pub(crate) fn start(args: &MountArgs) -> anyhow::Result<ExitCode> {
    let config = Config::new(args)?;
    checks::check(&config)?;
    for warning in &config.warnings {
        terminal::notice(warning);
    }
    if config.foreground {
        logging::start(&config)?;
        mount::mount(&config, || terminal::result(&mounted(&config)))?;
        return Ok(ExitCode::SUCCESS);
    }
    // The fork must come before any thread of ours, of tokio's or of the CRT's starts.
    match daemonise().context("cannot start a daemon")? {
        Role::Parent(Outcome::Ready) => {
            terminal::result(&mounted(&config));
            Ok(ExitCode::SUCCESS)
        }
        Role::Parent(Outcome::Failed(message)) => {
            terminal::notice(&message);
            Ok(ExitCode::FAILURE)
        }
        Role::Daemon(parent) => {
            let result = logging::start(&config).and_then(|()| mount::mount(&config, || parent.ready()));
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
