//! `s3mount top DIR`: what a mount does, on the whole terminal, until its user quits.

mod draw;

use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use s3mount_system::ending::Ending;

use self::draw::Screen;
use super::stats::seconds;
use crate::watch::daemon::Daemon;
use crate::watch::prices::Prices;
use crate::watch::report::{Report, Reporter};

/// How often keys and signals are looked for.
const KEY_INTERVAL: Duration = Duration::from_millis(50);

/// The exit code of a program whose terminal was closed: 128 and the number of SIGHUP, as shells have it.
const HUNG_UP: i32 = 129;

/// The flags of `s3mount top`.
#[derive(Clone, Debug, clap::Args)]
pub struct TopArgs {
    /// Folder where the bucket is mounted, or the control socket of the mount.
    #[arg(value_name = "DIR|SOCKET")]
    mount: PathBuf,

    /// Seconds between two pictures, over which rates and waits are taken.
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    interval: Duration,

    #[command(flatten)]
    prices: Prices,
}

/// Shows the mount until the user quits, or the mount ends.
pub fn run(args: &TopArgs) -> anyhow::Result<()> {
    let is_terminal = io::stdout().is_terminal() && io::stdin().is_terminal();
    ensure!(
        is_terminal && std::env::var_os("TERM").is_none_or(|kind| kind != "dumb"),
        "top needs a terminal; `s3mount stats --watch {}` prints the same as text",
        args.mount.display()
    );
    let reporter = Reporter::new(&Daemon::at(&args.mount)?, args.prices, true)?;
    let ending = Ending::watch().context("cannot catch signals")?;
    let (reports, interval) = (start(reporter, args.interval)?, args.interval);
    let has_colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut terminal = ratatui::try_init().context("cannot set up the terminal")?;
    let result = show(&mut terminal, &reports, &ending, Screen::new(has_colours, interval));
    if matches!(input(), Ok(Input::Gone)) {
        // Nothing can be restored, and nobody told.
        std::process::exit(HUNG_UP);
    }
    ratatui::restore();
    result
}

/// Makes reports in a thread of its own, until nobody takes them.
fn start(mut reporter: Reporter, interval: Duration) -> anyhow::Result<Receiver<anyhow::Result<Report>>> {
    let (send, receive) = mpsc::sync_channel(1);
    std::thread::Builder::new().name("reports".into()).spawn(move || {
        loop {
            let report = reporter.next(interval, || false);
            let is_last = report.is_err();
            if send.send(report).is_err() || is_last {
                return;
            }
        }
    })?;
    Ok(receive)
}

fn show(
    terminal: &mut DefaultTerminal,
    reports: &Receiver<anyhow::Result<Report>>,
    ending: &Ending,
    mut screen: Screen,
) -> anyhow::Result<()> {
    terminal.draw(|frame| screen.draw(frame))?;
    while !ending.is_asked() {
        match reports.try_recv() {
            Ok(report) => {
                screen.take(report?);
                terminal.draw(|frame| screen.draw(frame))?;
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => bail!("nothing reports any more"),
        }
        match input()? {
            Input::Gone => return Ok(()),
            Input::None => continue,
            Input::There => {}
        }
        if event::poll(Duration::ZERO)? {
            match event::read()? {
                Event::Key(key) if quits(key) => return Ok(()),
                Event::Resize(..) => {
                    terminal.draw(|frame| screen.draw(frame))?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

/// What there is to read from the terminal.
enum Input {
    None,
    There,
    /// The terminal was closed. Who reads from it then would try again and again.
    Gone,
}

/// Waits for input from the terminal, for up to `KEY_INTERVAL`.
fn input() -> anyhow::Result<Input> {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
    let interval = PollTimeout::try_from(KEY_INTERVAL).unwrap_or(PollTimeout::ZERO);
    match poll(&mut polled, interval) {
        Ok(0) | Err(Errno::EINTR) => return Ok(Input::None),
        Ok(_) => {}
        Err(error) => return Err(error).context("cannot wait for keys"),
    }
    let found = polled[0].revents().unwrap_or(PollFlags::empty());
    let is_gone = found.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL);
    Ok(if is_gone { Input::Gone } else { Input::There })
}

/// Whether a key ends the program.
fn quits(key: KeyEvent) -> bool {
    let is_ctrl_c = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    key.kind != KeyEventKind::Release && (is_ctrl_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc))
}
