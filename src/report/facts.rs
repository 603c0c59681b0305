//! The facts of a log, as a list for people.

use crate::engine::facts::LogReport;
use crate::engine::shown_name;
use std::collections::BTreeSet;

/// Characters of a quoted line that are shown; `--json` has all of it.
const SHOWN: usize = 160;

/// One line a fact: key and value, and below it the line of the log.
pub fn render_facts(report: &LogReport, root_cause: Option<&str>) -> String {
    let version = report.engine_version.as_deref();
    let version = version.unwrap_or("of unknown version");
    let mut text = format!("{} {version}\n", shown_name(&report.engine));
    let widths = report.facts.keys().map(|key| key.name().len());
    let width = widths.max().unwrap_or(0);
    // One line of a log may say ten things; it is shown once, with the first.
    let mut shown = BTreeSet::new();
    for (key, fact) in &report.facts {
        text.push_str(&format!("  {key:width$}  {}\n", fact.value));
        for quote in fact.quote.iter().filter(|q| shown.insert(q.as_str())) {
            text.push_str(&format!("  {:width$}  | {}\n", "", shorten_quote(quote)));
        }
    }
    for finding in &report.findings {
        let severity = format!("{:?}", finding.severity).to_lowercase();
        let (message, code) = (&finding.message, &finding.code);
        text.push_str(&format!("{severity}: {message} [{code}]\n"));
    }
    if let Some(cause) = root_cause {
        text.push_str(&format!("root cause: {cause}\n"));
    }
    text
}

fn shorten_quote(quote: &str) -> String {
    if quote.chars().count() <= SHOWN {
        return quote.to_owned();
    }
    let mut text: String = quote.chars().take(SHOWN - 2).collect();
    text.push_str(" …");
    text
}
