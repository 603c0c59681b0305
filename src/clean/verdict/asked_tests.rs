//! What is decided of each kind of trouble that people meet, one case each: what the user asks of
//! containers.

use super::cases_tests::*;
use super::*;
use crate::clean::facts::*;
use crate::container::leftovers::Owner;
use std::collections::BTreeMap;

#[test]
fn a_container_of_others_goes_only_where_the_user_chose_it() {
    use {CleanAct::*, CleanRule::*};
    container(
        "no choice",
        theirs(),
        &CleanRequest::default(),
        Keep,
        Foreign,
        "holds 20.00 GiB on GPU-0a",
    );
    container("named", theirs(), &name_it(), Stop, Named, "you named it");
    container(
        "by id",
        theirs(),
        &asks(|a| a.names = vec!["00010".into()]),
        Stop,
        Named,
        "",
    );
    container(
        "by label",
        theirs(),
        &asks(|a| a.labels = vec!["team=red".into()]),
        Stop,
        Selected,
        "team=red",
    );
    container(
        "by image",
        theirs(),
        &asks(|a| a.images = vec!["vllm/*".into()]),
        Stop,
        Selected,
        "vllm/*",
    );
    container(
        "all",
        theirs(),
        &asks(|a| a.all_gpu = true),
        Stop,
        Selected,
        "",
    );
    container(
        "another name",
        theirs(),
        &asks(|a| a.names = vec!["llm2".into()]),
        Keep,
        Foreign,
        "",
    );
    container(
        "another label",
        theirs(),
        &asks(|a| a.labels = vec!["team=blue".into()]),
        Keep,
        Foreign,
        "",
    );
    for bytes in [None, Some(on_gpu(0)), Some(BTreeMap::new())] {
        container(
            "holds nothing",
            with(theirs(), |c| c.gpu_bytes = bytes),
            &asks(|a| a.all_gpu = true),
            Keep,
            Foreign,
            "",
        );
    }
    let ended = |look| with(look, |c: &mut ContainerLook| c.status = "exited".into());
    container(
        "ended, theirs",
        ended(theirs()),
        &name_it(),
        Keep,
        Ended,
        "docker rm",
    );
    container(
        "ended, ours",
        ended(ours(Owner::Unknown)),
        &name_it(),
        Remove,
        Named,
        "",
    );
    container(
        "its processes cannot be seen",
        with(theirs(), |c| c.processes = None),
        &name_it(),
        Report,
        Unseen,
        "cannot be seen",
    );
}

#[test]
fn idleness_narrows_a_choice_and_makes_none() {
    use {CleanAct::*, CleanRule::*};
    let for_minutes = |minutes| {
        asks(|a| {
            a.all_gpu = true;
            a.idle = idle(minutes);
        })
    };
    container(
        "long enough",
        theirs(),
        &for_minutes(30),
        Stop,
        Idle,
        "31 min 40 s",
    );
    container(
        "not long enough",
        theirs(),
        &for_minutes(35),
        Keep,
        NotIdle,
        "no request came for only 31 min 40 s",
    );
    let unknown = with(theirs(), |c| c.activity.requests_idle_s = None);
    container(
        "not known",
        unknown,
        &for_minutes(30),
        Keep,
        NotIdle,
        "for how long no request came is not known",
    );
    for log_silent_s in [None, Some(0)] {
        container(
            "its log says nothing of requests",
            with(theirs(), |c| c.activity.log_silent_s = log_silent_s),
            &for_minutes(30),
            Stop,
            Idle,
            "31 min 40 s",
        );
    }
    container(
        "alone",
        theirs(),
        &asks(|a| a.idle = idle(30)),
        Keep,
        Foreign,
        "",
    );
    container(
        "alone, ours",
        ours(Owner::Unknown),
        &asks(|a| a.idle = idle(30)),
        Keep,
        NothingWrong,
        "",
    );
    container(
        "ours goes for its own reasons",
        ours(Owner::Dead),
        &for_minutes(600),
        Stop,
        OwnerDead,
        "",
    );
}

#[test]
fn what_is_never_touched_is_kept_whatever_is_asked() {
    use {CleanAct::*, CleanRule::*};
    for value in ["", "true", "0", "False"] {
        let kept = with(ours(Owner::Dead), |c| {
            c.labels.insert(PROTECT_LABEL.into(), value.into());
        });
        container(value, kept, &name_it(), Keep, Protected, "plimsoll.protect");
    }
    let unprotected = with(theirs(), |c| {
        c.labels.insert(PROTECT_LABEL.into(), "false".into());
    });
    container("not protected", unprotected, &name_it(), Stop, Named, "");
    container(
        "this one",
        with(theirs(), |c| c.this_one = true),
        &name_it(),
        Keep,
        ThisOne,
        "",
    );
    container(
        "cluster",
        with(theirs(), |c| c.ruled_by = Some("Slurm".into())),
        &name_it(),
        Keep,
        RuledByOthers,
        "Slurm rules it",
    );
    let pod = with(theirs(), |c| {
        c.labels.insert("io.kubernetes.pod.uid".into(), "x".into());
    });
    container("pod", pod, &name_it(), Keep, RuledByOthers, "Kubernetes");
    for name in [
        "dcgm-exporter",
        "nvidia-cuda-mps",
        "dockerd",
        "nv-fabricmanage",
        "Xorg",
    ] {
        let serves = |look| with(look, |c: &mut ContainerLook| worker(c).name = name.into());
        container(name, serves(theirs()), &name_it(), Keep, NeverTouched, name);
        container(
            name,
            serves(ours(Owner::Dead)),
            &name_it(),
            Keep,
            NeverTouched,
            name,
        );
    }
}
