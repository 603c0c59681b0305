//! `estimate --batch`: one line of JSON in, one line out, in order, whatever is wrong with a line.

use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::estimate::model::from_config;
use crate::estimate::{Model, Unknown, case, check, document, estimate};
use crate::models;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longest line that is read, bytes: beyond it is no case.
const LONGEST: u64 = 8 << 20;
/// So many answers are gathered before they are written; a terminal or a pipe gets each at once.
const GATHERED: usize = 64 << 10;

/// Answers every line.
pub fn run(console: &Console, file: &Path) -> anyhow::Result<ExitCode> {
    let name = file.display().to_string();
    let unreadable =
        |e: std::io::Error| Failure::usage(format!("cannot read cases `{name}`")).caused_by(e);
    let live = name == "-";
    let mut reader: Box<dyn BufRead> = match live {
        true => Box::new(std::io::stdin().lock()),
        false => Box::new(BufReader::new(File::open(file).map_err(unreadable)?)),
    };
    let mut known: Known = HashMap::new();
    let mut out = Vec::new();
    while let Some(line) = next(reader.as_mut()).map_err(unreadable)? {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        serde_json::to_writer(&mut out, &answer(&line, &mut known))?;
        out.push(b'\n');
        if live || out.len() >= GATHERED {
            if !console.stream(&out)? {
                return Ok(ExitCode::Done);
            }
            out.clear();
        }
    }
    console.data(&out)?;
    Ok(ExitCode::Done)
}

/// Models by the names of cases.
type Known = HashMap<String, Result<Model, Unknown>>;

/// The next line, cut off where it is too long to be one; `None` at the end.
fn next(mut reader: &mut dyn BufRead) -> std::io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    let read = Read::by_ref(&mut reader)
        .take(LONGEST)
        .read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    // The rest of a line that is too long is read past, and not kept.
    let mut ended = line.last() == Some(&b'\n') || (read as u64) < LONGEST;
    while !ended {
        let (rest, found) = {
            let buffer = reader.fill_buf()?;
            match buffer.iter().position(|b| *b == b'\n') {
                Some(at) => (at + 1, true),
                None => (buffer.len(), buffer.is_empty()),
            }
        };
        reader.consume(rest);
        ended = found;
    }
    Ok(Some(line))
}

fn answer(line: &[u8], known: &mut Known) -> Value {
    let line: Value = match serde_json::from_slice(line) {
        Ok(line) => line,
        Err(e) => return json!({"id": null, "error": format!("the line is no JSON: {e}")}),
    };
    let id = line.get("id").cloned().unwrap_or(Value::Null);
    let mut told = match answered(&line, known) {
        Ok(told) => told,
        Err(why) => document::of_error("", &why),
    };
    // As the line has it, whatever it is.
    if let Some(map) = told.as_object_mut() {
        map.insert("id".into(), id);
    }
    told
}

/// A model by a case's name for it.
fn shipped(name: &str) -> Result<Model, Unknown> {
    let failed = |f: Failure| Unknown {
        what: f.message,
        hint: f.hints.into_iter().next(),
    };
    let found = models::find(name).map_err(failed)?;
    from_config(&found.name, &found.config, &found.source)
}

fn answered(line: &Value, known: &mut Known) -> Result<Value, Unknown> {
    let case = case::read(line)?;
    for name in &case.models {
        if !known.contains_key(name) {
            known.insert(name.clone(), shipped(name));
        }
    }
    let named = |name: &String| known.get(name);
    let found = case
        .models
        .iter()
        .filter_map(named)
        .find_map(|m| m.as_ref().ok());
    let Some(model) = found else {
        let why = case
            .models
            .iter()
            .filter_map(named)
            .find_map(|m| m.as_ref().err());
        return Err(why
            .cloned()
            .unwrap_or_else(|| Unknown::new("the case names no model")));
    };
    check(model, &case.deployment)?;
    let mut estimate = estimate(model, &case.deployment);
    estimate.warnings.extend(case.warnings);
    Ok(document::of(&case.id, &estimate))
}
