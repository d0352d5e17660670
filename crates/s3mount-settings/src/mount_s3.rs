//! The command line of mount-s3, AWS's own mount, in the words of s3mount: its flags with its units and its defaults, and
//! its form for /etc/fstab. So scripts, lines of /etc/fstab and CSI drivers that call mount-s3 can call s3mount.
//!
//! Where the two differ in what may be done, the result allows no more than mount-s3 does, unless the user is told or the
//! page of foreign flags says so. What the command line does not say is left to the other layers of settings; below them
//! are the defaults of mount-s3.

mod fstab;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::builder::OsStringValueParser;
use clap::error::ErrorKind;
use clap::{Arg, ArgAction, ArgMatches, Args as _, Command, Error, value_parser};
use s3mount_crt::directory_bucket::is_directory_bucket;

use crate::flags::mount::MountArgs;
use crate::flags::mount_s3::{Becomes, FLAGS, Flag, Part, Takes};
use crate::layers::environment::Variables;
use crate::resolved::source;

const BUCKET: &str = "bucket";
const DIR: &str = "dir";

/// The words of mount-s3 for a listing that is believed as briefly as the kernel allows.
const MINIMAL: &str = "minimal";

/// The media type that S3 gives to objects that are written without one.
const NO_TYPE: &str = "binary/octet-stream";

/// The folder for the cache in the one that is given: it may be open to other users, and have other files in it, as the top
/// of a disk does.
const CACHE: &str = "s3mount-cache";

/// Variables of mount-s3 that have no effect here, and why, by their beginnings.
const VARIABLES: &[(&str, &str)] = &[
    ("AWS_MAX_ATTEMPTS", "requests are sent again until --read-timeout"),
    ("UNSTABLE_", "s3mount has no such setting"),
];

/// Flags that can't be given together.
const CONFLICTS: &[(&str, &[&str])] = &[
    ("allow-other", &["allow-root"]),
    ("part-size", &["read-part-size", "write-part-size"]),
    ("no-log", &["log-directory", "debug", "debug-crt", "log-metrics"]),
];

/// Flags that need another one.
const NEEDS: &[(&str, &str)] =
    &[("max-cache-size", "cache"), ("otlp-export-interval", "otlp-endpoint"), ("sse-kms-key-id", "sse")];

/// A command line of mount-s3 that was read.
#[derive(Debug, PartialEq, Eq)]
pub struct Translated {
    /// The command line of s3mount that means the same, with the program's name.
    pub args: Vec<OsString>,
    /// What holds where nobody has set it: the names of flags, and their values.
    pub defaults: Vec<(&'static str, OsString)>,
    /// The folder that the cache is made in. mount-s3 makes it if it is missing.
    pub cache: Option<PathBuf>,
    /// Variables of the environment that the same needs.
    pub variables: Vec<(&'static str, OsString)>,
    /// What has no effect here, or another one; a line each.
    pub told: Vec<String>,
    /// What mount-s3 prints once the bucket is mounted.
    pub mounted: String,
    /// The source as /etc/fstab has it, if it is a line from there.
    pub fstab: Option<String>,
}

/// The command line of mount-s3.
fn command() -> Command {
    let about = "Mount an S3 bucket as mount-s3 does: this is s3mount, called by another name.\n\nThe flags, their units and \
                 their defaults are those of mount-s3. docs/CONFIGURATION.md says what each of them is for s3mount. In \
                 place of flags, `-o OPTIONS` after the folder takes them as /etc/fstab has them.";
    let command = Command::new("mount-s3")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Mount an S3 bucket as mount-s3 does (this is s3mount)")
        .long_about(about)
        .max_term_width(100)
        .arg(
            Arg::new(BUCKET)
                .value_name("BUCKET_NAME")
                .required(true)
                .help("The bucket, or s3://BUCKET/PREFIX/"),
        )
        .arg(
            Arg::new(DIR)
                .value_name("DIRECTORY")
                .required(true)
                .value_parser(OsStringValueParser::new())
                .help("The folder to mount at, or /dev/fd/N for a device of FUSE that is mounted"),
        );
    let ours = MountArgs::augment_args(Command::new("s3mount"));
    FLAGS.iter().fold(command, |command, flag| command.arg(argument(flag, &ours)))
}

/// `ours` has the flags of s3mount, whose help is that of the flags of the same name.
fn argument(flag: &Flag, ours: &Command) -> Arg {
    let name = flag.row.name;
    let own = ours.get_arguments().find(|arg| arg.get_long() == Some(name)).and_then(Arg::get_help);
    let help = match (own, flag.row.ours, flag.row.note) {
        (Some(help), _, _) => help.clone(),
        (None, "", note) => note.into(),
        (None, ours, "") => format!("s3mount's {ours}").into(),
        (None, ours, note) => format!("s3mount's {ours}: {note}").into(),
    };
    let arg = Arg::new(name).long(name).short(flag.short).help(help);
    let arg = match flag.takes {
        Takes::Nothing => arg.action(ArgAction::SetTrue),
        Takes::Text(value) => arg.value_name(value).value_parser(OsStringValueParser::new()),
        Takes::Texts(value) => {
            arg.value_name(value).value_parser(OsStringValueParser::new()).action(ArgAction::Append)
        }
        Takes::Number(unit, least) => arg.value_name(unit).value_parser(value_parser!(u64).range(least..)),
        Takes::OneOf(words) => arg.value_parser(words.to_vec()),
    };
    let conflicts = CONFLICTS.iter().filter(|(one, _)| *one == name).flat_map(|(_, others)| others.iter());
    let needs = NEEDS.iter().filter(|(one, _)| *one == name);
    needs.fold(arg.conflicts_with_all(conflicts.copied()), |arg, (_, other)| arg.requires(*other))
}

/// Reads a command line of mount-s3, with the program's name. `variables` is the environment.
///
/// # Errors
/// Those of its parser, as for flags of s3mount. `--help` and `--version` are among them.
pub fn translate(args: Vec<OsString>, variables: &Variables) -> Result<Translated, Error> {
    let mut command = command();
    let refused = |command: &mut Command, why: String| command.error(ErrorKind::InvalidValue, why);
    let is_fstab = fstab::is_line(&args);
    let args = match is_fstab {
        true => fstab::expand(&args).map_err(|why| refused(&mut command, why))?,
        false => args,
    };
    let matches = command.try_get_matches_from_mut(args)?;
    let mut line =
        Line { matches: &matches, args: vec!["s3mount".into()], defaults: Vec::new(), told: Vec::new() };
    FLAGS.iter().for_each(|flag| line.add(flag));
    line.add_together().map_err(|why| refused(&mut command, why))?;
    line.tell_of(variables);
    let variables = line.variables(variables);
    let Line { mut args, defaults, told, .. } = line;
    let bucket = matches.get_one::<String>(BUCKET).cloned().unwrap_or_default();
    let dir = matches.get_one::<OsString>(DIR).cloned().unwrap_or_default();
    let prefix = matches.get_one::<OsString>("prefix").map(|prefix| prefix.to_string_lossy());
    let named = source::parse(&bucket, prefix.as_deref());
    let named = named.map_err(|error| refused(&mut command, error.to_string()))?;
    let what = match (named.bucket, named.prefix) {
        (bucket, prefix) if prefix.is_empty() => format!("bucket {bucket}"),
        (bucket, prefix) => format!("prefix {prefix} of bucket {bucket}"),
    };
    let mounted = format!("{what} is mounted at {}", dir.display());
    args.extend(["--".into(), bucket.clone().into(), dir]);
    let cache = matches.get_one::<OsString>("cache").map(PathBuf::from);
    Ok(Translated { args, defaults, cache, variables, told, mounted, fstab: is_fstab.then_some(bucket) })
}

/// A command line as it grows.
struct Line<'a> {
    matches: &'a ArgMatches,
    args: Vec<OsString>,
    defaults: Vec<(&'static str, OsString)>,
    told: Vec<String>,
}

impl Line<'_> {
    /// Whether a flag without a value is given.
    fn has(&self, name: &str) -> bool {
        self.matches.get_flag(name)
    }

    fn text(&self, name: &str) -> Option<&OsStr> {
        self.matches.get_one::<OsString>(name).map(OsString::as_os_str)
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.matches.get_one(name).copied()
    }

    fn word(&self, name: &str) -> Option<&str> {
        self.matches.get_one::<String>(name).map(String::as_str)
    }

    /// Adds `--name=value`.
    fn push(&mut self, name: &str, value: impl AsRef<OsStr>) {
        let mut arg = OsString::from(format!("--{name}="));
        arg.push(value);
        self.args.push(arg);
    }

    /// Adds `--name`.
    fn switch(&mut self, name: &str) {
        self.args.push(format!("--{name}").into());
    }

    /// Has a flag this value where nobody sets it.
    fn default(&mut self, name: &'static str, value: impl Into<OsString>) {
        self.defaults.push((name, value.into()));
    }

    /// Adds what a flag becomes by itself.
    fn add(&mut self, flag: &Flag) {
        let name = flag.row.name;
        let values: Vec<OsString> = match flag.takes {
            Takes::Nothing => self.has(name).then(OsString::new).into_iter().collect(),
            _ => self.matches.get_raw(name).into_iter().flatten().map(OsStr::to_owned).collect(),
        };
        // Only of a flag that takes a number.
        let number = |line: &Self| line.number(name).unwrap_or_default();
        for value in values {
            match flag.becomes {
                Becomes::Same if flag.takes == Takes::Nothing => self.switch(name),
                Becomes::Same => self.push(name, value),
                Becomes::Mib(ours) => self.push(ours, format!("{}MiB", number(self))),
                Becomes::AtMost(most) => {
                    let asked = number(self);
                    if asked > most {
                        self.told.push(format!("--{name} {asked} becomes --{name} {most}, the most here"));
                    }
                    self.push(name, asked.min(most).to_string());
                }
                Becomes::Parts(parts) => {
                    parts.iter().for_each(|part| self.add_part(name, number(self), part));
                }
                Becomes::Told => self.told.push(format!("--{name} has no effect here: {}", flag.row.note)),
                Becomes::Together => {}
            }
        }
    }

    fn add_part(&mut self, name: &str, bytes: u64, part: &Part) {
        let Part { flag, least, most } = *part;
        let mib = (bytes >> 20).clamp(least, most);
        if mib << 20 != bytes {
            self.told.push(format!(
                "--{name} {bytes} becomes --{flag} {mib}MiB: it takes whole MiB, from {least} to {most}"
            ));
        }
        self.push(flag, format!("{mib}MiB"));
    }

    /// Adds what several flags become together.
    fn add_together(&mut self) -> Result<(), String> {
        self.add_rights();
        self.add_users();
        self.add_cache()?;
        match self.word("upload-checksums") {
            Some("off") => self.push("upload-checksums", "none"),
            Some("crc32c") => {
                self.told.push("--upload-checksums crc32c becomes crc64nvme, which s3mount sends".to_owned());
            }
            _ => {}
        }
        let key = self.text("sse-kms-key-id").map(OsStr::to_string_lossy);
        match (self.word("sse"), key) {
            (Some("AES256"), Some(_)) => {
                return Err("--sse-kms-key-id has no use with --sse AES256".to_owned());
            }
            (_, Some(key)) if !(key.starts_with("arn:") && key.contains(":key")) => {
                return Err(format!(
                    "--sse-kms-key-id {key:?} is not the ARN of a key, as mount-s3 takes it"
                ));
            }
            _ => {}
        }
        match self.has("infer-content-type") {
            true => self.push("content-type", "auto"),
            false => self.default("content-type", NO_TYPE),
        }
        match (self.has("no-sign-request"), self.text("profile").map(OsStr::to_owned)) {
            (true, Some(_)) => {
                self.told.push("--profile has no effect beside --no-sign-request".to_owned());
            }
            (false, Some(profile)) => self.push("profile", profile),
            (_, None) => {}
        }
        // mount-s3 takes an empty one for none.
        let prefix = self.text("user-agent-prefix").filter(|prefix| !prefix.is_empty());
        if let Some(prefix) = prefix.map(OsStr::to_owned) {
            self.push("user-agent-prefix", prefix);
        }
        if self.has("debug-crt") && !self.has("debug") {
            self.switch("debug");
        }
        Ok(())
    }

    /// What programs may do. New files may be written, unless the mount is read-only.
    fn add_rights(&mut self) {
        if self.has("read-only") {
            return self.switch("read-only");
        }
        let bucket = self.matches.get_one::<String>(BUCKET).map(String::as_str).unwrap_or_default();
        let (bucket, _) = source::split(bucket.strip_prefix("s3://").unwrap_or(bucket));
        let is_directory = is_directory_bucket(bucket);
        if let Some(kind) = self.word("bucket-type").filter(|kind| (*kind == "directory") != is_directory) {
            let told = format!("--bucket-type {kind} has no effect here: the name {bucket} says what it is");
            self.told.push(told);
        }
        let mut rights = vec!["write"];
        rights.extend(self.has("allow-delete").then_some("delete"));
        rights.extend((self.has("allow-overwrite") || self.has("incremental-upload")).then_some("overwrite"));
        let is_given = rights.len() > 1;
        // Its fsync makes an object of a file of any length.
        self.default("fsync-publish", "");
        // There it renames whatever the flags are.
        rights.extend(is_directory.then_some("rename"));
        if self.has("incremental-upload") && !self.has("allow-overwrite") {
            self.told.push(
                "--incremental-upload also lets programs change and replace existing files: s3mount has no right to \
                 append alone"
                    .to_owned(),
            );
        }
        match is_given {
            true => self.push("allow", rights.join(",")),
            false => self.default("allow", rights.join(",")),
        }
    }

    /// Who may use the mount, and what it may hide. A device may have been mounted for all users, and then the daemon alone keeps others out.
    fn add_users(&mut self) {
        let is_device = self.text(DIR).is_some_and(|dir| dir.as_encoded_bytes().starts_with(b"/dev/fd/"));
        if !is_device {
            self.switch("nonempty");
        }
        if self.has("allow-other") {
            self.switch("allow-other");
        } else if self.has("allow-root") || is_device {
            self.switch("allow-root");
        }
    }

    /// What is kept, where, and for how long.
    fn add_cache(&mut self) -> Result<(), String> {
        let (cache, size) = (self.text("cache").map(OsStr::to_owned), self.number("max-cache-size"));
        let shared = self.text("cache-xz").map(|bucket| bucket.to_string_lossy().into_owned());
        let usual = if cache.is_some() || shared.is_some() { "60" } else { MINIMAL };
        let ttl = |name| match self.text(name) {
            // It says that it takes a zero so, too.
            Some(ttl) if ttl == "0" => Some(OsString::from(MINIMAL)),
            ttl => ttl.map(OsStr::to_owned),
        };
        let (names, missing) = (ttl("metadata-ttl"), ttl("negative-metadata-ttl"));
        let missing = missing.or_else(|| names.clone());
        // The first is blamed for a value that both can't take.
        for (name, ttl) in [("metadata-ttl", names), ("negative-metadata-ttl", missing)] {
            match ttl {
                Some(ttl) => self.push(name, ttl),
                None => self.default(name, usual),
            }
        }
        // A cache of no size is none.
        if let Some(dir) = cache.filter(|_| size != Some(0)) {
            self.push("cache", Path::new(&dir).join(CACHE));
            if let Some(mib) = size {
                self.push("max-cache-size", format!("{mib}MiB"));
            }
        }
        if let Some(bucket) = shared {
            let bucket = bucket.strip_prefix("s3://").unwrap_or(&bucket).trim_end_matches('/');
            if bucket.contains('/') {
                return Err(format!("--cache-xz {bucket:?} has a prefix; give the name of a bucket alone"));
            }
            self.push("shared-cache", format!("s3://{bucket}"));
        }
        Ok(())
    }

    /// Tells of variables of mount-s3 that have no effect.
    fn tell_of(&mut self, environment: &Variables) {
        let names = environment.iter().filter_map(|(name, _)| name.to_str());
        let known = |name| {
            VARIABLES.iter().find(|(begin, _)| str::starts_with(name, begin)).map(|(_, why)| (name, why))
        };
        self.told
            .extend(names.filter_map(known).map(|(name, why)| format!("{name} has no effect here: {why}")));
    }

    /// What only the environment can say. The filter of the log is the user's own, else mount-s3's, else that of the flags.
    fn variables(&self, environment: &Variables) -> Vec<(&'static str, OsString)> {
        let of = |name: &str| environment.iter().find(|(known, _)| known == name).map(|(_, value)| value);
        let level =
            if self.has("debug") { "info,s3mount=debug" } else { "warn,s3mount=info,fuser::reply=off" };
        let by_flags = match (self.has("no-log"), self.has("debug-crt")) {
            (true, _) => Some("off".to_owned()),
            (false, true) => Some(format!("{level},awscrt=debug")),
            (false, false) => None,
        };
        let theirs =
            of("MOUNTPOINT_LOG").map(|filter| filter.to_string_lossy().replace("mountpoint_s3", "s3mount"));
        let log = theirs.filter(|filter| !filter.is_empty()).or(by_flags);
        let log = log.filter(|_| of("S3MOUNT_LOG").is_none_or(|filter| filter.is_empty()));
        let interval =
            self.number("otlp-export-interval").map(|seconds| seconds.saturating_mul(1_000).to_string());
        let log = log.map(|filter| ("S3MOUNT_LOG", filter));
        let interval = interval.map(|millis| ("OTEL_METRIC_EXPORT_INTERVAL", millis));
        log.into_iter().chain(interval).map(|(name, value)| (name, value.into())).collect()
    }
}

#[cfg(test)]
mod tests;
