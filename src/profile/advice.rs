//! What to change after a run that failed.

use super::Profile;
use super::findings::MODEL_DIFFERS;
use crate::engine::causes::advise_on_text;

/// What to change, the first first; nothing where the cause is unknown.
pub fn advise_on_profile(profile: &Profile) -> Vec<String> {
    let Some(why) = profile.metadata.outcome.failure() else {
        return Vec::new();
    };
    let is_found = |code: &str| profile.findings.iter().any(|f| f.code == code);
    // The bench asks for the model that was named, which the engine does not serve.
    if is_found("bench_failed") && is_found(MODEL_DIFFERS) {
        return vec!["leave --model out, or name the model that the engine serves".to_owned()];
    }
    let mut texts = vec![why];
    // A line that the log's parser chose outweighs all other lines.
    let codes = ["container_lost", "bench_failed", "run_failed"];
    let mut failures = (profile.findings.iter()).filter(|f| codes.contains(&f.code.as_str()));
    match failures.find_map(|f| f.quote.as_deref()) {
        Some(quote) => texts.push(quote),
        None => texts.extend([&*profile.raw_logs.bench, &*profile.raw_logs.engine]),
    }
    let limit = profile.metadata.container.memory_limit_bytes;
    let mut advice = texts.into_iter().map(|text| advise_on_text(text, limit));
    advice.find(|a| !a.is_empty()).unwrap_or_default()
}
