//! Settings in layers: a flag overrides the environment, the environment the file, the file the preset, and the
//! preset the default (`docs/CONFIGURATION.md`). Called as mount-s3, the program has other defaults. What the lower layers
//! set is added to the command line as flags, so that each setting is read, checked and explained in one way.

pub(crate) mod effective;
pub mod environment;
mod file;
mod layer;
pub mod origin;
pub mod page;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, Command, Error, Parser, ValueEnum};

use self::environment::Variables;
use self::layer::{Setting, Values, flag, is_switch};
use self::origin::{Origin, Origins};
use crate::flags::preset::Preset;
use crate::flags::writing::OLD_ALLOW;
use crate::flags::{foreign, options};

/// A command line that was read.
#[derive(Debug)]
pub struct Parsed<Args> {
    /// The flags, or the command.
    pub args: Args,
    /// What clap has read, for the values as they were written.
    pub matches: ArgMatches,
    /// Where each setting comes from.
    pub origins: Origins,
    /// What the user should know before anything happens.
    pub warnings: Vec<String>,
    /// The text of the file of `--config`, if one is named.
    pub file: Option<String>,
}

/// What the command line says by itself.
#[derive(Debug, Default)]
struct Given {
    /// The flags that it has.
    names: BTreeSet<String>,
    config: Option<OsString>,
    preset: Option<OsString>,
}

/// Reads the command line `args`, and for a mount the layers below it. `Args` are the flags of a mount, and the commands
/// beside them. `kept` is the text of the file of `--config` as another process has read it, and that is not read again
/// then.
///
/// # Errors
/// Fails for flags, variables and files that can't be read. The error says where the value comes from.
pub fn parse<Args: Parser>(
    args: impl IntoIterator<Item = OsString>,
    variables: &Variables,
    kept: Option<String>,
) -> Result<Parsed<Args>, Error> {
    parse_above(&[], args, variables, kept)
}

/// The same above other defaults: the names of flags, and their values. A switch that is named is on.
///
/// # Errors
/// As [`parse`].
pub fn parse_above<Args: Parser>(
    defaults: &[(&str, OsString)],
    args: impl IntoIterator<Item = OsString>,
    variables: &Variables,
    kept: Option<String>,
) -> Result<Parsed<Args>, Error> {
    let mut command = Args::command();
    let args = options::expand(&mut command, args)?;
    let mut parsed = Lines { args, file: kept, ..Lines::default() };
    if takes_settings(&command, &parsed.args) {
        let added = parsed.add_layers(&command, variables, defaults);
        added.map_err(|why| command.error(ErrorKind::ValueValidation, why))?;
    }
    let Lines { args, origins, warnings, file, .. } = parsed;
    let matches = command.try_get_matches_from_mut(args);
    let read = matches.and_then(|matches| Ok((Args::from_arg_matches(&matches)?, matches)));
    let (args, matches) = read.map_err(|error| explained(&mut command, error, &origins))?;
    Ok(Parsed { args, matches, origins, warnings, file })
}

/// Whether the command is one that takes the settings of a mount: it can read them from a file. Flags can't come before
/// a command's name.
fn takes_settings(command: &Command, args: &[OsString]) -> bool {
    let Some(first) = args.get(1).and_then(|arg| arg.to_str()) else { return false };
    command.find_subcommand(first).is_none_or(|command| flag(command, "config").is_some())
}

/// The command line as it grows.
#[derive(Default)]
struct Lines {
    args: Vec<OsString>,
    origins: Origins,
    /// The switches that are set to false.
    off: BTreeSet<String>,
    warnings: Vec<String>,
    /// The text of the file, once it is read.
    file: Option<String>,
}

impl Lines {
    fn add_layers(
        &mut self,
        command: &Command,
        variables: &Variables,
        defaults: &[(&str, OsString)],
    ) -> Result<(), String> {
        let given = self.take_switches(command);
        self.warnings.extend(environment::strangers(command, variables));
        self.origins.0.extend(given.names.iter().map(|name| (name.clone(), Origin::Flag)));
        let config = given.config.map(|path| (path, Origin::Flag));
        let config = config.or_else(|| environment::one(command, variables, "config"));
        let config = config.map(|(path, _)| PathBuf::from(path));
        let file = match config.as_deref() {
            Some(path) => {
                let text = self.file.take().map_or_else(|| file::read(path), Ok)?;
                file::parse(command, path, self.file.insert(text))?
            }
            None => Vec::new(),
        };
        let environment = environment::read(command, variables)?;
        let preset = given
            .preset
            .or_else(|| environment::one(command, variables, "preset").map(|(name, _)| name))
            .or_else(|| named_preset(&file));
        let preset = preset.and_then(|name| preset_settings(&name)).unwrap_or_default();
        let of_mount_s3 = |(name, value): &(&str, OsString)| match flag(command, name).is_some_and(is_switch)
        {
            true => {
                Setting { name: (*name).to_owned(), values: Values::Switch(true), origin: Origin::MountS3 }
            }
            false => Setting::text(name, value, Origin::MountS3),
        };
        let defaults = defaults.iter().map(of_mount_s3).collect();
        for layer in [environment, file, preset, defaults] {
            self.add(command, layer)?;
        }
        let is_off = |name: &&&str| self.off.contains(**name);
        match OLD_ALLOW.iter().find(is_off).filter(|_| self.origins.0.contains_key("allow")) {
            Some(off) => Err(format!(
                "{off}=false ({}) takes nothing from allow ({}); say all that programs may do in one --allow, such as \
                 --allow write,overwrite",
                self.origins.of(off),
                self.origins.of("allow")
            )),
            None => Ok(()),
        }
    }

    /// Adds what a layer sets and no layer before it.
    fn add(&mut self, command: &Command, layer: Vec<Setting>) -> Result<(), String> {
        let above: Vec<_> = self.origins.0.keys().cloned().collect();
        for setting in layer {
            setting.check(command)?;
            if above.contains(&setting.name) {
                continue;
            }
            if setting.values == Values::Switch(false) {
                self.off.insert(setting.name.clone());
            }
            let is_on = |name: &str| !self.off.contains(name);
            let against = above.iter().find(|name| is_on(name) && contradicts(command, &setting.name, name));
            if let Some(above) = against.filter(|_| is_on(&setting.name)) {
                if !matches!(setting.origin, Origin::Preset(_) | Origin::MountS3) {
                    let (name, from) = (&setting.name, &setting.origin);
                    let by = self.origins.of(above);
                    self.warnings
                        .push(format!("warning: {name} ({from}) is left out: {above} ({by}) contradicts it"));
                }
                continue;
            }
            let end = self.args.iter().position(|arg| arg == "--").unwrap_or(self.args.len());
            self.args.splice(end..end, setting.flags());
            self.origins.0.insert(setting.name, setting.origin);
        }
        Ok(())
    }

    /// Notes which flags are given, and replaces `--switch=true` and `--switch=false`: they turn on and off what a
    /// lower layer sets.
    fn take_switches(&mut self, command: &Command) -> Given {
        let mut given = Given::default();
        let mut kept = Vec::with_capacity(self.args.len());
        let mut args = std::mem::take(&mut self.args).into_iter().peekable();
        while let Some(arg) = args.next() {
            if arg == "--" {
                kept.push(arg);
                kept.extend(args);
                break;
            }
            let text = arg.to_string_lossy();
            let Some(long) = text.strip_prefix("--") else {
                given.names.extend(shorts(command, &text));
                kept.push(arg);
                continue;
            };
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let Some(known) = flag(command, name) else {
                kept.push(arg);
                continue;
            };
            given.names.insert(name.to_owned());
            let value_of = |arg: &OsStr, next: Option<&OsString>| match value {
                Some(_) => Some(os_value(arg, name)),
                None => next.cloned(),
            };
            match name {
                "config" => given.config = value_of(&arg, args.peek()),
                "preset" => given.preset = value_of(&arg, args.peek()),
                _ => {}
            }
            match value {
                Some("true") if is_switch(known) => kept.push(format!("--{name}").into()),
                Some("false") if is_switch(known) => {
                    self.off.insert(name.to_owned());
                }
                _ => kept.push(arg),
            }
        }
        self.args = kept;
        given
    }
}

/// The value in `--name=value`, which may be no text.
fn os_value(arg: &OsStr, name: &str) -> OsString {
    OsString::from_vec(arg.as_bytes()[name.len() + 3..].to_vec())
}

/// The names of the flags in a cluster such as `-fd`.
fn shorts(command: &Command, text: &str) -> Vec<String> {
    let Some(letters) = text.strip_prefix('-') else { return Vec::new() };
    let mut names = Vec::new();
    for letter in letters.chars() {
        let Some(arg) = command.get_arguments().find(|arg| arg.get_short() == Some(letter)) else { break };
        names.extend(arg.get_long().map(str::to_owned));
        if !is_switch(arg) {
            break;
        }
    }
    names
}

/// Whether two flags can't be given together.
fn contradicts(command: &Command, one: &str, other: &str) -> bool {
    let conflicts = |from: &str, to: &str| {
        let arg = flag(command, from);
        arg.is_some_and(|arg| {
            command.get_arg_conflicts_with(arg).iter().any(|conflict| conflict.get_long() == Some(to))
        })
    };
    conflicts(one, other) || conflicts(other, one)
}

/// The preset that the file names.
fn named_preset(file: &[Setting]) -> Option<OsString> {
    let setting = file.iter().find(|setting| setting.name == "preset")?;
    match &setting.values {
        Values::Texts(texts) => texts.first().cloned(),
        Values::Switch(_) => None,
    }
}

/// The settings of a preset; none of a preset that does not exist, which the parser refuses later.
fn preset_settings(name: &OsStr) -> Option<Vec<Setting>> {
    let name = name.to_str()?;
    let preset = Preset::from_str(name, false).ok()?;
    let origin = Origin::Preset(name.to_owned());
    let settings = preset.settings().iter();
    Some(settings.map(|(name, value, _)| Setting::text(name, value, origin.clone())).collect())
}

/// Adds to an error what it is about: a flag of another program, or a value that is not from the command line.
fn explained(command: &mut Command, error: Error, origins: &Origins) -> Error {
    if error.kind() == ErrorKind::UnknownArgument
        && let Some(ContextValue::String(arg)) = error.get(ContextKind::InvalidArg)
        && let Some(why) = arg.strip_prefix("--").and_then(|arg| foreign::explain(arg.split('=').next()?))
    {
        return command.error(ErrorKind::UnknownArgument, why);
    }
    let text = error.render().to_string();
    match origins.explain(&text) {
        Some(from) => {
            let text = text.split("\n\nUsage:").next().unwrap_or_default();
            let text = text.trim_start_matches("error: ").trim_end();
            command.error(error.kind(), format!("{text}\n  note: {from}"))
        }
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::parse;
    use crate::flags::writing::Allow;
    use crate::for_tests::Args;

    type Parsed = super::Parsed<Args>;

    const COMMAND: [&str; 3] = ["s3mount", "bucket", "/mnt"];

    fn read(flags: &[&str], variables: &[(&str, &str)]) -> Result<Parsed, String> {
        let args = COMMAND.iter().chain(flags).map(OsString::from);
        let variables = variables.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        parse(args, &variables, None).map_err(|error| error.render().to_string())
    }

    fn part_size(parsed: &Parsed) -> (String, String) {
        let size = parsed.args.mount.part_size.map(|size| size.to_string());
        (size.unwrap_or_default(), parsed.origins.of("part-size").to_string())
    }

    fn file(text: &str) -> (tempfile::NamedTempFile, String) {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), text).expect("a file");
        let flag = format!("--config={}", file.path().display());
        (file, flag)
    }

    #[test]
    fn each_layer_goes_before_the_next() {
        let (config, flag) = file("preset = \"model-loading\"\npart-size = \"2MiB\"");
        let line = format!("{}:2", config.path().display());
        let variables = [("S3MOUNT_PART_SIZE", "4MiB")];
        let check = |flags: &[&str], variables: &[(&str, &str)], size: &str, from: &str| {
            let parsed = read(flags, variables).expect("settings");
            assert_eq!(part_size(&parsed), (size.to_owned(), from.to_owned()), "{flags:?}");
        };
        check(&[&flag, "--part-size", "8MiB"], &variables, "8MiB", "flag");
        check(&[&flag, "-opart_size=8MiB"], &variables, "8MiB", "flag");
        check(&[&flag], &variables, "4MiB", "S3MOUNT_PART_SIZE");
        check(&[&flag], &[("S3MOUNT_PART_SIZE", "")], "2MiB", &line);
        check(&["--preset", "model-loading"], &[], "16MiB", "preset model-loading");
        check(&["--preset=random"], &[("S3MOUNT_PRESET", "model-loading")], "", "default");
        let path = flag.trim_start_matches("--config=");
        check(&[], &[("S3MOUNT_CONFIG", path)], "2MiB", &line);
        check(&["--config", path], &[("S3MOUNT_CONFIG", "/no/such")], "2MiB", &line);
        assert_eq!(read(&[&flag], &[]).expect("settings").args.mount.prefetch_initial.to_string(), "32MiB");
    }

    #[test]
    fn a_file_that_another_process_has_read_is_not_read_again() {
        let (config, flag) = file("part-size = \"2MiB\"");
        let read = |kept: Option<&str>| {
            let args = COMMAND.iter().copied().chain([&*flag]).map(OsString::from);
            parse::<Args>(args, &Vec::new(), kept.map(str::to_owned))
        };
        let first = read(None).expect("settings");
        assert_eq!(first.file.as_deref(), Some("part-size = \"2MiB\""));
        std::fs::write(config.path(), "part-size = ???").expect("a file");
        let next = read(first.file.as_deref()).expect("the same settings");
        assert_eq!(part_size(&next), part_size(&first));
        read(None).expect_err("settings that can't be read");
    }

    #[test]
    fn switches_are_turned_off_from_above() {
        let variables = [("S3MOUNT_READ_ONLY", "yes"), ("S3MOUNT_CACHE", "/a:/b")];
        let parsed = read(&["--read-only=false"], &variables).expect("settings");
        assert!(!parsed.args.mount.read_only);
        assert_eq!(parsed.args.mount.cache, ["/a", "/b"].map(std::path::PathBuf::from));
        assert!(read(&[], &variables).expect("settings").args.mount.read_only);
        assert!(read(&["--read-only=true"], &[]).expect("settings").args.mount.read_only);
        let (_file, flag) = file("read-only = false");
        assert!(read(&[&flag], &variables).expect("settings").args.mount.read_only);
        let (_file, flag) = file("read-only = true");
        let off = read(&[&flag], &[("S3MOUNT_READ_ONLY", "0")]).expect("settings");
        assert!(!off.args.mount.read_only);
        assert_eq!(off.origins.of("read-only").to_string(), "S3MOUNT_READ_ONLY");
    }

    #[test]
    fn what_programs_may_do_is_said_in_one_flag_or_in_those_of_old() {
        let check = |flags: &[&str], variables: &[(&str, &str)], allowed: &[Allow]| {
            let writing = read(flags, variables).expect("settings").args.mount.writing;
            let named = [Allow::Write, Allow::Overwrite, Allow::Delete, Allow::Rename];
            let found: Vec<_> = named.into_iter().filter(|what| writing.allows(*what)).collect();
            assert_eq!(found, allowed, "{flags:?} {variables:?}");
            assert_eq!(writing.allows_writes(), !allowed.is_empty());
        };
        let all = [Allow::Write, Allow::Overwrite, Allow::Delete, Allow::Rename];
        check(&[], &[], &[]);
        check(&["--allow", "all"], &[], &all);
        check(&["--allow", "write,delete"], &[], &[Allow::Write, Allow::Delete]);
        check(&["-oallow=write,allow=rename"], &[], &[Allow::Write, Allow::Rename]);
        check(&[], &[("S3MOUNT_ALLOW", "write,rename")], &[Allow::Write, Allow::Rename]);
        check(&["--allow", "delete"], &[("S3MOUNT_ALLOW", "all")], &[Allow::Delete]);
        check(&["--allow-write", "--allow-overwrite", "--allow-delete", "--allow-dir-rename"], &[], &all);
        check(
            &["--allow", "delete"],
            &[("S3MOUNT_ALLOW_OVERWRITE", "1")],
            &[Allow::Overwrite, Allow::Delete],
        );
        let error =
            read(&["--allow-delete=false"], &[("S3MOUNT_ALLOW", "all")]).expect_err("what is off is on");
        assert!(
            error.contains("allow-delete=false (flag) takes nothing from allow (S3MOUNT_ALLOW)"),
            "{error}"
        );
        let (_file, flag) = file("allow = [\"write\", \"overwrite\"]");
        check(&[&flag], &[], &[Allow::Write, Allow::Overwrite]);
        check(&[&flag, "--read-only"], &[], &[]);
    }

    #[test]
    fn what_contradicts_a_higher_layer_is_left_out() {
        let parsed = read(&["--immutable", "--preset", "training"], &[]).expect("settings");
        assert!(parsed.args.mount.immutable && parsed.warnings.is_empty());
        assert_eq!(parsed.origins.of("metadata-ttl").to_string(), "default");
        let parsed = read(&["--no-sign-request"], &[("S3MOUNT_PROFILE", "p")]).expect("settings");
        assert_eq!(parsed.args.mount.access.profile, None);
        assert_eq!(
            parsed.warnings,
            ["warning: profile (S3MOUNT_PROFILE) is left out: no-sign-request (flag) contradicts it"]
        );
        let variables = [("S3MOUNT_PROFILE", "p"), ("S3MOUNT_NO_SIGN_REQUEST", "1")];
        let error = read(&[], &variables).expect_err("both");
        assert!(error.contains("--no-sign-request comes from S3MOUNT_NO_SIGN_REQUEST"), "{error}");
        let off = [("S3MOUNT_PROFILE", "p")];
        let parsed = read(&["--no-sign-request=false"], &off).expect("settings");
        assert_eq!(parsed.args.mount.access.profile.as_deref(), Some("p"));
    }

    #[test]
    fn errors_say_where_a_value_comes_from() {
        let check = |flags: &[&str], variables: &[(&str, &str)], expected: &str| {
            let error = read(flags, variables).expect_err("an error");
            assert!(error.starts_with(&format!("error: {expected}\n")), "{error}");
        };
        let size = "not a size; write a number with a unit, such as 8MiB or 2G";
        check(&[], &[("S3MOUNT_PART_SIZE", "big")], &format!("S3MOUNT_PART_SIZE: part-size \"big\": {size}"));
        check(
            &[],
            &[("S3MOUNT_DEBUG", "maybe")],
            "S3MOUNT_DEBUG \"maybe\": debug is a switch; write true or false",
        );
        let (config, flag) = file("\nverify = 'hole'");
        let path = config.path().display();
        check(
            &[&flag],
            &[],
            &format!("{path}:2: verify \"hole\": not one of free, whole, never; did you mean whole?"),
        );
        let (config, flag) = file("sse-kms-key-id = 'key'");
        let error = read(&[&flag], &[]).expect_err("no sse");
        let from = format!("--sse-kms-key-id comes from {}:1", config.path().display());
        assert!(error.contains("--sse <METHOD>") && error.contains(&from), "{error}");
        check(
            &["--memory-target", "512"],
            &[],
            "--memory-target is a flag of mount-s3; here it is --memory-limit (a hard limit, with a unit, such as \
             2GiB)",
        );
        check(
            &["--config=/no/such"],
            &[],
            "cannot read --config /no/such: No such file or directory (os error 2)",
        );
    }

    #[test]
    fn other_commands_take_no_settings() {
        let variables = vec![("S3MOUNT_PART_SIZE".into(), "banana".into())];
        let read = |args: &[&str]| parse::<Args>(args.iter().map(OsString::from), &variables, None);
        let parsed = read(&["s3mount", "trace", "/mnt"]).expect("a trace");
        assert!(parsed.origins.0.is_empty());
        assert!(read(&["s3mount", "mount", "b", "/mnt"]).is_err());
    }

    #[test]
    fn variables_with_a_wrong_letter_are_warned_of() {
        let variables = [("S3MOUNT_PART_SZIE", "1"), ("S3MOUNT_SERVICE_HOST", "1"), ("S3MOUNT_LOG", "debug")];
        assert_eq!(
            read(&[], &variables).expect("settings").warnings,
            ["warning: S3MOUNT_PART_SZIE in the environment is no setting; did you mean S3MOUNT_PART_SIZE?"]
        );
    }

    #[test]
    fn what_follows_two_hyphens_stays_behind_them() {
        let args = ["s3mount", "--", "bucket", "/mnt"].map(OsString::from);
        let variables = vec![("S3MOUNT_DEBUG".into(), "1".into())];
        let parsed: Parsed = parse(args, &variables, None).expect("settings");
        assert!(parsed.args.mount.debug);
        assert_eq!(parsed.args.mount.source.as_deref(), Some("bucket"));
    }
}
