//! Tests of timelines on a terminal.

use super::*;
use crate::report::chart::Stretch;
use proptest::prelude::*;

fn at(from_s: f64, low: f64, high: f64) -> Stretch {
    Stretch {
        from_s,
        to_s: from_s,
        low,
        high,
    }
}

fn lane(label: &str, unit: &str, capacity: Option<f64>, stretches: Vec<Stretch>) -> TimelineLane {
    TimelineLane {
        label: label.into(),
        unit: unit.into(),
        capacity,
        memory: unit == "GiB",
        samples: stretches.len() as u64,
        stretches,
        ..TimelineLane::default()
    }
}

/// An engine that starts, loads, serves a load with one spike, and ends.
fn run() -> ChartTimeline {
    let level = |s: f64| match s {
        s if s < 5.0 => 0.5,
        s if s < 10.0 => 0.5 + (s - 5.0) * 2.8,
        s if s < 12.0 => 14.5,
        s if s < 50.0 => 70.0,
        _ => 0.6,
    };
    let samples = (0..600).map(|i| {
        let s = f64::from(i) / 10.0;
        let spike = if i == 333 { 6.5 } else { 0.0 };
        at(s, level(s), level(s) + spike)
    });
    let gauge = |top: f64| {
        (0..60).map(f64::from).map(move |s| {
            let busy = (15.0..45.0).contains(&s);
            let now = if busy { top * (s - 14.0) / 30.0 } else { 0.0 };
            at(s, now, now)
        })
    };
    let phase = |label: &str, from_s: f64, to_s: f64| TimelinePhase {
        label: label.into(),
        from_s,
        to_s,
    };
    let event = |at_s: f64, label: &str, bad: bool| TimelineEvent {
        at_s,
        label: label.into(),
        bad,
    };
    ChartTimeline {
        origin: Some("2026-11-20T10:00:00Z".into()),
        range_s: (0.0, 60.0),
        lanes: vec![
            lane("GPU 0 memory", "GiB", Some(79.6), samples.collect()),
            lane("KV pool in use", "%", None, gauge(80.0).collect()),
            lane("Requests running", "", None, gauge(32.0).collect()),
        ],
        phases: vec![
            phase("start", 0.0, 14.0),
            phase("weights", 5.0, 10.0),
            phase("KV pool", 10.0, 12.0),
            phase("load", 15.0, 45.0),
            phase("after", 45.0, 60.0),
        ],
        events: vec![
            event(12.0, "serves", false),
            event(33.3, "the peak", false),
            event(33.4, "preemption", true),
        ],
        ..ChartTimeline::default()
    }
}

fn page_of(timeline: &ChartTimeline, view: TimelineView, options: TextOptions) -> String {
    let about = [("run".into(), "results/a.json".into())];
    render_timeline(timeline, &about, view, options)
}

fn options(unicode: bool) -> TextOptions {
    TextOptions {
        width: 80,
        color: false,
        unicode,
    }
}

#[test]
fn a_run_on_a_terminal() {
    insta::assert_snapshot!(page_of(&run(), TimelineView::default(), options(true)));
}

#[test]
fn a_run_where_only_ascii_is_shown() {
    let page = page_of(&run(), TimelineView::default(), options(false));
    assert!(page.is_ascii(), "{page}");
    insta::assert_snapshot!(page);
}

#[test]
fn a_part_of_it_has_its_own_seconds() {
    let view = TimelineView {
        from_s: Some(30.0),
        to_s: Some(36.0),
        until_s: None,
    };
    let page = page_of(&run(), view, options(true));
    assert!(
        page.contains("GPU 0 memory: 70.00 to 76.50 of 79.60 GiB"),
        "{page}"
    );
    assert!(
        !page.contains("serves") && page.contains("preemption (bad)"),
        "{page}"
    );
    assert!(page.contains("load") && !page.contains("weights"), "{page}");
}

#[test]
fn while_it_is_played_nothing_of_later_is_shown() {
    let until = |s: f64| {
        let view = TimelineView {
            until_s: Some(s),
            ..TimelineView::default()
        };
        page_of(&run(), view, options(true))
    };
    let page = until(20.0);
    assert!(page.contains("0.50 to 70.00"), "{page}");
    assert!(!page.contains("76.50") && !page.contains("after"), "{page}");
    // The scale does not jump meanwhile.
    assert_eq!(page.lines().count(), until(50.0).lines().count());
}

#[test]
fn a_simulation_is_named_and_hostile_text_is_harmless() {
    let mut timeline = run();
    timeline.simulated = true;
    timeline.phases[3].label = "\u{1b}[2Jload\n\u{202e}".into();
    timeline.events[0].label = "\u{1b}]0;x\u{7}served".into();
    timeline.lanes[0]
        .stretches
        .push(at(f64::NAN, f64::NAN, f64::INFINITY));
    timeline.lanes[0].capacity = Some(-5.0);
    let page = page_of(&timeline, TimelineView::default(), options(true));
    assert!(page.starts_with("SIMULATED"), "{page}");
    assert!(
        !page.contains('\u{1b}') && !page.contains('\u{202e}'),
        "{page}"
    );
    let empty = page_of(
        &ChartTimeline::default(),
        TimelineView::default(),
        options(true),
    );
    assert!(empty.contains("No memory was sampled"), "{empty}");
    // Any window, and any width.
    for (from, to) in [
        (50.0, 10.0),
        (-1e300, 1e300),
        (f64::NAN, f64::NAN),
        (7.0, 7.0),
    ] {
        let view = TimelineView {
            from_s: Some(from),
            to_s: Some(to),
            until_s: None,
        };
        let narrow = TextOptions {
            width: 1,
            ..options(true)
        };
        assert!(!page_of(&timeline, view, narrow).is_empty());
    }
}

#[test]
fn where_sampling_stopped_nothing_is_drawn() {
    let stretches = (0..20).map(f64::from).chain((80..=100).map(f64::from));
    let lane = lane(
        "m",
        "GiB",
        None,
        stretches.map(|s| at(s, 1.0, 1.0)).collect(),
    );
    let span = Span {
        from_s: 0.0,
        to_s: 100.0,
        columns: 200,
    };
    let columns = lane_columns(&lane, span);
    let known: Vec<bool> = columns.iter().map(Option::is_some).collect();
    assert!(known[..39].iter().all(|k| *k), "{known:?}");
    assert!(known[42..158].iter().all(|k| !k), "{known:?}");
    assert!(known[160..].iter().all(|k| *k), "{known:?}");
}

proptest! {
    #[test]
    fn the_highest_and_the_lowest_sample_are_in_their_columns(
        values in proptest::collection::vec((0.0f64..1000.0, 0.0f64..80.0, 0.0f64..80.0), 1..300),
        columns_n in 1usize..200,
        unicode in any::<bool>(),
    ) {
        let mut stretches: Vec<Stretch> = values.iter().map(|(s, a, b)| at(*s, a.min(*b), a.max(*b))).collect();
        stretches.sort_by(|a, b| a.from_s.total_cmp(&b.from_s));
        let span = Span { from_s: 0.0, to_s: 1000.0, columns: columns_n };
        let lane = lane("m", "GiB", Some(80.0), stretches.clone());
        let columns = lane_columns(&lane, span);
        let shown = Shown { span, until: f64::INFINITY, options: options(unicode) };
        for s in &stretches {
            let column = span.nearest_column(s.from_s);
            let here = columns[column].expect("a column with a sample");
            prop_assert!(here.high >= s.high && here.low <= s.low);
            // And something is drawn at the height of the highest.
            let row = ((here.high / 80.0 * 80.0).clamp(1.0, 80.0).round() as usize - 1) / 8;
            prop_assert_ne!(shown.glyph_at(Some(here), row, 10, 80.0), ' ');
            if row < 9 {
                prop_assert_eq!(shown.glyph_at(Some(here), row + 1, 10, 80.0), ' ');
            }
        }
        let highest = stretches.iter().map(|s| s.high).fold(0.0, f64::max);
        let drawn = columns.iter().flatten().map(|s| s.high).fold(0.0, f64::max);
        prop_assert_eq!(highest, drawn);
    }
}
