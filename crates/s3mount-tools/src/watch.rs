//! Looks at a mount that is up: asks its daemon, and makes sense of the answers. `stats`, `top` and `trace`
//! show what this module finds out. The names of the metrics that it reads are those of their definitions
//! ([`metrics`]).

pub(crate) mod daemon;
pub(crate) mod events;
pub mod metrics;
pub(crate) mod prices;
pub(crate) mod processes;
pub(crate) mod report;
pub(crate) mod sample;
pub(crate) mod shown;
pub(crate) mod waits;
