//! The programs that a driver runs: s3mount itself, which mounts, unmounts, and makes and deletes volumes.

use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io::{self, Read, Seek as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, bail};
use s3mount_system::logs;
use sha2::{Digest as _, Sha256};
use tempfile::NamedTempFile;

use crate::credentials::{Credentials, Given};
use crate::environment::Environment;
use crate::files;
use crate::host::{Group, Host};
use crate::words;

/// The folder of the program that daemons run, below the driver's.
const PROGRAMS: &str = "bin";

/// The exit code of a program whose command line makes no sense to it.
const USAGE: i32 = 2;

/// How daemons and tools are started.
#[derive(Debug)]
pub(crate) struct Programs {
    /// This program, or the copy of it on the host.
    path: PathBuf,
    /// The folders of all logs and of all journals.
    logs: PathBuf,
    journals: PathBuf,
    environment: Environment,
}

impl Programs {
    /// On a host other than where the driver runs, the program is copied to it, below `dir`.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn install(host: &Host, dir: &Path) -> anyhow::Result<Self> {
        let is_elsewhere = matches!(host, Host::Namespaces(_));
        let environment = Environment::new(dir, is_elsewhere);
        let this = std::env::current_exe().context("cannot find out which program this is")?;
        let (logs, journals) = (dir.join("log"), dir.join("journal"));
        if !is_elsewhere {
            return Ok(Self { path: this, logs, journals, environment });
        }
        // By its path it could be another one by now.
        let program =
            File::open("/proc/self/exe").with_context(|| format!("cannot read {}", this.display()))?;
        let folder = dir.join(PROGRAMS);
        let path = folder.join("s3mount");
        host.run(|| {
            files::private_folder(&folder)?;
            // The program is larger than the memory that a driver needs otherwise.
            let install = |mut program: File| {
                if File::open(&path).and_then(digest).ok() == Some(digest(&program)?) {
                    return Ok(());
                }
                program.rewind()?;
                let mut new = NamedTempFile::new_in(&folder)?;
                io::copy(&mut program, &mut new)?;
                new.as_file().set_permissions(Permissions::from_mode(0o755))?;
                new.as_file().sync_all()?;
                new.persist(&path)?;
                anyhow::Ok(())
            };
            install(program).with_context(|| format!("cannot install {}", path.display()))
        })?;
        let programs = Self { path, logs, journals, environment };
        programs.copy_files(host)?;
        Ok(programs)
    }

    /// The program that daemons run.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the daemons on the host what is in the files of the driver's own credentials now.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn copy_files(&self, host: &Host) -> anyhow::Result<()> {
        let read = self.environment.read_files()?;
        if read.is_empty() {
            return Ok(());
        }
        host.run(|| self.environment.copy_files(&read))
    }

    /// Mounts `source` at `folder`, with the files of the mount in `dir`. Returns when the mount answers.
    ///
    /// # Errors
    /// What the program says.
    pub(crate) fn mount(
        &self,
        (source, folder): (&str, &Path),
        flags: &[String],
        (credentials, dir): (&Credentials, &Path),
        group: Option<&Group>,
    ) -> anyhow::Result<()> {
        let mut command = Command::new(&self.path);
        command.arg(source).arg(folder).args(flags).args(["--allow-other", "--keep-alive"]);
        command.arg("--log-directory").arg(&self.logs);
        // A mount that only reads takes none.
        if flags.iter().any(|flag| flag.starts_with("--allow")) {
            command.arg("--journal").arg(&self.journals);
        }
        self.environment.give(&mut command, credentials, dir);
        if let Some(group) = group {
            group.join(&mut command).context("cannot join the control group of the volume")?;
        }
        let mounted = run_for_volume(&mut command).map(drop);
        // Each daemon, and each that could not mount, leaves one.
        logs::tidy(&self.logs);
        mounted
    }

    /// Unmounts `folder`. Returns when the mount is gone.
    ///
    /// # Errors
    /// What the program says.
    pub(crate) fn umount(&self, folder: &Path) -> anyhow::Result<()> {
        run(Command::new(&self.path).arg("umount").arg(folder)).map(drop)
    }

    /// Has the daemon of the mount at `folder` replaced by this program.
    ///
    /// # Errors
    /// What the program says.
    pub(crate) fn upgrade(&self, folder: &Path) -> anyhow::Result<()> {
        run(Command::new(&self.path).arg("upgrade").arg(folder)).map(drop)
    }

    /// Runs `s3mount volume` with `args`, and returns what it prints. The files of the credentials are in a folder of
    /// their own in `dir` meanwhile.
    ///
    /// # Errors
    /// What the program says.
    pub(crate) fn volume(
        &self,
        args: impl IntoIterator<Item: AsRef<OsStr>>,
        (credentials, given): (&Credentials, &Given),
        dir: &Path,
    ) -> anyhow::Result<String> {
        let folder = files::temporary_folder(dir).context("cannot make a folder for credentials")?;
        for (name, text) in given.files(folder.path()) {
            files::write(&folder.path().join(name), text.as_bytes())?;
        }
        let mut command = Command::new(&self.path);
        command.arg("volume").args(args);
        self.environment.give(&mut command, credentials, folder.path());
        run_for_volume(&mut command)
    }
}

/// The SHA-256 of what is in a file from where it is read.
fn digest(mut file: impl Read) -> io::Result<[u8; 32]> {
    let mut hasher = Sha256::new();
    io::copy(&mut file, &mut hasher)?;
    Ok(hasher.finalize().into())
}

/// Runs a program to its end, and returns what it prints.
fn run(command: &mut Command) -> anyhow::Result<String> {
    let output = output(command)?;
    if !output.status.success() {
        bail!("{}", said(&output));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The same for a program whose arguments are those of a volume. What it says is told in words of a volume.
fn run_for_volume(command: &mut Command) -> anyhow::Result<String> {
    let output = output(command)?;
    match output.status.code() {
        Some(0) => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Some(USAGE) => Err(words::of_usage(&said(&output)).into()),
        _ => match words::of_failure(&said(&output)) {
            Ok(refused) => Err(refused.into()),
            Err(text) => bail!("{text}"),
        },
    }
}

fn output(command: &mut Command) -> anyhow::Result<Output> {
    let output = command.current_dir("/").stdin(Stdio::null()).output();
    output.with_context(|| {
        let program = command.get_program().display();
        format!("cannot start {program}; where its file system is mounted noexec, name another folder by --state-dir")
    })
}

/// What a program that failed has said.
fn said(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    match said.trim().trim_start_matches("s3mount: ") {
        "" => format!("s3mount has ended with {}", output.status),
        said => said.to_owned(),
    }
}
