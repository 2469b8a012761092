"""Tries wrong configurations: each must end at once with exit code 2 and one sentence.

    configurations.py [COUNT] [--seed N] [--program build/release/bin/unshard-train] [--verbose]

The keys come from the program's own --help, with their types and ranges, so a new key is tried as
soon as it exists. Each configuration has one fault: a value of a wrong type or out of range (on the
command line, in a file or through a pipe, alone or among right settings), a misspelled key, a
section used as a value and the other way round, settings that contradict each other, a size that fits no
machine, a file that is none. Every sentence must begin with the program's name, name the key (or
the file) at fault, have one line, and hold no word of a library. At the end:

    tried 300, as promised 300, otherwise 0
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CPU_SECONDS = 10
WRONG_INPUT = 2
JARGON = re.compile(r"exception|terminate|what\(\)|std::|json\.|toml::|filesystem error|bad_alloc|"
                    r"Segmentation|runtime_error|CLI::|0x[0-9a-f]{6,}|errno", re.IGNORECASE)
KEY_LINE = re.compile(r"^  --(\w+\.\w+)\s+(\S+|\".*?\")\s.*\((.*)\)$")


@dataclass
class Key:
    name: str
    fallback: str
    values: str  # "a whole number between 1 and 100", "true or false", "one of a, b", "text"

    def kind(self) -> str:
        for kind in ("a whole number", "a number", "true or false", "one of", "true, false", "text"):
            if self.values.startswith(kind):
                return kind
        raise ValueError(f"{self.name}: unknown values: {self.values}")

    def bounds(self) -> list[float]:
        return [float(word) for word in re.findall(r"-?\d[\d.e+-]*", self.values)]


@dataclass
class Fault:
    what: str                 # for the report
    names: str                # what the sentence must contain
    words: list[str] = field(default_factory=list)
    text: str | None = None   # of a configuration file
    pipe: bool = False        # through /dev/stdin instead


def keys_of(program: Path) -> list[Key]:
    text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    keys = [Key(*match.groups()) for match in map(KEY_LINE.match, text.splitlines()) if match]
    if len(keys) < 30:
        sys.exit(f"{program} --help describes only {len(keys)} keys")
    return keys


# ------------------------------------------------------------------------------- the faults

def wrong_words(key: Key) -> list[str]:
    """Values it cannot have on the command line."""
    junk = ["abc", "", "--", "1,5", "½", "null", "None", "\t", "1 2", "9" * 400, "x" * 5000]
    kind = key.kind()
    if kind == "a whole number":
        outside = [str(2**63), str(-(2**63) - 1), "1e300", "0x10", "1e3", "3.0", "nan", "inf", "-1"]
        bounds = key.bounds()
        if len(bounds) == 2:
            outside += [str(int(bounds[1]) + 1), str(int(bounds[0]) - 1)]
        return junk + outside
    if kind == "a number":
        low, high = key.bounds()
        return junk + ["nan", "inf", "-inf", "1e300", "1e999", "-1", repr(high * 1.5 + 1),
                       repr(low - 0.5)]
    if kind == "true or false":
        return junk + ["True", "FALSE", "yes", "no", "1", "0", "on"]
    if kind == "one of":
        first = re.split(r"[ ,]+", key.values)[2]
        return junk + [first.upper(), first + " ", "1", "true", first + first]
    if kind == "true, false":
        return junk + ["maybe", "0", "1", "-2", "2.5", str(2**63)]
    return []


def wrong_tokens(key: Key) -> list[str]:
    """Values it cannot have in a file."""
    kind = key.kind()
    wrong = ["[1, 2]", "{}", "{ a = 1 }", "[]", "[[]]", "2026-01-01", "12:30:00"]
    wrong += [] if kind in ("true or false", "true, false") else ["true"]
    wrong += ["3"] if kind in ("text", "true or false", "one of") else []
    wrong += [] if kind == "a number" else ["2.5", "nan", "-inf"]
    wrong += [] if kind == "text" else ['"abc"', '""', "'''\nabc'''"]
    return wrong


def bad_value(draw: random.Random, keys: list[Key]) -> Fault:
    key = draw.choice([key for key in keys if key.kind() != "text"])
    word = draw.choice(wrong_words(key))
    words = [f"--{key.name}={word}"] if draw.random() < 0.5 else [f"--{key.name}", word]
    if word == "--":
        words = [f"--{key.name}=--"]
    return Fault(f"{key.name} = {word[:30]!r}", key.name, words)


def bad_token(draw: random.Random, keys: list[Key]) -> Fault:
    key = draw.choice(keys)
    token = draw.choice(wrong_tokens(key))
    section, name = key.name.split(".")
    text = (f"[{section}]\n{name} = {token}\n" if draw.random() < 0.6 else
            f"{section}.{name} = {token}\n" if draw.random() < 0.5 else
            f"{section} = {{ {name} = {token.replace(chr(10), '')} }}\n")
    return Fault(f"file: {text!r}", key.name, text=text, pipe=draw.random() < 0.3)


def misspelled(draw: random.Random, keys: list[Key]) -> Fault:
    key = draw.choice(keys).name
    at = draw.randrange(len(key))
    name = draw.choice([key[:at] + "q" + key[at + 1:], key + "s", key[:-1], "x" + key])
    if name.count(".") != 1 or name in {each.name for each in keys} or name.endswith("."):
        name = "model.hiden_size"
    if draw.random() < 0.5:
        return Fault(f"misspelled {name}", name, [f"--{name}", "1"])
    section, _, last = name.partition(".")
    return Fault(f"misspelled {name} in a file", name, text=f"[{section}]\n{last} = 1\n")


def section(draw: random.Random, keys: list[Key]) -> Fault:
    key = draw.choice(keys).name
    name, last = key.split(".")
    choice = draw.randrange(5)
    if choice == 0:
        return Fault(f"{name} as a value", name, text=f"{name} = 5\n")
    if choice == 1:
        return Fault(f"{key} as a section", key, text=f"[{key}]\nx = 5\n")
    if choice == 2:
        return Fault(f"[[{name}]]", name, text=f"[[{name}]]\n{last} = 1\n")
    if choice == 3:
        return Fault(f'"{key}" in quotes', key, text=f'"{key}" = 1\n[{name}]\n')
    return Fault(f"{key} twice", last, text=f"[{name}]\n{last} = 1\n{last} = 1\n")


def contradiction(draw: random.Random, keys: list[Key]) -> Fault:
    del keys
    n = draw.randrange(2, 40)
    sharded = ["--strategy", "fsdp", "--ranks"]
    return draw.choice([
        Fault("single with ranks", "parallel.ranks", ["--ranks", str(n)]),
        Fault("a short form and its key", "parallel.ranks",
              [*sharded, "2", "--parallel.ranks", "3"]),
        Fault("heads", "model.num_attention_heads",
              ["--model.hidden_size", str(2 * n), "--model.num_attention_heads", str(2 * n + 1)]),
        Fault("odd heads", "model.num_attention_heads",
              ["--model.hidden_size", "15", "--model.num_attention_heads", "3"]),
        Fault("key/value heads", "model.num_key_value_heads", ["--model.num_key_value_heads", "3"]),
        Fault("an odd head", "model.head_dim", ["--model.head_dim", "7"]),
        Fault("a factor below 1", "model.rope_factor",
              ["--model.rope_factor", f"0.{n}"]),
        Fault("no turns in between", "model.rope_high_freq_factor",
              ["--model.rope_factor", str(n), "--model.rope_high_freq_factor", "1"]),
        Fault("seq_len", "training.seq_len", ["--training.seq_len", str(128 + n)]),
        Fault("batch", "training.global_batch_size",
              ["--training.local_batch_size", str(n), "--training.global_batch_size", str(n + 1)]),
        Fault("group", "parallel.reshard_after_forward",
              [*sharded, "4", "--parallel.reshard_after_forward", str(3 + n)]),
        Fault("warm-up", "lr_scheduler.warmup_steps",
              ["--lr_scheduler.kind", draw.choice(["warmup_linear", "warmup_cosine", "warmup_log"]),
               "--training.steps", str(n), "--lr_scheduler.warmup_steps", str(n + 1)]),
        Fault("min_lr", "lr_scheduler.min_lr",
              ["--lr_scheduler.kind", "warmup_cosine", "--optimizer.lr", "0.001",
               "--lr_scheduler.min_lr", f"0.0{n}"]),
        Fault("interval without folder", "checkpoint.interval", ["--checkpoint.interval", str(n)]),
        Fault("resume without folder", "checkpoint.resume", ["--checkpoint.resume", "true"]),
        Fault("vocabulary", "model.vocab_size", ["--model.vocab_size", str(n)]),
        Fault("prompt", "sample.prompt", ["--sample.max_new_tokens", "3", "--sample.prompt", ""]),
        Fault("too little data", "training.seq_len",
              ["--model.max_position_embeddings", "1000000", "--training.seq_len", "900000",
               "--training.local_batch_size", "1", "--parallel.check_memory", "false"]),
        Fault("a value that is missing", "training.steps", ["--training.steps"]),
        Fault("a word too many", "cucumber", ["cucumber"]),
        Fault("no section", "steps", ["--steps", "3"]),
    ])


def absurd(draw: random.Random, keys: list[Key]) -> Fault:
    """Sizes that are in range, each, and fit no machine."""
    del keys
    big = draw.choice(["1000000000", "500000000", "123456790"])
    choice = draw.choice(["model.vocab_size", "model.intermediate_size",
                          "model.max_position_embeddings", "training.local_batch_size"])
    words = [f"--{choice}", big]
    if choice == "model.max_position_embeddings":
        words += ["--training.seq_len", "8", "--model.hidden_size", "4096"]
    if choice == "training.local_batch_size":
        words += ["--training.seq_len", "128"]
    if draw.random() < 0.5:
        words += ["--strategy", draw.choice(["ddp", "fsdp"]), "--ranks", draw.choice(["2", "64"])]
    return Fault(f"{choice} = {big}", "parallel.check_memory", words)


def no_file(draw: random.Random, keys: list[Key]) -> Fault:
    del keys
    option = draw.choice(["--config", "--data.path"])
    path = draw.choice(["/no/such/file", "/dev/zero", "/etc/passwd/x", "", "x" * 300] +
                       (["/", "/etc"] if option == "--config" else []))
    name = option.lstrip("-") if path == "" else path
    return Fault(f"{option} {path[:20]}", name, [f"{option}={path}"])


def no_toml(draw: random.Random, keys: list[Key]) -> Fault:
    key = draw.choice(keys).name
    name, last = key.split(".")
    text = draw.choice(["", f"[{name}\n{last} = 1\n", f"[{name}]\n{last} = \n", f"{last}\n",
                        f"[{name}]\n{last} = 1 2\n", "\x00\x01\x02", "[" * 5000,
                        "a = " + "[" * 3000,
                        f"[{name}]\n{last} = \"abc\n", f"{{\"{name}\": 1}}", "\ufeff[[[\n"])
    return Fault(f"no TOML: {text[:30]!r}", "run.toml", text=text)


KINDS = {bad_value: 10, bad_token: 8, misspelled: 4, section: 3, contradiction: 6, absurd: 3,
         no_file: 2, no_toml: 2}


# ------------------------------------------------------------------------------- the trial

def good_words(draw: random.Random, fault: Fault) -> list[str]:
    """Right settings around the fault, which must not be blamed."""
    right = ["--data.format=text", "--optimizer.name=adamw", "--sample.prompt=a b",
             "--training.max_norm=0.5", "--training.seed=7", "--model.rms_norm_eps=1e-6"]
    used = " ".join(fault.words) + (fault.text or "")
    # A right value on the command line beats a wrong one in the file.
    return [word for word in right if draw.random() < 0.4
            and word.split("=")[0].split(".")[1] not in used]


def complaints(fault: Fault, done: subprocess.CompletedProcess) -> list[str]:
    wrong = []
    err = done.stderr
    if done.returncode != WRONG_INPUT:
        wrong.append(f"exit code {done.returncode}")
    if not err.startswith("unshard-train: "):
        wrong.append("does not begin with the program")
    if fault.names not in err:
        wrong.append(f"does not name {fault.names}")
    if len(err.strip().splitlines()) != 1:
        wrong.append(f"{len(err.strip().splitlines())} lines")
    if found := JARGON.search(err.replace(fault.names, "")):
        wrong.append(f"jargon: {found.group()}")
    if re.search("^step ", done.stdout, re.MULTILINE):
        wrong.append("trained")
    return wrong


def limit_cpu() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def attempt(program: Path, fault: Fault, words: list[str], folder: Path):
    arguments = [*words, *fault.words]
    if fault.text is not None:
        file = folder / "run.toml"
        file.write_bytes(fault.text.encode("utf-8", "surrogateescape"))
        arguments += ["--config", "/dev/stdin" if fault.pipe else str(file)]
    arguments = [word.replace("\0", "") for word in arguments]
    if not any(word.startswith("--data.path") for word in arguments):
        if fault.names != "data.path":
            arguments += ["--data.path", str(folder / "data.txt")]
    return subprocess.run([program, *arguments], capture_output=True, text=True, errors="replace",
                          input=fault.text if fault.pipe else "", preexec_fn=limit_cpu,
                          cwd=folder, check=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", nargs="?", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/bin/unshard-train")
    parser.add_argument("--verbose", action="store_true", help="print every sentence")
    options = parser.parse_args()
    program = options.program.resolve()
    draw = random.Random(options.seed)
    keys = keys_of(program)
    otherwise = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "data.txt").write_text("the cat sat on the mat. " * 40)
        for number in range(options.count):
            make = draw.choices(list(KINDS), weights=KINDS.values())[0]
            fault = make(draw, keys)
            done = attempt(program, fault, good_words(draw, fault), folder)
            wrong = complaints(fault, done)
            if wrong or options.verbose:
                print(f"{number}: {fault.what}: {'; '.join(wrong) or 'ok'}")
                print("   ", done.stderr.strip()[:300])
            otherwise += bool(wrong)
    print(f"tried {options.count}, as promised {options.count - otherwise}, otherwise {otherwise}")
    return 1 if otherwise else 0


if __name__ == "__main__":
    sys.exit(main())
