//! Which containers the user chose: by name or id, label, image, or all that hold GPU memory.

use super::CleanRequest;
use crate::clean::facts::{ContainerLook, Survey, total_bytes};

/// Shortest part of an id that chooses a container.
const SHORTEST_ID: usize = 4;

/// How a container was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChosenBy<'a> {
    Name,
    Label(&'a str),
    Image(&'a str),
    AllGpu,
}

/// How each container of the survey was chosen, in its order; `None`: it was not.
pub(super) fn choices_of<'a>(survey: &Survey, ask: &'a CleanRequest) -> Vec<Option<ChosenBy<'a>>> {
    let mut chosen: Vec<_> = survey.containers.iter().map(|c| selected(c, ask)).collect();
    for name in &ask.names {
        if let [one] = with_name(survey, name)[..] {
            if let Some(place) = chosen.get_mut(one) {
                *place = Some(ChosenBy::Name);
            }
        }
    }
    chosen
}

/// Why a name chooses nothing, where it does.
pub(super) fn why_unmatched(survey: &Survey, name: &str) -> Option<String> {
    match with_name(survey, name)[..] {
        [_] => None,
        [] => Some(format!("no container is called `{name}`")),
        ref several => {
            let all = several.iter().filter_map(|i| survey.containers.get(*i));
            let names: Vec<&str> = all.map(|c| c.name.as_str()).collect();
            let names = names.join(", ");
            Some(format!("`{name}` may be any of {names}: write more of it"))
        }
    }
}

/// What a name means from now on, whatever comes and goes: a container's name with the slash that
/// Docker keeps it with, or its whole id. A name that means nothing stays as it is.
pub(super) fn bind_name(survey: &Survey, name: &str) -> String {
    let [one] = with_name(survey, name)[..] else {
        return name.to_owned();
    };
    match survey.containers.get(one) {
        Some(c) if c.name == name.trim().trim_start_matches('/') => format!("/{}", c.name),
        Some(c) => c.id.clone(),
        None => name.to_owned(),
    }
}

/// The containers that a name may mean. A name or a whole id wins over an id that begins alike:
/// Docker decides so too. With a slash before it, it is a name and nothing else.
fn with_name(survey: &Survey, name: &str) -> Vec<usize> {
    let given_as_name = name.trim().starts_with('/');
    let name = name.trim().trim_start_matches('/');
    let all = |matches: &dyn Fn(&ContainerLook) -> bool| -> Vec<usize> {
        let each = survey.containers.iter().enumerate();
        each.filter(|(_, c)| matches(c)).map(|(i, _)| i).collect()
    };
    if name.is_empty() {
        return Vec::new();
    }
    let exact = all(&|c| c.name == name || c.id == name);
    let id = name.to_ascii_lowercase();
    let part_of_id =
        !given_as_name && id.len() >= SHORTEST_ID && id.bytes().all(|b| b.is_ascii_hexdigit());
    if exact.is_empty() && part_of_id {
        all(&|c| c.id.starts_with(&id))
    } else {
        exact
    }
}

fn selected<'a>(container: &ContainerLook, ask: &'a CleanRequest) -> Option<ChosenBy<'a>> {
    let label = || ask.labels.iter().find(|label| has_label(container, label));
    let image = || (ask.images.iter()).find(|pattern| like(pattern, &container.image));
    // A container without memory has none to free.
    let with_gpu = || {
        ask.all_gpu
            && container
                .gpu_bytes
                .as_ref()
                .is_some_and(|b| total_bytes(b) > 0)
    };
    let by_label = label().map(|l| ChosenBy::Label(l));
    let by_image = || image().map(|i| ChosenBy::Image(i));
    by_label
        .or_else(by_image)
        .or_else(|| with_gpu().then_some(ChosenBy::AllGpu))
}

/// Whether the container has the label, `KEY` or `KEY=VALUE`.
fn has_label(container: &ContainerLook, wanted: &str) -> bool {
    let (key, value) = match wanted.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (wanted, None),
    };
    let found = container.labels.get(key).filter(|_| !key.is_empty());
    found.is_some_and(|has| value.is_none_or(|value| has == value))
}

/// Whether the text matches the pattern, in which `*` matches any text.
fn like(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let mut parts: Vec<&str> = parts.collect();
    let Some(last) = parts.pop() else {
        return rest.is_empty() && !pattern.is_empty();
    };
    // The earliest place of each part leaves the most for those after it.
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn container(id: &str, name: &str) -> ContainerLook {
        ContainerLook {
            id: id.into(),
            name: name.into(),
            image: "vllm/vllm-openai:v0.10".into(),
            labels: [("team".into(), "red".into()), ("batch".into(), "".into())].into(),
            ..Default::default()
        }
    }

    #[test]
    fn a_name_means_one_container_or_none() {
        let survey = Survey {
            containers: vec![
                container("abcd1111", "llm"),
                container("abcd2222", "abcd2"),
                container("ffff2222", "other"),
            ],
            ..Default::default()
        };
        for (name, who) in [
            ("llm", vec![0]),
            ("/llm", vec![0]),
            (" llm ", vec![0]),
            ("abcd1", vec![0]),
            ("ABCD1", vec![0]),
            // A name wins over an id that begins alike.
            ("abcd2", vec![1]),
            ("abcd2222", vec![1]),
            ("abcd", vec![0, 1]),
            ("fff", vec![]),
            ("ll", vec![]),
            ("llm2", vec![]),
            ("", vec![]),
            ("/", vec![]),
            ("*", vec![]),
        ] {
            assert_eq!(with_name(&survey, name), who, "{name}");
            let reason = why_unmatched(&survey, name);
            assert_eq!(reason.is_none(), who.len() == 1, "{name}: {reason:?}");
        }
        let ask = CleanRequest {
            names: vec!["abcd".into()],
            ..Default::default()
        };
        assert_eq!(choices_of(&survey, &ask), [None, None, None]);
    }

    #[test]
    fn a_name_that_was_bound_never_means_another() {
        let at_first = Survey {
            containers: vec![container("ffff2222", "abcd"), container("eeee3333", "llm")],
            ..Default::default()
        };
        assert_eq!(bind_name(&at_first, "abcd"), "/abcd");
        assert_eq!(bind_name(&at_first, "eeee"), "eeee3333");
        assert_eq!(bind_name(&at_first, "nobody"), "nobody");
        // It is gone, and another's id begins with its name.
        let later = Survey {
            containers: vec![container("abcd1111", "other"), container("eeee4444", "llm")],
            ..Default::default()
        };
        assert_eq!(with_name(&later, "abcd"), [0]);
        assert_eq!(with_name(&later, "/abcd"), Vec::<usize>::new());
        assert_eq!(with_name(&later, "eeee3333"), Vec::<usize>::new());
    }

    #[test]
    fn labels_are_chosen_by_key_or_by_key_and_value() {
        for (label, has) in [
            ("team", true),
            ("team=red", true),
            ("team=blue", false),
            ("team=", false),
            ("batch=", true),
            ("tea", false),
            ("", false),
            ("=", false),
        ] {
            assert_eq!(has_label(&container("a", "b"), label), has, "{label}");
        }
    }

    #[test]
    fn a_star_in_an_image_stands_for_any_text() {
        let image = "vllm/vllm-openai:v0.10";
        for (pattern, is) in [
            (image, true),
            ("*", true),
            ("vllm/*", true),
            ("*:v0.10", true),
            ("*/vllm*:*", true),
            ("vllm*openai*10", true),
            ("vllm", false),
            ("vllm/vllm-openai", false),
            ("*sglang*", false),
            ("*v0.10*v0.10", false),
            ("vllm/vllm-openai:v0.10*0", false),
            ("", false),
        ] {
            assert_eq!(like(pattern, image), is, "{pattern}");
        }
        assert!(!like("", ""), "no pattern chooses what has no image");
    }

    proptest! {
        #[test]
        fn a_pattern_made_of_a_text_finds_it(parts in proptest::collection::vec("[a-c]{0,3}", 1..5), filling in "[a-c]{0,3}") {
            let pattern = parts.join("*");
            prop_assert!(pattern.is_empty() || like(&pattern, &parts.join(&filling)));
        }
    }
}
