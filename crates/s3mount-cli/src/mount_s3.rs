//! The program as `mount-s3`: a link of this name takes the command line of AWS's own mount.

use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt as _;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};

use s3mount_settings::layers::{Parsed, parse_above};
use s3mount_settings::mount_s3::translate;
use s3mount_system::terminal;

use crate::called::Called;
use crate::command_line::Args;
use crate::daemon::{is_filter, last_words, start};
use crate::{fail, kept_settings};

/// The names under which scripts, and mount(8) for the type `mount-s3`, look for it.
const NAMES: [&str; 2] = ["mount-s3", "mount.mount-s3"];

/// Whether this program was called as mount-s3.
pub(crate) fn is_called(program: &OsStr) -> bool {
    Path::new(program).file_name().is_some_and(|name| NAMES.iter().any(|known| name == *known))
}

/// Mounts as mount-s3 would. Returns its exit codes: 0, 1 for a failure, 2 for flags that can't be read.
pub(crate) fn run(args: &[OsString]) -> ExitCode {
    let mut environment: Vec<_> = std::env::vars_os().collect();
    // mount-s3 goes on with its own filter, too.
    let no_filter =
        |(name, value): &mut (_, OsString)| name == "MOUNTPOINT_LOG" && !is_filter(&value.to_string_lossy());
    let left_out: Vec<_> = environment.extract_if(.., no_filter).collect();
    let read = translate(args.to_vec(), &environment).and_then(|line| {
        Ok((parse_above(&line.defaults, line.args.clone(), &environment, kept_settings())?, line))
    });
    let (parsed, line): (Parsed<Args>, _) = match read {
        Ok(read) => read,
        Err(error) => {
            last_words(&error.render().to_string());
            error.exit()
        }
    };
    let Parsed { args: parsed, origins, warnings, file, .. } = parsed;
    let is_set = |(name, value): &(&str, OsString)| {
        environment.iter().any(|(known, set)| known == name && set == value)
    };
    if !line.variables.iter().all(is_set) {
        return again(args, &line.variables);
    }
    for (name, value) in left_out {
        terminal::notice(&format!("{}={value:?} is not a log filter, so it is left out", name.display()));
    }
    for text in line.told.iter().chain(&warnings) {
        terminal::notice(text);
    }
    if let Some(folder) = &line.cache {
        // The mount says what can't be made.
        let _ = DirBuilder::new().recursive(true).mode(0o700).create(folder);
    }
    let called = Called::AsMountS3(line);
    start(&parsed.mount, file, &called).unwrap_or_else(|error| {
        let code = fail(&error, &origins);
        called.explain(&format!("{error:#}"));
        code
    })
}

/// Replaces this process by the same program with these variables: a process can't safely change its own.
fn again(args: &[OsString], variables: &[(&'static str, OsString)]) -> ExitCode {
    let mut command = Command::new("/proc/self/exe");
    command.args(args.iter().skip(1)).envs(variables.iter().map(|(name, value)| (name, value)));
    if let Some(name) = args.first() {
        command.arg0(name);
    }
    let error = command.exec();
    terminal::notice(&format!("cannot start itself again, with the variables that the flags need: {error}"));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::is_called;

    #[test]
    fn mount_s3_is_called_by_name() {
        for name in ["mount-s3", "/usr/bin/mount-s3", "/sbin/mount.mount-s3"] {
            assert!(is_called(OsStr::new(name)), "{name}");
        }
        for name in ["s3mount", "/usr/bin/mount.s3mount", "/opt/mount-s3/s3mount"] {
            assert!(!is_called(OsStr::new(name)), "{name}");
        }
    }
}
