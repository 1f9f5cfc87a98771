"""A training, a server with its client, or a pool of workers, the same each time: KIND FOLDER STEPS STATUS.

All that it computes is in FOLDER and in its output: numbered lines, of one width. Paced, so that an hour costs little.
"""

import hashlib
import json
import multiprocessing
import os
import socket
import socketserver
import subprocess
import sys
import time
from pathlib import Path

PACE_S, WIDTH, WORKERS = 0.05, 160, 3
KIND, FOLDER, STEPS, STATUS = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])


def tell(number, word):
    """On stdout always, on stderr and in a burst sometimes; a write that comes short is an end."""
    line = f"{KIND} {number:08d} {word} ".encode().ljust(WIDTH - 1, b".") + b"\n"
    for fd, times in ((1, 100 if number % 97 == 5 else 1), (2, number % 10 == 0)):
        for _ in range(times):
            assert os.write(fd, line) == WIDTH


def keep(name, **values):
    """As a checkpoint is written: beside, then renamed."""
    beside = FOLDER / f".{name}"
    beside.write_text(json.dumps(values))
    beside.replace(FOLDER / name)


def make_steps():
    """A function that makes a step and gives the digest of all weights."""
    try:
        import torch
    except ImportError:
        return make_plain_steps()
    torch.set_num_threads(1)
    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(number):
        batch = torch.randn(32, 16)
        loss = (model(batch) - batch.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return digest_of(weights.detach().numpy().tobytes() for weights in model.parameters())

    return step


def make_plain_steps():
    weights = [0.0] * 64

    def step(number):
        inputs = [((number * 31 + place * 17) % 101) / 101 for place in range(64)]
        error = sum(w * x for w, x in zip(weights, inputs, strict=True)) - sum(inputs)
        weights[:] = [w - 0.01 * error * x for w, x in zip(weights, inputs, strict=True)]
        return digest_of([repr(weights).encode()])

    return step


def digest_of(chunks):
    digest = hashlib.sha256()
    for chunk in chunks:
        digest.update(chunk)
    return digest.hexdigest()


def train():
    step = make_steps()
    for number in range(STEPS):
        weights = step(number)
        tell(number, weights)
        if number % 50 == 0:
            keep(f"checkpoint-{number // 50 % 5}", number=number, weights=weights)
        time.sleep(PACE_S)
    keep("result", weights=weights)


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while size := int.from_bytes(self.request.recv(4, socket.MSG_WAITALL), "big"):
            self.request.sendall(self.request.recv(size, socket.MSG_WAITALL))
            tell(self.server.answered, size)
            self.server.answered += 1


class Server(socketserver.TCPServer):
    answered = 0


def serve():
    """One connection to the end; the client says by its status whether all came back as it was sent."""
    with Server(("127.0.0.1", 0), Echo) as server:
        words = [sys.executable, __file__, "client", str(FOLDER), str(STEPS), str(server.server_address[1])]
        client = subprocess.Popen(words)
        server.handle_request()
        keep("result", answered=server.answered, client=client.wait())


def ask():
    digest = hashlib.sha256()
    with socket.create_connection(("127.0.0.1", STATUS)) as there:
        for number in range(STEPS):
            data = number.to_bytes(8, "big") * (1 + number * 7919 % 20000)
            there.sendall(len(data).to_bytes(4, "big") + data)
            answer = there.recv(len(data), socket.MSG_WAITALL)
            assert answer == data, (number, len(answer))
            digest.update(answer)
            time.sleep(PACE_S)
    keep("asked", digest=digest.hexdigest())


def work(number):
    time.sleep(PACE_S * WORKERS)
    return number, digest_of([number.to_bytes(8, "big") * 10000])


def share_out():
    with multiprocessing.get_context("fork").Pool(WORKERS) as pool:
        digest = hashlib.sha256()
        for number, part in pool.imap(work, range(STEPS)):
            tell(number, part)
            digest.update(part.encode())
        pool.close()
        pool.join()
    keep("result", digest=digest.hexdigest())


if __name__ == "__main__":
    {"training": train, "server": serve, "client": ask, "pool": share_out}[KIND]()
    sys.exit(0 if KIND == "client" else STATUS)
