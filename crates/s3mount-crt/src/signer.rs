//! The credentials that sign requests, and what happens when the store refuses them.
//!
//! The CRT's providers keep the credentials that they found for up to 15 minutes, and have no call to look
//! for them again. So when the store refuses credentials, a new provider replaces the old one. The new
//! provider reads the files, the environment and the metadata services again.
//!
//! The CRT's crate lets nobody write a provider. So the keys of a [`CredentialSource`](crate::CredentialSource)
//! are put into a provider of constant keys, which is replaced whenever the source has others.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use mountpoint_s3_crt::auth::credentials::{
    CredentialsProvider, CredentialsProviderChainDefaultOptions, CredentialsProviderProfileOptions,
    CredentialsProviderStaticOptions,
};
use mountpoint_s3_crt::auth::signing_config::{SigningAlgorithm, SigningConfig};
use mountpoint_s3_crt::common::allocator::Allocator;
use mountpoint_s3_crt::common::error::Error as CrtError;
use mountpoint_s3_crt::io::tls::TlsContext;
use mountpoint_s3_crt::s3::client::init_signing_config;
use s3mount_object::{ErrorKind, ObjectError};

use crate::endpoint::Endpoint;
use crate::network::Network;
use crate::{Credentials, CrtConfig, Keys};

/// If the store refuses credentials that it never accepted, within this time after the signer looked for
/// them, then they are bad. The signer does not look for others before this time is over.
const RENEWAL_PAUSE: Duration = Duration::from_secs(2);

/// Signs requests with credentials that can be renewed.
pub(crate) struct Signer {
    credentials: Credentials,
    region: String,
    service: String,
    algorithm: SigningAlgorithm,
    tls: Option<TlsContext>,
    provider: RwLock<CredentialsProvider>,
    /// The keys in the provider, if they come from a source outside of the CRT.
    keys: Mutex<Option<Arc<Keys>>>,
    /// Whether the store has accepted the credentials of the provider.
    was_taken: AtomicBool,
    renewal: Mutex<Renewal>,
}

/// What is needed to make a provider, and when the last one was made.
struct Renewal {
    network: Network,
    at: Instant,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("credentials", &self.credentials).finish_non_exhaustive()
    }
}

impl Signer {
    pub(crate) fn new(
        config: &CrtConfig,
        endpoint: &Endpoint,
        mut network: Network,
        tls: Option<TlsContext>,
        allocator: &Allocator,
    ) -> Result<Self, ObjectError> {
        let provider = provider(&config.credentials, &mut network, tls.as_ref(), allocator)?;
        Ok(Self {
            credentials: config.credentials.clone(),
            region: endpoint.signing_region.clone(),
            service: endpoint.signing_service.clone(),
            algorithm: endpoint.signing_algorithm,
            tls,
            provider: RwLock::new(provider),
            keys: Mutex::new(None),
            was_taken: AtomicBool::new(false),
            renewal: Mutex::new(Renewal { network, at: Instant::now() }),
        })
    }

    /// Waits for the keys of a source outside of the CRT. The CRT asks its own providers when it signs.
    ///
    /// # Errors
    /// `NoCredentials` if the source has none; the error's source is [`NoKeys`](crate::NoKeys).
    pub(crate) async fn prepare(&self) -> Result<(), ObjectError> {
        let Credentials::Source(source) = &self.credentials else { return Ok(()) };
        let fail =
            |error| ObjectError::new(ErrorKind::NoCredentials, "load credentials", "").with_source(error);
        let keys = source.keys().await.map_err(fail)?;
        let mut held = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if held.as_ref().is_some_and(|held| Arc::ptr_eq(held, &keys)) {
            return Ok(());
        }
        let options = CredentialsProviderStaticOptions {
            access_key_id: &keys.access_key_id,
            secret_access_key: &keys.secret_access_key,
            session_token: keys.session_token.as_deref(),
        };
        let provider = CredentialsProvider::new_static(&Allocator::default(), options)
            .map_err(|error| no_provider("keys", error))?;
        *self.provider.write().unwrap_or_else(PoisonError::into_inner) = provider;
        *held = Some(keys);
        self.was_taken.store(false, Ordering::Relaxed);
        Ok(())
    }

    /// The signing configuration of the next request.
    pub(crate) fn signing(&self) -> SigningConfig {
        let provider = self.provider.read().unwrap_or_else(PoisonError::into_inner).clone();
        init_signing_config(&self.region, provider, Some(self.algorithm), Some(&self.service), Some(false))
    }

    /// The signing configuration of a request that `provider` signs in place of the signer's own.
    pub(crate) fn signing_by(&self, provider: &CredentialsProvider) -> SigningConfig {
        let (algorithm, service) = (Some(self.algorithm), Some(self.service.as_str()));
        init_signing_config(&self.region, provider.clone(), algorithm, service, Some(false))
    }

    /// Looks at the result of a request that was sent at `sent`. If the store refused the credentials and
    /// there may be others now, the returned error says that the request may be retried.
    pub(crate) fn judge<T>(&self, sent: Instant, result: Result<T, ObjectError>) -> Result<T, ObjectError> {
        if result.is_ok() && !self.was_taken.load(Ordering::Relaxed) {
            self.was_taken.store(true, Ordering::Relaxed);
        }
        result.map_err(|error| match error.kind() {
            ErrorKind::BadCredentials if self.renew(sent, is_expired(&error)) => {
                error.with_kind(ErrorKind::StaleCredentials)
            }
            _ => error,
        })
    }

    /// Renews the credentials, unless they were renewed after `sent`. Returns whether the credentials may be
    /// others now.
    fn renew(&self, sent: Instant, is_expired: bool) -> bool {
        if matches!(self.credentials, Credentials::Static { .. } | Credentials::Anonymous) {
            return false;
        }
        let mut renewal = self.renewal.lock().unwrap_or_else(PoisonError::into_inner);
        if sent <= renewal.at {
            return true;
        }
        if !self.was_taken.load(Ordering::Relaxed) && renewal.at.elapsed() < RENEWAL_PAUSE {
            // A program that writes tokens which expire will write a new token, and may be late.
            return is_expired;
        }
        if let Credentials::Source(source) = &self.credentials {
            tracing::info!("the store refuses the credentials; looking for others");
            let held = self.keys.lock().unwrap_or_else(PoisonError::into_inner).clone();
            if let Some(keys) = held {
                source.refuse(&keys);
            }
            self.was_taken.store(false, Ordering::Relaxed);
            renewal.at = Instant::now();
            return true;
        }
        match provider(&self.credentials, &mut renewal.network, self.tls.as_ref(), &Allocator::default()) {
            Ok(provider) => {
                tracing::info!("the store refuses the credentials; looking for others");
                *self.provider.write().unwrap_or_else(PoisonError::into_inner) = provider;
                self.was_taken.store(false, Ordering::Relaxed);
                renewal.at = Instant::now();
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the store refuses the credentials, and there are no others");
                is_expired
            }
        }
    }
}

fn is_expired(error: &ObjectError) -> bool {
    matches!(error.detail().code.as_deref(), Some("ExpiredToken" | "TokenRefreshRequired"))
}

fn no_provider(what: &str, error: CrtError) -> ObjectError {
    ObjectError::new(ErrorKind::NoCredentials, "load credentials", what).with_source(error)
}

fn provider(
    credentials: &Credentials,
    network: &mut Network,
    tls_ctx: Option<&TlsContext>,
    allocator: &Allocator,
) -> Result<CredentialsProvider, ObjectError> {
    let bootstrap = &mut network.bootstrap(allocator).map_err(|error| no_provider("network", error))?;
    let (what, provider) = match credentials {
        Credentials::Chain => {
            let options = CredentialsProviderChainDefaultOptions { bootstrap, tls_ctx };
            ("default chain", CredentialsProvider::new_chain_default(allocator, options))
        }
        Credentials::Profile(profile) => {
            let options =
                CredentialsProviderProfileOptions { bootstrap, profile_name_override: profile, tls_ctx };
            (profile.as_str(), CredentialsProvider::new_profile(allocator, options))
        }
        Credentials::Static { access_key_id, secret_access_key, session_token } => {
            let session_token = session_token.as_deref();
            let options =
                CredentialsProviderStaticOptions { access_key_id, secret_access_key, session_token };
            ("static", CredentialsProvider::new_static(allocator, options))
        }
        // Those of a source come before the first request is signed.
        Credentials::Anonymous | Credentials::Source(_) => {
            ("none", CredentialsProvider::new_anonymous(allocator))
        }
    };
    provider.map_err(|error| no_provider(what, error))
}
