"""Processes that are to train together: wrong variables, and something else than a store where they are to meet."""

import os
import random as chances
import socket
import threading

from harness import Failure, Program, check_sentence

TRAIN = ["train", "--data", "shapes", "--train-images", "16", "--test-images", "8", "--depth", "1", "--width", "16",
         "--heads", "1", "--mlp-ratio", "1", "--encoding", "ape", "--epochs", "1", "--batch-size", "8", "--out", "run"]
EXCHANGE = ["bench", "exchange", "--model", "vit-micro", "--rounds", "1", "--batch-size", "4"]
SECOND = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
          "SAPE2_JOIN_SECONDS": "1"}
WRONG = ["", "-1", "x", "1e9", "nan", "2147483648", "99999999999999999999", "0x1", " 1", "1\n", "\x1b[31m", "a" * 50_000]
NUMBERS = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT",
           "SAPE2_JOIN_SECONDS", "SAPE2_SILENCE_SECONDS", "SAPE2_EXCHANGE_SECONDS")
# What follows `launch`.
LAUNCHES = [[], ["-n", "0"], ["-n", "2"], ["-n", "99999", "train"], ["-n", "2", "launch"], ["-n", "2", "no-such"],
            ["-n", "2", "--meet", "x", "train"], ["-n", "2", "--meet", ":1", "train"], ["-n", "2", "--machines", "2", "train"],
            ["-n", "1", "--machine", "1", "train"], ["-n", "1", *EXCHANGE], ["-n", "2", *EXCHANGE, "--encoding", "\x1b[31m"]]


def spoken(how, seed):
    """What a listener says, again and again, once it is asked anything; none: it closes or stays silent."""
    chance = chances.Random(seed)
    numbers = [0, 1, 2, -1, 1 << 33, 1 << 62]
    return {"random": chance.randbytes(4096), "number": chance.choice(numbers).to_bytes(8, "little", signed=True) * 512,
            "http": b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n"}.get(how, b"")


class Listener:
    """Something that is no store, on the loopback address."""

    def __init__(self, how, seed):
        self.how, self.says = how, spoken(how, seed)
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.held = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                line, _ = self.socket.accept()
            except OSError:
                return
            self.held.append(line)
            threading.Thread(target=self.answer, args=(line,), daemon=True).start()

    def answer(self, line):
        try:
            if self.how == "closes":
                line.close()
            while asked := line.recv(4096):
                line.sendall(asked if self.how == "echo" else self.says)
                while self.how == "number":
                    line.sendall(self.says)
        except OSError:
            pass

    def close(self):
        for one in (self.socket, *self.held):
            one.close()


class Processes:
    name = "processes"
    quick = 6

    def __init__(self, context):
        self.context = context

    def case(self, random, number, folder):
        kinds = (self.variables, self.strangers, self.launch)
        kinds[number % len(kinds)](random, folder)
        return 1

    def refused(self, arguments, variables, folder):
        program = Program(self.context.program.path, self.context.program.patience)
        program.environment.update(variables)
        result = program.run(arguments, folder, seconds=45)
        lines = result.err.splitlines()
        if any(not line.startswith(b"sape2: ") for line in lines):
            raise Failure(f"libraries speak for themselves; {result.shown()}")
        check_sentence(result)
        if os.path.exists(os.path.join(folder, "run")):
            raise Failure(f"a run is left by what was refused; {result.shown()}")

    def variables(self, random, folder):
        """One variable that a launcher would not set so, or that is not there."""
        variables = {**SECOND, "MASTER_PORT": "1"}  # where nobody listens
        name = random.choice([*NUMBERS, "MASTER_ADDR"])
        variables[name] = random.choice(WRONG)
        if name == "MASTER_ADDR":
            variables[name] = random.choice(["", "no-such.invalid", "127.0.0.1 x", "\x1b[31m", "a" * 50_000, "::", "0x7f.x"])
        elif random.random() < 0.2 and name in ("WORLD_SIZE", "MASTER_PORT"):
            del variables[name]
        self.refused(random.choice([TRAIN, EXCHANGE]), variables, folder)

    def strangers(self, random, folder):
        """A port at which something listens that is no store."""
        listener = Listener(random.choice(["silent", "closes", "random", "number", "http", "echo"]), random.random())
        try:
            self.refused(random.choice([TRAIN, EXCHANGE]), {**SECOND, "MASTER_PORT": str(listener.port)}, folder)
        finally:
            listener.close()

    def launch(self, random, folder):
        self.refused(["launch", *random.choice(LAUNCHES)], {}, folder)
