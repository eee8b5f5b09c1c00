"""Files over TCP, for tests in which a host of a fabric keeps them: `serve` on that host, `put` and `get` on the others.

usage: file_server.py serve FOLDER ADDRESS PORT
       file_server.py put|get FOLDER ADDRESS PORT PART PARTS      the PART-th of PARTS equal pieces of each file, from FOLDER or into it

A request is a line of JSON, {"put": NAME, "offset", "length"} with as many bytes behind it, {"get": …}, or {"list": true}; the answer of a
list is a line of names and sizes, of a get the bytes, of a put a line.
"""

import json
import os
import socket
import socketserver
import sys

PIECE = 1 << 16


def copy(read, write, length):
    while length > 0:
        data = read(min(PIECE, length))
        if not data:
            sys.exit("file_server: the other end has gone")
        write(data)
        length -= len(data)


def files_of(folder):
    paths = [os.path.join(root, name) for root, _, names in os.walk(folder) for name in names]
    return {os.path.relpath(path, folder): os.path.getsize(path) for path in sorted(paths)}


def opened(folder, name):
    """To be written at any place, whoever comes first."""
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return open(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "r+b")


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        folder = self.server.folder
        for line in self.rfile:
            asked = json.loads(line)
            if "list" in asked:
                self.wfile.write(json.dumps(files_of(folder)).encode() + b"\n")
            elif "put" in asked:
                with opened(folder, asked["put"]) as out:
                    out.seek(asked["offset"])
                    copy(self.rfile.read, out.write, asked["length"])
                self.wfile.write(b"ok\n")
            else:
                with open(os.path.join(folder, asked["get"]), "rb") as source:
                    source.seek(asked["offset"])
                    copy(source.read, self.wfile.write, asked["length"])


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = daemon_threads = True


def serve(folder, address, port):
    with Server((address, port), Handler) as server:
        server.folder = folder
        print(json.dumps({"ready": True}), flush=True)
        server.serve_forever()


def transfer(way, folder, address, port, part, parts):
    with socket.create_connection((address, port), timeout=60) as connection, connection.makefile("rwb") as stream:
        def ask(asked):
            stream.write(json.dumps(asked).encode() + b"\n")

        if way == "get":
            ask({"list": True})
            stream.flush()
            files = json.loads(stream.readline())
        else:
            files = files_of(folder)
        for name, size in files.items():
            begin, end = size * part // parts, size * (part + 1) // parts
            ask({way: name, "offset": begin, "length": end - begin})
            with opened(folder, name) as file:
                file.seek(begin)
                if way == "get":
                    stream.flush()
                    copy(stream.read, file.write, end - begin)
                else:
                    copy(file.read, stream.write, end - begin)
                    stream.flush()
                    if stream.readline() != b"ok\n":
                        sys.exit(f"file_server: {name} was not taken")


def main(way, folder, address, port, *rest):
    if way == "serve":
        serve(folder, address, int(port))
    else:
        transfer(way, folder, address, int(port), *map(int, rest))


if __name__ == "__main__":
    main(*sys.argv[1:])
