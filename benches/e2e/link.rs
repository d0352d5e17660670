//! A slow link between the mount and the server, made by the kernel.

use std::fs::File;
use std::process::Command;

use anyhow::{Context, ensure};
use nix::sched::{CloneFlags, setns, unshare};

/// A network namespace of this thread and of the processes that it starts, whose loopback has a rate. Dropping it moves
/// the thread back.
pub(crate) struct Link {
    home: File,
}

impl Link {
    /// Makes the link, which carries so many megabits a second in frames of 1,500 bytes. Needs root, and the program `ip`
    /// and `tc` of iproute2.
    pub(crate) fn enter(megabits: u32) -> anyhow::Result<Self> {
        let home = File::open("/proc/thread-self/ns/net")?;
        unshare(CloneFlags::CLONE_NEWNET).context("making a network namespace; run it as root")?;
        let link = Self { home };
        run("ip", "link set lo mtu 1500 up")?;
        // 400 ms of bytes wait for the link, as in a home router.
        run("tc", &format!("qdisc add dev lo root tbf rate {megabits}mbit burst 64kb latency 400ms"))?;
        Ok(link)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let Err(error) = setns(&self.home, CloneFlags::CLONE_NEWNET) {
            eprintln!("can't leave the network namespace of a slow link: {error}");
        }
    }
}

fn run(program: &str, args: &str) -> anyhow::Result<()> {
    let status = Command::new(program).args(args.split(' ')).status();
    let status = status.with_context(|| format!("running {program}; it comes with iproute2"))?;
    ensure!(status.success(), "{program} {args}: {status}");
    Ok(())
}
