"""A small server of sockets and its client, which sums up what comes back, again and again until its stdin ends."""

import hashlib
import select
import socket
import socketserver
import sys
import threading

SIZE, REQUESTS = 200_000, 200


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while size := int.from_bytes(self.request.recv(4, socket.MSG_WAITALL), "big"):
            self.request.sendall(self.request.recv(size, socket.MSG_WAITALL))


class Server(socketserver.ThreadingTCPServer):
    daemon_threads = True


def ask(address):
    digest = hashlib.sha256()
    with socket.create_connection(address) as there:
        for number in range(REQUESTS):
            data = number.to_bytes(8, "big") * (SIZE // 8)
            there.sendall(len(data).to_bytes(4, "big") + data)
            answer = there.recv(len(data), socket.MSG_WAITALL)
            assert answer == data, (number, len(answer))
            digest.update(answer)
    return digest.hexdigest()


with Server(("127.0.0.1", 0), Echo) as server:
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("ready", file=sys.stderr, flush=True)
    while True:
        print(ask(server.server_address), flush=True)
        if select.select([sys.stdin], [], [], 0)[0]:
            break
    server.shutdown()
