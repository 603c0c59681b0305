//! Where a sweep's cells come from: its file, standard input, or flags in a file's place.

use crate::cli::SweepRunArgs;
use crate::commands::config;
use crate::error::Failure;
use crate::matrix::{BenchWord, Cell, CellLoad, FlagMatrix, SweepDefinition};
use std::collections::BTreeMap;

/// The sweep that the arguments mean, and the text of its file where there is one.
pub fn read_source(args: &SweepRunArgs) -> Result<(SweepDefinition, Option<String>), Failure> {
    let file = args.file.as_ref().or(args.config.as_ref());
    let text = file.map(|path| config::read_sweep_text(path)).transpose()?;
    let mut sweep = match (file, &text) {
        (Some(path), Some(text)) => config::parse_sweep_text(path, text)?,
        _ => of_flags(args)?,
    };
    if let Some(name) = &args.name {
        sweep.name.clone_from(name);
    }
    // The flag is for cells that leave it open.
    if let (Some(word), Some(_)) = (args.bench, file) {
        let cells = std::mem::take(&mut sweep.cells);
        sweep.cells = cells
            .into_iter()
            .map(|cell| with_bench(cell, word))
            .collect();
    }
    Ok((sweep, text))
}

fn with_bench(cell: Cell, word: BenchWord) -> Cell {
    match cell.load.bench {
        BenchWord::Auto => Cell::new(
            cell.server,
            CellLoad {
                bench: word,
                ..cell.load
            },
        ),
        _ => cell,
    }
}

fn of_flags(args: &SweepRunArgs) -> Result<SweepDefinition, Failure> {
    let facts = [
        ("model_params", args.model_params),
        ("num_layers", args.num_layers.map(f64::from)),
        ("num_heads", args.num_heads.map(f64::from)),
        ("num_kv_heads", args.num_kv_heads.map(f64::from)),
        ("head_dim", args.head_dim.map(f64::from)),
        ("hidden_size", args.hidden_size.map(f64::from)),
    ];
    let given = facts
        .into_iter()
        .filter_map(|(k, v)| Some((k.to_owned(), v?)));
    let architecture: BTreeMap<String, f64> = given.collect();
    let matrix = FlagMatrix {
        name: "sweep".into(),
        containers: args.container.clone(),
        models: args.model.clone(),
        engine: args.engine.clone(),
        input_lens: args.input_len.clone(),
        output_lens: args.output_len.clone(),
        batch_sizes: args.batch_size.clone(),
        bench: args.bench.unwrap_or_default(),
        architecture,
    };
    Ok(SweepDefinition {
        cells: matrix.expand_cells()?,
        name: matrix.name,
        timeout: None,
        health_timeout: None,
    })
}
