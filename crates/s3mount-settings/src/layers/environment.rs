//! Settings from the environment: `S3MOUNT_PART_SIZE=16MiB`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use clap::Command;

use super::layer::{Setting, Values, flag, is_list, is_switch, settable};
use super::origin::Origin;
use crate::flags::nearest::nearest;

/// What the names of all variables begin with.
pub(crate) const PREFIX: &str = "S3MOUNT_";

/// Variables of that beginning that are no settings: filters of the log, and what tests and builds use.
const NO_SETTINGS: &[&str] = &["S3MOUNT_LOG"];

/// What separates the values of a flag that may be repeated, as in `$PATH`.
const SEPARATOR: u8 = b':';

/// The variables of the environment.
pub type Variables = Vec<(OsString, OsString)>;

/// The variable of the flag `name`.
pub(crate) fn variable(name: &str) -> String {
    format!("{PREFIX}{}", name.replace('-', "_").to_ascii_uppercase())
}

/// The settings that `variables` make. An empty variable is as good as none.
pub(crate) fn read(command: &Command, variables: &Variables) -> Result<Vec<Setting>, String> {
    let mut settings = Vec::new();
    for (name, arg) in settable(command) {
        let variable = variable(name);
        let value = variables.iter().find(|(known, _)| *known == *variable).map(|(_, value)| value);
        let Some(value) = value.filter(|value| !value.is_empty()) else { continue };
        let values =
            if is_switch(arg) {
                Values::Switch(switch(value).ok_or_else(|| {
                    format!("{variable} {value:?}: {name} is a switch; write true or false")
                })?)
            } else if is_list(arg) && arg.get_value_delimiter().is_none() {
                let parts = value.as_bytes().split(|byte| *byte == SEPARATOR).filter(|part| !part.is_empty());
                Values::Texts(parts.map(|part| OsString::from_vec(part.to_vec())).collect())
            } else {
                Values::Texts(vec![value.clone()])
            };
        settings.push(Setting { name: name.to_owned(), values, origin: Origin::Environment(variable) });
    }
    Ok(settings)
}

/// Warnings of variables that look like settings with a wrong letter. Others may be somebody else's: Kubernetes makes
/// `S3MOUNT_SERVICE_HOST` where a service is called s3mount.
pub(crate) fn strangers(command: &Command, variables: &Variables) -> Vec<String> {
    let known: Vec<_> = settable(command).map(|(name, _)| variable(name)).collect();
    let names = variables.iter().filter_map(|(name, _)| name.to_str());
    let strange = names.filter(|name| {
        name.starts_with(PREFIX) && !NO_SETTINGS.contains(name) && !known.iter().any(|known| known == name)
    });
    let near = |name: &str| {
        let near = nearest(name, known.iter().map(String::as_str))?;
        Some(format!("warning: {name} in the environment is no setting; did you mean {near}?"))
    };
    strange.filter_map(near).collect()
}

fn switch(value: &OsStr) -> Option<bool> {
    match value.to_str()?.to_ascii_lowercase().as_str() {
        "1" | "true" | "yes" | "on" => Some(true),
        "0" | "false" | "no" | "off" => Some(false),
        _ => None,
    }
}

/// Whether `name` is a variable that a mount would take as a setting. Commands that mount by themselves, to measure,
/// take these away.
pub fn is_setting(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with(PREFIX) && !NO_SETTINGS.contains(&name))
}

/// Looks at `config` or `preset` alone, before the others.
pub(crate) fn one(command: &Command, variables: &Variables, name: &str) -> Option<(OsString, Origin)> {
    flag(command, name)?;
    let variable = variable(name);
    let (_, value) = variables.iter().find(|(known, _)| *known == *variable)?;
    (!value.is_empty()).then(|| (value.clone(), Origin::Environment(variable)))
}

#[cfg(test)]
mod tests {
    use super::{is_setting, variable};

    #[test]
    fn a_mount_that_measures_takes_no_settings_from_outside() {
        assert_eq!(variable("part-size"), "S3MOUNT_PART_SIZE");
        assert!(is_setting("S3MOUNT_PART_SIZE".as_ref()) && is_setting("S3MOUNT_PRESET".as_ref()));
        assert!(!is_setting("S3MOUNT_LOG".as_ref()) && !is_setting("AWS_REGION".as_ref()));
    }
}
