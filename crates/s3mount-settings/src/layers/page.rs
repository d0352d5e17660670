//! The page about the configuration, out of the tables that the program itself goes by.

use std::fmt::Write as _;

use clap::{Arg, Args as _, Command, ValueEnum};

use super::environment::variable;
use super::layer::{is_list, is_listed, is_switch, settable};
use crate::flags::foreign::TOOLS;
use crate::flags::mount::MountArgs;
use crate::flags::preset::Preset;

const INTRODUCTION: &str = r#"# Configuration

Each flag of a mount can be given in four ways. Earlier sources override later ones:

1. the flag: `--part-size 16MiB`, or `-o part_size=16MiB` in `/etc/fstab`
2. its variable of the environment: `S3MOUNT_PART_SIZE=16MiB`
3. a line of the file that `--config FILE` (or `S3MOUNT_CONFIG`) names: `part-size = "16MiB"`
4. the preset that `--preset NAME` (or `S3MOUNT_PRESET`, or `preset` in the file) names

What none of them sets has its default. `s3mount config` takes the same flags as a mount, and prints the value of each setting and where it comes from, `--json` for programs:

```sh
s3mount config --config train.toml --preset training
```

## The file

TOML, with the names of the flags and without headings. Sizes and times are texts or numbers, switches are `true` or `false`, flags that may be repeated take a list:

```toml
# train.toml
preset = "training"
region = "eu-west-1"
memory-limit = "4GiB"
max-connections = 256
allow-other = true
cache = ["/nvme0/s3mount", "/nvme1/s3mount"]
```

A name that does not exist is an error, and so are a value that the flag does not take and a name that stands there twice. The error has the file and the line.

## The environment

The variable of a flag is its name in capitals, with `S3MOUNT_` before it and `_` for `-`. Switches take `true`, `yes`, `on` and `1`, or `false`, `no`, `off` and `0`. Flags that may be repeated take values with `:` between them, as `$PATH` does; `--allow` and `--buckets` have commas there, as on the command line. An empty variable is as good as none. `S3MOUNT_LOG`, the filter of the log, has no flag. `S3MOUNT_CONTROL_SOCKET` says to a mount where to listen, and to `s3mount_hints.py` where to ask: set it for the program, because all mounts of a shell that has it would listen at the same path, and the second is refused.

The variables of AWS (`AWS_REGION`, `AWS_PROFILE`, `AWS_ENDPOINT_URL`, ...) are asked where nothing else sets the region, the profile, the endpoint or the CA bundle.

## Turning things off

`--read-only=false`, `S3MOUNT_READ_ONLY=false` and `read-only = false` turn off what a lower layer has turned on. Some flags can't stand together, such as `--immutable` and `--metadata-ttl`. Within one layer that is an error. If they are in different layers, the lower one is left out, with a warning if it is not from a preset.

The flags of version 0.1 `--allow-write`, `--allow-overwrite`, `--allow-delete` and `--allow-dir-rename` still work, and add to what `--allow` says, also from other layers. Turning one off where `--allow` is given is an error.
"#;

/// The page as Markdown.
pub fn configuration_page() -> String {
    let command = MountArgs::augment_args(Command::new("s3mount"));
    let mut page = INTRODUCTION.to_owned();
    presets(&mut page);
    settings(&mut page, &command);
    tools(&mut page, &command);
    page
}

/// Writing to a text can't fail.
macro_rules! line {
    ($page:expr, $($text:tt)*) => { let _ = writeln!($page, $($text)*); };
}

fn presets(page: &mut String) {
    line!(
        page,
        "\n## Presets\n\nEach sets a few flags for a kind of job. The figures are from [PERFORMANCE](PERFORMANCE.md)."
    );
    line!(page, "\n| preset | for | sets | why |\n|---|---|---|---|");
    for preset in Preset::value_variants() {
        let Some(value) = preset.to_possible_value() else { continue };
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        for (index, (name, set, why)) in preset.settings().iter().enumerate() {
            let first = (format!("`{}`", value.get_name()), help.trim_end_matches('.'));
            let (title, help) = if index == 0 { first } else { (String::new(), "") };
            line!(page, "| {title} | {help} | `{name} = \"{set}\"` | {why} |");
        }
    }
}

fn settings(page: &mut String, command: &Command) {
    line!(page, "\n## Settings\n\n[FLAGS](FLAGS.md) says what each does.");
    let mut heading = None;
    // The file can't name another file.
    for (name, arg) in settable(command).filter(|(name, arg)| is_listed(arg) && *name != "config") {
        if heading != Some(arg.get_help_heading()) {
            heading = Some(arg.get_help_heading());
            let title = arg.get_help_heading().unwrap_or("Others");
            line!(
                page,
                "\n### {title}\n\n| in the file | in the environment | takes | default |\n|---|---|---|---|"
            );
        }
        line!(page, "| `{name}` | `{}` | {} | {} |", variable(name), takes(arg), default(arg));
    }
}

/// What a flag takes, for the table.
fn takes(arg: &Arg) -> String {
    if is_switch(arg) {
        return "`true`, `false`".to_owned();
    }
    let values: Vec<_> =
        arg.get_possible_values().iter().map(|value| format!("`{}`", value.get_name())).collect();
    if !values.is_empty() {
        let list = if is_list(arg) { "a list of " } else { "" };
        return format!("{list}{}", values.join(", "));
    }
    let value =
        arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string).unwrap_or_default();
    if is_list(arg) { format!("a list of {value}") } else { value }
}

/// The default of a flag, as its help has it.
fn default(arg: &Arg) -> String {
    if is_switch(arg) {
        return "`false`".to_owned();
    }
    let values: Vec<_> =
        arg.get_default_values().iter().map(|value| format!("`{}`", value.to_string_lossy())).collect();
    if !values.is_empty() {
        return values.join(", ");
    }
    let help = arg.get_help().map(ToString::to_string).unwrap_or_default();
    let said = help.split_once("[default:").and_then(|(_, rest)| rest.split_once(']'));
    said.map_or_else(
        || "none".to_owned(),
        |(default, _)| default.split_whitespace().collect::<Vec<_>>().join(" "),
    )
}

fn tools(page: &mut String, command: &Command) {
    line!(
        page,
        "\n## Coming from another program\n\ns3mount says the same when it is given a flag that it does not have."
    );
    let is_ours = |name: &str| settable(command).any(|(known, arg)| is_listed(arg) && known == name);
    for tool in TOOLS {
        let of_same_name = |differs: bool| {
            let ours = tool.flags.iter().filter(|flag| is_ours(flag.name));
            ours.filter(move |flag| flag.note.is_empty() != differs)
        };
        let same: Vec<_> = of_same_name(false).map(|flag| format!("`--{}`", flag.name)).collect();
        line!(page, "\n### From {}\n", tool.name);
        if !tool.about.is_empty() {
            line!(page, "{}\n", tool.about);
        }
        line!(page, "The same: {}.", same.join(", "));
        line!(page, "\n| {} | s3mount | |\n|---|---|---|", tool.name);
        for flag in of_same_name(true) {
            line!(page, "| `--{}` | the same name | {} |", flag.name, flag.note);
        }
        for flag in tool.flags.iter().filter(|flag| !is_ours(flag.name)) {
            let ours = if flag.ours.is_empty() { "no flag".to_owned() } else { format!("`{}`", flag.ours) };
            line!(page, "| `--{}` | {ours} | {} |", flag.name, flag.note);
        }
    }
}
