//! Tests of joining: nothing is lost, the best row wins, and what is wrong is refused beforehand.

use super::super::folder::{CONFIG_FILE, Folder};
use super::super::journal::{EngineStart, Journal};
use super::*;
use crate::matrix::samples::{cell, row, sweep};
use crate::matrix::{Cell, OomMemory, PlanOptions, RowPhase, Shard, SweepDefinition, SweepPlan};
use proptest::prelude::*;

fn now() -> jiff::Zoned {
    "2026-11-21T12:00:00[UTC]".parse().unwrap()
}

fn plan(sweep: &SweepDefinition, shard: Option<Shard>) -> SweepPlan {
    let options = PlanOptions {
        fresh: false,
        shard,
        only: &[],
        known_oom: &OomMemory::default(),
        retry_oom: false,
    };
    SweepPlan::for_sweep(sweep, &options).unwrap()
}

/// Runs a plan as the runner does, with a profile and a capture for each cell; returns its folder.
fn run(results: &Path, plan: &SweepPlan, rows: impl Fn(&Cell) -> Option<CellRow>) -> PathBuf {
    let folder = Folder::create_new(results, &plan.name, &now()).unwrap();
    let (mut journal, _) = Journal::open_folder(folder.path()).unwrap();
    let session = SweepSession::new(&plan.name, "2026-11-20T10:00:00Z".into(), false, plan.shard);
    journal.write_session(&session).unwrap();
    Cells::of_plan(plan).write_file(folder.path()).unwrap();
    fs::write(folder.path().join(folder::CONFIG_FILE), "models: []\n").unwrap();
    for group in &plan.groups {
        journal
            .write_start(EngineStart {
                group: group.id.clone(),
                run_id: "r".into(),
                container: None,
                took_s: 30.0,
                at: "2026-11-20T10:00:00Z".into(),
                failed: None,
            })
            .unwrap();
        let start = folder.start_paths(&group.id).unwrap();
        fs::write(start.capture.join("capture.json"), "{}").unwrap();
        for cell in &group.cells {
            let Some(mut row) = rows(cell) else { continue };
            let paths = folder.cell_paths(cell, 1).unwrap();
            fs::write(paths.capture.join("capture.json"), cell.id.to_string()).unwrap();
            fs::write(&paths.profile, "{}").unwrap();
            row.profile = Some(folder.relative_path(&paths.profile));
            if row.phase == Some(RowPhase::Start) {
                fs::write(&start.profile, "{}").unwrap();
                row.profile = Some(folder.relative_path(&start.profile));
            }
            journal.write_end(&row).unwrap();
        }
    }
    folder.path().to_owned()
}

fn done(cell: &Cell) -> Option<CellRow> {
    Some(row(cell, RowStatus::Done))
}

fn rows(results: &Results) -> BTreeMap<CellId, Option<CellRow>> {
    let pairs = results.cells.iter();
    pairs.map(|o| (o.cell.id.clone(), o.row.clone())).collect()
}

fn cells(models: &[&str]) -> Vec<Cell> {
    let of = |model: &&str| [cell(model, 128, 64, 1), cell(model, 128, 64, 8)];
    models.iter().flat_map(of).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn parts_joined_are_the_whole(models in 1..7usize, of in 1..5u32, failing in 0..14usize) {
        let dir = tempfile::tempdir().unwrap();
        let names: Vec<String> = (0..models).map(|n| format!("m{n}")).collect();
        let all = sweep(cells(&names.iter().map(String::as_str).collect::<Vec<_>>()));
        let came = |cell: &Cell| {
            let n = all.cells.iter().position(|c| c.id == cell.id);
            let status = if n == Some(failing) { RowStatus::Failed } else { RowStatus::Done };
            Some(row(cell, status))
        };
        let parts: Vec<PathBuf> = (1..=of)
            .map(|index| run(dir.path(), &plan(&all, Some(Shard { index, of })), came))
            .collect();
        let whole = run(dir.path(), &plan(&all, None), came);
        let alone = merge_runs(&[whole], &dir.path().join("alone"), &now()).unwrap();
        let joined = merge_runs(&parts, &dir.path().join("joined"), &now()).unwrap();
        prop_assert_eq!(rows(&joined.results), rows(&alone.results));
        prop_assert!(joined.results.notes.is_empty(), "{:?}", joined.results.notes);
        for (id, row) in rows(&joined.results) {
            let profile = joined.folder.join(row.unwrap().profile.unwrap());
            let capture = profile.with_extension("capture").join("capture.json");
            prop_assert_eq!(fs::read_to_string(capture).unwrap(), id.to_string());
        }
        // What was joined is a run like any other.
        let again = merge_runs(std::slice::from_ref(&joined.folder), &dir.path().join("again"), &now());
        let again = again.unwrap();
        prop_assert_eq!(rows(&again.results), rows(&joined.results));
        Folder::open_earlier(&again.folder, &now()).unwrap();
        prop_assert_eq!(
            fs::read(again.paths.csv).unwrap(),
            fs::read(joined.paths.csv).unwrap()
        );
    }
}

/// Each run has a folder of its starts.
#[test]
fn rows_of_failed_starts_name_their_profiles_in_the_joined_run() {
    let dir = tempfile::tempdir().unwrap();
    let failed = |cell: &Cell| {
        let phase = Some(RowPhase::Start);
        let row = row(cell, RowStatus::Failed);
        Some(CellRow { phase, ..row })
    };
    let runs = ["a", "b"].map(|model| {
        let mut stage = sweep(cells(&[model]));
        stage.name = model.into();
        run(dir.path(), &plan(&stage, None), failed)
    });
    let merged = merge_runs(&runs, &dir.path().join("all"), &now()).unwrap();
    let paths = rows(&merged.results).into_values();
    let paths: BTreeSet<String> = paths.map(|row| row.unwrap().profile.unwrap()).collect();
    assert_eq!(paths.len(), 2, "{paths:?}");
    assert!(
        paths.iter().all(|path| merged.folder.join(path).is_file()),
        "{paths:?}"
    );
}

#[test]
fn stages_add_up() {
    let dir = tempfile::tempdir().unwrap();
    let (small, large) = (cells(&["small"]), cells(&["large"]));
    let mut second = sweep(large);
    second.name = "large".into();
    let a = run(dir.path(), &plan(&sweep(small), None), done);
    let b = run(dir.path(), &plan(&second, None), |_| None);
    fs::write(b.join(CONFIG_FILE), "models: [large]\n").unwrap();
    let beside = default_output(&[a.clone(), b.clone()], &now());
    let small = fs::canonicalize(dir.path().join("small")).unwrap();
    assert_eq!(beside, small.join("merged-20261121_120000"));
    let merged = merge_runs(&[a, b], &dir.path().join("all"), &now()).unwrap();
    let counts = merged.results.cell_counts();
    assert_eq!((counts.cells, counts.done, counts.not_run), (4, 2, 2));
    assert_eq!(merged.results.name, "small+large");
    for (name, there) in [
        ("config.resolved-1.yaml", true),
        ("config.resolved-2.yaml", true),
        ("config.resolved.yaml", false),
        ("batch-bench-report-20261121_120000.txt", true),
        ("batch-bench-results-20261121_120000.csv", true),
        ("results.json", true),
        ("starts-1", true),
        ("starts-2", true),
        ("starts", false),
    ] {
        assert_eq!(merged.folder.join(name).exists(), there, "{name}");
    }
    let again = dir.path().join("again");
    merge_runs(std::slice::from_ref(&merged.folder), &again, &now()).unwrap();
    assert!(again.join("config.resolved-2.yaml").exists() && again.join("starts-2").exists());
    let table = fs::read_to_string(merged.paths.csv).unwrap();
    assert_eq!(table.lines().count(), 5);
    let history = SweepHistory::read_journal(&merged.folder).unwrap();
    assert_eq!(history.starts.len(), 2, "kept for the next estimate");
}

#[test]
fn the_most_informative_row_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let all = sweep(cells(&["m"]));
    let made = |status: RowStatus, ended: &str| {
        let ended = ended.to_owned();
        run(dir.path(), &plan(&all, None), move |c| {
            Some(CellRow {
                ended: ended.clone(),
                ..row(c, status)
            })
        })
    };
    let failed = made(RowStatus::Failed, "2026-11-22T10:00:00Z");
    // The same moment in words that sort otherwise.
    let late = made(RowStatus::Done, "2026-11-21T12:00:00+02:00");
    let early = made(RowStatus::Done, "2026-11-21T09:00:00.5Z");
    let skipped = made(RowStatus::Skipped, "2026-11-23T10:00:00Z");
    let dirs = [failed, late.clone(), early, skipped];
    for (n, order) in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]]
        .iter()
        .enumerate()
    {
        let dirs: Vec<PathBuf> = order.iter().map(|i| dirs[*i].clone()).collect();
        let merged = merge_runs(&dirs, &dir.path().join(format!("all-{n}")), &now()).unwrap();
        for row in rows(&merged.results).into_values().flatten() {
            assert_eq!(row.ended, "2026-11-21T12:00:00+02:00");
        }
        let [note] = &merged.results.notes[..] else {
            panic!("{:?}", merged.results.notes)
        };
        let kept = format!("of `{}`, are kept", late.display());
        assert!(
            note.starts_with("2 cells were measured") && note.contains(&kept),
            "{note}"
        );
    }
}

#[test]
fn a_run_that_went_on_with_another_part_has_both() {
    let dir = tempfile::tempdir().unwrap();
    let all = sweep(cells(&["a", "b"]));
    let [first, second] = [1, 2].map(|index| plan(&all, Some(Shard { index, of: 2 })));
    let folder = run(dir.path(), &second, done);
    let (mut journal, _) = Journal::open_folder(&folder).unwrap();
    journal
        .write_session(&SweepSession::new(
            "small",
            "now".into(),
            false,
            first.shard,
        ))
        .unwrap();
    for cell in first.planned_cells() {
        journal.write_end(&row(cell, RowStatus::Done)).unwrap();
    }
    drop(journal);
    let mut described = Cells::read_file(&folder).unwrap().unwrap();
    described.add_missing(all.cells.iter());
    described.write_file(&folder).unwrap();
    let merged = merge_runs(&[folder], &dir.path().join("out"), &now()).unwrap();
    let notes = merged.results.notes.join("\n");
    assert!(!notes.contains("missing"), "{notes}");
}

#[test]
fn a_missing_part_and_a_torn_line_are_reported() {
    let dir = tempfile::tempdir().unwrap();
    let all = sweep(cells(&["a", "b", "c"]));
    let shard = Some(Shard { index: 2, of: 3 });
    let part = run(dir.path(), &plan(&all, shard), done);
    let journal = part.join(JOURNAL_FILE);
    let mut bytes = fs::read(&journal).unwrap();
    bytes.truncate(bytes.len() - 5);
    fs::write(&journal, &bytes).unwrap();
    let merged = merge_runs(std::slice::from_ref(&part), &dir.path().join("out"), &now()).unwrap();
    let notes = merged.results.notes.join("\n");
    assert!(notes.contains("missing: 1/3, 3/3"), "{notes}");
    assert!(notes.contains("not written to its end"), "{notes}");
    assert_eq!(merged.results.cell_counts().done, 1);
    assert_eq!(fs::read(&journal).unwrap(), bytes, "a run is only read");
}

#[test]
fn what_cannot_be_joined_is_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let one = run(dir.path(), &plan(&sweep(cells(&["m"])), None), done);
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let blind = run(dir.path(), &plan(&sweep(cells(&["m"])), None), done);
    fs::remove_file(blind.join(folder::CELLS_FILE)).unwrap();
    let full = dir.path().join("full");
    fs::create_dir(&full).unwrap();
    fs::write(full.join("x"), "x").unwrap();
    let again = one.join("../").join(one.file_name().unwrap());
    let out = dir.path().join("out");
    for (dirs, output, word) in [
        (vec![one.clone(), again], &out, "named twice"),
        (vec![one.clone(), empty], &out, "holds no run"),
        (vec![one.clone(), dir.path().join("no")], &out, "no folder"),
        (vec![blind], &out, "does not list its cells"),
        (vec![one.clone()], &full, "not empty"),
        (vec![one.clone()], &one, "not empty"),
    ] {
        let e = merge_runs(&dirs, output, &now()).unwrap_err();
        assert!(e.message.contains(word), "{e}");
        assert!(!out.exists());
    }
    let left = fs::read_dir(dir.path()).unwrap();
    let hidden = left.filter(|e| {
        e.as_ref()
            .unwrap()
            .file_name()
            .to_str()
            .unwrap()
            .starts_with('.')
    });
    assert_eq!(hidden.count(), 0);
}

#[test]
fn a_link_among_the_files_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let secret = dir.path().join("secret");
    fs::write(&secret, "mine").unwrap();
    let one = run(dir.path(), &plan(&sweep(cells(&["m"])), None), done);
    let id = &Cells::read_file(&one).unwrap().unwrap().cells[0].id;
    let planted = one.join(CELLS_FOLDER).join(format!("{id}-x.json"));
    std::os::unix::fs::symlink(&secret, planted).unwrap();
    let merged = merge_runs(&[one], &dir.path().join("out"), &now()).unwrap();
    let linked = merged
        .folder
        .join(CELLS_FOLDER)
        .join(format!("{id}-x.json"));
    assert!(fs::symlink_metadata(linked).is_err());
}
