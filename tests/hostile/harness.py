"""What all kinds of cases share: running the program within limits, and what counts as wrong."""

import os
import resource
import re
import signal
import subprocess


class Failure(Exception):
    """A case that went wrong; its text says how."""


class Result:
    def __init__(self, arguments, code, out, err):
        self.arguments, self.code, self.out, self.err = arguments, code, out, err

    def shown(self):
        """For a report: the end of what was said."""
        said = " ".join((self.out[-300:] + self.err[-1500:]).decode(errors="replace").split())
        return f"`sape2 {' '.join(map(shortened, self.arguments))}` left with {self.code} and said: {said}"


def shortened(value):
    text = str(value)
    return text if len(text) < 120 else text[:100] + f"… ({len(text)} letters)"


SANITIZER = (b"ERROR: AddressSanitizer", b"runtime error:", b"ERROR: LeakSanitizer", b"WARNING: ThreadSanitizer")


class Program:
    """The program under attack. `patience` stretches all time limits, for slow builds."""

    MOST_MEMORY = 3 << 30

    def __init__(self, path, patience):
        self.path, self.patience = os.path.abspath(path), patience
        self.environment = dict(os.environ, OMP_NUM_THREADS="1", OMP_WAIT_POLICY="PASSIVE", LC_ALL="C.UTF-8",
                                ASAN_OPTIONS="detect_leaks=0:allocator_may_return_null=1:"
                                             + os.environ.get("ASAN_OPTIONS", ""))

    def start(self, arguments, folder, **options):
        return subprocess.Popen([self.path, *map(os.fspath, arguments)], cwd=folder, env=self.environment,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def run(self, arguments, folder, seconds=20):
        """Runs to the end. A crash, a hang, a sanitizer's report and a flood of memory are failures."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        process = self.start(arguments, folder)
        try:
            out, err = process.communicate(timeout=seconds * self.patience)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise Failure(f"`sape2 {' '.join(map(shortened, arguments))}` hangs: not done after "
                          f"{seconds * self.patience:.0f} s") from None
        result = Result(arguments, process.returncode, out, err)
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
        if peak > before and peak << 10 > self.MOST_MEMORY * self.patience:
            raise Failure(f"{peak >> 10} MiB of memory were used; {result.shown()}")
        check_end(result)
        return result


def check_end(result):
    """No signal, no sanitizer's report, nothing for the terminal to obey."""
    if result.code < 0 or result.code >= 128 and result.code != 130:
        number = -result.code if result.code < 0 else result.code - 128
        name = signal.Signals(number).name if number in set(signal.Signals) else number
        raise Failure(f"ended by {name}; {result.shown()}")
    if any(mark in result.err for mark in SANITIZER):
        raise Failure(f"a sanitizer reports; {result.shown()}")
    for stream in (result.out, result.err):
        if any(byte < 32 and byte not in b"\n\t\r" or byte == 127 for byte in stream):
            raise Failure(f"control characters reach the terminal; {result.shown()!r}")


def check_same_verdict(one, other):
    """Two programs that read one file both take it, or refuse it in the same words.

    Of several tensors with wrong shapes each may name the one that it came to first.
    """
    if (one.code == 0) != (other.code == 0):
        raise Failure(f"two readers disagree: {one.shown()}; {other.shown()}")
    said = [result.err.decode(errors="replace").strip().splitlines()[-1:] for result in (one, other)]
    said = [line[0].split(": ", 1)[1] if line else "" for line in said]
    said = [re.sub(r"tensor .* has the shape .*", "a tensor has the wrong shape", line) for line in said]
    if one.code != 0 and said[0] != said[1]:
        raise Failure(f"two readers give different reasons: {one.shown()}; {other.shown()}")


def check_sentence(result, name="sape2"):
    """A refusal: exit code not 0, and one line that begins with the program's name."""
    lines = result.err.decode(errors="replace").splitlines()
    if result.code == 0:
        raise Failure(f"this should be refused, but {result.shown()}")
    if not lines or not lines[-1].startswith(name + ": ") or len(lines[-1]) > 2000:
        raise Failure(f"the refusal is not one sentence; {result.shown()}")
    if any(raw in lines[-1] for raw in ("filesystem error", "what():", "std::", "basic_string", "c10::", "json.exception")):
        raise Failure(f"the refusal is in the words of a library; {result.shown()}")


def check_no_wild_numbers(result):
    """Numbers that are none must not be printed as if they were an answer."""
    words = result.out.decode(errors="replace").lower().replace('"', " ").replace(",", " ").split()
    if any(word.strip("-:%") in ("nan", "inf", "infinity", "null") for word in words):
        raise Failure(f"numbers that are none are printed with exit code 0; {result.shown()}")


def mutated(random, data, pieces=(b"",)):
    """A few random changes of any bytes."""
    data = bytearray(data)
    for _ in range(random.randint(1, 4)):
        place = random.randrange(len(data) + 1)
        how = random.randrange(6)
        if how == 0 and place < len(data):
            data[place] = random.randrange(256)
        elif how == 1 and place < len(data):
            data[place] ^= 1 << random.randrange(8)
        elif how == 2:
            data[place:place] = random.choice(pieces)
        elif how == 3:
            del data[place:place + random.randint(1, 12)]
        elif how == 4:
            data[place:place] = data[random.randrange(len(data) + 1):][:random.randrange(64)]
        else:
            del data[place:]
    return bytes(data)
