//! What came of a sweep, as people and programs read it; its plan before anything runs.

use crate::common::captures;
use crate::common::pages::{plain, terminal_page};
use captures::*;
use plimsoll::capture::RequestedSettings;
use plimsoll::matrix::{
    BenchWord, Cell, CellId, CellLoad, CellRow, EnginePlace, Forecast, OomMemory, OomRecord,
    PlanOptions, RowCause, RowFigures, RowPhase, RowStatus, ServerConfig, Shard, SweepDefinition,
    SweepPlan,
};
use plimsoll::preset::Preset;
use plimsoll::report::chapters::document_report;
use plimsoll::report::json::json_bytes;
use plimsoll::report::layout::text_width;
use plimsoll::report::sweep::{Results, csv, json, plan};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

fn server(model: &str) -> ServerConfig {
    ServerConfig {
        model: model.into(),
        engine: Some("vllm".into()),
        place: EnginePlace::Container("llm".into()),
        settings: RequestedSettings {
            dtype: Some("bfloat16".into()),
            tensor_parallel_size: Some(2),
            gpu_memory_utilization: Some(0.9),
            ..RequestedSettings::default()
        },
        engine_args: vec!["--enforce-eager".into()],
        architecture: BTreeMap::new(),
    }
}

fn started(image: &str) -> ServerConfig {
    let mut preset = Preset {
        image: Some(image.into()),
        ..Preset::default()
    };
    preset.env.insert("HF_TOKEN".into(), "swordfish-42".into());
    ServerConfig {
        place: EnginePlace::Image(Box::new(preset)),
        engine: None,
        settings: RequestedSettings::default(),
        engine_args: Vec::new(),
        ..server("org/Other-7B")
    }
}

fn cell(server: &Arc<ServerConfig>, input_len: u32, batch: u32) -> Cell {
    let load = CellLoad {
        bench: BenchWord::Serve,
        input_len,
        output_len: 128,
        batch_size: Some(batch),
        request_rate: None,
        num_prompts: None,
        num_iters: None,
        num_iters_warmup: None,
        repeats: 1,
        seed: None,
        short_prompts: None,
    };
    Cell::new(server.clone(), load)
}

fn row(cell: &Cell, status: RowStatus) -> CellRow {
    CellRow {
        cell: cell.id.clone(),
        group: cell.group.clone(),
        status,
        cause: None,
        phase: None,
        message: None,
        attempt: 1,
        ended: "2026-11-20T10:03:00Z".into(),
        took_s: 12.5,
        profile: None,
        figures: RowFigures::default(),
    }
}

fn done(cell: &Cell, peak_gib: f64) -> CellRow {
    CellRow {
        profile: Some(format!("cells/{}-x.json", cell.id)),
        figures: RowFigures {
            peak_bytes: Some((peak_gib * GIB as f64) as u64),
            model_weights_bytes: Some(13 * GIB + 1),
            kv_cache_bytes: Some(20 * GIB),
            activations_bytes: Some(1_300_000_000),
            unexplained_bytes: Some(-(GIB as i64) / 2),
            mean_latency_ms: Some(1234.5678),
            tokens_per_second: Some(829.25),
            memory_backend: Some("nvml".into()),
            ..RowFigures::default()
        },
        ..row(cell, RowStatus::Done)
    }
}

fn failed(cell: &Cell, cause: RowCause, message: &str) -> CellRow {
    CellRow {
        cause: Some(cause),
        phase: Some(RowPhase::Bench),
        message: Some(message.into()),
        ..row(cell, RowStatus::Failed)
    }
}

/// Two groups with every kind of ending.
fn eventful() -> Results {
    let tiny = Arc::new(server("org/Tiny-1B"));
    let other = Arc::new(started("registry/llm:1"));
    let mut cells: Vec<Cell> = Vec::new();
    for input in [128, 4096] {
        cells.extend([1, 8, 64].map(|batch| cell(&tiny, input, batch)));
    }
    cells.extend([1, 8].map(|batch| cell(&other, 128, batch)));
    let mut rows: Vec<CellRow> = vec![done(&cells[0], 35.5), done(&cells[1], 36.25)];
    let oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.";
    rows.push(failed(&cells[2], RowCause::Oom, oom));
    rows.push(done(&cells[3], 71.0));
    rows.push(failed(&cells[4], RowCause::Oom, oom));
    rows.push(CellRow {
        status: RowStatus::Skipped,
        phase: None,
        ..failed(
            &cells[5],
            RowCause::ImpliedOom,
            "`in 4096 out 128 batch 8`, which takes no more, ran out of memory in this run",
        )
    });
    let mut pretended = done(&cells[6], 2.0);
    pretended.figures.simulated = true;
    pretended.figures.model_weights_bytes = None;
    rows.push(pretended);
    let rows: HashMap<CellId, CellRow> = rows.into_iter().map(|r| (r.cell.clone(), r)).collect();
    Results {
        started: Some("2026-11-20T10:00:00Z".into()),
        took_s: Some(725.0),
        notes: vec![
            "the last line of `journal.jsonl` was not written to its end, and is left out".into(),
        ],
        ..Results::new("scaling", cells.iter(), &rows)
    }
}

fn results_page(results: &Results, width: usize, unicode: bool) -> String {
    let report = document_report("sweep", &json::results_document(results)).unwrap();
    terminal_page(&report, plain(unicode, width))
}

#[test]
fn the_page_of_the_results() {
    insta::assert_snapshot!(results_page(&eventful(), 120, true));
}

#[test]
fn the_page_on_a_narrow_terminal() {
    let page = results_page(&eventful(), 80, false);
    assert!(page.is_ascii());
    for line in page.lines() {
        assert!(text_width(line) <= 80, "{line}");
    }
    insta::assert_snapshot!(page);
}

/// Cells of one group that differ in nothing but what stands behind the lengths.
fn alike() -> Results {
    let tiny = Arc::new(server("org/Tiny-1B"));
    let first = CellLoad {
        bench: BenchWord::Auto,
        ..cell(&tiny, 128, 8).load
    };
    let changes: [fn(&mut CellLoad); 8] = [
        |_| {},
        |l| l.bench = BenchWord::Builtin,
        |l| l.repeats = 3,
        |l| l.num_iters = Some(5),
        |l| l.num_iters_warmup = Some(0),
        |l| l.num_prompts = Some(200),
        |l| l.seed = Some(7),
        |l| l.batch_size = None,
    ];
    let cells = changes.map(|change| {
        let mut load = first.clone();
        change(&mut load);
        Cell::new(tiny.clone(), load)
    });
    let row = |c: &Cell| {
        (
            c.id.clone(),
            failed(c, RowCause::Timeout, "its time was up"),
        )
    };
    let rows = cells.iter().map(row).collect();
    Results::new("alike", cells.iter(), &rows)
}

#[test]
fn no_two_rows_of_a_table_are_alike() {
    let results = alike();
    let page = results_page(&results, 400, true);
    let table = page.split("All cells").nth(1).unwrap();
    let lines: Vec<&str> = table
        .lines()
        .filter(|l| l.starts_with("  auto ") || l.starts_with("  builtin "))
        .collect();
    let once: HashSet<&str> = lines.iter().copied().collect();
    assert_eq!((lines.len(), once.len()), (8, 8), "{page}");
    let words: HashSet<String> = results
        .cells
        .iter()
        .map(|o| o.cell.describe_load())
        .collect();
    assert_eq!(words.len(), 8, "{words:?}");
    insta::assert_snapshot!(page);
}

#[test]
fn a_sweep_of_which_nothing_ran_took_no_time() {
    let nothing = Results {
        took_s: Some(std::iter::empty::<f64>().sum()),
        ..eventful()
    };
    let page = results_page(&nothing, 80, true);
    assert!(!page.contains("of work"), "{page}");
    let document =
        String::from_utf8(json_bytes(&json::results_document(&nothing)).unwrap()).unwrap();
    assert!(document.contains("\"took_s\": 0.0"), "{document}");
}

#[test]
fn what_only_pretends_is_said_wherever_it_is() {
    let all = eventful();
    assert!(results_page(&all, 80, true).contains("SIMULATED"));
    let bytes = json_bytes(&json::results_document(&all)).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(document["simulated"], true);
    assert_eq!(document["cells"][6]["row"]["figures"]["simulated"], true);
    let mut real = all;
    real.cells.remove(6);
    assert!(!results_page(&real, 80, true).contains("SIMULATED"));
}

/// The table, as a data frame reads it: a map of columns for each cell.
fn table(results: &Results) -> Vec<HashMap<String, String>> {
    let bytes = csv::render_csv(results);
    let mut reader = ::csv::Reader::from_reader(&bytes[..]);
    reader.deserialize().map(|r| r.unwrap()).collect()
}

#[test]
fn the_table_has_every_cell_in_full_and_leaves_unknown_empty() {
    let rows = table(&eventful());
    assert_eq!(rows.len(), 8);
    let (first, oom, pretended, not_run) = (&rows[0], &rows[2], &rows[6], &rows[7]);
    for (row, column, value) in [
        (first, "model", "org/Tiny-1B"),
        (first, "container", "llm"),
        (first, "image", ""),
        (first, "peak_gib", "35.5"),
        (first, "model_weights_gib", "13.000000000931323"),
        (first, "unexplained_gib", "-0.5"),
        (first, "mean_latency_ms", "1234.5678"),
        (first, "kv_pool_gib", ""),
        (first, "engine_args", "'--enforce-eager"),
        (first, "simulated", "false"),
        (oom, "status", "failed"),
        (oom, "cause", "oom"),
        (oom, "phase", "bench"),
        (oom, "peak_gib", ""),
        (pretended, "simulated", "true"),
        (pretended, "image", "registry/llm:1"),
        (pretended, "tensor_parallel_size", ""),
        (not_run, "status", "not_run"),
        (not_run, "attempt", ""),
    ] {
        assert_eq!(row[column], value, "{column}");
    }
}

#[test]
fn the_table_says_what_was_asked_for_and_what_ran() {
    let mut server = started("registry/llm:1");
    server.architecture.insert("num_layers".into(), 32.0);
    server.architecture.insert("model_params".into(), 6.7e9);
    let load = CellLoad {
        bench: BenchWord::Auto,
        repeats: 3,
        num_prompts: Some(200),
        num_iters: Some(5),
        num_iters_warmup: Some(1),
        seed: Some(7),
        short_prompts: None,
        ..cell(&Arc::new(server.clone()), 128, 8).load
    };
    let cell = Cell::new(Arc::new(server), load);
    let mut row = done(&cell, 2.0);
    row.figures.engine = Some("sglang".into());
    row.figures.bench = Some("serve".into());
    row.figures.mean_latency_stddev_ms = Some(1.5);
    row.figures.tokens_per_second_stddev = Some(0.25);
    row.figures.peak_stddev_bytes = Some(GIB as f64 / 2.0);
    let rows = HashMap::from([(cell.id.clone(), row)]);
    let results = Results::new("one", [&cell].into_iter(), &rows);
    let row = &table(&results)[0];
    for (column, value) in [
        ("bench", "auto"),
        ("bench_run", "serve"),
        ("engine", "sglang"),
        ("repeats", "3"),
        ("num_prompts", "200"),
        ("num_iters", "5"),
        ("num_iters_warmup", "1"),
        ("seed", "7"),
        ("model_params", "6700000000"),
        ("num_layers", "32"),
        ("num_heads", ""),
        ("num_kv_heads", ""),
        ("head_dim", ""),
        ("hidden_size", ""),
        ("mean_latency_stddev_ms", "1.5"),
        ("tokens_per_second_stddev", "0.25"),
        ("peak_stddev_gib", "0.5"),
    ] {
        assert_eq!(row[column], value, "{column}");
    }
    let document: serde_json::Value =
        serde_json::from_slice(&json_bytes(&json::results_document(&results)).unwrap()).unwrap();
    let cell = &document["cells"][0];
    assert_eq!(cell["row"]["figures"]["engine"], "sglang");
    assert_eq!(cell["architecture"]["num_layers"], 32.0);
    assert_eq!(cell["load"]["repeats"], 3);
}

#[test]
fn a_row_of_an_earlier_journal_is_read() {
    let row = r#"{"cell":"0123456789ab","group":"ba9876543210","status":"done","attempt":1,
        "ended":"2026-11-20T10:03:00Z","took_s":12.5,"figures":{"peak_bytes":3,"simulated":false}}"#;
    let row: CellRow = serde_json::from_str(row).unwrap();
    assert_eq!(
        (row.figures.peak_bytes, row.figures.engine),
        (Some(3), None)
    );
}

#[test]
fn no_field_of_the_table_is_a_formula() {
    let mut results = eventful();
    for (text, written) in [
        ("=HYPERLINK(\"http://x\")", "'=HYPERLINK(\"http://x\")"),
        ("+1 for that", "'+1 for that"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\tx", "'\tx"),
        ("-1.5", "-1.5"),
        ("-inf", "'-inf"),
        ("a, \"b\"\nc", "a, \"b\"\nc"),
    ] {
        results.cells[0].row.as_mut().unwrap().message = Some(text.into());
        assert_eq!(table(&results)[0]["message"], written);
    }
}

#[test]
fn the_document_has_the_rows_of_the_journal_and_no_secret() {
    let results = eventful();
    let bytes = json_bytes(&json::results_document(&results)).unwrap();
    assert!(bytes.ends_with(b"}\n"));
    let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(document["schema_version"], "1");
    assert_eq!(document["counts"]["failed"], 2);
    assert_eq!(document["cells"][7]["row"], serde_json::Value::Null);
    for (cell, outcome) in document["cells"]
        .as_array()
        .unwrap()
        .iter()
        .zip(&results.cells)
    {
        let row: Option<CellRow> = serde_json::from_value(cell["row"].clone()).unwrap();
        assert_eq!(row, outcome.row);
    }
    assert!(!String::from_utf8(bytes).unwrap().contains("swordfish"));
}

fn planned() -> SweepDefinition {
    SweepDefinition {
        name: "scaling".into(),
        cells: eventful().cells.into_iter().map(|o| o.cell).collect(),
        timeout: None,
        health_timeout: None,
    }
}

fn plan_of(sweep: &SweepDefinition, known_oom: &OomMemory, shard: Option<Shard>) -> SweepPlan {
    let options = PlanOptions {
        fresh: false,
        shard,
        only: &[],
        known_oom,
        retry_oom: false,
    };
    SweepPlan::for_sweep(sweep, &options).unwrap()
}

fn with_memory() -> (SweepPlan, Forecast) {
    let sweep = planned();
    let cell = &sweep.cells[4];
    let mut ooms = OomMemory::default();
    ooms.add_record(OomRecord {
        group: cell.group.clone(),
        load: cell.load.clone(),
        cell: cell.id.clone(),
        when: "2026-11-19T10:00:00Z".into(),
        device_total_bytes: None,
        limit_bytes: None,
        message: "CUDA out of memory".into(),
    });
    let mut forecast = Forecast::default();
    forecast.learn_cell(&sweep.cells[0], 31.0);
    (plan_of(&sweep, &ooms, None), forecast)
}

#[test]
fn the_page_of_the_plan() {
    let (plan, forecast) = with_memory();
    insta::assert_snapshot!(terminal_page(
        &plan::plan_report(&plan, &forecast, false),
        plain(false, 80)
    ));
}

#[test]
fn the_page_of_the_plan_with_every_cell() {
    let (plan, forecast) = with_memory();
    insta::assert_snapshot!(terminal_page(
        &plan::plan_report(&plan, &forecast, true),
        plain(true, 120)
    ));
}

#[test]
fn the_document_of_the_plan_has_every_cell_and_no_secret() {
    let (plan, forecast) = with_memory();
    let bytes = plan::plan_json(&plan, &forecast).unwrap();
    let document: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(
        (&document["cells"], &document["starts"]),
        (&6.into(), &2.into())
    );
    let listed: usize = (document["groups"].as_array().unwrap().iter())
        .map(|g| g["cells"].as_array().unwrap().len())
        .sum();
    assert_eq!(listed, 6);
    assert_eq!(document["skipped"][0]["cause"], "known_oom");
    assert!(!String::from_utf8(bytes).unwrap().contains("swordfish"));
}

#[test]
fn a_part_without_a_group_says_so() {
    let shard = Some(Shard { index: 3, of: 3 });
    let plan = plan_of(&planned(), &OomMemory::default(), shard);
    let page = terminal_page(
        &plan::plan_report(&plan, &Forecast::default(), false),
        plain(false, 80),
    );
    assert!(
        page.contains("part 3/3") && page.contains("No group falls to this part"),
        "{page}"
    );
}

#[test]
fn figures_of_a_row_are_those_of_the_profile() {
    let profile = idle_reference().derive();
    let figures = RowFigures::of_profile(&profile);
    let memory = &profile.memory_breakdown;
    assert_eq!(figures.peak_bytes, memory.total_measured_bytes);
    assert!(figures.peak_bytes.is_some());
    let parts = [
        figures.baseline_bytes,
        figures.model_weights_bytes,
        figures.kv_cache_bytes,
        figures.activations_bytes,
        figures.overhead_bytes,
    ];
    let known: u64 = parts.into_iter().flatten().sum();
    let unexplained = figures.unexplained_bytes.unwrap();
    assert_eq!(
        known as i64 + unexplained,
        figures.peak_bytes.unwrap() as i64
    );
    let load = profile.latency_stats.as_ref();
    assert_eq!(
        figures.mean_latency_ms,
        load.and_then(|l| l.mean_latency_ms)
    );
    assert_eq!(figures.simulated, profile.metadata.simulated);
    assert_eq!(figures.engine.as_deref(), Some("reference"));
    assert_eq!(figures.bench, Some(profile.parameters.bench.clone()));
    let nothing = Built::default().derive();
    assert_eq!(RowFigures::of_profile(&nothing).peak_bytes, None);
    assert_eq!(RowFigures::of_profile(&nothing).overhead_bytes, None);
}
