//! Creates the sessions of a directory bucket ([`session`](crate::session)).

use std::time::{Duration, Instant};

use mountpoint_s3_crt::auth::credentials::{CredentialsProvider, CredentialsProviderStaticOptions};
use s3mount_object::{ErrorKind, ObjectError};

use crate::CrtClient;
use crate::request::Call;
use crate::session::{Session, Sessions};
use crate::xml::{NewSession, new_session};

const OPERATION: &str = "CreateSession";

/// These operations are signed with the caller's own credentials (API reference of CopyObject, HeadBucket and
/// UploadPartCopy).
const WITHOUT_SESSION: [&str; 4] = [OPERATION, "HeadBucket", "CopyObject", "UploadPartCopy"];

impl CrtClient {
    /// The session that signs a request, if the bucket has sessions and the operation takes one.
    ///
    /// # Errors
    /// Those of CreateSession.
    pub(crate) async fn session(&self, operation: &str) -> Result<Option<Session>, ObjectError> {
        match &self.sessions {
            Some(sessions) if !WITHOUT_SESSION.contains(&operation) => {
                self.current_session(sessions).await.map(Some)
            }
            Some(_) | None => Ok(None),
        }
    }

    async fn current_session(&self, sessions: &Sessions) -> Result<Session, ObjectError> {
        if let Some(session) = sessions.usable(Instant::now()) {
            if !sessions.is_due(Instant::now()) {
                return Ok(session);
            }
            return Ok(match self.create_session(sessions).await {
                Ok(newer) => newer,
                Err(error) => {
                    tracing::warn!(%error, "the session of the directory bucket is not renewed yet");
                    session
                }
            });
        }
        let _turn = sessions.creating.lock().await;
        // Another request may have created one meanwhile.
        match sessions.usable(Instant::now()) {
            Some(session) => Ok(session),
            None => self.create_session(sessions).await,
        }
    }

    async fn create_session(&self, sessions: &Sessions) -> Result<Session, ObjectError> {
        let (target, began) = (self.bucket.as_str(), Instant::now());
        let path = format!("{}?session", self.endpoint.bucket_path(&[]));
        let call = Call {
            operation: OPERATION,
            target,
            method: "GET",
            path: &path,
            headers: &[],
            body: None,
            describes: false,
        };
        let (answer, body) = self.signer.judge(began, self.call_once(call, None).await)?;
        let odd = |why: String| ObjectError::new(ErrorKind::Integrity, OPERATION, target).with_source(why);
        let NewSession { access_key_id, secret_access_key, token, expires } =
            new_session(&body).map_err(|error| odd(error.to_string()))?;
        // By the store's clock, which tells whole seconds: this machine's may be wrong.
        let now = answer.date.as_deref().and_then(|date| httpdate::parse_http_date(date).ok());
        let now = now.map_or_else(std::time::SystemTime::now, |now| now + Duration::from_secs(1));
        let life = expires.duration_since(now).unwrap_or_default();
        let options = CredentialsProviderStaticOptions {
            access_key_id: &access_key_id,
            secret_access_key: &secret_access_key,
            // The token goes into a header of its own.
            session_token: None,
        };
        let provider = CredentialsProvider::new_static(&self.allocator, options)
            .map_err(|error| odd(error.to_string()))?;
        let session = Session::new(provider, token, began, life);
        tracing::debug!(?life, "a session of the directory bucket begins");
        sessions.begin(session.clone());
        Ok(session)
    }
}
