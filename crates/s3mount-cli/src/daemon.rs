//! The process that serves a mount.

mod checks;
mod conditions;
mod control_socket;
mod device;
mod fork;
mod guests;
mod journal;
mod logging;
mod manager;
mod metrics_server;
mod mount;
mod otlp;
mod places;
mod taking_down;
pub(crate) mod warden;

use std::process::ExitCode;

use anyhow::Context;
use nix::sys::signal::SigSet;
use s3mount_settings::flags::mount::MountArgs;
use s3mount_settings::resolved::Config;
use s3mount_system::descriptors::close_all_but;
use s3mount_system::terminal;

use self::fork::{Outcome, Role, daemonise};
use crate::helper::Helper;

/// Mounts, in the foreground or as a daemon. Returns the exit code. `helper` says how mount(8) wants it done,
/// if mount(8) has called.
pub(crate) fn start(args: &MountArgs, helper: Option<&Helper>) -> anyhow::Result<ExitCode> {
    let mut config = Config::new(args)?;
    if let Some(helper) = helper {
        // By its source, `mount -a` finds out that a line of fstab is mounted already.
        config.fs_name.clone_from(&helper.source);
    }
    let tell = || {
        if helper.is_none_or(|helper| helper.is_verbose) {
            terminal::result(&mounted(&config));
        }
    };
    if !config.foreground {
        // A daemon would keep what the program that starts it has open: pipes, whose readers wait for their end, locks,
        // make's jobserver.
        close_all_but(config.target.device().as_slice());
    }
    // Whoever starts a daemon may have blocked signals for himself: it would hear none that asks it to end.
    SigSet::empty().thread_set_mask()?;
    let place = checks::check(&config)?;
    if helper.is_some_and(|helper| helper.is_fake) {
        return Ok(ExitCode::SUCCESS);
    }
    for warning in &config.warnings {
        terminal::notice(warning);
    }
    if config.foreground {
        logging::start(&config)?;
        mount::mount(&config, place, || {
            tell();
            manager::ready(&mounted(&config));
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    // The fork must come before any thread of ours, of tokio's or of the CRT's starts.
    match daemonise().context("cannot start a daemon")? {
        Role::Parent(Outcome::Ready) => {
            tell();
            Ok(ExitCode::SUCCESS)
        }
        Role::Parent(Outcome::Failed(message)) => {
            terminal::notice(&message);
            Ok(ExitCode::FAILURE)
        }
        Role::Daemon(parent) => {
            let result =
                logging::start(&config).and_then(|()| mount::mount(&config, place, || parent.ready()));
            if let Err(error) = &result {
                tracing::error!("{error:#}");
                parent.failed(&format!("{error:#}"));
            }
            Ok(if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
    }
}

fn mounted(config: &Config) -> String {
    format!("s3://{}/{} is mounted at {}", config.store.bucket, config.prefix, config.target)
}
