//! What the programs that the driver starts find in their environment.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context;

use crate::credentials::{CONFIG, Credentials, KEYS, PROFILE};
use crate::files;

/// Variables by which AWS's libraries find credentials. They are the driver's own.
const OF_CREDENTIALS: [&str; 14] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_DEFAULT_PROFILE",
    "AWS_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];

/// Those that name a file, which daemons outside of the driver's container can't see: they get a copy.
const FILES: [&str; 4] = [
    "AWS_CONFIG_FILE",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];

/// The folder of the copies, below the driver's.
const COPIES: &str = "driver";

/// Variables that are handed on: the settings of mounts, and where a network begins.
const HANDED_ON: [&str; 6] = ["AWS_", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "PATH", "S3MOUNT_"];

/// The environment of the programs that a driver starts.
#[derive(Debug)]
pub(crate) struct Environment {
    variables: BTreeMap<String, OsString>,
    /// The driver's files, by the variables that name them.
    files: BTreeMap<&'static str, PathBuf>,
    /// The folder of their copies.
    copies: PathBuf,
}

impl Environment {
    /// That of this process. Daemons see its files only as copies below `dir` if they are elsewhere (`is_elsewhere`).
    pub(crate) fn new(dir: &Path, is_elsewhere: bool) -> Self {
        let named = std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value)));
        let is_handed_on =
            |name: &str| HANDED_ON.iter().any(|begin| name.to_ascii_uppercase().starts_with(begin));
        let mut variables: BTreeMap<String, OsString> =
            named.filter(|(name, _)| is_handed_on(name)).collect();
        let copies = dir.join(COPIES);
        let mut files = BTreeMap::new();
        for name in FILES.into_iter().filter(|_| is_elsewhere) {
            if let Some(path) = variables.get_mut(name) {
                files.insert(name, PathBuf::from(&*path));
                *path = copies.join(name).into();
            }
        }
        Self { variables, files, copies }
    }

    /// The driver's files and what is in them now. To be called where the driver runs.
    ///
    /// # Errors
    /// Names the file that can't be read.
    pub(crate) fn read_files(&self) -> anyhow::Result<Vec<(&'static str, Vec<u8>)>> {
        let read = |(name, path): (&&'static str, &PathBuf)| {
            let bytes = fs::read(path)
                .with_context(|| format!("cannot read {}, which {name} names", path.display()))?;
            Ok((*name, bytes))
        };
        self.files.iter().map(read).collect()
    }

    /// Writes the copies of the driver's files. To be called on the host.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn copy_files(&self, read: &[(&'static str, Vec<u8>)]) -> anyhow::Result<()> {
        files::private_folder(&self.copies)?;
        read.iter().try_for_each(|(name, bytes)| files::write(&self.copies.join(name), bytes))
    }

    /// Gives `command` this environment. It finds `credentials`, whose files are in `dir`, and no others.
    pub(crate) fn give(&self, command: &mut Command, credentials: &Credentials, dir: &Path) {
        let is_own = *credentials == Credentials::Driver;
        let variables = self.variables.iter();
        command.env_clear();
        command.envs(variables.filter(|(name, _)| is_own || !OF_CREDENTIALS.contains(&name.as_str())));
        // Profiles of the machine's own user are nobody's here.
        command.env("HOME", dir);
        if !is_own {
            let path = |name: &str| dir.join(name);
            command.env("AWS_CONFIG_FILE", path(CONFIG)).env("AWS_SHARED_CREDENTIALS_FILE", path(KEYS));
            command.args([OsStr::new("--profile"), OsStr::new(PROFILE)]);
        }
    }
}
