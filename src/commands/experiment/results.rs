//! The files of an experiment: the results of its levels, read back and written for people and
//! tools.

use super::levels::ExperimentLevels;
use crate::commands::load::exit_code_of;
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::experiment::{Experiment, LevelRun, LevelState};
use crate::matrix::{Cell, CellRow, EnginePlace, RowPhase, RowStatus};
use crate::report::chapters::document_report;
use crate::report::chart::Chart;
use crate::report::chart::png;
use crate::report::chart::svg::{self, ChartStyle};
use crate::report::content::{Chapter, ContentBlock, Report};
use crate::report::experiment as page;
use crate::report::format::text::file_text;
use crate::report::json::json_bytes;
use crate::store::{ProfileFile, StoredCapture, read_profile, write_atomically};
use crate::sweep::{Folder, SweepHistory};
use std::path::Path;

/// Reads the results of the levels, writes all files and shows the report.
pub fn write_results(
    console: &Console,
    levels: &ExperimentLevels<'_>,
    cells: &[Cell],
    folder: &Folder,
    interrupted: bool,
) -> anyhow::Result<Experiment> {
    let history = SweepHistory::read_journal(folder.path())?;
    let mut runs = Vec::new();
    for ((name, asked), cell) in levels.levels.iter().zip(cells) {
        let row = history.rows.get(&cell.id);
        let found = row.and_then(|row| {
            let path = row.profile.as_ref()?;
            // The profile of a start has nothing of the load that was asked for.
            if row.phase == Some(RowPhase::Start) {
                return None;
            }
            Some(of_disk(console, &folder.path().join(path)))
        });
        let (profile, requests, wall_start_ns) = found.unwrap_or_default();
        runs.push(LevelRun {
            name: name.clone(),
            asked: asked.clone(),
            state: row.map_or(LevelState::NotRun, |row| state(row.status)),
            why: row.and_then(row_cause),
            profile,
            profile_path: row.and_then(|row| row.profile.clone()),
            requests,
            wall_start_ns,
        });
    }
    let server = cells.first().map(|cell| &cell.server);
    let place = |container: bool| {
        let place = server.map(|s| &s.place)?;
        let is = matches!(place, EnginePlace::Container(_));
        (is == container).then(|| place.place_name().to_owned())
    };
    let head = Experiment {
        kind: levels.kind,
        timestamp: (history.sessions.first())
            .map(|s| s.started.clone())
            .unwrap_or_default(),
        took_s: history.worked_s(),
        interrupted,
        model: server.map(|s| s.model.clone()).unwrap_or_default(),
        container: place(true),
        image: place(false),
        bench: cells
            .first()
            .map_or_else(String::new, |c| c.load.bench.as_str().into()),
        ..Experiment::default()
    };
    let experiment = Experiment::experiment_of_runs(head, &runs);
    let report = document_report("experiment", &experiment)?;
    store(folder, &experiment, &runs, &report)?;
    let blocks = report.chapters.iter().flat_map(Chapter::all_blocks);
    let charts = blocks.filter_map(|block| match block {
        ContentBlock::Chart(chart) => Some(chart),
        _ => None,
    });
    let drawn = draw_charts(folder.path(), charts)?;
    console.show_document(levels.flags.json, &experiment, || Ok(report))?;
    if !drawn.is_empty() {
        console.print_note(&format!("plots: {}", drawn.join(", ")));
    }
    console.print_note(&format!("results: {}", folder.path().display()));
    Ok(experiment)
}

/// The tables, the documents and the page.
fn store(
    folder: &Folder,
    experiment: &Experiment,
    runs: &[LevelRun],
    report: &Report,
) -> anyhow::Result<()> {
    let records = experiment.request_records(runs);
    for (name, bytes) in [
        ("experiment.json", json_bytes(experiment)?),
        ("requests.csv", page::requests_csv(&records)),
        ("requests.json", page::requests_json(experiment, &records)?),
        ("summary.csv", page::summary_csv(experiment)),
        ("report.txt", file_text(report).into_bytes()),
    ] {
        write_atomically(&folder.path().join(name), &bytes)?;
    }
    Ok(())
}

/// Writes the figures; gives the names of the files.
fn draw_charts<'a>(
    folder: &Path,
    charts: impl Iterator<Item = &'a Chart>,
) -> Result<Vec<String>, Failure> {
    let mut drawn = Vec::new();
    for chart in charts {
        let picture = svg::chart_svg(chart, ChartStyle::Standalone);
        let pixels = png::CAN_DRAW.then(|| png::png(&picture)).transpose();
        let pixels = pixels.map_err(|e| {
            Failure::bug("a figure of the experiment cannot be drawn as PNG").caused_by(e)
        })?;
        let files = [("svg", Some(picture.into_bytes())), ("png", pixels)];
        for (ending, bytes) in files {
            let Some(bytes) = bytes else { continue };
            let name = format!("{}.{ending}", chart.id);
            write_atomically(&folder.join(&name), &bytes)?;
            drawn.push(name);
        }
    }
    Ok(drawn)
}

type OnDisk = (
    Option<Box<crate::profile::Profile>>,
    Vec<crate::capture::RequestRow>,
    i64,
);

/// The profile of a level and its requests. What cannot be read is reported, and missing.
fn of_disk(console: &Console, path: &Path) -> OnDisk {
    let unread = |what: &str, e: Failure| {
        console.print_warning(&format!("{what} of a level cannot be read: {e}"));
    };
    let profile = match read_profile(path) {
        Ok(ProfileFile::Profile(profile)) => Some(profile),
        Ok(ProfileFile::Older(_)) => None,
        Err(e) => {
            unread("the profile", e);
            None
        }
    };
    let capture = StoredCapture::open(&path.with_extension("capture")).and_then(|stored| {
        let requests = stored.read_requests()?.collect();
        Ok((requests, stored.capture.wall_start_ns))
    });
    match capture {
        Ok((requests, wall_start_ns)) => (profile, requests, wall_start_ns),
        Err(e) => {
            unread("the capture", e);
            (profile, Vec::new(), 0)
        }
    }
}

fn state(status: RowStatus) -> LevelState {
    match status {
        RowStatus::Done => LevelState::Done,
        RowStatus::Failed => LevelState::Failed,
        RowStatus::Skipped | RowStatus::Interpolated => LevelState::Skipped,
    }
}

fn row_cause(row: &CellRow) -> Option<(String, String)> {
    let cause = row.cause?.as_str().to_owned();
    Some((cause, row.message.clone().unwrap_or_default()))
}

/// How an experiment ended, as an exit code.
pub fn exit_code(experiment: &Experiment) -> ExitCode {
    let done = experiment.completed_levels().count();
    exit_code_of(done, experiment.levels.len() - done)
}
