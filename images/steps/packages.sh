#!/bin/sh
# Install a compiler from the base's distribution, unless the base has one.
#
#   packages.sh c     for `environment`: Triton and torch.compile compile a launcher at the
#                     job's first kernel, and fail without a C compiler and Python.h
#   packages.sh c++   for `builder`
#
# A line that starts with `envcheck:` is what the user is told when this fails.
set -eu

command -v python3 >/dev/null 2>&1 || {
    echo "envcheck: base-without-python: no python3 on PATH"
    exit 1
}
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || {
    echo "envcheck: base-with-old-python: $(python3 --version 2>&1)"
    exit 1
}

header=$(python3 -c 'import sysconfig
paths = sysconfig.get_paths(scheme="posix_prefix")
print(paths["include"] + "/Python.h")')
wanted=
if [ "$1" = c ]; then
    command -v cc >/dev/null 2>&1 || wanted="gcc libc6-dev"
    # Only the distribution's own interpreter has its headers in a package.
    if [ ! -e "$header" ] && [ "$(readlink -f "$(command -v python3)" | cut -c1-9)" = /usr/bin/ ]; then
        wanted="$wanted libpython3-dev"
    fi
    python3 -c 'import ensurepip, venv' 2>/dev/null || wanted="$wanted python3-venv"
else
    # An empty toolchain lock and no sources: nothing is going to be compiled.
    [ -n "$(find /run/build/sources -type f -size +0c)" ] || exit 0
    command -v c++ >/dev/null 2>&1 || wanted="g++"
fi
[ -n "$wanted" ] || exit 0

command -v apt-get >/dev/null 2>&1 || {
    echo "envcheck: base-without-packages: needs $wanted, and the base has no apt-get"
    exit 1
}
export DEBIAN_FRONTEND=noninteractive
ca=
[ ! -s /run/build/secrets/ca ] || ca="-oAcquire::https::CaInfo=/run/build/secrets/ca"
# shellcheck disable=SC2086 # lists of words
apt-get $ca -qq update
# shellcheck disable=SC2086
apt-get $ca -qq -y --no-install-recommends install $wanted </dev/null

# What differs between two installations of the same packages: logs, caches, old copies.
rm -rf /var/lib/apt/lists/* /var/cache/apt/* /var/log/apt /var/log/*.log \
    /var/cache/ldconfig/aux-cache /var/cache/debconf/*-old /var/lib/dpkg/*-old
