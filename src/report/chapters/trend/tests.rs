//! Tests of the chapter of trends.

use super::super::samples_tests::{render_plain, sample_run, set_parts};
use super::*;
use crate::breakdown::Component;
use crate::capture::RunEnd;
use crate::profile::Profile;
use proptest::prelude::*;

fn of(runs: Vec<ReportRun>) -> Vec<Chapter> {
    let material = Material {
        runs,
        ..Material::default()
    };
    write_trend_chapter(&material, &mut Sources::default())
}

fn release(version: &str, day: u32, tokens: u64, peak: f64) -> ReportRun {
    sample_run(&format!("run-{day}.json"), |p: &mut Profile| {
        p.engine_metadata.engine_version = Some(version.into());
        p.metadata.timestamp = format!("2026-11-{day:02}T10:00:00Z");
        p.metadata.host.hostname = "node1".into();
        p.vllm_internal_metrics.total_gpu_kv_cache_tokens = Some(tokens);
        set_parts(
            p,
            peak,
            &[(Component::ModelWeights, 2.0), (Component::NonTorch, 0.5)],
        );
    })
}

fn sentences(chapters: &[Chapter]) -> Vec<&str> {
    let blocks = chapters.iter().flat_map(|c| &c.blocks);
    blocks
        .filter_map(|b| match b {
            ContentBlock::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

#[test]
fn the_trend_of_three_versions() {
    let mut runs = vec![
        release("0.10.0", 1, 100_000, 20.0),
        release("0.9.2", 2, 110_000, 20.5),
        release("0.9.2", 3, 108_000, 20.7),
        release("0.9.2", 4, 109_000, 20.6),
        release("0.11.0", 5, 101_000, 26.0),
    ];
    runs[4]
        .profile
        .configuration
        .effective
        .insert("max_num_batched_tokens".into(), "8192".into());
    runs[0]
        .profile
        .configuration
        .effective
        .insert("max_num_batched_tokens".into(), "2048".into());
    let mut other = release("0.11.0", 6, 50_000, 30.0);
    other
        .profile
        .configuration
        .requested
        .insert("max_model_len".into(), "1024".into());
    runs.push(other);
    let mut failed = release("0.12.0", 7, 1, 1.0);
    failed.profile.metadata.outcome = RunEnd::Failed("died".into());
    runs.push(failed);
    insta::assert_snapshot!(render_plain(&of(runs)));
}

#[test]
fn runs_of_one_version_are_ordered_by_time_and_by_image_where_that_changes() {
    let runs = |images: [&str; 3]| {
        let each = images.into_iter().enumerate();
        of(each
            .map(|(i, image)| {
                let mut run = release("0.9.2", 1 + i as u32, 100 + 50 * i as u64, 4.0);
                run.profile.metadata.container.image = image.into();
                run
            })
            .collect())
    };
    let by_time = runs(["e:1", "e:1", "e:1"]);
    let timed = sentences(&by_time);
    assert!(timed[0].contains("by time"), "{timed:?}");
    assert!(
        timed
            .iter()
            .any(|s| s.starts_with("KV pool grew 50 % from 2026-11-01 10:00:00 to 2026-11-02")),
        "{timed:?}"
    );
    let by_image = runs(["e:nightly", "e:1", "e:2"]);
    let imaged = sentences(&by_image);
    assert!(imaged[0].contains("by image"), "{imaged:?}");
    assert!(
        imaged.iter().any(|s| s.contains("from e:nightly to e:1")),
        "{imaged:?}"
    );
}

#[test]
fn one_run_and_runs_that_are_not_alike_have_no_trend() {
    assert!(of(vec![release("1", 1, 5, 1.0)]).is_empty());
    let mut other = release("2", 2, 5, 1.0);
    other.profile.model_info.name = Some("another".into());
    assert!(of(vec![release("1", 1, 5, 1.0), other]).is_empty());
    // A port is no setting.
    let mut moved = release("2", 2, 5, 1.0);
    moved
        .profile
        .configuration
        .requested
        .insert("port".into(), "8123".into());
    assert_eq!(of(vec![release("1", 1, 5, 1.0), moved]).len(), 1);
}

proptest! {
    #[test]
    fn a_sentence_reports_what_moved_and_nothing_else(tokens in proptest::collection::vec(1u64..100_000, 2..6)) {
        let runs = tokens.iter().enumerate().map(|(i, n)| release(&format!("0.{}.0", 8 + i), 1 + i as u32, *n, 4.0)).collect();
        let chapters = of(runs);
        let texts = sentences(&chapters);
        for (i, pair) in tokens.windows(2).enumerate() {
            let (before, after) = (pair[0] as f64, pair[1] as f64);
            let percent = (after - before) / before * 100.0;
            let span = format!("from 0.{}.0 to 0.{}.0 (", 8 + i, 9 + i);
            let sentence = texts.iter().find(|s| s.starts_with("KV pool") && s.contains(&span));
            prop_assert_eq!(sentence.is_some(), percent.abs() > 5.0, "{:?}", texts);
            if let Some(sentence) = sentence {
                let verb = if percent < 0.0 { "shrank" } else { "grew" };
                let behind = sentence.split(&format!("{verb} ")).nth(1).unwrap_or_default();
                let stated_percent: f64 = behind.split(' ').next().unwrap().parse().unwrap();
                prop_assert!((stated_percent - percent.abs()).abs() <= 0.5, "{} / {}", sentence, percent);
            }
        }
        // What moved little by little is reported from first to last.
        if tokens.len() > 2 {
            let (first, last) = (tokens[0] as f64, tokens[tokens.len() - 1] as f64);
            let moved = ((last - first) / first * 100.0).abs() > 5.0;
            let whole = texts.iter().any(|s| s.starts_with("From first to last: KV pool"));
            prop_assert_eq!(whole, moved, "{:?}", texts);
        }
    }
}
