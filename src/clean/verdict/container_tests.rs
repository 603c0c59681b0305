//! What is decided of each kind of trouble that people meet, one case each: containers.

use super::cases_tests::*;
use super::*;
use crate::clean::facts::*;
use crate::container::leftovers::Owner;

#[test]
fn our_containers_with_a_dead_or_hung_engine() {
    use {CleanAct::*, CleanRule::*};
    let nothing = &CleanRequest::default();
    let ill = |for_s| {
        with(ours(Owner::Unknown), |c| {
            c.health = EngineHealth::Ill { for_s }
        })
    };
    container(
        "hung, owner ended",
        with(ours(Owner::Dead), |c| {
            c.health = EngineHealth::Ill { for_s: 1 }
        }),
        nothing,
        Stop,
        OwnerDead,
        "20.00 GiB on GPU-0a",
    );
    container(
        "hung for long, nobody's",
        ill(600),
        nothing,
        Stop,
        Unhealthy,
        "10 min 00 s",
    );
    container(
        "may still load",
        ill(599),
        nothing,
        Keep,
        NothingWrong,
        "9 min 59 s",
    );
    container(
        "hung for long, and wanted until later",
        with(ill(9000), |c| c.past_deadline_s = Some(-1)),
        nothing,
        Keep,
        NothingWrong,
        "its deadline is ahead",
    );
    container(
        "past its deadline",
        with(ours(Owner::Unknown), |c| c.past_deadline_s = Some(1)),
        nothing,
        Stop,
        PastDeadline,
        "1.0 s past",
    );
    container(
        "at its deadline",
        with(ours(Owner::Unknown), |c| c.past_deadline_s = Some(0)),
        nothing,
        Keep,
        NothingWrong,
        "answers",
    );
    container(
        "others' engines may hang",
        with(theirs(), |c| c.health = EngineHealth::Ill { for_s: 9999 }),
        nothing,
        Keep,
        Foreign,
        "not ours",
    );
}

#[test]
fn a_worker_without_its_parent_is_judged_by_what_its_engine_answers() {
    use {CleanAct::*, CleanRule::*};
    let nothing = &CleanRequest::default();
    // An orphan is given to the container's first process; who was `docker exec`ed has a parent
    // outside. Neither shows that the server is dead.
    let lost = |owner, parent, for_s| {
        with(ours(owner), |c| {
            c.health = EngineHealth::Ill { for_s };
            worker(c).parent = Some(parent);
        })
    };
    for parent in [2, 20] {
        let young = lost(Owner::Unknown, parent, 599);
        container("not for long", young, nothing, Keep, NothingWrong, "");
        let long = lost(Owner::Unknown, parent, 600);
        container("nobody's", long, nothing, Stop, Unhealthy, "10 min");
        let dead = lost(Owner::Dead, parent, 1);
        container("owner ended", dead, nothing, Stop, OwnerDead, "");
    }
}

#[test]
fn a_container_without_a_living_owner_goes() {
    use {CleanAct::*, CleanRule::*};
    let nothing = &CleanRequest::default();
    let as_it_is = |status: &str| with(ours(Owner::Dead), |c| c.status = status.into());
    let empty = |status: &str| with(as_it_is(status), |c| c.processes = Some(vec![]));
    for status in ["running", "paused", "restarting", "created"] {
        container(
            status,
            as_it_is(status),
            nothing,
            Stop,
            OwnerDead,
            "(run r7) has ended",
        );
    }
    for status in ["created", "exited"] {
        container(
            status,
            empty(status),
            nothing,
            Remove,
            OwnerDead,
            "has ended",
        );
    }
    container(
        "a word of tomorrow",
        as_it_is("hibernating"),
        nothing,
        Keep,
        NothingWrong,
        "",
    );
    container(
        "owner lives",
        ours(Owner::Alive),
        &name_it(),
        Keep,
        OwnerLives,
        "that plimsoll cleans up itself",
    );
    container(
        "a plimsoll works on it",
        with(ours(Owner::Dead), |c| c.locked = true),
        &name_it(),
        Keep,
        OwnerLives,
        "works on it",
    );
    container(
        "a run works in it",
        with(theirs(), |c| worker(c).mark = mark(Owner::Alive)),
        &name_it(),
        Keep,
        OwnerLives,
        "run r8",
    );
    container(
        "nobody knows whose, ended",
        with(ours(Owner::Unknown), |c| c.status = "exited".into()),
        nothing,
        Keep,
        Ended,
        "",
    );
    container(
        "its processes cannot be seen",
        with(ours(Owner::Dead), |c| c.processes = None),
        nothing,
        Report,
        Unseen,
        "its owner (run r7) has ended; holds",
    );
    container(
        "nothing runs between two starts",
        with(as_it_is("restarting"), |c| c.processes = None),
        nothing,
        Stop,
        OwnerDead,
        "",
    );
}

#[test]
fn zombies_are_ended_with_their_container_if_it_is_ours() {
    use {CleanAct::*, CleanRule::*};
    let zombie = |look| with(look, |c| worker(c).state = Some('Z'));
    let nothing = &CleanRequest::default();
    container(
        "ours",
        zombie(ours(Owner::Unknown)),
        nothing,
        Stop,
        Zombies,
        "--init",
    );
    container(
        "theirs",
        zombie(theirs()),
        nothing,
        Report,
        Zombies,
        "hold 20.00 GiB",
    );
    container(
        "holds nothing",
        with(zombie(ours(Owner::Unknown)), |c| {
            worker(c).gpu_bytes = on_gpu(0)
        }),
        nothing,
        Keep,
        NothingWrong,
        "",
    );
}

#[test]
fn what_no_signal_can_end_is_reported_and_left() {
    use {CleanAct::*, CleanRule::*};
    let stuck = |look, for_s| {
        with(look, |c| {
            worker(c).stuck = vec![StuckThread {
                tid: 22,
                waits_in: Some("nv_wait".into()),
                for_s,
            }]
        })
    };
    for (title, look) in [("theirs", theirs()), ("ours", ours(Owner::Dead))] {
        container(
            title,
            stuck(look, 60),
            &name_it(),
            Report,
            Uninterruptible,
            "thread 22 of pid 21 (python3) waits in nv_wait for 1 min 00 s",
        );
    }
    container(
        "a disk",
        stuck(theirs(), 59),
        &name_it(),
        Stop,
        Named,
        "you named it",
    );
}

#[test]
fn a_removal_that_does_not_end_is_reported() {
    use {CleanAct::*, CleanRule::*};
    for status in ["removing", "dead"] {
        let since = |s| {
            with(ours(Owner::Dead), |c| {
                c.status = status.into();
                c.status_for_s = s;
            })
        };
        container(
            status,
            since(Some(30)),
            &name_it(),
            Report,
            RemovalStuck,
            "30.0 s",
        );
        container(
            status,
            since(Some(29)),
            &name_it(),
            Keep,
            NothingWrong,
            "29.0 s",
        );
        container(
            status,
            since(None),
            &name_it(),
            Keep,
            NothingWrong,
            "unknown",
        );
    }
}

#[test]
fn what_a_dead_run_left_in_a_container_of_others_is_ended_alone() {
    use {CleanAct::*, CleanRule::*};
    let nothing = &CleanRequest::default();
    let left = |owner| with(theirs(), |c| worker(c).mark = mark(owner));
    container(
        "dead",
        left(Owner::Dead),
        nothing,
        EndMarked,
        Leftover,
        "1 process that run r8 left",
    );
    container("unknown", left(Owner::Unknown), nothing, Keep, Foreign, "");
    container(
        "locked",
        with(left(Owner::Dead), |c| c.locked = true),
        nothing,
        Keep,
        OwnerLives,
        "",
    );
    container(
        "paused",
        with(left(Owner::Dead), |c| c.status = "paused".into()),
        nothing,
        Report,
        Leftover,
        "docker unpause",
    );
    container(
        "ended",
        with(left(Owner::Dead), |c| worker(c).state = Some('Z')),
        nothing,
        Report,
        Zombies,
        "",
    );
    container("named", left(Owner::Dead), &name_it(), Stop, Named, "");
    container(
        "named, not idle",
        left(Owner::Dead),
        &asks(|a| {
            a.names = vec!["llm".into()];
            a.idle = idle(60)
        }),
        EndMarked,
        Leftover,
        "",
    );
    let zombie_too = with(left(Owner::Dead), |c| {
        let both = c.processes.as_mut().unwrap();
        both[0].state = Some('Z');
        both[0].gpu_bytes = on_gpu(GIB);
    });
    container(
        "beside a zombie",
        zombie_too,
        nothing,
        EndMarked,
        Leftover,
        "",
    );
}

#[test]
fn what_others_live_in_is_stopped_only_when_it_is_named() {
    use {CleanAct::*, CleanRule::*};
    let shared = |look| {
        with(look, |c: &mut ContainerLook| {
            c.shared_by = vec!["debug".into()]
        })
    };
    let nothing = &CleanRequest::default();
    let dead = || shared(ours(Owner::Dead));
    container(
        "ours",
        dead(),
        nothing,
        Report,
        Shared,
        "would end what shares its pid namespace: debug",
    );
    let chosen = asks(|a| a.labels = vec!["team=red".into()]);
    container("chosen", shared(theirs()), &chosen, Report, Shared, "debug");
    container("named", dead(), &name_it(), Stop, OwnerDead, "debug");
    container(
        "theirs, named",
        shared(theirs()),
        &name_it(),
        Stop,
        Named,
        "debug",
    );
    container("no reason", shared(theirs()), nothing, Keep, Foreign, "");
    let ended = with(dead(), |c| {
        c.status = "exited".into();
        c.processes = Some(vec![]);
    });
    container("nothing runs in it", ended, nothing, Remove, OwnerDead, "");
}

#[test]
fn what_is_never_touched_does_not_end_with_what_is_named() {
    let named = with(theirs(), |c| c.shared_by = vec!["debug".into()]);
    let judged = |change: &dyn Fn(&mut ContainerLook)| {
        let debug = with(theirs(), |c| {
            (c.name, c.id) = ("debug".into(), "d".repeat(64));
            change(c);
        });
        let survey = Survey {
            containers: vec![named.clone(), debug],
            ..Default::default()
        };
        let verdicts = judge_survey(&survey, &name_it());
        let verdict = verdicts.into_iter().find(|v| v.name == named.name).unwrap();
        (verdict.act, verdict.why)
    };
    assert_eq!(judged(&|_| {}).0, CleanAct::Stop);
    let protected = judged(&|c| {
        c.labels.insert(PROTECT_LABEL.into(), "1".into());
    });
    assert_eq!(protected.0, CleanAct::Report);
    assert!(protected.1.contains("debug"), "{}", protected.1);
    assert!(protected.1.contains(PROTECT_LABEL), "{}", protected.1);
    assert_eq!(judged(&|c| c.owner = Owner::Alive).0, CleanAct::Report);
}

#[test]
fn what_docker_hangs_on_because_it_is_frozen() {
    use {CleanAct::*, CleanRule::*};
    let frozen = |look| {
        with(look, |c| {
            c.status = "paused".into();
            c.freezer = Some("/sys/fs/cgroup/freezer/docker/0001/freezer.state".into());
        })
    };
    let nothing = &CleanRequest::default();
    let thaw = "its processes are frozen";
    container(
        "ours, frozen",
        frozen(ours(Owner::Dead)),
        nothing,
        Stop,
        OwnerDead,
        thaw,
    );
    for look in [theirs(), ours(Owner::Unknown)] {
        container("frozen", frozen(look), nothing, Report, RemovalStuck, thaw);
    }
    let alive = frozen(ours(Owner::Alive));
    container("wanted", alive, nothing, Keep, OwnerLives, "lives");
}
