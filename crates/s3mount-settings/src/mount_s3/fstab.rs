//! The form of mount-s3's command line for /etc/fstab: `mount-s3 BUCKET DIRECTORY -o OPTIONS`, and nothing else. Options have
//! commas between them; a backslash takes the meaning from a comma, a quote or a backslash.

use std::ffi::OsString;

use crate::flags::options::{NO_REMOUNT, REMOUNT};

/// Options that are meant for mount(8) and systemd, or ask for what is so anyway.
const MEANT_FOR_OTHERS: &[&str] =
    &["auto", "noauto", "user", "nouser", "users", "_netdev", "nofail", "rw", "nodev", "nosuid"];

/// Whether a command line, with the program's name, has this form.
pub(super) fn is_line(args: &[OsString]) -> bool {
    args.len() == 5 && args[3] == "-o"
}

/// The same command line with flags.
///
/// # Errors
/// What is wrong with the options.
pub(super) fn expand(args: &[OsString]) -> Result<Vec<OsString>, String> {
    let options = split(&args[4].to_string_lossy())?;
    let has = |name: &str| options.iter().any(|option| option == name);
    if let Some(option) = options.iter().find(|option| option.starts_with('-')) {
        return Err(format!("the option {option:?} begins with a hyphen; write it without"));
    }
    if has("ro") && has("rw") {
        return Err("the options `ro` and `rw` contradict each other; give one".to_owned());
    }
    if has("foreground") {
        return Err("`foreground` is no option: mount(8) would wait for the daemon's end".to_owned());
    }
    if has(REMOUNT) {
        return Err(NO_REMOUNT.to_owned());
    }
    let is_ours = |option: &&String| {
        !(option.is_empty() || MEANT_FOR_OTHERS.contains(&option.as_str()) || option.starts_with("x-"))
    };
    let flag = |option: &String| match option.as_str() {
        "ro" => "--read-only".into(),
        option => format!("--{option}").into(),
    };
    Ok(args[..3].iter().cloned().chain(options.iter().filter(is_ours).map(flag)).collect())
}

/// Splits options at their commas.
fn split(text: &str) -> Result<Vec<String>, String> {
    let (mut options, mut option) = (Vec::new(), String::new());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            ',' => options.push(std::mem::take(&mut option)),
            '"' => return Err(format!("a quote in the options {text:?} needs a backslash before it")),
            '\\' => match characters.next() {
                Some(escaped @ (',' | '"' | '\\')) => option.push(escaped),
                _ => {
                    return Err(format!(
                        "a backslash in the options {text:?} has to be before a comma, a quote or another backslash"
                    ));
                }
            },
            character => option.push(character),
        }
    }
    options.push(option);
    Ok(options)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use super::{expand, is_line, split};

    fn line(options: &str) -> Vec<OsString> {
        ["mount-s3", "b", "/mnt", "-o", options].map(OsString::from).to_vec()
    }

    #[test]
    fn options_become_flags() {
        let options =
            "_netdev,nosuid,nodev,rw,x-systemd.automount,allow-other,cache=/a\\,b,region=eu-west-1,";
        assert!(is_line(&line(options)) && !is_line(&line(options)[..4]));
        let expected = ["mount-s3", "b", "/mnt", "--allow-other", "--cache=/a,b", "--region=eu-west-1"];
        assert_eq!(expand(&line(options)).expect("flags"), expected);
        assert_eq!(expand(&line("ro")).expect("flags"), ["mount-s3", "b", "/mnt", "--read-only"]);
    }

    #[test]
    fn what_it_refuses_is_refused() {
        for options in ["--read-only", "ro,rw", "foreground", "a\"b", "a\\", "\\e"] {
            assert!(expand(&line(options)).is_err(), "{options}");
        }
        let refused = expand(&line("rw,remount")).expect_err("a mount that is to change");
        assert!(refused.contains("unmount it, and mount it anew"), "{refused}");
        assert_eq!(split("a,\\,\\\",\\\\d").expect("options"), ["a", ",\"", "\\d"]);
    }
}
