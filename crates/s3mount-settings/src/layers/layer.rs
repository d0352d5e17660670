//! One layer of settings: what the environment, the file or the preset sets.

use std::ffi::{OsStr, OsString};

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Arg, ArgAction, Command};

use super::origin::Origin;

/// The settings that are of this command and not of the mount, or that are read before the others.
const OTHERS: &[&str] = &["help", "version"];

/// The values of one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Values {
    /// Of a switch.
    Switch(bool),
    /// Of any other: one value, or as many as the flag may be repeated.
    Texts(Vec<OsString>),
}

/// One setting of a layer.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// The name of its flag.
    pub(crate) name: String,
    pub(crate) values: Values,
    pub(crate) origin: Origin,
}

/// The flags of `command` that all layers may set.
pub(crate) fn settable(command: &Command) -> impl Iterator<Item = (&str, &Arg)> {
    let named = command.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg)));
    named.filter(|(name, _)| !OTHERS.contains(name))
}

/// Whether pages and tables list the flag: old spellings, and what is meant for `-o`, have no heading in the help.
pub(crate) fn is_listed(arg: &Arg) -> bool {
    arg.get_help_heading().is_some()
}

/// The flag of that name.
pub(crate) fn flag<'a>(command: &'a Command, name: &str) -> Option<&'a Arg> {
    settable(command).find(|(known, _)| *known == name).map(|(_, arg)| arg)
}

/// Whether the flag takes no value.
pub(crate) fn is_switch(arg: &Arg) -> bool {
    !arg.get_action().takes_values()
}

/// Whether the flag may be repeated.
pub(crate) fn is_list(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Append)
}

impl Setting {
    /// A setting with one value.
    pub(crate) fn text(name: &str, value: impl AsRef<OsStr>, origin: Origin) -> Self {
        Self { name: name.to_owned(), values: Values::Texts(vec![value.as_ref().to_owned()]), origin }
    }

    /// The flags that say the same on the command line.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        match &self.values {
            Values::Switch(true) => vec![format!("--{}", self.name).into()],
            Values::Switch(false) => Vec::new(),
            Values::Texts(texts) => texts.iter().map(|text| with_value(&self.name, text)).collect(),
        }
    }

    /// Checks the values as the command line would, so that an error can say where they come from.
    pub(crate) fn check(&self, command: &Command) -> Result<(), String> {
        let Values::Texts(texts) = &self.values else { return Ok(()) };
        for text in texts {
            let args: [OsString; 4] =
                ["s3mount".into(), "bucket".into(), "dir".into(), with_value(&self.name, text)];
            let Err(error) = command.clone().try_get_matches_from(args) else { continue };
            if let Some(why) = why(&error) {
                return Err(format!("{}: {} {text:?}: {why}", self.origin, self.name));
            }
        }
        Ok(())
    }
}

fn with_value(name: &str, value: &OsStr) -> OsString {
    let mut flag = OsString::from(format!("--{name}="));
    flag.push(value);
    flag
}

/// What is wrong with a value. `None` if the error is not about the value: about flags that it needs besides.
fn why(error: &clap::Error) -> Option<String> {
    match error.kind() {
        ErrorKind::ValueValidation => {
            let source = std::error::Error::source(error).map(ToString::to_string);
            Some(source.unwrap_or_else(|| "is not a value of it".to_owned()))
        }
        ErrorKind::InvalidValue => {
            let values = match error.get(ContextKind::ValidValue) {
                Some(ContextValue::Strings(values)) => values.join(", "),
                _ => String::new(),
            };
            let near = match error.get(ContextKind::SuggestedValue) {
                Some(ContextValue::String(value)) => format!("; did you mean {value}?"),
                _ => String::new(),
            };
            Some(if values.is_empty() {
                "needs a value".to_owned()
            } else {
                format!("not one of {values}{near}")
            })
        }
        ErrorKind::InvalidUtf8 => Some("not UTF-8".to_owned()),
        _ => None,
    }
}
