//! The sessions of directory buckets, and which buckets these are.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hyper::header::HeaderMap;

use crate::server::answer::{Refusal, refuse};
use crate::server::request::{credential, header};

/// The class of all objects of a directory bucket.
pub(crate) const STORAGE_CLASS: &str = "EXPRESS_ONEZONE";

const TOKEN: &str = "x-amz-s3session-token";

/// Whether a bucket of this name is a directory bucket.
pub(crate) fn is_directory_bucket(bucket: &str) -> bool {
    bucket.ends_with("--x-s3")
}

/// Whose requests a session lets through, and until when.
#[derive(Debug)]
struct Session {
    bucket: String,
    access_key: String,
    ends: Instant,
}

/// The sessions that were created.
#[derive(Debug)]
pub(crate) struct Sessions {
    by_token: Mutex<BTreeMap<String, Session>>,
    life: Duration,
}

impl Sessions {
    /// Each session is good for `life`.
    pub(crate) fn new(life: Duration) -> Self {
        Self { by_token: Mutex::default(), life }
    }

    /// How long a session is good for.
    pub(crate) fn life(&self) -> Duration {
        self.life
    }

    /// Lets requests to `bucket` through that have this token, and are signed with this key.
    pub(crate) fn begin(&self, bucket: &str, access_key: &str, token: String) {
        let (bucket, access_key) = (bucket.to_owned(), access_key.to_owned());
        self.lock().insert(token, Session { bucket, access_key, ends: Instant::now() + self.life });
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Session>> {
        self.by_token.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets all sessions.
    pub(crate) fn end_all(&self) {
        self.lock().clear();
    }

    /// Refuses a request that no session of its bucket signs.
    pub(crate) fn check(&self, bucket: &str, headers: &HeaderMap) -> Result<(), Refusal> {
        let token = header(headers, TOKEN);
        let (sessions, signer) = (self.lock(), credential(headers).map(|(key, _)| key));
        let is_signed = header(headers, hyper::header::AUTHORIZATION)
            .split("SignedHeaders=")
            .nth(1)
            .and_then(|rest| rest.split(',').next())
            .is_some_and(|names| names.split(';').any(|name| name == TOKEN));
        if token.is_empty() || !is_signed {
            return Err(refuse(403, "AccessDenied", "Access Denied: the request has no session"));
        }
        match sessions.get(token) {
            Some(session) if session.ends <= Instant::now() => {
                Err(refuse(400, "ExpiredToken", "The provided token has expired."))
            }
            Some(session) if session.bucket == bucket && Some(session.access_key.as_str()) == signer => {
                Ok(())
            }
            Some(_) => Err(refuse(403, "AccessDenied", "Access Denied: the session is another one's")),
            None => Err(refuse(400, "InvalidToken", "The provided token is malformed or otherwise invalid.")),
        }
    }
}
