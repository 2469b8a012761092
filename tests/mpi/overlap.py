"""Overlap on a real and slow cable, as the trace of a real training shows it.

    overlap.py MPIRUN_SCRIPT MPIRUN PROGRAM

PROGRAM is unshard-train. It trains on two hosts, with one rank on each, and the cable between them
is slowed down until a gather takes about as long as a block computes. No time is compared with a
constant: only what came before what. Prints when each unit was gathered and when it computed, beside
what the virtual clock says of a link of this speed and of the same computing.
"""

import dataclasses
import shutil
import subprocess

import pictures
import two_hosts

RATE = 160  # Mbit/s
# Of 1514 bytes on the cable, 1448 are ours; the rest are headers.
PICOSECONDS_PER_BYTE = 8e6 / RATE * 1514 / 1448
SLOW = ["root", "tbf", "rate", f"{RATE}mbit", "burst", "16kb", "latency", "400ms"]
WORDS = ["--model.preset=tiny", "--model.num_hidden_layers=6", "--model.vocab_size=256",
         "--training.seq_len=128", "--training.local_batch_size=24",
         "--training.global_batch_size=48", "--training.steps=3"]


def why_not() -> str:
    """Why this machine cannot have a slow cable between two hosts; "" if it can."""
    if reason := two_hosts.why_not():
        return reason
    if not shutil.which("tc"):
        return "there is no program tc"
    try:
        with two_hosts.namespace() as name:
            two_hosts.ip("-n", name, "link", "add", "dev", "try", "type", "veth")
            slow_down(name, "try")
    except subprocess.CalledProcessError:
        return "this kernel has no token bucket filter (sch_tbf)"
    return ""


def slow_down(host: str, device: str) -> None:
    subprocess.run(["tc", "-n", host, "qdisc", "add", "dev", device, *SLOW], check=True,
                   capture_output=True)


@dataclasses.dataclass
class Step:
    """A unit's part in forward or backward, in ms; of the gather None if it needed none."""
    unit: str
    issued: float | None = None
    done: float | None = None
    begin: float = 0
    end: float = 0

    def gather_overlaps(self, other: "Step") -> bool:
        return self.issued < other.end and self.done > other.begin


Phases = dict[str, list[Step]]


def measured(data: dict, rank: dict) -> Phases:
    """Forward and backward as they were."""
    phases: Phases = {"forward": [], "backward": []}
    gathers = {}
    for _, activity, unit, _, end, _, _, phase, issued, *_ in rank["spans"]:
        if data["activities"][activity]["name"] == "gather":
            gathers[unit, phase] = (issued / 1e9, end / 1e9)
    for _, activity, unit, begin, end, *_ in rank["spans"]:
        name = data["activities"][activity]["name"]
        if name in phases:
            issued, done = gathers.get((unit, name), (None, None))
            phases[name].append(Step(data["units"][unit], issued, done, begin / 1e9, end / 1e9))
    return phases


def on_virtual_clock(data: dict, rank: dict) -> Phases:
    """The same events in the same order, and the same computing; but waiting lasts as long as the
    virtual clock (common/base/clock.h) says."""
    steps: dict[tuple, Step] = {}
    open_calls: dict[tuple, list[float]] = {}
    now = free = last = 0.0
    for time, unit, kind, name, phase, nbytes, duration in rank["events"]:
        computed = time - last - (duration if kind == "wait" else 0)
        last = time
        now += max(0.0, computed)
        call = (unit, name, phase)
        if kind == "issue":
            free = max(now, free) + nbytes * PICOSECONDS_PER_BYTE
            open_calls.setdefault(call, []).append(free)
            if name == "all_gather" and phase in ("forward", "backward"):
                step = steps.setdefault((phase, unit), Step(data["units"][unit]))
                step.issued, step.done = now / 1e9, free / 1e9
        elif kind == "wait":
            now = max(now, open_calls[call].pop(0))
        elif kind.endswith(("_begin", "_end")):
            phase, edge = kind.split("_")
            step = steps.setdefault((phase, unit), Step(data["units"][unit]))
            setattr(step, edge, now / 1e9)
    phases: Phases = {"forward": [], "backward": []}
    for (phase, _), step in sorted(steps.items(), key=lambda item: item[1].begin):
        phases[phase].append(step)
    return phases


def print_table(title: str, real: Phases, clock: Phases) -> None:
    def cells(step: Step) -> str:
        return " ".join(f"{'-' if time is None else f'{time:.1f}':>7}"
                        for time in (step.issued, step.done, step.begin, step.end))

    head = " ".join(f"{word:>7}" for word in ("issued", "done", "begins", "ends"))
    print(f"\n{title} (ms)\n{'':28} {'real':^31} | {'virtual clock':^31}\n{'':28} {head} | {head}")
    for phase, steps in real.items():
        for step, expected in zip(steps, clock[phase]):
            print(f"{phase:8} {step.unit:19} {cells(step)} | {cells(expected)}")
    print(f"{'':28} forward and backward took {length(real):.1f}, on the virtual clock "
          f"{length(clock):.1f}")


def length(phases: Phases) -> float:
    return phases["backward"][-1].end - phases["forward"][0].issued


class Overlap(two_hosts.TwoHostsTest):
    slots = 1

    def setUp(self):
        super().setUp()
        for host in self.hosts:
            slow_down(host, two_hosts.CABLE)
        # By default Open MPI sends a long message only when its receiver has answered. On a slow
        # cable the answer queues behind data, so that the two directions take turns.
        self.environment |= {"OMPI_MCA_btl_tcp_eager_limit": "1048576",
                             "OMPI_MCA_btl_tcp_rndv_eager_limit": "1048576"}

    def recorded(self, depth: int) -> tuple[dict, str]:
        """What was drawn of a training with this prefetch depth, and what came out of it."""
        folder = self.folder / f"depth_{depth}"
        summary = self.train("fsdp", *WORDS, f"--parallel.prefetch_depth={depth}",
                             f"--picture={folder}", processes=2)
        return pictures.data_of(folder), summary["param_sha256"]

    def test_a_gather_overlaps_the_unit_before_it_if_there_is_prefetching(self):
        fingerprints = set()
        for depth in (0, 1):
            data, fingerprint = self.recorded(depth)
            fingerprints.add(fingerprint)
            self.assertEqual(len(data["ranks"]), 2)
            for rank in data["ranks"]:
                phases = measured(data, rank)
                if rank["rank"] == 0:
                    print_table(f"prefetch depth {depth}", phases, on_virtual_clock(data, rank))
                for phase, steps in phases.items():
                    self.assertEqual(len(steps), 8)  # six blocks, and what is around them
                    pairs = [(before, after) for before, after in zip(steps, steps[1:])
                             if after.issued is not None]
                    self.assertGreaterEqual(len(pairs), 6)
                    overlapping = sum(after.gather_overlaps(before) for before, after in pairs)
                    with self.subTest(depth=depth, rank=rank["rank"], phase=phase):
                        if depth == 0:
                            self.assertEqual(overlapping, 0)
                        else:
                            self.assertGreater(overlapping, len(pairs) / 2)
        self.assertEqual(len(fingerprints), 1)


if __name__ == "__main__":
    two_hosts.main(why_not())
