"""Runs that are killed, and run folders that were edited or damaged: nothing of a run may be lost."""

import json
import os
import shutil
import signal
import subprocess
import time

from harness import Failure, Result, check_end, check_sentence

TRAIN = ["train", "--data", "shapes", "--train-images", "64", "--test-images", "16", "--depth", "1", "--width", "16",
         "--heads", "1", "--mlp-ratio", "1", "--encoding", "sape2-k", "--batch-size", "8", "--log-steps", "1",
         "--checkpoint-steps", "2", "--dropout", "0.1"]
SHORT, LONG = ["--epochs", "3"], ["--epochs", "40"]
KEPT = ("last.safetensors", "best.safetensors")
# Of a line of the log, what tells of the training and not of the clock.
TOLD = ("kind", "epoch", "step", "loss", "learning_rate", "train_loss", "test_loss", "top1", "top5")


def content(path):
    with open(path, "rb") as file:
        return file.read()


def snapshot(folder):
    """Every file's content by its path in the folder."""
    return {os.path.relpath(os.path.join(place, name), folder): content(os.path.join(place, name))
            for place, _, names in os.walk(folder) for name in names
            if os.path.isfile(os.path.join(place, name)) and not name.endswith(".tmp")}


def told(log):
    """The log without what the clock says, and without a last line that a kill cut short."""
    lines = []
    for line in log[:log.rfind(b"\n") + 1].splitlines():
        values = json.loads(line)
        lines.append(json.dumps({key: values[key] for key in TOLD if key in values}))
    return lines


class Runs:
    name = "runs"
    quick = 7

    def __init__(self, context):
        self.context = context
        self.whole = os.path.join(context.folder, "whole")
        before = time.monotonic()
        result = context.program.run([*TRAIN, *SHORT, "--out", self.whole], context.folder, seconds=60)
        self.duration = time.monotonic() - before
        if result.code != 0:
            raise Failure(f"the run itself fails: {result.shown()}")
        self.weights = {name: content(os.path.join(self.whole, name)) for name in KEPT}
        self.log = told(content(os.path.join(self.whole, "log.jsonl")))

    def case(self, random, number, folder):
        kinds = (self.killed, self.config, self.checkpoint, self.closed, self.finished, self.log_file, self.killed)
        kinds[number % len(kinds)](random, os.path.join(folder, "run"), folder)
        return 1

    def resume(self, run, folder):
        return self.context.program.run(["train", "--resume", run], folder, seconds=60)

    def kill_soon(self, random, arguments, folder):
        """Starts training and kills it, or asks it to end, at a random moment."""
        process = self.context.program.start(arguments, folder)
        time.sleep(random.uniform(0.2, 1) * self.duration)
        process.send_signal(random.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGINT]))
        try:
            out, err = process.communicate(timeout=20 * self.context.program.patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failure("training does not end on a signal") from None
        if process.returncode not in (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, 143):
            check_end(Result(arguments, process.returncode, out, err))

    def killed(self, random, run, folder):
        """Killed once or more, a run comes to the same bits as one that was left alone."""
        self.kill_soon(random, [*TRAIN, *SHORT, "--out", run], folder)
        if not os.path.exists(os.path.join(run, "config.json")):
            return
        if random.random() < 0.5:
            self.kill_soon(random, ["train", "--resume", run], folder)
        result = self.resume(run, folder)
        if result.code != 0:
            raise Failure(f"a killed run cannot be resumed: {result.shown()}")
        self.check_whole(run)

    def closed(self, random, run, folder):
        """Standard streams that are closed: what is meant for them must not land in the run's files."""
        closed = "0<&- 1>&- 2>&-" if random.random() < 0.7 else random.choice(["1>&- 2>&-", "0<&- 2>&-", "1>&-"])
        arguments = [*TRAIN, *SHORT, "--out", run]
        process = subprocess.run(["sh", "-c", f'exec "$0" "$@" {closed}', self.context.program.path, *arguments],
                                 cwd=folder, env=self.context.program.environment, capture_output=True,
                                 timeout=60 * self.context.program.patience, check=False)
        check_end(Result(arguments, process.returncode, process.stdout, process.stderr))
        self.check_whole(run)
        for name, data in snapshot(run).items():
            if b"epoch 1/3" in data:
                raise Failure(f"what is meant for a closed stream is in {name}")

    def check_whole(self, run):
        for name, weights in self.weights.items():
            if content(os.path.join(run, name)) != weights:
                raise Failure(f"{name} is not what an undisturbed run gives")
        log = told(content(os.path.join(run, "log.jsonl")))
        if log != self.log:
            raise Failure(f"the log has {len(log)} lines, an undisturbed run's {len(self.log)}, or others")

    def begun(self, run, folder):
        """A run that was interrupted after its first checkpoint."""
        process = self.context.program.start([*TRAIN, *LONG, "--out", run], folder)
        deadline = time.monotonic() + 30 * self.context.program.patience
        checkpoints = os.path.join(run, "checkpoints")
        while time.monotonic() < deadline:
            if os.path.isdir(checkpoints) and sum(n.endswith("safetensors") for n in os.listdir(checkpoints)) >= 2:
                break
            time.sleep(0.02)
        process.kill()
        process.communicate()

    def check_kept(self, before, run, refused):
        """What was in the folder is there still; a damaged checkpoint may have another name."""
        after = snapshot(run)
        everything = set(after.values())
        for name, old in before.items():
            if after.get(name) == old:
                continue
            if name == "log.jsonl" and not refused and after.get(name, b"")[:200] == old[:200]:
                continue
            if name.startswith("checkpoints") and old in everything:
                continue
            if not refused and (name.startswith("checkpoints") or name in KEPT or name.startswith(("curves", "events"))):
                continue  # training went on and wrote newer ones
            raise Failure(f"{name} is lost or changed by a resume that was {'refused' if refused else 'accepted'}")

    def config(self, random, run, folder):
        """config.json is edited by hand: refused or used, but with the file restored all is as before."""
        self.begun(run, folder)
        path = os.path.join(run, "config.json")
        right = content(path)
        before = snapshot(run)
        config = json.loads(right)
        how = random.randrange(6)
        if how == 0:
            config["model"]["vit"][random.choice(["width", "depth", "heads"])] = random.choice([2, 32, -1, 10**9])
        elif how == 1:
            config["recipe"][random.choice(sorted(config["recipe"]))] = random.choice([3, "x", -1, None])
        elif how == 2:
            config["seed"] = 7
        elif how == 3:
            config.pop(random.choice(sorted(config)))
        elif how == 4:
            config[random.choice(["init", "init_checksum"])] = random.choice(["crc32c:0", "/nowhere", "\0", "x" * 100_000, 7])
        text = json.dumps(config) if how < 5 else right[:random.randrange(len(right))].decode()
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        result = self.resume(run, folder)
        if result.code == 0:
            return  # it was an edit that a run may have, and it went on
        check_sentence(result)
        with open(path, "wb") as file:
            file.write(right)
        self.check_kept(before, run, refused=True)
        self.check_goes_on(before, run, folder)

    def check_goes_on(self, before, run, folder):
        """A resume begins at the newest checkpoint that is whole, never at the first step."""
        steps = [int(name[-21:-12]) for name in before if name.startswith("checkpoints") and name.endswith(".safetensors")]
        old = told(before["log.jsonl"])
        self.kill_soon_after_start(run, folder)
        log = told(content(os.path.join(run, "log.jsonl")))
        common = [line for line in old if json.loads(line)["step"] <= min(steps)]
        if log[:len(common)] != common:
            raise Failure("lines of the log before the checkpoint are gone after a resume")
        if not any(name.endswith(".safetensors") for name in os.listdir(os.path.join(run, "checkpoints"))):
            raise Failure("a good run has no checkpoint any more")

    def kill_soon_after_start(self, run, folder):
        process = self.context.program.start(["train", "--resume", run], folder)
        time.sleep(self.duration)
        process.kill()
        process.communicate()

    def checkpoint(self, random, run, folder):
        """One checkpoint, or all, are damaged or cannot be read."""
        self.begun(run, folder)
        place = os.path.join(run, "checkpoints")
        names = sorted(n for n in os.listdir(place) if n.endswith(".safetensors"))
        every = random.random() < 0.5
        unreadable = random.random() < 0.4
        for name in names if every else names[-1:]:
            path = os.path.join(place, name)
            if unreadable:  # for root too, whom permissions do not stop
                os.rename(path, path + ".kept")
                os.symlink(name, path)
                continue
            data = bytearray(content(path))
            if random.random() < 0.5:
                data = data[:random.randrange(len(data))]
            else:
                data[random.randrange(len(data))] ^= 0x10
            with open(path, "wb") as file:
                file.write(data)
        before = snapshot(run)
        if not every:
            self.check_goes_on(before, run, folder)
            return
        check_sentence(self.resume(run, folder))
        self.check_kept(before, run, refused=True)

    def finished(self, random, run, folder):
        """The checkpoints of a finished run are gone: a resume must not begin again over its weights."""
        shutil.copytree(self.whole, run)
        shutil.rmtree(os.path.join(run, "checkpoints"))
        if random.random() < 0.5:
            os.mkdir(os.path.join(run, "checkpoints"))
        before = snapshot(run)
        result = self.resume(run, folder)
        if result.code != 0:
            check_sentence(result)
        self.check_kept(before, run, refused=True)

    def log_file(self, random, run, folder):
        """The log is damaged: weights and checkpoints are not, and the run goes on or is refused."""
        self.begun(run, folder)
        path = os.path.join(run, "log.jsonl")
        data = content(path)
        with open(path, "wb") as file:
            file.write(random.choice([b"", b"\0" * 100, data[:len(data) // 2], data + b"{\"kind\":", b"[]\n" + data]))
        before = snapshot(run)
        process = self.context.program.start(["train", "--resume", run], folder)
        try:
            out, err = process.communicate(timeout=self.duration)
            result = Result(["train", "--resume", run], process.returncode, out, err)
            check_end(result)
            if result.code != 0:
                check_sentence(result)
                self.check_kept(before, run, refused=True)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
