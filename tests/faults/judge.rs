//! What came of a try: correct, partial and said so, failed and said so, or one of what must never
//! be.

use crate::common::e2e::{Ended, read};
use crate::faults::verbs::{ACTIVATION, POOL, Verb, WEIGHTS};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// What a try that ended is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Correct,
    Partial,
    Failed,
}

/// A part is right within so much, MiB: what a cut loses is a whole part, and a machine with a dozen
/// runs at once adds some.
const SLACK: f64 = 6.0;

/// Findings that a run without a fault may have too, on a busy machine.
const USUAL: &[&str] = &["sampler_gap", "sampling_backed_off", "host_overloaded"];

/// `Err`: what is lost or corrupt, in a sentence.
pub fn judge(verb: Verb, ended: &Ended, desk: &Path) -> Result<Kind, String> {
    let code = ended.code();
    if !verb.codes().contains(&code) {
        return Err(format!("exit code {code}"));
    }
    if ["panicked", "bug in plimsoll"]
        .iter()
        .any(|w| ended.stderr.contains(w))
    {
        return Err("a panic".into());
    }
    let said = ended
        .stderr
        .lines()
        .filter(|l| l.starts_with("error: "))
        .count();
    // A sweep tells what failed in its table.
    let tabled = verb == Verb::Sweep && matches!(code, 4 | 5);
    if said != usize::from(code != 0) && !tabled {
        return Err(format!("exit code {code} with {said} sentences"));
    }
    let documents = documents(&desk.join("results"))?;
    let kinds = match verb {
        Verb::Clean => {
            return Ok(if code == 0 {
                Kind::Correct
            } else {
                Kind::Failed
            });
        }
        Verb::Sweep => sweep(code, &documents)?,
        _ => {
            let profiles = documents
                .iter()
                .filter(|(_, d)| d.get("schema_version").is_some());
            profiles
                .map(|(_, d)| profile(d))
                .collect::<Result<Vec<_>, _>>()?
        }
    };
    match (kinds.iter().max(), code) {
        (None, 0) => Err("exit code 0 and no result".into()),
        (None, _) => Ok(Kind::Failed),
        (Some(Kind::Failed), 0) => Err("exit code 0 and a failed run".into()),
        (Some(Kind::Correct), code) if code != 0 => Ok(Kind::Partial),
        (Some(Kind::Failed), _) => Ok(Kind::Partial),
        (Some(kind), _) => Ok(*kind),
    }
}

/// Every JSON document below a folder; each can be read and is what it says.
fn documents(folder: &Path) -> Result<Vec<(PathBuf, Value)>, String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{name}: {e}"))?;
            if name.starts_with('.') || name.contains("tmp") {
                return Err(format!("a temporary file was left: {name}"));
            }
            if name.ends_with(".jsonl") {
                for line in text.lines() {
                    let parsed: Result<Value, _> = serde_json::from_str(line);
                    parsed.map_err(|e| format!("{name}: {e}: {line}"))?;
                }
            }
            if name.ends_with(".json") {
                let document: Value =
                    serde_json::from_str(&text).map_err(|e| format!("{name}: {e}"))?;
                if document.get("schema_version").is_some()
                    && document.get("memory_breakdown").is_some()
                {
                    valid(&document).map_err(|e| format!("{name}: {e}"))?;
                }
                found.push((path, document));
            }
        }
    }
    Ok(found)
}

fn valid(document: &Value) -> Result<(), String> {
    static SCHEMA: std::sync::OnceLock<jsonschema::Validator> = std::sync::OnceLock::new();
    let schema =
        || jsonschema::validator_for(&plimsoll::profile::profile_schema()).expect("schema");
    let wrong = SCHEMA.get_or_init(schema).iter_errors(document).next();
    wrong.map_or(Ok(()), |e| Err(format!("{}: {e}", e.instance_path)))
}

/// A profile: right, or partial and said so.
fn profile(document: &Value) -> Result<Kind, String> {
    let breakdown = &document["memory_breakdown"];
    let parts = breakdown["components"].as_array().ok_or("no components")?;
    let sum: i64 = parts.iter().filter_map(|p| p["bytes"].as_i64()).sum();
    if let Some(total) = breakdown["total_measured_bytes"].as_i64() {
        if sum != total {
            return Err(format!("the parts sum to {sum}, the peak is {total}"));
        }
    }
    let outcome = &document["metadata"]["outcome"];
    let warned: Vec<&str> = (document["findings"].as_array().into_iter().flatten())
        .filter(|f| f["severity"] != "info")
        .filter_map(|f| f["code"].as_str())
        .filter(|code| *code != "simulated_engine")
        .collect();
    let said = warned.iter().any(|code| !USUAL.contains(code));
    let unknown = document["unknown"].as_object();
    let (mut off, mut partial) = (Vec::new(), false);
    let serving = document["metadata"]["mode"] == "serving";
    for (component, key, truth) in [
        ("model_weights", "model_weights_gb", WEIGHTS),
        ("kv_cache", "kv_cache_gb", POOL),
        ("activations", "activations_gb", ACTIVATION),
    ] {
        let part = parts.iter().find(|p| p["component"] == component);
        let measured = part.and_then(|p| p["bytes"].as_f64());
        match measured.map(|bytes| bytes / f64::from(1 << 20)) {
            Some(mib) if (mib - truth).abs() <= SLACK => {}
            // The figure itself says that it is not to be relied on.
            Some(_) if part.is_some_and(doubted) => partial = true,
            Some(mib) => off.push(format!("{component}: {mib:.1} MiB of {truth}")),
            None => {
                let path = format!("memory_breakdown.{key}");
                if !unknown.is_some_and(|u| u.contains_key(&path)) {
                    return Err(format!("{component} is missing without a reason"));
                }
                // Of an engine that served before, nobody saw these; else the reason says it.
                partial |= !serving || component == "activations";
            }
        }
    }
    let completed = *outcome == "completed";
    match (off.is_empty(), completed) {
        (_, false) if warned.is_empty() => Err(format!("{outcome} and no finding says why")),
        (_, false) => Ok(Kind::Failed),
        (true, true) if !said && !partial => Ok(Kind::Correct),
        (true, true) => Ok(Kind::Partial),
        (false, true) if said => Ok(Kind::Partial),
        (false, true) => Err(format!("{} and nothing says why", off.join(", "))),
    }
}

fn doubted(part: &Value) -> bool {
    let sure = part["confidence"].as_str();
    sure.is_some_and(|words| words.starts_with("low_"))
}

fn sweep(code: i32, documents: &[(PathBuf, Value)]) -> Result<Vec<Kind>, String> {
    let results = documents
        .iter()
        .find(|(path, _)| path.ends_with("results.json"));
    let Some((path, results)) = results else {
        return Ok(Vec::new());
    };
    let mut kinds = Vec::new();
    for cell in results["cells"].as_array().into_iter().flatten() {
        let row = &cell["row"];
        if cell["status"] == "done" {
            let profile = row["profile"].as_str().ok_or("a row without a profile")?;
            let folder = path.parent().ok_or("no folder")?;
            kinds.push(self::profile(&read(&folder.join(profile)))?);
        } else if row.is_null() || row["message"].is_string() || row["cause"].is_string() {
            kinds.push(Kind::Partial);
        } else {
            return Err(format!("a cell without a word: {cell}"));
        }
    }
    if code == 0 && kinds.contains(&Kind::Failed) {
        return Err("exit code 0, and a cell that failed".into());
    }
    Ok(kinds)
}
