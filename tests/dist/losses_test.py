"""Processes that die, hang, or should never have met: every one that is left ends with a sentence that names the
rank, and a launcher that starts all again ends with the same weights. `--kills 20` makes it a soak."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time

import harness
from harness import PATIENCE, SMALL, Processes, children_of, finish, free_port, start, start_ranks, steps_of, wait_for

KILLS = 3
LONG = [*SMALL, "--epochs", "500", "--log-steps", "5"]


class Losses(Processes):
    def begin(self, count, arguments=LONG, **variables):
        """Ranks in the middle of a training that would take long."""
        run = self.folder / "run"
        ranks = start_ranks([["train", *arguments, "--out", run]] * count, **variables)
        wait_for(lambda: steps_of(run) >= 2)
        return ranks

    def others_end(self, ranks, lost, *parts, seconds):
        began = time.monotonic()
        for rank, process in enumerate(ranks):
            if rank != lost:
                self.sentence(process, *parts, seconds=seconds + 30)
        self.assertLess(time.monotonic() - began, seconds * PATIENCE)

    def test_one_that_is_killed_is_named(self):
        ranks = self.begin(3)
        ranks[1].kill()
        ranks[1].communicate()
        self.others_end(ranks, 1, f"rank 1 (host {socket.gethostname()}, process {ranks[1].pid})", "was killed",
                        seconds=30)

    def test_the_keeper_of_the_store_is_killed(self):
        ranks = self.begin(3)
        ranks[0].kill()
        ranks[0].communicate()
        self.others_end(ranks, 0, "the store at 127.0.0.1:", "rank 0 (host", seconds=30)

    def test_one_that_stops_is_named(self):
        for lost in (1, 0):
            with self.subTest(rank=lost):
                self.folder = self.folder / str(lost)
                self.folder.mkdir()
                ranks = self.begin(2, SAPE2_SILENCE_SECONDS=4)
                ranks[lost].send_signal(signal.SIGSTOP)
                try:
                    self.others_end(ranks, lost, f"rank {lost}", seconds=40)
                finally:
                    ranks[lost].kill()
                    ranks[lost].communicate()

    def test_a_full_disk_at_rank_0_ends_all(self):
        run = self.folder / "run"
        ranks = self.begin(2)
        os.chmod(run, 0o500)
        (run / "checkpoints").rename(self.folder / "elsewhere")
        (run / "checkpoints").write_text("no folder any more")
        code, _, err = finish(ranks[0], 120)
        self.assertEqual(code, 1, err)
        self.sentence(ranks[1], "rank 0 (host", "has ended:", seconds=30)

    def test_nobody_at_the_address(self):
        command = ["train", *SMALL, "--out", self.folder / "run"]
        ranks = dict(RANK=1, WORLD_SIZE=2, LOCAL_RANK=1, LOCAL_WORLD_SIZE=2, SAPE2_JOIN_SECONDS=2)
        port = free_port()
        self.sentence(start(command, MASTER_ADDR="127.0.0.1", MASTER_PORT=port, **ranks),
                      f"rank 1 cannot reach the store at 127.0.0.1:{port}", "MASTER_ADDR")
        self.sentence(start(command, MASTER_ADDR="nowhere.invalid", MASTER_PORT=port, **ranks),
                      'meet at "nowhere.invalid"', "no machine of that name")

    def test_something_else_at_the_address(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            held = []
            threading.Thread(target=lambda: held.append(server.accept()), daemon=True).start()
            process = start(["train", *SMALL, "--out", self.folder / "run"], RANK=1, WORLD_SIZE=2, LOCAL_RANK=1,
                            MASTER_ADDR="127.0.0.1", MASTER_PORT=server.getsockname()[1], SAPE2_JOIN_SECONDS=3)
            self.sentence(process, "is not a store of LibTorch")

    def test_something_that_answers_what_no_store_does(self):
        def answer(server):
            while True:
                try:
                    line, _ = server.accept()
                    line.recv(4096)
                    line.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                except OSError:
                    return

        with socket.create_server(("127.0.0.1", 0)) as server:
            threading.Thread(target=answer, args=(server,), daemon=True).start()
            process = start(["train", *SMALL, "--out", self.folder / "run"], RANK=1, WORLD_SIZE=2, LOCAL_RANK=1,
                            MASTER_ADDR="127.0.0.1", MASTER_PORT=server.getsockname()[1], SAPE2_JOIN_SECONDS=3)
            self.sentence(process, "is not a store of LibTorch")

    def test_not_all_come(self):
        process = start(["train", *SMALL, "--out", self.folder / "run"], RANK=0, WORLD_SIZE=3, LOCAL_RANK=0,
                        MASTER_ADDR="127.0.0.1", MASTER_PORT=free_port(), SAPE2_JOIN_SECONDS=2)
        self.sentence(process, "not all 3 processes came", "missing: rank 1, 2")

    def test_ranks_with_other_settings(self):
        command = ["train", *SMALL, "--out", self.folder / "run"]
        ranks = start_ranks([command, [*command, "--learning-rate", "2e-3"]])
        for process in ranks:
            self.sentence(process, "rank 1 (host", "another configuration than rank 0",
                          "recipe.learning_rate is 0.002, there 0.001")
        self.assertFalse((self.folder / "run" / "log.jsonl").exists())

    def test_ranks_with_another_version(self):
        """A rank 1 that says so is enough: Python's store is the same."""
        script = ("import datetime, json, sys, time\n"
                  "from torch.distributed import TCPStore\n"
                  "store = TCPStore('127.0.0.1', int(sys.argv[1]), None, False, datetime.timedelta(seconds=60))\n"
                  "store.set('sape2/attempt_0/member/1', json.dumps(dict(host='old', process=7, version='0.0.1')))\n"
                  "time.sleep(60)\n")
        port = free_port()
        rank = start(["train", *SMALL, "--out", self.folder / "run"], RANK=0, WORLD_SIZE=2, LOCAL_RANK=0,
                     MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        other = subprocess.Popen(["/usr/bin/python3", "-c", script, str(port)], stderr=subprocess.PIPE, text=True)
        self.addCleanup(other.communicate)
        self.addCleanup(other.kill)
        self.sentence(rank, "rank 1 (host old, process 7) runs sape2 0.0.1", "install the same version")

    def test_killed_at_random_and_started_again(self):
        whole, run = self.folder / "whole", self.folder / "run"
        command = ["train", *SMALL, "--epochs", str(4 + 2 * KILLS), "--checkpoint-steps", "1"]
        self.good(start(["launch", "-n", "2", *command, "--out", whole]), 120 + 20 * KILLS)
        launcher = start(["launch", "-n", "2", "--max-restarts", str(KILLS), *command, "--out", run])
        draw = random.Random(KILLS)
        last = 0
        for _ in range(KILLS):
            wait_for(lambda: steps_of(run) > last and len(children_of(launcher)) == 2, 120)
            time.sleep(draw.uniform(0, 0.5))
            last = steps_of(run)
            children = children_of(launcher)
            if not children:
                break
            os.kill(children[draw.choice(sorted(children))], signal.SIGKILL)
            wait_for(lambda: not set(children.values()) & set(children_of(launcher).values()), 120)
        code, out, err = finish(launcher, 120 + 20 * KILLS)
        self.assertEqual(code, 0, out + err)
        self.assertEqual(err.count("starting all processes again"), KILLS, err)
        self.same_weights(whole, run)


if __name__ == "__main__":
    if "--kills" in sys.argv:
        at = sys.argv.index("--kills")
        KILLS = int(sys.argv[at + 1])
        del sys.argv[at:at + 2]
    harness.main()
