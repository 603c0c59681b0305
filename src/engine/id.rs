//! The list of all engines, and an engine by any of its names.

#[cfg(test)]
use super::toy;
use super::{Engine, llama_cpp, ollama, reference, sglang, tensorrt_llm, tgi, transformers, vllm};
use crate::error::Failure;
use std::ops::Deref;

macro_rules! engines {
    ($($(#[$only:meta])? $id:ident = $engine:expr;)*) => {
        /// An engine. It derefs to what is known of it: `EngineId::Vllm.default_port`.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs)]
        pub enum EngineId {
            $($(#[$only])? $id,)*
        }

        impl EngineId {
            /// Every engine, in the order in which they are asked whether a container is theirs.
            pub const ALL: &[EngineId] = &[$($(#[$only])? EngineId::$id,)*];
        }

        /// The one that is meant where none is named.
        impl Default for EngineId {
            fn default() -> Self {
                EngineId::Vllm
            }
        }

        impl Deref for EngineId {
            type Target = Engine;

            fn deref(&self) -> &Self::Target {
                match self {
                    $($(#[$only])? EngineId::$id => &$engine,)*
                }
            }
        }
    };
}

engines! {
    Reference = reference::ENGINE;
    Tgi = tgi::ENGINE;
    TensorRtLlm = tensorrt_llm::ENGINE;
    Vllm = vllm::ENGINE;
    Sglang = sglang::ENGINE;
    // Before Ollama: its runner writes the same lines, and a log of these alone is llama.cpp's.
    LlamaCpp = llama_cpp::ENGINE;
    Ollama = ollama::ENGINE;
    Transformers = transformers::ENGINE;
    #[cfg(test)]
    Toy = toy::ENGINE;
}

impl EngineId {
    /// The engine of a name: its own, or one of its aliases, in any spelling.
    ///
    /// # Errors
    /// No engine has this name.
    pub fn from_name(name: &str) -> Result<EngineId, UnknownEngine> {
        let wanted = plain_name(name);
        EngineId::ALL
            .iter()
            .copied()
            .find(|engine| engine.plain_names().any(|own| own == wanted))
            .ok_or_else(|| UnknownEngine(name.to_owned()))
    }

    /// Whether it sizes its cache as it is asked, not by what memory is free; it moves layers to the host by itself.
    pub fn takes_what_is_asked(self) -> bool {
        matches!(self, EngineId::LlamaCpp | EngineId::Transformers)
    }

    /// Whether a text, such as an image or a word of a command, contains one of its names.
    pub fn is_named_in(self, text: &str) -> bool {
        let text = plain_name(text);
        self.plain_names().any(|name| text.contains(&name))
    }

    /// The names of all engines, for a hint: `vllm, sglang`.
    pub fn all_names() -> String {
        let names: Vec<&str> = EngineId::ALL.iter().map(|engine| engine.shown()).collect();
        names.join(", ")
    }

    fn plain_names(self) -> impl Iterator<Item = String> {
        let names = std::iter::once(self.name).chain(self.aliases.iter().copied());
        names.map(plain_name)
    }
}

/// The name that people read, of an engine by any of its names; a name that no engine has stays as it is.
pub fn shown_name(name: &str) -> &str {
    EngineId::from_name(name).map_or(name, |engine| engine.shown())
}

fn plain_name(name: &str) -> String {
    name.to_ascii_lowercase().replace(['-', '.', '_', ' '], "")
}

/// A name that no engine has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no engine `{0}` is known")]
pub struct UnknownEngine(String);

impl UnknownEngine {
    /// Which names there are.
    pub fn hint(&self) -> String {
        format!("known engines: {}", EngineId::all_names())
    }
}

impl From<UnknownEngine> for Failure {
    fn from(unknown: UnknownEngine) -> Failure {
        Failure::usage(unknown.to_string()).hint(unknown.hint())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn an_engine_is_found_by_each_of_its_names_in_any_spelling() {
        for (name, engine) in [
            ("vLLM", EngineId::Vllm),
            ("sgl", EngineId::Sglang),
            ("hf", EngineId::Transformers),
            ("HuggingFace", EngineId::Transformers),
            ("text-generation-inference", EngineId::Tgi),
            ("trtllm-serve", EngineId::TensorRtLlm),
            ("TensorRT-LLM", EngineId::TensorRtLlm),
            ("trt_llm", EngineId::TensorRtLlm),
            ("llama.cpp", EngineId::LlamaCpp),
            ("llama-cpp", EngineId::LlamaCpp),
            ("ik_llama.cpp", EngineId::LlamaCpp),
            ("ollama", EngineId::Ollama),
        ] {
            assert_eq!(EngineId::from_name(name), Ok(engine), "{name}");
        }
        let unknown = EngineId::from_name("vlm").unwrap_err();
        assert_eq!(unknown.to_string(), "no engine `vlm` is known");
        assert!(unknown.hint().contains("reference, tgi, tensorrt-llm"));
    }

    #[test]
    fn people_read_one_name_of_an_engine_and_may_type_it() {
        assert_eq!(shown_name("llama_cpp"), "llama.cpp");
        assert_eq!(shown_name("trtllm"), "tensorrt-llm");
        assert_eq!(shown_name("an older engine"), "an older engine");
        for engine in EngineId::ALL {
            assert_eq!(EngineId::from_name(engine.shown()), Ok(*engine));
            assert!(!engine.shown().contains('_'), "{}", engine.shown());
        }
    }

    #[test]
    fn no_name_is_of_two_engines() {
        let mut seen = BTreeSet::new();
        for engine in EngineId::ALL {
            let own: BTreeSet<String> = engine.plain_names().collect();
            for name in own {
                assert!(seen.insert(name.clone()), "{name}");
            }
        }
    }

    #[test]
    fn an_image_or_a_word_names_an_engine() {
        let engine = EngineId::TensorRtLlm;
        for text in [
            "nvidia/tensorrt-llm/release:1.2.0",
            "trtllm-serve",
            "my-TRT-LLM",
        ] {
            assert!(engine.is_named_in(text), "{text}");
        }
        assert!(!engine.is_named_in("vllm/vllm-openai"));
    }
}
