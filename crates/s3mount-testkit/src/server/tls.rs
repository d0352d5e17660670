//! HTTPS with a certificate authority of the server's own.

use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// What a client needs that trusts the authority in the file `ca`.
///
/// # Errors
/// When the file can't be read, or has no certificate.
pub(crate) fn client(ca: &Path) -> anyhow::Result<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(ca).with_context(|| format!("reading {}", ca.display()))?)?;
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Makes an authority, and a certificate that it signs. The certificate is for this machine's own names, and
/// for one name of STS. Returns the acceptor and the authority's certificate as PEM.
pub(crate) fn acceptor() -> anyhow::Result<(TlsAcceptor, String)> {
    let mut authority = CertificateParams::new(Vec::new())?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // The authority needs another name than the certificate. A certificate with its own name as the issuer
    // counts as self-signed.
    authority.distinguished_name.push(DnType::CommonName, "s3mount test authority");
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;
    let key = KeyPair::generate()?;
    let names = ["localhost", "127.0.0.1", "sts.us-east-1.amazonaws.com"].map(str::to_owned);
    let certificate = CertificateParams::new(names.to_vec())?.signed_by(&key, &authority)?;
    let private = PrivateKeyDer::try_from(key.serialize_der()).map_err(|error| anyhow::anyhow!(error))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(vec![certificate.der().clone()], private)
        .context("using the certificate")?;
    Ok((TlsAcceptor::from(Arc::new(config)), authority.pem()))
}
