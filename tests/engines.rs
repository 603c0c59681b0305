//! The real vLLM on CPU: minutes each.
#![allow(missing_docs, clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod common;

mod ablate_vllm;
mod deaths_vllm;
mod loadline_vllm;
mod presets_vllm;
mod profile_vllm;
mod sweep_vllm;
