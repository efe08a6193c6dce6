//! The terminal interface of `ahead top`: samples and keys go to the [`Display`]; the terminal is set back at the end, on errors and panics too.

use super::screen::{Action, Display};
use super::{INTERVAL, Top};
use ahead_cli::exit::Stopped;
use ahead_process::Signals;
use ahead_sys::polling;
use ahead_top::{Filter, PageMap, Sampler, keep};
use anyhow::{Context, bail};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use rustix::event::{PollFd, PollFlags};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Number of SIGINT, for Ctrl-C: the terminal passes the key on instead of sending the signal.
const INTERRUPT: i32 = 2;

pub fn run(top: &Top, mut sampler: Sampler, filter: &Filter, signals: &Signals) -> anyhow::Result<ExitCode> {
    // It sets the terminal back after a panic, too.
    let mut terminal = ratatui::try_init().context("prepare the terminal")?;
    let ended = show(top, &mut terminal, &mut sampler, filter, signals);
    ratatui::try_restore().context("set the terminal back")?;
    ended
}

fn show(
    top: &Top,
    terminal: &mut DefaultTerminal,
    sampler: &mut Sampler,
    filter: &Filter,
    signals: &Signals,
) -> anyhow::Result<ExitCode> {
    let mut display = Display::new(top.key(true));
    let interval = top.interval.unwrap_or(INTERVAL);
    let (mut next, mut left) = (Instant::now(), top.count);
    loop {
        if next <= Instant::now() {
            next = Instant::now() + interval;
            if !display.is_paused {
                let mut sample = sampler.sample(filter)?;
                if let Some(limit) = top.limit {
                    keep(&mut sample.files, top.key(true), limit);
                }
                display.update(sample);
                // The first sample has no interval behind it.
                if left == Some(0) {
                    return Ok(ExitCode::SUCCESS);
                }
                left = left.map(|left| left - 1);
            }
        }
        draw(&mut display, terminal)?;
        let stdin = std::io::stdin();
        let mut ready = [PollFd::new(&stdin, PollFlags::IN), PollFd::new(signals, PollFlags::IN)];
        polling::until(&mut ready, Some(next))?;
        if let Some(signal) = signals.poll().filter(|signal| signal.asks_to_stop()) {
            bail!(Stopped(signal.number));
        }
        while event::poll(Duration::ZERO).context("read the terminal")? {
            let Event::Key(key) = event::read().context("read the terminal")? else { continue };
            match display.press(key) {
                Action::Redraw => {}
                Action::Quit => return Ok(ExitCode::SUCCESS),
                Action::Interrupt => bail!(Stopped(INTERRUPT)),
            }
        }
    }
}

/// Draws twice where that shows other rows: their paths are looked up in between.
fn draw(display: &mut Display, terminal: &mut DefaultTerminal) -> anyhow::Result<()> {
    for _ in 0..2 {
        terminal.draw(|frame| display.draw(frame)).context("draw")?;
        display.look_up(|file, signs| PageMap::of(file, signs).map_err(|error| error.to_string()));
    }
    terminal.draw(|frame| display.draw(frame)).context("draw")?;
    Ok(())
}
