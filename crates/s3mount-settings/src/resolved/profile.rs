//! Reads the profiles of `~/.aws`: the region, and where credentials come from. Whoever finds the credentials reads
//! them again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::resolved::environment::{self, variable};

/// The variables and files that say which credentials there are.
#[derive(Clone, Copy)]
pub struct Aws<'a> {
    /// The value of a variable that is set and not empty.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The text of a file that can be read.
    pub read: &'a dyn Fn(&Path) -> Option<String>,
}

impl Aws<'_> {
    /// Those of this process.
    pub fn here() -> Self {
        Self { variable: &environment::variable, read: &|path| std::fs::read_to_string(path).ok() }
    }

    /// The config file and the credentials file.
    pub(crate) fn files(&self) -> [PathBuf; 2] {
        let home = PathBuf::from((self.variable)("HOME").unwrap_or_default());
        let file = |name, default| (self.variable)(name).map_or_else(|| home.join(default), PathBuf::from);
        [file("AWS_CONFIG_FILE", ".aws/config"), file("AWS_SHARED_CREDENTIALS_FILE", ".aws/credentials")]
    }

    /// What both files say of a profile.
    pub fn settings(&self, profile: &str) -> BTreeMap<String, String> {
        let [config, keys] = self.files().map(|file| (self.read)(&file).unwrap_or_default());
        let mut settings = section(&config, profile, Form::Config);
        settings.extend(section(&keys, profile, Form::Credentials));
        settings
    }
}

/// The region of the profile that the flag names, or `$AWS_PROFILE`, or of the profile `default`.
pub(crate) fn region(flag: Option<&str>) -> Option<String> {
    let file = variable("AWS_CONFIG_FILE")
        .map(PathBuf::from)
        .or_else(|| variable("HOME").map(|home| PathBuf::from(home).join(".aws/config")))?;
    region_in(&std::fs::read_to_string(file).ok()?, &name(flag))
}

/// The name of the profile that the flag or the environment names, else `default`.
pub(crate) fn name(flag: Option<&str>) -> String {
    flag.map(str::to_owned).or_else(|| variable("AWS_PROFILE")).unwrap_or_else(|| "default".to_owned())
}

/// Which of the files of `~/.aws` a text is from: they name their sections differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `config`: the section of a profile is `[profile NAME]`, and that of the default profile `[default]`.
    Config,
    /// `credentials`: the section is `[NAME]`.
    Credentials,
}

fn region_in(text: &str, profile: &str) -> Option<String> {
    section(text, profile, Form::Config).remove("region").filter(|region| !region.is_empty())
}

/// The settings in the section of a profile. An indented line belongs to the setting above it, and is left out.
fn section(text: &str, profile: &str, form: Form) -> BTreeMap<String, String> {
    let mut is_here = false;
    let mut found = BTreeMap::new();
    for line in text.lines() {
        if let Some(section) = line.strip_prefix('[') {
            is_here = profile_of(section.split(']').next().unwrap_or_default().trim(), form) == Some(profile);
        } else if is_here
            && !line.starts_with([' ', '\t', '#', ';'])
            && let Some((key, value)) = line.split_once('=')
        {
            found.insert(key.trim().to_owned(), plain(value));
        }
    }
    found
}

/// The name of the profile that a section describes. `None` for a section that describes no profile.
fn profile_of(section: &str, form: Form) -> Option<&str> {
    match section.strip_prefix("profile") {
        _ if form == Form::Credentials => Some(section),
        Some(name) if name.starts_with([' ', '\t']) => Some(name.trim().trim_matches(['"', '\''])),
        _ => (section == "default").then_some(section),
    }
}

/// The value without the comment after it.
fn plain(value: &str) -> String {
    let comment = [" #", " ;", "\t#", "\t;"].iter().filter_map(|mark| value.find(mark)).min();
    value[..comment.unwrap_or(value.len())].trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::region_in;

    const CONFIG: &str = "\
# region = no
[default]
region = eu-west-1 ; ours
s3 =
  region = nested
[profile train]
output=json
region=us-west-2
[profile \"two words\"]
region = ap-south-1
[sso-session train]
region = never
[profile bare]
output = json
";

    #[test]
    fn finds_the_region_of_a_profile() {
        for (profile, region) in [
            ("default", Some("eu-west-1")),
            ("train", Some("us-west-2")),
            ("two words", Some("ap-south-1")),
            ("bare", None),
            ("absent", None),
        ] {
            assert_eq!(region_in(CONFIG, profile).as_deref(), region, "{profile}");
        }
    }
}
