//! The tries, counted: a row for each fault and command.

use crate::common::wire::Fault;
use crate::faults::judge::Kind;
use crate::faults::verbs::Verb;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

/// What came of one try.
#[derive(Debug)]
pub struct Tried {
    /// Whether the fault was met; else the try shows nothing.
    pub met: bool,
    pub hung: bool,
    /// `Err`: what is lost or corrupt.
    pub kind: Result<Kind, String>,
    pub leaked: Option<String>,
    pub took: Duration,
    /// Its stderr.
    pub said: String,
}

#[derive(Debug, Default)]
struct Row {
    tries: u32,
    correct: u32,
    partial: u32,
    failed: u32,
    lost: u32,
    leaked: u32,
    hung: u32,
    longest: Duration,
}

#[derive(Debug, Default)]
pub struct Table {
    rows: BTreeMap<(Fault, Verb), Row>,
    bad: Vec<String>,
    met: usize,
}

impl Table {
    pub fn add(&mut self, verb: Verb, fault: Fault, at: &str, tried: Tried) {
        println!(
            "{} | {} | {at} | {} {:?}{} | {:.1} s",
            verb.words(),
            fault.words(),
            if tried.met { "" } else { "(not met)" },
            tried.kind,
            tried
                .leaked
                .as_ref()
                .map(|l| format!(" leaked {l}"))
                .unwrap_or_default(),
            tried.took.as_secs_f64(),
        );
        if tried.kind.is_err() || tried.leaked.is_some() {
            self.bad.push(format!(
                "{}, {} at {at}: {:?}, leaked: {:?}, {:.0} s\n{}",
                verb.words(),
                fault.words(),
                tried.kind,
                tried.leaked,
                tried.took.as_secs_f64(),
                tried.said
            ));
        }
        if !tried.met {
            return;
        }
        self.met += 1;
        let row = self.rows.entry((fault, verb)).or_default();
        row.tries += 1;
        row.longest = row.longest.max(tried.took);
        row.leaked += u32::from(tried.leaked.is_some());
        row.hung += u32::from(tried.hung);
        match tried.kind {
            _ if tried.hung => {}
            Ok(Kind::Correct) => row.correct += 1,
            Ok(Kind::Partial) => row.partial += 1,
            Ok(Kind::Failed) => row.failed += 1,
            Err(_) => row.lost += 1,
        }
    }

    /// What must never be, each with all that was said.
    pub fn bad(&self) -> &[String] {
        &self.bad
    }

    pub fn met(&self) -> usize {
        self.met
    }

    pub fn markdown(&self) -> String {
        let mut text = String::from(
            "| fault | command | tries | correct | partial, said so | failed, said so | lost or corrupt | leaked | hung | longest |\n|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for ((fault, verb), r) in &self.rows {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {:.0} s |",
                fault.words(),
                verb.words(),
                r.tries,
                r.correct,
                r.partial,
                r.failed,
                r.lost,
                r.leaked,
                r.hung,
                r.longest.as_secs_f64()
            );
        }
        text
    }
}
