//! A daemon that is asked to end while the mount goes on, and loses nothing by it.
//!
//! The bytes of files that are being written are in the daemon's memory. So it waits for a moment in which there are none,
//! and sees to it that the moment lasts.
//!
//! Where the kernel sends requests again that have no answer, the daemon shuts the [gate](crate::gate) for all that begins
//! a change, and everything else goes on. Who waits at the gate holds the lock of a folder in the kernel, and whoever lists
//! that folder waits behind it. So the gate is never shut for long: while a writer takes its time, all others may write.
//!
//! Elsewhere (before Linux 6.9) it needs an answer to all that it has read. So it stops reading ([parking](crate::parking)),
//! answers what it has read, and looks whether there is a writer now. Nobody waits at the gate there.

use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use tokio::sync::OwnedRwLockWriteGuard;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::mount::Mount;
use crate::parking::{Parking, park};

/// How long the gate is shut at a time. Most files are written and published within this time.
const SHUT_LIMIT: Duration = Duration::from_secs(1);

/// How long the threads are parked at a time: as long as it takes to read what the kernel has asked for on a slow link.
const PARKED_LIMIT: Duration = Duration::from_secs(5);

/// How long the daemon waits for the ids of uploads that are being begun. One whose id does not come in time is in the
/// journal without it.
const UPLOADS_LIMIT: Duration = Duration::from_secs(1);

/// How long everybody goes on between two such times.
const OPEN_PAUSE: Duration = Duration::from_secs(1);

/// How often it is looked whether files are still being written.
const WRITERS_PAUSE: Duration = Duration::from_millis(20);

/// How often it is looked whether requests still have no answer.
const ANSWERS_PAUSE: Duration = Duration::from_millis(1);

/// A daemon that has made way: it begins nothing any more, until this is dropped.
#[derive(Debug)]
pub struct MadeWay {
    _how: How,
    /// Uploads that begin wait, too.
    _uploads: Option<OwnedRwLockWriteGuard<()>>,
}

#[derive(Debug)]
enum How {
    Shut { _gate: OwnedRwLockWriteGuard<()> },
    Parked { _threads: Parking },
}

/// Why a daemon can't make way.
#[derive(Debug)]
pub enum Busy {
    /// Programs have files with these keys open for writing.
    Writers(Vec<String>),
    /// A request that changes something goes on.
    Changes,
    /// So many requests have no answer yet.
    Requests(usize),
    /// The threads that read requests can't be made to stop.
    Threads(std::io::Error),
}

impl Display for Busy {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Writers(keys) => {
                let (count, first) = (keys.len(), keys.first().map_or("", String::as_str));
                write!(
                    f,
                    "{count} files are open for writing, first {first:?}, and their bytes would be lost"
                )
            }
            Self::Changes => write!(f, "a change is under way, such as the rename of a folder"),
            Self::Requests(count) => write!(f, "{count} requests wait for the store"),
            Self::Threads(error) => write!(f, "its threads do not stop reading requests: {error}"),
        }
    }
}

impl Busy {
    /// Whether it is pointless to try again by now.
    fn is_still(&self, mount: &Mount) -> bool {
        match self {
            Self::Writers(before) => mount.fs.written_keys().iter().any(|key| before.contains(key)),
            Self::Changes | Self::Requests(_) | Self::Threads(_) => false,
        }
    }
}

impl Mount {
    /// Waits for a moment in which no file is being written and, where the kernel sends nothing again, in which all requests
    /// have their answers. What begins from then on waits until the result is dropped, or for the other daemon.
    ///
    /// # Errors
    /// What has kept it from that until `limit`.
    pub async fn make_way(&self, limit: Duration) -> Result<MadeWay, Busy> {
        let deadline = Instant::now() + limit;
        loop {
            let until = |limit: Duration| deadline.min(Instant::now() + limit);
            let made = match self.reading.can_resend {
                true => self.shut(until(SHUT_LIMIT)).await,
                false => self.stop(until(PARKED_LIMIT)).await,
            };
            let busy = match made {
                Ok(how) => {
                    // The ids are worth a moment, and no more.
                    let uploads = timeout(UPLOADS_LIMIT, self.fs.stop_uploads()).await.unwrap_or_default();
                    return Ok(MadeWay { _how: how, _uploads: uploads });
                }
                Err(busy) => busy,
            };
            // With a writer, the threads are parked for a moment, if at all.
            let is_short = !self.reading.can_resend && matches!(busy, Busy::Writers(_));
            let again = Instant::now() + if is_short { WRITERS_PAUSE } else { OPEN_PAUSE };
            while Instant::now() < again || busy.is_still(self) {
                if Instant::now() >= deadline {
                    return Err(busy);
                }
                sleep(WRITERS_PAUSE).await;
            }
        }
    }

    /// Shuts the gate, and waits until no file is being written.
    async fn shut(&self, until: Instant) -> Result<How, Busy> {
        let Ok(gate) = timeout_at(until, self.mounted.gate.shut()).await else { return Err(self.busy()) };
        loop {
            let keys = self.written_keys(until).await;
            if keys.is_empty() {
                return Ok(How::Shut { _gate: gate });
            }
            if Instant::now() >= until {
                return Err(Busy::Writers(keys));
            }
            sleep(WRITERS_PAUSE).await;
        }
    }

    /// Who has passed the gate and is not done.
    fn busy(&self) -> Busy {
        match self.fs.written_keys() {
            keys if keys.is_empty() => Busy::Changes,
            keys => Busy::Writers(keys),
        }
    }

    /// Stops reading requests, and waits until those that were read have their answers.
    async fn stop(&self, until: Instant) -> Result<How, Busy> {
        let keys = self.written_keys(until).await;
        if !keys.is_empty() {
            return Err(Busy::Writers(keys));
        }
        let reading = self.reading;
        let threads = park(reading.device, reading.threads, until).await.map_err(Busy::Threads)?;
        loop {
            let unanswered = self.mounted.unanswered.count();
            if unanswered == 0 {
                break;
            }
            if Instant::now() >= until {
                return Err(Busy::Requests(unanswered));
            }
            sleep(ANSWERS_PAUSE).await;
        }
        // Who writes would have to be heard.
        let keys = self.written_keys(until).await;
        if !keys.is_empty() {
            return Err(Busy::Writers(keys));
        }
        Ok(How::Parked { _threads: threads })
    }

    /// The keys of the files that are being written, once those that were closed are published.
    async fn written_keys(&self, until: Instant) -> Vec<String> {
        let fs = self.fs.clone();
        // What publishes a file goes on to its end.
        let settling = tokio::spawn(async move { fs.settle_writes().await });
        drop(timeout_at(until, settling).await);
        self.fs.written_keys()
    }
}
