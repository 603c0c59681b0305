//! Samples in Prometheus' text format, as engines answer on `/metrics`.
//!
//! Skips comments, types, timestamps, exemplars and malformed lines.

use std::borrow::Cow;

/// One line of the text format: a metric with its labels and its value.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample<'a> {
    /// Name, with its prefix: `vllm:num_requests_running`.
    pub name: &'a str,
    /// Labels in the order written.
    pub labels: Vec<(&'a str, Cow<'a, str>)>,
    /// Value; may be NaN or infinite.
    pub value: f64,
}

impl Sample<'_> {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        self.labels
            .iter()
            .find(|(k, _)| *k == name)
            .map(|(_, v)| v.as_ref())
    }
}

/// Every sample of a reply.
pub fn samples(text: &str) -> impl Iterator<Item = Sample<'_>> {
    text.lines().filter_map(sample)
}

/// Counters that grow with every request, by the ends of their names, the best first. The HTTP
/// server's own counters are excluded: reading the metrics counts there too.
const REQUESTS: [&str; 4] = [
    "request_success_total",
    "num_requests_total",
    "request_count",
    "prompt_tokens_total",
];

/// Total of a counter that grows with requests, in any engine's metrics: unchanged means that no
/// request arrived.
pub fn requests_total(text: &str) -> Option<u64> {
    let sum = |counter: &str| {
        let matching = samples(text).filter(|s| {
            let before = s.name.strip_suffix(counter);
            before.is_some_and(|b| (b.is_empty() || b.ends_with([':', '_'])) && b != "http_")
        });
        matching.fold(None, |sum: Option<f64>, s| {
            Some(sum.unwrap_or(0.0) + s.value)
        })
    };
    let total = REQUESTS.iter().find_map(|counter| sum(counter))?;
    (total.is_finite() && total >= 0.0).then_some(total as u64)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim();
    if line.starts_with('#') {
        return None;
    }
    let end = line.find(|c: char| c == '{' || c.is_whitespace())?;
    let (name, rest) = line.split_at(end);
    if name.is_empty() {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => labels(inside)?,
        None => (Vec::new(), rest),
    };
    // Rust's parser knows `NaN`, `Inf` and `+Inf` in any case.
    let value = rest.split_whitespace().next()?.parse().ok()?;
    Some(Sample {
        name,
        labels,
        value,
    })
}

type Labels<'a> = Vec<(&'a str, Cow<'a, str>)>;

/// Labels up to the closing brace, and what follows it.
fn labels(mut rest: &str) -> Option<(Labels<'_>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        if let Some(after) = rest.strip_prefix('}') {
            return Some((labels, after));
        }
        let (name, value) = rest.split_once('=')?;
        let inside = value.trim_start().strip_prefix('"')?;
        let end = closing_quote(inside)?;
        labels.push((name.trim(), unescape(&inside[..end])));
        rest = &inside[end + 1..];
    }
}

fn closing_quote(text: &str) -> Option<usize> {
    let mut escaped = false;
    text.bytes().position(|b| {
        let closes = b == b'"' && !escaped;
        escaped = b == b'\\' && !escaped;
        closes
    })
}

fn unescape(text: &str) -> Cow<'_, str> {
    if !text.contains('\\') {
        return Cow::Borrowed(text);
    }
    let mut plain = String::with_capacity(text.len());
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match (c, c == '\\') {
            (_, true) => match chars.next() {
                Some('n') => plain.push('\n'),
                Some(other) => plain.push(other),
                None => {}
            },
            (c, false) => plain.push(c),
        }
    }
    Cow::Owned(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn forms() {
        let text = "# HELP a b\n# TYPE a gauge\n\nplain 3\nspaced  1e3 1712345678\n\
                    v:x{engine=\"0\", name=\"a,b}\\\"c\\\\\\n\",} 2.5 # {trace=\"1\"} 9\nbad{a=\"x} 1\nbad\nbad x\n{} 1\nnan NaN\ninf +Inf";
        let all: Vec<_> = samples(text).collect();
        assert_eq!(
            all.iter().map(|s| s.name).collect::<Vec<_>>(),
            ["plain", "spaced", "v:x", "nan", "inf"]
        );
        assert_eq!(all[1].value, 1000.0);
        assert_eq!(all[2].label("engine"), Some("0"));
        assert_eq!(all[2].label("name"), Some("a,b}\"c\\\n"));
        assert_eq!(all[2].label("no"), None);
        assert_eq!(all[2].value, 2.5);
        assert!(all[3].value.is_nan() && all[4].value.is_infinite());
    }

    #[test]
    fn requests_are_counted_whatever_the_engine() {
        for (text, total) in [
            (
                "vllm:request_success_total{reason=\"stop\"} 3\nvllm:request_success_total{reason=\"abort\"} 1\nvllm:prompt_tokens_total 9\n",
                Some(4),
            ),
            ("sglang:num_requests_total 5\n", Some(5)),
            ("tgi_request_count 6\ntgi_request_success 2\n", Some(6)),
            ("llamacpp:prompt_tokens_total 7\n", Some(7)),
            ("http_request_count 8\n", None),
            ("x:request_success_total NaN\n", None),
            ("", None),
        ] {
            assert_eq!(requests_total(text), total, "{text}");
        }
    }

    #[test]
    fn a_real_reply() {
        let text = include_str!("../../tests/fixtures/vllm/metrics/metrics-after-bench.prom");
        assert!(requests_total(text).is_some_and(|n| n > 0));
        let lines = text
            .lines()
            .filter(|l| !l.starts_with('#') && !l.is_empty())
            .count();
        assert_eq!(samples(text).count(), lines);
        let config = samples(text)
            .find(|s| s.name == "vllm:cache_config_info")
            .unwrap();
        assert_eq!(config.label("num_gpu_blocks"), Some("4096"));
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,80}|[a-z{}\"=,\\\\ 0-9\n#é]{0,80}") {
            for s in samples(&text) {
                prop_assert!(!s.name.is_empty());
            }
        }
    }
}
