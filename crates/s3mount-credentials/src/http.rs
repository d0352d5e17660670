//! The client by which `aws-config`, and clients beside the store's, speak HTTP.

use std::fs;
use std::path::Path;

use aws_sdk_sts::config::SharedHttpClient;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore};

/// A client that trusts the certificates of `ca_bundle`, or those of the machine.
///
/// # Errors
/// If the bundle can't be read, as text for users.
pub(crate) fn http_client(ca_bundle: Option<&Path>) -> Result<SharedHttpClient, String> {
    let trusted = match ca_bundle {
        None => TrustStore::default(),
        Some(path) => {
            let pem =
                fs::read(path).map_err(|error| format!("read CA bundle {}: {error}", path.display()))?;
            TrustStore::empty().with_pem_certificate(pem)
        }
    };
    let tls = TlsContext::builder().with_trust_store(trusted).build().map_err(|error| error.to_string())?;
    let provider = Provider::Rustls(CryptoMode::Ring);
    Ok(aws_smithy_http_client::Builder::new().tls_provider(provider).tls_context(tls).build_https())
}
