//! A report with a block of every kind, as the tests of the formats want it.
#![allow(dead_code, missing_docs)]

use plimsoll::breakdown::Component;
use plimsoll::engine::facts::Severity;
use plimsoll::profile::MemoryGauge;
use plimsoll::report::chart::{
    Bar, BarPart, Bars, Chart, ChartAxis, ChartTimeline, Curve, Curves, Dot, Heat, Plot, Scale,
    Segment, Square, Stretch, TimelineEvent, TimelineLane, TimelinePhase,
};
use plimsoll::report::content::{
    Action, Answer, AnswerState, Chapter, ContentBlock, FigureSource, Grid, KeyFigure, Listing,
    Note, Report, SourceDetail, SourceId, TableCell, TableColumn,
};
use plimsoll::report::format::by_name;

/// A text for a place that was planned with another one.
pub type Words<'a> = &'a dyn Fn(&str) -> String;

/// The only file of a format that writes one.
pub fn written(format: &str, report: &Report) -> String {
    let mut files = by_name(format).unwrap().render_files(report).unwrap();
    assert_eq!(files.len(), 1);
    String::from_utf8(files.remove(0).bytes).unwrap()
}

pub fn plain() -> Report {
    report(&str::to_owned, 2_000)
}

/// The report; every text of it goes through `words`.
pub fn report(words: Words, stretches: usize) -> Report {
    let s = |text: &str| words(text);
    let gib = |title: &str| axis(words, title, "GiB", Scale::FromZero);
    Report {
        title: s("vLLM 0.11.0, org/model-7b on 2 GPUs"),
        about: [
            ("Container", "vllm-serving-7b"),
            ("Measured", "2026-11-20T10:00:00Z"),
            ("Host", "node-17, 2 × NVIDIA H100 80GB"),
            ("Load", "200 requests, 64 in flight"),
        ]
        .map(|(a, b)| (s(a), s(b)))
        .to_vec(),
        answer: Some(Answer {
            state: AnswerState::Tight,
            verdict: s("Tight: peak 77.60 GiB of 79.65 GiB (97 %), 2.05 GiB free."),
            gauge: Some(MemoryGauge {
                label: s("GPU 1, NVIDIA H100 80GB"),
                used_bytes: 83_322_765_312,
                total_bytes: 85_520_809_984,
                parts: [
                    (Component::ModelWeights, 16_063_569_920),
                    (Component::KvCache, 64_424_509_440),
                ]
                .into(),
            }),
            host_gauge: None,
            no_gauge: None,
            figures: vec![KeyFigure {
                label: s("Peak"),
                value: TableCell::number_cell(77.6, s("77.600")),
                unit: s("GiB"),
            }],
            actions: vec![Action {
                setting: s("--gpu-memory-utilization 0.89"),
                effect: s("leaves 5 % of the GPU free"),
            }],
        }),
        simulated: Some(s("an engine or a GPU here only pretends")),
        chapters: vec![
            chapter(words, "summary", "Summary", summary(words)),
            chapter(
                words,
                "breakdown",
                "Where the memory goes",
                breakdown(words),
            ),
            chapter(
                words,
                "timeline",
                "Memory over time",
                vec![
                    ContentBlock::Text(s(
                        "Sampled every 100 ms on every device; a stretch is the lowest and the highest of its samples.",
                    )),
                    ContentBlock::Chart(timeline(words, stretches)),
                ],
            ),
            chapter(
                words,
                "sweep",
                "Sweep",
                vec![
                    ContentBlock::Chart(heat(words)),
                    ContentBlock::Chart(curves(words, gib("peak memory"))),
                    ContentBlock::Table(sweep(words)),
                ],
            ),
            chapter(
                words,
                "environment",
                "Configuration and environment",
                vec![
                    ContentBlock::Listing(Listing {
                        title: s("Command line of the engine"),
                        text: s(
                            "vllm serve org/model-7b\n  --gpu-memory-utilization 0.9\n  --max-num-seqs 256",
                        ),
                        folded: false,
                    }),
                    ContentBlock::Listing(Listing {
                        title: s("Environment"),
                        text: s("CUDA_VISIBLE_DEVICES=0,1\nHF_TOKEN=(redacted)"),
                        folded: true,
                    }),
                ],
            ),
        ],
        sources: sources(words),
        is_brief: false,
    }
}

fn chapter(words: Words, id: &str, title: &str, blocks: Vec<ContentBlock>) -> Chapter {
    Chapter {
        id: id.into(),
        title: words(title),
        blocks,
        ..Chapter::default()
    }
}

fn summary(words: Words) -> Vec<ContentBlock> {
    let s = |text: &str| words(text);
    let note = |severity, code: &str, message: &str, quote: Option<&str>| {
        ContentBlock::Note(Note {
            severity,
            code: Some(s(code)),
            message: s(message),
            quote: quote.map(s),
        })
    };
    vec![
        ContentBlock::Text(s(
            "The container used 71.2 GiB of 80.0 GiB on each GPU; weights and the KV cache are nine tenths of that.",
        )),
        ContentBlock::Table(figures(words)),
        note(
            Severity::Warning,
            "preemption_seen",
            "Requests were preempted 12 times: the KV cache was full",
            Some(
                "WARNING 11-20 10:03:12 [scheduler.py:1057] Sequence group 12 is preempted by PreemptionMode.RECOMPUTE",
            ),
        ),
        note(
            Severity::Info,
            "clock_skew",
            "The engine's log is 0.2 s behind this host",
            None,
        ),
        note(
            Severity::Error,
            "oom",
            "One repeat of three ran out of memory",
            None,
        ),
    ]
}

fn figures(words: Words) -> Grid {
    let row = |label: &str, value: f64, text: &str, unit: &str, sure: &str| {
        let cell = TableCell::number_cell(value, words(text));
        let sourced = matches!(label, "Model weights" | "KV cache pool");
        let cell = if sourced {
            cell.from(SourceId(usize::from(label == "KV cache pool")))
        } else {
            cell
        };
        // Its names are the program's own.
        vec![
            TableCell::text_cell(label),
            cell,
            TableCell::text_cell(words(unit)),
            TableCell::text_cell(words(sure)),
        ]
    };
    let mut unknown = row("KV in use at most", 0.0, "", "GiB", "");
    unknown[1] = TableCell::missing_cell(words("the engine's statistics were switched off"));
    Grid {
        id: "figures".into(),
        caption: words("The figures that matter"),
        columns: columns(
            words,
            &[
                ("figure", "figure", false),
                ("value", "value", true),
                ("unit", "unit", false),
                ("how sure", "confidence", false),
            ],
        ),
        rows: vec![
            row("Peak", 71.204_123, "71.20", "GiB", "measured"),
            row("Model weights", 13.49, "13.49", "GiB", "high"),
            row("KV cache pool", 52.18, "52.18", "GiB", "high"),
            unknown,
            row("Throughput", 2841.7, "2,842", "tokens/s", ""),
            row("Mean latency", 1320.4, "1,320", "ms", ""),
        ],
    }
}

const PARTS: [&str; 6] = [
    "model weights",
    "KV cache pool",
    "activations",
    "CUDA graphs",
    "non-torch",
    "not explained",
];

fn breakdown(words: Words) -> Vec<ContentBlock> {
    let s = |text: &str| words(text);
    let values = [
        [13.49, 52.18, 2.03, 0.61, 1.9, 0.99],
        [13.49, 51.9, 2.03, 0.61, 2.1, 1.07],
    ];
    let bars = values.iter().enumerate().map(|(gpu, values)| Bar {
        label: s(&format!("GPU {gpu}")),
        segments: values
            .iter()
            .enumerate()
            .map(|(part, &value)| Segment {
                part,
                value,
                confidence: Some(s(if part < 3 {
                    "high_from_vllm_logs"
                } else {
                    "inferred"
                })),
                unsure: part >= 3,
                source: (part < 2).then_some(SourceId(part)),
            })
            .collect(),
        limit: Some((79.65, s("device has 79.65 GiB"))),
        ..Bar::default()
    });
    let rows = PARTS.iter().enumerate().map(|(i, part)| {
        let figure = |gpu: usize| {
            let v: f64 = values[gpu][i];
            let cell = TableCell::number_cell(v, s(&format!("{v:.2}")));
            if i < 2 { cell.from(SourceId(i)) } else { cell }
        };
        vec![
            TableCell::text_cell(s(part)),
            figure(0),
            figure(1),
            match i {
                0..=3 => TableCell::text_cell(s(if i < 3 {
                    "high_from_vllm_logs"
                } else {
                    "inferred"
                })),
                _ => TableCell::missing_cell(s("no witness speaks of it")),
            },
        ]
    });
    vec![
        ContentBlock::Chart(Chart {
            id: "fig_breakdown".into(),
            title: s("Memory at the peak, by part"),
            note: Some(s("Hatched parts are inferred, not measured.")),
            simulated: true,
            plot: Plot::Bars(Bars {
                axis: axis(words, "memory at the peak", "GiB", Scale::FromZero),
                parts: PARTS.map(|label| BarPart::plain_part(&s(label))).to_vec(),
                bars: bars.collect(),
            }),
        }),
        ContentBlock::Table(Grid {
            id: "breakdown_parts".into(),
            caption: s("Memory at the peak, GiB"),
            columns: columns(
                words,
                &[
                    ("part", "part", false),
                    ("GPU 0", "gpu0_gib", true),
                    ("GPU 1", "gpu1_gib", true),
                    ("confidence", "confidence", false),
                ],
            ),
            rows: rows.collect(),
        }),
    ]
}

pub fn timeline(words: Words, stretches: usize) -> Chart {
    let s = |text: &str| words(text);
    let end = 300.0;
    let lane =
        |label: &str, unit: &str, capacity: Option<f64>, value: &dyn Fn(f64) -> f64| TimelineLane {
            label: s(label),
            unit: s(unit),
            capacity,
            memory: unit == "GiB",
            component: None,
            layers: Vec::new(),
            samples: stretches as u64 * 3,
            stretches: (0..stretches)
                .map(|i| {
                    let from_s = end * i as f64 / stretches as f64;
                    let low = value(from_s);
                    // One peak that a thinned drawing could lose.
                    let peak = if i == stretches * 7 / 10 { 6.0 } else { 0.0 };
                    Stretch {
                        from_s,
                        to_s: from_s + end / stretches as f64 * 0.6,
                        low,
                        high: low + 0.05 + 0.1 * (from_s * 13.0).sin().abs() + peak,
                    }
                })
                .collect(),
        };
    let memory = |t: f64| match t {
        t if t < 40.0 => t / 40.0 * 14.0,
        t if t < 70.0 => 14.0 + (t - 40.0) / 30.0 * 50.0,
        t => 66.0 + 2.0 * (t / 11.0).sin(),
    };
    let busy = |t: f64| {
        if t < 90.0 {
            4.0
        } else {
            88.0 + 9.0 * (t * 1.7).sin()
        }
    };
    let timeline = ChartTimeline {
        note: Some(s(
            "3 samples a stretch. The power of GPU 1 was not read: the driver has no sensor for it.",
        )),
        simulated: true,
        origin: Some("2026-11-20T10:00:00Z".into()),
        range_s: (0.0, end),
        lanes: vec![
            lane("GPU 0 memory", "GiB", Some(79.65), &memory),
            lane("GPU 1 memory", "GiB", Some(79.65), &|t| memory(t) - 1.5),
            lane("GPU 0 busy", "%", None, &busy),
        ],
        phases: [
            ("load", 0.0, 70.0),
            ("idle", 70.0, 90.0),
            ("warm-up", 90.0, 110.0),
            ("bench", 110.0, 280.0),
            ("settle", 280.0, 300.0),
        ]
        .map(|(label, from_s, to_s)| TimelinePhase {
            label: s(label),
            from_s,
            to_s,
        })
        .to_vec(),
        events: [
            (40.0, "weights loaded", false),
            (70.0, "ready", false),
            (210.0, "out of memory in repeat 2", true),
        ]
        .map(|(at_s, label, bad)| TimelineEvent {
            at_s,
            label: s(label),
            bad,
        })
        .to_vec(),
    };
    timeline.timeline_chart("fig_timeline", s("Memory over time"))
}

fn heat(words: Words) -> Chart {
    let s = |text: &str| words(text);
    let square = |x: usize, y: usize| {
        let value = 12.0 + 5.5 * x as f64 + 7.0 * y as f64;
        match x + y {
            7.. => Square {
                value: None,
                text: s("oom"),
            },
            6 if x == 5 => Square::default(),
            _ => Square {
                value: Some(value),
                text: s(&format!("{value:.1}")),
            },
        }
    };
    Chart {
        id: "fig_heat".into(),
        title: s("Peak memory by requests in flight and length"),
        note: None,
        simulated: false,
        plot: Plot::Heat(Heat {
            x: (
                s("requests in flight"),
                ["1", "4", "16", "64", "128", "256"].map(s).to_vec(),
            ),
            y: (
                s("input tokens"),
                ["256", "1024", "4096", "8192"].map(s).to_vec(),
            ),
            figure: axis(words, "peak memory", "GiB", Scale::Linear),
            squares: (0..4)
                .map(|y| (0..6).map(|x| square(x, y)).collect())
                .collect(),
            high_is_bad: true,
        }),
    }
}

fn curves(words: Words, y: ChartAxis) -> Chart {
    let s = |text: &str| words(text);
    let curve = |label: &str, base: f64| Curve {
        label: s(label),
        joined: true,
        points: [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0]
            .map(|x: f64| Dot {
                x,
                y: base + x.log2() * 4.0,
                range: Some((base + x.log2() * 3.8, base + x.log2() * 4.3)),
                label: Some(s(&format!("run {x}"))),
            })
            .to_vec(),
    };
    Chart {
        id: "fig1_mem_vs_concurrency".into(),
        title: s("Peak memory over requests in flight"),
        note: Some(s("2 cells ran out of memory and are left out.")),
        simulated: false,
        plot: Plot::Curves(Curves {
            x: axis(words, "requests in flight", "", Scale::Log2),
            y,
            curves: vec![curve("256 tokens", 20.0), curve("4096 tokens", 31.0)],
            levels: vec![(79.65, s("device has"))],
            ..Curves::default()
        }),
    }
}

fn sweep(words: Words) -> Grid {
    let s = |text: &str| words(text);
    let row = |i: usize| {
        let peak = 20.0 + i as f64 * 1.37;
        vec![
            TableCell::text_cell(s(&format!("cell-{i:03}"))),
            TableCell::number_cell((1 << (i % 7)) as f64, s(&(1 << (i % 7)).to_string())),
            match i % 5 {
                4 => TableCell::missing_cell(s("ran out of memory")),
                _ => TableCell::number_cell(peak, s(&format!("{peak:.2}"))),
            },
            TableCell::number_cell(
                1234.5 * (1 + i % 7) as f64,
                s(&format!("{:.0}", 1234.5 * (1 + i % 7) as f64)),
            ),
            TableCell::text_cell(s(if i % 5 == 4 { "oom" } else { "measured" })),
        ]
    };
    Grid {
        id: "sweep_cells".into(),
        caption: s("Cells of the sweep"),
        columns: columns(
            words,
            &[
                ("cell", "cell", false),
                ("in flight", "concurrency", true),
                ("peak, GiB", "peak_gib", true),
                ("tokens/s", "output_tokens_per_s", true),
                ("state", "state", false),
            ],
        ),
        rows: (0..40).map(row).collect(),
    }
}

fn sources(words: Words) -> Vec<FigureSource> {
    let s = |text: &str| words(text);
    let witness = |kind: &str, value: &str, quote: &str, place: &str, used| SourceDetail {
        kind: s(kind),
        value: s(value),
        quote: s(quote),
        place: Some(s(place)),
        used,
    };
    vec![
        FigureSource {
            title: s("Model weights, GPU 0"),
            value: s("13.490 GiB (14484777861 bytes)"),
            confidence: Some(s("high_from_vllm_logs")),
            witnesses: vec![
                witness(
                    "engine log",
                    "13.49 GiB",
                    "INFO 11-20 10:00:41 [gpu_model_runner.py:2653] Model loading took 13.4900 GiB and 38.112 seconds",
                    "engine.log, line 212",
                    true,
                ),
                witness(
                    "samples",
                    "13.6 GiB",
                    "memory at the end of the load, less memory before it",
                    "second 40.12",
                    false,
                ),
            ],
        },
        FigureSource {
            title: s("KV cache, GPU 0"),
            value: s("52.180 GiB (56027848376 bytes)"),
            confidence: Some(s("high_from_vllm_logs")),
            witnesses: vec![witness(
                "engine log",
                "52.18 GiB",
                "Available KV cache memory: 52.18 GiB",
                "engine.log, line 240",
                true,
            )],
        },
    ]
}

fn axis(words: Words, title: &str, unit: &str, scale: Scale) -> ChartAxis {
    ChartAxis {
        title: words(title),
        unit: words(unit),
        scale,
    }
}

fn columns(words: Words, heads: &[(&str, &str, bool)]) -> Vec<TableColumn> {
    let column = |&(title, key, numeric): &(&str, &str, bool)| TableColumn {
        title: words(title),
        key: key.into(),
        numeric,
        is_share: false,
    };
    heads.iter().map(column).collect()
}
