//! Product names of the GPUs: from the board, else from libdrm's table, else from `amd-smi` once.

use super::Roots;
use super::smi::ToolOutcome;
use super::smi::reports::parse_amd_smi;
use super::sysfs::{Card, product_name};
use std::time::Duration;

/// How long the start may wait for `amd-smi` when only it knows a name.
const PATIENCE: Duration = Duration::from_secs(10);

/// A name for each card. `architecture` is that of each card, as in `gfx942`, where known.
pub fn card_names(cards: &[&Card], architecture: &[Option<String>], roots: &Roots) -> Vec<String> {
    let tables: Vec<String> = roots
        .names
        .iter()
        .filter_map(|path| std::fs::read_to_string(path).ok())
        .collect();
    let in_tables = |card: &Card| {
        let (device, revision) = (card.device_id?, card.revision?);
        tables
            .iter()
            .find_map(|table| product_name(table, device, revision))
    };
    let mut names: Vec<Option<String>> = cards
        .iter()
        .map(|card| card.product_name.clone().or_else(|| in_tables(card)))
        .collect();
    if names.iter().any(Option::is_none) {
        let tool_names = by_tool(roots);
        for (name, card) in names.iter_mut().zip(cards) {
            let same = |(bdf, _): &&(String, String)| *bdf == card.bdf;
            *name = name
                .take()
                .or_else(|| tool_names.iter().find(same).map(|(_, name)| name.clone()));
        }
    }
    let anonymous = |place: usize| match architecture.get(place) {
        Some(Some(gfx)) => format!("AMD GPU {gfx}"),
        _ => match cards[place].device_id {
            Some(device) => format!("AMD GPU {device:04x}"),
            None => "AMD GPU".to_owned(),
        },
    };
    names
        .into_iter()
        .enumerate()
        .map(|(place, name)| name.unwrap_or_else(|| anonymous(place)))
        .collect()
}

/// PCI addresses and names reported by `amd-smi`; empty if the tool is missing or too slow.
fn by_tool(roots: &Roots) -> Vec<(String, String)> {
    let Some(tool) = roots.tools.find_tool("amd-smi") else {
        return Vec::new();
    };
    match (roots.tools).run_tool(&tool, "static --asic --bus --json", PATIENCE) {
        ToolOutcome::Text { text, .. } => parse_amd_smi(&text)
            .into_iter()
            .filter_map(|gpu| Some((gpu.bdf?, gpu.name?)))
            .collect(),
        ToolOutcome::Failed(_) | ToolOutcome::StillRunning(_) => Vec::new(),
    }
}
