# What quickstart, test, bench and .ci/run have in common: what this machine has, and getting what it lacks.
# Sourced, not run. `me` names the script that speaks.
# shellcheck shell=bash

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
me=$(basename "$0")

say() { echo "$me: $*" >&2; }
die() { # SENTENCE [HINT]
  say "error: $1"
  [[ -z ${2-} ]] || echo "  hint: $2" >&2
  exit 1
}
has() { command -v "$1" >/dev/null 2>&1; }

as_root() {
  if [[ $EUID == 0 ]]; then
    "$@"
  elif has sudo; then
    sudo "$@"
  else
    die "\`$*\` needs root, and there is no sudo" "run $me as root, or do it by hand"
  fi
}

# Package lists are fetched once per script, and only if something is missing.
apt_updated=
apt_install() { # PACKAGE...
  has apt-get || die "$* is missing, and there is no apt-get to install it with" "install it by hand"
  say "installing by apt-get: $*"
  if [[ -z $apt_updated ]]; then
    as_root apt-get update -qq >&2 || die "apt-get update failed"
    apt_updated=1
  fi
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" </dev/null >/dev/null \
    || die "apt-get could not install: $*"
}

# rustup puts cargo where a non-login shell does not look.
find_cargo() {
  has cargo || PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
}

need_cargo() {
  local wanted have
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$root/Cargo.toml")
  find_cargo
  has cargo || die "there is no cargo: plimsoll is built with Rust $wanted or later" \
    "install Rust as https://rustup.rs says, then start $me again"
  # From the crate's folder, where a toolchain may be set for it.
  have=$(cd "$root" && cargo --version | awk '{print $2}')
  [[ $(printf '%s\n' "$wanted" "${have%%-*}" | sort -V | head -n 1) == "$wanted" ]] \
    || die "this is cargo $have; plimsoll needs Rust $wanted or later" "rustup update stable"
}

daemon_answers() { docker version >/dev/null 2>&1; }

# In words, what `need_docker` would do; nothing when a daemon answers.
docker_plan() {
  if daemon_answers; then
    return
  fi
  if ! has dockerd || ! has docker; then
    echo "install the Docker engine by apt-get (package docker.io)"
  fi
  echo "start the Docker daemon, and leave it running"
}

# A daemon that answers: installed and started where that is possible.
need_docker() {
  if daemon_answers; then
    return
  fi
  local why
  why=$(docker version --format '{{.Server.Version}}' 2>&1 || true)
  if has docker && [[ $why == *"permission denied"* ]]; then
    die "Docker's socket may not be used by $(id -un)" "run $me as root, or add yourself to the group: sudo usermod -aG docker $(id -un)"
  fi
  if [[ -n ${DOCKER_HOST-} ]]; then
    die "no Docker daemon answers at DOCKER_HOST=$DOCKER_HOST" "correct or unset it"
  fi
  if ! has dockerd; then
    apt_install docker.io
  fi
  # Of late the client is a package of its own.
  if ! has docker; then
    apt_install docker-cli
  fi
  start_docker
}

start_docker() {
  # Installing it may have started it.
  if daemon_answers; then
    return
  fi
  say "starting the Docker daemon"
  local log=/var/log/dockerd.log pid=
  if [[ -d /run/systemd/system ]]; then
    as_root systemctl start docker || die "the Docker daemon does not start" "journalctl -u docker"
  else
    # In a session of its own: Ctrl-C here is not meant for it.
    pid=$(as_root sh -c "setsid dockerd >>$log 2>&1 </dev/null & echo \$!")
  fi
  local n
  for ((n = 0; n < 60; n++)); do
    if daemon_answers; then
      return
    fi
    if [[ -n $pid && ! -d /proc/$pid ]]; then
      break
    fi
    sleep 1
  done
  [[ -z $pid ]] || tail -n 5 "$log" >&2 || true
  die "the Docker daemon does not answer" "${pid:+see $log}"
}
