#!/usr/bin/env bash
# Build the image without a container daemon or a registry, and check what is in it. Run as root.
#
#   tests/image/build.sh [further arguments of `buildah build`]
#
# BASE    image to build on; unset: a minimal Debian 12, made here from the package archive once
# IMAGE   name of the result
# PYTEST  command that runs tests; if set, it runs injected pods from the image's file system
# SOURCE_DATE_EPOCH  time of all files, 0: with the same packages a build gives the same layers
#
# The build runs in a chroot, so it has this machine's network and name server. What this machine
# needs to reach a package registry (its CA certificates, pip's configuration) is mounted for the
# build only and ends up in no layer.
set -euo pipefail
cd "$(dirname "$0")/../.."
IMAGE=${IMAGE:-localhost/mesh-agent}
DEBIAN=localhost/debian-slim:bookworm

epoch=${SOURCE_DATE_EPOCH:-0}
scratch=$(mktemp -d)
container=
clean_up() {
  umount "$scratch" 2>/dev/null || true
  rm -rf "$scratch"
  [ -z "$container" ] || buildah rm "$container" >/dev/null
}
trap clean_up EXIT

install_tools() {
  if ! command -v buildah >/dev/null || ! command -v debootstrap >/dev/null; then
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends buildah debootstrap
  fi
}

# Like Debian's slim images: without documentation and translations, but for licences. What is
# installed later comes without them too.
make_base() {
  debootstrap --variant=minbase bookworm "$scratch/root"
  (
    cd "$scratch/root"
    printf 'path-exclude=/usr/share/%s/*\n' doc groff info lintian locale man >etc/dpkg/dpkg.cfg.d/slim
    echo 'path-include=/usr/share/doc/*/copyright' >>etc/dpkg/dpkg.cfg.d/slim
    find usr/share/doc ! -type d ! -name copyright -delete
    rm -rf usr/share/{groff,info,lintian,locale,man}/*
    rm -rf var/cache/apt/* var/cache/ldconfig/* var/lib/apt/lists/* var/log/*
  )
  container=$(buildah from scratch)
  buildah add --quiet "$container" "$scratch/root" /
  buildah config --cmd /bin/bash "$container"
  buildah commit --quiet --rm --timestamp "$epoch" "$container" "$DEBIAN"
  container=
  rm -rf "$scratch/root"
}

# A home directory for the build with pip's configuration: mounted over one that exists, so that not
# even a mount point stays in a layer.
host_settings() {
  local folder=$scratch/home/.config/pip bundle=${PIP_CERT:-${SSL_CERT_FILE:-}}
  mkdir -p "$folder"
  echo "[global]" >"$folder/pip.conf"
  if [ -n "$bundle" ]; then
    cp "$bundle" "$folder/certificates.crt"
    echo "cert = /root/.config/pip/certificates.crt" >>"$folder/pip.conf"
  fi
  python3 -m pip config list 2>/dev/null |
    sed -nE "s/^(global|:env:)\.(index-url|extra-index-url|proxy|trusted-host)='(.*)'$/\2 = \3/p" >>"$folder/pip.conf"
}

inside() {
  buildah run --isolation=chroot "$container" -- "$@"
}

# What a pod relies on. Nothing can be written there, so whatever is imported must have byte code.
check() {
  test "$(buildah inspect --format '{{.OCIv1.Config.Entrypoint}} {{.OCIv1.Config.User}} {{.OCIv1.Config.WorkingDir}}' "$container")" \
    = "[/usr/bin/env --block-signal=TERM,INT /usr/local/bin/pilot-agent] 1337:1337 /"
  test "$(inside id -un)" = istio-proxy
  inside pilot-agent version
  inside envoy --version
  inside sh -c 'iptables --version && nft --version && setpriv --version'
  inside python3 - <<'PYTHON'
import importlib.util, pathlib, sys
UNCHECKED = b"\1\0\0\0"  # its flags, behind the magic number: good whatever the time of its source
def is_good(path):
    code = pathlib.Path(importlib.util.cache_from_source(path))
    return code.exists() and code.read_bytes()[4:8] == UNCHECKED
sources = [*pathlib.Path("/opt/mesh-agent/lib").rglob("*.py"), *pathlib.Path("/usr/lib").glob("python3.*/**/*.py")]
bare = [str(path) for path in sources if not is_good(path)]
print(f"{len(sources)} Python files, {len(bare)} without byte code", *bare[:5])
sys.exit(bool(bare))
PYTHON
  test -z "$(buildah run --isolation=chroot --user root "$container" -- find /root -name pip)"
}

# A pod of it: the root read-only, nothing but the volumes writable, the user without rights.
run_pod() {
  unshare --net --mount --pid --fork --kill-child -- bash -euo pipefail -c '
    root=$1
    python3 -c "
import fcntl, socket, struct
flags = struct.pack(\"16sh\", b\"lo\", 1)  # IFF_UP
fcntl.ioctl(socket.socket(), 0x8914, flags)  # SIOCSIFFLAGS"
    mount --bind "$root" "$root" && mount -o remount,bind,ro "$root"
    mount --rbind /dev "$root/dev" && mount -t proc proc "$root/proc"
    for volume in etc/istio/proxy var/lib/istio/data run/secrets; do
      mount -t tmpfs -o uid=1337,gid=1337 tmpfs "$root/$volume"
    done
    inside() {
      chroot --userspec=1337:1337 "$root" /usr/bin/env -i PATH="$PATH" POD_NAME=pod \
        POD_NAMESPACE=default INSTANCE_IP=10.0.0.2 AGENT_LOCAL_XDS=builtin pilot-agent "$@"
    }
    inside proxy sidecar &
    inside wait --timeoutSeconds=30
    inside request GET ready
    inside request --debug-port=15020 POST quitquitquit
    wait $!
  ' run_pod "$(buildah mount "$container")"
}

# Compressed bytes of each layer, as a node downloads them, beside the instruction that made it.
sizes() {
  buildah push --quiet "$IMAGE" "oci:$scratch/image"
  python3 - "$scratch/image" <<'PYTHON'
import json
import sys
from pathlib import Path


def blob(entry):
    return json.loads(Path(sys.argv[1], "blobs", *entry["digest"].split(":")).read_text())


manifest = blob(json.loads(Path(sys.argv[1], "index.json").read_text())["manifests"][0])
steps = [step["created_by"] for step in blob(manifest["config"])["history"] if not step.get("empty_layer")]
for layer, step in zip(manifest["layers"], steps):
    print(f"{layer['size'] / 1e6:8.1f} MB  {' '.join(step.split())[:100]}")
print(f"{sum(layer['size'] for layer in manifest['layers']) / 1e6:8.1f} MB  in total, compressed")
PYTHON
}

install_tools
mount -t tmpfs -o mode=0700 tmpfs "$scratch" || true  # thousands of small files
if [ -z "${BASE:-}" ]; then
  BASE=$DEBIAN
  buildah inspect "$BASE" >/dev/null 2>&1 || make_base
fi
host_settings
buildah build --isolation=chroot --layers --force-rm --timestamp "$epoch" \
  --volume "$scratch/home:/root:ro" --build-arg "BASE=$BASE" --tag "$IMAGE" "$@" .
container=$(buildah from "$IMAGE")
check
run_pod
sizes
[ -z "${PYTEST:-}" ] ||
  POD_IMAGE_ROOT=$(buildah mount "$container") $PYTEST tests/pod/test_kubelet_containers.py tests/pod/test_pod_*.py
