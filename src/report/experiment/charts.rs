//! The figures of an experiment: memory and throughput over what was varied.

use crate::experiment::{Experiment, ExperimentLevel};
use crate::report::chart::{Chart, ChartAxis, Curve, Curves, Dot, Plot, Scale};
use crate::units::to_gib;

/// A line of a figure: its words, why it may be missing, and its values.
type ChartSeries = (
    &'static str,
    &'static str,
    fn(&ExperimentLevel) -> Option<f64>,
);

/// Memory: what the devices held, and of the KV cache what is reserved and what is used. An engine
/// that reserves a pool at its start makes the first flat, whatever the load; only the last moves.
const MEMORY: [ChartSeries; 5] = [
    ("peak memory", "peak_bytes", |l| gibs(l.peak_bytes)),
    ("KV pool reserved", "kv_pool_bytes", |l| {
        gibs(l.kv_pool_bytes)
    }),
    ("KV used at most", "kv_used_bytes", |l| {
        gibs(l.kv_used_bytes)
    }),
    ("torch allocated", "peak_alloc_bytes", |l| {
        gibs(l.peak_alloc_bytes)
    }),
    ("torch reserved", "peak_reserved_bytes", |l| {
        gibs(l.peak_reserved_bytes)
    }),
];

const THROUGHPUT: [ChartSeries; 2] = [
    ("all requests together", "total_tokens_per_s", |l| {
        l.total_tokens_per_s
    }),
    ("each request, mean", "mean_tokens_per_s", |l| {
        l.mean_tokens_per_s
    }),
];

/// Both figures, named as their files.
pub fn experiment_charts(e: &Experiment) -> Vec<Chart> {
    let over = e.kind.axis_label();
    let axis = |title: &str, unit: &str| ChartAxis {
        title: title.into(),
        unit: unit.into(),
        scale: Scale::FromZero,
    };
    let word = e.kind.axis_word();
    let memory = match &e.memory_of {
        Some(of) => format!("Memory over {over}: {of}"),
        None => format!("Memory over {over}"),
    };
    [
        (
            format!("fig1_mem_vs_{word}"),
            memory,
            axis("memory", "GiB"),
            &MEMORY[..],
        ),
        (
            format!("fig2_tps_vs_{word}"),
            format!("Throughput over {over}"),
            axis("generated tokens per second", "tok/s"),
            &THROUGHPUT[..],
        ),
    ]
    .map(|(id, title, y, series)| Chart {
        id,
        title: format!("{title} ({})", e.model),
        note: chart_note(e, series),
        simulated: e.simulated,
        plot: Plot::Curves(Curves {
            x: ChartAxis {
                scale: scale(e),
                ..axis(over, "")
            },
            y,
            curves: series.iter().filter_map(|s| curve(e, s)).collect(),
            levels: Vec::new(),
            x_names: Vec::new(),
        }),
    })
    .into()
}

/// Levels that are doubled again and again stand evenly by powers of two.
fn scale(e: &Experiment) -> Scale {
    let mut all = e.levels.iter().map(|l| l.x);
    let first = all.next().unwrap_or(0.0);
    let last = all.next_back().unwrap_or(first);
    if first > 0.0 && last >= 8.0 * first {
        Scale::Log2
    } else {
        Scale::FromZero
    }
}

fn curve(e: &Experiment, (label, _, value): &ChartSeries) -> Option<Curve> {
    let points: Vec<Dot> = e
        .completed_levels()
        .filter_map(|level| {
            Some(Dot {
                x: level.x,
                y: value(level)?,
                range: None,
                label: Some(level.describe_load()),
            })
        })
        .collect();
    (!points.is_empty()).then(|| Curve {
        label: (*label).into(),
        points,
        joined: true,
    })
}

/// What is not in the figure, and why.
fn chart_note(e: &Experiment, series: &[ChartSeries]) -> Option<String> {
    let mut said: Vec<String> = Vec::new();
    for (label, key, value) in series {
        let known = e.completed_levels().filter(|l| value(l).is_some()).count();
        let torch = matches!(*key, "peak_alloc_bytes" | "peak_reserved_bytes");
        match (known, e.reason_for_figure(key)) {
            // Where no probe ran, its lines are not missing.
            (0, _) if torch => {}
            (0, Some(why)) => said.push(format!("{label} not measured: {why}")),
            (n, Some(why)) if n < e.completed_levels().count() => {
                said.push(format!("{label} not measured in all levels: {why}"));
            }
            _ => {}
        }
    }
    let without: Vec<String> = e
        .levels
        .iter()
        .filter(|l| e.completed_levels().all(|d| d.name != l.name))
        .map(|l| match &l.cause {
            Some(cause) => format!("{} ({}: {cause})", l.name, l.state.as_str()),
            None => format!("{} ({})", l.name, l.state.as_str()),
        })
        .collect();
    if !without.is_empty() {
        said.push(format!("levels without figures: {}", without.join(", ")));
    }
    (!said.is_empty()).then(|| said.join("; "))
}

fn gibs(bytes: Option<u64>) -> Option<f64> {
    bytes.map(to_gib)
}
