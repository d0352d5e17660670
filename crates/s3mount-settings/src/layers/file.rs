//! Settings from a file: TOML, with the names of the flags.

use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

use clap::{Arg, Command};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::layer::{Setting, Values, flag, is_list, is_switch, settable};
use super::origin::Origin;
use crate::flags::foreign;
use crate::flags::nearest::nearest;

/// The longest file that is read, in bytes. A file of settings has a few hundred.
const MAX_BYTES: u64 = 1 << 20;

/// Reads the text of the file at `path`.
///
/// # Errors
/// Says why it can't be read.
pub(crate) fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let text = std::fs::metadata(path).and_then(|metadata| {
        let is_long = metadata.len() > MAX_BYTES;
        if is_long {
            Err(std::io::Error::other("it is larger than 1 MiB"))
        } else {
            std::fs::read_to_string(path)
        }
    });
    text.map_err(|error| format!("cannot read --config {shown}: {error}"))
}

/// Reads the settings in `text`, which is that of the file at `path`.
///
/// # Errors
/// Says what is wrong, in which line, and what to write instead.
pub(crate) fn parse(command: &Command, path: &Path, text: &str) -> Result<Vec<Setting>, String> {
    let at = |span: Range<usize>| format!("{}:{}", path.display(), line(text, span.start));
    let table = DeTable::parse(text).map_err(|error| {
        let why = error.message().lines().collect::<Vec<_>>().join(", ");
        format!("{}: {why}", at(error.span().unwrap_or(0..0)))
    })?;
    let mut settings: Vec<(usize, Setting)> = Vec::new();
    let mut entries: Vec<_> = table.get_ref().iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    for (key, value) in entries {
        let name = key.get_ref().replace('_', "-");
        let here = line(text, key.span().start);
        let fail = |why: String| format!("{}: {why}", at(key.span()));
        let arg = flag(command, &name).filter(|_| name != "config");
        let arg = arg.ok_or_else(|| fail(unknown(command, &name, value.get_ref())))?;
        // TOML itself refuses the same spelling twice.
        if let Some((first, _)) = settings.iter().find(|(_, setting)| setting.name == name) {
            return Err(fail(format!("{name} is set twice, in line {first} and here")));
        }
        let values = values(arg, &name, value, text).map_err(fail)?;
        let origin = Origin::File { path: path.to_owned(), line: here };
        settings.push((here, Setting { name, values, origin }));
    }
    Ok(settings.into_iter().map(|(_, setting)| setting).collect())
}

/// The number of the line at `offset`.
fn line(text: &str, offset: usize) -> usize {
    1 + text.as_bytes().iter().take(offset).filter(|byte| **byte == b'\n').count()
}

/// What is wrong with a name that is no setting.
fn unknown(command: &Command, name: &str, value: &DeValue<'_>) -> String {
    if matches!(value, DeValue::Table(_)) {
        return format!("[{name}] is a table, and settings have none; write the settings without headings");
    }
    if name == "config" {
        return "config can't be in the file itself; one file is read".to_owned();
    }
    if let Some(why) = foreign::explain(name) {
        return why;
    }
    let near = nearest(name, settable(command).map(|(known, _)| known));
    let near =
        near.map_or_else(|| "; see s3mount config".to_owned(), |near| format!("; did you mean {near}?"));
    format!("unknown setting {name:?}{near}")
}

/// Reads a value as the flag takes it.
fn values(arg: &Arg, name: &str, value: &Spanned<DeValue<'_>>, text: &str) -> Result<Values, String> {
    if is_switch(arg) {
        let is_on = value.get_ref().as_bool();
        return is_on.map(Values::Switch).ok_or_else(|| {
            format!("{name} is a switch: write true or false without quotes, not {}", shown(value, text))
        });
    }
    match value.get_ref() {
        DeValue::Array(parts) if is_list(arg) => {
            let parts = parts.iter().map(|part| one(name, part, text));
            Ok(Values::Texts(parts.collect::<Result<_, _>>()?))
        }
        DeValue::Array(_) => Err(format!("{name} takes one value, not {}", shown(value, text))),
        _ => Ok(Values::Texts(vec![one(name, value, text)?])),
    }
}

/// A text, or a number as it is written: 0o755 stays 0o755.
fn one(name: &str, value: &Spanned<DeValue<'_>>, text: &str) -> Result<OsString, String> {
    match value.get_ref() {
        DeValue::String(text) => Ok(text.as_ref().into()),
        DeValue::Integer(_) | DeValue::Float(_) => Ok(shown(value, text).replace('_', "").into()),
        _ => Err(format!("{name} takes a text in quotes or a number, not {}", shown(value, text))),
    }
}

/// A value as it stands in the file; its beginning, if it is long.
fn shown<'a>(value: &Spanned<DeValue<'_>>, text: &'a str) -> &'a str {
    let shown = text.get(value.span()).unwrap_or_default();
    let end = shown.char_indices().nth(40).map_or(shown.len(), |(at, _)| at);
    shown[..end].lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use super::parse;
    use crate::for_tests::Args;

    fn settings(text: &str) -> Result<Vec<String>, String> {
        let settings = parse(&Args::command(), Path::new("a.toml"), text)?;
        let shown = settings.iter().map(|setting| {
            let flags: Vec<_> =
                setting.flags().iter().map(|flag| flag.to_string_lossy().into_owned()).collect();
            format!("{}: {}", setting.origin, flags.join(" "))
        });
        Ok(shown.collect())
    }

    #[test]
    fn values_become_flags() {
        let text = "# a job\npart-size = \"16MiB\"\nread_only = true\nallow-other = false\nmax-connections = 1_000\n\
                    dir-mode = 0o750\ncache = [\"/a\", \"/b\"]\ndirect-io = 'auto'\nmemory-limit = 1.5\n";
        assert_eq!(
            settings(text).expect("settings"),
            [
                "a.toml:2: --part-size=16MiB",
                "a.toml:3: --read-only",
                "a.toml:4: ",
                "a.toml:5: --max-connections=1000",
                "a.toml:6: --dir-mode=0o750",
                "a.toml:7: --cache=/a --cache=/b",
                "a.toml:8: --direct-io=auto",
                "a.toml:9: --memory-limit=1.5",
            ]
        );
        assert!(settings("").expect("none").is_empty());
    }

    #[test]
    fn errors_name_the_line_and_the_remedy() {
        for (text, expected) in [
            ("\npart-szie = 1", "a.toml:2: unknown setting \"part-szie\"; did you mean part-size?"),
            ("banana = 1", "a.toml:1: unknown setting \"banana\"; see s3mount config"),
            ("uid = 1\nuid = 2", "a.toml:2: duplicate key"),
            ("part-size = 1\n\npart_size = 2", "a.toml:3: part-size is set twice, in line 1 and here"),
            (
                "read-only = \"yes\"",
                "a.toml:1: read-only is a switch: write true or false without quotes, not \"yes\"",
            ),
            ("part-size = true", "a.toml:1: part-size takes a text in quotes or a number, not true"),
            ("part-size = [1]", "a.toml:1: part-size takes one value, not [1]"),
            ("cache = [1979-05-27]", "a.toml:1: cache takes a text in quotes or a number, not 1979-05-27"),
            (
                "\n[memory]\nlimit = 1",
                "a.toml:2: [memory] is a table, and settings have none; write the settings without headings",
            ),
            ("config = \"b\"", "a.toml:1: config can't be in the file itself; one file is read"),
            (
                "memory-target = 512",
                "a.toml:1: --memory-target is a flag of mount-s3; here it is --memory-limit (a hard limit, with a \
                 unit, such as 2GiB)",
            ),
        ] {
            assert_eq!(settings(text).expect_err(text), expected);
        }
        let error = settings("a = 1\nb = [").expect_err("not TOML");
        assert!(error.starts_with("a.toml:"), "{error}");
    }
}
