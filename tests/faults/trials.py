"""What the fault runs of training share: one short training, and the tally at the end."""

import json
import pathlib
import re
import resource
import subprocess
import sys

PROGRAM = pathlib.Path("build/release/bin/unshard-train")
STEPS = 12


def arguments(folder: pathlib.Path, ranks: int, strategy: str = "") -> list[str]:
    """A training of a second or less that saves after every step, and exports at the end."""
    text = folder / "text.txt"
    if not text.exists():
        text.write_text("the cat sat on the mat and the dog sat on the log. " * 40,
                        encoding="utf-8")
    strategy = strategy or ("single" if ranks == 1 else "fsdp")
    return [str(PROGRAM), "--model.preset=nano", "--model.vocab_size=128", "--data.path", str(text),
            f"--training.steps={STEPS}", "--training.local_batch_size=1",
            "--training.global_batch_size=4", "--lr_scheduler.kind=warmup_cosine",
            "--lr_scheduler.warmup_steps=2", "--checkpoint.interval=1", f"--strategy={strategy}",
            f"--ranks={ranks}", "--checkpoint.folder", str(folder / "runs"),
            "--export", str(folder / "model"), "--summary", str(folder / "summary.json")]


def run(command: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False,
                          errors="replace")


# What no message may hold: words of a library, or what moves a terminal's cursor.
JARGON = re.compile(r"exception|terminate|what\(\)|std::|json\.|toml::|filesystem error|bad_alloc|"
                    r"Segmentation|runtime_error|CLI::|does not know|0x[0-9a-f]{6,}", re.IGNORECASE)
RAW = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80[\xaa-\xae]")
LONGEST = 10_000
CPU_SECONDS = 20
ADDRESS_SPACE = 4 << 30


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE, ADDRESS_SPACE))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def ending(command: list, names: str = "", **more) -> tuple[int, str]:
    """Runs a program in little time and memory, on input that may be anything. The exit code, and
    what is wrong with the way it ended, or nothing. `names` must stand in what it says of an
    error."""
    try:
        done = subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, timeout=120,
                              check=False, preexec_fn=limited, **more)
    except subprocess.TimeoutExpired:
        return -1, "does not end"
    code, said = done.returncode, done.stderr
    text = said.decode("utf-8", "replace")
    wrong = [] if code in (0, 1, 2) else [f"exit code {code}: {text[:300]}"]
    if raw := RAW.search(said) or RAW.search(done.stdout):
        wrong.append(f"prints {raw.group()!r}")
    if len(said) > LONGEST:
        wrong.append(f"a message of {len(said)} bytes")
    if jargon := JARGON.search(text):
        wrong.append(f"jargon: {jargon.group()}: {text[:300]}")
    if code == 2 and (len(text.splitlines()) != 1 or not re.match(r"unshard-\w+: ", text)):
        wrong.append(f"not a sentence: {text[:300]!r}")
    if code != 0 and names not in text:
        wrong.append(f"does not name {names}: {text[:300]}")
    return code, "; ".join(wrong)


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
