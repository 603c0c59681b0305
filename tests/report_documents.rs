//! A document of every kind in every format: what each shows, that they agree on every figure, and that each opens with
//! its answer. All documents are stored ones or are made by the commands themselves.

use crate::common::pages::{plain, terminal_page};
use assert_cmd::Command;
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::states::RawKind;
use html5ever::tokenizer::{
    BufferQueue, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts,
};
use plimsoll::report::chapters::build_report;
use plimsoll::report::content::Report;
use plimsoll::report::format::by_name;
use plimsoll::report::material::{Material, StoredDocument};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::Path;

/// What a command prints.
fn printed(args: &[&str]) -> Vec<u8> {
    let home = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let out = Command::cargo_bin("plimsoll")
        .unwrap()
        .args(args)
        .env("XDG_STATE_HOME", home.path())
        .current_dir(root.join("tests/differential"))
        .output()
        .unwrap();
    let talk = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success(), "{args:?}: {talk}");
    out.stdout
}

fn document_of(args: &[&str]) -> Value {
    serde_json::from_slice(&printed(args)).unwrap()
}

fn stored(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

/// As `doctor --json` prints it.
fn doctor() -> Value {
    json!({"document": "doctor", "schema_version": "1.0", "profiler_version": "0.1.0", "checks": [
        {"name": "platform", "found": "Linux 6.1 on x86_64, 16 processors, 64.00 GiB", "ok": true, "state": "ok"},
        {"name": "engines", "found": "one (vllm, idle)\ntwo (reference, serving, simulated)", "ok": true, "state": "ok"},
        {"name": "docker", "found": "permission denied", "ok": false, "state": "broken", "hint": "add yourself to the group `docker`"},
        {"name": "backend amd (AMD)", "found": "none", "ok": false, "state": "missing", "hint": "load its driver"},
    ]})
}

/// As `clean --json` prints it.
fn clean() -> Value {
    let verdict = |name: &str, act: &str, rule: &str, why: &str, gpu: Option<u64>| {
        json!({"of": {"container": name}, "name": name, "act": act, "rule": rule, "why": why, "advice": null,
            "gpu_bytes": gpu, "evidence": null})
    };
    json!({"document": "clean", "version": 1, "at": "2026-11-25T10:00:00Z", "simulated": false, "applied": false,
        "fullest_device": {"label": "NVIDIA H100 80GB HBM3", "used_bytes": 80_000_000_000u64, "total_bytes": 85_520_809_984u64},
        "verdicts": [
            verdict("plimsoll-old", "stop", "owner_dead", "its plimsoll is gone", Some(3 << 30)),
            verdict("db", "keep", "foreign", "not created by plimsoll", None),
        ], "outcomes": [], "blind": ["processes of other users are hidden"]})
}

/// Every kind: its name, and one document of it.
fn kinds() -> Vec<(&'static str, Value)> {
    let example = "../../results/example/tiny-profile.json";
    let serving = tempfile::tempdir().unwrap();
    let other = serving.path().join("serving.json").display().to_string();
    printed(&["derive", "captures/vllm-serving.capture", "-o", &other]);
    let profile = stored(&std::fs::read_to_string(&other).unwrap());
    let without_paths = |document: Value| {
        let text = document.to_string().replace(&other, "serving.json");
        stored(&text.replace(example, "tiny.json"))
    };
    let made = |args: &[&str]| without_paths(document_of(args));
    vec![
        ("profile", profile),
        (
            "sweep",
            stored(include_str!(
                "differential/documents/sweep-first/results.json"
            )),
        ),
        (
            "experiment",
            stored(include_str!(
                "differential/documents/experiment/experiment.json"
            )),
        ),
        (
            "load_line",
            stored(include_str!(
                "differential/documents/loadline/loadline.json"
            )),
        ),
        (
            "ablation",
            stored(include_str!(
                "differential/documents/ablation/ablation.json"
            )),
        ),
        ("comparison", made(&["compare", example, &other, "--json"])),
        (
            "calculation",
            made(&[
                "compare",
                example,
                "--calc-weights",
                "0.01",
                "--calc-kv",
                "0.2",
                "--json",
            ]),
        ),
        ("validation", made(&["validate", &other, "--json"])),
        ("calibration", made(&["calibrate", &other, "--json"])),
        (
            "estimate",
            document_of(&["estimate", "Qwen/Qwen3-32B", "--gpu", "L4", "--json"]),
        ),
        (
            "estimate_table",
            document_of(&[
                "estimate",
                "Qwen/Qwen3-8B",
                "--gpu",
                "H100",
                "--table",
                "--lengths",
                "2048,8192",
                "--json",
            ]),
        ),
        (
            "estimate_versions",
            document_of(&[
                "estimate",
                "Qwen/Qwen3-32B",
                "--gpu",
                "H100",
                "--engine-version",
                "0.14,0.33",
                "--json",
            ]),
        ),
        (
            "gpu_choices",
            document_of(&[
                "estimate",
                "Qwen/Qwen3-32B",
                "--recommend-gpu",
                "--max-model-len",
                "8192",
                "--json",
            ]),
        ),
        (
            "cuda_graphs",
            serde_json::to_value(crate::compare::graphs_of_two_arms()).unwrap(),
        ),
        ("clean", clean()),
        ("doctor", doctor()),
        (
            "why",
            document_of(&["why", "captures/vllm-out-of-memory.capture", "--json"]),
        ),
    ]
}

/// The report of a document, as `report -` makes it.
fn report_of(kind: &str, document: Value) -> Report {
    let mut material = match kind {
        "profile" => Material::of_profile(serde_json::from_value(document).unwrap()),
        _ => {
            let mut material = Material::default();
            let key = document["document"].as_str().unwrap().to_owned();
            let name = "standard input".to_owned();
            let left = material.add_document(&key, StoredDocument { name, document });
            assert!(left.is_none(), "{kind}");
            material
        }
    };
    assert_eq!(std::mem::take(&mut material.unread), [""; 0], "{kind}");
    build_report(Vec::new(), &material)
}

/// The words of a page, a line for each block, without styles, scripts and drawings.
#[derive(Default)]
struct PageWords(RefCell<(String, bool)>);

impl TokenSink for PageWords {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        let (text, drawing) = &mut *self.0.borrow_mut();
        match token {
            Token::CharacterTokens(words) if !*drawing => text.push_str(&words),
            Token::TagToken(tag) => {
                let begins = tag.kind == TagKind::StartTag;
                match &*tag.name {
                    "svg" => *drawing = begins,
                    "td" | "th" => text.push_str(if begins { "  " } else { "" }),
                    "span" | "a" | "b" | "code" | "em" | "strong" | "sub" | "button" | "text"
                    | "tspan" => {}
                    _ => text.push('\n'),
                }
                match &*tag.name {
                    "style" if begins => return TokenSinkResult::RawData(RawKind::Rawtext),
                    "script" if begins => return TokenSinkResult::RawData(RawKind::ScriptData),
                    _ => {}
                }
            }
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

fn page_words(html: &str) -> String {
    let body = html.find("<body>").unwrap();
    // What a script holds is no word of the page.
    let mut words = String::new();
    for part in html[body..].split("<script") {
        let shown = part
            .split_once("</script>")
            .map_or(part, |(_, after)| after);
        let shown = if words.is_empty() { part } else { shown };
        let tokenizer = Tokenizer::new(PageWords::default(), TokenizerOpts::default());
        let input = BufferQueue::default();
        input.push_back(StrTendril::from(shown));
        let _ = tokenizer.feed(&input);
        tokenizer.end();
        words.push_str(&tokenizer.sink.0.into_inner().0);
    }
    let lines = words.lines().map(str::trim).filter(|l| !l.is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

/// The files of a format: name and text; of a picture its size.
fn files_of(format: &str, report: &Report) -> Vec<(String, String)> {
    let files = by_name(format).unwrap().render_files(report).unwrap();
    let text = |bytes: Vec<u8>| match format {
        "html" => page_words(&String::from_utf8(bytes).unwrap()),
        "png" => {
            let side = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
            format!("{} x {}", side(16), side(20))
        }
        // A drawing's words; chart tests hold its shapes.
        "svg" => {
            let svg = String::from_utf8(bytes).unwrap();
            let words = svg.split("<text").skip(1).filter_map(|t| {
                let inside = t.split_once('>')?.1.split_once("</text>")?.0;
                let plain: String = inside
                    .split('<')
                    .map(|p| p.split_once('>').map_or(p, |(_, t)| t))
                    .collect();
                Some(plain)
            });
            words.collect::<Vec<_>>().join(" | ")
        }
        _ => String::from_utf8(bytes).unwrap(),
    };
    // Where each figure comes from has tests of its own, and is longer than all the rest.
    let without_sources =
        |text: String| match text.rfind("\nSources\n").or(text.rfind("\nSOURCES\n")) {
            Some(at) => text[..at].to_owned(),
            None => text,
        };
    let named = files
        .into_iter()
        .map(|f| (f.stem.clone(), without_sources(text(f.bytes))));
    named.collect()
}

/// Its figures: numbers as they are written.
fn figures_in(text: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
    let words = text.split(|c: char| !is_part(c));
    let trimmed = words.map(|w| w.trim_matches(|c| c == '.' || c == ','));
    trimmed.filter(|w| w.len() > 1).map(str::to_owned).collect()
}

#[test]
fn a_document_of_every_kind_in_every_format() {
    for (kind, document) in kinds() {
        let report = report_of(kind, document);
        for format in ["html", "md", "txt", "csv", "svg", "png"] {
            let brief = report.brief_report();
            let of = if format == "md" { &brief } else { &report };
            let all: String = files_of(format, of)
                .into_iter()
                .map(|(name, text)| format!("== {name}.{format}\n{}\n", text.trim_end()))
                .collect();
            insta::with_settings!({ snapshot_path => "snapshots/documents", prepend_module_to_snapshot => false, omit_expression => true }, {
                insta::assert_snapshot!(format!("{kind}_{format}"), all);
            });
        }
    }
}

#[test]
fn terminal_page_and_pull_request_have_the_same_figures() {
    for (kind, document) in kinds() {
        let report = report_of(kind, document);
        let page = &files_of("html", &report)[0].1;
        let on_page = figures_in(page);
        let terminal = terminal_page(&report, plain(true, 400));
        // How many rows are folded or left to `--full` is no figure of the document.
        let pull_request = files_of("md", &report.brief_report())[0].1.clone();
        let lines = pull_request.lines().filter(|l| !l.starts_with("<details>"));
        let lines: String = lines.map(|line| format!("{line}\n")).collect();
        let pieces = lines.replace('\\', "");
        let pieces = pieces.split(" more with --full");
        let pull_request: String = pieces
            .map(|piece| piece.trim_end_matches(|c: char| c.is_ascii_digit()))
            .collect();
        for (place, text) in [("terminal", &terminal), ("pull request", &pull_request)] {
            let missing: Vec<String> = figures_in(text).difference(&on_page).cloned().collect();
            assert_eq!(missing, [""; 0], "{kind}: of the {place} not on the page");
        }
        // And back: what a chapter answers first is in all three.
        let file = figures_in(&files_of("txt", &report)[0].1);
        let answered = report.chapters.iter().flat_map(|c| &c.blocks);
        for block in answered {
            let plimsoll::report::content::ContentBlock::Table(grid) = block else {
                continue;
            };
            for cell in grid.rows.iter().flatten() {
                for figure in figures_in(&cell.text) {
                    assert!(on_page.contains(&figure), "{kind}, page: {figure}");
                    assert!(file.contains(&figure), "{kind}, text file: {figure}");
                }
            }
        }
    }
}

#[test]
fn every_kind_opens_with_its_answer_and_says_how_full_or_why_not() {
    for (kind, document) in kinds() {
        let report = report_of(kind, document);
        let answer = report
            .answer
            .as_ref()
            .unwrap_or_else(|| panic!("{kind}: no answer"));
        assert!(answer.verdict.len() > 8, "{kind}: {}", answer.verdict);
        let page = &files_of("html", &report)[0].1;
        let terminal = terminal_page(&report, plain(true, 80));
        let last: Vec<&str> = terminal.lines().rev().take(24).collect();
        let last = last.into_iter().rev().collect::<Vec<_>>().join(" ");
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert!(
            words(&last).contains(&words(&answer.verdict)),
            "{kind}: {terminal}"
        );
        assert!(
            words(page).contains(&words(&answer.verdict)),
            "{kind}: {page}"
        );
        // A host that was not measured and text without memory have no gauge.
        let memory = !matches!(
            kind,
            "doctor"
                | "calibration"
                | "calculation"
                | "validation"
                | "estimate_table"
                | "estimate_versions"
                | "gpu_choices"
                | "cuda_graphs"
        );
        if memory {
            let known = answer.gauge.is_some() || answer.no_gauge.is_some();
            assert!(known, "{kind}: neither a gauge nor why there is none");
        }
    }
}

/// `estimate --json | plimsoll report -`, for the kinds that no folder holds.
#[test]
fn documents_of_standard_input_become_pages() {
    for (kind, document) in [("doctor", doctor()), ("clean", clean())] {
        let out = Command::cargo_bin("plimsoll")
            .unwrap()
            .args(["report", "-", "--format", "txt", "-o", "-"])
            .write_stdin(document.to_string())
            .output()
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let expected = match kind {
            "doctor" => "Not ready: 1 check failed: docker.",
            _ => "1 container to clean, 3.00 GiB of GPU memory; nothing was touched.",
        };
        assert!(text.contains(expected), "{kind}: {text}");
    }
}

#[test]
fn the_fullest_device_of_all_levels_binds_else_the_kv_pool() {
    let mut experiment = stored(include_str!(
        "differential/documents/experiment/experiment.json"
    ));
    for level in experiment["levels"].as_array_mut().unwrap() {
        level["kv_pool_bytes"] = json!(4u64 << 30);
        level["kv_used_bytes"] = json!(1u64 << 30);
    }
    let answer = |document: &Value| report_of("experiment", document.clone()).answer.unwrap();
    let pool = answer(&experiment);
    assert_eq!(pool.gauge.unwrap().label, "KV pool");
    let words = "KV pool: at most 1.00 GiB of 4.00 GiB in use (25 %), 3.00 GiB free.";
    assert!(pool.verdict.ends_with(words), "{}", pool.verdict);
    for (level, used) in [(0, 50u64), (1, 97), (2, 60)] {
        experiment["levels"][level]["fullest_device"] =
            json!({"label": "GPU 1", "used_bytes": used << 20, "total_bytes": 100u64 << 20});
    }
    let device = answer(&experiment);
    assert_eq!(device.state.as_str(), "tight");
    assert_eq!(device.gauge.unwrap().used_bytes, 97 << 20);
    assert!(
        device.verdict.contains("Tight: at most 97.00 MiB"),
        "{}",
        device.verdict
    );
}
