//! What packages have beside the program, made from the flags: completions for shells, and manual pages.

use std::fs;
use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;
use clap_mangen::Man;

use crate::command_line::Args;
use crate::helper;

/// The program's name, to which completions are bound.
const NAME: &str = "s3mount";

/// Prints the completions for `shell`.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), NAME, &mut script);
    io::stdout().write_all(&script).context("cannot print the completions")
}

/// Writes a manual page for each command into `dir`, and one for the mount helper.
pub(crate) fn man(dir: &Path) -> anyhow::Result<()> {
    let shown = dir.display();
    fs::create_dir_all(dir).with_context(|| format!("cannot make the folder {shown}"))?;
    clap_mangen::generate_to(Args::command(), dir)
        .with_context(|| format!("cannot write manual pages to {shown}"))?;
    let mut page = Vec::new();
    Man::new(helper::command()).section("8").render(&mut page).context("cannot make a manual page")?;
    let path = dir.join("mount.s3mount.8");
    fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))
}
