//! The real vLLM and llama.cpp on CPU.
#![allow(missing_docs, clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod common;

mod ablate_vllm;
mod deaths_vllm;
mod loadline_vllm;
mod presets_vllm;
mod profile_llama_cpp;
mod profile_vllm;
mod sweep_vllm;
