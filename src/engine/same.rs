//! Whether two words mean the same: a setting in two spellings, a model under two of its names.
//!
//! The requested value comes first. A request for `auto` matches anything; an engine that reports
//! `auto` has chosen for itself and matches no specific request.

/// Whether the setting `has` satisfies the requested one.
pub fn setting(asked: &str, has: &str) -> bool {
    let (asked, has) = (plain(asked), plain(has));
    let numbers = asked.parse::<f64>().ok().zip(has.parse::<f64>().ok());
    asked == "auto" || asked == has || numbers.is_some_and(|(a, b)| a == b)
}

/// One spelling for words with the same meaning.
pub fn plain(word: &str) -> String {
    let word = word.trim().to_ascii_lowercase();
    let word = word.strip_prefix("torch.").unwrap_or(&word);
    match word {
        "half" | "fp16" => "float16",
        "bf16" => "bfloat16",
        "float" | "fp32" => "float32",
        other => other,
    }
    .to_owned()
}

/// Whether two names are of one model: an id, its last part, a folder of that name, the id's folder
/// in the hub's cache (`models--ORG--NAME/snapshots/REVISION`).
pub fn model(asked: &str, known: &str) -> bool {
    let (asked, known) = (name(asked), name(known));
    let of_place = |other: &str, place: &Place| {
        if is_id(other) {
            other == place.id
        } else {
            last(other) == last(&place.id)
        }
    };
    match (Place::of(&asked), Place::of(&known)) {
        (None, Some(place)) if place.whole => of_place(&asked, &place),
        (Some(place), None) if place.whole => of_place(&known, &place),
        _ => asked == known || !last(&asked).is_empty() && last(&asked) == last(&known),
    }
}

/// Whether they may be of one model: a file of it, or a name with a longer end. Enough to raise no
/// alarm, not enough to confirm.
pub fn maybe_model(asked: &str, known: &str) -> bool {
    if model(asked, known) {
        return true;
    }
    let (asked, known) = (name(asked), name(known));
    let (a, k) = (last(&asked), last(&known));
    Place::of(&known).is_some_and(|place| place.id == asked)
        || !a.is_empty() && !k.is_empty() && (k.starts_with(a) || a.starts_with(k))
}

/// A path in the hub's cache.
struct Place {
    /// Repository: `org/name`.
    id: String,
    /// Whether it is the whole checkpoint rather than one file.
    whole: bool,
}

impl Place {
    fn of(path: &str) -> Option<Place> {
        let mut parts = path.split('/');
        let id = parts.find_map(|part| part.strip_prefix("models--"))?;
        Some(Place {
            id: id.replacen("--", "/", 1),
            whole: parts.count() <= 2,
        })
    }
}

fn name(of: &str) -> String {
    of.trim().trim_end_matches('/').to_ascii_lowercase()
}

fn last(name: &str) -> &str {
    name.rsplit('/').next().unwrap_or(name)
}

/// `org/name`, and no path.
fn is_id(name: &str) -> bool {
    let parts = name.split_once('/');
    parts.is_some_and(|(org, rest)| !org.is_empty() && org != "." && !rest.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: &str = "/hub/models--Qwen--Qwen3-8B/snapshots/0a1b";

    #[test]
    fn a_model_is_the_same_by_each_of_its_names() {
        for (asked, known) in [
            ("Qwen/Qwen3-8B", "qwen/qwen3-8b"),
            ("Qwen/Qwen3-8B", "/models/Qwen3-8B/"),
            ("Qwen3-8B", "Qwen/Qwen3-8B"),
            ("Qwen/Qwen3-8B", PLACE),
            ("/models/Qwen3-8B", PLACE),
            (PLACE, "Qwen/Qwen3-8B"),
            (PLACE, PLACE),
        ] {
            assert!(model(asked, known), "{asked} {known}");
            assert!(maybe_model(asked, known), "{asked} {known}");
        }
        for (asked, known) in [
            ("Qwen/Qwen3-8B", "toy"),
            ("foo", "toy"),
            ("meta-llama/Llama-3.1-8B", "Qwen/Qwen3-8B"),
            ("other/Qwen3-8B", PLACE),
            (PLACE, "/hub/models--Qwen--Qwen3-8B/snapshots/ffff"),
        ] {
            assert!(!model(asked, known), "{asked} {known}");
        }
        assert!(!maybe_model("Qwen/Qwen3-8B", "toy"));
    }

    #[test]
    fn what_may_be_the_model_is_not_vouched_for() {
        for (asked, known) in [
            ("org/tiny", "/models/tiny-q4_k_m.gguf"),
            ("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-FP8"),
            (
                "org/tiny",
                "/hub/models--org--tiny/snapshots/0a1b/q4/model.gguf",
            ),
        ] {
            assert!(maybe_model(asked, known), "{asked} {known}");
            assert!(!model(asked, known), "{asked} {known}");
        }
        let quantized = "/hub/models--Qwen--Qwen3-8B-FP8/snapshots/0a1b";
        assert!(!model("Qwen/Qwen3-8B", quantized));
        assert!(!maybe_model("Qwen/Qwen3-8B", quantized));
    }

    #[test]
    fn settings_are_the_same_in_other_spellings() {
        for (asked, has) in [
            ("bfloat16", "torch.bfloat16"),
            ("bf16", "bfloat16"),
            ("half", "torch.float16"),
            ("0.90", "0.9"),
            ("auto", "torch.bfloat16"),
        ] {
            assert!(setting(asked, has), "{asked} {has}");
        }
        assert!(!setting("4096", "2048"));
        assert!(!setting("fp8", "auto"), "the engine chose for itself");
    }
}
