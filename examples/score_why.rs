//! Scores the diagnosis of logs against cases of known causes.
//!
//! `score_why FOLDER [HEALTHY_LOG] [ID...]`: each sub-folder has `case.json` and `log.txt`; with a healthy
//! log every excerpt is put behind its lines, 2,000 of them. A folder without cases is scored as healthy logs.

#![allow(clippy::print_stdout)]

use plimsoll::engine::diagnosis::{CaseFacts, CauseFinder, Diagnosis};
use serde_json::Value;
use std::path::{Path, PathBuf};

fn diagnose(facts: CaseFacts, before: &[String], log: &str) -> Diagnosis {
    let mut finder = CauseFinder::new(facts);
    before.iter().for_each(|line| finder.line(line.as_bytes()));
    log.lines().for_each(|line| finder.line(line.as_bytes()));
    finder.conclude()
}

fn logs_below(folder: &Path, logs: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder)
        .unwrap()
        .map(|e| e.unwrap().path())
    {
        if entry.is_dir() {
            logs_below(&entry, logs);
        } else if entry.extension().is_some_and(|e| e == "log") {
            logs.push(entry);
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let folder = PathBuf::from(&arguments[0]);
    let is_cases = std::fs::read_dir(&folder)
        .unwrap()
        .any(|e| e.unwrap().path().join("case.json").exists());
    if !is_cases {
        let mut logs = Vec::new();
        logs_below(&folder, &mut logs);
        logs.sort();
        for log in &logs {
            let text = String::from_utf8_lossy(&std::fs::read(log).unwrap()).into_owned();
            let found = diagnose(CaseFacts::default(), &[], &text);
            if found.names_failure() || found.abstained {
                let quote = found.evidence.first().map_or("", |e| &e.quote);
                let start: String = quote.chars().take(150).collect();
                println!("{} {:?} {start}", log.display(), found.cause);
            }
        }
        println!("{} logs", logs.len());
        return;
    }
    let healthy = arguments.get(1).filter(|a| Path::new(a).is_file());
    let before: Vec<String> = healthy.map_or_else(Vec::new, |file| {
        let text = std::fs::read_to_string(file).unwrap();
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.iter().cycle().take(2000).cloned().collect()
    });
    let wanted: Vec<&String> = arguments[1..]
        .iter()
        .filter(|a| !Path::new(a).is_file())
        .collect();
    let mut folders: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .collect();
    folders.sort();
    let (mut cases, mut causes, mut firsts, mut dangerous) = (0, 0, 0, Vec::new());
    for case in folders {
        let id = case.file_name().unwrap().to_string_lossy().into_owned();
        if !wanted.is_empty() && !wanted.iter().any(|w| **w == id) {
            continue;
        }
        let document: Value =
            serde_json::from_slice(&std::fs::read(case.join("case.json")).unwrap()).unwrap();
        let log = std::fs::read_to_string(case.join("log.txt")).unwrap();
        let found = diagnose(
            CaseFacts::from_document(&document).unwrap_or_default(),
            &before,
            &log,
        );
        let expected = &document["expected"];
        let is_ambiguous = document["ambiguous"] == true;
        let named = found.cause.as_deref().unwrap_or("-");
        let cause = expected["cause"] == named || is_ambiguous && found.abstained;
        let hits = |setting: &Value, way: &str| -> bool {
            let Some(first) = found.advice.first() else {
                return false;
            };
            let value = first.value.as_ref().map_or(String::new(), |v| {
                v.as_str().map_or(v.to_string(), str::to_owned)
            });
            setting
                .get(&first.setting)
                .and_then(Value::as_str)
                .is_some_and(|w| {
                    w == way
                        || w == format!("{way}:{value}")
                        || w.split(':').next() == Some(way) && value.is_empty()
                })
        };
        let way = found.advice.first().map_or("", |a| &a.way);
        let direction = &expected["direction"];
        let first = hits(direction, way)
            || direction.as_object().is_none_or(|d| d.is_empty()) && found.advice.is_empty()
            || is_ambiguous && found.abstained;
        let wrong = expected["wrong_directions"]
            .as_array()
            .is_some_and(|all| all.iter().any(|w| hits(w, way)));
        let quoted = expected["numbers"]
            .as_object()
            .map_or_else(Vec::new, |numbers| {
                let differs = |(key, value): &(&String, &Value)| {
                    found.numbers.get(*key).is_some_and(|own| {
                        own.as_f64() != value.as_f64() || own.as_str() != value.as_str()
                    })
                };
                numbers
                    .iter()
                    .filter(differs)
                    .map(|(key, _)| key.clone())
                    .collect()
            });
        cases += 1;
        causes += usize::from(cause);
        firsts += usize::from(first);
        if wrong {
            dangerous.push(id.clone());
        }
        if !cause || !first || wrong || !quoted.is_empty() {
            let advice: Vec<String> = found
                .advice
                .iter()
                .map(|a| format!("{} {}", a.setting, a.way))
                .collect();
            let mark = |good: bool, word: &'static str| if good { "" } else { word };
            println!(
                "{id}: {}{}{}{} expected {} {} ({}), found {named} {:?} {:?}",
                mark(cause, "CAUSE "),
                mark(first, "ADVICE "),
                mark(!wrong, "DANGER "),
                if quoted.is_empty() {
                    String::new()
                } else {
                    format!("NUMBERS {quoted:?} ")
                },
                expected["cause"],
                direction,
                expected["phase"],
                found.phase,
                advice
            );
        }
    }
    println!(
        "{causes} of {cases} causes right, {firsts} first advice right, {} dangerous: {}",
        dangerous.len(),
        dangerous.join(" ")
    );
}
