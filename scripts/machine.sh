# What quickstart, test, bench and .ci/run have in common: what this machine has, and installing what it lacks.
# Sourced, not run. `me` is the name of the script in messages.
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
  as_root env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y -qq --no-install-recommends "$@" </dev/null >/dev/null \
    || die "apt-get could not install: $*"
}

# The one list of Debian packages: groups that need it | programs that show it is there | packages | what for | services of theirs.
# A program with a slash is another place for the one before it. The services are not for this machine: they are switched off after
# the installation.
needed_packages='
build test ci | cc                       | gcc libc6-dev       | a linker for Rust
build test ci | jq                       | jq                  | to read profiles
test ci       | busybox                  | busybox-static      | the image of the container tests
test ci       | debootstrap              | debootstrap         | base images without a registry
test ci       | curl                     | curl                | to ask servers
test ci       | sshd,ssh,ssh-keygen      | openssh-server openssh-client | sweeps over ssh | ssh.service ssh.socket
test ci       | slurmctld,slurmd,munged  | slurm-wlm munge     | sweeps on Slurm | slurmctld slurmd munge
test ci       | ip                       | iproute2            | networks of Docker daemons that tests start
test ci       | podman                   | podman netavark     | containers of Podman
test ci       | catatonit,/usr/libexec/podman/catatonit | catatonit | the init process of such a container
test ci       | chromium                 | chromium            | to look at reports
test ci       | faketime                 | faketime            | clocks that jump
test ci       | prometheus,promtool      | prometheus          | to scrape metrics and test alerts | prometheus
test ci       | man,nroff                | man-db              | to render manual pages
test ci       | script                   | bsdutils            | a terminal for tests
test ci       | python3                  | python3-minimal     | the probes that run inside containers
test ci       | dpkg-shlibdeps           | dpkg-dev            | to build Debian packages
test ci       | lintian                  | lintian             | to check Debian packages
ci            | shellcheck               | shellcheck          | to check the scripts
'

# Lines `PACKAGES|WHAT FOR|SERVICES` of what a group needs and this machine lacks.
missing_packages() { # GROUP
  local groups programs packages purpose services program present
  while IFS='|' read -r groups programs packages purpose services; do
    [[ " $groups " == *" $1 "* ]] || continue
    present=1
    for program in ${programs//,/ }; do
      if [[ $program == /* ]]; then
        ! has "$program" || present=1
      elif ! PATH=$PATH:/usr/sbin:/sbin has "$program"; then
        present=
      fi
    done
    [[ -n $present ]] || echo "$(xargs <<<"$packages")|$(xargs <<<"$purpose")|$(xargs <<<"$services")"
  done <<<"$needed_packages"
}

# Installs what a group lacks.
install_packages() { # GROUP
  local missing packages services
  missing=$(missing_packages "$1")
  [[ -n $missing ]] || return 0
  mapfile -t packages < <(cut -d'|' -f1 <<<"$missing" | tr ' ' '\n')
  mapfile -t services < <(cut -d'|' -f3 <<<"$missing" | tr ' ' '\n' | grep .)
  apt_install "${packages[@]}"
  if [[ -d /run/systemd/system ]] && ((${#services[@]})); then
    as_root systemctl disable --now --quiet "${services[@]}" 2>/dev/null || true
  fi
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
