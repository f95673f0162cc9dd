#!/bin/bash
# Turns an instance into a Reprieve host. User data unpacks the bundle that this file is part
# of, then runs it as root with the Python to use. Nothing is downloaded from here on.
set -euo pipefail

PREFIX=${PREFIX:-/opt/reprieve}
UNITS=${UNITS:-/etc/systemd/system}
BUNDLE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
JOB_USER=reprieve-job
# Older SSM agents leave a command's parameters unset instead of passing them as variables.
SSM_AGENT_NEEDED=3.3.2746.0

say() { echo "reprieve: $*"; }

install_agent() { # python
  "$1" -m venv --without-pip "$PREFIX"
  local site
  site=$("$PREFIX/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  cp -R "$BUNDLE/site/." "$site/"
  # The agent's unit cannot write there, so byte code is made now or at every start.
  "$PREFIX/bin/python" -m compileall -q "$site"
  # Commands look for it here; unzipping has lost its mode.
  chmod 755 "$site/reprieve_agent/bin/reprieve-ctl"
  ln -sf "$site/reprieve_agent/bin/reprieve-ctl" "$PREFIX/bin/reprieve-ctl"
}

add_job_user() {
  id "$JOB_USER" >/dev/null 2>&1 ||
    useradd --system --user-group --create-home --shell /usr/sbin/nologin "$JOB_USER"
  local group
  for group in video render; do # the device files' groups on some images
    getent group "$group" >/dev/null && usermod -aG "$group" "$JOB_USER"
  done
  return 0
}

use_instance_storage() {
  systemctl start dlami-nvme.service 2>/dev/null || true # waits for the array at first boot
  mkdir -p /var/lib/reprieve
  if mountpoint -q /opt/dlami/nvme; then
    mkdir -p /opt/dlami/nvme/reprieve
  else
    say "no instance storage: checkpoints are staged on the root volume"
  fi
}

ssm_agent_version() {
  local binary
  for binary in /snap/amazon-ssm-agent/current/amazon-ssm-agent /usr/bin/amazon-ssm-agent; do
    if [ -x "$binary" ]; then
      "$binary" -version | grep -oE '[0-9]+(\.[0-9]+){3}' | head -n 1
      return
    fi
  done
}

is_new_enough() { # version
  [ "$(printf '%s\n' "$1" "$SSM_AGENT_NEEDED" | sort -V | tail -n 1)" = "$1" ]
}

check_ssm_agent() {
  local found
  found=$(ssm_agent_version || true)
  if [ -z "$found" ] || ! is_new_enough "$found"; then
    say "SSM agent ${found:-missing}, $SSM_AGENT_NEEDED needed: this host takes no commands," \
      "only the notices of its metadata service"
  fi
}

enable_units() {
  local unit names=()
  for unit in "$BUNDLE"/systemd/*; do
    install -m 644 "$unit" "$UNITS/"
    names+=("$(basename "$unit")")
  done
  systemctl daemon-reload
  systemctl enable --quiet "${names[@]}"
  systemctl start reprieve-agent.service
}

main() {
  install_agent "$1"
  add_job_user
  use_instance_storage
  check_ssm_agent
  enable_units
  say "installed"
}

if [ "${BASH_SOURCE[0]}" = "$0" ]; then
  main "$@"
fi
