//! What a log said, as a list for people.

use crate::engine::facts::{FactValue, LogReport};

/// One line a fact: key, value, and the line that says so.
pub fn render(report: &LogReport, root_cause: Option<&str>) -> String {
    let version = report
        .engine_version
        .as_deref()
        .unwrap_or("of unknown version");
    let mut text = format!("{} {version}\n", report.engine);
    let width = report.facts.keys().map(String::len).max().unwrap_or(0);
    for (key, fact) in &report.facts {
        text.push_str(&format!("  {key:width$}  {}\n", value(&fact.value)));
        if !fact.quote.is_empty() {
            text.push_str(&format!("  {:width$}  | {}\n", "", fact.quote));
        }
    }
    for finding in &report.findings {
        text.push_str(&format!(
            "{}: {} [{}]\n",
            format!("{:?}", finding.severity).to_lowercase(),
            finding.message,
            finding.code
        ));
    }
    if let Some(cause) = root_cause {
        text.push_str(&format!("root cause: {cause}\n"));
    }
    text
}

fn value(value: &FactValue) -> String {
    match value {
        FactValue::Bool(v) => v.to_string(),
        FactValue::Int(v) => v.to_string(),
        FactValue::Float(v) => v.to_string(),
        FactValue::Text(v) => v.clone(),
        FactValue::List(v) => v.iter().map(f64::to_string).collect::<Vec<_>>().join(", "),
    }
}
