//! The programs that end processes from inside a container, run here.

use super::*;
use crate::host::processes::Stat;
use std::process::{Child, Command};

fn sleeper() -> Child {
    let mut sleep = Command::new("sleep");
    sleep.arg("600").spawn().unwrap()
}

#[test]
fn a_pid_that_was_given_out_again_is_not_signalled() {
    let (mut meant, mut other) = (sleeper(), sleeper());
    let started = |child: &Child| Stat::read(child.id()).unwrap().id.started;
    let mut argv = shell(KILL_PIDS, Signal::KILL);
    argv.push(format!("{}:{}", other.id(), started(&other) - 1));
    argv.push(format!("{}:{}", meant.id(), started(&meant)));
    argv.push("4194303:1".to_owned());
    let ran = Command::new(&argv[0]).args(&argv[1..]).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&ran.stdout),
        format!("{}\n", meant.id()),
        "{}",
        String::from_utf8_lossy(&ran.stderr)
    );
    assert!(!meant.wait().unwrap().success());
    assert!(other.try_wait().unwrap().is_none(), "it runs on");
    other.kill().unwrap();
    other.wait().unwrap();
}
