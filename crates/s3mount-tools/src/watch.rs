//! Looks at a mount that is up: asks its daemon, and makes sense of the answers. `stats`, `top` and `trace`
//! show what this module finds out.

pub(crate) mod daemon;
pub(crate) mod events;
pub(crate) mod prices;
pub(crate) mod processes;
pub(crate) mod report;
pub(crate) mod sample;
pub(crate) mod shown;
pub(crate) mod waits;
