//! What can go wrong between us and an object store.

use std::error::Error;
use std::fmt;

/// What went wrong, in the kinds that callers treat differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// There is no object at this key.
    NotFound,
    /// There is no such bucket.
    NoSuchBucket,
    /// The store refuses the caller, or a request that nobody signed.
    Forbidden,
    /// There are no credentials to sign with, or they could not be fetched.
    NoCredentials,
    /// The credentials are expired or malformed.
    BadCredentials,
    /// The store refused the credentials, and newer ones may exist by now.
    StaleCredentials,
    /// The object is another version now.
    PreconditionFailed,
    /// The range begins at the end of the object or behind it.
    RangeNotSatisfiable,
    /// The store gives the object no ETag, so its versions can't be told apart.
    NoEtag,
    /// The object is archived and has to be restored before it can be read.
    Archived,
    /// The bucket is in another region. The store may name the region.
    WrongRegion(Option<String>),
    /// The store asks us to slow down.
    Throttled,
    /// The store failed (5xx).
    Server,
    /// The store can't be reached, or the connection broke.
    Network,
    /// TLS could not be agreed on, or the certificate is not trusted.
    Tls,
    /// No answer in time.
    TimedOut,
    /// The answer does not fit the request: its length, its range, or its form is wrong.
    Integrity,
    /// The request was cancelled.
    Cancelled,
    /// The store can't do what the request asks for (501).
    Unsupported,
    /// Another write to the same key is under way (409).
    Conflict,
    /// The upload in parts was completed or aborted, or never begun.
    NoSuchUpload,
    /// The store does not have a part of the upload as it was named, or the part is too small.
    InvalidPart,
    /// The object or the part is longer than the store allows.
    TooLarge,
    /// The store, or the caller's share of it, is full.
    NoSpace,
    /// The store received other bytes than were sent: their checksums differ.
    BadChecksum,
    /// The store refused the request for another reason (4xx).
    Rejected,
}

/// What S3 itself said of an error. Each part may be missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct S3Detail {
    /// HTTP status, if an answer came.
    pub status: Option<u16>,
    /// S3's code, such as `SlowDown`.
    pub code: Option<String>,
    /// S3's message.
    pub message: Option<String>,
    /// `x-amz-request-id`, which AWS support asks for.
    pub request_id: Option<String>,
}

/// A failed request. One pointer wide, because results of reads carry it.
#[derive(Debug)]
pub struct ObjectError(Box<Failure>);

#[derive(Debug)]
struct Failure {
    kind: ErrorKind,
    operation: &'static str,
    target: String,
    detail: S3Detail,
    source: Option<Box<dyn Error + Send + Sync>>,
    had_no_answer: bool,
}

impl ObjectError {
    /// A failure of `operation` (`"GetObject"`) on `target` (a key, or a bucket).
    pub fn new(kind: ErrorKind, operation: &'static str, target: &str) -> Self {
        let (target, detail) = (target.to_owned(), S3Detail::default());
        Self(Box::new(Failure { kind, operation, target, detail, source: None, had_no_answer: false }))
    }

    /// Adds what S3 said.
    #[must_use]
    pub fn with_detail(mut self, detail: S3Detail) -> Self {
        self.0.detail = detail;
        self
    }

    /// Changes the kind, so that callers treat the failure as one of another kind.
    #[must_use]
    pub fn with_kind(mut self, kind: ErrorKind) -> Self {
        self.0.kind = kind;
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// Notes that the client sent the request more than once, and that an earlier attempt had no answer.
    #[must_use]
    pub fn after_lost_answer(mut self) -> Self {
        self.0.had_no_answer = true;
        self
    }

    /// Whether the store may have done what the request asks for, though it failed. A request that the client
    /// has sent twice may have failed because its first attempt was done.
    pub fn may_be_done(&self) -> bool {
        let is_unknown = matches!(
            self.0.kind,
            ErrorKind::Server
                | ErrorKind::Network
                | ErrorKind::TimedOut
                | ErrorKind::Integrity
                | ErrorKind::Cancelled
        );
        is_unknown || self.0.had_no_answer
    }

    /// What went wrong.
    pub fn kind(&self) -> &ErrorKind {
        &self.0.kind
    }

    /// What S3 said.
    pub fn detail(&self) -> &S3Detail {
        &self.0.detail
    }

    /// Whether the same request may succeed a moment later. Missing credentials and failed TLS handshakes
    /// count as such: only a mount that has had an answer before sends requests again, so its credentials
    /// and certificate authorities were good once. A metadata service that is busy for a moment leaves the
    /// client without new credentials while the old ones are still valid.
    pub fn is_retryable(&self) -> bool {
        match self.0.kind {
            ErrorKind::Throttled
            | ErrorKind::Server
            | ErrorKind::Network
            | ErrorKind::TimedOut
            | ErrorKind::NoCredentials
            | ErrorKind::StaleCredentials
            | ErrorKind::Tls
            | ErrorKind::Integrity
            | ErrorKind::BadChecksum => true,
            ErrorKind::NotFound
            | ErrorKind::NoSuchBucket
            | ErrorKind::Forbidden
            | ErrorKind::BadCredentials
            | ErrorKind::PreconditionFailed
            | ErrorKind::RangeNotSatisfiable
            | ErrorKind::NoEtag
            | ErrorKind::Archived
            | ErrorKind::WrongRegion(_)
            | ErrorKind::Cancelled
            | ErrorKind::Unsupported
            | ErrorKind::Conflict
            | ErrorKind::NoSuchUpload
            | ErrorKind::InvalidPart
            | ErrorKind::TooLarge
            | ErrorKind::NoSpace
            | ErrorKind::Rejected => false,
        }
    }
}

impl fmt::Display for ObjectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}: {:?}", self.0.operation, self.0.target, self.0.kind)?;
        let S3Detail { status, code, message, request_id } = &self.0.detail;
        if let Some(status) = status {
            write!(f, ", status {status}")?;
        }
        if let Some(code) = code {
            write!(f, ", {code}")?;
        }
        if let Some(message) = message {
            write!(f, ": {message}")?;
        }
        if let Some(request_id) = request_id {
            write!(f, " (request id {request_id})")?;
        }
        if self.0.kind == ErrorKind::Archived {
            f.write_str("; restore the object before it is read: aws s3api restore-object")?;
        }
        Ok(())
    }
}

impl Error for ObjectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::{ErrorKind, ObjectError, S3Detail};

    #[test]
    fn display_keeps_what_s3_said() {
        let error = ObjectError::new(ErrorKind::Throttled, "GetObject", "a/b").with_detail(S3Detail {
            status: Some(503),
            code: Some("SlowDown".into()),
            message: Some("Please reduce your request rate.".into()),
            request_id: Some("4442587FB7D0A2F9".into()),
        });
        assert_eq!(
            error.to_string(),
            "GetObject \"a/b\": Throttled, status 503, SlowDown: Please reduce your request rate. \
             (request id 4442587FB7D0A2F9)"
        );
        assert!(error.is_retryable());
    }

    #[test]
    fn a_write_may_be_done_if_no_answer_says_that_it_was_not() {
        let error = |kind| ObjectError::new(kind, "PutObject", "k");
        assert!(error(ErrorKind::Network).may_be_done() && error(ErrorKind::Server).may_be_done());
        assert!(!error(ErrorKind::PreconditionFailed).may_be_done());
        assert!(error(ErrorKind::PreconditionFailed).after_lost_answer().may_be_done());
    }
}
