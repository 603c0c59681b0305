//! Where a sweep's cells come from: its file, standard input, or flags in a file's place.

use crate::cli::SweepRunArgs;
use crate::commands::config;
use crate::engine::EngineId;
use crate::error::Failure;
use crate::matrix::{BenchWord, Cell, CellLoad, SweepDefinition};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::hash::Hash;
use std::path::Path;

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

/// What the flags mean: the sweep of the file that they stand for.
fn of_flags(args: &SweepRunArgs) -> Result<SweepDefinition, Failure> {
    if args.model.is_empty() {
        return Err(Failure::usage("say which model to load").hint("--model MODEL"));
    }
    let engine = args.engine.as_deref().map(EngineId::from_name);
    // A file's texts may have variables in them.
    let texts = |values: &[String]| listed(values.iter().map(|text| text.replace('$', "$$")));
    let numbers = |values: &[u32]| listed(values.iter().copied());
    let entry = json!({
        "model_id": texts(&args.model),
        "container_name": texts(&args.container),
        "engine": engine.transpose()?.map(|engine| engine.name),
        "input_lengths": numbers(&args.input_len),
        "output_lengths": numbers(&args.output_len),
        "batch_sizes": numbers(&args.batch_size),
        "bench": args.bench.map(BenchWord::as_str),
        "model_params": args.model_params,
        "num_layers": args.num_layers,
        "num_heads": args.num_heads,
        "num_kv_heads": args.num_kv_heads,
        "head_dim": args.head_dim,
        "hidden_size": args.hidden_size,
    });
    let file = json!({"name": "sweep", "models": [entry]});
    config::parse_sweep_text(Path::new("flags"), &format!("{file:#}"))
}

/// A list for a file, with each value once; none where there is no value.
fn listed<T: Into<Value> + Eq + Hash + Clone>(values: impl Iterator<Item = T>) -> Option<Value> {
    let mut seen = HashSet::new();
    let once: Vec<T> = values.filter(|value| seen.insert(value.clone())).collect();
    (!once.is_empty()).then(|| once.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};

    fn of_words(words: &str) -> Result<SweepDefinition, Failure> {
        let line = format!("plimsoll sweep --container a --model m {words}");
        let cli = Cli::from_words(line.split_whitespace().map(str::to_owned)).unwrap();
        let Command::Sweep(args) = cli.command else {
            panic!("not a sweep");
        };
        of_flags(&args.run)
    }

    #[test]
    fn flags_are_a_cross_product() {
        let sweep = of_words("--input-len 256 512 256 --batch-size 1 8 --num-layers 32").unwrap();
        let words: Vec<String> = sweep.cells.iter().map(|c| c.describe_load()).collect();
        assert_eq!(
            words,
            [
                "in 256 out 128 batch 1",
                "in 256 out 128 batch 8",
                "in 512 out 128 batch 1",
                "in 512 out 128 batch 8",
            ]
        );
        let architecture = &sweep.cells[0].server.architecture;
        assert_eq!(architecture["num_layers"], 32.0);
        assert_eq!(architecture.len(), 1);
    }

    #[test]
    fn names_are_taken_as_they_stand() {
        let sweep = of_words("--container a$b 7 --model ${x},y --engine vllm").unwrap();
        let servers: Vec<(&str, &str)> = (sweep.cells.iter())
            .map(|cell| (cell.server.model.as_str(), cell.server.place.place_name()))
            .collect();
        assert_eq!(servers[..3], [("m", "a"), ("m", "a$b"), ("m", "7")]);
        assert_eq!(
            servers[3..],
            [("${x},y", "a"), ("${x},y", "a$b"), ("${x},y", "7")]
        );
    }

    #[test]
    fn more_cells_than_can_be_are_refused_before_they_are_made() {
        let many: Vec<String> = (1..=2000).map(|n| n.to_string()).collect();
        let many = many.join(" ");
        let failure = of_words(&format!("--input-len {many} --batch-size {many}")).unwrap_err();
        assert!(failure.message.contains("4000000 cells"), "{failure}");
    }
}
