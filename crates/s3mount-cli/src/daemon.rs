//! The process that serves a mount.

mod asked;
mod audit_log;
mod changes;
mod checks;
mod client;
mod conditions;
mod control_socket;
mod device;
mod fork;
pub(crate) mod holder;
mod journal;
mod keeper;
mod layers;
mod logging;
mod manager;
mod mount;
mod names;
mod otlp;
mod outbox;
mod places;
mod taking_down;
pub(crate) mod warden;

pub(crate) use self::asked::WRITERS_LIMIT;
pub(crate) use self::keeper::{STATE, kept_settings, last_words};
pub(crate) use self::logging::is_filter;

use std::process::ExitCode;

use anyhow::Context;
use s3mount_settings::flags::mount::MountArgs;
use s3mount_settings::resolved::Config;
use s3mount_system::descriptors::close_all_but;
use s3mount_system::terminal;

use self::checks::Given;
use self::fork::{Outcome, Role, daemonise, leave_terminal};
use self::holder::{Program, blocked_at_start};
use self::keeper::Keeper;
use crate::called::Called;

/// Mounts, in the foreground or as a daemon. Returns the exit code. `file` is the text of the file of `--config`, and
/// `called` says how the program was called.
pub(crate) fn start(args: &MountArgs, file: Option<String>, called: &Called) -> anyhow::Result<ExitCode> {
    let mut config = Config { file, ..Config::new(args)? };
    if let Some(source) = called.source() {
        // By its source, `mount -a` finds out that a line of fstab is mounted already.
        source.clone_into(&mut config.fs_name);
    }
    let tell = || match called {
        Called::Plainly => terminal::result(&mounted(&config)),
        Called::ByMount(helper) if helper.is_verbose => terminal::result(&mounted(&config)),
        Called::ByMount(_) => {}
        Called::AsMountS3(line) => terminal::result(&line.mounted),
    };
    if !config.foreground {
        // A daemon would keep what the program that starts it has open: pipes, whose readers wait for their end, locks,
        // make's jobserver.
        let kept = config.target.device().into_iter().chain(keeper::descriptors());
        close_all_but(&kept.collect::<Vec<_>>());
    }
    let found = keeper::find()?;
    let (keeper, kept) = found.unzip();
    // Whoever starts a daemon may have blocked signals for himself: it would hear none that asks it to end.
    let goes_on = kept.as_ref().is_some_and(Option::is_some);
    blocked_at_start(goes_on).thread_set_mask()?;
    let is_held = keeper.is_some();
    if config.keep_alive && !is_held {
        holder::check(&config)?;
    }
    let place = match kept.flatten() {
        Some(kept) => Given::Kept(kept),
        None => checks::check(&config)?,
    };
    if called.is_fake() {
        return Ok(ExitCode::SUCCESS);
    }
    for warning in &config.warnings {
        terminal::notice(warning);
    }
    let program = (config.keep_alive && !is_held).then(|| Program::this(&config)).transpose()?;
    if config.foreground {
        if let Some(program) = program {
            place.leave_to_daemon()?;
            return holder::hold(&config, &program, || {});
        }
        start_log(&config, called)?;
        let is_first = !matches!(place, Given::Kept(_));
        return mount::mount(&config, place, keeper.as_ref(), || {
            if is_first {
                tell();
            }
            manager::ready(&mounted(&config));
        });
    }
    if let Some(Keeper::Holder(_)) = keeper {
        // It keeps no folder in use. Its holder has started it where the flags name folders from.
        nix::unistd::chdir("/")?;
        start_log(&config, called)?;
        let result = mount::mount(&config, place, keeper.as_ref(), || {
            manager::ready(&mounted(&config));
            leave_terminal();
        });
        return result.inspect_err(|error| tracing::error!("{error:#}"));
    }
    // The fork must come before any thread of ours, of tokio's or of the CRT's starts.
    match daemonise().context("cannot start a daemon")? {
        Role::Parent(Outcome::Ready) => {
            tell();
            Ok(ExitCode::SUCCESS)
        }
        Role::Parent(Outcome::Failed(message)) => {
            terminal::notice(&message);
            called.explain(&message);
            Ok(ExitCode::FAILURE)
        }
        Role::Daemon(parent) => {
            if let Some(program) = program {
                place.leave_to_daemon()?;
                return holder::hold(&config, &program, || parent.ready());
            }
            let result = start_log(&config, called)
                .and_then(|()| mount::mount(&config, place, keeper.as_ref(), || parent.ready()));
            if let Err(error) = &result {
                tracing::error!("{error:#}");
                parent.failed(&format!("{error:#}"));
            }
            Ok(result.unwrap_or(ExitCode::FAILURE))
        }
    }
}

fn start_log(config: &Config, called: &Called) -> anyhow::Result<()> {
    logging::start(config)?;
    if let Some(text) = called.about_messages() {
        tracing::info!("{text}");
    }
    Ok(())
}

fn mounted(config: &Config) -> String {
    format!("{} is mounted at {}", config.shown, config.target)
}
