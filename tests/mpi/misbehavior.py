"""However a rank that is a process misbehaves, all of them end, and none is left over.

    misbehavior.py MPIRUN_SCRIPT MPIRUN PROGRAM

PROGRAM is misbehave.cpp's.
"""

import os
import signal
import unittest

import jobs

RANKS = 3


class Misbehavior(jobs.JobTest):
    def run_mode(self, mode: str) -> tuple[int, str]:
        return self.run_job(RANKS, mode, str(self.folder))

    def seen(self, rank: int) -> str:
        return (self.folder / f"rank_{rank}").read_text()

    def assert_all_saw(self, *parts: str):
        for rank in range(RANKS):
            for part in parts:
                self.assertIn(part, self.seen(rank), f"rank {rank}")

    def test_nothing_wrong(self):
        code, said = self.run_mode("good")
        self.assertEqual(code, 0, said)
        self.assert_all_saw("nothing")

    def test_a_rank_that_throws(self):
        code, said = self.run_mode("throws")
        self.assertNotEqual(code, 0, said)
        self.assert_all_saw("boom")

    def test_a_rank_that_returns_early(self):
        code, said = self.run_mode("returns")
        self.assertNotEqual(code, 0, said)
        self.assert_all_saw("which rank 1 has not called, and rank 1 has returned\n",
                            "rank  seq  operation   unit            elements  state\n",
                            "   1    0  all_gather  first/forward          4  returned\n")

    def test_a_rank_that_swaps_two_collectives(self):
        code, said = self.run_mode("swaps")
        self.assertNotEqual(code, 0, said)
        self.assert_all_saw("ranks disagree on the operation of collective 1: all_gather on rank 0,"
                            " all_reduce on rank 1\n", "   1    1  all_reduce  second/forward")

    def test_a_rank_that_passes_another_size(self):
        code, said = self.run_mode("resizes")
        self.assertNotEqual(code, 0, said)
        self.assert_all_saw("the number of elements of collective 1: 4 on rank 0, 5 on rank 1\n")

    def test_without_checks_a_wrong_label_is_not_noticed(self):
        code, said = self.run_mode("renames")
        self.assertNotEqual(code, 0, said)
        self.assert_all_saw("the label of collective 1: second/forward on rank 0, other/forward on")
        self.environment["FSDP_MPI_UNCHECKED"] = "1"
        code, said = self.run_mode("renames")
        self.assertEqual(code, 0, said)
        self.assert_all_saw("nothing")

    def test_without_checks_a_rank_that_throws_ends_all(self):
        self.environment["FSDP_MPI_UNCHECKED"] = "1"
        code, said = self.run_mode("throws")
        self.assertNotEqual(code, 0, said)
        self.assertIn("boom", said)

    @unittest.skipUnless(jobs.IS_TCP, "what MPI does then is its own affair")
    def test_without_checks_another_size_ends_all_where_the_data_come(self):
        self.environment["FSDP_MPI_UNCHECKED"] = "1"
        code, said = self.run_mode("resizes")
        self.assertNotEqual(code, 0, said)
        self.assertRegex(said, r"rank \d has sent (16|20) bytes where rank \d expects (20|16): they")

    def test_whether_calls_are_checked_is_0_or_1(self):
        self.environment["FSDP_MPI_UNCHECKED"] = "yes"
        code, said = self.run_mode("good")
        self.assertNotEqual(code, 0, said)
        self.assertIn("FSDP_MPI_UNCHECKED: is 'yes', but must be 1", self.seen(-1))

    def test_a_rank_that_computes_on_when_the_others_have_failed(self):
        code, said = self.run_mode("computes")
        self.assertNotEqual(code, 0, said)
        self.assertIn("boom", said)
        self.assertIn("rank 1 still computes 8 seconds after this", said)

    def test_a_rank_that_ends_its_thread(self):
        code, said = self.run_mode("ends its thread")
        self.assertNotEqual(code, 0, said)
        self.assertIn("rank 1: it has ended its own thread by pthread_exit()", said)

    def test_a_rank_that_is_killed(self):
        code, said = self.run_mode("dies")
        self.assertNotEqual(code, 0, said)
        if jobs.IS_TCP:
            self.assertIn("has lost rank 1: its process has ended without a word", said)
            self.assertIn("unshard-launch: rank 1 was ended by signal 9", said)

    @unittest.skipUnless(jobs.IS_TCP, "mpirun reports as it likes")
    def test_a_signal_is_named_though_another_rank_was_seen_to_end_before(self):
        other = self.folder / "other"
        code, said = self.run_job(2, program=["sh", "-c", (
            f'if [ $RANK = 0 ]; then echo $$ >{other}.new; mv {other}.new {other}; exit 3; fi; '
            f'until [ -e {other} ]; do :; done; while kill -0 $(cat {other}) 2>/dev/null; do :; '
            'done; kill -9 $$')])
        self.assertIn("unshard-launch: rank 1 was ended by signal 9", said)
        self.assertEqual(code, 128 + signal.SIGKILL, said)

    def test_a_rank_that_ends_its_program_in_the_middle(self):
        code, said = self.run_mode("exits")
        self.assertNotEqual(code, 0, said)

    def test_a_rank_that_ends_its_program_before_the_next_world(self):
        code, said = self.run_mode("leaves")
        self.assertNotEqual(code, 0, said)

    def test_a_job_that_is_terminated(self):
        job = self.start(RANKS, "waits", str(self.folder))
        while len(list(self.folder.glob("begun_*"))) < RANKS:
            self.assertIsNone(job.poll())
            os.sched_yield()
        job.send_signal(signal.SIGTERM)
        said, _ = job.communicate()
        self.assertNotEqual(job.returncode, 0, said)
        self.assert_all_gone()


if __name__ == "__main__":
    jobs.main()
