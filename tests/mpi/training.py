"""unshard-train with ranks that are processes: what a user does and sees.

    training.py MPIRUN_SCRIPT MPIRUN PROGRAM

PROGRAM is unshard-train. What it trains is compared with ranks that are threads.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess

import jobs
import pictures
import trainings


class Training(trainings.TrainingTest):
    def refused(self, processes: int, *words: str) -> str:
        """What is said of words that are wrong, which is said once."""
        code, said = self.run_job(processes, *self.small, *words)
        self.assertEqual(code, 2, said)
        self.assertEqual(said.count("unshard-train: "), 1, said)
        return said

    def test_processes_train_what_threads_train(self):
        batch = "--training.global_batch_size=12"  # which 3 divides too
        several = [(strategy, ranks) for strategy in ("ddp", "fsdp") for ranks in (1, 2, 3, 4)]
        for strategy, ranks in (*several, ("zero1", 3), ("zero2", 2)):
            with self.subTest(strategy=strategy, ranks=ranks):
                threads = self.train(strategy, batch, threads=ranks)
                processes = self.train(strategy, batch, processes=ranks)
                for key in ("losses", "param_sha256", "comm_bytes", "world_size"):
                    self.assertEqual(processes[key], threads[key])
                # Process 0 alone has said so.
                self.assertEqual(self.said.count("parameters sha256"), 1, self.said)

    def test_processes_train_the_same_if_they_compare_no_calls(self):
        batch = "--training.global_batch_size=12"
        for strategy, ranks in (("fsdp", 3), ("zero2", 4)):
            with self.subTest(strategy=strategy, ranks=ranks):
                self.environment["FSDP_MPI_UNCHECKED"] = "0"
                checked = self.train(strategy, batch, processes=ranks)
                self.environment["FSDP_MPI_UNCHECKED"] = "1"
                unchecked = self.train(strategy, batch, processes=ranks)
                for key in ("losses", "param_sha256", "comm_bytes", "world_size"):
                    self.assertEqual(unchecked[key], checked[key])

    def test_processes_evaluate_what_threads_evaluate(self):
        batch = "--training.global_batch_size=12"
        other = self.folder / "other.txt"
        other.write_text("the dog sat on the cat. " * 9)  # 26 windows
        during = [f"--data.validation={other}", "--training.eval_every=4"]
        trained = self.train("fsdp", batch, *during, self.checkpoints(), processes=4)
        last = trained["validation"][-1]
        self.assertEqual([each["step"] for each in trained["validation"]], [4, trainings.STEPS])
        threads = self.train("fsdp", batch, *during, threads=4)
        self.assertEqual(trained["validation"], threads["validation"])
        summary = self.folder / "evaluation.json"
        several = [(strategy, ranks) for strategy in ("ddp", "fsdp") for ranks in (1, 3, 4)]
        for strategy, ranks in (("single", 1), *several):
            with self.subTest(strategy=strategy, ranks=ranks):
                code, said = self.run_job(ranks, *self.small, f"--strategy={strategy}",
                                          self.checkpoints(), f"--eval={other}",
                                          f"--summary={summary}")
                self.assertEqual(code, 0, said)
                self.assertEqual(said.count("perplexity"), 1, said)
                found = json.loads(summary.read_text())["evaluation"]
                self.assertEqual({key: found[key] for key in last}, last)
                self.assertEqual(found["windows"], 26)
        self.assertIn("--eval: there is no model", self.refused(3, "--strategy=fsdp",
                                                                f"--eval={other}"))

    def test_a_checkpoint_serves_every_kind_of_rank(self):
        half = f"--training.steps={trainings.STEPS // 2}"
        processes, threads = "processes", "threads"
        for number, ((first, before), (then, after)) in enumerate([
                ((processes, 4), (threads, 2)), ((threads, 2), (processes, 4)),
                ((processes, 4), (processes, 2)), ((processes, 2), (processes, 4)),
                ((processes, 3), (threads, 3)), ((threads, 3), (processes, 3))]):
            with self.subTest(first=first, before=before, then=then, after=after):
                batch = f"--training.global_batch_size={12 if before == 3 else 8}"
                folder = self.checkpoints(f"checkpoints_{number}")
                self.train("fsdp", half, batch, folder, **{first: before})
                resumed = self.train("fsdp", batch, folder, **{then: after})
                self.assertEqual(len(resumed["losses"]), trainings.STEPS - trainings.STEPS // 2)
                whole = self.train("fsdp", batch, threads=before)
                self.assertEqual(resumed["param_sha256"], whole["param_sha256"])

    def test_a_checkpoint_of_zero_serves_every_kind_of_rank(self):
        half = f"--training.steps={trainings.STEPS // 2}"
        whole = self.train("single")
        for number, (first, then) in enumerate([
                (("zero2", {"processes": 4}), ("fsdp", {"threads": 2})),
                (("fsdp", {"threads": 2}), ("zero1", {"processes": 4}))]):
            with self.subTest(first=first, then=then):
                folder = self.checkpoints(f"checkpoints_{number}")
                self.train(first[0], half, folder, **first[1])
                resumed = self.train(then[0], folder, **then[1])
                self.assertEqual(resumed["param_sha256"], whole["param_sha256"])

    def send_to_one_rank(self, number: int, rank: int = 2):
        of_ranks = jobs.ranks(str(self.folder))
        self.assertEqual(sorted(of_ranks), [0, 1, 2, 3])
        os.kill(of_ranks[rank], number)

    def test_a_killed_rank_leaves_a_checkpoint_that_loads(self):
        self.assertNotEqual(
            self.interrupted(lambda _: self.send_to_one_rank(signal.SIGKILL)), 0)
        self.assert_checkpoint_loads()

    def test_a_rank_that_falls_silent_is_noticed(self):
        self.environment["FSDP_MPI_SILENCE"] = "3"
        self.assertNotEqual(
            self.interrupted(lambda _: self.send_to_one_rank(signal.SIGSTOP)), 0)
        self.assertRegex(self.said, "nothing has been heard from rank . for 3 seconds")
        self.assert_checkpoint_loads()

    def test_a_signal_to_one_rank_stops_all_after_the_step(self):
        for rank, number in ((0, signal.SIGINT), (1, signal.SIGTERM), (3, signal.SIGINT)):
            with self.subTest(rank=rank, number=number.name):
                shutil.rmtree(self.folder / "checkpoints", ignore_errors=True)
                self.assertNotEqual(
                    self.interrupted(lambda _, n=number, r=rank: self.send_to_one_rank(n, r)), 0)
                self.assertIn(f"stopped by {number.name} after step", self.said)
                self.assert_checkpoint_loads()

    def test_a_terminated_job_leaves_a_checkpoint_that_loads(self):
        self.assertNotEqual(self.interrupted(lambda job: job.send_signal(signal.SIGTERM)), 0)
        self.assert_checkpoint_loads()

    def test_mpirun_decides_how_many_ranks_there_are(self):
        self.assertIn("has started 2 processes; leave it out",
                      self.refused(2, "--strategy=fsdp", "--ranks=4"))
        trained = self.train("fsdp", "--ranks=2", "--backend=processes", processes=2)
        self.assertEqual(trained["world_size"], 2)
        if jobs.IS_TCP:
            self.assertIn("--backend mpi: needs mpirun", 
                          self.refused(2, "--strategy=fsdp", "--backend=mpi"))

    def test_mpirun_decides_what_ranks_are(self):
        self.assertIn("--backend threads: ", self.refused(2, "--strategy=fsdp", "--backend=threads"))
        self.assertIn("training.device: is cuda, but this program was built without CUDA",
                      self.refused(2, "--strategy=fsdp", "--device=cuda"))
        alone = subprocess.run([jobs.PROGRAM, *self.small, "--backend=mpi", "--strategy=fsdp",
                                "--ranks=4"], stdin=subprocess.DEVNULL, capture_output=True,
                               text=True, check=False)
        self.assertEqual(alone.returncode, 2)
        self.assertIn("mpirun -np 4 unshard-train", alone.stderr)

    def test_what_is_wrong_is_said_once(self):
        self.assertIn("unknown key training.stepz", self.refused(3, "--training.stepz=3"))
        self.assertIn("--summary: ", self.refused(
            4, "--strategy=fsdp", f"--summary={self.folder}/text.txt/summary.json"))
        self.assertIn("--picture: ", self.refused(
            2, "--strategy=fsdp", f"--picture={self.folder}/text.txt"))

    def test_processes_draw_what_threads_draw(self):
        batch = "--training.global_batch_size=12"
        for strategy, ranks in (("single", 1), ("ddp", 3), *(("fsdp", w) for w in (1, 2, 3, 4))):
            with self.subTest(strategy=strategy, ranks=ranks):
                one = [f"--training.local_batch_size={12 // ranks}"] if strategy == "single" else []
                drawn = []
                for kind in ({"threads": ranks}, {"processes": ranks}):
                    folder = self.folder / f"{strategy}_{ranks}_{next(iter(kind))}"
                    self.train(strategy, batch, *one, f"--picture={folder}", **kind)
                    self.assertEqual(self.said.count("the last step: "), 1, self.said)
                    drawn.append(pictures.outline_of(folder))
                self.assertEqual(*drawn)
                self.assertEqual(len(drawn[0]["ranks"]), ranks)
                self.assertGreater(len(drawn[0]["ranks"][-1]["events"]), 10)

    def test_one_picture_that_cannot_be_written_ends_all(self):
        picture = self.folder / "picture"
        job = self.start_heard(4, "--training.steps=300", f"--picture={picture}")
        while not (line := self.heard.readline()).startswith("step "):
            self.assertNotEqual(line, "")
        # It cannot print 300 lines while nobody reads: the picture is still to come.
        picture.rename(self.folder / "away")
        picture.write_text("a file, where there was a folder")
        self.heard.read()
        self.assert_ends_alone(job)
        self.assertNotEqual(job.returncode, 0)
        self.assertEqual(self.said.count("unshard-train: "), 1, self.said)

    def test_output_that_is_closed_at_the_last_step_ends_all(self):
        job = self.start_heard(4, "--training.steps=1", f"--picture={self.folder}/picture")
        for _ in range(2):  # what is printed before the first step, which is the last one
            self.assertNotEqual(self.heard.readline(), "")
        self.heard.close()
        self.assert_ends_alone(job)

    def start_heard(self, ranks: int, *words: str) -> subprocess.Popen:
        """A job whose process 0 prints into a pipe that no launcher empties: self.heard."""
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        job = self.start(ranks, *self.small, "--strategy=fsdp", *words, program=[
            "sh", "-c", 'if [ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-$RANK}}" = 0 ]; then exec "$0" "$@" '
            f'>"{pipe}"; else exec "$0" "$@"; fi', jobs.PROGRAM])
        self.heard = pipe.open()
        fcntl.fcntl(self.heard, fcntl.F_SETPIPE_SZ, 4096)  # less than what is printed
        self.addCleanup(self.heard.close)
        return job

    def assert_ends_alone(self, job: subprocess.Popen):
        """That it ends, and not because its processes missed one of them."""
        self.said, _ = job.communicate()
        self.assert_all_gone()
        self.assertNotIn("All ranks are ended now", self.said)

    def test_help_is_printed_once(self):
        code, said = self.run_job(3, "--help")
        self.assertEqual(code, 0, said)
        self.assertEqual(said.count("Usage: unshard-train"), 1)


if __name__ == "__main__":
    jobs.main()
