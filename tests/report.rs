//! What a profile looks like to people and to programs.

use crate::common::captures;
use crate::common::pages::{self, profile_page};
use captures::*;
use plimsoll::capture::{Capture, Phase, RunEnd, SamplingFacts};
use plimsoll::engine::torch_probe::TorchMemory;
use plimsoll::profile::{Difference, Profile};
use plimsoll::report::json::json_bytes;
use plimsoll::report::layout::text_width;
use plimsoll::report::page::TextOptions;

fn plain(profile: &Profile, unicode: bool, width: usize) -> String {
    profile_page(profile, pages::plain(unicode, width))
}

/// A profile that uses every block of the page.
fn eventful() -> Profile {
    let mut built = two_gpus();
    built.capture.end = RunEnd::BenchFailed("the bench exited with code 1".into());
    built.capture.sampling.longest_gap_ns = 2_100_000_000;
    built.capture.sampling.missed_ticks = 19;
    built.capture.backend.simulated = true;
    let mut profile = built.derive();
    profile.configuration.differences.push(Difference {
        setting: "max_model_len".into(),
        requested: "16384".into(),
        effective: "8192".into(),
    });
    profile
}

#[test]
fn summary_in_unicode() {
    insta::assert_snapshot!(plain(&idle_reference().derive(), true, 100));
}

#[test]
fn summary_in_ascii() {
    insta::assert_snapshot!(plain(&serving_host().derive(), false, 80));
}

#[test]
fn summary_in_colour() {
    let options = TextOptions {
        width: 100,
        color: true,
        unicode: true,
    };
    let text = profile_page(&eventful(), options);
    insta::assert_snapshot!(text.replace('\x1b', "␛"));
}

#[test]
fn summary_of_a_run_that_saw_nothing() {
    let nothing = Built {
        capture: Capture {
            end: RunEnd::Interrupted,
            sampling: SamplingFacts {
                last_error: Some("memory.current: no such file".into()),
                failed_readings: 3,
                ..Default::default()
            },
            ..Default::default()
        },
        ..Default::default()
    };
    insta::assert_snapshot!(plain(&nothing.derive(), true, 100));
}

#[test]
fn the_document() {
    let mut profile = idle_reference().derive();
    profile.profiler_version = "[version]".into();
    profile.memory_timeline.timeline.truncate(2);
    let bytes = json_bytes(&profile).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    assert!(text.ends_with("}\n") && !text.ends_with("\n\n"));
    let read: Profile = serde_json::from_str(&text).unwrap();
    assert_eq!(read, profile);
    insta::assert_snapshot!(text);
}

#[test]
fn colour_adds_nothing_that_is_not_said_without() {
    let options = TextOptions {
        width: 100,
        color: true,
        unicode: true,
    };
    let profile = eventful();
    let stripped = anstream::adapter::strip_str(&profile_page(&profile, options)).to_string();
    let trimmed: Vec<&str> = stripped.lines().map(str::trim_end).collect();
    assert_eq!(trimmed.join("\n") + "\n", plain(&profile, true, 100));
}

#[test]
fn ascii_is_ascii_whatever_the_names() {
    let mut profile = eventful();
    profile.metadata.container.name = "größe-量子".into();
    let text = plain(&profile, false, 80);
    assert!(text.is_ascii(), "{text}");
}

#[test]
fn wide_names_do_not_break_the_columns() {
    let mut profile = two_gpus().derive();
    profile.gpu_info.devices[0].name = "加速器 H100".into();
    let text = plain(&profile, true, 100);
    let rows: Vec<&str> = text
        .lines()
        .skip_while(|l| !l.starts_with("Devices"))
        .skip(1)
        .take(3)
        .collect();
    let widths: Vec<usize> = rows.iter().map(|r| text_width(r)).collect();
    assert!(widths.iter().all(|w| *w == widths[0]), "{rows:#?}");
}

#[test]
fn unknown_is_a_dash_and_a_log_line_cannot_touch_the_terminal() {
    let mut profile = serving_host().derive();
    profile.findings[0].quote = Some("evil \x1b]0;title\x07 line".into());
    let text = plain(&profile, true, 100);
    let weights = text.lines().find(|l| l.contains("Model weights")).unwrap();
    assert!(weights.contains('—') && !weights.contains('0'), "{weights}");
    assert!(!text.contains('\x1b') && !text.contains('\x07'));
}

#[test]
fn the_page_keeps_its_width() {
    for cells in [60, 80, 100] {
        for line in plain(&eventful(), true, cells).lines() {
            // The table of devices is never cut.
            assert!(text_width(line) <= cells.max(86), "{cells}: {line}");
        }
    }
}

#[test]
fn a_run_without_a_load_claims_no_figure_of_one() {
    let mut built = serving_host();
    built.capture.execs.clear();
    built.capture.marks.truncate(1);
    built.capture.end = RunEnd::Interrupted;
    let text = plain(&built.derive(), true, 160);
    assert!(!text.contains("the peak minus"), "{text}");
    assert!(!text.contains("nothing told"), "{text}");
    let overhead = text
        .lines()
        .find(|l| l.contains("verhead") && l.contains("unknown: "));
    assert!(overhead.unwrap().contains("interrupted"), "{text}");
    // Watched only: what varied is not taken for the load's.
    built.capture.request.bench = "none".into();
    built.capture.end = RunEnd::Completed;
    built.capture.marks.push(mark(2_000, Phase::Bench, None));
    let text = plain(&built.derive(), true, 160);
    assert!(text.contains("only watched"), "{text}");
    assert!(!text.contains("lowest moment under load"), "{text}");
    let activations = text.lines().find(|l| l.trim().starts_with("Activations"));
    assert!(activations.unwrap().contains("unknown"), "{text}");
}

#[test]
fn a_given_prompt_is_as_long_as_the_probe_counted() {
    let mut built = idle_reference();
    built.capture.request.workload.prompt = Some("Hello".into());
    built.capture.request.workload.input_len = 0;
    let mut profile = built.derive();
    let load = |p: &Profile| {
        let text = plain(p, true, 100);
        let line = text.lines().find(|l| l.trim().starts_with("load "));
        line.expect("a line of the load").to_owned()
    };
    assert!(
        load(&profile).contains("a given prompt"),
        "{}",
        load(&profile)
    );
    let document = serde_json::to_value(&profile).unwrap();
    let asked = &document["parameters"]["workload"]["input_len"];
    assert!(asked.is_null(), "{asked}");
    assert!(profile.unknown["parameters.workload.input_len"].contains("given prompt"));
    let mut memory = TorchMemory::default();
    memory.load.prompt_tokens = 3;
    profile.torch_memory = Some(memory);
    assert!(load(&profile).contains("3 tokens in"), "{}", load(&profile));
}

#[test]
fn a_mean_that_is_told_stands_in_its_column() {
    let mut profile = idle_reference().derive();
    let latency = profile.latency_stats.as_mut().unwrap();
    latency.repeats[0].result.ttft_ms = [("mean".to_owned(), 31.0)].into();
    let text = plain(&profile, true, 100);
    let row = text
        .lines()
        .find(|l| l.trim_start().starts_with("Latency  "))
        .unwrap();
    assert!(row.contains("200.0") && !row.contains('—'), "{row}");
}

#[test]
fn nothing_is_never_negative() {
    let mut profile = idle_reference().derive();
    for part in &mut profile.memory_breakdown.components {
        (part.bytes, part.gb, part.percent) = (-1000, -1e-6, -1e-5);
    }
    let text = plain(&profile, true, 100);
    // What is below nought and rounds to it has its own words.
    let wrong = |l: &&str| l.replace("> -0.001", "").contains("-0.0");
    assert_eq!(text.lines().find(wrong), None);
}
