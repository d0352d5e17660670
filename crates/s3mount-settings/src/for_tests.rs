//! A command line for tests: the flags of a mount, and a few commands beside them.

use std::path::PathBuf;

use crate::flags::mount::{MountArgs, optional};

#[derive(Debug, clap::Parser)]
#[command(name = "s3mount", args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
    #[command(flatten)]
    pub(crate) mount: MountArgs,
}

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Mount(Box<MountArgs>),
    #[command(mut_args(optional))]
    Config(Box<MountArgs>),
    /// A command that takes no settings, and has an `-o` of its own.
    Trace {
        dir: PathBuf,
        #[arg(short, long)]
        output: Option<PathBuf>,
    },
}
