"""Work done by processes of its own, so that what fails, hangs or compiles for ever costs its time
limit and nothing else. A worker reads one job a line as JSON and answers each with one line."""

import concurrent.futures
import json
import os
import select
import subprocess
import sys
import tempfile
import time

START_LIMIT = 90  # seconds until a worker has loaded its libraries


class Worker:
    """One process that is started anew whenever a job ends it."""

    def __init__(self, command, environment=None):
        self._command, self._environment = command, {**os.environ, **(environment or {})}
        self._process, self._errors = None, None

    def run(self, job, limit):
        """The worker's answer, a dict; {"failed": why} where there is none."""
        if self._process is None:
            failed = self._start()
            if failed:
                return failed
        try:
            self._process.stdin.write(json.dumps(job) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            return self._ended()
        return self._answer(limit)

    def close(self):
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _start(self):
        self._errors = tempfile.TemporaryFile("w+")
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         stderr=self._errors, env=self._environment, text=True)
        answer = self._answer(START_LIMIT)
        return None if answer.get("ready") else answer

    def _answer(self, limit):
        ready, _, _ = select.select([self._process.stdout], [], [], max(limit, 0.01))
        if not ready:
            self.close()
            return {"failed": f"took more than {limit:.0f} s"}
        line = self._process.stdout.readline()
        return json.loads(line) if line else self._ended()

    def _ended(self):
        code = self._process.wait()
        self._process = None
        self._errors.seek(0)
        words = self._errors.read().strip().splitlines()
        return {"failed": f"its process ended with code {code}: {words[-1] if words else 'no words'}"[:160]}


def serve(work):
    """A worker's side: answers each job on standard input with work(job)."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer

    def answer(result):
        answers.write(json.dumps(result) + "\n")
        answers.flush()

    answer({"ready": True})
    for line in sys.stdin:
        try:
            answer(work(json.loads(line)))
        except Exception as error:  # a peer's failure is a result
            answer(failure(error))


def failure(error):
    """An exception as an answer."""
    words = str(error).strip().splitlines() or ["no words"]
    return {"failed": f"{type(error).__name__}: {words[0]}"[:160]}


class Clock:
    """What is left of the time for the whole run."""

    def __init__(self, seconds):
        self._end = time.monotonic() + seconds

    def left(self):
        return self._end - time.monotonic()


TIME_WAS_UP = {"failed": "left out: the time for the whole run was up"}


def run_within(worker, job, limit, clock):
    """The answer to a job that has `limit` seconds, or what is left of the whole time."""
    return worker.run(job, min(limit, clock.left())) if clock.left() > 0 else TIME_WAS_UP


def run_at_once(workers, jobs, at_once, limit, clock):
    """The answers to jobs that may disturb each other, such as compilations: each by its own worker."""
    with concurrent.futures.ThreadPoolExecutor(max(1, at_once)) as pool:
        return list(pool.map(lambda worker, job: run_within(worker, job, limit, clock), workers, jobs))
