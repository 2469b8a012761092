#!/usr/bin/env python3
"""Makes a token file for unshard-train out of text files.

    tokenize_text.py --tokenizer SmolLM2-135M --output tokens.bin chapter1.txt chapter2.txt …

Every text file, in UTF-8, is one document, and an end-of-text token follows each. The layout is
that of apps/train/token_file.h: tokens of 16 bits if the whole vocabulary fits, and else of 32. The
last bytes of the header are a mark of who made the file; llm.c, whose layout it is, does not read
them.

The tokenizer is that of a Hugging Face model: its folder, or its tokenizer.json. Reading it takes
the Python package `tokenizers` or, for a folder without tokenizer.json, `transformers`.

Exit codes: 0 done, 2 wrong input.
"""

# It is not named tokenize.py: in this folder, that would hide Python's own module of the name.

from __future__ import annotations

import argparse
import array
import json
import struct
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

HEADER_BYTES = 1024
MARK = b"made by unshard"  # as in common/io/output_file.h
MOST_TOKENS = 2**31 - 1  # the header counts them in an int32
# Names of end-of-text tokens, if the tokenizer does not say which is its own.
KNOWN_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>")


class InputError(Exception):
    """Names the file and the remedy."""


@dataclass(frozen=True)
class Layout:
    magic: int
    version: int
    typecode: str  # of array.array
    token_bytes: int


NARROW = Layout(20240520, 1, "H", 2)
WIDE = Layout(20240801, 7, "I", 4)


@dataclass(frozen=True)
class Tokenizer:
    """What is needed of a tokenizer."""

    encode: Callable[[str], list[int]]  # without special tokens of its own
    vocabulary: int  # its largest token + 1
    end_of_text: int

    @property
    def layout(self) -> Layout:
        return NARROW if self.vocabulary <= 2**16 else WIDE


def missing(package: str, why: str) -> InputError:
    return InputError(f"the Python package {package} is not installed, and {why}; install it with: "
                      f"{sys.executable} -m pip install {package}")


def end_of(config: Path) -> str | None:
    """The end-of-text token that a tokenizer_config.json names."""
    try:
        token = json.loads(config.read_text(encoding="utf-8")).get("eos_token")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, AttributeError) as error:
        raise InputError(f"{config}: cannot be read ({error}); copy it again") from error
    return token.get("content") if isinstance(token, dict) else token


def choose_end(vocabulary: dict[str, int], wanted: str | None, named: str | None,
               origin: Path) -> int:
    """The number of the token that ends a document: as wanted, as named, or a known one."""
    for token in (wanted,) if wanted is not None else (named, *KNOWN_ENDS):
        if token in vocabulary:
            return vocabulary[token]
    what = "does not name its end-of-text token" if wanted is None else f"has no token {wanted!r}"
    raise InputError(f"{origin}: {what}; give one of its tokens with --end-of-text")


def load_tokenizer(path: Path, end_of_text: str | None) -> Tokenizer:
    """The tokenizer of a model's folder, or of a tokenizer.json."""
    file = path / "tokenizer.json" if path.is_dir() else path
    if not path.exists():
        raise InputError(f"{path}: no such file or folder; give a model's folder, or its "
                         "tokenizer.json")
    if not file.exists():
        return load_slowly(path, end_of_text)
    try:
        import tokenizers
    except ImportError as error:
        raise missing("tokenizers", f"{file} takes it") from error
    try:
        found = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # it throws nothing more special
        raise InputError(f"{file}: is no tokenizer.json ({error}); give a model's folder, or its "
                         "tokenizer.json") from error
    found.no_truncation()
    found.no_padding()
    vocabulary = found.get_vocab(with_added_tokens=True)
    end = choose_end(vocabulary, end_of_text, end_of(file.parent / "tokenizer_config.json"), file)
    return Tokenizer(lambda text: found.encode(text, add_special_tokens=False).ids,
                     max(vocabulary.values()) + 1, end)


def load_slowly(folder: Path, end_of_text: str | None) -> Tokenizer:
    """The tokenizer of a folder that has it in another form."""
    try:
        import transformers
    except ImportError as error:
        raise missing("transformers", f"{folder} has no tokenizer.json") from error
    try:
        found = transformers.AutoTokenizer.from_pretrained(str(folder), local_files_only=True)
    except Exception as error:
        raise InputError(f"{folder}: holds no tokenizer that transformers reads ({error}); give "
                         "another folder") from error
    vocabulary = found.get_vocab()
    end = choose_end(vocabulary, end_of_text, found.eos_token, folder)
    return Tokenizer(lambda text: found.encode(text, add_special_tokens=False),
                     max(vocabulary.values()) + 1, end)


def check_is_ours(path: Path) -> None:
    """That a file is absent, empty, or one that this script wrote."""
    try:
        with path.open("rb") as file:
            header = file.read(HEADER_BYTES)
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"--output: {path}: {error.strerror}; give the name of a file") from error
    if header and MARK not in header:
        raise InputError(f"--output: {path}: exists, and this script did not write it; give "
                         "another name, or move it away")


def read_document(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; give a text file that you may read") from error
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: is not UTF-8 at byte {error.start}; convert it, for example "
                         "with iconv") from error


def header_of(layout: Layout, count: int) -> bytes:
    numbers = struct.pack("<3i", layout.magic, layout.version, count)
    return numbers + bytes(HEADER_BYTES - len(numbers) - len(MARK)) + MARK


def write_tokens(output: Path, tokenizer: Tokenizer, documents: Iterable[Path]) -> int:
    """Writes the file, which appears whole or not at all; returns the number of its tokens."""
    layout = tokenizer.layout
    check_is_ours(output)  # then it has a name: "." and "/" have none
    temporary = output.with_name(output.name + ".tmp")
    check_is_ours(temporary)
    count = 0
    try:
        with temporary.open("wb") as file:
            file.write(header_of(layout, 0))
            for document in documents:
                ids = [*tokenizer.encode(read_document(document)), tokenizer.end_of_text]
                tokens = array.array(layout.typecode, ids)
                if tokens.itemsize != layout.token_bytes:
                    raise InputError(f"this Python has no numbers of {layout.token_bytes} bytes")
                if sys.byteorder == "big":
                    tokens.byteswap()
                tokens.tofile(file)
                count += len(ids)
                if count > MOST_TOKENS:
                    raise InputError(f"{document}: with it there are more than {MOST_TOKENS} "
                                     "tokens, which a header cannot count; write several files")
            file.seek(0)
            file.write(header_of(layout, count))
        temporary.replace(output)
    except OSError as error:
        raise InputError(f"--output: {output}: {error.strerror}; give another place") from error
    finally:
        temporary.unlink(missing_ok=True)
    return count


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tokenizer", required=True, type=Path,
                        help="a Hugging Face model's folder, or its tokenizer.json")
    parser.add_argument("--output", required=True, type=Path, help="the token file to write")
    parser.add_argument("--end-of-text", help="the token after each document (default: the "
                        "tokenizer's eos_token)")
    parser.add_argument("documents", nargs="+", type=Path, help="text files in UTF-8")
    options = parser.parse_args(words)
    try:
        tokenizer = load_tokenizer(options.tokenizer, options.end_of_text)
        count = write_tokens(options.output, tokenizer, options.documents)
    except InputError as error:
        print(f"tokenize_text.py: {error}", file=sys.stderr)
        return 2
    print(f"{options.output}: {count} tokens of {tokenizer.layout.token_bytes} bytes from "
          f"{len(options.documents)} document(s), with a vocabulary of {tokenizer.vocabulary}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
