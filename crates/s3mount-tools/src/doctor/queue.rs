//! Checks of the queue that tells of changes.

use std::time::Duration;

use s3mount_changes::{Queue, QueueConfig, QueueError};

use super::finding::Finding;

const NAME: &str = "queue";

/// The time that the queue may take for its answers.
const LIMIT: Duration = Duration::from_secs(20);

const REMEDY: &str = "check its name and region, and whether you may sqs:GetQueueUrl, sqs:ReceiveMessage and \
                      sqs:DeleteMessage";

/// Whether the queue is there, and its messages may be read. None is taken.
pub(super) async fn check(config: &QueueConfig) -> Finding {
    let check = async {
        Queue::find(config).await?.check().await?;
        Ok::<_, QueueError>(())
    };
    match tokio::time::timeout(LIMIT, check).await {
        Ok(Ok(())) => Finding::ok(NAME, format!("{} can be read", config.name)),
        Ok(Err(error)) => Finding::fail(NAME, error.to_string(), REMEDY),
        Err(_) => Finding::fail(NAME, format!("no answer from {} in {LIMIT:?}", config.name), REMEDY),
    }
}
