//! The sessions of a directory bucket.
//!
//! CreateSession gives credentials for some minutes, with which nearly all requests are signed. Their token is a header
//! of its own. The CRT could do so by itself, but it asks for sessions at port 443 of the bucket's host only, and it
//! does not tell why S3 refused one.
//!
//! A session is renewed when a fifth of its time is left. One request waits for the new session, and all others go on
//! with the old one. When a session is over, they all wait for the next.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::lock::Mutex as AsyncMutex;
use mountpoint_s3_crt::auth::credentials::CredentialsProvider;
use s3mount_object::{ErrorKind, ObjectError};

/// How long the last requests of a session may be under way to the store, at most.
const ON_THE_WAY: Duration = Duration::from_secs(5);

/// An answer to a HEAD has no body, so a refusal does not say that it is for the session. A session that is older than
/// this is then replaced. A younger one is not: the caller may have no right to the object.
const MAY_BE_OVER: Duration = Duration::from_secs(10);

/// One session.
#[derive(Clone)]
pub(crate) struct Session {
    /// Signs requests.
    pub(crate) provider: CredentialsProvider,
    pub(crate) token: Arc<str>,
    /// Whether the store has accepted a request of this session.
    was_taken: Arc<AtomicBool>,
    began: Instant,
    renew_at: Instant,
    usable_until: Instant,
}

/// The newest session, and the lock of the request that creates the next.
#[derive(Default)]
pub(crate) struct Sessions {
    newest: Mutex<Option<Session>>,
    pub(crate) creating: AsyncMutex<()>,
}

impl Session {
    /// A session that began at `began` and ends `life` later.
    pub(crate) fn new(provider: CredentialsProvider, token: String, began: Instant, life: Duration) -> Self {
        Self {
            provider,
            token: token.into(),
            was_taken: Arc::default(),
            began,
            renew_at: began + life / 5 * 4,
            usable_until: began + life.saturating_sub(ON_THE_WAY.min(life / 10)),
        }
    }
}

impl Sessions {
    fn lock(&self) -> MutexGuard<'_, Option<Session>> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on this is the newest.
    pub(crate) fn begin(&self, session: Session) {
        *self.lock() = Some(session);
    }

    /// The newest session, if it can still be used at this time.
    pub(crate) fn usable(&self, now: Instant) -> Option<Session> {
        self.lock().clone().filter(|session| now < session.usable_until)
    }

    /// Whether to renew the newest session now. The caller that gets `true` renews it: others get `false` for a while.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        let mut newest = self.lock();
        let Some(session) = newest.as_mut().filter(|session| session.renew_at <= now) else { return false };
        session.renew_at = now + session.usable_until.saturating_duration_since(now) / 4;
        true
    }

    /// Looks at the result of a request that `session` signed. If the store refused the session, the next request
    /// creates another one, and the error says that the request may be sent again.
    pub(crate) fn judge<T>(
        &self,
        session: &Session,
        result: Result<T, ObjectError>,
    ) -> Result<T, ObjectError> {
        if result.is_ok() && !session.was_taken.load(Ordering::Relaxed) {
            session.was_taken.store(true, Ordering::Relaxed);
        }
        result.map_err(|error| {
            let code = error.detail().code.as_deref();
            let is_refused = match error.kind() {
                ErrorKind::BadCredentials => true,
                ErrorKind::Forbidden | ErrorKind::Rejected => {
                    code.is_none() && session.began.elapsed() >= MAY_BE_OVER
                }
                _ => false,
            };
            if !is_refused {
                return error;
            }
            let mut newest = self.lock();
            if newest.as_ref().is_some_and(|newest| newest.token == session.token) {
                *newest = None;
            }
            let is_expired = code == Some("ExpiredToken");
            // If the store takes no request of a new session, it will not take those of the next one either.
            match is_expired || session.was_taken.load(Ordering::Relaxed) {
                true => error.with_kind(ErrorKind::StaleCredentials),
                false => error,
            }
        })
    }
}
