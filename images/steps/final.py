"""Install the built extensions, and write down what the image was built for."""
# ruff: noqa: INP001 - a step of a Dockerfile, not a module of the package

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path
from urllib.parse import unquote, urlsplit

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import environment  # noqa: E402

# No version of envcheck: the same recipe is to give the same digest with the next one.
_NAMES = (
    *("BASE", "KERNELS", "TARGET", "SM"),
    *("TORCH", "CUDA", "TORCH_CUDA_ARCH_LIST", "NVIDIA_REQUIRE_CUDA"),
)


def main() -> None:
    """Finish the environment; nothing here asks the network."""
    wheels = sorted(str(path) for path in Path(environment.WHEELS).glob("*.whl"))
    if wheels:
        with tempfile.TemporaryDirectory() as folder:
            environment.install(folder, "--no-index", "--no-deps", *wheels)
        forget_wheels(Path(environment.ENVIRONMENT))
        environment.precompile()
    target = {name.lower(): os.environ.get(name, "") for name in _NAMES}
    path = Path(environment.ENVIRONMENT, "target.json")
    path.write_text(json.dumps(target, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    environment.normalise(environment.ENVIRONMENT)


def forget_wheels(tree: Path) -> None:
    """Drop direct_url.json: it names a folder of the build, and is in no way needed."""
    for path in sorted(tree.glob("lib/python3*/site-packages/*.dist-info/direct_url.json")):
        address = urlsplit(json.loads(path.read_bytes())["url"])
        if unquote(address.path).startswith(f"{environment.WHEELS}/"):
            path.unlink()
            record = path.with_name("RECORD")
            lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
            kept = [line for line in lines if "/direct_url.json," not in line]
            record.write_text("".join(kept), encoding="utf-8")


if __name__ == "__main__":
    main()
