//! The command line of a mount helper: mount(8) calls `mount.s3mount SOURCE DIR [-sfnv] [-o OPTIONS]` for a
//! mount of the type `s3mount`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

use clap::{Command, CommandFactory, Parser};

/// The name under which mount(8) looks for the helper.
const NAME: &str = "mount.s3mount";

/// The exit codes of mount(8).
pub(crate) const USAGE: u8 = 1;
pub(crate) const FAILURE: u8 = 32;

/// How mount(8) wants a mount to be done.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Helper {
    /// The source as /etc/fstab has it.
    pub(crate) source: String,
    /// Only check whether the mount could be done.
    pub(crate) is_fake: bool,
    /// Say what was done.
    pub(crate) is_verbose: bool,
}

/// Mount an S3 bucket for mount(8), which calls this program for `mount -t s3mount`.
///
/// The options are the flags of s3mount, spelled as in /etc/fstab: allow_other,part_size=4MiB. See s3mount
/// --help.
#[derive(Debug, Parser)]
#[command(name = NAME, version, max_term_width = 100)]
struct HelperArgs {
    /// Bucket, with or without s3://, and the prefix to show; or several, as --buckets takes them.
    #[arg(value_name = "[s3://]BUCKET[/PREFIX]")]
    source: String,
    /// Empty folder to mount at.
    #[arg(value_name = "DIR")]
    dir: OsString,
    /// Options, separated by commas.
    #[arg(short, value_name = "OPTIONS")]
    options: Vec<OsString>,
    /// Only check the options and the folder.
    #[arg(short)]
    fake: bool,
    /// Say what was mounted.
    #[arg(short)]
    verbose: bool,
    /// Ignored: s3mount never writes /etc/mtab.
    #[arg(short)]
    no_mtab: bool,
    /// Ignored: unknown options are errors.
    #[arg(short)]
    sloppy: bool,
    /// Ignored: the type of the mount is s3mount.
    #[arg(short = 't', value_name = "TYPE")]
    kind: Option<String>,
}

/// Whether mount(8) has called this program.
pub(crate) fn is_called(program: &OsStr) -> bool {
    Path::new(program).file_name() == Some(OsStr::new(NAME))
}

/// The helper's own arguments, for its manual page.
pub(crate) fn command() -> Command {
    HelperArgs::command()
}

/// Reads the arguments of mount(8), and returns those of `s3mount` that mean the same.
pub(crate) fn translate(
    args: impl IntoIterator<Item = OsString>,
) -> Result<(Helper, Vec<OsString>), clap::Error> {
    let args = HelperArgs::try_parse_from(args)?;
    let mut translated = vec![OsString::from("s3mount")];
    for options in args.options {
        translated.extend(["-o".into(), options]);
    }
    match is_list(&args.source) {
        true => translated.extend(["--buckets".into(), args.source.clone().into(), "--".into(), args.dir]),
        false => translated.extend(["--".into(), args.source.clone().into(), args.dir]),
    }
    Ok((Helper { source: args.source, is_fake: args.fake, is_verbose: args.verbose }, translated))
}

/// Whether the source is a list of buckets, as `--buckets` takes it: `NAME=BUCKET,...`. A prefix may have `=`, too.
fn is_list(source: &str) -> bool {
    source.find(['=', '/']).is_some_and(|at| source[at..].starts_with('='))
}

#[cfg(test)]
mod tests {
    use std::ffi::{OsStr, OsString};

    use super::{Helper, is_called, translate};

    #[test]
    fn mount_calls_by_name() {
        assert!(is_called(OsStr::new("/sbin/mount.s3mount")));
        assert!(!is_called(OsStr::new("/usr/bin/s3mount")));
    }

    #[test]
    fn what_mount_says_becomes_flags() {
        let args = "/sbin/mount.s3mount s3://b/p /mnt/d -n -s -f -v -t s3mount -o rw,_netdev,uid=5 -o ro";
        let (helper, translated) = translate(args.split(' ').map(OsString::from)).expect("arguments");
        assert_eq!(helper, Helper { source: "s3://b/p".to_owned(), is_fake: true, is_verbose: true });
        let expected = "s3mount -o rw,_netdev,uid=5 -o ro -- s3://b/p /mnt/d";
        assert_eq!(translated, expected.split(' ').collect::<Vec<_>>());
        let args = ["mount.s3mount", "a=s3://b/p,c=d", "/mnt/d"].map(OsString::from);
        let (_, translated) = translate(args).expect("arguments");
        assert_eq!(translated, ["s3mount", "--buckets", "a=s3://b/p,c=d", "--", "/mnt/d"]);
        let args = ["mount.s3mount", "b/day=1", "/mnt/d"].map(OsString::from);
        assert_eq!(translate(args).expect("arguments").1, ["s3mount", "--", "b/day=1", "/mnt/d"]);
        assert!(translate(["mount.s3mount", "b"].map(OsString::from)).is_err());
    }
}
