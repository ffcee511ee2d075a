"""Entry points of installed packages: one that is broken stops nothing but itself."""

import os
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src"


def test_a_task_that_cannot_be_imported_is_skipped_with_a_warning(tmp_path):
    info = tmp_path / "broken-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[vcycle.tasks]\nbroken = no_such_module:TASK\n")
    ran = subprocess.run(
        [sys.executable, "-m", "vcycle", "plan", "kinetics/i3d_r50"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(SOURCE), str(tmp_path)))},
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert ran.returncode == 0, ran.stderr
    assert "plan long+short" in ran.stdout
    assert "skipped: task 'broken': module 'no_such_module' cannot be imported" in ran.stderr
