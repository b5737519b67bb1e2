#!/usr/bin/env python3
"""How ranks that are started by hand find each other, and keep strangers out.

Usage: test_rank_starts.py BINARY SILENT_MPI_LIBRARY [unittest options]"""

import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import time
import unittest

from test_ranks import Ranks
from training_runs import TrainingRuns

HELLO = 152  # bytes of what a rank says first
STRANGERS = {
    "silence": b"",
    "HTTP": b"GET / HTTP/1.1\r\nHost: rank\r\n\r\n",
    "noise": bytes(range(256)) * 8,
    "a rank of another size": struct.pack("<8siiIi", b"roofline", 1, 99, 0, 1) + bytes(HELLO - 24),
    "a rank without the key": struct.pack("<8siiIi", b"rooflmR2", 1, 2, 0, 1) + b"\x1b[2Jhost" + bytes(HELLO - 32),
    "the former version": struct.pack("<8siiIi", b"rooflmR1", 1, 99, 0, 1) + bytes(HELLO - 24),
    "a length": b"\xff" * 16,
}


class Starts(Ranks):
    silent_mpi = None

    def run_apart(self, *others):
        """Two ranks that are started by hand, the second with other options; exit codes and messages."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        processes = []
        for rank, more in enumerate([(), others]):
            environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": port, "ROOFLM_TIMEOUT": "5", "ROOFLM_JOB": "by hand"}
            processes.append(subprocess.Popen(
                [self.binary, *map(str, self.words(self.out, "--steps", 2, "--batch", "2", *more))], env=environment,
                stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
        return [(process.communicate(timeout=60)[1], process.returncode) for process in processes]

    def test_ranks_have_different_options(self):
        for errors, code in self.run_apart("--lr", "0.02"):
            self.assertEqual(code, 2, errors)
            self.assertRegex(errors, r"rank 1 \(.*\) has --lr = 0.02, rank 0 has 0.01")
        self.assertEqual([code for _, code in self.run_apart()], [0, 0])

    def test_a_rank_does_not_come(self):
        environment = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": "1", "ROOFLM_TIMEOUT": "0.3", "ROOFLM_JOB": "by hand"}
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            environment["MASTER_PORT"] = str(free.getsockname()[1])
        self.fails(5, *self.words(self.out, "--steps", 1), env={**os.environ, **environment},
                   says=("these did not join within", "firewall"))

    def test_an_mpi_that_does_not_start_is_not_waited_for_for_ever(self):
        self.fails(5, *self.words(self.out, "--steps", 1), says=("MPI did not start within 2 s",),
                   env={**os.environ, "LD_LIBRARY_PATH": str(self.silent_mpi.parent), "OMPI_COMM_WORLD_RANK": "0",
                        "OMPI_COMM_WORLD_SIZE": "2", "ROOFLM_TIMEOUT": "2"})

    def silent_server(self):
        """A port of this host that takes connections and says nothing, as the server of another MPI's starter may."""
        server = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.addCleanup(server.close)
        return server.getsockname()[1]

    def test_the_server_of_another_mpi_is_waited_for_as_long_as_is_said(self):
        """Variables that starters of ranks leave, whose server says nothing. With one rank, or none, nobody is asked."""
        port = self.silent_server()
        mpich = {"PMI_PORT": f"127.0.0.1:{port}", "PMI_RANK": "0", "PMI_ID": "0"}
        uris = {f"PMIX_SERVER_URI{version}": f"job.0;tcp4://127.0.0.1:{port}" for version in ("", "2", "21", "3", "4", "41")}
        openmpi = {**uris, "PMIX_NAMESPACE": "job", "PMIX_RANK": "0", "OMPI_COMM_WORLD_RANK": "0",
                   "OMPI_MCA_orte_hnp_uri": f"1.0;tcp://127.0.0.1:{port}", "OMPI_MCA_orte_local_daemon_uri": f"1.0;tcp://127.0.0.1:{port}"}
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("PMI", "OMPI_", "SLURM_", "RANK", "WORLD_SIZE"))}
        for name, alone in (("no size", {**mpich, **uris}), ("MPICH", {**mpich, "PMI_SIZE": "1"}), ("Open MPI", {**openmpi, "OMPI_COMM_WORLD_SIZE": "1"})):
            with self.subTest(alone=name):
                result = self.run_rooflm(*self.words(self.folder / name, "--steps", 1), env={**clean, **alone})
                self.assertEqual(result.returncode, 0, result.stderr)
                self.assertNotIn("waiting for", result.stderr)
        with self.subTest(several="MPICH"):
            self.fails(2, *self.words(self.out, "--steps", 1), env={**clean, **mpich, "PMI_SIZE": "2"}, says=("PMI_SIZE", "MASTER_ADDR"))
        with self.subTest(several="MPICH, first rank silent"):
            silent = {**clean, **mpich, "PMI_RANK": "1", "PMI_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                      "ROOFLM_JOB": "by hand", "ROOFLM_TIMEOUT": "2"}
            self.fails(5, *self.words(self.out, "--steps", 1), env=silent, says=(f"): rank 0 at 127.0.0.1:{port} gave no answer",))
        with self.subTest(several="Open MPI"):
            if shutil.which("mpirun") is None:
                self.skipTest("no mpirun on this machine (Debian package openmpi-bin)")
            self.fails(5, *self.words(self.out, "--steps", 1), env={**clean, **openmpi, "OMPI_COMM_WORLD_SIZE": "2", "ROOFLM_TIMEOUT": "2"},
                       says=("MPI did not start within 2 s", "PMIX_*, OMPI_*"))

    def test_a_start_that_takes_long_says_what_it_waits_for(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        mpi = {"LD_LIBRARY_PATH": str(self.silent_mpi.parent), "OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"}
        sockets = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_PORT": str(port), "ROOFLM_JOB": "by hand"}
        for environment, says in ((mpi, "waiting for MPI to start (OMPI_COMM_WORLD_RANK is set), 5.5 s at most"),
                                  (sockets, f"waiting for all 2 ranks of this job to come to 127.0.0.1:{port}, 5.5 s at most")):
            for rank in ("0", "1"):  # the first speaks for all
                with self.subTest(says=says, rank=rank):
                    place = {**environment, ("RANK" if "RANK" in environment else "OMPI_COMM_WORLD_RANK"): rank}
                    result = self.run_rooflm(*self.words(self.out, "--steps", 1), env={**os.environ, **place, "ROOFLM_TIMEOUT": "5.5"})
                    self.assertEqual(result.returncode, 5, result.stderr)
                    self.assertEqual(result.stderr.count(says), 1 if rank == "0" else 0, result.stderr)

    def test_a_lost_rank_is_one_message_where_all_write_to_one_file(self):
        """As under torchrun: of those that notice it the first says so. Where each has a file of its own, each does."""
        for is_shared in (True, False):
            with self.subTest(is_shared=is_shared), socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = str(free.getsockname()[1])
                free.close()
                self.out = self.folder / str(is_shared)
                files = [open(self.folder / f"errors{0 if is_shared else rank}-{is_shared}", "ab") for rank in range(4)]
                ranks = []
                for rank, file in enumerate(files):
                    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "4", "MASTER_PORT": port, "ROOFLM_TIMEOUT": "5", "ROOFLM_JOB": "by hand"}
                    ranks.append(subprocess.Popen([self.binary, *map(str, self.words(self.out, "--steps", 100000, "--batch", "1"))],
                                                  env=environment, stdout=subprocess.DEVNULL, stderr=file))
                    file.close()
                self.wait_for_step(2)
                ranks[2].kill()
                self.assertEqual([rank.wait(60) for rank in ranks], [5, 5, -9, 5])
                said = [pathlib.Path(name).read_text() for name in sorted({file.name for file in files})]
                lines = [[line for line in text.splitlines() if line.startswith("rooflm: rank")] for text in said]
                self.assertEqual([len(each) for each in lines], [1] if is_shared else [1, 1, 0, 1], said)
                self.assertRegex(lines[0][0], r"rooflm: rank 0 \(.*\): rank 2 \(.*\) has ended, at step \d+")

    def test_a_job_without_a_key_is_refused(self):
        without = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "PMIX", "TORCHELASTIC", "ROOFLM_JOB"))}
        self.fails(2, *self.words(self.out, "--steps", 1), env={**without, "RANK": "0", "WORLD_SIZE": "2"}, says=("ROOFLM_JOB", "docs/clusters.md"))

    def test_strangers_are_in_nobodys_way(self):
        for keyed in ({"ROOFLM_JOB": "by hand"}, {"TORCHELASTIC_RUN_ID": "none"}):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "ROOFLM_JOB"))}
            out = self.folder / next(iter(keyed))
            ranks, strangers = [], []
            for rank in range(2):
                environment = {**clean, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_PORT": str(port), "ROOFLM_TIMEOUT": "20", **keyed}
                ranks.append(subprocess.Popen([self.binary, *map(str, self.words(out, "--steps", 2, "--batch", "2"))], env=environment,
                                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
                while rank == 0 and len(strangers) < len(STRANGERS):
                    try:
                        stranger = socket.create_connection(("127.0.0.1", port), timeout=5)
                    except ConnectionRefusedError:
                        self.assertIsNone(ranks[0].poll(), "rank 0 has ended")
                        time.sleep(0.02)
                        continue
                    stranger.sendall(list(STRANGERS.values())[len(strangers)])
                    strangers.append(stranger)
            said = [process.communicate(timeout=120)[1] for process in ranks]
            for stranger in strangers:
                stranger.close()
            self.assertEqual([process.returncode for process in ranks], [0, 0], said)
            self.assertNotIn("99", "".join(line for line in said if "started as" in line))


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    Starts.silent_mpi = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
