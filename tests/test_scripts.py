"""Every example and every benchmark runs: on little data, to see that it still can, not what it finds."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SMALL = {
    "benchmarks/beside.py": [f"--before {ROOT} --rounds 1 -- metrics.py --rows 300 --queries 20 --repeats 1"],
    "benchmarks/cluster.py": ["--rows 2000 --inducing 50 --bits 8 --repeats 1", "--plan 1e9 5000 128 1000"],
    "benchmarks/collection.py": ["--items 3000 --queries 20 --adds 20 --rounds 1"],
    "benchmarks/descriptors.py": ["--images 64 --repeats 1"],
    "benchmarks/embeddings.py": ["--data digits --quick --bits 16 --candidates 100"],
    "benchmarks/familiarity.py": ["--small"],
    "benchmarks/encoding.py": ["--inducing 50 --repeats 1"],
    "benchmarks/export.py": ["--rows 2000 --inducing 50 --repeats 2"],
    "benchmarks/memory.py": ["--rows 3000 --features 16 --types int8 sparse --bits 8 --work index fit"],
    "benchmarks/metrics.py": ["--rows 300 --queries 20 --repeats 1"],
    "benchmarks/overload.py": ["--idle 8 --bodies 4 --forms 2 --deaf 2 --seconds 1 --alone"],
    "benchmarks/picture_bombs.py": ["black --pixels 100000"],
    "benchmarks/promises.py": ["--data digits --seeds 1"],
    "benchmarks/search.py": ["--data digits --items 2000 --bits 16 --queries 16 --rounds 1"],
    "benchmarks/serving.py": ["--items 2000 --bits 16 --clients 4 --seconds 0.5"],
    "benchmarks/startup.py": ["--rounds 1 --warm"],
    "benchmarks/supervision.py": ["--seeds 1 --small"],
    "benchmarks/training.py": [
        "--rows 1000 --inducing 50 --bits 8 --repeats 1",
        "--bits-scale --rows 300 --inducing 20 --repeats 1",
    ],
    "examples/demo.py": ["--figures figures"],
    "examples/duplicates.py": ["--data digits --copies 20"],
    "examples/embeddings.py": ["--data digits --bits 16"],
    "examples/numpy_codes.py": [""],
    "examples/pairs.py": ["--judgements 2000 --bits 8"],
}
NEEDS = {"benchmarks/cluster.py": "distributed", "benchmarks/export.py": "onnxruntime"}
CASES = [(script, arguments) for script, several in SMALL.items() for arguments in several]


def test_none_is_left_out():
    scripts = [path for folder in ("benchmarks", "examples") for path in (ROOT / folder).glob("*.py")]
    runnable = {path.relative_to(ROOT).as_posix() for path in scripts if "__main__" in path.read_text(encoding="utf-8")}
    assert runnable == set(SMALL), "say in SMALL how a script runs within seconds"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("script", "arguments"), CASES, ids=[f"{Path(script).stem} {words}" for script, words in CASES]
)
def test_a_script_runs_to_its_end(tmp_path, script, arguments):
    pytest.importorskip(NEEDS.get(script, "numpy"))
    command = [sys.executable, str(ROOT / script), *arguments.split()]
    # Told that somebody reads along, matplotlib would look for a screen.
    environment = {**os.environ, "MPLBACKEND": "agg"}
    found = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=110)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip()
