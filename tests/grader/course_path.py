"""Puts the programs under test, apps/course/, where `import` finds them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "apps" / "course"))
