//! What needs no container: files, logs, pages, stand-ins of libraries.
#![allow(missing_docs, clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod common;

mod amd;
mod cli;
mod compare;
mod compare_cli;
mod corpus;
mod derive;
mod derive_any;
mod docs;
mod estimate_cli;
mod example;
mod fuzz_targets;
mod gpu_fixtures;
mod gpus;
mod help;
mod intel;
mod latency_model;
mod load;
mod msrv;
mod nvidia_recordings;
mod nvml;
mod nvml_depth;
mod online;
mod presets;
mod probe_trtllm;
mod replay_cli;
mod report;
mod report_browser;
mod report_chapters;
mod report_cli;
mod report_documents;
mod report_formats;
mod schema;
mod seams;
mod shell;
mod sweep_file;
mod torch_probe;
mod vllm_log;
