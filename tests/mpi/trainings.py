"""Short trainings of unshard-train, over processes or threads, as tests compare them."""

import json
import subprocess
from collections.abc import Sequence

import jobs

STEPS = 6
# Eight micro-batches: their sum has the same bits for 1, 2 and 4 ranks.
SMALL = ["--model.preset=nano", "--model.vocab_size=128", "--training.seq_len=8",
         "--training.local_batch_size=1", "--training.global_batch_size=8"]


class TrainingTest(jobs.JobTest):
    def setUp(self):
        super().setUp()
        text = self.folder / "text.txt"
        text.write_text("the cat sat on the mat and the dog sat on the log. " * 40)
        self.small = [*SMALL, f"--data.path={text}"]

    def checkpoints(self, name: str = "checkpoints") -> str:
        return f"--checkpoint.folder={self.folder / name}"

    def train(self, strategy: str, *words: str, processes: int = 0, threads: int = 1,
              program: Sequence[str] = (jobs.PROGRAM,)) -> dict:
        """What a short training came to."""
        summary = self.folder / "summary.json"
        summary.unlink(missing_ok=True)
        words = [*self.small, f"--training.steps={STEPS}", f"--strategy={strategy}", *words,
                 f"--summary={summary}"]
        if processes:
            code, said = self.run_job(processes, *words, program=program)
        else:
            done = subprocess.run([jobs.PROGRAM, *words, f"--ranks={threads}"],
                                  stdin=subprocess.DEVNULL, capture_output=True, text=True,
                                  check=False)
            code, said = done.returncode, done.stdout + done.stderr
        self.assertEqual(code, 0, said)
        self.said = said
        return json.loads(summary.read_text())["runs"][0]

    def interrupted(self, interrupt) -> int:
        """Trains for ever, and calls `interrupt` with the job when some checkpoints are there."""
        job = self.start(4, *self.small, "--training.steps=100000000", "--strategy=fsdp",
                         self.checkpoints(), "--checkpoint.interval=1")
        while "step         3/" not in (line := job.stdout.readline()):
            self.assertNotEqual(line, "", "it ended before step 3")
        interrupt(job)
        self.said, _ = job.communicate()
        self.assert_all_gone()
        return job.returncode

    def assert_checkpoint_loads(self):
        latest = (self.folder / "checkpoints" / "latest").read_text()
        step = int(latest.strip().removeprefix("step_"))
        self.assertGreaterEqual(step, 2)
        steps = f"--training.steps={step + 2}"
        resumed = self.train("fsdp", self.checkpoints(), steps, threads=2)
        self.assertEqual(resumed["param_sha256"], self.train("single", steps)["param_sha256"])
