//! Event loops, and the resolver of the names of hosts.

use mountpoint_s3_crt::common::allocator::Allocator;
use mountpoint_s3_crt::common::error::Error as CrtError;
use mountpoint_s3_crt::io::channel_bootstrap::{ClientBootstrap, ClientBootstrapOptions};
use mountpoint_s3_crt::io::event_loop::EventLoopGroup;
use mountpoint_s3_crt::io::host_resolver::{HostResolver, HostResolverDefaultOptions};

/// The addresses of how many hosts are known: at AWS each bucket is one, and credentials have their own.
const MOST_HOSTS: usize = 128;

/// Event loops and a host resolver, for the client and for providers that ask the network. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Network {
    pub(crate) event_loops: EventLoopGroup,
    pub(crate) host_resolver: HostResolver,
}

impl Network {
    /// Starts so many event loops, each with a thread.
    pub(crate) fn start(event_loops: u16, allocator: &Allocator) -> Result<Self, CrtError> {
        let mut event_loops = EventLoopGroup::new_default(allocator, Some(event_loops.max(1)), || {})?;
        let resolver =
            HostResolverDefaultOptions { max_entries: MOST_HOSTS, event_loop_group: &mut event_loops };
        let host_resolver = HostResolver::new_default(allocator, &resolver)?;
        Ok(Self { event_loops, host_resolver })
    }

    pub(crate) fn bootstrap(&mut self, allocator: &Allocator) -> Result<ClientBootstrap, CrtError> {
        let (event_loop_group, host_resolver) = (&mut self.event_loops, &mut self.host_resolver);
        ClientBootstrap::new(allocator, &ClientBootstrapOptions { event_loop_group, host_resolver })
    }
}
