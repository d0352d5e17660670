//! Chooses where the log goes, and starts logging.

pub(super) mod file;
mod folding;

use std::fs::DirBuilder;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use anyhow::Context;
use nix::unistd::geteuid;
use s3mount_settings::flags::mount::LogFormat;
use s3mount_settings::resolved::environment::variable;
use s3mount_settings::resolved::{Config, journal};
use s3mount_system::{logs, terminal};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};

use self::file::LogFile;
use self::folding::Folding;

/// The socket of the system's log.
const SYSLOG: &str = "/dev/log";

/// Whether a text is a filter of the log.
pub(crate) fn is_filter(text: &str) -> bool {
    EnvFilter::try_new(text).is_ok()
}

/// Starts logging: to a file if a log folder is given, else to the terminal in the foreground, else to
/// syslog, and to a file in the user's folder for state where there is none.
pub(crate) fn start(config: &Config) -> anyhow::Result<()> {
    // When the kernel interrupts a request and does not wait for the answer, fuser logs that as an error.
    // What aws_config warns of, s3mount_credentials says shorter.
    let default = if config.debug {
        "info,s3mount=debug,awscrt=info"
    } else {
        "warn,s3mount=info,fuser::reply=off,aws_config=off"
    };
    let given = variable("S3MOUNT_LOG");
    let folding = (given.is_none() && !config.debug).then(Folding::default);
    let filter = given.unwrap_or_else(|| default.to_owned());
    let filter = EnvFilter::try_new(&filter)
        .with_context(|| format!("S3MOUNT_LOG={filter:?} is not a log filter; try s3mount=debug"))?;
    // A file in which nothing will be is not begun.
    let is_off = filter.max_level_hint() == Some(LevelFilter::OFF);
    let sink = if is_off { Sink::Nowhere } else { sink(config)? };
    let is_terminal = matches!(sink, Sink::Terminal);
    let format = config.log_format;
    let log = Log(Arc::new(Mutex::new(Lines { sink, format, folding })));
    let log =
        tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).without_time().with_writer(log);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => {
            log.json().flatten_event(true).with_current_span(false).with_span_list(false).init();
        }
    }
    if !is_terminal {
        log_panics();
    }
    if config.debug {
        s3mount_crt::init_logging();
    }
    Ok(())
}

/// Has panics of all threads logged, too: a daemon has closed its standard error.
fn log_panics() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name");
        tracing::error!(thread, "this is a fault of s3mount: {panic}");
        usual(panic);
    }));
}

/// Where the log goes.
#[derive(Debug)]
enum Sink {
    File(LogFile),
    Terminal,
    Syslog(UnixDatagram),
    Nowhere,
}

fn sink(config: &Config) -> anyhow::Result<Sink> {
    if let Some(directory) = &config.log_directory {
        let file = LogFile::begin(directory)
            .with_context(|| format!("cannot write a log in the folder {}", directory.display()))?;
        return Ok(Sink::File(file));
    }
    if config.foreground {
        return Ok(Sink::Terminal);
    }
    if let Ok(socket) = syslog(Path::new(SYSLOG)) {
        return Ok(Sink::Syslog(socket));
    }
    let file = journal::log_directory().and_then(|directory| {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&directory);
        let file = made.and_then(|()| check(&directory)).and_then(|()| LogFile::begin(&directory));
        let file = file.with_context(|| directory.display().to_string())?;
        logs::tidy(&directory);
        Ok(file)
    });
    match file {
        Ok(file) => {
            terminal::notice(&format!("there is no syslog here; the log is {}", file.path().display()));
            Ok(Sink::File(file))
        }
        Err(error) => {
            terminal::notice(&format!(
                "warning: there is no syslog here, and no log in {error:#}, so nothing is logged; \
                 --log-directory DIR keeps a log"
            ));
            Ok(Sink::Nowhere)
        }
    }
}

/// Checks the folder that is used by default. In a folder of somebody else, root's daemon would delete and make files
/// where a link of his leads.
fn check(directory: &Path) -> io::Result<()> {
    let there = directory.symlink_metadata()?;
    if there.is_dir() && there.uid() == geteuid().as_raw() && there.mode() & 0o022 == 0 {
        return Ok(());
    }
    let text = "it must be a folder of your own that nobody else may write to";
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}

/// A socket for messages to the system's log, if there is one. It has no peer: a log that is started anew has a new
/// socket.
fn syslog(path: &Path) -> io::Result<UnixDatagram> {
    UnixDatagram::unbound()?.connect(path)?;
    let socket = UnixDatagram::unbound()?;
    // The socket must not block: a log that nobody reads must not delay reads of the mount.
    socket.set_nonblocking(true)?;
    Ok(socket)
}

impl Sink {
    /// Adds a line. That of a text has no time yet.
    fn add(&mut self, line: &str, format: LogFormat) {
        match self {
            Self::File(file) => match format {
                // What can't be written is lost, and the mount goes on.
                LogFormat::Text => drop(file.add(format!("{} {line}\n", now()).as_bytes())),
                LogFormat::Json => drop(file.add(format!("{line}\n").as_bytes())),
            },
            Self::Terminal => drop(writeln!(io::stderr(), "{line}")),
            Self::Syslog(socket) => {
                // Facility 3 (daemon), severity 6 (info): RFC 3164. The line names its own level.
                let message = format!("<30>s3mount[{}]: {line}", std::process::id());
                // A full or missing log loses lines, but the mount goes on.
                let _ = socket.send_to(message.as_bytes(), SYSLOG);
            }
            Self::Nowhere => {}
        }
    }
}

/// The time, as it stands in the log.
fn now() -> String {
    let mut text = String::new();
    // A String takes all that is written.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

/// A line that has come `count` times, as it is written. An object of JSON has the time in it.
fn written(line: &str, count: u64, format: LogFormat) -> String {
    match format {
        LogFormat::Text if count == 1 => line.to_owned(),
        LogFormat::Text => format!("{line} ({count} times so far)"),
        LogFormat::Json => {
            let members = line.trim_start_matches('{').trim_end_matches('}');
            let times = if count == 1 { String::new() } else { format!(",\"times\":{count}") };
            format!("{{\"timestamp\":\"{}\",{members}{times}}}", now())
        }
    }
}

/// The lines of the log on their way to where they go.
#[derive(Debug)]
struct Lines {
    sink: Sink,
    format: LogFormat,
    /// Unset where each line is wanted.
    folding: Option<Folding>,
}

/// The log. Cheap to clone.
#[derive(Clone, Debug)]
struct Log(Arc<Mutex<Lines>>);

impl Write for Log {
    /// Takes one line.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let Lines { sink, format, folding } = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(line.trim_ascii_end());
        // Names may hold what changes a terminal.
        let text = match format {
            LogFormat::Text => terminal::plain(&text),
            LogFormat::Json => terminal::plain_json(&text),
        };
        if let Some(count) = folding.as_mut().map_or(Some(1), |folding| folding.note(&text, Instant::now())) {
            sink.add(&written(&text, count, *format), *format);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::os::unix::net::UnixDatagram;
    use std::panic::catch_unwind;
    use std::sync::{Arc, Mutex};

    use s3mount_settings::flags::mount::LogFormat;

    use s3mount_system::terminal;

    use super::{log_panics, syslog, written};

    /// Keeps what is written.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no panic").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_panic_is_logged() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(log, || {
            log_panics();
            catch_unwind(|| panic!("injected")).expect_err("a panic");
        });
        let text = String::from_utf8_lossy(&kept.0.lock().expect("no panic")).into_owned();
        assert!(text.contains("injected") && text.contains("logging.rs"), "{text}");
    }

    #[test]
    fn each_line_of_json_is_an_object() {
        let kept = Kept::default();
        let writer = kept.clone();
        let log = tracing_subscriber::fmt().json().flatten_event(true).without_time();
        let log = log.with_writer(move || writer.clone()).finish();
        tracing::subscriber::with_default(log, || tracing::warn!(key = "a\"}\u{1b}\u{9b}", "failed"));
        let text = String::from_utf8_lossy(&kept.0.lock().expect("no panic")).into_owned();
        for (count, times) in [(1, None), (100, Some(100))] {
            let line = written(&terminal::plain_json(text.trim_end()), count, LogFormat::Json);
            let object: serde_json::Value = serde_json::from_str(&line).expect("an object");
            assert_eq!(object["key"], "a\"}\u{1b}\u{9b}");
            assert_eq!((&object["level"], &object["message"]), (&"WARN".into(), &"failed".into()));
            assert!(object["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");
            assert_eq!(object["times"].as_u64(), times);
            assert!(!line.contains(|character: char| character.is_control()), "{line}");
        }
    }

    #[test]
    fn a_syslog_that_is_started_anew_gets_the_next_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("log");
        assert!(syslog(&path).is_err(), "there is none");
        let first = UnixDatagram::bind(&path).expect("a log");
        let socket = syslog(&path).expect("a socket");
        drop(first);
        std::fs::remove_file(&path).expect("a file");
        let second = UnixDatagram::bind(&path).expect("a log");
        socket.send_to(b"line", &path).expect("a message");
        let mut heard = [0; 9];
        assert_eq!(second.recv(&mut heard).expect("a message"), 4);
    }
}
