//! The first requests to a store, whose address and credentials may still be wrong.

use std::time::Duration;

use s3mount_object::{ErrorKind, ObjectError};
use tokio::time::{Instant, sleep};

use crate::attempts::Backoff;

/// The retries for a store that can't be reached: a wrong address must be reported soon.
const MOST_UNREACHED: u32 = 2;

/// Makes a request until the store answers it or refuses it for good, for at most `limit`. Unlike a mount that has had
/// an answer before, it takes missing credentials and a failed TLS handshake as final.
///
/// # Errors
/// The error of the last attempt.
pub async fn first_answer<T, F>(limit: Duration, attempt: impl Fn() -> F) -> Result<T, ObjectError>
where
    F: Future<Output = Result<T, ObjectError>>,
{
    let deadline = Instant::now() + limit;
    let (mut backoff, mut unreached) = (Backoff::new(0), 0);
    loop {
        let error = match attempt().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        unreached += u32::from(*error.kind() == ErrorKind::Network);
        let passes = match error.kind() {
            ErrorKind::Throttled | ErrorKind::Server | ErrorKind::Integrity => true,
            ErrorKind::Network => unreached <= MOST_UNREACHED,
            _ => false,
        };
        let pause = backoff.next_pause();
        if !passes || Instant::now() + pause >= deadline {
            return Err(error);
        }
        // What can't be reached is told by the error in a moment.
        if *error.kind() != ErrorKind::Network {
            tracing::warn!(%error, ?pause, "the store does not serve the bucket yet, trying again");
        }
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use s3mount_object::{ErrorKind, ListObjects, ObjectClient as _};
    use s3mount_testkit::MemoryClient;
    use tokio::time::Instant;

    use super::first_answer;

    const LIMIT: Duration = Duration::from_secs(30);

    #[tokio::test(start_paused = true)]
    async fn one_answer_that_fails_does_not_keep_a_mount_from_coming_up() {
        let client = MemoryClient::new();
        let list = || client.list_objects(ListObjects::default());
        client.fail_next([ErrorKind::Server, ErrorKind::Network, ErrorKind::Throttled]);
        first_answer(LIMIT, list).await.expect("the fourth is answered");
        assert_eq!(client.take_requests().list, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_user_has_to_mend_is_told_at_once() {
        let client = MemoryClient::new();
        let (list, began) = (|| client.list_objects(ListObjects::default()), Instant::now());
        for (kind, requests) in
            [(ErrorKind::Forbidden, 1), (ErrorKind::NoCredentials, 1), (ErrorKind::Network, 3)]
        {
            client.fail_all(Some(kind));
            first_answer(LIMIT, list).await.expect_err("it goes on failing");
            assert_eq!(client.take_requests().list, requests);
        }
        assert!(began.elapsed() < Duration::from_secs(1));
        client.fail_all(Some(ErrorKind::Server));
        first_answer(LIMIT, list).await.expect_err("it goes on failing");
        assert!(began.elapsed() < LIMIT + Duration::from_secs(1));
    }
}
