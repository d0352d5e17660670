use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::Screen;
use crate::watch::report::{HitRatios, Memory, Report, SoFar, Verdict, Waiting};
use crate::watch::sample::{OpenFile, Stream};
use crate::watch::waits::ProcessWaits;

fn report() -> Report {
    let process = |pid, name: &str, share| ProcessWaits {
        pid,
        name: name.to_owned(),
        share,
        calls: 100,
        bytes: 100 << 20,
    };
    let stream = Stream { position: 1 << 30, window_bytes: 256 << 20, idle: 0 };
    Report {
        source: "s3://data/train/".into(),
        seconds: 1.0,
        waiting: Waiting {
            verdict: Verdict::Yes,
            share: Some(0.62),
            processes: vec![process(4711, "python3", 0.92), process(12, "bad\u{1b}[2Jname", 0.31)],
            calls: 3,
            longest_seconds: 0.4,
            reasons: vec!["a GET takes 182 ms in the mean, and 64 are in flight".into()],
        },
        reads_per_second: 1600.0,
        read_bytes_per_second: 200e6,
        fetched_bytes_per_second: 300e6,
        gets_per_second: 40.0,
        written_bytes_per_second: 0.0,
        uploaded_bytes_per_second: 0.0,
        get_seconds: Some(0.182),
        gets_in_flight: 64,
        gets_ahead: 60,
        lists_in_flight: 0,
        uploads_in_flight: 0,
        connections: 64,
        streams: 2,
        window_bytes: 512 << 20,
        widest_window_bytes: 256 << 20,
        memory: Memory {
            limit_bytes: 2 << 30,
            used_bytes: 1 << 30,
            peak_bytes: 1 << 30,
            in_flight_bytes: 512 << 20,
            read_ahead_bytes: 500 << 20,
            other_bytes: 12 << 20,
            ..Memory::default()
        },
        found: Some(HitRatios { in_memory: 0.9, in_flight: 0.08, asked_for: 0.02 }),
        disk_hits: Some(0.34),
        shared_hits: None,
        so_far: SoFar { gets: 153_000, lists: 1200, retries: 2, dollars: 0.0672, ..SoFar::default() },
        files: vec![OpenFile {
            key: "train/images/shard-000123.tar".into(),
            unread_bytes: 250 << 20,
            gets_in_flight: 32,
            waiting: 1,
            streams: vec![stream],
            ..OpenFile::default()
        }],
        lost_events: 0,
    }
}

/// The picture at this size, with and without its colours.
fn drawn(width: u16, height: u16, has_colours: bool, reports: Vec<Report>) -> (String, bool) {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
    let mut screen = Screen::new(has_colours, Duration::from_secs(1));
    reports.into_iter().for_each(|report| screen.take(report));
    terminal.draw(|frame| screen.draw(frame)).expect("a picture");
    let buffer = terminal.backend().buffer();
    let is_coloured = buffer.content().iter().any(|cell| cell.fg != Color::Reset);
    let rows = buffer.content().chunks(usize::from(width));
    let rows = rows.map(|row| row.iter().map(ratatui::buffer::Cell::symbol).collect::<String>());
    (rows.map(|row| row.trim_end().to_owned() + "\n").collect(), is_coloured)
}

#[test]
fn a_wide_terminal_shows_all() {
    let (text, is_coloured) = drawn(90, 24, true, vec![report(), report()]);
    insta::assert_snapshot!("wide", text);
    assert!(is_coloured);
}

#[test]
fn forty_columns_show_what_matters() {
    let (text, is_coloured) = drawn(40, 20, false, vec![report()]);
    insta::assert_snapshot!("narrow", text);
    assert!(!is_coloured, "NO_COLOR");
}

#[test]
fn no_terminal_is_too_small() {
    for (width, height) in [(1, 1), (5, 3), (40, 2), (300, 100), (12, 60)] {
        drawn(width, height, true, vec![]);
        drawn(width, height, true, vec![report()]);
    }
}
