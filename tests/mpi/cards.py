"""unshard-train with ranks that are processes and compute on CUDA cards: the stand-in's.

    cards.py MPIRUN_SCRIPT MPIRUN PROGRAM

PROGRAM is unshard-train, linked with the stand-in. A process has eight cards there.
"""

import jobs
import trainings

CARDS = ["--device=cuda", "--parallel.device_collectives=nccl"]
FEW = ["--training.steps=2", "--training.seq_len=4", "--training.global_batch_size=12"]


class Cards(trainings.TrainingTest):
    def setUp(self):
        super().setUp()
        self.environment["CUDA_ON_HOST"] = "lazy"

    def test_processes_train_what_threads_train(self):
        for strategy, ranks in (("fsdp", 2), ("fsdp", 3), ("fsdp", 4), ("zero2", 2)):
            with self.subTest(strategy=strategy, ranks=ranks):
                threads = self.train(strategy, *CARDS, *FEW, threads=ranks)
                processes = self.train(strategy, *CARDS, *FEW, processes=ranks)
                for key in ("losses", "param_sha256", "comm_bytes", "world_size"):
                    self.assertEqual(processes[key], threads[key])
                self.assertEqual(self.said.count("parameters sha256"), 1, self.said)

    def test_a_process_may_see_its_own_card_only(self):
        own = ("sh", "-c", "CUDA_ON_HOST_CARDS="
               "${OMPI_COMM_WORLD_LOCAL_RANK-${MPI_LOCALRANKID-$LOCAL_RANK}}; "
               'export CUDA_ON_HOST_CARDS; exec "$0" "$@"', jobs.PROGRAM)
        threads = self.train("fsdp", *CARDS, *FEW, threads=3)
        processes = self.train("fsdp", *CARDS, *FEW, processes=3, program=own)
        self.assertEqual(processes["param_sha256"], threads["param_sha256"])
        self.environment["CUDA_ON_HOST_CARDS"] = "5"
        code, said = self.run_job(3, *self.small, *CARDS, *FEW, "--strategy=fsdp")
        self.assertNotEqual(code, 0, said)
        self.assertIn("each process needs a device of its own", said)

    def test_a_checkpoint_goes_from_cards_to_the_cpu(self):
        folder = self.checkpoints()
        first = self.train("fsdp", *CARDS, *FEW, folder, processes=2)
        resumed = self.train("fsdp", *FEW, "--training.steps=3", folder, processes=3)
        self.assertEqual(resumed["world_size"], 3)
        self.assertLess(resumed["losses"][0], first["losses"][0])

    def test_what_processes_cannot_do_is_said_once(self):
        for ranks, words, complaint in (
                (2, ["--device=cuda"],
                 "parallel.device_collectives (its default): is canonical, which adds between ranks that are "
                 f"threads, but {'the launcher' if jobs.IS_TCP else 'mpirun'} has started this program; "
                 "set it to nccl"),
                (9, CARDS, "parallel.device_collectives: is nccl, which needs a card for each of the 9 "
                 "processes on this machine, and it has 8; start fewer processes here")):
            with self.subTest(ranks=ranks, words=words):
                code, said = self.run_job(ranks, *self.small, "--strategy=fsdp",
                                          "--training.global_batch_size=18", *words)
                self.assertEqual(code, 2, said)
                self.assertIn(complaint, said)
                self.assertEqual(said.count("unshard-train: "), 1, said)

    def test_a_killed_rank_ends_all(self):
        job = self.start(3, *self.small, "--training.global_batch_size=3", "--strategy=fsdp",
                         "--training.steps=100000000", "--training.seq_len=4", *CARDS)
        while "step         2/" not in (line := job.stdout.readline()):
            self.assertNotEqual(line, "", "it ended before step 2")
        of_ranks = [process for process in jobs.processes(str(self.folder))
                    if jobs.os.readlink(f"/proc/{process}/exe")
                    == jobs.os.path.realpath(jobs.PROGRAM)]
        self.assertEqual(len(of_ranks), 3)
        jobs.os.kill(max(of_ranks), 9)
        job.communicate()
        self.assert_all_gone()
        self.assertNotEqual(job.returncode, 0)


if __name__ == "__main__":
    jobs.main()
