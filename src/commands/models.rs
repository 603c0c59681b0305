//! `plimsoll models`: the models with facts that ship, for planning.

use crate::cli::ModelsArgs;
use crate::console::Console;
use crate::error::ExitCode;
use crate::estimate::Mixer;
use crate::estimate::model::{self, Model};
use crate::models::shipped::{self, Shipped};
use crate::report::layout::Align;
use crate::report::page::TextOptions;
use crate::report::page::{ColumnFit, StyledCell, TextPage, TextTable};
use anstyle::Style;
use serde::Serialize;
use serde_json::Value;

/// A model that ships, in a line.
#[derive(Debug, Serialize)]
struct ModelLine {
    name: &'static str,
    /// Ids of the Hugging Face hub.
    ids: Vec<&'static str>,
    /// `model_type`.
    kind: String,
    /// As a model card counts them, without what predicts several tokens.
    parameters: u64,
    layers: u64,
    /// Of keys and values, at 16 bits, without parallelism, while no window is full; null where they
    /// are not counted.
    kv_bytes_per_token: Option<u64>,
    /// Layers that keep a state for each sequence instead.
    state_layers: u64,
    /// The quantisation that the configuration names.
    quantization: Option<String>,
    /// What is not counted.
    warnings: Vec<String>,
    /// Source of the facts.
    source: String,
}

pub fn run_models(console: &Console, args: &ModelsArgs) -> anyhow::Result<ExitCode> {
    let words: Vec<String> = args
        .search
        .iter()
        .flat_map(|w| w.split_whitespace())
        .map(str::to_lowercase)
        .collect();
    let mut lines = Vec::new();
    for shipped in shipped::all() {
        let (config, source) = shipped.read()?;
        let model = match model::from_config(shipped.name, &config, &source) {
            Ok(model) => model,
            Err(unknown) => anyhow::bail!("{}: {unknown}", shipped.name),
        };
        let line = model_line(&shipped, &model);
        if words.iter().all(|word| line.matches_word(word)) {
            lines.push(line);
        }
    }
    lines.sort_by_key(|line| line.name.to_lowercase());
    console.show_page(args.json, &lines, |_| {
        render_text(&lines, console.page_options())
    })?;
    Ok(ExitCode::Done)
}

impl ModelLine {
    fn matches_word(&self, word: &str) -> bool {
        let quantization = self.quantization.as_deref().unwrap_or("");
        [self.name, &self.kind, quantization]
            .into_iter()
            .chain(self.ids.iter().copied())
            .any(|text| text.to_lowercase().contains(word))
    }
}

fn model_line(shipped: &Shipped, model: &Model) -> ModelLine {
    let keeps_state = |m: &&Mixer| m.is_recurrent() || matches!(m, Mixer::Convolution { .. });
    ModelLine {
        name: shipped.name,
        ids: shipped.ids().collect(),
        kind: model.kind.clone(),
        parameters: model.parameters(),
        layers: model.mixers.len() as u64,
        kv_bytes_per_token: model.cache_bytes_per_token(2),
        state_layers: model.mixers.iter().filter(keeps_state).count() as u64,
        quantization: model.quantization.as_ref().and_then(quantization),
        warnings: model.warnings.clone(),
        source: model.source.clone(),
    }
}

/// `fp8`, `mxfp4`, `NVFP4`: the algorithm where it is given, else the method.
fn quantization(config: &Value) -> Option<String> {
    let word = |name: &str| config.get(name).and_then(Value::as_str);
    let word = word("quant_algo").or_else(|| word("quant_method"))?;
    Some(word.to_lowercase())
}

/// Head of the column that the page explains where it is shown.
const STATE_LAYERS: &str = "state layers";

fn render_text(lines: &[ModelLine], options: TextOptions) -> String {
    if lines.is_empty() {
        return "no model that ships has all of these words\n".to_owned();
    }
    let mut table = TextTable::new([
        ("name", Align::Left, ColumnFit::Wrap),
        ("kind", Align::Left, ColumnFit::Drop(3)),
        ("parameters", Align::Right, ColumnFit::Whole),
        ("layers", Align::Right, ColumnFit::Drop(2)),
        (STATE_LAYERS, Align::Right, ColumnFit::Drop(4)),
        ("KV B/token", Align::Right, ColumnFit::Whole),
        ("quantisation", Align::Left, ColumnFit::Drop(1)),
    ]);
    let faint = Style::new().dimmed();
    for line in lines {
        let kv = line.kv_bytes_per_token;
        table.add_row(vec![
            line.name.into(),
            StyledCell::new(&line.kind, faint),
            billions(line.parameters).into(),
            line.layers.to_string().into(),
            (Some(line.state_layers).filter(|n| *n > 0))
                .map_or_else(StyledCell::default, |n| n.to_string().into()),
            kv.map_or("-".into(), |b| b.to_string()).into(),
            line.quantization.as_deref().unwrap_or("-").into(),
        ]);
    }
    let rows = table.render_rows(0, options);
    let has_state = rows
        .iter()
        .flatten()
        .any(|line| line.contains(STATE_LAYERS));
    let mut page = TextPage::new(options);
    page.write_rendered(&rows.concat());
    page.write_line("");
    page.write_styled(faint, "KV: keys and values of one token at 16 bits, all layers, before any window is full and without parallelism");
    if has_state {
        page.write_styled(
            faint,
            &format!(
                "{STATE_LAYERS}: layers that keep a state for each sequence, and no keys and values"
            ),
        );
    }
    page.into_text()
}

/// `8.03 B`
fn billions(parameters: u64) -> String {
    format!("{:.2} B", parameters as f64 / 1e9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::page::assert_fits;

    #[test]
    fn the_page_fits_every_terminal() {
        let lines: Vec<ModelLine> = shipped::all()
            .map(|shipped| {
                let (config, source) = shipped.read().unwrap();
                let model = model::from_config(shipped.name, &config, &source).unwrap();
                model_line(&shipped, &model)
            })
            .collect();
        assert_fits(|options| render_text(&lines, options));
    }
}
