"""Work done by processes of their own, so that what fails, hangs or compiles for ever costs its time
limit and nothing else."""

import concurrent.futures
import contextlib
import fcntl
import importlib
import multiprocessing
import os
import time

START_LIMIT = 90  # seconds until a worker has loaded its libraries
TIME_WAS_UP = {"failed": "left out: the time for the whole run was up"}

# Children come from one process that has loaded PyTorch and touched no GPU.
processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload(["torch"])


def failure(error):
    """An exception as an answer."""
    words = str(error).strip().splitlines() or ["no words"]
    return {"failed": f"{type(error).__name__}: {words[0]}"[:160]}


def _serve(connection, module, arguments, environment):
    """A worker's side: answers each job with the module's work(job)."""
    os.environ.update(environment)
    os.dup2(2, 1)  # what libraries print is no part of our table
    worker = importlib.import_module(module)
    worker.prepare(*arguments)
    connection.send({"ready": True})
    while True:
        job = connection.recv()
        try:
            answer = worker.work(job)
        except Exception as error:  # a peer's failure is a result
            answer = failure(error)
        connection.send(answer)


class Worker:
    """One process that runs `module`'s work on each job; started anew whenever a job ends it."""

    def __init__(self, module, *arguments, environment=None):
        self._what = (module, arguments, environment or {})
        self._process, self._connection = None, None

    def run(self, job, limit):
        """The answer, a dict; {"failed": why} where there is none."""
        if self._process is None:
            self._connection, other = processes.Pipe()
            self._process = processes.Process(target=_serve, args=(other, *self._what), daemon=True)
            self._process.start()
            other.close()
            started = self._answer(START_LIMIT)
            if "ready" not in started:
                return started
        self._connection.send(job)
        return self._answer(limit)

    def close(self):
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process = None

    def _answer(self, limit):
        try:
            if self._connection.poll(max(limit, 0.01)):
                return self._connection.recv()
            self.close()
            return {"failed": f"took more than {limit:.0f} s"}
        except (EOFError, ConnectionError):
            self._process.join()
            code, self._process = self._process.exitcode, None
            return {"failed": f"its process ended with code {code}"}


class Clock:
    """What is left of the time for the whole run."""

    def __init__(self, seconds):
        self._end = time.monotonic() + seconds

    def left(self):
        return self._end - time.monotonic()


def run_within(worker, job, limit, clock):
    """The answer to a job that has `limit` seconds, or what is left of the whole time."""
    return worker.run(job, min(limit, clock.left())) if clock.left() > 0 else TIME_WAS_UP


def run_at_once(workers, jobs, at_once, clock):
    """The answers to jobs that may disturb each other, such as compilations: each by its own worker."""
    with concurrent.futures.ThreadPoolExecutor(max(1, at_once)) as pool:
        return list(pool.map(lambda worker, job: run_within(worker, job, clock.left(), clock), workers, jobs))


@contextlib.contextmanager
def holding(lock, alone):
    """Lets several programs that share a lock file compile together, and measure each alone."""
    if lock is None:
        yield
        return
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        yield
