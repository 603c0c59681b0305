//! What needs a container runtime, or daemons of its own.
#![allow(missing_docs, clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod common;

mod ablate;
mod bad_days;
mod builtin;
mod clean_apply;
mod clean_cli;
mod clean_gpu;
mod clean_memory;
mod clean_survey;
mod container_connect;
mod daemon;
mod deaths;
mod docker_container;
mod docs_containers;
mod experiment;
mod faults;
mod gpu_containers;
mod host_process;
mod interrupt;
mod launched;
mod loadline;
mod log_drivers;
mod packaging;
mod podman;
mod profile_reference;
mod profile_transformers;
mod read_only_socket;
mod secrets;
mod security;
mod sweep_beyond;
mod sweep_containers;
mod sweep_fit;
mod sweep_kill;
mod sweep_reference;
mod sweep_remote;
mod sweep_results;
mod sweep_slurm;
mod trouble;
mod tune;
mod watch;
mod why;
