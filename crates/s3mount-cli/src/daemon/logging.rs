//! Chooses where the log goes, and starts logging.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixDatagram;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::config::Config;
use crate::config::environment::variable;
use crate::system::terminal;

/// Starts logging: to a file if a log folder is given, else to the terminal in the foreground, else to
/// syslog.
pub(crate) fn start(config: &Config) -> anyhow::Result<()> {
    // When the kernel interrupts a request and does not wait for the answer, fuser logs that as an error.
    // What aws_config warns of, s3mount_credentials says shorter.
    let default = if config.debug {
        "info,s3mount=debug,awscrt=info"
    } else {
        "warn,s3mount=info,fuser::reply=off,aws_config=off"
    };
    let filter = variable("S3MOUNT_LOG").unwrap_or_else(|| default.to_owned());
    let filter = EnvFilter::try_new(&filter)
        .with_context(|| format!("S3MOUNT_LOG={filter:?} is not a log filter; try s3mount=debug"))?;
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false);
    if let Some(directory) = &config.log_directory {
        builder.with_writer(log_file(directory)?).init();
    } else if config.foreground {
        builder.with_writer(io::stderr).without_time().init();
    } else {
        let syslog = Syslog::connect();
        if syslog.0.is_none() {
            terminal::notice(
                "warning: there is no syslog here, so nothing is logged; --log-directory DIR keeps a log",
            );
        }
        builder.with_writer(syslog).without_time().init();
    }
    if config.debug {
        s3mount_crt::init_logging();
    }
    Ok(())
}

fn log_file(directory: &std::path::Path) -> anyhow::Result<Arc<File>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let path = directory.join(format!("s3mount-{now}-{}.log", std::process::id()));
    std::fs::create_dir_all(directory)
        // Other users may write to a folder such as /tmp, so this must not open a file or a link of theirs.
        .and_then(|()| File::options().create_new(true).append(true).mode(0o640).open(&path))
        .map(Arc::new)
        .with_context(|| format!("cannot write the log {}", path.display()))
}

/// The connection to the system's log, if there is one.
#[derive(Clone, Debug)]
struct Syslog(Option<Arc<UnixDatagram>>);

impl Syslog {
    fn connect() -> Self {
        let connect = || -> io::Result<UnixDatagram> {
            let socket = UnixDatagram::unbound()?;
            socket.connect("/dev/log")?;
            // The socket must not block: a log that nobody reads must not delay reads of the mount.
            socket.set_nonblocking(true)?;
            Ok(socket)
        };
        Self(connect().ok().map(Arc::new))
    }
}

impl Write for Syslog {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(socket) = &self.0 {
            // Facility 3 (daemon), severity 6 (info): RFC 3164. The line names its own level.
            let mut message = format!("<30>s3mount[{}]: ", std::process::id()).into_bytes();
            message.extend_from_slice(line.trim_ascii_end());
            // A full or missing log loses lines, but the mount goes on.
            let _ = socket.send(&message);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Syslog {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
