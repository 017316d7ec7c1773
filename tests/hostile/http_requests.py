"""Requests that no well-meaning browser sends, to a server of our own on the loopback address."""

import os
import re
import select
import signal
import socket
import subprocess
import time

from harness import SANITIZER, Failure, mutated
from images import hostile_image, png, seeds

MOST_MEMORY = 1500 << 20
PIECES = [b"\r\n", b"\n", b"\0", b": ", b"Host: evil.example\r\n", b"Content-Length: 5\r\n", b"HTTP/1.1", b" ", b"%00",
          b"Transfer-Encoding: chunked\r\n", b"Content-Length: 99999999999999999999\r\n", b"\xff", b"A: " + b"b" * 9000,
          b"X: y\r\n" * 500, b"%2e%2e%2f", b"?", b"&&&", b"=", b"-1"]


class Server:
    def __init__(self, program, models, folder):
        self.program = program
        self.process = program.start(["serve", *models, "--data", "shapes", "--port", "0"], folder)
        said = b""
        deadline = time.monotonic() + 30 * program.patience
        while not (found := re.search(rb"http://127\.0\.0\.1:(\d+)/", said)):
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise Failure(f"the server does not start: {said!r} {self.process.stderr.read()!r}")
            if select.select([self.process.stdout], [], [], 0.2)[0]:
                said += os.read(self.process.stdout.fileno(), 4096)
        self.port = int(found[1])

    def check_alive(self):
        if self.process.poll() is not None:
            raise Failure(f"the server ended with {self.process.returncode}: {self.process.stderr.read()[-1500:]!r}")
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            memory = int(re.search(r"VmRSS:\s+(\d+)", file.read())[1]) << 10
        if memory > MOST_MEMORY * self.program.patience:
            raise Failure(f"the server uses {memory >> 20} MiB of memory")

    def stop(self):
        """SIGTERM ends it within two seconds."""
        if self.process.poll() is not None:
            return self.check_alive()
        before = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            _, err = self.process.communicate(timeout=30 * self.program.patience)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise Failure("the server does not stop on SIGTERM") from None
        seconds = time.monotonic() - before
        if seconds > 2 * self.program.patience:
            raise Failure(f"the server took {seconds:.1f} s to stop")
        if any(mark in err for mark in SANITIZER):
            raise Failure(f"a sanitizer reports: {err[-1500:]!r}")
        if self.process.returncode not in (0, 130, 143):
            raise Failure(f"the stopped server left with {self.process.returncode}: {err[-500:]!r}")

    def send(self, data, seconds=20, leave=False, whole=True):
        """The whole answer to some bytes; none where `leave` or where the server closes without one. A request that
        may not be whole is ended from here, after a moment for the answer."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=seconds * self.program.patience) as line:
            try:
                line.sendall(data)
                if leave:
                    return b""
                if not whole and not select.select([line], [], [], 0.3)[0]:
                    line.shutdown(socket.SHUT_WR)
                answer = b""
                while part := line.recv(1 << 16):
                    answer += part
                    if len(answer) > 200 << 20:
                        raise Failure(f"the answer to {data[:200]!r} does not end")
                return answer
            except (BrokenPipeError, ConnectionResetError):
                return b""
            except socket.timeout:
                raise Failure(f"no answer to {data[:300]!r} after {seconds * self.program.patience:.0f} s") from None

    def request(self, path, method="GET", body=b"", host=None, headers=""):
        length = f"Content-Length: {len(body)}\r\n" if body or method == "POST" else ""
        head = (f"{method} {path} HTTP/1.1\r\nHost: {host or f'127.0.0.1:{self.port}'}\r\n{length}{headers}"
                "Connection: close\r\n\r\n")
        return head.encode("latin-1", "replace") + body


def status_of(answer):
    found = re.match(rb"HTTP/1\.[01] (\d{3}) ", answer)
    return int(found[1]) if found else 0


class Requests:
    name = "requests"
    quick = 6

    def __init__(self, context):
        self.context = context
        self.originals = seeds(os.path.dirname(os.path.abspath(__file__)))
        self.server = None
        self.honest = None

    # A classifier and a model for segmentation.
    ROWS = "/api/rows?model=0&image=data:3&what=attention&layer=1&head=1&y=1&x=2"
    PATHS = ["/", "/api/setup", ROWS, "/api/inspect?model=0&image=data:0", "/api/picture?image=data:1",
             "/api/figure?model=0&image=data:0&format=svg", "/api/mask?model=1&image=data:0",
             "/api/pixel?model=1&image=data:0&y=5&x=9"]

    def start(self):
        if self.server is None or self.server.process.poll() is not None:
            self.server = Server(self.context.program, [self.context.model, self.context.segmenter], self.context.folder)
            self.honest = self.body(self.server.request(self.ROWS))

    def body(self, request):
        answer = self.server.send(request)
        if status_of(answer) != 200:
            raise Failure(f"{request[:200]!r} is answered {answer[:300]!r}")
        return answer.split(b"\r\n\r\n", 1)[1]

    def finish(self):
        if self.server:
            self.server.stop()

    def case(self, random, number, folder):
        self.start()
        kinds = (self.malformed, self.foreign, self.uploads, self.values, self.ranges, self.abandoned)
        tried = kinds[number % len(kinds)](random)
        self.server.check_alive()
        before = time.monotonic()
        if self.body(self.server.request(self.ROWS)) != self.honest:
            raise Failure("an honest request gets another answer than before")
        if time.monotonic() - before > 3 * self.context.program.patience:
            raise Failure(f"an honest request waited {time.monotonic() - before:.1f} s")
        return tried + 1

    def malformed(self, random):
        for _ in range(25):
            good = self.server.request(random.choice(self.PATHS), headers="Accept: */*\r\n")
            bad = mutated(random, good, PIECES)
            answer = self.server.send(bad, whole=False)
            status = status_of(answer)
            if answer and not 200 <= status < 600 or status == 500:
                raise Failure(f"{bad!r} is answered {answer[:300]!r}")
        return 25

    def foreign(self, random):
        """Pages of others: whatever name they come by, they get nothing."""
        port = self.server.port
        own = f"127.0.0.1:{port}"
        hosts = [f"127.0.0.1.evil.com:{port}", f"evil.example:{port}", f"127.evil.com:{port}", f"localhost.evil.com:{port}",
                 f"127.0.0.1:{port % 65535 + 1}", "127.0.0.1", f"127.0.0.1@evil.com:{port}", f"[::1].evil.com:{port}",
                 f"0x7f.1:{port}", f"127.1:{port}", f"127.0.0.1 .evil.com:{port}", f"10.0.0.1:{port}", f"127.0.0.256:{port}",
                 f"localhost:{port}.evil.com", f"127.0.0.1:{port},evil.com"]
        origins = ["http://evil.example", f"http://127.0.0.1.evil.com:{port}", f"https://127.0.0.1:{port}", "null",
                   f"http://127.0.0.1:{port % 65535 + 1}", f"http://127.0.0.1:{port}.evil.com", f"http://127.0.0.2:{port}"]
        for _ in range(25):
            host, headers = own, ""
            how = random.randrange(3)
            if how == 0:
                host = random.choice(hosts)
                headers = random.choice(["", f"Origin: http://{host}\r\n"])
            elif how == 1:
                headers = f"Origin: {random.choice(origins)}\r\n"
            else:
                headers = f"Sec-Fetch-Site: {random.choice(['cross-site', 'same-site'])}\r\n" \
                          f"Sec-Fetch-Mode: {random.choice(['no-cors', 'cors'])}\r\n"
            post = random.random() < 0.3
            request = self.server.request("/api/images" if post else random.choice(self.PATHS[1:]),
                                          "POST" if post else "GET", png(8, 8, 1) if post else b"", host, headers)
            status = status_of(self.server.send(request))
            if status not in (0, 400, 403):
                raise Failure(f"a foreign page is answered {status}: {request[:300]!r}")
        return 25

    def uploads(self, random):
        for _ in range(25):
            image = hostile_image(random, self.originals)
            status = status_of(self.server.send(self.server.request("/api/images", "POST", image)))
            if status not in (200, 400, 413):
                raise Failure(f"an upload of {image[:200]!r} is answered {status}")
        return 25

    def values(self, random):
        """Values of parameters; what is taken must be answered with numbers."""
        wild = ["", "-1", "0", "1", "7", "1e9", "nan", "9" * 40, "%00", "a" * 3000, "mean", "data:0", "data:-1",
                "data:99999999999999999999", "../etc/passwd", "%ff%fe", "\x1b"]
        for _ in range(25):
            path = random.choice(self.PATHS[2:])
            name, *_ = random.choice(path.split("?")[1].split("&")).split("=")
            path = re.sub(rf"\b{name}=[^&]*", lambda _: f"{name}={random.choice(wild)}", path, count=1)
            if random.random() < 0.3:
                path += random.choice(["&size=", "&size=1", "&size=65536", "&size=-5", "&model2=9", "&y=1&y=2", "&&="])
            answer = self.server.send(self.server.request(path))
            status = status_of(answer)
            if status not in (0, 200, 400, 403, 404, 414, 503):
                raise Failure(f"{path!r} is answered {answer[:300]!r}")
            if status == 200 and re.search(rb"\b(nan|NaN|Infinity)\b", answer.split(b"\r\n\r\n", 1)[1][:4096]):
                raise Failure(f"{path!r} is answered with numbers that are none: {answer[:500]!r}")
        return 25

    def ranges(self, random):
        """Answers are whole: a request of some kilobytes must not make one of gigabytes."""
        picture = png(900, 900, random.randrange(256))
        name = re.search(rb'"image"\s*:\s*"([^"]+)"', self.body(self.server.request("/api/images", "POST", picture)))[1]
        path = f"/api/picture?image={name.decode()}"
        whole = self.body(self.server.request(path))
        for count in (1, 2, random.randrange(20, 60)):
            ranges = ",".join(random.choice(["0-", "-1", "5-9"]) for _ in range(count))
            answer = self.server.send(self.server.request(path, headers=f"Range: bytes={ranges}\r\n"))
            if status_of(answer) == 206 or len(answer) > len(whole) + 2000:
                raise Failure(f"{count} ranges make an answer of {len(answer)} bytes, status {status_of(answer)}")
        return 3

    def abandoned(self, random):
        """Costly work whose client goes away at once does not hold up the others."""
        count = random.randint(10, 30)
        work = random.choice(["figure?model=0&format=png", "mask?model=1"])
        for i in range(count):
            self.server.send(self.server.request(f"/api/{work}&image=data:{i}&size=256"), leave=True)
        return count
