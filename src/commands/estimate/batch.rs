//! `estimate --batch`: one line of JSON in, one line out, in order, whatever is wrong with a line.

use super::model::{self, Loaded};
use crate::console::Console;
use crate::error::{ExitCode, Failure};
use crate::estimate::case::Case;
use crate::estimate::model::from_config;
use crate::estimate::{Unknown, case, check, document, weights, with_weights};
use crate::models;
use crate::store::bounded;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longest line that is read, bytes; a longer one gets an error as its answer.
const LONGEST: u64 = 8 << 20;
/// Bytes of answers that are gathered before they are written; standard input is answered line by line.
const GATHERED: usize = 64 << 10;

/// Answers every line.
pub fn run(console: &Console, file: &Path, online: bool) -> anyhow::Result<ExitCode> {
    let name = file.display().to_string();
    let unreadable =
        |e: std::io::Error| Failure::usage(format!("cannot read cases `{name}`")).caused_by(e);
    let live = name == "-";
    let mut reader: Box<dyn BufRead> = if live {
        Box::new(std::io::stdin().lock())
    } else {
        Box::new(BufReader::new(
            bounded::open_named(file).map_err(unreadable)?,
        ))
    };
    let mut known: Known = HashMap::new();
    let mut out = Vec::new();
    while let Some(line) = next(reader.as_mut()).map_err(unreadable)? {
        let reply = match line {
            Line::Whole(line) if line.iter().all(u8::is_ascii_whitespace) => continue,
            Line::Whole(line) => answer(&line, &mut known, online),
            Line::TooLong => no_case(format!("the line is longer than {} MiB", LONGEST >> 20)),
        };
        serde_json::to_writer(&mut out, &reply)?;
        out.push(b'\n');
        if live || out.len() >= GATHERED {
            if !console.stream_data(&out)? {
                return Ok(ExitCode::Done);
            }
            out.clear();
        }
    }
    console.write_data(&out)?;
    Ok(ExitCode::Done)
}

/// Models by the names of cases.
type Known = HashMap<String, Result<Loaded, Unknown>>;

/// A line of the file.
enum Line {
    Whole(Vec<u8>),
    TooLong,
}

/// The next line; `None` at the end.
fn next(mut reader: &mut dyn BufRead) -> std::io::Result<Option<Line>> {
    let mut line = Vec::new();
    let read = Read::by_ref(&mut reader)
        .take(LONGEST)
        .read_until(b'\n', &mut line)?;
    if read == 0 {
        return Ok(None);
    }
    // The rest of a line that is too long is read past, and not kept.
    let mut longer = false;
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
        longer |= rest > usize::from(found);
        ended = found;
    }
    Ok(Some(if longer {
        Line::TooLong
    } else {
        Line::Whole(line)
    }))
}

/// The answer to what cannot be read at all.
fn no_case(error: String) -> Value {
    json!({"id": null, "error": error})
}

fn answer(line: &[u8], known: &mut Known, online: bool) -> Value {
    let line = match std::str::from_utf8(line) {
        Ok(text) => models::parse_json(text).map_err(|e| e.to_string()),
        Err(e) => Err(e.to_string()),
    };
    let line = match line {
        Ok(line) => line,
        Err(e) => return no_case(format!("the line is not JSON: {e}")),
    };
    let id = line.get("id").cloned().unwrap_or(Value::Null);
    let mut reply = match answered(&line, known, online) {
        Ok(reply) => reply,
        Err(why) => document::of_error("", &why),
    };
    // As the line has it, whatever it is.
    if let Some(map) = reply.as_object_mut() {
        map.insert("id".into(), id);
    }
    reply
}

/// A model by a case's name for it.
fn named(name: &str, online: bool) -> Result<Loaded, Unknown> {
    model::find(name, online).map_err(|f: Failure| Unknown {
        what: f.message,
        hint: f.hints.into_iter().next(),
    })
}

fn answered(line: &Value, known: &mut Known, online: bool) -> Result<Value, Unknown> {
    let mut case = case::read(line)?;
    if let Some(config) = &case.config {
        let name = case.models.first().map_or("a model", String::as_str);
        let model = from_config(name, config, "the case's own `config`")?;
        return compute_reply(&Loaded::without_files(model), case);
    }
    // `config` then names a similar model, and the asked one may have more positions.
    case.deployment.longer_allowed |= case.models.len() > 1;
    for name in &case.models {
        if !known.contains_key(name) {
            known.insert(name.clone(), named(name, online));
        }
    }
    let mut all = case.models.iter().filter_map(|name| known.get(name));
    let found = all.clone().find_map(|m| m.as_ref().ok());
    let Some(model) = found else {
        let why = all.find_map(|m| m.as_ref().err());
        return Err(why
            .cloned()
            .unwrap_or_else(|| Unknown::new("the case names no model")));
    };
    compute_reply(model, case.clone())
}

fn compute_reply(loaded: &Loaded, mut case: Case) -> Result<Value, Unknown> {
    let model = &loaded.model;
    let asked = &mut case.deployment.quantization;
    *asked = asked.take().or(loaded.quantization.clone());
    check(model, &case.deployment)?;
    let weights = weights::best(model, loaded.headers.as_ref(), &case.deployment);
    let mut estimate = with_weights(model, &case.deployment, weights);
    let warnings = loaded.warnings.iter().cloned().chain(case.warnings);
    estimate.warnings.extend(warnings);
    let mut reply = document::of(&case.id, &estimate);
    if let Some(map) = reply.as_object_mut() {
        map.insert("source".into(), json!(model.source));
    }
    Ok(reply)
}
