"""A relay on a machine on the way, which records what a client sends to a server over TCP, and sends it there again."""
import socket
import threading


class RecordingRelay:
    """Listens on 127.0.0.1 until close(); `address`: where clients are to connect to."""

    def __init__(self, server):
        host, port = server.rsplit(":", 1)
        self.server = (host, int(port))
        self.sessions = []  # bytes from the client, of each connection
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return  # closed
            server = socket.create_connection(self.server)
            self.sessions.append(bytearray())
            threading.Thread(target=self._pass, args=(client, server, self.sessions[-1]), daemon=True).start()
            threading.Thread(target=self._pass, args=(server, client, bytearray()), daemon=True).start()

    @staticmethod
    def _pass(source, target, record):
        try:
            while data := source.recv(65536):
                record += data
                target.sendall(data)
        except OSError:
            pass  # the other direction has closed both
        for each in (source, target):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def replay(self, recorded, timeout_s=10):
        """Sends what was recorded to the server on a new connection; what it answers until it closes, which it must within so long."""
        answer = bytearray()
        with socket.create_connection(self.server, timeout=timeout_s) as again:
            try:
                again.sendall(recorded)
                while data := again.recv(65536):
                    answer += data
            except ConnectionError:
                pass  # a reset is an end, too
        return bytes(answer)


def records(data):
    """The TLS records in it: (content type, body)."""
    found = []
    while len(data) >= 5:
        size = int.from_bytes(data[3:5], "big")
        found.append((data[0], data[5:5 + size]))
        data = data[5 + size:]
    return found
