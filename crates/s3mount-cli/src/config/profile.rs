//! Reads the region that a profile of `~/.aws/config` names. It is the only setting of the profile that the
//! CRT does not read by itself.

use std::path::PathBuf;

use crate::config::environment::variable;

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

/// Reads `region` in the section `[profile NAME]`. The section of the default profile is `[default]`, without
/// the word `profile`. An indented line belongs to the setting above it.
fn region_in(text: &str, profile: &str) -> Option<String> {
    let mut is_here = false;
    let mut found = None;
    for line in text.lines() {
        if let Some(section) = line.strip_prefix('[') {
            is_here = profile_of(section.split(']').next().unwrap_or_default().trim()) == Some(profile);
        } else if is_here && !line.starts_with([' ', '\t', '#', ';']) {
            match line.split_once('=') {
                Some((key, value)) if key.trim() == "region" => found = Some(plain(value)),
                _ => {}
            }
        }
    }
    found.filter(|region| !region.is_empty())
}

/// The name of the profile that a section describes. `None` for a section that describes no profile.
fn profile_of(section: &str) -> Option<&str> {
    match section.strip_prefix("profile") {
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
