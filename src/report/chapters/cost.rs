//! What a million tokens cost: the price of a GPU's hour, the GPUs, the tokens a second.

use super::Sources;
use super::figures::{SourcedFigures, reason_at_path};
use super::summary::{BENCH, TOKENS};
use super::words::{self, tokens_unit};
use crate::capture::DeviceKind;
use crate::engine::facts::Severity;
use crate::profile::Profile;
use crate::report::content::{
    Chapter, ContentBlock, FigureSource, Grid, TableCell, note_block, number_column,
    text_column as column,
};
use crate::report::layout::{format_figure, unsigned_zero, with_unit};
use crate::report::material::Material;

pub(super) fn write_cost_chapter(material: &Material, sources: &mut Sources) -> Vec<Chapter> {
    let Some(price) = material.gpu_hour_price else {
        return Vec::new();
    };
    if material.runs.is_empty() {
        let text = "No cost: it needs profiles, and only other documents were given. Name the folder with the profiles, too.";
        return vec![Chapter::of_blocks("cost", "Cost", vec![text.into()])];
    }
    let many = material.runs.len() > 1;
    let money = |what: &str| with_unit(what, &material.currency);
    let mut blocks = Vec::new();
    if let Some(what) = words::simulated_parts(material) {
        let text = format!("{what}: such a cost does not describe a real deployment");
        blocks.push(note_block(Severity::Warning, "simulated", text));
    }
    let rows = material.runs.iter().map(|run| {
        let mut figures = SourcedFigures { sources, run, many };
        cost_row(&mut figures, price)
    });
    blocks.push(ContentBlock::Table(Grid {
        id: "cost".into(),
        caption: "Cost per million tokens = price of a GPU's hour × GPUs ÷ (tokens a second × 3600) × 1,000,000".into(),
        columns: vec![
            column("run", "run"),
            number_column(money("a GPU's hour"), "gpu_hour_price"),
            number_column("GPUs", "gpus"),
            number_column("tokens/s", "tokens_per_second"),
            column("tokens", "tokens_are"),
            number_column(money("per million tokens"), "cost_per_million_tokens"),
            number_column(money("per 1000 requests"), "cost_per_1000_requests"),
        ],
        rows: rows.collect(),
    }));
    let text = "The price is for whole GPUs during the load; a load that does not fill the engine makes tokens expensive.";
    blocks.push(text.into());
    Chapter::of_parts("cost", "Cost", blocks, Vec::new())
}

/// GPUs that are paid for: those that were measured.
fn billed_gpus(profile: &Profile) -> Result<f64, String> {
    let devices = &profile.gpu_info.devices;
    match devices.iter().filter(|d| d.kind == DeviceKind::Gpu).count() {
        0 => Err("no GPU was measured: the container's host memory was".into()),
        n => Ok(n as f64),
    }
}

fn cost_row(figures: &mut SourcedFigures<'_>, price: f64) -> Vec<TableCell> {
    let run = figures.run;
    let p = &run.profile;
    let stats = p.latency_stats.as_ref();
    let positive = |value: Option<f64>, path: &str| match value {
        Some(v) if v.is_finite() && v > 0.0 => Ok(v),
        Some(_) => Err("no token came".to_owned()),
        None => Err(reason_at_path(p, path)),
    };
    let requests_path = "latency_stats.requests_per_second";
    let tokens = positive(stats.and_then(|s| s.tokens_per_second), TOKENS);
    let requests = positive(stats.and_then(|s| s.requests_per_second), requests_path);
    let gpus = billed_gpus(p);
    let given = figures.sources.note_source(FigureSource::of_one(
        "Price of a GPU's hour",
        price.to_string(),
        "given",
        format!("--gpu-hour-price {price}"),
    ));
    let counted = match &gpus {
        Ok(n) => {
            let text = n.to_string();
            let quote = (words::devices_label(p), "gpu_info.devices");
            let id = figures.of_key(("GPUs", text.clone()), "measured devices", quote);
            TableCell::number_cell(*n, text).from(id)
        }
        Err(why) => TableCell::missing_cell(why),
    };
    let rate = (tokens.as_ref().ok().copied(), TOKENS);
    let rate = figures.reported_cell("tokens/s", BENCH, rate);
    let mut cost = |title: &str, rate: &Result<f64, String>, each: f64, path: &str| {
        let (gpus, rate) = match (&gpus, rate) {
            (Ok(gpus), Ok(rate)) => (*gpus, *rate),
            (Err(why), _) | (_, Err(why)) => return TableCell::missing_cell(why),
        };
        let cost = price * gpus / (rate * 3600.0) * each;
        if !cost.is_finite() {
            return TableCell::missing_cell("the number is too large");
        }
        let text = money_text(cost);
        let rate = format_figure(rate);
        let formula = format!("{price} × {gpus} ÷ ({rate} × 3600) × {each}");
        let id = figures.of_key((title, text.clone()), "calculated", (formula, path));
        TableCell::number_cell(cost, text).from(id)
    };
    vec![
        (&run.name).into(),
        TableCell::number_cell(price, price.to_string()).from(given),
        counted,
        rate,
        tokens_unit(p).into(),
        cost("Cost per million tokens", &tokens, 1e6, TOKENS),
        cost("Cost per 1000 requests", &requests, 1e3, requests_path),
    ]
}

/// Money to a hundredth, and finer where that would be nothing.
fn money_text(cost: f64) -> String {
    match cost {
        c if c >= 0.1 => format!("{c:.2}"),
        c => unsigned_zero(format!("{c:.4}")),
    }
}
