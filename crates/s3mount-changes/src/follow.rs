//! Takes the messages of a queue for as long as a mount lives.
#![expect(
    clippy::disallowed_methods,
    reason = "the store tells the time of day at which something has happened"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use aws_sdk_sqs::types::Message;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use tokio::runtime::Handle;

use crate::metrics::ChangeMetrics;
use crate::notification::{KeyChange, Parsed, parse};
use crate::queue::{Queue, QueueConfig, QueueError};

/// How many requests wait for messages at once. One takes ten messages in two round trips.
const AT_ONCE: usize = 4;

/// How long a follower rests after a request that failed, at first and at most.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// How long a follower rests when a queue has given it nothing but messages that stay in the queue.
const REST: Duration = Duration::from_secs(1);

/// How long messages wait until the mount has dropped what they tell of. It is less than they are hidden from others.
const SETTLING: Duration = Duration::from_secs(3);

/// How long an answer from before may be on its way to the kernel.
const ON_ITS_WAY: Duration = Duration::from_millis(200);

/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(10);

/// Who is told of changes.
pub trait Listener: Send + Sync + 'static {
    /// Takes in a change.
    fn tell(&self, change: &KeyChange);

    /// Drops once more what was so before a change: an answer from before may have been on its way to somebody.
    fn drop_again(&self, change: &KeyChange);

    /// Passes a change on to those who wait for it. Nothing shows any more what was so before.
    fn pass_on(&self, change: KeyChange);

    /// Whether nothing shows any more what was so before the changes that were told.
    fn is_settled(&self) -> bool;
}

/// What all followers of a queue share.
struct Follower {
    config: QueueConfig,
    metrics: Arc<ChangeMetrics>,
    listener: Box<dyn Listener>,
    was_left: AtomicBool,
}

/// Takes messages from the queue on `runtime`, and tells `listener` of each change. If `found` is set, the queue was found
/// already.
pub fn follow(
    config: QueueConfig,
    found: Option<&Queue>,
    metrics: Arc<ChangeMetrics>,
    listener: impl Listener,
    runtime: &Handle,
) {
    let follower =
        Follower { config, metrics, listener: Box::new(listener), was_left: AtomicBool::new(false) };
    let follower = Arc::new(follower);
    for number in 0..AT_ONCE {
        let (follower, found) = (follower.clone(), found.cloned());
        // One of them tells of what all of them see.
        runtime.spawn(async move { follower.run(found, number == 0).await });
    }
}

impl Follower {
    async fn run(self: Arc<Self>, mut queue: Option<Queue>, tells: bool) {
        let (mut pause, mut failing) = (PAUSES.0, None);
        loop {
            let taken = match &queue {
                Some(queue) => self.take(queue).await.map(Some),
                None => Queue::find(&self.config).await.map(|found| {
                    queue = Some(found);
                    None
                }),
            };
            match taken {
                Ok(taken) => {
                    if let Some(text) = failing.take().filter(|_| tells) {
                        tracing::info!(before = text, "the queue of changes answers again");
                    }
                    pause = PAUSES.0;
                    if taken == Some(Taken::Nothing) {
                        tokio::time::sleep(REST).await;
                    }
                }
                Err(error) => {
                    self.metrics.errors.inc();
                    let text = error.to_string();
                    if tells && failing.as_ref() != Some(&text) {
                        tracing::warn!(%error, "changes of others show after --metadata-ttl: their queue does not answer");
                    }
                    failing = Some(text);
                    tokio::time::sleep(pause).await;
                    pause = (pause * 2).min(PAUSES.1);
                }
            }
        }
    }

    /// Takes the next messages.
    async fn take(self: &Arc<Self>, queue: &Queue) -> Result<Taken, QueueError> {
        let messages = queue.receive().await?;
        let has_come = !messages.is_empty();
        let (mut done, mut changes) = (Vec::new(), Vec::new());
        for message in messages {
            done.extend(self.take_in(message, &mut changes));
        }
        if done.is_empty() {
            return Ok(if has_come { Taken::Nothing } else { Taken::Some });
        }
        let (follower, queue) = (self.clone(), queue.clone());
        // A folder for which the kernel waits must not keep others from being told of.
        tokio::spawn(async move { follower.finish(&queue, done, changes).await });
        Ok(Taken::Some)
    }

    /// Deletes messages once nothing shows any more what was so before. Where that takes too long they come again: to the
    /// next daemon, if this one ends before.
    async fn finish(&self, queue: &Queue, receipts: Vec<String>, changes: Vec<KeyChange>) {
        tokio::time::sleep(ON_ITS_WAY).await;
        changes.iter().for_each(|change| self.listener.drop_again(change));
        let settled = async {
            while !self.listener.is_settled() {
                tokio::time::sleep(LOOK).await;
            }
        };
        if tokio::time::timeout(SETTLING, settled).await.is_err() {
            return;
        }
        changes.into_iter().for_each(|change| self.listener.pass_on(change));
        let count = receipts.len() as u64;
        match queue.delete(receipts).await {
            Ok(()) => self.metrics.messages.add(count),
            Err(error) => {
                self.metrics.errors.inc();
                tracing::debug!(%error, "messages that were taken in come again");
            }
        }
    }

    /// Tells of what a message says, and adds that to `told`. Returns its receipt if it is to be deleted.
    fn take_in(&self, message: Message, told: &mut Vec<KeyChange>) -> Option<String> {
        let parsed = parse(message.body.as_deref().unwrap_or_default());
        let is_ours = |parsed: &Parsed| parsed.buckets.iter().any(|bucket| self.config.is_ours(bucket));
        let Some(Parsed { changes, .. }) = parsed.filter(is_ours) else {
            self.metrics.left.inc();
            if !self.was_left.swap(true, Ordering::Relaxed) {
                tracing::warn!(
                    queue = %self.config.name,
                    bucket = self.config.bucket,
                    "messages stay in the queue: they are no notifications of this bucket; more of these are counted \
                     without a word"
                );
            }
            return None;
        };
        for change in changes.into_iter().filter(|change| self.config.is_ours(&change.bucket)) {
            if let Some(lag) = lag(&change.time, SystemTime::now()) {
                self.metrics.lag.note_time(lag);
            }
            self.listener.tell(&change);
            told.push(change);
        }
        message.receipt_handle
    }
}

/// What came of a request for messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// Messages were taken in, or none came in the time that a request waits.
    Some,
    /// All messages that came stay in the queue, and come again.
    Nothing,
}

/// How long ago something happened.
fn lag(time: &str, now: SystemTime) -> Option<Duration> {
    let time = OffsetDateTime::parse(time, &Rfc3339).ok()?;
    now.duration_since(time.into()).ok()
}
