//! `s3mount config`: the settings that a mount would have, and where they come from.

use clap::{ArgMatches, CommandFactory};
use s3mount_system::terminal;
use serde_json::{Map, Value, json};

use crate::flags::mount::{MountArgs, optional};
use crate::layers::effective::{Effective, effective, shown};
use crate::layers::origin::Origins;
use crate::resolved::{Config, defaults};

/// The flags of `s3mount config`.
#[derive(Debug, clap::Parser)]
#[command(mut_args(optional))]
pub struct ConfigArgs {
    #[command(flatten)]
    pub(crate) mount: MountArgs,

    /// Print JSON: for each setting its value, the kind of place that it comes from, and the place.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prints all settings.
///
/// # Errors
/// When a value can't be used, as it would fail a mount.
pub fn run(args: &ConfigArgs, matches: &ArgMatches, origins: &Origins) -> anyhow::Result<()> {
    let mount = &args.mount;
    if mount.has_bucket() && mount.places().1.is_some() {
        Config::new(mount)?;
    }
    let Some((_, matches)) = matches.subcommand() else { return Ok(()) };
    let mut settings = effective(&ConfigArgs::command(), matches, origins);
    settings.retain(|setting| setting.name != "json");
    for found in defaults::found(mount)? {
        if let Some(setting) = settings.iter_mut().find(|setting| setting.name == found.name) {
            setting.value = found.value;
            setting.kind = found.kind.to_owned();
            setting.from = found.from;
        }
    }
    terminal::result(&if args.json { json_of(&settings) } else { table(&settings) });
    Ok(())
}

fn json_of(settings: &[Effective]) -> String {
    let one = |setting: &Effective| {
        let Effective { name, value, kind, from } = setting;
        (name.clone(), json!({ "value": value, "source": kind, "from": from }))
    };
    let all: Map<String, Value> = settings.iter().map(one).collect();
    format!("{:#}", Value::Object(all))
}

/// A line for each setting, in columns.
fn table(settings: &[Effective]) -> String {
    let rows: Vec<_> = settings
        .iter()
        .map(|setting| [setting.name.clone(), shown(&setting.value), setting.from.clone()])
        .collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (first, second) = (width(0), width(1).min(40));
    let line = |[name, value, from]: &[String; 3]| format!("{name:first$}  {value:second$}  {from}");
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}
