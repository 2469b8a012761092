#!/usr/bin/env python3
"""Changes files of every format that is read, as trees: none may crash a program or load as another.

    python3 tests/faults/formats.py [COUNT] [--seed N]

COUNT (500) times, one file of a good model, checkpoint or configuration is changed: a member of its
JSON is taken out, given twice, renamed, moved, or replaced by something of another kind, size or
depth; a file is cut, or another kind of thing stands in its place (a pipe, a folder, a device, a
socket). Then unshard-train starts from it. It must end with exit code 2 and a sentence that names
the file, or the change must make no difference to what is trained. At the end: "tried N, as
promised N, otherwise N".
"""

import argparse
import json
import os
import pathlib
import random
import shutil
import socket
import tempfile

import trials

# No format gives these a meaning.
JUNK = [None, True, -1, 0, 1, 2**31, 2**63, -(2**63), 1e9, 0.5, 1e308, "", "x", "\0", "\x1b[2J",
        "\u202e", "x" * 1_000_000, [], {}, [[]], [1, 2, 3], {"a": {"b": 1}}, [0] * 100_000]
NAMES = ["", "\0", "a\0b", "\x1b[2J", "x" * 1_000_000, "../x", "__metadata__", "\u202e"]
RAW_JUNK = ["1e999", "NaN", "-", "\x00", "[" * 100_000, "[" * 70 + "]" * 70,
            '{"x":' * 70 + "1" + "}" * 70, '"\\ud800"', "'x'", "// x"]
MARK = "@@HERE@@"


def containers(tree) -> list:
    found = [tree] if isinstance(tree, dict | list) and tree else []
    for each in (tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else []):
        found += containers(each)
    return found


def changed(text: str, draw: random.Random) -> tuple[str, str]:
    """What was done to a JSON text, and what it is then."""
    tree = json.loads(text)
    place = draw.choice(containers(tree))
    key = draw.choice(list(place) if isinstance(place, dict) else range(len(place)))
    what = draw.randrange(6)
    if what == 0:
        del place[key]
        return f"without {key}", json.dumps(tree)
    if what == 1 and isinstance(place, dict):
        name = draw.choice(NAMES)
        place[name] = place.pop(key)
        return f"{key} is called {name[:20]!r}", json.dumps(tree)
    if what == 2 and isinstance(place, dict):
        value = json.dumps(place[key])
        place[key] = MARK
        twice = f"{value}, {json.dumps(key)}: {value}"
        return f"{key} twice", json.dumps(tree).replace(f'"{MARK}"', twice)
    if what == 3:
        place[key] = MARK
        raw = draw.choice(RAW_JUNK)
        return f"{key} is {raw[:20]}", json.dumps(tree).replace(f'"{MARK}"', raw)
    if what == 4:
        other = draw.choice(containers(tree))
        place[key] = json.loads(json.dumps(other))
        return f"{key} is another part", json.dumps(tree)
    value = draw.choice(JUNK)
    place[key] = value
    return f"{key} is {str(value)[:20]!r}", json.dumps(tree)


def change_header(data: bytes, draw: random.Random) -> tuple[str, bytes]:
    """The same for a safetensors file."""
    end = 8 + int.from_bytes(data[:8], "little")
    what, text = changed(data[8:end].decode(), draw)
    header = text.encode()
    return what, len(header).to_bytes(8, "little") + header + data[end:]


def put_in_place(file: pathlib.Path, draw: random.Random) -> str:
    kind = draw.choice(["a pipe", "a folder", "/dev/zero", "/dev/full", "a socket", "a loop", "cut"])
    data = file.read_bytes()
    file.unlink()
    if kind == "a pipe":
        os.mkfifo(file)
    elif kind == "a folder":
        file.mkdir()
    elif kind == "a socket":
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(str(file))
    elif kind == "a loop":
        file.symlink_to(file.name)
    elif kind == "cut":
        file.write_bytes(data[:draw.randrange(len(data))])
    else:
        file.symlink_to(kind)
    return f"is {kind}"


def change(file: pathlib.Path, draw: random.Random) -> str:
    if draw.random() < 0.15:
        return put_in_place(file, draw)
    data = file.read_bytes()
    if file.suffix == ".safetensors":
        what, data = change_header(data, draw)
    elif file.suffix in (".json", ".index"):
        what, text = changed(data.decode(), draw)
        data = text.encode()
    else:  # tokens: the header counts
        at = draw.randrange(min(len(data), 1024))
        data = data[:at] + draw.randbytes(4) + data[at + 4:]
        what = f"other bytes at {at}"
    file.write_bytes(data)
    return what


TOKENIZER = {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 2, "content": "<s>"}],
             "decoder": {"type": "Sequence", "decoders": [
                 {"type": "Replace", "pattern": {"String": "a"}, "content": "b"},
                 {"type": "ByteFallback"}, {"type": "Fuse"},
                 {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}}
DEEPSPEED = {"train_batch_size": 4, "train_micro_batch_size_per_gpu": 1,
             "gradient_clipping": 1.0, "zero_optimization": {"stage": 0},
             "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.999]}}}


def make_good(folder: pathlib.Path) -> None:
    arguments = trials.arguments(folder, 1)
    saved = trials.run([*arguments, "--training.steps=2", "--export.max_shard_size=4000",
                        "--lr_scheduler.total_steps=12"])
    assert saved.returncode == 0, saved.stderr
    (folder / "model").rename(folder / "base")  # an export replaces nothing of another program
    (folder / "base" / "tokenizer.json").write_text(json.dumps(TOKENIZER), encoding="utf-8")
    (folder / "ds.json").write_text(json.dumps(DEEPSPEED), encoding="utf-8")
    tokens = bytes(range(100)) * 10
    header = [20240520, 1, len(tokens)] + [0] * 253
    (folder / "tokens.bin").write_bytes(b"".join(n.to_bytes(4, "little") for n in header)
                                        + b"".join(bytes([n, 0]) for n in tokens))


def command(folder: pathlib.Path, file: pathlib.Path) -> list[str]:
    """A training of one more step that reads the file."""
    base = [str(trials.PROGRAM.resolve()), "--training.local_batch_size=1",
            f"--summary={folder / 'summary.json'}", "--training.steps=1"]
    tokens = [f"--data.path={folder / 'tokens.bin'}"]
    if "step_" in str(file):
        return [*trials.arguments(folder, 1), "--training.steps=3", "--lr_scheduler.total_steps=12"]
    if file.name == "ds.json":
        return [*base, "--model.preset=nano", "--model.vocab_size=128", *tokens,
                f"--deepspeed={file}"]
    return [*base, f"--model.from={folder / 'base'}", *tokens, "--sample.max_new_tokens=3"]


def main() -> None:
    parser = argparse.ArgumentParser(description="changes files of every format that is read")
    parser.add_argument("count", nargs="?", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    draw = random.Random(given.seed)
    tally = trials.Tally()
    with tempfile.TemporaryDirectory() as home:
        good = pathlib.Path(home) / "good"
        good.mkdir()
        make_good(good)
        names = [file.relative_to(good) for file in sorted(good.rglob("*"))
                 if file.suffix in (".json", ".safetensors", ".bin")
                 and file.name != "summary.json" and file.parent.name != "step_1"]
        expected = {}
        for name in names:
            trial = shutil.copytree(good, pathlib.Path(home) / "whole")
            code, fault = trials.ending(command(trial, trial / name))
            assert code == 0 and not fault, (name, fault)
            expected[name] = trials.fingerprint(trial)
            shutil.rmtree(trial)
        for _ in range(given.count):
            name = draw.choice(names)
            trial = shutil.copytree(good, pathlib.Path(home) / "changed")
            what = change(trial / name, draw)
            code, fault = trials.ending(command(trial, trial / name))
            # What is trained may depend on a configuration, but not on how weights are stored.
            is_weights = name.suffix == ".safetensors" or name.name.endswith("index.json")
            if code == 0 and is_weights and trials.fingerprint(trial) != expected[name]:
                fault = "loaded as something else"
            tally.add(f"{name}: {what}", fault)
            shutil.rmtree(trial)
    tally.finish()


if __name__ == "__main__":
    main()
