"""Several hosts: network namespaces of this one, each with an address and a name of its own, as root."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

from test_ranks import Ranks
from training_runs import TrainingRuns, numbers_of

NAMES = [f"rooflm{os.getpid() % 100000}n{i}" for i in (1, 2)]


def address(host):
    return f"10.213.77.{host + 1}"


def in_namespace(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


def make_hosts():
    """Two hosts and a cable; why not, where that cannot be."""
    for tool in ("ip", "unshare"):
        if shutil.which(tool) is None:
            return f"no {tool} on this machine (Debian packages iproute2, util-linux)"
    for host, name in enumerate(NAMES):
        made = in_namespace("netns", "add", name)
        if made.returncode != 0:
            return f"no network namespaces here: {made.stderr.strip()}"
    in_namespace("link", "add", "host0", "netns", NAMES[0], "type", "veth", "peer", "name", "host1", "netns", NAMES[1])
    for host, name in enumerate(NAMES):
        in_namespace("-n", name, "addr", "add", f"{address(host)}/24", "dev", f"host{host}")
        for link in (f"host{host}", "lo"):
            up = in_namespace("-n", name, "link", "set", link, "up")
        if up.returncode != 0:
            return f"no network between namespaces here: {up.stderr.strip()}"
    return ""


def remove_hosts():
    for name in NAMES:
        in_namespace("netns", "del", name)


class Hosts(Ranks):
    @classmethod
    def setUpClass(cls):
        missing = make_hosts()
        if missing:
            remove_hosts()
            raise unittest.SkipTest(missing)
        super().setUpClass()

    @classmethod
    def tearDownClass(cls):
        super().tearDownClass()
        remove_hosts()

    def on(self, host, words, **variables):
        """Starts words on that host, node0 or node1."""
        script = f'hostname node{host} && exec "$@"'
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("SLURM_", "OMPI_", "PMI"))}
        return subprocess.Popen(["ip", "netns", "exec", NAMES[host], "unshare", "--uts", "sh", "-c", script, "sh", *map(str, words)],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**clean, **variables})

    def run_on_hosts(self, words, variables_of, ranks=4):
        """Ranks of which the first half is on the first host; exit codes and what they said."""
        processes = [self.on(rank * 2 // ranks, [self.binary, *words], **variables_of(rank)) for rank in range(ranks)]
        said = [process.communicate(timeout=120) for process in processes]
        return [process.returncode for process in processes], said

    @staticmethod
    def torchrun(rank, ranks=4, port=29555, **more):
        return {"RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_RANK": str(rank % 2), "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": address(0),
                "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "a run", **more}

    @staticmethod
    def srun(rank):
        """As srun gives them; the list of nodes has addresses, since there is nobody to ask for names."""
        return {"SLURM_PROCID": str(rank), "SLURM_NTASKS": "4", "SLURM_LOCALID": str(rank % 2), "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "9556",
                "SLURM_STEP_NODELIST": f"10.213.77.[{1}-{2}]"}

    def test_hosts_train_as_one(self):
        arguments = ["--tp", "2", "--zero", "1", "--batch", "4"]
        expected = self.numbers("launch", *arguments, ranks=4, steps=5)
        for name, variables in (("torchrun", self.torchrun), ("srun", self.srun)):
            with self.subTest(starter=name):
                out = self.folder / name
                codes, said = self.run_on_hosts(self.words(out, "--steps", 5, *arguments), variables)
                self.assertEqual(codes, [0] * 4, said)
                self.assertEqual(numbers_of(out / "log.jsonl"), expected)

    def test_comm_knows_the_hosts(self):
        words = ["comm", "--device", "cpu", "--op", "all_reduce", "--size", "64KiB", "--seconds", "0.001", "--format", "json"]
        codes, said = self.run_on_hosts(words, self.torchrun)
        self.assertEqual(codes, [0] * 4, said)
        self.assertEqual({(row["carrier"], row["ranks"], row["hosts"], row["wrong"]) for row in json.loads(said[0][0])}, {("sockets", 4, 2, 0)})

    def test_mpirun_with_a_hostfile(self):
        if shutil.which("mpirun") is None:
            self.skipTest("no mpirun on this machine (Debian package openmpi-bin)")
        agent, hosts, out = self.folder / "agent", self.folder / "hosts", self.folder / "mpi"
        hosts.write_text("".join(f"{address(host)} slots=1\n" for host in (0, 1)))
        cases = " ".join(f"{address(host)}) name={NAMES[host]} node=node{host};;" for host in (0, 1))
        agent.write_text(f'#!/bin/sh\nwhile [ "${{1#-}}" != "$1" ]; do shift; done\ncase $1 in {cases} esac\nshift\n'
                         'exec ip netns exec $name unshare --uts sh -c "hostname $node; $*"\n')
        agent.chmod(0o755)
        arguments = ["--zero", "1", "--batch", "4"]
        network = "10.213.77.0/24"
        mpirun = self.on(0, ["mpirun", "--mca", "plm_rsh_agent", agent, "--mca", "btl_tcp_if_include", network, "--mca", "oob_tcp_if_include", network,
                             "-n", "2", "--hostfile", hosts, self.binary, *self.words(out, "--steps", 5, *arguments)],
                         OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1", OMPI_MCA_btl_vader_single_copy_mechanism="none")
        said = mpirun.communicate(timeout=120)
        self.assertEqual(mpirun.returncode, 0, said)
        self.assertEqual(numbers_of(out / "log.jsonl"), self.numbers("launch", *arguments, ranks=2, steps=5))

    def test_a_firewall_between_hosts_is_told_of(self):
        """To an address that nobody answers for packets are lost as they are in a firewall that drops them."""
        if shutil.which("iptables") is None:
            self.skipTest("no iptables on this machine (Debian package iptables)")
        rule = ["INPUT", "-p", "tcp", "-s", address(1), "-j", "DROP"]
        closed = subprocess.run(["ip", "netns", "exec", NAMES[0], "iptables", "-A", *rule], capture_output=True, text=True, check=False)
        if closed.returncode != 0:
            self.skipTest(f"no firewall in a namespace here: {closed.stderr.strip()}")
        try:
            codes, said = self.run_on_hosts(self.words(self.out, "--steps", 5, "--batch", "2"), lambda rank: self.torchrun(rank, port=29557, ROOFLM_TIMEOUT="2"))
        finally:
            subprocess.run(["ip", "netns", "exec", NAMES[0], "iptables", "-D", *rule], check=True)
        self.assertEqual(codes, [5] * 4, said)
        self.assertIn("rank 0 (node0): of 4 ranks, these did not join within 2 s: 2, 3.", said[0][1])
        self.assertIn("Does a firewall between the hosts let their ports through?", said[0][1])
        self.assertIn(f"cannot reach rank 0 at {address(0)}:29557", said[2][1])
        self.assertIn("does a firewall between the hosts let their ports through?", said[2][1])


if __name__ == "__main__":
    TrainingRuns.binary = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
