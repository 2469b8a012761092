"""unshard-estimate with ranks that are processes: what a user does and sees.

    estimating.py MPIRUN_SCRIPT MPIRUN PROGRAM

PROGRAM is unshard-estimate. What it measures is compared with ranks that are threads.
"""

import json
import subprocess

import jobs

REAL = "--memory_estimation.disable_fake_mode"
# How the numbers came to be, not what they are.
OUT_OF_PLACE = ("command", "resident_bytes", "settings", "origins", "savings")


class Estimating(jobs.JobTest):
    def setUp(self):
        super().setUp()
        self.file = self.folder / "nano.toml"
        self.file.write_text('[model]\npreset = "nano"\n[training]\nglobal_batch_size = 12\n'
                             "local_batch_size = 1\nseq_len = 8\n")

    def over_processes(self, ranks: int, *words: str) -> dict:
        # Its output alone: launchers have warnings of their own, on the other stream.
        done = subprocess.run(["sh", jobs.SCRIPT, jobs.MPIRUN, str(ranks), jobs.PROGRAM,
                               str(self.file), *words, "--format=json"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        self.assert_all_gone()
        self.assertEqual(done.returncode, 0, done.stderr)
        return self.comparable(json.loads(done.stdout))

    def over_threads(self, ranks: int, *words: str) -> dict:
        done = subprocess.run([jobs.PROGRAM, str(self.file), *words, f"--ranks={ranks}",
                               "--format=json"], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, check=True)
        return self.comparable(json.loads(done.stdout))

    def comparable(self, part):
        if isinstance(part, dict):
            return {key: self.comparable(value) for key, value in part.items()
                    if key not in OUT_OF_PLACE}
        return [self.comparable(each) for each in part] if isinstance(part, list) else part

    def test_processes_need_what_threads_need(self):
        for strategy, ranks in (("fsdp", 1), ("fsdp", 2), ("fsdp", 3), ("fsdp", 4), ("ddp", 3),
                                ("zero2", 2), ("single", 1)):
            with self.subTest(strategy=strategy, ranks=ranks):
                words = [REAL, f"--strategy={strategy}"]
                self.assertEqual(self.over_processes(ranks, *words),
                                 self.over_threads(ranks, *words))

    def test_what_is_said_is_said_once(self):
        code, said = self.run_job(3, str(self.file), "--strategy=fsdp")
        self.assertEqual(code, 0, said)
        self.assertEqual(said.count("rank 0 of 3"), 1, said)
        code, said = self.run_job(2, str(self.file), "--strategy=fsdp", REAL)
        self.assertEqual(code, 0, said)
        self.assertEqual(said.count("mode real: ranks are processes, with bytes"), 1, said)
        code, said = self.run_job(2, "--figures")
        self.assertEqual(code, 0, said)
        self.assertEqual(said.count("DeepSpeed notes: states of llama2-7b"), 1, said)

    def test_wrong_words_are_refused_once(self):
        for words, expected in (
                ((REAL, "--strategy=fsdp", "--ranks=4"), "has started 3 processes"),
                ((REAL, "--strategy=fsdp", "--rank=1"), "the first speaks, of its own memory"),
                ((REAL, "--strategy=fsdp", "--nonsense=1"), "nonsense")):
            with self.subTest(words=words):
                code, said = self.run_job(3, str(self.file), *words)
                self.assertEqual(code, 2, said)
                self.assertEqual(said.count("unshard-estimate: "), 1, said)
                self.assertIn(expected, said)

    def test_memory_that_runs_out_ends_all_processes(self):
        code, said = self.run_job(2, str(self.file), "--strategy=fsdp", REAL, "--memory=380kB")
        self.assertEqual(code, 1, said)
        self.assertIn("verdict    does NOT fit", said)
        # What is to be pasted starts as many processes.
        self.assertIn(f"to fit     {jobs.COMMAND} 2 unshard-estimate {self.file}", said)
        self.assertNotIn("--parallel.ranks 4", said)


if __name__ == "__main__":
    jobs.main()
