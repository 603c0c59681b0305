//! The fuzz targets: any bytes are a log, a reply, a result, a sweep file, the header of a model file,
//! an archive, a document, a text with a secret in it.

use plimsoll::capture::{Capture, Probe};
use plimsoll::container::copy::{Archive, first_file};
use plimsoll::engine::lines::parse_reader;
use plimsoll::engine::log::auto::AutoParser;
use plimsoll::engine::log::unwrap::Unwrapped;
use plimsoll::engine::{BenchKind, EngineId, LogParser, parser_of};
use plimsoll::estimate::headers::{Headers, gguf, gguf_model, names, safetensors};
use plimsoll::estimate::{self, Deployment, weights};
use plimsoll::matrix;
use plimsoll::preset::Preset;
use plimsoll::profile::{Profile, derive_profile};
use plimsoll::redact::{KeyBlock, Redactor, redact_distinct};
use plimsoll::report::chart::ChartTimeline;
use plimsoll::report::format::text::{PageDetail, render_page};
use plimsoll::report::material::{Material, ReportRun, StoredDocument};
use plimsoll::report::page::TextOptions;
use plimsoll::report::{chapters, format};
use serde_json::Value;
use std::collections::{BTreeMap, HashSet};

/// A target: its name, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// Every target. `scripts/fuzz` runs each by its name.
pub const TARGETS: &[Target] = &[
    ("vllm_log", |b| log("vllm", b)),
    ("vllm_replies", |b| replies("vllm", b)),
    ("tgi_log", |b| log("tgi", b)),
    ("tgi_replies", |b| replies("tgi", b)),
    ("tensorrt_llm_log", |b| log("tensorrt_llm", b)),
    ("tensorrt_llm_replies", |b| replies("tensorrt_llm", b)),
    ("sglang_log", |b| log("sglang", b)),
    ("sglang_replies", |b| replies("sglang", b)),
    ("llama_cpp_log", |b| log("llama_cpp", b)),
    ("llama_cpp_replies", |b| replies("llama_cpp", b)),
    ("ollama_log", |b| log("ollama", b)),
    ("ollama_replies", |b| replies("ollama", b)),
    ("auto_log", |b| log("auto", b)),
    ("sweep_file", sweep_file),
    ("safetensors_file", safetensors_file),
    ("gguf_file", gguf_file),
    ("config_json", config_json),
    ("archive", archive),
    ("documents", documents),
    ("redact", redact),
];

/// The target that `PLIMSOLL_FUZZ` names.
///
/// # Panics
/// Where there is none of that name.
pub fn chosen() -> fn(&[u8]) {
    let name = std::env::var("PLIMSOLL_FUZZ").unwrap_or_default();
    let found = TARGETS.iter().find(|(target, _)| *target == name);
    let names: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    found
        .unwrap_or_else(|| panic!("PLIMSOLL_FUZZ is none of {}", names.join(" ")))
        .1
}

/// Reads `bytes` as `engine`'s log (`auto`: as anybody's): no panic, and a report of bounded size.
/// That time grows no faster than the log is for libFuzzer's `-timeout` to find.
pub fn log(engine: &str, bytes: &[u8]) {
    let mut parser: Box<dyn LogParser> = match EngineId::from_name(engine) {
        Ok(engine) => parser_of(engine),
        Err(_) => Box::new(Unwrapped::new(Box::new(AutoParser::default()))),
    };
    let report = parse_reader(parser.as_mut(), bytes).expect("reading memory does not fail");
    let _ = (parser.root_cause(), parser.ready(), parser.step_count());
    let quotes = report.facts.values().flat_map(|fact| &fact.quote);
    let size: usize = quotes.map(String::len).sum();
    assert!(size < 2_000_000, "{size} bytes of quotes");
    serde_json::to_vec(&report).expect("a report is JSON");
}

/// Reads `bytes` as the reply of each of `engine`'s endpoints, and as a bench's result and output.
pub fn replies(engine: &str, bytes: &[u8]) {
    let engine = EngineId::from_name(engine).expect("an engine of the list");
    let text = String::from_utf8_lossy(bytes);
    let probes: Vec<Probe> = engine
        .endpoints
        .iter()
        .map(|path| Probe {
            path: (*path).to_owned(),
            status: Some(200),
            body: text.clone().into_owned(),
            ..Probe::default()
        })
        .collect();
    let _ = (engine.read_probes)(&probes);
    for kind in [BenchKind::Latency, BenchKind::Throughput, BenchKind::Serve] {
        let _ = (engine.read_bench)(kind, &text);
        for line in text.lines() {
            let _ = (engine.bench_progress)(kind, line);
        }
    }
}

/// The most cells that a file is multiplied out to here: more take time and find nothing.
const CELLS: usize = 2000;

/// Reads `bytes` as a sweep file: cells, each once, or a mistake with its place; no panic.
pub fn sweep_file(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let var = |name: &str| name.starts_with('A').then(|| "1,2".to_owned());
    match matrix::read_at_most(CELLS, "file", &text, &var, &|_| Ok(Preset::default())) {
        Ok(sweep) => {
            let ids: HashSet<_> = sweep.cells.iter().map(|cell| &cell.id).collect();
            assert!(!ids.is_empty() && ids.len() == sweep.cells.len());
            assert!(!sweep.name.is_empty() && !sweep.name.contains('/'));
        }
        Err(failure) => {
            let told = failure.message.strip_prefix("file:");
            let line = told.and_then(|t| t.split(':').next());
            let placed = line.is_some_and(|l| l.parse::<usize>().is_ok());
            assert!(placed || text.len() > 4 << 20, "{failure}");
            assert!(failure.message.len() < 4096, "{failure}");
        }
    }
}

/// Reads `bytes` as a safetensors file and as an index; what is read lies within the file.
pub fn safetensors_file(bytes: &[u8]) {
    let size = bytes.len() as u64;
    if let Ok(tensors) = safetensors::parse(bytes, Some(size)) {
        let sum: u64 = tensors.iter().map(|t| t.bytes).sum();
        assert!(sum <= size, "{sum} bytes of tensors in a file of {size}");
        for tensor in &tensors {
            let _ = names::find(&tensor.name, 4);
        }
    }
    // The same bytes as the JSON of a header.
    let mut whole = size.to_le_bytes().to_vec();
    whole.extend_from_slice(bytes);
    let _ = safetensors::parse(&whole, None);
    let _ = safetensors::index_files(bytes);
}

/// Reads `bytes` as a GGUF file, makes a model of it and counts its weights.
pub fn gguf_file(bytes: &[u8]) {
    for size in [None, Some(bytes.len() as u64)] {
        let Ok(read) = gguf::parse(bytes, size) else {
            continue;
        };
        let Ok(model) = gguf_model::model(&read, "fuzzed", "fuzzed") else {
            continue;
        };
        let headers = Headers {
            tensors: read.tensors,
            gguf: true,
            source: String::new(),
        };
        for (engine, tp) in [(EngineId::LlamaCpp, 1), (EngineId::Vllm, 2)] {
            let mut deployment = Deployment::with_defaults(engine);
            deployment.tp = tp;
            let _ = weights::from_headers(&model, &headers, &deployment);
        }
    }
}

/// Reads `bytes` as a model's config.json, and estimates what it says.
pub fn config_json(bytes: &[u8]) {
    let Ok(config) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let Ok(model) = estimate::model::from_config("fuzzed", &config, "fuzzed") else {
        return;
    };
    for (engine, tp) in [
        (EngineId::Vllm, 2),
        (EngineId::Sglang, 1),
        (EngineId::LlamaCpp, 1),
    ] {
        let mut deployment = Deployment::with_defaults(engine);
        deployment.tp = tp;
        let estimate = estimate::estimate(&model, &deployment);
        let _ = format!("{estimate:?}");
    }
}

/// Reads `bytes` as an archive that a container gave: never more than was asked for.
pub fn archive(bytes: &[u8]) {
    for limit in [0, 100, 1 << 20] {
        if let Archive::File(content) = first_file(bytes, limit) {
            assert!(content.len() <= limit);
        }
    }
}

/// Reads `bytes` as each document that is read from disk, and writes it in every format.
pub fn documents(bytes: &[u8]) {
    if let Ok(capture) = serde_json::from_slice::<Capture>(bytes) {
        shown(derive_profile(&capture, [], []));
    }
    if let Ok(profile) = serde_json::from_slice::<Profile>(bytes) {
        shown(profile);
    }
    let Ok(document) = serde_json::from_slice::<Value>(bytes) else {
        return;
    };
    let stored = || {
        vec![StoredDocument {
            name: "fuzzed.json".into(),
            document: document.clone(),
        }]
    };
    written(&Material {
        sweeps: stored(),
        ..Material::default()
    });
    written(&Material {
        experiments: stored(),
        ..Material::default()
    });
    written(&Material {
        load_lines: stored(),
        ..Material::default()
    });
    written(&Material {
        older: stored(),
        ..Material::default()
    });
}

fn shown(profile: Profile) {
    let report = chapters::build_report(Vec::new(), &Material::of_profile(profile.clone()));
    let page = render_page(&report, TextOptions::default(), PageDetail::Essential);
    assert!(
        !page.contains('\x1b') && !page.contains('\u{202e}'),
        "a terminal would obey it"
    );
    let run = |name: &str| ReportRun {
        name: name.into(),
        profile: Box::new(profile.clone()),
        timeline: ChartTimeline::default(),
        plan: None,
        calculated: None,
        places: BTreeMap::new(),
        in_full: true,
    };
    written(&Material {
        runs: vec![run("a")],
        ..Material::default()
    });
    written(&Material {
        runs: vec![run("a"), run("b")],
        compare: true,
        ..Material::default()
    });
}

fn written(material: &Material) {
    let report = chapters::build_report(Vec::new(), material);
    // A drawing takes a hundred times as long as a text, and is made from the same chart.
    for format in format::ALL.iter().filter(|f| f.format_name() != "png") {
        for file in format.render_files(&report).expect("a report is written") {
            let text = String::from_utf8(file.bytes).expect("text");
            assert!(!text.contains('\x1b'), "{}", format.format_name());
        }
    }
}

/// Puts a secret between any two texts: it is nowhere in what comes out, and a document stays one.
pub fn redact(bytes: &[u8]) {
    let long = "Q7xPlimsoll0TestSecret9vB2kLmN4rT6wY8zA1cE3gI5";
    let jwt = ["eyJhbGciOiJIUzI1NiJ9", "eyJzdWIiOiJwbGltc29sbCJ9", long].join(".");
    // What is secret, and what stands around it; where that alone gives it away, the last net does not know it.
    let (before, token, after, by_look) = match bytes.first().map_or(0, |b| b % 9) {
        0 => ("", format!("hf_{long}"), "", true),
        1 => ("", format!("sk-proj-{long}"), "", true),
        2 => ("", format!("sk-ant-api03-{long}"), "", true),
        3 => ("", format!("ghp_{long}"), "", true),
        4 => ("", ["AK", "IAQ7XPLIMSOLL0TEST"].concat(), "", true),
        5 => ("", jwt, "", true),
        6 => ("https://user:", long.to_owned(), "@hub.invalid/", false),
        7 => (
            "Authorization: Basic ",
            "dXNlcjpRN3hQbGltc29sbDBUZXN0".to_owned(),
            "",
            false,
        ),
        _ => ("", format!("xoxb-123456789012-{}", &long[..24]), "", true),
    };
    let known = "w9 pl1msoll/pass&word";
    let text = String::from_utf8_lossy(bytes.get(1..).unwrap_or_default());
    let mut places = (0..=text.len() / 2).rev();
    let half = places.find(|i| text.is_char_boundary(*i)).unwrap_or(0);
    let planted = format!(
        "{} {before}{token}{after} {known} {}",
        &text[..half],
        &text[half..]
    );
    let redactor = Redactor::new([known.to_owned()]);
    let clean = redactor.redact_text(&planted);
    let clean = KeyBlock::default().filter_line(&planted, clean);
    assert!(!clean.contains(&token) && !clean.contains(known), "{clean}");
    assert!(!by_look || !redact_distinct(&planted).contains(&token));
    if serde_json::from_slice::<Value>(&bytes[bytes.len().min(1)..]).is_ok() {
        let whole = redact_distinct(&text);
        assert!(serde_json::from_str::<Value>(&whole).is_ok(), "{whole}");
    }
}
