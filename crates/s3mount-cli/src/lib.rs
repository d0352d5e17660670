//! The command line on top of all crates: it reads what the user asks for, and calls the daemon, which mounts, or a
//! tool. Only [`daemon::mount`] joins the layers together.
#![expect(clippy::disallowed_methods, reason = "a daemon and `umount` wait for other processes")]

mod called;
mod command_line;
mod daemon;
mod generate;
mod helper;
mod home;
mod mount_s3;
mod stat;
mod umount;
mod upgrade;
mod version;

use std::ffi::OsString;
use std::process::ExitCode;

use called::Called;
use command_line::{Args, Command};
use daemon::{kept_settings, last_words, start, warden};
use s3mount_settings::layers::origin::Origins;
use s3mount_settings::layers::{self, Parsed};
use s3mount_settings::show;
use s3mount_system::{probe, terminal};
use s3mount_tools::{
    bench, cache, cleanup, cp, doctor, names, pending, stats, top, trace, tune, volume, warm,
};

/// Runs the command line `args`, which begins with the name of the program. Returns the exit code: 0, 1 for a
/// failure, 2 for flags that can't be read. As `mount.s3mount` it is the mount helper that mount(8) calls, and
/// returns the exit codes of mount(8). As `mount-s3` it takes the command line of mount-s3.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    home::find();
    let args: Vec<_> = args.into_iter().collect();
    if args.first().is_some_and(|program| helper::is_called(program)) {
        return run_helper(args);
    }
    if args.first().is_some_and(|program| mount_s3::is_called(program)) {
        return mount_s3::run(&args);
    }
    let Parsed { args, matches, origins, warnings, file } = match parse(args) {
        Ok(parsed) => parsed,
        Err(error) => {
            last_words(&error.render().to_string());
            error.exit()
        }
    };
    for warning in &warnings {
        terminal::notice(warning);
    }
    let result = match args.command {
        Some(Command::Umount { dir, lazy }) => umount::umount(&dir, lazy).map(|()| ExitCode::SUCCESS),
        Some(Command::Upgrade { dir, .. }) => upgrade::upgrade(dir.as_deref()).map(|()| ExitCode::SUCCESS),
        Some(Command::Flush(args)) => pending::flush(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Pending(args)) => pending::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Mount(mount)) => start(&mount, file, &Called::Plainly),
        Some(Command::Warm(args)) => warm::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Cache(args)) => cache::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Config(args)) => show::run(&args, &matches, &origins).map(|()| ExitCode::SUCCESS),
        Some(Command::Cp(args)) => cp::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Names(args)) => names::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Cleanup(args)) => cleanup::run(&args),
        Some(Command::Doctor(args)) => doctor::run(&args),
        Some(Command::Csi(args)) => s3mount_csi::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Volume(args)) => volume::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Stats(args)) => stats::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Top(args)) => top::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Trace(args)) => trace::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Bench(args)) => bench::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Tune(args)) => tune::run(&args).map(|()| ExitCode::SUCCESS),
        Some(Command::Completions { shell }) => generate::completions(shell).map(|()| ExitCode::SUCCESS),
        Some(Command::Man { dir }) => generate::man(&dir).map(|()| ExitCode::SUCCESS),
        Some(Command::Warden { daemon, id, holder, patient }) => {
            warden::run(daemon, id, holder, patient).map(|()| ExitCode::SUCCESS)
        }
        Some(Command::Probe { dir, user, group }) => Ok(probe::run(&dir, user.zip(group))),
        None => start(&args.mount, file, &Called::Plainly),
    };
    result.unwrap_or_else(|error| fail(&error, &origins))
}

/// Says why nothing came of it, and where the value comes from that it is about.
fn fail(error: &anyhow::Error, origins: &Origins) -> ExitCode {
    let text = format!("{error:#}");
    last_words(&text);
    terminal::notice(&text);
    if let Some(from) = origins.explain(&text) {
        terminal::notice(&format!("note: {from}"));
    }
    ExitCode::FAILURE
}

fn parse(args: Vec<OsString>) -> Result<Parsed<Args>, clap::Error> {
    layers::parse(args, &std::env::vars_os().collect(), kept_settings())
}

/// Mounts as mount(8) asks for it.
fn run_helper(args: Vec<OsString>) -> ExitCode {
    let parsed = helper::translate(args).and_then(|(helper, args)| Ok((helper, parse(args)?)));
    let (helper, Parsed { args, warnings, file, .. }) = match parsed {
        Ok(parsed) => parsed,
        Err(error) => {
            last_words(&error.render().to_string());
            // It fails where nobody reads the message.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { helper::USAGE } else { 0 });
        }
    };
    for warning in &warnings {
        terminal::notice(warning);
    }
    match start(&args.mount, file, &Called::ByMount(helper)) {
        Ok(code) if code == ExitCode::SUCCESS => code,
        Ok(_) => ExitCode::from(helper::FAILURE),
        Err(error) => {
            let text = format!("{error:#}");
            last_words(&text);
            terminal::notice(&text);
            ExitCode::from(helper::FAILURE)
        }
    }
}
