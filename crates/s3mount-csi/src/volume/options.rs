//! The options of a volume: flags of a mount, as a volume may have them.
//!
//! What can't be an option is refused here, before anything is mounted, in words of a volume: who writes one sees no
//! command line.

use clap::builder::Command;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Args as _};
use s3mount_settings::flags::mount::MountArgs;
use s3mount_settings::flags::size::Size;
use s3mount_settings::resolved::memory;
use tonic::Status;

use crate::protocol::{MountVolume, Texts};
use crate::words;

/// Flags that the driver gives by itself, or that have no meaning in a volume.
const OWN_FLAGS: [&str; 19] = [
    "allow-other",
    "allow-root",
    "audit-log",
    "bind",
    "buckets",
    "config",
    "control-socket",
    "debug",
    "foreground",
    "fs-name",
    "journal",
    "keep-alive",
    "log-directory",
    "log-file",
    "log-level",
    "memory-floor",
    "metrics-listen",
    "options",
    "profile",
];

/// Flags that a pod may give, whose author need not be trusted by the machine: none names a file, a network or memory.
const FLAGS_OF_PODS: [&str; 21] = [
    "allow",
    "append-delay",
    "dir-mode",
    "direct-io",
    "expected-bucket-owner",
    "file-mode",
    "gid",
    "immutable",
    "metadata-ttl",
    "negative-metadata-ttl",
    "noexec",
    "part-size",
    "prefetch-initial",
    "prefetch-window",
    "preset",
    "random-read-size",
    "read-only",
    "region",
    "requester-pays",
    "uid",
    "verify",
];

/// A flag of a mount: its name, and its value if it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flag(pub(super) String, pub(super) Option<String>);

impl Flag {
    /// Reads `--part-size=8MiB`, `part-size=8MiB`, `part_size 8MiB` or `read-only`.
    fn parse(text: &str) -> Result<Self, Status> {
        let text = text.trim();
        one_line("the option", text)?;
        let (name, value) = match text.split_once(|c: char| c == '=' || c.is_whitespace()) {
            Some((name, value)) => (name, Some(value.trim().to_owned())),
            None => (text, None),
        };
        let plain = name.trim_start_matches('-').replace('_', "-");
        if plain.is_empty() {
            return Err(Status::invalid_argument(format!(
                "{text:?} is no option of a volume; write NAME or NAME=VALUE"
            )));
        }
        check_name(name, &plain)?;
        Ok(Self(plain, value))
    }

    pub(super) fn shown(&self) -> String {
        match self {
            Self(name, Some(value)) => format!("--{name}={value}"),
            Self(name, None) => format!("--{name}"),
        }
    }
}

/// Checks that `name`, which was written so and is `plain` among the flags, can be an option of some volume.
fn check_name(name: &str, plain: &str) -> Result<(), Status> {
    let why = match plain {
        "prefix" => "is an attribute of a volume, and no option".to_owned(),
        own if OWN_FLAGS.contains(&own) => {
            "is not for volumes: the driver decides that by itself; leave it out".to_owned()
        }
        known if find(&flags_of_mounts(), known).is_some() => return Ok(()),
        "ro" => "is no option of a volume; set readOnly: true of the pod's volume, or the option read-only"
            .to_owned(),
        _ => "is no option of a volume; options are the flags of s3mount that docs/CONFIGURATION.md has"
            .to_owned(),
    };
    Err(Status::invalid_argument(format!("{name:?} {why}")))
}

/// Checks that a text has no control characters. None is in a path, a name or a size, and some end what they are in.
pub(super) fn one_line(what: &str, text: &str) -> Result<(), Status> {
    if text.chars().any(char::is_control) {
        return Err(Status::invalid_argument(format!(
            "{what} {text:?} has a control character, such as a line's end; write it without"
        )));
    }
    Ok(())
}

/// The flags of a mount, and no others.
fn flags_of_mounts() -> Command {
    let command = Command::new("volume").no_binary_name(true);
    MountArgs::augment_args(command.disable_help_flag(true).disable_version_flag(true))
}

fn find<'a>(flags: &'a Command, name: &str) -> Option<&'a Arg> {
    flags.get_arguments().find(|flag| flag.get_long() == Some(name))
}

/// The options of a volume, from its `mountOptions` and from its attribute of the same name.
///
/// # Errors
/// Names the option that is none, is given twice, or is not for a volume that a pod describes (`is_ephemeral`).
pub(super) fn read(attributes: &Texts, mount: &MountVolume, is_ephemeral: bool) -> Result<Vec<Flag>, Status> {
    let attribute = attributes.get("mountOptions").map(String::as_str).unwrap_or_default();
    let parse = |texts: &[String]| {
        let texts = texts.iter().filter(|text| !text.trim().is_empty());
        texts.map(|text| Flag::parse(text)).collect::<Result<Vec<_>, _>>()
    };
    let (mut flags, of_attribute) = (parse(&mount.mount_flags)?, parse(&split(attribute)?)?);
    let known = flags_of_mounts();
    let is_repeatable =
        |name: &str| find(&known, name).is_some_and(|flag| matches!(flag.get_action(), ArgAction::Append));
    let has = |flags: &[Flag], name: &str| flags.iter().any(|Flag(has, _)| has == name);
    for (place, named) in [("mountOptions", &flags), ("the attribute mountOptions", &of_attribute)] {
        for (at, Flag(name, _)) in named.iter().enumerate() {
            let refused = if is_ephemeral && !FLAGS_OF_PODS.contains(&name.as_str()) {
                let allowed = FLAGS_OF_PODS.join(", ");
                format!(
                    "the option {name:?} is not for volumes that a pod describes, which may have {allowed}: let an \
                     administrator make a PersistentVolume with it"
                )
            } else if is_repeatable(name) {
                continue;
            } else if has(&named[..at], name) {
                format!("the option {name:?} is given twice in {place}; leave one of them out")
            } else if place != "mountOptions" && has(&flags, name) {
                format!(
                    "the option {name:?} is in mountOptions and in the attribute mountOptions; leave one of them out"
                )
            } else {
                continue;
            };
            return Err(Status::invalid_argument(refused));
        }
    }
    flags.extend(of_attribute);
    Ok(flags)
}

/// Splits the attribute at its commas. A backslash takes the meaning from a comma, and from a backslash.
fn split(text: &str) -> Result<Vec<String>, Status> {
    let (mut options, mut option) = (Vec::new(), String::new());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            ',' => options.push(std::mem::take(&mut option)),
            '\\' => match characters.next() {
                Some(escaped @ (',' | '\\')) => option.push(escaped),
                _ => {
                    return Err(Status::invalid_argument(format!(
                        "a backslash in the attribute mountOptions {text:?} has to be before a comma or another backslash"
                    )));
                }
            },
            character => option.push(character),
        }
    }
    options.push(option);
    Ok(options)
}

/// Checks the values of all options, and that none excludes another. Returns the `memory-limit`, if there is one.
///
/// # Errors
/// Names the option, its value, and what it may be.
pub(super) fn check(flags: &[Flag]) -> Result<Option<Size>, Status> {
    let known = flags_of_mounts();
    let mut args = vec!["s3://bucket/".to_owned(), "/".to_owned()];
    for flag in flags {
        let Flag(name, value) = flag;
        let takes_value = find(&known, name).is_some_and(|known| known.get_action().takes_values());
        match (takes_value, value.as_deref()) {
            (true, None | Some("")) => {
                let why = format!("the option {name:?} needs a value: {name}=...");
                return Err(Status::invalid_argument(why));
            }
            // So a flag can be turned off that the driver's environment turns on.
            (false, Some("false")) => {}
            (false, Some("true")) => args.push(format!("--{name}")),
            (false, Some(value)) => {
                let why = format!("the option {name:?} takes no value, but has {value:?}");
                return Err(Status::invalid_argument(why));
            }
            _ => args.push(flag.shown()),
        }
    }
    if let Err(error) = known.try_get_matches_from(args)
        && let Some(why) = explain(&error)
    {
        return Err(Status::invalid_argument(why));
    }
    let limit = flags.iter().find(|Flag(name, _)| name == "memory-limit");
    let limit: Option<Result<Size, String>> =
        limit.and_then(|Flag(_, value)| value.as_deref()).map(str::parse);
    let limit = limit.transpose().map_err(Status::invalid_argument)?;
    if limit.is_some() {
        memory::limit(limit)
            .map_err(|error| Status::invalid_argument(words::of_volume(&error.to_string())))?;
    }
    Ok(limit)
}

/// What the parser of the flags finds wrong with options. `None` if the mount itself may know better, because it has
/// settings beside them.
fn explain(error: &clap::Error) -> Option<String> {
    let texts = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => vec![text.clone()],
        Some(ContextValue::Strings(texts)) => texts.clone(),
        _ => Vec::new(),
    };
    // It is shown as `--part-size <SIZE>`.
    let names = |kind: ContextKind| {
        let plain = |text: String| {
            let name = text.trim_start_matches('-').split([' ', '=', '[', '<']).next().unwrap_or_default();
            format!("{name:?}")
        };
        texts(kind).into_iter().map(plain).collect::<Vec<_>>().join(", ")
    };
    let (option, value) = (names(ContextKind::InvalidArg), texts(ContextKind::InvalidValue).concat());
    match error.kind() {
        ErrorKind::ArgumentConflict => {
            let other = names(ContextKind::PriorArg);
            Some(format!("the options {option} and {other} exclude each other; leave one of them out"))
        }
        ErrorKind::InvalidValue => {
            let known = texts(ContextKind::ValidValue).join(", ");
            Some(format!("the option {option} can't be {value:?}; it may be: {known}"))
        }
        ErrorKind::ValueValidation => {
            let why = std::error::Error::source(error).map(|why| format!(": {why}")).unwrap_or_default();
            Some(format!("the option {option} can't be {value:?}{why}"))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{FLAGS_OF_PODS, Flag, OWN_FLAGS, check, find, flags_of_mounts, read, split};
    use crate::protocol::{MountVolume, Texts};

    /// The flags of a volume with these `mountOptions`, and this attribute.
    fn flags(options: &[&str], attribute: &str) -> Result<Vec<String>, String> {
        let mount = MountVolume {
            mount_flags: options.iter().map(|option| (*option).to_owned()).collect(),
            volume_mount_group: String::new(),
        };
        let attributes = Texts::from([("mountOptions".to_owned(), attribute.to_owned())]);
        let flags = read(&attributes, &mount, false).map_err(|status| status.message().to_owned())?;
        check(&flags).map_err(|status| status.message().to_owned())?;
        Ok(flags.iter().map(Flag::shown).collect())
    }

    #[test]
    fn a_backslash_takes_the_meaning_from_a_comma() {
        let expected = ["--direct-io=*.bin,*.tar", "--uid=5"].map(str::to_owned);
        assert_eq!(flags(&[], r"direct-io=*.bin\,*.tar,, uid 5,"), Ok(expected.to_vec()));
        assert_eq!(split(r"a\\,b").expect("options"), [r"a\", "b"]);
        assert!(split(r"a\b").is_err() && split(r"a\").is_err());
    }

    #[test]
    fn what_is_no_option_is_named_in_words_of_a_volume() {
        for (options, attribute, words) in [
            (&["ro"][..], "", "\"ro\" is no option of a volume; set readOnly: true"),
            (&["rw"], "", "\"rw\" is no option"),
            (&["_netdev"], "", "\"_netdev\" is no option"),
            (&["x-systemd.automount"], "", "\"x-systemd.automount\" is no option"),
            (&["--help"], "", "\"--help\" is no option"),
            (&[], "version", "\"version\" is no option"),
            (&["umount"], "", "\"umount\" is no option"),
            (&["prefix a/"], "", "\"prefix\" is an attribute"),
            (&["buckets=a=b"], "", "\"buckets\" is not for volumes"),
            (&["metrics-listen=:1"], "", "\"metrics-listen\" is not for volumes"),
            (&["uid=1", "uid=1"], "", "\"uid\" is given twice in mountOptions"),
            (&["uid=1"], "uid=2", "\"uid\" is in mountOptions and in the attribute mountOptions"),
            (&["region=a\nb"], "", "the option"),
            (&["region=a\0"], "", "the option"),
            (&["memory-limit=0"], "", "memory-limit 0B is too small"),
            (&["memory-limit=1"], "", "memory-limit 1B is too small"),
            (&["memory-limit=much"], "", "\"memory-limit\" can't be \"much\": not a size"),
            (&["memory-limit"], "", "\"memory-limit\" needs a value"),
            (&["preset=fast"], "", "\"preset\" can't be \"fast\"; it may be: training, "),
            (&["immutable=5"], "", "\"immutable\" takes no value"),
            (&["immutable", "allow=write"], "", "exclude each other"),
        ] {
            let said = flags(options, attribute).expect_err("refused");
            assert!(said.contains(words), "{said}");
            for foreign in ["Usage", "tip:", " --", "try '"] {
                assert!(!said.contains(foreign), "{said}");
            }
        }
    }

    #[test]
    fn options_may_be_repeated_that_take_several_values() {
        let expected = ["--allow=write", "--requester-pays=true", "--allow=delete"].map(str::to_owned);
        assert_eq!(flags(&["allow=write", "requester-pays=true"], "allow=delete"), Ok(expected.to_vec()));
    }

    #[test]
    fn flags_of_pods_are_flags_of_mounts() {
        let known = flags_of_mounts();
        let missing: Vec<_> = FLAGS_OF_PODS.iter().filter(|name| find(&known, name).is_none()).collect();
        assert!(missing.is_empty(), "{missing:?}");
        assert!(FLAGS_OF_PODS.iter().all(|name| !OWN_FLAGS.contains(name)));
    }

    #[test]
    fn the_page_names_all_flags_of_pods() {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/KUBERNETES.md");
        let page = fs::read_to_string(page).expect("the page");
        let line = page.lines().find_map(|line| line.strip_prefix("Its options can be: "));
        let line = line.and_then(|line| line.split_once('.')).expect("the line of these options").0;
        let named: Vec<_> = line.split(", ").map(|name| name.trim_matches('`')).collect();
        assert_eq!(named, FLAGS_OF_PODS);
    }
}
