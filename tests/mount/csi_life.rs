//! The life of a node's volumes in the orders that kubelet has: calls that come twice or at once, are answered and
//! repeated, and a driver that is killed between any two steps of its work.
//!
//! `S3MOUNT_CSI_SEED` and `S3MOUNT_CSI_STEPS` choose another life.
#![expect(clippy::print_stderr, reason = "the life up to a failure")]

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use s3mount_testkit::mix;
use tonic::{Code, Status};

use crate::csi::{Node, Publish, bucket, processes_below, texts};
use crate::takeover::wait_for_end;
use crate::world::wait_for;

/// Steps of a life in `make test`.
const STEPS: u64 = 60;

/// How often kubelet calls again before the test gives up.
const TRIES: usize = 20;

const VOLUMES: [&str; 2] = ["v", "w"];
const PODS: u64 = 3;

/// Random numbers of a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = mix(self.0);
        self.0 % end
    }
}

/// A pod and a volume of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Use {
    volume: &'static str,
    pod: u64,
}

impl Use {
    fn drawn(draw: &mut Draw) -> Self {
        Self { volume: VOLUMES[draw.below(2) as usize], pod: draw.below(PODS) }
    }

    /// A folder for each pair.
    fn name(&self) -> String {
        format!("{}{}", self.volume, self.pod)
    }

    /// The pods have keys of their own, but for two of them, which share a mount.
    fn call(&self, node: &Node) -> Publish {
        let key = format!("key{}", self.pod / 2);
        Publish {
            secrets: texts(&[("key_id", &key), ("access_key", "x")]),
            readonly: self.pod == 1,
            ..node.publishing(self.volume, &self.name())
        }
    }
}

/// What kubelet wants of a volume, and calls for until it is so.
#[derive(Clone, Copy, Debug)]
enum Wish {
    Published,
    Gone,
}

fn once(node: &Node, of: &Use, wish: Wish) -> Result<(), Status> {
    match wish {
        Wish::Published => node.publish(of.call(node)),
        Wish::Gone => node.unpublish(of.volume, &of.name()),
    }
}

/// Calls until it is done, as kubelet does. The driver may be killed in the midst of the first call, and one that is
/// killed has no answer.
fn call(node: &mut Node, of: &Use, wish: Wish, killed_after: Option<Duration>) {
    if let Some(after) = killed_after {
        let driver = Pid::from_raw(node.driver.id() as i32);
        thread::scope(|scope| {
            let first = scope.spawn(|| once(node, of, wish));
            thread::sleep(after);
            kill(driver, Signal::SIGKILL).expect("the driver");
            let _ = first.join().expect("a call");
        });
        node.start_anew(env!("CARGO_BIN_EXE_s3mount"));
    }
    for _ in 0..TRIES {
        match once(node, of, wish) {
            Ok(()) => return,
            // What a killed driver had begun goes on, and is waited for.
            Err(error) => eprintln!("{of:?} {wish:?}: {error}"),
        }
        thread::sleep(Duration::from_millis(200));
    }
    panic!("{of:?} is not {wish:?} after {TRIES} calls");
}

fn check(node: &Node, of: &Use) {
    let target = node.target(&of.name());
    assert_eq!(fs::read(target.join("there")).expect("it is mounted"), b"bytes", "{of:?}");
    let is_written = fs::write(target.join(format!("new-{}", of.name())), "x").is_ok();
    assert!(!(of.pod == 1 && is_written), "{of:?} is read-only");
}

#[test]
fn any_order_of_calls_and_kills_ends_in_order() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (seed, steps) =
        (number("S3MOUNT_CSI_SEED").unwrap_or(1), number("S3MOUNT_CSI_STEPS").unwrap_or(STEPS));
    eprintln!("S3MOUNT_CSI_SEED={seed} S3MOUNT_CSI_STEPS={steps}");
    let mut draw = Draw(seed);
    let mut node = Node::new(bucket(), &["--on-host"]);
    let mut published = BTreeSet::new();
    for step in 0..steps {
        let of = Use::drawn(&mut draw);
        let what = draw.below(10);
        // Up to what a mount takes, so that each step of it is met.
        let killed_after = (draw.below(3) == 0).then(|| Duration::from_millis(draw.below(250)));
        eprintln!("step {step}: {of:?} {what} {killed_after:?}");
        match what {
            // A pod begins, or its credentials are renewed.
            0..4 => {
                call(&mut node, &of, Wish::Published, killed_after);
                published.insert(of.clone());
            }
            // Kubelet does not know of a call that is under way, because it was started anew.
            4 => {
                let calls = || once(&node, &of, Wish::Published);
                thread::scope(|scope| {
                    let _other = scope.spawn(calls);
                    let _ = calls();
                });
                call(&mut node, &of, Wish::Published, None);
                published.insert(of.clone());
            }
            // A pod ends; it may never have begun.
            5..8 => {
                call(&mut node, &of, Wish::Gone, killed_after);
                published.remove(&of);
                assert!(!node.target(&of.name()).exists(), "{of:?}");
            }
            8 => match node.stats(of.volume, &of.name()) {
                Ok(stats) => assert!(stats.usage.len() == 2 && published.contains(&of), "{of:?}"),
                Err(error) => assert!(error.code() == Code::NotFound && !published.contains(&of), "{error}"),
            },
            // A mount ends for good, and kubelet's next calls make it anew.
            _ => {
                let all = processes_below(node.folder.path());
                for (pid, _) in &all {
                    let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
                }
                all.iter().for_each(|(pid, _)| wait_for_end(Pid::from_raw(*pid)));
                for of in &published {
                    call(&mut node, of, Wish::Published, None);
                }
            }
        }
        published.iter().for_each(|of| check(&node, of));
        let mounts: BTreeSet<_> = published.iter().map(|of| (of.volume, of.pod / 2)).collect();
        wait_for("the end of unused mounts", || node.mounts().len() == mounts.len());
    }
    for of in &published {
        call(&mut node, of, Wish::Gone, None);
    }
    node.check_empty();
    assert_eq!(processes_below(node.folder.path()), Vec::new());
    let table = fs::read_to_string("/proc/self/mountinfo").expect("the mounts");
    assert!(!table.contains(&node.folder.path().display().to_string()), "{table}");
}
