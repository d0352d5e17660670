//! The picture: lines of text that fit any width.

use std::collections::VecDeque;
use std::time::Duration;

use indicatif::HumanCount;
use ratatui::Frame;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span, Text};
use s3mount_system::terminal::plain;

use crate::stats::answer;
use crate::watch::report::{Memory, Report, Verdict};
use crate::watch::sample::OpenFile;
use crate::watch::shown::{bytes, dollars, percent, rate, tail};

/// Reports whose throughput is shown.
const HISTORY: usize = 120;

/// The most processes that are shown while files need lines too.
const MAX_PROCESSES: usize = 8;

/// The heights of the history's columns.
const STEPS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// What is on the screen.
#[derive(Debug)]
pub(super) struct Screen {
    has_colours: bool,
    interval: Duration,
    report: Option<Report>,
    read: VecDeque<f64>,
    fetched: VecDeque<f64>,
}

impl Screen {
    /// A screen without a report.
    pub(super) fn new(has_colours: bool, interval: Duration) -> Self {
        Self { has_colours, interval, report: None, read: VecDeque::new(), fetched: VecDeque::new() }
    }

    /// Shows `report` from now on.
    pub(super) fn take(&mut self, report: Report) {
        for (history, now) in [
            (&mut self.read, report.read_bytes_per_second),
            (&mut self.fetched, report.fetched_bytes_per_second),
        ] {
            history.push_back(now);
            if history.len() > HISTORY {
                history.pop_front();
            }
        }
        self.report = Some(report);
    }

    /// Draws the screen.
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let area = frame.area();
        let (width, height) = (usize::from(area.width), usize::from(area.height));
        frame.render_widget(Text::from(self.lines(width, height)), area);
    }

    fn colour(&self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    fn lines(&self, width: usize, height: usize) -> Vec<Line<'static>> {
        let Some(report) = &self.report else {
            let seconds = self.interval.as_secs_f64();
            return vec![Line::raw(format!("looking for {seconds} s; q quits"))];
        };
        let mut lines = self.head(report, width);
        lines.extend(self.throughput(report, width));
        lines.extend(memory(&report.memory, width));
        lines.extend(numbers(report, width));
        lines.push(Line::raw(""));
        let left = height.saturating_sub(lines.len());
        let processes = report.waiting.processes.len().min(MAX_PROCESSES.min(left / 2));
        lines.extend(self.processes(report, width, processes));
        let left = height.saturating_sub(lines.len() + 1);
        lines.extend(files(&report.files, width, left));
        lines.truncate(height);
        lines
    }

    /// The title, and the answer to the question.
    fn head(&self, report: &Report, width: usize) -> Vec<Line<'static>> {
        let quit = "q quits";
        let name = tail(&report.source, width.saturating_sub(quit.len() + 1));
        let gap = " ".repeat(width.saturating_sub(name.chars().count() + quit.len()));
        let style = match report.waiting.verdict {
            Verdict::Yes => self.colour(Color::Red),
            Verdict::Partly => self.colour(Color::Yellow),
            Verdict::No | Verdict::Idle => self.colour(Color::Green),
            Verdict::Unknown => Style::new(),
        };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let answer = Span::styled(answer(&report.waiting), style.add_modifier(Modifier::BOLD));
        let question = if width < 60 { "waits? " } else { "waiting for storage? " };
        let mut lines = vec![
            Line::from(vec![Span::styled(name, bold), Span::raw(gap), Span::raw(quit)]),
            Line::from(vec![Span::raw(question), answer]),
        ];
        let reasons = report.waiting.reasons.iter().take(2);
        lines.extend(reasons.map(|reason| Line::raw(format!("  {reason}"))));
        lines
    }

    fn throughput(&self, report: &Report, width: usize) -> Vec<Line<'static>> {
        let row = |name: &str, now: f64, history: &VecDeque<f64>, colour| {
            let text = format!("{name:<8} {:>12} ", rate(now));
            let room = width.saturating_sub(text.chars().count());
            let columns = Span::styled(columns(history, room), self.colour(colour));
            Line::from(vec![Span::raw(text), columns])
        };
        let mut lines = vec![
            row("read", report.read_bytes_per_second, &self.read, Color::Blue),
            row("fetched", report.fetched_bytes_per_second, &self.fetched, Color::Cyan),
        ];
        if report.so_far.written_bytes > 0 {
            let written = rate(report.written_bytes_per_second);
            let uploaded = rate(report.uploaded_bytes_per_second);
            lines.push(Line::raw(format!("written  {written:>12} uploaded {uploaded}")));
        }
        lines
    }

    fn processes(&self, report: &Report, width: usize, most: usize) -> Vec<Line<'static>> {
        if most == 0 {
            return Vec::new();
        }
        let room = width.saturating_sub(20);
        let title = format!("{:<room$} {:>5} {:>13}", "PROCESS", "WAITS", "READS");
        let mut lines = vec![Line::styled(title, Style::new().add_modifier(Modifier::REVERSED))];
        lines.extend(report.waiting.processes.iter().take(most).map(|process| {
            let pid = format!(" ({})", process.pid);
            let name = plain(&process.name);
            let name: String = name.chars().take(room.saturating_sub(pid.len())).collect();
            let (name, speed) = (name + &pid, rate(process.bytes as f64 / report.seconds));
            let style = if process.share >= 0.5 { self.colour(Color::Red) } else { Style::new() };
            Line::from(vec![
                Span::raw(format!("{name:<room$} ")),
                Span::styled(format!("{:>5}", percent(process.share)), style),
                Span::raw(format!(" {speed:>13}")),
            ])
        }));
        lines
    }
}

/// The last values as columns, as high as they are large.
fn columns(history: &VecDeque<f64>, width: usize) -> String {
    let most = history.iter().copied().fold(1.0, f64::max);
    let shown = history.iter().skip(history.len().saturating_sub(width));
    shown.map(|value| STEPS[((value / most * 7.0).round() as usize).min(7)]).collect()
}

/// A bar of the memory that is taken, and who has it.
fn memory(memory: &Memory, width: usize) -> Vec<Line<'static>> {
    let of = format!(" {} of {}", bytes(memory.used_bytes), bytes(memory.limit_bytes));
    let room = width.saturating_sub("memory   ".len() + of.chars().count());
    let share = memory.used_bytes as f64 / memory.limit_bytes.max(1) as f64;
    let full = ((share * room as f64).round() as usize).min(room);
    let bar = "█".repeat(full) + &"░".repeat(room - full);
    let owners = [
        ("in flight", memory.in_flight_bytes),
        ("ahead", memory.read_ahead_bytes),
        ("blocks", memory.block_cache_bytes),
        ("uploads", memory.uploads_bytes),
        ("other", memory.other_bytes),
    ];
    let owners = owners.into_iter().filter(|(_, held)| *held > 0);
    let owners = owners.map(|(owner, held)| format!("{owner} {}", bytes(held)));
    let mut lines = vec![Line::raw(format!("memory   {bar}{of}"))];
    lines.extend(packed(owners, width));
    lines
}

/// Words on as few lines as they fit, each indented.
fn packed(words: impl Iterator<Item = String>, width: usize) -> Vec<Line<'static>> {
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 2 + word.chars().count() <= width => {
                *line += "  ";
                *line += &word;
            }
            _ => lines.push(format!("  {word}")),
        }
    }
    lines.into_iter().map(Line::raw).collect()
}

fn numbers(report: &Report, width: usize) -> Vec<Line<'static>> {
    let so_far = &report.so_far;
    let mut lines = vec![Line::raw(format!(
        "flying   {} GETs ({} ahead) {} LISTs",
        report.gets_in_flight, report.gets_ahead, report.lists_in_flight
    ))];
    lines.push(Line::raw(format!("windows  {} in {} streams", bytes(report.window_bytes), report.streams)));
    if let Some(found) = &report.found {
        let (here, coming) = (percent(found.in_memory), percent(found.in_flight));
        let asked = percent(found.asked_for);
        lines.push(Line::raw(if width < 60 {
            format!("found    {here} here {coming} coming {asked} asked")
        } else {
            format!("found    {here} in memory, {coming} on their way, {asked} asked for")
        }));
    }
    let hits = [("disk", report.disk_hits), ("shared cache", report.shared_hits)];
    let hits: Vec<_> =
        hits.iter().filter_map(|(tier, share)| Some(format!("{tier} {}", percent((*share)?)))).collect();
    if !hits.is_empty() {
        lines.push(Line::raw(format!("caches   {}", hits.join("  "))));
    }
    lines.push(Line::raw(format!(
        "so far   {} {} GETs {} LISTs",
        dollars(so_far.dollars),
        HumanCount(so_far.gets),
        HumanCount(so_far.lists)
    )));
    if so_far.retries + so_far.throttled + so_far.stalls > 0 {
        lines.push(Line::raw(format!(
            "trouble  {} retries {} throttled {} stalls",
            so_far.retries, so_far.throttled, so_far.stalls
        )));
    }
    lines
}

/// The files that are read.
fn files(files: &[OpenFile], width: usize, most: usize) -> Vec<Line<'static>> {
    if most == 0 || files.is_empty() {
        return Vec::new();
    }
    let is_wide = width >= 70;
    let room = width.saturating_sub(if is_wide { 37 } else { 17 });
    let title = if is_wide {
        format!("{:<room$} {:>11} {:>11} {:>5} {:>6}", "FILE", "AHEAD", "WINDOW", "GETS", "WAITS")
    } else {
        format!("{:<room$} {:>11} {:>4}", "FILE", "AHEAD", "GETS")
    };
    let mut lines = vec![Line::styled(title, Style::new().add_modifier(Modifier::REVERSED))];
    lines.extend(files.iter().take(most).map(|file| {
        let (name, ahead) = (tail(&file.key, room), bytes(file.unread_bytes));
        let gets = file.gets_in_flight;
        let window = bytes(file.streams.iter().map(|stream| stream.window_bytes).max().unwrap_or(0));
        Line::raw(if is_wide {
            format!("{name:<room$} {ahead:>11} {window:>11} {gets:>5} {:>6}", file.waiting)
        } else {
            format!("{name:<room$} {ahead:>11} {gets:>4}")
        })
    }));
    lines
}

#[cfg(test)]
#[path = "draw_tests.rs"]
mod tests;
