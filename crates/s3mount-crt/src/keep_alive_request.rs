//! Sends the request that stays under way, so that connections stay open ([`keep_alive`](crate::keep_alive)).

use mountpoint_s3_crt::common::error::Error as CrtError;
use mountpoint_s3_crt::s3::client::{MetaRequestOptions, MetaRequestType};

use crate::client::CrtClient;

impl CrtClient {
    /// Keeps connections open from now on. Every request calls this.
    pub(crate) fn keep_connections(&self) {
        if !self.keeps_connections || !self.keep_alive.touch() {
            return;
        }
        let begun = self.keep_alive.watch().map_err(|error| error.to_string());
        if let Err(error) = begun.and_then(|()| self.stay().map_err(|error| error.to_string())) {
            tracing::debug!(%error, "connections are not kept");
        }
    }

    /// Sends the request that stays under way: it waits in the pool.
    fn stay(&self) -> Result<(), CrtError> {
        let mut options = MetaRequestOptions::new();
        options
            .request_type(MetaRequestType::GetObject)
            .message(self.message("GET", &self.endpoint.object_path("-"), &[("Range", "bytes=0-0")], None)?)
            .endpoint(self.endpoint.uri.clone())
            .signing_config(self.signer.signing())
            .part_size(1)
            .custom_id(self.keep_alive.id());
        self.transport.send(options).map(drop)
    }
}

impl Drop for CrtClient {
    fn drop(&mut self) {
        self.keep_alive.end();
    }
}
