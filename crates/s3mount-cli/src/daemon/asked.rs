//! Signals that ask the daemon to end its mount, or to make way for another daemon.

use std::future::poll_fn;
use std::os::unix::process::parent_id;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use nix::sys::signal::SigSet;
use procfs::process::Process;
use s3mount_fuse::Mount;
use tokio::runtime::Runtime;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Signals that end a program by default, and mean nothing to a daemon. SIGXFSZ comes where a disk cache or a log has
/// reached the limit of file sizes (`ulimit -f`): once it is caught, the write fails, as on a full disk. SIGXCPU comes
/// each second from the soft limit of CPU time on, which somebody may have set since the mount began.
const MEANINGLESS: [nix::sys::signal::Signal; 8] = {
    use nix::sys::signal::Signal::{SIGALRM, SIGIO, SIGPROF, SIGPWR, SIGUSR1, SIGVTALRM, SIGXCPU, SIGXFSZ};
    [SIGALRM, SIGIO, SIGPROF, SIGPWR, SIGUSR1, SIGVTALRM, SIGXCPU, SIGXFSZ]
};

/// How long a daemon that is to make way for another one waits for the writers of open files. Others that want to write
/// wait meanwhile.
pub(crate) const WRITERS_LIMIT: Duration = Duration::from_secs(30);

/// The signals that ask the daemon to end.
pub(super) struct Signals {
    end: Vec<Signal>,
    /// Asks the daemon to make way for another one.
    make_way: Signal,
}

impl Signals {
    /// From now on these signals are caught, and wait until they are polled. The program that started the
    /// daemon may have set some of them to be ignored, as `nohup` does, and a shell for background jobs.
    /// These stay ignored. To be called by the first thread.
    pub(super) fn new(runtime: &Runtime) -> anyhow::Result<Self> {
        let ignored = Process::myself()?.status()?.sigign;
        let _inside = runtime.enter();
        // Their default action ends the daemon, too. Once they are caught, they do nothing.
        for meaningless in MEANINGLESS {
            drop(signal(SignalKind::from_raw(meaningless as i32))?);
        }
        let kinds =
            [SignalKind::hangup(), SignalKind::interrupt(), SignalKind::terminate(), SignalKind::quit()];
        let heeded = kinds.into_iter().filter(|kind| ignored & 1 << (kind.as_raw_value() - 1) == 0);
        let end = heeded.map(signal).collect::<std::io::Result<_>>()?;
        let signals = Self { end, make_way: signal(SignalKind::user_defined2())? };
        // What was sent while nobody could hear it is heard now.
        SigSet::empty().thread_set_mask()?;
        Ok(signals)
    }

    /// Returns whether the daemon is asked to make way for another one, and not to end the mount.
    async fn asked(&mut self) -> bool {
        poll_fn(|context| {
            if self.make_way.poll_recv(context).is_ready() {
                return Poll::Ready(true);
            }
            let asked = self.end.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
            if asked { Poll::Ready(false) } else { Poll::Pending }
        })
        .await
    }
}

/// Why a daemon ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Somebody has unmounted.
    Unmounted,
    Asked,
    /// Another daemon is to go on.
    MakesWay,
}

/// Waits until the mount ends, or this daemon has made way for another one. Then `give` gives the keeper what that takes.
pub(super) async fn wait(
    mount: &mut Mount,
    signals: &mut Signals,
    holder: Option<u32>,
    give: impl Fn() -> std::io::Result<()>,
) -> Ending {
    loop {
        let makes_way = tokio::select! {
            () = mount.ended() => return Ending::Unmounted,
            makes_way = signals.asked() => makes_way,
        };
        if !makes_way {
            return Ending::Asked;
        }
        // A holder that was killed is no parent any more.
        if holder != Some(parent_id()) {
            tracing::warn!("this daemon can't make way for another: nobody keeps its mount (--keep-alive)");
            continue;
        }
        let mut making = pin!(mount.make_way(WRITERS_LIMIT));
        let made = loop {
            tokio::select! {
                made = &mut making => break made,
                makes_way = signals.asked() => {
                    if !makes_way {
                        return Ending::Asked;
                    }
                }
            }
        };
        let why = match made.map_err(|busy| busy.to_string()) {
            Ok(way) => match give() {
                Ok(()) => {
                    // Nothing begins any more.
                    std::mem::forget(way);
                    return Ending::MakesWay;
                }
                Err(error) => format!("the mount can't be given to its keeper: {error}"),
            },
            Err(busy) => format!("{busy}, after {WRITERS_LIMIT:?}"),
        };
        tracing::warn!("this daemon does not make way for another: {why}");
    }
}
