"""
What a host runs at its first boot.

It stays small (EC2's limit is 16 KB) because everything but the fetch and the settings is in
the bundle. The settings are a heredoc with fixed markers, so that the embedded cloud starts its
hosts from this same text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

LIMIT_BYTES = 16_384
ENV_FILE = "/etc/reprieve/agent.env"
ENV_MARKER = "REPRIEVE_AGENT_ENV"
READY_FILE = "/run/reprieve/ready"

_SCRIPT = r"""#!/bin/bash
# Reprieve: make this instance a host. Output: /var/log/cloud-init-output.log
set -euo pipefail
export AWS_REGION=@REGION@ AWS_DEFAULT_REGION=@REGION@

# First, so that nothing below can leave a host that costs money and does no work: an agent that
# isn't ready in time ends the instance (its shutdown behaviour is terminate).
systemd-run --quiet --unit=reprieve-boot-limit --on-active=@BOOT_LIMIT_SECONDS@ /bin/sh -c \
  'test -e @READY_FILE@ || systemctl poweroff'

fail() { echo "reprieve: $*; this host powers off at its boot limit"; exit 1; }

mkdir -p -m 755 /etc/reprieve
cat >@ENV_FILE@ <<'@ENV_MARKER@'
@ENVIRONMENT@
@ENV_MARKER@
chmod 644 @ENV_FILE@

python=
for candidate in python3.14 python3.13 python3.12 python3.11 python3; do
  if "$candidate" -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
    python=$candidate
    break
  fi
done
[ -n "$python" ] || fail "no Python >= 3.11 with venv on this image"

fetch() {
  if command -v aws >/dev/null; then
    aws s3 cp --only-show-errors "s3://$1/$2" "$3"
  else
    python3 -c 'import sys, boto3; boto3.client("s3").download_file(*sys.argv[1:])' "$@"
  fi
}
bundle=/var/tmp/reprieve-bundle
tries=0
until fetch '@BUNDLE_BUCKET@' '@BUNDLE_KEY@' "$bundle.zip"; do
  tries=$((tries + 1)) # credentials and the network may be seconds away
  [ "$tries" -lt 10 ] || fail "cannot fetch the agent: is there a way to S3, and aws or boto3?"
  sleep 3
done
rm -rf "$bundle"
"$python" -m zipfile -e "$bundle.zip" "$bundle"
bash "$bundle/install.sh" "$python" || fail "installing the agent failed"
rm -rf "$bundle" "$bundle.zip"
"""


@dataclass(frozen=True, slots=True)
class Bundle:
    """Where the host bundle lies."""

    bucket: str
    key: str


def render(
    *, region: str, environment: Mapping[str, str], bundle: Bundle, boot_limit_seconds: int
) -> str:
    """Return the script. Values may be tokens of the CDK; none may hold a line break."""
    lines = "\n".join(f"{name}={value}" for name, value in environment.items())
    fields = {
        "REGION": region,
        "BOOT_LIMIT_SECONDS": str(boot_limit_seconds),
        "READY_FILE": READY_FILE,
        "ENV_FILE": ENV_FILE,
        "ENV_MARKER": ENV_MARKER,
        "ENVIRONMENT": lines,
        "BUNDLE_BUCKET": bundle.bucket,
        "BUNDLE_KEY": bundle.key,
    }
    script = _SCRIPT
    for name, value in fields.items():
        script = script.replace(f"@{name}@", value)
    return script
