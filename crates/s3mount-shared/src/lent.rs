//! Buffers that come back to their lender when a GET has failed.

use std::time::Duration;

use s3mount_object::PartBuffer;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// A buffer comes back within a moment after its GET has failed. If it does not, something still writes to
/// it, and its lender takes another one.
const BACK_LIMIT: Duration = Duration::from_secs(1);

/// A buffer that is lent to a GET.
pub(crate) struct Lent<B> {
    /// **Invariant:** it is here until this is dropped.
    buffer: Option<B>,
    back: Option<oneshot::Sender<B>>,
}

/// Where the buffer comes back.
pub(crate) struct Back<B>(oneshot::Receiver<B>);

/// Lends `buffer`.
pub(crate) fn lend<B>(buffer: B) -> (Lent<B>, Back<B>) {
    let (back, receiver) = oneshot::channel();
    (Lent { buffer: Some(buffer), back: Some(back) }, Back(receiver))
}

impl<B> Back<B> {
    /// The buffer, after its GET has failed.
    pub(crate) async fn wait(self) -> Option<B> {
        timeout(BACK_LIMIT, self.0).await.ok()?.ok()
    }
}

impl<B: PartBuffer> AsRef<[u8]> for Lent<B> {
    fn as_ref(&self) -> &[u8] {
        self.buffer.as_ref().map(AsRef::as_ref).unwrap_or_default()
    }
}

impl<B: PartBuffer> AsMut<[u8]> for Lent<B> {
    fn as_mut(&mut self) -> &mut [u8] {
        self.buffer.as_mut().map(AsMut::as_mut).unwrap_or_default()
    }
}

impl<B> Drop for Lent<B> {
    fn drop(&mut self) {
        if let (Some(buffer), Some(back)) = (self.buffer.take(), self.back.take()) {
            // If the lender does not wait for it, because the GET brought its bytes, it is dropped here.
            let _ = back.send(buffer);
        }
    }
}
