"""Two machines, as two network namespaces with an address each and nothing but a cable between them."""

import os
import subprocess
import sys

import harness
from harness import SMALL, Processes, start


class Machines(Processes):
    def setUp(self):
        super().setUp()
        self.names = [f"sape2-{os.getpid()}-{machine}" for machine in (0, 1)]
        self.addCleanup(self.remove)
        ends = [f"v{os.getpid() % 100000}-{machine}" for machine in (0, 1)]
        commands = [["netns", "add", name] for name in self.names]
        commands.append(["link", "add", ends[0], "type", "veth", "peer", "name", ends[1]])
        for machine, (name, end) in enumerate(zip(self.names, ends)):
            commands += [["link", "set", end, "netns", name],
                         ["-n", name, "addr", "add", f"10.213.7.{machine + 1}/24", "dev", end],
                         ["-n", name, "link", "set", end, "up"], ["-n", name, "link", "set", "lo", "up"]]
        for command in commands:
            try:
                done = subprocess.run(["ip", *command], capture_output=True, text=True)
            except FileNotFoundError:
                self.skipTest("network namespaces cannot be made here: ip is not installed")
            if done.returncode != 0:
                self.skipTest(f"network namespaces cannot be made here: {done.stderr.strip()}")

    def remove(self):
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def on_machine(self, machine, count, arguments):
        """`sape2 launch` on one of the two."""
        return start(["launch", "-n", str(count), "--machines", "2", "--machine", str(machine), "--meet",
                      "10.213.7.1:29511", *arguments], ["ip", "netns", "exec", self.names[machine]])

    def test_two_machines_with_two_processes_each(self):
        one, run = self.folder / "one", self.folder / "run"
        self.good(start(["train", *SMALL, "--out", one]))
        machines = [self.on_machine(machine, 2, ["train", *SMALL, "--out", run]) for machine in (0, 1)]
        self.assertIn("4 processes train together", self.good(machines[0]))
        self.assertEqual(self.good(machines[1]), "")
        self.follows(one, run)

    def test_the_second_needs_no_run_folder(self):
        run, other = self.folder / "run", self.folder / "other"
        machines = [self.on_machine(machine, 1, ["train", *SMALL, "--epochs", "1", "--out", (run, other)[machine]])
                    for machine in (0, 1)]
        for machine in machines:
            self.good(machine)
        self.assertTrue((run / "last.safetensors").exists())
        self.assertFalse(other.exists())


if __name__ == "__main__":
    harness.main()
