//! Tests of the document and of its page on a terminal.

use super::super::apply::ActResult;
use super::super::verdict::{CleanAct, CleanRule};
use super::*;
use crate::report::cleaning::{OUTCOMES, clean_report};
use crate::report::format::text::{PageDetail, render_page};
use crate::report::layout::text_width;
use crate::report::page::TextOptions;

const GIB: u64 = 1 << 30;

fn options(width: usize) -> TextOptions {
    TextOptions {
        width,
        color: false,
        unicode: true,
    }
}

fn verdict(
    of: VerdictSubject,
    name: &str,
    act: CleanAct,
    rule: CleanRule,
    why: &str,
) -> CleanVerdict {
    CleanVerdict {
        of,
        name: name.into(),
        act,
        rule,
        why: why.into(),
        advice: None,
    }
}

fn container(name: &str, image: &str, ours: bool, gib: Option<u64>) -> ContainerLook {
    ContainerLook {
        id: format!("{name:0<64}"),
        name: name.into(),
        image: image.into(),
        status: "running".into(),
        ours,
        gpu_bytes: gib.map(|g| [("GPU-1".to_owned(), g * GIB)].into()),
        ..ContainerLook::default()
    }
}

/// A host with a bit of everything.
fn everything() -> (Survey, Vec<CleanVerdict>) {
    let containers = vec![
        container(
            "plimsoll-1a1fe6b8bb9-1ef2",
            "vllm/vllm-openai:v0.32.0",
            true,
            Some(40),
        ),
        container(
            "trainer",
            "registry.example/a/rather/long/path/to/an/image/of/somebody:2026-11-21",
            false,
            Some(8),
        ),
        container("web", "nginx", false, None),
        container("db", "postgres", false, None),
        container("kept\x1b[2J", "vllm/vllm-openai:v0.32.0", false, Some(20)),
    ];
    let id = |i: usize| VerdictSubject::Container(containers[i].id.clone());
    let mut verdicts = vec![
        verdict(
            id(0),
            "plimsoll-1a1fe6b8bb9-1ef2",
            CleanAct::Stop,
            CleanRule::OwnerDead,
            "plimsoll created it, and the plimsoll that did has ended.",
        ),
        verdict(
            id(1),
            "trainer",
            CleanAct::EndMarked,
            CleanRule::Leftover,
            "3 processes carry the mark of run 1a1f, whose plimsoll has ended",
        ),
        verdict(
            id(2),
            "web",
            CleanAct::Keep,
            CleanRule::Foreign,
            "it is somebody else's",
        ),
        verdict(
            id(3),
            "db",
            CleanAct::Keep,
            CleanRule::Foreign,
            "it is somebody else's",
        ),
        verdict(
            id(4),
            "kept\x1b[2J",
            CleanAct::Keep,
            CleanRule::Protected,
            "it has the label plimsoll.protect",
        ),
        verdict(
            VerdictSubject::Process(4711, Some(9)),
            "pid 4711 (VLLM::Worker)",
            CleanAct::EndProcess,
            CleanRule::Orphan,
            "it was in container plimsoll-77, which plimsoll started and which is gone",
        ),
        verdict(
            VerdictSubject::Device("GPU-1".into()),
            "GPU-1 (NVIDIA H100)",
            CleanAct::Report,
            CleanRule::UnlistedMemory,
            "3.00 GiB are in use that no process is listed with, in 3 readings in a row",
        ),
        verdict(
            VerdictSubject::Process(99, Some(5)),
            "pid 99 (blender)",
            CleanAct::Report,
            CleanRule::Foreign,
            "pid 99 (blender) of user 1000, 1.00 GiB, `blender x` holds 1.00 GiB on GPU-1, and is not ours",
        ),
    ];
    verdicts[6].advice = Some("a process of another pid namespace may hold it: `fuser -v /dev/nvidia0` as root names who has it open".into());
    let survey = Survey {
        at: "2026-11-21T21:00:00Z".into(),
        containers,
        strays: vec![ProcessLook {
            pid: 4711,
            started: Some(9),
            name: "VLLM::Worker".into(),
            gpu_bytes: [("GPU-1".to_owned(), 12 * GIB)].into(),
            ..ProcessLook::default()
        }],
        devices: vec![DeviceLook {
            id: "GPU-1".into(),
            name: "NVIDIA H100".into(),
            unlisted_bytes: Some(3 * GIB),
            simulated: true,
            ..DeviceLook::default()
        }],
        blind: vec![
            "processes of other users: only root may read which container they are in".into(),
        ],
        ..Survey::default()
    };
    (survey, verdicts)
}

fn page(
    survey: &Survey,
    verdicts: &[CleanVerdict],
    names: &[&str],
    verbose: bool,
    width: usize,
) -> String {
    let ask = CleanRequest {
        names: names.iter().map(|n| (*n).to_owned()).collect(),
        ..CleanRequest::default()
    };
    let document = CleanDocument::new(survey, &ask, verdicts, None);
    page_of_document(&document, verbose, width)
}

fn page_of_document(document: &CleanDocument<'_>, verbose: bool, width: usize) -> String {
    let document = serde_json::to_value(document).unwrap();
    let mut report = clean_report(&serde_json::from_value(document.clone()).unwrap());
    if document["applied"] == true {
        report.chapters.retain(|chapter| chapter.id == OUTCOMES);
    }
    if verbose {
        report = report.show_details();
    }
    render_page(&report, options(width), PageDetail::Essential)
}

fn page_of_outcomes(outcomes: &[ActOutcome]) -> String {
    let (survey, verdicts) = everything();
    let ask = CleanRequest::default();
    let document = CleanDocument::new(&survey, &ask, &verdicts, Some(outcomes));
    page_of_document(&document, false, 88)
}

#[test]
fn the_page_of_what_would_be_done() {
    let (survey, verdicts) = everything();
    insta::assert_snapshot!(page(&survey, &verdicts, &[], false, 100));
}

#[test]
fn the_page_with_every_reason_on_a_narrow_terminal() {
    let (survey, verdicts) = everything();
    insta::assert_snapshot!(page(&survey, &verdicts, &[], true, 72));
}

#[test]
fn what_was_named_and_is_kept_is_listed_with_its_reason() {
    let (survey, verdicts) = everything();
    let text = page(&survey, &verdicts, &["web"], false, 100);
    assert!(
        text.contains("\n  web: it is somebody else's [foreign]\n"),
        "{text}"
    );
    assert!(
        text.contains("  1 foreign, 1 protected; -v shows the reasons."),
        "{text}"
    );
    let by_id = page(&survey, &verdicts, &["DB00"], false, 100);
    assert!(by_id.contains("  db: it is somebody else's"), "{by_id}");
}

#[test]
fn the_page_fits_every_terminal() {
    let (survey, verdicts) = everything();
    for width in [60, 80, 120, 200] {
        for verbose in [false, true] {
            let text = page(&survey, &verdicts, &["web"], verbose, width);
            let widest = text.lines().map(text_width).max();
            assert!(widest <= Some(width), "{width}: {text}");
        }
    }
    let wide = page(&survey, &verdicts, &["web"], true, 200);
    assert_eq!(wide, page(&survey, &verdicts, &["web"], true, usize::MAX));
    for container in &survey.containers[..2] {
        assert!(wide.contains(&container.image), "not cut: {wide}");
    }
}

#[test]
fn nothing_to_clean_is_one_verdict() {
    let (mut survey, mut verdicts) = everything();
    verdicts.retain(|v| v.act == CleanAct::Keep);
    survey.devices.clear();
    survey.blind.clear();
    let text = page(&survey, &verdicts, &[], false, 100);
    assert!(
        text.contains("  2 foreign, 1 protected; -v shows the reasons."),
        "{text}"
    );
    assert!(text.contains("\nNothing to clean.\n"), "{text}");
    verdicts[0].rule = CleanRule::OwnerLives;
    let text = page(&survey, &verdicts, &[], false, 100);
    let verdict = "\nNothing to clean: what a running plimsoll uses is left alone.\n";
    assert!(text.contains(verdict) && !text.contains('→'), "{text}");
}

#[test]
fn the_command_to_apply_is_the_one_that_was_given() {
    let ask = CleanRequest {
        names: vec!["/web".into()],
        labels: vec!["team=red".into()],
        images: vec!["vllm/*".into()],
        all_gpu: true,
        idle: Some(std::time::Duration::from_secs(90)),
    };
    assert_eq!(
        apply_command(&ask),
        "plimsoll clean web --label=team=red '--image=vllm/*' --all-gpu-containers --idle=90s --apply"
    );
    assert_eq!(
        apply_command(&CleanRequest::default()),
        "plimsoll clean --apply"
    );
    let (survey, verdicts) = everything();
    let text = page(&survey, &verdicts, &["trainer"], false, 100);
    assert!(
        text.contains("→ plimsoll clean trainer --apply: "),
        "{text}"
    );
}

#[test]
fn a_hundred_are_no_wall() {
    let containers: Vec<ContainerLook> = (0..100)
        .map(|i| container(&format!("c{i}"), "i", true, Some(1)))
        .collect();
    let verdicts: Vec<CleanVerdict> = (containers.iter())
        .map(|c| {
            let of = VerdictSubject::Container(c.id.clone());
            verdict(
                of,
                &c.name,
                CleanAct::Stop,
                CleanRule::OwnerDead,
                "its owner has ended",
            )
        })
        .collect();
    let survey = Survey {
        containers,
        ..Survey::default()
    };
    let text = page(&survey, &verdicts, &[], false, 88);
    assert!(
        text.contains(
            "\n100 containers to clean, 100.00 GiB of GPU memory; nothing was touched.\n"
        ),
        "{text}"
    );
    assert!(text.contains("And 80 more: -v lists them."), "{text}");
    assert!(text.lines().count() < 70, "{text}");
    assert!(page(&survey, &verdicts, &[], true, 88).lines().count() > 100);
}

#[test]
fn names_cannot_move_the_cursor() {
    let (survey, verdicts) = everything();
    assert!(!page(&survey, &verdicts, &[], true, 100).contains('\x1b'));
}

#[test]
fn the_document_carries_the_facts_of_each_verdict() {
    let (survey, verdicts) = everything();
    let ask = CleanRequest {
        names: vec!["web".into()],
        ..CleanRequest::default()
    };
    let document = CleanDocument::new(&survey, &ask, &verdicts, None);
    let json = serde_json::to_value(&document).unwrap();
    assert_eq!(
        (&json["version"], &json["simulated"], &json["applied"]),
        (&1.into(), &true.into(), &false.into())
    );
    let entries = json["verdicts"].as_array().unwrap();
    assert_eq!(entries.len(), verdicts.len());
    assert_eq!(entries[0]["rule"], "owner_dead");
    assert_eq!(
        (&entries[0]["named"], &entries[2]["named"]),
        (&false.into(), &true.into())
    );
    assert_eq!(entries[0]["gpu_bytes"], 40 * GIB);
    assert_eq!(entries[0]["evidence"]["container"]["ours"], true);
    assert_eq!(
        entries[2]["gpu_bytes"],
        serde_json::Value::Null,
        "not known is no zero"
    );
    assert_eq!(entries[5]["evidence"]["process"]["pid"], 4711);
    assert_eq!(entries[5]["of"]["process"], serde_json::json!([4711, 9]));
    assert_eq!(
        entries[6]["gpu_bytes"],
        3 * GIB,
        "what nobody is listed with"
    );
    assert_eq!(entries[6]["evidence"]["device"]["unlisted_bytes"], 3 * GIB);
}

fn outcome(verdict: &CleanVerdict, done: ActResult, steps: &[&str]) -> ActOutcome {
    ActOutcome {
        verdict: verdict.clone(),
        done,
        steps: steps.iter().map(|s| (*s).to_owned()).collect(),
        freed_bytes: None,
        problem: None,
        holders: Vec::new(),
    }
}

#[test]
fn the_page_of_what_came_of_it() {
    let (_, verdicts) = everything();
    let all = [
        ActOutcome {
            freed_bytes: Some(40 * GIB),
            ..outcome(
                &verdicts[0],
                ActResult::Cleaned,
                &["stopped in 2.1 s", "removed"],
            )
        },
        ActOutcome {
            problem: Some("3 of its processes are still there".into()),
            holders: vec![
                "pid 812 (python3) of user 1000, 8.00 GiB, `python3 -m bench --of something`"
                    .into(),
            ],
            ..outcome(
                &verdicts[1],
                ActResult::NotDone,
                &["SIGTERM", "SIGKILL after 10 s"],
            )
        },
        outcome(&verdicts[5], ActResult::AlreadyGone, &[]),
        ActOutcome {
            problem: Some("the plimsoll that created it lives".into()),
            ..outcome(&verdicts[2], ActResult::Kept, &[])
        },
    ];
    insta::assert_snapshot!(page_of_outcomes(&all));
}

#[test]
fn of_many_outcomes_all_failures_are_listed() {
    let (_, verdicts) = everything();
    let mut all = vec![outcome(&verdicts[0], ActResult::Cleaned, &["stopped in 2.1 s"]); 70];
    all.extend(vec![outcome(&verdicts[1], ActResult::NotDone, &[]); 30]);
    let text = page_of_outcomes(&all);
    assert!(text.contains("\nCleaned 70 of 100.\n"), "{text}");
    assert_eq!(text.matches("NOT DONE").count(), 30, "{text}");
    assert!(text.contains("And 50 more: -v lists them."), "{text}");
}
