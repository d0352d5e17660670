//! `-o a,b=c`: the flags in the spelling of mount(8) and of fstab.

use std::ffi::OsString;

/// Options that mount(8) or fstab means for itself, or that say what s3mount does anyway.
const MEANT_FOR_OTHERS: &[&str] = &[
    "_netdev",
    "async",
    "atime",
    "auto",
    "defaults",
    "dev",
    "diratime",
    "exec",
    "group",
    "noatime",
    "noauto",
    "nodev",
    "nodiratime",
    "nofail",
    "nosuid",
    "nouser",
    "owner",
    "relatime",
    "ro",
    "user",
    "users",
];

/// Turns each `-o` into the flags it names. What is no flag is left for the parser to refuse.
pub(crate) fn expand(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut expanded = Vec::new();
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let options = match arg.to_str() {
            Some("-o") => args.next(),
            Some(text) if text.starts_with("-o") => Some(OsString::from(&text[2..])),
            _ => None,
        };
        match options.as_ref().and_then(|options| options.to_str()) {
            Some(options) => expanded.extend(options.split(',').filter_map(flag)),
            None => expanded.push(arg),
        }
    }
    expanded
}

fn flag(option: &str) -> Option<OsString> {
    let (name, value) = option.split_once('=').map_or((option, None), |(name, value)| (name, Some(value)));
    if name.is_empty() || name.starts_with("x-") || name == "comment" || MEANT_FOR_OTHERS.contains(&name) {
        return None;
    }
    let name = name.replace('_', "-");
    Some(value.map_or_else(|| format!("--{name}"), |value| format!("--{name}={value}")).into())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::expand;

    #[test]
    fn options_become_flags() {
        let args = [
            "s3mount",
            "b",
            "d",
            "-o",
            "ro,_netdev,allow_other,part_size=4MiB,x-systemd.automount",
            "-odebug",
        ];
        let expanded = expand(args.map(OsString::from));
        assert_eq!(expanded, ["s3mount", "b", "d", "--allow-other", "--part-size=4MiB", "--debug"]);
    }
}
