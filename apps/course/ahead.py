"""Compiles the tasks of a submission in a process of its own, while the tasks before are judged.

Not a thread: a jail forks, and so must its process have one thread only. What is compiled, in which
jail and with which limits, is the same; it only comes earlier.
"""

from __future__ import annotations

import multiprocessing
import os
from multiprocessing.connection import Connection

import ending
import machine
import manifest
from build_submission import BuildError, Built, SubmissionBuilder, salt_of

Wanted = list[tuple[manifest.Task, dict[str, bytes]]]  # tasks, in order, and their files by name

NEEDS_BYTES = 2 << 30  # a compiler beside a run, with room to spare; what does not fit waits


def pays() -> bool:
    """Whether this machine has a processor and memory left for it."""
    return machine.processors() >= 2 and machine.memory() >= NEEDS_BYTES


class Ahead:
    """A SubmissionBuilder that has begun with `wanted`, and is asked for it in this order."""

    def __init__(self, tools: SubmissionBuilder, wanted: Wanted) -> None:
        self._tools = tools
        context = multiprocessing.get_context("fork")
        self._built, theirs = context.Pipe(duplex=False)
        self._process = context.Process(target=_build, args=(tools, wanted, theirs, os.getpid()),
                                        daemon=True)
        self._process.start()
        theirs.close()

    def build_task(self, task: manifest.Task, files: dict[str, bytes]) -> Built:
        self._tools.staging.salts[task.number] = salt_of(task, files)
        try:
            built = self._built.recv()
        except EOFError:
            raise BuildError("the process that compiles has ended early") from None
        if isinstance(built, Exception):
            raise built
        return built

    def end(self) -> None:
        """Whether or not all of it was asked for. What runs in a jail ends with it, or is swept."""
        self._process.terminate()
        self._process.join()
        self._built.close()


def _build(tools: SubmissionBuilder, wanted: Wanted, result: Connection, parent: int) -> None:
    ending.in_order()
    try:
        ending.with_parent(parent)
        for task, files in wanted:
            result.send(tools.build_task(task, files))
    except Exception as error:  # pylint: disable=broad-except  # raised again where it is asked for
        result.send(error)
    except KeyboardInterrupt:
        pass
