//! `make scale`: the same work by a daemon that has 1, 2, 4 and so on, and all processors of this machine. The server and
//! the readers have those that are left, so the last step, where everyone shares all, tells less than those before.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::anyhow;
use plotters::prelude::*;

use crate::cores::Cores;
use crate::report::Row;
use crate::scenario::{FILES, GIB, KIB, MIB, Pattern, Scenario, pattern};

/// What is measured by so many processors. The work grows with them.
pub(crate) fn scenarios(cores: usize) -> Vec<Scenario> {
    let streams = |count: usize, bytes, block, direct| Pattern::Streams {
        streams: count.clamp(1, FILES),
        bytes,
        block,
        direct,
    };
    // A machine of so many processors has more memory, too.
    let memory_limit = GIB.max(GIB / 2 * cores as u64);
    let plain = [
        pattern("streams", streams(4 * cores, GIB, MIB, false)),
        pattern("direct", streams(2 * cores, 2 * GIB, 8 * MIB, true)),
        pattern("random 4KiB", Pattern::Random { threads: 8 * cores, count: 500, block: 4 * KIB }),
    ];
    let tls = pattern("tls streams", streams(4 * cores, GIB, MIB, false)).tls();
    plain.into_iter().chain([tls]).map(|scenario| Scenario { memory_limit, ..scenario }).collect()
}

/// The rows of one scenario, by the number of processors.
pub(crate) struct Scaled {
    pub(crate) name: &'static str,
    pub(crate) rows: Vec<(usize, Row)>,
}

impl Scaled {
    /// Speeds, also in relation to what the target has with one processor.
    pub(crate) fn table(&self) -> String {
        let mut text = format!(
            "{:<24} {:>5} {:>7} {:>6} {:>7} {:>6} {:>6} {:>8} {:>6}\n",
            self.name, "cores", "GB/s", "times", "daemon", "reader", "server", "switches", "MiB"
        );
        for (cores, row) in &self.rows {
            let first = self.rows.iter().find(|(_, first)| first.target == row.target);
            let times = first.map_or(1.0, |(_, first)| row.gb_s / first.gb_s);
            let _ = writeln!(
                text,
                "  {:<22} {cores:>5} {:>7} {times:>6.2} {:>7.2} {:>6.2} {:>6.2} {:>8.0} {:>6}",
                row.target,
                crate::report::rate(row.gb_s),
                row.daemon_cpu,
                row.reader_cpu,
                row.server_cpu,
                row.switches,
                row.peak_rss_mib,
            );
        }
        text
    }
}

/// Draws speed by processors: a line for each scenario and target.
pub(crate) fn draw(picture: &Path, all: &[Scaled], cores: &Cores) -> anyhow::Result<()> {
    plot(picture, all, cores.steps().last().copied().unwrap_or(1))
        .map_err(|error| anyhow!("drawing {}: {error}", picture.display()))
}

fn plot(picture: &Path, all: &[Scaled], cores: usize) -> Result<(), Box<dyn std::error::Error>> {
    let area = SVGBackend::new(picture, (900, 600)).into_drawing_area();
    area.fill(&WHITE)?;
    let most = all.iter().flat_map(|scaled| &scaled.rows).map(|(_, row)| row.gb_s).fold(1.0, f64::max);
    // The names need room at the right.
    let mut chart = ChartBuilder::on(&area)
        .caption("GB/s by the daemon's processors", ("sans-serif", 20))
        .margin(10)
        .x_label_area_size(30)
        .y_label_area_size(50)
        .build_cartesian_2d(0.0..cores as f64 * 1.4, 0.0..most * 1.05)?;
    chart.configure_mesh().y_desc("GB/s").draw()?;
    let targets = |scaled: &Scaled| {
        let mut targets: Vec<&'static str> = scaled.rows.iter().map(|(_, row)| row.target).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    };
    let lines = all.iter().flat_map(|scaled| targets(scaled).into_iter().map(move |target| (scaled, target)));
    for (index, (scaled, target)) in lines.enumerate() {
        let colour = Palette99::pick(index).to_rgba();
        let points: Vec<(f64, f64)> = scaled
            .rows
            .iter()
            .filter(|(_, row)| row.target == target)
            .map(|(cores, row)| (*cores as f64, row.gb_s))
            .collect();
        chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
        chart
            .draw_series(LineSeries::new(points, colour))?
            .label(format!("{}, {target}", scaled.name))
            .legend(move |(x, y)| Rectangle::new([(x, y - 4), (x + 12, y + 4)], colour.filled()));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::UpperRight).draw()?;
    area.present()?;
    Ok(())
}
