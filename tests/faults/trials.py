"""What the fault runs of training share: one short training, and the tally at the end."""

import json
import pathlib
import subprocess
import sys

PROGRAM = pathlib.Path("build/release/bin/unshard-train")
STEPS = 12


def arguments(folder: pathlib.Path, ranks: int) -> list[str]:
    """A training of a second or less that saves after every step, and exports at the end."""
    text = folder / "text.txt"
    if not text.exists():
        text.write_text("the cat sat on the mat and the dog sat on the log. " * 40,
                        encoding="utf-8")
    strategy = "single" if ranks == 1 else "fsdp"
    return [str(PROGRAM), "--model.preset=nano", "--model.vocab_size=128", "--data.path", str(text),
            f"--training.steps={STEPS}", "--training.local_batch_size=1",
            "--training.global_batch_size=4", "--lr_scheduler.kind=warmup_cosine",
            "--lr_scheduler.warmup_steps=2", "--checkpoint.interval=1", f"--strategy={strategy}",
            f"--ranks={ranks}", "--checkpoint.folder", str(folder / "runs"),
            "--export", str(folder / "model"), "--summary", str(folder / "summary.json")]


def run(command: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                          errors="replace")


def fingerprint(folder: pathlib.Path) -> str:
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return summary["runs"][0]["param_sha256"]


class Tally:
    """Counts what was as promised, prints what was not, and ends the program."""

    def __init__(self) -> None:
        self.tried = 0
        self.otherwise = 0

    def add(self, what: str, fault: str) -> None:
        """`fault` is what went wrong, or nothing."""
        self.tried += 1
        if fault:
            self.otherwise += 1
            print(f"{what}: {fault}")

    def finish(self) -> None:
        print(f"tried {self.tried}, as promised {self.tried - self.otherwise}, "
              f"otherwise {self.otherwise}")
        sys.exit(1 if self.otherwise else 0)
