//! `-o a,b=c`: the flags, spelled as mount(8) and fstab spell options.

use std::ffi::{OsStr, OsString};

use clap::error::ErrorKind;
use clap::{Arg, Command, Error, ValueEnum as _};

use crate::flags::foreign;
use crate::flags::nearest::nearest;
use crate::flags::writing::Allow;

/// Options that s3mount accepts and ignores. Some are meant for mount(8), fstab or libfuse's programs. Others
/// ask for what s3mount does anyway: it sets the source and the type of the mount itself, and it unmounts
/// when it ends. `rw` is among them because mount(8) adds it to every line that does not say `ro`.
const MEANT_FOR_OTHERS: &[&str] = &[
    "_netdev",
    "_rnetdev",
    "async",
    "atime",
    "auto",
    "auto_unmount",
    "default_permissions",
    "defaults",
    "dev",
    "diratime",
    "dirsync",
    "exec",
    "fsname",
    "group",
    "iversion",
    "lazytime",
    "loud",
    "noatime",
    "noauto",
    "nodev",
    "nodiratime",
    "nofail",
    "noiversion",
    "nolazytime",
    "norelatime",
    "nostrictatime",
    "nosuid",
    "nouser",
    "owner",
    "relatime",
    "rw",
    "silent",
    "strictatime",
    "subtype",
    "suid",
    "sync",
    "user",
    "users",
];

/// Asks mount(8) to change a mount that is there.
pub(crate) const REMOUNT: &str = "remount";

/// Why nobody does that.
pub(crate) const NO_REMOUNT: &str = "the mount option 'remount' is refused: a mount keeps its options until it is \
                                     unmounted; unmount it, and mount it anew with others";

/// Replaces each `-o` by the flags of `command` that it names. Commands that write a file have an `-o` of their own.
///
/// # Errors
/// Fails if an option is no flag, or lacks its value. The error looks like that for a flag that can't be
/// read.
pub(crate) fn expand(
    command: &mut Command,
    args: impl IntoIterator<Item = OsString>,
) -> Result<Vec<OsString>, Error> {
    let args: Vec<OsString> = args.into_iter().collect();
    if args.get(1).is_some_and(|name| has_own(command, name)) {
        return Ok(args);
    }
    let mut expanded = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            expanded.push(arg);
            expanded.extend(args);
            break;
        }
        let Some((before, attached)) = arg.to_str().and_then(split) else {
            expanded.push(arg);
            continue;
        };
        expanded.extend(before.chars().map(|flag| OsString::from(format!("-{flag}"))));
        let options = match attached {
            "" => args.next(),
            text => Some(text.into()),
        };
        // An `-o` without options stays for the parser, which refuses it.
        let Some(options) = options else {
            expanded.push("-o".into());
            break;
        };
        for option in options.to_string_lossy().split(',') {
            match flag(command, option) {
                // `ro,read_only` names the same flag twice.
                Ok(flag) => {
                    expanded.extend(flag.filter(|flag| flag != "--read-only" || !expanded.contains(flag)));
                }
                Err(why) => return Err(command.error(ErrorKind::UnknownArgument, why)),
            }
        }
    }
    Ok(expanded)
}

/// Whether this is a command whose `-o` means something else.
fn has_own(command: &Command, name: &OsStr) -> bool {
    let is_own = |arg: &Arg| arg.get_short() == Some('o') && arg.get_long().is_some();
    command.find_subcommand(name).is_some_and(|command| command.get_arguments().any(is_own))
}

/// Splits `-o`, `-oOPTIONS` or `-fdo` into the short flags before the `o`, and the text after it.
fn split(arg: &str) -> Option<(&str, &str)> {
    let (before, attached) = arg.strip_prefix('-')?.split_once('o')?;
    before.chars().all(|flag| "fd".contains(flag)).then_some((before, attached))
}

/// The flag that an option names. `None` for an option that is not meant for s3mount.
fn flag(command: &Command, option: &str) -> Result<Option<OsString>, String> {
    let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    let is_for_others = name.starts_with("x-")
        || name.starts_with("X-")
        || name == "comment"
        || MEANT_FOR_OTHERS.contains(&name);
    if name.is_empty() || is_for_others {
        return Ok(None);
    }
    if name == REMOUNT {
        return Err(NO_REMOUNT.to_owned());
    }
    let long = if name == "ro" { "read-only".to_owned() } else { name.replace('_', "-") };
    let flags = || command.get_arguments().filter(|arg| arg.get_long().is_some_and(is_option));
    let Some(known) = flags().find(|arg| arg.get_long() == Some(&long)) else {
        let foreign = foreign::explain(&long).or_else(|| foreign::explain(name));
        let near = nearest(&long, flags().filter_map(Arg::get_long));
        let is_allow = Allow::from_str(name, false).is_ok();
        let hint = match (foreign, near) {
            _ if is_allow => {
                format!("; to allow several things, repeat the option: allow=write,allow={name}")
            }
            (Some(why), _) => format!(": {why}"),
            (None, Some(near)) => format!("; did you mean {near}?"),
            (None, None) => String::new(),
        };
        return Err(format!("unknown mount option '{name}'{hint}"));
    };
    match (known.get_action().takes_values(), value) {
        (true, None | Some("")) => Err(format!("the mount option '{name}' needs a value: {name}=...")),
        (false, Some(value)) => Err(format!("the mount option '{name}' takes no value, but has '{value}'")),
        (_, Some(value)) => Ok(Some(format!("--{long}={value}").into())),
        (_, None) => Ok(Some(format!("--{long}").into())),
    }
}

/// Whether a flag can be given as a mount option.
fn is_option(long: &str) -> bool {
    !matches!(long, "help" | "version")
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use clap::{CommandFactory, Error};

    use crate::for_tests::Args;

    fn expand(args: &[&str]) -> Result<Vec<OsString>, Error> {
        super::expand(&mut Args::command(), args.iter().map(OsString::from))
    }

    fn check(args: &[&str], expected: &[&str]) {
        assert_eq!(expand(args).expect("known options"), expected);
    }

    fn check_error(args: &[&str], expected: &str) {
        let error = expand(args).expect_err("a bad option").to_string();
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn options_become_flags() {
        let options = "rw,_netdev,allow_other,part_size=4MiB,x-systemd.automount,X-mount.mkdir,user=ann,,comment=c,nofail,noexec,\
                       fsname=b,default_permissions,auto_unmount";
        check(
            &["s3mount", "b", "d", "-o", options, "-odebug"],
            &["s3mount", "b", "d", "--allow-other", "--part-size=4MiB", "--noexec", "--debug"],
        );
        check(&["s3mount", "trace", "d", "-o", "page.html"], &["s3mount", "trace", "d", "-o", "page.html"]);
        check(&["s3mount", "config", "b", "-o", "ro"], &["s3mount", "config", "b", "--read-only"]);
        check(&["s3mount", "-fo", "uid=5", "-d"], &["s3mount", "-f", "--uid=5", "-d"]);
        check(&["s3mount", "-l", "o", "--prefix=o"], &["s3mount", "-l", "o", "--prefix=o"]);
        check(&["s3mount", "-o", "ro,read_only", "-oro"], &["s3mount", "--read-only"]);
        check(&["s3mount", "--", "-o", "x"], &["s3mount", "--", "-o", "x"]);
        check(&["s3mount", "b", "-o"], &["s3mount", "b", "-o"]);
    }

    #[test]
    fn bad_options_are_named() {
        check_error(&["s3mount", "-o", "banana"], "unknown mount option 'banana'");
        check_error(&["s3mount", "-o", "allow=write,delete"], "repeat the option: allow=write,allow=delete");
        check_error(&["s3mount", "-o", "alow_other"], "'alow_other'; did you mean allow-other?");
        check_error(&["s3mount", "-o", "memory_target=9"], "here it is --memory-limit");
        check_error(&["s3mount", "-o", "help"], "unknown mount option 'help'");
        check_error(&["s3mount", "-o", "part_size,uid=1"], "'part_size' needs a value: part_size=...");
        check_error(&["s3mount", "-o", "debug=1"], "'debug' takes no value, but has '1'");
    }
}
