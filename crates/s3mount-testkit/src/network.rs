//! Machines of a test: network namespaces that a bridge joins. Only root can make them.
//!
//! A namespace belongs to a thread, and to the threads and processes that this thread starts. So whatever is
//! started by [`Machine::run`] has the machine's network, and the file systems of the test. The namespaces have
//! no names, and go when nothing uses them any more.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::process::Command;

use anyhow::{Context, ensure};
use nix::sched::{CloneFlags, setns, unshare};

/// Machines on one Ethernet. Each has one address, and no way to the network of the test.
#[derive(Debug)]
pub struct Network {
    machines: Vec<Machine>,
    /// It has the bridge.
    _switch: Machine,
}

/// One machine of a [`Network`].
#[derive(Debug)]
pub struct Machine {
    namespace: File,
    address: Ipv4Addr,
}

impl Network {
    /// A network of this many machines, of which there may be 250.
    ///
    /// # Errors
    /// When the user is not root, or the program `ip` is missing.
    pub fn new(machines: u8) -> anyhow::Result<Self> {
        let switch = Machine::new(0)?;
        switch.ip("link add lan type bridge")?;
        switch.ip("link set lan up")?;
        let machines = (1..=machines).map(|number| Machine::on(&switch, number));
        Ok(Self { machines: machines.collect::<anyhow::Result<_>>()?, _switch: switch })
    }

    /// The machine with this number. The first one is 0.
    ///
    /// # Panics
    /// When there are not so many.
    pub fn machine(&self, number: usize) -> &Machine {
        &self.machines[number]
    }
}

impl Machine {
    fn new(number: u8) -> anyhow::Result<Self> {
        let make = || {
            unshare(CloneFlags::CLONE_NEWNET).context("making a network, which only root can")?;
            File::open("/proc/thread-self/ns/net").context("opening the network")
        };
        let namespace = on_a_thread(make)?;
        let machine = Self { namespace, address: Ipv4Addr::new(10, 0, 0, number) };
        machine.ip("link set lo up")?;
        Ok(machine)
    }

    /// A machine with a cable to the switch.
    fn on(switch: &Self, number: u8) -> anyhow::Result<Self> {
        let machine = Self::new(number)?;
        let namespace = format!("/proc/{}/fd/{}", std::process::id(), machine.namespace.as_raw_fd());
        switch.ip(&format!("link add port{number} type veth peer name eth0 netns {namespace}"))?;
        switch.ip(&format!("link set port{number} master lan up"))?;
        machine.ip(&format!("addr add {}/24 dev eth0", machine.address))?;
        machine.ip("link set eth0 up")?;
        Ok(machine)
    }

    /// The machine's address.
    pub fn address(&self) -> IpAddr {
        self.address.into()
    }

    /// Calls `work` on a thread of this machine.
    ///
    /// # Panics
    /// When `work` panics.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        on_a_thread(|| {
            setns(&self.namespace, CloneFlags::CLONE_NEWNET).expect("who made the machine may use it");
            work()
        })
    }

    fn ip(&self, command: &str) -> anyhow::Result<()> {
        let status =
            self.run(|| Command::new("ip").args(command.split(' ')).status()).context("starting ip")?;
        ensure!(status.success(), "ip {command}: {status}");
        Ok(())
    }
}

/// Calls `work` on a thread that ends with it.
fn on_a_thread<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    let joined = std::thread::scope(|scope| scope.spawn(work).join());
    joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::Network;

    #[test]
    fn machines_reach_each_other_and_nobody_else_reaches_them() {
        let network = Network::new(2).expect("root makes a network");
        let (one, other) = (network.machine(0), network.machine(1));
        let listener = one.run(|| TcpListener::bind((one.address(), 0))).expect("its address");
        let address = listener.local_addr().expect("an address");
        other
            .run(|| TcpStream::connect(address).and_then(|mut stream| stream.write_all(b"hello")))
            .expect("sent");
        let mut said = String::new();
        listener.accept().and_then(|(mut stream, _)| stream.read_to_string(&mut said)).expect("a text");
        assert_eq!(said, "hello");
        assert!(TcpListener::bind(address).is_err(), "it is no address of this machine");
        assert!(other.run(|| TcpStream::connect(("127.0.0.1", address.port()))).is_err());
    }
}
