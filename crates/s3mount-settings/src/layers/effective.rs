//! The values of all settings, as a command line with its layers has them.

use std::ffi::OsStr;

use clap::{Arg, ArgMatches, Command};
use serde_json::Value;

use super::layer::{is_list, is_listed, is_switch, settable};
use super::origin::{Origin, Origins};

/// One setting.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Effective {
    /// The name of its flag.
    pub(crate) name: String,
    /// `true` or `false` for a switch, a list for a flag that may be repeated, else a text; null if it has none.
    pub(crate) value: Value,
    /// One word for the kind of the place that the value comes from.
    pub(crate) kind: String,
    /// Where it comes from, as a person may look it up.
    pub(crate) from: String,
}

/// The values of all settings of `command` that pages list or that are set, in the order of the help.
pub(crate) fn effective(command: &Command, matches: &ArgMatches, origins: &Origins) -> Vec<Effective> {
    let one = |(name, arg): (&str, &Arg)| {
        let origin = origins.of(name);
        let (kind, from) = (origin.kind().to_owned(), origin.to_string());
        Effective { name: name.to_owned(), value: value(arg, matches), kind, from }
    };
    let is_set = |name: &str| !matches!(origins.of(name), Origin::Default);
    settable(command).filter(|(name, arg)| is_listed(arg) || is_set(name)).map(one).collect()
}

fn value(arg: &Arg, matches: &ArgMatches) -> Value {
    let id = arg.get_id().as_str();
    if is_switch(arg) {
        return matches.get_flag(id).into();
    }
    let text = |text: &OsStr| Value::from(text.to_string_lossy());
    let mut values = matches.get_raw(id).into_iter().flatten().map(text);
    if is_list(arg) { values.collect() } else { values.next().unwrap_or_default() }
}

/// A value as a person reads it.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) if text.is_empty() => "\"\"".to_owned(),
        Value::String(text) => text.clone(),
        Value::Array(values) if values.is_empty() => "-".to_owned(),
        Value::Array(values) => values.iter().map(shown).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}
