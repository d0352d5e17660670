//! Sends the CRT's log lines to `tracing`, as events with the target `awscrt`.
//!
//! At its info level the CRT logs what it signs: the canonical request with the session token, and the
//! authorization header. So the CRT's components that handle credentials may log warnings only. A line that
//! names such a header is dropped, whichever component wrote it. The CRT's trace level logs bodies, so it is
//! never on.

use mountpoint_s3_crt::common::allocator::Allocator;
use mountpoint_s3_crt::common::logging::{Level, Logger, LoggerImpl, Subject};
use tracing::level_filters::LevelFilter;

/// Sends the CRT's log lines to `tracing`, under the target `awscrt`, and leaves credentials out. This is
/// meant for `--debug`: it makes every request slower. Call it after the subscriber is set; a second call
/// changes nothing.
pub fn init_logging() {
    if Logger::new(&Allocator::default(), ToTracing).try_init().is_err() {
        tracing::debug!("the CRT has a logger already");
    }
}

struct ToTracing;

impl LoggerImpl for ToTracing {
    fn log(&self, level: Level, subject: Subject, message: &str) {
        if is_secret(message) {
            return;
        }
        let subject = subject.name();
        // The CRT often logs an error for a request that it then retries.
        match level {
            Level::Fatal => tracing::error!(target: "awscrt", "{subject}: {message}"),
            Level::Error | Level::Warn => tracing::warn!(target: "awscrt", "{subject}: {message}"),
            Level::Info => tracing::info!(target: "awscrt", "{subject}: {message}"),
            Level::None | Level::Debug | Level::Trace => {
                tracing::debug!(target: "awscrt", "{subject}: {message}");
            }
        }
    }

    fn get_log_level(&self, subject: Subject) -> Level {
        level_of(subject.name(), wanted())
    }
}

/// The most detailed level of the CRT's lines that the subscriber takes. The CRT does not even format lines
/// with more detail.
fn wanted() -> LevelFilter {
    if tracing::enabled!(target: "awscrt", tracing::Level::DEBUG) {
        LevelFilter::DEBUG
    } else if tracing::enabled!(target: "awscrt", tracing::Level::INFO) {
        LevelFilter::INFO
    } else if tracing::enabled!(target: "awscrt", tracing::Level::WARN) {
        LevelFilter::WARN
    } else {
        LevelFilter::OFF
    }
}

/// The most detailed level at which the CRT's `subject` may log.
fn level_of(subject: &str, wanted: LevelFilter) -> Level {
    if wanted == LevelFilter::OFF {
        Level::None
    } else if subject == "http-stream" {
        // Errors of this subject quote what a server sent, which may not be valid text. The binding to the
        // logger ends the process at such a line.
        Level::Fatal
    } else if wanted < LevelFilter::INFO || subject.to_ascii_lowercase().contains("auth") {
        Level::Warn
    } else if wanted < LevelFilter::DEBUG {
        Level::Info
    } else {
        Level::Debug
    }
}

fn is_secret(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    ["authorization", "x-amz-security-token", "x-amz-s3session-token", "secret"]
        .iter()
        .any(|word| message.contains(word))
}

#[cfg(test)]
mod tests {
    use mountpoint_s3_crt::common::logging::Level;
    use tracing::level_filters::LevelFilter;

    use super::{is_secret, level_of};

    #[test]
    fn signing_is_not_told() {
        assert_eq!(level_of("AuthSigning", LevelFilter::TRACE), Level::Warn);
        assert_eq!(level_of("AuthCredentialsProvider", LevelFilter::DEBUG), Level::Warn);
        assert_eq!(level_of("S3MetaRequest", LevelFilter::TRACE), Level::Debug);
        assert_eq!(level_of("S3MetaRequest", LevelFilter::INFO), Level::Info);
        assert_eq!(level_of("S3MetaRequest", LevelFilter::OFF), Level::None);
        assert!(is_secret("Authorization:AWS4-HMAC-SHA256 Credential=AKIA"));
        assert!(!is_secret("id=0x7f: connection acquired"));
    }
}
