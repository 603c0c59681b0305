//! What the engines' settings have in common: which variables are kept, flags under the names that
//! all engines' settings use, and flags made of settings.

use std::collections::BTreeMap;

/// Whether a variable is a secret by its name.
pub fn looks_secret(name: &str) -> bool {
    ["KEY", "TOKEN", "SECRET", "PASSWORD"]
        .iter()
        .any(|w| name.split('_').any(|part| part == *w))
}

/// The variables that are settings: the engine's own by their beginnings, secrets left out, and
/// the others that are named.
pub fn variables(
    env: BTreeMap<String, String>,
    own: &[&str],
    foreign: &[&str],
) -> impl Iterator<Item = (String, String)> {
    env.into_iter().filter(|(name, _)| {
        let is_own = own.iter().any(|prefix| name.starts_with(prefix));
        (is_own && !looks_secret(name)) || foreign.contains(&name.as_str())
    })
}

/// Puts values in under their common names, too, where these are not given: pairs of an engine's
/// own name and the common one.
pub fn name_commonly(values: &mut BTreeMap<String, String>, pairs: &[(&str, &str)]) {
    for (own, common) in pairs {
        if let Some(value) = values.get(*own).cloned() {
            values.entry((*common).to_owned()).or_insert(value);
        }
    }
}

/// Flags with their values as words of a command line; a flag without a value is left out.
pub fn flag_words<const N: usize>(flags: [(&str, Option<String>); N]) -> Vec<String> {
    flags
        .into_iter()
        .filter_map(|(flag, value)| Some([flag.to_owned(), value?]))
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect()
    }

    #[test]
    fn variables_that_are_settings() {
        let env = map(&[
            ("X_LEVEL", "1"),
            ("X_API_KEY", "2"),
            ("X_KEYS", "3"),
            ("CUDA_VISIBLE_DEVICES", "4"),
            ("PATH", "5"),
        ]);
        let kept: Vec<String> = variables(env, &["X_"], &["CUDA_VISIBLE_DEVICES"])
            .map(|(name, _)| name)
            .collect();
        assert_eq!(kept, ["CUDA_VISIBLE_DEVICES", "X_KEYS", "X_LEVEL"]);
    }

    #[test]
    fn a_common_name_that_is_given_stays() {
        let mut values = map(&[("tp", "2"), ("len", "8"), ("max_len", "9")]);
        let pairs = [
            ("tp", "tensor_parallel"),
            ("len", "max_len"),
            ("no", "none"),
        ];
        name_commonly(&mut values, &pairs);
        assert_eq!(
            (
                values["tensor_parallel"].as_str(),
                values["max_len"].as_str()
            ),
            ("2", "9")
        );
        assert_eq!(values.len(), 4);
    }

    #[test]
    fn flags_without_a_value_are_left_out() {
        let flags = [("--a", Some("1".to_owned())), ("--b", None)];
        assert_eq!(flag_words(flags), ["--a", "1"]);
    }
}
