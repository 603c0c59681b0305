//! Cells and rows for tests.

use super::*;
use crate::capture::RequestedSettings;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A server in a container.
pub(crate) fn server(model: &str) -> Arc<ServerConfig> {
    Arc::new(ServerConfig {
        model: model.into(),
        engine: Some("vllm".into()),
        place: EnginePlace::Container("llm".into()),
        settings: RequestedSettings::default(),
        engine_args: Vec::new(),
        architecture: BTreeMap::new(),
    })
}

/// A load of the engine's own client.
pub(crate) fn load(input_len: u32, output_len: u32, batch: u32) -> CellLoad {
    CellLoad {
        bench: BenchWord::Serve,
        input_len,
        output_len,
        batch_size: Some(batch),
        request_rate: None,
        num_prompts: None,
        num_iters: None,
        num_iters_warmup: None,
        repeats: 1,
        seed: None,
        short_prompts: None,
    }
}

/// A cell.
pub(crate) fn cell(model: &str, input_len: u32, output_len: u32, batch: u32) -> Cell {
    Cell::new(server(model), load(input_len, output_len, batch))
}

/// A sweep of these.
pub(crate) fn sweep(cells: Vec<Cell>) -> SweepDefinition {
    SweepDefinition {
        name: "small".into(),
        cells,
        timeout: None,
        health_timeout: None,
    }
}

/// The memory of a lack of memory.
pub(crate) fn record(cell: &Cell) -> OomRecord {
    OomRecord {
        group: cell.group.clone(),
        load: cell.load.clone(),
        cell: cell.id.clone(),
        when: "2026-11-20T10:00:00Z".into(),
        device_total_bytes: None,
        limit_bytes: None,
        message: "CUDA out of memory".into(),
    }
}

/// The row of a cell.
pub(crate) fn row(cell: &Cell, status: RowStatus) -> CellRow {
    CellRow {
        cell: cell.id.clone(),
        group: cell.group.clone(),
        status,
        cause: (status != RowStatus::Done).then_some(RowCause::Oom),
        phase: (status != RowStatus::Done).then_some(RowPhase::Bench),
        message: (status != RowStatus::Done).then(|| "CUDA out of memory".into()),
        attempt: 1,
        ended: "2026-11-20T10:00:00Z".into(),
        took_s: 12.5,
        profile: None,
        figures: RowFigures {
            peak_bytes: (status == RowStatus::Done).then_some(3 << 30),
            ..RowFigures::default()
        },
    }
}
