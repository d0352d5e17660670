//! `s3mount cache`: shows, checks and tidies what mounts keep on a disk. Mounts may use it meanwhile.

mod clear;
mod dirs;
mod evict;
mod ls;
mod shown;
mod stats;
mod verify;

use clap::Subcommand;
use dirs::Dirs;

/// The flags of `s3mount cache`.
#[derive(Clone, Debug, clap::Args)]
pub struct CacheArgs {
    #[command(subcommand)]
    command: CacheCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum CacheCommand {
    /// List the objects that are cached, whole or in part, in no particular order.
    Ls(Dirs),
    /// Show how much is cached, how much may be, and when objects are idle.
    Stats(Dirs),
    /// Compare all cached bytes with the checksums that were taken when they came.
    ///
    /// What is wrong is deleted, and mounts fetch it again. The exit code is 1 if anything was
    /// wrong.
    Verify(verify::VerifyArgs),
    /// Delete objects that are not wanted any more: all that match, or those used least recently.
    ///
    /// Who has an object open can go on reading it. Objects that a mount is fetching stay.
    Evict(evict::EvictArgs),
    /// Delete all that the cache has put into the folder, and nothing else.
    ///
    /// While mounts use it, what they need to go on stays.
    Clear(Dirs),
}

/// Runs one of the commands.
pub fn run(args: &CacheArgs) -> anyhow::Result<()> {
    match &args.command {
        CacheCommand::Ls(dirs) => ls::run(dirs),
        CacheCommand::Stats(dirs) => stats::run(dirs),
        CacheCommand::Verify(args) => verify::run(args),
        CacheCommand::Evict(args) => evict::run(args),
        CacheCommand::Clear(dirs) => clear::run(dirs),
    }
}
