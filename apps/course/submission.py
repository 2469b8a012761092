"""The files that belong to the student: starting a task again, and packing what is handed in."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from pathlib import Path

import answers
import audit
import builder
import history
import loop
import manifest
import questions
import race
import regions
import results
import terminal
import unpack
import verdicts
import whole_file

ARCHIVE = Path("build") / "submission.tar.gz"
FRESH = Path("build") / "grade" / "submit"  # where the archive is unpacked and built
_NOT_BEGUN = "not begun"
KIT_SKELETONS = Path("apps") / "course" / "skeletons"  # a student kit has no solutions


class SubmissionError(Exception):
    """Nothing was changed or packed; the text says why."""


def skeleton_of(root: Path, task: manifest.Task, name: str) -> str:
    """A task's file as it was handed out: generated, or in a kit the copy that came with it."""
    solution = root / "solutions" / task.folder / name
    if solution.is_file():
        return regions.skeleton(regions.read(solution, root))
    copy = root / KIT_SKELETONS / task.folder / name
    if copy.is_file():
        return copy.read_text(encoding="utf-8")
    raise SubmissionError(f"neither solutions/{task.folder}/{name} nor "
                          f"{KIT_SKELETONS}/{task.folder}/{name} is here to start again from")


def reset(root: Path, task: manifest.Task) -> list[str]:
    """Keeps the task's files beside themselves, and starts them again."""
    fresh = {name: skeleton_of(root, task, name) for name in task.files}
    told = []
    for name, text in fresh.items():
        path = root / "tasks" / task.folder / name
        shown = path.relative_to(root)
        if path.is_file() and path.read_bytes() == text.encode():
            told.append(f"{shown}: is as it was handed out")
            continue
        if path.exists() or path.is_symlink():
            number = 1
            while (kept := path.with_name(f"{name}.kept-{number}")).exists():
                number += 1
            os.rename(path, kept)
            told.append(f"{shown}: your file is kept as {kept.relative_to(root)}")
        whole_file.write(path, text)
        told.append(f"{shown}: as it was handed out")
    return told


def collect(root: Path, course: manifest.Manifest) -> dict[str, bytes]:
    """What is handed in, by path. Refuses what would be refused there."""
    found: dict[str, bytes] = {}
    optional = {*(task.folder for task in course.optional), Path(unpack.POLICY).parent.name}
    for name in unpack.wanted_paths(course):
        path = root / name
        try:
            kind = path.lstat()
        except FileNotFoundError:
            if not name.endswith("answers.toml") and Path(name).parts[1] not in optional:
                raise SubmissionError(f"{name}: missing. make reset-{Path(name).parts[1][:5]} "
                                      "brings the skeleton back") from None
            continue
        if not stat.S_ISREG(kind.st_mode):
            raise SubmissionError(f"{name}: not a regular file. Put the file itself there")
        if kind.st_size > unpack.MOST_BYTES:
            raise SubmissionError(f"{name}: {kind.st_size} bytes, more than {unpack.MOST_BYTES}")
        found[name] = path.read_bytes()
    return found


def pack(files: dict[str, bytes]) -> bytes:
    """A .tar.gz of regular files; equal files give equal bytes."""
    buffer = io.BytesIO()
    with gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0, filename="") as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def submit(root: Path, course: manifest.Manifest, tools: builder.Builder) -> int:
    """Checks, packs, unpacks again, scores what came out, and only then writes the archive."""
    data = pack(collect(root, course))
    found = unpack.unpack_archive(data, unpack.wanted_paths(course))
    fresh = root / FRESH
    builder.remove_tree(fresh)
    for name, content in found.files.items():
        (fresh / name).parent.mkdir(parents=True, exist_ok=True)
        (fresh / name).write_bytes(content)
    print(f"{len(found.files)} files, {len(data)} bytes packed. Now each task is compiled and judged "
          "from a fresh unpack. On two cores that takes half a minute, when all is built.\n",
          flush=True)
    total = 0
    for task in course.tasks:
        points, note = _score(root, task, tools, fresh)
        total += 0 if task.extra else points
        score = f"{points:>2}/{task.public:<2}"
        note = f"extra credit: {note or 'done'}" if task.extra else note
        print(f"  task {task.number}  {task.title:<18}  {score}  {note}".rstrip(), flush=True)
        if task.extra and note.endswith(_NOT_BEGUN):
            continue
        for problem in _answer_problems(fresh, task):
            terminal.say(f"          {problem}")
    public = sum(task.public for task in course.required)
    print(f"\npublic {total}/{public}; the other {manifest.TOTAL - public} points (hidden cases, "
          "accounting questions) are graded on submission")
    if missing := answers.overview(root, course):
        terminal.say(missing)
    print(f"all together (no points): {history.integrated(root, course)[1]}")
    if policy := found.files.get(unpack.POLICY):
        print(f"the race (no points): your policy is packed, named '{race.pseudonym(policy)}'")
    whole_file.write(root / ARCHIVE, data)
    print(f"Hand in: {ARCHIVE}")
    return 0


def _answer_problems(fresh: Path, task: manifest.Task) -> list[str]:
    name = f"tasks/{task.folder}/answers.toml"
    if not (fresh / name).is_file():
        return [f"{name}: missing, so the accounting questions get no points"]
    problems = questions.check(fresh / name, task.number)
    count = answers.unanswered(fresh, task)
    return [*problems, *([f"accounting questions: {count} of {task.questions} not answered"]
                         if count else [])]


def _score(root: Path, task: manifest.Task, tools: builder.Builder,
           fresh: Path) -> tuple[int, str]:
    """The public points of an unpacked task, and a word about it."""
    given = [skeleton_of(root, task, name).encode() for name in task.files]
    folder = fresh / "tasks" / task.folder
    present = [path.read_bytes() for name in task.files if (path := folder / name).is_file()]
    if present == given or not present:
        return 0, _NOT_BEGUN
    if missing := [name for name in task.files if not (folder / name).is_file()]:
        return 0, f"{missing[0]} is missing"
    target = runner_target(tools, task)
    try:
        tools.make(target, f"judge_task{task.number}", show=False, tell=True)
        runner = tools.runner(target, task.folder, {name: folder / name for name in task.files},
                              fresh / f"task{task.number}")
    except builder.BuildError as error:
        return 0, f"does not build:\n{error}"
    findings = [finding for name in task.files for finding in audit.audit_object(
        fresh / f"task{task.number}" / f"{name}.o", task, tools.build)]
    if findings:
        return 0, f"is not accepted by the audit:\n{audit.shown(findings)}"
    cases = verdicts.run_side_by_side(tools.program(f"judge_task{task.number}"), runner,
                                      verdicts.PUBLIC, tools.jobs, on_wait=loop.still_running)
    history.store(root, task, history.digest_of(fresh, task), cases)
    found = verdicts.judge_steps(task, cases)
    open_steps = [f"{v.step.id} {results.state_of(v)}" for v in found if v.state != "passed"]
    return sum(verdict.public for verdict in found), ", ".join(open_steps)


def runner_target(tools: builder.Builder, task: manifest.Task) -> str:
    """Which runner's link line serves: the reference's, or in a kit the student's own."""
    has_solution = (tools.root / "solutions" / task.folder / task.files[0]).is_file()
    return f"runner_task{task.number}" + ("_solution" if has_solution else "")
