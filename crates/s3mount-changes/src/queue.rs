//! A queue of SQS.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use aws_sdk_sqs::Client;
use aws_sdk_sqs::config::Builder;
use aws_sdk_sqs::config::retry::RetryConfig;
use aws_sdk_sqs::config::timeout::TimeoutConfig;
use aws_sdk_sqs::error::ProvideErrorMetadata;
use aws_sdk_sqs::types::{DeleteMessageBatchRequestEntry, Message};

use crate::queue_name::QueueName;

/// How long a request waits for a message. It is the longest time that SQS allows, and the answer comes with the first
/// message.
const LONG_POLL: Duration = Duration::from_secs(20);

/// The most messages of an answer. SQS allows no more.
const MOST_MESSAGES: i32 = 10;

/// How long no other request gets a message that this one got. A daemon that is killed before it has deleted a message
/// leaves it to the next one after this time.
const HIDDEN: Duration = Duration::from_secs(5);

/// How long a request may take beside the time that it waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// The settings of a queue.
#[derive(Clone, Debug)]
pub struct QueueConfig {
    /// The queue.
    pub name: QueueName,
    /// The bucket. Messages about others stay in the queue. Unset if it is not known by which name the messages call it.
    pub bucket: Option<String>,
    /// The region of the bucket, for a queue that names none.
    pub region: String,
    /// The profile whose credentials are used.
    pub profile: Option<String>,
    /// The file with the certificates to trust.
    pub ca_bundle: Option<PathBuf>,
}

/// Why a queue gives nothing.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the queue {queue}: {why}")]
pub struct QueueError {
    queue: String,
    why: String,
}

/// A queue whose messages can be read.
#[derive(Clone, Debug)]
pub struct Queue {
    client: Client,
    name: QueueName,
    url: String,
}

impl QueueError {
    fn new(queue: &QueueName, why: impl Into<String>) -> Self {
        Self { queue: queue.to_string(), why: why.into() }
    }
}

impl QueueConfig {
    /// Whether messages about this bucket are for the mount.
    pub(crate) fn is_ours(&self, bucket: &str) -> bool {
        self.bucket.as_ref().is_none_or(|ours| ours == bucket)
    }
}

impl Queue {
    /// Finds the queue. With credentials from where the AWS CLI looks for them.
    ///
    /// # Errors
    /// If there is no such queue, or it can't be asked for.
    pub async fn find(config: &QueueConfig) -> Result<Self, QueueError> {
        let (region, server) = match &config.name {
            QueueName::Url { region, server, .. } => (region.as_ref(), Some(server)),
            QueueName::Named { region, .. } => (region.as_ref(), None),
        };
        let region = region.unwrap_or(&config.region);
        let sdk =
            s3mount_credentials::sdk_config(config.profile.as_deref(), region, config.ca_bundle.as_deref());
        let sdk = sdk.await.map_err(|error| QueueError::new(&config.name, error))?;
        let timeout = TimeoutConfig::builder().operation_timeout(LONG_POLL.saturating_add(PATIENCE));
        // Whoever asks tries again.
        let mut builder =
            Builder::from(&sdk).retry_config(RetryConfig::disabled()).timeout_config(timeout.build());
        if let Some(server) = server {
            builder = builder.endpoint_url(server);
        }
        let client = Client::from_conf(builder.build());
        let url = match &config.name {
            QueueName::Url { url, .. } => url.clone(),
            QueueName::Named { name, account, .. } => {
                let request =
                    client.get_queue_url().queue_name(name).set_queue_owner_aws_account_id(account.clone());
                let answer = request.send().await;
                let answer = answer.map_err(|error| QueueError::new(&config.name, text_of(&error)))?;
                answer.queue_url.ok_or_else(|| QueueError::new(&config.name, "the answer has no URL"))?
            }
        };
        Ok(Self { client, name: config.name.clone(), url })
    }

    fn error(&self, error: &(impl Error + ProvideErrorMetadata)) -> QueueError {
        QueueError::new(&self.name, text_of(error))
    }

    /// Asks for a message, and leaves it in the queue.
    ///
    /// # Errors
    /// Those of the request: the queue is not there, or its messages may not be read.
    pub async fn check(&self) -> Result<(), QueueError> {
        let request = self.client.receive_message().queue_url(&self.url);
        let answer = request.max_number_of_messages(1).visibility_timeout(0).wait_time_seconds(0).send();
        answer.await.map(drop).map_err(|error| self.error(&error))
    }

    /// The next messages. Waits for the first one, but no longer than [`LONG_POLL`].
    ///
    /// # Errors
    /// Those of the request.
    pub(crate) async fn receive(&self) -> Result<Vec<Message>, QueueError> {
        let seconds = |time: Duration| i32::try_from(time.as_secs()).unwrap_or(i32::MAX);
        let request = self.client.receive_message().queue_url(&self.url);
        let request = request.max_number_of_messages(MOST_MESSAGES).visibility_timeout(seconds(HIDDEN));
        let answer = request.wait_time_seconds(seconds(LONG_POLL)).send().await;
        Ok(answer.map_err(|error| self.error(&error))?.messages.unwrap_or_default())
    }

    /// Deletes messages by their receipts, of which there are at most ten.
    ///
    /// # Errors
    /// Those of the request. What is not deleted comes again.
    pub(crate) async fn delete(&self, receipts: Vec<String>) -> Result<(), QueueError> {
        let entry = |(index, receipt): (usize, String)| {
            let entry = DeleteMessageBatchRequestEntry::builder();
            entry.id(index.to_string()).receipt_handle(receipt).build()
        };
        let entries = receipts.into_iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>();
        let entries = entries.map_err(|error| QueueError::new(&self.name, error.to_string()))?;
        let request = self.client.delete_message_batch().queue_url(&self.url).set_entries(Some(entries));
        request.send().await.map(drop).map_err(|error| self.error(&error))
    }
}

/// An error in one line: what the service says, or else the causes one after the other.
fn text_of(error: &(impl Error + ProvideErrorMetadata)) -> String {
    if let Some(code) = error.code() {
        return format!("{code}: {}", error.message().unwrap_or("no reason is given"));
    }
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
