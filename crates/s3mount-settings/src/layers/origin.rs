//! Where the values of settings come from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The command line.
    Flag,
    /// A variable of the environment, with its name.
    Environment(String),
    /// A line of the file.
    File {
        /// The file, as it was named.
        path: PathBuf,
        /// The number of the line; the first is 1.
        line: usize,
    },
    /// A preset, with its name.
    Preset(String),
    /// Nobody has set it, and it is as mount-s3 has it, by whose name the program was called.
    MountS3,
    /// Nobody has set it.
    Default,
}

impl Origin {
    /// One word for the kind.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Flag => "flag",
            Self::Environment(_) => "environment",
            Self::File { .. } => "file",
            Self::Preset(_) => "preset",
            Self::MountS3 | Self::Default => "default",
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Environment(variable) => f.write_str(variable),
            Self::File { path, line } => write!(f, "{}:{line}", path.display()),
            Self::Preset(name) => write!(f, "preset {name}"),
            Self::MountS3 => f.write_str("the defaults of mount-s3"),
            Self::Default => f.write_str("default"),
        }
    }
}

/// Where each setting comes from that somebody has set, by the name of its flag.
#[derive(Clone, Debug, Default)]
pub struct Origins(pub(crate) BTreeMap<String, Origin>);

impl Origins {
    /// The origin of the setting `name`.
    pub(crate) fn of(&self, name: &str) -> &Origin {
        self.0.get(name).unwrap_or(&Origin::Default)
    }

    /// Where the flags come from that an error names, if they were not given as flags. Who reads `--part-size 3` in
    /// a message, and has given no such flag, learns where to look.
    pub fn explain(&self, error: &str) -> Option<String> {
        let names = |name: &str| {
            error
                .split(&format!("--{name}"))
                .skip(1)
                .any(|rest| !rest.starts_with(|c: char| c == '-' || c.is_alphanumeric()))
        };
        let elsewhere = self.0.iter().filter(|(name, origin)| **origin != Origin::Flag && names(name));
        let said: Vec<_> = elsewhere.map(|(name, origin)| format!("--{name} comes from {origin}")).collect();
        (!said.is_empty()).then(|| said.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::{Origin, Origins};

    #[test]
    fn an_error_is_explained_by_where_its_flags_come_from() {
        let file = Origin::File { path: "a.toml".into(), line: 3 };
        let origins = [("part-size", file), ("uid", Origin::Flag), ("cache", Origin::Preset("p".to_owned()))];
        let origins = Origins(origins.map(|(name, origin)| (name.to_owned(), origin)).into());
        assert_eq!(
            origins.explain("--part-size 3 is bad").as_deref(),
            Some("--part-size comes from a.toml:3")
        );
        assert_eq!(origins.explain("--write-part-size 3, --part-size-x, --uid"), None);
        assert_eq!(origins.of("cache").to_string(), "preset p");
        assert_eq!(origins.of("gid"), &Origin::Default);
    }
}
